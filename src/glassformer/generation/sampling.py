"""Greedy decoding and sampling: one token for each row and step, rows independent of one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from glassformer.generation.decoding import Decoding, log_probs_of
from glassformer.generation.guard import check_logits
from glassformer.generation.hypothesis import FinishReason, Hypothesis
from glassformer.generation.processors import Rules
from glassformer.generation.terms import Terms

__all__ = ["Chooser", "Greedy", "Made", "Sampler", "decode_rows", "decode_steps"]


class Chooser(Protocol):
    """Chooses the next token of each row."""

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        """Takes the new tokens so far int64 [R, t] and logits float32 [R, V]; returns tokens int64 [R]."""
        ...

    def select(self, rows: Tensor) -> None:
        """New row i continues old row `rows[i]`."""
        ...


class Greedy:
    """The best token; of equal ones the lowest id."""

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        return logits.argmax(dim=1)

    def select(self, rows: Tensor) -> None:
        """Nothing to keep by row."""


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


@dataclass(frozen=True)
class Made:
    """One token that was made."""

    row: int  # of which row
    token: int
    log_prob: float
    finish_reason: FinishReason | None  # why the row ends with it; None: it goes on


def decode_steps(decoding: Decoding, logits: Tensor, terms: Terms, choose: Chooser) -> Iterator[list[Made]]:
    """Decodes each row until an end token, a stop string or its limit; rows that are done leave the batch.

    Args:
        decoding: R rows after their prefill.
        logits: [R, V] of the first new token.
        terms: Rules, ends and score.
        choose: Takes the logits after the rules.

    Yields:
        At each step one token for each row that is not done yet. Stop asking, and nothing more is computed. A row
        that nobody wants any more leaves without an end.

    Raises:
        GenerationError: Logits are not finite, or the rules leave no token.
    """
    rows = list(range(len(logits)))  # first place of each row still in the batch
    ids = torch.empty(len(rows), 0, dtype=torch.int64, device=logits.device)
    while True:
        logits = terms.rules(ids, logits)
        check_logits(logits, [terms.items[row] for row in rows])
        tokens = choose(ids, logits)
        log_probs = log_probs_of(logits.gather(1, tokens[:, None]), logits)
        ids = torch.cat([ids, tokens[:, None]], 1)
        reasons = _finish_reasons(terms, rows, tokens, ids.shape[1])
        yield [Made(*parts) for parts in zip(rows, tokens.tolist(), log_probs[:, 0].tolist(), reasons, strict=True)]
        keep = [
            place for place, reason in enumerate(reasons) if reason is None and terms.wants(terms.items[rows[place]])
        ]
        if not keep:
            return
        if len(keep) < len(rows):
            kept = torch.tensor(keep, dtype=torch.int64, device=logits.device)
            rows, ids = [rows[place] for place in keep], ids[kept]
            terms.limit.select(keep)
            for part in (decoding, terms.rules, choose):
                part.select(kept)
        logits = decoding.step(ids[:, -1])


def _finish_reasons(terms: Terms, rows: list[int], tokens: Tensor, length: int) -> list[FinishReason | None]:
    """Why each row ends with its new token, an end token first, then a stop string, then the limit."""
    is_eos: list[bool] = terms.eos(tokens).tolist()
    is_stop = [False] * len(rows)
    if terms.stop is not None:
        is_stop = [terms.stop(row, token) for row, token in zip(rows, tokens.tolist(), strict=True)]
    return [
        "eos" if eos else "stop" if stop else "length" if cut else None
        for eos, stop, cut in zip(is_eos, is_stop, terms.limit(length), strict=True)
    ]


def decode_rows(decoding: Decoding, logits: Tensor, terms: Terms, choose: Chooser) -> list[Hypothesis]:
    """The R hypotheses that `decode_steps` makes, in the order of the rows."""
    made: list[list[Made]] = [[] for _ in range(len(logits))]
    for step in decode_steps(decoding, logits, terms, choose):
        for token in step:
            made[token.row].append(token)
    return [_hypothesis(terms, row, tokens) for row, tokens in enumerate(made)]


def _hypothesis(terms: Terms, row: int, made: list[Made]) -> Hypothesis:
    reason = made[-1].finish_reason
    assert reason is not None  # each row ends
    ids, log_probs = [token.token for token in made], [token.log_prob for token in made]
    return Hypothesis.of(terms.items[row], ids, log_probs, reason, terms.penalty)
