"""When freed memory stays with the process and when it goes back, where the C library can be told so."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_LARGE = 1 << 30  # bytes


def keep_freed_memory() -> None:
    """Lets glibc keep blocks of up to 1 GiB for the next request; does nothing with other C libraries.

    A step of a model asks for the same tens of megabytes again and again. By default glibc fetches such blocks from the
    system and gives them back each time, so that every step pays for thousands of page faults: a quarter of the time of
    decoding 256 beams at base size (`docs/log.md`). The setting is that of the whole process; see mallopt(3).
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, _LARGE)


def give_back_freed_memory() -> None:
    """Gives what is free at this moment back to the system, as after loading a model; see malloc_trim(3)."""
    malloc_trim = _function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _function(name: str) -> Callable[..., Any] | None:
    """A function of glibc, or None."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
