"""The cache: rows reordered, dropped and repeated, its bounds, and what stands in it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from glassformer.errors import LengthError
from glassformer.model.cache import MAX_WIDTH
from helpers import (
    VARIANTS,
    assert_close,
    build_tiny,
    chunks,
    decoder_only,
    encoder_decoder,
    padded,
    random_ids,
    run,
    tiny_config,
)

ATOL, REASON = 1e-5, "float32, the same sums in another order"
# Each line is done in turn: reorder, expand, drop and repeat; down to one and up again; the last two change places.
SELECTIONS = [[[2, 0, 1], [0, 0, 1, 1, 2, 2, 2], [6, 1, 1]], [[1], [0, 0]], [[2, 0], [1, 0]]]
variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


@variants
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["encoder-decoder", "decoder-only"])
def test_selected_rows_continue_as_if_they_had_stood_there(family: str, side: str, changes: dict[str, Any]) -> None:
    """G6, G7: sources and prompts of unequal length, rows moved between the steps."""
    model: Any = build_tiny(tiny_config(family, **changes))
    src = padded([random_ids(n, seed=n) for n in (2, 9, 5)])
    prompt = padded([random_ids(n, seed=30 + n) for n in (4, 1, 6)], side=side)
    with torch.no_grad():
        for selections in SELECTIONS:
            cache = model.new_cache(src, 12) if family == "encoder-decoder" else model.new_cache(3, 12)
            model.decode_step(prompt, cache)
            ids, sources = prompt, src
            for step, rows in enumerate(selections):
                index = torch.tensor(rows)
                cache.select(index)
                ids, sources = ids[index], sources[index]
                chunk = random_ids(len(rows), 2, seed=step)
                ids = torch.cat([ids, chunk], dim=1)
                logits = model.decode_step(chunk, cache)
                assert_close(logits, run(model, sources, ids)[:, -2:], ATOL, f"{REASON}; {selections}")


def test_cross_keys_follow_their_source_and_stay_when_beams_swap() -> None:
    model = encoder_decoder()
    src = padded([random_ids(3, seed=1), random_ids(5, seed=2)])
    with torch.no_grad():
        cache = model.new_cache(src, 6)
        cache.select(torch.tensor([0, 0, 1, 1]))  # two beams for each source
        assert cache.sources.tolist() == [0, 1] and cache.width == 2
        keys = cache.cross[0].k
        cache.select(torch.tensor([1, 0, 3, 3]))
        assert cache.cross[0].k is keys  # nothing to move
        cache.select(torch.tensor([3, 2]))  # the first source has ended: same number of rows, other sources
        assert cache.sources.tolist() == [1] and cache.width == 2
        right = model.new_cache(src[[1]], 6)
        for actual, expected in zip(cache.cross, right.cross, strict=True):
            assert_close(actual.k, expected.k, ATOL, REASON)
            assert_close(actual.v, expected.v, ATOL, REASON)
        assert cache.memory_mask is not None and cache.memory_mask.tolist() == [[True] * 5]


def test_pads_of_a_finished_source_change_nothing() -> None:
    """G7: after the longest source has left, what its columns hold for the others is still hidden."""
    model = encoder_decoder()
    src = padded([random_ids(2, seed=1), random_ids(9, seed=2)])
    other = src.clone()
    other[0, 2:] = 11
    with torch.no_grad():
        logits = []
        for ids in (src, other):
            cache = model.new_cache(ids, 4, src_mask=src != 0)
            model.decode_step(random_ids(2, 2), cache)
            cache.select(torch.tensor([0]))
            logits.append(model.decode_step(random_ids(1, 2, seed=5), cache))
    assert torch.equal(*logits)


def test_a_full_cache_names_both_numbers() -> None:
    model = decoder_only()
    cache = model.new_cache(1, 5)
    model.decode_step(random_ids(1, 5), cache)
    with pytest.raises(LengthError, match="holds 5 positions and 6 were asked for"):
        model.decode_step(random_ids(1, 1), cache)


@pytest.mark.parametrize("n_rows", [1, 2, 4])
def test_a_cache_of_other_rows_is_refused(n_rows: int) -> None:
    """P5: one row would otherwise be spread over all rows of the cache without a word."""
    model = decoder_only()
    with pytest.raises(ValueError, match=f"ids has {n_rows} rows and the cache 3"):
        model.decode_step(random_ids(n_rows, 2), model.new_cache(3, 5))


def test_each_new_cache_starts_at_position_zero() -> None:
    """P5: nothing of an earlier text is left in the model."""
    model = decoder_only(positions="learned")
    ids = random_ids(1, 6)
    with torch.no_grad():
        first = model.decode_step(ids, model.new_cache(1, 6))
        model.decode_step(random_ids(1, 6, seed=4), model.new_cache(1, 6))
        assert torch.equal(model.decode_step(ids, model.new_cache(1, 6)), first)


@variants
def test_cached_keys_are_laid_out_once(changes: dict[str, Any]) -> None:
    """[B, G, S_max, K] of the model's dtype, never moved while the text grows."""
    model: Any = build_tiny(tiny_config("decoder-only", **changes), dtype=torch.float64)
    cache = model.new_cache(2, 7)
    places = [layer._k.data_ptr() for layer in cache.layers]
    with torch.no_grad():
        for _ in range(7):
            model.decode_step(random_ids(2, 1), cache)
    assert [layer._k.data_ptr() for layer in cache.layers] == places
    assert {layer._k.shape for layer in cache.layers} == {(2, model.config.kv_heads, 7, 6)}
    assert {layer._v.dtype for layer in cache.layers} == {torch.float64}
    assert cache.length == 7


def test_the_memory_is_encoded_once_per_source() -> None:
    model = encoder_decoder()
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append("encoder"))
    for block in model.decoder.stack.blocks:
        block.cross_attention.w_k.register_forward_hook(lambda *_: calls.append("keys"))  # type: ignore[union-attr]
    with torch.no_grad():
        cache = model.new_cache(random_ids(2, 5), 8)
        for _ in range(8):
            model.decode_step(random_ids(2, 1), cache)
    assert calls == ["encoder", "keys", "keys"]


def test_a_finished_row_fed_with_pads_uses_no_positions() -> None:
    """Ended texts wait in the batch: their pads are hidden and the others go on as before."""
    model = decoder_only(positions="learned", max_positions=8)
    ids = random_ids(2, 8)
    waiting = ids.clone()
    waiting[1, 3:] = 0
    with torch.no_grad():
        cache = model.new_cache(2, 20)
        logits = torch.cat([model.decode_step(chunk, cache) for chunk in chunks(waiting, 1)], dim=1)
        assert_close(logits[0], model(ids)[0], ATOL, REASON)
        assert_close(logits[1, :3], model(ids)[1, :3], ATOL, REASON)


@variants
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["encoder-decoder", "decoder-only"])
def test_branches_of_a_text_are_as_texts_of_their_own(family: str, side: str, changes: dict[str, Any]) -> None:
    """Beams that fork, end and change places for longer than the cache was made for, texts that leave in between."""
    model: Any = build_tiny(tiny_config(family, **changes))
    ids = padded([random_ids(n, seed=30 + n) for n in (4, 1, 3)], side=side)
    src = padded([random_ids(n, seed=n) for n in (2, 9, 5)])
    chooser = torch.Generator().manual_seed(5)
    width = 3
    with torch.no_grad():
        cache = model.new_cache(src, 8) if family == "encoder-decoder" else model.new_cache(3, 8)
        model.decode_step(ids, cache)
        index = torch.arange(3).repeat_interleave(width)
        sources, lengths = src, []
        for step in range(14):
            cache.select(index)
            ids, sources = ids[index], sources[index]
            token = random_ids(len(ids), 1, seed=step)
            ids = torch.cat([ids, token], dim=1)
            logits = model.decode_step(token, cache)
            assert_close(logits, run(model, sources, ids)[:, -1:], ATOL, f"{REASON}; step {step}")
            lengths.append(cache.length)
            texts = torch.tensor([2, 1]) if step == 5 else torch.arange(len(ids) // width)
            index = (texts[:, None] * width + torch.randint(width, (len(texts), width), generator=chooser)).flatten()
        assert any(after < before for before, after in itertools.pairwise(lengths))  # swept
        left = torch.tensor([0, 2, width + 1])  # uneven: texts of their own from now on
        cache.select(left)
        assert cache.width == 1 and cache.n_rows == 3
        chunk = random_ids(3, 2, seed=99)
        wanted = run(model, sources[left], torch.cat([ids[left], chunk], dim=1))[:, -2:]
        assert_close(model.decode_step(chunk, cache), wanted, ATOL, REASON)


def test_many_branches_are_texts_of_their_own_and_no_rows_are_none() -> None:
    model = decoder_only()
    ids = random_ids(2, 5)
    with torch.no_grad():
        for width, kept in ((MAX_WIDTH, MAX_WIDTH), (MAX_WIDTH + 1, 1)):
            cache = model.new_cache(2, 9)
            model.decode_step(ids, cache)
            index = torch.arange(2).repeat_interleave(width)
            cache.select(index)
            assert (cache.width, cache.n_rows) == (kept, 2 * width)
            token = random_ids(2 * width, 1, seed=width)
            wanted = run(model, ids, torch.cat([ids[index], token], dim=1))[:, -1:]
            assert_close(model.decode_step(token, cache), wanted, ATOL, REASON)
        cache.select(torch.empty(0, dtype=torch.int64))
        assert cache.n_rows == 0
