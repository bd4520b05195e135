"""Llama and models of its type (SmolLM2): a pre-norm decoder with rotary positions, RMSNorm and a gated SiLU.

Source: Touvron et al. 2023.
"""

from __future__ import annotations

from typing import Any

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.interop.huggingface.architecture import Architecture, Tensors
from glassformer.interop.huggingface.bert import name_of
from glassformer.interop.huggingface.fields import Fields
from glassformer.interop.huggingface.table import Entry, linear, map_layers, norm

__all__ = ["LLAMA"]

FIXED: dict[str, Any] = {
    "family": "decoder-only",
    "positions": "rotary",
    "sinusoid_layout": "halves",
    "norm": "rmsnorm",
    "is_gated": True,
    "scale_embedding": False,
    "use_ffn_bias": False,
}
FREE = frozenset(
    [
        "vocab_size",
        "d_model",
        "d_ff",
        "n_heads",
        "n_kv_heads",
        "d_head",
        "n_decoder_layers",
        "max_positions",
        "norm_eps",
        "activation",
        "tying",
        "rotary_base",
        "use_attention_bias",
        "use_ffn_bias",
        "use_norm_bias",
    ]
)


def _rotary_base(fields: Fields) -> float:
    """The base of the wavelengths; any way of stretching them is refused."""
    rope = fields.take("rope_parameters") or fields.take("rope_scaling") or {}
    base = fields.setting("rope_theta", 10000.0)
    if not isinstance(rope, dict):
        raise ConfigError(f"config.json: rope_parameters={rope!r}.", "A JSON object was expected.", "Remove it.")
    fields.take("rope_scaling"), fields.take("rope_interleaved")
    kind = rope.get("rope_type", rope.get("type", "default"))
    unknown = sorted(rope.keys() - {"rope_type", "type", "rope_theta"})
    if kind != "default" or unknown:
        raise ConfigError(
            f"config.json: rotary positions with rope_type={kind!r} {' '.join(unknown)}".rstrip() + ".",
            "Stretched or partial rotary positions are not built here.",
            "Import a model with rope_type default.",
        )
    return Fields(rope).setting("rope_theta", base)


def _read(fields: Fields, tensors: Tensors) -> ModelConfig:
    fields.take("pretraining_tp")  # how products were cut up in pretraining; the sums are the same
    fields.require("rope_interleaved", False)
    fields.require("is_llama_config", True)
    n_heads = fields.number("num_attention_heads", default=32)
    d_model = fields.number("hidden_size", default=4096)
    is_tied = fields.setting("tie_word_embeddings", False)
    return ModelConfig(
        **FIXED | {"use_ffn_bias": fields.setting("mlp_bias", False)},
        vocab_size=fields.number("vocab_size", default=32000),
        d_model=d_model,
        d_ff=fields.number("intermediate_size", default=11008),
        n_heads=n_heads,
        n_kv_heads=fields.number("num_key_value_heads", default=n_heads),
        d_head=fields.number("head_dim", default=d_model // n_heads),
        n_decoder_layers=fields.number("num_hidden_layers", default=32),
        max_positions=fields.number("max_position_embeddings", default=2048),
        rotary_base=_rotary_base(fields),
        norm_eps=fields.setting("rms_norm_eps", 1e-6),
        activation=fields.activation("hidden_act", "silu"),
        tying="decoder" if is_tied else "none",
        use_attention_bias=fields.setting("attention_bias", False),
        dropout=0.0,
        attention_dropout=fields.setting("attention_dropout", 0.0),
    )


def _write(config: ModelConfig) -> dict[str, Any]:
    if config.d_model % config.n_heads:
        raise ConfigError(f"n_heads={config.n_heads} does not divide d_model={config.d_model} (Llama wants it)")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "num_hidden_layers": config.n_decoder_layers,
        "max_position_embeddings": config.max_positions or 2048,
        "rope_theta": config.rotary_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base},
        "rms_norm_eps": config.norm_eps,
        "hidden_act": name_of(config.activation),
        "tie_word_embeddings": config.is_output_tied,
        "attention_bias": config.use_attention_bias,
        "mlp_bias": config.use_ffn_bias,
        "attention_dropout": config.attention_dropout,
    }


def _table(config: ModelConfig) -> list[Entry]:
    def block(ours: str, i: int) -> list[Entry]:
        theirs, entries = f"model.layers.{i}", list[Entry]()
        for part in "qkvo":
            name = f"{theirs}.self_attn.{part}_proj"
            entries += linear(f"{ours}.self_attention.w_{part}", name, has_bias=config.use_attention_bias)
        for part, name in (("w_1", "gate_proj"), ("w_3", "up_proj"), ("w_2", "down_proj")):
            entries += linear(f"{ours}.feed_forward.{part}", f"{theirs}.mlp.{name}", has_bias=config.use_ffn_bias)
        return [
            *entries,
            *norm(f"{ours}.self_residual.norm", f"{theirs}.input_layernorm", has_bias=False),
            *norm(f"{ours}.ffn_residual.norm", f"{theirs}.post_attention_layernorm", has_bias=False),
        ]

    tied = ("lm_head.weight",) if config.is_output_tied else ()
    entries = [
        Entry(("decoder.embedding.tokens.weight",), ("model.embed_tokens.weight", *tied)),
        *map_layers("decoder", config.n_decoder_layers, block),
        *norm("decoder.stack.norm", "model.norm", has_bias=False),
    ]
    if not config.is_output_tied:
        entries.append(Entry(("decoder.projection.weight",), ("lm_head.weight",)))
    return entries


LLAMA = Architecture(
    model_type="llama",
    prefix="model.",
    fixed=FIXED,
    free=FREE,
    read=_read,
    write=_write,
    table=_table,
    left_out=((r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq", "the rotary wavelengths, computed"),),
    special={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
)
