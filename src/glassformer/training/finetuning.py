"""What a run takes from the weights of another model, and which of its parameters it trains."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from glassformer.config import TrainingConfig
from glassformer.errors import CheckpointError, ConfigError
from glassformer.model.embedding import InputEmbedding
from glassformer.model.stack import Stack
from glassformer.model.transformer import Encoder
from glassformer.training.lora import add_adapters

__all__ = ["Taken", "choose_trained", "frozen_parameters", "take_weights"]

# What stands on a model for one task, and may be fresh; everything else must come from the start.
_HEADS = ("label_head.", "mlm_head.", "pooler.", "encoder.embedding.segments")
_PARTS: dict[str, tuple[type[nn.Module], ...]] = {
    "none": (),
    "embeddings": (InputEmbedding,),
    "encoder": (Encoder,),
    "body": (InputEmbedding, Stack),
}


class Taken(NamedTuple):
    """Names of parameters: taken over, fresh in the model, and left unused in the start."""

    taken: list[str]
    fresh: list[str]
    unused: list[str]


@torch.no_grad()
def take_weights(
    model: nn.Module, weights: Mapping[str, Tensor], source: str, *, without: tuple[str, ...] = ()
) -> Taken:
    """Fills a model from the weights of another one; heads that this one lacks, or has in another size, stay fresh.

    Args:
        model: Filled.
        weights: By their names in the other model.
        source: Its name, for errors.
        without: Beginnings of names that are not taken.

    Raises:
        CheckpointError: A parameter that is no head is missing, or has another shape.
    """
    parameters = dict(model.named_parameters())
    known = {name: w.shape for name, w in weights.items() if not name.startswith(without)}
    taken = [name for name, p in parameters.items() if known.get(name) == p.shape]
    fresh = [name for name in parameters if name not in set(taken)]
    lacking = [name for name in fresh if not name.startswith(_HEADS)]
    if lacking:
        raise CheckpointError(
            f"{source} lacks {', '.join(lacking[:5])}{' and more' if len(lacking) > 5 else ''}, or has another shape.",
            "All but the heads must come from the model that a run starts from.",
            "Start from a model of the same architecture.",
        )
    for name in taken:
        parameters[name].copy_(weights[name])
    return Taken(taken, fresh, sorted(weights.keys() - set(taken)))


def choose_trained(model: nn.Module, config: TrainingConfig, fresh: Collection[str] = ()) -> None:
    """Freezes what `training.frozen` names, or everything under adapters of `training.lora_rank`; never a fresh one.

    A frozen parameter gets no gradient, no decay and no state of the optimizer. A table that two parts share is frozen
    with either. Dropout stays as it is: it is no parameter, and a frozen part that drops makes the trained ones robust.

    Raises:
        ConfigError: The model has no such part, or nothing is left to train.
    """
    parts = [module for module in model.modules() if isinstance(module, _PARTS[config.frozen])]
    if config.frozen != "none" and not parts:
        raise ConfigError(
            f"training.frozen={config.frozen} and the model has no such part.",
            "A part of the model was expected.",
            "Use training.frozen=embeddings or body.",
        )
    for part in [model] if config.lora_rank else parts:
        part.requires_grad_(False)
    for name, parameter in model.named_parameters():
        if name in fresh:
            parameter.requires_grad_(True)
    if config.lora_rank:
        add_adapters(model, config)
    if all(not parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(
            f"training.frozen={config.frozen} freezes all parameters.",
            "Something must be left to train, such as a head of the task.",
            "Freeze a smaller part, or use training.lora_rank=8.",
        )


def frozen_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that training never changes, by name: checkpoints leave them to the start."""
    return {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
