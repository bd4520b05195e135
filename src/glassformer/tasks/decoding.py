"""The real model behind the search's protocol: rows with a KV cache."""

from __future__ import annotations

from torch import Tensor

from glassformer.model import DecoderOnly, EncoderDecoder, KVCache

__all__ = ["ModelDecoding"]


class ModelDecoding:
    """A `Decoding` over a model: sources are encoded once, and each step computes one token a row.

    Args:
        model: An encoder-decoder or a decoder-only model, in eval mode.
        max_length: Most tokens of a row, its prefix included.
        src: [B, S] source ids (encoder-decoder only).
    """

    def __init__(self, model: EncoderDecoder | DecoderOnly, *, max_length: int, src: Tensor | None = None) -> None:
        self.model, self.max_length, self.src = model, max_length, src
        self.cache: KVCache | None = None

    def prefill(self, prefix: Tensor) -> Tensor:
        if isinstance(self.model, EncoderDecoder):
            assert self.src is not None
            self.cache = self.model.new_cache(self.src, self.max_length)
        else:
            self.cache = self.model.new_cache(len(prefix), self.max_length)
        return self._forward(prefix)

    def step(self, tokens: Tensor) -> Tensor:
        return self._forward(tokens[:, None])

    def select(self, rows: Tensor) -> None:
        assert self.cache is not None
        self.cache.select(rows)

    def _forward(self, tokens: Tensor) -> Tensor:
        assert self.cache is not None
        decoder = self.model.decoder
        features: Tensor = decoder(tokens, cache=self.cache)  # [R, T, D]
        return self.model.project(features[:, -1])  # [R, V]: only the last token's vote is needed
