"""BERT and RoBERTa: post-norm encoders with learned positions and a norm after the embeddings.

RoBERTa differs by the first rows of its position table (pad_id + 1 of them are read by no text), the names of its
masked-language head and the exact GELU in it.

Source: Devlin et al. 2019; Liu et al. 2019.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.interop.huggingface.architecture import Architecture, Tensors
from glassformer.interop.huggingface.fields import ACTIVATIONS, Fields
from glassformer.interop.huggingface.table import Entry, linear, map_layers, norm

__all__ = ["BERT", "ROBERTA", "name_of"]

FIXED: dict[str, Any] = {
    "family": "encoder-only",
    "positions": "learned",
    "norm_placement": "post",
    "use_embedding_norm": True,
    "use_final_norm": False,
    "scale_embedding": False,
    "use_attention_bias": True,
}
FREE = frozenset(
    [
        "vocab_size",
        "d_model",
        "d_ff",
        "n_heads",
        "n_encoder_layers",
        "max_positions",
        "norm_eps",
        "activation",
        "tying",
        "use_attention_bias",
        "use_ffn_bias",
        "use_norm_bias",
        "use_mlm_head",
        "use_pooler",
        "n_segments",
        "position_offset",
    ]
)
HEADS = "a head of another task; only the encoder, its pooler and its masked-language head are read"
LEFT_OUT = (
    (r".*embeddings\.position_ids", "the numbers 0, 1, 2 ..., which are computed"),
    (r"cls\.seq_relationship\.(weight|bias)", "the next-sentence head of pretraining"),
    (r"(classifier|qa_outputs)\..*", HEADS),
    (r"(cls\.predictions|lm_head)\.bias", "not read where the projection is a matrix of its own: that has its bias"),
)


def name_of(activation: str) -> str:
    """The first of their names for one of our activations."""
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == activation)


def _read(fields: Fields, tensors: Tensors, *, is_roberta: bool) -> ModelConfig:
    head = "lm_head.dense.weight" if is_roberta else "cls.predictions.transform.dense.weight"
    decoder = "lm_head.decoder.weight" if is_roberta else "cls.predictions.decoder.weight"
    has_head, base = head in tensors, "roberta" if is_roberta else "bert"
    is_tied = fields.setting("tie_word_embeddings", True) or decoder not in tensors
    if not is_tied and decoder.replace("weight", "bias") not in tensors:  # older files name the one bias otherwise
        bias = "lm_head.bias" if is_roberta else "cls.predictions.bias"
        tensors[decoder.replace("weight", "bias")] = tensors.pop(bias)
    activation = fields.activation("hidden_act", "gelu")
    if is_roberta and has_head and activation != "gelu":
        raise ConfigError(
            f"config.json: hidden_act={fields.values['hidden_act']!r} with a masked-language head.",
            "RoBERTa's head always has the exact GELU, and here one activation serves the whole model.",
            "Save the encoder without its head, and import that.",
        )
    offset = fields.number("pad_token_id", default=1) + 1 if is_roberta else 0
    return ModelConfig(
        **FIXED,
        vocab_size=fields.number("vocab_size", default=50265 if is_roberta else 30522),
        d_model=fields.number("hidden_size", default=768),
        d_ff=fields.number("intermediate_size", default=3072),
        n_heads=fields.number("num_attention_heads", default=12),
        n_encoder_layers=fields.number("num_hidden_layers", default=12),
        max_positions=fields.number("max_position_embeddings", default=512) - offset,
        position_offset=offset,
        norm_eps=fields.setting("layer_norm_eps", 1e-12),
        activation=activation,
        tying="decoder" if is_tied else "none",
        use_mlm_head=has_head,
        use_pooler=f"{base}.pooler.dense.weight" in tensors,
        n_segments=fields.number("type_vocab_size", default=2),
        dropout=fields.setting("hidden_dropout_prob", 0.1),
        attention_dropout=fields.setting("attention_probs_dropout_prob", 0.1),
        pad_id=0,
    )


def _write(config: ModelConfig, *, is_roberta: bool) -> dict[str, Any]:
    if is_roberta and config.use_mlm_head and config.activation != "gelu":
        raise ConfigError(f"activation={config.activation} (RoBERTa's head has gelu)")
    if is_roberta and config.position_offset != (config.pad_id or 0) + 1:
        raise ConfigError(f"position_offset={config.position_offset} (RoBERTa has pad_id + 1)")
    if not is_roberta and config.position_offset:
        raise ConfigError(f"position_offset={config.position_offset} (BERT has none)")
    if not config.n_segments:
        raise ConfigError("n_segments=0 (it has at least one)")
    name = "Roberta" if is_roberta else "Bert"
    return {
        "architectures": [f"{name}ForMaskedLM" if config.use_mlm_head else f"{name}Model"],
        "model_type": name.lower(),
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_attention_heads": config.n_heads,
        "num_hidden_layers": config.n_encoder_layers,
        "max_position_embeddings": (config.max_positions or 0) + config.position_offset,
        "layer_norm_eps": config.norm_eps,
        "hidden_act": name_of(config.activation),
        "tie_word_embeddings": config.is_output_tied,
        "type_vocab_size": config.n_segments,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
    }


def _block(ours: str, i: int, *, base: str) -> list[Entry]:
    theirs = f"{base}.encoder.layer.{i}"
    return [
        *linear(f"{ours}.self_attention.w_q", f"{theirs}.attention.self.query"),
        *linear(f"{ours}.self_attention.w_k", f"{theirs}.attention.self.key"),
        *linear(f"{ours}.self_attention.w_v", f"{theirs}.attention.self.value"),
        *linear(f"{ours}.self_attention.w_o", f"{theirs}.attention.output.dense"),
        *norm(f"{ours}.self_residual.norm", f"{theirs}.attention.output.LayerNorm"),
        *linear(f"{ours}.feed_forward.w_1", f"{theirs}.intermediate.dense"),
        *linear(f"{ours}.feed_forward.w_2", f"{theirs}.output.dense"),
        *norm(f"{ours}.ffn_residual.norm", f"{theirs}.output.LayerNorm"),
    ]


def _table(config: ModelConfig, *, is_roberta: bool) -> list[Entry]:
    base = "roberta" if is_roberta else "bert"
    dense, layer_norm, bias, decoder = (
        ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder")
        if is_roberta
        else (
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.bias",
            "cls.predictions.decoder",
        )
    )
    table, embeddings = "encoder.embedding", f"{base}.embeddings"
    tied = (f"{decoder}.weight",) if config.is_output_tied else ()
    entries = [
        Entry((f"{table}.tokens.weight",), (f"{embeddings}.word_embeddings.weight", *tied)),
        Entry((f"{table}.positions.weight",), (f"{embeddings}.position_embeddings.weight",)),
        Entry((f"{table}.segments",), (f"{embeddings}.token_type_embeddings.weight",)),
        *norm(f"{table}.norm", f"{embeddings}.LayerNorm"),
        *map_layers("encoder", config.n_encoder_layers, partial(_block, base=base)),
    ]
    if config.use_pooler:
        entries += linear("pooler.dense", f"{base}.pooler.dense")
    if config.use_mlm_head:
        entries += [
            *linear("mlm_head.dense", dense),
            *norm("mlm_head.norm", layer_norm),
        ]
        if config.is_output_tied:
            entries.append(Entry(("mlm_head.projection.bias",), (bias, f"{decoder}.bias")))
        else:
            entries += linear("mlm_head.projection", decoder)
    return entries


BERT = Architecture(
    model_type="bert",
    prefix="bert.",
    fixed=FIXED,
    free=FREE,
    read=partial(_read, is_roberta=False),
    write=partial(_write, is_roberta=False),
    table=partial(_table, is_roberta=False),
    left_out=LEFT_OUT,
    special={
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    },
)
ROBERTA = Architecture(
    model_type="roberta",
    prefix="roberta.",
    fixed=FIXED,
    free=FREE,
    read=partial(_read, is_roberta=True),
    write=partial(_write, is_roberta=True),
    table=partial(_table, is_roberta=True),
    left_out=LEFT_OUT,
    special={
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "cls_token": "<s>",
        "sep_token": "</s>",
        "mask_token": "<mask>",
    },
)
