"""Masks: True = may attend, rows without keys, no look ahead, the right side in cross-attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.model import Attention, attention, attention_maps, fused_attention
from glassformer.model.attention import RecordingKernel
from glassformer.model.masks import attention_mask, causal_mask, padding_mask, positions_of
from helpers import (
    BOS,
    FAMILIES,
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

variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


def small_attention(kernel: str) -> Attention:
    torch.manual_seed(0)
    sizes = {"d_model": 8, "n_heads": 2, "n_kv_heads": 2, "d_head": 4}
    layer = Attention(**sizes, use_bias=True, scale_scores=True, dropout=0.0, is_rotary_interleaved=True)
    if kernel == "reference":
        layer.kernel = RecordingKernel()
    return layer


@pytest.mark.parametrize("n_tokens", [4, 130])  # 130: torch's kernel also under gradients
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kernel", ["reference", "fused"])
def test_a_row_without_keys_gives_zeros_and_leaves_no_trace(
    kernel: str, is_causal: bool, has_bias: bool, n_tokens: int
) -> None:
    """M1: item 1 has every key masked. Its context is zero, and the gradients are those of item 0 alone."""
    layer = small_attention(kernel)
    x = torch.randn(2, n_tokens, 8)
    bias = torch.randn(1, 2, n_tokens, n_tokens) if has_bias else None
    key_mask = torch.tensor([[True], [False]]).expand(2, n_tokens)

    def gradients(rows: slice) -> tuple[Tensor, list[Tensor]]:
        mask = attention_mask(key_mask[rows], n_queries=n_tokens, n_keys=n_tokens, is_causal=is_causal)
        out = layer(x[rows], mask=mask, bias=bias)
        return out, list(torch.autograd.grad(out[0].sum(), list(layer.parameters())))

    both, with_row = gradients(slice(0, 2))
    alone, without_row = gradients(slice(0, 1))
    with torch.no_grad():
        mask = attention_mask(key_mask, n_queries=n_tokens, n_keys=n_tokens, is_causal=is_causal)
        inference = layer(x, mask=mask, bias=bias)
    assert torch.equal(both[1], layer.w_o.bias.expand(n_tokens, 8))  # W_O of zeros
    assert torch.equal(inference[1], both[1])
    assert_close(both[0], alone[0], 1e-6, "float32")
    assert_close(inference[0], alone[0], 1e-6, "float32")
    for name, actual, right in zip(dict(layer.named_parameters()), with_row, without_row, strict=True):
        assert_close(actual, right, 1e-6 * max(1, n_tokens), f"float32 sum over {n_tokens} tokens: {name}")
    if isinstance(layer.kernel, RecordingKernel):
        assert not layer.kernel.weights[0][1].any()
        assert_close(layer.kernel.weights[0][0].sum(-1), torch.ones(2, n_tokens), 1e-6, "rows are distributions")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_single_rows_without_keys_in_all_widths_of_numbers(dtype: torch.dtype) -> None:
    """One query without keys beside others with keys, as pads on the left under a causal mask have it."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 2, 3, 4, dtype=dtype, requires_grad=True) for _ in range(3))
    mask = torch.tensor([[False, False, False], [False, True, False], [False, True, True]])
    for kernel in (fused_attention, RecordingKernel()):
        context = kernel(q, k, v, scale=1.0, mask=mask)
        assert not context[:, :, 0].any()
        assert torch.equal(context[:, :, 1], v[:, :, 1])
        for gradient in torch.autograd.grad(context.float().sum(), (q, k, v)):
            assert bool(gradient.isfinite().all())
            assert not gradient[:, :, 0].any()  # query 0 sees nothing, key 0 is seen by none


@pytest.mark.parametrize("positions", ["sinusoidal", "alibi"])
def test_an_empty_source_in_a_batch_leaves_no_trace_in_the_gradients(positions: str) -> None:
    model = encoder_decoder(positions=positions).train()
    src, tgt = padded([random_ids(5, seed=1), random_ids(0)]), random_ids(2, 4, seed=2)
    parameters = list(model.parameters())
    with_row = torch.autograd.grad(model(src, tgt)[0].logsumexp(-1).sum(), parameters)
    alone = torch.autograd.grad(model(src[:1], tgt[:1])[0].logsumexp(-1).sum(), parameters)
    for actual, right in zip(with_row, alone, strict=True):
        assert_close(actual, right, 1e-5, "float32")


@pytest.mark.parametrize("mask", [torch.ones(2, 5), torch.ones(2, 5, dtype=torch.long), torch.zeros(2, 5)])
def test_a_mask_that_is_not_boolean_is_a_type_error(mask: Tensor) -> None:
    """M2: 0/1 and 0/-inf masks mean opposite things; neither is guessed."""
    ids = random_ids(2, 5)
    translator, decoder, encoder = encoder_decoder(), decoder_only(), encoder_only()
    memory = translator.encode(ids)
    q = torch.randn(2, 3, 5, 4)
    for is_training in (True, False):
        with torch.set_grad_enabled(is_training):
            for call in (
                lambda: encoder(ids, mask=mask),
                lambda: decoder(ids, mask=mask),
                lambda: translator(ids, ids, src_mask=mask),
                lambda: translator(ids, ids, tgt_mask=mask),
                lambda: translator.new_cache(ids, 5, src_mask=mask),
                lambda: translator.decoder(ids, memory=memory, memory_mask=mask),
                lambda: decoder.decode_step(ids, decoder.new_cache(2, 5), mask=mask),
                lambda: fused_attention(q, q, q, scale=1.0, mask=mask[:, None, None]),
                lambda: attention(q, q, q, scale=1.0, mask=mask[:, None, None]),
            ):
                with pytest.raises(TypeError, match=r"dtype torch\.(float32|int64).*True"):
                    call()


@variants
def test_polarity(changes: dict[str, Any]) -> None:
    """M2: all four hold only when True means take part."""
    decoder, encoder = (
        build_tiny(tiny_config("decoder-only", **changes)),
        build_tiny(tiny_config("encoder-only", **changes)),
    )
    with torch.no_grad():
        out = decoder(torch.tensor([[5, 6, 7, 8]]))
        later, earlier = decoder(torch.tensor([[5, 6, 7, 9]])), decoder(torch.tensor([[10, 6, 7, 8]]))
        assert torch.equal(later[:, :3], out[:, :3])
        assert (earlier - out)[:, 1:].abs().amax(-1).min() > 1e-4
        ids, mask = torch.tensor([[5, 6, 7, 0, 0]]), torch.tensor([[True, True, True, False, False]])
        out = encoder(ids, mask=mask)
        assert torch.equal(encoder(torch.tensor([[5, 6, 7, 9, 0]]), mask=mask)[:, :3], out[:, :3])
        assert (encoder(torch.tensor([[10, 6, 7, 0, 0]]), mask=mask) - out)[:, 1:3].abs().amax(-1).min() > 1e-4


@pytest.mark.parametrize("family", ["encoder-decoder", "decoder-only"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_later_token_never_changes_an_earlier_output(family: str, data: st.DataObject) -> None:
    variant = data.draw(st.sampled_from(sorted(VARIANTS)))
    model = build_tiny(tiny_config(family, **VARIANTS[variant]))
    ids = torch.tensor(
        data.draw(st.lists(st.lists(st.integers(4, 22), min_size=7, max_size=7), min_size=1, max_size=3))
    )
    place = data.draw(st.integers(1, 6))
    changed = ids.clone()
    changed[:, place:] = torch.tensor(data.draw(st.lists(st.integers(4, 22), min_size=7 - place, max_size=7 - place)))
    src = random_ids(len(ids), 5)
    with torch.no_grad():
        assert torch.equal(run(model, src, changed)[:, :place], run(model, src, ids)[:, :place])
    assert torch.equal(run(model, src, changed)[:, :place], run(model, src, ids)[:, :place])


def test_every_source_token_reaches_every_target_position() -> None:
    """The encoder looks both ways, and cross-attention has no causal mask."""
    model = encoder_decoder()
    src, tgt = random_ids(1, 5), random_ids(1, 3)
    with torch.no_grad():
        out = model(src, tgt)
        for place in range(5):
            changed = src.clone()
            changed[0, place] = 4 if src[0, place] != 4 else 5
            assert (model(changed, tgt) - out).abs().amax(-1).min() > 1e-4


def test_cross_attention_hides_the_pads_of_the_source() -> None:
    """M10: sources of 5 and 3 tokens, targets of 2 and 4: no two sizes are equal."""
    model = encoder_decoder()
    src, tgt = padded([random_ids(5, seed=1), random_ids(3, seed=2)]), padded([random_ids(2), random_ids(4)])
    src_mask, tgt_mask = src != PAD, tgt != PAD
    for weights in attention_maps(model, src, tgt)["cross"]:
        assert weights.shape == (2, 4, 4, 5)
        assert not weights[1, :, :, 3:].any()
        assert_close(weights.sum(-1), torch.ones(2, 4, 4), 1e-6, "rows are distributions")
    with torch.no_grad():
        out = model(src, tgt)
        other_src, other_tgt = src.where(src_mask, torch.tensor(9)), tgt.where(tgt_mask, torch.tensor(9))
        assert torch.equal(model(other_src, tgt, src_mask=src_mask), out)
        changed = model(src, other_tgt, tgt_mask=tgt_mask)
    assert torch.equal(changed[tgt_mask], out[tgt_mask])


def test_cross_attention_without_a_memory_is_refused() -> None:
    """It would read the target instead, later tokens included."""
    model = encoder_decoder()
    with pytest.raises(ValueError, match="no memory"):
        model.decoder(random_ids(1, 3))
    with pytest.raises(ValueError, match="no memory"):
        model.decode_step(random_ids(1, 3), model.decoder.new_cache(1, 3))


@pytest.mark.parametrize("positions", ["sinusoidal", "t5_relative"])
def test_a_start_token_that_is_the_pad_id_is_not_hidden(positions: str) -> None:
    """T5 starts a target with its padding token: with and without pads on the right, it counts as a token."""
    model = encoder_decoder(positions=positions, pad_id=PAD, bos_id=PAD)
    src, tgt = random_ids(2, 4), padded([torch.tensor([PAD, 7, 8]), torch.tensor([PAD, 7, 8, 9, 10])])
    everything = torch.ones_like(tgt, dtype=torch.bool)
    with torch.no_grad():
        right = model(src, tgt, tgt_mask=everything)
        assert torch.equal(model(src, tgt), right)
        assert_close(model(src[:1], tgt[:1, :3])[0], right[0, :3], 1e-5, "float32")
        cache = model.new_cache(src, 5)
        cached = torch.cat([model.decode_step(chunk, cache) for chunk in chunks(tgt, 1)], dim=1)
        assert_close(cached, right, 1e-5, "float32")
        assert torch.equal(
            model(src, torch.full((2, 3), PAD)), model(src, torch.full((2, 3), PAD), tgt_mask=everything[:, :3])
        )


def test_pads_on_the_left_need_a_mask_when_the_pad_id_also_starts_texts() -> None:
    """GPT-2 has one special id. Two of them in front may be pads or not: the call asks, it does not guess."""
    model = decoder_only(pad_id=PAD, bos_id=PAD, eos_id=PAD)
    text = torch.tensor([PAD, 7, 8])
    batch = padded([text, random_ids(6)], side="left")
    mask = padded([torch.ones(3, dtype=torch.long), torch.ones(6, dtype=torch.long)], side="left").bool()
    with pytest.raises(ValueError, match="pad_id = bos_id = 0"):
        model(batch)
    with torch.no_grad():
        assert_close(model(batch, mask=mask)[0, -3:], model(text[None])[0], 1e-5, "float32")


def test_a_model_without_pad_id_takes_masks_only() -> None:
    model = decoder_only(pad_id=None)
    ids = torch.tensor([[PAD, 7, 8]])
    with torch.no_grad():
        assert torch.equal(model(ids), model(ids, mask=torch.ones_like(ids, dtype=torch.bool)))
        assert not torch.equal(model(ids), model(ids, mask=ids != PAD))


def test_mask_functions_by_hand() -> None:
    yes, no = True, False
    assert causal_mask(2, 4).tolist() == [[yes, yes, yes, no], [yes, yes, yes, yes]]
    assert padding_mask(torch.tensor([[5, 0]]), 0).tolist() == [[yes, no]]  # type: ignore[union-attr]
    assert padding_mask(torch.tensor([[5, 6]]), 0) is None
    assert padding_mask(torch.tensor([[5, 0]]), None) is None
    assert attention_mask(None, n_queries=1, n_keys=4, is_causal=True) is None
    keys = torch.tensor([[no, yes, yes]])
    both = attention_mask(keys, n_queries=2, n_keys=3, is_causal=True)
    assert both is not None and both.tolist() == [[[[no, yes, no], [no, yes, yes]]]]


def test_positions_count_real_tokens_only() -> None:
    mask = torch.tensor([[False, False, True, True], [True, True, False, True]])
    assert positions_of(mask, n_tokens=4).tolist() == [[0, 0, 0, 1], [0, 1, 1, 2]]
    right = torch.tensor([[True, True, False, False], [True, True, True, True]])
    assert positions_of(right, n_tokens=4).tolist() == [[0, 1, 2, 3]]
    assert positions_of(None, n_tokens=3).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mask_overrules_the_pad_id(family: str) -> None:
    """The id of BOS under a mask is hidden like a pad, and PAD inside a mask is a token."""
    model = build_tiny(tiny_config(family, tying="none"))
    mask = torch.tensor([[False, True, True]])
    with torch.no_grad():
        outs = [
            model(ids, ids, src_mask=mask, tgt_mask=mask) if family == "encoder-decoder" else model(ids, mask=mask)
            for ids in (torch.tensor([[BOS, PAD, 9]]), torch.tensor([[11, PAD, 9]]), torch.tensor([[11, 7, 9]]))
        ]
    assert torch.equal(outs[0][:, 1:], outs[1][:, 1:])
    assert not torch.equal(outs[1][:, 1:], outs[2][:, 1:])
