"""The loss meter equals sums by hand for any way of cutting the corpus."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import UserError
from glassformer.evaluation.perplexity import LossMeter

SENTENCES = [[0.5] * 1, [1.0] * 20, [0.25, 2.0], [3.0] * 7, [0.125] * 11, [5.0], [1.5] * 3]
TOKENS = [nll for sentence in SENTENCES for nll in sentence]


def metered(batches: list[list[list[float]]]) -> LossMeter:
    meter = LossMeter()
    for batch in batches:
        meter.add(sum(sum(sentence) for sentence in batch), sum(map(len, batch)))
    return meter


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_loss_does_not_depend_on_the_batch_size(size: int, is_sorted: bool) -> None:
    rows = sorted(SENTENCES, key=len) if is_sorted else SENTENCES
    meter = metered([rows[start : start + size] for start in range(0, len(rows), size)])
    assert meter.n_tokens == len(TOKENS) == 45
    assert meter.loss == pytest.approx(sum(TOKENS) / len(TOKENS), rel=1e-12)
    assert meter.perplexity == pytest.approx(math.exp(sum(TOKENS) / len(TOKENS)), rel=1e-12)


@given(st.lists(st.lists(st.floats(0, 50), min_size=1, max_size=20), min_size=1, max_size=20), st.data())
def test_merging_processes_equals_one_process(sentences: list[list[float]], data: st.DataObject) -> None:
    whole = metered([sentences])
    cut = data.draw(st.integers(0, len(sentences)))
    merged = metered([[sentence] for sentence in sentences[:cut]])
    merged.merge(metered([sentences[cut:]]))
    assert merged.n_tokens == whole.n_tokens
    assert merged.loss == pytest.approx(whole.loss, rel=1e-9, abs=1e-12)


def test_uniform_model_over_eight_words() -> None:
    meter = LossMeter()
    meter.add(6 * math.log(8), 6, n_words=3, n_bytes=18)
    assert meter.loss == pytest.approx(math.log(8), rel=1e-12)
    assert meter.perplexity == pytest.approx(8, rel=1e-12)
    assert meter.loss_per_word == pytest.approx(2 * math.log(8), rel=1e-12)
    assert meter.bits_per_byte == pytest.approx(1.0, rel=1e-12)


def test_a_batch_without_targets_adds_nothing() -> None:
    meter = LossMeter()
    meter.add(2.0, 4)
    meter.add(math.nan, 0)  # what a mean over no tokens gives
    assert (meter.loss, meter.n_tokens) == (0.5, 4)


@pytest.mark.parametrize("sum_nll", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_never_the_best(sum_nll: float) -> None:
    meter = LossMeter(sum_nll=sum_nll, n_tokens=4)
    assert not meter.is_better_than(None)
    assert not meter.is_better_than(1.0)
    assert not meter.is_better_than(math.nan)


def test_a_finite_loss_is_better_than_none_and_than_nan() -> None:
    meter = LossMeter(sum_nll=2.0, n_tokens=4)
    assert meter.is_better_than(None)
    assert meter.is_better_than(math.nan)
    assert meter.is_better_than(0.6)
    assert not meter.is_better_than(0.5)


def test_an_empty_meter_has_no_loss() -> None:
    meter = LossMeter()
    assert math.isnan(meter.loss) and math.isnan(meter.perplexity) and math.isnan(meter.bits_per_byte)
    assert not meter.is_better_than(None)


def test_perplexity_beyond_float64_is_infinite() -> None:
    assert LossMeter(sum_nll=1000.0, n_tokens=1).perplexity == math.inf


def test_a_negative_count_is_an_error() -> None:
    with pytest.raises(UserError, match="n_tokens=-1"):
        LossMeter().add(1.0, -1)
