"""Text generation: alone as in a batch, streamed as at once, cut where it must be, and scores that add up."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import LONG, build, config, save_folder, tokenizer

from glassformer.config import GenerationConfig
from glassformer.errors import CheckpointError, ConfigError, LengthError, UserError
from glassformer.evaluation.perplexity import LossMeter, next_token_log_probs, windows
from glassformer.model import DecoderOnly
from glassformer.tasks.generator import TextGenerator
from helpers import assert_close, decoder_only, padded, random_ids

PROMPTS = ["the", "", "the cat eats a fish and then it", "a", "   ", LONG, "the"]
POSITIONS = ("learned", "sinusoidal", "rotary", "t5_relative", "alibi")


@cache
def generator(**changes: Any) -> TextGenerator:
    """Weights that tell texts apart, over a vocabulary of bytes and a few pieces."""
    options: dict[str, Any] = {"family": "decoder-only", "use_bos": True, "positions": "rotary"}
    model = build(config(**(options | changes)).model)
    assert isinstance(model, DecoderOnly)
    return TextGenerator(model, tokenizer(), GenerationConfig(beam_size=1, max_new_tokens=8))


def search(**changes: Any) -> GenerationConfig:
    return GenerationConfig(**({"beam_size": 1, "max_new_tokens": 8} | changes))


SEARCHES = {
    "greedy": search(),
    "sampling": search(do_sample=True, temperature=1.3, top_k=50, top_p=0.95, min_p=0.01, n_best=2),
    "beam": search(beam_size=3, n_best=3),
}


def ids_of(generator: TextGenerator, prompts: list[str], **options: Any) -> list[list[list[int]]]:
    found = generator.generate(prompts, **options)
    return [[c.ids for c in (best, *best.alternatives)] for best in found]


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_prompt_gives_the_same_alone_and_in_any_batch(positions: str, name: str) -> None:
    """M8, G2, G14, G17: prompts of different lengths, empty and blank ones, in any order and company."""
    ours = generator(positions=positions)
    settings = SEARCHES[name]
    alone = [ids_of(ours, [prompt], generation=settings)[0] for prompt in PROMPTS]
    assert ids_of(ours, PROMPTS, generation=settings) == alone
    assert ids_of(ours, PROMPTS[::-1], generation=settings) == alone[::-1]
    assert ids_of(ours, PROMPTS, generation=settings, batch_tokens=100) == alone
    assert alone[0] == alone[-1]  # equal prompts
    assert len({str(ids) for ids in alone}) >= 4  # a prompt matters


def test_greedy_tokens_are_those_of_the_whole_model_without_a_cache() -> None:
    """M5, P5."""
    for positions in POSITIONS:
        ours = generator(positions=positions)
        ids = ours.prompt_ids("the cat")
        n_prompt = len(ids)
        for _ in range(8):
            logits = ours.model(torch.tensor([ids]))[0, -1].clone()
            logits[ours.forbidden_ids] = -torch.inf
            ids = [*ids, int(logits.argmax())]
            if ids[-1] == 2:
                break
        assert ours.generate(["the cat"])[0].ids == ids[n_prompt:]


@pytest.mark.parametrize(("name", "stop"), [("greedy", ()), ("sampling", ()), ("sampling", ("e", " t"))])
def test_a_stream_gives_what_generate_gives(name: str, stop: tuple[str, ...]) -> None:
    """G11: every piece is text, none of it is taken back."""
    ours = generator()
    settings = search(do_sample=name == "sampling", temperature=1.2, max_new_tokens=20)
    for prompt in PROMPTS[:3]:
        stream = ours.stream(prompt, generation=settings, stop=stop)
        pieces = list(stream)
        (whole,) = ours.generate([prompt], generation=settings, stop=stop)
        assert "".join(pieces) == whole.text and all(pieces)
        completion = stream.completion
        assert completion is not None
        assert (completion.ids, completion.finish_reason) == (whole.ids, whole.finish_reason)
        assert completion.token_log_probs == pytest.approx(whole.token_log_probs, abs=1e-5)
        assert completion.score == pytest.approx(whole.score, abs=1e-5)


def test_a_closed_stream_has_no_completion() -> None:
    stream = generator().stream("the", generation=search(max_new_tokens=1000))
    next(stream)
    stream.close()
    assert list(stream) == [] and stream.completion is None


@pytest.mark.parametrize("beam_size", [1, 3])
def test_an_output_ends_before_its_stop_string(beam_size: int) -> None:
    ours = generator()
    settings = search(beam_size=beam_size, max_new_tokens=30)
    whole = ours.generate(PROMPTS, generation=settings)
    text = max((c.text for c in whole), key=len)
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    found = ours.generate(PROMPTS, generation=settings, stop=[stop])
    n_stopped = 0
    for before, after in zip(whole, found, strict=True):
        assert after.text == before.text.partition(stop)[0]
        assert (after.finish_reason == "stop") == (stop in before.text)
        assert after.ids == before.ids[: len(after.ids)] and len(after.ids) == len(after.token_log_probs)
        if stop in before.text:
            n_stopped += 1
            made = b"".join(ours.tokenizer.bytes_of(after.ids)).decode("utf-8", "replace")
            assert stop in made and stop not in ours.tokenizer.decode(after.ids[:-1])
            assert after.log_prob == pytest.approx(math.fsum(before.token_log_probs[: len(after.ids)]), abs=1e-4)
    assert n_stopped


def test_a_seed_belongs_to_its_prompt() -> None:
    ours = generator()
    settings = search(do_sample=True, temperature=2.0)
    prompts = ["the", "the", "the", "a cat"]
    found = ids_of(ours, prompts, generation=settings, seeds=[1, 2, 1, 1])
    assert found[0] == found[2] != found[1]
    assert ids_of(ours, ["the"], generation=settings, seeds=[2])[0] == found[1]
    assert ids_of(ours, ["the"], generation=search(do_sample=True, temperature=2.0, seed=9), seeds=[2])[0] != found[1]
    with pytest.raises(UserError, match="3 seeds were given for 4 prompts"):
        ours.generate(prompts, seeds=[1, 2, 3])


def test_many_samples_are_different_and_rank_nothing() -> None:
    settings = search(do_sample=True, temperature=2.0, n_best=8)
    (best,) = generator().generate(["the"], generation=settings)
    assert len({str(c.ids) for c in (best, *best.alternatives)}) == 8


def test_temperature_zero_is_greedy() -> None:
    """G8."""
    ours = generator()
    assert ids_of(ours, PROMPTS, generation=search(do_sample=True, temperature=0)) == ids_of(ours, PROMPTS)


def test_log_probs_are_those_that_a_score_of_the_same_tokens_gives() -> None:
    """G15: forced scoring of what was made, under the model without the forbidden tokens."""
    ours = generator()
    (made,) = ours.generate(["the cat"])
    ids = [*ours.prompt_ids("the cat"), *made.ids]
    logits = ours.model(torch.tensor([ids[:-1]]))[0]
    logits[:, ours.forbidden_ids] = -torch.inf
    right = logits.log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])][-len(made.ids) :]
    assert_close(torch.tensor(made.token_log_probs), right, 1e-4, "float32")
    assert made.log_prob == pytest.approx(float(right.detach().sum()), abs=1e-3)


def test_the_least_and_the_most_tokens_count_new_tokens_only() -> None:
    """G9, G18."""
    ours = generator()
    for name in SEARCHES:
        options = vars(SEARCHES[name]) | {"min_new_tokens": 6, "max_new_tokens": 6}
        for best in ours.generate(PROMPTS, generation=GenerationConfig(**options)):
            for completion in (best, *best.alternatives):
                assert len(completion.ids) == 6 and 2 not in completion.ids
                assert completion.finish_reason == "length"
    (nothing,) = ours.generate(["the"], generation=search(max_new_tokens=0))
    assert (nothing.text, nothing.ids, nothing.finish_reason) == ("", [], "length")
    assert list(ours.stream("the", generation=search(max_new_tokens=0))) == []


def test_the_context_bounds_prompt_and_output_together() -> None:
    """P2: stops with `length` at the end of the context; a prompt that fills it is refused with both numbers."""
    ours = generator(positions="learned", max_positions=16)
    never_ends = search(max_new_tokens=40, min_new_tokens=5)
    n_prompt = len(ours.prompt_ids("the cat"))
    (made,) = ours.generate(["the cat"], generation=never_ends)
    assert len(made.ids) <= 16 - n_prompt
    if made.finish_reason != "eos":
        assert len(made.ids) == 16 - n_prompt and made.finish_reason == "length"
    n_long = len(ours.prompt_ids(LONG))
    for call in (ours.generate, lambda prompts: ours.stream(prompts[0])):
        with pytest.raises(LengthError, match=f"prompt has {n_long} tokens and max_positions=16"):
            call([LONG])


def test_without_a_limit_the_output_has_at_most_256_tokens() -> None:
    ours = generator()
    settings = GenerationConfig(beam_size=1, no_repeat_ngram_size=0)
    assert max(len(c.ids) for c in ours.generate(PROMPTS, generation=settings)) == 256


def test_an_empty_prompt_starts_from_bos_and_no_prompts_give_nothing() -> None:
    with_bos, without = generator(), generator(use_bos=False)
    assert with_bos.prompt_ids("") == without.prompt_ids("") == [1]
    assert with_bos.prompt_ids("a") == [1, *without.prompt_ids("a")]
    like_gpt2 = generator(use_bos=False, bos_id=2, pad_id=2)
    assert like_gpt2.prompt_ids("") == [2]
    assert ids_of(like_gpt2, PROMPTS) == [ids_of(like_gpt2, [prompt])[0] for prompt in PROMPTS]
    assert with_bos.generate([]) == [] and with_bos.score([]) == []


def test_one_text_in_place_of_a_list_is_an_error() -> None:
    for call in (generator().generate, generator().score):
        with pytest.raises(UserError, match="One text was given"):
            call("the")


def test_beams_cannot_be_streamed() -> None:
    with pytest.raises(ConfigError, match="beam_size=4 and n_best=1 cannot be streamed"):
        generator().stream("the", generation=GenerationConfig())


def test_load_reads_a_folder_of_a_decoder_and_refuses_others(tmp_path: Path) -> None:
    settings = config(family="decoder-only", use_bos=True)
    ours = TextGenerator.load(save_folder(tmp_path / "decoder", settings=settings))
    assert ours.generate(["the"])[0].ids
    with pytest.raises(CheckpointError, match="Text generation needs a decoder-only model"):
        TextGenerator.load(save_folder(tmp_path / "translator"))


def test_scores_are_those_of_each_text_alone_and_add_up() -> None:
    """M9, M7, N17: texts of all lengths together, one by one, and by hand."""
    ours = generator()
    texts = ["x y", "a b c d e", LONG, "", " ", "漢字"]
    together = ours.score(texts)
    for text, score in zip(texts, together, strict=True):
        ids = ours.tokenizer.encode(text, add_bos=True, add_eos=True)
        logits = ours.model(torch.tensor([ids[:-1]]))[0].detach()
        right = logits.double().log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
        assert score.ids == ids[1:]
        assert_close(torch.tensor(score.token_log_probs), right, 1e-5, "float32, other shapes of the products")
        (alone,) = ours.score([text], batch_tokens=1)
        assert alone.token_log_probs == pytest.approx(score.token_log_probs, abs=1e-5)
        meter = score.meter
        assert meter.sum_nll == pytest.approx(-float(right.sum()), abs=1e-3)
        assert (meter.n_tokens, meter.n_words, meter.n_bytes) == (len(ids) - 1, len(text.split()), len(text.encode()))
    whole = LossMeter()
    for score in together:
        whole.merge(score.meter)
    assert whole.perplexity_per_word == pytest.approx(math.exp(whole.sum_nll / whole.n_words))
    assert whole.perplexity_per_byte == pytest.approx(2**whole.bits_per_byte)
    left = padded([random_ids(3), random_ids(9, seed=2)], side="left")
    tiny = decoder_only(positions="learned")
    assert_close(tiny(left)[0, 6:], tiny(left[:1, 6:])[0], 1e-5, "a bare call with pads on the left")


def test_without_bos_the_first_token_is_not_predicted() -> None:
    ours = generator(use_bos=False)
    (score,) = ours.score(["the cat"])
    ids = ours.tokenizer.encode("the cat", add_eos=True)
    assert score.ids == ids[1:]
    assert score.meter.n_bytes == len("the cat") - len(ours.tokenizer.bytes_of(ids[:1])[0])
    (empty,) = ours.score([""])
    assert empty.ids == [] and math.isnan(empty.meter.loss)
    (open_end,) = ours.score(["the cat"], with_eos=False)
    assert open_end.token_log_probs == pytest.approx(score.token_log_probs[:-1], abs=1e-5)


@pytest.mark.parametrize("n", range(1, 14))
@pytest.mark.parametrize(("context", "stride"), [(4, 2), (5, 1), (3, 3), (None, 1)])
def test_windows_predict_every_token_once_from_enough(n: int, context: int | None, stride: int) -> None:
    parts = list(windows(n, context, stride))
    assert [t for part in parts for t in range(part.first, part.end)] == list(range(n))
    assert all(part.end - part.start <= (context or n) for part in parts)
    for part in parts[1:]:
        assert context is not None and part.end - part.start == context
        assert part.first + 1 - part.start >= context - stride + 1


def test_a_long_text_is_scored_in_windows() -> None:
    """Each log-probability is that of the model which reads the window alone."""
    model = decoder_only(positions="learned", max_positions=8)
    texts = [random_ids(n, seed=n).tolist() for n in (30, 5, 9, 10)]
    found = next_token_log_probs(model, texts, stride=3)
    for text, log_probs in zip(texts, found, strict=True):
        right: list[float] = []
        for part in windows(len(text) - 1, 8, 3):
            logits = model(torch.tensor([text[part.start : part.end]]))[0].detach().log_softmax(-1)
            right += [float(logits[t - part.start, text[t + 1]]) for t in range(part.first, part.end)]
        assert log_probs == pytest.approx(right, abs=1e-5)
    assert next_token_log_probs(model, texts, stride=3, batch_tokens=1)[0] == pytest.approx(found[0], abs=1e-5)


@pytest.mark.parametrize(("context", "stride"), [(17, None), (0, None), (8, 9), (8, 0)])
def test_windows_that_the_model_cannot_read_are_refused(context: int, stride: int | None) -> None:
    model = decoder_only(positions="learned", max_positions=16)
    with pytest.raises(UserError, match=r"context=\d+ with max_positions|stride=\d+ with context"):
        next_token_log_probs(model, [[1, 2, 3]], context=context, stride=stride)
