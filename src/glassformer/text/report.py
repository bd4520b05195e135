"""What a check of parallel data found, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Example", "Finding", "Report", "Side"]

N_EXAMPLES = 5


@dataclass(frozen=True)
class Example:
    """One row of a finding."""

    row: int
    src: str
    tgt: str


@dataclass
class Finding:
    """Something that looks wrong: how many rows, what it means, and the first of them."""

    name: str
    note: str
    is_left_out: bool = False
    count: int = 0
    places: list[int] = field(default_factory=list)  # of the first examples, counted in pairs read
    examples: list[Example] = field(default_factory=list)

    def add(self, place: int) -> None:
        self.count += 1
        if len(self.places) < N_EXAMPLES:
            self.places.append(place)

    def add_all(self, places: NDArray[np.intp]) -> None:
        self.count += len(places)
        self.places += np.sort(places)[: N_EXAMPLES - len(self.places)].tolist()


@dataclass(frozen=True)
class Side:
    """One side of the data: totals, quantiles of the lengths of its rows, and the language that it looks like."""

    name: str
    n_words: int
    n_chars: int
    words: dict[str, int]
    chars: dict[str, int]
    language: str | None


@dataclass
class Report:
    """What `check` found. `lengths` holds the words of each row, for a picture."""

    n_rows: int
    n_pairs: int
    bad: dict[str, int]
    bad_examples: dict[str, str]
    domains: dict[str, int]
    sides: tuple[Side, Side]
    findings: list[Finding]
    lengths: dict[str, NDArray[np.uint32]]

    @property
    def n_used(self) -> int:
        """Pairs that training uses, before those that are too long in tokens are left out."""
        return self.n_pairs - sum(finding.count for finding in self.findings if finding.is_left_out)

    @property
    def is_clean(self) -> bool:
        """No bad row and no finding."""
        return not self.bad and not self.findings

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON; no number in it can be infinite or NaN."""
        return {
            "rows": self.n_rows,
            "pairs": self.n_pairs,
            "used": self.n_used,
            "bad_rows": [
                {"reason": reason, "count": count, "first": self.bad_examples[reason]}
                for reason, count in self.bad.items()
            ],
            "domains": self.domains,
            "sides": {key: vars(side) for key, side in zip(("src", "tgt"), self.sides, strict=True)},
            "findings": [
                {
                    "name": finding.name,
                    "note": finding.note,
                    "count": finding.count,
                    "left_out": finding.is_left_out,
                    "examples": [vars(example) for example in finding.examples],
                }
                for finding in self.findings
            ],
        }
