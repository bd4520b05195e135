"""Word documents (.docx): paragraphs of runs, each with its format.

Word cuts a sentence into runs wherever a format, a spelling mark or a revision begins. So equal formats side by side
are one, the format of most characters of a paragraph is its own, and every other one is an element around its words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from lxml import etree

from glassformer.serve.documents.archive import Archive
from glassformer.serve.documents.nodes import Break, Element, Node, Point, size_of
from glassformer.serve.documents.passages import Body, Passage
from glassformer.serve.documents.xml import emptied, parsed_parts, serialized, xml_text

__all__ = ["WordDocument"]

NAMESPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
PART = re.compile(r"word/(document|header|footer|footnotes|endnotes)\d*\.xml")
AROUND = ("hyperlink", "ins", "smartTag", "customXml", "sdt", "dir", "bdo")  # they hold runs
BREAKS = ("tab", "ptab", "br", "cr")
TRACES = ("proofErr", "lastRenderedPageBreak", "softHyphen")  # of how the text was laid out or spelt
UNSEEN = ("lang", "noProof")  # of a format
MAX_DEPTH = 30  # of elements that hold runs
XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


class WordDocument:
    """A .docx file taken apart. Formats, pictures and all other parts stay as they are.

    Attributes:
        passages: What is to be translated, in order.

    Raises:
        Refusal: 400, it cannot be read.
    """

    def __init__(self, content: bytes) -> None:
        self._archive = Archive(content)
        names = filter(PART.fullmatch, self._archive.names)
        self._roots = parsed_parts(self._archive, names, body="word/document.xml")
        found = [_Paragraph(element) for root in self._roots.values() for element in _paragraphs(root)]
        self._paragraphs = [paragraph for paragraph in found if paragraph.body.passages]
        self.passages = [passage for paragraph in self._paragraphs for passage in paragraph.body.passages]

    def filled(self, translated: Sequence[Passage]) -> bytes:
        """The file with translations in place of its passages."""
        rest = iter(translated)
        for paragraph in self._paragraphs:
            paragraph.fill(rest)
        return self._archive.rewritten({name: serialized(root) for name, root in self._roots.items()})


def _paragraphs(root: Any) -> list[Any]:
    return [element for namespace in NAMESPACES for element in root.iter(f"{{{namespace}}}p")]


def _name(element: Any) -> str:
    """The name of an element of these documents, or nothing."""
    if not isinstance(element.tag, str):
        return ""  # a comment
    namespace, _, name = element.tag[1:].partition("}")
    return name if namespace in NAMESPACES else ""


@dataclass(frozen=True)
class _Format:
    """How the characters of a run look."""

    key: bytes = b""  # equal for equal formats
    properties: Any = field(default=None, compare=False)
    namespace: str = field(default=NAMESPACES[0], compare=False)

    @classmethod
    def of(cls, run: Any) -> _Format:
        properties = next((child for child in run if _name(child) == "rPr"), None)
        namespace = run.tag[1:].partition("}")[0]
        if properties is None:
            return cls(namespace=namespace)
        seen = deepcopy(properties)
        for child in list(seen):
            if _name(child) in UNSEEN:
                seen.remove(child)
        return cls(etree.tostring(seen, method="c14n") if len(seen) else b"", properties, namespace)


@dataclass(frozen=True)
class _Part:
    """A part of a run that is no text."""

    element: Any
    format: _Format


@dataclass(frozen=True)
class _Around:
    """An element that holds runs, and the format that most of them have."""

    outer: Any
    inner: Any  # what holds them: itself, or its content
    format: _Format


@dataclass(frozen=True)
class _Link:
    """What begins and ends a field whose result is a link."""

    begin: Sequence[Node]
    end: Node


class _Paragraph:
    def __init__(self, element: Any) -> None:
        self._element = element
        nodes, self._format = _without_common_format(_nodes(element))
        self.body = Body(nodes)

    def fill(self, rest: Iterator[Passage]) -> None:
        _fill(self._element, self.body.filled(rest), self._format)


def _nodes(container: Any, depth: int = 0) -> list[Node]:
    """The runs of a paragraph, or of an element in it. Each text stands in an Element of its format."""
    nodes: list[Node] = []
    for child in container:
        name = _name(child)
        if name == "r":
            nodes += _run(child)
        elif name in AROUND and depth < MAX_DEPTH:
            inner = next((part for part in child if _name(part) == "sdtContent"), child)
            held, common = _without_common_format(_nodes(inner, depth + 1))
            nodes.append(Element(_Around(child, inner, common), held))
        elif name not in TRACES and not name.endswith("Pr"):
            nodes.append(Point(child))
    return _with_fields(_merged(nodes))


def _run(run: Any) -> Iterator[Node]:
    format_ = _Format.of(run)
    for child in run:
        name = _name(child)
        if name == "t":
            yield Element(format_, [child.text or ""])
        elif name == "noBreakHyphen":
            yield Element(format_, ["\u2011"])
        elif name in BREAKS:
            yield Break(_Part(child, format_))
        elif name not in TRACES and name != "rPr":
            yield Point(_Part(child, format_))


def _merged(nodes: Iterable[Node]) -> Iterator[Node]:
    """Texts of equal formats side by side made one."""
    for format_, group in groupby(nodes, _format_of):
        if format_ is None:
            yield from group
        else:
            yield Element(format_, [text for node in group if isinstance(node, Element) for text in node.nodes])


def _format_of(node: Node) -> _Format | None:
    """The format of a text, None for other nodes."""
    return node.content if isinstance(node, Element) and isinstance(node.content, _Format) else None


def _with_fields(nodes: Iterable[Node]) -> list[Node]:
    """Each field as one node: a link around its result, or a point. Of a field that goes on in another paragraph, such
    as a table of contents, each mark is a break."""
    made: list[Node] = []
    begins: list[int] = []  # places of the fields that have begun
    for node in nodes:
        mark = _field_mark(node)
        if mark == "begin":
            begins.append(len(made))
        made.append(node)
        if mark == "end" and begins:
            start = begins.pop()
            made[start:] = [_field(made[start:])]
    return [Break(node.content) if isinstance(node, Point) and _field_part(node) is not None else node for node in made]


def _field_part(node: Node) -> Any:
    """The element of a mark or of the code of a field, or None."""
    part = node.content if isinstance(node, Point) else None
    is_one = isinstance(part, _Part) and _name(part.element) in ("fldChar", "instrText")
    return part.element if is_one and part is not None else None


def _field_mark(node: Node) -> str:
    """begin, separate or end of a field, or nothing."""
    part = _field_part(node)
    return "" if part is None else next((v for name, v in part.items() if name.endswith("}fldCharType")), "")


def _field(nodes: Sequence[Node]) -> Node:
    marks = list(map(_field_mark, nodes))
    code = "".join(part.text or "" for part in map(_field_part, nodes) if part is not None)
    if code.split()[:1] == ["HYPERLINK"] and marks.count("separate") == 1:
        middle = marks.index("separate") + 1
        return Element(_Link(nodes[:middle], nodes[-1]), nodes[middle:-1])
    return Point(list(nodes))


def _without_common_format(nodes: Sequence[Node]) -> tuple[list[Node], _Format]:
    """The nodes with the texts of the format that most characters have as plain texts; and that format."""
    counts: Counter[_Format] = Counter()
    for node in nodes:
        if format_ := _format_of(node):
            counts[format_] += int(size_of(node))
    if not counts:
        return list(nodes), _Format()
    ((common, _),) = counts.most_common(1)
    made: list[Node] = []
    for node in nodes:
        made += node.nodes if isinstance(node, Element) and node.content == common else [node]
    return made, common


def _fill(container: Any, nodes: Sequence[Node], common: _Format) -> None:
    """Puts nodes into a paragraph, or an element in it, in place of its runs."""
    emptied(container, [child for child in container if _name(child).endswith("Pr")])
    container.extend(_written(nodes, common))


def _written(nodes: Sequence[Node], common: _Format) -> Iterator[Any]:
    for node in nodes:
        if isinstance(node, str):
            yield from _text_run(node, common)
            continue
        content = node.content
        if isinstance(content, _Part):
            yield _run_of(content.element, content.format)
        elif isinstance(content, list):  # a field
            yield from _written(content, common)
        elif isinstance(node, Point):
            yield content
        elif isinstance(content, _Format):
            yield from _written(node.nodes, content)
        elif isinstance(content, _Link):
            yield from _written([*content.begin, *node.nodes, content.end], common)
        else:
            _fill(content.inner, node.nodes, content.format)
            yield content.outer


def _text_run(text: str, format_: _Format) -> Iterator[Any]:
    text = xml_text(text)
    if text:
        element = etree.Element(f"{{{format_.namespace}}}t", {XML_SPACE: "preserve"})
        element.text = text
        yield _run_of(element, format_)


def _run_of(element: Any, format_: _Format) -> Any:
    run = etree.Element(f"{{{format_.namespace}}}r")
    if format_.properties is not None:
        run.append(deepcopy(format_.properties))
    run.append(element)
    return run
