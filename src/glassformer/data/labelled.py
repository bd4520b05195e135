"""Token stores of labelled texts and of labelled words.

In both, `src` holds the ids that a model reads, without the begin and the last end token. Texts: `src` is the text, or
two texts with an end token between them, and `tgt` the numbers of its labels. Words: `src` holds the pieces of the
words, and `tgt` as many numbers: that of the word's label plus 1 at its first piece, 0 at its others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from glassformer.data.duplicates import SeenHashes
from glassformer.data.prepare import require_free
from glassformer.data.store import TokenLists, TokenStore
from glassformer.data.writer import StoreWriter
from glassformer.errors import ConfigError, DataError
from glassformer.text.label_set import LabelSet
from glassformer.text.labelled import LabelledText, LabelledWords
from glassformer.text.split import Source
from glassformer.text.tokenizer import Tokenizer

__all__ = ["cut_pair", "joined", "prepare_texts", "prepare_words", "room_for", "windows", "word_pieces"]

_CHUNK_ROWS = 4096
_SHOWN_CHARS = 80

Row = TypeVar("Row", LabelledText, LabelledWords)
Ids = Sequence[int]


def room_for(max_tokens: int, *, use_bos: bool, n_texts: int) -> int:
    """Tokens of text among the max_tokens that a model reads: the begin token and the end of each text are kept.

    Raises:
        ConfigError: There is no room for a token of each text.
    """
    room = max_tokens - use_bos - n_texts
    if room < n_texts:
        raise ConfigError(
            f"max_tokens={max_tokens} leaves room for {max(room, 0)} tokens of text.",
            f"Begin and end take {use_bos + n_texts}, and a text has at least one.",
            "Raise data.max_tokens.",
        )
    return room


def cut_pair(a: Ids, b: Ids, room: int) -> tuple[Ids, Ids]:
    """The longer of two texts is shortened, token by token from its end, until both fit into `room` tokens.

    Of two that are equally long the second one is.
    """
    if len(a) + len(b) <= room:
        return a, b
    half = room // 2
    if len(a) <= half:
        return a, b[: room - len(a)]
    if len(b) <= half:
        return a[: room - len(b)], b
    return a[: room - half], b[:half]


def joined(a: Ids, b: Ids | None, *, room: int, eos_id: int) -> list[int]:
    """A text cut to `room` tokens, or two texts cut by `cut_pair` with the end token of the first between them."""
    if b is None:
        return list(a[:room])
    a, b = cut_pair(a, b, room)
    return [*a, eos_id, *b]


def word_pieces(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], dropout: float = 0.0) -> list[list[Ids]]:
    """The pieces of each word of each sentence, as if the words stood in a text with single spaces between them.

    A word of which nothing is left (some imported vocabularies drop control characters) is one unknown token.
    """
    texts = [word if i == 0 else f" {word}" for words in sentences for i, word in enumerate(words)]
    pieces = iter(tokenizer.encode_batch(texts, dropout=dropout))
    return [[ids or [tokenizer.unk_id] for ids in islice(pieces, len(words))] for words in sentences]


def windows(pieces: Sequence[Ids], room: int) -> list[tuple[int, int]]:
    """Divides the words of a sentence into runs `start, stop` of at most `room` pieces, as few as a greedy fill gives.

    A word of more pieces is a run of its own, and is to be cut.
    """
    bounds, start, n_pieces = [], 0, 0
    for i, ids in enumerate(pieces):
        if i > start and n_pieces + len(ids) > room:
            bounds.append((start, i))
            start, n_pieces = i, 0
        n_pieces += len(ids)
    return [*bounds, (start, len(pieces))]


def prepare_texts(
    reader: Source[LabelledText],
    tokenizer: Tokenizer,
    labels: LabelSet,
    folder: Path,
    *,
    room: int,
    drop_duplicates: bool = False,
    n_variants: int = 1,
    dropout: float = 0.0,
) -> int:
    """Writes texts and the numbers of their labels into a new store; returns how many texts were cut to `room` tokens.

    Args:
        reader: The texts; read once.
        tokenizer: Encodes them.
        labels: The known labels; a text with another one is left out and counted.
        folder: Must not exist yet, or be empty.
        room: Most tokens of a text, or of two together, without begin and end tokens.
        drop_duplicates: Leave out a text that stands there already with the same labels.
        n_variants: Tokenisations stored of each text with dropout; one is stored without.
        dropout: Share of BPE merges skipped at random.

    Raises:
        DataError: The folder is not empty, no text is left, or the reader raises it.
        GlassformerError: The files cannot be written, for example because the disk is full.
    """
    index = labels.index
    n_cut = 0

    def encode(rows: list[LabelledText]) -> list[_Encoded]:
        nonlocal n_cut
        firsts = tokenizer.encode_batch([row.text for row in rows], dropout=dropout)
        seconds: Sequence[list[int] | None] = [None] * len(rows)
        if rows and rows[0].text_b is not None:
            seconds = tokenizer.encode_batch([row.text_b or "" for row in rows], dropout=dropout)
        n_cut += sum(len(a) + len(b or ()) > room for a, b in zip(firsts, seconds, strict=True))
        src = [joined(a, b, room=room, eos_id=tokenizer.eos_id) for a, b in zip(firsts, seconds, strict=True)]
        numbers = [[index[label] for label in row.labels] for row in rows]
        return [(row.row, ids, tgt) for row, ids, tgt in zip(rows, src, numbers, strict=True)]

    selection: _Selection[LabelledText] = _Selection(labels, drop_duplicates=drop_duplicates)
    n_stored = n_variants if dropout > 0 else 1
    _write(reader, selection, tokenizer, folder, encode, n_variants=n_stored, dropout=dropout)
    return n_cut // n_stored


def prepare_words(
    reader: Source[LabelledWords],
    tokenizer: Tokenizer,
    labels: LabelSet,
    folder: Path,
    *,
    room: int,
    drop_duplicates: bool = False,
) -> int:
    """Writes sentences as pieces with the labels of their words; returns how many sentences were split.

    A sentence of more than `room` pieces becomes several rows of the store, with the same row number. Args, Raises: as
    `prepare_texts`.
    """
    index = labels.index
    n_split = 0

    def encode(rows: list[LabelledWords]) -> list[_Encoded]:
        nonlocal n_split
        out: list[_Encoded] = []
        for row, pieces in zip(rows, word_pieces(tokenizer, [row.words for row in rows]), strict=True):
            bounds = windows(pieces, room)
            n_split += len(bounds) > 1
            numbers = [index[label] + 1 for label in row.labels]
            for start, stop in bounds:
                src = [ids[:room] for ids in pieces[start:stop]]
                tgt = [[n] + [0] * (len(ids) - 1) for n, ids in zip(numbers[start:stop], src, strict=True)]
                out.append((row.row, list(chain.from_iterable(src)), list(chain.from_iterable(tgt))))
        return out

    selection: _Selection[LabelledWords] = _Selection(labels, drop_duplicates=drop_duplicates)
    _write(reader, selection, tokenizer, folder, encode, n_variants=1, dropout=0.0)
    return n_split


_Encoded = tuple[int, list[int], list[int]]  # row of the input, src, tgt


def _write(
    reader: Source[Row],
    selection: _Selection[Row],
    tokenizer: Tokenizer,
    folder: Path,
    encode: Callable[[list[Row]], list[_Encoded]],
    *,
    n_variants: int,
    dropout: float,
) -> None:
    require_free(folder)
    with StoreWriter(folder, (tokenizer.vocab_size, len(selection.labels) + 1), n_variants) as writer:
        for rows in _chunks(reader):
            admitted = selection.admit(rows)
            variants = [encode(admitted) for _ in range(n_variants)]
            places = [row for row, _, _ in variants[0]]
            lists = [(_lists([src for _, src, _ in part]), _lists([tgt for _, _, tgt in part])) for part in variants]
            writer.append([0] * len(places), places, lists, np.ones(len(places), dtype=np.bool_))
        about = selection.report(reader, writer.n_pairs)
        names = hashlib.sha256("\n".join(selection.labels.names).encode()).hexdigest()
        about |= {"src_vocab_hash": tokenizer.vocab_hash, "tgt_vocab_hash": names}
        writer.finish(about | {"n_variants": n_variants, "bpe_dropout": dropout})
    TokenStore.open(folder)


def _chunks(reader: Source[Row]) -> Iterator[list[Row]]:
    rows = iter(reader)
    while chunk := list(islice(rows, _CHUNK_ROWS)):
        yield chunk


def _lists(rows: list[list[int]]) -> TokenLists:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return TokenLists(np.fromiter(chain.from_iterable(rows), np.uint32, offsets[-1]), offsets)


class _Selection(Generic[Row]):
    """Decides which rows are stored, and keeps count of the others by reason."""

    def __init__(self, labels: LabelSet, *, drop_duplicates: bool) -> None:
        self.labels, self.drop_duplicates = labels, drop_duplicates
        self._known = frozenset(labels.names)
        self._seen = SeenHashes()
        self._inputs = hashlib.sha256()
        self._excluded: dict[str, dict[str, Any]] = {}

    def admit(self, rows: list[Row]) -> list[Row]:
        """The rows whose labels are known and which stand there for the first time, where that is asked."""
        digests = b"".join(map(_digest, rows))
        self._inputs.update(digests)
        reasons = [self._unknown(row) for row in rows]
        if self.drop_duplicates:
            is_new = self._seen.add(np.frombuffer(digests, dtype="<u8"))
            reasons = [reason or (None if new else "duplicate") for reason, new in zip(reasons, is_new, strict=True)]
        for row, reason in zip(rows, reasons, strict=True):
            if reason is not None:
                example = f"line {row.row}: {_shown(row)}"
                self._excluded.setdefault(reason, {"count": 0, "example": example})["count"] += 1
        return [row for row, reason in zip(rows, reasons, strict=True) if reason is None]

    def _unknown(self, row: Row) -> str | None:
        label = next((label for label in row.labels if label not in self._known), None)
        return None if label is None else f"with the label {label!r}, which the training data do not have"

    def report(self, reader: Source[Row], n_rows: int) -> dict[str, Any]:
        """What `store.json` says about the selection. Raises DataError when no row is left."""
        bad = {reason: {"count": n, "example": reader.bad_examples[reason]} for reason, n in reader.bad.items()}
        excluded = {**bad, **self._excluded}
        if n_rows == 0:
            reasons = "; ".join(f"{about['count']:,} {why} ({about['example']})" for why, about in excluded.items())
            raise DataError(
                f"No labelled text is left of {reader.n_rows:,} rows: {reasons or 'there was none'}.",
                "At least one was expected.",
                "Check the file and its labels.",
            )
        return {
            "n_read": reader.n_rows,
            "excluded": excluded,
            "domains": [""],
            "selection": {"drop_duplicates": self.drop_duplicates},
            "inputs_sha256": self._inputs.hexdigest(),
        }


def _digest(row: LabelledText | LabelledWords) -> bytes:
    """64 bits of texts and labels, each with its length in front, so that no two divisions are alike."""
    texts = (row.text, row.text_b or "") if isinstance(row, LabelledText) else row.words
    whole = "".join(f"{len(text)} {text}" for text in (*texts, *row.labels))
    return hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _shown(row: LabelledText | LabelledWords) -> str:
    text = row.text if isinstance(row, LabelledText) else " ".join(row.words)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
