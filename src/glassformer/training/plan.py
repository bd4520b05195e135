"""Chooses what the user left open, from the data and the machine, and says why."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from glassformer.config import Config
from glassformer.data.store import TokenStore
from glassformer.data.stream import BatchStream
from glassformer.errors import ConfigError
from glassformer.model import build_model
from glassformer.presets import PRESETS
from glassformer.shapes import total
from glassformer.training.finetuning import choose_trained
from glassformer.training.objectives import Objective
from glassformer.training.optimizer import build_optimizers
from glassformer.training.progress import duration
from glassformer.training.trainer import RunLength

__all__ = ["Plan", "choose_precision", "make_plan", "measure_speed"]

LAPTOP_PRESETS = ("medium", "small", "tiny")  # what a budget chooses among, largest first
TOKENS_PER_PARAMETER = 0.5  # a budget takes the largest preset that sees so many tokens for each of its parameters
BATCH_TOKENS, GPU_BATCH_TOKENS = 3_000, 16_000  # of a batch, source and target, when nothing else is said
UPDATES_WANTED, MIN_BATCH_TOKENS = 3_000, 800  # a budget lowers the batch until it buys so many updates
FEW_UPDATES = 300  # under so many a model knows next to nothing
FEW_EPOCHS = 4.0  # below this, dropout costs time and learning and prevents nothing
RESERVE_SHARE = 0.025  # of a budget, for the last evaluation and saving
MEASURE_S = 4.0  # seconds of real updates that measure a preset
SHORT_S = 120.0  # a budget that leaves no more has time for the smallest preset only
PAIRS_WANTED = 3_000_000  # pairs seen in a run whose length nobody set
STARTED_PAIRS_WANTED = 300_000  # the same for a run that starts from a trained model
STARTED_LR_SHARE = 0.1  # of a fresh model's rate: steps of that size would write over what the start has learned


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The resolved config, the length of the run, and one reason for each choice."""

    config: Config
    length: RunLength
    reasons: list[str]


def make_plan(
    config: Config, store: TokenStore, objective: Objective, *, chosen: set[str], elapsed_s: Callable[[], float]
) -> Plan:
    """Fills in what `config` leaves open.

    Args:
        config: The settings as resolved; `model.vocab_size` is that of the tokenizer already.
        store: The training data.
        objective: What is learned from them.
        chosen: Names (`section.key`) that the user set; these are never changed.
        elapsed_s: Seconds since the command began; they count against a budget.
    """
    planner = _Planner(config, store, objective, chosen, elapsed_s)
    planner.choose_precision_and_batch()
    if config.training.budget_s is not None:
        planner.spend_budget(config.training.budget_s)
    else:
        planner.count_updates()
    planner.choose_rate()
    return planner.plan()


class _Planner:
    """Makes one choice after another; each leaves a reason."""

    def __init__(
        self,
        config: Config,
        store: TokenStore,
        objective: Objective,
        chosen: set[str],
        elapsed_s: Callable[[], float],
    ) -> None:
        self.config, self.store, self.objective = config, store, objective
        self.chosen, self.elapsed_s = chosen, elapsed_s
        self.is_started = config.task.start is not None
        self.reasons: list[str] = []
        self.total_updates: int | None = None
        self.train_s: float | None = None
        self.expected_updates = 0.0
        self.n_epochs = 0.0

    def _set(self, section: str, reason: str = "", **values: Any) -> None:
        """Sets fields of a section that the user left open, and notes why."""
        values = {key: value for key, value in values.items() if f"{section}.{key}" not in self.chosen}
        if values:
            self.config = replace(self.config, **{section: replace(getattr(self.config, section), **values)})
            if reason:
                self.reasons.append(reason)

    def choose_precision_and_batch(self) -> None:
        """bf16 or float32, and the size of a batch before a budget may lower it."""
        if self.config.training.precision == "auto":
            precision, reason = choose_precision()
            self.config = replace(self.config, training=replace(self.config.training, precision=precision))
            self.reasons.append(reason)
        if self.config.data.batch_tokens is None:
            n_tokens = GPU_BATCH_TOKENS if torch.cuda.is_available() else BATCH_TOKENS
            self.config = replace(self.config, data=replace(self.config.data, batch_tokens=n_tokens))

    def spend_budget(self, budget_s: float) -> None:
        """Model, batch and validations that fit into the time, measured with real updates."""
        epoch_tokens = float(self.store.n_tokens) + 2 * len(self.store)
        if self.is_started or any(name.startswith("model.") for name in self.chosen):
            speed = measure_speed(self.config, self.store, self.objective, MEASURE_S)
        else:
            speed = self._choose_model(budget_s - self.elapsed_s())
        self.train_s = budget_s * (1 - RESERVE_SHARE) - self.elapsed_s() - 1.0
        _require_time(self.train_s, budget_s)
        n_tokens = speed * self.train_s
        self.n_epochs = n_tokens / epoch_tokens
        assert self.config.data.batch_tokens is not None
        batch_tokens = round(min(max(n_tokens / UPDATES_WANTED, MIN_BATCH_TOKENS), self.config.data.batch_tokens))
        self._set(
            "data",
            f"data.batch_tokens={batch_tokens}: about {UPDATES_WANTED:,} updates are wanted.",
            batch_tokens=batch_tokens,
        )
        self.expected_updates = n_tokens / self.config.data.batch_tokens
        self.reasons.append(
            f"{duration(self.train_s)} of training at {speed:,.0f} tokens/s: about {self.expected_updates:,.0f} "
            f"updates, {self.n_epochs:.1f} passes over the data; {RESERVE_SHARE:.1%} of the budget is kept for the "
            "last figures."
        )
        if self.expected_updates < FEW_UPDATES:
            self.reasons.append(
                f"Fewer than {FEW_UPDATES} updates teach a model little: raise the budget, take a smaller --preset, or "
                "stop what else keeps this machine busy."
            )
        rows, bleu_rows = round(min(max(0.3 * budget_s, 100), 1000)), round(min(max(0.05 * budget_s, 20), 200))
        self._set("validation", rows=rows)
        self._set("validation", bleu_rows=bleu_rows)

    def _choose_model(self, seconds_left: float) -> float:
        """The largest laptop preset that sees enough tokens for its size, or the smallest one; returns its tokens/s."""
        tried = []
        names = LAPTOP_PRESETS if seconds_left > SHORT_S else LAPTOP_PRESETS[-1:]  # to try the large ones takes time
        for name in names:
            fields = {key: value for key, value in PRESETS[name].items() if key != "vocab_size"}
            # As it was before `fit`, which turned it into the objective's family and set a head on it.
            plain: dict[str, Any] = {"family": "encoder-decoder", "head": "none", "use_mlm_head": False}
            fresh = replace(self.config.model, **plain, **fields)
            candidate = replace(self.config, model=self.objective.fit(fresh))
            speed = measure_speed(candidate, self.store, self.objective, MEASURE_S)
            ratio = speed * seconds_left / total(candidate.model)
            tried.append(f"{name} {ratio:.2f}")
            if ratio >= TOKENS_PER_PARAMETER:
                break
        self.config = candidate
        self.reasons.append(
            f"preset {name}: tokens for each parameter in the budget: {', '.join(tried)}; "
            f"{TOKENS_PER_PARAMETER:g} are wanted."
        )
        return speed

    def count_updates(self) -> None:
        """The length in updates, from steps or epochs, or from the size of the data."""
        training = self.config.training
        stream = BatchStream(self.objective.batches(self.config, self.store), accumulation=training.accumulation)
        per_epoch = stream.updates_per_epoch
        self.total_updates = training.steps
        if self.total_updates is None:
            epochs = training.epochs
            if epochs is None:
                wanted, most = (STARTED_PAIRS_WANTED, 20) if self.is_started else (PAIRS_WANTED, 60)
                epochs = float(min(max(round(wanted / len(self.store)), 3), most))
                self._set("validation", patience=5)
                self.reasons.append(
                    f"{epochs:g} epochs (about {wanted:,} {self.objective.unit}, within 3 and {most} epochs), ended "
                    f"early after {self.config.validation.patience} validations without a better "
                    f"{self.config.validation.metric}."
                )
            self.total_updates = max(1, round(epochs * per_epoch))
        self.expected_updates = float(self.total_updates)
        self.n_epochs = self.total_updates / per_epoch

    def choose_rate(self) -> None:
        """Rate, warm-up, dropout and what averaging needs."""
        lr = 1.5e-3 * (256 / self.config.model.d_model) ** 0.5
        reason = "1.5e-3 at width 256, falling with its square root"
        if self.is_started and not self.config.training.lora_rank:
            lr *= STARTED_LR_SHARE
            reason = "a tenth of a fresh model's, which would write over what the start has learned"
        if self.config.training.lr is None:
            self._set("training", f"training.lr={lr:.2g}: {reason}.", lr=lr)
        if self.config.training.warmup_steps is None:
            warmup = min(4000, max(1, round(self.expected_updates / 20)))
            self._set(
                "training",
                f"training.warmup_steps={warmup}: a 20th of the run, at most 4000.",
                warmup_steps=warmup,
            )
        if self.config.model.dropout and self.n_epochs < FEW_EPOCHS and not self.is_started:
            self._set(
                "model",
                f"model.dropout=0: {self.n_epochs:.1f} passes over the data, under {FEW_EPOCHS:g}, do not overfit.",
                dropout=0.0,
            )
        k = self.config.training.average_last
        if k:
            save_every = self.config.training.save_every or max(1, round(self.expected_updates / 20))
            training = replace(self.config.training, save_every=save_every, save_every_s=float("inf"))
            self.config = replace(self.config, training=replace(training, keep_last=max(training.keep_last, k)))
            self.reasons.append(f"training.save_every={save_every}: the last {k} checkpoints are averaged.")

    def plan(self) -> Plan:
        """The finished plan."""
        training = self.config.training
        assert training.lr is not None and training.warmup_steps is not None
        length = RunLength(
            total_updates=self.total_updates,
            train_s=self.train_s,
            lr=training.lr,
            warmup_steps=training.warmup_steps,
        )
        return Plan(config=self.config, length=length, reasons=self.reasons)


def choose_precision() -> tuple[Literal["float32", "bf16"], str]:
    """bf16 where a matrix product is at least 1.3 times as fast in it, measured for a fraction of a second."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rates = {dtype: _product_rate(dtype, device) for dtype in (torch.float32, torch.bfloat16)}
    ratio = rates[torch.bfloat16] / rates[torch.float32]
    name: Literal["float32", "bf16"] = "bf16" if ratio >= 1.3 else "float32"
    reason = f"a bf16 product is {ratio:.2f} times as fast as a float32 one on this machine."
    return name, f"training.precision={name}: {reason}"


def measure_speed(config: Config, store: TokenStore, objective: Objective, seconds: float) -> float:
    """Source and target tokens a second of real updates with fresh weights. The global random state stays as it was."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with torch.random.fork_rng():
        model = build_model(config.model).to(device)
        choose_trained(model, config.training)
        loss = objective.loss(model, config)
        optimizers = build_optimizers(model, config.training, lr=1e-5)
        stream = BatchStream(objective.batches(config, store), accumulation=config.training.accumulation)
        n_tokens, started = 0, 0.0
        for number, group in enumerate(stream):
            if number == 1:  # the first update warms up
                n_tokens, started = 0, time.monotonic()
            for batch in group.batches:
                with torch.autocast(device.type, torch.bfloat16, enabled=config.training.precision == "bf16"):
                    value, _ = loss(batch.to(device))
                (value / max(group.n_tokens, 1)).backward()
                n_tokens += batch.n_src_tokens + batch.n_tokens
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            if number > 0 and (time.monotonic() - started > seconds):
                break
    return n_tokens / (time.monotonic() - started)


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
