"""Documents as passages: what is translated as one text, and what stays between."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from glassformer.serve.detection import has_words
from glassformer.serve.documents.nodes import Element, Node, Point, size_of
from glassformer.serve.documents.placing import Links, Place, placed

__all__ = ["Body", "Passage"]

SPACE = " \t\r\n\f"  # white space of markup; a no-break space is text
_SPACES = re.compile(f"[{SPACE}]+")
MAX_SIZE = 2000  # of a passage; what is larger is cut at its markup


class Body:
    """Nodes as passages that are translated, and what stays between them. An element that holds a break, or is large,
    holds passages of its own.

    Attributes:
        passages: In their order.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.passages: list[Passage] = []
        self._parts: list[Passage | Sequence[Node] | tuple[Element, Body]] = []
        group: list[Node] = []
        size = 0.0
        for node in nodes:
            size += size_of(node)
            if size > MAX_SIZE:
                self._add(group)
                group, size = [], size_of(node)
            if size <= MAX_SIZE or isinstance(node, str):
                group.append(node)
                continue
            size = 0.0
            if isinstance(node, Element):
                inner = Body(node.nodes)
                self.passages += inner.passages
                self._parts.append((node, inner))
            else:
                self._parts.append([node])
        self._add(group)

    def _add(self, group: list[Node]) -> None:
        """A passage, without the white space around it."""
        if not _has_words(group):
            self._parts.append(group)
            return
        start = end = ""
        if isinstance(first := group[0], str):
            group[0] = first.lstrip()
            start = first[: len(first) - len(first.lstrip())]
        if isinstance(last := group[-1], str):
            group[-1] = last.rstrip()
            end = last[len(last.rstrip()) :]
        self._parts.append([start])
        self.passages.append(Passage(group))
        self._parts += [self.passages[-1], [end]]

    def filled(self, translated: Iterator[Passage]) -> list[Node]:
        """The nodes with the next translated passages in place of their own."""
        nodes: list[Node] = []
        for part in self._parts:
            if isinstance(part, Passage):
                nodes += next(translated).nodes
            elif isinstance(part, tuple):
                nodes.append(Element(part[0].content, part[1].filled(translated)))
            else:
                nodes += part
        return nodes


def _has_words(nodes: Sequence[Node]) -> bool:
    return any(
        has_words(node) if isinstance(node, str) else isinstance(node, Element) and _has_words(node.nodes)
        for node in nodes
    )


class Passage:
    """A piece of a document that is translated as one text.

    Attributes:
        nodes: Text, and markup in and around it.
        text: What is translated: the text alone. White space is one space.
        is_plain: The markup stands around all of the text, so that its place is known without links.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._places: dict[int, Place] = {}  # of each Element and Point, by its id
        self._parts: list[str] = []
        self._n_chars, self._gap = 0, False  # so far; whether white space was last
        self._points: list[Point | Element] = []  # without text behind them so far
        self._read(nodes)
        self.text = "".join(self._parts)
        self.is_plain = not any(0 < at < self._n_chars for place in self._places.values() for at in place)

    def filled(self, translation: str, links: Links | None = None) -> Passage:
        """The passage with a translation in place of its text; see `placed`.

        Args:
            links: Words of `text` and of the translation; not needed where `is_plain`.
        """
        if links is None or not links.target or not links.source:
            links = Links([(0, max(1, self._n_chars))], [(0, len(translation))], np.ones((1, 1)))
        return Passage(placed(self.nodes, self._places, translation, links))

    def _read(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, str):
                self._add(node)
                continue
            start, gap = self._n_chars, self._gap
            if isinstance(node, Element):
                self._read(node.nodes)
            if self._n_chars == start:
                node.is_apart = (gap, False)
                self._points.append(node)
            self._places[id(node)] = (start, self._n_chars)

    def _add(self, text: str) -> None:
        if not text:
            return
        has_space, inner = text[0] in SPACE, _SPACES.sub(" ", text.strip(SPACE))
        for point in self._points:
            point.is_apart = (point.is_apart[0], has_space)
        if inner:
            is_sign_behind_point = bool(self._points) and not has_space and not inner[0].isalnum()
            if self._n_chars and (self._gap or has_space) and not is_sign_behind_point:
                inner = f" {inner}"
            self._parts.append(inner)
            self._n_chars += len(inner)
        self._points, self._gap = [], text[-1] in SPACE
