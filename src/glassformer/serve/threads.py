"""Work that is too long for the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

__all__ = ["off_loop"]

SHORT_CHARS = 2000  # read in less time than it takes to hand them over to a thread beside a busy model, and back

P = ParamSpec("P")
T = TypeVar("T")


async def off_loop(texts: Sequence[str], work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """What `work` returns, which takes time in proportion to the texts: in a thread where they are long."""
    if sum(map(len, texts)) <= SHORT_CHARS:
        return work(*given, **named)
    return await asyncio.to_thread(work, *given, **named)
