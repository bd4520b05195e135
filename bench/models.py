"""The models that are measured: sizes, random weights, and the same weights on disk for every engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from glassformer.config import Config, ModelConfig
from glassformer.interop.ctranslate2 import export_ctranslate2
from glassformer.interop.huggingface import export_huggingface
from glassformer.model import build_model
from glassformer.phrasebook import generate as phrases
from glassformer.presets import PRESETS
from glassformer.tasks.model_folder import ModelFolder, save_model_folder
from glassformer.text.tokenizer import Tokenizer

SIZES: dict[str, dict[str, Any]] = {
    "base": {
        "vocab_size": 32_000,
        "d_model": 512,
        "d_ff": 2048,
        "n_heads": 8,
        "n_encoder_layers": 6,
        "n_decoder_layers": 6,
    },
    "small": PRESETS["small"],
    "deep": {
        "vocab_size": 32_000,
        "d_model": 512,
        "d_ff": 2048,
        "n_heads": 8,
        "n_encoder_layers": 10,
        "n_decoder_layers": 2,
    },
    "big": {
        "vocab_size": 32_000,
        "d_model": 1024,
        "d_ff": 4096,
        "n_heads": 16,
        "n_encoder_layers": 6,
        "n_decoder_layers": 6,
    },
    "least": {  # to see whether a script runs
        "vocab_size": 1200,
        "d_model": 32,
        "d_ff": 64,
        "n_heads": 2,
        "n_encoder_layers": 1,
        "n_decoder_layers": 1,
    },
}
OURS = "glassformer"  # the folder of the product's own format
PRECISIONS = ("float32", "int8", "bf16")  # the product's ways to run a model
PEERS = ("transformers", "transformers-bf16", "ctranslate2", "ctranslate2-int8")

W = TypeVar("W")


def engine_of(way: str) -> str:
    """The folder that a way loads."""
    return OURS if way in PRECISIONS else way.removesuffix("-bf16")


def load(
    way: str,
    work: Path,
    *,
    ours: Callable[[Path, str], W],
    transformers: Callable[[Path, torch.dtype], W],
    ctranslate2: Callable[[Path, Path], W],
) -> W:
    """A way from the folder of its engine: made of (folder, precision), (folder, dtype) or (folder, our own folder)."""
    path = work / engine_of(way)
    if way in PRECISIONS:
        return ours(path, way)
    if way.startswith("transformers"):
        return transformers(path, torch.bfloat16 if way.endswith("bf16") else torch.float32)
    return ctranslate2(path, work / OURS)


def model_config(size: str, **changes: Any) -> ModelConfig:
    """An encoder-decoder of a size, without dropout."""
    return ModelConfig(**(SIZES[size] | {"dropout": 0.0} | changes))


def random_folder(config: ModelConfig) -> ModelFolder:
    """A model with random weights and a tokenizer whose vocabulary is filled up with unused entries."""
    torch.manual_seed(1)
    full = Config(model=config)
    texts = [text for _, pair in zip(range(2000), phrases(2000, 1), strict=False) for text in pair]
    tokenizer = Tokenizer.train(texts, full.tokenizer, vocab_size=1000)
    return ModelFolder(Path(), full, build_model(config).eval(), tokenizer, tokenizer, {})


def write(folder: ModelFolder, work: Path, engines: set[str]) -> None:
    """The model in `work`, for each of the engines `glassformer`, `transformers`, `ctranslate2`, `ctranslate2-int8`."""
    for engine in engines:
        out = work / engine
        out.mkdir()
        if engine == OURS:
            weights = {name: parameter.detach() for name, parameter in folder.model.named_parameters()}
            parts = {"tokenizer": folder.tokenizer, "src_tokenizer": folder.src_tokenizer}
            save_model_folder(out, config=folder.config, weights=weights, metrics={}, card="", **parts)
        elif engine == "transformers":
            export_huggingface(folder, out)
        else:
            export_ctranslate2(folder, out, quantize=engine.partition("-")[2] or None)
