"""What is taken from a start, and that what is frozen stays as it was to the bit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from glassformer.config import Config, TaskConfig, TrainingConfig
from glassformer.errors import CheckpointError, ConfigError
from glassformer.model import Model
from glassformer.training.finetuning import choose_trained, frozen_parameters, take_weights
from glassformer.training.objectives import TranslationLoss, projected_cross_entropy
from glassformer.training.optimizer import build_optimizers
from helpers import assert_close, build_tiny, decoder_only, encoder_decoder, encoder_only, random_ids, tiny_config
from training.test_trainer import make_trainer, weights


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def named(model: Model) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


# -- what is taken -------------------------------------------------------------------------------------------------


def test_heads_that_the_start_lacks_stay_fresh_and_others_are_named() -> None:
    start = encoder_only(seed=1, use_mlm_head=True, use_pooler=True)
    model = encoder_only(seed=2, head="classify", n_labels=3, n_segments=2)
    before = named(model)
    found = take_weights(model, named(start), "START")
    assert found.fresh == ["encoder.embedding.segments", "label_head.dense.weight", "label_head.dense.bias"]
    assert all(name.startswith(("mlm_head.", "pooler.")) for name in found.unused)
    assert {name.partition(".")[0] for name in found.unused} == {"mlm_head", "pooler"}
    after = named(model)
    assert all(torch.equal(after[name], before[name]) for name in found.fresh)
    assert all(torch.equal(after[name], named(start)[name]) for name in found.taken)
    assert sorted([*found.taken, *found.fresh]) == sorted(before)


def test_head_of_another_size_is_fresh() -> None:
    start, model = (encoder_only(seed=n, head="label", n_labels=n) for n in (3, 5))
    before = named(model)
    found = take_weights(model, named(start), "START")
    assert set(found.fresh) == set(found.unused) == {"label_head.dense.bias", "label_head.dense.weight"}
    assert torch.equal(model.label_head.dense.weight, before["label_head.dense.weight"])  # type: ignore[union-attr]


def test_head_for_other_labels_can_be_left_out() -> None:
    start, model = (encoder_only(seed=n, head="label", n_labels=4) for n in (3, 5))
    found = take_weights(model, named(start), "START", without=("label_head.",))
    assert set(found.fresh) == set(found.unused) == {"label_head.dense.bias", "label_head.dense.weight"}
    assert take_weights(model, named(start), "START").fresh == []


@pytest.mark.parametrize(
    "name", ["encoder.stack.blocks.0.self_attention.w_q.weight", "encoder.embedding.tokens.weight"]
)
@pytest.mark.parametrize("fault", ["missing", "shape", "renamed"])
def test_body_must_come_whole_from_the_start(name: str, fault: str) -> None:
    given = named(encoder_decoder(seed=1))
    tensor = given.pop(name)
    if fault == "shape":
        given[name] = tensor[:-1]
    elif fault == "renamed":
        given[f"module.{name}"] = tensor
    model = encoder_decoder(seed=2)
    before = named(model)
    with pytest.raises(CheckpointError, match=f"START lacks {name}"):
        take_weights(model, given, "START")
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters()), "no part is loaded"


@pytest.mark.parametrize("tying", ["all", "decoder", "inputs", "none"])
def test_tied_tables_are_taken_and_stay_one(tying: str) -> None:
    start, model = encoder_decoder(seed=1, tying=tying), encoder_decoder(seed=2, tying=tying)
    found = take_weights(model, named(start), "START")
    assert (found.fresh, found.unused) == ([], [])
    tables = [
        model.encoder.embedding.tokens.weight,
        model.decoder.embedding.tokens.weight,
        model.decoder.projection.weight,
    ]
    expected = {"all": 1, "decoder": 2, "inputs": 2, "none": 3}[tying]
    assert len({table.data_ptr() for table in tables}) == expected
    assert all(torch.equal(p, named(start)[name]) for name, p in model.named_parameters())


# -- what is frozen ------------------------------------------------------------------------------------------------


def frozen_names(model: Model, frozen: str, fresh: tuple[str, ...] = ()) -> set[str]:
    choose_trained(model, TrainingConfig(frozen=frozen), fresh)  # type: ignore[arg-type]
    return set(frozen_parameters(model))


def test_parts_of_each_family() -> None:
    def both(**options: Any) -> Model:
        return encoder_decoder(tying="none", positions="learned", **options)

    everything = set(named(both()))
    tables = {
        f"{side}.embedding.{part}" for side in ("encoder", "decoder") for part in ("tokens.weight", "positions.weight")
    }
    assert frozen_names(both(), "none") == set()
    assert frozen_names(both(), "embeddings") == tables
    assert frozen_names(both(), "encoder") == {name for name in everything if name.startswith("encoder.")}
    assert frozen_names(both(), "body") == everything - {"decoder.projection.weight"}
    classifier = encoder_only(head="classify", n_labels=2, use_pooler=True, n_segments=2)
    heads = {name for name in named(classifier) if name.startswith(("label_head.", "pooler."))}
    assert len(heads) == 4
    assert frozen_names(classifier, "body") == set(named(classifier)) - heads
    language_model = decoder_only(tying="none")
    assert frozen_names(language_model, "body") == set(named(language_model)) - {"decoder.projection.weight"}


def test_shared_table_is_frozen_with_either_part() -> None:
    model = encoder_decoder(tying="all")
    assert "encoder.embedding.tokens.weight" in frozen_names(model, "encoder")
    assert not model.decoder.projection.weight.requires_grad


def test_fresh_parameters_are_never_frozen() -> None:
    model = encoder_only(head="classify", n_labels=2, n_segments=2)
    assert "encoder.embedding.segments" not in frozen_names(model, "embeddings", ("encoder.embedding.segments",))
    model = encoder_only(head="classify", n_labels=2)
    choose_trained(model, TrainingConfig(lora_rank=2), ("label_head.dense.weight", "label_head.dense.bias"))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name for name in trained if "lora" not in name} == {"label_head.dense.weight", "label_head.dense.bias"}


def test_nothing_left_to_train_and_parts_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match="frozen=body freezes all"):
        frozen_names(encoder_decoder(tying="all"), "body")
    with pytest.raises(ConfigError, match="frozen=encoder and the model has no such part"):
        frozen_names(decoder_only(), "encoder")


@pytest.mark.parametrize("options", [{}, {"ema_decay": 0.5}, {"optimizer": "muon"}], ids=["adamw", "average", "muon"])
def test_frozen_parameters_get_no_step_no_decay_and_no_state(tmp_path: Path, options: dict[str, Any]) -> None:
    model = encoder_decoder(seed=1, dropout=0.1)
    names = frozen_names(model, "encoder")
    before = named(model)
    trainer = make_trainer(
        tmp_path, loss=TranslationLoss(model, smoothing=0.1), steps=4, weight_decay=0.1, lr=0.01, **options
    )
    trainer.run()
    after = weights(trainer)
    assert {name for name in before if torch.equal(before[name], after[name])} == names
    assert all(p.grad is None for name, p in model.named_parameters() if name in names)
    folder = trainer.checkpoints.path(4)
    moments = {name.partition("/")[0] for name in load_file(folder / "optimizer.safetensors")}
    assert moments == set(load_file(folder / "model.safetensors")) == set(before) - names
    saved, _ = trainer.saved[-1]  # type: ignore[attr-defined]
    assert all(torch.equal(saved[name], before[name]) for name in names)
    assert model.encoder.stack.blocks[0].self_residual.dropout.training, "dropout stays on"  # type: ignore[union-attr]
    assert set(saved) == set(before)


def test_step_without_gradient_decays_matrices_that_are_trained_and_nothing_else() -> None:
    model = build_tiny(tiny_config(tying="decoder", use_attention_bias=True))
    names = frozen_names(model, "encoder")
    optimizers = build_optimizers(model, TrainingConfig(weight_decay=0.1), lr=0.1)
    before = named(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    for optimizer in optimizers:
        optimizer.step()
    for name, parameter in model.named_parameters():
        factor = 0.99 if name not in names and parameter.ndim > 1 else 1.0
        assert_close(parameter, factor * before[name], 1e-7 if factor < 1 else 0.0, name)


@pytest.mark.parametrize("trained", ["features", "weight", "bias"])
def test_loss_gives_gradients_to_what_is_trained_alone(trained: str) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = {"features": (2, 3, 5), "weight": (23, 5), "bias": (23,)}
    tensors = {name: torch.randn(size, generator=generator, dtype=torch.float64) for name, size in sizes.items()}
    targets = random_ids(2, 3)

    def grads(names: set[str]) -> dict[str, Tensor | None]:
        given = {name: t.clone().requires_grad_(name in names) for name, t in tensors.items()}
        loss, _ = projected_cross_entropy(*given.values(), targets, pad_id=0, smoothing=0.1)
        (2 * loss).backward()
        return {name: t.grad for name, t in given.items()}

    alone, together = grads({trained}), grads(set(tensors))
    assert [name for name, grad in alone.items() if grad is not None] == [trained]
    assert_close(alone[trained], together[trained], 0.0, "the same sum")  # type: ignore[arg-type]
    assert alone[trained].abs().max() > 0  # type: ignore[union-attr]


@pytest.mark.parametrize("training", [{"frozen": "encoder"}, {"lora_rank": 2}])
def test_freezing_needs_a_start(training: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"training.{next(iter(training))} is set without task.start"):
        Config(training=TrainingConfig(**training))
    Config(training=TrainingConfig(**training), task=TaskConfig(start="folder"))
