"""Figures of labels against hand-made counts and against the libraries whose rules they follow."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
from seqeval.metrics import f1_score, precision_score, recall_score
from sklearn import metrics

from glassformer.evaluation.labels import (
    Rates,
    choice_report,
    confusion_table,
    entity_report,
    rates_table,
    yes_no_report,
)


def test_rates_from_counts() -> None:
    rates = Rates(3, 4, 6)
    assert (rates.precision, rates.recall) == (0.75, 0.5)
    assert rates.f1 == pytest.approx(2 * 0.75 * 0.5 / (0.75 + 0.5))
    nothing = Rates(0, 0, 0)
    assert nothing.precision == nothing.recall == nothing.f1 == 0.0


def test_choices_by_hand() -> None:
    report = choice_report([0, 0, 1, 1, 1, 3], [0, 1, 1, 1, 3, 3], n_labels=4)
    assert report.accuracy == pytest.approx(4 / 6)
    assert report.confusion.tolist() == [[1, 1, 0, 0], [0, 2, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]]
    f1 = [2 / 3, 2 / 3, 2 / 3]  # label 2 never occurs
    assert report.macro_f1 == pytest.approx(sum(f1) / 3)
    table = rates_table(["a", "b", "c", "d"], report.rates)
    assert table["b"] == {"precision": 2 / 3, "recall": 2 / 3, "f1": pytest.approx(2 / 3), "support": 3, "predicted": 3}
    assert (table["a"]["precision"], table["a"]["recall"], table["a"]["support"]) == (1.0, 0.5, 2)
    assert confusion_table(["a", "b", "c", "d"], report.confusion)["b"] == {"b": 2, "d": 1}


def test_no_row_gives_no_nan() -> None:
    report = choice_report([], [], n_labels=3)
    assert report.accuracy == report.macro_f1 == 0.0
    empty = np.zeros((0, 3), dtype=bool)
    assert yes_no_report(empty, empty).accuracy == yes_no_report(empty, empty).micro_f1 == 0.0
    assert entity_report([], []).rates.f1 == entity_report([["O"]], [["O"]]).macro_f1 == 0.0


def test_choices_are_scored_as_by_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    expected, predicted = generator.integers(0, 5, (2, 200))
    report = choice_report(expected.tolist(), predicted.tolist(), n_labels=8)
    assert report.accuracy == pytest.approx(metrics.accuracy_score(expected, predicted))
    assert report.macro_f1 == pytest.approx(metrics.f1_score(expected, predicted, average="macro"))
    assert (report.confusion[:5, :5] == metrics.confusion_matrix(expected, predicted)).all()


def test_yes_and_no_are_scored_as_by_scikit_learn() -> None:
    expected, predicted = np.random.default_rng(1).random((2, 100, 6)) < np.array([0.2, 0.3, 0.4, 0.5, 0.6, 0.9])
    report = yes_no_report(expected, predicted)
    assert report.accuracy == pytest.approx(metrics.accuracy_score(expected, predicted))
    for average, figure in (("micro", report.micro_f1), ("macro", report.macro_f1)):
        assert figure == pytest.approx(metrics.f1_score(expected, predicted, average=average))


def test_entities_by_hand() -> None:
    expected = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["I-LOC", "I-LOC"]]  # right; wrong type; wrong first word
    report = entity_report(expected, predicted)
    assert (report.rates.n_right, report.rates.n_predicted, report.rates.n_expected) == (1, 3, 3)
    assert report.types["PER"].precision == 0.5 and report.types["LOC"].f1 == 0.0
    assert report.macro_f1 == pytest.approx((2 / 3 + 0) / 2)


def test_an_entity_twice_in_one_sentence_counts_twice() -> None:
    tags = [["B-X", "O", "B-X"]]
    assert entity_report(tags, tags).rates == Rates(2, 2, 2)


def test_entities_are_scored_as_by_seqeval() -> None:
    chance = random.Random(3)
    tags = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("X", "Y"))]
    expected, predicted = ([chance.choices(tags, k=7) for _ in range(300)] for _ in range(2))
    rates = entity_report(expected, predicted).rates
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert rates.precision == pytest.approx(precision_score(expected, predicted))
        assert rates.recall == pytest.approx(recall_score(expected, predicted))
        assert rates.f1 == pytest.approx(f1_score(expected, predicted))
        assert entity_report(expected, predicted).macro_f1 == pytest.approx(
            f1_score(expected, predicted, average="macro")
        )
