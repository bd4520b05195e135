"""The index: exact, bound to its model, and never half there."""

from __future__ import annotations

import builtins
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.errors import CheckpointError, DataError, UserError
from glassformer.phrasebook import generate
from glassformer.tasks.index import Index, build_index
from tasks.small_models import LONG, config, save_folder

LINES = ["", *(src for src, _ in generate(30, 5)), "  ", "the\tend\u2028 of \r it", LONG * 2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = config(70, family="encoder-only", is_normalized=True, pooling="mean", use_bos=True)
    return save_folder(tmp_path_factory.mktemp("embedder") / "model", settings=settings)


@pytest.fixture(scope="module")
def folder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("index") / "lines"
    build_index(model, LINES, out)
    return out


def test_results_are_those_of_a_full_comparison(folder: Path) -> None:
    index = Index.load(folder)
    kept = [(i + 1, text) for i, text in enumerate(LINES) if text.strip()]
    assert len(index) == len(kept)
    vectors = index.embedder.embed([text for _, text in kept])
    queries = ["We eat bread.", LINES[4], "zzz"]
    for query, found in zip(queries, index.search(queries, k=5), strict=True):
        scores = vectors @ index.embedder.embed([query])[0]
        order = np.argsort(-scores, kind="stable")[:5]
        assert [(result.line, result.text) for result in found] == [kept[i] for i in order]
        assert [result.score for result in found] == pytest.approx(scores[order], abs=1e-5)
    (found,) = index.search([LINES[4]], k=1)
    assert (found[0].line, found[0].score) == (5, pytest.approx(1.0, abs=1e-5))


def test_info_tells_what_was_left_out_and_cut(folder: Path) -> None:
    info = json.loads((folder / "index.json").read_text())
    assert (info["n_texts"], info["n_blank"], info["width"]) == (len(LINES) - 2, 2, 20)
    assert (info["n_cut"], info["cut_lines"], info["max_tokens"]) == (1, [len(LINES)], 70)


def test_fewer_texts_than_asked_for_and_no_query(folder: Path) -> None:
    index = Index.load(folder)
    assert len(index.search(["a"], k=1000)[0]) == len(index)
    assert index.search([]) == []
    with pytest.raises(UserError, match="k=0"):
        index.search(["a"], k=0)


def test_index_of_shorter_vectors(model: Path, tmp_path: Path) -> None:
    build_index(model, LINES, tmp_path / "short", width=5)
    assert np.load(tmp_path / "short" / "vectors.npy").shape == (len(LINES) - 2, 5)
    (found,) = Index.load(tmp_path / "short").search([LINES[2]], k=1)
    assert (found[0].line, found[0].score) == (3, pytest.approx(1.0, abs=1e-5))


def test_other_model_is_refused_and_a_moved_one_is_found_by_name(folder: Path, model: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(model, tmp_path / "moved")
    assert len(Index.load(folder, model=moved).search(["a"])) == 1
    changed = json.loads((moved / "config.json").read_text())
    changed["model"]["pooling"] = "max"  # same weights, other vectors
    (moved / "config.json").write_text(json.dumps(changed))
    with pytest.raises(CheckpointError, match="is not the model that made"):
        Index.load(folder, model=moved)
    with pytest.raises(CheckpointError, match="--model"):
        Index.load(folder, model=tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["vectors.npy", "texts.jsonl", "index.json"])
def test_damaged_index_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    if name == "index.json":
        (copy / name).write_text("{")
    with pytest.raises(DataError, match="damaged"):
        Index.load(copy)
    (copy / name).unlink()
    with pytest.raises(DataError, match=r"missing|no index"):
        Index.load(copy)


@pytest.mark.parametrize("reason", [KeyboardInterrupt(), DataError("bad byte")])
def test_interrupted_build_leaves_nothing(model: Path, tmp_path: Path, reason: BaseException) -> None:
    def lines() -> Iterator[str]:
        yield from ["text"] * 1500
        raise reason

    seen: list[int] = []
    with pytest.raises(type(reason)):
        build_index(model, lines(), tmp_path / "index", on_progress=seen.append)
    assert seen == [1000] and list(tmp_path.iterdir()) == []


def test_existing_folder_is_kept_and_no_text_is_an_error(model: Path, tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    with pytest.raises(DataError, match="exists already"):
        build_index(model, ["a"], tmp_path / "index")
    with pytest.raises(DataError, match="2 blank lines"):
        build_index(model, ["", " "], tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_missing_library_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_faiss(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "faiss":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_faiss)
    with pytest.raises(UserError, match=r"pip install 'glassformer\[search\]'"):
        Index.load(folder)
