"""How order is given to a model that would otherwise see a set: five schemes.

Sinusoidal and learned positions are vectors added to the embeddings. Rotary positions turn queries and keys.
T5-relative and ALiBi add a bias to the scores that depends on the distance between query and key.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.errors import LengthError

__all__ = [
    "ALiBi",
    "LearnedPositions",
    "RelativeBias",
    "SinusoidalPositions",
    "build_bias",
    "check_length",
    "rotary_phases",
    "rotate",
    "sinusoidal_table",
    "sinusoids",
]


def check_length(n_positions: int, max_positions: int | None) -> None:
    """Raises LengthError when a text needs more positions than the model has."""
    if max_positions is not None and n_positions > max_positions:
        raise LengthError(
            f"The text has {n_positions} tokens and max_positions={max_positions}.",
            f"This model takes at most {max_positions}.",
            "Split the text, or train with a larger max_positions.",
        )


def sinusoidal_table(n_positions: int, d_model: int, *, is_interleaved: bool = True) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)): [n_positions, D] float64.

    PE(pos + k) is a rotation of PE(pos) by angles that depend on k alone. Any length and any width, odd ones too
    (the last cosine is then left out). Without `is_interleaved` all sines come first, then all cosines.

    Source: Vaswani et al. 2017, section 3.5.
    """
    return sinusoids(torch.arange(n_positions), d_model, is_interleaved=is_interleaved)


def sinusoids(positions: Tensor, d_model: int, *, is_interleaved: bool = True) -> Tensor:
    """The rows of `sinusoidal_table` for any positions: int64 [...] -> float64 [..., D]."""
    even = torch.arange(0, d_model, 2, dtype=torch.float64, device=positions.device)
    angle = positions[..., None].double() / 10000 ** (even / d_model)  # [..., ceil(D / 2)]
    if is_interleaved:
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :d_model]
    return torch.cat([angle.sin(), angle.cos()[..., : d_model // 2]], dim=-1)


class SinusoidalPositions(nn.Module):
    """Fixed position vectors of any length; the table grows when a longer text comes.

    Shape: positions [B or 1, T] -> [B or 1, T, D].
    """

    def __init__(self, *, d_model: int, is_interleaved: bool) -> None:
        super().__init__()
        self.d_model, self.is_interleaved = d_model, is_interleaved
        # Not a buffer: `model.to(bfloat16)` must not round the table that is extended later.
        self._table = torch.empty(0, d_model)

    def forward(self, positions: Tensor, *, n_positions: int, dtype: torch.dtype) -> Tensor:
        table = self._table
        if len(table) < n_positions or table.dtype != dtype or table.device != positions.device:
            n_rows = len(table) if n_positions <= len(table) else max(n_positions, 2 * len(table), 128)
            with torch.inference_mode(False):  # the table is kept, and training may be the next to read it
                table = sinusoidal_table(n_rows, self.d_model, is_interleaved=self.is_interleaved)
                self._table = table = table.to(positions.device, dtype)
        return table[positions]


class LearnedPositions(nn.Module):
    """A second table, one learned row per position: [1, T] -> [1, T, D], bounded by its number of rows.

    With an offset, position p reads row p + offset; the rows before it are kept, as RoBERTa and BART have them.
    """

    def __init__(self, *, max_positions: int, offset: int, d_model: int) -> None:
        super().__init__()
        self.offset = offset
        self.weight = nn.Parameter(torch.empty(max_positions + offset, d_model))

    def forward(self, positions: Tensor, *, n_positions: int, dtype: torch.dtype) -> Tensor:
        check_length(n_positions, len(self.weight) - self.offset)
        return self.weight[positions + self.offset].to(dtype)


def rotary_phases(positions: Tensor, *, d_head: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of pos * base^(-2i/K): positions [B or 1, T] -> two of [B or 1, 1, T, K/2].

    Angles are computed in float64 from integer positions and rounded once, so that neighbours stay apart in bfloat16.
    """
    even = torch.arange(0, d_head, 2, dtype=torch.float64, device=positions.device)
    angle = positions[:, None, :, None].double() / base ** (even / d_head)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, phases: tuple[Tensor, Tensor], *, is_interleaved: bool) -> Tensor:
    """Turns each pair of features by its angle: (a, b) -> (a cos - b sin, a sin + b cos); x [B, H, T, K].

    The product of a query at m and a key at n then depends on m - n alone.

    Source: Su et al. 2021 (RoFormer), equation 34.
    """
    cos, sin = phases
    a, b = (x[..., 0::2], x[..., 1::2]) if is_interleaved else x.chunk(2, dim=-1)
    pair = (a * cos - b * sin, a * sin + b * cos)
    return torch.stack(pair, dim=-1).flatten(-2) if is_interleaved else torch.cat(pair, dim=-1)


class RelativeBias(nn.Module):
    """T5's bias: one learned number per head and bucket of distance, added to the scores of every layer.

    Half of the buckets hold one distance each, the rest grow with the logarithm up to `max_distance`.

    Shape: query positions [B or 1, T], key positions [B or 1, S] -> [B or 1, H, T, S].

    Source: Raffel et al. 2020, section 2.1.
    """

    def __init__(self, *, n_heads: int, n_buckets: int, max_distance: int, is_causal: bool) -> None:
        super().__init__()
        self.n_buckets, self.max_distance, self.is_causal = n_buckets, max_distance, is_causal
        self.weight = nn.Parameter(torch.empty(n_buckets, n_heads))

    def bucket(self, distance: Tensor) -> Tensor:
        """Bucket of each distance key - query, int64."""
        n_buckets = self.n_buckets
        start = torch.zeros_like(distance)
        if self.is_causal:
            distance = (-distance).clamp(min=0)
        else:  # the upper half of the buckets is for keys to the right
            n_buckets //= 2
            start = (distance > 0).long() * n_buckets
            distance = distance.abs()
        n_exact = n_buckets // 2
        ratio = torch.log(distance.clamp(min=1) / n_exact) / math.log(self.max_distance / n_exact)
        far = (n_exact + (ratio * (n_buckets - n_exact)).long()).clamp(max=n_buckets - 1)
        return start + torch.where(distance < n_exact, distance, far)

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = key_positions[:, None, :] - query_positions[:, :, None]  # [B, T, S]
        return self.weight[self.bucket(distance)].permute(0, 3, 1, 2)  # [B, T, S, H] -> [B, H, T, S]


class ALiBi(nn.Module):
    """A fixed bias of -slope * distance; head h of H has the slope 2^(-8h/H).

    Shape: query positions [B or 1, T], key positions [B or 1, S] -> [B or 1, H, T, S].

    Source: Press, Smith & Lewis 2022, section 3. For H that is no power of two, the slopes of the next lower
    power come first, then every second one of the next higher power.
    """

    def __init__(self, *, n_heads: int) -> None:
        super().__init__()
        power = 2 ** math.floor(math.log2(n_heads))
        slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
        slopes += [2 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
        self.slopes = slopes[:n_heads]

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = (key_positions[:, None, :] - query_positions[:, :, None]).abs()  # [B, T, S]
        slopes = torch.tensor(self.slopes, dtype=torch.get_default_dtype(), device=distance.device)
        return -slopes[None, :, None, None] * distance[:, None]


def build_bias(config: ModelConfig, *, is_causal: bool) -> RelativeBias | ALiBi | None:
    """The score bias that the config's position scheme needs, or None."""
    if config.positions == "alibi":
        return ALiBi(n_heads=config.n_heads)
    if config.positions == "t5_relative":
        return RelativeBias(
            n_heads=config.n_heads,
            n_buckets=config.n_relative_buckets,
            max_distance=config.max_relative_distance,
            is_causal=is_causal,
        )
    return None
