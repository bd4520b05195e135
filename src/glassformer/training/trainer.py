"""The training loop: one update after another, validated, saved, resumable to the bit."""

from __future__ import annotations

import copy
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config import TrainingConfig, ValidationConfig
from glassformer.data.stream import BatchStream, UpdateGroup
from glassformer.errors import CheckpointError, GlassformerError, TrainingError
from glassformer.training.checkpoint import Checkpoint, Checkpoints, load_state
from glassformer.training.finetuning import frozen_parameters
from glassformer.training.optimizer import build_optimizers, optimizer_state, restore_optimizer, set_lr
from glassformer.training.parallel import Parallel, spread, whole
from glassformer.training.progress import RunLog, StatusBar, duration
from glassformer.training.schedule import lr_factor

__all__ = ["Interrupted", "RunLength", "Trainer", "TrainerState", "Validator"]

# Model -> figures; `loss` must be among them, and the configured metric.
Validator = Callable[[nn.Module], dict[str, float]]
# Weights and figures of a model better than all before it.
OnBest = Callable[[dict[str, Tensor], dict[str, float]], None]

N_VALIDATIONS = 10  # of a run, when validation.every is unset
SAME_SIGNAL_S = 0.5  # a launcher passes on a signal that a terminal has sent to all already


class Interrupted(GlassformerError):
    """SIGINT or SIGTERM came: the run is saved and can go on with --resume."""

    def __init__(self, signal_number: int, update: int) -> None:
        self.exit_code = 128 + signal_number
        name = signal.Signals(signal_number).name
        super().__init__(f"Stopped by {name} after update {update}.", "The run is saved.", "Go on with --resume.")


@dataclass(frozen=True, kw_only=True)
class RunLength:
    """When the run ends, and its rate: after total_updates, or after train_s seconds of training."""

    total_updates: int | None
    train_s: float | None
    lr: float
    warmup_steps: int

    def progress(self, update: int, elapsed_s: float) -> float:
        """Share of the run that is over, 0 .. 1."""
        if self.total_updates is not None:
            return min(update / self.total_updates, 1.0)
        assert self.train_s is not None
        return min(elapsed_s / self.train_s, 1.0)


@dataclass
class TrainerState:
    """What a checkpoint says beside the tensors."""

    update: int = 0  # optimizer updates made
    groups: int = 0  # update groups read, skipped ones included; seeds the dropout of the next one
    skipped: int = 0  # groups whose gradient was not finite
    skipped_in_row: int = 0
    elapsed_s: float = 0.0  # seconds of training and validation, over all sessions of the run
    tokens: int = 0  # real target tokens seen
    pairs: int = 0  # sentences seen
    interval_nll: float = 0.0  # sums since the last line of the log
    interval_tokens: int = 0
    validated_update: int = -1
    validations: int = 0
    best_metric: float | None = None
    best_update: int | None = None
    bad_validations: int = 0  # in a row, since the best one


class Trainer:
    """Trains a loss module on a stream of batches.

    Dropout is seeded from (seed, group, rank) before every group, and the order of the data is a function of
    (seed, epoch): so a run that is killed and resumed gives the weights of an unbroken one, bit for bit on a CPU.
    """

    def __init__(
        self,
        loss: nn.Module,
        model: nn.Module,
        stream: BatchStream,
        *,
        config: TrainingConfig,
        validation: ValidationConfig,
        length: RunLength,
        checkpoints: Checkpoints,
        log: RunLog,
        parallel: Parallel,
        validate: Validator,
        on_best: OnBest,
    ) -> None:
        self.model, self.stream = model, stream
        self.config, self.validation, self.length = config, validation, length
        self.checkpoints, self.log, self.parallel = checkpoints, log, parallel
        self.validate, self.on_best = validate, on_best
        self.device = next(model.parameters()).device
        is_changed = config.compile or (config.fsdp and parallel.world_size > 1)
        self.plain_model = copy.deepcopy(model) if is_changed else model  # for validation
        self.loss = parallel.wrap(loss, fsdp=config.fsdp)
        if config.compile:
            for module in model.modules():
                if type(module).__name__ == "Block":
                    module.compile()
        self.optimizers = build_optimizers(model, config, lr=length.lr)
        self.average = {n: p.clone() for n, p in self._trained().items()} if config.ema_decay else {}
        self.state = TrainerState()
        self._received, self._received_s = 0, 0.0  # signal that came to this process, and when
        self._signal = 0  # what all processes have agreed to obey
        self._saved_s = 0.0
        self._saved = (0, -1)
        self._speed = 0.0

    # -- the loop ---------------------------------------------------------------------------------------------

    def run(self) -> TrainerState:
        """Trains to the end (or to where early stopping ends it) and returns the last state."""
        started = time.monotonic() - self.state.elapsed_s
        self.bar = StatusBar(is_shown=self.parallel.is_main, describe=self._describe)
        self.loss.train()
        groups = iter(self.stream)
        try:
            with self._signals():
                while True:
                    self._between_updates()
                    if self._is_over():
                        break
                    self._update(next(groups), started)
                self._save()
        finally:
            self.bar.close()
        return self.state

    def _is_over(self) -> bool:
        patience, state = self.validation.patience, self.state
        if patience and state.bad_validations >= patience:
            return True
        return self.length.progress(state.update, state.elapsed_s) >= 1

    def _between_updates(self) -> None:
        """What may be due after an update: a validation, a checkpoint, a signal to obey."""
        state, every = self.state, self.validation.every
        progress = self.length.progress(state.update, state.elapsed_s)
        if every:
            is_due = (state.update > 0 and state.update % every == 0) or progress >= 1
        else:
            is_due = int(progress * N_VALIDATIONS) > state.validations
        is_due = is_due and state.validated_update != state.update
        if is_due:
            self._validate(int(progress * N_VALIDATIONS))
        save_every = self.config.save_every
        is_periodic = is_due if save_every is None else state.update % save_every == 0
        is_late = state.elapsed_s - self._saved_s > self.config.save_every_s
        if state.update and (is_periodic or is_late):
            self._save()
        if self._signal:
            self._save()
            raise Interrupted(self._signal, state.update)

    def _update(self, group: UpdateGroup, started: float) -> None:
        """One optimizer update on all batches of the group; the loss is a mean over the whole group."""
        state, config, parallel = self.state, self.config, self.parallel
        torch.manual_seed(_mix(config.seed, state.groups, parallel.rank))
        count = group.n_tokens if config.normalization == "tokens" else group.n_sentences
        begun = time.monotonic()
        nll = 0.0
        for batch in group.batches:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.precision == "bf16"):
                loss, batch_nll = self.loss(batch.to(self.device))
            # Wrappers average gradients over processes; each process holds a part of the group's sum.
            (loss * (parallel.world_size / max(count, 1))).backward()
            nll += float(batch_nll)
        norm = self._clip()
        state.groups += 1
        elapsed_s = time.monotonic() - started if parallel.is_main else 0.0
        signals = [self._received == number for number in (signal.SIGTERM, signal.SIGINT)]
        nll, state.elapsed_s, n_term, n_int = parallel.sum([nll, elapsed_s, *signals])
        self._signal = signal.SIGTERM if n_term else signal.SIGINT if n_int else 0
        is_finite = _is_finite(nll) and _is_finite(norm)
        factor = 0.0
        if is_finite and group.n_tokens:
            progress = self.length.progress(state.update, state.elapsed_s)
            factor = lr_factor(
                config, update=state.update + 1, warmup_steps=self.length.warmup_steps, progress=progress
            )
            set_lr(self.optimizers, factor)
            for optimizer in self.optimizers:
                optimizer.step()
            self._follow_average()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        self._count(group, is_finite, nll, norm, factor, time.monotonic() - begun)

    def _count(
        self, group: UpdateGroup, is_finite: bool, nll: float, norm: float, factor: float, seconds: float
    ) -> None:
        """Keeps the books of an update, or of a skipped one."""
        state, config = self.state, self.config
        if not is_finite:
            state.skipped += 1
            state.skipped_in_row += 1
            self.log.write("skipped", update=state.update, group=state.groups)
            self.bar.print(f"warning: group {state.groups} has a non-finite loss or gradient and was skipped.")
            if state.skipped_in_row >= config.max_skipped:
                raise TrainingError(
                    f"{state.skipped_in_row} updates in a row had a non-finite loss or gradient.",
                    "A finite number was expected.",
                    "Lower training.lr, raise training.warmup_steps, set training.max_grad_norm=1, "
                    "or use training.precision=float32. The last checkpoint is from before and is finite.",
                )
            return
        state.skipped_in_row = 0
        state.update += 1
        state.tokens += group.n_tokens
        state.pairs += group.n_sentences
        state.interval_nll += nll
        state.interval_tokens += group.n_tokens
        n_tokens = sum(batch.n_src_tokens + batch.n_tokens for batch in group.batches) * self.parallel.world_size
        speed = n_tokens / seconds
        self._speed = 0.9 * self._speed + 0.1 * speed if self._speed else speed
        if state.update % config.log_every == 0:
            self.log.write(
                "train",
                update=state.update,
                nll=state.interval_nll / max(state.interval_tokens, 1),
                lr=self.length.lr * factor,
                grad_norm=norm,
                pairs=state.pairs,
                epoch=group.epoch,
                tokens_per_s=round(self._speed),
                elapsed_s=round(state.elapsed_s, 2),
            )
            self._shown_nll = state.interval_nll / max(state.interval_tokens, 1)
            state.interval_nll, state.interval_tokens = 0.0, 0
        self.bar.update(self.length.progress(state.update, state.elapsed_s))

    def _clip(self) -> float:
        """Shortens the gradient of the whole group; returns its length before."""
        limit = self.config.max_grad_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)

    # -- averaging, validation, saving ------------------------------------------------------------------------

    @torch.no_grad()
    def _follow_average(self) -> None:
        if self.average:
            # A short memory at first, so that the average does not keep the random start.
            decay = min(self.config.ema_decay, (1 + self.state.update) / (10 + self.state.update))
            torch._foreach_lerp_(list(self.average.values()), list(self._trained().values()), 1 - decay)

    def _trained(self) -> dict[str, Tensor]:
        """The parameters that are not frozen."""
        return {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}

    def _weights(self) -> dict[str, Tensor]:
        """The weights that count: the average when there is one."""
        return whole(dict(self.model.named_parameters()) | self.average)

    @contextmanager
    def _evaluated(self, weights: dict[str, Tensor]) -> Iterator[nn.Module]:
        """A plain model with the given weights, in eval mode; the training weights are back afterwards."""
        model = self.plain_model
        kept = None if model is not self.model or not self.average else [p.detach().clone() for p in model.parameters()]
        if model is not self.model or self.average:
            load_state(model, weights, "the averaged weights")
        model.eval()
        try:
            yield model
        finally:
            model.train()
            if kept is not None:
                with torch.no_grad():
                    torch._foreach_copy_(list(model.parameters()), kept)

    def _validate(self, n_due: int) -> None:
        """Measures the model, remembers whether it is the best so far, and hands the best on."""
        state, metric = self.state, self.validation.metric
        weights = self._weights()
        figures: dict[str, float] = {}
        if self.parallel.is_main:
            with self._evaluated(weights) as model, torch.no_grad():
                figures = self.validate(model)
        value = self.parallel.from_main(figures.get(metric, float("nan")))
        sign = -1 if metric == "loss" else 1
        is_best = _is_finite(value) and (state.best_metric is None or sign * value > sign * state.best_metric)
        state.validated_update, state.validations = state.update, n_due
        state.bad_validations = 0 if is_best else state.bad_validations + 1
        self.log.write("validation", update=state.update, is_best=is_best, **figures)
        if is_best:
            state.best_metric, state.best_update = value, state.update
            if self.parallel.is_main:
                self.on_best(weights, figures)
        shown = ", ".join(f"{name} {number:.4g}" for name, number in figures.items())
        self.bar.print(f"update {state.update}: {shown}{'  (best so far)' if is_best else ''}")

    def _save(self) -> None:
        """Writes a checkpoint of this moment."""
        state = self.state
        moment = (state.update, state.validated_update)
        if moment == self._saved:
            return
        checkpoint = Checkpoint(
            update=state.update,
            weights=whole(self._trained()),
            optimizer=whole(optimizer_state(self.model, self.optimizers)),
            average=whole(self.average),
            state={"trainer": asdict(state), "stream": self.stream.state_dict()},
        )
        if self.parallel.is_main:
            self.checkpoints.save(checkpoint)
        self._saved_s, self._saved = state.elapsed_s, moment
        self.parallel.sum([0.0])  # nobody goes on before the checkpoint is there

    def resume(self, update: int) -> None:
        """Takes up the run from the checkpoint of an update."""
        checkpoint = self.checkpoints.load(update)
        known = {f.name for f in fields(TrainerState)}
        saved: dict[str, Any] = checkpoint.state["trainer"]
        if set(saved) != known:
            raise CheckpointError(
                f"The checkpoint of update {update} was written by another version.",
                f"Its state has {sorted(saved)}, and {sorted(known)} was expected.",
                "Use the version that wrote it, or start the run again.",
            )
        place = str(self.checkpoints.path(update))
        load_state(self.model, frozen_parameters(self.model) | spread(self.model, checkpoint.weights), place)
        restore_optimizer(self.model, self.optimizers, spread(self.model, checkpoint.optimizer))
        average = spread(self.model, checkpoint.average)
        self.average = {name: average[name] for name in self.average}
        self.state = TrainerState(**saved)
        self.stream.load_state_dict(checkpoint.state["stream"])
        self._saved_s, self._saved = self.state.elapsed_s, (update, self.state.validated_update)

    # -- signals and display ----------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM ends the run after its update, in all processes; the second one at once."""

        def handle(number: int, _: FrameType | None) -> None:
            if self._received:
                if time.monotonic() - self._received_s < SAME_SIGNAL_S:
                    return
                sys.exit(128 + number)
            self._received, self._received_s = number, time.monotonic()
            self.bar.print("Stopping after this update; once more stops at once.")

        kept = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)

    def _describe(self) -> str:
        state = self.state
        progress = self.length.progress(state.update, state.elapsed_s)
        left = state.elapsed_s * (1 - progress) / progress if progress else 0.0
        total = f"/{self.length.total_updates}" if self.length.total_updates else ""
        loss = f", loss {self._shown_nll:.3f}" if hasattr(self, "_shown_nll") else ""
        return f"update {state.update}{total}{loss}, {self._speed:,.0f} tokens/s, {duration(left)} left"


def _is_finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")


def _mix(*numbers: int) -> int:
    """One seed from several numbers (a linear congruential step for each)."""
    seed = 0
    for number in numbers:
        seed = (seed * 6364136223846793005 + number + 1442695040888963407) % 2**63
    return seed
