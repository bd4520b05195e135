"""Questions on an explanation: a shape or a value of the walk is hidden."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from glassformer.explain.result import Explanation, Row

__all__ = ["Question", "questions"]

MIN_WEIGHT = 0.05  # of a hidden attention weight: a smaller one is lost in the rounding of its neighbours


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked, and the numbers that answer it: a shape, or one value that may be rounded."""

    key: str  # of the row
    text: str
    answer: tuple[float, ...]
    solution: str
    tolerance: float = 0.0

    def is_right(self, answer: str) -> bool:
        """Whether the numbers of an answer are those asked for; brackets, commas and crosses are ignored."""
        found = [float(number) for number in re.findall(r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?", answer.replace("−", "-"))]
        if len(found) != len(self.answer):
            return False
        return all(abs(a - b) <= self.tolerance for a, b in zip(found, self.answer, strict=True))


def questions(explanation: Explanation, *, count: int, seed: int) -> list[Question]:
    """Chooses questions, half of them on shapes where there are values enough; the same seed chooses the same.

    Args:
        explanation: The walk.
        count: How many; fewer where the walk has no more.
        seed: Of the choice.
    """
    chance = random.Random(seed)
    shapes = _one_of_each_name(list(_shapes(explanation)), chance)
    values = [question for row in explanation.rows for question in _values(row, explanation, chance)]
    values = _one_of_each_name(values, chance)
    n_values = min(len(values), count // 2)
    n_shapes = min(len(shapes), count - n_values)
    asked = shapes[:n_shapes] + values[: count - n_shapes]
    chance.shuffle(asked)
    return asked


def _one_of_each_name(found: list[Question], chance: random.Random) -> list[Question]:
    """In a random order, each kind of step first once before one comes again."""
    chance.shuffle(found)
    seen: dict[str, int] = {}
    rank = []
    for question in found:
        name = question.key.rpartition(".")[2]
        rank.append(seen.setdefault(name, 0))
        seen[name] += 1
    return [found[i] for i in sorted(range(len(found)), key=lambda i: rank[i])]


def _shapes(explanation: Explanation) -> Iterator[Question]:
    config = explanation.config
    sizes = {"B": 1, "D": config.d_model, "H": config.n_heads, "G": config.kv_heads, "K": config.head_width}
    sizes |= {"F": config.d_ff, "V": config.vocab_size}
    sizes |= {letter: len(tokens.ids) for letter, tokens in (("S", explanation.src), ("T", explanation.tgt)) if tokens}
    for row in explanation.rows:
        letters = re.findall(r"[A-Z]", row.symbolic)
        if len(row.shape) > 2 and all(letter in sizes for letter in letters):
            known = ", ".join(f"{letter}={sizes[letter]}" for letter in sizes if letter not in ("B", "G"))
            shape = " ".join(map(str, row.shape))
            yield Question(
                key=row.key,
                text=f"{row.group}: {row.name} = {row.equation}\n     One text (B=1), {known}. Which shape has it?",
                answer=tuple(map(float, row.shape)),
                solution=f"{row.symbolic} = {shape}",
            )


def _values(row: Row, explanation: Explanation, chance: random.Random) -> Iterator[Question]:
    ask: Callable[[Row, Explanation, random.Random], Question | None] | None
    ask = {"weights": _weight, "scaled": _scaled, "add": _sum, "activation": _activation, "input": _sum}.get(row.name)
    question = None if ask is None else ask(row, explanation, chance)
    if question is not None:
        yield question


def _weight(row: Row, explanation: Explanation, chance: random.Random) -> Question | None:
    """One weight of a row of the softmax: what the others leave over."""
    head = chance.randrange(row.shape[1])
    rows = [q for q, weights in enumerate(row.value[0, head]) if MIN_WEIGHT < weights.max() < 1 - MIN_WEIGHT]
    if not rows:
        return None
    query = chance.choice(rows)
    weights = row.value[0, head, query]
    hidden = int(weights.argmax())
    map_ = next(map_ for map_ in explanation.maps if row.key.startswith(map_.key))
    shown = "  ".join(
        f"{label} {'?' if i == hidden else f'{weight:.3f}'}"
        for i, (label, weight) in enumerate(zip(map_.keys.labels, weights, strict=True))
    )
    return Question(
        key=row.key,
        text=f"{map_.title}, head {head + 1}: the weights of the query {map_.queries.labels[query]} over the keys\n"
        f"     {shown}\n     Which weight is hidden?",
        answer=(float(weights[hidden]),),
        tolerance=0.0005 * len(weights) + 0.005,
        solution=f"{weights[hidden]:.3f}: a row of the softmax sums to 1.",
    )


def _scaled(row: Row, explanation: Explanation, chance: random.Random) -> Question:
    place = _place(row, chance)
    width, score = explanation.config.head_width, float(_input(row, explanation, 0).value[place])
    value = float(row.value[place])
    return Question(
        key=row.key,
        text=f"{row.group}: a score Q K^T is {score:.4g}, and a head is {width} wide. What goes into the softmax?",
        answer=(value,),
        tolerance=0.01 * abs(value) + 0.005,
        solution=f"{score:.4g} / sqrt({width}) = {value:.4g}",
    )


def _sum(row: Row, explanation: Explanation, chance: random.Random) -> Question | None:
    """A feature of the stream, and what is added to it."""
    if row.parameters or len(row.inputs) != 2:
        return None
    place = _place(row, chance)
    before, added = (_input(row, explanation, i) for i in (0, 1))
    value = float(row.value[place])
    # Positions are the same for every text: their table has one row of texts.
    a, b = (float(x.value[(0, *place[1:])]) for x in (before, added))
    return Question(
        key=row.key,
        text=f"{row.group}: {row.name}. {before.key} has {a:.4g} at one feature of a token, {added.key} {b:.4g}.\n"
        "     What stands in the stream after it?",
        answer=(value,),
        tolerance=0.0005 * (abs(a) + abs(b)) + 0.01 * abs(value) + 0.005,
        solution=f"{a:.4g} + {b:.4g} = {value:.4g}: a residual adds.",
    )


def _activation(row: Row, explanation: Explanation, chance: random.Random) -> Question | None:
    if explanation.config.activation != "relu" or explanation.config.is_gated:
        return None
    place = _place(row, chance)
    x, value = float(_input(row, explanation, 0).value[place]), float(row.value[place])
    return Question(
        key=row.key,
        text=f"{row.group}: the expansion x W_1 + b_1 has {x:.4g} at one feature. What does the ReLU make of it?",
        answer=(value,),
        tolerance=0.01 * abs(value) + 0.0005 * (value > 0),
        solution=f"max(0, {x:.4g}) = {value:.4g}",
    )


def _input(row: Row, explanation: Explanation, number: int) -> Row:
    return explanation.row(row.inputs[number])


def _place(row: Row, chance: random.Random) -> tuple[int, ...]:
    """A random finite number of a row."""
    places = np.argwhere(np.isfinite(row.value))
    return tuple(int(i) for i in places[chance.randrange(len(places))])
