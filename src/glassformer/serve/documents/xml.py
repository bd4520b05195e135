"""XML from strangers: nothing is fetched, and no entity is known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lxml import etree

from glassformer.serve.documents.archive import Archive
from glassformer.serve.refusal import Refusal

__all__ = ["append_text", "emptied", "parsed", "parsed_parts", "serialized", "xml_text"]

MAX_BYTES = 16 * 1024 * 1024  # of all XML of a document; a tree takes about ten times as much memory

_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML has not


def parsed(content: bytes) -> Any:
    """The root element.

    Raises:
        Refusal: 400, it is not well-formed, or defines a document type, where entities come from.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Refusal(400, "file: its XML is not well-formed, or too deep.") from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise Refusal(400, "file: its XML defines a document type, which no document of this kind has.")
    return root


def parsed_parts(archive: Archive, names: Iterable[str], *, body: str) -> dict[str, Any]:
    """The root elements of some parts of an office document, whose text stands in the part `body`.

    Raises:
        Refusal: 400, as `parsed`, or where there are none or they are too large together.
    """
    contents = {name: archive.read(name) for name in names}
    if not contents:
        raise Refusal(400, f"file: it holds no {body}.")
    n_bytes = sum(map(len, contents.values()))
    if n_bytes > MAX_BYTES:
        raise Refusal(400, f"file: its text takes {n_bytes} bytes of XML; at most {MAX_BYTES} are taken.")
    return {name: parsed(content) for name, content in contents.items()}


def serialized(root: Any) -> bytes:
    """The document of a root element, in UTF-8."""
    tree = root.getroottree()
    standalone = tree.docinfo.standalone
    made: bytes = etree.tostring(tree, encoding="UTF-8", xml_declaration=True, standalone=standalone)
    return made


def xml_text(text: str) -> str:
    """A text without the characters that XML has not."""
    return _FORBIDDEN.sub("", text)


def emptied(element: Any, kept: Iterable[Any] = ()) -> None:
    """Takes everything out of an element but some children."""
    keep = set(kept)
    for child in list(element):
        if child not in keep:
            element.remove(child)
    element.text = None


def append_text(element: Any, text: str) -> None:
    """Puts a text behind what stands in an element."""
    text = xml_text(text)
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text
