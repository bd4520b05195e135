"""Real tokens a second of training on real pairs: `glassformer train` beside transformers' Seq2SeqTrainer.

    python bench/tokens.py PAIRS.tsv VALID.tsv [--minutes 3] [--preset small] [--ways ...]

Tokens of source and target are counted, ends included and pads not, over the time from the first update to the last.
The product chooses batch, type and rate as it always does under a budget; the peer trains the same architecture from
fresh weights on the same token ids, in batches of `--pairs` pairs grouped by length. A round is one run of each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measuring
import models
import torch
from measuring import Result
from torch.nn.utils.rnn import pad_sequence

from glassformer.data.store import TokenStore
from glassformer.model import build_model
from glassformer.tasks.model_folder import ModelFolder, load_model_folder

OURS = "glassformer"
PEERS = ("transformers", "transformers-bf16")
NEVER = 10**9
SMOOTHING = 0.1


def product(options: argparse.Namespace, run: Path) -> dict[str, Any]:
    """`glassformer train` for the given minutes, with its one validation after them."""
    command = [sys.executable, "-m", "glassformer", "train", str(options.pairs_file), "--valid", str(options.valid)]
    command += ["--src", "en", "--tgt", "fr", "--preset", options.preset, "--budget", f"{options.minutes * 60:g}s"]
    settings = [f"validation.every={NEVER}", "validation.bleu_rows=0", "validation.samples=0", "training.log_every=1"]
    settings += [f"training.n_threads={options.threads}", *options.set]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run([*command, "--out", str(run)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return figures(run)


def figures(run: Path) -> dict[str, Any]:
    """Tokens a second of a finished run, from the pairs seen and the mean tokens of a pair."""
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


@dataclass
class Collator:
    """Pads a batch, and remembers when each batch was asked for and how many tokens it has."""

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


def peer(run: Path, work: Path, options: argparse.Namespace, *, is_bf16: bool) -> dict[str, Any]:
    """Seq2SeqTrainer with length grouping on the tokens of the product's run."""
    import transformers

    transformers.logging.set_verbosity_error()
    folder = load_model_folder(run)
    config = folder.config.model
    fresh = ModelFolder(run, folder.config, build_model(config), folder.tokenizer, folder.src_tokenizer, {})
    models.write(fresh, work, {"transformers"})
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(work / "transformers", dtype=torch.float32)
    assert config.pad_id is not None
    collator, ends = Collator(config.pad_id, config.bos_id), list[float]()

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        """Notes when each update ends, and stops when the time is over."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            ends.append(time.monotonic())
            control.should_training_stop = ends[-1] - ends[0] > options.minutes * 60

    trainer = transformers.Seq2SeqTrainer(
        model=model,
        args=transformers.Seq2SeqTrainingArguments(
            output_dir=str(work / "out"),
            max_steps=NEVER,
            per_device_train_batch_size=options.pairs,
            train_sampling_strategy="group_by_length",
            learning_rate=7e-4,
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
        train_dataset=rows_of(TokenStore.open(run / "data" / "train"), config.eos_id),
        data_collator=collator,
        callbacks=[Clock()],
    )
    trainer.train()
    n_tokens = sum(collator.counts[1 : len(ends)])  # of the second update and those after it
    return {
        "tokens_per_s": n_tokens / (ends[-1] - ends[0]),
        "updates": len(ends),
        "precision": "bf16" if is_bf16 else "float32",
        "batch": f"{options.pairs} pairs",
    }


def measure(options: argparse.Namespace) -> Iterator[Result]:
    values: dict[str, list[float]] = {way: [] for way in (OURS, *options.ways)}
    notes = {}
    with tempfile.TemporaryDirectory() as name:
        for turn in range(options.rounds):
            run = Path(name) / f"run-{turn}"
            for way in values:
                found = product(options, run) if way == OURS else measuring.alone(__file__, *rest(way, run, options))
                values[way].append(found["tokens_per_s"])
                notes[way] = f"{found['updates']} updates of {found['batch']}, {found['precision']}"
    case = {"pairs": options.pairs_file.name, "preset": options.preset, "minutes": f"{options.minutes:g}"}
    yield Result(case=case, unit="real tokens/s", values=values, ours=[OURS], notes=notes)


def rest(way: str, run: Path, options: argparse.Namespace) -> list[str]:
    """The command line of one run of a peer."""
    parts = [options.pairs_file, options.valid, "--alone", way, run, "--minutes", options.minutes]
    return [*map(str, parts), "--pairs", str(options.pairs), "--threads", str(options.threads)]


def main() -> None:
    parser = measuring.parser_of(__doc__, rounds=1)
    parser.add_argument("pairs_file", type=Path, metavar="PAIRS.tsv")
    parser.add_argument("valid", type=Path, metavar="VALID.tsv")
    parser.add_argument("--minutes", type=float, default=3.0, help="of each way in a round")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--pairs", type=int, default=96, help="of a batch of the peer")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the product")
    parser.add_argument("--ways", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--alone", nargs=2, metavar=("WAY", "RUN"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.alone:
        way, run = options.alone
        with tempfile.TemporaryDirectory() as work:
            print(json.dumps(peer(Path(run), Path(work), options, is_bf16=way.endswith("bf16"))))
        return
    measuring.report(measure(options), options.json)


if __name__ == "__main__":
    main()
