"""Scores against values by hand and against sacreBLEU's own way; intervals; the paired test."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from glassformer.config import EvaluationConfig
from glassformer.errors import DataError
from glassformer.evaluation import scores as module
from glassformer.evaluation.scores import Counts, compare, exact_match, score

REFERENCES = [
    f"Le {noun} {verb} {adverb}, et le prix est de {number} euros."
    for noun in ("chat", "chien", "cheval", "lion")
    for verb in ("mange", "dort", "court")
    for adverb in ("bien", "peu", "souvent")
    for number in (3, 50)
]
SMALL = EvaluationConfig(n_resamples=200, n_trials=999)


def damaged(share: float, seed: int) -> list[str]:
    """The references with that share of the words replaced."""
    rng = random.Random(seed)
    return [" ".join("xx" if rng.random() < share else word for word in text.split()) for text in REFERENCES]


def test_bleu_by_hand() -> None:
    # 5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 quadruples; both sides have 6 tokens.
    found = score(["the cat sat on a mat"], ["the cat sat on the mat"], config=EvaluationConfig(n_resamples=0))
    assert found.bleu.value == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25, abs=1e-9)
    assert found.ter is not None and found.ter.value == pytest.approx(100 / 6)
    assert found.length_ratio == 1.0
    assert found.bleu.low is None and found.bleu.high is None


def test_brevity_penalty_by_hand() -> None:
    found = score(["a b c d e"], ["a b c d e f g h i j"], use_ter=False)
    assert found.bleu.value == pytest.approx(100 * math.exp(1 - 10 / 5), abs=1e-9)
    assert found.ter is None
    assert found.length_ratio == 0.5


def test_values_and_signatures_are_those_of_sacrebleu() -> None:
    hypotheses = damaged(0.2, seed=1)
    found = score(hypotheses, REFERENCES, config=SMALL)
    for ours, scorer in ((found.bleu, BLEU()), (found.chrf, CHRF()), (found.ter, TER())):
        assert ours is not None
        theirs = scorer.corpus_score(hypotheses, [REFERENCES], n_bootstrap=200)
        assert ours.value == pytest.approx(theirs.score, abs=1e-9)
        assert ours.signature == str(scorer.get_signature()).replace("|bs:200|seed:12345", "") + "|bs:200|seed:12345"
        assert ours.low is not None and ours.high is not None
        # The same resamples; sacreBLEU states half the width between nearly the same percentiles.
        assert (ours.high - ours.low) / 2 == pytest.approx(theirs._ci, rel=0.15)


def test_interval_contains_the_score() -> None:
    for share in (0.05, 0.3, 0.8):
        for found in score(damaged(share, seed=2), REFERENCES, config=SMALL).all():
            assert found.low is not None and found.high is not None
            assert found.low <= found.value <= found.high
            assert found.low < found.high or found.value in (0.0, 100.0)


def test_intervals_do_not_depend_on_how_resamples_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    hypotheses = damaged(0.2, seed=3)
    a, b = (Counts(damaged(0.2, seed=seed), REFERENCES, config=SMALL) for seed in (3, 4))
    whole, test = score(hypotheses, REFERENCES, config=SMALL), compare(a, b)
    monkeypatch.setattr(module, "_CHUNK", 1000)
    assert score(hypotheses, REFERENCES, config=SMALL) == whole
    for small, large in zip(compare(a, b), test, strict=True):
        assert (small.low, small.high) == pytest.approx((large.low, large.high), abs=1e-9)


def test_exact_match_is_a_share_of_equal_strings() -> None:
    hypotheses, references = ["a", "B", "c ", "d"], ["a", "b", "c", "d"]
    assert exact_match(hypotheses, references) == 50.0
    assert score(hypotheses, references, use_ter=False).exact_match.value == 50.0


def test_perfect_outputs() -> None:
    found = score(REFERENCES, REFERENCES, config=SMALL)
    assert [s.value for s in found.all()] == pytest.approx([100, 100, 0, 100])


def test_empty_outputs_count_as_outputs_without_words() -> None:
    half = [text if i % 2 else "" for i, text in enumerate(REFERENCES)]
    found = score(half, REFERENCES, config=SMALL)
    assert found.n == len(REFERENCES)
    assert found.length_ratio == pytest.approx(0.5, abs=0.01)
    assert found.exact_match.value == 50.0
    nothing = score([""] * 3, ["a b c d e"] * 3, config=SMALL)
    assert [s.value for s in nothing.all()] == pytest.approx([0, 0, 100, 0])


def test_empty_references_do_not_divide_by_zero() -> None:
    found = score(["a", ""], ["", ""], config=SMALL)
    assert math.isnan(found.length_ratio)
    assert all(math.isfinite(s.value) for s in found.all())


def test_text_is_not_tokenised_twice() -> None:
    # "l'eau." is "l'eau" and "." for 13a; what looks like an entity or a subword mark stays as it is given.
    found = score(["@-@ l'eau est là."], ["@-@ l'eau est là."], use_ter=False)
    assert found.bleu.value == pytest.approx(100)
    assert score(["a b c d ."], ["a b c d."], use_ter=False).exact_match.value == 0


def test_no_sentences_is_an_error() -> None:
    with pytest.raises(DataError, match="no sentences"):
        score([], [])
    with pytest.raises(DataError, match="no sentences"):
        exact_match([], [])


def test_unequal_numbers_are_an_error_with_both_counts() -> None:
    with pytest.raises(DataError, match="2 hypotheses and 3 references"):
        score(["a", "b"], ["a", "b", "c"])


def test_identical_systems_do_not_differ() -> None:
    a = Counts(damaged(0.2, seed=5), REFERENCES, config=SMALL)
    for found in compare(a, a):
        assert (found.delta, found.low, found.high, found.p_value, found.winner) == (0, 0, 0, 1, None)


def test_a_clearly_better_system_is_found_from_both_sides() -> None:
    good, bad = (Counts(damaged(share, seed=6), REFERENCES, config=SMALL) for share in (0.05, 0.5))
    for winner, tested in (("a", compare(good, bad)), ("b", compare(bad, good))):
        for found in tested:
            assert found.winner == winner
            assert found.p_value == pytest.approx(1 / 1000)
            assert found.low is not None and found.high is not None
            assert (found.low > 0) == (found.high > 0) == (found.delta > 0)
            assert found.low <= found.delta <= found.high


def test_equally_good_systems_are_seldom_said_to_differ() -> None:
    config = EvaluationConfig(n_resamples=0, n_trials=199)
    systems = [Counts(damaged(0.2, seed=seed), REFERENCES, use_ter=False, config=config) for seed in range(24)]
    found = [compare(a, b)[1] for a, b in zip(systems[::2], systems[1::2], strict=True)]
    # 12 tests at the 5 % level: more than 3 wrong ones have a probability of 0.2 %.
    assert sum(c.winner is not None for c in found) <= 3
    assert 0.2 < np.mean([c.p_value for c in found]) < 0.8


def test_p_values_agree_with_sacrebleu_where_that_one_is_right() -> None:
    a, b = damaged(0.2, seed=7), damaged(0.24, seed=8)
    _, theirs = PairedTest([("a", a), ("b", b)], {"BLEU": BLEU(force=True), "chrF2": CHRF()}, [REFERENCES], "ar", 999)()
    ours = compare(*(Counts(x, REFERENCES, config=SMALL) for x in (a, b)))
    for found, name in zip(ours[:2], ("BLEU", "chrF2"), strict=True):
        result: Any = theirs[name][1]
        assert found.p_value == pytest.approx(result.p_value, abs=0.002)
        assert found.b == pytest.approx(result.score)


def test_systems_counted_differently_cannot_be_compared() -> None:
    a = Counts(REFERENCES, REFERENCES, use_ter=False)
    with pytest.raises(DataError, match="72 sentences"):
        compare(a, Counts(REFERENCES[:5], REFERENCES[:5], use_ter=False))
    with pytest.raises(DataError, match="counted by"):
        compare(a, Counts(REFERENCES, REFERENCES, use_ter=False, config=EvaluationConfig(tokenize="char")))
