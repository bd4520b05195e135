"""Text as it grows: whole characters only, cut before stop strings, the same however the bytes arrive."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from table_model import EOS, RecurrentDecoding, TableDecoding, limits, start

from glassformer.config import GenerationConfig, TokenizerConfig
from glassformer.errors import ConfigError
from glassformer.generation.search import generate, generate_steps
from glassformer.generation.streaming import StopStrings, TextStream
from glassformer.phrasebook import generate as phrases
from glassformer.text.tokenizer import Tokenizer

TEXT = "aé漢😀👩‍👩‍👧z"


def pieces_of(parts: Sequence[bytes], stop: Sequence[str] = ()) -> list[str]:
    stream = TextStream(stop)
    pieces = [stream.push(part) for part in parts]
    return [*pieces, stream.finish()]


def cuts(data: bytes, places: Sequence[int]) -> list[bytes]:
    """The bytes cut at some places."""
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


@cache
def tokenizer(kind: str) -> Tokenizer:
    texts = [side for pair in phrases(60, 1) for side in pair]
    return Tokenizer.train(texts, TokenizerConfig(kind=kind), vocab_size=600)  # type: ignore[arg-type]


def cut_by_hand(text: str, stop: Sequence[str]) -> str:
    """Character by character: the text before the stop string that is complete first, the longest of several."""
    for end in range(len(text) + 1):
        found = [s for s in stop if text[:end].endswith(s)]
        if found:
            return text[: end - max(map(len, found))]
    return text


def test_bytes_one_by_one_give_whole_characters() -> None:
    """G11."""
    parts = [bytes([byte]) for byte in TEXT.encode()]
    pieces = pieces_of(parts)
    assert "".join(pieces) == TEXT
    assert all(len(piece) <= 1 and "\ufffd" not in piece for piece in pieces)
    for n in range(len(parts) + 1):  # a limit may cut inside a character
        assert "".join(pieces_of(parts[:n])) == b"".join(parts[:n]).decode("utf-8", "replace")


@given(st.binary(max_size=40), st.lists(st.integers(0, 40)))
def test_any_bytes_give_what_decoding_gives(data: bytes, places: list[int]) -> None:
    assert "".join(pieces_of(cuts(data, places))) == data.decode("utf-8", "replace")


@given(
    st.text("abé\n", max_size=30),
    st.lists(st.text("abé\n", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 60)),
)
def test_the_cut_is_before_the_stop_string_complete_first(text: str, stop: list[str], places: list[int]) -> None:
    right = cut_by_hand(text, stop)
    stream, so_far = TextStream(stop), ""
    for part in cuts(text.encode(), places):
        so_far += stream.push(part)
        assert right.startswith(so_far)  # nothing is ever taken back
    assert so_far + stream.finish() == right
    assert stream.is_stopped == any(s in text for s in stop)


def test_what_may_begin_a_stop_string_is_held_back_and_given_when_it_does_not() -> None:
    stream = TextStream(["\n\nUser:"])
    assert [stream.push(part) for part in (b"Hi\n", b"\nUs", b"ing ", b"it\n")] == ["Hi", "", "\n\nUsing ", "it"]
    assert stream.finish() == "\n"
    assert pieces_of([b"ok\n", b"\nUse", b"r: x", b"more"], ["\n\nUser:"]) == ["ok", "", "", "", ""]


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ConfigError, match="stop='' is empty"):
        TextStream(["a", ""])


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_streamed_tokens_join_to_what_decode_gives(kind: str) -> None:
    """G13: random ids, and real texts with spaces, digits and other scripts, token by token."""
    ours = tokenizer(kind)
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(ours.vocab_size, (20,), generator=generator).tolist() for _ in range(300)]
    texts = ["  leading", "a !", "x    .", "12 345", "漢字 かな", TEXT, " ", "\n"]
    texts += [side for pair in phrases(150, 2) for side in pair]
    for ids in [*rows, *(ours.encode(text) for text in texts)]:
        assert "".join(pieces_of(ours.bytes_of(ids))) == ours.decode(ids)


def test_what_is_held_back_stays_shorter_than_a_stop_string() -> None:
    """So a token costs the same wherever it stands in a long text."""
    stop = ["\n\nUser:", "###", "</answer>"]
    stream, n_given = TextStream(stop), 0
    n_taken = 0
    for i in range(2000):
        piece = b"\n" if i % 7 == 0 else b"##" if i % 5 == 0 else b" word"
        n_taken, n_given = n_taken + len(piece), n_given + len(stream.push(piece))
        assert n_taken - n_given < max(map(len, stop))


def greedy(**changes: object) -> GenerationConfig:
    return GenerationConfig(**({"beam_size": 1} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{}, {"do_sample": True, "temperature": 1.5, "seed": 3}, {"min_new_tokens": 4}])
def test_steps_make_the_tokens_of_generate(settings: dict[str, object]) -> None:
    sources = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    arguments = {"eos_ids": [EOS], "max_new_tokens": torch.tensor([4, 9, 5, 12, 7]), "seeds": [5, 4, 5, 1, 0]}
    whole = generate(RecurrentDecoding(sources), start(5), greedy(**settings), **arguments)  # type: ignore[arg-type]
    made: dict[int, list[tuple[int, float, str | None]]] = {item: [] for item in range(5)}
    steps = generate_steps(RecurrentDecoding(sources), start(5), greedy(**settings), **arguments)  # type: ignore[arg-type]
    for step in steps:
        for token in step:
            made[token.row].append((token.token, token.log_prob, token.finish_reason))
    for item, (hypothesis,) in enumerate(whole):
        assert [token for token, _, _ in made[item]] == hypothesis.ids
        assert [log_prob for _, log_prob, _ in made[item]] == hypothesis.token_log_probs
        reasons = [reason for _, _, reason in made[item]]
        assert reasons == [None] * (len(reasons) - 1) + [hypothesis.finish_reason]


def test_steps_compute_nothing_that_is_not_asked_for() -> None:
    """S3: a consumer that leaves ends the work."""
    decoding = TableDecoding(lambda item, made: [0.0, 0.0, 1.0], 1)
    steps = generate_steps(decoding, start(1), greedy(), eos_ids=[EOS], max_new_tokens=limits(1, 50))
    assert decoding.n_rows_at_step == []
    next(steps), next(steps)
    assert len(decoding.n_rows_at_step) == 2
    steps.close()  # type: ignore[attr-defined]
    assert list(steps) == [] and len(decoding.n_rows_at_step) == 2


def test_gradients_are_off_inside_and_on_between_the_steps() -> None:
    seen = []

    def table(item: int, made: tuple[int, ...]) -> list[float]:
        seen.append(torch.is_grad_enabled())
        return [0.0, 0.0, 1.0]

    for _ in generate_steps(TableDecoding(table, 1), start(1), greedy(), eos_ids=[EOS], max_new_tokens=limits(1, 3)):
        assert torch.is_grad_enabled()
    assert seen == [False] * 3


@pytest.mark.parametrize("changes", [{"beam_size": 2}, {"n_best": 2, "do_sample": True}])
def test_what_cannot_be_streamed_is_refused_at_once(changes: dict[str, object]) -> None:
    decoding = TableDecoding(lambda item, made: [0.0, 0.0, 1.0], 1)
    with pytest.raises(ConfigError, match="cannot be streamed"):
        generate_steps(decoding, start(1), greedy(**changes), eos_ids=[EOS], max_new_tokens=limits(1, 3))


def test_a_stop_string_ends_its_own_row_at_once() -> None:
    """Rows spell words; each ends with the token that completes its stop string, and frees its place."""
    letters = {2: b"a", 3: b"b", 4: b"c"}
    words = [(2, 3, 4, 2, 2, 2), (2, 2, 2, 3, 3, 2), (4, 4, 4, 4, 4, 4)]

    def table(item: int, made: tuple[int, ...]) -> list[float]:
        return [float(token == words[item][len(made)]) for token in range(5)]

    decoding = TableDecoding(table, 3)
    found = generate(
        decoding,
        start(3),
        greedy(),
        eos_ids=[EOS],
        max_new_tokens=limits(3, 6),
        stop=StopStrings(["bc", "abb"], letters.__getitem__),
    )
    assert [(h.ids, h.finish_reason) for (h,) in found] == [
        ([2, 3, 4], "stop"),
        ([2, 2, 2, 3, 3], "stop"),
        ([4] * 6, "length"),
    ]
    assert decoding.n_rows_at_step == [3, 3, 3, 2, 2, 1]
