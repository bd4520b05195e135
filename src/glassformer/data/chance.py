"""Random numbers that are a pure function of what they are for: the same in every process and after a break."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassformer.data.store import Integers

__all__ = ["random_bits", "shares"]


def random_bits(*keys: int | Integers) -> NDArray[np.uint64]:
    """64 random bits for each tuple of keys, which are broadcast against each other.

    h <- mix(h + k + 0x9E3779B97F4A7C15) for each key k in turn, from h = 0.

    Args:
        keys: Whole numbers from 0 on, such as seed, epoch, row and place.

    Source: Steele, Lea & Flood 2014 (SplitMix64) for mix.
    """
    state = np.zeros(1, dtype=np.uint64)
    for key in keys:
        z = state + np.asarray(key).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = z ^ (z >> np.uint64(31))
    return state


def shares(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The same as numbers in [0, 1), of 53 bits each."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
