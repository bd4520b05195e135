"""The rows that are scored: read once, the same ones for every system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from glassformer.errors import DataError
from glassformer.text.readers import Pair, PairReader

__all__ = ["TestSet", "read_test_set"]

BEYOND = "beyond the limit"


@dataclass(frozen=True, kw_only=True)
class TestSet:
    """The scored rows of a data set, in its order.

    Attributes:
        sources, references, domains: One for each scored row.
        lines: The line of the data on which each begins, from 1.
        places: The place of each among all rows, from 0. (A row of CSV can have several lines.)
        n_rows: Rows of the data, scored or not.
        left_out: Rows that are not scored, by reason.
        is_limited: Whether rows were left out because there were enough.
    """

    __test__ = False  # not a test class, whatever pytest makes of the name

    sources: list[str]
    references: list[str]
    domains: list[str | None]
    lines: list[int]
    places: list[int]
    n_rows: int
    left_out: dict[str, int]
    is_limited: bool

    def summary(self) -> str:
        """How many rows are scored, and why the others are not."""
        said = f"Scored {len(self.places):,} of {self.n_rows:,} rows"
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items())
        return f"{said}; left out: {reasons}." if reasons else f"{said}."

    def described(self) -> dict[str, Any]:
        """The counts, for a report."""
        return {"total": self.n_rows, "scored": len(self.places), "left_out": self.left_out}

    def select(self, lines: Sequence[str], name: str) -> list[str]:
        """Takes the outputs of the scored rows from a file that has one line for each row of the data.

        Lines of rows that are not scored are skipped, whatever they hold. With a limit the file may end after the last
        scored row.

        Raises:
            DataError: The file has another number of lines than the data has rows.
        """
        n_needed = self.places[-1] + 1 if self.is_limited else self.n_rows
        if not n_needed <= len(lines) <= self.n_rows:
            raise DataError(
                f"{name} has {len(lines)} lines and the data has {self.n_rows} rows.",
                "One output for each row was expected, in the same order, blank ones included.",
                "Check that both belong to the same data.",
            )
        return [lines[place] for place in self.places]

    def spread(self, hypotheses: Sequence[str]) -> list[str]:
        """The opposite of `select`: one line for each row up to the last scored one, or to the end without a limit."""
        lines = [""] * (self.places[-1] + 1 if self.is_limited else self.n_rows)
        for place, hypothesis in zip(self.places, hypotheses, strict=True):
            lines[place] = hypothesis
        return lines


def read_test_set(reader: PairReader, limit: int | None = None) -> TestSet:
    """Keeps the pairs to score: those with text on both sides, the first `limit` of them.

    The data are read to their end in any case, so that sides of unequal length are noticed.

    Raises:
        DataError: The data cannot be read (see `PairReader`), or no pair has text on both sides.
    """
    kept: list[tuple[Pair, int]] = []
    left_out: Counter[str] = Counter()
    for pair in reader:
        if not pair.src.strip():
            left_out["with a blank source"] += 1
        elif not pair.tgt.strip():
            left_out["with a blank reference"] += 1
        elif limit is not None and len(kept) == limit:
            left_out[BEYOND] += 1
        else:
            kept.append((pair, reader.n_rows - 1))
    if not kept:
        raise DataError(
            f"{' and '.join(reader.paths)}: none of {reader.n_rows:,} rows has text on both sides.",
            "At least one source with a reference was expected.",
            "Check that it is the right file.",
        )
    left_out.update({f"unreadable ({reason})": count for reason, count in reader.bad.items()})
    return TestSet(
        sources=[pair.src for pair, _ in kept],
        references=[pair.tgt for pair, _ in kept],
        domains=[pair.domain for pair, _ in kept],
        lines=[pair.row for pair, _ in kept],
        places=[place for _, place in kept],
        n_rows=reader.n_rows,
        left_out=dict(left_out),
        is_limited=BEYOND in left_out,
    )
