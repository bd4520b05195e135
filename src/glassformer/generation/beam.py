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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.generation.decoding import Decoding, is_identity, log_probs_of
from glassformer.generation.guard import check_logits, no_token_left
from glassformer.generation.hypothesis import FinishReason, Hypothesis, LengthPenalty
from glassformer.generation.processors import EosStop
from glassformer.generation.terms import Terms

__all__ = ["beam_search"]


@dataclass
class _Candidates:
    """Extensions by one token: for each item first E that would end, then W that would live on, each best first."""

    rows: Tensor  # int64 [A, E + W], row of the hypothesis that is extended
    tokens: Tensor  # int64 [A, E + W]
    log_probs: Tensor  # float32 [A, E + W], of the token
    totals: Tensor  # float64 [A, E + W], of the whole hypothesis; -inf: no such candidate
    n_ending: int  # E


class _Beams:
    """The live hypotheses of A items, W each, best first: row a * W + w. An empty place has a total of -inf."""

    def __init__(self, items: Sequence[int], device: torch.device) -> None:
        self.items = list(items)
        self.ids = torch.empty(len(items), 0, dtype=torch.int64, device=device)  # [A * W, t]
        self.log_probs = torch.empty(len(items), 0, device=device)  # float32 [A * W, t]
        self.totals = torch.zeros(len(items), 1, dtype=torch.float64, device=device)  # [A, W]

    def candidates(self, logits: Tensor, beam_size: int, eos: EosStop) -> _Candidates:
        """Extends each hypothesis by its best tokens, and orders what comes of an item."""
        n_items, width = self.totals.shape
        # No more of one row can be taken than beam_size tokens and every end token.
        per_row = min(beam_size + len(eos.ids), logits.shape[1])
        best, tokens = logits.topk(per_row, dim=1)
        log_probs = log_probs_of(best, logits)
        log_probs = log_probs.masked_fill(log_probs.isnan(), -torch.inf)  # a row without any token
        totals, order = _descending((self.totals.view(-1, 1) + log_probs).view(n_items, width * per_row))
        is_eos = eos(tokens).view(n_items, -1).gather(1, order)
        ending = totals.masked_fill(~is_eos, -torch.inf)[:, :beam_size]
        living, places = _descending(totals.masked_fill(is_eos, -torch.inf))
        chosen = torch.cat([order[:, :beam_size], order.gather(1, places[:, :beam_size])], 1)  # [A, E + W]
        return _Candidates(
            rows=torch.arange(n_items, device=order.device)[:, None] * width + chosen // per_row,
            tokens=tokens.view(n_items, -1).gather(1, chosen),
            log_probs=log_probs.view(n_items, -1).gather(1, chosen),
            totals=torch.cat([ending, living[:, :beam_size]], 1),
            n_ending=ending.shape[1],
        )

    def extended(self, candidates: _Candidates, at: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Returns rows [N], ids [N, t + 1] and log-probabilities [N, t + 1] of the candidates at (a, column)."""
        rows = candidates.rows[at]
        ids = torch.cat([self.ids[rows], candidates.tokens[at][:, None]], 1)
        return rows, ids, torch.cat([self.log_probs[rows], candidates.log_probs[at][:, None]], 1)

    def advance(self, candidates: _Candidates, keep: Sequence[int]) -> Tensor:
        """Goes on with the living candidates of the kept items; returns the old row of each new one."""
        kept = torch.tensor(keep, device=self.ids.device)
        self.items = [self.items[a] for a in keep]
        self.totals = candidates.totals[kept, candidates.n_ending :]
        width = self.totals.shape[1]
        columns = candidates.n_ending + torch.arange(width, device=kept.device)
        rows, self.ids, self.log_probs = self.extended(
            candidates, (kept.repeat_interleave(width), columns.repeat(len(keep)))
        )
        return rows


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

    def take(self, beams: _Beams, candidates: _Candidates, totals: list[list[float]], is_cut: list[bool]) -> None:
        """Takes the candidates that end, and of items at their limit the living ones too."""
        length, n_ending = beams.ids.shape[1] + 1, candidates.n_ending
        taken = [
            (a, column)
            for a, item in enumerate(beams.items)
            for column, total in enumerate(totals[a] if is_cut[a] else totals[a][:n_ending])
            if total / self.penalty(length) > self.worst_score(item)
        ]
        if not taken:
            return
        places, columns = torch.tensor(taken, device=beams.ids.device).unbind(1)
        _, ids, log_probs = beams.extended(candidates, (places, columns))
        for (a, column), tokens, parts in zip(taken, ids.tolist(), log_probs.tolist(), strict=True):
            item = beams.items[a]
            reason: FinishReason = "eos" if column < n_ending else "length"
            pool = [*self.of[item], Hypothesis.of(item, tokens, parts, reason, self.penalty)]
            self.of[item] = sorted(pool, key=lambda hypothesis: -hypothesis.score)[: self.n_best]

    def best(self, item: int) -> list[Hypothesis]:
        """Returns the hypotheses of an item that is done."""
        if not self.of[item]:
            raise no_token_left(item)
        return self.of[item]

    def is_final(self, item: int, best_total: float, length: int, limit: int) -> bool:
        """Whether no live hypothesis, the best of which has `best_total`, can still get in."""
        return self.penalty.best_score(best_total, length, limit) <= self.worst_score(item)


def beam_search(
    decoding: Decoding, logits: Tensor, terms: Terms, *, beam_size: int, n_best: int
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Finds the best outputs of each item.

    Args:
        decoding: A rows, one for each item, after their prefill.
        logits: [A, V] of the first new token.
        terms: Rules, ends and score; every row is another item.

    Yields:
        Each item as soon as it is done, with up to `n_best` different hypotheses, scores non-increasing. An item that
        nobody wants any more leaves without.

    Raises:
        GenerationError: Logits are not finite, or the rules leave an item no token.

    Cost: a step takes one top-(beam_size + end tokens) and one sum of exponentials over [rows, V], and a number of
    small operations that does not depend on the batch.
    """
    rules, limit = terms.rules, terms.limit
    beams, pools = _Beams(terms.items, logits.device), _Pools(terms.items, n_best, terms.penalty)
    while True:
        logits = rules(beams.ids, logits)
        check_logits(logits, beams.items, may_be_empty=True)
        candidates = beams.candidates(logits, beam_size, terms.eos)
        totals = candidates.totals.tolist()  # with the hypotheses taken, all that a step moves to Python
        length = beams.ids.shape[1] + 1
        is_cut = limit(length)
        pools.take(beams, candidates, totals, is_cut)
        keep = [
            a
            for a, item in enumerate(beams.items)
            if not is_cut[a] and not pools.is_final(item, totals[a][candidates.n_ending], length, limit.limits[a])
        ]
        for item in sorted(set(beams.items) - {beams.items[a] for a in keep}):
            yield item, pools.best(item)
        keep = [a for a in keep if terms.wants(beams.items[a])]
        if not keep:
            return
        rows = beams.advance(candidates, keep)
        if not is_identity(rows, len(logits)):
            decoding.select(rows)
            rules.select(rows)
        limit.select(keep)
        logits = decoding.step(beams.ids[:, -1])
