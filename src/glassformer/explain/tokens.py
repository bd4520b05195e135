"""Tokens with their labels: pieces, which of them are special, and which belong to one word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from glassformer.text.tokenizer import Tokenizer

__all__ = ["Tokens", "join_columns", "join_rows", "label", "visible"]


def visible(text: str) -> str:
    """Control characters, which a model that has learned little writes too, by their pictures: ␀ and so on."""
    return re.sub("[\x00-\x1f]", lambda found: chr(0x2400 + ord(found[0])), text)


def label(piece: str) -> str:
    """A piece as it is shown: a space is `␣`, so that pieces and words look different."""
    return visible(piece).replace(" ", "␣")


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens of one text as the model reads them, special ones included.

    `words` holds every token exactly once: sub-words that make one word stand together.
    """

    ids: list[int]
    pieces: list[str]
    is_special: list[bool]
    words: list[list[int]]  # places of the tokens of each word

    @classmethod
    def of(cls, tokenizer: Tokenizer, ids: Sequence[int]) -> Tokens:
        pieces = tokenizer.pieces(ids)
        is_special = [not text for text in tokenizer.bytes_of(ids)]
        words: list[list[int]] = []
        for place, piece in enumerate(pieces):
            if place and not _starts_word(pieces[place - 1], piece, is_special[place - 1], is_special[place]):
                words[-1].append(place)
            else:
                words.append([place])
        return cls(ids=list(ids), pieces=pieces, is_special=is_special, words=words)

    @cached_property
    def labels(self) -> list[str]:
        return [label(piece) for piece in self.pieces]

    @cached_property
    def word_labels(self) -> list[str]:
        return [visible("".join(self.pieces[place] for place in word).strip(" ")) or "␣" for word in self.words]


def _starts_word(before: str, piece: str, is_before_special: bool, is_special: bool) -> bool:
    """A space in front, a special token, or the change between letters and other signs begins a new word."""
    if is_before_special or is_special or piece[:1] == " ":
        return True
    return before[-1:].isalnum() != piece[:1].isalnum()


def join_columns(weights: NDArray[np.float64], words: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Keys joined to words: what a query gives to a word is the sum over its pieces. [..., S] -> [..., words]."""
    return np.stack([weights[..., list(word)].sum(-1) for word in words], axis=-1)


def join_rows(weights: NDArray[np.float64], words: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Queries joined to words: the mean of its pieces' rows, so that rows still sum to 1.

    [..., T, S] -> [..., words, S].
    """
    return np.stack([weights[..., list(word), :].mean(-2) for word in words], axis=-2)
