"""Greedy decoding and sampling: one token for each row and step, rows independent of one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from glassformer.generation.decoding import Decoding, log_probs_of
from glassformer.generation.guard import check_logits
from glassformer.generation.hypothesis import FinishReason, Hypothesis
from glassformer.generation.processors import Rules
from glassformer.generation.terms import Terms

__all__ = ["Chooser", "Greedy", "Sampler", "decode_rows"]


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


def decode_rows(decoding: Decoding, logits: Tensor, terms: Terms, choose: Chooser) -> list[Hypothesis]:
    """Decodes each row until an end token or its limit; rows that are done leave the batch.

    Args:
        decoding: R rows after their prefill.
        logits: [R, V] of the first new token.
        terms: Rules, ends and score.
        choose: Takes the logits after the rules.

    Returns:
        R hypotheses, in the order of the rows.

    Raises:
        GenerationError: Logits are not finite, or the rules leave no token.
    """
    found: dict[int, Hypothesis] = {}
    rows = list(range(len(logits)))  # first place of each row still in the batch
    ids = torch.empty(len(rows), 0, dtype=torch.int64, device=logits.device)
    log_probs = torch.empty(len(rows), 0, device=logits.device)
    while True:
        logits = terms.rules(ids, logits)
        check_logits(logits, [terms.items[row] for row in rows])
        tokens = choose(ids, logits)
        chosen = log_probs_of(logits.gather(1, tokens[:, None]), logits)
        ids, log_probs = torch.cat([ids, tokens[:, None]], 1), torch.cat([log_probs, chosen], 1)
        is_eos: list[bool] = terms.eos(tokens).tolist()
        is_done = [a or b for a, b in zip(is_eos, terms.limit(ids.shape[1]), strict=True)]
        for place in (place for place, done in enumerate(is_done) if done):
            reason: FinishReason = "eos" if is_eos[place] else "length"
            item, made, parts = terms.items[rows[place]], ids[place].tolist(), log_probs[place].tolist()
            found[rows[place]] = Hypothesis.of(item, made, parts, reason, terms.penalty)
        keep = [place for place, done in enumerate(is_done) if not done]
        if not keep:
            break
        if len(keep) < len(rows):
            kept = torch.tensor(keep, dtype=torch.int64, device=logits.device)
            rows, ids, log_probs = [rows[place] for place in keep], ids[kept], log_probs[kept]
            terms.limit.select(keep)
            for part in (decoding, terms.rules, choose):
                part.select(kept)
        logits = decoding.step(ids[:, -1])
    return [found[row] for row in range(len(found))]
