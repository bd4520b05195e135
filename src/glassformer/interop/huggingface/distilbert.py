"""DistilBERT: BERT with half the layers, without segments and pooler, and with other names.

Source: Sanh et al. 2019.
"""

from __future__ import annotations

from typing import Any

from glassformer.config import ModelConfig
from glassformer.interop.huggingface import bert
from glassformer.interop.huggingface.architecture import Architecture, Tensors
from glassformer.interop.huggingface.fields import Fields
from glassformer.interop.huggingface.table import Entry, linear, map_layers, norm

__all__ = ["DISTILBERT"]

# The epsilon is written into its code, and no field changes it.
FIXED: dict[str, Any] = bert.FIXED | {"norm_eps": 1e-12}
FREE = bert.FREE - {"norm_eps", "use_pooler", "n_segments", "position_offset"}


def _read(fields: Fields, tensors: Tensors) -> ModelConfig:
    fields.take("sinusoidal_pos_embds")  # says how the table was begun; the file holds it either way
    fields.take("qa_dropout"), fields.take("seq_classif_dropout")  # of heads that are not read
    has_head = "vocab_transform.weight" in tensors
    is_tied = fields.setting("tie_word_embeddings", True) or "vocab_projector.weight" not in tensors
    return ModelConfig(
        **FIXED,
        vocab_size=fields.number("vocab_size", default=30522),
        d_model=fields.number("dim", "hidden_size", default=768),
        d_ff=fields.number("hidden_dim", default=3072),
        n_heads=fields.number("n_heads", "num_attention_heads", default=12),
        n_encoder_layers=fields.number("n_layers", "num_hidden_layers", default=6),
        max_positions=fields.number("max_position_embeddings", default=512),
        activation=fields.activation("activation", "gelu"),
        use_mlm_head=has_head,
        tying="decoder" if is_tied else "none",
        dropout=fields.setting("dropout", 0.1),
        attention_dropout=fields.setting("attention_dropout", 0.1),
    )


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": ["DistilBertForMaskedLM" if config.use_mlm_head else "DistilBertModel"],
        "model_type": "distilbert",
        "vocab_size": config.vocab_size,
        "dim": config.d_model,
        "hidden_dim": config.d_ff,
        "n_heads": config.n_heads,
        "n_layers": config.n_encoder_layers,
        "max_position_embeddings": config.max_positions,
        "activation": bert.name_of(config.activation),
        "tie_word_embeddings": config.is_output_tied,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
    }


def _block(ours: str, i: int) -> list[Entry]:
    theirs = f"distilbert.transformer.layer.{i}"
    return [
        *linear(f"{ours}.self_attention.w_q", f"{theirs}.attention.q_lin"),
        *linear(f"{ours}.self_attention.w_k", f"{theirs}.attention.k_lin"),
        *linear(f"{ours}.self_attention.w_v", f"{theirs}.attention.v_lin"),
        *linear(f"{ours}.self_attention.w_o", f"{theirs}.attention.out_lin"),
        *norm(f"{ours}.self_residual.norm", f"{theirs}.sa_layer_norm"),
        *linear(f"{ours}.feed_forward.w_1", f"{theirs}.ffn.lin1"),
        *linear(f"{ours}.feed_forward.w_2", f"{theirs}.ffn.lin2"),
        *norm(f"{ours}.ffn_residual.norm", f"{theirs}.output_layer_norm"),
    ]


def _table(config: ModelConfig) -> list[Entry]:
    table, embeddings = "encoder.embedding", "distilbert.embeddings"
    tied = ("vocab_projector.weight",) if config.is_output_tied else ()
    entries = [
        Entry((f"{table}.tokens.weight",), (f"{embeddings}.word_embeddings.weight", *tied)),
        Entry((f"{table}.positions.weight",), (f"{embeddings}.position_embeddings.weight",)),
        *norm(f"{table}.norm", f"{embeddings}.LayerNorm"),
        *map_layers("encoder", config.n_encoder_layers, _block),
    ]
    if config.use_mlm_head:
        entries += [
            *linear("mlm_head.dense", "vocab_transform"),
            *norm("mlm_head.norm", "vocab_layer_norm"),
            Entry(("mlm_head.projection.bias",), ("vocab_projector.bias",)),
        ]
        if not config.is_output_tied:
            entries.append(Entry(("mlm_head.projection.weight",), ("vocab_projector.weight",)))
    return entries


DISTILBERT = Architecture(
    model_type="distilbert",
    prefix="distilbert.",
    fixed=FIXED,
    free=FREE,
    read=_read,
    write=_write,
    table=_table,
    left_out=(
        *bert.LEFT_OUT,
        (r"pre_classifier\..*", bert.HEADS),
    ),
    special=bert.BERT.special,
)
