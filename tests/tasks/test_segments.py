"""Long texts are cut at the best places, and nothing of them is lost."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.tasks.segments import split_long


def n_words(text: str) -> int:
    return len(text.split()) + 1


def n_bytes(text: str) -> int:
    return len(text.encode())


texts = (
    st.text(alphabet=st.sampled_from("ab é. ,!?…\u3002\t\u2028日本"), min_size=1, max_size=120)
    .map(str.strip)
    .filter(bool)
)


@given(texts, st.integers(4, 40))
@settings(max_examples=300, deadline=None)
def test_parts_fit_and_hold_every_character_in_order(text: str, limit: int) -> None:
    parts = split_long(text, n_bytes, limit)
    assert all(part and n_bytes(part) <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


@given(texts, st.integers(4, 40))
@settings(max_examples=100, deadline=None)
def test_no_more_parts_than_a_greedy_fill_of_words_and_a_text_that_fits_stays_whole(text: str, limit: int) -> None:
    parts = split_long(text, n_words, limit)
    if n_words(text) <= limit:
        assert parts == [text]
    for one, two in itertools.pairwise(parts):
        ends_well = one[-1] in ".,!?…\u3002"
        assert ends_well or n_words(one) + n_words(two.split()[0]) - 1 > limit


def test_cuts_at_sentence_ends_before_commas_before_spaces_before_letters() -> None:
    text = "One two three. Four five, six seven! Eight nine ten eleven? Twelve."
    sentences = ["One two three.", "Four five, six seven!", "Eight nine ten eleven?", "Twelve."]
    assert split_long(text, n_words, 5) == sentences
    clauses = ["One two three.", "Four five,", "six seven!", "Eight nine ten", "eleven? Twelve."]
    assert split_long(text, n_words, 4) == clauses
    assert split_long("abcdefgh ij", n_bytes, 4) == ["abcd", "efgh", "ij"]


def test_short_sentences_are_kept_together() -> None:
    assert split_long("A b. C d. E f. G h.", n_words, 5) == ["A b. C d.", "E f. G h."]


def test_sentences_without_spaces_are_cut_at_their_ends() -> None:
    assert split_long("今日は雨。明日は晴れです。", len, 8) == ["今日は雨。", "明日は晴れです。"]
    assert split_long("本当？！はい。いいえ。", len, 8) == ["本当？！はい。", "いいえ。"]


@pytest.mark.parametrize("text", ["a" * 3000, "word " * 800, "No end, " * 400])
def test_much_text_takes_little_time(text: str) -> None:
    parts = split_long(text.strip(), n_bytes, 16)
    assert "".join("".join(parts).split()) == "".join(text.split())
