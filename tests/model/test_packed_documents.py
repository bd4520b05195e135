"""Packed documents equal each document alone; a window hides what is too far back, with and without a cache."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError, LengthError
from glassformer.model import attention_maps, fused_attention, twin
from glassformer.model.attention import Kernel, RecordingKernel
from glassformer.model.masks import document_positions, window_mask
from helpers import assert_close, chunks, decoder_only, encoder_decoder, padded, random_ids

POSITIONS = ("learned", "sinusoidal", "rotary", "t5_relative", "alibi", "none")
LENGTHS = (5, 1, 9, 3)
KERNELS: dict[str, Kernel] = {"reference": RecordingKernel(), "fused": fused_attention}


def documents_of_lengths(*lengths: int) -> tuple[list[Tensor], Tensor]:
    """Documents of random ids, and their numbers in one packed row [1, sum of the lengths]."""
    texts = [random_ids(length, seed=length) for length in lengths]
    return texts, torch.repeat_interleave(torch.arange(1, len(lengths) + 1), torch.tensor(lengths))[None]


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("positions", POSITIONS)
def test_the_logits_of_a_packed_document_are_those_of_it_alone(positions: str, kernel: str, window: int | None) -> None:
    model = twin(decoder_only(positions=positions, window=window), KERNELS[kernel])
    texts, numbers = documents_of_lengths(*LENGTHS)
    ids = torch.cat([torch.cat(texts), torch.zeros(4, dtype=torch.int64)])[None]  # four pads, document 0
    numbers = torch.cat([numbers, torch.zeros(1, 4, dtype=torch.int64)], dim=1)
    other = torch.roll(ids, 1, dims=1)  # a second row with its documents in other places
    packed = model(torch.cat([ids, other]), documents=torch.cat([numbers, torch.roll(numbers, 1, dims=1)]))
    start = 0
    for text in texts:
        alone = model(text[None])[0]
        assert_close(packed[0, start : start + len(text)], alone, 1e-5, "float32, other shapes of the products")
        assert_close(packed[1, start + 1 : start + 1 + len(text)], alone, 1e-5, "float32")
        start += len(text)


def test_a_row_may_be_longer_than_max_positions_when_its_documents_are_not() -> None:
    model = decoder_only(positions="learned", max_positions=10)
    texts, numbers = documents_of_lengths(10, 7)
    packed = model(torch.cat(texts)[None], documents=numbers)
    assert_close(packed[0, 10:], model(texts[1][None])[0], 1e-5, "float32")
    with pytest.raises(LengthError, match="11 tokens and max_positions=10"):
        model(random_ids(1, 11), documents=torch.ones(1, 11, dtype=torch.int64))


def test_gradients_of_packed_documents_are_those_of_the_documents_alone() -> None:
    model = decoder_only(positions="rotary").train()
    texts, numbers = documents_of_lengths(*LENGTHS)
    parameters = list(model.parameters())
    packed = torch.autograd.grad(model(torch.cat(texts)[None], documents=numbers).logsumexp(-1).sum(), parameters)
    alone = torch.autograd.grad(sum((model(t[None]).logsumexp(-1).sum() for t in texts), torch.tensor(0)), parameters)
    for actual, right in zip(packed, alone, strict=True):
        assert_close(actual, right, 2e-5, "float32 sums in another order")


def test_no_attention_crosses_a_document_and_each_row_is_a_distribution() -> None:
    texts, numbers = documents_of_lengths(*LENGTHS)
    maps = attention_maps(decoder_only(), torch.cat(texts)[None], documents=numbers)["decoder"]
    is_own = numbers[0][:, None] == numbers[0][None, :]
    for weights in maps:
        assert not weights[0][:, ~is_own].any()
        assert_close(weights.sum(-1), torch.ones(1, 4, 18), 1e-6, "rows sum to one")


def test_positions_begin_anew_in_each_document() -> None:
    numbers = torch.tensor([[1, 1, 1, 2, 3, 3, 0, 0], [7, 7, 5, 5, 5, 5, 5, 5]])
    assert document_positions(numbers).tolist() == [[0, 1, 2, 0, 0, 1, 0, 1], [0, 1, 0, 1, 2, 3, 4, 5]]


def test_documents_with_a_mask_or_a_cache_are_refused() -> None:
    model, ids = decoder_only(), random_ids(1, 4)
    numbers = torch.ones_like(ids)
    with pytest.raises(ValueError, match="documents was given with a mask or a cache"):
        model(ids, documents=numbers, mask=ids > 0)
    with pytest.raises(ValueError, match="documents was given with a mask or a cache"):
        model.decoder(ids, documents=numbers, cache=model.new_cache(1, 8))


def test_window_mask_holds_the_last_keys() -> None:
    at = torch.arange(4)[None]
    assert window_mask(at, at, 2)[0].tril().tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [False, True, True, False],
        [False, False, True, True],
    ]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("window", [1, 3, 12, 40])
def test_a_token_beyond_the_reach_of_all_layers_changes_nothing_and_one_inside_does(window: int, kernel: str) -> None:
    """Two layers of window W reach 2 (W - 1) tokens back, none further."""
    model = twin(decoder_only(window=window), KERNELS[kernel])
    ids = random_ids(1, 30)
    for place in (0, 9):
        changed = ids.clone()
        changed[0, place] = 4 + (ids[0, place] - 3) % 19
        gap = (model(ids) - model(changed)).abs().amax(-1)[0]
        reach = min(place + 2 * (window - 1), 29)
        assert bool((gap[place : reach + 1] > 1e-6).all())
        assert torch.equal(gap[reach + 1 :], torch.zeros(29 - reach))
        assert torch.equal(gap[:place], torch.zeros(place))


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_window_of_the_whole_text_is_no_window(positions: str) -> None:
    ids = random_ids(2, 12)
    assert torch.equal(decoder_only(positions=positions, window=12)(ids), decoder_only(positions=positions)(ids))
    assert not torch.equal(decoder_only(positions=positions, window=11)(ids), decoder_only(positions=positions)(ids))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("sizes", [(1,), (5,), (6, 1, 1, 4), (2, 9, 1)])
def test_a_window_with_a_cache_equals_the_whole_text(sizes: tuple[int, ...], positions: str, kernel: str) -> None:
    """M5 and P5 under a window: chunks of any size, left pads in one row."""
    model = twin(decoder_only(positions=positions, window=4), KERNELS[kernel])
    ids = padded([random_ids(12, seed=1), random_ids(7, seed=2)], side="left")
    cache = model.new_cache(2, 12)
    cached = torch.cat([model.decode_step(part, cache) for part in chunks(ids, *sizes)], dim=1)
    assert_close(cached[0], model(ids[:1])[0], 1e-4, "float32, other shapes of the products")
    assert_close(cached[1, 5:], model(ids[1:, 5:])[0], 1e-4, "float32")
    assert bool(cached.isfinite().all())  # M1: the pads of the left see nothing


def test_pads_between_prompt_and_continuation_take_no_room_in_the_window() -> None:
    model = decoder_only(window=4)
    prompt, rest = random_ids(1, 5, seed=1), random_ids(1, 6, seed=2)
    cache = model.new_cache(1, 14)
    model.decode_step(torch.cat([prompt, torch.zeros(1, 3, dtype=torch.int64)], dim=1), cache)
    continued = model.decode_step(rest, cache)
    assert_close(continued, model(torch.cat([prompt, rest], dim=1))[:, 5:], 1e-5, "float32")


def test_pads_under_a_window_leave_no_trace_in_the_gradients() -> None:
    """M1: queries that are pads see no key at all in a window."""
    model = decoder_only(window=2).train()
    row = random_ids(5, seed=1)
    parameters = list(model.parameters())
    alone = torch.autograd.grad(model(row[None]).logsumexp(-1).sum(), parameters)
    left = torch.autograd.grad(model(padded([row], side="left", length=9))[:, 4:].logsumexp(-1).sum(), parameters)
    for actual, right in zip(left, alone, strict=True):
        assert_close(actual, right, 2e-5, "float32")


def test_the_decoder_of_an_encoder_decoder_has_the_window_and_its_encoder_has_not() -> None:
    model, src, tgt = encoder_decoder(window=3), random_ids(1, 9), random_ids(1, 8, seed=3)
    maps = attention_maps(model, src, tgt)
    assert [int((m[0, 0, -1] > 0).sum()) for m in (maps["encoder"][0], maps["decoder"][0], maps["cross"][0])] == [
        9,
        3,
        9,
    ]


def test_a_window_of_an_encoder_and_one_of_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="window=4 with family=encoder-only"):
        ModelConfig(family="encoder-only", window=4)
    with pytest.raises(ConfigError, match="window=0 is too small"):
        ModelConfig(family="decoder-only", window=0)
