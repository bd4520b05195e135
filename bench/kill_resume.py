"""One unbroken run, then ten that are killed at a random moment and resumed: the final weights must be the same bytes.

    python bench/kill_resume.py [--runs 10] [--steps 60] [--seed 0] [--set section.key=value ...]

A moment lies anywhere between the start of the process and the end of the unbroken run: in the imports, while the data
are prepared, in training, in a validation, while a checkpoint is written. Exits with 1 when a hash differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from glassformer.phrasebook import split

SETTINGS = [
    *("model.d_model=32", "model.d_ff=64", "model.n_heads=2", "model.n_encoder_layers=1", "model.n_decoder_layers=1"),
    *("model.dropout=0.1", "tokenizer.vocab_size=400", "data.batch_tokens=1500", "training.accumulation=2"),
    *("training.ema_decay=0.9", "training.precision=float32", "training.n_threads=1", "training.log_every=1"),
    *("training.save_every=7", "validation.every=10", "validation.bleu_rows=20", "generation.beam_size=2"),
    "generation.max_length_b=3",
]


def main() -> int:
    """Runs all and prints one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="SECTION.KEY=VALUE")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, pairs in zip(("train", "valid"), split(1, 2000, 50), strict=True):
            text = "".join(f"{src}\t{tgt}\n" for src, tgt in pairs)
            (folder / f"{part}.tsv").write_text(text, encoding="utf-8")
        sets = [word for text in SETTINGS + options.sets for word in ("--set", text)]
        data = [str(folder / "train.tsv"), "--valid", str(folder / "valid.tsv"), "--src", "en", "--tgt", "fr"]
        command = [sys.executable, "-m", "glassformer", "train", *data, "--steps", str(options.steps), *sets]

        started = time.monotonic()
        _finish(command, folder / "unbroken")
        length_s = time.monotonic() - started
        wanted = _result(folder / "unbroken")
        print(f"{'unbroken':<47} {wanted[0]}  ({length_s:.1f} s)")
        n_equal = 0
        for number in range(options.runs):
            out, moment_s = folder / f"run-{number}", draw.uniform(0, length_s)
            where = _kill(command, out, moment_s)
            _finish([*command, "--resume"], out)
            found = _result(out)
            n_equal += found == wanted
            verdict = "" if found == wanted else "  DIFFERS" if found[0] != wanted[0] else "  LOG DIFFERS"
            print(f"killed after {moment_s:5.1f} s, {where:<26} {found[0]}{verdict}", flush=True)
    print(f"{n_equal} of {options.runs} equal to the unbroken run, weights and log")
    return 0 if n_equal == options.runs else 1


def _finish(command: list[str], out: Path) -> None:
    subprocess.run([*command, "--out", str(out)], check=True, stderr=subprocess.DEVNULL)


def _kill(command: list[str], out: Path, moment_s: float) -> str:
    """Starts a run and kills it; says how far it had come."""
    process = subprocess.Popen([*command, "--out", str(out)], stderr=subprocess.DEVNULL)
    time.sleep(moment_s)
    process.send_signal(signal.SIGKILL)
    if process.wait() == 0:
        return "finished before"
    log = out / "log.jsonl"
    if not (out / "run.json").exists():
        return "starting"
    if not log.exists():
        return "preparing, or in update 1"
    n_updates = log.read_text(encoding="utf-8").count('"train"')
    saved = [int(path.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-*")]
    return f"update {n_updates}, checkpoint {max(saved, default='none')}"


def _result(out: Path) -> tuple[str, list[dict[str, object]]]:
    """SHA-256 of the final weights, and the log without what the clock decides."""
    lines = (out / "log.jsonl").read_text(encoding="utf-8").splitlines()
    log = [{k: v for k, v in json.loads(line).items() if not k.endswith("_s")} for line in lines]
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(), log


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(main())
