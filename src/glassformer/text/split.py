"""Holds out a part of the data for validation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Part", "Source"]


Row = TypeVar("Row")
SomeRow = TypeVar("SomeRow", covariant=True)


class Source(Protocol[SomeRow]):
    """A reader; its attributes describe the last pass."""

    @property
    def n_rows(self) -> int:
        """Rows seen."""

    @property
    def bad(self) -> Any:
        """Reason -> count of the rows that could not be read."""

    @property
    def bad_examples(self) -> dict[str, str]:
        """Reason -> place of the first such row."""

    def __iter__(self) -> Iterator[SomeRow]: ...


class Part(Generic[Row]):
    """The training or the validation part of a reader's rows.

    The text `key(row)` alone decides where a row goes, so no such text stands in both parts, and the same data give
    the same parts whatever their order.
    """

    def __init__(self, reader: Source[Row], *, key: Callable[[Row], str], valid_share: float, is_valid: bool) -> None:
        self._reader, self._key, self._is_valid = reader, key, is_valid
        self._bound = int(valid_share * 2**32)

    def __iter__(self) -> Iterator[Row]:
        for row in self._reader:
            digest = hashlib.blake2b(self._key(row).encode("utf-8", "replace"), digest_size=4).digest()
            if (int.from_bytes(digest, "little") < self._bound) == self._is_valid:
                yield row

    @property
    def n_rows(self) -> int:
        """Rows of the whole input."""
        return self._reader.n_rows

    @property
    def bad(self) -> dict[str, int]:
        """Rows that could not be read, by reason; they belong to the training part."""
        return {} if self._is_valid else self._reader.bad

    @property
    def bad_examples(self) -> dict[str, str]:
        """Where the first of each kind stands."""
        return {} if self._is_valid else self._reader.bad_examples
