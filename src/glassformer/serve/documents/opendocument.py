"""OpenDocument texts (.odt): paragraphs with spans, links, notes and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from glassformer.serve.documents.archive import Archive
from glassformer.serve.documents.nodes import Break, Element, Node, Point
from glassformer.serve.documents.passages import Body, Passage
from glassformer.serve.documents.xml import append_text, emptied, parsed_parts, serialized

__all__ = ["OpenDocument"]

TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
PARTS = ("content.xml", "styles.xml")  # the body; headers and footers
PARAGRAPHS = (f"{TEXT}p", f"{TEXT}h")
ELEMENTS = (f"{TEXT}span", f"{TEXT}a", f"{TEXT}meta")
BREAKS = (f"{TEXT}tab", f"{TEXT}line-break")
MAX_DEPTH = 30  # of spans in one another that are followed


class OpenDocument:
    """A .odt file taken apart. Formats, pictures and all other parts stay as they are.

    Attributes:
        passages: What is to be translated, in order.

    Raises:
        Refusal: 400, it cannot be read.
    """

    def __init__(self, content: bytes) -> None:
        self._archive = Archive(content)
        names = [name for name in PARTS if name in self._archive.names]
        self._roots = parsed_parts(self._archive, names, body=PARTS[0])
        found = [
            (paragraph, Body(_nodes(paragraph))) for root in self._roots.values() for paragraph in _paragraphs(root)
        ]
        self._paragraphs = [(paragraph, body) for paragraph, body in found if body.passages]
        self.passages = [passage for _, body in self._paragraphs for passage in body.passages]

    def filled(self, translated: Sequence[Passage]) -> bytes:
        """The file with translations in place of its passages."""
        rest = iter(translated)
        for paragraph, body in self._paragraphs:
            _fill(paragraph, body.filled(rest))
        return self._archive.rewritten({name: serialized(root) for name, root in self._roots.items()})


def _paragraphs(root: Any) -> Iterator[Any]:
    """All but those that were deleted and are kept for the record."""
    deleted = {paragraph for changes in root.iter(f"{TEXT}tracked-changes") for paragraph in changes.iter(*PARAGRAPHS)}
    return (paragraph for paragraph in root.iter(*PARAGRAPHS) if paragraph not in deleted)


def _nodes(element: Any, depth: int = 0) -> list[Node]:
    nodes: list[Node] = [element.text or ""]
    for child in element:
        if child.tag == f"{TEXT}s":
            nodes.append(" ")
        elif child.tag in ELEMENTS and depth < MAX_DEPTH:
            nodes.append(Element(child, _nodes(child, depth + 1)))
        elif child.tag != f"{TEXT}soft-page-break":
            nodes.append(Break(child) if child.tag in BREAKS else Point(child))
        nodes.append(child.tail or "")
    return nodes


def _fill(element: Any, nodes: Sequence[Node]) -> None:
    emptied(element)
    for node in nodes:
        if isinstance(node, str):
            append_text(element, node)
            continue
        if isinstance(node, Element):
            _fill(node.content, node.nodes)
        node.content.tail = None
        element.append(node.content)
