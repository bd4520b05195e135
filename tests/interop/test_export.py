"""The frame of an export: nothing that differs is put in place, the folder stands alone, its README runs as written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from export_models import folder_of, small_models

from glassformer.cli.export import command
from glassformer.errors import DataError, GlassformerError, UserError
from glassformer.interop import export as frame
from glassformer.interop import refusal
from glassformer.interop.comparison import check_rows, compare, values_of_model
from glassformer.interop.ctranslate2 import export_ctranslate2
from glassformer.interop.export import export
from glassformer.interop.export_readme import readme
from glassformer.interop.refusal import ExportError, RefusedExport
from glassformer.tasks.model_folder import ModelFolder
from glassformer.tasks.translator import Translator

pytest.importorskip("ctranslate2")


@pytest.fixture
def check(tmp_path: Path) -> Path:
    file = tmp_path / "check.txt"
    file.write_text("yes\nThe cat eats the bread.\n", encoding="utf-8")
    return file


def damaged(folder: ModelFolder, out: Path, *, quantize: str | None = None) -> None:
    """Writes an export of a model whose fourth feature of one norm is a hundredth off."""
    other = folder_of("encoder-decoder")
    with torch.no_grad():
        other.model.decoder.stack.norm.gamma[3] += 0.01  # type: ignore[union-attr]
    export_ctranslate2(other, out, quantize=quantize)


def test_an_export_that_differs_is_not_written(tmp_path: Path, check: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "export_ctranslate2", damaged)
    with pytest.raises(ExportError, match=r"differs from the model: log-probabilities by up to .* first at 'yes'"):
        export(folder_of("encoder-decoder"), tmp_path / "out", to="ctranslate2", check=check)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["check.txt"]
    assert ExportError.exit_code == 1


def test_a_good_export_stands_alone(tmp_path: Path, check: Path) -> None:
    folder = small_models.save_folder(tmp_path / "model")
    out = tmp_path / "out"
    result = CliRunner().invoke(command, [str(folder), str(out), "--to", "ctranslate2", "--check", str(check)])
    assert result.exit_code == 0, result.output
    assert "same greedy output: 4 of 4" in result.output
    assert {path.name for path in out.iterdir()} == {
        "README.md",
        "config.json",
        "export.json",
        "generation.json",
        "model.bin",
        "shared_vocabulary.json",
        "tokenizer.json",
    }
    report = json.loads((out / "export.json").read_text(encoding="utf-8"))
    assert report["comparison"]["is_same"] and report["comparison"]["max_difference"] < 1e-4
    assert set(report["versions"]) == {"glassformer", "torch", "ctranslate2"}
    again = CliRunner().invoke(command, [str(folder), str(out), "--to", "ctranslate2"])
    assert isinstance(again.exception, UserError) and "is there already" in str(again.exception)


def readme_output(out: Path, code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=out, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("alpha", [0.6, 0.0])
def test_the_readme_of_a_translator_gives_our_translation(alpha: float, tmp_path: Path, check: Path) -> None:
    settings = small_models.config()
    settings = replace(settings, generation=replace(settings.generation, alpha=alpha))
    model = small_models.save_folder(tmp_path / "model", settings=settings)
    export(model, tmp_path / "out", to="ctranslate2", check=check)
    [code] = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(encoding="utf-8"), re.S)
    [expected] = Translator.load(model).translate(["We eat bread."])
    assert readme_output(tmp_path / "out", code) == expected.text + "\n"


@pytest.mark.parametrize("family", ["decoder-only", "encoder-only"])
def test_the_readme_of_the_other_families_runs(family: str, tmp_path: Path, check: Path) -> None:
    export(folder_of(family), tmp_path / "out", to="ctranslate2", quantize="int8", check=check)
    [code] = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(encoding="utf-8"), re.S)
    assert readme_output(tmp_path / "out", code).strip()


@pytest.mark.parametrize("family", ["encoder-decoder", "decoder-only", "encoder-only"])
@pytest.mark.parametrize("to", ["onnx", "huggingface"])
def test_other_readmes_are_valid_python(family: str, to: str) -> None:
    [code] = re.findall(r"```python\n(.*?)```", readme(folder_of(family), to, None), re.S)
    compile(code, "README.md", "exec")


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"positions": "alibi"}, {"to": "ctranslate2"}, "positions=alibi: its encoder has no ALiBi"),
        ({}, {"to": "huggingface", "quantize": "int8"}, "--quantize int8 with --to huggingface"),
    ],
)
def test_what_an_engine_cannot_express_is_refused(
    changes: dict[str, Any], options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(RefusedExport, match=re.escape(words)):
        export(folder_of("encoder-decoder", **changes), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists() and RefusedExport.exit_code == 2


def test_heads_that_are_left_out_are_named(tmp_path: Path, check: Path) -> None:
    said: list[str] = []
    folder = folder_of("encoder-only", use_mlm_head=True, pooling="mean")
    export(folder, tmp_path / "out", to="ctranslate2", check=check, say=said.append)
    assert any("not written: use_mlm_head, pooling" in line for line in said)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(refusal.EXTRAS, "ctranslate2", ("no_such_module",))
    with pytest.raises(GlassformerError, match=r"no_such_module .* pip install 'glassformer\[ctranslate2\]'"):
        refusal.require_extra("ctranslate2")


def test_check_files_that_are_missing_or_empty(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    for name in ("missing.txt", "empty.txt"):
        with pytest.raises(DataError, match=name):
            export(folder_of("encoder-decoder"), tmp_path / "out", to="ctranslate2", check=tmp_path / name)


def test_numbers_that_are_not_finite_are_a_difference(check: Path, tmp_path: Path) -> None:
    folder = folder_of("encoder-only")
    rows = check_rows(folder, check)

    class Broken:
        def values(self, rows: Any) -> Any:
            return [values * float("nan") for values in values_of_model(folder, rows)]

        def greedy(self, rows: Any) -> None:
            return None

    comparison = compare(folder, Broken(), rows, is_int8=False)
    assert not comparison.is_same and comparison.first_difference == "yes"
    assert not compare(folder, Broken(), rows, is_int8=True).is_same
