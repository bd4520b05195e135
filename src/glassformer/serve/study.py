"""A thread beside the queues, for short looks into a model: alignments, candidates."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from glassformer.serve.refusal import Refusal

__all__ = ["Study"]

MAX_WAITING = 64  # looks that wait or run

T = TypeVar("T")


class Study:
    """Runs one look at a time, off the event loop; one whose client has left before its turn is not begun."""

    def __init__(self) -> None:
        self._waiting = threading.BoundedSemaphore(MAX_WAITING)
        # torch's number of threads belongs to the thread that sets it
        self._pool = ThreadPoolExecutor(1, "glassformer-study", initializer=torch.set_num_threads, initargs=(1,))

    async def run(self, look: Callable[[], T]) -> T:
        """What `look` returns.

        Raises:
            Refusal: 503 when too many wait.
        """
        if not self._waiting.acquire(blocking=False):
            raise Refusal(503, f"{MAX_WAITING} looks into models wait already.", retry_after_s=2)
        try:
            future = self._pool.submit(look)
        except BaseException:
            self._waiting.release()
            raise
        future.add_done_callback(lambda _: self._waiting.release())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Ends the thread after its look."""
        self._pool.shutdown(wait=False, cancel_futures=True)
