"""Several processes and machines through torch's own engine: DDP, or FSDP2 by a switch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from glassformer.model import Block

__all__ = ["Parallel", "spread", "whole"]


@dataclass(frozen=True)
class Parallel:
    """Which process this is. One process alone is rank 0 of 1, and every method then does next to nothing."""

    rank: int = 0
    world_size: int = 1

    @classmethod
    def start(cls) -> Parallel:
        """Joins the group that torchrun describes in the environment, if there is one."""
        if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        return cls(rank=dist.get_rank(), world_size=dist.get_world_size())

    @property
    def is_main(self) -> bool:
        """The one process that writes and prints."""
        return self.rank == 0

    def wrap(self, loss: nn.Module, *, fsdp: bool) -> nn.Module:
        """The loss module as this group runs it; gradients come out as the mean over processes."""
        if self.world_size == 1:
            return loss
        if not fsdp:
            return DistributedDataParallel(loss)
        from torch.distributed.fsdp import fully_shard  # costs a second, which one process alone need not wait

        for module in loss.modules():
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(loss, reshard_after_forward=False)
        return loss

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sums over all processes; also the point where they meet."""
        if self.world_size == 1:
            return list(values)
        device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
        tensor = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(tensor)
        return [float(value) for value in tensor.tolist()]

    def from_main(self, value: float) -> float:
        """The main process's value, in every process."""
        return self.sum([value if self.is_main else 0.0])[0]

    def finish(self) -> None:
        """Leaves the group."""
        if self.world_size > 1:
            dist.destroy_process_group()


def whole(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that are spread over processes, gathered; others as they are. Every process must call it."""
    detached = {name: tensor.detach() for name, tensor in tensors.items()}
    return {name: t.full_tensor() if hasattr(t, "full_tensor") else t for name, t in detached.items()}


def spread(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `whole` gave, on the devices and in the shards of the model's parameters, whatever they were before.

    A key is the name of a parameter, or `parameter/moment`. Step counts and the like stay whole.
    """
    parameters = dict(model.named_parameters())
    return {name: _like(value, parameters.get(name.partition("/")[0])) for name, value in tensors.items()}


def _like(value: Tensor, parameter: Tensor | None) -> Tensor:
    if parameter is None:
        return value
    value = value.to(parameter.device)
    if hasattr(parameter, "placements") and value.shape == parameter.shape:
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(parameter, DTensor)
        return distribute_tensor(value, parameter.device_mesh, parameter.placements)
    return value
