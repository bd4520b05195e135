"""Markup: tags stay byte for byte, texts come out, also where the markup is nested or broken."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.serve.markup import Markup


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        ("plain", ["plain"]),
        ("", []),
        ("<p>Hello <b>big <i>world</i></b>!</p>", ["Hello", "big", "world", "!"]),
        ('<a title="a > b">x</a>', ["x"]),
        ("<a title='it is > \"so\"'>x</a>", ["x"]),
        ("1 < 2 and 3 > 2 <3", ["1 < 2 and 3 > 2 <3"]),
        ("a <b and c", ["a <b and c"]),
        ('<a href="x>y</a> z', ["y", "z"]),
        ("<!-- no <b>text</b> --> yes <!-- endless", ["yes <!-- endless"]),
        ('<script>if (a < b) { c("</p>") }</script>x<style>p > a {}</STYLE>y', ["x", "y"]),
        ("<script>endless <b>x</b>", ["endless", "x"]),
        ("<!DOCTYPE html><?xml version='1.0'?><br/>x</nothing>", ["x"]),
        ("<p>a &amp; b &lt;c&gt; caf&eacute;</p>", ["a & b <c> café"]),
        ("<code>x = 1</code> is code", ["is code"]),
    ],
)
def test_texts_and_nothing_else(document: str, texts: list[str]) -> None:
    page = Markup(document)
    assert page.texts == texts
    marked = page.filled([f"[{i}]" for i in range(len(texts))])
    assert all(f"[{i}]" in marked for i in range(len(texts)))


def test_translations_take_the_places_of_the_texts() -> None:
    page = Markup("<ul>\n  <li> one </li>\n  <li>two<br>three</li></ul>")
    assert page.filled(["<1>", "2 & 2", "3"]) == "<ul>\n  <li> &lt;1&gt; </li>\n  <li>2 &amp; 2<br>3</li></ul>"


@given(st.text(alphabet="<>/!-&;\"'= ab\n", max_size=60))
def test_anything_comes_back_when_nothing_is_changed(document: str) -> None:
    """But for the spelling of references and of lone signs."""
    page = Markup(document)
    twice = Markup(page.filled(page.texts))
    assert twice.filled(twice.texts) == page.filled(page.texts)
    if not set("&<>") & set("".join(page.texts)):
        assert page.filled(page.texts) == document


@pytest.mark.parametrize("unit", ["<script>", "<!--", '<a "', "<a '\"", "<", "</", "<pre", '<a b="', "&", "<a\"<a'"])
def test_time_is_linear(unit: str) -> None:
    document = unit * (50_000 // len(unit))
    begin = time.monotonic()
    Markup(document)
    assert time.monotonic() - begin < 2
