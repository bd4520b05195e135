"""The endless, resumable stream of batches that training consumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from glassformer.data.batches import Batch, BatchPlan, EpochBatches
from glassformer.errors import CheckpointError

__all__ = ["BatchStream", "UpdateGroup"]


@dataclass(frozen=True, kw_only=True)
class UpdateGroup:
    """The micro-batches of one update. Divide the summed loss by the counts, which cover all ranks."""

    batches: list[Batch]  # the parts of this rank; every rank has as many
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

    def __init__(self, plan: BatchPlan, *, rank: int = 0, world_size: int = 1, accumulation: int = 1) -> None:
        self._plan, self._rank, self._world_size, self._accumulation = plan, rank, world_size, accumulation
        self._epoch = self._batch = self._seen_pairs = 0
        self._batches: EpochBatches | None = None  # of the epoch, planned when it is needed

    def __next__(self) -> UpdateGroup:
        plan, batches = self._plan, self._epoch_batches()
        stop = min(self._batch + self._accumulation, len(batches))
        parts = [batches[i] for i in range(self._batch, stop)]
        place = {"rank": self._rank, "world_size": self._world_size}
        group = UpdateGroup(
            batches=[plan.batch(rows, batches.variant, **place) for rows in parts],
            n_tokens=sum(plan.n_tokens(rows, batches.variant) for rows in parts),
            n_sentences=sum(map(len, parts)),
            epoch=self._epoch,
        )
        self._seen_pairs += group.n_sentences
        self._batch = stop
        if stop == len(batches):
            self._epoch, self._batch, self._batches = self._epoch + 1, 0, None
        return group

    def _epoch_batches(self) -> EpochBatches:
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
