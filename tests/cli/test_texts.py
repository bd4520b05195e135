"""Texts in: from the command line, a pipe, or typed at a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from glassformer.cli.texts import CHUNK_LINES, chunks_of
from glassformer.errors import UserError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_typed_line_is_given_on_before_the_next_one_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal("one\ntwo\n")
    monkeypatch.setattr(sys, "stdin", terminal)
    chunks = chunks_of((), None)
    assert "Ctrl-D" in capsys.readouterr().err
    assert next(chunks) == ["one"]
    assert terminal.read() == "two\n"


def test_arguments_and_pipes_come_in_large_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"line {i}" for i in range(CHUNK_LINES + 1)]
    assert [len(chunk) for chunk in chunks_of(tuple(lines), None)] == [CHUNK_LINES, 1]
    pipe = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()))
    monkeypatch.setattr(sys, "stdin", pipe)
    chunks = list(chunks_of((), "-"))
    assert [len(chunk) for chunk in chunks] == [CHUNK_LINES, 1]
    assert [line for chunk in chunks for line in chunk] == lines


def test_texts_and_a_file_are_too_much() -> None:
    with pytest.raises(UserError, match="Texts and --input were given"):
        chunks_of(("one",), "file.txt")
