"""On a machine with CUDA, in under eight minutes: first whether the product is right there, then how fast it is.

    python bench/accelerator.py [--size base big] [--limit-s 450] [--json FILE]

The checks compare with the reference equations in float64 on the same device: fused attention, decoding with the
key-value cache, bf16, and the tokens of a greedy search with those of the CPU. Any difference beyond its bound ends the
script with 1 before anything is timed. Then come training steps and decoding beside transformers, with the same
weights, and the share of the bf16 peak, measured with a product of 8192 x 8192 x 8192. What does not fit into the time
is left out and named.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import decoding
import machine
import measuring
import models
import torch
import training_step
from measuring import Result
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.interop.parity import BOUNDS
from glassformer.model import EncoderDecoder, build_model, twin
from glassformer.model.quantized import with_precision
from glassformer.model.steps import reference_kernel
from glassformer.shapes import flops_per_token

TRAINING_SHAPE = (256, 64, 64)  # pairs, source tokens, target tokens of a step
CELLS = ((1, 1), (1, 4), (64, 1), (64, 4), (512, 1))  # batch, beam
CHECKED_TOKENS = 24  # of the texts that the checks compare
ROUNDS = 5


# -- is it right? ---------------------------------------------------------------------------------------------------


def inputs(config: ModelConfig, n_rows: int = 8) -> tuple[Tensor, Tensor]:
    """Sources and targets of different lengths, padded."""
    draw = torch.Generator().manual_seed(5)
    shape = (n_rows, CHECKED_TOKENS)
    src, tgt = (torch.randint(4, config.vocab_size, shape, generator=draw) for _ in range(2))
    lengths = torch.randint(CHECKED_TOKENS // 2, CHECKED_TOKENS + 1, (n_rows, 1), generator=draw)
    assert config.pad_id is not None
    return src.masked_fill(torch.arange(CHECKED_TOKENS) >= lengths, config.pad_id), tgt


def cached_logits(model: EncoderDecoder, src: Tensor, tgt: Tensor) -> Tensor:
    """The logits of `model(src, tgt)`, token by token with a cache."""
    cache = model.new_cache(src, tgt.shape[1])
    return torch.cat([model.decode_step(tgt[:, i : i + 1], cache) for i in range(tgt.shape[1])], 1)


@torch.no_grad()
def checks(config: ModelConfig, device: str) -> dict[str, tuple[float, float]]:
    """Name of a way to compute -> its largest difference to the reference, over the largest logit, and the bound."""
    torch.manual_seed(1)
    model = build_model(config).eval()
    assert isinstance(model, EncoderDecoder)
    model = model.to(device)
    src, tgt = (ids.to(device) for ids in inputs(config))
    exact = twin(model, reference_kernel)
    reference = with_type(exact, torch.float64)(src, tgt)
    half = with_precision(model, "bf16")
    ways: dict[str, tuple[Tensor, float]] = {
        "reference, float32": (exact(src, tgt), BOUNDS["float32"]),
        "fused, float32": (model(src, tgt), BOUNDS["float32"]),
        "cached, float32": (cached_logits(model, src, tgt), BOUNDS["float32"]),
        "fused, bf16": (half(src, tgt), BOUNDS["bf16"]),
        "cached, bf16": (cached_logits(half, src, tgt), BOUNDS["bf16"]),
    }
    largest = float(reference.abs().max())
    return {name: (float((out - reference).abs().max()) / largest, bound) for name, (out, bound) in ways.items()}


def with_type(model: EncoderDecoder, dtype: torch.dtype) -> EncoderDecoder:
    return copy.deepcopy(model).to(dtype)


def same_tokens(work: Path, device: str) -> bool:
    """Whether a greedy search in float32 makes the tokens that the CPU makes."""
    src = decoding.sources(8, 1000, 2)
    made = [
        decoding.ours(work / models.OURS, "float32", where)(src, 1, decoding.TGT_TOKENS) for where in ("cpu", device)
    ]
    return made[0] == made[1]


def require_right(config: ModelConfig, work: Path, device: str) -> None:
    """Prints each check, and ends the script where one fails."""
    found = checks(config, device)
    for name, (difference, bound) in found.items():
        print(f"{name}: {difference:.2g} of the largest logit, bound {bound:.2g}")
    failed = [name for name, (difference, bound) in found.items() if not difference <= bound]
    if not same_tokens(work, device):
        failed.append("tokens of a greedy search")
    if failed:
        raise SystemExit(f"Beyond the bound: {'; '.join(failed)}. Nothing was timed.")
    print("All checks passed.", flush=True)


# -- is it fast? ----------------------------------------------------------------------------------------------------


def train(size: str, dtype: str, work: Path) -> Result:
    """Training steps beside transformers."""
    config, names = models.model_config(size), ("glassformer", "glassformer-compiled", "transformers")
    ways = {name: training_step.load(name, dtype, work, TRAINING_SHAPE) for name in names}
    seconds, _ = measuring.take_turns({n: lambda way=way: way.steps(3) for n, way in ways.items()}, ROUNDS)  # type: ignore[misc]
    values = measuring.per_second(3 * training_step.n_tokens(TRAINING_SHAPE), seconds)
    case = {"work": "training step", "size": size, "type": dtype}
    result = Result(case=case, unit="source + target tokens/s", values=values, ours=list(names[:2]))
    flops = flops_per_token(config, *TRAINING_SHAPE[1:]).training
    peak = machine.matrix_rate(8192, 8192, 8192, training_step.DTYPES[dtype])
    shares = [f"{name} {result.median(name) * flops / peak:.0%}" for name in names]
    result.notes[f"share of {peak / 1e12:,.0f} TFLOP/s"] = ", ".join(shares)
    return result


def decode(size: str, cell: tuple[int, int], ways: dict[str, decoding.Way]) -> Result:
    batch, beam = cell
    src = decoding.sources(batch, 1000, 2)
    runs = {name: lambda way=way: way(src, beam, decoding.TGT_TOKENS) for name, way in ways.items()}  # type: ignore[misc]
    seconds, _ = measuring.take_turns(runs, ROUNDS)
    return Result(
        case={"work": "decoding", "size": size, "batch": batch, "beam": beam},
        unit="target tokens/s",
        values=measuring.per_second(batch * decoding.TGT_TOKENS, seconds),
        ours=["float32", "bf16"],
    )


def decoding_ways(work: Path) -> dict[str, decoding.Way]:
    ours, theirs = work / models.OURS, work / "transformers"
    return {
        "float32": decoding.ours(ours, "float32", "cuda"),
        "bf16": decoding.ours(ours, "bf16", "cuda"),
        "transformers": decoding.transformers_way(theirs, torch.float32, "cuda"),
        "transformers-bf16": decoding.transformers_way(theirs, torch.bfloat16, "cuda"),
    }


def jobs(size: str, work: Path) -> Iterator[tuple[str, Callable[[], Result]]]:
    """What is measured of a size, what matters most first."""
    for dtype in ("bf16", "float32"):
        yield f"training {size} {dtype}", lambda dtype=dtype: train(size, dtype, work)  # type: ignore[misc]
    ways = decoding_ways(work)
    for cell in CELLS:
        yield f"decoding {size} {cell}", lambda cell=cell: decode(size, cell, ways)  # type: ignore[misc]


def measure(options: argparse.Namespace) -> Iterator[Result]:
    deadline = time.monotonic() + options.limit_s
    for size in options.size:
        with tempfile.TemporaryDirectory() as name:
            work, config = Path(name), models.model_config(size)
            models.write(models.random_folder(config), work, {models.OURS, "transformers"})
            require_right(config, work, "cuda")
            for title, job in jobs(size, work):
                if time.monotonic() > deadline:
                    print(f"left out, the time is over: {title}", flush=True)
                    continue
                yield job()
                torch.cuda.empty_cache()


def about_device() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {"device": properties.name, "memory_gib": round(properties.total_memory / 2**30), "cuda": torch.version.cuda}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", nargs="*", choices=models.SIZES, default=["base", "big"])
    parser.add_argument("--limit-s", type=float, default=450, help="nothing new is begun after so many seconds")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("This script measures a CUDA device, and torch sees none here. On a CPU, run `make bench`.")
    print(about_device())
    measuring.report(measure(options), options.json, **about_device())


if __name__ == "__main__":
    main()
