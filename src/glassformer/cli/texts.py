"""Texts in and out: those of the command line, of a file or of standard input; to standard output or a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click

from glassformer.errors import UserError

CHUNK_LINES = 1000  # lines read, worked on and written together


def chunks_of(
    texts: tuple[str, ...], source: str | None, encoding: str | None = None, size: int = CHUNK_LINES
) -> Iterator[list[str]]:
    """TEXTs, or the lines of a file or (`-`, or nothing) of standard input, in lists of up to `size`.

    What is typed at a terminal comes line by line, so that each is answered at once.

    Raises:
        UserError: There are texts and a source.
    """
    if texts and source:
        raise UserError(
            "Texts and --input were given.", "One of them was expected.", "Leave out --input, or the texts."
        )
    if texts:
        return _chunks(map(from_argument, texts), size)
    if source in (None, "-") and sys.stdin.isatty():
        click.echo("A line is answered when Enter is pressed; Ctrl-D (Windows: Ctrl-Z, Enter) ends.", err=True)
        return _chunks((line.rstrip("\r\n") for line in iter(sys.stdin.readline, "")), 1)
    return _chunks(lines_of(source or "-", encoding), size)


def lines_of(source: str, encoding: str | None) -> Iterator[str]:
    """The lines of a file, or of standard input for `-`."""
    from glassformer.config import DataConfig
    from glassformer.text.lines import read_lines

    return read_lines(source, encoding=encoding or DataConfig().encoding)


def _chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    while chunk := list(islice(lines, size)):
        yield chunk


def from_argument(text: str) -> str:
    """A text of the command line; where the locale is not UTF-8, Python has kept its bytes as half surrogate pairs."""
    try:
        return os.fsencode(text).decode("utf-8") if any("\udc80" <= char <= "\udcff" for char in text) else text
    except UnicodeError as error:
        raise UserError(f"{text!a} is not UTF-8.", "UTF-8 was expected.", "Check the terminal.") from error


@contextmanager
def finished_file(output: Path) -> Iterator[Path]:
    """Where to write a file that takes the name `output` when all is done, and is gone when that fails.

    A link stays, and what it names is written; so is a device or a pipe, as it comes.

    Raises:
        UserError: It cannot be written.
    """
    is_special = output.exists() and not output.is_file()
    target = output if is_special else output.resolve()
    partial = output if is_special else target.with_name(f".{target.name}.partial")
    try:
        yield partial
        if not is_special:
            partial.replace(target)
    except OSError as error:
        raise UserError(
            f"{output} cannot be written ({error.strerror}).", "A writable file was expected.", "Choose another one."
        ) from error
    finally:
        if not is_special:
            partial.unlink(missing_ok=True)


@contextmanager
def text_writer(output: Path | None) -> Iterator[Callable[[str], None]]:
    """Writes lines to standard output, or to a file that takes its name when all is done."""
    if output is None:
        yield lambda text: click.echo(text)
        return
    with finished_file(output) as path, path.open("w", encoding="utf-8", newline="\n") as file:
        yield lambda text: _write(file, text)


def _write(file: Any, text: str) -> None:
    file.write(text + "\n")


def one_line(text: str) -> str:
    """The text without characters that end a line, so that output stays line for line."""
    return text.replace("\r", " ").replace("\n", " ")
