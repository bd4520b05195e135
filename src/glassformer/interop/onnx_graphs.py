"""The model as functions of tensors alone, which can be written as graphs: masks given, caches passed in and out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.model import Attention, DecoderOnly, EncoderDecoder, EncoderOnly, KVCache, Model, Stack, attention
from glassformer.model.cache import CrossCache, LayerCache
from glassformer.model.embedding import InputEmbedding
from glassformer.model.positions import SinusoidalPositions, sinusoids

__all__ = ["Graph", "graphs_of"]

# Sizes of the examples that are traced. Sizes of 0 and 1 would be taken as fixed.
BATCH, SRC, TGT, PAST = 2, 5, 3, 4


@dataclass(frozen=True)
class Graph:
    """One file of an export: a module, an example of its inputs, their names and which of their axes may vary."""

    file: str
    module: nn.Module
    example: tuple[Tensor | list[Tensor], ...]
    inputs: list[str]
    outputs: list[str]
    axes: tuple[dict[int, str] | list[dict[int, str]], ...]


class GrowingCache(LayerCache):
    """Keys and values that grow by concatenation, in place of memory laid out once: a graph has no such memory."""

    def __init__(self, past: tuple[Tensor, Tensor] | None) -> None:
        self.past = past

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.past is not None:
            k, v = torch.cat([self.past[0], k], dim=2), torch.cat([self.past[1], v], dim=2)
        self.past = (k, v)
        return k, v


class EveryLength(int):
    """A window that is applied at every length: a graph cannot decide by it."""

    def __lt__(self, other: object) -> bool:
        return True


class GraphSinusoids(nn.Module):
    """Sinusoidal positions from the numbers themselves, so that a graph has no bound."""

    def __init__(self, positions: SinusoidalPositions) -> None:
        super().__init__()
        self.d_model, self.is_interleaved = positions.d_model, positions.is_interleaved

    def forward(self, positions: Tensor, *, n_positions: int, dtype: torch.dtype) -> Tensor:
        return sinusoids(positions, self.d_model, is_interleaved=self.is_interleaved).to(dtype)


class EncoderGraph(nn.Module):
    """ids [B, S], mask int64 [B, S] (, segments [B, S]) -> features [B, S, D], then the outputs of the heads."""

    def __init__(self, model: EncoderDecoder | EncoderOnly) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> tuple[Tensor, ...]:
        model, is_real = self.model, mask.bool()
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        x = model.encoder.embedding(ids, positions, n_positions=0, segment_ids=segments)
        x = model.encoder.stack(x, positions, key_mask=is_real)
        if isinstance(model, EncoderDecoder):
            return (x,)
        return (x, *(head(model, x, is_real) for _, head in _heads(model)))


def _heads(model: EncoderOnly) -> list[tuple[str, Callable[[EncoderOnly, Tensor, Tensor], Tensor]]]:
    """Name and computation of what stands on an encoder: (model, features [B, S, D], mask [B, S]) -> output."""
    heads: list[tuple[str, Callable[[EncoderOnly, Tensor, Tensor], Tensor]]] = []
    if model.pooler is not None:
        heads.append(("pooler_output", lambda m, x, mask: m.pooler(x)))  # type: ignore[misc]
    if model.mlm_head is not None:
        heads.append(("logits", lambda m, x, mask: m.mlm_head(x)))  # type: ignore[misc]
    if model.label_head is not None:
        heads.append(("label_logits", lambda m, x, mask: m.votes(x, mask)))
    heads.append(("sentence_embedding", lambda m, x, mask: m.pooled(x, mask)))
    return heads


class DecoderGraph(nn.Module):
    """The decoder of an encoder-decoder: logits [B, T, V], then keys and values, of all layers.

    First call: ids [B, T], memory mask int64 [B, S], memory [B, S, D].
    With past: ids [B, T], memory mask, and for each layer k, v [B, G, past, K] and cross k, v [B, G, S, K].
    """

    def __init__(self, model: EncoderDecoder, *, has_past: bool) -> None:
        super().__init__()
        self.model, self.has_past = model, has_past

    def forward(self, ids: Tensor, memory_mask: Tensor, given: Tensor | list[Tensor]) -> tuple[Tensor, ...]:
        decoder = self.model.decoder
        if self.has_past:
            layers = [GrowingCache((given[i], given[i + 1])) for i in range(0, len(given), 4)]
            cross = [CrossCache(given[i + 2], given[i + 3]) for i in range(0, len(given), 4)]
            length = given[0].shape[2]
        else:
            layers = [GrowingCache(None) for _ in decoder.stack.blocks]
            cross = [CrossCache(*block.cross_attention.keys_values(given)) for block in decoder.stack.blocks]  # type: ignore[operator, union-attr]
            length = 0
        positions = torch.arange(ids.shape[1])[None, :] + length
        cache = _cache(layers, length, torch.arange(length)[None, :] if self.has_past else None)
        cache.cross, cache.memory_mask = cross, memory_mask.bool()
        x = decoder.embedding(ids, positions, n_positions=0)
        x = decoder.stack(x, positions, memory_mask=cache.memory_mask, cache=cache)
        present: list[Tensor] = []
        for layer, source in zip(layers, cross, strict=True):
            present += layer.past or ()
            present += [] if self.has_past else [source.k, source.v]
        return (self.model.project(x), *present)


class CausalGraph(nn.Module):
    """A decoder-only model: ids [B, T], mask int64 [B, past + T] (, k, v [B, G, past, K] of all layers) -> logits
    [B, T, V], then keys and values of all tokens."""

    def __init__(self, model: DecoderOnly) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor, past: list[Tensor] | None = None) -> tuple[Tensor, ...]:
        decoder = self.model.decoder
        length = 0 if past is None else past[0].shape[2]
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        if past is None:
            layers = [GrowingCache(None) for _ in decoder.stack.blocks]
        else:
            layers = [GrowingCache((past[i], past[i + 1])) for i in range(0, len(past), 2)]
        cache = _cache(layers, length, None if past is None else positions[:, :length])
        positions = positions[:, length:]
        x = decoder.embedding(ids, positions, n_positions=0)
        x = decoder.stack(x, positions, key_mask=mask.bool(), cache=cache)
        present = [tensor for layer in layers for tensor in layer.past or ()]
        return (self.model.project(x), *present)


def _cache(layers: list[GrowingCache], length: int, key_positions: Tensor | None) -> KVCache:
    cache = KVCache(layers=list(layers), sources=torch.zeros(0), length=length)
    cache.key_positions = key_positions
    return cache


def _prepared(model: Model) -> Model:
    """A copy that shares the weights, runs the reference attention, and decides nothing by sizes or values."""
    model = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()}).eval()
    for module in model.modules():
        if isinstance(module, Attention):
            module.kernel = lambda *qkv, **options: attention(*qkv, **options)[0]
        elif isinstance(module, InputEmbedding) and isinstance(module.positions, SinusoidalPositions):
            module.positions = GraphSinusoids(module.positions)  # type: ignore[assignment]
        elif isinstance(module, Stack) and module.window is not None:
            module.window = EveryLength(module.window)
    return model


def graphs_of(model: Model) -> list[Graph]:
    """The files of an export and what is in them, by family."""
    model = _prepared(model)
    if isinstance(model, EncoderOnly):
        return [_encoder_graph("model.onnx", model, "last_hidden_state")]
    if isinstance(model, DecoderOnly):
        return [_causal_graph(model, has_past=False), _causal_graph(model, has_past=True)]
    decoders = [_decoder_graph(model, has_past=has_past) for has_past in (False, True)]
    return [_encoder_graph("encoder_model.onnx", model, "last_hidden_state"), *decoders]


def _encoder_graph(file: str, model: EncoderDecoder | EncoderOnly, output: str) -> Graph:
    has_segments = isinstance(model, EncoderOnly) and model.config.n_segments > 0
    n_inputs = 3 if has_segments else 2
    ids, mask = torch.ones(BATCH, SRC, dtype=torch.int64), torch.ones(BATCH, SRC, dtype=torch.int64)
    return Graph(
        file=file,
        module=EncoderGraph(model),
        example=(ids, mask, torch.zeros_like(ids))[:n_inputs],
        inputs=["input_ids", "attention_mask", "token_type_ids"][:n_inputs],
        outputs=[output, *([name for name, _ in _heads(model)] if isinstance(model, EncoderOnly) else [])],
        axes=({0: "batch", 1: "sequence"},) * n_inputs,
    )


def _decoder_graph(model: EncoderDecoder, *, has_past: bool) -> Graph:
    config = model.config
    n_layers = config.n_decoder_layers
    own = [f"{i}.decoder.{part}" for i in range(n_layers) for part in ("key", "value")]
    both = [
        f"{i}.{side}.{part}" for i in range(n_layers) for side in ("decoder", "encoder") for part in ("key", "value")
    ]
    given: Tensor | list[Tensor] = torch.randn(BATCH, SRC, config.d_model)
    given_axes: dict[int, str] | list[dict[int, str]] = {0: "batch", 1: "source"}
    if has_past:  # a tensor each: one that is given twice would be one input
        lengths = {"past": PAST, "source": SRC}
        axes = ["past", "past", "source", "source"] * n_layers
        given = [torch.randn(BATCH, config.kv_heads, lengths[name], config.head_width) for name in axes]
        given_axes = [{0: "batch", 2: name} for name in axes]
    ids, mask = torch.ones(BATCH, TGT, dtype=torch.int64), torch.ones(BATCH, SRC, dtype=torch.int64)
    return Graph(
        file="decoder_with_past_model.onnx" if has_past else "decoder_model.onnx",
        module=DecoderGraph(model, has_past=has_past),
        example=(ids, mask, given),
        inputs=[
            "input_ids",
            "encoder_attention_mask",
            *([f"past_key_values.{name}" for name in both] if has_past else ["encoder_hidden_states"]),
        ],
        outputs=["logits", *(f"present.{name}" for name in (own if has_past else both))],
        axes=({0: "batch", 1: "target"}, {0: "batch", 1: "source"}, given_axes),
    )


def _causal_graph(model: DecoderOnly, *, has_past: bool) -> Graph:
    config = model.config
    names = [f"{i}.{part}" for i in range(config.n_decoder_layers) for part in ("key", "value")]
    ids = torch.ones(BATCH, TGT, dtype=torch.int64)
    mask = torch.ones(BATCH, TGT + (PAST if has_past else 0), dtype=torch.int64)
    example: tuple[Tensor | list[Tensor], ...] = (ids, mask)
    axes: tuple[dict[int, str] | list[dict[int, str]], ...] = ({0: "batch", 1: "sequence"}, {0: "batch", 1: "sequence"})
    if has_past:
        past = torch.randn(BATCH, config.kv_heads, PAST, config.head_width)
        example += ([past.clone() for _ in names],)
        axes = (
            {0: "batch", 1: "sequence"},
            {0: "batch", 1: "past_and_sequence"},
            [{0: "batch", 2: "past"}] * len(names),
        )
    return Graph(
        file="model_with_past.onnx" if has_past else "model.onnx",
        module=CausalGraph(model),
        example=example,
        inputs=["input_ids", "attention_mask", *(f"past_key_values.{name}" for name in names if has_past)],
        outputs=["logits", *(f"present.{name}" for name in names)],
        axes=axes,
    )
