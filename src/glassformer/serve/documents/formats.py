"""Files that are translated: what each format holds, and the file with translations in its place."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from glassformer.serve.documents.markup import Markup, tree_of, written
from glassformer.serve.documents.nodes import Break, Node, Point
from glassformer.serve.documents.opendocument import OpenDocument
from glassformer.serve.documents.passages import Body, Passage
from glassformer.serve.documents.word import WordDocument
from glassformer.serve.refusal import Refusal

__all__ = ["FORMATS", "MEDIA_TYPES", "Document"]

MAX_TEXT_BYTES = 2 * 1024 * 1024  # of a file that is no archive
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?([A-Za-z0-9_:.-]{1,40})""", re.IGNORECASE)
_TIMES = re.compile(r"\s*\d+:\d+:\d+[,.]\d+\s*-->")
_DASHES = ("-", "\u2013", "\u2014")  # each line of a dialogue is somebody's own
_POSITION = re.compile(r"(\{\\[^}\n]*\})")  # of a subtitle, such as {\an8}
_UNBROKEN = re.compile(r"(?:<[^>]*>|\{[^}]*\}|[^\s<{]|[<{])+")


class Document(Protocol):
    """A file taken apart."""

    @property
    def passages(self) -> Sequence[Passage]:
        """What is to be translated, in order."""
        ...

    def filled(self, translated: Sequence[Passage]) -> bytes:
        """The file with translations in place of its passages."""
        ...


class PlainText:
    """Lines; each is translated by itself. White space around them stays."""

    def __init__(self, content: bytes) -> None:
        text, self._codec = _decoded(content)
        nodes: list[Node] = []
        for line in text.split("\n"):
            nodes += [line, Break("\n")]
        self._body = Body(nodes[:-1])
        self.passages = self._body.passages

    def filled(self, translated: Sequence[Passage]) -> bytes:
        return written(self._body.filled(iter(translated)), str).encode(self._codec)


class WebPage:
    """HTML, in UTF-8 or in the encoding that it names."""

    def __init__(self, content: bytes) -> None:
        named = _CHARSET.search(content[:2048])
        text, self._codec = _decoded(content, named[1].decode() if named else "utf-8")
        self._markup = Markup(text)
        self.passages = self._markup.passages

    def filled(self, translated: Sequence[Passage]) -> bytes:
        return self._markup.filled(translated).encode(self._codec, "xmlcharrefreplace")


class Subtitles:
    """SubRip. Numbers and times stay. The lines of a subtitle are one text, which gets as many lines again."""

    def __init__(self, content: bytes) -> None:
        text, self._codec = _decoded(content)
        self._end = "\r\n" if "\r\n" in text else "\n"
        self._parts: list[tuple[Body, int]] = []  # with the lines that it has, 0 for what stays
        lines: list[str] = []
        is_spoken = False
        for line in [*text.replace("\r\n", "\n").split("\n"), ""]:
            if is_spoken and line.strip():
                lines.append(line)
                continue
            self._add(lines)
            self._parts.append((Body([Point(line)]), 0))
            lines, is_spoken = [], bool(_TIMES.match(line)) or (is_spoken and not lines and not line)
        self._parts.pop()
        self.passages = [passage for body, _ in self._parts for passage in body.passages]

    def _add(self, lines: Sequence[str]) -> None:
        is_dialogue = any(line.lstrip().startswith(_DASHES) for line in lines)
        for text in lines if is_dialogue else ["\n".join(lines)] if lines else []:
            self._parts.append((Body(_subtitle(text)), text.count("\n") + 1))

    def filled(self, translated: Sequence[Passage]) -> bytes:
        rest = iter(translated)
        lines = []
        for body, n_lines in self._parts:
            text = written(body.filled(rest), str)
            lines.append(_broken(text, n_lines, self._end) if body.passages else text.replace("\n", self._end))
        return self._end.join(lines).encode(self._codec)


def _subtitle(text: str) -> Iterator[Node]:
    for number, part in enumerate(_POSITION.split(text)):
        if number % 2:
            yield Point(part)
        else:
            yield from tree_of(part, str)


def _broken(text: str, n_lines: int, end: str) -> str:
    """A text in lines of about equal lengths, without its tags."""
    words = _UNBROKEN.findall(text)
    lengths = [len(re.sub(r"<[^>]*>", "", word)) + 1 for word in words]
    lines: list[list[str]] = [[]]
    n_chars, share = 0, sum(lengths) / n_lines
    for word, length in zip(words, lengths, strict=True):
        if lines[-1] and len(lines) < n_lines and n_chars + length / 2 > share * len(lines):
            lines.append([])
        lines[-1].append(word)
        n_chars += length
    return end.join(map(" ".join, lines))


def _decoded(content: bytes, codec: str = "utf-8") -> tuple[str, str]:
    """A text and its encoding: that of its byte-order mark, or `codec`."""
    if len(content) > MAX_TEXT_BYTES:
        raise Refusal(413, f"The file is larger than {MAX_TEXT_BYTES} bytes.")
    codec = next((name for mark, name in _MARKS.items() if content.startswith(mark)), codec)
    try:
        text = content.decode(codec)
    except (UnicodeError, LookupError) as error:
        raise Refusal(400, f"file: it is no text in {codec}.") from error
    if "\0" in text:
        raise Refusal(400, "file: it is no text; it holds a zero byte.")
    return text, codec


FORMATS: dict[str, Callable[[bytes], Document]] = {
    ".txt": PlainText,
    ".html": WebPage,
    ".srt": Subtitles,
    ".docx": WordDocument,
    ".odt": OpenDocument,
}
MEDIA_TYPES = {
    ".txt": "text/plain",
    ".html": "text/html",
    ".srt": "application/x-subrip",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".odt": "application/vnd.oasis.opendocument.text",
}
