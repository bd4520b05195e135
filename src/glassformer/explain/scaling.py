"""Why scores are divided by sqrt(d_k): the model's own scores with and without."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from glassformer.explain.result import Array, Row

__all__ = ["Scaling", "scaling_view"]


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """One attention. `entropy` in nats, `gradient` the size of the softmax's derivative, both means over rows."""

    key: str
    deviation: float  # of Q K^T
    scaled_deviation: float  # of Q K^T / sqrt(K)
    entropy: float  # of softmax(Q K^T)
    scaled_entropy: float
    gradient: float
    scaled_gradient: float
    is_scaled: bool  # what the model does


def scaling_view(rows: list[Row], d_head: int, *, is_scaled: bool) -> list[Scaling]:
    """Softmax of every attention's own scores, with and without the division.

    For independent entries of unit variance Var(q·k) = K. Scores of that size saturate the softmax: its entropy and
    its derivative diag(p) - p p^T (Frobenius norm) go to 0, and nothing is learned through it.

    Source: Vaswani et al. 2017, section 3.2.1, footnote 4.
    """
    by_key = {row.key: row.value for row in rows}
    found = []
    for key in (row.key.removesuffix(".scores") for row in rows if row.name == "scores"):
        scores, bias = by_key[f"{key}.scores"], by_key.get(f"{key}.bias", np.zeros(()))
        hidden = np.isneginf(by_key.get(f"{key}.masked", np.zeros(scores.shape)))
        plain, divided = (
            _softmax(np.where(hidden, -np.inf, scores * factor + bias)) for factor in (1.0, 1 / math.sqrt(d_head))
        )
        seen = scores[~hidden]
        found.append(
            Scaling(
                key=key,
                deviation=float(seen.std()),
                scaled_deviation=float(seen.std() / math.sqrt(d_head)),
                entropy=_entropy(plain),
                scaled_entropy=_entropy(divided),
                gradient=_gradient(plain),
                scaled_gradient=_gradient(divided),
                is_scaled=is_scaled,
            )
        )
    return found


def _softmax(scores: Array) -> Array:
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = powers.sum(-1, keepdims=True)
    weights: Array = np.divide(powers, total, out=np.zeros_like(powers), where=total > 0)
    return weights


def _entropy(p: Array) -> float:
    return float(-(p * np.log(np.where(p > 0, p, 1.0))).sum(-1).mean())


def _gradient(p: Array) -> float:
    """Frobenius norm of diag(p) - p p^T: sqrt(sum p^2 - 2 sum p^3 + (sum p^2)^2)."""
    squares = (p**2).sum(-1)
    return float(np.sqrt(np.maximum(squares - 2 * (p**3).sum(-1) + squares**2, 0.0)).mean())
