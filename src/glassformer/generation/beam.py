"""Batched beam search with an exact finishing rule.

Each item keeps W live hypotheses (W = beam_size, fewer at first). A step
1. extends every live hypothesis with its best tokens and orders all candidates of an item by summed log-probability;
2. takes the candidates with an end token among the first `beam_size` as ended hypotheses;
3. keeps the first `beam_size` candidates without an end token alive;
4. at the item's limit takes those as hypotheses too, cut there.
The result of an item is the `n_best` best of all hypotheses taken, by score, ended and cut alike.

Finishing rule: an item is done when it has `n_best` hypotheses and no live one can still reach a better score than
the worst of them, whatever tokens follow (`LengthPenalty.best_score`). So a larger `n_best` never changes the first
entries. An item that is done leaves the batch. Nothing of an item depends on the others.

Ties: of equal sums the hypothesis that stood higher a step before comes first; of equal scores the earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.generation.best import best_tokens, log_probs_of
from glassformer.generation.decoding import Decoding
from glassformer.generation.guard import check_logits, no_token_left
from glassformer.generation.hypothesis import FinishReason, Hypothesis, LengthPenalty
from glassformer.generation.running import RunningSearch, aligned
from glassformer.generation.terms import Terms

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["BeamSearch"]


@dataclass
class _Candidates:
    """Extensions by one token: for each item first E that would end, then W that would live on, each best first."""

    rows: Tensor  # int64 [A, E + W], row of the hypothesis that is extended
    tokens: Tensor  # int64 [A, E + W]
    log_probs: Tensor  # float32 [A, E + W], of the token
    totals: Tensor  # float64 [A, E + W], of the whole hypothesis; -inf: no such candidate
    n_ending: int  # E


class BeamSearch(RunningSearch):
    """Finds the best outputs of A items, W live hypotheses each, best first: row a * W + w.

    Args:
        decoding: A rows, one for each item, after their prefill.
        logits: [A, V] of the first new token.
        terms: Rules, ends and score; every row is another item.
        beam_size: Live hypotheses of an item, from its second step on.
        n_best: Hypotheses of a result.

    Attributes:
        log_probs: float32 [A * W, t], those of `ids`.
        totals: float64 [A, W], their sums. An empty place has -inf.

    Cost: a step takes one top-(beam_size + end tokens) and one sum of exponentials over [rows, V], and a number of
    small operations that does not depend on the batch.
    """

    def __init__(self, decoding: Decoding, logits: Tensor, terms: Terms, *, beam_size: int, n_best: int) -> None:
        super().__init__(decoding, logits, terms)
        self.beam_size = beam_size
        self.log_probs = torch.empty(len(logits), 0, device=logits.device)
        self.totals = torch.zeros(len(logits), 1, dtype=torch.float64, device=logits.device)
        self.pools = _Pools(self.items, n_best, terms.penalty)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """Makes the next token of each hypothesis; returns the items that are done.

        Each with up to `n_best` different hypotheses, scores non-increasing.

        Raises:
            GenerationError: Logits are not finite, or the rules leave an item no token.
        """
        logits = self._next_logits()
        check_logits(logits, self.items, may_be_empty=True)
        candidates = self._candidates(logits)
        totals = candidates.totals.tolist()  # with the hypotheses taken, all that a step moves to Python
        self.lengths = [length + 1 for length in self.lengths]
        limit = self.terms.limit
        is_cut = limit(self.lengths)
        self._take(candidates, totals, is_cut)
        keep = [
            a
            for a, (item, length) in enumerate(zip(self.items, self.lengths, strict=True))
            if not is_cut[a] and not self.pools.is_final(item, totals[a][candidates.n_ending], length, limit.limits[a])
        ]
        done = sorted(set(self.items) - {self.items[a] for a in keep})
        self._advance(candidates, keep)
        return [(item, self.pools.pop(item)) for item in done]

    def join(self, other: Self) -> None:
        super().join(other)
        self.log_probs = aligned(self.log_probs, other.log_probs, fill=0.0)
        self.totals = torch.cat([self.totals, other.totals])
        self.pools.of |= other.pools.of

    def _candidates(self, logits: Tensor) -> _Candidates:
        """Extends each hypothesis by its best tokens, and orders what comes of an item."""
        n_items, width = self.totals.shape
        # No more of one row can be taken than beam_size tokens and every end token.
        per_row = self.beam_size + len(self.terms.eos.ids)
        _, tokens = best_tokens(logits, min(per_row, logits.shape[1]))
        log_probs = log_probs_of(tokens, logits)
        log_probs = log_probs.masked_fill(log_probs.isnan(), -torch.inf)  # a row without any token
        missing = (0, per_row - tokens.shape[1])  # of a tiny vocabulary
        tokens, log_probs = F.pad(tokens, missing), F.pad(log_probs, missing, value=-torch.inf)
        totals, order = _descending((self.totals.view(-1, 1) + log_probs).view(n_items, width * per_row))
        is_eos = self.terms.eos(tokens).view(n_items, -1).gather(1, order)
        ending = totals.masked_fill(~is_eos, -torch.inf)[:, : self.beam_size]
        living, places = _descending(totals.masked_fill(is_eos, -torch.inf))
        chosen = torch.cat([order[:, : self.beam_size], order.gather(1, places[:, : self.beam_size])], 1)  # [A, E + W]
        return _Candidates(
            rows=torch.arange(n_items, device=order.device)[:, None] * width + chosen // per_row,
            tokens=tokens.view(n_items, -1).gather(1, chosen),
            log_probs=log_probs.view(n_items, -1).gather(1, chosen),
            totals=torch.cat([ending, living[:, : self.beam_size]], 1),
            n_ending=ending.shape[1],
        )

    def _extended(self, candidates: _Candidates, at: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Returns rows [N], ids [N, t + 1] and log-probabilities [N, t + 1] of the candidates at (a, column)."""
        rows = candidates.rows[at]
        ids = torch.cat([self.ids[rows], candidates.tokens[at][:, None]], 1)
        return rows, ids, torch.cat([self.log_probs[rows], candidates.log_probs[at][:, None]], 1)

    def _take(self, candidates: _Candidates, totals: list[list[float]], is_cut: list[bool]) -> None:
        """Takes the candidates that end, and of items at their limit the living ones too."""
        n_ending = candidates.n_ending
        taken = [
            (a, column)
            for a, item in enumerate(self.items)
            for column, total in enumerate(totals[a] if is_cut[a] else totals[a][:n_ending])
            if self.pools.welcomes(item, total, self.lengths[a])
        ]
        if not taken:
            return
        places, columns = torch.tensor(taken, device=self.ids.device).unbind(1)
        _, ids, log_probs = self._extended(candidates, (places, columns))
        for (a, column), tokens, parts in zip(taken, ids.tolist(), log_probs.tolist(), strict=True):
            start = len(tokens) - self.lengths[a]
            reason: FinishReason = "eos" if column < n_ending else "length"
            self.pools.take(self.items[a], tokens[start:], parts[start:], reason)

    def _advance(self, candidates: _Candidates, keep: list[int]) -> None:
        """Goes on with the living candidates of the kept items."""
        kept = torch.tensor(keep, dtype=torch.int64, device=self.ids.device)
        self.totals = candidates.totals[kept, candidates.n_ending :]
        width = self.totals.shape[1]
        columns = candidates.n_ending + torch.arange(width, device=kept.device)
        rows, ids, log_probs = self._extended(candidates, (kept.repeat_interleave(width), columns.repeat(len(keep))))
        self._select(keep, rows)
        self.ids, self.log_probs = self._newest(ids), self._newest(log_probs)

    def _keep(self, keep: list[int]) -> None:
        kept = torch.tensor(keep, dtype=torch.int64, device=self.ids.device)
        width = self.totals.shape[1]
        rows = (kept[:, None] * width + torch.arange(width, device=kept.device)).flatten()
        for item in set(self.items) - {self.items[place] for place in keep}:
            del self.pools.of[item]
        self._select(keep, rows)
        self.totals = self.totals[kept]
        self.ids, self.log_probs = self._newest(self.ids[rows]), self._newest(self.log_probs[rows])


def _descending(totals: Tensor) -> tuple[Tensor, Tensor]:
    return totals.sort(dim=1, descending=True, stable=True)


class _Pools:
    """The `n_best` best hypotheses of each item so far."""

    def __init__(self, items: Sequence[int], n_best: int, penalty: LengthPenalty) -> None:
        self.of: dict[int, list[Hypothesis]] = {item: [] for item in items}
        self.n_best, self.penalty = n_best, penalty

    def worst_score(self, item: int) -> float:
        """Returns the score to beat; -inf while any hypothesis is welcome."""
        pool = self.of[item]
        return pool[-1].score if len(pool) == self.n_best else -math.inf

    def welcomes(self, item: int, total: float, length: int) -> bool:
        """Whether a hypothesis is among the best so far."""
        return total / self.penalty(length) > self.worst_score(item)

    def take(self, item: int, tokens: list[int], log_probs: list[float], reason: FinishReason) -> None:
        """Adds a hypothesis; the worst one leaves."""
        pool = [*self.of[item], Hypothesis.of(item, tokens, log_probs, reason, self.penalty)]
        self.of[item] = sorted(pool, key=lambda hypothesis: -hypothesis.score)[: self.n_best]

    def pop(self, item: int) -> list[Hypothesis]:
        """Returns the hypotheses of an item that is done."""
        if not self.of[item]:
            raise no_token_left(item)
        return self.of.pop(item)

    def is_final(self, item: int, best_total: float, length: int, limit: int) -> bool:
        """Whether no live hypothesis, the best of which has `best_total`, can still get in."""
        return self.penalty.best_score(best_total, length, limit) <= self.worst_score(item)
