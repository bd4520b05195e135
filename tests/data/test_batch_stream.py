"""The stream: groups for updates, exact resume, the same updates on any number of ranks."""

from __future__ import annotations

import itertools
import json
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import plan_for, temporary_store, write_store

from glassformer.data.batches import BatchPlan
from glassformer.data.stream import BatchStream, UpdateGroup
from glassformer.errors import CheckpointError, DataError

QUICK = settings(max_examples=25, deadline=None)
LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=40)


def one_pair_batches(folder: Path, n: int) -> BatchPlan:
    """A plan with n batches an epoch."""
    return plan_for(write_store(folder / f"store{n}", [(3, 1 + i) for i in range(n)]), batch_tokens=1)


def content(group: UpdateGroup) -> tuple[Any, ...]:
    batches = [(b.rows.tolist(), b.src.tolist(), b.tgt_in.tolist(), b.tgt_out.tolist()) for b in group.batches]
    return batches, group.n_tokens, group.n_sentences, group.epoch


@pytest.mark.parametrize(("n_batches", "sizes"), [(7, [4, 3]), (3, [3]), (8, [4, 4])])
def test_the_last_group_of_an_epoch_is_delivered_and_not_carried_over(
    tmp_path: Path, n_batches: int, sizes: list[int]
) -> None:
    plan = one_pair_batches(tmp_path, n_batches)
    stream = BatchStream(plan, accumulation=4)
    assert stream.updates_per_epoch == stream.updates_in(5) == len(sizes)
    groups = list(itertools.islice(stream, 2 * len(sizes)))
    assert [len(group.batches) for group in groups] == sizes * 2
    assert [group.epoch for group in groups] == [0] * len(sizes) + [1] * len(sizes)
    for epoch in (0, 1):
        rows = [row for g in groups if g.epoch == epoch for b in g.batches for row in b.rows.tolist()]
        assert sorted(rows) == list(range(n_batches))


@QUICK
@given(lengths=LENGTHS, accumulation=st.integers(1, 5), world_size=st.integers(1, 3))
def test_counts_of_a_group_cover_all_its_batches_and_ranks(
    lengths: list[tuple[int, int]], accumulation: int, world_size: int
) -> None:
    with temporary_store(lengths) as store:
        streams = [
            BatchStream(plan_for(store), rank=rank, world_size=world_size, accumulation=accumulation)
            for rank in range(world_size)
        ]
        for _ in range(streams[0].updates_per_epoch):
            groups = [next(stream) for stream in streams]
            rows = [row for group in groups for batch in group.batches for row in batch.rows.tolist()]
            for group in groups:
                assert group.n_sentences == len(rows)
                assert group.n_tokens == sum(lengths[row][1] + 1 for row in rows)
                assert group.n_tokens == sum(batch.n_tokens for g in groups for batch in g.batches)


@QUICK
@given(lengths=LENGTHS, accumulation=st.integers(1, 3), world_size=st.integers(2, 4))
def test_ranks_make_the_updates_of_one_process(
    lengths: list[tuple[int, int]], accumulation: int, world_size: int
) -> None:
    with temporary_store(lengths) as store:
        plan = plan_for(store)
        alone = BatchStream(plan, accumulation=accumulation)
        streams = [
            BatchStream(plan, rank=r, world_size=world_size, accumulation=accumulation) for r in range(world_size)
        ]
        for _ in range(2 * alone.updates_per_epoch):
            expected, groups = next(alone), [next(stream) for stream in streams]
            assert {len(group.batches) for group in groups} == {len(expected.batches)}
            for i, batch in enumerate(expected.batches):
                parts = [group.batches[i].rows.tolist() for group in groups]
                assert sorted(itertools.chain(*parts)) == sorted(batch.rows.tolist())
            assert {stream.state_dict()["seen_pairs"] for stream in streams} == {alone.state_dict()["seen_pairs"]}


@QUICK
@given(lengths=LENGTHS, accumulation=st.integers(1, 4), stop=st.integers(0, 30), again=st.integers(0, 5))
def test_a_resumed_stream_continues_exactly(
    lengths: list[tuple[int, int]], accumulation: int, stop: int, again: int
) -> None:
    with temporary_store(lengths, n_variants=2) as store:
        unbroken = BatchStream(plan_for(store), accumulation=accumulation)
        broken = BatchStream(plan_for(store), accumulation=accumulation)
        for n in (stop, again):
            for _ in range(n):
                assert content(next(broken)) == content(next(unbroken))
            state = json.loads(json.dumps(broken.state_dict()))
            assert state == unbroken.state_dict()
            broken = BatchStream(plan_for(store), accumulation=accumulation)
            broken.load_state_dict(state)
        for _ in range(unbroken.updates_per_epoch + 1):
            assert content(next(broken)) == content(next(unbroken))


def test_the_state_names_epoch_batch_and_pairs(tmp_path: Path) -> None:
    stream = BatchStream(one_pair_batches(tmp_path, 7), accumulation=4)
    places = []
    for _ in range(4):
        state = stream.state_dict()
        places.append((state["epoch"], state["batch"], state["seen_pairs"]))
        next(stream)
    assert places == [(0, 0, 0), (0, 4, 4), (1, 0, 7), (1, 4, 11)]


def test_a_stream_resumes_on_another_number_of_ranks(tmp_path: Path) -> None:
    plan = plan_for(write_store(tmp_path / "store", [(2, 1 + i % 5) for i in range(30)]))
    alone = BatchStream(plan)
    next(alone), next(alone)
    ranks = [BatchStream(plan, rank=rank, world_size=2) for rank in range(2)]
    for stream in ranks:
        stream.load_state_dict(alone.state_dict())
    parts = [next(stream).batches[0].rows.tolist() for stream in ranks]
    assert sorted(itertools.chain(*parts)) == sorted(next(alone).batches[0].rows.tolist())


@pytest.mark.parametrize("change", [{"seed": 2}, {"batch_tokens": 41}, {"sort_window": 9}])
def test_resuming_with_other_batches_is_refused(tmp_path: Path, change: dict[str, int]) -> None:
    store = write_store(tmp_path / "store", [(3, 3)] * 5)
    state = BatchStream(plan_for(store)).state_dict()
    (name, value), was = next(iter(change.items())), {"seed": 1, "batch_tokens": 40, "sort_window": 8}
    with pytest.raises(CheckpointError, match=f"{name} was {was[name]}, is {value}"):
        BatchStream(plan_for(store, **change)).load_state_dict(state)


def test_resuming_with_other_data_is_refused(tmp_path: Path) -> None:
    state = BatchStream(plan_for(write_store(tmp_path / "a", [(3, 3)] * 5))).state_dict()
    with pytest.raises(CheckpointError, match=r"data was \w+, is \w+"):
        BatchStream(plan_for(write_store(tmp_path / "b", [(3, 3)] * 4 + [(3, 4)]))).load_state_dict(state)


def test_a_failure_ends_at_once_and_names_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n_threads = threading.active_count()
    stream = BatchStream(one_pair_batches(tmp_path, 3))
    next(stream)
    before = stream.state_dict()
    with monkeypatch.context() as broken:
        broken.setattr("glassformer.data.store.TokenLists.gather", lambda self, rows: self.ids[:0])
        with pytest.raises(DataError, match=r"lines 10[123] of the input"):
            next(stream)
    assert stream.state_dict() == before
    assert threading.active_count() == n_threads  # no worker that could be left over
    next(stream)


def test_memory_does_not_grow_from_epoch_to_epoch(tmp_path: Path) -> None:
    n = 20_000
    store = write_store(tmp_path / "store", [(1 + i % 7, 1 + i % 11) for i in range(n)])
    stream = BatchStream(plan_for(store, batch_tokens=2000, sort_window=1000))
    peaks = []
    tracemalloc.start()
    for _ in range(3):
        tracemalloc.reset_peak()
        for _ in range(stream.updates_per_epoch):
            next(stream)
        peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[0]
    assert peaks[2] < 60 * n  # bytes: index arrays, not objects
