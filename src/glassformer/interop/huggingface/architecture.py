"""What is written down for each architecture of Hugging Face."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.interop.huggingface.fields import Fields
from glassformer.interop.huggingface.table import Entry

__all__ = ["Architecture", "Tensors"]

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One `model_type`.

    Attributes:
        model_type: Its name in config.json.
        prefix: What stands before the names of the base model when a head is saved with it.
        fixed: Fields of ours that it has with one value.
        free: Fields of ours that it can hold with any value.
        read: Makes our config; the ids of special tokens are set by the caller.
        write: Makes config.json from ours, without the ids of special tokens.
        table: Names of tensors.
        left_out: Names (regular expressions) of tensors that have no place here, each with the reason.
        special: Names of its special tokens where the tokenizer's files do not say.
        computed: Tensors of theirs that follow from the config and are written all the same.
    """

    model_type: str
    prefix: str
    fixed: Mapping[str, Any]
    free: Collection[str]
    read: Callable[[Fields, Tensors], ModelConfig]
    write: Callable[[ModelConfig], dict[str, Any]]
    table: Callable[[ModelConfig], list[Entry]]
    left_out: Sequence[tuple[str, str]] = ()
    special: Mapping[str, str] = field(default_factory=dict)
    computed: Callable[[ModelConfig, Mapping[str, Any]], Tensors] = lambda config, written: {}
