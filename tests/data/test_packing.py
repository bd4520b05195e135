"""Packed rows: every token once, every EOS predicted, nothing predicted across documents, the same order for ever."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import BOS, EOS, IDS, PAD, temporary_store, write_store

from glassformer.config import Config, DataConfig, ModelConfig
from glassformer.data.packing import IGNORED, PackedBatch, PackedPlan
from glassformer.data.store import TokenStore
from glassformer.data.stream import BatchStream
from glassformer.errors import CheckpointError
from glassformer.training.causal import CausalObjective, packed_plan

LENGTHS = (5, 0, 9, 1, 30, 3, 3, 12)


def plan_of(store: TokenStore, **changes: Any) -> PackedPlan:
    options: dict[str, Any] = {"max_tokens": 8, "batch_tokens": 24, "seed": 1, "use_bos": True}
    return PackedPlan(store, **(options | IDS | changes))


def whole(plan: PackedPlan, epoch: int = 0) -> PackedBatch:
    """All rows of an epoch in one batch."""
    order = plan.epoch(epoch)
    return plan.batch(np.arange(order.n_rows), order.variant, epoch=epoch)


def pairs_of(batch: PackedBatch) -> list[tuple[int, int]]:
    """(token, target) wherever something is predicted."""
    is_target = batch.targets != IGNORED
    return list(zip(batch.ids[is_target].tolist(), batch.targets[is_target].tolist(), strict=True))


def text_of(store: TokenStore, i: int, use_bos: bool) -> list[int]:
    return [*([BOS] if use_bos else []), *store.src(i).tolist(), EOS]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_token_stands_once_and_every_next_token_is_a_target_once(data: st.DataObject) -> None:
    lengths = [1, *data.draw(st.lists(st.integers(0, 20), max_size=8))]  # no store is without any token
    options = {
        "max_tokens": data.draw(st.integers(1, 11)),
        "use_bos": data.draw(st.booleans()),
        "seed": data.draw(st.none() | st.integers(0, 99)),
    }
    with temporary_store([(length, 1) for length in lengths]) as store:
        plan = plan_of(store, **options)
        batch = whole(plan, epoch=2)
        texts = [text_of(store, i, bool(options["use_bos"])) for i in range(len(store))]
        flat = batch.ids.flatten().tolist()
        n_real = sum(map(len, texts))
        assert sorted(flat[:n_real]) == sorted(itertools.chain(*texts))
        assert flat[n_real:] == [PAD] * (len(flat) - n_real) and len(flat) - n_real < plan.max_tokens
        assert sorted(pairs_of(batch)) == sorted(pair for text in texts for pair in itertools.pairwise(text))
        assert batch.n_tokens == len(pairs_of(batch)) == sum(len(text) - 1 for text in texts)
        assert (batch.documents == 0).flatten().tolist() == [False] * n_real + [True] * (len(flat) - n_real)


def test_rows_by_hand(tmp_path: Path) -> None:
    """Texts of 5 and 2 ids in rows of 4, the second one begun in the middle of a row."""
    store = write_store(tmp_path / "store", [(5, 1), (2, 1)])
    a, b = store.src(0).tolist(), store.src(1).tolist()
    batch = whole(plan_of(store, max_tokens=4, seed=None))
    assert batch.ids.tolist() == [[BOS, *a[:3]], [a[3], a[4], EOS, BOS], [b[0], b[1], EOS, PAD]]
    assert batch.documents.tolist() == [[1, 1, 1, 1], [1, 1, 1, 2], [1, 1, 1, 0]]
    assert batch.targets.tolist() == [a[:4], [a[4], EOS, IGNORED, b[0]], [b[1], EOS, IGNORED, IGNORED]]
    joined = whole(plan_of(store, max_tokens=4, seed=None, across_documents=True))
    assert torch.equal(joined.ids, batch.ids)
    assert joined.documents.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]]
    assert joined.targets.tolist() == [a[:4], [a[4], EOS, BOS, b[0]], [b[1], EOS, IGNORED, IGNORED]]
    assert joined.n_tokens == 10


def test_an_end_of_text_that_is_the_pad_id_is_a_target_all_the_same(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(3, 1), (4, 1)])
    batch = whole(plan_of(store, pad_id=EOS, bos_id=EOS, use_bos=False))
    assert int((batch.targets == EOS).sum()) == 2


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_counts_and_ranks(tmp_path: Path, world_size: int, across: bool) -> None:
    """N10: the count is that of what is predicted. Ranks share the rows; one without a row has no target."""
    store = write_store(tmp_path / "store", [(length, 1) for length in LENGTHS])
    plan = plan_of(store, across_documents=across)
    for epoch in (0, 1):
        order = plan.epoch(epoch)
        assert len(order) == 4
        for i in range(len(order)):
            parts = [
                plan.batch(order[i], order.variant, epoch=epoch, rank=rank, world_size=world_size)
                for rank in range(world_size)
            ]
            assert sum(part.n_tokens for part in parts) == plan.n_tokens(order[i], order.variant, epoch=epoch)
            alone = plan.batch(order[i], order.variant, epoch=epoch)
            assert sorted(p for part in parts for p in pairs_of(part)) == sorted(pairs_of(alone))
            assert all(len(part.ids) for part in parts)


def test_two_rows_and_the_same_packed_in_one_line_have_six_targets(tmp_path: Path) -> None:
    """N10: texts of 5 and 3 tokens, their ends included, give 4 + 2 predictions."""
    store = write_store(tmp_path / "store", [(4, 1), (2, 1)])
    assert plan_of(store, use_bos=False, max_tokens=8).n_tokens(np.array([0])) == 6
    apart = [plan_of(store, use_bos=False, max_tokens=5, seed=None).n_tokens(np.array([row])) for row in (0, 1)]
    assert apart == [4, 2]


def test_the_order_is_a_function_of_seed_and_epoch(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(length, 1) for length in range(1, 40)])
    first, again, later = plan_of(store), plan_of(store), whole(plan_of(store), epoch=1)
    whole(again, epoch=5)  # what was asked before changes nothing
    assert torch.equal(whole(first).ids, whole(again).ids)
    assert not torch.equal(whole(first).ids, later.ids)
    assert not torch.equal(whole(first).ids, whole(plan_of(store, seed=2)).ids)
    in_order = whole(plan_of(store, seed=None))
    texts = [token for i in range(len(store)) for token in text_of(store, i, True)]
    assert in_order.ids.flatten()[: len(texts)].tolist() == texts


def test_each_epoch_takes_the_next_variant(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(4, 1)] * 3, n_variants=2)
    assert [plan_of(store).epoch(e).variant for e in range(3)] == [0, 1, 0]


def test_a_stream_goes_on_where_another_stood(tmp_path: Path) -> None:
    """R1: the same batches after a break, in the middle of an epoch and at its end."""
    store = write_store(tmp_path / "store", [(length, 1) for length in LENGTHS])
    stream = BatchStream(plan_of(store), accumulation=3)
    groups = [next(stream) for _ in range(5)]
    assert [len(group.batches) for group in groups] == [3, 1, 3, 1, 3]
    assert [group.epoch for group in groups] == [0, 0, 1, 1, 2]
    for at in range(5):
        first = BatchStream(plan_of(store), accumulation=3)
        for _ in range(at):
            next(first)
        second = BatchStream(plan_of(store), accumulation=3)
        second.load_state_dict(first.state_dict())
        for group in groups[at:]:
            resumed = next(second)
            assert resumed.n_tokens == group.n_tokens == sum(batch.n_tokens for batch in group.batches)
            for ours, theirs in zip(resumed.batches, group.batches, strict=True):
                assert isinstance(ours, PackedBatch) and isinstance(theirs, PackedBatch)
                assert torch.equal(ours.ids, theirs.ids) and torch.equal(ours.targets, theirs.targets)


def test_a_stream_of_other_rows_is_refused(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(4, 1)] * 3)
    state = BatchStream(plan_of(store)).state_dict()
    with pytest.raises(CheckpointError, match="max_tokens was 8, is 9"):
        BatchStream(plan_of(store, max_tokens=9)).load_state_dict(state)


def test_a_long_document_is_read_piece_by_piece(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(9000, 1), (3, 1)])
    plan = plan_of(store, max_tokens=64, batch_tokens=640, seed=None)
    flat = torch.cat([batch.ids.flatten() for batch in plan.batches()])[: 9000 + 2 + 5].tolist()
    assert flat == text_of(store, 0, True) + text_of(store, 1, True)


def test_the_plan_of_a_config(tmp_path: Path) -> None:
    from stores import write_store

    store = write_store(tmp_path / "store", [(5, 1), (9, 1)])
    model = ModelConfig(family="decoder-only", vocab_size=50_000, use_bos=True, pad_id=None)
    config = Config(model=model, data=DataConfig(max_tokens=6, batch_tokens=12))
    plan = CausalObjective().batches(config, store)
    assert plan.fingerprint["seed"] == 1 and plan.fingerprint["use_bos"] is True
    in_order = packed_plan(config, store, seed=None)
    assert in_order.batch(np.array([0])).ids[0, 0] == model.bos_id
    assert [len(part.ids) for part in in_order.batches()] == [2, 1]
