"""From tokens to text as it grows: never half a character, and never a part of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from glassformer.errors import ConfigError

__all__ = ["StopStrings", "TextStream"]


class TextStream:
    """The text of bytes that arrive in pieces.

    What `push` returns is final: the pieces joined, with that of `finish` at the end, are the whole text, cut before
    the stop string that ends first (of two that end at one place, before the longer one). So nothing depends on where
    the bytes were cut into pieces. Two things are held back until the next piece: bytes of a character that is not
    complete, and text with which a stop string may have begun. Bytes that are no UTF-8 become U+FFFD, as in
    `Tokenizer.decode`.

    Cost: linear in the length of the text, whatever its pieces are.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = [check_stop(text) for text in stop]
        self._first_chars = {text[0] for text in self._stop}
        self._most_held = max(map(len, self._stop), default=1) - 1
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # may be the begin of a stop string
        self.is_stopped = False  # a stop string has been found; what follows is ignored

    def push(self, piece: bytes) -> str:
        """Takes more bytes; returns the text that has become final."""
        if self.is_stopped:
            return ""
        text = self._held + self._decoder.decode(piece)
        ends = [(start + len(stop), start) for stop in self._stop if (start := text.find(stop)) >= 0]
        if ends:
            self.is_stopped, self._held = True, ""
            return text[: min(ends)[1]]
        start = self._begin_of_stop(text)
        self._held = text[start:]
        return text[:start]

    def finish(self) -> str:
        """Returns what was held back. A character that never became complete is one U+FFFD, as when it is decoded."""
        text = "" if self.is_stopped else self._held + self._decoder.decode(b"", final=True)
        self._held = ""
        return text

    def _begin_of_stop(self, text: str) -> int:
        """Where the longest end of the text starts with which a stop string begins; len(text) if none does."""
        for start in range(max(0, len(text) - self._most_held), len(text)):
            if text[start] in self._first_chars and any(stop.startswith(text[start:]) for stop in self._stop):
                return start
        return len(text)


class StopStrings:
    """Ends a row as soon as its text holds one of the stop strings. Rows are told apart by their numbers."""

    def __init__(self, stop: Sequence[str], bytes_of: Callable[[int], bytes]) -> None:
        self._stop, self._bytes_of = stop, bytes_of
        self._streams: dict[int, TextStream] = {}

    def __call__(self, row: int, token: int) -> bool:
        """Takes the next token of a row; returns whether its text ends here."""
        stream = self._streams.setdefault(row, TextStream(self._stop))
        stream.push(self._bytes_of(token))
        return stream.is_stopped


def check_stop(text: str) -> str:
    """Returns a stop string, or raises ConfigError when it is empty and would end every text before its begin."""
    if not text:
        raise ConfigError(
            "stop='' is empty.", "A text that ends the output was expected.", "Leave it out to stop nowhere."
        )
    return text
