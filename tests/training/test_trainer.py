"""The loop: what one update is, what is logged, kept, skipped, and what a resumed run goes on with."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import glassformer.training.trainer as trainer_module
from glassformer.config import TrainingConfig, ValidationConfig
from glassformer.data.batches import Batch
from glassformer.data.stream import UpdateGroup
from glassformer.errors import CheckpointError, TrainingError
from glassformer.training.checkpoint import Checkpoints, load_tensors
from glassformer.training.objectives import TranslationLoss
from glassformer.training.parallel import Parallel
from glassformer.training.progress import RunLog
from glassformer.training.schedule import lr_factor
from glassformer.training.trainer import Interrupted, RunLength, Trainer
from helpers import assert_close, encoder_decoder, random_ids
from training.runs import batch, log_of

Rows = list[tuple[Tensor, Tensor]]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


class Groups(Iterator[UpdateGroup]):
    """A resumable stream that gives the same groups again and again."""

    def __init__(self, groups: list[list[Batch]]) -> None:
        self.groups, self.place = groups, 0

    def __next__(self) -> UpdateGroup:
        batches = self.groups[self.place % len(self.groups)]
        self.place += 1
        n_sentences = sum(len(b.rows) for b in batches)
        return UpdateGroup(batches=batches, n_tokens=sum(b.n_tokens for b in batches), n_sentences=n_sentences, epoch=0)

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


def sentences(n: int) -> Rows:
    """Pairs of 1 to 20 tokens."""
    return [(random_ids(1 + 7 * i % 20, seed=i), random_ids(1 + 11 * i % 20, seed=i + 50)) for i in range(n)]


def make_trainer(
    out: Path,
    *,
    steps: int = 10,
    stream: Any = None,
    loss: nn.Module | None = None,
    every: int | None = None,
    validate: Callable[[nn.Module], dict[str, float]] | None = None,
    metric: str = "loss",
    patience: int = 0,
    lr: float = 1e-3,
    **options: Any,
) -> Trainer:
    model = encoder_decoder(seed=1, dropout=options.pop("dropout", 0.0))
    loss = loss or TranslationLoss(model, smoothing=0.1)
    config = TrainingConfig(**{"precision": "float32", "log_every": 1, "weight_decay": 0.0} | options)
    warmup_steps = 0 if config.warmup_steps is None else config.warmup_steps
    out.mkdir(exist_ok=True)
    saved: list[tuple[dict[str, Tensor], dict[str, float]]] = []
    trainer = Trainer(
        loss,
        getattr(loss, "model", model),
        stream or Groups([[batch(sentences(3))]]),
        config=config,
        validation=ValidationConfig(every=every, metric=metric, patience=patience),  # type: ignore[arg-type]
        length=RunLength(total_updates=steps, train_s=None, lr=lr, warmup_steps=warmup_steps),
        checkpoints=Checkpoints(out / "checkpoints", keep_last=config.keep_last),
        log=RunLog(out, is_main=True),
        parallel=Parallel(),
        validate=validate or (lambda model: {"loss": 1.0}),
        on_best=lambda weights, figures: saved.append(({n: w.clone() for n, w in weights.items()}, figures)),
    )
    trainer.saved = saved  # type: ignore[attr-defined]
    return trainer


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def sgd(model: nn.Module, config: TrainingConfig, *, lr: float) -> list[torch.optim.Optimizer]:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    optimizer.param_groups[0]["peak_lr"] = lr
    return [optimizer]


# -- one update ---------------------------------------------------------------------------------------------------


class Sums(nn.Module):
    """A loss whose value for a batch is the first source id times one parameter of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.model = encoder_decoder()

    def forward(self, given: Batch) -> tuple[Tensor, Tensor]:
        loss = given.src[0, 0] * 1.0 + 0 * next(self.model.parameters()).sum()
        return loss, loss.detach()


def test_logged_loss_of_a_toy_group_is_the_mean_over_its_tokens(tmp_path: Path) -> None:
    """1 token of loss 4 and 9 tokens of loss 1: 1.3, not the mean of the means, 2.5."""
    one = batch([(torch.tensor([4]), torch.tensor([], dtype=torch.long))])
    nine = batch([(torch.tensor([9]), torch.arange(4, 12))])
    assert (one.n_tokens, nine.n_tokens) == (1, 9)
    make_trainer(tmp_path, steps=1, stream=Groups([[one, nine]]), loss=Sums()).run()
    assert log_of(tmp_path, "train")[0]["nll"] == pytest.approx(1.3)


@pytest.mark.parametrize("normalization", ["tokens", "sentences"])
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.2])
def test_update_is_the_same_however_sixteen_sentences_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, normalization: str, max_grad_norm: float
) -> None:
    monkeypatch.setattr(trainer_module, "build_optimizers", sgd)
    rows = sentences(16)
    results = []
    for size in (16, 4, 1):
        stream = Groups([[batch(rows[i : i + size]) for i in range(0, 16, size)]])
        trainer = make_trainer(
            tmp_path / str(size),
            steps=1,
            stream=stream,
            lr=0.1,
            schedule="constant",
            normalization=normalization,
            max_grad_norm=max_grad_norm,
        )
        before = weights(trainer)
        trainer.run()
        results.append((weights(trainer), log_of(tmp_path / str(size), "train")[0]))
        moved = math.sqrt(sum(float((w - before[n]).square().sum()) for n, w in weights(trainer).items()))
        norm = results[-1][1]["grad_norm"]
        assert norm > 0.2, "the norm before clipping is logged"
        assert moved == pytest.approx(0.1 * (max_grad_norm or norm), rel=1e-4)
    model = encoder_decoder(seed=1)
    whole = batch(rows)
    count = whole.n_tokens if normalization == "tokens" else 16
    (TranslationLoss(model, smoothing=0.1)(whole)[0] / count).backward()
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None))
    assert results[0][1]["grad_norm"] == pytest.approx(norm, rel=1e-5)
    for found, entry in results[1:]:
        for name, weight in found.items():
            assert_close(weight, results[0][0][name], 1e-6, "sums in another order")
        assert entry["nll"] == pytest.approx(results[0][1]["nll"], rel=1e-6)
        assert entry["grad_norm"] == pytest.approx(results[0][1]["grad_norm"], rel=1e-5)


def test_micro_batch_without_targets_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "build_optimizers", sgd)
    empty = batch([(random_ids(5), torch.tensor([], dtype=torch.long))], eos=False)
    parts = [batch([row]) for row in sentences(3)]
    found = []
    for name, group in (("with", [*parts[:2], empty, parts[2]]), ("without", parts)):
        trainer = make_trainer(tmp_path / name, steps=1, stream=Groups([group]))
        trainer.run()
        found.append(weights(trainer))
    for name, weight in found[0].items():
        assert torch.equal(weight, found[1][name]), name

    alone = make_trainer(tmp_path / "alone", steps=1, stream=Groups([[empty]]))
    before = weights(alone)
    alone.run()
    assert all(torch.equal(weight, before[name]) for name, weight in weights(alone).items())
    assert log_of(tmp_path / "alone", "train")[0]["nll"] == 0.0


# -- the rate -----------------------------------------------------------------------------------------------------


def test_schedules_at_their_knots() -> None:
    def factors(schedule: str, total: int, warmup: int, **options: float) -> list[float]:
        config = TrainingConfig(schedule=schedule, **options)  # type: ignore[arg-type]
        return [lr_factor(config, update=u, warmup_steps=warmup, progress=(u - 1) / total) for u in range(1, total + 1)]

    for schedule in ("inverse_sqrt", "cosine", "wsd", "constant"):
        assert factors(schedule, 10, 4)[:4] == [0.25, 0.5, 0.75, 1.0], schedule
        assert factors(schedule, 3, 5) == pytest.approx([0.2, 0.4, 0.6]), "a warm-up longer than the run"
        assert factors(schedule, 10, 0)[0] == 1.0, "no warm-up begins at the peak"
    assert factors("inverse_sqrt", 20, 4)[15] == pytest.approx(0.5)  # sqrt(4 / 16)
    assert factors("inverse_sqrt", 20, 0)[3] == pytest.approx(0.5)  # sqrt(1 / 4)
    cosine = factors("cosine", 10, 0, min_lr_share=0.1)
    assert cosine[5] == pytest.approx(0.55)  # half-way: the mean of 1 and 0.1
    assert cosine[9] == pytest.approx(0.1 + 0.9 * (1 + math.cos(0.9 * math.pi)) / 2)
    wsd = factors("wsd", 10, 2, stable_share=0.5)
    assert wsd == pytest.approx([0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    assert factors("wsd", 4, 0, stable_share=1.0) == [1.0] * 4
    config = TrainingConfig(schedule="wsd", min_lr_share=0.25)
    assert lr_factor(config, update=9, warmup_steps=0, progress=1.0) == pytest.approx(0.25)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine"])
def test_rate_used_is_the_rate_logged_and_goes_on_after_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    used: list[float] = []

    def step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        used.append(optimizer.param_groups[0]["lr"])

    def run(out: Path, resume_at: int | None = None) -> list[float]:
        used.clear()
        options: dict[str, Any] = {"warmup_steps": 4, "schedule": schedule, "save_every": 1, "keep_last": 20}
        trainer = make_trainer(out, stream=Groups([[batch([row]) for row in sentences(3)]]), **options)
        trainer.optimizers[0].register_step_pre_hook(step)
        before = weights(trainer)
        if resume_at is not None:
            trainer.resume(resume_at)
            trainer.log.rewind(trainer.state.update, trainer.state.groups)
        trainer.run()
        assert any(not torch.equal(weight, before[name]) for name, weight in weights(trainer).items())
        return list(used)

    unbroken = run(tmp_path / "a")
    assert len(unbroken) == 10, "counted in updates, not in batches"
    assert unbroken[0] == pytest.approx(2.5e-4)
    assert unbroken[3] == pytest.approx(1e-3)
    assert [entry["lr"] for entry in log_of(tmp_path / "a", "train")] == unbroken
    for k in (2, 4, 9):
        assert run(tmp_path / "a", resume_at=k) == unbroken[k:]
        assert [entry["lr"] for entry in log_of(tmp_path / "a", "train")] == unbroken


# -- what is not finite -------------------------------------------------------------------------------------------


class Poisoned(TranslationLoss):
    """A loss that is infinite or not a number in some calls, counted from 1."""

    def __init__(self, bad: Callable[[int], float | None]) -> None:
        super().__init__(encoder_decoder(seed=1), smoothing=0.1)
        self.bad, self.calls = bad, 0

    def forward(self, given: Batch) -> tuple[Tensor, Tensor]:
        self.calls += 1
        loss, nll = super().forward(given)
        factor = self.bad(self.calls)
        return (loss, nll) if factor is None else (loss * factor, nll)


def test_infinite_gradient_is_skipped_and_counted(tmp_path: Path) -> None:
    loss = Poisoned(lambda call: math.inf if call == 3 else None)
    seen: list[dict[str, Tensor]] = []
    loss.register_forward_pre_hook(lambda *_: seen.append({n: p.detach().clone() for n, p in loss.named_parameters()}))
    trainer = make_trainer(tmp_path, steps=4, loss=loss, warmup_steps=8)
    state = trainer.run()
    assert (state.update, state.groups, state.skipped, state.skipped_in_row) == (4, 5, 1, 0)
    assert all(torch.equal(seen[3][name], weight) for name, weight in seen[2].items()), "group 3 changed nothing"
    assert any(not torch.equal(seen[2][name], weight) for name, weight in seen[1].items())
    entries = log_of(tmp_path, "train")
    assert [entry["lr"] for entry in entries] == pytest.approx([1e-3 * k / 8 for k in (1, 2, 3, 4)])
    assert all(math.isfinite(entry["grad_norm"]) for entry in entries)
    assert log_of(tmp_path, "skipped") == [{"event": "skipped", "update": 2, "group": 3}]


def test_run_that_stays_not_finite_stops_with_finite_checkpoints(tmp_path: Path) -> None:
    loss = Poisoned(lambda call: math.nan if call >= 5 else None)
    trainer = make_trainer(tmp_path, steps=50, loss=loss, every=2, max_skipped=3, save_every=1)
    with pytest.raises(TrainingError, match="3 updates in a row") as error:
        trainer.run()
    assert error.value.exit_code == 1
    assert trainer.state.skipped == 3
    folder = trainer.checkpoints.folder
    assert trainer.checkpoints.updates() == [3, 4]
    for path in folder.glob("*/*.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_tensors(path).values()), path
    assert all(tensor.isfinite().all() for tensor in trainer.saved[-1][0].values())  # type: ignore[attr-defined]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_validation_that_is_not_finite_is_never_the_best(tmp_path: Path, bad: float) -> None:
    losses = iter([bad, 2.0, bad, bad, 1.0, bad])
    trainer = make_trainer(tmp_path, steps=6, every=1, validate=lambda model: {"loss": next(losses)})
    state = trainer.run()
    assert (state.best_update, state.best_metric, state.bad_validations) == (5, 1.0, 1)
    assert [e["is_best"] for e in log_of(tmp_path, "validation")] == [False, True, False, False, True, False]
    assert log_of(tmp_path, "validation")[0]["loss"] is None, "JSON has no NaN"


# -- best, last, early stop ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_last", [1, 2])
def test_best_and_last_both_stay(tmp_path: Path, keep_last: int) -> None:
    losses = iter([3, 1, 2, 2.5, 2.6])
    seen: dict[int, dict[str, Tensor]] = {}

    def validate(model: nn.Module) -> dict[str, float]:
        seen[trainer.state.update] = {name: p.detach().clone() for name, p in model.named_parameters()}
        return {"loss": next(losses)}

    options: dict[str, Any] = {"steps": 20, "every": 4, "keep_last": keep_last, "lr": 1e-2}
    trainer = make_trainer(tmp_path, validate=validate, **options)
    state = trainer.run()
    assert (state.best_update, state.best_metric) == (8, 1)
    best, figures = trainer.saved[-1]  # type: ignore[attr-defined]
    assert figures == {"loss": 1}
    assert all(torch.equal(weight, seen[8][name]) for name, weight in best.items())
    # As numbers: as texts, "8" would come after "20" and stay.
    assert trainer.checkpoints.updates() == [16, 20][-keep_last:]
    last = trainer.checkpoints.load(20)
    assert all(torch.equal(weight, seen[20][name]) for name, weight in last.weights.items())
    again = make_trainer(tmp_path, **options)
    again.resume(20)
    assert (again.state.update, again.state.best_update, again.state.best_metric) == (20, 8, 1)


def test_equal_values_keep_the_earlier_one_and_higher_is_better_for_bleu(tmp_path: Path) -> None:
    values = iter([1.0, 3.0, 3.0, 2.0])
    trainer = make_trainer(
        tmp_path, steps=8, every=2, metric="bleu", validate=lambda model: {"loss": 1.0, "bleu": next(values)}
    )
    assert trainer.run().best_update == 4


def test_checkpoints_and_validations_at_different_updates(tmp_path: Path) -> None:
    losses = iter([3.0, 1.0, 2.0, 2.0, 2.0])
    trainer = make_trainer(
        tmp_path, steps=10, every=2, save_every=3, keep_last=9, validate=lambda model: {"loss": next(losses)}
    )
    assert trainer.run().best_update == 4
    assert trainer.checkpoints.updates() == [3, 6, 9, 10]


def test_early_stopping_and_a_resumed_run_that_has_stopped(tmp_path: Path) -> None:
    losses = iter([2.0, 1.0, 1.5, 1.4, 9.0])
    options: dict[str, Any] = {"steps": 50, "every": 1, "patience": 2}
    trainer = make_trainer(tmp_path, validate=lambda model: {"loss": next(losses)}, **options)
    assert trainer.run().update == 4
    again = make_trainer(tmp_path, **options)
    again.resume(4)
    assert again.run().update == 4


def test_time_ends_a_run_and_about_ten_validations_are_spread_over_it(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, steps=30)
    trainer.run()
    assert [entry["update"] for entry in log_of(tmp_path, "validation")] == list(range(3, 31, 3))
    timed = make_trainer(tmp_path / "timed")
    timed.length = RunLength(total_updates=None, train_s=0.5, lr=1e-3, warmup_steps=1)
    state = timed.run()
    assert 0.5 <= state.elapsed_s < 5
    assert log_of(tmp_path / "timed", "validation")[-1]["update"] == state.update


# -- resume -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"ema_decay": 0.9}, {"optimizer": "muon"}, {}], ids=["average", "muon", "adamw"])
def test_resumed_trainer_gives_the_same_weights(tmp_path: Path, options: dict[str, Any]) -> None:
    def trainer(name: str) -> Trainer:
        groups = Groups([[batch(sentences(2))], [batch(sentences(5)), batch(sentences(3))]])
        return make_trainer(tmp_path / name, stream=groups, dropout=0.1, save_every=1, keep_last=20, every=3, **options)

    unbroken = trainer("a")
    unbroken.run()
    for k in (1, 4, 9):
        resumed = trainer("a")
        resumed.resume(k)
        resumed.log.rewind(k, resumed.state.groups)
        resumed.run()
        assert all(torch.equal(w, weights(unbroken)[name]) for name, w in weights(resumed).items())
        for name, average in unbroken.average.items():
            assert torch.equal(resumed.average[name], average), name
        assert [entry["update"] for entry in log_of(tmp_path / "a", "train")] == list(range(1, 11))
        assert [entry["update"] for entry in log_of(tmp_path / "a", "validation")] == [3, 6, 9, 10]


def test_average_is_what_is_validated_and_the_training_weights_come_back(tmp_path: Path) -> None:
    seen: list[dict[str, Tensor]] = []

    def validate(model: nn.Module) -> dict[str, float]:
        assert not model.training
        seen.append({name: p.detach().clone() for name, p in model.named_parameters()})
        return {"loss": 1.0}

    trainer = make_trainer(tmp_path, steps=6, every=6, validate=validate, ema_decay=0.5, lr=0.05, schedule="constant")
    plain = make_trainer(tmp_path / "plain", steps=6, every=6, lr=0.05, schedule="constant")
    trainer.run()
    plain.run()
    name = "decoder.stack.blocks.0.feed_forward.w_1.weight"
    assert torch.equal(weights(trainer)[name], weights(plain)[name]), "the average does not touch the training"
    assert torch.equal(seen[0][name], trainer.average[name])
    assert not torch.equal(trainer.average[name], weights(trainer)[name])
    assert trainer.model.training
    saved = trainer.checkpoints.load(6)
    assert torch.equal(saved.average[name], trainer.average[name])
    assert torch.equal(saved.weights[name], weights(trainer)[name])


def test_state_of_another_version_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, steps=2)
    trainer.run()
    checkpoint = trainer.checkpoints.load(2)
    checkpoint.state["trainer"]["surprise"] = 1
    trainer.checkpoints.save(checkpoint)
    with pytest.raises(CheckpointError, match="another version"):
        make_trainer(tmp_path).resume(2)


# -- signals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_during_validation_ends_the_run_saved_and_restores_the_handlers(
    tmp_path: Path, number: int, code: int
) -> None:
    kept = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]

    def validate(model: nn.Module) -> dict[str, float]:
        os.kill(os.getpid(), number)
        return {"loss": 1.0}

    trainer = make_trainer(tmp_path, every=4, validate=validate)
    with pytest.raises(Interrupted) as stop:
        trainer.run()
    assert stop.value.exit_code == code
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == kept
    assert trainer.checkpoints.updates()[-1] == trainer.state.update <= 5
    resumed = make_trainer(tmp_path, every=4)
    resumed.resume(trainer.state.update)
    assert resumed.run().update == 10


def test_handlers_are_restored_after_a_normal_end(tmp_path: Path) -> None:
    kept = signal.getsignal(signal.SIGINT)
    make_trainer(tmp_path, steps=1).run()
    assert signal.getsignal(signal.SIGINT) is kept


# -- names of the weights -----------------------------------------------------------------------------------------


def test_compiled_blocks_are_saved_under_their_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, *args, **kwargs: compiled.append(self))
    trainer = make_trainer(tmp_path, steps=2, compile=True)
    assert len(compiled) == 3, "one encoder block and two decoder blocks"
    trainer.run()
    names = set(dict(encoder_decoder().named_parameters()))
    assert set(trainer.checkpoints.load(2).weights) == names
    assert set(trainer.saved[-1][0]) == names  # type: ignore[attr-defined]
    assert not any(module in compiled for module in trainer.plain_model.modules()), "validated without compilation"
