"""The real model behind the search's protocol: rows with a KV cache."""

from __future__ import annotations

import hashlib

from torch import Tensor

from glassformer.model import DecoderOnly, EncoderDecoder, KVCache

__all__ = ["ModelDecoding", "seed_of"]


class ModelDecoding:
    """A `Decoding` over a model: sources are encoded once, and each step computes one token a row.

    Args:
        model: An encoder-decoder or a decoder-only model, in eval mode.
        max_length: Most tokens of a row, its prefix included.
        src: [B, S] source ids (encoder-decoder only).
        prefix_mask: bool [B, T], True at the real tokens of the prefix; unset: all but those with the pad id.
    """

    def __init__(
        self,
        model: EncoderDecoder | DecoderOnly,
        *,
        max_length: int,
        src: Tensor | None = None,
        prefix_mask: Tensor | None = None,
    ) -> None:
        self.model, self.max_length, self.src, self.prefix_mask = model, max_length, src, prefix_mask
        self.cache: KVCache | None = None

    def prefill(self, prefix: Tensor) -> Tensor:
        if isinstance(self.model, EncoderDecoder):
            assert self.src is not None
            self.cache = self.model.new_cache(self.src, self.max_length)
        else:
            self.cache = self.model.new_cache(len(prefix), self.max_length)
        return self._forward(prefix, self.prefix_mask)

    def step(self, tokens: Tensor) -> Tensor:
        return self._forward(tokens[:, None])

    def select(self, rows: Tensor) -> None:
        assert self.cache is not None
        self.cache.select(rows)

    def join(self, other: ModelDecoding) -> None:
        """The rows of another decoding of the same model follow, whatever they have read so far."""
        assert self.cache is not None and other.cache is not None
        self.cache.join(other.cache)

    def _forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        assert self.cache is not None
        decoder = self.model.decoder
        features: Tensor = decoder(tokens, mask=mask, cache=self.cache)  # [R, T, D]
        return self.model.project(features[:, -1])  # [R, V]: only the last token's vote is needed


def seed_of(text: str) -> int:
    """A seed that belongs to the text, so that a sample does not depend on the batch."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
