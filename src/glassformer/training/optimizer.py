"""Parameter groups, AdamW and Muon."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from glassformer.config import TrainingConfig
from glassformer.errors import CheckpointError

__all__ = ["build_optimizers", "optimizer_state", "parameter_groups", "restore_optimizer", "set_lr"]

Optimizers = Sequence[torch.optim.Optimizer]


def parameter_groups(model: nn.Module, *, use_muon: bool) -> dict[str, dict[str, nn.Parameter]]:
    """Every trainable parameter in exactly one group, a tied one once.

    `decayed`: matrices and tables. `plain`: norms and biases, never decayed. `muon`: with use_muon, the matrices
    inside the blocks (tables and the output projection stay with AdamW).
    """
    groups: dict[str, dict[str, nn.Parameter]] = {"decayed": {}, "plain": {}, "muon": {}}
    for name, parameter in model.named_parameters():  # gives a tied parameter once
        if not parameter.requires_grad:
            continue
        is_inner = use_muon and parameter.ndim == 2 and ".blocks." in name
        groups["muon" if is_inner else "decayed" if parameter.ndim > 1 else "plain"][name] = parameter
    return groups


def build_optimizers(model: nn.Module, config: TrainingConfig, *, lr: float) -> Optimizers:
    """AdamW (decoupled decay on matrices only), with Muon for the matrices of the blocks when chosen.

    Source: Loshchilov & Hutter 2019; Jordan et al. 2024 for Muon.
    """
    groups = parameter_groups(model, use_muon=config.optimizer == "muon")
    adamw = torch.optim.AdamW(
        [
            {"params": list(groups["decayed"].values()), "weight_decay": config.weight_decay},
            {"params": list(groups["plain"].values()), "weight_decay": 0.0},
        ],
        lr=lr,
        betas=(config.beta1, config.beta2),
        eps=config.adam_eps,
        fused=True,
    )
    optimizers: list[torch.optim.Optimizer] = [adamw]
    if groups["muon"]:
        optimizers.append(
            torch.optim.Muon(list(groups["muon"].values()), lr=config.muon_lr, weight_decay=config.weight_decay)
        )
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def set_lr(optimizers: Optimizers, factor: float) -> None:
    """Gives every group its peak rate times the factor."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor


def optimizer_state(model: nn.Module, optimizers: Optimizers) -> dict[str, Tensor]:
    """All moments and step counts as `parameter/key` -> tensor."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    state = {}
    for optimizer in optimizers:
        for parameter, values in optimizer.state.items():
            for key, value in values.items():
                state[f"{names[parameter]}/{key}"] = torch.as_tensor(value)
    return state


def restore_optimizer(model: nn.Module, optimizers: Optimizers, state: dict[str, Tensor]) -> None:
    """Puts back what `optimizer_state` gave; CheckpointError for a parameter that these optimizers do not have."""
    parameters = dict(model.named_parameters())
    owner = {p: opt for opt in optimizers for group in opt.param_groups for p in group["params"]}
    for name, value in state.items():
        parameter_name, _, key = name.partition("/")
        parameter = parameters.get(parameter_name)
        if parameter is None or parameter not in owner:
            raise CheckpointError(
                f"The saved state of the optimizer has {name!r}.",
                "Only parameters of this model were expected.",
                "Use the checkpoint of one run.",
            )
        owner[parameter].state[parameter][key] = value.clone()
