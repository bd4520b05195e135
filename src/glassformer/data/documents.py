"""Tokenises documents once, into a token store whose source side holds them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glassformer.config import DataConfig
from glassformer.data.duplicates import SeenHashes
from glassformer.data.prepare import require_free
from glassformer.data.store import Integers, TokenLists, TokenStore
from glassformer.data.words import WordTable, encode_texts
from glassformer.data.writer import StoreWriter
from glassformer.errors import DataError
from glassformer.text.documents import Document
from glassformer.text.tokenizer import Tokenizer

__all__ = ["Documents", "document_hashes", "prepare_documents"]

_CHUNK_DOCUMENTS = 8192
_CHUNK_CHARS = 1 << 22  # a chunk of long documents has fewer of them, so that memory stays bounded
_PART_CHARS = 1 << 16  # a tokenizer needs some hundred bytes a character, so a huge document is given to it in parts
_SPACE = re.compile(r"(?<=\S) (?=\S)")
_SHOWN_CHARS = 80

# Texts to their ids, and to the pieces of each word where these are wanted (else to empty lists).
_Encode = Callable[[list[str]], tuple[TokenLists, TokenLists]]


class Documents(Protocol):
    """What `prepare_documents` needs of a `DocumentReader` or a part of one."""

    @property
    def n_rows(self) -> int: ...

    @property
    def bad(self) -> Any: ...

    @property
    def bad_examples(self) -> dict[str, str]: ...

    def __iter__(self) -> Iterator[Document]: ...


def prepare_documents(
    documents: Documents,
    tokenizer: Tokenizer,
    folder: Path,
    config: DataConfig,
    *,
    max_piece: int | None = None,
    with_words: bool = False,
    n_variants: int = 1,
    bpe_dropout: float = 0.0,
) -> TokenStore:
    """Tokenises every document and writes them into a new folder, in their order.

    Exact duplicates (with `config.drop_duplicates`) and what is no document are counted in `store.excluded`.

    Args:
        documents: Read once.
        tokenizer: Encodes them.
        folder: Must not exist yet, or be empty. A run that is cut leaves nothing under this name.
        config: Whether duplicates are left out.
        max_piece: Most ids of a row; longer documents become several rows, and nothing is dropped. None: a document
            is one row.
        with_words: Let the target side of a row hold the number of pieces of each of its words.
        n_variants: Tokenisations stored of each document with bpe_dropout; one is stored without.
        bpe_dropout: Share of merges skipped at random.

    Raises:
        DataError: The folder is not empty, no document is left, or the reader raises it.
        GlassformerError: The files cannot be written, for example because the disk is full.
    """
    require_free(folder)
    n_variants = n_variants if bpe_dropout > 0 else 1
    encode = _encoder(tokenizer, bpe_dropout, with_words)
    account = _Account(config.drop_duplicates)
    with StoreWriter(folder, (tokenizer.vocab_size, 1 << 16), n_variants) as writer:
        for some in _chunks(documents):
            kept = account.admit(some)
            variants = [encode([document.text for document in kept]) for _ in range(n_variants)]
            rows = [document.row for document in kept]
            if max_piece is not None:
                assert n_variants == 1, "the variants of a document would have different numbers of pieces"
                variants[0], owners = _cut(*variants[0], max_piece)
                rows = [rows[owner] for owner in owners]
            writer.append([0] * len(rows), rows, variants, np.ones(len(rows), dtype=np.bool_))
        about = account.report(documents, writer.n_pairs, with_words)
        about |= {"src_vocab_hash": tokenizer.vocab_hash, "tgt_vocab_hash": tokenizer.vocab_hash}
        writer.finish(about | {"n_variants": n_variants, "bpe_dropout": bpe_dropout})
    return TokenStore.open(folder)


def document_hashes(documents: Iterable[Document]) -> NDArray[np.uint64]:
    """64 bits of each text [n]: equal for equal texts."""
    return np.frombuffer(b"".join(_digest(document.text) for document in documents), dtype="<u8")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    some: list[Document] = []
    n_chars = 0
    for document in documents:
        some.append(document)
        n_chars += len(document.text)
        if len(some) == _CHUNK_DOCUMENTS or n_chars >= _CHUNK_CHARS:
            yield some
            some, n_chars = [], 0
    if some:
        yield some


def _parts(text: str) -> list[str]:
    """A text in parts of bounded length. A cut before a space between two visible characters changes no id."""
    parts = []
    start = 0
    while len(text) - start > _PART_CHARS:
        half, full = start + _PART_CHARS // 2, start + _PART_CHARS
        places = [match.start() for match in _SPACE.finditer(text, half, full)]
        end = places[-1] if places else full
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def _encoder(tokenizer: Tokenizer, dropout: float, with_words: bool) -> _Encode:
    table = WordTable(tokenizer)

    def encode(texts: list[str]) -> tuple[TokenLists, TokenLists]:
        parts = [_parts(text) for text in texts]
        flat = list(chain.from_iterable(parts))
        if with_words:
            both = _with_words(tokenizer, flat)
        else:
            ids = encode_texts(tokenizer, flat, dropout) if dropout else table.encode(flat)
            both = ids, _lists([[]] * len(flat))
        ends = np.cumsum([0, *map(len, parts)])
        src, tgt = (TokenLists(lists.ids, lists.offsets[ends]) for lists in both)
        return src, tgt

    return encode


def _with_words(tokenizer: Tokenizer, texts: list[str]) -> tuple[TokenLists, TokenLists]:
    encoded = tokenizer.encode_words(texts)
    words = []
    for _, numbers in encoded:
        starts = [i for i, number in enumerate(numbers) if i == 0 or number is None or number != numbers[i - 1]]
        words.append([end - start for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True)])
    return _lists([ids for ids, _ in encoded]), _lists(words)


def _lists(lists: Sequence[Sequence[int]]) -> TokenLists:
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return TokenLists(np.fromiter(chain.from_iterable(lists), np.uint32, offsets[-1]), offsets)


def _cut(ids: TokenLists, words: TokenLists, size: int) -> tuple[tuple[TokenLists, TokenLists], Integers]:
    """Lists cut into pieces of at most `size`, with the words of each piece, and the list that each came from.

    A word that a cut divides counts as two.
    """
    lengths = np.diff(ids.offsets)
    n_pieces = -(-lengths // size)
    owners = np.repeat(np.arange(len(ids)), n_pieces)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)  # of a piece in its list
    starts = ids.offsets[owners] + number * size
    offsets = np.append(starts, ids.offsets[-1])
    if not len(words.ids):
        return (TokenLists(ids.ids, offsets), TokenLists(words.ids, np.zeros(len(offsets), dtype=np.int64))), owners
    begins = np.union1d(np.cumsum(words.ids, dtype=np.int64) - words.ids, starts)  # of the words, and of the pieces
    pieces = np.diff(np.append(begins, ids.offsets[-1])).astype(np.uint32)
    return (TokenLists(ids.ids, offsets), TokenLists(pieces, np.searchsorted(begins, offsets))), owners


class _Account:
    """Which documents are stored, and how many were left out for which reason."""

    def __init__(self, drop_duplicates: bool) -> None:
        self._seen = SeenHashes() if drop_duplicates else None
        self._inputs = hashlib.sha256()
        self._excluded: dict[str, dict[str, Any]] = {}

    def admit(self, documents: list[Document]) -> list[Document]:
        """The documents that have not been seen before."""
        hashes = document_hashes(documents)
        self._inputs.update(hashes.tobytes())
        if self._seen is None:
            return documents
        is_new = self._seen.add(hashes)
        for i in np.flatnonzero(~is_new):
            example = f"{documents[i].place}: {documents[i].text[:_SHOWN_CHARS]}"
            self._excluded.setdefault("duplicate", {"count": 0, "example": example})["count"] += 1
        return [document for document, new in zip(documents, is_new, strict=True) if new]

    def report(self, documents: Documents, n_rows: int, with_words: bool) -> dict[str, Any]:
        """What `store.json` says about the selection. Raises DataError when nothing is left."""
        bad = {reason: {"count": n, "example": documents.bad_examples[reason]} for reason, n in documents.bad.items()}
        if n_rows == 0:
            raise DataError(
                f"No document is left of {documents.n_rows:,}.",
                "At least one was expected in each part of the data.",
                "Give more text.",
            )
        return {
            "n_read": documents.n_rows,
            "excluded": bad | self._excluded,
            "domains": [""],
            "selection": {"drop_duplicates": self._seen is not None, "with_words": with_words},
            "inputs_sha256": self._inputs.hexdigest(),
        }
