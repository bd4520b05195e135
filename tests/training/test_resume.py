"""Runs that are killed at any moment and resumed give the bytes of an unbroken one."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from training.runs import Child, log_of, sha256, train_arguments, write_pairs

VARIANTS: dict[str, dict[str, Any]] = {
    "accumulated-averaged": {"training__accumulation": 2, "model__dropout": 0.1, "training__ema_decay": 0.9},
    "muon": {"training__optimizer": "muon", "model__dropout": 0.1},
    "bpe-dropout": {"tokenizer__bpe_dropout": 0.1, "tokenizer__n_variants": 2, "model__attention_dropout": 0.1},
}
STEPS, WARMUP = 16, 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_pairs(folder / "train.tsv", 90)
    write_pairs(folder / "valid.tsv", 6, first=100)
    return folder


def updates_in(log: Path) -> int:
    return log.read_text(encoding="utf-8").count('"event": "train"') if log.exists() else 0


@pytest.mark.parametrize("name", VARIANTS)
def test_killed_and_resumed_run_equals_the_unbroken_one(data: Path, tmp_path: Path, name: str) -> None:
    settings = {"training__warmup_steps": WARMUP, "training__save_every": 3, "validation__every": 5} | VARIANTS[name]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    child = Child(train_arguments(data, whole, STEPS, **settings), tmp_path / "whole.txt")
    assert child.wait() == 0, child.text()
    if name == "bpe-dropout":  # the tokenizer library draws anew in each preparation: both runs get the same one
        broken.mkdir()
        shutil.copytree(whole / "data", broken / "data")
        saved = json.loads((whole / "run.json").read_text(encoding="utf-8"))
        del saved["is_finished"]
        (broken / "run.json").write_text(json.dumps(saved), encoding="utf-8")
    log = broken / "log.jsonl"
    n_epochs = max(entry["epoch"] for entry in log_of(whole, "train")) + 1
    assert n_epochs >= 2, "an epoch ends inside the run"
    moments = [
        lambda: (broken / "run.json").exists(),
        lambda: (broken / "data" / "train.partial").exists() or (broken / "data" / "train").exists(),
        lambda: updates_in(log) >= 2,  # in warm-up, before the first checkpoint
        lambda: (broken / "checkpoints" / ".step-3.partial").exists() or updates_in(log) >= 4,
        lambda: updates_in(log) >= 7,
        lambda: updates_in(log) >= 10,
        lambda: (broken / "checkpoints" / "step-15").exists(),
        lambda: (broken / "checkpoints" / "step-16").exists(),  # while it measures the model at the end
    ]
    arguments = [*train_arguments(data, broken, STEPS, **settings), "--resume"]
    n_killed = 0
    for moment in moments:
        child = Child(arguments, tmp_path / "broken.txt")
        if child.wait_until(moment):
            child.send(signal.SIGKILL)
        n_killed += child.wait() == -signal.SIGKILL
    assert n_killed >= 5, child.text()
    child = Child(arguments, tmp_path / "broken.txt")
    assert child.wait() == 0, child.text()

    assert sha256(broken / "model.safetensors") == sha256(whole / "model.safetensors")
    last = f"checkpoints/step-{STEPS}"
    for file in ("model", "optimizer", *(["average"] if "training__ema_decay" in settings else [])):
        assert sha256(broken / last / f"{file}.safetensors") == sha256(whole / last / f"{file}.safetensors")
    assert [entry["update"] for entry in log_of(broken, "train")] == list(range(1, STEPS + 1))
    assert log_of(broken) == log_of(whole)

    child = Child(arguments, tmp_path / "again.txt")
    assert child.wait() == 0
    assert "finished already; nothing to do" in child.text()
    assert log_of(broken) == log_of(whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_run_is_saved_and_goes_on(data: Path, tmp_path: Path, number: int, code: int) -> None:
    arguments = train_arguments(data, tmp_path / "run", 400, validation__every=400)
    child = Child(arguments, tmp_path / "run.txt")
    assert child.wait_until(lambda: updates_in(tmp_path / "run" / "log.jsonl") >= 5)
    child.send(number)
    assert child.wait(30) == code
    assert "Traceback" not in child.text()
    n_updates = updates_in(tmp_path / "run" / "log.jsonl")
    assert f"after update {n_updates}. The run is saved. Go on with --resume." in child.text()
    assert (tmp_path / "run" / "checkpoints" / f"step-{n_updates}" / "state.json").exists()

    child = Child([*arguments, "--resume"], tmp_path / "again.txt")
    assert child.wait_until(lambda: updates_in(tmp_path / "run" / "log.jsonl") >= n_updates + 3)
    assert f"Resumed from update {n_updates}." in child.text()
    child.send(signal.SIGKILL)
    child.process.join()


def test_signal_while_the_data_are_prepared(data: Path, tmp_path: Path) -> None:
    arguments = train_arguments(data, tmp_path / "run", 60, validation__every=60)
    child = Child(arguments, tmp_path / "run.txt")
    assert child.wait_until(lambda: (tmp_path / "run" / "run.json").exists())
    child.send(signal.SIGINT)
    assert child.wait(30) == 130
    assert "Traceback" not in child.text()
    child = Child([*arguments, "--resume"], tmp_path / "again.txt")
    assert child.wait() == 0, child.text()


def test_second_signal_ends_at_once_and_harms_no_checkpoint(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    # Translating this much takes minutes: the first signal waits for the end of the validation.
    slow = {"validation__every": 3, "validation__bleu_rows": 6, "generation__max_length_b": 200_000}
    slow |= {"training__init": "random"}  # what knows the words ends its sentences
    child = Child(train_arguments(data, out, 400, **slow, training__save_every=2), tmp_path / "run.txt")
    assert child.wait_until(lambda: updates_in(out / "log.jsonl") >= 3)
    child.send(signal.SIGINT)
    assert child.wait_until(lambda: "once more stops at once" in child.text(), 20)
    child.process.join(1.0)
    child.send(signal.SIGINT)
    assert child.wait(10) == 130
    assert "Traceback" not in child.text()
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-2"]
