"""The views: labels that fit (known failure A2), maps of the path that serves (A1), and what each view claims."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from explain_models import IDS, TEXT, explained, folder

from glassformer.config import GenerationConfig
from glassformer.explain import explain
from glassformer.explain.relevance import rollout
from glassformer.explain.scaling import scaling_view
from glassformer.explain.tokens import Tokens, join_columns, join_rows
from glassformer.explain.trace import WatchedDecoding
from glassformer.tasks import Translator
from tasks.small_models import tokenizer


@pytest.mark.parametrize("case", IDS)
def test_maps_have_a_label_on_each_row_and_column_and_rows_that_sum_to_1(case: str) -> None:
    explanation = explained(case)
    config = explanation.config
    n_maps = config.n_encoder_layers * (config.family != "decoder-only")
    n_maps += config.n_decoder_layers * {"encoder-decoder": 2, "decoder-only": 1}.get(config.family, 0)
    assert len(explanation.maps) == n_maps
    for map_ in explanation.maps:
        assert map_.weights.shape == (config.n_heads, len(map_.queries.labels), len(map_.keys.labels))
        assert np.allclose(map_.weights.sum(-1), 1, atol=1e-12)
        if map_.key.startswith("decoder") and map_.key.endswith("self"):
            assert (np.triu(map_.weights, 1) == 0).all()


def test_axes_are_not_swapped_and_the_end_is_named() -> None:
    explanation = explained("encoder-decoder")
    cross = next(map_ for map_ in explanation.maps if map_.key == "decoder.1.cross")
    assert len(cross.queries.labels) != len(cross.keys.labels)
    assert cross.queries == explanation.tgt and cross.keys == explanation.src
    assert cross.keys.labels[-1] == "</s>" and cross.keys.is_special[-1]
    assert "<pad>" not in cross.keys.labels + cross.queries.labels


@pytest.mark.parametrize("text", ["a bb ccc", "We eat bread, don't we?", "<script>alert(1)</script>", "é ça 日本"])
def test_words_hold_every_sub_word_exactly_once(text: str) -> None:
    tokens = Tokens.of(tokenizer(), tokenizer().encode(text, add_eos=True))
    places = [place for word in tokens.words for place in word]
    assert places == list(range(len(tokens.ids)))
    assert tokens.words[-1] == [len(tokens.ids) - 1] and tokens.word_labels[-1] == "</s>"
    assert len(tokens.word_labels) == len(tokens.words) < len(tokens.ids)


def test_joined_weights_are_sums_over_keys_and_means_over_queries() -> None:
    weights = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    assert np.allclose(join_columns(weights, [[0], [1, 2]]), [[0.5, 0.5], [0.1, 0.9]])
    assert np.allclose(join_rows(weights, [[0, 1]]), [[0.3, 0.225, 0.475]])


def test_entropy_of_a_spread_and_of_a_sharp_row() -> None:
    map_ = explained("encoder-decoder").maps[0]
    n = map_.weights.shape[-1]
    spread = type(map_)(key="", title="", weights=np.full((1, n, n), 1 / n), queries=map_.queries, keys=map_.keys)
    sharp = type(map_)(key="", title="", weights=np.eye(n)[None], queries=map_.queries, keys=map_.keys)
    assert spread.entropy == pytest.approx([math.log(n)]) and sharp.entropy == pytest.approx([0.0])


def test_the_lineage_is_that_of_the_output_through_reordered_beams() -> None:
    """A table of rows: the output's tokens stood in row 0, then 1, then 0 (A1: beam maps belong to the hypothesis)."""

    class Fixed:
        def prefill(self, prefix: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(prefix), 9)

        step, select = prefill, staticmethod(lambda rows: None)

    decoding = WatchedDecoding(Fixed())  # type: ignore[arg-type]
    decoding.prefill(torch.tensor([[1]]))
    decoding.select(torch.tensor([0, 0]))
    decoding.step(torch.tensor([7, 5]))
    decoding.select(torch.tensor([1, 0]))
    decoding.step(torch.tensor([6, 8]))
    assert decoding.lineage([1, 5, 6]) == [0, 1, 0] and decoding.lineage([1, 7, 8]) == [0, 0, 1]


@pytest.mark.parametrize("forced", [{}, {"forced_bos_id": 9}, {"is_eos_forced": True, "max_new_tokens": 4}])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_tree_holds_the_output_and_sums_as_the_search_does(beam_size: int, forced: dict[str, Any]) -> None:
    model = folder()
    generation = GenerationConfig(beam_size=beam_size, max_length_a=1.0, max_length_b=3, **forced)
    view = explain(model, TEXT, generation=generation).views["search"]
    translation = Translator.of(model).translate([TEXT], generation=generation)[0]
    way = [candidate for step in view.steps for candidate in step.candidates if candidate.is_output]
    assert [candidate.piece for candidate in way] == translation.tokens
    assert view.delta < 1e-4 and view.log_prob == pytest.approx(sum(candidate.log_prob for candidate in way))
    assert way[-1].score == pytest.approx(translation.score, abs=1e-4)
    for step, after in zip(view.steps, view.steps[1:], strict=False):
        kept = [candidate for candidate in step.candidates if candidate.fate == "kept"]
        assert sorted(candidate.place for candidate in kept) == list(range(len(kept))) and len(kept) <= beam_size
        assert len(kept) == len(after.texts) or "forced_bos_id" in forced  # then the other places are empty
        assert all(a.total >= b.total for a, b in zip(step.candidates, step.candidates[1:], strict=False))


def test_why_not_the_output_itself_and_another() -> None:
    model = folder()
    said = Translator.of(model).translate([TEXT])[0]
    same = explain(model, TEXT, reference=said.text).views["why_not"]
    if same.reference == said.text and same.parts_at is None:
        assert same.verdict == "This is what the model says."
    other = explain(model, TEXT, reference="Nous mangeons du pain.").views["why_not"]
    assert other.parts_at is not None and f"part at token {other.parts_at + 1}" in other.verdict
    step = other.steps[other.parts_at]
    assert step.rank >= 1 and step.best_log_prob >= step.log_prob
    assert other.left_at is None or not other.steps[other.left_at].is_live
    assert {word for word, _ in other.source_words} <= set(explained("encoder-decoder").src.word_labels)  # type: ignore[union-attr]


@pytest.mark.parametrize("case", IDS[:4])
def test_every_reading_has_a_deletion_score_against_chance(case: str) -> None:
    view = explained(case).views["relevance"]
    assert [reading.method for reading in view.readings] == [
        "mean over layers and heads",
        "rollout",
        "attention x gradient",
    ]
    for reading in view.readings:
        assert reading.weights.shape == (len(view.rows), len(view.columns))
        sums = reading.weights.sum(-1)
        assert (np.isclose(sums, 1) | (sums == 0)).all() and (reading.weights >= 0).all()
        assert len(reading.drops) == len(view.shares) == len(view.random_drops)
        if np.mean(view.random_drops) > 0:
            assert reading.deletion == pytest.approx(np.mean(reading.drops) / np.mean(view.random_drops))


def test_rollout_of_heads_that_look_at_themselves_is_the_identity() -> None:
    map_ = explained("masked-lm").maps[0]
    n = map_.weights.shape[-1]
    still = type(map_)(key="encoder.1.self", title="", weights=np.eye(n)[None], queries=map_.queries, keys=map_.keys)
    assert np.allclose(rollout([still, still]), np.eye(n))
    spread = type(map_)(
        key="encoder.1.self", title="", weights=np.full((1, n, n), 1 / n), queries=map_.queries, keys=map_.keys
    )
    assert np.allclose(rollout([spread]), (np.eye(n) + 1 / n) / 2)


def test_the_lens_at_the_top_says_what_the_model_says() -> None:
    explanation = explained("encoder-decoder")
    (lens,) = [lens for lens in explanation.views["lenses"] if lens.side == "decoder"]
    probs = explanation.row("output.probabilities").value[0]
    assert [best[0][1] for best in lens.said[-1]] == pytest.approx(probs.max(-1).tolist())
    assert lens.points == ["input", "layer 1"] and len(lens.norms) == 2
    strongest = explanation.row("decoder.1.ffn.activation").value.max()
    assert lens.features[0].strength == pytest.approx(strongest)


def test_dividing_by_the_root_keeps_entropy_and_gradient() -> None:
    explanation = explained("encoder-decoder")
    for item in explanation.views["scaling"]:
        assert item.entropy < item.scaled_entropy
        assert item.scaled_deviation == pytest.approx(item.deviation / math.sqrt(explanation.config.head_width))
    two = explanation.row("encoder.1.self.scores")
    flat = type(two)(**(vars(two) | {"value": np.zeros((1, 1, 1, 2)), "key": "x.scores"}))
    (even,) = scaling_view([flat], 4, is_scaled=True)
    assert even.entropy == pytest.approx(math.log(2)) and even.gradient == pytest.approx(0.5)  # |[[1,-1],[-1,1]]/4|


@pytest.mark.parametrize("case", IDS)
def test_positions_of_every_scheme(case: str) -> None:
    view = explained(case).views["positions"]
    assert view.kind == explained(case).config.positions and view.says
    if view.kind in ("sinusoidal", "rotary"):
        assert max(view.shift.values()) < 1e-12
    if view.kind != "none":
        assert view.by_distance and all(len(points) > 10 for points in view.by_distance.values())
