"""The model that a run starts from: what the run takes over from it, and what may differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from glassformer.config import Config, ModelConfig
from glassformer.data.store import file_sha256
from glassformer.errors import ConfigError
from glassformer.model import Model
from glassformer.tasks.model_folder import SRC_TOKENIZER, TOKENIZER, WEIGHTS, ModelFolder, load_model_folder
from glassformer.text.label_set import LabelSet
from glassformer.training.finetuning import take_weights

__all__ = ["Start"]

# Fields of the architecture that may differ from the start's: dropout, and what stands on the model for one task.
DROPOUT, HEADS = ("dropout", "attention_dropout", "ffn_dropout"), ("head", "n_labels", "use_mlm_head", "use_pooler")
MODEL_MAY_DIFFER = frozenset([*DROPOUT, *HEADS, "pooling", "is_normalized", "n_segments", "use_bos"])
TOKENIZER_MAY_DIFFER = frozenset({"bpe_dropout", "n_variants"})


class Start:
    """A model folder, trained here or imported."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    @cached_property
    def folder(self) -> ModelFolder:
        """The loaded folder; see `load_model_folder` for the errors."""
        return load_model_folder(self.path)

    @cached_property
    def sha256(self) -> str:
        """Of the weights."""
        return file_sha256(self.path / WEIGHTS)

    def adapted(self, config: Config, chosen: Collection[str]) -> Config:
        """The settings of a run that starts here: those of the start where the user chose nothing.

        Taken over are the architecture, the vocabulary, the settings of generation and data.max_tokens, and for the
        same task the languages and the prefix.

        Raises:
            ConfigError: The user chose another architecture or vocabulary.
        """
        ours = self.folder.config
        _require_equal("model", config.model, ours.model, chosen, MODEL_MAY_DIFFER)
        _require_equal("tokenizer", config.tokenizer, ours.tokenizer, chosen, TOKENIZER_MAY_DIFFER)
        from_start = {"data": {"max_tokens"}, "task": set[str]()}
        if ours.task.name == config.task.name:
            from_start = {"data": {"max_tokens", "src", "tgt"}, "task": {"prefix"}}
        return replace(
            config,
            model=_taken_over("model", config.model, ours.model, chosen),
            tokenizer=_taken_over("tokenizer", config.tokenizer, ours.tokenizer, chosen),
            generation=_taken_over("generation", config.generation, ours.generation, chosen),
            data=_taken_over("data", config.data, ours.data, chosen, from_start["data"]),
            task=_taken_over("task", config.task, ours.task, chosen, from_start["task"]),
        )

    def copy_tokenizers(self, folder: Path) -> None:
        """Writes the start's tokenizers where a run keeps its own."""
        start = self.folder
        start.tokenizer.save(folder / TOKENIZER)
        if start.src_tokenizer is not start.tokenizer:
            start.src_tokenizer.save(folder / SRC_TOKENIZER)

    def fitted(self, fit: Callable[[ModelConfig], ModelConfig], model: ModelConfig) -> ModelConfig:
        """What the task makes of the architecture; ConfigError when it would be another one."""
        fitted, ours = fit(model), self.folder.config.model
        changed = {name: (value, getattr(ours, name)) for name, value in vars(fitted).items()}
        changed = {name: pair for name, pair in changed.items() if pair[0] != pair[1] and name not in MODEL_MAY_DIFFER}
        if changed:
            raise ConfigError(
                f"The task needs {_listed('model', changed)}.",
                "A run keeps the architecture of the model that it starts from.",
                f"Start from a model of another kind than {self.path}.",
            )
        return fitted

    def fill(self, model: Model, say: Callable[[str], None], labels: LabelSet | None = None) -> list[str]:
        """Gives the model the start's weights, says what was taken, and returns the names of what stays fresh.

        The votes for labels are taken over where both models have the same labels only: a vote for another one, be it
        of as many, means nothing.
        """
        start, theirs = self.folder.model, self.folder.labels
        are_same = labels is not None and theirs is not None and labels.names == theirs.names
        without = () if are_same and start.config.head == model.config.head else ("label_head.",)
        found = take_weights(model, dict(start.named_parameters()), str(self.path), without=without)
        del self.folder  # its weights are not needed twice
        say(
            f"Start: {self.path}, {len(found.taken)} tensors of weights (sha256 {self.sha256[:12]}). "
            f"Fresh: {', '.join(found.fresh) or 'nothing'}. Not used: {', '.join(found.unused) or 'nothing'}."
        )
        return found.fresh

    def require_same(self, saved: Mapping[str, Any] | None) -> None:
        """Raises ConfigError when a run that goes on was begun with other weights."""
        if saved is not None and saved["sha256"] != self.sha256:
            raise ConfigError(
                f"--from {self.path} has changed: its weights have the checksum {self.sha256[:12]}.",
                f"The run was begun with {saved['sha256'][:12]}.",
                "Restore the weights, or start a new run with another --out.",
            )


def _require_equal(section: str, wanted: Any, ours: Any, chosen: Collection[str], free: Collection[str]) -> None:
    names = [f.name for f in fields(ours) if f"{section}.{f.name}" in chosen and f.name not in free]
    changed = {name: (getattr(wanted, name), getattr(ours, name)) for name in names}
    changed = {name: pair for name, pair in changed.items() if pair[0] != pair[1]}
    if changed:
        raise ConfigError(
            f"{_listed(section, changed)}.",
            "A run keeps the architecture and the vocabulary of the model that it starts from.",
            f"Leave {' and '.join(f'{section}.{name}' for name in changed)} out (a preset sets several), or leave out "
            "--from.",
        )


def _listed(section: str, changed: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{section}.{name}={new} where the start has {old}" for name, (new, old) in changed.items())


def _taken_over(
    section: str, wanted: Any, ours: Any, chosen: Collection[str], names: Collection[str] | None = None
) -> Any:
    """The start's section (or some fields of it) with what the user chose."""
    if names is not None:
        return replace(wanted, **{name: getattr(ours, name) for name in names if f"{section}.{name}" not in chosen})
    kept = {f.name: getattr(wanted, f.name) for f in fields(ours) if f"{section}.{f.name}" in chosen}
    return replace(ours, **kept)
