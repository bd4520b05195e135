"""What the search needs of a model: a batch of rows that are decoded step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Decoding", "JoinableDecoding", "is_identity"]


class Decoding(Protocol):
    """R rows being decoded; each remembers what it was given (a KV cache, or anything else)."""

    def prefill(self, prefix: Tensor) -> Tensor:
        """Takes the target prefix int64 [R, T] of every row; returns the logits [R, V] of the token after it.

        They are the caller's to change, as are those of `step`.
        """
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Takes one more token int64 [R] for every row; returns the logits [R, V] of the token after it."""
        ...

    def select(self, rows: Tensor) -> None:
        """New row i continues old row `rows[i]` (int64 [R']): reorders, drops and multiplies rows."""
        ...


@runtime_checkable
class JoinableDecoding(Decoding, Protocol):
    """A decoding whose rows may have come at different times."""

    def join(self, other: Self) -> None:
        """The rows of another one, of the same model, follow."""
        ...


def is_identity(rows: Tensor, n_rows: int) -> bool:
    """Whether selecting `rows` from `n_rows` rows changes nothing, so that the copy of a cache can be saved."""
    return len(rows) == n_rows and torch.equal(rows, torch.arange(n_rows, device=rows.device))
