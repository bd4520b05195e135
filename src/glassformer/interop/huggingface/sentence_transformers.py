"""Folders of sentence-transformers: an encoder, a pooling of its token vectors, and perhaps a normalisation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from glassformer.config import ModelConfig
from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.huggingface.files import read_json

__all__ = ["SentenceSettings", "read_sentence_settings", "write_sentence_settings"]

_KINDS = {
    "sentence_transformers.models.Transformer": "encoder",
    "sentence_transformers.base.modules.transformer.Transformer": "encoder",
    "sentence_transformers.models.Pooling": "pooling",
    "sentence_transformers.sentence_transformer.modules.pooling.Pooling": "pooling",
    "sentence_transformers.models.Normalize": "normalize",
    "sentence_transformers.sentence_transformer.modules.normalize.Normalize": "normalize",
}
Pooling = Literal["first", "mean", "max"]
_MODES: dict[str, Pooling] = {"cls": "first", "mean": "mean", "max": "max"}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class SentenceSettings:
    """How one vector is made of a text. `folder` is where the encoder lies."""

    folder: Path
    pooling: Pooling = "first"
    is_normalized: bool = False
    max_tokens: int | None = None


def read_sentence_settings(path: Path) -> SentenceSettings:
    """The modules of a sentence-transformers folder; defaults for any other folder.

    Raises:
        CheckpointError: A file is damaged.
        ConfigError: A module or pooling that is not built here.
    """
    listing = path / "modules.json"
    if not listing.is_file():
        return SentenceSettings(path)
    try:
        modules = [
            (_KINDS.get(each["type"], each["type"]), str(each["path"])) for each in json.loads(listing.read_text())
        ]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(
            f"{listing} cannot be read ({error!r}).", "A list of modules was expected.", "Copy the folder again."
        ) from error
    kinds = [kind for kind, _ in modules]
    if kinds not in (["encoder", "pooling"], ["encoder", "pooling", "normalize"]):
        raise ConfigError(
            f"{listing} lists the modules {', '.join(kinds)}.",
            "An encoder, a pooling and perhaps a normalisation are built here.",
            "A model with further modules cannot be imported.",
        )
    folder = path / modules[0][1]
    limits = folder / "sentence_bert_config.json"
    limits = limits if limits.is_file() else path / "sentence_bert_config.json"
    return SentenceSettings(
        folder=folder,
        pooling=_pooling(path / modules[1][1] / "config.json"),
        is_normalized="normalize" in kinds,
        max_tokens=read_json(limits).get("max_seq_length") if limits.is_file() else None,
    )


def _pooling(path: Path) -> Pooling:
    values = read_json(path)
    mode = values.get("pooling_mode")
    modes = [mode] if isinstance(mode, str) else [name for flag, name in _FLAGS.items() if values.get(flag)]
    if len(modes) != 1 or modes[0] not in _MODES:
        raise ConfigError(
            f"{path}: the pooling {' + '.join(map(str, modes)) or 'none'} is not built here.",
            "One of cls, mean and max was expected.",
            "This model cannot be imported.",
        )
    return _MODES[modes[0]]


def write_sentence_settings(config: ModelConfig, max_tokens: int, out: Path) -> None:
    """Writes the modules beside an encoder, so that sentence-transformers loads the folder."""
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")] + [("Normalize", "2_Normalize")] * config.is_normalized
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(kinds)
    ]
    mode = next(theirs for theirs, ours in _MODES.items() if ours == config.pooling)
    pooling: dict[str, Any] = {"word_embedding_dimension": config.d_model}
    pooling |= {flag: name == mode for flag, name in _FLAGS.items()}
    for _, path in kinds[1:]:
        (out / path).mkdir()
    for name, content in (
        ("modules.json", modules),
        ("sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False}),
        ("1_Pooling/config.json", pooling),
    ):
        (out / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
