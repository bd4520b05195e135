"""Masks: one convention everywhere, boolean, True = may attend."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "attention_mask",
    "causal_mask",
    "check_mask",
    "document_mask",
    "document_positions",
    "padding_mask",
    "positions_of",
    "window_mask",
]


def check_mask(mask: Tensor, name: str = "mask") -> Tensor:
    """Returns the mask, or raises TypeError when it is not boolean: 0/1 and 0/-inf masks mean opposite things."""
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name} has dtype {mask.dtype}. A boolean mask was expected, True where a token may be attended to. "
            f"Write `{name}.bool()` if 1 means a real token."
        )
    return mask


def padding_mask(ids: Tensor, pad_id: int | None) -> Tensor | None:
    """True at real tokens. ids [B, T] -> [B, T], or None when no token is padding."""
    if pad_id is None:
        return None
    mask = ids != pad_id
    return None if bool(mask.all()) else mask


def causal_mask(n_queries: int, n_keys: int, *, device: torch.device | None = None) -> Tensor:
    """True where key j <= query i, with the last query aligned to the last key: [T, S].

    A cache of S - T older keys makes query i the token at place S - T + i.
    """
    query = torch.arange(n_keys - n_queries, n_keys, device=device)[:, None]  # [T, 1]
    key = torch.arange(n_keys, device=device)[None, :]  # [1, S]
    return key <= query


def document_mask(documents: Tensor) -> Tensor:
    """True where key and query have the same document number: [B, T] -> [B, T, T]."""
    return documents[:, :, None] == documents[:, None, :]


def window_mask(query_positions: Tensor, key_positions: Tensor, window: int) -> Tensor:
    """True where the key lies less than `window` positions before the query: [B, T], [B, S] -> [B, T, S].

    Counted in positions, not in places, so that pads between two tokens take no room in the window.

    Source: Child et al. 2019, section 4.2; Jiang et al. 2023 (Mistral 7B), section 2.
    """
    return key_positions[:, None, :] > query_positions[:, :, None] - window


def attention_mask(
    key_mask: Tensor | None,
    *,
    n_queries: int,
    n_keys: int,
    is_causal: bool,
    documents: Tensor | None = None,
    device: torch.device | None = None,
) -> Tensor | None:
    """The mask of one attention, [B or 1, 1, T, S] or [B, 1, 1, S], or None when all may attend to all.

    Args:
        key_mask: [B, S], True at keys that are real tokens; None: all are.
        n_queries: T.
        n_keys: S, the keys of a cache included.
        is_causal: Hide keys that come after the query.
        documents: [B, T], hide keys of other documents; None: each row is one.
        device: Where to make the mask.
    """
    mask = None if key_mask is None else key_mask[:, None, None, :]  # [B, 1, 1, S]
    if is_causal and n_queries > 1:
        causal = causal_mask(n_queries, n_keys, device=device)[None, None]  # [1, 1, T, S]
        mask = causal if mask is None else mask & causal
    if documents is not None:
        own = document_mask(documents)[:, None]  # [B, 1, T, T]
        mask = own if mask is None else mask & own
    return mask


def document_positions(documents: Tensor) -> Tensor:
    """Position of each token: the number of tokens of its own document before it. int64 [B, T] -> [B, T]."""
    n_tokens = documents.shape[1]
    seen = document_mask(documents) & causal_mask(n_tokens, n_tokens, device=documents.device)
    return seen.sum(-1) - 1


def positions_of(mask: Tensor | None, *, n_tokens: int, device: torch.device | None = None) -> Tensor:
    """Position of each token: the number of real tokens before it in its own row.

    So a text has the same positions alone, padded on the right and padded on the left.

    Args:
        mask: [B, T], True at real tokens; None: all are.
        n_tokens: T.
        device: Where to make the positions.

    Returns:
        int64, [1, T] when no row has a pad before a real token, else [B, T].
    """
    if mask is None or not bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        return torch.arange(n_tokens, device=device)[None, :]
    return (mask.long().cumsum(-1) - 1).clamp(min=0)
