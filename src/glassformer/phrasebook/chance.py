"""Random choices that give the same book on every platform and version of Python."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

__all__ = ["Chance"]

T = TypeVar("T")


class Chance:
    """A seeded stream of choices. It draws on `random.Random.random` alone, the one method whose stream is promised."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed).random

    def one(self, items: Sequence[T]) -> T:
        """One of the items, all equally likely."""
        return items[int(self._draw() * len(items))]

    def weighted(self, weights: Mapping[T, float]) -> T:
        """One of the keys, each with a probability proportional to its weight."""
        rest = self._draw() * sum(weights.values())
        for item, weight in weights.items():
            rest -= weight
            if rest < 0:
                return item
        return item

    def happens(self, probability: float) -> bool:
        """True with the given probability."""
        return self._draw() < probability
