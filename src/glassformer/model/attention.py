"""Scaled dot-product attention and its heads."""

from __future__ import annotations

import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.model.cache import CrossCache, LayerCache
from glassformer.model.masks import check_mask
from glassformer.model.positions import rotate

__all__ = ["Attention", "Kernel", "RecordingKernel", "attention", "fused_attention"]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Reference: softmax(Q K^T * scale + bias) V, masked keys left out of the softmax.

    Dividing by sqrt(K) (scale = 1/sqrt(K)) keeps the variance of the scores at 1: for independent entries of unit
    variance Var(q·k) = K, and a softmax over scores of size sqrt(K) saturates.

    Args:
        q: [B, H, T, K] queries.
        k: [B, G, S, K] keys; each serves H/G query heads.
        v: [B, G, S, K] values.
        scale: Factor of the scores.
        mask: Boolean, broadcastable to [B, H, T, S], True where a query may attend.
        bias: Added to the scores, broadcastable to [B, H, T, S].
        dropout: Share of the weights dropped, for training only.

    Returns:
        context [B, H, T, K], and the weights before dropout [B, H, T, S]. A row with nothing to attend to has
        weights and context of zero, and zero gradients.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.
    """
    n_shared = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(n_shared, dim=1) if n_shared > 1 else x for x in (k, v))
    scores = q @ k.transpose(-2, -1) * scale  # [B, H, T, S]
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if mask is not None:
        check_mask(mask)
        # The lowest finite number instead of -inf: exp() still gives 0, and a row of them gives no 0/0.
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout) @ v, weights


class Kernel(Protocol):
    """A way to compute attention: takes the arguments of `attention`, returns the context."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor: ...


class RecordingKernel:
    """The reference as a kernel; keeps the weights of each call, the newest last."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        context, weights = attention(q, k, v, scale=scale, mask=mask, bias=bias, dropout=dropout)
        self.weights.append(weights)
        return context


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The same context as `attention`, by torch's fused kernel, or by plain products where those are faster.

    On a CPU the fused backward is slow for short texts, so training takes plain products there, and the fused forward
    calls one small product after the other, which many of them at once outrun (docs/log.md).
    """
    is_cpu, has_gradients, n_scores = q.device.type == "cpu", torch.is_grad_enabled(), q.shape[2] * k.shape[2]
    if is_cpu and has_gradients and n_scores <= 128 * 128:
        return attention(q, k, v, scale=scale, mask=mask, bias=bias, dropout=dropout)[0]
    mask = mask if mask is None else check_mask(mask)  # torch would add a float mask to the scores
    is_plain = q.shape[2] > 1 or q.shape[0] * q.shape[1] >= 128  # a single query of few heads is the kernel's
    is_plain = is_plain and n_scores <= 64 * 64 and q.shape[1] == k.shape[1] and q.dtype == torch.float32
    if is_cpu and not has_gradients and is_plain and not dropout:
        return _plain_attention(q, k, v, scale=scale, mask=mask, bias=bias)
    additive = mask
    if bias is not None:
        additive = bias.to(q.dtype)
        if mask is not None:
            additive = additive.masked_fill(~mask, float("-inf"))
    context = F.scaled_dot_product_attention(
        q, k, v, attn_mask=additive, dropout_p=dropout, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    if mask is None or (is_cpu and not has_gradients):
        return context  # torch's kernel for CPUs gives 0 for a row without keys
    has_key = mask.any(-1, keepdim=True)  # what a kernel gives for a row without keys differs: zero it
    return context.masked_fill(~has_key, 0.0)


def _plain_attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None, bias: Tensor | None
) -> Tensor:
    """The equation of `attention` for running only: one tensor of scores, changed in place."""
    scores = (q @ k.transpose(-2, -1)).mul_(scale)  # [B, H, T, S]
    if bias is not None:
        scores += bias
    if mask is None:
        return scores.softmax(-1) @ v
    scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    return (scores.softmax(-1) @ v).masked_fill_(~mask.any(-1, keepdim=True), 0.0)


class Attention(nn.Module):
    """Heads: Concat(head_1 .. head_H) W_O with head_h = attention(x W_Q, s W_K, s W_V) in K dimensions each.

    s is x itself (self-attention) or the memory (cross-attention).

    Args:
        d_model: D.
        n_heads: H query heads.
        n_kv_heads: G key and value heads.
        d_head: K.
        use_bias: Biases in all four projections.
        scale_scores: Divide scores by sqrt(K).
        dropout: On the weights, in training.
        is_rotary_interleaved: Which features rotary phases turn together.

    Shape: x [B, T, D], s [B, S, D] -> [B, T, D].

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 for shared key-value heads.
    """

    def __init__(
        self,
        *,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        d_head: int,
        use_bias: bool,
        scale_scores: bool,
        dropout: float,
        is_rotary_interleaved: bool,
    ) -> None:
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_head
        self.scale = 1 / math.sqrt(d_head) if scale_scores else 1.0
        self.dropout = dropout
        self.is_rotary_interleaved = is_rotary_interleaved
        self.w_q = nn.Linear(d_model, n_heads * d_head, bias=use_bias)
        self.w_k = nn.Linear(d_model, n_kv_heads * d_head, bias=use_bias)
        self.w_v = nn.Linear(d_model, n_kv_heads * d_head, bias=use_bias)
        self.w_o = nn.Linear(n_heads * d_head, d_model, bias=use_bias)
        self.w_qkv: nn.Module | None = None  # the first three in one product, in copies made for running only
        self.kernel: Kernel = fused_attention

    def split(self, x: Tensor) -> Tensor:
        """[B, T, H*K] -> [B, H, T, K]."""
        n_rows, n_tokens, width = x.shape
        return x.view(n_rows, n_tokens, width // self.d_head, self.d_head).transpose(1, 2)

    def queries_keys_values(self, x: Tensor) -> list[Tensor]:
        """Q, K and V of self-attention: [B, T, D] -> [B, H, T, K] and two of [B, G, T, K]."""
        if self.w_qkv is None:
            return [self.split(self.w_q(x)), *self.keys_values(x)]
        heads = self.split(self.w_qkv(x))  # [B, H + 2 G, T, K]
        n_shared = (heads.shape[1] - self.n_heads) // 2
        return list(torch.split(heads, [self.n_heads, n_shared, n_shared], dim=1))

    def keys_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """K and V of a source: [B, S, D] -> two of [B, G, S, K]."""
        return self.split(self.w_k(source)), self.split(self.w_v(source))

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        phases: tuple[Tensor, Tensor] | None = None,
        cache: LayerCache | CrossCache | None = None,
    ) -> Tensor:
        if isinstance(cache, CrossCache):
            q, k, v = self.split(self.w_q(x)), cache.k, cache.v
        elif memory is not None:
            q, (k, v) = self.split(self.w_q(x)), self.keys_values(memory)  # [B, H, T, K], [B, G, S, K]
        else:
            q, k, v = self.queries_keys_values(x)
        if phases is not None:
            q, k = (rotate(y, phases, is_interleaved=self.is_rotary_interleaved) for y in (q, k))
        if isinstance(cache, LayerCache):
            k, v = cache.append(k, v)
        dropout = self.dropout if self.training else 0.0
        context = self.kernel(q, k, v, scale=self.scale, mask=mask, bias=bias, dropout=dropout)
        out: Tensor = self.w_o(context.transpose(1, 2).flatten(2))  # [B, H, T, K] -> [B, T, H*K] -> [B, T, D]
        return out
