"""The shapes of the lesson, step by step: 4 sentences, source 10, target 12, d_model 512, vocabulary 100,256."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model import Attention, EncoderDecoder, LayerNorm, build_model
from glassformer.model.attention import RecordingKernel, attention
from glassformer.model.twin import twin

SIZES: dict[str, Any] = {
    "d_model": 512,
    "d_ff": 2048,
    "n_heads": 8,
    "vocab_size": 100_256,
    "n_encoder_layers": 6,
    "n_decoder_layers": 6,
}
META = torch.device("meta")  # shapes without numbers: no memory, no time


class ShapeKernel(RecordingKernel):
    """Keeps the shapes of queries, keys, scores and context of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[tuple[int, ...], ...]] = []

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        context, weights = attention(q, k, v, **options)
        self.shapes.append((tuple(q.shape), tuple(k.shape), tuple(v.shape), tuple(weights.shape), tuple(context.shape)))
        return context


class Trace:
    def __init__(self, model: EncoderDecoder) -> None:
        self.out: dict[str, tuple[int, ...]] = {}
        for name, module in model.named_modules():
            module.register_forward_hook(self._keep(name))

    def _keep(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
            self.out[name] = tuple(output.shape)

        return hook


Lesson = tuple[EncoderDecoder, Trace, ShapeKernel, Tensor]


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    config = ModelConfig(**SIZES, pad_id=None, norm_placement="post", use_final_norm=False)
    with META:
        built = build_model(config)
    kernel = ShapeKernel()
    model = twin(built, kernel)
    assert isinstance(model, EncoderDecoder)
    trace = Trace(model)
    src, tgt = torch.empty(4, 10, dtype=torch.long, device=META), torch.empty(4, 12, dtype=torch.long, device=META)
    return model, trace, kernel, model(src, tgt)


def test_input_side(lesson: Lesson) -> None:
    out = lesson[1].out
    assert out["encoder.embedding.tokens"] == (4, 12, 512)  # one table for both sides: the target came last
    assert out["encoder.embedding.positions"] == (1, 10, 512)
    assert out["encoder.embedding"] == (4, 10, 512)
    assert out["decoder.embedding.positions"] == (1, 12, 512)
    assert out["decoder.embedding"] == (4, 12, 512)


def test_heads(lesson: Lesson) -> None:
    model, trace, kernel, _ = lesson
    src, tgt = (4, 8, 10, 64), (4, 8, 12, 64)
    assert kernel.shapes[:6] == [(src, src, src, (4, 8, 10, 10), src)] * 6
    decoder = [(tgt, tgt, tgt, (4, 8, 12, 12), tgt), (tgt, src, src, (4, 8, 12, 10), tgt)]
    assert kernel.shapes[6:] == decoder * 6
    assert trace.out["encoder.stack.blocks.0.self_attention.w_q"] == (4, 10, 512)
    assert trace.out["encoder.stack.blocks.0.self_attention"] == (4, 10, 512)
    assert trace.out["decoder.stack.blocks.0.cross_attention"] == (4, 12, 512)
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    assert [layer.scale for layer in layers] == [64**-0.5] * 18


def test_blocks_and_memory(lesson: Lesson) -> None:
    out = lesson[1].out
    for i in range(6):
        assert out[f"encoder.stack.blocks.{i}.feed_forward.w_1"] == (4, 10, 2048)
        assert out[f"encoder.stack.blocks.{i}.feed_forward"] == (4, 10, 512)
        assert out[f"encoder.stack.blocks.{i}"] == (4, 10, 512)
        assert out[f"decoder.stack.blocks.{i}"] == (4, 12, 512)
    assert out["encoder"] == (4, 10, 512)
    assert out["decoder"] == (4, 12, 512)


def test_output_side(lesson: Lesson) -> None:
    _, trace, _, logits = lesson
    assert trace.out["decoder.projection"] == (4, 12, 100_256)
    assert tuple(logits.softmax(-1).shape) == (4, 12, 100_256)


def test_paper_dropout_places() -> None:
    """2017: on the sum of embeddings and positions, and on each sub-layer's output before the residual sum."""
    with META:
        model = build_model(ModelConfig(**SIZES, dropout=0.1, attention_dropout=0.2, ffn_dropout=0.3))
    rates = {name: module.p for name, module in model.named_modules() if isinstance(module, nn.Dropout)}
    assert rates["encoder.embedding.dropout"] == rates["decoder.embedding.dropout"] == 0.1
    assert rates["decoder.stack.blocks.5.cross_residual.dropout"] == 0.1
    assert rates["encoder.stack.blocks.0.feed_forward.dropout"] == 0.3
    assert {module.dropout for module in model.modules() if isinstance(module, Attention)} == {0.2}
    assert len(rates) == 2 + 6 * (2 + 1) + 6 * (3 + 1)


def test_final_norms_where_the_config_has_them() -> None:
    for use_final_norm, n_norms in ((True, 6 * 2 + 6 * 3 + 2), (False, 6 * 2 + 6 * 3)):
        with META:
            model = build_model(ModelConfig(**SIZES, use_final_norm=use_final_norm))
        assert sum(isinstance(module, LayerNorm) for module in model.modules()) == n_norms
