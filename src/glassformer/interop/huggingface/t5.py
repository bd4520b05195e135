"""T5 v1.0, v1.1 and Flan: pre-norm encoder-decoders with a relative bias, RMSNorm and no attention scale.

Whether the decoder's output is scaled by d_model^-0.5, and whether the projection is the token table, are two facts:
v1.0 has both, v1.1 neither.

Source: Raffel et al. 2020.
"""

from __future__ import annotations

from typing import Any

import torch

from glassformer.config import ModelConfig
from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.huggingface.architecture import Architecture, Tensors
from glassformer.interop.huggingface.bert import name_of
from glassformer.interop.huggingface.fields import ACTIVATIONS, Fields
from glassformer.interop.huggingface.table import Entry, map_layers

__all__ = ["T5"]

FIXED: dict[str, Any] = {
    "family": "encoder-decoder",
    "positions": "t5_relative",
    "norm": "rmsnorm",
    "scale_embedding": False,
    "scale_scores": False,
    "use_ffn_bias": False,
}
FREE = frozenset(
    [
        "vocab_size",
        "d_model",
        "d_ff",
        "n_heads",
        "d_head",
        "n_encoder_layers",
        "n_decoder_layers",
        "n_relative_buckets",
        "max_relative_distance",
        "norm_eps",
        "activation",
        "is_gated",
        "scale_logits",
        "tying",
        "use_norm_bias",
    ]
)
TABLES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def _feed_forward(fields: Fields) -> dict[str, Any]:
    """Activation and gate from `feed_forward_proj`; gated-gelu means the tanh form.

    Newer versions write what follows from it too, and where those fields say otherwise, they win.
    """
    value = fields.take("feed_forward_proj", "relu")
    gate, _, name = value.rpartition("-")
    name = "gelu_new" if value == "gated-gelu" else name
    if gate not in ("", "gated") or name not in ACTIVATIONS:
        raise ConfigError(
            f"config.json: feed_forward_proj={value!r} is not built here.",
            f"It is one of {', '.join(ACTIVATIONS)}, or gated- and one of them.",
            "This model cannot be imported.",
        )
    is_gated = fields.setting("is_gated_act", gate == "gated")
    return {"activation": fields.activation("dense_act_fn", name), "is_gated": is_gated}


def _is_tied(tensors: Tensors) -> bool:
    """Whether the projection is the token table: config.json does not say so in every version, the tensors do."""
    if "lm_head.weight" not in tensors:
        return True
    tables = [tensors[name] for name in TABLES if name in tensors]
    if not tables:
        raise CheckpointError(
            "The weights have lm_head.weight and none of the token tables.",
            f"One of {', '.join(TABLES)} was expected; the output matrix is never read as input.",
            "Use the whole file of the model.",
        )
    return torch.equal(tables[0], tensors["lm_head.weight"])


def _read(fields: Fields, tensors: Tensors) -> ModelConfig:
    is_declared_tied = fields.setting("tie_word_embeddings", True)
    if not is_declared_tied and "lm_head.weight" not in tensors:
        raise CheckpointError(
            "config.json says tie_word_embeddings=false and the weights lack lm_head.weight.",
            "An output matrix of its own was expected.",
            "Use the whole file of the model.",
        )
    fields.take("n_positions")  # of no use to relative positions
    dropout = fields.setting("dropout_rate", 0.1)
    n_layers = fields.number("num_layers", "num_hidden_layers", default=6)
    is_tied = _is_tied(tensors) and is_declared_tied
    return ModelConfig(
        **FIXED,
        **_feed_forward(fields),
        vocab_size=fields.number("vocab_size", default=32128),
        d_model=fields.number("d_model", "hidden_size", default=512),
        d_ff=fields.number("d_ff", default=2048),
        n_heads=fields.number("num_heads", "num_attention_heads", default=8),
        d_head=fields.number("d_kv", default=64),
        n_encoder_layers=n_layers,
        n_decoder_layers=fields.number("num_decoder_layers", default=n_layers),
        n_relative_buckets=fields.number("relative_attention_num_buckets", default=32),
        max_relative_distance=fields.number("relative_attention_max_distance", default=128),
        norm_eps=fields.setting("layer_norm_epsilon", 1e-6),
        scale_logits=fields.setting("scale_decoder_outputs", is_declared_tied),
        tying="all" if is_tied else "inputs",
        dropout=dropout,
        attention_dropout=dropout,
        ffn_dropout=dropout,
    )


def _write(config: ModelConfig) -> dict[str, Any]:
    if not config.is_source_tied:
        raise ConfigError(f"tying={config.tying} (T5 has one table for source and target)")
    if config.scale_logits != config.is_output_tied:
        # One field says both to most versions of transformers.
        raise ConfigError(f"scale_logits={config.scale_logits} with tying={config.tying} (T5 scales when tied)")
    name = name_of(config.activation)
    if config.is_gated:
        name = "gated-gelu" if name == "gelu_new" else f"gated-{name}"
    if name == "gated-gelu" and config.activation != "gelu_tanh":
        raise ConfigError("activation=gelu with a gate (T5's gated-gelu is the tanh form)")
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "d_ff": config.d_ff,
        "d_kv": config.head_width,
        "num_heads": config.n_heads,
        "num_layers": config.n_encoder_layers,
        "num_decoder_layers": config.n_decoder_layers,
        "relative_attention_num_buckets": config.n_relative_buckets,
        "relative_attention_max_distance": config.max_relative_distance,
        "layer_norm_epsilon": config.norm_eps,
        "feed_forward_proj": name,
        "tie_word_embeddings": config.is_output_tied,
        "dropout_rate": config.dropout,
    }


def _attention(ours: str, theirs: str) -> list[Entry]:
    return [Entry((f"{ours}.w_{part}.weight",), (f"{theirs}.{part}.weight",)) for part in "qkvo"]


def _table(config: ModelConfig) -> list[Entry]:
    first, inner = ("wi_0", [("w_3", "wi_1")]) if config.is_gated else ("wi", [])

    def block(ours: str, i: int) -> list[Entry]:
        stack = ours.partition(".")[0]
        theirs, last = f"{stack}.block.{i}.layer", 1 if stack == "encoder" else 2
        entries = _attention(f"{ours}.self_attention", f"{theirs}.0.SelfAttention")
        entries += [Entry((f"{ours}.self_residual.norm.gamma",), (f"{theirs}.0.layer_norm.weight",))]
        if stack == "decoder":
            entries += _attention(f"{ours}.cross_attention", f"{theirs}.1.EncDecAttention")
            entries += [Entry((f"{ours}.cross_residual.norm.gamma",), (f"{theirs}.1.layer_norm.weight",))]
        for part, name in [("w_1", first), *inner, ("w_2", "wo")]:
            dense = f"{theirs}.{last}.DenseReluDense.{name}.weight"
            entries.append(Entry((f"{ours}.feed_forward.{part}.weight",), (dense,)))
        return [*entries, Entry((f"{ours}.ffn_residual.norm.gamma",), (f"{theirs}.{last}.layer_norm.weight",))]

    tied = ("lm_head.weight",) if config.is_output_tied else ()
    entries = [Entry(("encoder.embedding.tokens.weight",), (*TABLES, *tied))]
    if not config.is_output_tied:
        entries.append(Entry(("decoder.projection.weight",), ("lm_head.weight",)))
    for stack, n_layers in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        entries += [
            Entry((f"{stack}.stack.bias.weight",), (bias,)),
            *map_layers(stack, n_layers, block),
            Entry((f"{stack}.stack.norm.gamma",), (f"{stack}.final_layer_norm.weight",)),
        ]
    return entries


T5 = Architecture(
    model_type="t5",
    prefix="",
    fixed=FIXED,
    free=FREE,
    read=_read,
    write=_write,
    table=_table,
    left_out=(
        (
            r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
            "a table of old files that no version of T5 reads",
        ),
    ),
    special={"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
)
