"""The model folder: everything that a model needs, in files that are read without running anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from glassformer.allocator import give_back_freed_memory, keep_freed_memory
from glassformer.config import Config
from glassformer.errors import CheckpointError, TokenizerError
from glassformer.model import Model, build_model
from glassformer.model.quantized import Precision, with_precision
from glassformer.resolve import config_from_dict, config_to_dict
from glassformer.tasks.probe import PROBE
from glassformer.text.imported import load_tokenizer
from glassformer.text.label_set import LabelSet
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.checkpoint import load_state, load_tensors, save_tensors, write_text

__all__ = ["CONFIG", "ModelFolder", "load_config", "load_model_folder", "save_model_folder"]

CONFIG, GENERATION, METRICS, CARD = "config.json", "generation.json", "metrics.json", "README.md"
WEIGHTS, TOKENIZER, SRC_TOKENIZER = "model.safetensors", "tokenizer.json", "source_tokenizer.json"
LABELS = "labels.json"


@dataclass(frozen=True)
class ModelFolder:
    """A loaded model with all that belongs to it. `src_tokenizer` is `tokenizer` when the vocabulary is shared.

    `labels` are those of a model that votes for labels.
    """

    path: Path
    config: Config
    model: Model
    tokenizer: Tokenizer
    src_tokenizer: Tokenizer
    metrics: dict[str, Any]
    labels: LabelSet | None = None


def save_model_folder(
    path: Path,
    *,
    config: Config,
    weights: dict[str, Tensor],
    tokenizer: Tokenizer,
    src_tokenizer: Tokenizer,
    metrics: dict[str, Any],
    card: str,
    labels: LabelSet | None = None,
) -> None:
    """Writes a model folder, each file whole or not at all; figures and card come after the weights they tell of."""
    path.mkdir(parents=True, exist_ok=True)
    (path / PROBE).unlink(missing_ok=True)  # it would tell of other weights
    tokenizer.save(path / TOKENIZER)
    if src_tokenizer is not tokenizer:
        src_tokenizer.save(path / SRC_TOKENIZER)
    saved = config_to_dict(config)
    generation = saved.pop("generation")
    hashes = {"tokenizer": tokenizer.vocab_hash, "source_tokenizer": src_tokenizer.vocab_hash}
    write_text(path / CONFIG, _json(saved | {"vocab_sha256": hashes}))
    write_text(path / GENERATION, _json(generation))
    if labels is not None:
        write_text(path / LABELS, labels.to_json())
    save_tensors(path / WEIGHTS, weights, {"format": "pt"})
    write_text(path / METRICS, _json(metrics))
    write_text(path / CARD, card)


def load_config(path: Path) -> Config:
    """The config of a model folder alone; see `load_model_folder` for the errors."""
    if not (path / CONFIG).is_file():
        raise CheckpointError(
            f"{path} is no model folder: it has no {CONFIG}.",
            "A folder made by `glassformer train` was expected.",
            "Check the name; a run writes its model after its first validation.",
        )
    saved = _read_json(path / CONFIG) | {"generation": _read_json(path / GENERATION)}
    return config_from_dict(saved, f"{path / CONFIG} and {GENERATION}")


def load_model_folder(path: str | Path, *, precision: Precision = "float32") -> ModelFolder:
    """Loads a folder that `save_model_folder` wrote; see `with_precision` for the precision and its errors.

    Raises:
        CheckpointError: The folder or one of its files is missing, damaged, or does not fit the others.
        ConfigError: config.json or generation.json has a key that is unknown or a value that is wrong.
        TokenizerError: The tokenizer is not the one that the model was trained with.
    """
    keep_freed_memory()
    path = Path(path)
    config, hashes = load_config(path), _read_json(path / CONFIG).get("vocab_sha256")
    tokenizer = load_tokenizer(path / TOKENIZER)
    src_tokenizer = load_tokenizer(path / SRC_TOKENIZER) if (path / SRC_TOKENIZER).exists() else tokenizer
    _check_vocabulary("tokenizer", tokenizer, config.model.vocab_size, hashes)
    _check_vocabulary("source_tokenizer", src_tokenizer, config.model.source_vocab_size, hashes)
    with _Undrawn():
        model = build_model(config.model)
    # What is rounded next is read where it lies, in the mapped file: no copy of the weights in full is ever held.
    is_rounded = precision != "float32"
    load_state(model, load_tensors(path / WEIGHTS), str(path / WEIGHTS), is_shared=is_rounded)
    metrics = _read_json(path / METRICS) if (path / METRICS).exists() else {}
    labels = None if config.model.head == "none" else _labels(path / LABELS, config.model.n_labels)
    model = with_precision(model.eval(), precision)
    if is_rounded:
        for parameter in model.parameters():  # the file may be replaced while the model is in use
            parameter.data = parameter.detach().clone()
    give_back_freed_memory()
    return ModelFolder(path, config, model, tokenizer, src_tokenizer, metrics, labels)


class _Undrawn(TorchFunctionMode):
    """Random numbers are not drawn: for weights that a file replaces, which must be all of them."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in (Tensor.uniform_, Tensor.normal_, nn.init.kaiming_uniform_, nn.init.uniform_, nn.init.normal_):
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def _labels(path: Path, n_labels: int) -> LabelSet:
    labels = LabelSet.load(path)
    if len(labels) != n_labels:
        raise CheckpointError(
            f"{path} has {len(labels)} labels and the model votes for {n_labels}.",
            "Every vote needs a name.",
            "Restore the file of this model.",
        )
    return labels


def _check_vocabulary(name: str, tokenizer: Tokenizer, n_rows: int, hashes: Any) -> None:
    if tokenizer.vocab_size > n_rows:
        raise TokenizerError(
            f"The {name} has {tokenizer.vocab_size} entries and the model {n_rows} rows.",
            "Every id needs a row.",
            "Use the tokenizer that the model was trained with.",
        )
    if not isinstance(hashes, dict) or hashes.get(name) != tokenizer.vocab_hash:
        raise TokenizerError(
            f"The {name} is not the one that the model was trained with (its vocabulary has another checksum).",
            "The entries and their order must be the same.",
            "Restore the tokenizer file of this model.",
        )


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}).", "A JSON file was expected.", "Restore it from a copy."
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object.", "One was expected.", "Restore it from a copy.")
    return content
