"""Where the words of a translation and of its source stand, and which looked at which."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from glassformer.explain.tokens import join_columns, join_rows
from glassformer.generation.hypothesis import Hypothesis
from glassformer.serve.documents.placing import Links, Place
from glassformer.tasks.translator import Translation, Translator
from glassformer.text.tokenizer import Tokenizer

__all__ = ["Segment", "SegmentWords", "links_of", "made_places", "read_places", "segment_words", "segments_of"]


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


@dataclass(frozen=True)
class Segment:
    """A segment of a text, and where it and its translation stand."""

    text: str
    translation: Translation
    places: list[int]  # in the whole text, of each character of the segment
    source: Place
    target: Place

    def words(self, translator: Translator) -> SegmentWords:
        """Its words, as places in the whole text and in the whole translation; runs the model once."""
        found = segment_words(translator, self.text, self.translation)
        source = [(self.places[start], self.places[end - 1] + 1) for start, end in found.source]
        target = [(start + self.target[0], end + self.target[0]) for start, end in found.target]
        return SegmentWords(source, target, found.weights)


def segments_of(
    translator: Translator, text: str, lines: Sequence[Sequence[str]], results: Sequence[list[Hypothesis]]
) -> Iterator[Segment]:
    """The segments of a text that has been translated.

    Args:
        lines: The segments of each line of the text.
        results: The hypotheses of each segment.
    """
    made, read, written = iter(results), 0, 0
    for line in lines:
        for number, segment in enumerate(line):
            translation = translator.translation_of(next(made))
            places, read = read_places(text, segment, read)
            written += number > 0  # the space between two segments
            end = written + len(translation.text)
            yield Segment(segment, translation, places, (places[0], read), (written, end))
            written = end
        written += 1  # the end of the line


def links_of(
    translator: Translator, text: str, lines: Sequence[Sequence[str]], results: Sequence[list[Hypothesis]]
) -> Links:
    """The links between the words of a text and of its translation; the model runs once for each segment."""
    found = [segment.words(translator) for segment in segments_of(translator, text, lines, results)]
    source = [place for words in found for place in words.source]
    target = [place for words in found for place in words.target]
    weights = np.zeros((len(target), len(source)))
    row = column = 0
    for words in found:
        end, last = row + len(words.target), column + len(words.source)
        if words.source and words.target:
            weights[row:end, column:last] = words.weights
        row, column = end, last
    return Links(source, target, weights)


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
