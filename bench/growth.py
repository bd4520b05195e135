"""Time per token of a training step as width, depth or length grows, beside what the arithmetic lets expect.

    python bench/growth.py [--svg FOLDER] [--dtype float32] [--most 4096] [--corpus PAIRS.tsv]

Each step trains one model on one batch of about the same number of tokens; one size grows, the others stay at d_model
256, 3 + 3 layers and texts of 64 tokens. What is expected is the count of FLOPs for each token (`glassformer info`),
times the seconds that a FLOP takes at the smallest size. A line above it says that something else grows faster than
the matrix products (attention maps that leave the caches, say); one below it, that larger products run better.
With --corpus the corpus grows too (`prepare.py` repeats the given pairs): the time per pair to prepare it and to pass
once over its batches, which is expected to stay the same.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import machine
import measuring
import models
import torch
import training_step
from measuring import Result

from glassformer.config import ModelConfig
from glassformer.model import EncoderDecoder, build_model
from glassformer.shapes import flops_per_token
from glassformer.svg import line_chart

BATCH_TOKENS, LENGTH = 4096, 64  # source and target of a batch; of a text, where its length does not grow
VOCABULARY = 8000
GROWING = {
    "d_model": (128, 256, 512, 1024),
    "layers": (1, 2, 4, 8),  # of each stack
    "length": (64, 128, 256, 512, 1024, 2048, 4096),  # of source and of target
}
CORPUS = (4_000, 40_000, 400_000)  # pairs


def config_of(axis: str, value: int) -> tuple[ModelConfig, int]:
    """The architecture at one point of an axis, and the length of its texts."""
    changes: dict[str, int] = {"vocab_size": VOCABULARY}
    if axis == "d_model":
        changes |= {"d_model": value, "d_ff": 4 * value, "n_heads": value // 64}
    if axis == "layers":
        changes |= {"n_encoder_layers": value, "n_decoder_layers": value}
    return models.model_config("small", **changes), value if axis == "length" else LENGTH


def microseconds(config: ModelConfig, length: int, options: argparse.Namespace) -> list[float]:
    """Time of each round, for one token."""
    n_pairs = max(1, options.tokens // (2 * length))
    batch = training_step.fixed_batch(config, n_pairs, length, length)
    torch.manual_seed(1)
    model = build_model(config).to("cuda" if torch.cuda.is_available() else "cpu")
    assert isinstance(model, EncoderDecoder)
    with tempfile.TemporaryDirectory() as folder:
        way = training_step.product(model, batch, options.dtype, Path(folder))
        seconds, _ = measuring.take_turns({"step": lambda: way.steps(1)}, options.rounds)
    return [1e6 * s / (2 * length * n_pairs) for s in seconds["step"]]


def measure(options: argparse.Namespace) -> Iterator[Result]:
    for axis in options.axis:
        flop_us = 0.0  # what a FLOP takes at the smallest size
        for value in GROWING[axis]:
            if axis == "length" and value > options.most:
                continue
            config, length = config_of(axis, value)
            times = microseconds(config, length, options)
            flops = flops_per_token(config, length, length).training
            flop_us = flop_us or statistics.median(times) / flops
            yield Result(
                case={"grows": axis, axis: value, "type": options.dtype},
                unit="microseconds per token",
                values={"measured": times, "expected": [flops * flop_us] * len(times)},
                ours=["measured"],
                bounds=["expected"],
                is_less_better=True,
            )


def corpus(options: argparse.Namespace) -> Iterator[Result]:
    """Time per pair of preparing a corpus and of a pass over it."""
    expected: list[float] = []  # times at the smallest size
    for n_pairs in CORPUS:
        times = [preparation(options.corpus, n_pairs) for _ in range(options.rounds)]
        expected = expected or times
        yield Result(
            case={"grows": "pairs", "pairs": n_pairs},
            unit="microseconds per pair",
            values={"measured": times, "expected": expected},
            ours=["measured"],
            bounds=["expected"],
            is_less_better=True,
        )


def preparation(data: Path, n_pairs: int) -> float:
    """Microseconds for one pair, each stage in a process of its own."""
    script = Path(__file__).with_name("prepare.py")
    with tempfile.TemporaryDirectory() as folder:
        stages = ("corpus", "prepare", "pass")
        _, prepared, passed = (
            machine.alone(str(script), data, "--pairs", n_pairs, "--stage", stage, folder) for stage in stages
        )
    return 1e6 * (1 / prepared["pairs_per_s"] + (passed["open_s"] + passed["plan_s"] + passed["pass_s"]) / n_pairs)


def picture(results: list[Result], axis: str) -> str:
    """Measured and expected time over one axis, both in logarithms: a straight line is a power."""
    mine = [result for result in results if result.case["grows"] == axis]
    series = {
        name: [(math.log2(result.case[axis]), result.median(way)) for result in mine]
        for way, name in (("measured", "measured"), ("expected", "expected"))
    }
    what = "Time per pair of preparation" if axis == "pairs" else "Time per token of a training step"
    title = f"{what} as {axis} grows"
    return line_chart(series, title=title, x_label=f"log2 of {axis}", y_label="microseconds", log_y=True)


def main() -> None:
    parser = measuring.parser_of(__doc__, rounds=2)
    parser.add_argument("--axis", nargs="*", choices=GROWING, default=list(GROWING))
    parser.add_argument("--dtype", choices=training_step.DTYPES, default="float32")
    parser.add_argument("--most", type=int, default=4096, help="the longest text")
    parser.add_argument("--tokens", type=int, default=BATCH_TOKENS, help="of a batch, source and target")
    parser.add_argument("--corpus", type=Path, metavar="PAIRS.tsv", help="pairs that a growing corpus is made of")
    parser.add_argument("--svg", type=Path, metavar="FOLDER", help="write growth-d_model.svg and so on there")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    work = itertools.chain(measure(options), corpus(options) if options.corpus else ())
    results = measuring.report(work, options.json)
    if options.svg:
        options.svg.mkdir(parents=True, exist_ok=True)
        for axis in [*options.axis, *(["pairs"] if options.corpus else [])]:
            path = options.svg / f"growth-{axis.replace('_', '-')}.svg"
            path.write_text(picture(results, axis), encoding="utf-8")


if __name__ == "__main__":
    main()
