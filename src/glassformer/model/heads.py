"""What stands on top of a stack: projection to the vocabulary, masked-language head, pooler."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.embedding import TokenEmbedding
from glassformer.model.feedforward import ACTIVATIONS
from glassformer.model.norm import build_norm

__all__ = ["LabelHead", "MaskedLMHead", "OutputProjection", "Pooler", "pool"]


def pool(x: Tensor, mask: Tensor | None, *, how: str) -> Tensor:
    """One vector for each text: its first token's, or the mean or maximum over its real tokens.

    Args:
        x: [B, T, D].
        mask: bool [B, T], True at real tokens; None: all are. A text without any gives zeros for the mean.
        how: `first`, `mean` or `max`.

    Returns:
        [B, D].

    Source: Reimers & Gurevych 2019, section 3.
    """
    if how == "first":
        return x[:, 0]
    real = x.new_ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
    if how == "max":
        return x.masked_fill(~real[..., None], torch.finfo(x.dtype).min).amax(1)
    weights = real.to(x.dtype)[..., None]  # [B, T, 1]
    return (x * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


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
            tied=tied if config.is_output_tied else None,
            use_bias=True,
        )

    def transform(self, x: Tensor) -> Tensor:
        """What the projection votes on, norm(g(x W + b)): [..., D] -> [..., D]."""
        out: Tensor = self.norm(self.activation(self.dense(x)))
        return out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.projection(self.transform(x))
        return out


class Pooler(nn.Module):
    """tanh(W x_0 + b) of the first token: [B, T, D] -> [B, D]. Source: Devlin et al. 2019."""

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x[:, 0]))


class LabelHead(nn.Module):
    """Votes for L labels, dropout(x) W + b: of a text [B, D] -> [B, L], or of each token [B, T, D] -> [B, T, L]."""

    def __init__(self, *, d_model: int, n_labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(d_model, n_labels)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dense(self.dropout(x))
        return out
