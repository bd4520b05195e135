"""One definition, many ways to run it: kernels, cache, padding and batches give the same numbers and tokens."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.model import DecoderOnly, EncoderDecoder, KVCache, Model, fused_attention
from glassformer.model.attention import RecordingKernel, attention
from glassformer.model.twin import twin
from helpers import (
    FAMILIES,
    N_SPECIAL,
    PAD,
    VARIANTS,
    assert_close,
    build_tiny,
    chunks,
    decoder_only,
    encoder_decoder,
    encoder_only,
    padded,
    random_ids,
    run,
    tiny_config,
)

ATOL, REASON = 1e-5, "float32, the same sums in another order"
variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
families = pytest.mark.parametrize("family", FAMILIES)


def ragged_batch(side: str = "right") -> tuple[Tensor, Tensor]:
    """Sources of 11, 6 and 1 tokens, targets of 3, 9 and 7."""
    src = padded([random_ids(n, seed=n) for n in (11, 6, 1)], side=side)
    return src, padded([random_ids(n, seed=20 + n) for n in (3, 9, 7)], side=side)


def gradients(model: Model, src: Tensor, tgt: Tensor) -> tuple[Tensor, list[Tensor]]:
    parameters = [parameter for name, parameter in model.named_parameters() if "mlm_head" not in name]
    logits = run(model, src, tgt)
    loss = logits.logsumexp(-1)[:, ::2].sum() / logits.numel()
    return logits, list(torch.autograd.grad(loss, parameters))


@variants
@families
@pytest.mark.parametrize("side", ["left", "right"])
def test_reference_equals_fused(family: str, side: str, changes: dict[str, Any]) -> None:
    model = build_tiny(tiny_config(family, **changes))
    batch = ragged_batch(side)
    with torch.no_grad():
        fused = run(model, *batch)
        reference = run(twin(model, RecordingKernel()), *batch)
    assert_close(fused, reference, ATOL, REASON)
    assert torch.equal(fused[..., N_SPECIAL:].argmax(-1), reference[..., N_SPECIAL:].argmax(-1))
    with_gradients = run(model, *batch)
    assert_close(with_gradients, reference, ATOL, REASON)


@variants
@families
def test_reference_equals_fused_in_long_texts_and_their_gradients(family: str, changes: dict[str, Any]) -> None:
    """Texts of more than 128 tokens take torch's kernel under gradients as well."""
    longer = changes | ({"max_positions": 140} if changes.get("positions") == "learned" else {})
    model = build_tiny(tiny_config(family, **longer, n_encoder_layers=1, n_decoder_layers=1)).train()
    src = padded([random_ids(131, seed=1), random_ids(60, seed=2)])
    tgt = padded([random_ids(40, seed=3), random_ids(133, seed=4)], side="left")
    fused, fused_gradients = gradients(model, src, tgt)
    reference, expected = gradients(twin(model, RecordingKernel()), src, tgt)
    assert_close(fused, reference, ATOL, REASON)
    for actual, right in zip(fused_gradients, expected, strict=True):
        assert_close(actual, right, ATOL, REASON)


def test_which_kernel_runs_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain products for short texts, in training and without gradients, and for single queries of many heads; torch's
    for those of few, and for long texts."""
    calls: list[int] = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def counted(*args: Any, **options: Any) -> Tensor:
        calls.append(args[0].shape[2])
        return fused(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    for n_tokens in (128, 129):
        q = torch.randn(1, 2, n_tokens, 4, requires_grad=True)
        fused_attention(q, q, q, scale=1.0)
    with torch.no_grad():
        for n_queries in (1, 2, 31, 32):  # 31 * 129 < 64 * 64 < 32 * 129
            fused_attention(q[:, :, :n_queries], q, q, scale=1.0)
        for n_rows in (63, 64):  # of 2 heads
            keys = q.expand(n_rows, -1, -1, -1)
            fused_attention(keys[:, :, :1], keys, keys, scale=1.0)
    assert calls == [129, 1, 32, 1]


@pytest.mark.parametrize(("n_rows", "n_queries"), [(2, 2), (2, 5), (2, 1), (64, 1)])
def test_short_texts_without_gradients_are_the_reference(n_rows: int, n_queries: int) -> None:
    """With a mask that leaves one row nothing, with a bias, with both; memory of another layout."""
    generators = (torch.Generator().manual_seed(i) for i in range(3))
    q, k, v = (torch.randn(n_rows, 7, 3, 4, generator=generator).transpose(1, 2) for generator in generators)
    q, bias = q[:, :, :n_queries], torch.randn(1, 3, n_queries, 7)
    mask = torch.rand(n_rows, 1, n_queries, 7) < 0.5
    mask[1, :, 0] = False
    for options in ({}, {"mask": mask}, {"bias": bias}, {"mask": mask, "bias": bias}):
        expected, _ = attention(q, k, v, scale=0.5, **options)
        with torch.no_grad():
            assert_close(fused_attention(q, k, v, scale=0.5, **options), expected, 1e-6, "rounding of float32")
        if "mask" in options:
            assert not expected[1, :, 0].any()


def new_cache(model: EncoderDecoder | DecoderOnly, src: Tensor, n_rows: int, max_length: int) -> KVCache:
    if isinstance(model, EncoderDecoder):
        return model.new_cache(src, max_length)
    return model.new_cache(n_rows, max_length)


def in_chunks(model: EncoderDecoder | DecoderOnly, src: Tensor, tgt: Tensor, sizes: list[int]) -> Tensor:
    """Logits of all positions, computed chunk by chunk through a cache."""
    assert sum(sizes) == tgt.shape[1]
    cache = new_cache(model, src, len(tgt), tgt.shape[1])
    return torch.cat([model.decode_step(chunk, cache) for chunk in chunks(tgt, *sizes)], dim=1)


def assert_cached_equals_full(model: EncoderDecoder | DecoderOnly, src: Tensor, tgt: Tensor, sizes: list[int]) -> None:
    """At real tokens: what stands at a pad is nobody's business."""
    is_real = tgt != PAD
    with torch.no_grad():
        cached, full = in_chunks(model, src, tgt, sizes)[is_real], run(model, src, tgt)[is_real]
    assert_close(cached, full, ATOL, f"{REASON}; chunks {sizes}")
    assert torch.equal(cached.argmax(-1), full.argmax(-1))


@variants
@pytest.mark.parametrize("family", ["encoder-decoder", "decoder-only"])
def test_cached_equals_uncached_at_every_split(family: str, changes: dict[str, Any]) -> None:
    """P5: prefix k through the cache, then one by one; and the rest at once."""
    model: Any = build_tiny(tiny_config(family, **changes))
    src, _ = ragged_batch()
    tgt = random_ids(3, 12, seed=8)
    for k in range(1, 12) if family == "decoder-only" else (1, 2, 7, 11):
        assert_cached_equals_full(model, src, tgt, [k] + [1] * (12 - k))
        assert_cached_equals_full(model, src, tgt, [k, 12 - k])


@variants
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["encoder-decoder", "decoder-only"])
def test_cached_equals_uncached_with_pads_and_random_chunks(family: str, side: str, changes: dict[str, Any]) -> None:
    model: Any = build_tiny(tiny_config(family, **changes))
    src, tgt = ragged_batch(side)
    chooser = random.Random(7)
    for _ in range(6):
        cuts = sorted(chooser.sample(range(1, tgt.shape[1]), chooser.randint(0, 5)))
        sizes = [end - start for start, end in zip([0, *cuts], [*cuts, tgt.shape[1]], strict=True)]
        assert_cached_equals_full(model, src, tgt, sizes)


def test_cache_works_under_gradients_too() -> None:
    model = decoder_only()
    tgt = random_ids(2, 6)
    assert_close(in_chunks(model, tgt, tgt, [2, 1, 3]), model(tgt), ATOL, REASON)


@variants
@families
def test_padding_never_changes_a_real_position(family: str, changes: dict[str, Any]) -> None:
    """M7 and M4: alone, beside a longer text, and padded to 8, 16 and 64, on either side."""
    model = build_tiny(tiny_config(family, **changes))
    src, tgt = random_ids(3, seed=1), random_ids(5, seed=2)
    longer = [random_ids(12, seed=3), random_ids(13, seed=4)]
    with torch.no_grad():
        alone = run(model, src[None], tgt[None])[0]
        batches = [(padded([src, longer[0]], side=side), padded([tgt, longer[1]], side=side), side) for side in SIDES]
        for length in (8, 16, 64):
            batches += [(padded([src], side=s, length=length), padded([tgt], side=s, length=length), s) for s in SIDES]
        for src_batch, tgt_batch, side in batches:
            out = run(model, src_batch, tgt_batch)[0]
            n_real = len(alone)
            real = out[:n_real] if side == "right" else out[-n_real:]
            assert_close(real, alone, ATOL, f"{REASON}; {side} pads, {len(out)} wide")
            assert torch.equal(real.argmax(-1), alone.argmax(-1))


SIDES = ("left", "right")


@variants
@families
def test_batch_equals_single(family: str, changes: dict[str, Any]) -> None:
    model = build_tiny(tiny_config(family, **changes))
    sources, targets = ([random_ids(n, seed=s + n) for n in (4, 9, 1, 12)] for s in (0, 50))
    with torch.no_grad():
        batch = run(model, padded(sources), padded(targets))
        for i, (src, tgt) in enumerate(zip(sources, targets, strict=True)):
            alone = run(model, src[None], tgt[None])[0]
            assert_close(batch[i, : len(alone)], alone, ATOL, REASON)
            assert torch.equal(batch[i, : len(alone)].argmax(-1), alone.argmax(-1))


@families
def test_train_mode_without_dropout_equals_eval_mode(family: str) -> None:
    """M4: lengths (4, 3) in a width of 6, so that two columns are pads for all; and pads on the left."""
    model = build_tiny(tiny_config(family))
    for lengths, side in (((4, 3), "right"), ((6, 1), "right"), ((4, 3), "left")):
        ids = padded([random_ids(n, seed=n) for n in lengths], side=side, length=6)
        with torch.no_grad():
            evaluated = run(model.eval(), ids, ids)
        trained = run(model.train(), ids, ids)
        assert evaluated.shape[:2] == (2, 6)
        assert_close(evaluated, trained, ATOL, REASON)


def greedy(model: EncoderDecoder | DecoderOnly, prompt: Tensor, n_new: int, *, src: Tensor, is_cached: bool) -> Tensor:
    """The next n_new ordinary ids of each row."""
    ids = prompt
    cache = new_cache(model, src, len(ids), ids.shape[1] + n_new) if is_cached else None
    chunk = ids
    with torch.no_grad():
        for _ in range(n_new):
            logits = run(model, src, ids) if cache is None else model.decode_step(chunk, cache)
            chunk = logits[:, -1:, N_SPECIAL:].argmax(-1) + N_SPECIAL
            ids = torch.cat([ids, chunk], dim=1)
    return ids[:, -n_new:]


@variants
@pytest.mark.parametrize("family", ["encoder-decoder", "decoder-only"])
def test_greedy_of_a_left_padded_batch_equals_one_by_one(family: str, changes: dict[str, Any]) -> None:
    """M8, M5: prompts of 1, 4 and 9 ids, twelve more; with and without cache, in any order."""
    model: Any = build_tiny(tiny_config(family, **changes))
    prompts = [random_ids(n, seed=n) for n in (1, 4, 9)]
    sources = [random_ids(n, seed=30 + n) for n in (7, 2, 5)]
    alone = [
        greedy(model, prompt[None], 12, src=src[None], is_cached=False)[0]
        for prompt, src in zip(prompts, sources, strict=True)
    ]
    assert len({tuple(row.tolist()) for row in alone}) > 1
    for order in ((0, 1, 2), (2, 0, 1)):
        batch = padded([prompts[i] for i in order], side="left")
        src = padded([sources[i] for i in order])
        for is_cached in (False, True) if order == (0, 1, 2) else (True,):
            together = greedy(model, batch, 12, src=src, is_cached=is_cached)
            assert torch.equal(together, torch.stack([alone[i] for i in order]))


def test_a_causal_triangle_aligned_to_the_first_key_is_found() -> None:
    """M5, the control: one new query that sees key 0 only gives other logits than the full pass."""
    model = decoder_only()

    def top_left(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None = None, **_: object) -> Tensor:
        triangle = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        return attention(q, k, v, scale=scale, mask=triangle)[0]

    wrong = twin(model, top_left)
    ids = random_ids(1, 16)
    with torch.no_grad():
        full = model(ids)
        assert_close(wrong(ids), full, ATOL, REASON)  # a square triangle is right either way
        assert (in_chunks(wrong, ids, ids, [6] + [1] * 10) - full)[:, 6:].abs().max() > 1e-2
        assert_close(in_chunks(model, ids, ids, [6] + [1] * 10), full, ATOL, REASON)


def test_scores_of_a_padded_batch_equal_those_of_the_texts_alone() -> None:
    """M9: log-probabilities from the plain forward call, pads on either side."""
    model = decoder_only(positions="learned")
    texts = [random_ids(2, seed=1), random_ids(5, seed=2)]

    def score(ids: Tensor) -> Tensor:
        log_probs = run(model, ids, ids).log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
        return log_probs.where((ids[:, 1:] != PAD) & (ids[:, :-1] != PAD), 0).sum(1)

    with torch.no_grad():
        alone = torch.cat([score(text[None]) for text in texts])
        for side in SIDES:
            assert_close(score(padded(texts, side=side)), alone, ATOL, REASON)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", "t5_relative"])
def test_bfloat16_stays_within_its_rounding(positions: str) -> None:
    """N12: other shapes take other kernels and sum in another order, which 16 bits show. Never asked for bit by bit."""
    model = encoder_decoder(positions=positions).to(torch.bfloat16)
    sources, targets = ([random_ids(5 + i % 7, seed=s + i) for i in range(20)] for s in (0, 50))

    def logits(size: int) -> list[Tensor]:
        rows = []
        for start in range(0, 20, size):
            src, tgt = padded(sources[start : start + size]), padded(targets[start : start + size])
            out = model(src, tgt)
            rows += [row[: len(tgt_row)] for row, tgt_row in zip(out, targets[start : start + size], strict=True)]
        return rows

    with torch.no_grad():
        single, wide, reference = (
            logits(1),
            logits(20),
            twin(model, RecordingKernel())(padded(sources), padded(targets)),
        )
        for i, row in enumerate(single):
            size = float(row.abs().max())
            assert row.dtype == torch.bfloat16
            assert_close(wide[i], row, 5e-2 * size, "bfloat16 rounds at 2^-8")
            assert_close(reference[i, : len(row)], row, 5e-2 * size, "bfloat16 rounds at 2^-8")


@pytest.mark.parametrize("positions", ["learned", "rotary", "t5_relative"])
def test_autocast_with_a_cache_stays_near_float32(positions: str) -> None:
    model = encoder_decoder(positions=positions)
    src, tgt = ragged_batch()
    tgt = tgt.clamp(min=N_SPECIAL)
    with torch.no_grad():
        full = run(model, src, tgt)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cached = in_chunks(model, src, tgt, [4, 1, 4])
    assert_close(cached, full, 6e-2 * float(full.abs().max()), "bfloat16 rounds at 2^-8")


@families
def test_empty_texts_have_empty_outputs(family: str) -> None:
    """No token at all on one side, or on both: no crash, and the other side still has an answer."""
    model = build_tiny(tiny_config(family))
    empty, some = random_ids(2, 0), random_ids(2, 3)
    for is_training in (True, False):
        with torch.set_grad_enabled(is_training):
            for src, tgt in ((empty, some), (some, empty), (empty, empty)):
                out = run(model, src, tgt)
                assert out.shape[:2] == (src if family == "encoder-only" else tgt).shape
                assert bool(out.isfinite().all())


def test_an_empty_source_equals_a_source_of_pads() -> None:
    model = encoder_decoder(positions="rotary")
    tgt = random_ids(2, 4)
    with torch.no_grad():
        assert_close(model(random_ids(2, 0), tgt), model(torch.full((2, 5), PAD), tgt), ATOL, REASON)


def test_pooled_result_does_not_depend_on_padding() -> None:
    model = encoder_only(use_pooler=True)
    assert model.pooler is not None
    text = random_ids(3, seed=1)
    with torch.no_grad():
        alone = model.pooler(model(text[None]))
        assert_close(model.pooler(model(padded([text], length=9))), alone, ATOL, REASON)
