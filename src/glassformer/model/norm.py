"""Normalisation over the features of each token."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import ModelConfig

__all__ = ["LayerNorm", "RMSNorm", "build_norm", "layer_norm", "rms_norm"]


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, eps: float) -> Tensor:
    """Reference: (x - mean) / sqrt(variance + eps) * gamma + beta, over the features of each token.

    Args:
        x: [..., D].
        gamma: [D], gain.
        beta: [D] or None, bias.
        eps: Added under the root; about 1e-5.

    Returns:
        [..., D].

    Source: Ba, Kiros & Hinton 2016, equation 4. The variance is the biased one (divided by D).
    """
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    y = (x - mean) / torch.sqrt(variance + eps) * gamma
    return y if beta is None else y + beta


def rms_norm(x: Tensor, gamma: Tensor, eps: float) -> Tensor:
    """Reference: x / sqrt(mean(x²) + eps) * gamma, without mean subtraction and bias.

    Source: Zhang & Sennrich 2019, equation 4; the norm of T5.
    """
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + eps) * gamma


class LayerNorm(nn.Module):
    """`layer_norm` with learned gamma [D] and beta [D], run by torch's kernel."""

    def __init__(self, *, d_model: int, eps: float, use_bias: bool) -> None:
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model)) if use_bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)


class RMSNorm(nn.Module):
    """`rms_norm` with learned gamma [D], run by torch's kernel."""

    def __init__(self, *, d_model: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.gamma.shape, self.gamma, self.eps)


def build_norm(config: ModelConfig) -> LayerNorm | RMSNorm:
    """The norm that the config names; every norm of a model is made here, so all share one epsilon."""
    if config.norm == "rmsnorm":
        return RMSNorm(d_model=config.d_model, eps=config.norm_eps)
    return LayerNorm(d_model=config.d_model, eps=config.norm_eps, use_bias=config.use_norm_bias)
