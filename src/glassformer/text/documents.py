"""Raw text: documents from plain or JSONL files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from glassformer.errors import DataError
from glassformer.text.lines import shown_name
from glassformer.text.rows import RowReader

__all__ = ["Document", "DocumentForm", "DocumentReader"]

DocumentForm = Literal["line", "paragraph", "jsonl"]

_JSON_SUFFIXES = {".jsonl", ".ndjson"}


@dataclass(slots=True)
class Document:
    """A text, the file that it stands in, and the line on which it begins (from 1)."""

    text: str
    path: str
    row: int

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{shown_name(self.path)}, line {self.row}"


class DocumentReader(RowReader):
    """The documents of some files, one at a time, as often as wanted. Nothing in a text is changed.

    - `line`: each line is a document; blank lines are counted as bad rows.
    - `paragraph`: the lines between blank lines, joined by `\\n`.
    - `jsonl`: each line is a JSON object with its text under `text`. Files named .jsonl or .ndjson (compressed or not)
      are always read like this.

    Args:
        paths: Names of files, compressed or not; `-` is standard input.
        form: What a document is.
        encoding: A codec of Python.
        is_strict: Raise at the first bad row instead of counting it.

    Raises:
        DataError: No file, or standard input twice. While reading: a file is missing, damaged or wrongly encoded; no
            document is there; with is_strict, a bad row.

    Cost: memory for one document.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        form: DocumentForm = "line",
        encoding: str = "utf-8",
        is_strict: bool = False,
    ) -> None:
        super().__init__(encoding=encoding, is_strict=is_strict)
        self.paths, self.form = tuple(paths), form
        if not paths or self.paths.count("-") > 1:
            raise DataError(
                f"{len(paths)} files were given: {', '.join(paths)}.",
                "One file of text or more, of which one may be standard input (-).",
                "Name each file once.",
            )

    def __iter__(self) -> Iterator[Document]:
        self._begin()
        for path in self.paths:
            yield from self._documents(path)
        if self.bad.total() < self.n_rows:
            return
        name = ", ".join(map(shown_name, self.paths))
        reasons = "; ".join(f"{count:,} rows: {reason}" for reason, count in self.bad.most_common())
        raise DataError(
            f"{name} holds no document{f' ({reasons})' if reasons else ''}.",
            "At least one was expected.",
            "Check that it is the right file, and what a document is (data.document).",
        )

    def _documents(self, path: str) -> Iterator[Document]:
        suffixes = {suffix.lower() for suffix in Path(path).suffixes[-2:]}
        if self.form == "jsonl" or suffixes & _JSON_SUFFIXES:
            return self._of_json(path)
        return self._of_lines(path) if self.form == "line" else self._of_paragraphs(path)

    def _numbered(self, path: str) -> Iterator[tuple[int, str]]:
        for row, line in enumerate(self._lines(path), 1):
            assert line is not None  # without a limit no line is too long
            yield row, line

    def _of_lines(self, path: str) -> Iterator[Document]:
        for row, line in self._numbered(path):
            self.n_rows += 1
            document = Document(line, path, row)
            if not line or line.isspace():
                self._reject_at(document.place, "blank line")
            else:
                yield document

    def _of_paragraphs(self, path: str) -> Iterator[Document]:
        lines: list[str] = []
        row = 0
        for row, line in self._numbered(path):
            if line and not line.isspace():
                lines.append(line)
            elif lines:
                self.n_rows += 1
                yield Document("\n".join(lines), path, row - len(lines))
                lines = []
        if lines:
            self.n_rows += 1
            yield Document("\n".join(lines), path, row + 1 - len(lines))

    def _of_json(self, path: str) -> Iterator[Document]:
        for row, line in self._numbered(path):
            self.n_rows += 1
            document = Document("", path, row)
            reason = self._read_json(line, document)
            if reason:
                self._reject_at(document.place, reason)
            else:
                yield document

    @staticmethod
    def _read_json(line: str, document: Document) -> str:
        """Sets the text of a document from its line; returns what is wrong with it, or nothing."""
        if not line or line.isspace():
            return "blank line"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return "no JSON"
        text = record.get("text") if isinstance(record, dict) else None
        if not isinstance(text, str):
            return "no text under text"
        if not text or text.isspace():
            return "blank text"
        try:
            text.encode()  # an escape such as \\ud83d can smuggle in what UTF-8 cannot write
        except UnicodeEncodeError:
            return "half a surrogate pair"
        document.text = text
        return ""
