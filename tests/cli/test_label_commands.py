"""`glassformer classify` and `glassformer label`: lines in, lines out."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from glassformer.config import Config, DataConfig, TaskConfig
from glassformer.model import EncoderOnly
from glassformer.tasks.model_folder import save_model_folder
from tasks import label_models
from tasks.small_models import LONG, tokenizer
from training.runs import run_cli


def saved(path: Path, model: EncoderOnly, labels: Any, *, task: TaskConfig, max_tokens: int = 40) -> Path:
    save_model_folder(
        path,
        config=Config(model=model.config, task=task, data=DataConfig(max_tokens=max_tokens)),
        weights={name: p.detach() for name, p in model.named_parameters()},
        tokenizer=tokenizer(),
        src_tokenizer=tokenizer(),
        metrics={},
        card="",
        labels=labels,
    )
    return path


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("models")
    one, pairs, many = (
        label_models.classifier(),
        label_models.classifier(n_texts=2),
        label_models.classifier(is_multi_label=True),
    )
    words, parts = label_models.labeller(), label_models.labeller(scheme="none")
    task, multi = TaskConfig(name="classify"), TaskConfig(name="classify", is_multi_label=True)
    label = TaskConfig(name="label")
    made = {
        "one": saved(root / "one", one.model, one.labels, task=task, max_tokens=12),
        "pairs": saved(root / "pairs", pairs.model, pairs.labels, task=task),
        "many": saved(root / "many", many.model, many.labels, task=multi),
        "words": saved(root / "words", words.model, words.labels, task=label),
        "parts": saved(root / "parts", parts.model, parts.labels, task=label),
    }
    return {name: str(path) for name, path in made.items()}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs a command with a text on standard input; returns exit code, output and errors."""

    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = run_cli(list(arguments), monkeypatch)
        out, err = capfd.readouterr()
        return code, out, err

    return call


def strict(line: str) -> Any:
    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    return json.loads(line, parse_constant=refuse)


def test_a_line_of_output_for_each_line_of_input(folders: dict[str, str], run: Any, tmp_path: Path) -> None:
    texts = ["we eat bread", "", "a\u2028b\rc", LONG]
    code, out, err = run("classify", folders["one"], stdin="\n".join(texts) + "\n")
    lines = out.split("\n")[:-1]
    assert code == 0 and len(lines) == 4
    assert lines[1] == "" and lines[0].split("\t")[0] in ("bad", "good", "so so")
    assert "warning: 1 texts were cut to 12 tokens (lines 4)" in err
    (tmp_path / "in.txt").write_text("\n".join(texts), encoding="utf-8", newline="")
    code, out, _ = run("classify", folders["one"], "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "o"))
    assert code == 0 and out == ""
    assert (tmp_path / "o").read_text(encoding="utf-8").split("\n")[:-1] == lines
    assert run("classify", folders["one"], *texts)[1].split("\n")[:-1] == lines
    assert run("classify", folders["one"])[:2] == (0, "")


def test_json_has_every_probability(folders: dict[str, str], run: Any) -> None:
    _, out, _ = run("classify", folders["one"], "we eat bread", "", "--json")
    first, second = map(strict, out.splitlines())
    assert sum(first["probabilities"].values()) == pytest.approx(1.0)
    assert first["labels"] == [max(first["probabilities"], key=first["probabilities"].get)]
    assert second == {"text": "", "labels": [], "probabilities": {}, "is_cut": False}


def test_several_labels_and_pairs(folders: dict[str, str], run: Any) -> None:
    _, out, _ = run("classify", folders["many"], "we eat bread", "--threshold", "0")
    labels, shares = out.rstrip("\n").split("\t")
    assert sorted(labels.split(",")) == ["bad", "good", "so so"]
    assert list(map(float, shares.split(","))) == sorted(map(float, shares.split(",")), reverse=True)
    code, out, _ = run("classify", folders["pairs"], stdin="a\tb\n\nc\td\n")
    assert code == 0 and [bool(line) for line in out.split("\n")] == [True, False, True, False]
    code, out, err = run("classify", folders["pairs"], stdin="a\tb\nno tab\n")
    assert code == 2 and "Line 2 has 1 column." in err


def test_entities_in_brackets_words_in_json_and_conll(folders: dict[str, str], run: Any) -> None:
    text = "Anna sees Lyon, (and Paris)."
    _, out, _ = run("label", folders["words"], text, "", "--json")
    found, blank = map(strict, out.splitlines())
    assert blank == {"text": "", "words": [], "entities": []}
    assert found["entities"] and all(text[e["start"] : e["end"]] == e["text"] for e in found["entities"])
    expected = text
    for entity in reversed(found["entities"]):
        inside = f"[{entity['type']} {entity['text']}]"
        expected = expected[: entity["start"]] + inside + expected[entity["end"] :]
    assert run("label", folders["words"], text)[1] == expected + "\n"
    _, out, _ = run("label", folders["words"], text, text, "--conll")
    lines = [f"{word['text']}\t{word['label']}" for word in found["words"]]
    assert out.split("\n") == [*lines, "", *lines, "", ""]


def test_words_given_as_they_are_and_labels_that_mark_no_entities(folders: dict[str, str], run: Any) -> None:
    _, out, _ = run("label", folders["parts"], "--words", stdin="don't  stop,now\n\n")
    first, blank = out.split("\n")[:2]
    assert [part.rsplit("/", 1)[0] for part in first.split(" ")] == ["don't", "stop,now"] and blank == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["classify", "one", "x", "--input", "f"], "Texts and --input"),
        (["classify", "words", "x"], "trained with --task classify"),
        (["label", "one", "x"], "trained with --task label"),
        (["label", "words", "x", "--json", "--conll"], "Both --json and --conll"),
        (["classify", "many", "x", "--threshold", "2"], "threshold=2.0"),
        (["classify", "nowhere", "x"], "is no model folder"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    folders: dict[str, str], run: Any, arguments: list[str], message: str
) -> None:
    command, model, *rest = arguments
    code, out, err = run(command, folders.get(model, model), *rest)
    assert code == 2 and out == "" and message in err and "Traceback" not in err


def test_a_folder_whose_labels_do_not_fit_is_refused(folders: dict[str, str], run: Any, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(folders["one"], tmp_path / "m")
    shutil.copy(Path(folders["words"]) / "labels.json", tmp_path / "m")
    code, _, err = run("classify", str(tmp_path / "m"), "x")
    assert code == 2 and "has 5 labels and the model votes for 3" in err
