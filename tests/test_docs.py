"""The documentation holds: its Python runs, links lead somewhere, commands and options exist, settings are known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner

from glassformer.cli import COMMANDS, cli
from glassformer.config import Task
from glassformer.errors import ConfigError
from glassformer.resolve import resolve

ROOT = Path(__file__).parent.parent
FAULTS = ROOT / "docs" / "faults.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").glob("*.md")])


@pytest.mark.parametrize("page", ["docs/tutorial.md", "README.md"])
def test_python_of_a_page_runs_from_top_to_bottom(
    page: str, capsys: pytest.CaptureFixture[str], trained_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained_folder)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)  # the project's own pages


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_settings_named_in_the_pages_are_known() -> None:
    pattern = r"--set ((?!section\.)[a-z_]+\.[a-z_0-9]+=[^\s`]+)"  # section.key=value stands for any of them
    for page in PAGES:
        for setting in re.findall(pattern, page.read_text(encoding="utf-8")):
            refusals = [error for task in get_args(Task) if (error := refusal(setting, task)) is not None]
            assert len(refusals) < len(get_args(Task)), (page.name, refusals[0])


def refusal(setting: str, task: str) -> ConfigError | None:
    """Why a task does not take a setting; with a start, which frozen parts and adapters need."""
    try:
        resolve(None, None, [setting], {"task.start": "a model", "task.name": task})
    except ConfigError as error:
        return error
    return None


def test_tests_named_in_the_list_of_faults_exist() -> None:
    cells = re.findall(r"`(\S*test_\w+\.py)` ((?:test_\w+(?:, )?)+)", FAULTS.read_text(encoding="utf-8"))
    assert len(cells) > 100
    for file, names in cells:
        defined = re.findall(r"^def (test_\w+)\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert set(names.split(", ")) - {""} <= set(defined), (file, names)


def test_options_named_in_the_pages_exist() -> None:
    pattern = re.compile(r"(?:^|`)\s*(?:\S*/)?glassformer ([a-z-]+)([^`\n|]*)", re.MULTILINE)
    for page in PAGES:
        for name, rest in pattern.findall(page.read_text(encoding="utf-8")):
            if name not in COMMANDS:
                continue
            options = {opt for param in cli.get_command(None, name).params for opt in param.opts}  # type: ignore[union-attr, arg-type]
            assert set(re.findall(r"--[a-z-]+", rest)) <= options | {"--help"}, (page.name, name, rest)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0 and "Usage" in result.output
