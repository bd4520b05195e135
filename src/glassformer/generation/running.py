"""A search that runs step by step: its rows go on together, end on their own, and others may join between two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.generation.decoding import Decoding, JoinableDecoding, is_identity
from glassformer.generation.processors import NOTHING
from glassformer.generation.terms import Terms

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RunningSearch", "aligned"]


class RunningSearch:
    """What beam search and sampling have in common.

    Args:
        decoding: R rows after their prefill.
        logits: [R, V] of the first new token.
        terms: Rules, ends and score. The search keeps them for the rows that are left.

    Attributes:
        items: The numbers of what is searched for; those that are done have left.
        lengths: New tokens of each of them so far.
        ids: int64 [rows, t], the tokens made. A row that joined later has NOTHING on its left.
    """

    def __init__(self, decoding: Decoding, logits: Tensor, terms: Terms) -> None:
        self.decoding, self.terms = decoding, terms
        self.logits: Tensor | None = logits  # of the next token; None: the newest tokens are still to be read
        self.items = list(terms.items)
        self.lengths = [0] * len(self.items)
        self.ids = torch.empty(len(logits), 0, dtype=torch.int64, device=logits.device)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to search for."""
        return not self.items

    def drop(self, is_wanted: Callable[[int], bool]) -> None:
        """Leaves out the items that nobody waits for any more."""
        keep = [place for place, item in enumerate(self.items) if is_wanted(item)]
        if len(keep) < len(self.items):
            self._keep(keep)

    def join(self, other: Self) -> None:
        """The items of another search, of the same settings and model, follow. Both have made their first step."""
        assert self.logits is None and other.logits is None, "a search is joined between two steps"
        decodings = (self.decoding, other.decoding)
        if not isinstance(decodings[0], JoinableDecoding) or not isinstance(decodings[1], JoinableDecoding):
            raise TypeError(f"{type(self.decoding).__name__} has no `join`: its rows must begin together.")
        decodings[0].join(decodings[1])
        self.terms.rules.join(other.terms.rules, len(self.ids), len(other.ids))
        self.terms.limit.join(other.terms.limit)
        self.ids = aligned(self.ids, other.ids, fill=NOTHING)
        self.items += other.items
        self.lengths += other.lengths

    def _next_logits(self) -> Tensor:
        """[rows, V] of the next token, for the caller to change."""
        logits, self.logits = self.logits, None
        logits = self.decoding.step(self.ids[:, -1]) if logits is None else logits
        return self.terms.rules(self.ids, logits)

    def _keep(self, keep: list[int]) -> None:
        """Goes on with the items at these places."""
        raise NotImplementedError

    def _select(self, keep: list[int], rows: Tensor) -> None:
        """The items at the places `keep` stay; new row i continues old row `rows[i]`, but for its `ids`."""
        self.items, self.lengths = [self.items[place] for place in keep], [self.lengths[place] for place in keep]
        self.terms.limit.select(keep)
        if not keep or is_identity(rows, len(self.ids)):
            return
        if self.logits is not None:
            self.logits = self.logits[rows]
        self.decoding.select(rows)
        self.terms.rules.select(rows)

    def _newest(self, values: Tensor) -> Tensor:
        """The last columns of [rows, t]: as many as the longest row has."""
        return values[:, values.shape[1] - max(self.lengths, default=0) :]


def aligned(mine: Tensor, its: Tensor, *, fill: float) -> Tensor:
    """Rows [R, t] and [R', t'] below each other, the shorter ones filled up on the left."""
    width = max(mine.shape[1], its.shape[1])
    return torch.cat([F.pad(part, (width - part.shape[1], 0), value=fill) for part in (mine, its)])
