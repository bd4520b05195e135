"""What holds for a batch of rows, whichever way their tokens are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.generation.hypothesis import LengthPenalty
from glassformer.generation.processors import Rules

__all__ = ["EosStop", "LengthStop", "Terms"]


class EosStop:
    """A row ends with any of the end tokens."""

    def __init__(self, eos_ids: Sequence[int], device: torch.device) -> None:
        self.ids = torch.tensor(sorted(set(eos_ids)), dtype=torch.int64, device=device)

    def __call__(self, tokens: Tensor) -> Tensor:
        """Returns for int64 tokens of any shape whether each ends its row."""
        return torch.isin(tokens, self.ids)


class LengthStop:
    """A row is cut when it has as many new tokens as its own limit allows, whatever the other rows are."""

    def __init__(self, limits: Sequence[int]) -> None:
        self.limits = list(limits)

    def __call__(self, lengths: Sequence[int]) -> list[bool]:
        """Returns for each row whether its number of new tokens is its limit."""
        return [length >= limit for length, limit in zip(lengths, self.limits, strict=True)]

    def select(self, rows: Sequence[int]) -> None:
        """New row i continues old row `rows[i]`."""
        self.limits = [self.limits[row] for row in rows]

    def join(self, other: LengthStop) -> None:
        """The rows of another follow."""
        self.limits += other.limits


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The rules, the ends and the score of R rows that are about to get their first new token."""

    items: list[int]  # the item that each row belongs to
    rules: Rules  # applied before normalisation; log-probabilities are those after the rules
    eos: EosStop  # tokens that end a row
    limit: LengthStop  # most new tokens of each row, at least 1
    penalty: LengthPenalty  # what makes a score of a sum
    stop: Callable[[int, int], bool] | None = None  # (row, its next token) -> whether its text ends there
