"""Marian (OPUS-MT) and Pegasus: encoder-decoders with sinusoidal positions, Marian post-norm and Pegasus pre-norm.

Their position tables are computed, and a file may hold them too. A file with a table decides the layout of the
sinusoids; without one all sines come first. Pegasus is what a pre-norm model trained here is written as.

Source: Junczys-Dowmunt et al. 2018; Zhang et al. 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.huggingface.architecture import Architecture, Tensors
from glassformer.interop.huggingface.bart import (
    FREE,
    IDLE_TABLE,
    SPECIAL,
    read_sizes,
    read_tying,
    shared_table,
    write_sizes,
)
from glassformer.interop.huggingface.fields import Fields
from glassformer.model.positions import sinusoidal_table

__all__ = ["MARIAN", "PEGASUS"]

SINUSOIDAL: dict[str, Any] = {
    "family": "encoder-decoder",
    "norm_eps": 1e-5,
    "use_attention_bias": True,
    "use_output_bias": True,
}
FIXED_MARIAN = SINUSOIDAL | {"norm_placement": "post", "use_final_norm": False}
TABLES = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))
UNBOUNDED = 1024  # rows that are written for a model without a limit of its own
Layout = Literal["interleaved", "halves"]


def _layout(tensors: Tensors, d_model: int) -> Layout:
    """The layout of the sinusoids in a file; halves where it holds none."""
    layouts: set[Layout] = {_layout_of(tensors[name], name, d_model) for name in TABLES if name in tensors}
    if len(layouts) > 1:
        raise CheckpointError(
            "The position tables of encoder and decoder have different layouts.",
            "Here both have one.",
            "This model cannot be imported.",
        )
    return layouts.pop() if layouts else "halves"


def _layout_of(table: Tensor, name: str, d_model: int) -> Layout:
    layouts: tuple[Layout, Layout] = ("halves", "interleaved")
    for layout in layouts:
        expected = sinusoidal_table(len(table), d_model, is_interleaved=layout == "interleaved")
        # Files of 16 bits round sines to 2^-9; a table in another layout is off by about 1.
        if table.shape == expected.shape and bool((table.double() - expected).abs().max() < 4e-3):
            return layout
    raise CheckpointError(
        f"{name} holds other numbers than sinusoids.",
        "Marian and Pegasus compute their positions.",
        "Check that the file is whole; learned positions belong to another architecture.",
    )


def _read(fields: Fields, tensors: Tensors, fixed: Mapping[str, Any], **expected: bool) -> ModelConfig:
    for name, value in expected.items():
        fields.require(name, value, reason="The norms of this architecture are placed otherwise.")
    fields.require("add_bias_logits", True, False)  # no version reads it: final_logits_bias is always there
    fields.take("extra_pos_embeddings"), fields.take("encoder_vocab_size")
    sizes = read_sizes(fields)
    src_vocab_size, vocab_size = sizes["vocab_size"], fields.number("decoder_vocab_size", default=sizes["vocab_size"])
    is_shared = fields.setting("share_encoder_decoder_embeddings", True)
    return ModelConfig(
        **dict(fixed) | sizes | {"vocab_size": vocab_size},
        src_vocab_size=None if is_shared or src_vocab_size == vocab_size else src_vocab_size,
        tying=read_tying(fields, tensors, is_shared=is_shared),
        sinusoid_layout=_layout(tensors, sizes["d_model"]),
    )


def _read_marian(fields: Fields, tensors: Tensors) -> ModelConfig:
    expected = {"normalize_before": False, "add_final_layer_norm": False, "normalize_embedding": False}
    return _read(fields, tensors, FIXED_MARIAN, **expected)


def _read_pegasus(fields: Fields, tensors: Tensors) -> ModelConfig:
    expected = {"normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": False}
    return _read(fields, tensors, SINUSOIDAL, **expected)


def _write_marian(config: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        **write_sizes(config, max_positions=config.max_positions or UNBOUNDED),
        "vocab_size": config.source_vocab_size,
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": config.is_source_tied,
    }


def _write_pegasus(config: ModelConfig) -> dict[str, Any]:
    if not config.is_source_tied:
        raise ConfigError(f"tying={config.tying} (Pegasus has one table for source and target)")
    return {
        "architectures": ["PegasusForConditionalGeneration"],
        "model_type": "pegasus",
        **write_sizes(config, max_positions=config.max_positions or UNBOUNDED),
    }


def _computed(config: ModelConfig, written: Mapping[str, Any]) -> Tensors:
    is_interleaved = config.sinusoid_layout == "interleaved"
    table = sinusoidal_table(written["max_position_embeddings"], config.d_model, is_interleaved=is_interleaved)
    return {name: table.to(torch.float32) for name in TABLES}


LEFT_OUT = ((r"model\.(encoder|decoder)\.embed_positions\.weight", "sinusoids, which are computed"), IDLE_TABLE)
MARIAN = Architecture(
    model_type="marian",
    prefix="model.",
    fixed=FIXED_MARIAN,
    free=FREE | {"tying", "sinusoid_layout", "src_vocab_size"},
    read=_read_marian,
    write=_write_marian,
    table=shared_table,
    left_out=LEFT_OUT,
    special={"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"},
    computed=_computed,
)
PEGASUS = Architecture(
    model_type="pegasus",
    prefix="model.",
    fixed=SINUSOIDAL,
    free=FREE | {"tying", "sinusoid_layout"},
    read=_read_pegasus,
    write=_write_pegasus,
    table=shared_table,
    left_out=LEFT_OUT,
    special=SPECIAL,
    computed=_computed,
)
