"""Tokens a second of a training step of fixed shape: the product's trainer beside its peers, in one run.

    python bench/training_step.py [--size base small] [--dtype float32 bf16] [--memory base] [--ways ...]

A step: 64 pairs of 20 source and 22 target tokens, no pads, no dropout; label smoothing 0.1, gradients clipped to 1,
AdamW. The product runs its own `Trainer`, on a stream of one batch; the peers run the same step around their logits,
under bf16 autocast where bf16 is asked for. In each round the ways take turns, each in a process of its own. torch.nn
and transformers hold the product's weights, and the loss of each before training stands in the notes; x-transformers
has fresh weights. `products` is no way to train but the matrix limit: the tokens a second if the FLOPs of the step took
the time of products of 2048 rows at these sizes in this type.
--memory adds the most memory of a process that makes two steps of 4,096 tokens, for the sizes that it names.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import machine
import measuring
import models
import torch
import training_peers
from measuring import Result
from torch import nn

from glassformer.config import ModelConfig, TrainingConfig, ValidationConfig
from glassformer.data.batches import Batch
from glassformer.data.stream import UpdateGroup
from glassformer.shapes import flops_per_token

if TYPE_CHECKING:
    from glassformer.model import EncoderDecoder

SHAPE = (64, 20, 22)  # pairs, source tokens, target tokens
MEMORY_SHAPE = (round(4096 / 42), 20, 22)
SMOOTHING, LR, NEVER = 0.1, 1e-4, 10**9
OURS = ("glassformer", "glassformer-compiled")
LIMIT = "products"
WAYS = (*OURS, "torch.nn", "transformers", "x-transformers", LIMIT)
LIBRARY = {"transformers": "transformers", "x-transformers": "x_transformers", "glassformer": "glassformer.tasks"}
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class Way:
    """A model in training: makes n steps, and says its loss per token as it stands."""

    steps: Callable[[int], None]
    loss: Callable[[], float]


def fixed_batch(config: ModelConfig, n_pairs: int, src_tokens: int, tgt_tokens: int) -> Batch:
    """Random pairs without a pad."""
    draw = torch.Generator().manual_seed(7)
    src = torch.randint(4, config.vocab_size, (n_pairs, src_tokens), generator=draw)
    tgt = torch.randint(4, config.vocab_size, (n_pairs, tgt_tokens), generator=draw)
    src[:, -1] = tgt[:, -1] = config.eos_id
    tgt_in = tgt.roll(1, 1)
    tgt_in[:, 0] = config.bos_id
    sizes = {"n_tokens": tgt.numel(), "n_src_tokens": src.numel()}
    return Batch(src=src, tgt_in=tgt_in, tgt_out=tgt, rows=torch.arange(n_pairs), **sizes)


# -- the product ----------------------------------------------------------------------------------------------------


class _Enough(Exception):
    """The steps of this round are made: ends a run that would go on."""


class OneBatch:
    """A stream that gives the same batch `n_left` times."""

    def __init__(self, batch: Batch) -> None:
        self.group = UpdateGroup(batches=[batch], n_tokens=batch.n_tokens, n_sentences=len(batch.rows), epoch=0)
        self.n_left = 0

    def __iter__(self) -> OneBatch:
        return self

    def __next__(self) -> UpdateGroup:
        if self.n_left == 0:
            raise _Enough
        self.n_left -= 1
        return self.group


def product(model: EncoderDecoder, batch: Batch, dtype: str, folder: Path, *, is_compiled: bool = False) -> Way:
    """The trainer as `glassformer train` runs it, without validations and checkpoints."""
    from glassformer.allocator import keep_freed_memory
    from glassformer.training.checkpoint import Checkpoints
    from glassformer.training.objectives import TranslationLoss
    from glassformer.training.parallel import Parallel
    from glassformer.training.progress import RunLog
    from glassformer.training.trainer import RunLength, Trainer

    keep_freed_memory()
    loss = TranslationLoss(model, smoothing=SMOOTHING)
    stream = OneBatch(batch)
    trainer = Trainer(
        loss,
        model,
        stream,  # type: ignore[arg-type]
        config=TrainingConfig(
            precision=dtype,  # type: ignore[arg-type]
            lr=LR,
            save_every=NEVER,
            save_every_s=float("inf"),
            log_every=NEVER,
            compile=is_compiled,
        ),
        validation=ValidationConfig(every=NEVER),
        length=RunLength(total_updates=NEVER, train_s=None, lr=LR, warmup_steps=1),
        checkpoints=Checkpoints(folder, keep_last=1),
        log=RunLog(folder, is_main=False),
        parallel=Parallel(),
        validate=lambda model: {},
        on_best=lambda weights, figures: None,
    )

    def steps(n: int) -> None:
        stream.n_left = n
        with suppress(_Enough), redirect_stderr(StringIO()):  # there its status would go
            trainer.run()
        machine.synchronize()

    @torch.no_grad()
    def value() -> float:
        with torch.autocast(trainer.device.type, torch.bfloat16, enabled=dtype == "bf16"):
            return float(loss(batch.to(trainer.device))[1]) / batch.n_tokens

    return Way(steps=steps, loss=value)


# -- the peers ------------------------------------------------------------------------------------------------------


def peer(model: nn.Module, logits: training_peers.Logits, batch: Batch, dtype: str) -> Way:
    """The same step around a peer's logits."""
    device = next(model.parameters()).device
    batch = batch.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), fused=True)
    model.train()

    def loss(smoothing: float) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == "bf16"):
            scores = logits(batch).flatten(0, 1)
            return nn.functional.cross_entropy(scores, batch.tgt_out.flatten(), label_smoothing=smoothing)

    def steps(n: int) -> None:
        for _ in range(n):
            loss(SMOOTHING).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        machine.synchronize()

    def value() -> float:
        with torch.no_grad():
            return float(loss(0.0))

    return Way(steps=steps, loss=value)


def n_tokens(shape: tuple[int, int, int]) -> int:
    """Source and target tokens of a batch."""
    return shape[0] * (shape[1] + shape[2])


def load(name: str, dtype: str, work: Path, shape: tuple[int, int, int]) -> Way:
    """A way to train the model in `work`, on the accelerator where there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = models.config_of(work)
    batch = fixed_batch(config, *shape)
    if name in OURS:
        from glassformer.tasks.model_folder import load_model_folder

        ours = load_model_folder(work / models.OURS).model.to(device)
        return product(ours, batch, dtype, work / "run", is_compiled=name.endswith("compiled"))  # type: ignore[arg-type]
    if name == "torch.nn":
        model, logits = training_peers.torch_nn(work / name, config)
    elif name == "transformers":
        assert config.pad_id is not None
        model, logits = training_peers.transformers_model(work / name, config.pad_id)
    else:
        model, logits = training_peers.x_transformers_model(config)
    return peer(model.to(device), logits, batch, dtype)


# -- the measurement ------------------------------------------------------------------------------------------------


def matrix_limit(config: ModelConfig, dtype: str) -> float:
    """FLOP/s that a step would reach if its products ran as fast as those of 2048 rows do, each size by its share."""
    d, n_enc, n_dec = config.d_model, config.n_encoder_layers, config.n_decoder_layers
    _, s, t = SHAPE
    inner = d * config.d_ff * (n_enc * s + n_dec * t)
    work = {
        (d, d): d * d * (4 * n_enc * s + n_dec * (6 * t + 2 * s)),
        (d, config.d_ff): inner,
        (config.d_ff, d): inner,
        (d, config.vocab_size): d * config.vocab_size * t,
    }
    times = sum(n / machine.matrix_rate(2048, *widths, DTYPES[dtype]) for widths, n in work.items())
    return sum(work.values()) / times


def prepare(work: Path, options: argparse.Namespace) -> None:
    for size in options.size:
        written = {models.OURS, *options.ways} & {models.OURS, "transformers", "torch.nn"}
        models.write(models.random_folder(models.model_config(size)), work / size, written)


def measure(work: Path, options: argparse.Namespace) -> Iterator[Result]:
    for size in options.size:
        for dtype in options.dtype:
            case = {"size": size, "type": dtype}
            yield speed(case, work / size, options)
            if size in options.memory and options.ways != [LIMIT]:
                yield memory(case, work / size, options)


def speed(case: dict[str, str], work: Path, options: argparse.Namespace) -> Result:
    ways = {name: load(name, case["type"], work, SHAPE) for name in options.ways if name != LIMIT}
    losses = {name: f"{way.loss():.4f}" for name, way in ways.items()}
    runs = {name: lambda way=way: way.steps(options.steps) for name, way in ways.items()}  # type: ignore[misc]
    seconds, _ = measuring.take_turns(runs, options.rounds)
    values = measuring.per_second(options.steps * n_tokens(SHAPE), seconds)
    if LIMIT in options.ways:
        config = models.config_of(work)
        flops = flops_per_token(config, *SHAPE[1:]).training
        values[LIMIT] = [matrix_limit(config, case["type"]) / flops for _ in range(options.rounds)]
    return Result(
        case=case,
        unit="source + target tokens/s",
        values=values,
        ours=[name for name in ways if name in OURS],
        bounds=[LIMIT] if LIMIT in values else [],
        notes={f"loss of {name} before": loss for name, loss in losses.items()},
    )


def memory(case: dict[str, str], work: Path, options: argparse.Namespace) -> Result:
    rest = ("--dtype", case["type"], "--threads", options.threads)
    values = {
        name: [machine.alone(__file__, "--alone", name, work, *rest)["mib"] for _ in range(options.rounds)]
        for name in options.ways
        if name not in ("glassformer-compiled", LIMIT)
    }
    ours = [name for name in values if name in OURS]
    case = case | {"tokens": f"{n_tokens(MEMORY_SHAPE):,}"}
    return Result(case=case, unit="MiB at most, libraries left out", values=values, ours=ours, is_less_better=True)


def main() -> None:
    parser = measuring.parser_of(__doc__, rounds=2)
    measuring.add_ways(parser, WAYS, [way for way in WAYS if way != OURS[1]])
    parser.add_argument("--size", nargs="*", choices=models.SIZES, default=["base", "small"])
    parser.add_argument("--dtype", nargs="*", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--steps", type=int, default=3, help="of each way in a round")
    parser.add_argument("--memory", nargs="*", choices=models.SIZES, default=[], help="sizes: also the most memory")
    parser.add_argument("--alone", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.alone:
        name, work = options.alone
        with machine.memory_of(LIBRARY.get(name, "torch")):
            load(name, options.dtype[0], Path(work), MEMORY_SHAPE).steps(2)
        return
    parts = [("--size", size, "--dtype", dtype) for size in options.size for dtype in options.dtype]
    measuring.run(options, lambda work: prepare(work, options), lambda work: measure(work, options), parts)


if __name__ == "__main__":
    main()
