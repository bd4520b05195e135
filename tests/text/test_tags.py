"""Entities from tags, the scheme that tags follow, and the most probable sequence that a scheme allows."""

from __future__ import annotations

import itertools
import random
import warnings

import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import get_entities

from glassformer.errors import DataError
from glassformer.text.tags import Scheme, Span, TagCensus, allowed_steps, entities, is_allowed, viterbi

TAGS = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("X", "Y"))]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-X I-X O", [Span("X", 0, 2)]),
        ("B-X B-X", [Span("X", 0, 1), Span("X", 1, 2)]),
        ("I-X I-X", [Span("X", 0, 2)]),  # lenient: I- opens
        ("B-X I-Y", [Span("X", 0, 1), Span("Y", 1, 2)]),  # another type ends it
        ("O I-X B-X I-X", [Span("X", 1, 2), Span("X", 2, 4)]),
        ("B-X I-X E-X S-Y", [Span("X", 0, 3), Span("Y", 3, 4)]),
        ("E-X I-X", [Span("X", 0, 1), Span("X", 1, 2)]),
        ("B-X-Z I-X-Z", [Span("X-Z", 0, 2)]),  # the type may hold a hyphen
        ("B I O", [Span("_", 0, 2)]),
    ],
)
def test_entities_of_hand_made_sequences(tags: str, expected: list[Span]) -> None:
    assert entities(tags.split()) == expected


def test_entities_are_those_of_seqeval() -> None:
    chance = random.Random(0)
    for _ in range(3000):
        tags = chance.choices(TAGS, k=chance.randint(0, 7))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = [Span(kind, start, end + 1) for kind, start, end in get_entities(tags)]
        assert entities(tags) == theirs, tags


@pytest.mark.parametrize(
    ("sentences", "scheme", "n_broken"),
    [
        (["B-X I-X O", "O B-Y B-Y"], "BIO", 0),
        (["I-X I-X O", "I-Y B-Y"], "IOB1", 0),
        (["I-X I-X", "O I-Y"], "IOB1", 0),
        (["B-X E-X", "S-Y O"], "BIOES", 0),
        (["B-X I-X", "O I-X"], "BIO", 1),  # both kinds of beginning: BIO, broken once
        (["B-X I-X", "S-X"], "BIOES", 1),  # I- at the end
        (["NOUN VERB", "O X"], "none", 0),
        (["O O"], "none", 0),
    ],
)
def test_the_scheme_is_recognised(sentences: list[str], scheme: Scheme, n_broken: int) -> None:
    census = TagCensus()
    for sentence in sentences:
        census.add(sentence.split())
    assert census.scheme == scheme
    assert census.n_broken(scheme) == n_broken


def test_bilou_is_refused_with_the_way_out() -> None:
    census = TagCensus()
    census.add(["B-X", "L-X", "U-Y"])
    with pytest.raises(DataError, match="E- in place of L-"):
        _ = census.scheme


@pytest.mark.parametrize("scheme", ["BIO", "IOB1", "BIOES"])
def test_viterbi_finds_the_best_of_all_allowed_sequences(scheme: Scheme) -> None:
    names = TAGS if scheme == "BIOES" else [tag for tag in TAGS if tag[0] in "BIO"]
    generator = np.random.default_rng(1)
    allowed = allowed_steps(names, scheme)
    for length in (1, 3):
        log_probs = np.log(generator.dirichlet(np.full(len(names), 0.5), size=length))

        def is_right(numbers: tuple[int, ...]) -> bool:
            tags = ["O", *(names[i] for i in numbers), "O"]
            return all(is_allowed(a, b, scheme) for a, b in itertools.pairwise(tags))

        def total(numbers: tuple[int, ...], table: np.ndarray = log_probs) -> float:
            return float(table[np.arange(len(numbers)), list(numbers)].sum())

        sequences = filter(is_right, itertools.product(range(len(names)), repeat=length))
        assert viterbi(log_probs, allowed) == list(max(sequences, key=total))


def test_viterbi_breaks_the_scheme_as_little_as_it_can() -> None:
    names = ["B-X", "E-X"]  # one word cannot be both
    assert len(viterbi(np.log([[0.9, 0.1]]), allowed_steps(names, "BIOES"))) == 1
    assert viterbi(np.zeros((0, 2)), allowed_steps(names, "BIOES")) == []
