"""The endless, resumable stream of batches that training consumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from glassformer.data.store import Integers
from glassformer.errors import CheckpointError

__all__ = ["AnyBatch", "BatchStream", "Batches", "EpochOrder", "UpdateGroup"]


class AnyBatch(Protocol):
    """What training needs to know of a batch; the rest is between the batches and the loss."""

    @property
    def n_tokens(self) -> int:
        """Predictions in this batch: the number by which a mean divides."""

    @property
    def n_src_tokens(self) -> int:
        """Tokens that are read beside those."""

    def to(self, device: torch.device) -> Any:
        """The same batch on a device."""


class EpochOrder(Protocol):
    """The batches of one epoch: item i holds the rows of the i-th one."""

    @property
    def variant(self) -> int:
        """Which tokenisation of the data they take."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int) -> Integers: ...


class Batches(Protocol):
    """How the rows of a store form batches, epoch by epoch: a pure function of the data, the seed and the epoch."""

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Everything that decides the batches and their order, as plain JSON."""

    def epoch(self, epoch: int) -> EpochOrder:
        """The batches of an epoch, counted from 0."""

    def batch(
        self, rows: Integers, variant: int = 0, *, epoch: int = 0, rank: int = 0, world_size: int = 1
    ) -> AnyBatch:
        """The part of one rank in the batch of `rows` in an epoch."""

    def n_tokens(self, rows: Integers, variant: int = 0, *, epoch: int = 0) -> int:
        """Predictions in the batch of `rows` in an epoch, over all ranks."""


@dataclass(frozen=True, kw_only=True)
class UpdateGroup:
    """The micro-batches of one update. Divide the summed loss by the counts, which cover all ranks."""

    batches: Sequence[AnyBatch]  # the parts of this rank; every rank has as many
    n_tokens: int  # target tokens with EOS, of all batches and ranks
    n_sentences: int  # pairs, of all batches and ranks
    epoch: int  # the epoch that they belong to, from 0


class BatchStream(Iterator[UpdateGroup]):
    """Yields the batches of epoch 0, 1, 2, ... in groups of `accumulation`, without end.

    The last group of an epoch holds what is left: nothing is dropped, and nothing carried into the next epoch. All
    ranks see the same batches and take every world_size-th row of each, so they make the same updates as one process.

    Batches are made when they are asked for, in the same thread. It takes about half a millisecond, less than a
    hundredth of a training step, and leaves no worker that could die or outlive the run.

    Args:
        plan: The batches.
        rank: Number of this process, from 0.
        world_size: Number of processes.
        accumulation: Batches of one update.
    """

    def __init__(self, plan: Batches, *, rank: int = 0, world_size: int = 1, accumulation: int = 1) -> None:
        self._plan, self._rank, self._world_size, self._accumulation = plan, rank, world_size, accumulation
        self._epoch = self._batch = self._seen_pairs = 0
        self._batches: EpochOrder | None = None  # of the epoch, planned when it is needed

    def __next__(self) -> UpdateGroup:
        plan, batches = self._plan, self._epoch_batches()
        stop = min(self._batch + self._accumulation, len(batches))
        parts = [batches[i] for i in range(self._batch, stop)]
        ranks = {"rank": self._rank, "world_size": self._world_size}
        group = UpdateGroup(
            batches=[plan.batch(rows, batches.variant, epoch=self._epoch, **ranks) for rows in parts],
            n_tokens=sum(plan.n_tokens(rows, batches.variant, epoch=self._epoch) for rows in parts),
            n_sentences=sum(map(len, parts)),
            epoch=self._epoch,
        )
        self._seen_pairs += group.n_sentences
        self._batch = stop
        if stop == len(batches):
            self._epoch, self._batch, self._batches = self._epoch + 1, 0, None
        return group

    def _epoch_batches(self) -> EpochOrder:
        if self._batches is None:
            self._batches = self._plan.epoch(self._epoch)
        return self._batches

    @property
    def updates_per_epoch(self) -> int:
        """Updates of the epoch that the stream is in. Epochs differ by a few, since their batches differ."""
        return -(-len(self._epoch_batches()) // self._accumulation)

    def updates_in(self, epoch: int) -> int:
        """Updates of any epoch, which is planned for it: the sum over epochs is the exact length of a run."""
        return -(-len(self._plan.epoch(epoch)) // self._accumulation)

    def state_dict(self) -> dict[str, Any]:
        """The place behind the last group delivered, as plain JSON: epoch, batches of it and pairs in all delivered."""
        place = {"epoch": self._epoch, "batch": self._batch, "seen_pairs": self._seen_pairs}
        return place | {"plan": self._plan.fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where another stream stood. Its rank, world_size and accumulation may have been others.

        Raises:
            CheckpointError: The other stream had other data, or another seed, batch_tokens or sort_window.
        """
        ours, theirs = self._plan.fingerprint, state["plan"]
        changed = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
        if changed:
            raise CheckpointError(
                "The batches have changed: "
                + ", ".join(f"{n} was {theirs.get(n)}, is {ours.get(n)}" for n in changed)
                + ".",
                "A run is resumed with the data and the batches with which it began.",
                "Set them as before, or start a new run.",
            )
        self._epoch, self._batch, self._seen_pairs = state["epoch"], state["batch"], state["seen_pairs"]
        self._batches = None
