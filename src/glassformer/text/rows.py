"""What readers of files share: standard input that can be read again, and rows that are counted when they are bad."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.errors import DataError
from glassformer.text.lines import open_bytes, shown_name, split_lines

__all__ = ["RowReader"]


class RowReader:
    """Lines of files, as often as wanted, and the account of what could not be read.

    Attributes:
        n_rows: Rows seen in the current or last pass, bad ones included.
        bad: Rows of that pass that could not be read, by reason.
        bad_examples: The first place of each reason, such as `data.tsv, line 17`.

    Args:
        encoding: A codec of Python.
        is_strict: Raise at the first bad row instead of counting it.
    """

    def __init__(self, *, encoding: str, is_strict: bool) -> None:
        self.encoding, self.is_strict = encoding, is_strict
        self._spool: Any = None
        self._begin()

    def _begin(self) -> None:
        """Begins a pass."""
        self.n_rows = 0
        self.bad: Counter[str] = Counter()
        self.bad_examples: dict[str, str] = {}

    def _open(self, path: str) -> Any:
        """Opens a file; standard input is copied at its first use, so that it can be read again."""
        if path != "-":
            return open_bytes(path)
        if self._spool is None:
            self._spool = tempfile.NamedTemporaryFile()  # noqa: SIM115  (lives as long as the reader)
            shutil.copyfileobj(sys.stdin.buffer, self._spool)
            self._spool.flush()
        return Path(self._spool.name).open("rb")

    def _lines(self, path: str, max_chars: int | None = None) -> Iterator[str | None]:
        """The lines of a file; None for one of more than max_chars characters."""
        with self._open(path) as file:
            yield from split_lines(file, shown_name(path), encoding=self.encoding, max_chars=max_chars)

    def _reject_at(self, place: str, reason: str, n_rows: int = 1) -> None:
        if self.is_strict:
            raise DataError(
                f"{place}: {reason}.", "With --strict every row must be good.", "Mend the row, or leave out --strict."
            )
        self.bad[reason] += n_rows
        self.bad_examples.setdefault(reason, place)
