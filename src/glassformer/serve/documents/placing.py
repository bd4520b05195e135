"""Where markup stands in a translation, by the links between the words of the text and of the translation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassformer.serve.documents.nodes import Element, Node, Point

__all__ = ["Links", "Place", "placed"]

Place = tuple[int, int]  # start and end in a text, in characters


@dataclass(frozen=True)
class Links:
    """Words of a text and of its translation, as places, and what each target word gave to each source word."""

    source: Sequence[Place]
    target: Sequence[Place]
    weights: NDArray[np.float64]  # [target words, source words]


def placed(nodes: Sequence[Node], places: Mapping[int, Place], translation: str, links: Links) -> list[Node]:
    """The nodes with a translation in place of their text. Each Element and Point stands there once, Elements nested
    as they were.

    Among the words of the element that it stands in, an Element takes the stretch of target words that looked most at
    its words: with +1 for each whose strongest link leads into it and -1 for each other, the stretch of the highest
    sum; where none does, the word that gave it most. The largest one chooses first. A Point stands where most words
    before it are linked to words before it, and most behind it to words behind it.

    Args:
        places: The place in the text of each Element and Point, by its id.
        links: Words of the text, at least one, and of the translation, at least one.
    """
    return _Placing(places, translation, links).nodes(nodes)


class _Placing:
    """Puts the nodes of a passage around and between the words of its translation."""

    def __init__(self, places: Mapping[int, Place], translation: str, links: Links) -> None:
        self._places, self._text, self._links = places, translation, links
        self._starts, self._ends = (np.array(side) for side in zip(*links.source, strict=True))
        self._linked = links.weights.argmax(1)  # the source word of each target word
        self._cursor = 0  # characters of the translation that stand somewhere

    def nodes(self, nodes: Sequence[Node]) -> list[Node]:
        placed = self._within(nodes, 0, len(self._links.target))
        return _joined([*placed, self._up_to(len(self._text))])

    def _within(self, nodes: Sequence[Node], low: int, high: int) -> list[Node]:
        """The nodes with the target words [low, high), but for what stands behind the last one."""
        markup = [node for node in nodes if not isinstance(node, str)]
        stretches = self._stretches([node for node in markup if isinstance(node, Element)], low, high)
        spots = {id(node): stretches.get(id(node), (self._between(node, low, high),) * 2) for node in markup}
        made: list[Node] = []
        at = low
        for node in sorted(markup, key=lambda node: spots[id(node)][0]):
            start, end = (max(at, place) for place in spots[id(node)])
            if isinstance(node, Element) and self._has_text(node):
                made.append(self._up_to_word(start, high))
                made.append(Element(node.content, self._within(node.nodes, start, end)))
            else:
                made += self._point(node, start)
            at = end
        if high > low:
            made.append(self._up_to(self._links.target[high - 1][1]))
        return _joined(made)

    def _stretches(self, elements: Sequence[Element], low: int, high: int) -> dict[int, Place]:
        """The target words of each element that has words."""
        words = {id(node): self._words(node) for node in elements}
        free = [(low, high)] if high > low else []
        found: dict[int, Place] = {}
        for node in sorted(elements, key=lambda node: -int(words[id(node)].sum())):
            mine = words[id(node)]
            if not mine.any() or not free:
                continue
            start, end = max((self._best(mine, *gap) for gap in free), key=lambda best: best[0])[1]
            found[id(node)] = (start, end)
            (gap,) = [gap for gap in free if gap[0] <= start < gap[1]]
            free.remove(gap)
            free += [rest for rest in ((gap[0], start), (end, gap[1])) if rest[0] < rest[1]]
        return found

    def _has_text(self, node: Element) -> bool:
        start, end = self._places[id(node)]
        return start < end

    def _words(self, node: Element) -> NDArray[np.bool_]:
        """Which source words stand in an element, at least in part."""
        first, last = self._places[id(node)]
        return (self._starts < last) & (self._ends > first)

    def _best(self, mine: NDArray[np.bool_], low: int, high: int) -> tuple[tuple[float, float], Place]:
        """The value and the place of the stretch within [low, high) that belongs most to the source words `mine`."""
        is_linked = mine[self._linked[low:high]]
        if not is_linked.any():
            given = self._links.weights[low:high, mine].sum(1)
            best = int(given.argmax())
            return (0.0, float(given[best])), (low + best, low + best + 1)
        best_sum, best_place, total, start = 0, (0, 0), 0, 0
        for i, gain in enumerate(np.where(is_linked, 1, -1).tolist()):
            if total < 0:
                total, start = 0, i
            total += gain
            if total > best_sum or (total == best_sum and i + 1 - start > best_place[1] - best_place[0]):
                best_sum, best_place = total, (start, i + 1)
        return (float(best_sum), 0.0), (low + best_place[0], low + best_place[1])

    def _between(self, node: Element | Point, low: int, high: int) -> int:
        """The first of the target words [low, high] that a point stands before."""
        behind = (self._starts >= self._places[id(node)][0])[self._linked[low:high]]
        right = np.append(0, np.cumsum(~behind)) + np.append(np.cumsum(behind[::-1])[::-1], 0)
        return low + int(right.argmax())

    def _point(self, node: Element | Point, word: int) -> Iterator[Node]:
        """A node without text before a target word, with the space that it had."""
        target = self._links.target
        is_before, is_behind = node.is_apart
        if not is_before and not is_behind:
            yield self._up_to_word(word, word)
        else:
            yield self._up_to(target[word - 1][1] if word else 0)
            yield " " if is_before and word else ""
        yield node
        if is_before or is_behind:
            yield " " if is_behind and word < len(target) else ""
            yield self._up_to(target[word][0] if word < len(target) else len(self._text)).strip()

    def _up_to_word(self, word: int, high: int) -> str:
        target = self._links.target
        is_end = word >= len(target) or (word == high and word > 0)
        return self._up_to(target[word - 1][1] if is_end and word else target[word][0])

    def _up_to(self, end: int) -> str:
        """The text that is not placed yet, up to a character."""
        start, self._cursor = self._cursor, max(self._cursor, end)
        return self._text[start : self._cursor]


def _joined(nodes: Sequence[Node]) -> list[Node]:
    """Texts side by side made one."""
    made: list[Node] = []
    for node in nodes:
        if isinstance(node, str) and made and isinstance(made[-1], str):
            made[-1] += node
        elif node != "":
            made.append(node)
    return made
