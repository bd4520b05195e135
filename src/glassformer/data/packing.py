"""Documents packed end to end into rows of one length, for language modelling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.store import Integers, TokenStore

__all__ = ["IGNORED", "PackedBatch", "PackedEpoch", "PackedPlan"]

IGNORED = -100  # target of a place where nothing is predicted; the pad id will not do, since some models end with it


@dataclass(frozen=True, kw_only=True)
class PackedBatch:
    """B rows of T tokens. All tensors are int64 [B, T]."""

    ids: Tensor  # documents end to end, then pads
    targets: Tensor  # the token after each one; IGNORED at the end of a document and at pads
    documents: Tensor  # number of the document in its row, from 1; pads are 0
    n_tokens: int  # targets that are not IGNORED
    n_src_tokens: int = 0  # tokens that are read beside these: none

    def to(self, device: torch.device) -> PackedBatch:
        """The same batch with its tensors on a device."""
        names = ("ids", "targets", "documents")
        moved: dict[str, Any] = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        return replace(self, **moved)


@dataclass(frozen=True)
class _Line:
    """All documents of an epoch end to end: where each of them lies."""

    order: Integers  # [n] documents of the store
    ends: NDArray[np.int64]  # [n] place after the last token of each

    @property
    def n_tokens(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0


class PackedPlan:
    """How the documents of a store form rows of `max_tokens` tokens and batches of rows, epoch by epoch.

    The documents are permuted by (seed, epoch), each becomes `[bos] ids eos`, and the line of all tokens is cut into
    rows. Nothing is dropped: a document that reaches over the end of a row goes on in the next one, where it counts
    as a document of its own, and the last row is filled with pads. Every token but the first of each document is the
    target of the token before it exactly once an epoch, also over the end of a row; so every EOS is predicted. With
    `use_bos` the first token of each text is predicted too, from BOS. (Documents are the source side of the store.)

    When the store has several variants, epoch e uses variant e modulo their number.

    Args:
        store: The documents.
        max_tokens: T, tokens of a row.
        batch_tokens: Most tokens of a batch; a batch has one row at least.
        seed: Of the order, 0 or more; None: the order of the store in every epoch, for validation.
        pad_id, bos_id, eos_id: Ids of the model.
        use_bos: Begin each document with BOS.
        across_documents: Let a row be one text: documents see those before them, and EOS predicts the first token of
            the next document (as GPT-2 was trained).

    Cost: 12 bytes a document for each of the two last epochs asked for.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        max_tokens: int,
        batch_tokens: int,
        seed: int | None,
        pad_id: int,
        bos_id: int,
        eos_id: int,
        use_bos: bool,
        across_documents: bool = False,
    ) -> None:
        self.max_tokens, self.batch_tokens, self.seed = max_tokens, batch_tokens, seed
        self.use_bos, self.across_documents = use_bos, across_documents
        self.pad_id, self.bos_id, self.eos_id = pad_id, bos_id, eos_id
        self._variants = [store.variant(k) for k in range(store.n_variants)]
        self._line = lru_cache(maxsize=2)(self._arranged)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Everything that decides the batches and their order, as plain JSON."""
        names = ("seed", "max_tokens", "batch_tokens", "use_bos", "across_documents", "pad_id", "bos_id", "eos_id")
        store = self._variants[0]
        return {name: getattr(self, name) for name in names} | {"n_documents": len(store), "data": store.checksum}

    def epoch(self, epoch: int) -> PackedEpoch:
        """The batches of an epoch, counted from 0."""
        n_rows = -(-self._line(epoch).n_tokens // self.max_tokens)
        return PackedEpoch(epoch % len(self._variants), n_rows, max(1, self.batch_tokens // self.max_tokens))

    def batch(
        self, rows: Integers, variant: int = 0, *, epoch: int = 0, rank: int = 0, world_size: int = 1
    ) -> PackedBatch:
        """The part of one rank in the batch of `rows` [n]: rows rank, rank + world_size, ...

        A rank for which there is no row gets the first one without any target, and adds nothing to any sum.
        """
        mine = rows[rank::world_size]
        batch = self._filled(mine if len(mine) else rows[:1], variant, self._line(epoch))
        return batch if len(mine) else replace(batch, targets=torch.full_like(batch.targets, IGNORED), n_tokens=0)

    def n_tokens(self, rows: Integers, variant: int = 0, *, epoch: int = 0) -> int:
        """Targets of `rows` [n], over all ranks."""
        line = self._line(epoch)
        starts = rows.astype(np.int64) * self.max_tokens
        stops = np.minimum(starts + self.max_tokens, line.n_tokens)
        without = stops == line.n_tokens  # the last token of all is followed by nothing
        if not self.across_documents:
            without = np.searchsorted(line.ends, stops, "right") - np.searchsorted(line.ends, starts, "right")
        return int((stops - starts - without).sum())

    def batches(self, *, rank: int = 0, world_size: int = 1) -> Iterator[PackedBatch]:
        """The batches of epoch 0 in turn, such as for validation with `seed=None`."""
        epoch = self.epoch(0)
        for i in range(len(epoch)):
            yield self.batch(epoch[i], epoch.variant, rank=rank, world_size=world_size)

    def _arranged(self, epoch: int) -> _Line:
        """Permutes the documents by sorting the raw numbers of Philox (seed, epoch), as `BatchPlan.epoch` does."""
        store = self._variants[epoch % len(self._variants)]
        order: Integers = np.arange(len(store), dtype=np.uint32 if len(store) < 1 << 32 else np.int64)
        if self.seed is not None:
            generator = np.random.Philox(key=np.array([self.seed, epoch], dtype=np.uint64))
            order = order[np.argsort(generator.random_raw(len(store)), kind="stable")]
        return _Line(order, np.cumsum(store.sources.lengths(order.astype(np.int64)) + 1 + self.use_bos))

    def _filled(self, rows: Integers, variant: int, line: _Line) -> PackedBatch:
        # One place more than a row has: the target of its last token stands at the start of the next row.
        places = rows[:, None].astype(np.int64) * self.max_tokens + np.arange(self.max_tokens + 1)  # [B, T + 1]
        is_real = places < line.n_tokens
        numbers = np.searchsorted(line.ends, np.minimum(places, line.n_tokens - 1), "right")  # document of each place
        ids = np.where(is_real, self._tokens(places, numbers, variant, line), self.pad_id)
        documents = np.where(is_real, 1 if self.across_documents else numbers - numbers[:, :1] + 1, 0)
        has_target = is_real[:, 1:] & (documents[:, 1:] == documents[:, :-1])
        return PackedBatch(
            ids=torch.from_numpy(ids[:, :-1]),
            targets=torch.from_numpy(np.where(has_target, ids[:, 1:], IGNORED)),
            documents=torch.from_numpy(documents[:, :-1]),
            n_tokens=int(has_target.sum()),
        )

    def _tokens(self, places: Integers, numbers: Integers, variant: int, line: _Line) -> NDArray[np.int64]:
        """The tokens at places of the line; each lies in the document `numbers` of it."""
        lists = self._variants[variant].sources
        chosen = line.order[numbers].astype(np.int64)
        lengths = lists.lengths(chosen)
        inside = places - (line.ends[numbers] - lengths - 1)  # place in the text: -1 is BOS, `lengths` EOS
        is_text = (inside >= 0) & (inside < lengths)
        tokens = np.where(inside < 0, self.bos_id, self.eos_id)
        tokens[is_text] = lists.ids[lists.offsets[chosen[is_text]] + inside[is_text]]
        return tokens


@dataclass(frozen=True)
class PackedEpoch:
    """The batches of one epoch: `batches[i]` holds the rows of the i-th one, which follow one another."""

    variant: int
    n_rows: int
    rows_per_batch: int

    def __len__(self) -> int:
        return -(-self.n_rows // self.rows_per_batch)

    def __getitem__(self, i: int) -> Integers:
        start = range(len(self))[i] * self.rows_per_batch
        return np.arange(start, min(start + self.rows_per_batch, self.n_rows))
