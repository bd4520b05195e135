"""Batches of queries and passages for contrastive training."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.data.batches import BatchPlan, EpochBatches
from glassformer.data.store import Integers, TokenStore

__all__ = ["TripleBatch", "TripleBatches", "passages_of", "text_keys"]


@dataclass(frozen=True, kw_only=True)
class TripleBatch:
    """Q queries and P passages: the positive of each query in their order, then all hard negatives. All int64."""

    queries: Tensor  # (Q, S) begin, query, end, pads
    passages: Tensor  # (P, T) begin, passage, end, pads
    query_keys: Tensor  # (Q,) equal for equal texts
    passage_keys: Tensor  # (P,)
    rows: Tensor  # (Q,) indices into the store
    n_tokens: int  # queries that count
    n_src_tokens: int  # tokens that are no pads

    def to(self, device: torch.device) -> TripleBatch:
        """The same batch with its tensors on a device."""
        names = ("queries", "passages", "query_keys", "passage_keys", "rows")
        moved: dict[str, Any] = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        return replace(self, **moved)


class TripleBatches:
    """The rows of a `BatchPlan`'s batches as queries and passages.

    Several processes take every world_size-th row each. The part of a process is contrasted by itself, so a query has
    fewer negatives than in one process; sums over the parts still count each query once.

    Args:
        plan: Which rows form a batch.
        store: The rows, as `prepare_triples` wrote them.
        use_bos: A text begins with bos_id.
        pad_id, bos_id, eos_id: Ids around the texts.
    """

    def __init__(
        self, plan: BatchPlan, store: TokenStore, *, use_bos: bool, pad_id: int, bos_id: int, eos_id: int
    ) -> None:
        self._plan = plan
        self._variants = [store.variant(k) for k in range(store.n_variants)]
        self._start = [bos_id] if use_bos else []
        self._pad_id, self._eos_id = pad_id, eos_id

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Everything that decides the batches and their order, as plain JSON."""
        return self._plan.fingerprint | {"use_bos": bool(self._start)}

    def epoch(self, epoch: int) -> EpochBatches:
        """The batches of an epoch, counted from 0."""
        return self._plan.epoch(epoch)

    def n_tokens(self, rows: Integers, variant: int = 0, *, epoch: int = 0) -> int:
        """Queries in the batch of `rows` [n]."""
        return len(rows)

    def batch(
        self, rows: Integers, variant: int = 0, *, epoch: int = 0, rank: int = 0, world_size: int = 1
    ) -> TripleBatch:
        """The part of one rank in the batch of `rows` [n]; a rank without rows gets the first one, which counts 0."""
        mine = rows[rank::world_size]
        chosen = mine if len(mine) else rows[:1]
        store = self._variants[variant]
        queries = [store.src(i).tolist() for i in chosen]
        groups = [passages_of(store, i, self._eos_id) for i in chosen]
        passages = [group[0] for group in groups] + [text for group in groups for text in group[1:]]
        framed = [[[*self._start, *ids, self._eos_id] for ids in texts] for texts in (queries, passages)]
        return TripleBatch(
            queries=self._padded(framed[0]),
            passages=self._padded(framed[1]),
            query_keys=text_keys(queries),
            passage_keys=text_keys(passages),
            rows=torch.from_numpy(mine.astype(np.int64)),
            n_tokens=len(mine),
            n_src_tokens=sum(map(len, (*framed[0], *framed[1]))) if len(mine) else 0,
        )

    def _padded(self, texts: list[list[int]]) -> Tensor:
        ids = torch.full((len(texts), max(map(len, texts))), self._pad_id)
        for row, text in zip(ids, texts, strict=True):
            row[: len(text)] = torch.tensor(text)
        return ids


def passages_of(store: TokenStore, i: int, eos_id: int) -> list[list[int]]:
    """The positive of row i and its hard negatives, without their ends."""
    ids = store.tgt(i)
    ends = np.flatnonzero(ids == eos_id)
    return [part[part != eos_id].tolist() for part in np.split(ids, ends[:-1] + 1)]


def text_keys(texts: Sequence[Sequence[int]]) -> Tensor:
    """A number for each text [n], the same for equal ids: 63 bits of their hash."""
    digests = [hashlib.blake2b(np.array(ids, dtype="<u4").tobytes(), digest_size=8).digest() for ids in texts]
    return torch.tensor([int.from_bytes(digest, "little") >> 1 for digest in digests], dtype=torch.int64)
