"""The walk as a graph, and arrays for other tools."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
import torch
from explain_models import IDS, explained

from glassformer.explain.graph import draw_parts, draw_steps

SVG = "{http://www.w3.org/2000/svg}"


def boxes(drawing: str) -> dict[str, tuple[float, float, float]]:
    """First line of each box -> left, top and width."""
    found = {}
    for group in ElementTree.fromstring(drawing).iter(f"{SVG}g"):
        box, name = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
        assert box is not None and name is not None and name.text is not None
        found[name.text] = (float(box.attrib["x"]), float(box.attrib["y"]), float(box.attrib["width"]))
    return found


@pytest.mark.parametrize("case", IDS)
def test_boxes_stand_below_what_they_are_made_of_and_apart(case: str) -> None:
    explanation = explained(case)
    side = "decoder" if explanation.src is None else "encoder"
    rows = [row for row in explanation.rows if row.key.startswith(f"{side}.1.self.")]
    found = boxes(draw_steps(explanation, [f"{side}.1.self.*"]))
    tops = {row.key: found[f"{row.name} = {row.equation}"][1] for row in rows}
    for row in rows:
        assert all(tops.get(key, 0) < tops[row.key] for key in row.inputs)
    places = sorted((y, x, width) for x, y, width in found.values())
    for (y, x, width), (below, right, _) in pairwise(places):
        assert below > y or right >= x + width


def test_steps_from_elsewhere_are_named_and_every_line_has_two_ends() -> None:
    explanation = explained("encoder-decoder")
    drawing = draw_steps(explanation, ["decoder.1.cross.*"])
    assert "encoder.memory" in boxes(drawing) and "decoder.1.self.add" in boxes(drawing)
    n_lines = sum(len(row.inputs) for row in explanation.rows if row.key.startswith("decoder.1.cross."))
    assert drawing.count("marker-end") == n_lines


def test_the_whole_model_is_joined_by_cross_attention() -> None:
    explanation = explained("encoder-decoder")
    found = boxes(draw_parts(explanation))
    assert list(found) == list(dict.fromkeys(row.group for row in explanation.rows))
    assert found["encoder: memory"][1] < found["decoder layer 1: cross-attention"][1]


def test_arrays_in_the_form_of_bertviz() -> None:
    explanation = explained("encoder-decoder")
    config, given = explanation.config, explanation.to_bertviz()
    src, tgt = given.pop("encoder_tokens"), given.pop("decoder_tokens")
    lengths = {"encoder": (src, src), "decoder": (tgt, tgt), "cross": (tgt, src)}
    assert given.keys() == {f"{name}_attention" for name in lengths}
    for name, (rows, columns) in lengths.items():
        layers = given[f"{name}_attention"]
        assert isinstance(layers, tuple)
        assert len(layers) == (config.n_encoder_layers if name == "encoder" else config.n_decoder_layers)
        for layer in layers:
            assert layer.shape == (1, config.n_heads, len(rows), len(columns))
            assert torch.allclose(layer.sum(-1), torch.ones(()).double())


@pytest.mark.parametrize("case", ["decoder-only", "masked-lm"])
def test_a_single_stack_has_one_list_of_layers(case: str) -> None:
    given = explained(case).to_bertviz()
    assert given.keys() == {"attention", "tokens"}
    assert all(layer.shape[0] == 1 and layer.shape[2] == len(given["tokens"]) for layer in given["attention"])
