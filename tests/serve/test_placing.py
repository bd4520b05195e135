"""Where markup stands in a translation: by hand, from known links."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from glassformer.serve.documents.markup import Markup
from glassformer.serve.documents.passages import MAX_SIZE
from glassformer.serve.documents.placing import Links, Place


def words_of(text: str) -> list[Place]:
    return [match.span() for match in re.finditer(r"\w+|[^\w\s]+", text)]


def drawn_links(rng: Any, source: str, target: str) -> Links:
    """Links at random."""
    rows, columns = words_of(target), words_of(source)
    return Links(columns, rows, np.array([[rng.random() for _ in columns] for _ in rows]))


def fill(document: str, translation: str, links: str) -> str:
    """Links as text: of each target word the number of its source word, from 0, or `-` for none in particular."""
    page = Markup(document)
    (passage,) = page.passages
    source, target = words_of(passage.text), words_of(translation)
    weights = np.full((len(target), len(source)), 0.1)
    for row, link in zip(weights, links.split(), strict=True):
        if link != "-":
            row[int(link)] = 0.5
    return page.filled([passage.filled(translation, Links(source, target, weights))])


@pytest.mark.parametrize(
    ("document", "translation", "links", "expected"),
    [
        ("<p>We <b>eat</b> bread.</p>", "Nous mangeons du pain.", "0 1 2 2 3", "<p>Nous <b>mangeons</b> du pain.</p>"),
        # the order changes: red house -> maison rouge
        ("the <b>red</b> house", "la maison rouge", "0 2 1", "la maison <b>rouge</b>"),
        ("the <i>red</i> <b>house</b>", "la maison rouge", "0 2 1", "la <b>maison</b> <i>rouge</i>"),
        # a word in between that is linked elsewhere belongs to the stretch
        ("I <b>do not know</b> it", "Je ne le sais pas", "0 2 4 3 2", "Je <b>ne le sais pas</b>"),
        # nested: the inner one stays within the outer one, although its word is linked outside
        ("<b>very <i>big</i></b> cat", "chat très gros", "2 0 1", "chat <b>très <i>gros</i></b>"),
        ("<b>very <i>big</i></b> cat", "gros mon chat très gros", "1 2 2 0 0", "gros mon chat <b><i>très</i> gros</b>"),
        # two of the same words: each has its own
        ("<a>one</a> <a>two</a>", "un deux", "0 1", "<a>un</a> <a>deux</a>"),
        ("<a>one</a> <i>two</i> three", "trois", "2", "<a>trois</a><i></i>"),
        # nothing is linked to it: the word that gave it most
        ("see <b>the</b> cat", "voir chat", "0 2", "<b>voir</b> chat"),
        # a sign beside it is not taken in
        ("We <b>eat</b>.", "Nous mangeons.", "0 1 2", "Nous <b>mangeons</b>."),
        ("« <b>eat</b> »", "« mangez »", "0 1 2", "« <b>mangez</b> »"),
        # points: pictures, code, comments, with their spaces
        ("Type <code>ls</code> now", "Tapez maintenant", "0 1", "Tapez <code>ls</code> maintenant"),
        ("Type <code>ls</code>, please", "Tapez, merci", "0 1 2", "Tapez <code>ls</code>, merci"),
        ("now <img> go", "allez maintenant", "1 0", "<img> allez maintenant"),
        ("a<!--c--> b", "un b", "0 1", "un<!--c--> b"),
        ("<img> a b <img>", "x y", "1 0", "<img> x y <img>"),
        ("a <i class='x'></i> b", "x y", "0 1", "x <i class='x'></i> y"),
        ("<b>a <img> b</b> c", "z x y", "2 0 1", "z <b>x <img> y</b>"),
        # nothing at all
        ("a <b>b</b>", "", "", "<b></b>"),
    ],
)
def test_markup_goes_where_its_words_went(document: str, translation: str, links: str, expected: str) -> None:
    assert fill(document, translation, links) == expected


def test_what_is_too_large_for_one_passage_is_cut_at_its_markup() -> None:
    document = "<b>word</b> in between, " * 500
    passages = Markup(document).passages
    assert all(len(passage.text) <= MAX_SIZE for passage in passages)
    assert "".join(passage.text for passage in passages).count("word") == 500
    assert [len(passage.text) for passage in Markup("word " * 1000).passages] == [4999]
    (first, *_) = Markup("<b>" + "<i>word</i> " * 500 + "</b>").passages  # an element alone may be too large
    assert first.text.startswith("word word")
