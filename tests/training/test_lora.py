"""Low-rank adapters: where they sit, that they start as nothing, what they train, and that merging is exact."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from glassformer.config import TrainingConfig
from glassformer.errors import ConfigError
from glassformer.model import Model, build_model
from glassformer.training.checkpoint import load_state
from glassformer.training.finetuning import choose_trained
from glassformer.training.lora import LoraLinear, add_adapters, merge_adapters, merged
from glassformer.training.objectives import TranslationLoss
from glassformer.training.optimizer import parameter_groups
from glassformer.training.trainer import Trainer
from helpers import FAMILIES, VARIANTS, assert_close, build_tiny, encoder_decoder, random_ids, run, tiny_config
from training.runs import batch
from training.test_trainer import Groups, make_trainer, sentences, weights


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def lora(**options: Any) -> TrainingConfig:
    return TrainingConfig(**{"lora_rank": 3, "lora_alpha": 7.0, "lora_targets": "all"} | options)


def adapted(model: Model, config: TrainingConfig, *, is_trained: bool = True) -> Model:
    """The model with adapters; trained ones have a B that is not zero, of a usual size."""
    choose_trained(model, config)
    if is_trained:
        generator = torch.Generator().manual_seed(5)
        for name, parameter in model.named_parameters():
            if name.endswith("lora_b"):
                parameter.data = 0.1 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
    return model


def adapters(model: nn.Module) -> dict[str, LoraLinear]:
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLinear)}


def test_one_adapter_by_hand() -> None:
    base = nn.Linear(2, 1)
    base.weight.data, base.bias.data = torch.tensor([[1.0, 2.0]]), torch.tensor([0.5])
    layer = LoraLinear(base, rank=2, alpha=8.0)
    layer.lora_a.data = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    layer.lora_b.data = torch.tensor([[10.0, 1.0]])
    # x = (1, 1): x W^T + b = 3.5; A x = (1, 3); B A x = 13; 8 / 2 * 13 = 52.
    assert layer(torch.ones(2)).item() == 55.5
    model = nn.Sequential(layer)
    merge_adapters(model)
    assert type(model[0]) is nn.Linear
    assert model[0].weight.tolist() == [[1 + 4 * 10, 2 + 4 * 3]]
    assert model[0].bias.tolist() == [0.5]


@pytest.mark.parametrize("targets", ["attention", "all"])
def test_which_maps_get_adapters(targets: str) -> None:
    model = encoder_decoder(is_gated=True)
    add_adapters(model, lora(lora_targets=targets))
    found = adapters(model)
    attentions = ["encoder.stack.blocks.0.self_attention"]
    attentions += [f"decoder.stack.blocks.{i}.{kind}_attention" for i in (0, 1) for kind in ("self", "cross")]
    expected = {f"{name}.w_{part}" for name in attentions for part in "qkvo"}
    if targets == "all":
        blocks = ["encoder.stack.blocks.0", "decoder.stack.blocks.0", "decoder.stack.blocks.1"]
        expected |= {f"{name}.feed_forward.w_{i}" for name in blocks for i in (1, 2, 3)}
    assert set(found) == expected
    layer = found["decoder.stack.blocks.0.cross_attention.w_q"]
    assert (layer.lora_a.shape, layer.lora_b.shape, layer.scale) == ((3, 20), (24, 3), 7 / 3)
    assert not layer.lora_b.any() and layer.lora_a.abs().min() > 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_first_output_is_that_of_the_start_to_the_bit(family: str, dtype: torch.dtype) -> None:
    src, tgt = random_ids(3, 7), random_ids(3, 5, seed=1)
    model = build_tiny(tiny_config(family, use_attention_bias=True))
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        before = run(model, src, tgt)
        after = run(adapted(model, lora(), is_trained=False), src, tgt)
    assert adapters(model)
    assert torch.equal(before, after)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("variant", ["sinusoidal-post", "sinusoidal-halves-gated", "rotary-shared-kv-rmsnorm", "t5"])
@pytest.mark.parametrize("family", FAMILIES)
def test_merged_model_computes_the_same(family: str, variant: str, dtype: torch.dtype, atol: float) -> None:
    # Matrices of a usual size: with larger outputs the rounding is larger too.
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build_model(tiny_config(family, **VARIANTS[variant])).to(dtype).eval()
    names = [name for name, _ in model.named_parameters()]
    src, tgt = random_ids(3, 7), random_ids(3, 5, seed=1)
    before = run(model, src, tgt)
    expected = run(adapted(model, lora()), src, tgt)
    assert (before - expected).abs().max() > 1e-2, "the adapters do something"
    plain = merged(dict(model.named_parameters()), lora())
    merge_adapters(model)
    assert not adapters(model)
    assert [name for name, _ in model.named_parameters()] == names == list(plain), "no name tells of an adapter"
    largest = expected.detach().abs().max().item()
    assert_close(run(model, src, tgt), expected, atol * largest, "one rounding of each merged matrix, at this size")
    assert all(torch.equal(p, plain[name]) for name, p in model.named_parameters())


def test_merging_weights_without_adapters_changes_nothing() -> None:
    model = encoder_decoder()
    same = merged(dict(model.named_parameters()), TrainingConfig())
    assert all(same[name] is p for name, p in model.named_parameters())
    merge_adapters(model)
    assert all(same[name] is p for name, p in model.named_parameters())


@pytest.mark.parametrize("tying", ["all", "decoder", "none"])
def test_tied_tables_stay_tied(tying: str) -> None:
    model = adapted(encoder_decoder(tying=tying), lora())
    merge_adapters(model)
    table = model.decoder.embedding.tokens.weight
    assert (model.decoder.projection.weight is table) == (tying != "none")
    assert (model.encoder.embedding.tokens.weight is table) == (tying == "all")
    fresh = build_model(model.config)
    load_state(fresh, {name: p.detach() for name, p in model.named_parameters()}, "the merged model")
    assert torch.equal(
        run(fresh.eval(), random_ids(2, 4), random_ids(2, 3)), run(model, random_ids(2, 4), random_ids(2, 3))
    )


def lora_trainer(out: Path, **options: Any) -> Trainer:
    model = encoder_decoder(seed=1, dropout=0.1)
    config = {"lora_rank": 2, "lora_alpha": 4.0, "lora_targets": "all"}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        choose_trained(model, TrainingConfig(**config))  # type: ignore[arg-type]
    groups = Groups([[batch(sentences(2))], [batch(sentences(5)), batch(sentences(3))]])
    loss = TranslationLoss(model, smoothing=0.1)
    return make_trainer(out, loss=loss, stream=groups, weight_decay=0.1, lr=0.01, **config, **options)


def test_only_adapters_are_trained_and_kept_in_checkpoints(tmp_path: Path) -> None:
    losses = iter([4.0, 3.0, 2.0, 1.0])
    trainer = lora_trainer(tmp_path, steps=4, ema_decay=0.5, validate=lambda model: {"loss": next(losses)})
    before = weights(trainer)
    trainer.run()
    after = weights(trainer)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    factors = {name for name in before if name.endswith(("lora_a", "lora_b"))}
    assert changed == factors and factors
    groups = parameter_groups(trainer.model, use_muon=False)
    assert {name for group in groups.values() for name in group} == factors
    folder = trainer.checkpoints.path(4)
    assert set(load_file(folder / "model.safetensors")) == factors == set(load_file(folder / "average.safetensors"))
    moments = {name.partition("/")[0] for name in load_file(folder / "optimizer.safetensors")}
    assert moments == factors
    saved, _ = trainer.saved[-1]  # type: ignore[attr-defined]
    assert set(saved) == set(before), "the best model is whole"
    assert all(torch.equal(saved[name], before[name]) for name in set(before) - factors)
    assert all(torch.equal(saved[name], trainer.average[name]) for name in factors)


def test_resumed_adapters_are_those_of_an_unbroken_run(tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 6, "save_every": 1, "keep_last": 20, "every": 3, "ema_decay": 0.5}
    unbroken = lora_trainer(tmp_path / "a", **options)
    unbroken.run()
    resumed = lora_trainer(tmp_path / "a", **options)
    resumed.resume(2)
    resumed.log.rewind(2, resumed.state.groups)
    resumed.run()
    assert all(torch.equal(w, weights(unbroken)[name]) for name, w in weights(resumed).items())
    assert all(torch.equal(w, unbroken.average[name]) for name, w in resumed.average.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "muon"}, "lora_rank=3 with optimizer=muon"),
        ({"frozen": "encoder"}, "lora_rank=3 with frozen=encoder"),
        ({"lora_rank": -1}, "lora_rank=-1 is too small"),
        ({"lora_alpha": 0.0}, "lora_alpha=0.0 is out of range"),
    ],
)
def test_settings_that_contradict_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        lora(**options)
