"""ROUGE by hand and against its package, in English and elsewhere, and its place among the other scores."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from glassformer.config import EvaluationConfig
from glassformer.errors import ConfigError
from glassformer.evaluation.report import System, evaluate, signatures, tables
from glassformer.evaluation.rouge import ROUGE_NAMES, Rouge, is_english
from glassformer.evaluation.scores import Counts, compare
from glassformer.evaluation.testset import TestSet

HYPOTHESES = ["The cats sat on the mat.", "A dog was running", "", "it rained; nobody came!"]
REFERENCES = ["A cat sits on a mat.", "the dogs ran in the park", "nothing", "Nobody came. It rained."]


def test_by_hand() -> None:
    # Words shared 2 of 3 and 4; pairs 1 of 2 and 3; longest common sequence "the cat": 2.
    values = Rouge(is_english=True).f1(["the cat sat"], ["the cat lay down"])
    assert values[0] == pytest.approx([4 / 7, 2 / 5, 4 / 7, 4 / 7])
    # A word counts as often as both have it: 1 of 3 and 2.
    assert Rouge(is_english=True).f1(["red red red"], ["red blue"])[0, 0] == pytest.approx(
        2 * (1 / 3 * 1 / 2) / (5 / 6)
    )


def test_summary_level_unites_the_sentences() -> None:
    scores = dict(
        zip(
            ROUGE_NAMES,
            Rouge(is_english=True).f1(["It rained. Nobody came."], ["Nobody came. It rained."])[0],
            strict=True,
        )
    )
    assert scores["rougeLsum"] == pytest.approx(1.0), "each sentence is found, in whatever order"
    assert scores["rougeL"] == pytest.approx(0.5), "one sequence holds two of the four words"
    assert scores["rouge1"] == 1.0


def test_english_is_what_the_package_says() -> None:
    scorer = RougeScorer(list(ROUGE_NAMES), use_stemmer=True)
    found = Rouge(is_english=True).f1(HYPOTHESES, REFERENCES)
    for row, hypothesis, reference in zip(found, HYPOTHESES, REFERENCES, strict=True):
        expected = scorer.score(reference, hypothesis)
        names = ("rouge1", "rouge2", "rougeL")
        assert row[:3] == pytest.approx([expected[name].fmeasure for name in names])
    assert found[0, 0] > Rouge(is_english=False).f1(HYPOTHESES, REFERENCES)[0, 0], "cats and cat have one stem"


@pytest.mark.parametrize(
    ("hypothesis", "reference", "n_words", "n_shared"),
    [
        ("L'été est fini", "l'ÉTÉ, fini", 4, 3),  # the package would see l, t, est, fini
        ("e\u0301te\u0301", "été", 1, 1),  # two forms of one text
        ("Straße groß", "die Straße", 2, 1),
        ("हिन्दी में", "हिन्दी", 2, 1),  # vowel signs are marks, not gaps
        ("我们吃面包", "吃面", 5, 2),  # no spaces: each character is a word
    ],
)
def test_words_of_other_languages(hypothesis: str, reference: str, n_words: int, n_shared: int) -> None:
    value = Rouge(is_english=False).f1([hypothesis], [reference])[0, 0]
    n_reference = {"l'ÉTÉ, fini": 3, "die Straße": 2, "吃面": 2}.get(reference, 1)
    assert value == pytest.approx(2 * n_shared / (n_words + n_reference))


def test_which_texts_are_english() -> None:
    french = ["le chat est dans la maison et il ne dort pas", "vous êtes sur le toit avec des amis"]
    english = ["the cat is in the house and it is not asleep", "you were on the roof with your friends"]
    assert is_english(french, "en") and is_english([], "eng"), "a code decides"
    assert not is_english(english, "fr")
    assert is_english(english, "summary") and not is_english(french, "summary"), "no code: a guess"
    assert not is_english(["zzz"], "tgt")


def test_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    monkeypatch.delitem(sys.modules, "rouge_score.rouge_scorer")
    with pytest.raises(ConfigError, match=r"pip install 'glassformer\[rouge\]'"):
        Rouge(is_english=True)


def test_scores_are_means_with_intervals() -> None:
    counts = Counts(HYPOTHESES, REFERENCES, use_ter=False, rouge_language="en")
    scores = counts.scores()
    f1 = Rouge(is_english=True).f1(HYPOTHESES, REFERENCES)
    assert [each.name for each in scores.rouge] == list(ROUGE_NAMES)
    assert [each.name for each in scores.all()[:5]] == [*ROUGE_NAMES, "bleu"]
    assert [each.value for each in scores.rouge] == pytest.approx(list(100 * f1.mean(0)))
    low, high = np.quantile([f1[i, 0] for i in (2, 1, 3, 0)], (0, 1)) * 100
    first = scores.rouge[0]
    assert first.low is not None and first.high is not None
    assert low <= first.low < first.value < first.high <= high
    assert "stem:porter" in first.signature and "rouge_score-" in first.signature and "bs:1000" in first.signature
    assert counts.scores([0]).rouge[0].value == pytest.approx(100 * f1[0, 0]), "a group has its own"
    plain = Counts(HYPOTHESES, REFERENCES, use_ter=False).scores()
    assert plain.rouge == [] and plain.bleu == scores.bleu


def test_paired_test_of_rouge() -> None:
    references = [f"word{i} and word{i + 1} came home" for i in range(30)]
    good, bad = (
        Counts(references, references, use_ter=False, rouge_language="en"),
        Counts(["home"] * 30, references, use_ter=False, rouge_language="en"),
    )
    found = {each.name: each for each in compare(good, bad)}
    assert found["rouge1"].winner == "a" and found["rouge1"].a == 100
    same = {each.name: each for each in compare(bad, bad)}
    assert same["rougeL"].winner is None and same["rougeL"].p_value == 1.0


def test_report_shows_rouge_first() -> None:
    n = len(HYPOTHESES)
    test_set = TestSet(
        sources=["a b"] * n,
        references=REFERENCES,
        domains=[None] * n,
        lines=list(range(1, n + 1)),
        places=list(range(n)),
        n_rows=n,
        left_out={},
        is_limited=False,
    )
    config = EvaluationConfig(n_resamples=20)
    report = evaluate(
        System(name="x", hypotheses=HYPOTHESES, n_cut_sources=2),
        test_set,
        use_ter=False,
        rouge_language="en",
        config=config,
    )
    overall, by_length = tables(report)[:2]
    assert [row[0] for row in overall.rows[:4]] == ["ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum"]
    assert by_length.heads[2] == "ROUGE-1"
    assert any(line.startswith("ROUGE-Lsum: stem:porter") for line in signatures(report))
