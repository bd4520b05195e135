"""Terminal, JSON and page: three faces of one object."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from explain_models import CASES, IDS, TEXT, Page, content_of, explained, folder, page_of

from glassformer.cli import cli
from glassformer.errors import UserError
from glassformer.explain import explain
from tasks.small_models import save_folder

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "explain.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(tmp_path_factory.mktemp("explain") / "model")


def run(*arguments: object, catch: bool = True) -> Result:
    return CliRunner().invoke(cli, ["explain", *map(str, arguments)], catch_exceptions=catch)


def complaints(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """What a value has that its schema does not, and the other way round: types, required and unknown properties."""
    if "$ref" in schema:
        return complaints(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], where)
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool}
    allowed = schema.get("type", [])
    allowed = [allowed] if isinstance(allowed, str) else allowed
    if value is None:
        return [] if "null" in allowed or not allowed else [f"{where} is null"]
    if allowed and not any(isinstance(value, kinds[kind]) for kind in allowed if kind != "null"):
        return [f"{where} is a {type(value).__name__}, not {allowed}"]
    found = []
    if isinstance(value, dict) and "properties" in schema:
        found += [f"{where} lacks {name}" for name in schema.get("required", []) if name not in value]
        found += [f"{where}.{name} is not described" for name in value if name not in schema["properties"]]
        for name, part in schema["properties"].items():
            found += complaints(value[name], part, f"{where}.{name}") if name in value else []
    if isinstance(value, list) and "items" in schema:
        for item in value[:3]:
            found += complaints(item, schema["items"], f"{where}[]")
    return found


@pytest.mark.parametrize("case", IDS)
def test_json_is_what_the_schema_says(case: str) -> None:
    assert complaints(content_of(case), SCHEMA) == []
    assert all("values" in row for row in content_of(case)["steps"])


def test_json_without_every_number_is_what_the_schema_says_too() -> None:
    content = json.loads(explained("decoder-only").to_json())
    assert complaints(content, SCHEMA) == [] and not any("values" in row for row in content["steps"])


def test_the_check_of_the_schema_sees_what_is_wrong() -> None:
    content = json.loads(explained("masked-lm").to_json())
    del content["steps"][0]["delta"]
    content["steps"][1]["extra"] = content["text"] = 1
    assert len(complaints(content, SCHEMA)) == 3


def test_a_pattern_without_a_match_is_told_how_steps_are_named(model: Path) -> None:
    out = " ".join(run(model, TEXT, "--open", "encoder.9.*").output.split())
    assert "No step is named encoder.9.*. Steps have names such as" in out


def test_the_terminal_has_80_columns_and_opens_steps(model: Path) -> None:
    result = run(model, TEXT, "--open", "encoder.1.self.*", "--attention", "decoder.1.cross", "--words")
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= 80
    assert "Served = equation" in result.output and "rows are queries" in result.output
    assert "[B, H, S, S] = 1 4" in result.output and "softmax(scores) over the keys" in result.output


def test_the_command_writes_a_page_and_json(model: Path, tmp_path: Path) -> None:
    page, data = tmp_path / "page.html", tmp_path / "data.json"
    result = run(model, TEXT, "--html", page, "--json", data, "--full", "--why-not", "Nous mangeons.")
    assert result.exit_code == 0, result.output
    assert "Why not" in page.read_text(encoding="utf-8")
    assert json.loads(data.read_text(encoding="utf-8"))["views"]["why_not"]["reference"] == "Nous mangeons."


def test_json_goes_to_standard_output_and_the_table_to_standard_error(model: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(model)
    result = run(model, TEXT, "--json", "-", "--why-not", "Nous mangeons.")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["views"]["why_not"]["verdict"] in " ".join(result.stderr.split())
    assert "Served = equation" in result.stderr and not Path("-").exists()
    with pytest.raises(UserError, match="given 2 times"):
        run(model, TEXT, "--json", "-", "--html", "-", catch=False)


def test_an_explanation_without_views_has_the_same_rows_and_no_page() -> None:
    case, whole = CASES[0], explained(IDS[0])
    short = explain(folder(case[0], **case[1]), TEXT, with_views=False)
    assert short.views == {} and [row.delta for row in short.rows] == [row.delta for row in whole.rows]
    for face in (short.to_html, short.to_json, short._repr_html_):
        with pytest.raises(UserError, match="without views"):
            face()


@pytest.mark.parametrize(
    "arguments",
    [["--full"], ["--head", "1"], ["--attention", "encoder.9.self"], ["--head", "9", "--attention", "encoder.1.self"]],
)
def test_options_that_do_nothing_are_errors(model: Path, arguments: list[str]) -> None:
    result = run(model, TEXT, *arguments)
    assert result.exit_code != 0 and arguments[0] in str(result.exception)


def test_the_command_exits_with_1_when_the_served_path_is_off(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = folder()
    attention = broken.model.get_submodule("decoder.stack.blocks.0.self_attention")
    kernel = attention.kernel
    attention.kernel = lambda *tensors, **options: kernel(*tensors, **options) * 1.01  # type: ignore[operator, assignment, union-attr]
    monkeypatch.setattr("glassformer.tasks.model_folder.load_model_folder", lambda path: broken)
    result = run(model, TEXT)
    assert result.exit_code == 1 and "leaves the equations at decoder.1.self.context" in " ".join(result.output.split())


@pytest.mark.parametrize("case", IDS)
def test_the_page_needs_nothing_else(case: str) -> None:
    text, page = page_of(case), Page()
    page.feed(text)
    assert page.open == []
    assert all(source.startswith("data:") for source in page.loads)
    assert not re.search(r"https?://(?!www\.w3\.org)", text) and "@import" not in text
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert "key →" in text and "query →" in text and "prefers-color-scheme" in text


def test_text_of_the_user_stays_text() -> None:
    explanation = explain(folder(), '<script>alert(1)</script> & "x"\'')
    page = explanation.to_html()
    assert page.count("<script>") == 1 and "alert(1)</script>" not in page
    assert "&lt;script" in page


def test_notebooks_get_the_page_in_a_frame() -> None:
    shown = explained("decoder-only")._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "&lt;!doctype html&gt;" in shown
