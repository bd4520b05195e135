"""What stands on top of a stack: projection to the vocabulary, masked-language head, pooler."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.embedding import TokenEmbedding
from glassformer.model.feedforward import ACTIVATIONS
from glassformer.model.norm import build_norm

__all__ = ["MaskedLMHead", "OutputProjection", "Pooler"]


class OutputProjection(nn.Module):
    """logits = x W_vocab + b, a vote for each token; probabilities are softmax(logits).

    Args:
        vocab_size: V.
        d_model: D.
        tied: The token table whose rows are W_vocab's columns, or None for a matrix of its own.
        use_bias: Have b [V].
        scale: Factor of x before the product; D^-0.5 for tied T5, else 1.

    Shape: [B, T, D] -> [B, T, V].

    Source: Vaswani et al. 2017, section 3.4; Press & Wolf 2017 for the tied form.
    """

    def __init__(
        self, *, vocab_size: int, d_model: int, tied: TokenEmbedding | None, use_bias: bool, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model)) if tied is None else tied.weight
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if use_bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x if self.scale == 1.0 else x * self.scale, self.weight, self.bias)


class MaskedLMHead(nn.Module):
    """BERT's head: logits = norm(g(x W + b)) E^T + c, with the token table E and a bias c of its own.

    Source: Devlin et al. 2019 and its published code.
    """

    def __init__(self, config: ModelConfig, *, tied: TokenEmbedding) -> None:
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = build_norm(config)
        self.projection = OutputProjection(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            tied=None if config.tying == "none" else tied,
            use_bias=True,
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.projection(self.norm(self.activation(self.dense(x))))
        return out


class Pooler(nn.Module):
    """tanh(W x_0 + b) of the first token: [B, T, D] -> [B, D]. Source: Devlin et al. 2019."""

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x[:, 0]))
