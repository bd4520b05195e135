"""The rows: each equals its equation, the served tensor, and the steps that `glassformer info` lists."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from explain_models import CASES, FAMILY_CASES, IDS, TEXT, broken, content_of, explained, folder, shifted
from recompute import differences, read_weights
from torch import Tensor

from glassformer import shapes
from glassformer.errors import LengthError, UserError
from glassformer.explain import explain
from glassformer.explain.equation import Equation, evaluate
from glassformer.explain.steps import build_rows
from glassformer.explain.table import names_of
from glassformer.explain.trace import Trace, watch
from glassformer.model import Attention, fused_attention
from glassformer.tasks import Translator
from helpers import encoder_decoder, random_ids
from tasks.small_models import save_folder


@pytest.mark.parametrize("case", IDS)
def test_every_served_tensor_is_its_equation(case: str) -> None:
    explanation = explained(case)
    assert explanation.first_off is None, explanation.worst
    assert 0 < (explanation.worst.relative or 0) < 1e-5
    proved = [row for row in explanation.rows if row.delta is not None]
    assert len(proved) > len(explanation.rows) / 2


@pytest.mark.parametrize("case", IDS)
def test_a_step_without_a_served_tensor_says_why_and_the_next_one_has_the_proof(case: str) -> None:
    rows = explained(case).rows
    for row, after in pairwise(rows):
        if row.delta is None:
            assert row.note
        if row.name == "weights":
            assert row.delta is None and after.name == "context" and after.delta is not None
        if row.name in ("variance", "mean square"):
            assert after.name in ("norm", "add & norm", "memory", "features") and after.delta is not None


@pytest.mark.parametrize(
    ("module", "key"),
    [
        ("encoder.stack.blocks.0.self_attention.w_k", "encoder.1.self.K"),
        ("decoder.stack.blocks.0.cross_attention.w_o", "decoder.1.cross.output"),
        ("decoder.stack.blocks.0.feed_forward.w_1", "decoder.1.ffn.expansion"),
        ("decoder.stack.norm", "decoder.features"),
    ],
)
def test_a_fault_in_the_served_path_is_named_at_its_first_row(module: str, key: str) -> None:
    model = folder()
    # The copy for the equations is made of the clean model: a fault of the serving path is not in the definition.
    equation = Equation(model.model)
    with broken(model.model.get_submodule(module), shifted), watch(model.model) as calls, torch.no_grad():
        inputs = random_ids(1, 5), random_ids(1, 4, seed=1)
        model.model(*inputs)
    rows = build_rows(
        model.config.model,
        names_of(model.model),
        src=inputs[0],
        tgt=inputs[1],
        equation=evaluate(equation, *inputs)[0],
        served=Trace.of(calls),
    )
    off = [row.key for row in rows if row.relative is not None and row.relative > 1e-5]
    assert off[0] == key


def test_a_fault_inside_the_fused_kernel_is_named_at_the_context() -> None:
    model = folder()
    for module in model.model.modules():
        if isinstance(module, Attention):
            module.kernel = lambda q, k, v, **options: fused_attention(
                q, k, v, **(options | {"scale": 0.9 * options["scale"]})
            )  # type: ignore[misc]
    first = explain(model, TEXT, with_views=False).first_off
    assert first is not None and first.key == "encoder.1.self.context"


def test_a_fault_in_the_cache_is_found_in_the_decoder() -> None:
    """What was written to the cache is read back wrongly: no module is at fault, and the context is off."""
    model = folder()
    attention = model.model.get_submodule("decoder.stack.blocks.0.self_attention")
    assert isinstance(attention, Attention)
    attention.kernel = lambda q, k, v, **options: fused_attention(q, k, v.roll(1, 2), **options)  # type: ignore[misc]
    first = explain(model, TEXT, with_views=False).first_off
    assert first is not None and first.key == "decoder.1.self.context"


def test_the_served_path_is_the_translator_itself() -> None:
    model = folder()
    translation = Translator.of(model).translate([TEXT])[0]
    explanation = explain(model, TEXT)
    assert explanation.output == translation.text
    assert explanation.chosen is not None and explanation.chosen.ids == translation.ids
    assert explanation.views["search"].log_prob == pytest.approx(translation.log_prob, abs=1e-4)


def test_the_model_is_left_as_it_was() -> None:
    model = folder()
    kernels = [module.kernel for module in model.model.modules() if isinstance(module, Attention)]
    before = {name: p.clone() for name, p in model.model.named_parameters()}
    explain(model, TEXT)
    assert [module.kernel for module in model.model.modules() if isinstance(module, Attention)] == kernels
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.model.modules())
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in model.model.named_parameters())


@pytest.mark.parametrize("case", IDS[: len(FAMILY_CASES)])
def test_costs_add_up_to_those_of_info(case: str) -> None:
    explanation = explained(case)
    n_src, n_tgt = (0 if tokens is None else len(tokens.ids) for tokens in (explanation.src, explanation.tgt))
    expected = shapes.flops_per_token(explanation.config, n_src or 1, n_tgt or 1).forward
    n_tokens = n_src + n_tgt
    assert sum(row.flops for row in explanation.rows) == pytest.approx(expected * n_tokens, rel=1e-9)


def batch_rows(**changes: Any) -> tuple[Any, list[Any]]:
    model = encoder_decoder(**changes)
    src, tgt = random_ids(4, 10), random_ids(4, 12, seed=1)
    with watch(model) as calls, torch.no_grad():
        model(src, tgt)
    exact, _, _ = evaluate(Equation(model), src, tgt)
    rows = build_rows(model.config, names_of(model), src=src, tgt=tgt, equation=exact, served=Trace.of(calls))
    return model.config, rows


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_all_shapes_of_the_lesson_appear(placement: str) -> None:
    """Four sentences of 10 and 12 tokens: each step of `info` is a row of every layer, with its shape and letters."""
    config, rows = batch_rows(norm_placement=placement, use_final_norm=placement == "pre", n_encoder_layers=2)
    seen = {(row.symbolic, row.shape) for row in rows}
    for step in shapes.walk(config, 4, 10, 12):
        assert (step.symbolic, step.shape) in seen, step
    assert {row.shape for row in rows if row.key == "decoder.2.cross.weights"} == {(4, config.n_heads, 12, 10)}


@pytest.mark.parametrize("case", IDS)
def test_each_row_follows_from_earlier_rows_by_numpy_alone(case: str, tmp_path: Path) -> None:
    content = content_of(case)
    family, changes = CASES[IDS.index(case)]
    saved = save_folder(tmp_path / "model", settings=folder(family, **changes).config)
    gaps = differences(content, read_weights(saved / "model.safetensors"))
    assert max(gaps.values()) < 1e-9, max(gaps, key=lambda key: gaps[key])
    recomputed = len(gaps) / len(content["steps"])
    assert recomputed > 0.9


def test_rows_name_only_earlier_rows_and_saved_weights() -> None:
    model = folder(tying="none", use_attention_bias=True)
    explanation, seen = explain(model, TEXT, with_views=False), set()
    weights = {name for name, _ in model.model.named_parameters()}
    named = set()
    for row in explanation.rows:
        assert set(row.inputs) <= seen and set(row.parameters) <= weights
        seen.add(row.key)
        named |= set(row.parameters)
    assert named == weights


def test_masked_scores_are_null_in_json_and_the_rest_is_finite() -> None:
    content = content_of("encoder-decoder")
    rows = {row["key"]: row["values"] for row in content["steps"]}
    masked = rows["decoder.1.self.masked"][0][0]
    assert masked[0][1:] == [None] * (len(masked) - 1) and None not in masked[-1]


def test_a_given_target_is_followed() -> None:
    explanation = explain(folder(), TEXT, target="Nous mangeons du pain.")
    assert explanation.output == "Nous mangeons du pain." and "search" not in explanation.views
    assert explanation.first_off is None
    assert explanation.chosen is not None and explanation.tgt is not None
    assert explanation.tgt.ids[1:] == explanation.chosen.ids[:-1]


@pytest.mark.parametrize(
    ("family", "text", "options", "error"),
    [
        ("encoder-decoder", "  ", {}, UserError),
        ("encoder-decoder", "one\ntwo", {}, UserError),
        ("encoder-decoder", "bread " * 200, {}, LengthError),
        ("decoder-only", TEXT, {"target": "Nous"}, UserError),
        ("decoder-only", TEXT, {"reference": "Nous"}, UserError),
    ],
)
def test_what_cannot_be_explained_is_an_error(family: str, text: str, options: dict[str, str], error: type) -> None:
    with pytest.raises(error):
        explain(folder(family), text, **options)


def test_numbers_for_other_tools() -> None:
    explanation = explained("encoder-decoder")
    arrays = explanation.to_numpy()
    assert arrays.keys() == {row.key for row in explanation.rows}
    weights: Tensor = torch.from_numpy(arrays["encoder.1.self.weights"])
    assert torch.allclose(weights.sum(-1), torch.ones(()).double())
