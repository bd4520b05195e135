"""Chooses what the user left open, from the data and the machine, and says why."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch

from glassformer.config import Config
from glassformer.data.batches import BatchPlan
from glassformer.data.store import TokenStore
from glassformer.data.stream import BatchStream
from glassformer.errors import ConfigError
from glassformer.model import EncoderDecoder
from glassformer.presets import PRESETS
from glassformer.training.objectives import TranslationLoss
from glassformer.training.optimizer import build_optimizers
from glassformer.training.progress import duration
from glassformer.training.trainer import RunLength

__all__ = ["Plan", "batch_plan", "choose_precision", "make_plan", "measure_speed"]

LAPTOP_PRESETS = ("medium", "small", "tiny")  # what a budget chooses among, largest first
MIN_EPOCHS = 2.0  # a budget takes the largest preset that still sees the data about this often
FEW_EPOCHS = 4.0  # below this, dropout costs time and learning and prevents nothing
RESERVE_SHARE = 0.025  # of a budget, for the last evaluation and saving
MEASURE_S = 4.0  # seconds of real updates that measure a preset
PAIRS_WANTED = 3_000_000  # pairs seen in a run whose length nobody set


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The resolved config, the length of the run, and one reason for each choice."""

    config: Config
    length: RunLength
    reasons: list[str]


def make_plan(config: Config, store: TokenStore, *, chosen: set[str], elapsed_s: Callable[[], float]) -> Plan:
    """Fills in what `config` leaves open.

    Args:
        config: The settings as resolved; `model.vocab_size` is that of the tokenizer already.
        store: The training pairs.
        chosen: Names (`section.key`) that the user set; these are never changed.
        elapsed_s: Seconds since the command began; they count against a budget.
    """
    reasons: list[str] = []
    training, data, validation = config.training, config.data, config.validation
    if training.precision == "auto":
        precision, reason = choose_precision()
        training = replace(training, precision=precision)
        reasons.append(reason)
    if data.batch_tokens is None:
        data = replace(data, batch_tokens=16_000 if torch.cuda.is_available() else 3_000)
        reasons.append(f"data.batch_tokens={data.batch_tokens}: small batches learn most in a given time.")
    config = replace(config, training=training, data=data)

    if training.budget_s is not None and not any(name.startswith("model.") for name in chosen - {"model.vocab_size"}):
        config, reason = _choose_model(config, store, training.budget_s - elapsed_s())
        reasons.append(reason)
    lr = training.lr
    if lr is None:
        lr = 1.5e-3 * (256 / config.model.d_model) ** 0.5
        reasons.append(f"training.lr={lr:.2g}: 1.5e-3 at width 256, falling with its square root.")

    stream = BatchStream(batch_plan(config, store), accumulation=training.accumulation)
    per_epoch = stream.updates_per_epoch
    total, train_s = training.steps, None
    if training.budget_s is not None:
        train_s = training.budget_s * (1 - RESERVE_SHARE) - elapsed_s() - 1.0
        _require_time(train_s, training.budget_s)
        update_s = _update_seconds(config, store, MEASURE_S)
        train_s -= MEASURE_S
        expected = train_s / update_s
        reasons.append(
            f"{duration(train_s)} of training: about {expected:,.0f} updates, {expected / per_epoch:.1f} epochs; "
            f"{RESERVE_SHARE:.1%} of the budget is kept for the last evaluation."
        )
        seconds = training.budget_s
        if "validation.rows" not in chosen:
            validation = replace(validation, rows=round(min(max(0.8 * seconds, 100), 1000)))
        if "validation.bleu_rows" not in chosen:
            validation = replace(validation, bleu_rows=round(min(max(0.1 * seconds, 20), 200)))
    elif total is None:
        epochs = training.epochs
        if epochs is None:
            epochs = float(min(max(round(PAIRS_WANTED / len(store)), 3), 60))
            patience = validation.patience if "validation.patience" in chosen else 5
            validation = replace(validation, patience=patience)
            reasons.append(
                f"{epochs:g} epochs (about {PAIRS_WANTED:,} pairs, within 3 and 60 epochs), "
                f"ended early after {patience} validations without a better {validation.metric}."
            )
        total = max(1, round(epochs * per_epoch))
        expected = float(total)
    else:
        expected = float(total)
    n_epochs = expected / per_epoch
    if "model.dropout" not in chosen and config.model.dropout and n_epochs < FEW_EPOCHS:
        config = replace(config, model=replace(config.model, dropout=0.0))
        reasons.append(f"model.dropout=0: {n_epochs:.1f} passes over the data, under {FEW_EPOCHS:g}, do not overfit.")
    warmup = training.warmup_steps
    if warmup is None:
        warmup = min(4000, max(1, round(expected / 20)))
        reasons.append(f"training.warmup_steps={warmup}: a 20th of the run, at most 4000.")
    if training.average_last:
        save_every = training.save_every or max(1, round(expected / 20))
        training = replace(
            training,
            save_every=save_every,
            save_every_s=float("inf"),
            keep_last=max(training.keep_last, training.average_last),
        )
        reasons.append(f"training.save_every={save_every}: the last {training.average_last} checkpoints are averaged.")
    length = RunLength(total_updates=total, train_s=train_s, lr=lr, warmup_steps=warmup)
    return Plan(config=replace(config, training=training, validation=validation), length=length, reasons=reasons)


def batch_plan(config: Config, store: TokenStore) -> BatchPlan:
    """The batches that a config describes."""
    data, model = config.data, config.model
    assert data.batch_tokens is not None and model.pad_id is not None
    return BatchPlan(
        store,
        batch_tokens=data.batch_tokens,
        sort_window=data.sort_window,
        seed=config.training.seed,
        pad_id=model.pad_id,
        bos_id=model.bos_id,
        eos_id=model.eos_id,
    )


def choose_precision() -> tuple[Literal["float32", "bf16"], str]:
    """bf16 where a matrix product is at least 1.3 times as fast in it, measured for a fraction of a second."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rates = {dtype: _product_rate(dtype, device) for dtype in (torch.float32, torch.bfloat16)}
    ratio = rates[torch.bfloat16] / rates[torch.float32]
    name: Literal["float32", "bf16"] = "bf16" if ratio >= 1.3 else "float32"
    reason = f"a bf16 product is {ratio:.2f} times as fast as a float32 one on this machine."
    return name, f"training.precision={name}: {reason}"


def measure_speed(config: Config, store: TokenStore, seconds: float) -> float:
    """Source and target tokens a second of real updates (forward, backward, optimizer) with fresh weights."""
    update_s, tokens = _run_updates(config, store, seconds)
    return tokens / update_s


def _update_seconds(config: Config, store: TokenStore, seconds: float) -> float:
    return _run_updates(config, store, seconds)[0]


def _run_updates(config: Config, store: TokenStore, seconds: float) -> tuple[float, float]:
    """Mean seconds and tokens of an update. The global random state is left as it was."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with torch.random.fork_rng():
        model = EncoderDecoder(config.model).to(device)
        loss = TranslationLoss(model, smoothing=config.training.label_smoothing)
        optimizers = build_optimizers(model, config.training, lr=1e-5)
        stream = BatchStream(batch_plan(config, store), accumulation=config.training.accumulation)
        n_updates, n_tokens, started = 0, 0, 0.0
        for number, group in enumerate(stream):
            if number == 1:  # the first update warms up
                n_updates, n_tokens, started = 0, 0, time.monotonic()
            for batch in group.batches:
                with torch.autocast(device.type, torch.bfloat16, enabled=config.training.precision == "bf16"):
                    value, _ = loss(batch.to(device))
                (value / max(group.n_tokens, 1)).backward()
                n_tokens += batch.n_src_tokens + batch.n_tokens
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            n_updates += 1
            if number > 0 and (time.monotonic() - started > seconds):
                break
    return (time.monotonic() - started) / n_updates, n_tokens / n_updates


def _choose_model(config: Config, store: TokenStore, seconds_left: float) -> tuple[Config, str]:
    """The largest laptop preset that sees the data MIN_EPOCHS times in the budget, or the smallest one."""
    epoch_tokens = float(store.lengths.sum()) + 2 * len(store)
    tried = []
    for name in LAPTOP_PRESETS:
        fields = {key: value for key, value in PRESETS[name].items() if key != "vocab_size"}
        candidate = replace(config, model=replace(config.model, **fields))
        epochs = measure_speed(candidate, store, MEASURE_S) * seconds_left / epoch_tokens
        tried.append(f"{name} {epochs:.1f}")
        if epochs >= MIN_EPOCHS:
            break
    return candidate, f"preset {name}: epochs in the budget by preset: {', '.join(tried)}; {MIN_EPOCHS:g} are wanted."


def _product_rate(dtype: torch.dtype, device: torch.device) -> float:
    a, b = torch.randn(1024, 512, device=device, dtype=dtype), torch.randn(512, 1024, device=device, dtype=dtype)
    a @ b
    started, count = time.monotonic(), 0
    while time.monotonic() - started < 0.1:
        a @ b
        count += 1
    if device.type == "cuda":
        torch.cuda.synchronize()
    return count / (time.monotonic() - started)


def _require_time(train_s: float, budget_s: float) -> None:
    if train_s < 5:
        raise ConfigError(
            f"A budget of {duration(budget_s)} leaves {max(train_s, 0):.0f} s for training after the preparation.",
            "At least 5 s are needed.",
            "Give a larger --budget, or less data.",
        )
