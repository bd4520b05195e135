"""Tokens a second of training on real pairs: `glassformer train` beside transformers' Seq2SeqTrainer.

    python bench/tokens.py PAIRS.tsv VALID.tsv [--minutes 1] [--preset small] [--ways ...]

Tokens of source and target are counted, ends included and pads not, over the time from the first update to the last.
The product chooses batch, type and rate as it always does under a budget; the peer trains the same architecture from
fresh weights on the same token ids, in batches of `--pairs` pairs grouped by length. A round is one run of each, in a
process of its own. Under a budget so short the product chooses small batches, which are slower: give both the same with
`--set data.batch_tokens=6000` (96 pairs of package descriptions have about 5,700).
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
import timed_training
import torch
from measuring import Result
from timed_training import NEVER, OURS

UNTESTED = (f"validation.every={NEVER}", "validation.bleu_rows=0", "validation.samples=0")


def measure(options: argparse.Namespace) -> Iterator[Result]:
    """The result of all rounds so far, after each."""
    values: dict[str, list[float]] = {way: [] for way in options.ways}
    notes = {}
    case = {"pairs": options.pairs_file.name, "preset": options.preset, "minutes": f"{options.minutes:g}"}
    with tempfile.TemporaryDirectory() as name:
        for turn in range(options.rounds):
            work = Path(name) / str(turn)
            made = timed_training.product(work / "run", options.minutes, options, UNTESTED)
            for way in options.ways:
                found = made if way == OURS else peer(way, work, options)
                values[way].append(found["tokens_per_s"])
                notes[way] = timed_training.told(found)
            yield Result(case=case, unit="real tokens/s", values=values, ours=[OURS], notes=notes)


def peer(way: str, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A run of the peer in a process of its own."""
    timed_training.write_fresh(work / "run", work / way)
    files = (options.pairs_file, options.valid)
    rest = ("--minutes", options.minutes, "--pairs", options.pairs, "--threads", options.threads)
    return machine.alone(__file__, *files, "--alone", way, work, *rest)


def main() -> None:
    parser = measuring.parser_of(__doc__, rounds=2)
    timed_training.add_options(parser)
    parser.add_argument("--minutes", type=float, default=1.0, help="of each way in a round")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.alone:
        way, work = options.alone[0], Path(options.alone[1])
        is_bf16 = way.endswith("bf16")
        print(json.dumps(timed_training.peer(work / way, work / "run", options.minutes, options, is_bf16=is_bf16)))
        return
    measuring.report(measure(options), options.json)


if __name__ == "__main__":
    main()
