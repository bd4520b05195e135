"""Queries with the text that belongs to each, and texts that look right and are not (hard negatives)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.config import DataConfig
from glassformer.data.prepare import Reader, Selection, chunks, require_free
from glassformer.data.store import TokenLists, TokenStore
from glassformer.data.words import encode_texts
from glassformer.data.writer import StoreWriter
from glassformer.errors import DataError
from glassformer.text.readers import Pair, PairReader
from glassformer.text.tokenizer import Tokenizer

__all__ = ["Triple", "TripleReader", "prepare_triples"]

_KEYS = ("query", "positive")


@dataclass(slots=True)
class Triple(Pair):
    """A query (`src`), its positive (`tgt`) and hard negatives."""

    negatives: tuple[str, ...] = ()


class TripleReader(PairReader):
    """A `PairReader` that knows hard negatives.

    - JSONL: `{"query": ..., "positive": ..., "negatives": [...]}`; the keys of pairs serve too.
    - TSV: with `has_negatives`, the columns behind the second, as many as a row has; empty ones are none.

    Args:
        paths, options: As `PairReader`.
        has_negatives: Further columns of a TSV are hard negatives, not a domain.

    Raises:
        DataError: As `PairReader`; or negatives are asked of a format that has no place for them.
    """

    def __init__(self, paths: Sequence[str], *, has_negatives: bool = False, **options: Any) -> None:
        super().__init__(paths, **options)
        self._has_negatives = has_negatives
        if has_negatives and len(paths) == 2:
            raise _no_place("two plain files")

    def _tsv(self) -> Iterator[Pair]:
        if not self._has_negatives:
            yield from super()._tsv()
            return
        for row, line in enumerate(self._lines(self.paths[0]), 1):
            self.n_rows = row
            fields = (line or "").split("\t")
            if len(fields) > 1:
                yield Triple(fields[0], fields[1], None, row, tuple(text for text in fields[2:] if text.strip()))
            else:
                self._reject(row, "too long a line" if line is None else "1 column" if line.strip() else "blank line")

    def _from_record(self, record: dict[str, Any], row: int) -> Pair | str:
        if all(key in record for key in _KEYS):
            record = {**record, "src": record["query"], "tgt": record["positive"]}
        pair = super()._from_record(record, row)
        negatives = record.get("negatives", [])
        if isinstance(pair, str):
            return pair
        if not isinstance(negatives, list) or not all(isinstance(text, str) for text in negatives):
            return "negatives that are no list of texts"
        if not all(text.strip() for text in negatives):
            return "a blank negative"
        try:
            "".join(negatives).encode()
        except UnicodeEncodeError:
            return "half a surrogate pair"
        return Triple(pair.src, pair.tgt, pair.domain, row, tuple(negatives))

    def _csv(self) -> Iterator[Pair]:
        if self._has_negatives:
            raise _no_place("CSV")
        return super()._csv()

    def _header(self, fields: list[str]) -> tuple[int, ...]:
        names = [field.strip().lower() for field in fields]
        places = super()._header(fields) or tuple(names.index(key) for key in _KEYS if set(_KEYS) <= set(names))
        if places and any(name.startswith("negative") for name in names):
            raise _no_place("CSV")
        return places


def _no_place(kind: str) -> DataError:
    return DataError(
        f"Hard negatives were asked of {kind}.",
        "TSV with further columns, or JSONL with the key negatives, holds them.",
        "Write the data as JSONL, or leave the negatives out.",
    )


def prepare_triples(
    reader: Reader,
    tokenizer: Tokenizer,
    folder: Path,
    config: DataConfig,
    *,
    n_variants: int = 1,
    bpe_dropout: float = 0.0,
) -> TokenStore:
    """Tokenises every row that the config admits into a new folder, as `prepare` does for pairs.

    `src` of the store is the query; `tgt` the positive and the hard negatives, each ended by the end token, which no
    text holds. A row of which one text has more than max_tokens tokens, begin and end counted, is left out.

    Raises:
        DataError: The folder is not empty, no row is left, or the reader raises it.
        GlassformerError: The files cannot be written, for example because the disk is full.
    """
    require_free(folder)
    selection = Selection(config)
    n_variants = n_variants if bpe_dropout > 0 else 1
    with StoreWriter(folder, (tokenizer.vocab_size, tokenizer.vocab_size), n_variants) as writer:
        for chunk in chunks(reader):
            rows = selection.admit(chunk)
            variants, longest = [], np.zeros(len(rows), dtype=np.int64)
            for _ in range(n_variants):
                lists, lengths = _encoded(rows, tokenizer, bpe_dropout)
                variants.append(lists)
                longest = np.maximum(longest, lengths)
            is_kept: NDArray[np.bool_] = longest + 2 <= config.max_tokens
            long = f"a text of more than {config.max_tokens} tokens"
            selection.leave_out(rows, [None if kept else long for kept in is_kept])
            writer.append(selection.numbered_domains(rows), [row.row for row in rows], variants, is_kept)
        about = selection.report(reader, writer.n_pairs)
        about |= {"src_vocab_hash": tokenizer.vocab_hash, "tgt_vocab_hash": tokenizer.vocab_hash}
        writer.finish(about | {"n_variants": n_variants, "bpe_dropout": bpe_dropout})
    return TokenStore.open(folder)


def _encoded(
    rows: list[Pair], tokenizer: Tokenizer, dropout: float
) -> tuple[tuple[TokenLists, TokenLists], NDArray[np.int64]]:
    """Queries, the other texts of each row with their ends, and the length [n] of each row's longest text."""
    texts = [[row.tgt, *(row.negatives if isinstance(row, Triple) else ())] for row in rows]
    queries = encode_texts(tokenizer, [row.src for row in rows], dropout)
    others = encode_texts(tokenizer, list(chain.from_iterable(texts)), dropout)
    firsts = np.cumsum([0, *map(len, texts)])  # number of each row's first text
    ids = np.insert(others.ids, others.offsets[1:], tokenizer.eos_id)
    offsets = others.offsets + np.arange(len(others.offsets))
    longest = np.diff(queries.offsets)
    if rows:
        longest = np.maximum(longest, np.maximum.reduceat(np.diff(others.offsets), firsts[:-1]))
    return (queries, TokenLists(ids, offsets[firsts])), longest
