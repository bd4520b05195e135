"""The position-wise feed-forward network: each token on its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import Activation

__all__ = ["ACTIVATIONS", "FeedForward"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,  # max(0, x)
    "gelu": F.gelu,  # x Φ(x), Φ the normal distribution function: the exact form
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # its approximation by tanh, as in GPT-2
    "silu": F.silu,  # x σ(x)
}


class FeedForward(nn.Module):
    """FFN(x) = g(x W_1 + b_1) W_2 + b_2, or gated: (g(x W_1 + b_1) * (x W_3 + b_3)) W_2 + b_2.

    Args:
        d_model: D, width in and out.
        d_ff: F, inner width.
        activation: g.
        is_gated: Use the gated form.
        use_bias: Have b_1, b_2 (and b_3).
        dropout: Share of the inner features dropped in training.

    Shape: [B, T, D] -> [B, T, F] -> [B, T, D].

    Source: Vaswani et al. 2017, section 3.3, equation 2; Shazeer 2020 for the gated form.
    """

    def __init__(
        self, *, d_model: int, d_ff: int, activation: Activation, is_gated: bool, use_bias: bool, dropout: float
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.w_1 = nn.Linear(d_model, d_ff, bias=use_bias)
        self.w_2 = nn.Linear(d_ff, d_model, bias=use_bias)
        self.w_3 = nn.Linear(d_model, d_ff, bias=use_bias) if is_gated else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.w_1(x))
        if self.w_3 is not None:
            inner = inner * self.w_3(x)
        if self.training:
            inner = self.dropout(inner)
        out: Tensor = self.w_2(inner)
        return out
