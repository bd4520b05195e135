"""Translator: every text gets its own output, whatever stands beside it."""

from __future__ import annotations

import math
import random

import pytest
from small_models import LONG, make_translator

from glassformer.config import GenerationConfig
from glassformer.errors import ConfigError, LengthError, TokenizerError
from glassformer.phrasebook import generate
from glassformer.tasks import Translation, Translator

SIX = ["", "hello", "   ", "a", "\u200b", LONG]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return make_translator()


def search(beam_size: int, **changes: object) -> GenerationConfig:
    return GenerationConfig(beam_size=beam_size, max_length_a=1.0, max_length_b=3, **changes)  # type: ignore[arg-type]


def key(translation: Translation) -> tuple[str, list[int], str]:
    return translation.text, translation.ids, translation.finish_reason


@pytest.mark.parametrize("beam_size", [1, 4])
def test_blank_gives_blank_and_a_text_alone_gives_the_same_as_in_a_batch(
    translator: Translator, beam_size: int
) -> None:
    together = translator.translate(SIX, generation=search(beam_size))
    assert len(together) == 6
    for text, found in zip(SIX, together, strict=True):
        (alone,) = translator.translate([text], generation=search(beam_size))
        assert key(alone) == key(found)
        if text.strip():
            assert found.n_segments == 1
            assert found.ids
            assert found.score is not None and math.isfinite(found.score)
        else:
            assert (found.text, found.score, found.ids, found.finish_reason) == ("", None, [], "blank")
    assert translator.translate([], generation=search(beam_size)) == []


def test_output_i_belongs_to_text_i(translator: Translator) -> None:
    texts = [" ".join(pair[0] for pair in generate(1 + i % 2, seed=i)) for i in range(92)]
    texts += [*texts[:5], "", " ", ""]
    random.Random(0).shuffle(texts)
    assert len(texts) == 100
    settings = GenerationConfig(beam_size=2, n_best=2, max_length_a=0.0, max_length_b=6)
    done: list[int] = []
    found = translator.translate(texts, generation=settings, batch_tokens=400, on_progress=done.append)
    assert done == sorted(done) and done[-1] == 97 and len(done) > 5
    assert len({translation.text for translation in found}) > 40, "outputs tell the texts apart"
    backwards = translator.translate(texts[::-1], generation=settings, batch_tokens=1000)[::-1]
    for text, one, two in zip(texts, found, backwards, strict=True):
        assert key(one) == key(two)
        assert [key(t) for t in one.alternatives] == [key(t) for t in two.alternatives]
        assert bool(one.ids) == bool(text.strip())
    for i in range(0, 100, 6):
        text, translation = texts[i], found[i]
        assert key(translator.translate([text], generation=settings)[0]) == key(translation)
        if not text.strip():
            continue
        alignment = translator.align(text, translation)
        src_ids = translator.src_tokenizer.encode(text, add_eos=True)
        assert alignment.src_pieces == translator.src_tokenizer.pieces(src_ids)
        assert alignment.tgt_pieces == translation.tokens
        assert len(alignment.weights) == len(alignment.tgt_pieces)
        for row in alignment.weights:
            assert len(row) == len(alignment.src_pieces)
            assert sum(row) == pytest.approx(1, abs=1e-5)


def test_samples_belong_to_the_text_and_the_seed(translator: Translator) -> None:
    texts = ["we eat bread", "hello", "a"]
    settings = GenerationConfig(do_sample=True, max_length_b=5, seed=1)
    found = [t.text for t in translator.translate(texts, generation=settings)]
    assert found == [translator.translate([text], generation=settings)[0].text for text in texts]
    other = GenerationConfig(do_sample=True, max_length_b=5, seed=2)
    assert found != [t.text for t in translator.translate(texts, generation=other)]


# -- long texts and texts of several lines ------------------------------------------------------------------------


def test_long_text_is_split_at_sentence_ends_and_each_part_is_translated(translator: Translator) -> None:
    sentences = [f"{LONG} {i}." for i in range(5)]
    limit = translator.max_src_tokens
    sizes = [len(translator.src_tokenizer.encode(text)) + 1 for text in sentences]
    assert max(sizes) <= limit < min(sizes) * 2
    (whole,) = translator.translate([" ".join(sentences)])
    parts = translator.translate(sentences)
    assert whole.n_segments == 5
    assert whole.text == " ".join(part.text for part in parts)
    assert whole.ids == [i for part in parts for i in part.ids]
    assert whole.score == pytest.approx(sum(part.score or 0.0 for part in parts))
    with pytest.raises(LengthError, match=f"at most {limit}") as error:
        translator.translate(["hello", " ".join(sentences)], is_strict=True)
    assert error.value.exit_code == 2


def test_text_of_several_lines_keeps_its_lines(translator: Translator) -> None:
    first, second = translator.translate(["hello", "a cat"])
    (both,) = translator.translate(["hello\n\n a cat \n"])
    assert both.text == f"{first.text}\n\n{second.text}\n"
    assert both.n_segments == 2
    assert translator.translate(["\n \n"])[0].text == "\n\n"


def test_separators_that_are_no_newline_stay_inside_a_text(translator: Translator) -> None:
    for sign in "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r":
        (found,) = translator.translate([f"hello{sign}world"])
        assert found.n_segments == 1


def test_half_a_surrogate_pair_is_a_clear_error(translator: Translator) -> None:
    with pytest.raises(TokenizerError, match=r"U\+D83D"):
        translator.translate(["fine", "emoji \ud83d"])


# -- limits -------------------------------------------------------------------------------------------------------


def test_n_best_within_the_beam() -> None:
    with pytest.raises(ConfigError, match="n_best=5"):
        search(4, n_best=5)
    with pytest.raises(ConfigError, match="n_best=0"):
        search(4, n_best=0)


def test_n_best_are_different_and_sorted(translator: Translator) -> None:
    (found,) = translator.translate(["hello"], generation=search(5, n_best=5))
    scores = [t.score for t in (found, *found.alternatives)]
    assert scores == sorted(scores, key=lambda s: -(s or 0.0))
    assert len({tuple(t.ids) for t in (found, *found.alternatives)}) == len(scores) > 1


def test_output_of_no_tokens_has_an_empty_alignment(translator: Translator) -> None:
    (found,) = translator.translate(["hello"], generation=GenerationConfig(max_new_tokens=0))
    assert (found.text, found.ids, found.finish_reason) == ("", [], "length")
    alignment = translator.align("hello", found)
    assert (alignment.tgt_pieces, alignment.weights) == ([], [])


def test_ids_without_a_token_are_never_made() -> None:
    """The model has 40 more rows than the tokenizer, and would like them best."""
    tokens = make_translator().tokenizer.vocab_size
    translator = make_translator(vocab_size=tokens + 40, tying="none", use_output_bias=True)
    assert translator.model.decoder.projection.bias is not None
    translator.model.decoder.projection.bias.data[tokens:] = 50.0
    for settings in (search(1), search(4), GenerationConfig(do_sample=True, max_length_b=5)):
        for found in translator.translate(["hello", LONG], generation=settings):
            assert found.ids and max(found.ids) < tokens
    with pytest.raises(TokenizerError, match=f"Ids run from 0 to {tokens - 1}"):
        translator.tokenizer.decode([tokens + 3])


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_bounded_positions_hold_for_source_and_output(positions: str) -> None:
    translator = make_translator(positions=positions, max_positions=20, max_tokens=20)
    settings = GenerationConfig(min_new_tokens=20, max_new_tokens=500)
    for found in translator.translate([LONG, "hello"], generation=settings):
        assert len(found.ids) in (20, 20 * found.n_segments)
