"""Which 64-bit hashes have been seen before, in eight bytes each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["SeenHashes"]


class SeenHashes:
    """A set of 64-bit hashes that grows by whole arrays.

    The hashes lie in a few sorted arrays. A new array is merged with its neighbours of the same size or smaller, so
    there are at most log2(n) of them and each hash is moved at most log2(n) times (a log-structured merge).

    Cost: 8 bytes a hash, twice that during a merge. Two of n different texts share a hash with a probability of
    n^2 / 2^65: one in a million for five million texts.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Adds hashes [n] and returns [n]: True where a hash stands for the first time, in this array and before."""
        unique, first = np.unique(hashes, return_index=True)
        is_known = np.zeros(len(unique), dtype=np.bool_)
        for run in self._runs:
            place = np.minimum(np.searchsorted(run, unique), len(run) - 1)
            is_known |= run[place] == unique
        is_new = np.zeros(len(hashes), dtype=np.bool_)
        is_new[first[~is_known]] = True
        self._insert(unique[~is_known])
        return is_new

    def _insert(self, run: NDArray[np.uint64]) -> None:
        if len(run) == 0:
            return
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort(kind="stable")  # merges two sorted halves in one pass
        self._runs.append(run)
