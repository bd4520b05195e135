"""Each logits rule by its definition, with settings by row and with reordering (known failures G8, G10, G18)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import BOS, EOS, limits, start

from glassformer.config import GenerationConfig
from glassformer.errors import ConfigError
from glassformer.generation import generate
from glassformer.generation.processors import (
    Forbid,
    ForcedPrefix,
    MinLength,
    MinP,
    NoRepeatNGram,
    RepetitionPenalty,
    Rules,
    Temperature,
    TopK,
    TopP,
)

NONE = torch.empty(1, 0, dtype=torch.int64)
PROBS = torch.tensor([[0.5, 0.3, 0.2]])


def allowed(rule, logits, history=None):
    """The set of tokens that a rule leaves, for each row."""
    history = torch.empty(len(logits), 0, dtype=torch.int64) if history is None else torch.tensor(history)
    return [set(row.isfinite().nonzero().flatten().tolist()) for row in rule(history, logits.clone())]


@pytest.mark.parametrize(
    ("p", "kept"),
    [(0.0, {0}), (0.5, {0}), (0.51, {0, 1}), (0.79, {0, 1}), (0.81, {0, 1, 2}), (1.0, {0, 1, 2})],
)
def test_top_p(p, kept):
    assert allowed(TopP(p), PROBS.log()) == [kept]


def test_top_p_of_a_flat_distribution_looks_past_the_first_64():
    logits = torch.zeros(1, 5000)
    assert len(allowed(TopP(0.5), logits)[0]) == pytest.approx(2500, abs=2)
    assert len(allowed(TopP(1.0), logits)[0]) == 5000


@pytest.mark.parametrize(("k", "kept"), [(0, {0, 1, 2}), (1, {0}), (2, {0, 1}), (3, {0, 1, 2}), (9, {0, 1, 2})])
def test_top_k(k, kept):
    if k:
        assert allowed(TopK(k), PROBS.log()) == [kept]
    assert allowed(TopK(torch.tensor([k, 1])), PROBS.log().repeat(2, 1)) == [kept, {0}]


def test_top_k_keeps_k_of_equal_tokens():
    assert len(allowed(TopK(2), torch.zeros(1, 9))[0]) == 2


@pytest.mark.parametrize(
    ("share", "kept"), [(0.0, {0, 1, 2}), (0.39, {0, 1, 2}), (0.41, {0, 1}), (0.61, {0}), (1.0, {0})]
)
def test_min_p(share, kept):
    assert allowed(MinP(share), PROBS.log()) == [kept]


def test_temperature_of_each_row_is_its_own():
    logits = torch.tensor([[1.0, 2.0, 0.0]]).repeat(4, 1)
    probs = Temperature(torch.tensor([0, 1e-6, 1, 5]))(NONE, logits).softmax(-1)
    assert probs[0].tolist() == probs[1].tolist() == [0, 1, 0]
    torch.testing.assert_close(probs[2:], torch.stack([logits[0].softmax(-1), (logits[0] / 5).softmax(-1)]))


def test_temperature_zero_keeps_one_of_equal_tokens():
    assert allowed(Temperature(0.0), torch.zeros(1, 9)) == [{0}]


@pytest.mark.parametrize("temperature", [0, 1e-40, 1e-6, 1, 1e4])
@pytest.mark.parametrize("peak", [60000.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_peaked_16_bit_logits_give_no_nan(temperature, peak, dtype):
    logits = torch.zeros(2, 50, dtype=dtype)
    logits[:, 7] = peak
    logits[1, :7] = -math.inf
    filters = Rules([Temperature(temperature), TopK(40), TopP(0.9), MinP(0.05)])
    probs = filters(NONE, logits).softmax(-1)
    assert probs.isfinite().all()
    assert (probs[:, 7] > 0).all()
    torch.testing.assert_close(probs.sum(-1), torch.ones(2))


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=30), st.floats(0, 1), st.integers(1, 40), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_filters_always_leave_the_best_token(logits, p, k, share):
    row = torch.tensor([logits])
    for rule in (TopP(p), TopK(k), MinP(share)):
        kept = rule(NONE, row.clone())
        assert kept.amax() == row.amax()
        assert kept.softmax(-1).sum().item() == pytest.approx(1, abs=1e-5)


WRONG = [
    ("temperature", -1),
    ("temperature", math.nan),
    ("top_p", 1.01),
    ("top_p", -0.1),
    ("top_p", math.nan),
    ("top_k", -1),
    ("n_best", 10**6),
    ("beam_size", 10**6),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_settings_out_of_range_are_errors(name, value):
    with pytest.raises(ConfigError, match=name):
        GenerationConfig(do_sample=True, **{name: value})


def test_forbidden_ids_get_nothing():
    assert allowed(Forbid([0, 3, 4]), torch.zeros(2, 5)) == [{1, 2}] * 2


def test_min_length_holds_back_every_end():
    rule = MinLength(torch.tensor([0, 1, 2]), [1, 3])
    zeros, everything = torch.zeros(3, 5), {0, 1, 2, 3, 4}
    assert allowed(rule, zeros) == [everything, {0, 2, 4}, {0, 2, 4}]
    assert allowed(rule, zeros, [[0]] * 3) == [everything, everything, {0, 2, 4}]
    rule.select(torch.tensor([2, 2, 0]))
    assert allowed(rule, zeros, [[0]] * 3) == [{0, 2, 4}, {0, 2, 4}, everything]


def test_forced_prefix_follows_its_rows():
    rule = ForcedPrefix([[3, 2], [], [4]])
    everything = set(range(5))
    assert allowed(rule, torch.zeros(3, 5)) == [{3}, everything, {4}]
    rule.select(torch.tensor([2, 0]))
    assert allowed(rule, torch.zeros(2, 5), [[4], [3]]) == [everything, {2}]
    assert allowed(rule, torch.zeros(2, 5), [[4, 0], [3, 2]]) == [everything] * 2


def test_repetition_penalty_lowers_logits_of_both_signs():
    rule = RepetitionPenalty(torch.tensor([2.0, 4.0]))
    history = torch.tensor([[0, 1, 1], [2, 2, 2]])
    out = rule(history, torch.tensor([[4.0, -4.0, 8.0]] * 2))
    assert out.tolist() == [[2, -8, 8], [4, -4, 2]]


@pytest.mark.parametrize(("n", "banned"), [(3, {4}), (1, {1, 2, 3, 4}), (2, {4}), (7, set()), (4, set())])
def test_no_repeat_ngram(n, banned):
    history = [1, 2, 3, 4, 2, 3]
    everything = set(range(6))
    assert allowed(NoRepeatNGram(n, 1), torch.zeros(1, 6), [history]) == [everything - banned]
    rule = NoRepeatNGram(n, 1)
    for t in range(len(history) + 1):
        stepwise = allowed(rule, torch.zeros(1, 6), [history[:t]])
    assert stepwise == [everything - banned]


@given(st.data(), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_no_repeat_ngram_follows_reordered_beams(data, n):
    """After any reordering a rule knows just what a fresh one learns from the histories."""
    history, rule = torch.empty(3, 0, dtype=torch.int64), NoRepeatNGram(n, 3)
    for _ in range(10):
        rule(history, torch.zeros(len(history), 3))
        rows = data.draw(st.lists(st.integers(0, len(history) - 1), min_size=1, max_size=4))
        tokens = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
        rule.select(torch.tensor(rows))
        history = torch.cat([history[rows], torch.tensor(tokens)[:, None]], 1)
        fresh = NoRepeatNGram(n, len(rows))
        zeros = torch.zeros(len(rows), 3)
        assert torch.equal(rule(history, zeros.clone()), fresh(history, zeros.clone()))


@pytest.mark.parametrize("beam_size", [1, 3])
def test_when_every_token_is_banned_the_end_remains(beam_size):
    class Flat:
        def prefill(self, prefix):
            return self.step(prefix[:, -1])

        def step(self, tokens):
            return torch.tensor([[0.0, -5.0, 0.0, 0.0]]).repeat(len(tokens), 1)

        def select(self, rows):
            pass

    config = GenerationConfig(beam_size=beam_size, no_repeat_ngram_size=1, alpha=2.0)
    ((found,),) = generate(Flat(), start(1), config, eos_ids=[EOS], forbidden_ids=[BOS], max_new_tokens=limits(1, 9))
    assert sorted(found.ids[:-1]) == [2, 3]
    assert found.is_finished


def test_no_repeat_ngram_reads_each_token_once():
    """So its cost does not grow with the history: what was seen before may be gone from it."""
    rule, zeros = NoRepeatNGram(3, 1), torch.zeros(1, 6)
    history = torch.tensor([[1, 2, 3, 4, 2, 3]])
    for t in range(1, 7):
        only_last = history[:, :t].clone()
        only_last[:, : t - 1] = 5
        banned = rule(only_last, zeros.clone()).isneginf().nonzero()[:, 1]
    assert banned.tolist() == [4]
