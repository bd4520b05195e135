"""Batches of texts with labels, or of sentences whose words have labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.data.batches import BatchPlan, EpochBatches
from glassformer.data.packing import IGNORED
from glassformer.data.store import Integers, TokenStore

__all__ = ["Framed", "Framing", "Kind", "LabelBatch", "LabelBatches", "TargetMaker"]

Kind = Literal["single", "multi", "words"]


@dataclass(frozen=True, kw_only=True)
class Framed:
    """B texts as a model reads them, T tokens at most."""

    ids: Tensor  # int64 [B, T] begin token (where the model has one), text, end token, pads
    mask: Tensor  # bool [B, T] True at what is no pad
    segment_ids: Tensor | None  # int64 [B, T] 1 at the second text and its end; None: the model has no segments


class Framing:
    """Puts begin and end tokens around rows of ids and fills them with pads.

    `<s> a </s>` is segment 0; of two texts `<s> a </s> b </s>` the second one with its end is segment 1.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.start = [config.bos_id] if config.use_bos else []
        self.eos_id, self.pad_id = config.eos_id, config.pad_id or 0
        self.has_segments = config.n_segments > 1

    @property
    def n_added(self) -> int:
        """Tokens put around a row."""
        return len(self.start) + 1

    def __call__(self, rows: Sequence[Sequence[int] | Integers]) -> Framed:
        lengths = np.array([len(row) + self.n_added for row in rows])
        ids: NDArray[np.int64] = np.full((len(rows), lengths.max()), self.pad_id, dtype=np.int64)
        for i, row in enumerate(rows):
            ids[i, : lengths[i]] = [*self.start, *row, self.eos_id]
        mask = np.arange(ids.shape[1]) < lengths[:, None]
        segments = None
        if self.has_segments:
            is_end = (ids == self.eos_id) & mask
            n_before = np.cumsum(is_end, axis=1) - is_end  # ends before each place: its text's number
            segments = torch.from_numpy(np.where(mask, n_before, 0))
        return Framed(ids=torch.from_numpy(ids), mask=torch.from_numpy(mask), segment_ids=segments)


class TargetMaker:
    """What is to be predicted, from the `tgt` lists of a store: tensors with IGNORED where nothing is.

    single: the label of each text, int64 [B]. multi: 1 for a label that a text has and 0 for one that it has not,
    float32 [B, L]. words: the label at the first piece of each word, int64 [B, T].
    """

    def __init__(self, kind: Kind, *, n_labels: int, n_before: int) -> None:
        self.kind, self.n_labels, self.n_before = kind, n_labels, n_before

    def __call__(self, rows: Sequence[Integers], n_places: int) -> Tensor:
        if self.kind == "single":
            return torch.tensor([int(row[0]) for row in rows])
        if self.kind == "multi":
            has = torch.zeros(len(rows), self.n_labels)
            for flags, row in zip(has, rows, strict=True):
                flags[row.astype(np.int64)] = 1.0
            return has
        places = torch.full((len(rows), n_places), IGNORED)
        for i, row in enumerate(rows):
            numbers = torch.from_numpy(row.astype(np.int64))
            places[i, self.n_before : self.n_before + len(row)] = torch.where(numbers > 0, numbers - 1, IGNORED)
        return places

    def count(self, rows: Sequence[Integers]) -> int:
        """Predictions: texts, or words."""
        return sum(int(np.count_nonzero(row)) for row in rows) if self.kind == "words" else len(rows)


@dataclass(frozen=True, kw_only=True)
class LabelBatch:
    """B texts and what is to be predicted of them (see `TargetMaker`)."""

    ids: Tensor
    mask: Tensor
    segment_ids: Tensor | None
    targets: Tensor
    rows: Tensor  # int64 indices into the store
    n_tokens: int  # predictions: texts, or words
    n_src_tokens: int  # tokens that are no pads

    def to(self, device: torch.device) -> LabelBatch:
        """The same batch with its tensors on a device."""
        names = ("ids", "mask", "segment_ids", "targets", "rows")
        tensors = {name: getattr(self, name) for name in names}
        moved: dict[str, Any] = {k: None if t is None else t.to(device, non_blocking=True) for k, t in tensors.items()}
        return replace(self, **moved)


class LabelBatches:
    """The rows of a `BatchPlan`'s batches, framed, with their targets.

    Args:
        plan: Which rows form a batch.
        store: The rows, as `prepare_texts` or `prepare_words` wrote them.
        framing: Puts begin and end around them.
        targets: Makes what is to be predicted.
    """

    def __init__(self, plan: BatchPlan, store: TokenStore, framing: Framing, targets: TargetMaker) -> None:
        self._plan, self._framing, self._targets = plan, framing, targets
        self._variants = [store.variant(k) for k in range(store.n_variants)]

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Everything that decides the batches and their order, as plain JSON."""
        framing, targets = self._framing, self._targets
        more = {"use_bos": bool(framing.start), "has_segments": framing.has_segments, "n_labels": targets.n_labels}
        return self._plan.fingerprint | more | {"kind": targets.kind}

    def epoch(self, epoch: int) -> EpochBatches:
        """The batches of an epoch, counted from 0."""
        return self._plan.epoch(epoch)

    def n_tokens(self, rows: Integers, variant: int = 0, *, epoch: int = 0) -> int:
        """Predictions in the batch of `rows` [n], over all ranks."""
        return self._targets.count([self._variants[variant].tgt(i) for i in rows])

    def batch(
        self, rows: Integers, variant: int = 0, *, epoch: int = 0, rank: int = 0, world_size: int = 1
    ) -> LabelBatch:
        """The part of one rank in the batch of `rows` [n]: rows rank, rank + world_size, ...

        A rank for which there is no row gets the first one without any target, and adds nothing to any sum.
        """
        mine = rows[rank::world_size]
        chosen = mine if len(mine) else rows[:1]
        store = self._variants[variant]
        framed = self._framing([store.src(i) for i in chosen])
        numbers = [store.tgt(i) for i in chosen]
        targets = self._targets(numbers, framed.ids.shape[1])
        return LabelBatch(
            **vars(framed),
            targets=targets if len(mine) else torch.full_like(targets, IGNORED),
            rows=torch.from_numpy(mine.astype(np.int64)),
            n_tokens=self._targets.count(numbers) if len(mine) else 0,
            n_src_tokens=int(framed.mask.sum()) if len(mine) else 0,
        )
