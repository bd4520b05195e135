"""Cuts a long text into pieces that a model can take, at the best places there are."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["as_one_line", "split_long"]

# Where a text may be cut, best first: after a sentence's end, after a clause, at a space, anywhere.
_CUTS = (
    re.compile(r"(?<=[.!?…؟])\s+|(?<=[。！？])(?![。！？」』）])\s*"),
    re.compile(r"(?<=[,;:،])\s+|(?<=[、，；])\s*"),
    re.compile(r"\s+"),
)
_NO_SPACE_AFTER = "。！？」』）、，；"


_BREAKS = re.compile(r"\s*[\t\r\n]\s*")


def as_one_line(text: str) -> str:
    """A text of several lines as a model of summaries reads it: each line end or tab a space, none at the ends."""
    return _BREAKS.sub(" ", text.strip())


def split_long(text: str, n_tokens: Callable[[str], int], limit: int) -> list[str]:
    """Splits a text into parts of at most `limit` tokens each, as few as a greedy fill gives.

    Parts end at sentence ends where these are near enough, else at commas, else at spaces, else anywhere. Joined by
    single spaces they give the text again (but for the white space at the cuts, and parts cut inside a word).
    """
    if n_tokens(text) <= limit:
        return [text]
    for cut in _CUTS:
        parts = [part for part in cut.split(text) if part]
        if len(parts) > 1:
            return _fill([piece for part in parts for piece in split_long(part, n_tokens, limit)], n_tokens, limit)
    if len(text) == 1:  # one character of more tokens than the model takes: nothing smaller to give
        return [text]
    half = len(text) // 2
    return split_long(text[:half], n_tokens, limit) + split_long(text[half:], n_tokens, limit)


def _fill(pieces: list[str], n_tokens: Callable[[str], int], limit: int) -> list[str]:
    """Joins neighbours while they fit."""
    parts = [pieces[0]]
    for piece in pieces[1:]:
        joined = parts[-1] + ("" if parts[-1][-1] in _NO_SPACE_AFTER else " ") + piece
        if n_tokens(joined) <= limit:
            parts[-1] = joined
        else:
            parts.append(piece)
    return parts
