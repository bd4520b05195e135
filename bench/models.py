"""The models that are measured: sizes, random weights, and the same weights on disk for every engine.

What builds or loads a model of the product is imported where that is done: the processes of the peers do without.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import training_peers

from glassformer.config import Config, ModelConfig
from glassformer.presets import PRESETS

if TYPE_CHECKING:
    from glassformer.tasks.model_folder import ModelFolder

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
N_IDS = 1000  # of the tokenizer of random models; rows of the tables beyond it are unused
OURS = "glassformer"  # the folder of the product's own format
PRECISIONS = ("float32", "int8", "bf16")  # the product's ways to run a model
PEERS = ("transformers", "transformers-bf16", "ctranslate2", "ctranslate2-int8")

W = TypeVar("W")


def ours_of(ways: Iterable[str]) -> list[str]:
    return [way for way in ways if way in PRECISIONS]


def engine_of(way: str) -> str:
    """The folder that a way loads."""
    return OURS if way in PRECISIONS else way.removesuffix("-bf16")


def library_of(way: str) -> str:
    """What a way imports."""
    return "glassformer.tasks" if way in PRECISIONS else engine_of(way).partition("-")[0]


def load(
    way: str,
    work: Path,
    *,
    ours: Callable[[Path, str], W],
    transformers: Callable[[Path, torch.dtype], W],
    ctranslate2: Callable[[Path], W],
) -> W:
    """A way from the folder of its engine: made of (folder, precision), (folder, dtype) or (folder)."""
    path = work / engine_of(way)
    if way in PRECISIONS:
        return ours(path, way)
    if way.startswith("transformers"):
        return transformers(path, torch.bfloat16 if way.endswith("bf16") else torch.float32)
    return ctranslate2(path)


def model_config(size: str, **changes: Any) -> ModelConfig:
    """An encoder-decoder of a size, without dropout."""
    return ModelConfig(**(SIZES[size] | {"dropout": 0.0} | changes))


def random_folder(config: ModelConfig) -> ModelFolder:
    """A model with random weights and a tokenizer whose vocabulary is filled up with unused entries."""
    from glassformer.model import build_model
    from glassformer.phrasebook import generate as phrases
    from glassformer.tasks.model_folder import ModelFolder
    from glassformer.text.tokenizer import Tokenizer

    torch.manual_seed(1)
    full = Config(model=config)
    texts = [text for _, pair in zip(range(2000), phrases(2000, 1), strict=False) for text in pair]
    tokenizer = Tokenizer.train(texts, full.tokenizer, vocab_size=N_IDS)
    return ModelFolder(Path(), full, build_model(config).eval(), tokenizer, tokenizer, {})


def write(folder: ModelFolder, work: Path, engines: set[str]) -> None:
    """The model in `work`, for each engine: `glassformer`, `transformers`, `ctranslate2`, `-int8`, `torch.nn`."""
    from glassformer.interop.ctranslate2 import export_ctranslate2
    from glassformer.interop.huggingface import export_huggingface
    from glassformer.tasks.model_folder import save_model_folder

    for engine in engines:
        out = work / engine
        out.mkdir(parents=True)
        if engine == OURS:
            weights = {name: parameter.detach() for name, parameter in folder.model.named_parameters()}
            parts = {"tokenizer": folder.tokenizer, "src_tokenizer": folder.src_tokenizer}
            save_model_folder(out, config=folder.config, weights=weights, metrics={}, card="", **parts)
        elif engine == "transformers":
            export_huggingface(folder, out)
        elif engine == "torch.nn":
            training_peers.write_torch_nn(folder.model, out)
        else:
            export_ctranslate2(folder, out, quantize=engine.partition("-")[2] or None)


def config_of(work: Path) -> ModelConfig:
    """The architecture of the model in `work`."""
    saved = json.loads((work / OURS / "config.json").read_text(encoding="utf-8"))
    return ModelConfig(**saved["model"])


def vocabulary_of(path: Path, side: str = "target") -> list[str]:
    """The names of the ids in a folder of CTranslate2."""
    files = (path / name for name in (f"{side}_vocabulary.json", "shared_vocabulary.json", "vocabulary.json"))
    names: list[str] = json.loads(next(file for file in files if file.exists()).read_text(encoding="utf-8"))
    return names
