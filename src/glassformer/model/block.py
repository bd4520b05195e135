"""One block: attention, (cross-attention,) feed-forward, each with a residual and a norm."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from glassformer.model.attention import Attention
from glassformer.model.cache import CrossCache, LayerCache
from glassformer.model.feedforward import FeedForward

__all__ = ["Block", "Residual"]


class Residual(nn.Module):
    """x + Sublayer(x), with the norm before it or after it.

    post (2017): norm(x + dropout(f(x))). pre: x + dropout(f(norm(x))), stable at depth.

    Source: Vaswani et al. 2017, section 3.1; Xiong et al. 2020 for pre-norm.
    """

    def __init__(self, *, norm: nn.Module, is_pre: bool, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.is_pre = is_pre
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        change = sublayer(self.norm(x) if self.is_pre else x)
        if self.training:
            change = self.dropout(change)
        out: Tensor = x + change
        return out if self.is_pre else self.norm(out)


class Block(nn.Module):
    """An encoder block, a decoder block (with cross-attention), or a block of a decoder-only model.

    The causal mask alone makes the difference between the first and the last.

    Shape: x [B, T, D], memory [B, S, D] -> [B, T, D].
    """

    def __init__(
        self,
        *,
        self_attention: Attention,
        cross_attention: Attention | None,
        feed_forward: FeedForward,
        residual: Callable[[], Residual],
    ) -> None:
        super().__init__()
        self.self_attention, self.self_residual = self_attention, residual()
        self.cross_attention, self.cross_residual = cross_attention, residual() if cross_attention else None
        self.feed_forward, self.ffn_residual = feed_forward, residual()

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        phases: tuple[Tensor, Tensor] | None = None,
        cache: LayerCache | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cross_cache: CrossCache | None = None,
    ) -> Tensor:
        x = self.self_residual(x, lambda y: self.self_attention(y, mask=mask, bias=bias, phases=phases, cache=cache))
        if self.cross_attention is not None:
            attend, residual = self.cross_attention, self.cross_residual
            assert residual is not None
            if memory is None and cross_cache is None:
                raise ValueError(
                    "Cross-attention got no memory. It reads the encoder's output. Give memory, or a cache."
                )
            x = residual(x, lambda y: attend(y, memory, mask=memory_mask, cache=cross_cache))
        out: Tensor = self.ffn_residual(x, self.feed_forward)
        return out
