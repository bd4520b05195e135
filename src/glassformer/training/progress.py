"""What a run shows while it goes: a bar or plain lines, log.jsonl always, a learning curve, TensorBoard on request."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from glassformer.errors import ConfigError
from glassformer.svg import line_chart
from glassformer.training.checkpoint import explained, write_text

__all__ = ["RunLog", "StatusBar", "duration"]

LINE_EVERY_S = 15.0  # between plain lines when the output is no terminal


def duration(seconds: float) -> str:
    """Seconds in words: 42 s, 3 min 20 s, 2 h 05 min."""
    s = round(seconds)
    if s < 60:
        return f"{s} s"
    return f"{s // 60} min {s % 60:02} s" if s < 3600 else f"{s // 3600} h {s % 3600 // 60:02} min"


class _Writer(Protocol):
    def add_scalar(self, tag: str, value: float, step: int) -> None: ...


class RunLog:
    """log.jsonl of a run: one JSON object a line, with the update it belongs to."""

    def __init__(self, folder: Path, *, is_main: bool, use_tensorboard: bool = False, name: str = "log.jsonl") -> None:
        self.path = folder / name
        self.is_main = is_main
        self._writer: _Writer | None = _tensorboard(folder) if use_tensorboard and is_main else None

    def rewind(self, update: int, group: int) -> None:
        """Drops the lines after an update and a group, so that a resumed run leaves no gap and no line twice."""
        if self.is_main and self.path.exists():
            kept = [
                entry
                for entry in self.read()
                if entry.get("update", update + 1) <= update and entry.get("group", 0) <= group
            ]
            write_text(self.path, "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in kept))

    def write(self, event: str, **values: Any) -> None:
        """Adds one line; figures that are not finite become null."""
        if not self.is_main:
            return
        entry = {"event": event, **{k: _finite(v) for k, v in values.items()}}
        with explained(self.path), self.path.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n")
        if self._writer is not None:
            for name, value in values.items():
                if isinstance(value, int | float) and name != "update":
                    self._writer.add_scalar(f"{event}/{name}", value, int(values.get("update", 0)))

    def read(self) -> list[dict[str, Any]]:
        """All lines; one that a kill has cut is left out."""
        entries = []
        for line in self.path.read_text(encoding="utf-8").split("\n") if self.path.exists() else []:
            try:
                entries.append(json.loads(line))
            except ValueError:
                continue
        return entries

    def draw(self, path: Path) -> None:
        """The learning curve as a picture."""
        entries = self.read()

        def series(event: str, key: str) -> list[tuple[float, float]]:
            rows = [entry for entry in entries if entry["event"] == event and entry.get(key) is not None]
            return [(row["update"], row[key]) for row in rows]

        curves = {"training": series("train", "nll"), "validation": series("validation", "loss")}
        picture = line_chart(curves, title="Learning curve", x_label="update", y_label="nats per target token")
        write_text(path, picture)


class StatusBar:
    """A bar in a terminal, a plain line now and then elsewhere."""

    def __init__(self, *, is_shown: bool, describe: Callable[[], str]) -> None:
        self._describe = describe
        self._last_line = time.monotonic()
        self.is_shown = is_shown
        self.console = Console(stderr=True, quiet=not is_shown, highlight=False)
        self._bar: Progress | None = None
        if is_shown and sys.stderr.isatty():
            columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._task = self._bar.add_task("", total=1.0)
            self._bar.start()

    def update(self, progress: float) -> None:
        """Shows how far the run is, 0 .. 1."""
        if self._bar is not None:
            self._bar.update(self._task, completed=progress, description=self._describe())
        elif time.monotonic() - self._last_line > LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.print(f"{progress:5.1%}  {self._describe()}")

    def print(self, *lines: str) -> None:
        """Prints lines above the bar."""
        for line in lines:
            self.console.print(line, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, Iterable) and not isinstance(value, str) else value


def _tensorboard(folder: Path) -> _Writer:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "training.use_tensorboard=true, and tensorboard is not installed.",
            "It is an extra.",
            "Run `pip install 'glassformer[tensorboard]'`, or leave the switch off.",
        ) from error
    writer: _Writer = SummaryWriter(folder / "tensorboard")
    return writer
