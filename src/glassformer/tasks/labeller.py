"""Labels of the words of texts, and the entities that they mark."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path

import numpy as np

from glassformer.data.labelled import room_for, windows, word_pieces
from glassformer.model import EncoderOnly
from glassformer.tasks.model_folder import ModelFolder, load_model_folder
from glassformer.tasks.votes import Votes, log_softmax, votes, voting_model
from glassformer.text.label_set import LabelSet
from glassformer.text.tags import allowed_steps, entities, viterbi
from glassformer.text.tokenizer import Tokenizer

__all__ = ["Entity", "Labeller", "Labelling", "Sentence", "Word", "words_of"]

_WORD = re.compile("w+(?:jw+)*|[jp]")  # over the kinds of the characters, see `_kind`
_JOINERS = "-.'’_"  # join letters and digits on both sides: well-known, U.S, don't, 3.14
# Signs that stand for words or syllables, written without spaces: each is a word (Han, kana).
_SYLLABLES = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


@dataclass(frozen=True)
class Word:
    """A word of a text, its place in characters (`text[start:end]`), its label and the label's probability."""

    text: str
    start: int
    end: int
    label: str
    probability: float


@dataclass(frozen=True)
class Entity:
    """An entity: `text[start:end]`, the words `first_word` to `last_word`, and the least sure label's probability."""

    type: str
    text: str
    start: int
    end: int
    first_word: int
    last_word: int
    probability: float


@dataclass(frozen=True)
class Labelling:
    """What a model says of a text. `text` is the text given, or the words given with single spaces between them."""

    text: str
    words: tuple[Word, ...]
    entities: tuple[Entity, ...]


@dataclass(frozen=True)
class Sentence:
    """A text divided into words, and what a model reads of it.

    Attributes:
        text: The text.
        places: Of each word, where it begins and ends.
        rows: The ids of its parts, each short enough to be read at once.
        firsts: Of each row, the places of its words' first pieces.
    """

    text: str
    places: list[tuple[int, int]]
    rows: list[list[int]]
    firsts: list[list[int]]


def words_of(text: str) -> list[tuple[int, int]]:
    """The places `start, end` of the words of a text, in characters.

    A word is a run of letters, marks and digits, with single hyphens, full stops, apostrophes and underscores inside;
    every other sign is a word by itself, and so is each Han sign or kana.
    """
    return [match.span() for match in _WORD.finditer("".join(map(_kind, text)))]


def _kind(char: str) -> str:
    """w: part of a word; j: joins two parts; p: a word by itself; a space else."""
    if char in _JOINERS:
        return "j"
    if char.isspace():
        return " "
    is_part = unicodedata.category(char)[0] in "LMN" or unicodedata.category(char) == "Cf"
    return "w" if is_part and not _SYLLABLES.match(char) else "p"


class Labeller:
    """Labels words with one model. `Labeller.load(path).label(["Anna lives in Lyon."])`.

    A text is divided into words by `words_of`; where the model was trained on words divided otherwise, give the words
    themselves. A text of more tokens than the model reads is divided between words, and the parts are joined again.
    What is said of a text does not depend on the texts beside it (probabilities in float32: within 1e-5).

    Attributes:
        labels: The labels that the model knows, and the scheme of its tags.
        max_tokens: Most tokens that are read together, begin and end counted.
    """

    def __init__(self, model: EncoderOnly, tokenizer: Tokenizer, labels: LabelSet, *, max_tokens: int) -> None:
        self.model, self.tokenizer, self.labels, self.max_tokens = model, tokenizer, labels, max_tokens

    @classmethod
    def load(cls, path: str | Path) -> Labeller:
        """Loads a model folder; see `load_model_folder` for the errors, and `of`."""
        return cls.of(load_model_folder(path))

    @classmethod
    def of(cls, folder: ModelFolder) -> Labeller:
        """The labeller of a loaded folder.

        Raises:
            CheckpointError: The model does not label words.
        """
        model, labels = voting_model(folder, "label", "label")
        config = folder.config
        limit = min(config.data.max_tokens, config.model.max_positions or config.data.max_tokens)
        return cls(model, folder.tokenizer, labels, max_tokens=limit)

    def label(
        self,
        texts: Sequence[str | Sequence[str]],
        *,
        is_constrained: bool = False,
        batch_tokens: int | None = None,
    ) -> list[Labelling]:
        """What the model says of each text, in their order.

        Args:
            texts: Texts, or lists of words.
            is_constrained: Forbid label sequences that break the scheme of the tags: take the most probable allowed
                sequence (Viterbi) in place of the most probable label of each word.
            batch_tokens: Tokens read together; changes speed and memory only.

        Raises:
            TokenizerError: A text holds half a surrogate pair.
        """
        sentences = self.encode(texts)
        found = iter(votes(self.model, [row for s in sentences for row in s.rows], batch_tokens=batch_tokens))
        return [self.labelling(s, [next(found) for _ in s.rows], is_constrained=is_constrained) for s in sentences]

    def encode(self, texts: Sequence[str | Sequence[str]]) -> list[Sentence]:
        """Of each text what `votes` takes."""
        divided = [_divided(text) for text in texts]
        pieces = word_pieces(self.tokenizer, [[text[a:b] for a, b in places] for text, places in divided])
        room = room_for(self.max_tokens, use_bos=self.model.config.use_bos, n_texts=1)
        sentences = []
        for (text, places), words in zip(divided, pieces, strict=True):
            sentences.append(Sentence(text, places, [], []))
            for start, stop in windows(words, room) if words else ():
                ids = [list(word[:room]) for word in words[start:stop]]
                sentences[-1].rows.append(list(chain.from_iterable(ids)))
                sentences[-1].firsts.append([0, *accumulate(map(len, ids))][:-1])
        return sentences

    def labelling(self, sentence: Sentence, logits: Sequence[Votes], *, is_constrained: bool = False) -> Labelling:
        """What the logits [T, L] of its rows say of a sentence."""
        text, places = sentence.text, sentence.places
        if not sentence.rows:
            return Labelling(text, (), ())
        log_probs = log_softmax(np.concatenate([of[at] for of, at in zip(logits, sentence.firsts, strict=True)]))
        numbers = best_labels(log_probs, self.labels, is_constrained=is_constrained)
        tags = [self.labels.names[number] for number in numbers]
        shares = np.exp(log_probs[np.arange(len(numbers)), numbers])
        words = tuple(
            Word(text[start:end], start, end, tag, float(share))
            for (start, end), tag, share in zip(places, tags, shares, strict=True)
        )
        found = []
        for span in entities(tags) if self.labels.scheme != "none" else ():
            start, end = places[span.start][0], places[span.end - 1][1]
            least = float(shares[span.start : span.end].min())
            found.append(Entity(span.type, text[start:end], start, end, span.start, span.end - 1, least))
        return Labelling(text, words, tuple(found))


def best_labels(log_probs: Votes, labels: LabelSet, *, is_constrained: bool) -> list[int]:
    """The labels of the words of a sentence, from their log-probabilities [T, L]."""
    if is_constrained and labels.scheme != "none":
        return viterbi(log_probs, allowed_steps(labels.names, labels.scheme))
    return [int(number) for number in log_probs.argmax(-1)]


def _divided(text: str | Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The text, and the places of its words."""
    if isinstance(text, str):
        return text, words_of(text)
    ends = list(accumulate(len(word) + 1 for word in text))
    return " ".join(text), [(end - 1 - len(word), end - 1) for word, end in zip(text, ends, strict=True)]
