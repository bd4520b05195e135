"""Where two files of unequal length seem to part, guessed from the lengths of their lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["parting"]

# With fewer lines lengths say too little.
_MIN_LINES = 20
_WINDOW = 50
# Of the cost of lines paired at random: what lines that go together stay below. Translations cost about a third.
_GOOD_SHARE = 0.6
_MAX_SHIFT = 20


def parting(src_lengths: Sequence[int], tgt_lengths: Sequence[int]) -> int | None:
    """The first line (from 1) from which on two files no longer go together, or None when lengths do not tell.

    With c_i = |log((s_i + 5) / (t_i + 5)) - median|, lines that are translations of each other have a low c. A
    cumulated sum of (threshold - c_i) rises before the parting and falls behind it, so its maximum is the parting;
    the threshold lies between the best stretch of the files and lines paired at random. The place is then
    sharpened by trying which line left out there makes the lines behind it go together again.

    Args:
        src_lengths, tgt_lengths: Characters of each line.
    """
    src, tgt = (np.log(np.asarray(lengths, dtype=np.float64) + 5) for lengths in (src_lengths, tgt_lengths))
    n = min(len(src), len(tgt))
    if n < _MIN_LINES:
        return None
    middle = np.median(src[:n] - tgt[:n])
    cost = np.abs(src[:n] - tgt[:n] - middle)
    random_cost = np.abs(np.random.default_rng(0).permutation(src[:n]) - tgt[:n] - middle).mean()
    window = min(_WINDOW, n // 2)
    good_cost = np.convolve(cost, np.full(window, 1 / window), "valid").min()
    is_good_somewhere = good_cost < _GOOD_SHARE * random_cost
    gain = np.concatenate([[0.0], np.cumsum((good_cost + random_cost) / 2 - cost)])
    # A parting in the first lines leaves no good stretch in front of it, so the start is tried by itself first.
    place, fit, is_inside = _sharpened(src, tgt + middle, 0)
    if is_inside and fit < _GOOD_SHARE * random_cost:
        return place + 1
    return _sharpened(src, tgt + middle, int(gain.argmax()))[0] + 1 if is_good_somewhere else None


def _sharpened(src: NDArray[np.float64], tgt: NDArray[np.float64], place: int) -> tuple[int, float, bool]:
    """The place near `place` where leaving out lines of the longer file makes the rest fit best.

    Also the mean cost there, and whether lines behind it confirm it.
    """
    longer, shorter = (src, tgt) if len(src) > len(tgt) else (tgt, src)
    start, stop = max(place - _WINDOW, 0), min(place + 2 * _WINDOW, len(shorter))
    best_cost, best = np.inf, place
    for shift in range(1, min(_MAX_SHIFT, len(longer) - len(shorter)) + 1):
        before = np.abs(longer[start:stop] - shorter[start:stop])
        behind = np.abs(longer[start + shift : stop + shift] - shorter[start:stop])
        # Cost of every place at once: pairs before it as they stand, pairs behind it shifted.
        costs = np.concatenate([[0.0], np.cumsum(before)]) + np.concatenate([np.cumsum(behind[::-1])[::-1], [0.0]])
        if costs.min() < best_cost:
            best_cost, best = float(costs.min()), start + int(costs.argmin())
    return best, best_cost / max(stop - start, 1), best < stop - _MIN_LINES
