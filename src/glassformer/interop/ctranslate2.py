"""A model as a CTranslate2 folder: all three families, float32 or int8."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from glassformer.config import ModelConfig
from glassformer.interop.refusal import require_extra
from glassformer.model import Attention, Block, DecoderOnly, EncoderDecoder, EncoderOnly, FeedForward, Stack
from glassformer.model.embedding import InputEmbedding
from glassformer.model.norm import LayerNorm, RMSNorm
from glassformer.model.positions import LearnedPositions, RelativeBias, SinusoidalPositions
from glassformer.tasks.model_folder import ModelFolder
from glassformer.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ctranslate2 import specs

__all__ = ["ctranslate2_refusal", "export_ctranslate2", "position_limit", "vocabulary"]

# Texts longer than this need more rows of the position table than CTranslate2's own default of input tokens.
MIN_TABLE_ROWS = 1024
TABLES = ("sinusoidal", "learned", "none")  # positions that CTranslate2 reads from a table; none: one of zeros


def ctranslate2_refusal(config: ModelConfig) -> str | None:
    """What of a model CTranslate2 cannot express, or None when it can run it."""
    if config.window is not None:
        return f"window={config.window}: its sliding window is a bound of its cache, with other edges"
    if config.positions == "alibi" and config.family != "decoder-only":
        return "positions=alibi: its encoder has no ALiBi"
    if config.n_segments and config.family != "encoder-only" and config.positions not in TABLES:
        return f"n_segments={config.n_segments} with positions={config.positions}: it adds segments to no such input"
    return None


def position_limit(folder: ModelFolder) -> int | None:
    """Most positions of a text in the export: rows of its position table; None where positions need no table."""
    config, generation = folder.config, folder.config.generation
    if config.model.positions not in TABLES:
        return None
    if config.model.max_positions is not None:
        return config.model.max_positions
    longest = generation.max_new_tokens or math.ceil(generation.max_length_a * config.data.max_tokens)
    return max(MIN_TABLE_ROWS, config.data.max_tokens + 1, longest + generation.max_length_b + 1)


def export_ctranslate2(folder: ModelFolder, out: Path, *, quantize: str | None = None) -> None:
    """Writes model.bin, config.json and the vocabularies of a model into the folder `out`, which exists.

    The arrays given to CTranslate2 are copies: its optimisation scales them in place.

    Args:
        folder: The model, its tokenizers and its config.
        out: Where to write; the tokenizers are written by the caller.
        quantize: None for float32, or `int8`: symmetric, one scale a row, embeddings too.
    """
    require_extra("ctranslate2")
    config = folder.config.model
    spec = _spec(folder)
    spec.config.layer_norm_epsilon = config.norm_eps
    tgt = vocabulary(folder.tokenizer, config.vocab_size)
    if isinstance(folder.model, EncoderDecoder):
        spec.register_source_vocabulary(vocabulary(folder.src_tokenizer, config.source_vocab_size))
        spec.register_target_vocabulary(tgt)
        spec.config.decoder_start_token = tgt[config.bos_id]
        spec.config.add_source_bos = spec.config.add_source_eos = False
    else:
        spec.register_vocabulary(tgt)
    spec.config.bos_token, spec.config.eos_token = tgt[config.bos_id], tgt[config.eos_id]
    spec.config.unk_token = tgt[config.unk_id]
    spec.validate()
    spec.optimize(quantization=quantize)
    spec.save(str(out))


def vocabulary(tokenizer: Tokenizer, n_rows: int) -> list[str]:
    """The token of each row of a table, in the order of the ids; rows beyond the tokenizer's get names of their own."""
    return [*tokenizer.names, *(f"<unused {i}>" for i in range(tokenizer.vocab_size, n_rows))]


def _spec(folder: ModelFolder) -> Any:
    from ctranslate2 import specs

    model, config, n_rows = folder.model, folder.config.model, position_limit(folder)
    if isinstance(model, DecoderOnly):
        return specs.TransformerDecoderModelSpec(_decoder_spec(model, config, n_rows))
    if isinstance(model, EncoderOnly):
        encoder = _encoder_spec(model.encoder.embedding, model.encoder.stack, config, n_rows, has_segments=True)
        spec = specs.TransformerEncoderModelSpec(encoder, pooling_layer=model.pooler is not None)
        if model.pooler is not None:
            _fill_linear(spec.pooler_dense, model.pooler.dense)
        return spec
    encoder = _encoder_spec(model.encoder.embedding, model.encoder.stack, config, n_rows, has_segments=False)
    return specs.TransformerSpec(encoder, _decoder_spec(model, config, n_rows))


def _options(config: ModelConfig) -> dict[str, Any]:
    """What the encoder and the decoder spec have in common."""
    from ctranslate2.specs import common_spec

    kinds = common_spec.Activation
    activations = {"relu": kinds.RELU, "gelu": kinds.GELU, "gelu_tanh": kinds.GELUTanh, "silu": kinds.SWISH}
    is_rotary = config.positions == "rotary"
    return {
        "num_heads": config.n_heads,
        "pre_norm": True,  # so that there may be a final norm; set right in _fill_stack
        "no_final_norm": not config.use_final_norm,
        "activation": activations[config.activation],
        "layernorm_embedding": config.use_embedding_norm,
        "relative_attention_bias": config.positions == "t5_relative",
        "ffn_glu": config.is_gated,
        "rms_norm": config.norm == "rmsnorm",
        "num_heads_kv": None if config.kv_heads == config.n_heads else config.kv_heads,
        "head_dim": None if config.head_width * config.n_heads == config.d_model else config.head_width,
        "rotary_dim": 0 if is_rotary else None,
        "rotary_interleave": config.sinusoid_layout == "interleaved",
        "rotary_base": config.rotary_base,
    }


def _encoder_spec(
    embedding: InputEmbedding, stack: Stack, config: ModelConfig, n_rows: int | None, *, has_segments: bool
) -> specs.TransformerEncoderSpec:
    """The encoder. In an encoder-decoder all source tokens are of segment 0, whose row joins each position's."""
    from ctranslate2.specs import common_spec, transformer_spec

    segments = embedding.segments if has_segments else None
    spec = transformer_spec.TransformerEncoderSpec(
        config.n_encoder_layers,
        num_source_embeddings=1 if segments is None else 2,
        embeddings_merge=common_spec.EmbeddingsMerge.ADD,
        **_options(config),
    )
    spec.embeddings[0].weight = _array(embedding.tokens.weight)
    if segments is not None:  # scaled with the tokens, so divided before
        spec.embeddings[1].weight = _array(segments / embedding.tokens.scale)
    _fill_input(spec, embedding, n_rows, is_segment_0=segments is None)
    _fill_stack(spec, stack, config)
    return spec


def _decoder_spec(
    model: EncoderDecoder | DecoderOnly, config: ModelConfig, n_rows: int | None
) -> specs.TransformerDecoderSpec:
    from ctranslate2.specs import transformer_spec

    decoder = model.decoder
    spec = transformer_spec.TransformerDecoderSpec(
        config.n_decoder_layers,
        with_encoder_attention=isinstance(model, EncoderDecoder),
        alibi=config.positions == "alibi",
        alibi_use_positive_positions=False,
        **_options(config),
    )
    spec.embeddings.weight = _array(decoder.embedding.tokens.weight)
    spec.projection.weight = _array(decoder.projection.weight)
    if decoder.projection.bias is not None:
        spec.projection.bias = _array(decoder.projection.bias)
    if decoder.projection.scale != 1.0:
        spec.scale_outputs = np.float32(decoder.projection.scale)
    _fill_input(spec, decoder.embedding, n_rows, is_segment_0=False)
    _fill_stack(spec, decoder.stack, config)
    return spec


def _fill_input(spec: Any, embedding: InputEmbedding, n_rows: int | None, *, is_segment_0: bool) -> None:
    spec.scale_embeddings = embedding.tokens.scale != 1.0
    if n_rows is not None:  # left unset, CTranslate2 would make another sinusoid of its own
        table = _position_table(embedding, n_rows)
        if is_segment_0 and embedding.segments is not None:
            table = table + embedding.segments.detach()[0]
        spec.position_encodings.encodings = _array(table)
    if embedding.norm is not None:
        _fill_norm(spec.layernorm_embedding, embedding.norm)


def _position_table(embedding: InputEmbedding, n_rows: int) -> torch.Tensor:
    positions = embedding.positions
    if isinstance(positions, SinusoidalPositions | LearnedPositions):
        with torch.no_grad():
            table: torch.Tensor = positions(torch.arange(n_rows), n_positions=n_rows, dtype=torch.float32)
        return table
    return torch.zeros(n_rows, embedding.tokens.weight.shape[1])


def _fill_stack(spec: Any, stack: Stack, config: ModelConfig) -> None:
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        assert isinstance(block, Block)
        _fill_attention(layer.self_attention, block.self_attention, block.self_residual.norm)
        if block.cross_attention is not None and block.cross_residual is not None:
            _fill_attention(layer.attention, block.cross_attention, block.cross_residual.norm)
        _fill_feed_forward(layer.ffn, block.feed_forward, block.ffn_residual.norm)
        if isinstance(stack.bias, RelativeBias):
            layer.self_attention.relative_attention_bias = _array(stack.bias.weight)
            layer.self_attention.relative_attention_max_distance = np.int32(config.max_relative_distance)
    spec.pre_norm = config.norm_placement == "pre"
    if stack.norm is not None:
        _fill_norm(spec.layer_norm, stack.norm)


def _fill_attention(spec: Any, attention: Attention, norm: nn.Module) -> None:
    """Self-attention: Q, K, V as one matrix, then the output. Cross-attention: Q, then K and V as one, then that."""
    _fill_norm(spec.layer_norm, norm)
    spec.queries_scale = np.float32(attention.scale)
    inputs = [attention.w_q, attention.w_k, attention.w_v]
    groups = [inputs] if len(spec.linear) == 2 else [inputs[:1], inputs[1:]]
    for linear, parts in zip(spec.linear, [*groups, [attention.w_o]], strict=True):
        _fill_linear(linear, *parts)


def _fill_feed_forward(spec: Any, feed_forward: FeedForward, norm: nn.Module) -> None:
    _fill_norm(spec.layer_norm, norm)
    _fill_linear(spec.linear_0, feed_forward.w_1)
    _fill_linear(spec.linear_1, feed_forward.w_2)
    if feed_forward.w_3 is not None:
        _fill_linear(spec.linear_0_noact, feed_forward.w_3)


def _fill_linear(spec: Any, *parts: nn.Linear) -> None:
    """The rows of several layers as one matrix."""
    spec.weight = _array(torch.cat([part.weight for part in parts]))
    if parts[0].bias is not None:
        spec.bias = _array(torch.cat([part.bias for part in parts]))


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    assert isinstance(norm, LayerNorm | RMSNorm)
    spec.gamma = _array(norm.gamma)
    if isinstance(norm, LayerNorm):
        spec.beta = _array(torch.zeros_like(norm.gamma) if norm.beta is None else norm.beta)


def _array(tensor: torch.Tensor) -> np.ndarray:
    """A float32 copy."""
    return tensor.detach().cpu().float().numpy().copy()
