"""From ids to vectors: the token table, with positions and segments added."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.norm import build_norm
from glassformer.model.positions import LearnedPositions, SinusoidalPositions, check_length

__all__ = ["InputEmbedding", "TokenEmbedding"]


class TokenEmbedding(nn.Module):
    """A learned table with one row per id; the id is the row's address: [B, T] -> [B, T, D].

    With `is_scaled`, rows are multiplied by sqrt(D) (Vaswani et al. 2017, section 3.4).
    """

    def __init__(self, *, vocab_size: int, d_model: int, is_scaled: bool) -> None:
        super().__init__()
        self.scale = math.sqrt(d_model) if is_scaled else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))

    def forward(self, ids: Tensor) -> Tensor:
        rows = F.embedding(ids, self.weight)
        return rows if self.scale == 1.0 else rows * self.scale


class InputEmbedding(nn.Module):
    """dropout(norm(E[ids] * sqrt(D) + positions + segments)); positions, segments and norm where the config has them.

    Shape: ids [B, T] -> [B, T, D].
    """

    def __init__(self, config: ModelConfig, *, tokens: TokenEmbedding, n_segments: int) -> None:
        super().__init__()
        self.max_positions = config.max_positions
        self.tokens = tokens
        self.positions: SinusoidalPositions | LearnedPositions | None = None
        if config.positions == "sinusoidal":
            is_interleaved = config.sinusoid_layout == "interleaved"
            self.positions = SinusoidalPositions(d_model=config.d_model, is_interleaved=is_interleaved)
        elif config.positions == "learned":
            assert config.max_positions is not None  # checked by ModelConfig
            self.positions = LearnedPositions(
                max_positions=config.max_positions, offset=config.position_offset, d_model=config.d_model
            )
        self.segments = nn.Parameter(torch.empty(n_segments, config.d_model)) if n_segments else None
        self.norm = build_norm(config) if config.use_embedding_norm else None
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, positions: Tensor, *, n_positions: int, segment_ids: Tensor | None = None) -> Tensor:
        """Args: ids [B, T]; positions [B or 1, T], all below n_positions; segment_ids [B, T], zeros when left out."""
        check_length(n_positions, self.max_positions)
        x: Tensor = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions(positions, n_positions=n_positions, dtype=x.dtype)
        if self.segments is not None:
            x = x + self.segments[torch.zeros_like(ids) if segment_ids is None else segment_ids]
        if self.norm is not None:
            x = self.norm(x)
        out: Tensor = self.dropout(x)
        return out
