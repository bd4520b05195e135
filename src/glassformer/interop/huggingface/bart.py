"""BART: a post-norm encoder-decoder with learned positions and a norm after the embeddings.

Marian and Pegasus have the same names of tensors; what the three share is here.

Source: Lewis et al. 2020.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.interop.huggingface.architecture import Architecture, Tensors
from glassformer.interop.huggingface.bert import HEADS, name_of
from glassformer.interop.huggingface.fields import Fields
from glassformer.interop.huggingface.table import Entry, linear, map_layers, norm

__all__ = ["BART", "FREE", "IDLE_TABLE", "SPECIAL", "read_sizes", "read_tying", "shared_table", "write_sizes"]

POSITION_OFFSET = 2
TABLES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
IDLE_TABLE = (r"model\.shared\.weight", "a table that nothing reads, since each stack has its own")
FIXED: dict[str, Any] = {
    "family": "encoder-decoder",
    "positions": "learned",
    "position_offset": POSITION_OFFSET,
    "norm_placement": "post",
    "norm_eps": 1e-5,
    "use_embedding_norm": True,
    "use_final_norm": False,
    "use_attention_bias": True,
    "use_output_bias": True,
}
FREE = frozenset(
    [
        "vocab_size",
        "d_model",
        "d_ff",
        "n_heads",
        "n_encoder_layers",
        "n_decoder_layers",
        "max_positions",
        "activation",
        "scale_embedding",
        "use_attention_bias",
        "use_ffn_bias",
        "use_norm_bias",
        "use_output_bias",
    ]
)
SPECIAL = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "mask_token": "<mask>",
}


def read_sizes(fields: Fields, *, activation: str = "gelu") -> dict[str, Any]:
    """The fields of ours that BART, Marian and Pegasus name alike."""
    sizes = {}
    for ours, theirs in (("d_ff", "ffn_dim"), ("n_heads", "attention_heads")):
        other = ("num_attention_heads",) if ours == "n_heads" else ()  # of the encoder
        encoder, decoder = fields.number(f"encoder_{theirs}", *other), fields.number(f"decoder_{theirs}")
        if encoder != decoder:
            raise ConfigError(
                f"config.json: encoder_{theirs}={encoder} and decoder_{theirs}={decoder}.",
                f"Here {ours} is one size for both stacks.",
                "This model cannot be imported.",
            )
        sizes[ours] = encoder
    return sizes | {
        "vocab_size": fields.number("vocab_size"),
        "d_model": fields.number("d_model", "hidden_size"),
        "n_encoder_layers": fields.number("encoder_layers", "num_hidden_layers"),
        "n_decoder_layers": fields.number("decoder_layers"),
        "max_positions": fields.number("max_position_embeddings", default=1024),
        "activation": fields.activation("activation_function", activation),
        "scale_embedding": fields.setting("scale_embedding", False),
        "dropout": fields.setting("dropout", 0.1),
        "attention_dropout": fields.setting("attention_dropout", 0.0),
        "ffn_dropout": fields.setting("activation_dropout", 0.0),
    }


def read_tying(fields: Fields, tensors: Tensors, *, is_shared: bool) -> Literal["all", "inputs", "decoder", "none"]:
    """Which tables are one. `tie_word_embeddings=false` may part the tables of the two stacks too: the file shows it.

    Args:
        fields: Theirs.
        tensors: Theirs.
        is_shared: Whether source and target have one vocabulary.
    """
    is_tied = fields.setting("tie_word_embeddings", True)
    tables = [tensors[name] for name in TABLES if name in tensors]
    if not is_tied and len(tables) == 2 and not torch.equal(*tables):
        is_shared = False
    tying = {(True, True): "all", (True, False): "inputs", (False, True): "decoder", (False, False): "none"}
    return tying[is_shared, is_tied]  # type: ignore[return-value]


def write_sizes(config: ModelConfig, *, max_positions: int) -> dict[str, Any]:
    """What `read_sizes` reads."""
    both = {"ffn_dim": config.d_ff, "attention_heads": config.n_heads}
    return {
        "is_encoder_decoder": True,
        **{f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in both.items()},
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.n_encoder_layers,
        "decoder_layers": config.n_decoder_layers,
        "max_position_embeddings": max_positions,
        "activation_function": name_of(config.activation),
        "scale_embedding": config.scale_embedding,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.ffn_dropout,
        "tie_word_embeddings": config.is_output_tied,
    }


def _block(ours: str, i: int) -> list[Entry]:
    stack = ours.partition(".")[0]
    theirs = f"model.{stack}.layers.{i}"
    parts = [("self", "self_attn")] + ([("cross", "encoder_attn")] if stack == "decoder" else [])
    entries: list[Entry] = []
    for part, name in parts:
        for letter in "qkvo":
            projection = "out_proj" if letter == "o" else f"{letter}_proj"
            entries += linear(f"{ours}.{part}_attention.w_{letter}", f"{theirs}.{name}.{projection}")
        entries += norm(f"{ours}.{part}_residual.norm", f"{theirs}.{name}_layer_norm")
    return [
        *entries,
        *linear(f"{ours}.feed_forward.w_1", f"{theirs}.fc1"),
        *linear(f"{ours}.feed_forward.w_2", f"{theirs}.fc2"),
        *norm(f"{ours}.ffn_residual.norm", f"{theirs}.final_layer_norm"),
    ]


def shared_table(config: ModelConfig) -> list[Entry]:
    """Token tables, blocks and projection."""
    head, tables = "lm_head.weight", TABLES
    tied = (head,) if config.is_output_tied else ()
    if config.is_source_tied:
        entries = [Entry(("encoder.embedding.tokens.weight",), ("model.shared.weight", *tables, *tied))]
    else:
        entries = [
            Entry(("encoder.embedding.tokens.weight",), (tables[0],)),
            Entry(("decoder.embedding.tokens.weight",), (tables[1], *tied)),
        ]
    if not config.is_output_tied:
        entries.append(Entry(("decoder.projection.weight",), (head,)))
    for stack, n_layers in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
        entries += map_layers(stack, n_layers, _block)
        if config.use_embedding_norm:
            entries += norm(f"{stack}.embedding.norm", f"model.{stack}.layernorm_embedding")
        if config.use_final_norm:
            entries += norm(f"{stack}.stack.norm", f"model.{stack}.layer_norm")
        if config.positions == "learned":
            positions = f"model.{stack}.embed_positions.weight"
            entries.append(Entry((f"{stack}.embedding.positions.weight",), (positions,)))
    return [*entries, Entry(("decoder.projection.bias",), ("final_logits_bias",), is_row=True)]


def _read(fields: Fields, tensors: Tensors) -> ModelConfig:
    fields.require("normalize_before", False, reason="BART has its norms after each sub-layer.")
    fields.require("add_final_layer_norm", False, reason="BART has no norm after its last block.")
    fields.require("normalize_embedding", True, reason="BART has a norm after its embeddings.")
    fields.require("add_bias_logits", True, False)  # no version reads it: final_logits_bias is always there
    fields.take("classif_dropout"), fields.take("extra_pos_embeddings")
    tying = read_tying(fields, tensors, is_shared=True)
    if "final_logits_bias" not in tensors:  # a base model saved without its head has none; zeros add nothing
        tensors["final_logits_bias"] = torch.zeros(1, fields.number("vocab_size"))
    return ModelConfig(**FIXED, **read_sizes(fields), tying=tying)


def _write(config: ModelConfig) -> dict[str, Any]:
    assert config.max_positions is not None  # positions are learned
    head = {"architectures": ["BartForConditionalGeneration"], "model_type": "bart"}
    return head | write_sizes(config, max_positions=config.max_positions)


BART = Architecture(
    model_type="bart",
    prefix="model.",
    fixed=FIXED,
    free=FREE | {"tying"},
    read=_read,
    write=_write,
    table=shared_table,
    left_out=((r"(model\.)?classification_head\..*", HEADS), IDLE_TABLE),
    special=SPECIAL,
)
