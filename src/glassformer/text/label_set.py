"""The labels that a model votes for, as they are kept beside it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from glassformer.errors import CheckpointError
from glassformer.text.tags import Scheme

__all__ = ["LabelSet"]


@dataclass(frozen=True)
class LabelSet:
    """The labels of a model: label i has the name `names[i]`. Learned from the training data, in the order of texts.

    Attributes:
        names: L names, sorted.
        counts: How many training texts, or words, have each of them.
        n_rows: Training texts, or words, in all.
        scheme: How tags of words mark entities; `none`: they do not, or the labels are those of texts.
        n_texts: Texts that are read together: 1, or 2 for pairs.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    n_rows: int
    scheme: Scheme = "none"
    n_texts: int = 1

    def __len__(self) -> int:
        return len(self.names)

    @property
    def index(self) -> dict[str, int]:
        """Name -> number."""
        return {name: i for i, name in enumerate(self.names)}

    def to_json(self) -> str:
        """The text of `labels.json`."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def load(cls, path: Path) -> LabelSet:
        """Reads `labels.json`.

        Raises:
            CheckpointError: The file is missing or damaged.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            names, counts = tuple(content["names"]), tuple(content["counts"])
            n_rows, scheme, n_texts = (content[key] for key in ("n_rows", "scheme", "n_texts"))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise _damaged(path, str(error)) from error
        is_right = len(names) == len(set(names)) == len(counts) > 0 and scheme in get_args(Scheme)
        if not is_right or not all(isinstance(name, str) for name in names):
            raise _damaged(path, "its labels are no list of different names")
        return cls(names, counts, n_rows, scheme, n_texts)


def _damaged(path: Path, how: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {how}.", "The labels of the model were expected.", "Restore the file.")
