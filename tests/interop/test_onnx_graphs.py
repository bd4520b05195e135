"""What is written as graphs computes what the model computes: every variant, all shapes, padding on either side (X3).

These run the functions themselves. The files that come of them are tested in test_onnx_export.py.
"""

from __future__ import annotations

import pytest
import torch
from export_models import FURTHER
from torch import Tensor

from glassformer.interop.onnx_graphs import Graph, graphs_of
from helpers import VARIANTS, assert_close, decoder_only, encoder_decoder, encoder_only, random_ids

REASON = "another kernel"
ALL = {**VARIANTS, **FURTHER}


def graphs(model: object) -> dict[str, Graph]:
    return {graph.file: graph for graph in graphs_of(model)}  # type: ignore[arg-type]


def masked(n_rows: int, n_tokens: int) -> Tensor:
    """int64, with pads on the right of the first row and on the left of the second."""
    mask = torch.ones(n_rows, n_tokens, dtype=torch.int64)
    if n_tokens > 4 and n_rows > 1:
        mask[0, -2:], mask[1, :2] = 0, 0
    return mask


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(1, 1), (2, 7), (3, 33)])
@torch.no_grad()
def test_an_encoder(name: str, shape: tuple[int, int]) -> None:
    model = encoder_only(**ALL[name])
    ids, mask = random_ids(*shape), masked(*shape)
    actual = graphs(model)["model.onnx"].module(ids, mask)[0]
    expected = model(ids, mask=mask.bool())
    assert_close(actual[mask.bool()], expected[mask.bool()], 1e-5, REASON)


@torch.no_grad()
def test_the_heads_of_an_encoder() -> None:
    options = {"use_pooler": True, "use_mlm_head": True, "n_segments": 2, "pooling": "mean", "is_normalized": True}
    model = encoder_only(**options, head="classify", n_labels=3)
    ids, mask, segments = random_ids(2, 7), masked(2, 7), torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)
    graph = graphs(model)["model.onnx"]
    outputs = dict(zip(graph.outputs, graph.module(ids, mask, segments), strict=True))
    given = {"mask": mask.bool(), "segment_ids": segments}
    features = model(ids, **given)
    assert model.mlm_head is not None and model.pooler is not None
    assert_close(outputs["pooler_output"], model.pooler(features), 1e-5, REASON)
    assert_close(outputs["logits"][mask.bool()], model.mlm_head(features)[mask.bool()], 1e-5, REASON)
    assert_close(outputs["label_logits"], model.label_logits(ids, **given), 1e-5, REASON)
    assert_close(outputs["sentence_embedding"], model.embed(ids, **given), 1e-5, REASON)


@pytest.mark.parametrize("name", [*ALL, "window"])
@pytest.mark.parametrize("past", [0, 1, 10])
@torch.no_grad()
def test_a_decoder_with_and_without_past(name: str, past: int) -> None:
    model = encoder_decoder(**(ALL | {"window": {"window": 3}})[name])
    files = graphs(model)
    src, src_mask, tgt = random_ids(2, 7), masked(2, 7), random_ids(2, past + 3, seed=1)
    expected = model(src, tgt, src_mask=src_mask.bool())
    memory = files["encoder_model.onnx"].module(src, src_mask)[0]
    first = files["decoder_model.onnx"].module(tgt[:, : past or 3], src_mask, memory)
    assert_close(first[0], expected[:, : past or 3], 1e-5, REASON)
    if past:
        n_layers = model.config.n_decoder_layers
        logits, *present = files["decoder_with_past_model.onnx"].module(tgt[:, past:], src_mask, list(first[1:]))
        assert_close(logits, expected[:, past:], 1e-5, REASON)
        assert [tensor.shape[2] for tensor in present] == [past + 3] * (2 * n_layers)  # cross keys are not given again


@pytest.mark.parametrize("name", [*ALL, "window"])
@torch.no_grad()
def test_a_language_model_with_pads_on_either_side(name: str) -> None:
    model = decoder_only(**(ALL | {"window": {"window": 3}})[name])
    files = graphs(model)
    ids, mask = random_ids(2, 9), torch.ones(2, 9, dtype=torch.int64)
    mask[0, :3] = 0  # a left-padded prompt
    expected = model(ids, mask=mask.bool())
    whole = files["model.onnx"].module(ids, mask)
    assert_close(whole[0][mask.bool()], expected[mask.bool()], 1e-5, REASON)
    prompt = files["model.onnx"].module(ids[:, :5], mask[:, :5])
    logits, *present = files["model_with_past.onnx"].module(ids[:, 5:], mask, list(prompt[1:]))
    assert_close(logits, expected[:, 5:], 1e-5, REASON)
    assert all(tensor.shape[2] == 9 for tensor in present)


def test_every_axis_that_may_vary_has_a_name_and_examples_avoid_0_and_1() -> None:
    for model in (encoder_decoder(), encoder_only(n_segments=2), decoder_only()):
        for graph in graphs_of(model):
            flat = [t for part in graph.example for t in (part if isinstance(part, list) else [part])]
            axes = [a for part in graph.axes for a in (part if isinstance(part, list) else [part])]
            assert len(flat) == len(axes) == len(graph.inputs)
            assert len({id(tensor) for tensor in flat}) == len(flat)  # one given twice would be traced as one input
            for tensor, names in zip(flat, axes, strict=True):
                assert names[0] == "batch" and all(tensor.shape[axis] > 1 for axis in names)
