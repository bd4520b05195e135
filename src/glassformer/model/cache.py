"""Keys and values of tokens already seen, so that a decoder computes each token once."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
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

    @property
    def room(self) -> int:
        """Positions that are free."""
        return self._k.shape[2] - self.length

    def join(self, other: LayerCache, length: int) -> None:
        """The rows of another follow. Both end at `length`: older positions are left out, missing ones are zero."""
        size = length + max(self.room, other.room)
        n_rows = len(self._k)
        k, v = (old.new_empty(n_rows + len(other._k), old.shape[1], size, old.shape[3]) for old in (self._k, self._v))
        for part, rows in ((self, slice(n_rows)), (other, slice(n_rows, None))):
            n = min(length, part.length)
            for new, old in ((k, part._k), (v, part._v)):
                new[rows, :, : length - n] = 0  # a key that is masked must still be a number
                new[rows, :, length - n : length] = old[:, :, part.length - n : part.length]
        self._k, self._v, self.length = k, v, length


@dataclass
class CrossCache:
    """Keys and values of the memory for one cross-attention, computed once per source: two of [B, G, S, K]."""

    k: Tensor
    v: Tensor

    def join(self, other: CrossCache) -> None:
        """The rows of another follow; the shorter memory is filled up with zeros, which its mask hides."""
        width = max(self.k.shape[2], other.k.shape[2])
        self.k, self.v = (
            torch.cat([F.pad(part, (0, 0, 0, width - part.shape[2])) for part in parts])
            for parts in ((self.k, other.k), (self.v, other.v))
        )


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

    @property
    def n_rows(self) -> int:
        """B."""
        return len(self.sources)

    def join(self, other: KVCache) -> None:
        """The rows of another cache of the same model follow. Rows that hold fewer tokens have pads on their left."""
        length = max(self._n_used(), other._n_used())
        for mine, its in zip(self.layers, other.layers, strict=True):
            mine.join(its, length)
        self._join_memory(other)
        parts = (self, other)
        if any(isinstance(part.next_positions, Tensor) for part in parts) or self.length != other.length:
            self.next_positions = torch.cat([part._next_by_row() for part in parts])
        if self.key_positions is not None:
            rows = [part._last(part.key_positions, length, 0).expand(part.n_rows, -1) for part in parts]
            self.key_positions = torch.cat(rows)
        if self.key_mask is not None or other.key_mask is not None or self.length != other.length:
            self.key_mask = torch.cat([part._last(part._whole_mask(), length, False) for part in parts])
        self.sources = torch.cat([self.sources, other.sources + self.sources.max() + 1])
        self.length = length

    def _join_memory(self, other: KVCache) -> None:
        if not self.cross:
            return
        widths = [part.cross[0].k.shape[2] for part in (self, other)]
        if self.memory_mask is not None or other.memory_mask is not None or widths[0] != widths[1]:
            masks = [
                self.sources.new_ones(part.n_rows, width, dtype=torch.bool)
                if part.memory_mask is None
                else part.memory_mask
                for part, width in zip((self, other), widths, strict=True)
            ]
            self.memory_mask = torch.cat([F.pad(mask, (0, max(widths) - mask.shape[1])) for mask in masks])
        for mine, its in zip(self.cross, other.cross, strict=True):
            mine.join(its)

    def _n_used(self) -> int:
        """Positions from the first one that is no pad in every row."""
        return self.length if self.key_mask is None else self.length - int(self.key_mask.any(0).int().argmax())

    def _whole_mask(self) -> Tensor:
        """The mask of all positions, [B, length]."""
        if self.key_mask is not None:
            return self.key_mask
        return self.sources.new_ones(self.n_rows, self.length, dtype=torch.bool)

    def _next_by_row(self) -> Tensor:
        """[B, 1]"""
        positions = torch.as_tensor(self.next_positions, device=self.sources.device)
        return positions.reshape(-1, 1).expand(self.n_rows, 1)

    def _last(self, values: Tensor | None, length: int, fill: int) -> Tensor:
        """The last `length` columns, filled up on the left."""
        assert values is not None
        n = min(length, values.shape[1])
        return F.pad(values[:, values.shape[1] - n :], (length - n, 0), value=fill)
