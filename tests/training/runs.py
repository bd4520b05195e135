"""Tiny training runs: in this process, or in a child that can be killed."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from itertools import islice
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.cli import main
from glassformer.data.batches import Batch
from glassformer.phrasebook import generate
from helpers import BOS, EOS, PAD

SETTINGS = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.n_heads": 2,
    "model.n_encoder_layers": 1,
    "model.n_decoder_layers": 1,
    "tokenizer.vocab_size": 300,
    "data.batch_tokens": 600,
    "training.precision": "float32",
    "training.n_threads": 1,
    "training.log_every": 1,
    "validation.every": 4,
    "validation.bleu_rows": 2,
    "validation.samples": 0,
    "generation.beam_size": 2,
    "generation.max_length_a": 0.0,
    "generation.max_length_b": 3,
}

# Children are forked from one process that has imported everything already, and has no threads.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["glassformer.tasks.training_run", "glassformer.cli.train", "glassformer.cli.check", "sacrebleu", "torch._dynamo"]
)


def write_pairs(path: Path, n_pairs: int, *, first: int = 0, seed: int = 3) -> Path:
    """A TSV of phrasebook pairs, number `first` and those after it."""
    pairs = islice(generate(first + n_pairs, seed), first, None)
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    return path


def train_arguments(folder: Path, out: Path, steps: int = 12, **settings: Any) -> list[str]:
    """The command line of a tiny run on `folder`'s train.tsv and valid.tsv.

    A setting's `__` stands for the dot; None leaves out one of `SETTINGS`.
    """
    changed = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
    sets = [text for name, value in changed.items() if value is not None for text in ("--set", f"{name}={value}")]
    data = [str(folder / "train.tsv"), "--valid", str(folder / "valid.tsv"), "--src", "en", "--tgt", "fr"]
    return ["train", *data, "--steps", str(steps), "--out", str(out), *sets]


def run_cli(arguments: list[str], monkeypatch: Any) -> int:
    """Runs the command line in this process and returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["glassformer", *arguments])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


class Child:
    """The command line in a process of its own, whose output goes to a file."""

    def __init__(self, arguments: list[str], output: Path, environment: dict[str, str] | None = None) -> None:
        self.output = output
        self.process: BaseProcess = _context.Process(target=_child, args=(arguments, str(output), environment or {}))
        self.process.start()

    def send(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self, seconds: float = 60.0) -> int:
        """The exit code; minus the signal's number when one ended it."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.send(signal.SIGKILL)
            self.process.join()
            raise AssertionError(f"still running after {seconds} s: {self.text()}")
        return self.process.exitcode

    def wait_until(self, is_so: Callable[[], bool], seconds: float = 60.0) -> bool:
        """Waits until something is so; False when the process has ended before."""
        end = time.monotonic() + seconds
        while self.process.is_alive() and time.monotonic() < end:
            if is_so():
                return True
            time.sleep(0.002)
        assert time.monotonic() < end, self.text()
        return False

    def text(self) -> str:
        return self.output.read_text(encoding="utf-8") if self.output.exists() else ""


def _child(arguments: list[str], output: str, environment: dict[str, str]) -> None:
    os.environ |= environment
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.fsync = lambda fd: None  # a killed process loses nothing that the system has
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background of a shell inherit "ignored"
    sys.argv = ["glassformer", *arguments]
    main()


def together(arguments: list[str], folder: Path, n_processes: int = 2) -> list[Child]:
    """The command line in processes that form one group, as torchrun would start them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": str(n_processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n_processes)]
    return [Child(arguments, folder / f"rank-{rank['RANK']}.txt", shared | rank) for rank in ranks]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def log_of(out: Path, event: str | None = None) -> list[dict[str, Any]]:
    """The lines of log.jsonl, without what depends on the clock."""
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    for entry in entries:
        for key in ("tokens_per_s", "elapsed_s", "training_s"):
            entry.pop(key, None)
    return [entry for entry in entries if event in (None, entry["event"])]


def batch(rows: list[tuple[Tensor, Tensor]], *, eos: bool = True) -> Batch:
    """A batch of pairs of ids; without `eos` there is no target at all."""
    end = [EOS] if eos else []
    src = nn.utils.rnn.pad_sequence([torch.tensor([*s.tolist(), EOS]) for s, _ in rows], batch_first=True)
    tgt_in = nn.utils.rnn.pad_sequence([torch.tensor([BOS, *t.tolist()]) for _, t in rows], batch_first=True)
    outs = [torch.tensor([*t.tolist(), *end], dtype=torch.long) for _, t in rows]
    tgt_out = torch.full_like(tgt_in, PAD)
    for row, out in enumerate(outs):
        tgt_out[row, : len(out)] = out
    return Batch(
        src=src,
        tgt_in=tgt_in,
        tgt_out=tgt_out,
        rows=torch.arange(len(rows)),
        n_tokens=sum(map(len, outs)),
        n_src_tokens=int((src != PAD).sum()),
    )
