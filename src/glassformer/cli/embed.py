"""`glassformer embed`: one vector for each line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from glassformer.cli import precision_option
from glassformer.cli.texts import chunks_of, finished_file
from glassformer.errors import UserError


@click.command("embed")
@click.argument("model", metavar="MODEL")
@click.argument("source", metavar="[FILE]", default="-")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write here: .npy for an array [lines, features] of float32, .jsonl for JSON lines.",
)
@click.option("--width", type=int, metavar="N", help="Keep the first N features (see task.min_width).")
@precision_option
@click.option("--encoding", default=None, metavar="NAME", help="Character encoding of the input (utf-8).")
def command(
    model: str, source: str, output: Path | None, width: int | None, precision: Any, encoding: str | None
) -> None:
    """Embed each line of FILE (standard input when left out) with the model in the folder MODEL.

    Line n of the output belongs to line n of the input, blank lines too. Without --output, JSON lines with text and
    embedding go to standard output.
    """
    if output is not None and output.suffix not in (".npy", ".jsonl"):
        raise UserError(f"--output {output} ends in {output.suffix or 'nothing'}.", ".npy or .jsonl was expected.")
    from glassformer.tasks.embedder import Embedder

    embedder = Embedder.load(model, precision=precision)
    cut: list[int] = []
    with _writer(output, width or embedder.width) as write:
        first = 1
        for texts in chunks_of((), source, encoding):
            cut_here: list[int] = []
            write(texts, embedder.embed(texts, width=width, on_cut=cut_here.append))
            cut += [first + i for i in cut_here]
            first += len(texts)
    cut_warning(len(cut), embedder.max_tokens, cut)


def cut_warning(n_cut: int, max_tokens: int, lines: Sequence[int]) -> None:
    """Tells how many texts, and which first ones, were longer than the model reads."""
    if n_cut:
        shown = ", ".join(map(str, lines[:10])) + (", ..." if n_cut > 10 else "")
        click.echo(
            f"warning: {n_cut:,} texts have more than {max_tokens} tokens; only so many of each were read "
            f"(lines: {shown}).",
            err=True,
        )


@contextmanager
def _writer(output: Path | None, width: int) -> Iterator[Callable[[list[str], Any], object]]:
    """A function that writes texts with their vectors; a file takes its name when all is done."""
    if output is None:
        yield lambda texts, vectors: click.echo("".join(_json_lines(texts, vectors)), nl=False)
        return
    from glassformer.tasks.vector_file import VectorFile

    with finished_file(output) as path:
        if output.suffix == ".npy":
            with VectorFile(path, width) as array:
                yield lambda texts, vectors: array.append(vectors)
        else:
            with path.open("w", encoding="utf-8", newline="\n") as file:
                yield lambda texts, vectors: file.writelines(_json_lines(texts, vectors))


def _json_lines(texts: list[str], vectors: Any) -> Iterator[str]:
    """Nine digits bring a float32 back exactly."""
    for text, vector in zip(texts, vectors.tolist(), strict=True):
        numbers = [float(f"{number:.9g}") for number in vector]
        yield json.dumps({"text": text, "embedding": numbers}, ensure_ascii=False, allow_nan=False) + "\n"
