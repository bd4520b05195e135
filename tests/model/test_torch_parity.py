"""The same numbers as torch.nn with the same weights, in float64. Its masks say True where a key is left OUT."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model import Attention, Stack
from glassformer.model.attention import Kernel, RecordingKernel, fused_attention
from glassformer.model.masks import attention_mask, causal_mask
from glassformer.model.stack import build_attention, build_block
from helpers import assert_close

D, HEADS, D_FF, B, S, T = 12, 3, 29, 3, 7, 5
ATOL, REASON = 1e-10, "the same sums in float64, in another order"
SRC_MASK = torch.arange(S)[None, :] < torch.tensor([7, 4, 1])[:, None]  # right pads
TGT_MASK = torch.arange(T)[None, :] < torch.tensor([3, 5, 4])[:, None]
KERNELS: dict[str, Any] = {"reference": RecordingKernel(), "fused": fused_attention}


def config(**changes: Any) -> ModelConfig:
    sizes = {"d_model": D, "n_heads": HEADS, "d_ff": D_FF, "vocab_size": 11, "dropout": 0.0, "norm_eps": 1e-4}
    return ModelConfig(**(sizes | {"use_attention_bias": True, "n_encoder_layers": 2, "n_decoder_layers": 2} | changes))


def randomise(module: nn.Module) -> nn.Module:
    """Random numbers everywhere, in norms and biases too, where torch starts with ones and zeros."""
    generator = torch.Generator().manual_seed(3)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4
    return module.double()


def copy_attention(ours: Attention, theirs: Any, kernel: Kernel) -> None:
    ours.kernel = kernel
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    for linear, weight, bias in zip((ours.w_q, ours.w_k, ours.w_v), weights, biases, strict=True):
        linear.weight.data, linear.bias.data = weight.detach().clone(), bias.detach().clone()
    copy(ours.w_o, theirs.out_proj)


def copy(ours: Any, theirs: Any) -> None:
    """Linear or norm."""
    values = [parameter.detach().clone() for parameter in (theirs.weight, theirs.bias)]
    names = ("weight", "bias") if isinstance(ours, nn.Linear) else ("gamma", "beta")
    for name, value in zip(names, values, strict=True):
        getattr(ours, name).data = value


def copy_block(ours: Any, theirs: Any, kernel: Kernel) -> None:
    copy_attention(ours.self_attention, theirs.self_attn, kernel)
    copy(ours.self_residual.norm, theirs.norm1)
    if ours.cross_attention is not None:
        copy_attention(ours.cross_attention, theirs.multihead_attn, kernel)
        copy(ours.cross_residual.norm, theirs.norm2)
    copy(ours.ffn_residual.norm, theirs.norm2 if ours.cross_attention is None else theirs.norm3)
    copy(ours.feed_forward.w_1, theirs.linear1)
    copy(ours.feed_forward.w_2, theirs.linear2)


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    src = torch.randn(B, S, D, generator=generator, dtype=torch.float64)
    return src, torch.randn(B, T, D, generator=generator, dtype=torch.float64)


def layer_options(placement: str, activation: str) -> dict[str, Any]:
    options = {"dim_feedforward": D_FF, "dropout": 0.0, "batch_first": True, "layer_norm_eps": 1e-4}
    return options | {"norm_first": placement == "pre", "activation": activation}


@pytest.mark.parametrize("is_training", [True, False])  # with gradients: plain products; without: torch's kernel
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", ["plain", "padding", "causal", "cross"])
def test_multihead_attention(case: str, kernel: str, is_training: bool) -> None:
    theirs = randomise(nn.MultiheadAttention(D, HEADS, batch_first=True)).train(is_training)
    ours = build_attention(config()).double()
    copy_attention(ours, theirs, KERNELS[kernel])
    src, tgt = inputs()
    with torch.set_grad_enabled(is_training):
        if case == "cross":
            expected, maps = theirs(tgt, src, src, key_padding_mask=~SRC_MASK, average_attn_weights=False)
            actual = ours(tgt, src, mask=SRC_MASK[:, None, None, :])
        else:
            is_causal, key_mask = case == "causal", SRC_MASK if case == "padding" else None
            hidden = ~causal_mask(S, S) if is_causal else None
            pads = None if key_mask is None else ~key_mask
            expected, maps = theirs(src, src, src, attn_mask=hidden, key_padding_mask=pads, average_attn_weights=False)
            actual = ours(src, mask=attention_mask(key_mask, n_queries=S, n_keys=S, is_causal=is_causal))
    assert_close(actual, expected, ATOL, REASON)
    if kernel == "reference":
        assert_close(KERNELS["reference"].weights[-1], maps, ATOL, REASON)


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_encoder_layer(placement: str, activation: str, kernel: str, is_training: bool) -> None:
    theirs = randomise(nn.TransformerEncoderLayer(D, HEADS, **layer_options(placement, activation))).train()
    ours = build_block(config(norm_placement=placement, activation=activation), has_cross_attention=False).double()
    copy_block(ours, theirs, KERNELS[kernel])
    src, _ = inputs()
    expected = theirs(src, src_key_padding_mask=~SRC_MASK)
    with torch.set_grad_enabled(is_training):
        actual = ours(src, mask=SRC_MASK[:, None, None, :])
    assert_close(actual, expected, ATOL, REASON)


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_decoder_layer(placement: str, activation: str, kernel: str, is_training: bool) -> None:
    theirs = randomise(nn.TransformerDecoderLayer(D, HEADS, **layer_options(placement, activation))).train()
    ours = build_block(config(norm_placement=placement, activation=activation), has_cross_attention=True).double()
    copy_block(ours, theirs, KERNELS[kernel])
    src, tgt = inputs()
    hidden = ~causal_mask(T, T)
    expected = theirs(tgt, src, tgt_mask=hidden, memory_key_padding_mask=~SRC_MASK)
    with torch.set_grad_enabled(is_training):
        mask = attention_mask(None, n_queries=T, n_keys=T, is_causal=True)
        actual = ours(tgt, mask=mask, memory=src, memory_mask=SRC_MASK[:, None, None, :])
    assert_close(actual, expected, ATOL, REASON)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_both_stacks_against_torch_transformer_with_gradients(placement: str, kernel: str) -> None:
    options = layer_options(placement, "relu")
    layer = nn.TransformerEncoderLayer(D, HEADS, **options)
    encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(D, eps=1e-4), enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, HEADS, **options), 2, nn.LayerNorm(D, eps=1e-4))
    randomise(nn.ModuleList([encoder, decoder]))
    settings = config(norm_placement=placement)
    stacks = [
        Stack(settings, n_layers=2, is_causal=is_decoder, has_cross_attention=is_decoder).double()
        for is_decoder in (False, True)
    ]
    others: list[Any] = [encoder, decoder]
    for ours, other in zip(stacks, others, strict=True):
        copy(ours.norm, other.norm)
        for block, other_layer in zip(ours.blocks, other.layers, strict=True):
            copy_block(block, other_layer, KERNELS[kernel])
    src, tgt = (x.requires_grad_() for x in inputs())
    memory = encoder(src, src_key_padding_mask=~SRC_MASK)
    expected = decoder(
        tgt, memory, tgt_mask=~causal_mask(T, T), tgt_key_padding_mask=~TGT_MASK, memory_key_padding_mask=~SRC_MASK
    )
    expected_grads = torch.autograd.grad(expected.square().sum(), (src, tgt))
    places = torch.arange(S)[None, :]
    ours_memory = stacks[0](src, places, key_mask=SRC_MASK)
    actual = stacks[1](tgt, places[:, :T], key_mask=TGT_MASK, memory=ours_memory, memory_mask=SRC_MASK)
    assert_close(actual, expected, ATOL, REASON)
    for ours_grad, grad in zip(torch.autograd.grad(actual.square().sum(), (src, tgt)), expected_grads, strict=True):
        assert_close(ours_grad, grad, 1e-9, "gradients of a sum of squares, some hundred in size")
