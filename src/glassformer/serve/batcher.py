"""Batches across requests: one queue and one worker thread for each model.

The event loop hands in jobs; the thread takes items from the jobs in turns, so that a long document and a short
request move on together, decodes them as one batch, and gives each result back as soon as it is final.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from glassformer.config import GenerationConfig
from glassformer.serve.refusal import Refusal

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Batcher", "Done", "Engine", "Event", "Item", "Job", "Piece", "Watcher"]

LOGGER = logging.getLogger("glassformer.serve")
JOB_SHARE = 32  # most items of one job in a batch, so that one long document never makes the others wait for long


@dataclass(frozen=True, kw_only=True)
class Item:
    """One sequence to decode, or to embed. What comes of it depends on nothing but this."""

    ids: list[int]  # what the model reads
    size: int  # tokens that it takes of a batch, for each of its rows
    settings: GenerationConfig | None = None  # items of equal settings are decoded together
    limit: int = 0  # most new tokens, at least 1 where there are settings
    seed: int = 0  # of its own stream of random numbers
    stop: tuple[str, ...] = ()  # texts that end it
    is_streamed: bool = False  # its pieces are wanted as they are made

    @property
    def n_rows(self) -> int:
        """Rows of the batch."""
        return 1 if self.settings is None or self.settings.do_sample else self.settings.beam_size


@dataclass(frozen=True)
class Piece:
    """A further part of a text, with the token that made it final."""

    text: str
    token: int
    log_prob: float


@dataclass(frozen=True)
class Done:
    """The result of an item: its hypotheses, or its vector."""

    result: Any


Event = Piece | Done


class Engine(Protocol):
    """Computes a batch."""

    def run(self, items: Sequence[Item], is_wanted: Callable[[int], bool]) -> Iterator[tuple[int, Event]]:
        """Yields (number of the item, event); asks between two steps which items are still wanted."""
        ...


class Watcher(Protocol):
    """What the operator is shown of the work."""

    def batch(self, n_items: int) -> None:
        """A batch of so many items begins."""
        ...

    def step(self, n_waiting: int, n_running: int) -> None:
        """The numbers of items that wait and run have changed."""
        ...


class Job:
    """The items of one request, and the way of their events back to it. Use it in a `with` block: its end, for
    whatever reason, ends the work."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.is_cancelled = False
        is_streamed = any(item.is_streamed for item in items)  # in order; else like lengths together waste less
        self.waiting = deque(sorted(range(len(items)), key=lambda i: 0 if is_streamed else -items[i].size))
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Event | Exception]] = asyncio.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_cancelled = True

    def emit(self, number: int, event: Event | Exception) -> None:
        """Hands an event of item `number` to the event loop; called by the worker."""
        if self.is_cancelled:
            return
        try:
            self._loop.call_soon_threadsafe(self._events.put_nowait, (number, event))
        except RuntimeError:  # the loop is closed: nobody is left
            self.is_cancelled = True

    async def events(self) -> AsyncIterator[tuple[int, Event]]:
        """All events until every item is done; the error of an item is raised."""
        n_left = len(self.items)
        while n_left:
            number, event = await self._events.get()
            if isinstance(event, Exception):
                raise event
            n_left -= isinstance(event, Done)
            yield number, event

    async def results(self) -> list[Any]:
        """The result of each item, in their order."""
        found: dict[int, Any] = {}
        async for number, event in self.events():
            if isinstance(event, Done):
                found[number] = event.result
        return [found[i] for i in range(len(self.items))]


@dataclass
class _Place:
    """An item in a batch."""

    job: Job
    number: int
    n_pieces: int = 0  # handed over; not handed over again when the batch is repeated
    is_done: bool = False

    @property
    def item(self) -> Item:
        return self.job.items[self.number]


class Batcher:
    """The queue and the worker thread of one model.

    Args:
        engine: Computes a batch.
        batch_tokens: Most tokens of a batch: longest item x rows. An item alone may have more.
        max_waiting: Most items that wait.
        wait_s: How long a batch that is not full waits for company.
        prepare: Called in the thread at first, to set what belongs to it.
        watcher: Is told of the work.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        batch_tokens: int,
        max_waiting: int,
        wait_s: float,
        watcher: Watcher,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine, self._watcher, self._prepare = engine, watcher, prepare
        self._batch_tokens, self._max_waiting, self._wait_s = batch_tokens, max_waiting, wait_s
        self._jobs: deque[Job] = deque()
        self._ready = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="glassformer-worker", daemon=True)
        self._thread.start()

    def submit(self, items: Sequence[Item]) -> Job:
        """Queues the items of a request.

        Raises:
            Refusal: 503 when too many wait already.
        """
        with self._ready:
            self._jobs = deque(job for job in self._jobs if not job.is_cancelled)
            n_waiting = self._n_waiting()
            if n_waiting and n_waiting + len(items) > self._max_waiting:
                raise Refusal(
                    503,
                    f"The model is busy: {n_waiting} sequences wait, and at most {self._max_waiting} may.",
                    retry_after_s=2,
                )
            job = Job(items)
            self._jobs.append(job)
            self._ready.notify()
        return job

    def close(self) -> None:
        """Ends the thread after its batch."""
        with self._ready:
            self._is_closed = True
            self._ready.notify()

    def _n_waiting(self) -> int:
        return sum(len(job.waiting) for job in self._jobs)

    def _work(self) -> None:
        self._prepare()
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._jobs or self._is_closed)
                if self._is_closed:
                    return
            time.sleep(self._wait_s)
            with self._ready:
                batch, n_waiting = self._next_batch(), self._n_waiting()
            if batch:
                self._watcher.batch(len(batch))
                self._watcher.step(n_waiting, len(batch))
                self._compute(batch)
                self._watcher.step(n_waiting, 0)

    def _next_batch(self) -> list[_Place]:
        """Items of equal settings, one of each job in turn; the job that has waited longest has its item in."""
        batch: list[_Place] = []
        n_taken: Counter[Job] = Counter()
        passed: list[Job] = []  # their turn is next time
        longest = 0
        while self._jobs:
            job = self._jobs.popleft()
            if job.is_cancelled or not job.waiting:
                continue
            item = job.items[job.waiting[0]]
            if n_taken[job] == JOB_SHARE or (batch and item.settings != batch[0].item.settings):
                passed.append(job)
                continue
            if batch and max(longest, item.size) * item.n_rows * (len(batch) + 1) > self._batch_tokens:
                self._jobs.appendleft(job)
                break
            longest = max(longest, item.size)
            batch.append(_Place(job, job.waiting.popleft()))
            n_taken[job] += 1
            if job.waiting:
                self._jobs.append(job)
        self._jobs.extendleft(reversed(passed))
        return batch

    def _compute(self, batch: list[_Place]) -> None:
        """Runs a batch. When it fails, each item is run alone, so that only the one that fails has the error."""
        try:
            self._run(batch)
        except Exception as error:
            if len(batch) == 1:
                batch[0].job.emit(batch[0].number, error)
                return
            LOGGER.warning("a batch failed; its items are run one by one", extra={"error": type(error).__name__})
            for place in batch:
                if not place.is_done:
                    self._compute([place])

    def _run(self, batch: list[_Place]) -> None:
        n_pieces = [0] * len(batch)
        for i, event in self._engine.run([place.item for place in batch], lambda i: not batch[i].job.is_cancelled):
            place = batch[i]
            if isinstance(event, Piece):
                n_pieces[i] += 1
                if n_pieces[i] <= place.n_pieces:
                    continue
                place.n_pieces += 1
            else:
                place.is_done = True
            place.job.emit(place.number, event)
