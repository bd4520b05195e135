"""`glassformer index`: the lines of a file as an index that can be searched."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

LINE_EVERY_S = 10.0  # seconds between lines of progress where there is no terminal


@click.command("index")
@click.argument("model", metavar="MODEL")
@click.argument("source", metavar="FILE")
@click.argument("out", type=click.Path(path_type=Path), metavar="INDEX")
@click.option("--width", type=int, metavar="N", help="Keep the first N features (see task.min_width).")
@click.option("--encoding", default=None, metavar="NAME", help="Character encoding of the input (utf-8).")
def command(model: str, source: str, out: Path, width: int | None, encoding: str | None) -> None:
    """Embed each line of FILE (- is standard input) with the model in the folder MODEL into the new folder INDEX.

    Blank lines are left out. An index that is not finished leaves nothing behind. Search it with `glassformer search`.
    """
    from glassformer.cli.embed import cut_warning
    from glassformer.cli.texts import lines_of
    from glassformer.tasks.index import build_index

    progress = _Progress()
    info = build_index(model, lines_of(source, encoding), out, width=width, on_progress=progress)
    progress.close()
    size_mb = 4e-6 * info["n_texts"] * info["width"]
    click.echo(
        f"{out}: {info['n_texts']:,} texts, {info['width']} features each ({size_mb:,.1f} MB). Left out: "
        f"{info['n_blank']:,} blank lines.",
        err=True,
    )
    cut_warning(info["n_cut"], info["max_tokens"], info["cut_lines"])


class _Progress:
    """The number of lines done and their rate: on one line of a terminal, or now and then as a line of its own."""

    def __init__(self) -> None:
        self._started = self._shown = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, n_lines: int) -> None:
        now = time.monotonic()
        if self._is_terminal or now - self._shown >= LINE_EVERY_S:
            self._shown = now
            text = f"{n_lines:,} lines, {n_lines / (now - self._started):,.0f} a second"
            click.echo(f"\r{text}" if self._is_terminal else text, err=True, nl=not self._is_terminal)

    def close(self) -> None:
        if self._is_terminal:
            click.echo("\r\x1b[K", err=True, nl=False)
