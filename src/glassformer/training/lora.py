"""Low-rank adapters: a matrix learns as W + (alpha / r) B A, with W fixed; merged, they leave an ordinary model."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import TrainingConfig
from glassformer.model.attention import Attention
from glassformer.model.feedforward import FeedForward

__all__ = ["LoraLinear", "add_adapters", "merge_adapters", "merged"]

_A, _B = "lora_a", "lora_b"


class LoraLinear(nn.Linear):
    """y = x W^T + b + (alpha / r) (x A^T) B^T. B starts at zero, so the first output is that of W to the bit.

    It is a linear map with two more parameters. W and b keep their names, and no name of a wrapper can reach a file.

    Args:
        base: The map W, b [out, in], [out] that the adapter is put on; its parameters are shared.
        rank: r, width of the bottleneck. A is [r, in], B is [out, r].
        alpha: Strength; alpha / r multiplies the product, so that the rate need not change with r.

    Shape: [..., in] -> [..., out].

    Source: Hu et al. 2021, section 4.1.
    """

    def __init__(self, base: nn.Linear, *, rank: int, alpha: float) -> None:
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(base.weight.new_empty(rank, base.in_features))
        self.lora_b = nn.Parameter(base.weight.new_zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.scale * F.linear(F.linear(x, self.lora_a), self.lora_b)


def add_adapters(model: nn.Module, config: TrainingConfig) -> None:
    """Puts adapters on the linear maps of the blocks: those of every attention, or the feed-forward ones too."""
    owners = Attention if config.lora_targets == "attention" else (Attention, FeedForward)
    for module in list(model.modules()):
        if isinstance(module, owners):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(module, name, LoraLinear(child, rank=config.lora_rank, alpha=config.lora_alpha))


@torch.no_grad()
def merge_adapters(model: nn.Module) -> None:
    """Turns each `LoraLinear` of the model into the `nn.Linear` that computes the same; a model without any stays."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LoraLinear):
                plain = nn.Linear(child.in_features, child.out_features, bias=child.bias is not None, device="meta")
                plain.weight, plain.bias = child.weight, child.bias
                plain.weight.copy_(_sum(child.weight, child.lora_a, child.lora_b, child.scale))
                setattr(module, name, plain.train(child.training))


@torch.no_grad()
def merged(weights: Mapping[str, Tensor], config: TrainingConfig) -> dict[str, Tensor]:
    """`merge_adapters` for tensors by name: those of the plain model. Without adapters they stay as they are."""
    plain = {name: w for name, w in weights.items() if name.rpartition(".")[2] not in (_A, _B)}
    for name, a in weights.items():
        owner, _, last = name.rpartition(".")
        if last == _A:
            scale = config.lora_alpha / config.lora_rank
            plain[f"{owner}.weight"] = _sum(weights[f"{owner}.weight"], a, weights[f"{owner}.{_B}"], scale)
    return plain


def _sum(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """W + scale B A, rounded once."""
    return (weight.double() + scale * (b.double() @ a.double())).to(weight.dtype)
