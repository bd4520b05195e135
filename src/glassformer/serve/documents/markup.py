"""HTML and XML: sentences with the tags inside them, and what stays byte for byte."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from glassformer.serve.documents.nodes import Break, Element, Node, Point
from glassformer.serve.documents.passages import Body, Passage

__all__ = ["Markup", "Text", "tree_of", "written"]

# What begins markup; a "<" before anything else is text.
_BEGIN = re.compile(r"<(?:!--|[!?]|/?(?P<name>[A-Za-z][A-Za-z0-9:-]*))")
_IN_TAG = re.compile(r"[>\"']")
_RAW = {"script", "style", "textarea", "code", "pre", "template", "svg", "math"}  # their content is not translated
# Elements within a sentence; every other one ends it.
_INLINE = set(
    """a abbr acronym b bdi bdo big cite data del dfn em font i ins kbd label mark nobr q s samp small span strike
    strong sub sup time tt u var""".split()  # noqa: SIM905
)
_POINTS = {"code", "img", "math", "svg", "wbr"}  # one thing within a sentence
_MAX_DEPTH = 30  # elements in one another that are followed


class Text(str):
    """A text between tags as it is read, which knows how it was written."""

    written: str

    def __new__(cls, text: str, written: str) -> Text:
        made = super().__new__(cls, text)
        made.written = written
        return made


class Markup:
    """A document taken apart. `filled(translations of passages)` puts it together again.

    A sentence with tags inside (`_INLINE`) is one passage. Nothing is parsed into a tree of the whole and written anew,
    so broken markup stays as it was: a tag that has no partner in its sentence ends the sentence. White space around a
    passage stays too. In the passages character references are resolved; in the translations `&`, `<` and `>` are
    written as references.

    Attributes:
        passages: What is to be translated, in order.
    """

    def __init__(self, document: str) -> None:
        self._body = Body(tree_of(document))
        self.passages = self._body.passages

    def filled(self, translated: Sequence[Passage]) -> str:
        """The document with translations in place of its passages."""
        return written(self._body.filled(iter(translated)), partial(html.escape, quote=False))


def written(nodes: Iterable[Node], escape: Callable[[str], str]) -> str:
    """The document that nodes stand for; texts that were not translated as they were."""
    parts = []
    for node in nodes:
        if isinstance(node, str):
            parts.append(node.written if isinstance(node, Text) else escape(node))
        elif isinstance(node, Element):
            parts += [node.content[0], written(node.nodes, escape), node.content[1]]
        else:
            parts.append(node.content)
    return "".join(parts)


class _Token(NamedTuple):
    written: str
    kind: str  # text, break, point, open, close
    name: str = ""


@dataclass
class _Open:
    """An element whose end has not been seen."""

    tag: _Token
    nodes: list[Node] = field(default_factory=list)


def tree_of(document: str, unescape: Callable[[str], str] = html.unescape) -> list[Node]:
    """A document as nodes. Tags that are not nested rightly within one sentence are breaks."""
    done: list[Node] = []
    stack: list[_Open] = []

    def give_up() -> None:
        for left in stack:
            done.append(Break(left.tag.written))
            done.extend(left.nodes)
        stack.clear()

    for token in _tokens(document):
        nodes = stack[-1].nodes if stack else done
        if token.kind == "text":
            nodes.append(Text(unescape(token.written), token.written))
        elif token.kind == "point":
            nodes.append(Point(token.written))
        elif token.kind == "open" and len(stack) < _MAX_DEPTH:
            stack.append(_Open(token))
        elif token.kind == "close" and stack and stack[-1].tag.name == token.name:
            closed = stack.pop()
            outer = stack[-1].nodes if stack else done
            outer.append(Element((closed.tag.written, token.written), closed.nodes))
        else:
            give_up()
            done.append(Break(token.written))
    give_up()
    return done


def _tokens(document: str) -> Iterator[_Token]:
    end = 0
    for start, stop, name in _markup(document):
        if start > end:
            yield _Token(document[end:start], "text")
        written, end = document[start:stop], stop
        if written.startswith("<!--") or (name in _POINTS and written[1] != "/"):
            yield _Token(written, "point")
        elif name in _INLINE and not written.endswith("/>"):
            yield _Token(written, "close" if written[1] == "/" else "open", name)
        else:
            yield _Token(written, "point" if name in _INLINE else "break")
    if end < len(document):
        yield _Token(document[end:], "text")


def _markup(document: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and name of each comment, tag, declaration, and element whose content is no text.

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
        yield start, end, name
        position = end


def _end_of_tag(document: str, position: int) -> int:
    """Where a tag ends that has begun before `position`, or -1. A quote that never closes is a character."""
    while match := _IN_TAG.search(document, position):
        if match.group() == ">":
            return match.end()
        close = document.find(match.group(), match.end())
        position = match.end() if close < 0 else close + 1
    return -1
