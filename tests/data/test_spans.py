"""Span corruption: nothing is lost, as much is hidden as asked for, and it depends on seed, epoch and row alone."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import BOS, EOS, IDS, PAD, temporary_store, write_store

from glassformer.data.spans import SpanPlan, corrupted, joined, span_counts
from glassformer.data.store import TokenStore
from glassformer.errors import ConfigError

SENTINELS = list(range(60_000, 60_100))


def plan_of(store: TokenStore, **changes: Any) -> SpanPlan:
    options: dict[str, Any] = {"sentinel_ids": SENTINELS, "share": 0.15, "mean_span": 3.0, "use_bos": False}
    sizes = {"batch_tokens": 300, "sort_window": 30, "seed": 1}
    return SpanPlan(store, **(options | sizes | IDS | changes))


def test_the_figure_of_the_paper() -> None:
    """Raffel et al. 2020, figure 2, but for its last sentinel."""
    text = np.array([20, 21, 22, 23, 24, 25, 26, 27, 28, 29])  # thank you for inviting me to your party last week
    src, tgt = corrupted(text, np.array([[2, 4], [8, 9]]), SENTINELS)
    assert src == [20, 21, 60_000, 24, 25, 26, 27, 60_001, 29]
    assert tgt == [60_000, 22, 23, 60_001, 28]
    assert joined(src, tgt, SENTINELS) == text.tolist()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=5),
    st.floats(0.01, 0.99),
    st.floats(1, 12),
    st.integers(0, 5),
)
def test_source_and_target_give_back_the_text(lengths: list[int], share: float, mean: float, epoch: int) -> None:
    with temporary_store([(n, 1) for n in lengths]) as store:
        plan = plan_of(store, share=share, mean_span=mean)
        rows = np.arange(len(lengths))
        hidden, spans = span_counts(np.array(lengths), share, mean)
        src_sizes, tgt_sizes = plan.sizes(store, rows)
        for row, (src, tgt) in enumerate(plan.pairs(rows, epoch)):
            assert joined(src, tgt, SENTINELS) == store.src(row).tolist()
            in_src = [token for token in src if token >= SENTINELS[0]]
            assert in_src == [token for token in tgt if token >= SENTINELS[0]] == SENTINELS[: spans[row]]
            assert len(tgt) - spans[row] == hidden[row] >= 1
            assert (len(src) + 1, len(tgt) + 1) == (src_sizes[row], tgt_sizes[row])
            assert all(a < 60_000 or b < 60_000 for a, b in pairwise(src))  # spans never touch
            assert all(a < 60_000 or b < 60_000 for a, b in pairwise([*tgt, 60_000]))  # nor are empty


def test_as_much_is_hidden_as_asked_for() -> None:
    lengths = np.arange(20, 240)
    hidden, spans = span_counts(lengths, 0.15, 3.0)
    assert hidden.sum() / lengths.sum() == pytest.approx(0.15, abs=0.001)
    assert hidden.sum() / spans.sum() == pytest.approx(3.0, abs=0.1)
    assert [int(count[0]) for count in span_counts(np.array([1]), 0.15, 3.0)] == [1, 1]


def test_every_place_is_hidden_as_often() -> None:
    """2 of 6 tokens in 2 spans: the 10 ways of placing them are equally likely, also at both ends."""
    with temporary_store([(6, 1)] * 3000) as store:
        plan = plan_of(store, share=0.34, mean_span=1.0)
        ways = Counter(tuple(i for i, t in enumerate(src) if t >= 60_000) for src, _ in plan.pairs(np.arange(3000)))
    assert len(ways) == 10 and min(ways.values()) > 230 and max(ways.values()) < 370


def test_each_epoch_hides_other_spans_and_the_same_seed_the_same(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(n, 1) for n in range(20, 60)])
    rows = np.arange(40)
    first, again = plan_of(store), plan_of(store, batch_tokens=999)
    again.pairs(rows, 7)
    assert first.pairs(rows, 2) == again.pairs(rows, 2)
    assert first.pairs(rows[5:6], 2) == first.pairs(rows, 2)[5:6]
    assert first.pairs(rows, 3) != first.pairs(rows, 2) != plan_of(store, seed=2).pairs(rows, 2)


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_batches_counts_and_ranks(tmp_path: Path, world_size: int) -> None:
    """N14: the decoder reads BOS and the target but its end. N10, D10: counts are exact over all ranks."""
    store = write_store(tmp_path / "store", [(n, 1) for n in range(1, 40)])
    plan = plan_of(store, use_bos=True)
    order = plan.epoch(1)
    for i in range(len(order)):
        whole = plan.batch(order[i], epoch=1)
        assert whole.src.numel() + whole.tgt_in.numel() <= 300
        for row, src, tgt_in, tgt_out in zip(whole.rows, whole.src, whole.tgt_in, whole.tgt_out, strict=True):
            text, target = plan.pairs(np.array([int(row)]), 1)[0]
            assert src[src != PAD].tolist() == [BOS, *text, EOS]
            assert tgt_in[tgt_in != PAD].tolist() == [BOS, *target]
            assert tgt_out[tgt_out != PAD].tolist() == [*target, EOS]
        parts = [plan.batch(order[i], epoch=1, rank=rank, world_size=world_size) for rank in range(world_size)]
        assert sum(part.n_tokens for part in parts) == whole.n_tokens == plan.n_tokens(order[i], epoch=1)
        assert whole.n_tokens == int((whole.tgt_out != PAD).sum())
        assert [part.n_tokens for part in parts] == [int((part.tgt_out != PAD).sum()) for part in parts]
        assert sum(part.n_src_tokens for part in parts) == int((whole.src != PAD).sum())
        assert all(len(part.src) for part in parts)


def test_every_row_stands_in_an_epoch_once(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(n, 1) for n in range(1, 40)])
    plan = plan_of(store)
    for batches in (list(map(plan.epoch(0).__getitem__, range(len(plan.epoch(0))))), list(plan.in_turn(np.arange(39)))):
        assert sorted(np.concatenate(batches).tolist()) == list(range(39))
    assert torch.equal(plan.batch(np.array([3])).rows, torch.tensor([3]))


def test_too_few_sentinels_are_refused(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(100, 1), (3, 1)])
    with pytest.raises(ConfigError, match="needs 5 sentinels, and the vocabulary has 4"):
        plan_of(store, sentinel_ids=SENTINELS[:4])
