"""Batches across requests: one queue and one worker thread for each model.

The event loop hands in jobs; the thread takes items from the jobs in turns, so that a long document and a short
request move on together, lets them join what is running between two steps, and gives each result back as soon as it
is final.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from glassformer.allocator import give_back_freed_memory
from glassformer.config import GenerationConfig
from glassformer.serve.items import Batch, Done, Engine, Item, Job
from glassformer.serve.refusal import Refusal

__all__ = ["Batcher", "Watcher"]

LOGGER = logging.getLogger("glassformer.serve")
JOB_SHARE = 32  # most items of one job that run at one time, so that a long document leaves room for others
JOIN_SHARE = 0.25  # items join a running batch when they are such a share of it, since each joining copies its caches
JOIN_STEPS = 8  # or after so many steps
GIVE_BACK_EVERY_S = 30.0  # batches of all sizes leave gaps in memory, which would add up over the hours
CLOSE_S = 10.0  # for the thread to end what runs


class Watcher(Protocol):
    """What the operator is shown of the work."""

    def batch(self, n_items: int) -> None:
        """Items have joined, and so many run together now."""
        ...

    def step(self, n_waiting: int, n_running: int) -> None:
        """The numbers of items that wait and run have changed."""
        ...


@dataclass(eq=False)
class _Place:
    """An item at work."""

    job: Job
    number: int
    n_pieces: int = 0  # handed over; not handed over again when the item is begun anew
    n_made: int = 0  # pieces made since it was begun

    @property
    def item(self) -> Item:
        return self.job.items[self.number]


@dataclass(eq=False)
class _Running:
    """A batch and whose items they are. Others of its settings may join it, unless it is a repeated one."""

    settings: GenerationConfig | None
    places: dict[int, _Place]
    is_open: bool
    batch: Batch | None = None

    def welcomes(self, other: _Running) -> bool:
        """Whether another batch may go on in this one."""
        are_open = self.is_open and other.is_open and self.batch is not None
        return are_open and self is not other and self.settings == other.settings

    def join(self, other: _Running) -> None:
        assert self.batch is not None and other.batch is not None
        self.batch.join(other.batch)

    def is_wanted(self, number: int) -> bool:
        return number in self.places and not self.places[number].job.is_cancelled


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
        self._running: list[_Running] = []  # the thread's own
        self._numbers = count()
        self._n_steps = 0  # since something was begun
        self._given_back_s = time.monotonic()
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
        """Ends the thread when what runs is done; nothing more is begun."""
        with self._ready:
            self._is_closed = True
            self._ready.notify()
        self._thread.join(CLOSE_S)  # Python would cut it off in the middle of a product

    @property
    def is_alive(self) -> bool:
        """Whether the thread takes work."""
        return self._thread.is_alive()

    def _n_waiting(self) -> int:
        return sum(len(job.waiting) for job in self._jobs)

    def _work(self) -> None:
        self._prepare()
        while self._has_work():
            try:
                if self._is_time_to_join():
                    self._n_steps = 0
                    for places in self._newcomers():
                        self._begin(places, is_open=True)
                self._n_steps += 1
                for running in list(self._running):
                    self._attempt(running, self._step)
                with self._ready:
                    n_waiting = self._n_waiting()
                self._watcher.step(n_waiting, self._n_running())
                if time.monotonic() - self._given_back_s > GIVE_BACK_EVERY_S:
                    give_back_freed_memory()
                    self._given_back_s = time.monotonic()
            except Exception as error:  # not of a batch: nobody may wait for ever
                self._give_up(error)

    def _is_time_to_join(self) -> bool:
        with self._ready:
            n_waiting = self._n_waiting()
        return self._n_steps >= JOIN_STEPS or n_waiting >= JOIN_SHARE * self._n_running()

    def _give_up(self, error: Exception) -> None:
        """Every job has the error, and the thread goes on with none."""
        LOGGER.error("the worker failed; its requests have the error", extra={"error": type(error).__name__})
        with self._ready:
            jobs = {*self._jobs, *(place.job for running in self._running for place in running.places.values())}
            self._jobs.clear()
        self._running.clear()
        for job in jobs:
            job.emit(0, error)
            job.is_cancelled = True

    def _has_work(self) -> bool:
        """Waits for it; False: the end."""
        if self._running:
            return True
        with self._ready:
            self._ready.wait_for(lambda: self._jobs or self._is_closed)
            if self._is_closed:
                return False
        time.sleep(self._wait_s)
        return True

    def _n_running(self) -> int:
        return sum(len(running.places) for running in self._running)

    def _newcomers(self) -> list[list[_Place]]:
        """Items of the jobs in turns while there is room, by their settings; who has waited longest is first."""
        groups: dict[GenerationConfig | None, list[_Place]] = {}
        with self._ready:
            if self._is_closed:
                return []
            load = _Load(self._running)
            passed: list[Job] = []  # their turn is next time
            while self._jobs:
                job = self._jobs.popleft()
                if job.is_cancelled or not job.waiting:
                    continue
                item = job.items[job.waiting[0]]
                if load.n_items[job] == JOB_SHARE:
                    passed.append(job)
                    continue
                if load.sizes and load.with_one_more(item) > self._batch_tokens:
                    self._jobs.appendleft(job)
                    break
                load.add(job, item, item.settings)
                groups.setdefault(item.settings, []).append(_Place(job, job.waiting.popleft()))
                if job.waiting:
                    self._jobs.append(job)
            self._jobs.extendleft(reversed(passed))
        return list(groups.values())

    def _begin(self, places: list[_Place], *, is_open: bool) -> None:
        """Puts items to work; after their first step they join what runs with the same settings."""
        running = _Running(places[0].item.settings, {next(self._numbers): place for place in places}, is_open)
        self._running.append(running)
        self._watcher.batch(self._n_running())
        self._attempt(running, self._start)

    def _start(self, running: _Running) -> None:
        running.batch = self._engine.begin({number: place.item for number, place in running.places.items()})
        self._step(running)
        hosts = [host for host in self._running if host.welcomes(running)]
        if running not in self._running or not hosts:
            return
        self._running.remove(running)
        hosts[0].places |= running.places  # first, so that a failure is everybody's
        self._attempt(hosts[0], lambda host: host.join(running))

    def _attempt(self, running: _Running, action: Callable[[_Running], None]) -> None:
        """When a batch fails, each item is begun anew alone, so that only the one that fails has the error."""
        try:
            action(running)
        except Exception as error:
            self._running.remove(running)
            places = list(running.places.values())
            if len(places) == 1:
                places[0].job.emit(places[0].number, error)
                return
            LOGGER.warning("a batch failed; its items are run one by one", extra={"error": type(error).__name__})
            for place in places:
                place.n_made = 0
                self._begin([place], is_open=False)

    def _step(self, running: _Running) -> None:
        assert running.batch is not None
        for number, event in running.batch.step(running.is_wanted):
            place = running.places[number]
            if isinstance(event, Done):
                del running.places[number]
            else:
                place.n_made += 1
                if place.n_made <= place.n_pieces:
                    continue
                place.n_pieces += 1
            place.job.emit(place.number, event)
        running.places = {number: place for number, place in running.places.items() if running.is_wanted(number)}
        if running.batch.is_done or not running.places:
            self._running.remove(running)


class _Load:
    """How much runs: the tokens of each batch, and the items of each job."""

    def __init__(self, running: Iterable[_Running]) -> None:
        self.sizes: dict[object, tuple[int, int]] = {}  # longest item and rows of each batch
        self.n_items: Counter[Job] = Counter()
        for batch in running:
            for place in batch.places.values():
                self.add(place.job, place.item, batch.settings if batch.is_open else batch)

    def add(self, job: Job, item: Item, batch: object) -> None:
        """An item more."""
        self.n_items[job] += 1
        self.sizes[batch] = self._grown(item, batch)

    def with_one_more(self, item: Item) -> int:
        """Tokens of all batches with this item too."""
        sizes = self.sizes | {item.settings: self._grown(item, item.settings)}
        return sum(longest * n_rows for longest, n_rows in sizes.values())

    def _grown(self, item: Item, batch: object) -> tuple[int, int]:
        longest, n_rows = self.sizes.get(batch, (0, 0))
        return max(longest, item.size), n_rows + item.n_rows
