"""BLEU after a given time of training: `glassformer train` beside transformers' Seq2SeqTrainer, same rows and cores.

    python bench/quality.py PAIRS.tsv VALID.tsv --minutes 10 25 [--run RUN] [--ways ...]

The product has its budget, in which it learns its tokenizer, tokenises, plans and validates; the peer has the same time
for updates alone, from fresh weights of the same architecture on the same token ids, in batches of `--pairs` pairs
grouped by length. Each translates the rows of VALID with beams of 4, and sacreBLEU compares with its second column.
With --run a finished run of the product is scored and gives the tokens.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
import measuring
import sacrebleu
import sentences
import timed_training
import torch
from measuring import Result
from timed_training import OURS

BEAM = 4


def measure(options: argparse.Namespace) -> Iterator[Result]:
    """Of each time the result of all rounds so far, after each."""
    for minutes in options.minutes:
        values: dict[str, list[float]] = {way: [] for way in options.ways}
        notes = {}
        case = {"pairs": options.pairs_file.name, "preset": options.preset, "minutes": f"{minutes:g}"}
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as name:
                work = Path(name)
                if options.run is None:
                    timed_training.product(work / "run", minutes, options)
                else:
                    (work / "run").symlink_to(options.run.resolve())
                for way in options.ways:
                    found = one(way, work, minutes, options)
                    values[way].append(found["bleu"])
                    notes[way] = f"chrF {found['chrf']:.1f}, {timed_training.told(found)}"
            yield Result(case=case, unit="BLEU", values=values, ours=[OURS], notes=notes)


def one(way: str, work: Path, minutes: float, options: argparse.Namespace) -> dict[str, Any]:
    """Training of a peer, and translation, in a process of its own."""
    if way != OURS:
        timed_training.write_fresh(work / "run", work / way)
    files = (options.pairs_file, options.valid)
    rest = ("--minutes", minutes, "--pairs", options.pairs, "--threads", options.threads, "--rows", options.rows)
    return machine.alone(__file__, *files, "--alone", way, work, *rest)


def run_alone(way: str, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    lines = [line.split("\t") for line in options.valid.read_text(encoding="utf-8").splitlines()[: options.rows]]
    texts, references = [line[0] for line in lines], [line[1] for line in lines]
    if way == OURS:
        from glassformer.tasks import Translator

        figures = timed_training.figures(work / "run")
        found = [translation.text for translation in Translator.load(work / "run").translate(texts)]
    else:
        is_bf16, minutes = way.endswith("bf16"), options.minutes[0]
        figures = timed_training.peer(work / way, work / "run", minutes, options, is_bf16=is_bf16)
        found = sentences.transformers_way(work / way, work / "run", torch.float32)(texts, BEAM)
    scores = (metric(found, [references]).score for metric in (sacrebleu.corpus_bleu, sacrebleu.corpus_chrf))
    return figures | dict(zip(("bleu", "chrf"), scores, strict=True))


def main() -> None:
    parser = measuring.parser_of(__doc__, rounds=1)
    timed_training.add_options(parser)
    parser.add_argument("--minutes", type=float, nargs="*", default=[10.0, 25.0], help="of training of each way")
    parser.add_argument("--rows", type=int, default=10_000, help="of VALID, at most")
    parser.add_argument("--run", type=Path, help="a finished run of the product on the same rows")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.alone:
        print(json.dumps(run_alone(options.alone[0], Path(options.alone[1]), options)))
        return
    measuring.report(measure(options), options.json)


if __name__ == "__main__":
    main()
