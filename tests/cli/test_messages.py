"""Whatever ends a command is one message that steers no terminal, without a traceback."""

from __future__ import annotations

from typing import Any

import click
import pytest

from glassformer import cli
from training.runs import run_cli


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("\x00\x07\x7f\x9b\r", "\\x00\\x07\\x7f\\x9b\\r"),
        ("half a pair \ud83d", "half a pair \\ud83d"),
        ("tab\tline\nété\u202f! 漢字 👩\u200d🚀 \u200f", "tab\tline\nété\u202f! 漢字 👩\u200d🚀 \u200f"),
    ],
)
def test_what_steers_a_terminal_is_escaped_and_text_is_left_alone(text: str, shown: str) -> None:
    assert cli.printable(text) == shown


def test_names_in_errors_are_escaped(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["info", "no\x1b[31msuch\x07model"], monkeypatch) == 2
    err = capfd.readouterr().err
    assert "no\\x1b[31msuch\\x07model" in err and "\x1b" not in err and "\x07" not in err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    ],
)
def test_too_little_memory_is_one_message(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fail_with(error, monkeypatch)
    assert run_cli(["info"], monkeypatch) == 1
    assert capfd.readouterr().err.startswith("error: There is not enough memory. ")
    with pytest.raises(type(error)):
        run_cli(["--debug", "info"], monkeypatch)


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(RuntimeError("shapes do not fit"), monkeypatch)
    with pytest.raises(RuntimeError, match="shapes"):
        run_cli(["info"], monkeypatch)


def fail_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    def command(*_: Any) -> click.Command:
        return click.Command("info", callback=fail)

    monkeypatch.setattr(cli.LazyGroup, "get_command", command)


def test_a_mistyped_command_is_told_its_neighbour(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["trian"], monkeypatch) == 2
    assert "No such command 'trian'. Did you mean 'train'?" in capfd.readouterr().err
