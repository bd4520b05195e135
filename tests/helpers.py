"""What several tests share: small models with clear outputs, padded batches, one way to compare numbers, a browser."""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.model import DecoderOnly, EncoderDecoder, EncoderOnly, Model, build_model

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
PAD, BOS, EOS, UNK = 0, 1, 2, 3
N_SPECIAL = 4
FAMILIES = ("encoder-decoder", "encoder-only", "decoder-only")

# What changes a number inside a model: each position scheme, and between them every other switch.
VARIANTS: dict[str, dict[str, Any]] = {
    "sinusoidal-post": {"norm_placement": "post", "use_final_norm": False},
    "sinusoidal-halves-gated": {"sinusoid_layout": "halves", "is_gated": True, "activation": "silu"},
    "learned-gelu-biases": {"positions": "learned", "activation": "gelu_tanh", "use_attention_bias": True},
    "rotary-shared-kv-rmsnorm": {"positions": "rotary", "n_kv_heads": 2, "norm": "rmsnorm"},
    "rotary-halves-one-kv": {"positions": "rotary", "sinusoid_layout": "halves", "n_kv_heads": 1},
    "t5": {"positions": "t5_relative", "scale_scores": False, "scale_logits": True, "norm": "rmsnorm"},
    "t5-shared-kv-post": {"positions": "t5_relative", "n_kv_heads": 2, "norm_placement": "post"},
    "alibi-shared-kv": {"positions": "alibi", "n_kv_heads": 2},
    "none-untied": {"positions": "none", "tying": "none", "use_output_bias": True, "activation": "gelu"},
}


def tiny_config(family: str = "encoder-decoder", **changes: Any) -> ModelConfig:
    """A config with unequal sizes everywhere, so that a swapped pair of axes is an error."""
    sizes: dict[str, Any] = {"family": family, "vocab_size": 23, "d_model": 20, "d_ff": 31, "n_heads": 4, "d_head": 6}
    layers = {"n_encoder_layers": 1, "n_decoder_layers": 2}
    options: dict[str, Any] = {"dropout": 0.0, "n_relative_buckets": 8, "max_relative_distance": 12}
    if changes.get("positions") == "learned":
        options["max_positions"] = 70
    return ModelConfig(**(sizes | layers | options | changes))


def build_tiny(config: ModelConfig, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Model:
    """A model in eval mode whose norms and biases are not 1 and 0, and whose outputs differ clearly."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_model(config).to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def encoder_decoder(*, seed: int = 0, **changes: Any) -> EncoderDecoder:
    model = build_tiny(tiny_config("encoder-decoder", **changes), seed=seed)
    assert isinstance(model, EncoderDecoder)
    return model


def decoder_only(*, seed: int = 0, **changes: Any) -> DecoderOnly:
    model = build_tiny(tiny_config("decoder-only", **changes), seed=seed)
    assert isinstance(model, DecoderOnly)
    return model


def encoder_only(*, seed: int = 0, **changes: Any) -> EncoderOnly:
    model = build_tiny(tiny_config("encoder-only", **changes), seed=seed)
    assert isinstance(model, EncoderOnly)
    return model


def random_ids(*shape: int, seed: int = 0, vocab_size: int = 23) -> Tensor:
    """Ordinary ids, no special ones."""
    return torch.randint(N_SPECIAL, vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def padded(rows: list[Tensor], *, side: str = "right", length: int | None = None) -> Tensor:
    """Rows of ids [T_i] as one batch [B, length], filled with PAD on one side."""
    width = max(len(row) for row in rows) if length is None else length
    batch = torch.full((len(rows), width), PAD)
    for i, row in enumerate(rows):
        start = 0 if side == "right" else width - len(row)
        batch[i, start : start + len(row)] = row
    return batch


def chunks(ids: Tensor, *sizes: int) -> list[Tensor]:
    """Cuts ids [B, T] into chunks of these sizes; a single size is used throughout."""
    parts: tuple[Tensor, ...] = ids.split(sizes[0] if len(sizes) == 1 else list(sizes), dim=1)  # type: ignore[no-untyped-call]
    return list(parts)


def run(model: Model, src: Tensor, tgt: Tensor) -> Tensor:
    """One forward pass of any family: encoder-only reads src, decoder-only reads tgt."""
    out: Tensor = model(src, tgt) if isinstance(model, EncoderDecoder) else model(_own_input(model, src, tgt))
    return out


def _own_input(model: Model, src: Tensor, tgt: Tensor) -> Tensor:
    return src if isinstance(model, EncoderOnly) else tgt


def assert_close(actual: Tensor, expected: Tensor, atol: float, reason: str) -> None:
    """Fails when a number differs by more than atol in either direction, is not finite, or the shapes differ.

    Args:
        actual: What the code gave.
        expected: What is right.
        atol: Largest absolute difference that is allowed.
        reason: Why that much, shown on failure.
    """
    assert actual.shape == expected.shape, f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    actual, expected = actual.detach().double(), expected.detach().double()
    assert bool(actual.isfinite().all()), "not every number is finite"
    gap = (actual - expected).abs()
    worst = float(gap.max()) if gap.numel() else 0.0
    assert worst <= atol, f"largest difference {worst:.3g} > {atol:.3g} ({reason})"
