"""Masked batches: what is hidden, how often, and that it depends on seed, epoch and row alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import ABOUT, BOS, EOS, IDS, PAD, temporary_store, write_store

from glassformer.config import TokenizerConfig
from glassformer.data.chance import random_bits, shares
from glassformer.data.masking import MaskedBatch, MaskedPlan, text_ids
from glassformer.data.packing import IGNORED
from glassformer.data.store import TokenLists, TokenStore
from glassformer.data.writer import StoreWriter
from glassformer.text.tokenizer import SPECIALS, Tokenizer

MASK, UNK = 4, 3
TEXT = np.arange(10, 50_000)
LENGTHS = [(n, 1) for n in range(4, 65)]


def plan_of(store: TokenStore, **changes: Any) -> MaskedPlan:
    options: dict[str, Any] = {"share": 0.15, "use_whole_words": False, "use_bos": True, "mask_id": MASK}
    sizes = {"batch_tokens": 900, "sort_window": 30, "seed": 1}
    return MaskedPlan(store, text_ids=TEXT, **(options | sizes | IDS | changes))


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return write_store(tmp_path / "store", LENGTHS)


def batches(plan: MaskedPlan, epoch: int) -> Iterator[MaskedBatch]:
    order = plan.epoch(epoch)
    for i in range(len(order)):
        yield plan.batch(order[i], epoch=epoch)


def test_shares_and_what_is_never_hidden(store: TokenStore) -> None:
    """N16: 15 % of the ordinary tokens; of those 80 % mask, 10 % another one, 10 % kept; no special token, no pad."""
    plan, counts = plan_of(store), np.zeros(4)
    for epoch in range(40):
        for batch in batches(plan, epoch):
            is_target, hidden = batch.targets != IGNORED, batch.ids
            truth = [store.src(row).tolist() for row in batch.rows]
            for ids, targets, text in zip(hidden.tolist(), batch.targets.tolist(), truth, strict=True):
                assert (ids[0], ids[len(text) + 1], set(ids[len(text) + 2 :]) - {PAD}) == (BOS, EOS, set())
                inside = list(zip(ids[1:], targets[1:], text, strict=False))
                assert all(target in (IGNORED, token) for _, target, token in inside)
                assert all(shown == token for shown, target, token in inside if target == IGNORED)
                assert any(target != IGNORED for _, target, _ in inside)
                assert {targets[0], *targets[len(text) + 1 :]} == {IGNORED}
            new, old = hidden[is_target], batch.targets[is_target]
            is_other = (new != old) & (new != MASK)
            assert int(new[is_other].min() if is_other.any() else 10) >= 10  # never a special token
            counts += np.array([len(old), (new == MASK).sum(), is_other.sum(), (new == old).sum()])
    n_tokens = 40 * sum(n for n, _ in LENGTHS)
    assert counts[0] / n_tokens == pytest.approx(0.15, abs=0.01)
    assert (counts[1:] / counts[0]).tolist() == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


def test_each_epoch_hides_other_tokens_and_the_same_seed_the_same(store: TokenStore) -> None:
    """N16, R1: a pure function of seed, epoch and row, whatever the batch, and whatever was asked before."""
    rows = np.arange(40, 60)
    first, again = plan_of(store), plan_of(store, batch_tokens=123)
    list(batches(again, 3))
    assert torch.equal(first.batch(rows, epoch=2).targets, again.batch(rows, epoch=2).targets)
    alone = first.batch(rows[7:8], epoch=2)
    n = alone.ids.shape[1]
    assert torch.equal(alone.ids[0], first.batch(rows, epoch=2).ids[7][:n])
    for other in (first.batch(rows, epoch=3), plan_of(store, seed=2).batch(rows, epoch=2)):
        assert not torch.equal(first.batch(rows, epoch=2).targets, other.targets)


def test_the_store_is_left_as_it_is(store: TokenStore) -> None:
    before = store.sources.ids.copy()
    list(batches(plan_of(store), 0))
    assert np.array_equal(store.sources.ids, before)


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_counts_are_exact_over_all_ranks(store: TokenStore, world_size: int) -> None:
    """N10, N11, D10: ranks divide the rows; one without a row has no target and one row of input."""
    plan = plan_of(store, batch_tokens=130)
    order = plan.epoch(1)
    for i in range(len(order)):
        parts = [plan.batch(order[i], epoch=1, rank=rank, world_size=world_size) for rank in range(world_size)]
        whole = plan.batch(order[i], epoch=1)
        n_targets = [int((part.targets != IGNORED).sum()) for part in parts]
        assert n_targets == [part.n_tokens for part in parts]
        assert sum(n_targets) == whole.n_tokens == plan.n_tokens(order[i], epoch=1)
        assert whole.n_tokens + whole.n_src_tokens == int((whole.ids != PAD).sum())
        assert sum(part.n_src_tokens for part in parts) == whole.n_src_tokens
        assert all(len(part.ids) for part in parts)
        assert whole.ids.numel() <= 130 or len(whole.ids) == 1


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 9), st.floats(0.01, 0.99))
def test_every_row_predicts_something_and_about_its_share(lengths: list[int], seed: int, share: float) -> None:
    with temporary_store([(n, 1) for n in lengths]) as store:
        batch = plan_of(store, seed=seed, share=share, use_bos=False).batch(np.arange(len(lengths)))
        counts = (batch.targets != IGNORED).sum(1).tolist()
        assert counts == [max(1, round(share * n)) for n in lengths]


def test_special_tokens_inside_a_text_are_not_predicted(tmp_path: Path) -> None:
    """An imported vocabulary may make <unk> from text. A row of nothing else predicts nothing (N11)."""
    ids = np.array([UNK, 11, UNK, UNK, UNK, UNK], dtype=np.uint32)
    both = TokenLists(ids, np.array([0, 3, 6])), TokenLists(ids[:0], np.zeros(3, dtype=np.int64))
    with StoreWriter(tmp_path / "store", (50_000, 50_000), 1) as writer:
        writer.append([0, 0], [1, 2], [both], np.ones(2, dtype=np.bool_))
        writer.finish(ABOUT | {"n_variants": 1})
    plan = plan_of(TokenStore.open(tmp_path / "store"), use_bos=False)
    assert plan.batch(np.array([0, 1])).targets.tolist() == [[IGNORED, 11, IGNORED, IGNORED], [IGNORED] * 4]
    assert plan.n_tokens(np.array([1])) == 0


def whole_word_store(folder: Path, sizes: list[int], n_rows: int) -> TokenStore:
    """Rows of words with so many pieces each."""
    words = np.array(sizes * n_rows, dtype=np.uint32)
    n = sum(sizes)
    ids = np.arange(10, 10 + n * n_rows, dtype=np.uint32)
    src = TokenLists(ids, np.arange(n_rows + 1) * n)
    tgt = TokenLists(words, np.arange(n_rows + 1) * len(sizes))
    with StoreWriter(folder, (50_000, 50_000), 1) as writer:
        writer.append([0] * n_rows, range(n_rows), [(src, tgt)], np.ones(n_rows, dtype=np.bool_))
        writer.finish(ABOUT | {"n_variants": 1, "selection": {"with_words": True}})
    return TokenStore.open(folder)


def test_whole_words_are_hidden_together_and_as_many_tokens(tmp_path: Path) -> None:
    sizes = [1, 3, 2, 1, 5, 1, 1, 2, 4, 1, 1, 1, 2, 1, 1, 3]
    store = whole_word_store(tmp_path / "store", sizes, 500)
    plan = plan_of(store, use_whole_words=True, use_bos=False)
    ends = np.cumsum(sizes)
    n_chosen = 0
    for epoch in (0, 1):
        targets = plan.batch(np.arange(500), epoch=epoch).targets[:, :-1] != IGNORED
        for start, end in zip(ends - sizes, ends, strict=True):
            word = targets[:, start:end]
            assert torch.equal(word.all(1), word.any(1))
        assert bool(targets.any(1).all())
        n_chosen += int(targets.sum())
        assert plan.n_tokens(np.arange(500), epoch=epoch) == int(targets.sum())
    assert n_chosen / 1000 == pytest.approx(round(0.15 * sum(sizes)), abs=0.2)  # 4 of 30, as without words


def test_one_long_word_is_hidden_whole(tmp_path: Path) -> None:
    store = whole_word_store(tmp_path / "store", [9], 2)
    batch = plan_of(store, use_whole_words=True).batch(np.array([0, 1]))
    assert (batch.targets != IGNORED).sum(1).tolist() == [9, 9]


def test_text_ids_are_those_that_stand_for_text() -> None:
    tokenizer = Tokenizer.train(["le chat dort"] * 9, TokenizerConfig(n_sentinels=2), vocab_size=280)
    assert text_ids(tokenizer).tolist() == list(range(len(SPECIALS) + 2, tokenizer.vocab_size))


def test_random_bits_are_even_and_tell_keys_apart() -> None:
    bits = random_bits(1, np.arange(300)[:, None], np.arange(200))
    assert len(np.unique(bits)) == bits.size
    values = shares(bits)
    assert float(values.mean()) == pytest.approx(0.5, abs=0.005) and values.min() >= 0 and values.max() < 1
    ones = [(bits >> np.uint64(k) & np.uint64(1)).mean() for k in range(64)]
    assert ones == pytest.approx([0.5] * 64, abs=0.01)
    assert int(random_bits(1, 2)[0]) != int(random_bits(2, 1)[0])
    assert np.array_equal(random_bits(1, 5, np.arange(200)), bits[5])
