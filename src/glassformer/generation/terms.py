"""What holds for a batch of rows, whichever way their tokens are chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from glassformer.generation.hypothesis import LengthPenalty
from glassformer.generation.processors import EosStop, LengthStop, Rules

__all__ = ["Terms"]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The rules, the ends and the score of R rows that are about to get their first new token."""

    items: list[int]  # the item that each row belongs to
    rules: Rules  # applied before normalisation; log-probabilities are those after the rules
    eos: EosStop  # tokens that end a row
    limit: LengthStop  # most new tokens of each row, at least 1
    penalty: LengthPenalty  # what makes a score of a sum
    stop: Callable[[int, int], bool] | None = None  # (row, its next token) -> whether its text ends there
    is_wanted: Callable[[int], bool] | None = None  # item -> whether somebody still waits for it; asked at each step

    def wants(self, item: int) -> bool:
        """Whether an item is to go on."""
        return self.is_wanted is None or self.is_wanted(item)
