"""Pairs of texts from one TSV, CSV or JSONL file or from two plain files."""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NoReturn

from glassformer.errors import DataError
from glassformer.text.alignment import parting
from glassformer.text.lines import read_lines, shown_name
from glassformer.text.rows import RowReader

__all__ = ["MAX_LINE_CHARS", "Format", "Pair", "PairReader", "read_lines"]

Format = Literal["tsv", "csv", "jsonl", "plain"]

# A longer line is no sentence; it is counted as a bad row, and never held in memory as a whole.
MAX_LINE_CHARS = 1_000_000
_SUFFIXES: dict[str, Format] = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_COMPRESSED = {".gz", ".xz", ".zst"}
_END: Any = object()  # stands for a line that one of two files does not have
_TOO_LONG = f"longer than {MAX_LINE_CHARS:,} characters"


@dataclass(slots=True)
class Pair:
    """A source text, its translation, the domain if the data name one, and the line it begins on (from 1)."""

    src: str
    tgt: str
    domain: str | None
    row: int


class PairReader(RowReader):
    """The pairs of a data set, one at a time, as often as wanted. Standard input is kept in a temporary file.

    One file holds both sides; its format is `format`, or follows from its name, or from its first line:

    - TSV: source, target and, if there, the domain. Split at every tab; quotes are text.
    - CSV: the same with commas and double quotes, or columns in any order under a first line that names them
      (`src`, `tgt` or the language codes, and `domain`).
    - JSONL: objects with the keys `src` and `tgt` or the language codes, and `domain` if there; also inside
      `"translation": {...}`.

    Two files hold one side each, a line a text, and must have the same number of lines.

    Args:
        paths: One or two names; `-` is standard input.
        src, tgt: Language codes, the names of columns and keys.
        format: `tsv`, `csv` or `jsonl`.
        encoding: A codec of Python.
        is_strict: Raise at the first bad row instead of counting it.

    Raises:
        DataError: While reading: a file is missing, empty, damaged or wrongly encoded; two files differ in their
            number of lines; no row at all can be read; with is_strict, a bad row.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        src: str = "src",
        tgt: str = "tgt",
        format: Format | None = None,
        encoding: str = "utf-8",
        is_strict: bool = False,
    ) -> None:
        if not 1 <= len(paths) <= 2 or list(paths).count("-") > 1:
            raise DataError(
                f"{len(paths)} data files were given: {', '.join(paths)}.",
                "One file with both sides, or two files with one side each, of which one may be standard input.",
                "Join your files first (cat a.tsv b.tsv).",
            )
        super().__init__(encoding=encoding, is_strict=is_strict)
        self.paths = tuple(paths)
        self._names = (src, tgt)
        self._format = format

    def __iter__(self) -> Iterator[Pair]:
        self._begin()
        yield from self._plain() if len(self.paths) == 2 else self._one_file()
        name = " and ".join(map(shown_name, self.paths))
        if self.n_rows == 0:
            raise DataError(f"{name} is empty.", "At least one pair was expected.", "Check that it is the right file.")
        if self.bad.total() >= self.n_rows:
            reasons = "; ".join(f"{count:,} rows: {reason}" for reason, count in self.bad.most_common())
            raise DataError(
                f"No row of {name} can be read ({reasons}).",
                "TSV with 2 or 3 columns, CSV, JSONL, or two plain files were expected.",
                "Name the format (--format) or the languages (--src, --tgt).",
            )

    def _lines(self, path: str, max_chars: int | None = MAX_LINE_CHARS) -> Iterator[str | None]:
        return super()._lines(path, max_chars)

    def _reject(self, row: int, reason: str, n_rows: int = 1) -> None:
        self._reject_at(f"{' and '.join(map(shown_name, self.paths))}, line {row}", reason, n_rows)

    # One file

    def _one_file(self) -> Iterator[Pair]:
        parsers: dict[Format, Callable[[], Iterator[Pair]]] = {"tsv": self._tsv, "csv": self._csv, "jsonl": self._jsonl}
        kind = self._format or self._guessed_format()
        if kind not in parsers:
            raise DataError(
                f"format={kind!r} is unknown for one file.", "tsv, csv or jsonl was expected.", "Name one of these."
            )
        return parsers[kind]()

    def _guessed_format(self) -> Format:
        path = self.paths[0]
        suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() not in _COMPRESSED]
        if suffixes and suffixes[-1] in _SUFFIXES:
            return _SUFFIXES[suffixes[-1]]
        first = next(self._lines(path), "") or ""
        if first.lstrip().startswith("{"):
            return "jsonl"
        if "\t" in first or not first:
            return "tsv"
        raise DataError(
            f"{shown_name(path)} has one side only, as far as its first line tells.",
            "A tab between source and target, JSON, or a second file with the targets was expected.",
            "Give two files, or name the format (--format csv).",
        )

    def _tsv(self) -> Iterator[Pair]:
        for row, line in enumerate(self._lines(self.paths[0]), 1):
            self.n_rows = row
            fields = () if line is None else line.split("\t")
            if len(fields) == 3:
                yield Pair(fields[0], fields[1], fields[2] or None, row)
            elif len(fields) == 2:
                yield Pair(fields[0], fields[1], None, row)
            elif line is None:
                self._reject(row, _TOO_LONG)
            elif not line or line.isspace():
                self._reject(row, "blank line")
            else:
                self._reject(row, "1 column" if len(fields) == 1 else "more than 3 columns")

    def _jsonl(self) -> Iterator[Pair]:
        for row, line in enumerate(self._lines(self.paths[0]), 1):
            self.n_rows = row
            if line is None:
                self._reject(row, _TOO_LONG)
            elif not line or line.isspace():
                self._reject(row, "blank line")
            else:
                pair = self._from_json(line, row)
                if isinstance(pair, str):
                    self._reject(row, pair)
                else:
                    yield pair

    def _from_json(self, line: str, row: int) -> Pair | str:
        """The pair of one line, or what is wrong with it."""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return "no JSON"
        return self._from_record(record, row) if isinstance(record, dict) else "no JSON object"

    def _from_record(self, record: dict[str, Any], row: int) -> Pair | str:
        """The pair of one JSON object, or what is wrong with it."""
        sides = record.get("translation", record)
        if not isinstance(sides, dict):
            return "no JSON object"
        src, tgt = (sides.get(name, sides.get(key)) for name, key in zip(self._names, ("src", "tgt"), strict=True))
        if not isinstance(src, str) or not isinstance(tgt, str):
            return f"no text under {' and '.join(self._names)}"
        try:
            (src + tgt).encode()  # an escape such as \\ud83d can smuggle in what UTF-8 cannot write
        except UnicodeEncodeError:
            return "half a surrogate pair"
        domain = record.get("domain")
        return Pair(src, tgt, domain if isinstance(domain, str) else None, row)

    def _csv(self) -> Iterator[Pair]:
        reader = csv.reader(self._csv_lines(), strict=True)
        columns: tuple[int, ...] | None = None
        n_before = 0
        while True:
            pair: Pair | str
            fields: list[str] = []
            try:
                fields = next(reader)
                pair = ""
            except StopIteration:
                return
            except csv.Error as error:
                pair = f"broken CSV ({error})"
            row, n_lines, n_before = n_before + 1, reader.line_num - n_before, reader.line_num
            if columns is None and (columns := self._header(fields)):
                continue
            n_rows = n_lines if pair else 1  # what else stood in a broken record cannot be known
            self.n_rows += n_rows
            pair = pair or self._from_csv(fields, columns, row)
            if isinstance(pair, str):
                self._reject(row, pair, n_rows)
            else:
                yield pair

    def _csv_lines(self) -> Iterator[str]:
        for line in self._lines(self.paths[0]):
            yield f'"{_TOO_LONG}"\n' if line is None else f"{line}\n"

    @staticmethod
    def _from_csv(fields: list[str], columns: tuple[int, ...] | None, row: int) -> Pair | str:
        """The pair of one record, or what is wrong with it."""
        if not fields:
            return "blank line"
        if fields == [_TOO_LONG]:
            return _TOO_LONG
        if columns and len(fields) > max(columns):
            fields = [fields[i] for i in columns]
        elif columns or len(fields) < 2:
            return "too few columns"
        elif len(fields) > 3:
            return "more than 3 columns"
        return Pair(fields[0], fields[1], (fields[2] or None) if len(fields) == 3 else None, row)

    def _header(self, fields: list[str]) -> tuple[int, ...]:
        """The places of source, target and domain if these fields are names of columns; else nothing."""
        names = [field.strip().lower() for field in fields]
        for src, tgt in (tuple(name.lower() for name in self._names), ("src", "tgt"), ("source", "target")):
            if src in names and tgt in names:
                places = (names.index(src), names.index(tgt))
                return (*places, names.index("domain")) if "domain" in names else places
        return ()

    # Two files

    def _plain(self) -> Iterator[Pair]:
        sides = [self._lines(path) for path in self.paths]
        for row, (src, tgt) in enumerate(zip_longest(*sides, fillvalue=_END), 1):
            if src is _END or tgt is _END:
                n_more = sum(1 for _ in sides[0 if tgt is _END else 1])
                self._refuse_unequal(*((row - 1, row + n_more) if src is _END else (row + n_more, row - 1)))
            self.n_rows = row
            if src is None or tgt is None:
                self._reject(row, _TOO_LONG)
            else:
                yield Pair(src, tgt, None, row)

    def _refuse_unequal(self, n_src: int, n_tgt: int) -> NoReturn:
        lengths = [array("L", (len(line or "") for line in self._lines(path))) for path in self.paths]
        line = parting(*lengths)
        place = "Too few lines, or lengths too different, to guess where they part: compare the two line by line."
        if line is not None:
            place = (
                f"Look near line {line:,}: from there on the lengths of their lines no longer go together (a guess)."
            )
        src, tgt = map(shown_name, self.paths)
        raise DataError(
            f"{src} has {n_src:,} lines, but {tgt} has {n_tgt:,}.",
            "Line n of one must be the translation of line n of the other.",
            place,
        )
