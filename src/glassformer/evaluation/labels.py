"""How well labels are predicted: accuracy, F1 for each label and over all, confusion, entity F1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassformer.text.tags import Span, entities

__all__ = [
    "ChoiceReport",
    "EntityReport",
    "Rates",
    "YesNoReport",
    "choice_report",
    "confusion_table",
    "entity_report",
    "rates_table",
    "yes_no_report",
]


@dataclass(frozen=True)
class Rates:
    """Precision, recall and F1 from counts; a share of nothing is 0.

    precision = right / predicted, recall = right / expected, F1 = 2 right / (predicted + expected).
    """

    n_right: int
    n_predicted: int
    n_expected: int

    @property
    def precision(self) -> float:
        return self.n_right / self.n_predicted if self.n_predicted else 0.0

    @property
    def recall(self) -> float:
        return self.n_right / self.n_expected if self.n_expected else 0.0

    @property
    def f1(self) -> float:
        n = self.n_predicted + self.n_expected
        return 2 * self.n_right / n if n else 0.0

    def to_dict(self) -> dict[str, float]:
        """Plain values for JSON."""
        rates = {name: getattr(self, name) for name in ("precision", "recall", "f1")}
        return rates | {"support": self.n_expected, "predicted": self.n_predicted}


def _macro_f1(rates: Sequence[Rates]) -> float:
    """The mean F1 of the labels that are expected or predicted somewhere; a label that never occurs says nothing."""
    occurring = [rate.f1 for rate in rates if rate.n_expected or rate.n_predicted]
    return sum(occurring) / len(occurring) if occurring else 0.0


def _micro(rates: Sequence[Rates]) -> Rates:
    """All labels together: the sums of their counts."""
    sums = ((rate.n_right, rate.n_predicted, rate.n_expected) for rate in rates)
    return Rates(*(sum(column) for column in zip(*sums, strict=True))) if rates else Rates(0, 0, 0)


@dataclass(frozen=True)
class ChoiceReport:
    """Figures where each text (or word) has one label. `confusion` [L, L]: row expected, column predicted."""

    confusion: NDArray[np.int64]

    @property
    def rates(self) -> list[Rates]:
        """Of each label."""
        right, predicted, expected = np.diag(self.confusion), self.confusion.sum(0), self.confusion.sum(1)
        return [Rates(*map(int, counts)) for counts in zip(right, predicted, expected, strict=True)]

    @property
    def accuracy(self) -> float:
        """Share of the texts whose label is right; it is micro F1 too."""
        return float(np.trace(self.confusion) / max(self.confusion.sum(), 1))

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the labels that occur."""
        return _macro_f1(self.rates)


def choice_report(expected: Sequence[int], predicted: Sequence[int], n_labels: int) -> ChoiceReport:
    """Counts which label [N] was predicted where which one was expected."""
    confusion = np.zeros((n_labels, n_labels), dtype=np.int64)
    np.add.at(confusion, (np.asarray(expected, dtype=np.int64), np.asarray(predicted, dtype=np.int64)), 1)
    return ChoiceReport(confusion)


@dataclass(frozen=True)
class YesNoReport:
    """Figures where each text has any number of labels."""

    rates: list[Rates]  # of each label
    accuracy: float  # share of the texts with exactly the expected labels

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the labels that occur."""
        return _macro_f1(self.rates)

    @property
    def micro_f1(self) -> float:
        """F1 over all decisions together."""
        return _micro(self.rates).f1


def yes_no_report(expected: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> YesNoReport:
    """Compares which labels texts have: bool [N, L] each."""
    counts = ((expected & predicted).sum(0), predicted.sum(0), expected.sum(0))
    rates = [Rates(*map(int, column)) for column in zip(*counts, strict=True)]
    return YesNoReport(rates, float((expected == predicted).all(1).mean()) if len(expected) else 0.0)


@dataclass(frozen=True)
class EntityReport:
    """Figures of entities: one is right when its type, first and last word are."""

    types: dict[str, Rates]  # type -> its figures

    @property
    def rates(self) -> Rates:
        """All types together, as seqeval's default (micro) does."""
        return _micro(list(self.types.values()))

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the types that occur."""
        return _macro_f1(list(self.types.values()))


def entity_report(expected: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityReport:
    """Compares the entities that two taggings of the same sentences mean; see `entities` for the rules.

    Source: seqeval, default mode; conlleval of CoNLL-2003.
    """
    right: Counter[str] = Counter()
    counts: list[Counter[str]] = [Counter(), Counter()]  # predicted, expected
    for tags, wanted in zip(predicted, expected, strict=True):
        found: list[set[Span]] = [set(entities(tags)), set(entities(wanted))]
        for counter, spans in zip(counts, found, strict=True):
            counter.update(span.type for span in spans)
        right.update(span.type for span in found[0] & found[1])
    names = sorted(counts[0] | counts[1])
    return EntityReport({name: Rates(right[name], counts[0][name], counts[1][name]) for name in names})


def rates_table(names: Sequence[str], rates: Sequence[Rates]) -> dict[str, dict[str, float]]:
    """Label -> its figures, as plain values."""
    return {name: rate.to_dict() for name, rate in zip(names, rates, strict=True)}


def confusion_table(names: Sequence[str], confusion: NDArray[np.int64]) -> dict[str, dict[str, int]]:
    """Expected label -> predicted label -> how often, where that is not 0."""
    found = {}
    for name, row in zip(names, confusion, strict=True):
        found[name] = {names[i]: int(row[i]) for i in np.flatnonzero(row).tolist()}
    return found
