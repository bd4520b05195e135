"""What users call to label words: places in the text, long texts, decoding."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch

from glassformer.tasks.labeller import Labelling, words_of
from glassformer.text.tags import is_allowed
from tasks.label_models import labeller
from tasks.small_models import tokenizer

TEXTS = [
    "Anna lives in Lyon .",
    "",
    "  \n",
    "a",
    "New\u00a0York, (U.S.) isn't far: 3.14 km!",
    "we eat bread " * 30,
    "東京は\tcafe\u0301",
]


def tags_of(found: Labelling) -> list[str]:
    return [word.label for word in found.words]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Anna's well-known U.S. car.", ["Anna's", "well-known", "U.S", ".", "car", "."]),
        ("(3.14 km!)", ["(", "3.14", "km", "!", ")"]),
        ("a--b -c", ["a", "-", "-", "b", "-", "c"]),
        ("cafe\u0301 हिन्दी", ["cafe\u0301", "हिन्दी"]),
        ("東京 へ行く", ["東", "京", "へ", "行", "く"]),
        ("x\u00a0y\u2003z", ["x", "y", "z"]),
        ("", []),
    ],
)
def test_words_and_their_places(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in words_of(text)] == words


def test_votes_are_those_at_the_first_piece_of_each_word() -> None:
    model = labeller()
    words = ["internationalisation", "of", "Zürich"]
    ids = tokenizer().encode(" ".join(words), add_bos=True, add_eos=True)
    firsts = [1 + len(tokenizer().encode(" ".join(words[:i]))) for i in range(3)]
    with torch.no_grad():
        shares = model.model.label_logits(torch.tensor([ids]))[0, firsts].double().softmax(-1).numpy()
    (found,) = model.label([words])
    assert tags_of(found) == [model.labels.names[i] for i in shares.argmax(-1)]
    assert [word.probability for word in found.words] == pytest.approx(shares.max(-1).tolist(), abs=1e-6)


def test_places_point_into_the_text() -> None:
    for found, text in zip(labeller().label(TEXTS), TEXTS, strict=True):
        assert found.text == text
        for word in found.words:
            assert text[word.start : word.end] == word.text
        for entity in found.entities:
            assert text[entity.start : entity.end] == entity.text
            first, last = found.words[entity.first_word], found.words[entity.last_word]
            assert (first.start, last.end) == (entity.start, entity.end)
            inside = found.words[entity.first_word : entity.last_word + 1]
            assert entity.probability == min(word.probability for word in inside)
            assert all(word.label.endswith(entity.type) for word in inside)
    assert sum(len(found.entities) for found in labeller().label(TEXTS)) > 3, "the model finds entities"


def test_word_lists_are_joined_by_single_spaces() -> None:
    found, empty = labeller().label([["Anna", "lives", "here"], []])
    assert found.text == "Anna lives here"
    assert [(word.start, word.end) for word in found.words] == [(0, 4), (5, 10), (11, 15)]
    assert found == labeller().label(["Anna lives here"])[0]
    assert empty == Labelling("", (), ())
    assert labeller().label([]) == []


def test_order_and_result_do_not_depend_on_the_batch() -> None:
    model = labeller()
    texts = TEXTS * 4
    random.Random(1).shuffle(texts)
    alone = [model.label([text])[0] for text in texts]
    for batch_tokens in (1, 200, 100_000):
        together = model.label(texts, batch_tokens=batch_tokens)
        assert [tags_of(found) for found in together] == [tags_of(found) for found in alone]
        for found, other in zip(together, alone, strict=True):
            ours, theirs = ([word.probability for word in one.words] for one in (found, other))
            assert ours == pytest.approx(theirs, abs=1e-5)


def test_long_texts_are_divided_between_words_and_joined_again() -> None:
    model = labeller(max_tokens=12)
    words = ["cat", "internationalisation" * 3, *(["the", "bread"] * 9)]
    (found,) = model.label([words])
    assert [word.text for word in found.words] == words
    room = 10
    parts, pieces = [[]], 0  # type: ignore[var-annotated]
    for i, word in enumerate(words):
        n = len(tokenizer().encode(word if i == 0 else f" {word}"))
        if parts[-1] and pieces + n > room:
            parts.append([])
            pieces = 0
        parts[-1].append(word)
        pieces += n
    assert len(parts) > 3
    # A later part begins with a space, which a list of words has not; the first one is the same by itself.
    (first,) = model.label([parts[0]])
    assert tags_of(found)[: len(parts[0])] == tags_of(first)


@pytest.mark.parametrize("scheme", ["BIO", "IOB1"])
def test_constrained_labels_follow_the_scheme(scheme: str) -> None:
    model = labeller(scheme=scheme)  # type: ignore[arg-type]
    texts = [f"{word} sees the {other} in Lyon and Paris" for word in ("Anna", "we", "May") for other in ("cat", "x")]

    def n_broken(found: list[Labelling]) -> int:
        steps = (step for one in found for step in itertools.pairwise(["O", *tags_of(one), "O"]))
        return sum(not is_allowed(*step, scheme) for step in steps)  # type: ignore[arg-type]

    greedy, constrained = model.label(texts), model.label(texts, is_constrained=True)
    assert n_broken(greedy) > 0 == n_broken(constrained)
    for free, bound in zip(greedy, constrained, strict=True):
        logs = [np.log([word.probability for word in one.words]).sum() for one in (free, bound)]
        assert logs[1] <= logs[0]


def test_labels_that_mark_no_entities_give_none() -> None:
    model = labeller(scheme="none")
    found = model.label(TEXTS, is_constrained=True)
    assert found == model.label(TEXTS)
    assert not any(one.entities for one in found) and any(one.words for one in found)
