"""Text with markup in it, of whatever format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Break", "Element", "Node", "Point", "size_of"]

MARKUP_SIZE = 8  # characters that markup counts for


@dataclass(eq=False, slots=True)
class Point:
    """What stands between two characters: a picture, a bookmark. The spaces beside it go with it."""

    content: Any  # belongs to the format
    is_apart: tuple[bool, bool] = (False, False)  # whether white space stands before and behind it
    size: float = MARKUP_SIZE


@dataclass(eq=False, slots=True)
class Break(Point):
    """What ends a sentence: the border of a paragraph, a line break."""

    size: float = math.inf


@dataclass(eq=False, slots=True)
class Element:
    """What stands around a part of a text: a link, bold letters."""

    content: Any
    nodes: Sequence[Node]
    is_apart: tuple[bool, bool] = (False, False)  # of one without text
    size: float = field(init=False)

    def __post_init__(self) -> None:
        self.size = MARKUP_SIZE + sum(map(size_of, self.nodes))


Node = str | Element | Point


def size_of(node: Node) -> float:
    """Characters, with those that markup counts for; of what holds a break, infinite."""
    return len(node) if isinstance(node, str) else node.size
