"""Two processes (gloo) against one: the same run, no hang, and one end for all."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from training.runs import Child, log_of, together, train_arguments, write_pairs

STEPS = 50
SETTINGS: dict[str, Any] = {"model__dropout": 0, "validation__every": 25, "data__batch_tokens": 300}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_pairs(folder / "train.tsv", 60)
    write_pairs(folder / "valid.tsv", 5, first=100)
    return folder


@pytest.fixture(scope="module")
def alone(data: Path) -> Path:
    """The same run in one process."""
    out = data / "alone"
    child = Child(train_arguments(data, out, STEPS, **SETTINGS), data / "alone.txt")
    assert child.wait() == 0, child.text()
    return out


def losses(out: Path) -> list[float]:
    entries = log_of(out, "train")
    assert [entry["update"] for entry in entries] == list(range(1, len(entries) + 1))
    return [entry["nll"] for entry in entries]


def run_together(arguments: list[str], folder: Path) -> list[Child]:
    ranks = together(arguments, folder)
    for rank in ranks:
        assert rank.wait(120) == 0, "\n".join(rank.text() for rank in ranks)
    return ranks


@pytest.mark.parametrize("fsdp", ["false", "true"])
def test_two_processes_make_the_run_of_one(data: Path, alone: Path, tmp_path: Path, fsdp: str) -> None:
    out = tmp_path / "two"
    ranks = run_together(train_arguments(data, out, STEPS, **SETTINGS, training__fsdp=fsdp), tmp_path)
    assert losses(out) == pytest.approx(losses(alone), abs=1e-4)
    assert len(losses(out)) == STEPS
    one, two = (load_file(path / "model.safetensors") for path in (alone, out))
    assert one.keys() == two.keys(), "no prefix of a wrapper in the names"
    assert all((one[name] - two[name]).abs().max() < 1e-4 for name in one)
    validation = [[entry["loss"] for entry in log_of(path, "validation")] for path in (alone, out)]
    assert validation[1] == pytest.approx(validation[0], rel=1e-5)
    assert ranks[1].text() == "", "one rank prints"


@pytest.mark.parametrize("fsdp", ["false", "true"])
def test_resume_from_one_process_to_two_and_back(data: Path, alone: Path, tmp_path: Path, fsdp: str) -> None:
    out = tmp_path / "run"
    settings = SETTINGS | {"training__fsdp": fsdp, "training__ema_decay": 0.5, "training__save_every": 1}
    arguments = [*train_arguments(data, out, STEPS, **settings), "--resume"]

    def stop_after(n_updates: int, children: list[Child]) -> None:
        path = out / "checkpoints" / f"step-{n_updates}"
        assert children[0].wait_until(path.exists, 120)
        children[0].send(signal.SIGTERM)  # one rank hears it, all stop
        for child in children:
            assert child.wait(30) == 143, "\n".join(child.text() for child in children)

    stop_after(5, [Child(arguments, tmp_path / "one.txt")])
    stop_after(15, together(arguments, tmp_path))
    child = Child(arguments, tmp_path / "last.txt")
    assert child.wait() == 0, child.text()
    assert "Resumed from update" in child.text()
    assert losses(out) == pytest.approx(losses(alone), abs=1e-4)
    for path in (out / "checkpoints").glob("*/*.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(path).values())


def test_uneven_rows_never_hang(tmp_path: Path) -> None:
    """Nine pairs, some batches of one row: the second rank then has none."""
    write_pairs(tmp_path / "train.tsv", 9)
    write_pairs(tmp_path / "valid.tsv", 3, first=100)
    settings = SETTINGS | {"data__batch_tokens": 100, "validation__every": 3, "training__accumulation": 2}
    found = []
    for name in ("one", "two"):
        arguments = train_arguments(tmp_path, tmp_path / name, 12, **settings)
        if name == "one":
            assert Child(arguments, tmp_path / "one.txt").wait() == 0
        else:
            run_together(arguments, tmp_path)
        found.append(losses(tmp_path / name))
        assert log_of(tmp_path / name, "train")[-1]["pairs"] > 9, "more than one epoch"
    assert found[1] == pytest.approx(found[0], abs=1e-4)
    assert all(math.isfinite(loss) for loss in found[1])


# -- under torchrun -----------------------------------------------------------------------------------------------

FAILING = """
import os, sys
from glassformer.cli import main
from glassformer.training.trainer import Trainer
kept = Trainer._update
def update(self, *args):
    if os.environ["RANK"] == "1" and self.state.update == 3:
        raise RuntimeError("the second rank fails")
    kept(self, *args)
Trainer._update = update
sys.argv[0] = "glassformer"
main()
"""


def torchrun(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
def test_exception_in_one_rank_ends_all(data: Path, tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING, encoding="utf-8")
    process = torchrun(str(script), *train_arguments(data, tmp_path / "run", 100_000, **SETTINGS))
    log = tmp_path / "run" / "log.jsonl"
    end = time.monotonic() + 120
    while (not log.exists() or log.read_text(encoding="utf-8").count("train") < 3) and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    started = time.monotonic()
    _, text = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert time.monotonic() - started < 30
    assert "the second rank fails" in text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_torchrun_leaves_a_saved_run(data: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "run"
    process = torchrun(
        "-m", "glassformer", *train_arguments(data, out, 100_000, **SETTINGS | {"validation__every": 10**6})
    )
    log = out / "log.jsonl"
    end = time.monotonic() + 120
    while (not log.exists() or log.read_text(encoding="utf-8").count("train") < 5) and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    if number == signal.SIGINT:  # as a terminal does: to all processes, and torchrun passes it on once more
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    started = time.monotonic()
    _, text = process.communicate(timeout=60)
    assert time.monotonic() - started < 30
    assert process.returncode != 0
    n_updates = len(log_of(out, "train"))
    assert (out / "checkpoints" / f"step-{n_updates}" / "state.json").exists(), text
