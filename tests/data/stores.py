"""Small token stores for the tests of batches, without a tokenizer."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from glassformer.data.batches import BatchPlan
from glassformer.data.store import TokenLists, TokenStore
from glassformer.data.writer import StoreWriter

PAD, BOS, EOS = 0, 1, 2
IDS: dict[str, Any] = {"pad_id": PAD, "bos_id": BOS, "eos_id": EOS}
ABOUT: dict[str, Any] = {
    "n_read": 0,
    "excluded": {},
    "domains": [""],
    "src_vocab_hash": "s",
    "tgt_vocab_hash": "t",
    "bpe_dropout": 0.0,
    "selection": {},
    "inputs_sha256": "",
}


def token_lists(lengths: Sequence[int], first: int) -> TokenLists:
    """Lists of the given lengths whose ids count upwards, so that no two tokens are equal."""
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    return TokenLists(np.arange(first, first + offsets[-1], dtype=np.uint32), offsets)


def write_store(folder: Path, lengths: Sequence[tuple[int, int]], n_variants: int = 1) -> TokenStore:
    """A store with one pair for each (source length, target length); variant k has k more target tokens a pair."""
    n = len(lengths)
    variants = [
        (token_lists([s for s, _ in lengths], 10), token_lists([t + k for _, t in lengths], 20_000))
        for k in range(n_variants)
    ]
    with StoreWriter(folder, (50_000, 50_000), n_variants) as writer:
        writer.append([0] * n, range(101, 101 + n), variants, np.ones(n, dtype=np.bool_))
        writer.finish(ABOUT | {"n_variants": n_variants})
    return TokenStore.open(folder)


@contextlib.contextmanager
def temporary_store(lengths: Sequence[tuple[int, int]], n_variants: int = 1) -> Iterator[TokenStore]:
    """A store that is gone afterwards; for property tests, which run many times in one test.

    It need not survive a power cut, and waiting for the disk is most of the time of writing a small store.
    """
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        yield write_store(Path(folder) / "store", lengths, n_variants)


def plan_for(store: TokenStore, *, batch_tokens: int = 40, sort_window: int = 8, seed: int = 1) -> BatchPlan:
    return BatchPlan(store, batch_tokens=batch_tokens, sort_window=sort_window, seed=seed, **IDS)
