"""Step-wise models for tests: tables whose outputs can be enumerated, and a recurrent net with a state to reorder."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

BOS, EOS = 0, 1


class TableDecoding:
    """Next-token probabilities `table(item, tokens after the start token)`; a row remembers its item and tokens."""

    def __init__(self, table: Callable[[int, tuple[int, ...]], Sequence[float]], n_items: int) -> None:
        self.table = table
        self.rows: list[tuple[int, tuple[int, ...]]] = [(item, ()) for item in range(n_items)]
        self.n_rows_at_step: list[int] = []

    def _logits(self) -> Tensor:
        self.n_rows_at_step.append(len(self.rows))
        probs = torch.tensor([self.table(*row) for row in self.rows], dtype=torch.float64)
        return probs.log().float()

    def prefill(self, prefix: Tensor) -> Tensor:
        self.rows = [(item, tuple(tokens[1:])) for (item, _), tokens in zip(self.rows, prefix.tolist(), strict=True)]
        return self._logits()

    def step(self, tokens: Tensor) -> Tensor:
        self.rows = [(item, (*made, token)) for (item, made), token in zip(self.rows, tokens.tolist(), strict=True)]
        return self._logits()

    def select(self, rows: Tensor) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]


class RecurrentDecoding:
    """h' = tanh(W h + E[token] + source), logits = U h': the state h is the cache, the source its own row of it.

    `is_cached=False` keeps the tokens instead of h and runs them all again at each step.
    """

    def __init__(self, sources: Tensor, *, vocab_size: int = 11, is_cached: bool = True) -> None:
        generator = torch.Generator().manual_seed(5)
        width = sources.shape[1]

        def weights(rows: int, columns: int) -> Tensor:
            return torch.randn(rows, columns, generator=generator, dtype=torch.float64)

        self.table, self.inner = weights(vocab_size, width), weights(width, width)
        self.outer = weights(width, vocab_size) * 2 / math.sqrt(width)
        self.sources, self.is_cached = sources.double(), is_cached
        self.state = torch.zeros_like(self.sources)
        self.tokens = torch.empty(len(sources), 0, dtype=torch.int64)
        self.n_swapped = 0

    def prefill(self, prefix: Tensor) -> Tensor:
        for tokens in prefix.T:
            logits = self.step(tokens)
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        self.tokens = torch.cat([self.tokens, tokens[:, None]], 1)
        if not self.is_cached:
            self.state = torch.zeros_like(self.sources)
        for column in self.tokens.T if not self.is_cached else self.tokens.T[-1:]:
            self.state = torch.tanh(self.state @ self.inner + self.table[column] + self.sources)
        return (self.state @ self.outer).float()

    def select(self, rows: Tensor) -> None:
        if len(rows) == len(self.sources):
            self.n_swapped += int((rows != torch.arange(len(rows))).sum())
        self.sources, self.state, self.tokens = self.sources[rows], self.state[rows], self.tokens[rows]


def start(n_items: int) -> Tensor:
    """The prefix of a batch: the start token alone."""
    return torch.full((n_items, 1), BOS)


def limits(n_items: int, limit: int) -> Tensor:
    return torch.full((n_items,), limit)
