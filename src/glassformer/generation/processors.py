"""Logits rules and stop rules: small objects that the decoding loops call at each step.

A rule maps (history, logits) to logits. `history` int64 [R, t] holds the tokens made so far, without the prefix; rows
that began later have NOTHING before their first token. `logits` float32 [R, V] belongs to the rule, which may write in
place. A setting is one number for all rows, or a tensor [R] with a number for each. When rows are reordered, dropped
or multiplied, `select` is called, and when others join them `join`, so that settings and memory follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "NOTHING",
    "Forbid",
    "ForcedEnd",
    "ForcedPrefix",
    "MinLength",
    "MinP",
    "NoRepeatNGram",
    "RepetitionPenalty",
    "Rule",
    "Rules",
    "Temperature",
    "TopK",
    "TopP",
    "n_made",
]

NOTHING = -1  # stands in a history where its row had not begun


def n_made(history: Tensor) -> Tensor:
    """The number of tokens that each row has made: int64 [R, t] -> [R, 1]."""
    return (history != NOTHING).sum(1, keepdim=True)


class Rule:
    """A logits rule. This base is for rules without settings by row and without memory."""

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        """Returns the logits [R, V] that the rule makes of `logits`, after the tokens `history` [R, t]."""
        raise NotImplementedError

    def select(self, rows: Tensor) -> None:
        """New row i continues old row `rows[i]`."""

    def join(self, other: Self, n_rows: int, n_other: int) -> None:
        """After the `n_rows` rows of this rule come the `n_other` rows of another, made from the same settings."""


class Rules(Rule):
    """Applies rules in turn, to logits that are theirs to change; gives them in float32."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        logits = logits.float()
        for rule in self.rules:
            logits = rule(history, logits)
        return logits

    def select(self, rows: Tensor) -> None:
        for rule in self.rules:
            rule.select(rows)

    def join(self, other: Self, n_rows: int, n_other: int) -> None:
        for mine, its in zip(self.rules, other.rules, strict=True):
            mine.join(its, n_rows, n_other)


class RowRule(Rule):
    """A rule with one number, the same for all rows (kept as [1, 1]) or one for each (kept as [R, 1])."""

    def __init__(self, setting: float | Tensor) -> None:
        self.setting = torch.as_tensor(setting).reshape(-1, 1)

    def select(self, rows: Tensor) -> None:
        if len(self.setting) > 1:
            self.setting = self.setting.to(rows.device)[rows]

    def join(self, other: Self, n_rows: int, n_other: int) -> None:
        if len(self.setting) == len(other.setting) == 1 and torch.equal(self.setting, other.setting):
            return
        self.setting = torch.cat([self.setting.expand(n_rows, 1), other.setting.expand(n_other, 1)])


class Forbid(Rule):
    """Tokens that are never made: padding, start, unknown, and ids that the tokenizer does not have."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = torch.tensor(sorted(set(ids)), dtype=torch.int64)

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        return logits.index_fill_(1, self.ids.to(logits.device), -math.inf)


class MinLength(RowRule):
    """No end token, whichever of them, before `setting` tokens are made."""

    def __init__(self, setting: float | Tensor, eos_ids: Sequence[int]) -> None:
        super().__init__(setting)
        self.eos_ids = torch.tensor(sorted(set(eos_ids)), dtype=torch.int64)

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        eos_ids = self.eos_ids.to(logits.device)
        is_short = n_made(history) < self.setting.to(logits.device)
        return logits.index_copy_(1, eos_ids, logits[:, eos_ids].masked_fill(is_short, -math.inf))


class ForcedPrefix(Rule):
    """The first tokens of each row are given; they are part of the output and have probability 1.

    Args:
        tokens: One sequence for each row, of any length, zero included.
    """

    def __init__(self, tokens: Sequence[Sequence[int]]) -> None:
        width = max(map(len, tokens), default=0)
        self.tokens = torch.tensor([[*row, *[-1] * (width - len(row))] for row in tokens], dtype=torch.int64)

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        step, width = n_made(history), self.tokens.shape[1]
        if bool((step >= width).all()):
            return logits
        token = self.tokens.to(logits.device).gather(1, step.clamp_max(width - 1)).masked_fill(step >= width, -1)
        only = torch.full_like(logits, -math.inf).scatter_(1, token.clamp_min(0), 0.0)
        return torch.where(token >= 0, only, logits)

    def select(self, rows: Tensor) -> None:
        self.tokens = self.tokens.to(rows.device)[rows]

    def join(self, other: Self, n_rows: int, n_other: int) -> None:
        parts = (self.tokens, other.tokens)
        width = max(part.shape[1] for part in parts)
        self.tokens = torch.cat([F.pad(part, (0, width - part.shape[1]), value=-1) for part in parts])


class ForcedEnd(RowRule):
    """The last token that a row's limit (`setting`) allows is the end token; it has probability 1."""

    def __init__(self, setting: float | Tensor, eos_id: int) -> None:
        super().__init__(setting)
        self.eos_id = eos_id

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        is_last = self.setting.to(logits.device) == n_made(history) + 1
        only = torch.full_like(logits[:1], -math.inf)
        only[:, self.eos_id] = 0.0
        return torch.where(is_last, only, logits)


class RepetitionPenalty(RowRule):
    """Makes tokens that the row has made already less likely: z / p for a logit z > 0, z * p otherwise.

    Source: Keskar et al. 2019 (CTRL), section 4.1, with the sign handled.
    """

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        history = torch.where(history == NOTHING, history[:, -1:], history)  # to write a token twice changes nothing
        penalty, seen = self.setting.to(logits.device), logits.gather(1, history)
        return logits.scatter_(1, history, torch.where(seen > 0, seen / penalty, seen * penalty))


class NoRepeatNGram(Rule):
    """No n-gram is made twice in a row of tokens; n-grams of the prefix do not count.

    Memory of a row: the last n - 1 tokens, and for each (n - 1)-gram made the tokens that have followed it. A step
    adds one entry and looks one up, so its cost does not grow with the history.
    """

    def __init__(self, size: int, n_rows: int) -> None:
        self.size = size
        self.n_seen = [0] * n_rows  # tokens of each row that are in its memory
        self.tails: list[tuple[int, ...]] = [()] * n_rows
        self.followers: list[dict[tuple[int, ...], tuple[int, ...]]] = [{} for _ in range(n_rows)]

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        counts: list[int] = n_made(history)[:, 0].tolist()
        n_new = [count - seen for count, seen in zip(counts, self.n_seen, strict=True)]
        newest = history[:, history.shape[1] - max(n_new) :].tolist()
        for row, (tokens, n) in enumerate(zip(newest, n_new, strict=True)):
            for token in tokens[len(tokens) - n :]:
                self._add(row, token)
        self.n_seen = counts
        banned = [(row, token) for row, tail in enumerate(self.tails) for token in self.followers[row].get(tail, ())]
        if banned:
            rows, tokens = torch.tensor(banned, device=logits.device).unbind(1)
            logits[rows, tokens] = -math.inf
        return logits

    def _add(self, row: int, token: int) -> None:
        tail, followers = self.tails[row], self.followers[row]
        if len(tail) == self.size - 1:
            followers[tail] = (*followers.get(tail, ()), token)
        tokens = (*tail, token)
        self.tails[row] = tokens[max(0, len(tokens) - self.size + 1) :]

    def select(self, rows: Tensor) -> None:
        old, self.tails, self.followers = (self.tails, self.followers), [], []
        self.n_seen = [self.n_seen[row] for row in rows.tolist()]
        is_taken: set[int] = set()
        for row in rows.tolist():
            self.tails.append(old[0][row])
            self.followers.append(dict(old[1][row]) if row in is_taken else old[1][row])  # only a twin needs a copy
            is_taken.add(row)

    def join(self, other: Self, n_rows: int, n_other: int) -> None:
        self.n_seen += other.n_seen
        self.tails += other.tails
        self.followers += other.followers


class Temperature(RowRule):
    """Divides the logits; a temperature of 0 leaves the best token alone (the first of equal ones)."""

    def __init__(self, setting: float | Tensor) -> None:
        super().__init__(setting)
        self.has_zero = bool((self.setting == 0).any())

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        temperature = self.setting.to(logits.device)
        # The best logit becomes 0, so that division by a tiny temperature cannot give +inf.
        logits = logits - logits.amax(dim=1, keepdim=True)
        if not self.has_zero:
            return logits / temperature
        best = torch.full_like(logits, -math.inf).scatter_(1, logits.argmax(dim=1, keepdim=True), 0.0)
        is_zero = temperature == 0
        return torch.where(is_zero, best, logits / temperature.masked_fill(is_zero, 1.0))


class TopK(RowRule):
    """Keeps the k best tokens, k exactly; 0 keeps all."""

    def __init__(self, setting: int | Tensor) -> None:
        super().__init__(setting)
        self.max_k = int(self.setting.max())

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        k = self.setting.to(logits.device)
        best, ids = logits.topk(min(self.max_k, logits.shape[1]), dim=1)
        best = best.masked_fill(torch.arange(best.shape[1], device=logits.device) >= k, -math.inf)
        kept = torch.full_like(logits, -math.inf).scatter_(1, ids, best)
        return torch.where(k > 0, kept, logits)


class TopP(RowRule):
    """Keeps the fewest best tokens whose probabilities sum to at least p; the best one always; 1 keeps all.

    Source: Holtzman et al. 2020 (nucleus sampling), section 3.1.
    """

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        p, total = self.setting.to(logits.device), logits.logsumexp(dim=1, keepdim=True)
        k = min(64, logits.shape[1])
        while True:  # a full sort costs 20 times as much as finding the 64 best, which are mostly enough
            best, ids = logits.topk(k, dim=1)
            mass = (best - total).exp().cumsum(dim=1)
            if k == logits.shape[1] or bool(((mass[:, -1:] >= p) | (p >= 1)).all()):
                break
            k = min(8 * k, logits.shape[1])
        best[:, 1:].masked_fill_(mass[:, :-1] >= p, -math.inf)
        kept = torch.full_like(logits, -math.inf).scatter_(1, ids, best)
        return torch.where(p >= 1, logits, kept)


class MinP(RowRule):
    """Keeps the tokens with at least `setting` times the probability of the best one; 0 keeps all.

    Source: Nguyen et al. 2024 (min-p sampling), section 3.
    """

    def __call__(self, history: Tensor, logits: Tensor) -> Tensor:
        threshold = logits.amax(dim=1, keepdim=True) + self.setting.to(logits.device).log()
        return logits.masked_fill_(logits < threshold, -math.inf)
