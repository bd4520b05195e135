"""Lines from files, compressed or not, or from standard input.

A line ends at `\\n` or `\\r\\n` and nowhere else: a lone `\\r`, U+2028 and the like are text. Compression is
known by content, never by name.
"""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

from glassformer.errors import DataError

__all__ = ["open_bytes", "read_lines", "shown_name", "split_lines"]

_BLOCK_BYTES = 1 << 20
_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"


def read_lines(path: str, *, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a text file, without their ends; a byte-order mark is removed at the start of the file only.

    A last line without `\\n` counts as a line; nothing after the last `\\n` does not.

    Args:
        path: A plain, gzip, xz or zstd file (known by content; several members are read in turn), or `-` for
            standard input.
        encoding: A codec of Python for text.

    Raises:
        DataError: The file is missing, cut off or damaged, or a byte does not fit the encoding (with line and offset).
    """
    with open_bytes(path) as file:
        for line in split_lines(file, shown_name(path), encoding=encoding):
            assert line is not None  # without a limit no line is too long
            yield line


def shown_name(path: str) -> str:
    """The name of a file in messages."""
    return "standard input" if path == "-" else path


def open_bytes(path: str) -> Any:
    """Opens a file, or standard input for `-`, as bytes; a context manager.

    Raises:
        DataError: The file is missing, a folder, or not readable.
    """
    if path == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}.",
            "A text file, or - for standard input, was expected.",
            "Check the name and the rights of the file.",
        ) from error


def split_lines(file: IO[bytes], name: str, *, encoding: str, max_chars: int | None = None) -> Iterator[str | None]:
    """The lines of an open file as in `read_lines`; None for a line longer than max_chars, in bounded memory."""
    parts: list[str] = []  # of the line that is not complete yet
    n_chars = 0
    for text in _decoded(_blocks(file, name), name, encoding):
        head, *rest = text.split("\n")
        if max_chars is None or n_chars <= max_chars:
            parts.append(head)
        n_chars += len(head)
        if not rest:
            continue
        rest.insert(0, "".join(parts))
        tail = rest.pop()
        has_returns = "\r" in text or rest[0].endswith("\r")
        for line in rest:
            if max_chars is not None and len(line) > max_chars:
                yield None
            else:
                yield line[:-1] if has_returns and line.endswith("\r") else line
        parts, n_chars = [tail], len(tail)
    if n_chars:
        yield None if max_chars is not None and n_chars > max_chars else "".join(parts)


def _decoded(blocks: Iterator[bytes], name: str, encoding: str) -> Iterator[str]:
    """Blocks of text. Counts lines and bytes, so that a wrong byte can be named."""
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=encoding)  # refuses codecs that are not of text, such as hex
        decoder = codecs.getincrementaldecoder(encoding)()
    except LookupError as error:
        raise DataError(
            f"encoding={encoding!r} is unknown.",
            "A codec of Python for text was expected.",
            "Use utf-8 or latin-1, say.",
        ) from error
    n_lines = n_bytes = 0
    is_start = True
    for block in blocks:
        n_kept = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            line = n_lines + error.object[: error.start].count(b"\n") + 1
            offset = n_bytes - n_kept + error.start
            raise DataError(
                f"{name}, line {line}: byte 0x{error.object[error.start]:02X} at offset {offset} is not {encoding}.",
                f"Text in {encoding} was expected.",
                "Convert the file, or name its encoding (--encoding latin-1; with train --set data.encoding=latin-1).",
            ) from error
        except UnicodeError as error:  # UTF-16 and UTF-32 without their mark
            raise DataError(
                f"{name} is not {encoding} ({error}).",
                f"Text in {encoding} was expected.",
                "Convert the file, or name its encoding, with the order of its bytes (utf-16-le, say).",
            ) from error
        n_bytes += len(block)
        n_lines += text.count("\n")
        if is_start and text:
            is_start = False
            text = text.removeprefix("\ufeff")
        if text:
            yield text


def _blocks(file: IO[bytes], name: str) -> Iterator[bytes]:
    """The decompressed content in blocks, and one empty block at its end."""
    head = file.read(len(_XZ))
    stream: Any = _Rest(head, file)
    reader: Callable[[int], bytes] = stream.read
    if head.startswith(_GZIP):
        reader = gzip.GzipFile(fileobj=stream).read
    elif head.startswith(_XZ):
        reader = lzma.LZMAFile(stream).read  # noqa: SIM115  (the caller closes the file below it)
    elif head.startswith(_ZSTD):
        reader = _Zstd(stream).read
    try:
        while block := reader(_BLOCK_BYTES):
            yield block
        yield b""
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise DataError(
            f"{name} is cut off or damaged: {error}.",
            "A whole file was expected.",
            "Copy or download it again, or test it with gzip -t, xz -t or zstd -t.",
        ) from error


class _Rest:
    """A stream whose first bytes have been looked at already. Works for pipes, which cannot be rewound."""

    def __init__(self, head: bytes, file: IO[bytes]) -> None:
        self._head, self._file = head, file

    def read(self, size: int = -1) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            if 0 <= size < len(head):
                head, self._head = head[:size], head[size:]
            return head
        return self._file.read(size)

    def seekable(self) -> bool:
        return False


class _Zstd:
    """Reads zstd frames in turn. Unlike the library's own reader it notices a frame that is cut off."""

    def __init__(self, file: _Rest) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise DataError(
                "Reading .zst needs the package zstandard.",
                "It is an extra of glassformer.",
                "Install it: pip install 'glassformer[zstd]'.",
            ) from error
        self._file, self._library = file, zstandard
        self._frame: Any = zstandard.ZstdDecompressor().decompressobj()
        self._is_started = False

    def read(self, size: int) -> bytes:
        try:
            while True:
                if self._frame.eof:
                    data = self._frame.unused_data or self._file.read(size)
                    self._frame, self._is_started = self._library.ZstdDecompressor().decompressobj(), False
                else:
                    data = self._file.read(size)
                if not data and self._is_started:
                    raise EOFError("the last frame is not complete")
                if not data:
                    return b""
                self._is_started = True
                if text := self._frame.decompress(data):
                    return text  # type: ignore[no-any-return]
        except self._library.ZstdError as error:
            raise EOFError(str(error)) from error
