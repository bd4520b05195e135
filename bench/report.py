"""Writes docs/benchmarks.md, its tables and its picture, from the files of results.

    python bench/report.py bench/results [--out docs/benchmarks.md]

Each file of the folder is a section, whose text is here and whose figures are there; what was not measured is not in
the page.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import measuring
from measuring import Result

from glassformer.svg import line_chart

HEAD = """# Benchmarks

Written by `bench/report.py` from the results that the scripts in `bench/` leave. `make bench` measures the product
alone, in about five minutes; `make bench-peers` makes an environment with the peers and measures all of them in turn,
in one run.

A figure is the median of its rounds; behind ± stands half of the distance between the largest and the smallest one. In
brackets stands a ratio, the median of those of the rounds. In bold, at a way of the product: to the best peer of the
row; at a peer: of the product's best way to it. Above 1 the product is ahead. In each round every way has a process of
its own. Absolute figures move from machine to machine; the ratios are what to look at. Memory is what a process holds
at most, beyond its imported libraries.

joeynmt 2.3.0 is not among the peers: it wants protobuf below 3.21 and onnx 1.23.2 at least 6.31, so that they cannot
share an environment. How the time to prepare data grows with the corpus is measured by `bench/prepare.py`.
"""

SECTIONS = {  # file -> heading and text, in the order of the page
    "decoding": (
        "Decoding",
        "Random weights, the same in each engine; sources of 20 tokens, 30 tokens forced. `float32`, `int8` and `bf16` "
        "are the product.",
    ),
    "decoding_1_thread": ("Decoding with one thread", "The same on one core."),
    "sentences": (
        "Real sentences",
        "A trained translator on rows that it has not seen, from text to text; BLEU is sacreBLEU on their references.",
    ),
    "sentences_workers": (
        "Real sentences, two workers",
        "The same with two searches of one thread beside each other: two processes of the product (`translate "
        "--workers 2`), CTranslate2's inter_threads=2. CTranslate2 loses much of its speed to its threads where the "
        "products of a model are small.",
    ),
    "text_generation": ("Generation", "124 M random weights; a prompt of 32 tokens, 64 tokens forced, greedy."),
    "embeddings": ("Sentence embeddings", "MiniLM, six layers, from texts to vectors."),
    "training_step": (
        "A training step",
        "64 pairs of 20 + 22 tokens, AdamW, label smoothing, the product through its own trainer. `products` is what "
        "the machine allows: the FLOPs of the step at the speed of matrix products of 2048 rows of these sizes, "
        "measured in the same round; behind it stands the share of that which the product reaches.",
    ),
    "tokens": (
        "Training on real pairs",
        "`glassformer train` beside Seq2SeqTrainer with length grouping: the same architecture and token ids, pads not "
        "counted.",
    ),
    "quality": (
        "Quality in a given time",
        "`glassformer train` with its budget beside Seq2SeqTrainer with length grouping: the same architecture, rows, "
        "time and cores; BLEU is sacreBLEU on rows not seen. The product's time includes its tokenizer and its plan.",
    ),
    "growth": (
        "Growth",
        "Time per token of a training step, beside what the count of FLOPs lets expect from the smallest size; time of "
        "preparing a corpus and passing over it once for each of its pairs, which is expected to stay as it is. The "
        "ratio is that of the expected time to the measured one.",
    ),
    "cold_start": ("Cold start", "From the start of the process to its end."),
    "accelerator": ("On an accelerator", "Training steps of 256 pairs of 64 + 64 tokens, and decoding as above."),
}
PICTURE = "benchmarks-decoding.svg"


def page(folder: Path, images: Path, images_name: str) -> str:
    """The whole page; pictures are written into `images`, which the page calls `images_name`."""
    parts = [HEAD]
    for name, (heading, text) in SECTIONS.items():
        file = folder / f"{name}.json"
        if not file.exists():
            continue
        about, results = measuring.load(file)
        parts += [f"## {heading}\n", f"{text}\n", f"{conditions(about)}\n"]
        parts += [f"![{label}]({images_name}/{file_name})\n" for label, file_name in pictures(name, results, images)]
        parts += [table(group) for group in groups(results)]
        parts += [noted(results)]
    return "\n".join(part for part in parts if part)


def conditions(about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    device = f"{about['device']}, CUDA {about['cuda']}; " if "device" in about else ""
    return (
        f"{about['date']}, `{about['command']}`; {device}{about['machine']}, {about['threads']} threads of "
        f"{about['cores']} cores, load before {about['load_before']:.2f}; Python {about['python']}, {versions}."
    )


def groups(results: Sequence[Result]) -> list[list[Result]]:
    """Results that fit into one table: the same names in the case, the same unit, the same ways."""
    found: dict[Any, list[Result]] = {}
    for result in results:
        found.setdefault((tuple(result.case), result.unit, tuple(result.values)), []).append(result)
    return list(found.values())


def table(results: Sequence[Result]) -> str:
    first = results[0]
    names = [*first.case, *first.values]
    rows = [[*map(str, result.case.values()), *(cell(result, way) for way in result.values)] for result in results]
    lines = [f"{first.unit}:", "", row(names), row(["---"] * len(names)), *map(row, rows), ""]
    return "\n".join(lines)


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(result: Result, way: str) -> str:
    """The figure of a way, its spread, and its ratio to the best of the other side."""
    spread = f" ±{result.spread(way):.0%}" if len(result.values[way]) > 1 else ""
    text = f"{measuring.number(result.median(way))}{spread}"
    peer, best = result.best_peer(), result.best_of_ours()
    if way in result.different() or best is None:
        return text
    if way not in result.ours:
        return f"{text} ({result.ratio(best, way):.2f})"
    return text if peer is None else f"{text} (**{result.ratio(way, peer):.2f}**)"


def noted(results: Sequence[Result]) -> str:
    """What else was seen, a line for each case that has something."""
    lines = [f"- {result.name()}: {'; '.join(remarks)}" for result in results if (remarks := result.remarks())]
    return "\n".join([*lines, ""]) if lines else ""


def pictures(name: str, results: Sequence[Result], images: Path) -> Iterator[tuple[str, str]]:
    """(what it shows, its file) of a section: one is drawn here, those of growth lie there already."""
    if name == "decoding" and (drawn := decoding_picture(results)):
        images.mkdir(parents=True, exist_ok=True)
        (images / PICTURE).write_text(drawn, encoding="utf-8")
        yield "Tokens a second over the batch, base size, greedy", PICTURE
    if name == "growth":
        for axis in dict.fromkeys(result.case["grows"] for result in results):
            file = f"growth-{axis.replace('_', '-')}.svg"
            if (images / file).exists():
                yield f"Time as {axis} grows", file


def decoding_picture(results: Sequence[Result]) -> str:
    """Speed of each way over the batch, greedy, at the base size; empty where that was not measured."""
    series: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        if result.unit == "target tokens/s" and result.case["size"] == "base" and result.case["beam"] == 1:
            for way in result.values:
                series.setdefault(way, []).append((math.log2(result.case["batch"]), result.median(way)))
    if not series:
        return ""
    title = "Decoding, base size, greedy"
    return line_chart(series, title=title, x_label="log2 of the batch", y_label="target tokens/s", log_y=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder with decoding.json and so on")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks.md"))
    options = parser.parse_args()
    text = page(options.results, options.out.parent / "images", "images")
    options.out.write_text(text.rstrip() + "\n", encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
