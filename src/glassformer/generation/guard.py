"""Stops decoding with a clear error when the logits are not numbers to choose by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from glassformer.errors import GenerationError

__all__ = ["check_logits", "no_token_left"]


def check_logits(logits: Tensor, items: Sequence[int], *, may_be_empty: bool = False) -> None:
    """Raises when a row holds NaN or +inf, or (unless it may) nothing but -inf. One reduction over the logits.

    Args:
        logits: [R, V]
        items: The item of each row, or of each group of R / len(items) rows in a row.
        may_be_empty: Whether a row may be -inf throughout (a hypothesis of a beam with nowhere to go).

    Raises:
        GenerationError: Names the first item with such a row.
    """
    top = logits.amax(dim=1)  # NaN where any logit of the row is
    is_bad = ~(torch.isfinite(top) | (torch.isneginf(top) & may_be_empty))
    if not bool(is_bad.any()):
        return
    row = int(is_bad.nonzero()[0])
    item = items[row * len(items) // len(top)]
    if torch.isneginf(top[row]):
        raise no_token_left(item)
    raise GenerationError(
        f"non-finite logits for item {item} (largest: {float(top[row])}).",
        "Finite numbers were expected from the model.",
        "Check the weights for NaN; if they are in a 16-bit type, decode in float32.",
    )


def no_token_left(item: int) -> GenerationError:
    """Returns the error for an item with no token that may follow."""
    return GenerationError(
        f"non-finite logits for item {item}: all are -inf, so no token is left.",
        "The model and the rules must leave one token at least.",
        "Relax no_repeat_ngram_size, min_new_tokens or the forbidden ids; if none is set, check the weights.",
    )
