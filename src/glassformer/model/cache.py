"""Keys and values of tokens already seen, so that a decoder computes each token once."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.errors import LengthError

__all__ = ["CrossCache", "KVCache", "LayerCache"]


class LayerCache:
    """Keys and values of one self-attention, in memory laid out once: two of [B, G, S_max, K]."""

    def __init__(self, k: Tensor, v: Tensor) -> None:
        self._k, self._v = k, v
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds a chunk of any size, [B, G, T, K], and returns all keys and values so far, [B, G, S, K]."""
        end = self.length + k.shape[2]
        if end > self._k.shape[2]:
            raise LengthError(
                f"The cache holds {self._k.shape[2]} positions and {end} were asked for.",
                "Its size is fixed when it is made.",
                "Make it with a larger max_length.",
            )
        self._k[:, :, self.length : end] = k
        self._v[:, :, self.length : end] = v
        self.length = end
        return self._k[:, :, :end], self._v[:, :, :end]

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]; rows may be dropped, repeated and reordered."""
        n_kept, length = len(rows), self.length
        if n_kept > len(self._k):
            shape = (n_kept, *self._k.shape[1:])
            k, v = self._k.new_empty(shape), self._v.new_empty(shape)
        else:
            k, v = self._k[:n_kept], self._v[:n_kept]
        k[:, :, :length] = self._k[:, :, :length].index_select(0, rows)
        v[:, :, :length] = self._v[:, :, :length].index_select(0, rows)
        self._k, self._v = k, v


@dataclass
class CrossCache:
    """Keys and values of the memory for one cross-attention, computed once per source: two of [B, G, S, K]."""

    k: Tensor
    v: Tensor


@dataclass
class KVCache:
    """All that a decoder keeps between steps.

    Attributes:
        layers: One LayerCache per block.
        cross: One CrossCache per block with cross-attention, else empty.
        memory_mask: [B, S], True at real source tokens; None: all are real.
        key_mask: [B, length], True at real tokens seen so far; None: all are.
        key_positions: [B or 1, length], positions of those tokens, kept for biases by distance.
        next_positions: Position of the next token: one number, or [B, 1] when rows differ by their pads.
        length: Tokens seen so far, pads included.
        sources: [B], which source each row reads; rows of one source have equal cross keys and values.
    """

    layers: list[LayerCache]
    sources: Tensor
    cross: list[CrossCache] = field(default_factory=list)
    memory_mask: Tensor | None = None
    key_mask: Tensor | None = None
    key_positions: Tensor | None = None
    next_positions: Tensor | int = 0
    length: int = 0

    def advance_positions(self, n_tokens: int, mask: Tensor | None) -> int:
        """Moves `next_positions` past a chunk; returns how many positions have been used."""
        if mask is None and isinstance(self.next_positions, int):
            self.next_positions += n_tokens
            return self.next_positions
        n_real = n_tokens if mask is None else mask.sum(1, keepdim=True)  # [B, 1]
        advanced = torch.as_tensor(self.next_positions + n_real)
        self.next_positions = advanced
        return int(advanced.max())

    def extend_key_mask(self, mask: Tensor | None, ids: Tensor) -> Tensor | None:
        """Adds the mask of a chunk; returns that of all tokens so far, [B, length + T] or None."""
        if mask is None and self.key_mask is None:
            return None
        old = ids.new_ones(len(ids), self.length, dtype=torch.bool) if self.key_mask is None else self.key_mask
        new = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        self.key_mask = torch.cat([old, new], dim=1)
        return self.key_mask

    def select(self, rows: Tensor) -> None:
        """Row i continues the old row rows[i], in every layer and mask."""
        for layer in self.layers:
            layer.select(rows)
        if isinstance(self.next_positions, Tensor):
            self.next_positions = self.next_positions[rows]
        if self.key_mask is not None:
            self.key_mask = self.key_mask[rows]
        if self.key_positions is not None and len(self.key_positions) > 1:
            self.key_positions = self.key_positions[rows]
        sources = self.sources[rows]
        if torch.equal(sources, self.sources):
            return  # beams changed places inside their own source: the memory stays where it is
        self.sources = sources
        for cross in self.cross:
            cross.k, cross.v = cross.k.index_select(0, rows), cross.v.index_select(0, rows)
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask[rows]
