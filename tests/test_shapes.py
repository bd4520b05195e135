"""Counts, FLOPs and shapes by arithmetic, against published figures and against the real model."""

import dataclasses
import random
from typing import get_args, get_type_hints

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from glassformer.config import Family, ModelConfig, Positions
from glassformer.errors import LengthError
from glassformer.model.transformer import build_model
from glassformer.presets import PRESETS, REASONS, preset_config
from glassformer.shapes import cache_bytes, flops_per_token, parameters, total, training_bytes, walk

PUBLISHED = {
    "paper-base": 63_045_632,
    "paper-big": 214_171_648,
    "bert-base": 109_482_240,
    "gpt2": 124_439_808,
    "t5-small": 60_506_624,
}


def random_config(seed: int) -> ModelConfig:
    """A small architecture with every choice drawn at random; distinct primes as widths."""
    draw = random.Random(seed)

    def coin() -> bool:
        return draw.random() < 0.5

    family = draw.choice(get_args(Family))
    tying = draw.choice(get_args(get_type_hints(ModelConfig)["tying"]))
    return ModelConfig(
        family=family,
        vocab_size=101,
        src_vocab_size=103 if tying in ("none", "decoder") and coin() else None,
        d_model=13,
        d_ff=29,
        n_heads=3 * draw.choice([1, 2]),
        n_kv_heads=draw.choice([1, 3]),
        d_head=draw.choice([2, 4, 10]),
        n_encoder_layers=2,
        n_decoder_layers=3,
        positions=draw.choice(get_args(Positions)),
        max_positions=31,
        n_relative_buckets=8,
        norm=draw.choice(["layernorm", "rmsnorm"]),
        norm_placement=draw.choice(["pre", "post"]),
        use_embedding_norm=coin(),
        use_final_norm=coin(),
        is_gated=coin(),
        tying=tying,
        use_attention_bias=coin(),
        use_ffn_bias=coin(),
        use_norm_bias=coin(),
        use_output_bias=coin(),
        use_mlm_head=family == "encoder-only" and coin(),
        use_pooler=family == "encoder-only" and coin(),
        n_segments=draw.choice([0, 2]) if family != "decoder-only" else 0,
    )


def real_count(config: ModelConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build_model(config).parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_their_published_number_of_parameters(name: str) -> None:
    assert total(preset_config(name)) == PUBLISHED[name]


@pytest.mark.parametrize("name", PRESETS)
def test_counts_equal_the_real_models_of_the_presets(name: str) -> None:
    assert total(preset_config(name)) == real_count(preset_config(name))
    assert REASONS[name]


@pytest.mark.parametrize("seed", range(60))
def test_counts_equal_the_real_models_of_random_architectures(seed: int) -> None:
    config = random_config(seed)
    assert total(config) == real_count(config), config


def test_the_figures_told_beside_the_presets() -> None:
    bert, paper = preset_config("bert-base"), preset_config("paper-base")
    assert total(dataclasses.replace(bert, use_mlm_head=True)) - total(bert) == 622_650
    assert total(dataclasses.replace(paper, use_attention_bias=True)) - total(paper) == 36_864


def test_parts_stand_in_the_order_of_the_lesson_and_tied_ones_count_once() -> None:
    counts = parameters(preset_config("paper-base"))
    assert list(counts) == [
        "token table of source and target",
        "encoder self-attention",
        "encoder feed-forward",
        "encoder norms",
        "decoder self-attention",
        "decoder cross-attention",
        "decoder feed-forward",
        "decoder norms",
        "output projection (is the token table)",
    ]
    assert counts["token table of source and target"] == 37_000 * 512
    assert counts["output projection (is the token table)"] == 0
    untied = parameters(dataclasses.replace(preset_config("paper-base"), tying="none"))
    assert untied["source token table"] == untied["target token table"] == untied["output projection"] == 37_000 * 512


@pytest.mark.parametrize("seed", range(20))
def test_flops_equal_those_that_torch_counts(seed: int) -> None:
    config = dataclasses.replace(random_config(seed), use_pooler=False, use_mlm_head=False)
    src, tgt = torch.full((1, 7), 5), torch.full((1, 11), 5)
    ids = {"encoder-decoder": (src, tgt), "encoder-only": (src,), "decoder-only": (tgt,)}[config.family]
    model = build_model(config).eval()
    with FlopCounterMode(display=False) as counter:  # with gradients: plain products, which torch can count on a CPU
        model(*ids)
    n_tokens = sum(x.numel() for x in ids)
    assert flops_per_token(config, 7, 11).forward * n_tokens == pytest.approx(counter.get_total_flops(), rel=1e-12)


def test_a_training_step_of_the_base_size_costs_500_gflop() -> None:
    config = dataclasses.replace(preset_config("paper-base"), vocab_size=32_000)
    flops = flops_per_token(config, 20, 22)
    assert flops.training == 3 * flops.forward
    assert flops.training * 64 * 42 == pytest.approx(500e9, rel=0.01)  # shared/design/anchors.md: "about 500 GFLOP"


def test_cache_bytes_are_two_values_per_layer_head_feature_and_position() -> None:
    base = preset_config("paper-base")
    assert cache_bytes(base, 3, 7, 5, 2) == 2 * 6 * 3 * 512 * (7 + 5) * 2
    assert cache_bytes(preset_config("gpt2"), 3, 7, 5) == 2 * 12 * 3 * 768 * 7 * 4
    assert cache_bytes(preset_config("bert-base"), 3, 7, 5) == 0
    assert cache_bytes(dataclasses.replace(base, n_kv_heads=2), 3, 7, 5, 2) * 4 == cache_bytes(base, 3, 7, 5, 2)


def test_training_bytes_are_four_four_and_eight_a_parameter() -> None:
    parts = training_bytes(preset_config("small"), 64, 20, 22)
    n = total(preset_config("small"))
    assert [parts["weights"], parts["gradients"], parts["Adam moments"]] == [4 * n, 4 * n, 8 * n]


@pytest.mark.parametrize("name", ["small", "paper-base", "t5-small"])
def test_the_estimate_of_activations_is_within_a_tenth_of_what_autograd_keeps(name: str) -> None:
    # Kernels differ in what they keep, so this is an estimate and a tenth is its stated bound.
    config = dataclasses.replace(preset_config(name), n_encoder_layers=2, n_decoder_layers=2, vocab_size=500)
    model = build_model(config)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return x

    src, tgt = torch.randint(4, 500, (16, 20)), torch.randint(4, 500, (16, 22))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        logits = model(src, tgt)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tgt.flatten())
    loss.backward()  # type: ignore[no-untyped-call]
    kept[0] = logits.untyped_storage().nbytes()  # alive until the loss is done
    estimate = training_bytes(config, 16, 20, 22)["activations (estimate)"]
    assert estimate == pytest.approx(sum(kept.values()), rel=0.1)


def test_walk_has_the_shapes_of_the_lesson() -> None:
    config = dataclasses.replace(preset_config("paper-base"), vocab_size=100_256)
    shapes = {step.name: step.shape for step in walk(config, 4, 10, 12)}
    expected = {
        "source ids": (4, 10),
        "source embeddings": (4, 10, 512),
        "source positions": (1, 10, 512),
        "encoder x 6: self-attention Q": (4, 8, 10, 64),
        "encoder x 6: self-attention K": (4, 8, 10, 64),
        "encoder x 6: self-attention V": (4, 8, 10, 64),
        "encoder x 6: self-attention scores": (4, 8, 10, 10),
        "encoder x 6: self-attention weights": (4, 8, 10, 10),
        "encoder x 6: self-attention context": (4, 8, 10, 64),
        "encoder x 6: self-attention concatenation": (4, 10, 512),
        "encoder x 6: feed-forward inner": (4, 10, 2048),
        "memory": (4, 10, 512),
        "target embeddings": (4, 12, 512),
        "decoder x 6: self-attention scores": (4, 8, 12, 12),
        "decoder x 6: cross-attention Q": (4, 8, 12, 64),
        "decoder x 6: cross-attention K": (4, 8, 10, 64),
        "decoder x 6: cross-attention scores": (4, 8, 12, 10),
        "features": (4, 12, 512),
        "logits": (4, 12, 100_256),
        "probabilities": (4, 12, 100_256),
    }
    assert expected.items() <= shapes.items()


def test_walk_of_the_other_families() -> None:
    config = dataclasses.replace(preset_config("bert-base"), use_mlm_head=True)
    bert = [(step.name, step.shape) for step in walk(config, 2, 7, 99)]
    assert ("pooler", (2, 768)) in bert and ("logits", (2, 7, 30522)) in bert and ("segments", (2, 7, 768)) in bert
    gpt = {s.name: s for s in walk(preset_config("gpt2"), 2, 9999, 7)}
    assert gpt["logits"].shape == (2, 7, 50257) and not any("cross" in name for name in gpt)
    assert gpt["decoder x 12: self-attention add & norm"].equation == "x + attention(norm(x))"
    t5 = {s.name: s.equation for s in walk(preset_config("t5-small"), 2, 5, 7)}
    assert t5["encoder x 6: self-attention scores"] == "Q K^T + bias of the distance"
    assert t5["decoder x 6: cross-attention scores"] == "Q K^T"
    assert t5["logits"] == "x · D^-0.5 W_vocab"


def test_walk_uses_the_key_value_heads() -> None:
    config = dataclasses.replace(preset_config("small"), n_kv_heads=2)
    shapes = {step.name: step.shape for step in walk(config, 1, 5, 7)}
    assert shapes["encoder x 3: self-attention K"] == (1, 2, 5, 64)
    assert shapes["encoder x 3: self-attention Q"] == (1, 4, 5, 64)


def test_a_length_beyond_the_table_is_refused() -> None:
    with pytest.raises(LengthError, match="1025 is more than max_positions=1024"):
        walk(preset_config("gpt2"), 1, 10, 1025)
