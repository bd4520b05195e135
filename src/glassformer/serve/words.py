"""Where the words of a translation and of its source stand, and which looked at which."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from glassformer.explain.tokens import join_columns, join_rows
from glassformer.tasks.translator import Translation, Translator
from glassformer.text.tokenizer import Tokenizer

__all__ = ["Place", "SegmentWords", "made_places", "read_places", "segment_words"]

Place = tuple[int, int]  # start and end in a text, in characters


@dataclass(frozen=True)
class SegmentWords:
    """The words of one segment, as places in the segment and in its translation.

    `weights[t][s]`: what target word t gave to source word s, by `Translator.align` with pieces joined to words: the
    sum over the source word's pieces, the mean over the target word's. A row sums to less than 1, since the end
    token of the source, which is no word, has its share too.
    """

    source: list[Place]
    target: list[Place]
    weights: list[list[float]]


def segment_words(translator: Translator, segment: str, translation: Translation) -> SegmentWords:
    """The words of a segment that this translator has translated; runs the model once."""
    (src_ids,) = translator.source_ids([segment])
    weights = np.array(translator.align(segment, translation).weights)
    src_words, source = _words(_source_places(translator, segment, len(src_ids)), segment)
    tgt_words, target = _words(made_places(translator.tokenizer, translation.ids), translation.text)
    if not src_words or not tgt_words:
        return SegmentWords(source, target, [[] for _ in target])
    joined = join_rows(join_columns(weights, src_words), tgt_words)
    return SegmentWords(source, target, np.round(joined, 4).tolist())


def made_places(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Place]:
    """The place of each token in `tokenizer.decode(ids)`; a part of a character has its place where it is complete."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    ends = list(accumulate(len(decoder.decode(piece)) for piece in tokenizer.bytes_of(ids)))
    return list(zip([0, *ends], ends, strict=False))


def read_places(text: str, segment: str, start: int) -> tuple[list[int], int]:
    """The place in `text` of each character of a segment, and where the segment ends.

    Segments hold the text's characters in their order from `start` on; only white space may differ.
    """
    places, at = [], start
    for char in segment:
        while not char.isspace() and text[at].isspace():
            at += 1
        places.append(at)
        at += not char.isspace()
    return places, at


def _source_places(translator: Translator, segment: str, n_tokens: int) -> list[Place | None]:
    """The place in the segment of each token that is read; those of the prefix and the marks have none."""
    n_before = len(translator.prefix)
    start: list[Place | None] = [None] if translator.model.config.use_bos else []
    for first, end in translator.src_tokenizer.places(translator.prefix + segment):
        start.append((max(0, first - n_before), end - n_before) if end > n_before else None)
    return [*start[: n_tokens - 1], None]


def _words(places: Sequence[Place | None], text: str) -> tuple[list[list[int]], list[Place]]:
    """The tokens of each word of the text, and its place there without the space before it.

    Tokens side by side make a word when letters and digits meet between them, or other signs, or when they share a
    character. Space, and the first bytes of a character, belong to the word that follows.
    """
    words: list[list[int]] = []
    found: list[Place] = []
    before: list[int] = []  # tokens that are not seen yet
    for number, place in enumerate(places):
        if place is None:
            continue
        start, end = place
        start += len(text[start:end]) - len(text[start:end].lstrip())
        if start == end:
            before.append(number)
            continue
        last = found[-1][1] if found else -1
        if start < last or (start == last and text[start - 1].isalnum() == text[start].isalnum()):
            words[-1] += [*before, number]
            found[-1] = (found[-1][0], max(last, end))
        else:
            words.append([*before, number])
            found.append((start, end))
        before = []
    return words, found
