"""Greedy decoding and sampling: one token for each row and step, rows independent of one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from glassformer.generation.best import best_token, best_tokens, log_probs_of
from glassformer.generation.decoding import Decoding
from glassformer.generation.guard import check_logits
from glassformer.generation.hypothesis import Candidates, FinishReason, Hypothesis, LengthPenalty
from glassformer.generation.processors import Rules
from glassformer.generation.running import RunningSearch
from glassformer.generation.terms import Terms

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Chooser", "Greedy", "Made", "RowSearch", "Sampler", "hypotheses_of"]


class Chooser(Protocol):
    """Chooses the next token of each row."""

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        """Takes the new tokens so far int64 [R, t] and logits float32 [R, V]; returns tokens int64 [R]."""
        ...

    def select(self, rows: Tensor) -> None:
        """New row i continues old row `rows[i]`."""
        ...

    def join(self, other: Any, n_rows: int, n_other: int) -> None:
        """After its `n_rows` rows come the `n_other` rows of another one of its kind."""
        ...


class Greedy:
    """The best token; of equal ones the lowest id."""

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        return best_token(logits)

    def select(self, rows: Tensor) -> None:
        """Nothing to keep by row."""

    def join(self, other: Greedy, n_rows: int, n_other: int) -> None:
        """Nothing either."""


class Sampler:
    """Draws from softmax(filters(logits)), with a stream of random numbers for each row.

    A row's token is the first whose cumulative probability exceeds u, uniform on [0, 1). The u of a row come from its
    own generator, so the other rows of the batch, their order and their ends change nothing.

    Args:
        filters: Temperature, top-k, top-p, min-p.
        seeds: For each row the numbers that seed its stream, for example (seed of the run, of the text, of the draw).
    """

    def __init__(self, filters: Rules, seeds: Sequence[Sequence[int]]) -> None:
        self.filters = filters
        # Negative seeds are welcome: they count from the top of 64 bits.
        self.streams = [np.random.default_rng([part % 2**64 for part in parts]) for parts in seeds]

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        # A sum in float32 over a large vocabulary would leave the rarest tokens undrawable.
        cumulative = self.filters(history, logits).softmax(dim=1).cumsum(dim=1, dtype=torch.float64)
        uniform = torch.tensor([stream.random() for stream in self.streams], dtype=torch.float64)
        total = cumulative[:, -1:]
        # Stays below the total after rounding, so that the token found has a probability above zero.
        threshold = torch.minimum(uniform.to(logits.device)[:, None] * total, total.nextafter(torch.zeros_like(total)))
        return torch.searchsorted(cumulative, threshold, right=True).squeeze(1)

    def select(self, rows: Tensor) -> None:
        self.filters.select(rows)
        self.streams = [self.streams[row] for row in rows.tolist()]

    def join(self, other: Sampler, n_rows: int, n_other: int) -> None:
        self.filters.join(other.filters, n_rows, n_other)
        self.streams += other.streams


@dataclass(frozen=True)
class Made:
    """One token that was made."""

    row: int  # of which row, counted as the search began
    item: int  # of which item
    token: int
    log_prob: float
    finish_reason: FinishReason | None  # why the row ends with it; None: it goes on
    top: Candidates = ()  # the likeliest tokens in its place, as many as were asked for


class RowSearch(RunningSearch):
    """Decodes each row until an end token, a stop string or its limit; rows that are done leave the batch.

    Args:
        decoding: R rows after their prefill.
        logits: [R, V] of the first new token.
        terms: Rules, ends and score.
        choose: Takes the logits after the rules.

    Attributes:
        n_top: How many of the likeliest tokens are told of each row.
    """

    def __init__(self, decoding: Decoding, logits: Tensor, terms: Terms, choose: Chooser) -> None:
        super().__init__(decoding, logits, terms)
        self.n_top = [0] * len(logits)
        self.rows = list(range(len(logits)))
        self.choose = choose

    def step(self) -> list[Made]:
        """Makes one token for each row that is not done yet.

        Raises:
            GenerationError: Logits are not finite, or the rules leave no token.
        """
        logits = self._next_logits()
        check_logits(logits, self.items)
        tokens = self.choose(self.ids, logits)
        _, top = best_tokens(logits, min(max(self.n_top), logits.shape[1]))
        log_probs = log_probs_of(torch.cat([tokens[:, None], top], 1), logits)
        top_log_probs = log_probs[:, 1:].tolist()
        tops = [
            tuple(zip(*parts, strict=True))[:n]
            for *parts, n in zip(top.tolist(), top_log_probs, self.n_top, strict=True)
        ]
        self.lengths = [length + 1 for length in self.lengths]
        reasons = self._finish_reasons(tokens)
        made = [
            Made(*parts)
            for parts in zip(
                self.rows, self.items, tokens.tolist(), log_probs[:, 0].tolist(), reasons, tops, strict=True
            )
        ]
        keep = [place for place, reason in enumerate(reasons) if reason is None]
        rows = torch.tensor(keep, dtype=torch.int64, device=tokens.device)
        ids = torch.cat([self.ids, tokens[:, None]], 1)
        self._keep(keep)
        self.ids = self._newest(ids if len(keep) == len(ids) else ids[rows])
        return made

    def join(self, other: Self) -> None:
        self.choose.join(other.choose, len(self.ids), len(other.ids))
        super().join(other)
        self.rows += other.rows
        self.n_top += other.n_top

    def _keep(self, keep: list[int]) -> None:
        if len(keep) == len(self.rows):
            return
        rows = torch.tensor(keep, dtype=torch.int64, device=self.ids.device)
        self.rows, self.n_top = [self.rows[place] for place in keep], [self.n_top[place] for place in keep]
        self._select(keep, rows)
        self.choose.select(rows)
        self.ids = self._newest(self.ids[rows])

    def _finish_reasons(self, tokens: Tensor) -> list[FinishReason | None]:
        """Why each row ends with its new token, an end token first, then a stop string, then the limit."""
        terms = self.terms
        is_eos: list[bool] = terms.eos(tokens).tolist()
        is_stop = [False] * len(self.rows)
        if terms.stop is not None:
            is_stop = [terms.stop(row, token) for row, token in zip(self.rows, tokens.tolist(), strict=True)]
        return [
            "eos" if eos else "stop" if stop else "length" if cut else None
            for eos, stop, cut in zip(is_eos, is_stop, terms.limit(self.lengths), strict=True)
        ]


def hypotheses_of(search: RowSearch) -> list[Hypothesis]:
    """Runs a search to its end: the R hypotheses, in the order of the rows."""
    made: list[list[Made]] = [[] for _ in search.rows]
    while not search.is_done:
        for token in search.step():
            made[token.row].append(token)
    return [_hypothesis(tokens, search.terms.penalty) for tokens in made]


def _hypothesis(made: list[Made], penalty: LengthPenalty) -> Hypothesis:
    reason = made[-1].finish_reason
    assert reason is not None  # each row ends
    ids, log_probs = [token.token for token in made], [token.log_prob for token in made]
    return Hypothesis.of(made[0].item, ids, log_probs, reason, penalty)
