"""The folder of a training run: what was asked for, what was planned, and whether it is finished."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer import __version__
from glassformer.errors import ConfigError
from glassformer.resolve import Resolved
from glassformer.text.label_set import LabelSet
from glassformer.text.report import Report
from glassformer.training.checkpoint import explained, write_text

__all__ = ["RunFolder", "TrainingRequest"]


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """What the user asked for."""

    data: Sequence[str]
    out: Path
    resolved: Resolved
    valid: Sequence[str] = ()
    test: Sequence[str] = ()
    is_resumed: bool = False
    started: float = field(default_factory=time.monotonic)
    say: Callable[[str], None] = print
    show_report: Callable[[Report], None] = lambda report: None

    def elapsed_s(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self.started

    def chosen(self) -> dict[str, Any]:
        """The settings ("section.key") that the user chose, with their values."""
        config = self.resolved.config
        names = [name.split(".") for name, origin in self.resolved.origin.items() if origin != "default"]
        return {f"{section}.{key}": getattr(getattr(config, section), key) for section, key in names}

    def described(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed."""
        return {
            "data": list(self.data),
            "valid": list(self.valid),
            "test": list(self.test),
            "settings": self.chosen(),
        }


class RunFolder:
    """`run.json` and its folder. Opened for one request; another one is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / "data"
        self._file = path / "run.json"
        self._is_new = self._is_made = False  # run.json, and the folder itself, come from this object

    def open(self, request: TrainingRequest) -> None:
        """Makes the folder, or checks that the one that is there belongs to the same request.

        Raises:
            ConfigError: The folder holds another run, or other files.
        """
        wanted = request.described()
        if self._file.exists():
            self._require_same(request, wanted)
            return
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"--out {self.path} is a file.", "A folder was expected.", "Choose another name.")
        if self.path.is_dir() and any(not file.name.startswith(".") for file in self.path.iterdir()):
            raise ConfigError(
                f"--out {self.path} holds other files.",
                "A run needs a folder of its own, where it writes README.md, config.json, data/ and more.",
                "Choose a new name.",
            )
        self._is_new, self._is_made = True, not self.path.is_dir()
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self.save("request", wanted)

    def give_up(self) -> None:
        """Removes a new run whose request cannot be used, so that the mended command can take its name.

        A run that was there before, or has begun to train, stays.
        """
        if self._is_new and {file.name for file in self.path.iterdir()} <= {self._file.name, self.data.name}:
            shutil.rmtree(self.data, ignore_errors=True)
            self._file.unlink()
            if self._is_made:
                self.path.rmdir()

    def _require_same(self, request: TrainingRequest, wanted: dict[str, Any]) -> None:
        if not request.is_resumed:
            raise ConfigError(
                f"{self.path} holds a run already.",
                "A new run needs a folder of its own.",
                "Go on with --resume, or choose another --out.",
            )
        saved = self.saved("request") or {}
        changed = [key for key in wanted if json.loads(json.dumps(wanted[key])) != saved.get(key)]
        if changed:
            raise ConfigError(
                f"The run in {self.path} was begun with other {' and '.join(changed)}: "
                + "; ".join(f"{key} was {saved.get(key)}, is {wanted[key]}" for key in changed)
                + ".",
                "A run is resumed with the same command.",
                "Repeat the first command with --resume, or choose another --out.",
            )

    def saved(self, key: str) -> Any:
        """A part of `run.json`; None: it is not there yet."""
        return self._content().get(key)

    def labels(self) -> LabelSet | None:
        """The labels of the training data, where the task has any."""
        path = self.data / "labels.json"
        return LabelSet.load(path) if path.exists() else None

    def save(self, key: str, value: Any) -> None:
        """Writes a part of `run.json`."""
        content = self._content() or {"glassformer": __version__}
        write_text(self._file, json.dumps(content | {key: value}, indent=1))

    def _content(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._file.read_text(encoding="utf-8"))) if self._file.exists() else {}
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"{self._file} is damaged ({error}).", "JSON was expected.", "Start a new run."
            ) from error
