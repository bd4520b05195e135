"""Server-sent events: a stream that stays alive while nothing comes, and ends with an event where it fails."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from glassformer.serve.refusal import Refusal, refusal_of

__all__ = ["begun", "event", "kept_alive"]

LOGGER = logging.getLogger("glassformer.serve")
PING_S = 5.0  # without an event until a comment is sent, which clients pass over
PING = ": ping\n\n"


def event(content: dict[str, Any]) -> str:
    """An event with a JSON object."""
    return f"data: {json.dumps(content, ensure_ascii=False, allow_nan=False)}\n\n"


async def begun(events: AsyncGenerator[str, None]) -> asyncio.Future[str]:
    """The first event, which may be still to come after PING_S.

    Raises:
        Exception: What failed until then, so that it has a status of its own.
    """
    first = asyncio.ensure_future(anext(events))
    try:
        await asyncio.wait({first}, timeout=PING_S)
    except asyncio.CancelledError:
        await _ended(first, events)
        raise
    if first.done():
        first.result()
    return first


async def kept_alive(first: asyncio.Future[str], rest: AsyncGenerator[str, None]) -> AsyncIterator[str]:
    """The events, with a comment wherever none comes for PING_S. What fails now is an event, since the status has been
    sent."""
    coming = first
    try:
        while True:
            await asyncio.wait({coming}, timeout=PING_S)
            if coming.done():
                yield coming.result()
                coming = asyncio.ensure_future(anext(rest))
            else:
                yield PING
    except StopAsyncIteration:
        return
    except Exception as error:
        LOGGER.error("failure in a stream", extra={"error": type(error).__name__})
        refusal = error if isinstance(error, Refusal) else refusal_of(error)
        yield event(refusal.body("/v1/"))
    finally:
        await _ended(coming, rest)


async def _ended(coming: asyncio.Future[str], events: AsyncGenerator[str, None]) -> None:
    """Gives up what is still to come; the work behind it ends."""
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)
    await events.aclose()
