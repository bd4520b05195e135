"""`glassformer train --task embed`, `embed`, `index` and `search`, as a user calls them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.data.triple_batches import TripleBatch
from glassformer.tasks import Embedder
from glassformer.training.contrastive import ContrastiveLoss
from tasks.small_models import LONG
from training.runs import log_of, run_cli, sha256, train_arguments, write_pairs

Call = Callable[..., tuple[int, str, str]]
LINES = ["we eat bread", "", "the house is old\tand more", LONG * 9]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_pairs(folder / "train.tsv", 60)
    write_pairs(folder / "valid.tsv", 12, first=100)
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return folder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line, with a text on standard input; gives the exit code, the output and the messages."""

    def run(*arguments: str | Path, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = run_cli([str(argument) for argument in arguments], monkeypatch)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


def embed_arguments(folder: Path, out: Path, steps: int = 12, **settings: Any) -> list[str]:
    """Without the settings of models that write."""
    unread = ("validation__bleu_rows", "generation__beam_size", "generation__max_length_a", "generation__max_length_b")
    return [*train_arguments(folder, out, steps, **dict.fromkeys(unread), **settings), "--task", "embed"]


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "model"
    with pytest.MonkeyPatch.context() as patch:
        arguments = embed_arguments(data, out, 12, task__min_width=4, validation__metric="recall@10")
        assert run_cli(arguments, patch) == 0
    return out


def test_run_gives_a_model_with_its_figures(model: Path) -> None:
    metrics = json.loads((model / "metrics.json").read_text())
    assert metrics["rows"] == metrics["retrieval_rows"] == metrics["loss_rows"] == 12
    assert 0 <= metrics["recall@1"] <= metrics["mrr"] <= 1 and metrics["recall@1"] <= metrics["recall@10"] <= 1
    validations = log_of(model, "validation")
    assert [entry["update"] for entry in validations] == [4, 8, 12]
    best = max(validations, key=lambda entry: entry["recall@10"])
    assert metrics["best_update"] == best["update"]
    assert metrics["recall@10"] == best["recall@10"] and metrics["loss"] == pytest.approx(best["loss"], abs=1e-6)
    card = (model / "README.md").read_text()
    assert card.startswith("# Sentence embeddings") and "recall@10" in card and "60 pairs of train.tsv" in card
    config = json.loads((model / "config.json").read_text())
    assert (config["model"]["family"], config["model"]["n_encoder_layers"]) == ("encoder-only", 2)


def test_resumed_run_gives_the_weights_of_an_unbroken_one(
    data: Path, model: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = embed_arguments(data, tmp_path / "again", 12, task__min_width=4, validation__metric="recall@10")
    forward, calls = ContrastiveLoss.forward, list[int]()

    def failing(self: ContrastiveLoss, batch: TripleBatch) -> Any:
        calls.append(1)
        if len(calls) == 7:
            raise KeyError("a fault of the test")
        return forward(self, batch)

    with monkeypatch.context() as patch, pytest.raises(KeyError, match="a fault of the test"):
        patch.setattr(ContrastiveLoss, "forward", failing)
        call(*arguments)
    code, _, err = call(*arguments, "--resume")
    assert code == 0 and "Resumed from update 4" in err
    assert sha256(tmp_path / "again" / "model.safetensors") == sha256(model / "model.safetensors")


def test_hard_negatives_are_used(data: Path, tmp_path: Path, call: Call) -> None:
    rows = [line.split("\t") for line in (data / "train.tsv").read_text(encoding="utf-8").splitlines()]
    folder = tmp_path / "data"
    folder.mkdir()
    text = "".join(f"{src}\t{tgt}\t{rows[i - 1][1]}\n" for i, (src, tgt) in enumerate(rows))
    (folder / "train.tsv").write_text(text, encoding="utf-8")
    (folder / "valid.tsv").write_text((data / "valid.tsv").read_text(encoding="utf-8"), encoding="utf-8")
    for out, has_negatives in (("with", True), ("without", False)):
        arguments = embed_arguments(
            folder, tmp_path / out, 2, task__has_negatives=has_negatives, data__batch_tokens=9999
        )
        assert call(*arguments)[0] == 0
    first = [log_of(tmp_path / out, "train")[0]["nll"] for out in ("with", "without")]
    assert first[0] > first[1]  # more to tell apart


def test_what_embeddings_cannot_have_is_refused(data: Path, tmp_path: Path, call: Call) -> None:
    code, _, err = call(*embed_arguments(data, tmp_path / "out", tokenizer__is_shared="false"))
    assert code == 2 and "is_shared" in err
    code, _, err = call(*embed_arguments(data, tmp_path / "out2", task__min_width=17))
    assert code == 2 and "min_width=17" in err


def test_embed_writes_line_for_line(data: Path, model: Path, tmp_path: Path, call: Call) -> None:
    expected = Embedder.load(model).embed(LINES)
    code, _, err = call("embed", model, data / "lines.txt", "--output", tmp_path / "a.npy")
    assert code == 0 and "1 texts have more than 256 tokens" in err and "(lines: 4)" in err
    vectors = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert vectors.dtype == np.float32 and np.abs(vectors - expected).max() <= 1e-6
    code, out, _ = call("embed", model, stdin="\n".join(LINES))
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["text"] for row in rows] == LINES
    assert np.abs(np.array([row["embedding"] for row in rows]) - expected).max() <= 1e-6
    assert call("embed", model, data / "lines.txt", "--output", tmp_path / "b.jsonl", "--width", "4")[0] == 0
    short = [json.loads(line)["embedding"] for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert np.abs(np.linalg.norm(short, axis=1) - 1).max() < 1e-6 and len(short[0]) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "b.jsonl"]


def test_embed_in_fewer_bits_is_near(data: Path, model: Path, tmp_path: Path, call: Call) -> None:
    vectors = {}
    for precision in ("float32", "bf16", "int8"):
        out = tmp_path / f"{precision}.npy"
        assert call("embed", model, data / "lines.txt", "--output", out, "--precision", precision)[0] == 0
        vectors[precision] = np.load(out)
        assert np.abs(np.linalg.norm(vectors[precision], axis=1) - 1).max() < 1e-6, precision
    cosines = {name: (found * vectors["float32"]).sum(1).min() for name, found in vectors.items()}
    assert 0.999 < cosines["bf16"] < 1 - 1e-7
    assert 0.95 < cosines["int8"] < 1 - 1e-7


def test_embed_of_nothing_is_an_array_of_no_rows(model: Path, tmp_path: Path, call: Call) -> None:
    assert call("embed", model, "--output", tmp_path / "a.npy")[0] == 0
    assert np.load(tmp_path / "a.npy").shape == (0, 16)


def test_failed_embed_leaves_no_file(data: Path, model: Path, tmp_path: Path, call: Call) -> None:
    broken = tmp_path / "in.txt"
    broken.write_bytes(b"good\n\xff\n")
    for name in ("out.npy", "out.jsonl"):
        code, _, err = call("embed", model, broken, "--output", tmp_path / name)
        assert code == 2 and "line 2" in err
    assert call("embed", model, broken, "--output", tmp_path / "no" / "folder.npy")[0] == 2
    code, _, err = call("embed", model, broken, "--output", tmp_path / "out.csv")
    assert code == 2 and ".npy or .jsonl" in err
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_index_and_search(data: Path, model: Path, tmp_path: Path, call: Call) -> None:
    index = tmp_path / "index"
    code, _, err = call("index", model, data / "lines.txt", index)
    assert code == 0 and "3 texts" in err and "1 blank lines" in err and "(lines: 4)" in err
    code, out, _ = call("search", index, "the house is old\tand more", "-k", "2")
    first, second = out.splitlines()
    assert code == 0 and first == "1.0000\t3\tthe house is old\tand more" and second.count("\t") >= 2
    code, out, _ = call("search", index, "--json", "-k", "1", stdin="we eat bread\n\nthe house\n")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["query"] for row in rows] == ["we eat bread", "", "the house"]
    assert rows[0]["results"][0] | {"score": 1} == {"score": 1, "line": 1, "text": "we eat bread"}
    assert rows[0]["results"][0]["score"] == pytest.approx(1, abs=1e-5) and rows[1]["results"] == []
    code, out, _ = call("search", index, "a", "b", "-k", "1")
    assert [line[:2] for line in out.splitlines()] == ["a", "  ", "b", "  "]
    code, _, err = call("index", model, data / "lines.txt", index)
    assert code == 2 and "exists already" in err
    code, _, err = call("search", tmp_path, "a")
    assert code == 2 and "no index" in err
