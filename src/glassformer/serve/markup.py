"""Texts between tags: what is translated of HTML and XML, and what stays byte for byte."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

__all__ = ["Markup"]

# What begins markup; a "<" before anything else is text.
_BEGIN = re.compile(r"<(?:!--|[!?]|/?(?P<name>[A-Za-z][A-Za-z0-9:-]*))")
_IN_TAG = re.compile(r"[>\"']")
_RAW = {"script", "style", "textarea", "code", "pre", "template", "svg", "math"}  # their content is not translated


class Markup:
    """A document taken apart. `filled(translations of texts)` puts it together again.

    Nothing of the markup is parsed into a tree and written anew, so broken markup stays as it was. White space around
    a text stays too. In the texts character references are resolved; in the translations `&`, `<` and `>` are written
    as references.

    Attributes:
        texts: What is to be translated, in order.
    """

    def __init__(self, document: str) -> None:
        self._parts: list[str] = []  # markup and white space; a text belongs after each part that `_at` names
        self._at: list[int] = []
        self.texts: list[str] = []
        end = 0
        for start, stop in _markup(document):
            self._add_text(document[end:start])
            self._parts.append(document[start:stop])
            end = stop
        self._add_text(document[end:])

    def _add_text(self, text: str) -> None:
        inner = text.strip()
        if not inner:
            self._parts.append(text)
            return
        start = text.index(inner)
        self._parts += [text[:start], "", text[start + len(inner) :]]
        self._at.append(len(self._parts) - 2)
        self.texts.append(html.unescape(inner))

    def filled(self, translations: Sequence[str]) -> str:
        """The document with translations in place of its texts."""
        parts = list(self._parts)
        for place, text in zip(self._at, translations, strict=True):
            parts[place] = html.escape(text, quote=False)
        return "".join(parts)


def _markup(document: str) -> Iterator[tuple[int, int]]:
    """Begin and end of each comment, tag, declaration, and element whose content is no text.

    Cost: linear in the document, also when nothing that begins in it ever ends.
    """
    position, endless = 0, set[str]()  # names of elements that have no end tag any more
    while match := _BEGIN.search(document, position):
        start, name = match.start(), (match["name"] or "").lower()
        is_comment = match.group() == "<!--"
        end = document.find("-->", match.end()) + 3 if is_comment else _end_of_tag(document, match.end())
        if end < match.end():  # it never ends: the rest is text
            return
        if name in _RAW and name not in endless and document[start + 1] != "/":
            close = re.compile(rf"</{name}\s*>", re.IGNORECASE).search(document, end)
            end = close.end() if close else end
            endless |= set() if close else {name}
        yield start, end
        position = end


def _end_of_tag(document: str, position: int) -> int:
    """Where a tag ends that has begun before `position`, or -1. A quote that never closes is a character."""
    while match := _IN_TAG.search(document, position):
        if match.group() == ">":
            return match.end()
        close = document.find(match.group(), match.end())
        position = match.end() if close < 0 else close + 1
    return -1
