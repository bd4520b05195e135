"""Training for a given time: `glassformer train`, and transformers' Seq2SeqTrainer on the tokens of such a run."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from glassformer.data.store import TokenStore

OURS = "glassformer"
PEERS = ("transformers", "transformers-bf16")
NEVER = 10**9
LR, SMOOTHING = 7e-4, 0.1


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pairs_file", type=Path, metavar="PAIRS.tsv")
    parser.add_argument("valid", type=Path, metavar="VALID.tsv")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--pairs", type=int, default=96, help="of a batch of the peer")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the product")
    parser.add_argument("--ways", nargs="*", choices=(OURS, *PEERS), default=[OURS, *PEERS])
    parser.add_argument("--alone", nargs=2, metavar=("WAY", "RUN"), help=argparse.SUPPRESS)


# -- the product ----------------------------------------------------------------------------------------------------


def product(run: Path, minutes: float, options: argparse.Namespace, settings: Sequence[str] = ()) -> dict[str, Any]:
    """`glassformer train` under a budget; returns the figures of the training."""
    command = [sys.executable, "-m", "glassformer", "train", str(options.pairs_file), "--valid", str(options.valid)]
    command += ["--src", "en", "--tgt", "fr", "--preset", options.preset, "--budget", f"{minutes * 60:g}s"]
    for setting in ("training.log_every=1", f"training.n_threads={options.threads}", *settings, *options.set):
        command += ["--set", setting]
    done = subprocess.run([*command, "--out", str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"`glassformer train` ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return figures(run)


def figures(run: Path) -> dict[str, Any]:
    """Of a finished run; tokens a second from the pairs seen and the mean tokens of a pair."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    updates = [line for line in lines if line["event"] == "train"]
    first, last = updates[0], updates[-1]
    store = TokenStore.open(run / "data" / "train")
    tokens_per_pair = (store.n_tokens + 2 * len(store)) / len(store)  # each side has an end
    n_tokens = (last["pairs"] - first["pairs"]) * tokens_per_pair
    plan = json.loads((run / "run.json").read_text(encoding="utf-8"))["plan"]["config"]
    return {
        "tokens_per_s": n_tokens / (last["elapsed_s"] - first["elapsed_s"]),
        "updates": last["update"],
        "precision": plan["training"]["precision"],
        "batch": f"{plan['data']['batch_tokens']} tokens",
    }


def told(figures: dict[str, Any]) -> str:
    return f"{figures['updates']} updates of {figures['batch']}, {figures['precision']}"


# -- the peer -------------------------------------------------------------------------------------------------------


@dataclass
class Collator:
    """Pads a batch, and remembers how many tokens each batch has."""

    pad_id: int
    bos_id: int
    counts: list[int] = field(default_factory=list)

    def __call__(self, rows: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        src = pad_sequence([row["input_ids"] for row in rows], batch_first=True, padding_value=self.pad_id)
        labels = pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
        start = torch.full((len(rows), 1), self.bos_id)
        tgt = torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] == -100, self.pad_id)], 1)
        self.counts.append(sum(len(row["input_ids"]) + len(row["labels"]) for row in rows))
        return {
            "input_ids": src,
            "attention_mask": (src != self.pad_id).long(),
            "decoder_input_ids": tgt,
            "labels": labels,
        }


def rows_of(store: TokenStore, eos_id: int) -> list[dict[str, torch.Tensor]]:
    return [
        {
            "input_ids": torch.tensor([*store.src(i).tolist(), eos_id]),
            "labels": torch.tensor([*store.tgt(i).tolist(), eos_id]),
        }
        for i in range(len(store))
    ]


def write_fresh(run: Path, out: Path) -> None:
    """The architecture of a run with fresh weights, for transformers."""
    from glassformer.interop.huggingface import export_huggingface
    from glassformer.model import build_model
    from glassformer.tasks.model_folder import ModelFolder, load_model_folder

    folder = load_model_folder(run)
    torch.manual_seed(1)
    model = build_model(folder.config.model)
    out.mkdir()
    export_huggingface(ModelFolder(run, folder.config, model, folder.tokenizer, folder.src_tokenizer, {}), out)


def rate_after(passed: float) -> float:
    """Share of the highest rate when a share of the time has passed: up for a tenth, then down in a line to zero.

    So the library does by itself where the number of updates is known before.
    """
    return max(0.0, min(10 * passed, (1 - passed) / 0.9))


def peer(fresh: Path, run: Path, minutes: float, options: argparse.Namespace, *, is_bf16: bool) -> dict[str, Any]:
    """Trains the model in `fresh` on the tokens of a run, saves it there and returns the figures of the training."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(fresh, dtype=torch.float32)
    ids = json.loads((run / "config.json").read_text(encoding="utf-8"))["model"]
    rows = rows_of(TokenStore.open(run / "data" / "train"), ids["eos_id"])
    collator, ends, start, seconds = (
        Collator(ids["pad_id"], ids["bos_id"]),
        list[float](),
        time.monotonic(),
        minutes * 60,
    )

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        """Notes when each update ends, and stops when the time is over."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            ends.append(time.monotonic())
            control.should_training_stop = ends[-1] - start > seconds

    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: rate_after((time.monotonic() - start) / seconds))
    trainer = transformers.Seq2SeqTrainer(
        model=model,
        args=transformers.Seq2SeqTrainingArguments(
            output_dir=str(fresh / "out"),
            max_steps=NEVER,
            per_device_train_batch_size=options.pairs,
            train_sampling_strategy="group_by_length",
            label_smoothing_factor=SMOOTHING,
            bf16=is_bf16,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
        ),
        train_dataset=rows,
        data_collator=collator,
        callbacks=[Clock()],
        optimizers=(optimizer, schedule),
    )
    trainer.train()
    model.save_pretrained(fresh)
    n_tokens = sum(collator.counts[1 : len(ends)])  # of the second update and those after it
    return {
        "tokens_per_s": n_tokens / (ends[-1] - ends[0]),
        "updates": len(ends),
        "precision": "bf16" if is_bf16 else "float32",
        "batch": f"{options.pairs} pairs",
    }
