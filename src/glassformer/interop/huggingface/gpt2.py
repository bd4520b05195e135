"""GPT-2: a pre-norm decoder with learned positions; its matrices are stored [in, out], Q, K and V as one.

Source: Radford et al. 2019.
"""

from __future__ import annotations

from typing import Any

from glassformer.config import ModelConfig
from glassformer.interop.huggingface.architecture import Architecture, Tensors
from glassformer.interop.huggingface.bert import name_of
from glassformer.interop.huggingface.fields import Fields
from glassformer.interop.huggingface.table import Entry, linear, map_layers, norm

__all__ = ["GPT2"]

FIXED: dict[str, Any] = {
    "family": "decoder-only",
    "positions": "learned",
    "scale_embedding": False,
    "use_attention_bias": True,
}
FREE = frozenset(
    [
        "vocab_size",
        "d_model",
        "d_ff",
        "n_heads",
        "n_decoder_layers",
        "max_positions",
        "norm_eps",
        "activation",
        "tying",
        "scale_scores",
        "use_attention_bias",
        "use_ffn_bias",
        "use_norm_bias",
    ]
)
_SUMMARY = ("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout")


def _read(fields: Fields, tensors: Tensors) -> ModelConfig:
    fields.require("scale_attn_by_inverse_layer_idx", False, reason="Scores are not scaled by the layer here.")
    fields.take("reorder_and_upcast_attn")  # the order of roundings in 16 bits, no other function
    fields.take("n_ctx")  # an old name of n_positions that nothing reads
    for name in _SUMMARY:  # of a head for multiple choice
        fields.take(name)
    d_model = fields.number("n_embd", "hidden_size", default=768)
    is_tied = fields.setting("tie_word_embeddings", True)
    fields.take("embd_pdrop")
    return ModelConfig(
        **FIXED,
        vocab_size=fields.number("vocab_size", default=50257),
        d_model=d_model,
        d_ff=fields.number("n_inner", default=4 * d_model),
        n_heads=fields.number("n_head", "num_attention_heads", default=12),
        n_decoder_layers=fields.number("n_layer", "num_hidden_layers", default=12),
        max_positions=fields.number("n_positions", default=1024),
        norm_eps=fields.setting("layer_norm_epsilon", 1e-5),
        activation=fields.activation("activation_function", "gelu_new"),
        scale_scores=fields.setting("scale_attn_weights", True),
        tying="decoder" if is_tied or "lm_head.weight" not in tensors else "none",
        dropout=fields.setting("resid_pdrop", 0.1),
        attention_dropout=fields.setting("attn_pdrop", 0.1),
    )


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_inner": config.d_ff,
        "n_head": config.n_heads,
        "n_layer": config.n_decoder_layers,
        "n_positions": config.max_positions,
        "layer_norm_epsilon": config.norm_eps,
        "activation_function": name_of(config.activation),
        "scale_attn_weights": config.scale_scores,
        "tie_word_embeddings": config.is_output_tied,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    }


def _block(ours: str, i: int) -> list[Entry]:
    theirs = f"transformer.h.{i}"
    attention = [f"{ours}.self_attention.w_{part}" for part in "qkv"]
    return [
        *norm(f"{ours}.self_residual.norm", f"{theirs}.ln_1"),
        *linear(attention, f"{theirs}.attn.c_attn", is_transposed=True),
        *linear(f"{ours}.self_attention.w_o", f"{theirs}.attn.c_proj", is_transposed=True),
        *norm(f"{ours}.ffn_residual.norm", f"{theirs}.ln_2"),
        *linear(f"{ours}.feed_forward.w_1", f"{theirs}.mlp.c_fc", is_transposed=True),
        *linear(f"{ours}.feed_forward.w_2", f"{theirs}.mlp.c_proj", is_transposed=True),
    ]


def _table(config: ModelConfig) -> list[Entry]:
    tied = ("lm_head.weight",) if config.is_output_tied else ()
    entries = [
        Entry(("decoder.embedding.tokens.weight",), ("transformer.wte.weight", *tied)),
        Entry(("decoder.embedding.positions.weight",), ("transformer.wpe.weight",)),
        *map_layers("decoder", config.n_decoder_layers, _block),
        *norm("decoder.stack.norm", "transformer.ln_f"),
    ]
    if not config.is_output_tied:
        entries.append(Entry(("decoder.projection.weight",), ("lm_head.weight",)))
    return entries


GPT2 = Architecture(
    model_type="gpt2",
    prefix="transformer.",
    fixed=FIXED,
    free=FREE,
    read=_read,
    write=_write,
    table=_table,
    left_out=((r"transformer\.h\.\d+\.attn\.(bias|masked_bias)", "the causal mask, which is computed"),),
    special={"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
)
