"""Freed memory stays with the process, where the C library can be told so."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_LARGE = 1 << 30  # bytes


def keep_freed_memory() -> None:
    """Lets glibc keep blocks of up to 1 GiB for the next request; does nothing with other C libraries.

    A step of a model asks for the same tens of megabytes again and again. By default glibc fetches such blocks from the
    system and gives them back each time, so that every step pays for thousands of page faults: a quarter of the time of
    decoding 256 beams at base size (`docs/log.md`). The most that a process holds is the same; it is given back later.
    The setting is that of the whole process; see mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, _LARGE)
