"""Markup: tags stay byte for byte, sentences come out, also where the markup is nested or broken."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.serve.documents.markup import Markup
from glassformer.serve.documents.passages import Passage

ODD = "<>/!-&;\"'= ab\n"


def texts_of(page: Markup) -> list[str]:
    return [passage.text for passage in page.passages]


def filled(page: Markup, translations: list[str]) -> str:
    return page.filled([p.filled(t) for p, t in zip(page.passages, translations, strict=True)])


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        ("plain", ["plain"]),
        ("", []),
        ("<p>Hello <b>big <i>world</i></b>!</p>", ["Hello big world!"]),
        ("<p>one\n   line <a href='x'>and\nmore</a></p>", ["one line and more"]),
        ("<td>one<td>two <p>three</p> four", ["one", "two", "three", "four"]),
        ("un<b>believ</b>able", ["unbelievable"]),
        ('<a title="a > b">x</a>', ["x"]),
        ("<a title='it is > \"so\"'>x</a>", ["x"]),
        ("1 < 2 and 3 > 2 <3", ["1 < 2 and 3 > 2 <3"]),
        ("a <b and c", ["a <b and c"]),
        ('<a href="x>y</a> z', ["y z"]),
        ("<b>never <i>closed</b> rightly</i>", ["never", "closed", "rightly"]),
        ("<b>over <p>two</p> sentences</b>", ["over", "two", "sentences"]),
        ("<!-- no <b>text</b> --> yes <!-- endless", ["yes <!-- endless"]),
        ('<script>if (a < b) { c("</p>") }</script>x<style>p > a {}</STYLE>y', ["x", "y"]),
        ("<script>endless <b>x</b>", ["endless x"]),
        ("<!DOCTYPE html><?xml version='1.0'?><br/>x</nothing>", ["x"]),
        ("<p>a &amp; b &lt;c&gt; caf&eacute;</p>", ["a & b <c> café"]),
        ("Type <code>x = 1</code>, please", ["Type, please"]),
        ("See <img src='a'> and <img src='b'>", ["See and"]),
        ("<p> &mdash; </p>", []),
    ],
)
def test_sentences_and_nothing_else(document: str, texts: list[str]) -> None:
    page = Markup(document)
    assert texts_of(page) == texts
    marked = filled(page, [f"[{i}]" for i in range(len(texts))])
    assert all(f"[{i}]" in marked for i in range(len(texts)))


def test_translations_take_the_places_of_the_sentences() -> None:
    page = Markup("<ul>\n  <li> one </li>\n  <li>two<br>three &nbsp;</li><li>&mdash;&nbsp;</li></ul>")
    made = filled(page, ["<1>", "2 & 2", "3"])
    assert made == "<ul>\n  <li> &lt;1&gt; </li>\n  <li>2 &amp; 2<br>3 \xa0</li><li>&mdash;&nbsp;</li></ul>"


def test_what_stands_around_a_whole_sentence_needs_no_links() -> None:
    for document in ("<b>one</b>", "<p><b><i>one</i></b></p>", "<!-- c --> one <br>", "<b></b>one"):
        (passage,) = Markup(document).passages
        assert passage.is_plain, document
        assert Markup(document).filled([passage.filled("un")]) == document.replace("one", "un"), document
    (passage,) = Markup("<b>one</b> two").passages
    assert not passage.is_plain


@given(st.text(alphabet=ODD, max_size=60))
def test_anything_comes_back_when_nothing_is_changed(document: str) -> None:
    """But for the spelling of references and of lone signs."""
    page = Markup(document)
    once = page.filled(page.passages)
    again = Markup(once)
    assert again.filled(again.passages) == once
    if not set("&<>") & set("".join(texts_of(page))):
        assert once == document


PIECES = [
    "<b>",
    "</b>",
    "<i>",
    "</i>",
    "<a href='x'>",
    "</a>",
    "<p>",
    "</p>",
    "<br>",
    "<img>",
    "<!--c-->",
    "<code>q</code>",
]


@given(st.lists(st.sampled_from([*PIECES, "one ", " two", "three"]), max_size=25), st.randoms())
def test_every_tag_is_there_once_and_rightly_nested_tags_stay_so(pieces: list[str], rng: object) -> None:
    """Whatever is linked to what."""
    from serve.test_placing import drawn_links

    page = Markup("".join(pieces))
    made: list[Passage] = []
    for passage in page.passages:
        translation = passage.text[::-1]
        made.append(passage.filled(translation, drawn_links(rng, passage.text, translation)))
    document = page.filled(made)
    tag = re.compile(r"<!--c-->|<code>q</code>|<[^>]*>")
    before = "".join(tag.findall("".join(pieces)))
    assert sorted(tag.findall(document)) == sorted(tag.findall(before))
    assert nesting_faults(document) <= nesting_faults(before)
    assert sorted(re.sub(r"\s", "", tag.sub("", document))) == sorted(re.sub(r"\s", "", tag.sub("", "".join(pieces))))


def nesting_faults(document: str) -> int:
    """Closing tags that do not close the tag opened last, and tags that are never closed."""
    stack: list[str] = []
    n_wrong = 0
    for is_end, name in re.findall(r"<(/?)(b|i|a|p)\b[^>]*>", document):
        if not is_end:
            stack.append(name)
        elif stack and stack[-1] == name:
            stack.pop()
        else:
            n_wrong += 1
    return n_wrong + len(stack)


@pytest.mark.parametrize(
    "unit",
    [
        "<script>",
        "<!--",
        '<a "',
        "<a '\"",
        "<",
        "</",
        "<pre",
        '<a b="',
        "&",
        "<a\"<a'",
        "<b>",
        "</b>",
        "<!---->",
        "<b>a</b>",
    ],
)
def test_time_is_linear(unit: str) -> None:
    document = unit * (50_000 // len(unit))
    begin = time.monotonic()
    page = Markup(document)
    page.filled(page.passages)
    assert time.monotonic() - begin < 2
