"""`glassformer check`: terminal, JSON, picture and exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

CLEAN = "".join(f"this is row {i}\tceci est la {i}\n" for i in range(100))


def run(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "glassformer", "check", *args], input=stdin, capture_output=True)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.tsv"
    path.write_text(CLEAN, encoding="utf-8")
    return path


def test_terminal_and_picture(data: Path, tmp_path: Path) -> None:
    done = run(str(data), "--src", "en", "--tgt", "fr", "--picture", str(tmp_path / "lengths.svg"), "--strict")
    shown = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    assert "100 rows, 100 pairs read, 100 of them used" in shown
    assert "Nothing looks wrong." in shown and "█" in shown
    assert ElementTree.parse(tmp_path / "lengths.svg").getroot().tag.endswith("svg")


def test_findings_are_shown_escaped_and_strict_exits_with_one(data: Path) -> None:
    text = CLEAN + "[bold]a\x1b[31m\tb\nonly one column\n"
    data.write_text(text, encoding="utf-8")
    done = run(str(data))
    shown = done.stdout.decode()
    assert done.returncode == 0
    assert "\x1b[31m" not in shown and "[bold]a\\x1b[31m" in shown
    assert "1 with 1 column, first at" in shown.replace("\n", " ")
    assert run(str(data), "--strict").returncode == 1


def test_json_from_standard_input() -> None:
    done = run("-", "--json", stdin=CLEAN.encode())
    values = json.loads(done.stdout, parse_constant=pytest.fail)
    assert done.returncode == 0
    assert values["pairs"] == 100 and values["findings"] == []


def test_unusable_input_exits_with_two(data: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("a\n")
    (tmp_path / "latin.tsv").write_bytes(b"caf\xe9\tb\n")
    (tmp_path / "empty.tsv").write_text("")
    for args in (
        ["missing.tsv"],
        [str(data), str(tmp_path / "short.txt")],
        [str(tmp_path / "latin.tsv")],
        [str(tmp_path / "empty.tsv")],
    ):
        done = run(*args)
        assert done.returncode == 2
        assert done.stderr.decode().startswith("error: ") and b"Traceback" not in done.stderr
        assert done.stdout == b""
