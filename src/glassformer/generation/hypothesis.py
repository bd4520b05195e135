"""One output of the search, and the length penalty behind its score."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Candidates", "FinishReason", "Hypothesis", "LengthPenalty"]

FinishReason = Literal["eos", "length", "stop"]
Candidates = tuple[tuple[int, float], ...]  # tokens that might have been made, with their log-probabilities, best first


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """Tokens made for one text.

    `score = log_prob / f(len(ids))`, where `f` is the `LengthPenalty` and `len(ids)` counts every token made, the
    end token too where there is one. Probabilities are those of the model under the logits rules (a forbidden
    token has none, the others share its mass), before temperature and top-k, top-p, min-p.
    """

    item: int  # row of the input that this belongs to
    ids: list[int]  # tokens made, without the prefix, with the end token when there is one
    token_log_probs: list[float]  # log-probability of each of them, in nats
    log_prob: float  # their sum
    score: float  # the sum over the length penalty: what hypotheses are ranked by
    finish_reason: FinishReason  # eos: an end token was made; stop: a stop string; length: cut at the limit
    top: list[Candidates] = field(default_factory=list)  # of each token the likeliest ones, where they were asked for

    @property
    def is_finished(self) -> bool:
        """Whether the model ended the text itself."""
        return self.finish_reason == "eos"

    @classmethod
    def of(
        cls, item: int, ids: list[int], token_log_probs: list[float], reason: FinishReason, penalty: LengthPenalty
    ) -> Hypothesis:
        """Sums and scores tokens that are complete. No tokens at all score 0."""
        log_prob = math.fsum(token_log_probs)
        score = log_prob / penalty(len(ids)) if ids else 0.0
        return cls(
            item=item,
            ids=ids,
            token_log_probs=token_log_probs,
            log_prob=log_prob,
            score=score,
            finish_reason=reason,
        )


@dataclass(frozen=True)
class LengthPenalty:
    """What divides the summed log-probability of a hypothesis of L tokens, its end token counted.

    `gnmt`: f(L) = ((5 + L) / 6)^alpha; `average`: f(L) = L^alpha; `none`: f(L) = 1. Log-probabilities are not
    positive, so a larger alpha prefers longer outputs. `alpha = 0` ranks by the sum alone.

    Source: Wu et al. 2016 (GNMT), equation 14, without the coverage term.
    """

    kind: Literal["gnmt", "average", "none"]
    alpha: float

    def __call__(self, length: int) -> float:
        """Returns f(length), for a length of at least 1."""
        if self.kind == "none":
            return 1.0
        return float(((5 + length) / 6 if self.kind == "gnmt" else length) ** self.alpha)

    def best_score(self, log_prob: float, length: int, limit: int) -> float:
        """Returns the best score that a live hypothesis of `length` tokens can still reach.

        Each further token adds a log-probability <= 0, so the sum is at best what it is now, and the score is
        best at the length in [length + 1, limit] whose f is largest. f is monotone: it is one of the two ends.
        """
        return log_prob / max(self(length + 1), self(limit))
