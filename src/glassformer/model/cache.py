"""Keys and values of tokens already seen, so that a decoder computes each token once."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.errors import LengthError

__all__ = ["CrossCache", "KVCache", "LayerCache"]

MAX_WIDTH = 16  # with more branches, attention to the keys of the others costs more than a copy of their own


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
            n_same = 0
        else:
            k, v = self._k[:n_kept], self._v[:n_kept]
            n_same = int((rows == torch.arange(n_kept, device=rows.device)).cumprod(0).sum())  # they stay in place
        k[n_same:, :, :length] = self._k[:, :, :length].index_select(0, rows[n_same:])
        v[n_same:, :, :length] = self._v[:, :, :length].index_select(0, rows[n_same:])
        self._k, self._v = k, v

    def keep(self, places: Tensor) -> None:
        """Of each row's positions those at `places` [B, n] stay, in this order."""
        n = places.shape[1]
        index = places[:, None, :, None].expand(-1, self._k.shape[1], -1, self._k.shape[3])
        for old in (self._k, self._v):
            old[:, :, :n] = old.gather(2, index)
        self.length = n

    def grow(self, size: int) -> None:
        """Makes room for `size` positions in all. What is not written yet is not touched, so it takes no memory yet."""
        n_rows, n_heads, _, width = self._k.shape
        k, v = (old.new_empty(n_rows, n_heads, size, width) for old in (self._k, self._v))
        for new, old in ((k, self._k), (v, self._v)):
            new[:, :, : self.length] = old[:, :, : self.length]
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
    """All that a decoder keeps between steps, for R rows of B texts.

    A text may go on in W branches, the beams of a search: rows b W to b W + W - 1 are those of text b. Branches share
    the memory and all keys and values of their text. What one of them does not descend from it does not see, so that
    beams change places without moving a number. Attention to keys that are hidden costs less than moving keys, and
    when memory is full, those that no branch sees any more are swept out.

    Attributes:
        layers: One LayerCache per block.
        cross: One CrossCache per block with cross-attention, else empty.
        memory_mask: [B, S], True at real source tokens; None: all are real.
        key_mask: [B, length], True at real tokens seen so far; None: all are. Of texts in one branch.
        branches: bool [B, W, length], True at the tokens that a branch sees; None: W = 1, and `key_mask` holds.
        key_positions: [B or 1, length], positions of those tokens, kept for biases by distance.
        next_positions: Position of the next token: one number, or [B, 1] when texts differ by their pads.
        length: Tokens kept of each text so far, pads and all branches included.
        max_length: Most tokens of a branch.
        sources: [B], which source each text reads; texts of one source have equal cross keys and values.

    Source: the mask of branches is that of Miao et al. 2024 (SpecInfer), section 4.2.
    """

    layers: list[LayerCache]
    sources: Tensor
    cross: list[CrossCache] = field(default_factory=list)
    memory_mask: Tensor | None = None
    key_mask: Tensor | None = None
    branches: Tensor | None = None
    key_positions: Tensor | None = None
    next_positions: Tensor | int = 0
    length: int = 0
    max_length: int = 0

    @property
    def n_texts(self) -> int:
        """B."""
        return len(self.sources)

    @property
    def width(self) -> int:
        """W."""
        return 1 if self.branches is None else self.branches.shape[1]

    @property
    def n_rows(self) -> int:
        """R = B W."""
        return self.n_texts * self.width

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

    def extend_branches(self) -> Tensor:
        """Adds one token to each branch, which it alone sees; returns the mask of all, [B, W, length + W]."""
        assert self.branches is not None
        if self.layers[0].room < self.width:
            self._sweep()
        if self.layers[0].room < self.width:
            # As if each branch were a text of its own; more only where texts of other ages have joined.
            size = max(self.width * self.max_length, self.length + self.length // 2 + self.width)
            for layer in self.layers:
                layer.grow(size)
        own = torch.eye(self.width, dtype=torch.bool, device=self.branches.device).expand(self.n_texts, -1, -1)
        self.branches = torch.cat([self.branches, own], dim=2)
        return self.branches

    def _sweep(self) -> None:
        """Leaves out the tokens that no branch of their text sees, unless they are few."""
        assert self.branches is not None
        is_seen = self.branches.any(1)  # [B, length]
        if 4 * int(is_seen.sum(1).max()) <= 3 * self.length:
            places = self._gather(is_seen)
            self.branches = self.branches.gather(2, places[:, None].expand(-1, self.width, -1))

    def _gather(self, is_seen: Tensor) -> Tensor:
        """Keeps the tokens that are seen, bool [B, length], in their order; texts that see fewer keep others besides.

        Returns:
            Their places before, int64 [B, n], for the masks to follow.
        """
        n_seen = int(is_seen.sum(1).max())
        places = is_seen.int().argsort(dim=1, descending=True, stable=True)[:, :n_seen]
        if self.key_positions is not None:
            self.key_positions = self.key_positions.expand(self.n_texts, -1).gather(1, places)
        for layer in self.layers:
            layer.keep(places)
        self.length = n_seen
        return places

    def select(self, rows: Tensor) -> None:
        """Row i continues the old row rows[i]: rows may be dropped, repeated and reordered.

        When every text has equally many of the rows, one after the other and not too many, they are branches of it.
        Else each row becomes a text of its own.
        """
        texts, counts = torch.unique_consecutive(rows // self.width, return_counts=True)
        width = len(rows) // max(1, len(texts))
        if width > MAX_WIDTH or not bool((counts == width).all()):
            width = 1
        seen = self._seen()
        if seen is not None or width > 1:
            if seen is None:
                seen = self.sources.new_ones(self.n_rows, self.length, dtype=torch.bool)
            seen = seen[rows]
        if width > 1:
            assert seen is not None
            self.key_mask, self.branches = None, seen.view(len(texts), width, self.length)
            self._select_texts(texts)
        else:
            self._separate(rows, seen)

    def separate(self) -> None:
        """Each branch becomes a text of its own, which may go on by any number of tokens."""
        if self.branches is not None:
            self._separate(torch.arange(self.n_rows, device=self.sources.device), self._seen())

    def _separate(self, rows: Tensor, seen: Tensor | None) -> None:
        """Row i becomes a text of its own that continues the old row rows[i] and sees seen[i]."""
        texts, has_branches = rows // self.width, self.branches is not None
        self.key_mask, self.branches = seen, None
        self._select_texts(texts)
        if has_branches and seen is not None:
            self.key_mask = seen.gather(1, self._gather(seen))

    def _seen(self) -> Tensor | None:
        """What each row sees, [R, length]; None: all."""
        return self.key_mask if self.branches is None else self.branches.flatten(0, 1)

    def _select_texts(self, texts: Tensor) -> None:
        """Text i continues the old text texts[i], in every layer and mask but those of keys."""
        if len(texts) == self.n_texts and torch.equal(texts, torch.arange(len(texts), device=texts.device)):
            return
        for layer in self.layers:
            layer.select(texts)
        if isinstance(self.next_positions, Tensor):
            self.next_positions = self.next_positions[texts]
        if self.key_positions is not None and len(self.key_positions) > 1:
            self.key_positions = self.key_positions[texts]
        sources = self.sources[texts]
        if torch.equal(sources, self.sources):
            return  # texts changed places inside their own source: the memory stays where it is
        self.sources = sources
        for cross in self.cross:
            cross.k, cross.v = cross.k.index_select(0, texts), cross.v.index_select(0, texts)
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask[texts]

    def join(self, other: KVCache) -> None:
        """The rows of another cache of the same model follow. Texts that hold fewer tokens have pads on their left."""
        if self.width != other.width:  # texts of one cache have equally many branches
            self.separate()
            other.separate()
        parts = (self, other)
        for part in parts:
            part._tidy()
        length = max(part._n_used() for part in parts)
        for mine, its in zip(self.layers, other.layers, strict=True):
            mine.join(its, length)
        self._join_memory(other)
        if (
            any(isinstance(part.next_positions, Tensor) for part in parts)
            or self.next_positions != other.next_positions
        ):
            self.next_positions = torch.cat([part._next_by_text() for part in parts])
        if self.key_positions is not None:
            rows = [part._last(part.key_positions, length, 0).expand(part.n_texts, -1) for part in parts]
            self.key_positions = torch.cat(rows)
        if self.branches is not None:
            self.branches = torch.cat([part._last(part.branches, length, False) for part in parts])
        elif self.key_mask is not None or other.key_mask is not None or self.length != other.length:
            self.key_mask = torch.cat([part._last(part._whole_mask(), length, False) for part in parts])
        self.sources = torch.cat([self.sources, other.sources + self.sources.max() + 1])
        self.length, self.max_length = length, max(self.max_length, other.max_length)

    def _tidy(self) -> None:
        """Leaves out what is hidden from all: tokens that no branch sees, the end of memory where texts are shorter.

        What comes later widens it again. A search that others join all the time would never be narrow otherwise.
        """
        if self.branches is not None:
            self._sweep()
        if self.memory_mask is not None:
            is_read = self.memory_mask.any(0)  # [S]
            width = len(is_read) - int(is_read.flip(0).int().argmax())
            self.memory_mask = self.memory_mask[:, :width]
            for cross in self.cross:
                cross.k, cross.v = cross.k[:, :, :width], cross.v[:, :, :width]

    def _join_memory(self, other: KVCache) -> None:
        if not self.cross:
            return
        widths = [part.cross[0].k.shape[2] for part in (self, other)]
        if self.memory_mask is not None or other.memory_mask is not None or widths[0] != widths[1]:
            masks = [
                self.sources.new_ones(part.n_texts, width, dtype=torch.bool)
                if part.memory_mask is None
                else part.memory_mask
                for part, width in zip((self, other), widths, strict=True)
            ]
            self.memory_mask = torch.cat([F.pad(mask, (0, max(widths) - mask.shape[1])) for mask in masks])
        for mine, its in zip(self.cross, other.cross, strict=True):
            mine.join(its)

    def _n_used(self) -> int:
        """Positions from the first one that is no pad in every row."""
        seen = self._seen()
        return self.length if seen is None else self.length - int(seen.any(0).int().argmax())

    def _whole_mask(self) -> Tensor:
        """The mask of all positions, [B, length]."""
        if self.key_mask is not None:
            return self.key_mask
        return self.sources.new_ones(self.n_texts, self.length, dtype=torch.bool)

    def _next_by_text(self) -> Tensor:
        """[B, 1]"""
        positions = torch.as_tensor(self.next_positions, device=self.sources.device)
        return positions.reshape(-1, 1).expand(self.n_texts, 1)

    def _last(self, values: Tensor | None, length: int, fill: int) -> Tensor:
        """The last `length` columns, filled up on the left."""
        assert values is not None
        n = min(length, values.shape[-1])
        return F.pad(values[..., values.shape[-1] - n :], (length - n, 0), value=fill)
