"""Several processes and machines through torch's own engine: DDP, or FSDP2 by a switch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from glassformer.model import Block
from glassformer.training.checkpoint import load_state
from glassformer.training.optimizer import optimizer_state, restore_optimizer

__all__ = ["Parallel"]


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

    def full_weights(self, model: nn.Module) -> dict[str, Tensor]:
        """All weights in whole, by name, a tied one once; every process must call it."""
        return {name: _whole(parameter.detach()) for name, parameter in model.named_parameters()}

    def full_moments(self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
        """The state of the optimizers in whole, as `parameter/key`; every process must call it."""
        return {name: _whole(value) for name, value in optimizer_state(model, optimizers).items()}

    def load(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        weights: dict[str, Tensor],
        moments: dict[str, Tensor],
    ) -> None:
        """Puts back what `full_weights` and `full_moments` gave, whatever the number of processes was."""
        parameters = dict(model.named_parameters())
        shards = {name: _like(value, parameters[name]) for name, value in weights.items() if name in parameters}
        load_state(model, shards, "The checkpoint")
        restore_optimizer(model, optimizers, {k: _like(v, parameters[k.rsplit("/", 1)[0]]) for k, v in moments.items()})

    def finish(self) -> None:
        """Leaves the group."""
        if self.world_size > 1:
            dist.destroy_process_group()


def _whole(tensor: Tensor) -> Tensor:
    """A tensor that is spread over processes, gathered; another one as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _like(value: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor, spread as the parameter is; step counts and the like stay whole."""
    if isinstance(parameter, DTensor) and value.shape == parameter.shape:
        return distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements)
    return value
