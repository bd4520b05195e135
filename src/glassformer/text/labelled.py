"""Texts with labels, and words with labels, from TSV, CSV, JSONL and CoNLL files."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from glassformer.errors import DataError
from glassformer.text.lines import shown_name
from glassformer.text.readers import MAX_LINE_CHARS
from glassformer.text.rows import RowReader

__all__ = ["LabelledText", "LabelledWords", "TextReader", "WordReader"]

MAX_WORDS = 10_000  # a longer sentence is a file without blank lines; it is never held in memory as a whole
_COMPRESSED = {".gz", ".xz", ".zst"}
_LABEL_KEYS = ("label", "labels")
_TOO_LONG = f"longer than {MAX_LINE_CHARS:,} characters"
_BLANK = "blank line"
_ONE_LABEL_WANTED = "several labels without task.is_multi_label"

Row = TypeVar("Row")


@dataclass(slots=True)
class LabelledText:
    """A text, perhaps a second one to be read with it, its labels, and the line it begins on (from 1)."""

    text: str
    text_b: str | None
    labels: tuple[str, ...]
    row: int


@dataclass(slots=True)
class LabelledWords:
    """The words of a sentence, the label of each, and the line it begins on (from 1)."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    row: int


class _Reader(RowReader, Generic[Row]):
    """Rows of one file, as often as wanted. Standard input is kept in a temporary file.

    Args:
        paths: One name; `-` is standard input.
        encoding: A codec of Python.
        is_strict: Raise at the first bad row instead of counting it.

    Raises:
        DataError: Not one file; or while reading: the file is missing, empty, damaged or wrongly encoded; no row at
            all can be read; with is_strict, a bad row.
    """

    shape = ""  # what a file looks like, for messages
    parsers: dict[str, str]  # end of a file's name -> name of the method that reads it

    def __init__(self, paths: Sequence[str], *, encoding: str = "utf-8", is_strict: bool = False) -> None:
        if len(paths) != 1:
            raise DataError(
                f"{len(paths)} data files were given: {', '.join(paths)}.",
                "One file with texts and labels was expected.",
                "Join your files first (cat a.tsv b.tsv).",
            )
        super().__init__(encoding=encoding, is_strict=is_strict)
        self.path = paths[0]

    def __iter__(self) -> Iterator[Row]:
        self._begin()
        n_good = 0
        for row in self._parser()():
            n_good += 1
            yield row
        if n_good:
            return
        reasons = "; ".join(f"{self.bad_examples[reason]}: {reason}" for reason in self.bad)
        raise DataError(
            f"{shown_name(self.path)} holds no labelled text" + (f" ({reasons})." if reasons else "."),
            f"{self.shape} was expected.",
            "Check that it is the right file.",
        )

    def _parser(self) -> Callable[[], Iterator[Row]]:
        suffixes = [suffix.lower() for suffix in Path(self.path).suffixes if suffix.lower() not in _COMPRESSED]
        name = self.parsers.get(suffixes[-1]) if suffixes else None
        if name is None:
            first = next((line for line in self._lines(self.path, MAX_LINE_CHARS) if line and line.strip()), "")
            name = "_jsonl" if first.lstrip().startswith("{") else self.parsers[""]
        parser: Callable[[], Iterator[Row]] = getattr(self, name)
        return parser

    def _numbered(self) -> Iterator[tuple[int, str | None]]:
        return enumerate(self._lines(self.path, MAX_LINE_CHARS), 1)

    def _reject(self, row: int, reason: str) -> None:
        self._reject_at(f"{shown_name(self.path)}, line {row}", reason)

    def _jsonl(self) -> Iterator[Row]:
        for number, line in self._numbered():
            self.n_rows += 1
            row = _TOO_LONG if line is None else self._from_json(line, number)
            if isinstance(row, str):
                self._reject(number, row)
            else:
                yield row

    def _from_json(self, line: str, number: int) -> Row | str:
        if not line.strip():
            return _BLANK
        try:
            record = json.loads(line)
            json.dumps(record, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # an escape such as \\ud83d can smuggle in what UTF-8 cannot write
            return "half a surrogate pair"
        except (ValueError, RecursionError):
            return "no JSON"
        return self._from_record(record, number) if isinstance(record, dict) else "no JSON object"

    def _from_record(self, record: dict[str, Any], number: int) -> Row | str:
        """The row of a JSON object, or what is wrong with it."""
        raise NotImplementedError


class TextReader(_Reader[LabelledText]):
    """Texts, or pairs of texts, with one label each, or any number of them (`is_multi_label`).

    - TSV: `text, label` or `text, text, label`, split at every tab; a first line that names the columns is one.
    - CSV: with commas and double quotes; the first line names the columns `text`, `label` and perhaps `text_b`.
    - JSONL: `{"text": ..., "label": ...}`, perhaps with `text_b`; `labels` holds a list.

    In TSV and CSV several labels are separated by commas, where several are allowed. White space around a label does
    not belong to it. Either all rows have a second text or none has; the first one decides.

    Attributes:
        has_pairs: Whether rows have a second text; None: not known yet.
    """

    shape = "TSV (text, label), CSV with a first line of names, or JSONL with text and label"
    parsers = {"": "_tsv", ".tsv": "_tsv", ".csv": "_csv", ".jsonl": "_jsonl", ".ndjson": "_jsonl"}  # noqa: RUF012

    def __init__(
        self,
        paths: Sequence[str],
        *,
        is_multi_label: bool = False,
        has_pairs: bool | None = None,
        encoding: str = "utf-8",
        is_strict: bool = False,
    ) -> None:
        super().__init__(paths, encoding=encoding, is_strict=is_strict)
        self.is_multi_label, self.has_pairs = is_multi_label, has_pairs

    def _tsv(self) -> Iterator[LabelledText]:
        columns: list[int] | None = None
        for number, line in self._numbered():
            fields = [] if line is None else line.split("\t")
            if number == 1 and (columns := _header(fields)):
                continue
            self.n_rows += 1
            if line is None or not line.strip():
                self._reject(number, _TOO_LONG if line is None else _BLANK)
            elif columns is None and not 2 <= len(fields) <= 3:
                self._reject(number, f"{len(fields)} columns in place of 2 or 3" if len(fields) > 1 else "1 column")
            else:
                places = columns or [0, *range(1, len(fields) - 1), len(fields) - 1]
                yield from self._from_fields(fields, places, number)

    def _csv(self) -> Iterator[LabelledText]:
        lines = (f'"{_TOO_LONG}"\n' if line is None else f"{line}\n" for _, line in self._numbered())
        reader = csv.reader(lines, strict=True)
        columns: list[int] = []
        while True:
            start = reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                self.n_rows += 1
                self._reject(start, f"broken CSV ({error})")
                continue
            if fields and not columns:
                columns = _header(fields) or self._refuse_header(fields)
            elif fields:
                self.n_rows += 1
                yield from self._from_fields(fields, columns, start)

    def _refuse_header(self, fields: list[str]) -> NoReturn:
        raise DataError(
            f"The first line of {shown_name(self.path)} names the columns {', '.join(fields)}.",
            "The columns text and label, and perhaps text_b, were expected.",
            "Name them so, or give a TSV file.",
        )

    def _from_fields(self, fields: list[str], places: list[int], number: int) -> Iterator[LabelledText]:
        if len(fields) <= max(places):
            self._reject(number, _TOO_LONG if fields == [_TOO_LONG] else "too few columns")
            return
        *texts, label = (fields[place] for place in places)
        labels = label.split(",") if self.is_multi_label else [label]
        row = self._row(texts[0], texts[1] if len(texts) > 1 else None, labels, number)
        if isinstance(row, str):
            self._reject(number, row)
        else:
            yield row

    def _from_record(self, record: dict[str, Any], number: int) -> LabelledText | str:
        text, text_b = record.get("text"), record.get("text_b")
        if not isinstance(text, str) or not isinstance(text_b, str | None):
            return "no text under text and text_b"
        if not any(key in record for key in _LABEL_KEYS):
            return "no key label or labels"
        labels = record["labels"] if "labels" in record else [record["label"]]
        if not isinstance(labels, list) or not all(isinstance(label, str | int) for label in labels):
            return "a label that is neither a text nor a whole number"
        return self._row(
            text, text_b, [label if isinstance(label, str) else json.dumps(label) for label in labels], number
        )

    def _row(self, text: str, text_b: str | None, labels: list[str], number: int) -> LabelledText | str:
        """The row, or what is wrong with it."""
        if not text.strip() or (text_b is not None and not text_b.strip()):
            return "blank text"
        names = sorted({label.strip() for label in labels} - {""})
        if not self.is_multi_label and len(names) != 1:
            return _ONE_LABEL_WANTED if names else "no label"
        if self.has_pairs is None:
            self.has_pairs = text_b is not None
        if self.has_pairs != (text_b is not None):
            return "one text where others are two" if self.has_pairs else "two texts where others are one"
        return LabelledText(text, text_b, tuple(names), number)


def _header(fields: list[str]) -> list[int] | None:
    """The places of text, text_b (if there) and label, if these fields are names of columns."""
    names = [field.strip().lower() for field in fields]
    label = next((names.index(key) for key in _LABEL_KEYS if key in names), None)
    if label is None or "text" not in names:
        return None
    return [names.index("text"), *([names.index("text_b")] if "text_b" in names else []), label]


class WordReader(_Reader[LabelledWords]):
    """Sentences of words with labels.

    - CoNLL: a line a word, its first column the word and its last the label, between them whatever there is; columns
      are separated by tabs, or by spaces in a line without one. A blank line ends a sentence. Lines that begin with
      -DOCSTART- are left out.
    - JSONL: `{"tokens": [...], "labels": [...]}`.

    A sentence with a bad line is left out as a whole, so no label moves to another word.
    """

    shape = "CoNLL (a word and its label a line, a blank line between sentences) or JSONL with tokens and labels"
    parsers = {"": "_conll", ".jsonl": "_jsonl", ".ndjson": "_jsonl"}  # noqa: RUF012

    def _conll(self) -> Iterator[LabelledWords]:
        words: list[tuple[str, str]] = []
        bad: tuple[int, str] | None = None
        start = 0
        for number, line in chain(self._numbered(), [(0, "")]):
            if line is not None and not line.strip():
                self.n_rows += bool(words or bad)
                if bad:
                    self._reject(*bad)
                elif words:
                    yield LabelledWords(tuple(w for w, _ in words), tuple(label for _, label in words), start)
                words, bad = [], None
            elif line is None or not line.startswith("-DOCSTART-"):
                start = start if words else number
                word = _TOO_LONG if line is None else _columns(line)
                if len(words) == MAX_WORDS:
                    word = f"a sentence of more than {MAX_WORDS:,} words"
                if isinstance(word, str):
                    bad = bad or (number, word)
                else:
                    words.append(word)

    def _from_record(self, record: dict[str, Any], number: int) -> LabelledWords | str:
        words: Any = record.get("tokens")
        labels: Any = record.get("labels")
        if not _are_texts(words) or not _are_texts(labels):
            return "tokens and labels that are no lists of texts"
        if not words or len(words) != len(labels):
            return f"{len(words)} tokens and {len(labels)} labels" if words or labels else "no token"
        return LabelledWords(tuple(words), tuple(labels), number)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) and text.strip() for text in value)


def _columns(line: str) -> tuple[str, str] | str:
    """Word and label of a line of CoNLL, or what is wrong with it."""
    fields = line.split("\t") if "\t" in line else [field for field in line.split(" ") if field]
    if len(fields) < 2:
        return "1 column"
    word, label = fields[0].strip(" "), fields[-1].strip(" ")
    return (word, label) if word.strip() and label.strip() else "an empty column"
