"""Batches: every pair once, within the budget, in an order that only the seed and the epoch decide."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import BOS, EOS, IDS, PAD, plan_for, temporary_store, write_store

from glassformer.data.batches import BatchPlan, Collator, validation_batches
from glassformer.errors import DataError

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)
QUICK = settings(max_examples=30, deadline=None)


def rows_of(plan: BatchPlan, epoch: int) -> list[list[int]]:
    batches = plan.epoch(epoch)
    return [batches[i].tolist() for i in range(len(batches))]


@QUICK
@given(lengths=LENGTHS, batch_tokens=st.integers(1, 300), sort_window=st.integers(1, 70), epoch=st.integers(0, 5))
def test_each_pair_comes_once_an_epoch_and_batches_keep_to_the_budget(
    lengths: list[tuple[int, int]], batch_tokens: int, sort_window: int, epoch: int
) -> None:
    with temporary_store(lengths) as store:
        plan = plan_for(store, batch_tokens=batch_tokens, sort_window=sort_window)
        batches = rows_of(plan, epoch)
        assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
        for rows in batches:
            batch = plan.batch(np.array(rows))
            padded = batch.src.numel() + batch.tgt_out.numel()
            assert padded <= batch_tokens or len(rows) == 1
            assert len(rows) <= sort_window


@QUICK
@given(lengths=LENGTHS, seed=st.integers(0, 2**63), epoch=st.integers(0, 1000))
def test_the_order_depends_on_nothing_but_seed_and_epoch(lengths: list[tuple[int, int]], seed: int, epoch: int) -> None:
    with temporary_store(lengths) as store:
        expected = rows_of(plan_for(store, seed=seed), epoch)
        plan = plan_for(store, seed=seed)
        for other in (epoch + 1, 0):  # planning other epochs first changes nothing
            plan.epoch(other)
        random.seed(epoch), np.random.seed(epoch % 2**32), torch.manual_seed(epoch)
        assert rows_of(plan, epoch) == expected


def test_epochs_and_seeds_differ(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(3, 3)] * 200)
    orders = [rows_of(plan_for(store, seed=seed), epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert all(a != b for i, a in enumerate(orders) for b in orders[:i])
    # Not only the order of batches changes, but also who is in a batch with whom.
    company = [{frozenset(rows) for rows in order} for order in orders]
    assert all(not a & b for i, a in enumerate(company) for b in company[:i])


def test_neighbours_in_length_share_a_batch(tmp_path: Path) -> None:
    lengths = [(1, 1 + i * 37 % 100) for i in range(100)]
    store = write_store(tmp_path / "store", lengths)
    for rows in rows_of(plan_for(store, batch_tokens=500, sort_window=100), 0):
        targets = sorted(lengths[row][1] for row in rows)
        assert targets == list(range(targets[0], targets[0] + len(rows)))


def test_batches_are_as_full_as_the_budget_allows(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(4, 4)] * 50)
    sizes = sorted(map(len, rows_of(plan_for(store, batch_tokens=65, sort_window=50), 0)))
    assert sizes == [2] + [6] * 8  # 6 * (5 + 5) <= 65 < 7 * (5 + 5)


def test_a_batch_holds_source_eos_and_shifted_targets(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(2, 3), (1, 1), (4, 2)])
    batch = plan_for(store).batch(np.array([2, 0], dtype=np.uint32))
    assert batch.src.tolist() == [[13, 14, 15, 16, EOS], [10, 11, EOS, PAD, PAD]]
    assert batch.tgt_in.tolist() == [[BOS, 20004, 20005, PAD], [BOS, 20000, 20001, 20002]]
    assert batch.tgt_out.tolist() == [[20004, 20005, EOS, PAD], [20000, 20001, 20002, EOS]]
    assert batch.rows.tolist() == [2, 0]
    assert (batch.n_tokens, batch.n_src_tokens) == (3 + 4, 5 + 3)
    assert {t.dtype for t in (batch.src, batch.tgt_in, batch.tgt_out, batch.rows)} == {torch.int64}
    assert batch.to(torch.device("meta")).src.shape == (2, 5)


def test_pads_follow_the_ids_given(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(1, 1), (2, 2)])
    batch = Collator(store, pad_id=7, bos_id=8, eos_id=9)(np.array([0, 1]))
    assert batch.src.tolist() == [[10, 9, 7], [11, 12, 9]]
    assert batch.tgt_in.tolist() == [[8, 20000, 7], [8, 20001, 20002]]


@QUICK
@given(lengths=LENGTHS, world_size=st.integers(2, 5))
def test_ranks_share_each_batch(lengths: list[tuple[int, int]], world_size: int) -> None:
    with temporary_store(lengths) as store:
        plan = plan_for(store)
        for rows in rows_of(plan, 0):
            whole = plan.batch(np.array(rows))
            parts = [plan.batch(np.array(rows), rank=r, world_size=world_size) for r in range(world_size)]
            assert sorted(row for part in parts for row in part.rows.tolist()) == sorted(rows)
            assert sum(part.n_tokens for part in parts) == whole.n_tokens == plan.n_tokens(np.array(rows))
            assert sum(part.n_src_tokens for part in parts) == whole.n_src_tokens
            for part in parts:
                assert int((part.tgt_out != PAD).sum()) == part.n_tokens
                assert len(part.src) == max(1, len(part.rows))


def test_a_rank_without_rows_gets_one_without_targets(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(2, 3)])
    batch = plan_for(store).batch(np.array([0]), rank=1, world_size=2)
    assert batch.src.tolist() == [[10, 11, EOS]]
    assert batch.tgt_out.tolist() == [[PAD] * 4]
    assert (batch.n_tokens, batch.n_src_tokens, batch.rows.tolist()) == (0, 0, [])


def test_epochs_take_the_variants_in_turn(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(2, 3), (3, 4)], n_variants=3)
    plan = plan_for(store)
    assert [plan.epoch(epoch).variant for epoch in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [plan.batch(np.array([0]), variant).tgt_out.shape for variant in range(3)] == [(1, 4), (1, 5), (1, 6)]


def test_batches_are_numbered_like_a_list(tmp_path: Path) -> None:
    batches = plan_for(write_store(tmp_path / "store", [(9, 9)] * 3), batch_tokens=1).epoch(0)
    assert batches[-1].tolist() == batches[2].tolist()
    with pytest.raises(IndexError):
        batches[3]


@QUICK
@given(lengths=LENGTHS, batch_tokens=st.integers(1, 200), world_size=st.integers(1, 3))
def test_validation_covers_every_pair_once_for_any_budget_and_world_size(
    lengths: list[tuple[int, int]], batch_tokens: int, world_size: int
) -> None:
    with temporary_store(lengths) as store:
        by_rank = [
            list(validation_batches(store, batch_tokens=batch_tokens, **IDS, rank=rank, world_size=world_size))
            for rank in range(world_size)
        ]
        assert len({len(batches) for batches in by_rank}) == 1  # no rank waits for another one
        batches = [batch for batches in by_rank for batch in batches]
        assert sorted(row for batch in batches for row in batch.rows.tolist()) == list(range(len(lengths)))
        assert sum(batch.n_tokens for batch in batches) == sum(tgt + 1 for _, tgt in lengths)


def test_validation_of_some_rows_only(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(2, 3)] * 9)
    batches = list(validation_batches(store, batch_tokens=20, **IDS, rows=[4, 7, 8]))
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == [4, 7, 8]


def test_a_pair_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = write_store(tmp_path / "store", [(2, 3)] * 4)
    monkeypatch.setattr(type(store.sources), "gather", lambda self, rows: self.ids[:2])  # too few ids
    with pytest.raises(DataError, match=r"lines 103, 101 of the input cannot be read \(ValueError"):
        plan_for(store).batch(np.array([2, 0]))
