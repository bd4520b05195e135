"""The lesson: every command of its pages runs on a small model that was trained just before."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from glassformer.cli import cli

PAGES = Path(__file__).parents[2] / "docs" / "lesson"
TOPICS = ["tokens", "embedding", "attention", "heads", "residual", "feed-forward", "encoder", "decoder", "search"]
TOPICS += ["families"]


def commands() -> list[str]:
    """The command lines of all pages, each once."""
    found = []
    for page in [PAGES / "README.md", *(PAGES / f"{topic}.md" for topic in TOPICS)]:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            found += block.splitlines()
    return list(dict.fromkeys(found))


def test_each_topic_has_a_page_with_a_command_and_a_way_on() -> None:
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    for topic, after in zip(TOPICS, [*TOPICS[1:], "README"], strict=True):
        text = (PAGES / f"{topic}.md").read_text(encoding="utf-8")
        assert f"({topic}.md)" in index and f"({after}.md)" in text and "```sh" in text and "```text" in text


def test_every_picture_is_made_by_a_command_of_its_page() -> None:
    for topic in TOPICS:
        text = (PAGES / f"{topic}.md").read_text(encoding="utf-8")
        for name in re.findall(r"\(images/([\w.-]+)\)", text):
            assert f"--picture {name}" in text, (topic, name)


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_lesson_runs(line: str, trained_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained_folder)
    program, *arguments = shlex.split(line)
    assert program == "glassformer"
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    for option in ("--picture", "--html"):
        if option in arguments:
            assert Path(arguments[arguments.index(option) + 1]).stat().st_size > 500
