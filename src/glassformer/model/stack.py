"""N blocks one after the other, with what they share: positions that act inside attention, and a final norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.attention import Attention
from glassformer.model.block import Block, Residual
from glassformer.model.cache import CrossCache, KVCache, LayerCache
from glassformer.model.feedforward import FeedForward
from glassformer.model.masks import attention_mask, window_mask
from glassformer.model.norm import build_norm
from glassformer.model.positions import build_bias, rotary_phases

__all__ = ["Stack", "build_attention", "build_block"]


def build_attention(config: ModelConfig) -> Attention:
    """The heads that the config describes."""
    return Attention(
        d_model=config.d_model,
        n_heads=config.n_heads,
        n_kv_heads=config.kv_heads,
        d_head=config.head_width,
        use_bias=config.use_attention_bias,
        scale_scores=config.scale_scores,
        dropout=config.attention_dropout,
        is_rotary_interleaved=config.sinusoid_layout == "interleaved",
    )


def build_block(config: ModelConfig, *, has_cross_attention: bool) -> Block:
    """One block of the config's sizes."""
    return Block(
        self_attention=build_attention(config),
        cross_attention=build_attention(config) if has_cross_attention else None,
        feed_forward=FeedForward(
            d_model=config.d_model,
            d_ff=config.d_ff,
            activation=config.activation,
            is_gated=config.is_gated,
            use_bias=config.use_ffn_bias,
            dropout=config.ffn_dropout,
        ),
        residual=lambda: Residual(
            norm=build_norm(config), is_pre=config.norm_placement == "pre", dropout=config.dropout
        ),
    )


class Stack(nn.Module):
    """An encoder (is_causal False) or a decoder (is_causal True) without its embeddings.

    Shape: x [B, T, D], memory [B, S, D] -> [B, T, D].
    """

    def __init__(self, config: ModelConfig, *, n_layers: int, is_causal: bool, has_cross_attention: bool) -> None:
        super().__init__()
        self.config = config
        self.is_causal = is_causal
        self.blocks = nn.ModuleList(
            build_block(config, has_cross_attention=has_cross_attention) for _ in range(n_layers)
        )
        self.window = config.window if is_causal else None
        self.bias = build_bias(config, is_causal=is_causal)
        self.norm = build_norm(config) if config.use_final_norm else None

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        *,
        key_mask: Tensor | None = None,
        documents: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Runs all blocks.

        Args:
            x: [B, T, D].
            positions: [B or 1, T].
            key_mask: [B, S], True at real tokens, those of the cache included; None: all are.
            documents: [B, T], a token attends only to tokens with its own number; None: each row is one text.
            memory: [B, S_src, D], what cross-attention reads; with a cache it is in there already.
            memory_mask: [B, S_src], True at real source tokens; None: all are.
            cache: Keys and values of earlier tokens; the new ones are appended.
        """
        n_queries = x.shape[1]
        mask: Tensor | None
        if cache is not None and cache.branches is not None:
            mask = cache.extend_branches()[:, None]  # [B, 1, W, S]: each branch sees what it descends from
            n_keys = mask.shape[-1]
        else:
            n_keys = n_queries + (cache.length if cache else 0)
            mask = attention_mask(
                key_mask,
                n_queries=n_queries,
                n_keys=n_keys,
                is_causal=self.is_causal,
                documents=documents,
                device=x.device,
            )
        if memory_mask is not None:
            memory_mask = memory_mask[:, None, None, :]  # [B, 1, 1, S]: hides source pads from every query
        phases = bias = None
        if self.config.positions == "rotary":
            phases = rotary_phases(
                positions, d_head=self.config.head_width, base=self.config.rotary_base, dtype=x.dtype
            )
        if self.bias is not None or self.window is not None:
            key_positions = self._key_positions(positions, cache)
            if self.bias is not None:
                bias = self.bias(positions, key_positions)
            if self.window is not None and self.window < n_keys:
                near = window_mask(positions, key_positions, self.window)[:, None]  # [B or 1, 1, T, S]
                mask = near if mask is None else mask & near
        for i, block in enumerate(self.blocks):
            layer: LayerCache | None = cache.layers[i] if cache else None
            cross: CrossCache | None = cache.cross[i] if cache and cache.cross else None
            x = block(
                x,
                mask=mask,
                bias=bias,
                phases=phases,
                cache=layer,
                memory=memory,
                memory_mask=memory_mask,
                cross_cache=cross,
            )
        return x if self.norm is None else self.norm(x)

    def _key_positions(self, positions: Tensor, cache: KVCache | None) -> Tensor:
        """[B or 1, S]: positions of the cached keys, then of the new ones; kept in the cache."""
        if cache is None:
            return positions
        old = cache.key_positions
        if old is not None:
            n_rows = max(len(old), len(positions))
            positions = torch.cat([old.expand(n_rows, -1), positions.expand(n_rows, -1)], dim=1)
        cache.key_positions = positions
        return positions
