"""Holds out a part of the data for validation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from glassformer.text.readers import Pair, PairReader

__all__ = ["Part"]


class Part:
    """The training or the validation part of a reader's pairs.

    The source text alone decides where a pair goes, so no source stands in both parts, and the same data give the
    same parts whatever their order.
    """

    def __init__(self, reader: PairReader, *, valid_share: float, is_valid: bool) -> None:
        self._reader, self._is_valid = reader, is_valid
        self._bound = int(valid_share * 2**32)

    def __iter__(self) -> Iterator[Pair]:
        for pair in self._reader:
            digest = hashlib.blake2b(pair.src.encode("utf-8", "replace"), digest_size=4).digest()
            if (int.from_bytes(digest, "little") < self._bound) == self._is_valid:
                yield pair

    @property
    def n_rows(self) -> int:
        """Rows of the whole input."""
        return self._reader.n_rows

    @property
    def bad(self) -> dict[str, int]:
        """Rows that are no pair, by reason; they belong to the training part."""
        return {} if self._is_valid else self._reader.bad

    @property
    def bad_examples(self) -> dict[str, str]:
        """Where the first of each kind stands."""
        return {} if self._is_valid else self._reader.bad_examples
