"""What is decoded: sequences, requests of them, what comes of them, and the machine that works on many at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from glassformer.config import GenerationConfig
from glassformer.generation.hypothesis import Candidates

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Batch", "Done", "Engine", "Event", "Item", "Job", "Piece"]


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
    n_top: int = 0  # likeliest tokens that are told in place of each; not of beams

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
    top: Candidates = ()


@dataclass(frozen=True)
class Done:
    """The result of an item: its hypotheses, or its vector."""

    result: Any


Event = Piece | Done


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


class Batch(Protocol):
    """Items of equal settings at work, each under a number."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        ...

    def step(self, is_wanted: Callable[[int], bool]) -> list[tuple[int, Event]]:
        """Drops what is not wanted any more, and makes one step with the others; returns (number, event)."""
        ...

    def join(self, other: Any) -> None:
        """The items of another batch of its kind, which has made a step, go on in this one."""
        ...


class Engine(Protocol):
    """A model at work."""

    def begin(self, items: Mapping[int, Item]) -> Batch:
        """Puts items of equal settings to work; the numbers are never used again."""
        ...
