"""The one tree of errors. A message says what is wrong, what was expected, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "GenerationError",
    "GlassformerError",
    "LengthError",
    "TokenizerError",
    "TrainingError",
    "UserError",
    "suggestion",
]


class GlassformerError(Exception):
    """Base of every error that glassformer raises on purpose.

    Args:
        what: What is wrong, with the name as the user typed it and the value.
        expected: What was expected.
        remedy: What to do.
    """

    exit_code = 1

    def __init__(self, what: str, expected: str = "", remedy: str = "") -> None:
        self.what, self.expected, self.remedy = what, expected, remedy
        super().__init__(" ".join(part for part in (what, expected, remedy) if part))


class UserError(GlassformerError):
    """Something the user gave (a file, an option, a value) cannot be used. Exit code 2."""

    exit_code = 2


class ConfigError(UserError, ValueError):
    """A configuration key or value is unknown, of the wrong type, or contradicts another."""


class DataError(UserError, ValueError):
    """An input file is missing, damaged, wrongly encoded, or does not fit its partner."""


class TokenizerError(UserError, ValueError):
    """A tokenizer cannot be trained, loaded, or does not belong to the model."""


class LengthError(UserError, ValueError):
    """A sequence is longer than the model allows."""


class CheckpointError(UserError, ValueError):
    """A model folder or checkpoint is missing, damaged, or of another shape."""


class GenerationError(GlassformerError, RuntimeError):
    """Decoding cannot go on, for example because logits are not finite. Exit code 1."""


class TrainingError(GlassformerError, RuntimeError):
    """Training cannot go on, for example because the loss stays non-finite. Exit code 1."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns `Did you mean 'x'?` for the nearest known name, or the list of known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known names: {', '.join(names)}."
