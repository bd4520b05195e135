"""The queue of one model: turns, settings, failures, and work that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from glassformer.config import GenerationConfig
from glassformer.serve.batcher import Batcher
from glassformer.serve.items import Done, Event, Item, Job, Piece
from glassformer.serve.refusal import Refusal
from serve.serving import SlowEngine

GREEDY = GenerationConfig(beam_size=1)


class Log:
    """An engine that notes what is begun together. Each item takes `limit` steps, and gives a piece at all but its
    last; one whose first id is 13 makes its batch fail at the third step."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def begin(self, items: Mapping[int, Item]) -> LogBatch:
        self.batches.append([item.ids[0] for item in items.values()])
        return LogBatch(items)


class LogBatch:
    def __init__(self, items: Mapping[int, Item]) -> None:
        self.items, self.steps = dict(items), dict.fromkeys(items, 0)

    @property
    def is_done(self) -> bool:
        return not self.items

    def step(self, is_wanted: Callable[[int], bool]) -> list[tuple[int, Event]]:
        events: list[tuple[int, Event]] = []
        for number, item in list(self.items.items()):
            self.steps[number] += 1
            if item.ids[0] == 13 and self.steps[number] == 3:
                raise ValueError("unlucky")
            if self.steps[number] == item.limit:
                del self.items[number]
                events.append((number, Done(-item.ids[0])))
            else:
                events.append((number, Piece("abc"[self.steps[number] - 1], 0, 0.0)))
        return events

    def join(self, other: LogBatch) -> None:
        self.items |= other.items
        self.steps |= other.steps


class Silent:
    def batch(self, n_items: int) -> None: ...

    def step(self, n_waiting: int, n_running: int) -> None: ...


def item(id_: int, size: int = 1, limit: int = 1, **settings: Any) -> Item:
    return Item(ids=[id_], size=size, settings=GenerationConfig(**({"beam_size": 1} | settings)), limit=limit)


def batcher(engine: Any, **changes: Any) -> Batcher:
    settings = {"batch_tokens": 4, "max_waiting": 100, "wait_s": 0.05} | changes
    return Batcher(engine, watcher=Silent(), **settings)


async def result(job: Job) -> list[Any]:
    with job:
        return await job.results()


def test_jobs_take_turns_and_results_come_home() -> None:
    """A long document and two short requests: the short ones are in the first batch."""
    engine = Log()

    async def main() -> list[list[Any]]:
        queue = batcher(engine)
        jobs = [queue.submit([item(i) for i in range(20, 28)]), queue.submit([item(1)]), queue.submit([item(2)])]
        found = await asyncio.gather(*map(result, jobs))
        queue.close()
        return found

    assert asyncio.run(main()) == [[-i for i in range(20, 28)], [-1], [-2]]
    assert engine.batches == [[20, 1, 2, 21], [22, 23, 24, 25], [26, 27]]


def test_one_job_has_its_share_of_a_batch_and_no_more() -> None:
    engine = Log()

    async def main() -> None:
        queue = batcher(engine, batch_tokens=10_000)
        jobs = [queue.submit([item(i) for i in range(20, 60)]), queue.submit([item(1)])]
        await asyncio.gather(*map(result, jobs))
        queue.close()

    asyncio.run(main())
    assert [len(batch) for batch in engine.batches] == [33, 8] and 1 in engine.batches[0]


def test_other_settings_are_another_batch_beside_it() -> None:
    engine = Log()

    async def main() -> None:
        queue = batcher(engine, batch_tokens=5)
        jobs = [queue.submit([item(i)]) for i in (1, 2)]
        jobs += [queue.submit([item(3, top_k=7)]), queue.submit([item(4)]), queue.submit([item(5, top_k=7)])]
        await asyncio.gather(*map(result, jobs))
        queue.close()

    asyncio.run(main())
    assert engine.batches == [[1, 2, 4], [3, 5]]


def test_a_batch_has_at_most_its_tokens_but_one_item_always() -> None:
    engine = Log()

    async def main() -> None:
        queue = batcher(engine)
        sizes = {1: 2, 2: 2, 3: 2, 4: 9, 5: 1}
        jobs = [queue.submit([item(i, size)]) for i, size in sizes.items()]
        jobs.append(queue.submit([item(6, beam_size=3), item(7, beam_size=3)]))  # three rows each
        await asyncio.gather(*map(result, jobs))
        queue.close()

    asyncio.run(main())
    assert engine.batches == [[1, 2], [3], [4], [5], [6], [7]]


def test_a_failing_item_hurts_nobody_else_and_no_piece_comes_twice() -> None:
    engine = Log()

    async def events(job: Job) -> list[Event]:
        with job:
            return [event async for _, event in job.events()]

    async def main() -> list[Any]:
        queue = batcher(engine)
        jobs = [queue.submit([item(i, limit=3)]) for i in (1, 13, 2)]
        found = await asyncio.gather(*map(events, jobs), return_exceptions=True)
        after = await result(queue.submit([item(3)]))  # and the next request is served
        queue.close()
        return [*found, after]

    first, failed, second, after = asyncio.run(main())
    assert first == [Piece("a", 0, 0.0), Piece("b", 0, 0.0), Done(-1)]
    assert isinstance(failed, ValueError) and second[-1] == Done(-2) and len(second) == 3 and after == [-3]


def test_what_nobody_waits_for_ends_within_a_step() -> None:
    """S3: and the neighbour in the batch goes on undisturbed."""
    engine = SlowEngine(step_s=0.02)

    async def main() -> tuple[int, list[Any]]:
        queue = batcher(engine, batch_tokens=100)
        stays = queue.submit([item(1, limit=5)])
        with queue.submit([Item(ids=[2], size=1, settings=GREEDY, limit=500)]) as leaves:
            async for _ in leaves.events():
                break
        found = await result(stays)
        await asyncio.sleep(0.1)
        n_steps = engine.n_steps
        await asyncio.sleep(0.2)
        queue.close()
        return engine.n_steps - n_steps, found

    n_more, found = asyncio.run(main())
    assert n_more == 0 and engine.n_steps <= 8
    assert [len(hypotheses[0].ids) for hypotheses in found] == [5]


def test_a_full_queue_says_so_and_those_who_left_make_room() -> None:
    engine = SlowEngine(step_s=0.01)

    async def main() -> None:
        queue = batcher(engine, max_waiting=3, wait_s=0.3)
        with queue.submit([item(1), item(2), item(3)]):
            with pytest.raises(Refusal) as caught:
                queue.submit([item(4)])
            assert caught.value.status == 503 and caught.value.retry_after_s
            assert "3 sequences wait, and at most 3 may" in caught.value.message
        await result(queue.submit([item(4)]))
        queue.close()

    asyncio.run(main())


def test_a_short_request_joins_a_long_document_that_runs() -> None:
    """And is answered long before it; the document goes on as if nothing were."""
    engine = SlowEngine(step_s=0.01)

    async def main() -> tuple[int, list[Any], list[Any]]:
        queue = batcher(engine, batch_tokens=10_000, wait_s=0)
        document = queue.submit([item(i, limit=60) for i in range(40)])
        while engine.n_steps < 3:
            await asyncio.sleep(0.001)
        before = engine.n_steps
        short = await result(queue.submit([item(1, limit=4)]))
        n_steps = engine.n_steps - before
        long = await result(document)
        queue.close()
        return n_steps, short, long

    n_steps, short, long = asyncio.run(main())
    assert n_steps <= 16 and len(short[0][0].ids) == 4
    assert [len(hypotheses[0].ids) for hypotheses in long] == [60] * 40


def test_freed_memory_goes_back_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr("glassformer.serve.batcher.give_back_freed_memory", lambda: calls.append(1))

    async def run(every_s: float) -> None:
        monkeypatch.setattr("glassformer.serve.batcher.GIVE_BACK_EVERY_S", every_s)
        queue = batcher(Log())
        await result(queue.submit([item(1, limit=4)]))
        queue.close()

    asyncio.run(run(1000.0))
    assert not calls
    asyncio.run(run(-1.0))
    assert len(calls) >= 3
