"""Which parameters are one object: tied tables, twins; and attention maps from the path that made the output."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.model import Attention, EncoderDecoder, Model, build_model
from glassformer.model.attention import RecordingKernel, attention
from glassformer.model.twin import attention_maps, twin
from helpers import (
    FAMILIES,
    assert_close,
    build_tiny,
    decoder_only,
    encoder_decoder,
    padded,
    random_ids,
    run,
    tiny_config,
)

TABLES = 23 * 20


def tables(model: EncoderDecoder) -> tuple[Any, Any, Any]:
    """Source table, target table, output projection."""
    return model.encoder.embedding.tokens.weight, model.decoder.embedding.tokens.weight, model.decoder.projection.weight


def n_parameters(model: Model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("tying", "n_tables"), [("none", 3), ("decoder", 2), ("inputs", 2), ("all", 1)])
def test_tied_tables_are_one_parameter(tying: str, n_tables: int) -> None:
    """R9 within one process: built, loaded, and after a step of training."""
    built = encoder_decoder(tying=tying)
    loaded = build_model(built.config)
    loaded.load_state_dict(built.state_dict())
    assert isinstance(loaded, EncoderDecoder)
    for model in (built, loaded, twin(built, RecordingKernel())):
        assert len({id(table) for table in tables(model)}) == n_tables
        source, target, output = tables(model)
        assert (target is output) is (tying in ("decoder", "all"))
        assert (source is target) is (tying in ("inputs", "all"))
        assert n_parameters(model) == n_parameters(encoder_decoder(tying="all")) + (n_tables - 1) * TABLES
    src, tgt = random_ids(2, 5), random_ids(2, 4)
    assert torch.equal(loaded.eval()(src, tgt), built(src, tgt))
    optimizer = torch.optim.SGD(loaded.parameters(), lr=0.1)
    loaded(src, tgt).logsumexp(-1).sum().backward()
    optimizer.step()
    assert len({id(table) for table in tables(loaded)}) == n_tables
    assert not torch.equal(loaded(src, tgt), built(src, tgt))


def test_two_vocabularies_have_two_tables() -> None:
    model = encoder_decoder(tying="decoder", src_vocab_size=31)
    source, target, output = tables(model)
    assert source.shape == (31, 20) and target.shape == (23, 20) and target is output
    assert model(random_ids(1, 4, vocab_size=31), random_ids(1, 3)).shape == (1, 3, 23)
    with pytest.raises(ConfigError, match="tying=all with src_vocab_size=31 and vocab_size=23"):
        tiny_config(tying="all", src_vocab_size=31)


@pytest.mark.parametrize(("tying", "is_tied"), [("none", False), ("decoder", True), ("all", True)])
def test_other_families_tie_their_one_table(tying: str, is_tied: bool) -> None:
    decoder = decoder_only(tying=tying)
    assert (decoder.decoder.projection.weight is decoder.decoder.embedding.tokens.weight) is is_tied
    encoder: Any = build_tiny(tiny_config("encoder-only", tying=tying, use_mlm_head=True))
    assert (encoder.mlm_head.projection.weight is encoder.encoder.embedding.tokens.weight) is is_tied


def test_build_model_is_a_function_of_config_and_seed() -> None:
    config, states = tiny_config(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(build_model(config).state_dict())
    assert all(torch.equal(a, b) for a, b in zip(states[0].values(), states[1].values(), strict=True))
    assert not torch.equal(states[0]["decoder.projection.weight"], states[2]["decoder.projection.weight"])


@pytest.mark.parametrize("family", FAMILIES)
def test_fresh_weights_have_the_stated_spread(family: str) -> None:
    sizes: dict[str, Any] = {"family": family, "vocab_size": 4000, "d_model": 64, "d_ff": 128, "tying": "none"}
    for is_scaled, std in ((True, 64**-0.5), (False, 0.02)):
        model: Any = build_model(ModelConfig(**sizes, scale_embedding=is_scaled))
        part = model.encoder if family == "encoder-only" else model.decoder
        assert float(part.embedding.tokens.weight.detach().std()) == pytest.approx(std, rel=0.02)
        assert all(bool(p.isfinite().all()) for p in model.parameters())
        block = part.stack.blocks[0]
        assert bool((block.self_residual.norm.gamma == 1).all()) and not block.feed_forward.w_1.bias.any()
        bound = (6 / (64 + 128)) ** 0.5  # Xavier
        assert 0.95 * bound < float(block.feed_forward.w_1.weight.detach().abs().max()) <= bound


@pytest.mark.parametrize("family", FAMILIES)
def test_a_twin_shares_every_parameter_and_leaves_the_model_alone(family: str) -> None:
    model = build_tiny(tiny_config(family)).train()
    frozen = next(model.parameters()).requires_grad_(False)
    kernels = [module.kernel for module in model.modules() if isinstance(module, Attention)]
    state, kernel = torch.get_rng_state(), RecordingKernel()
    other = twin(model, kernel)
    pairs = list(zip(model.named_parameters(), other.named_parameters(), strict=True))
    assert all(a is b and name == other_name for (name, a), (other_name, b) in pairs)
    assert other.training and model.training
    assert [p.requires_grad for p in model.parameters()] == [p is not frozen for p in model.parameters()]
    assert [module.kernel for module in model.modules() if isinstance(module, Attention)] == kernels
    assert {module.kernel for module in other.modules() if isinstance(module, Attention)} == {kernel}
    assert torch.equal(torch.get_rng_state(), state)
    other.eval()
    assert model.training


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", FAMILIES)
def test_attention_maps(family: str, side: str) -> None:
    """A1, M9: lengths (5, 3), from a model in train mode with dropout; each map equals that of the text alone."""
    model = build_tiny(tiny_config(family, attention_dropout=0.5)).train()
    sources, targets = ([random_ids(n, seed=s + n) for n in (5, 3)] for s in (0, 9))
    both = (padded(sources, side=side), padded(targets, side=side))
    alone = (sources[1][None], targets[1][None])
    inputs, single = ((x if family == "encoder-decoder" else x[:1]) for x in (both, alone))
    maps, right = attention_maps(model, *inputs), attention_maps(model, *single)
    n_layers = {"encoder": 1, "decoder": 2, "cross": 2}
    names = {"encoder-decoder": ["encoder", "decoder", "cross"], "encoder-only": ["encoder"]}.get(family, ["decoder"])
    assert list(maps) == names
    real = slice(0, 3) if side == "right" else slice(2, 5)
    pads = slice(3, 5) if side == "right" else slice(0, 2)
    for name in names:
        assert len(maps[name]) == n_layers[name]
        for weights, expected in zip(maps[name], right[name], strict=True):
            assert weights.shape == (2, 4, 5, 5)
            assert not weights.requires_grad
            assert_close(weights[0].sum(-1), torch.ones(4, 5), 1e-5, "rows of real queries are distributions")
            assert not weights[1, :, :, pads].any()
            assert_close(weights[1, :, real, real], expected[0], 1e-5, "float32")
    assert model.training


@pytest.mark.parametrize("family", FAMILIES)
def test_maps_come_from_the_pass_that_made_the_output(family: str) -> None:
    model = build_tiny(tiny_config(family))
    src, tgt = random_ids(2, 5), random_ids(2, 4)
    recorder = RecordingKernel()
    with torch.no_grad():
        assert_close(run(twin(model, recorder), src, tgt), run(model, src, tgt), 1e-5, "float32")
    inputs = (src, tgt) if family == "encoder-decoder" else (src,) if family == "encoder-only" else (tgt,)
    maps = attention_maps(model, *inputs)
    assert sum(len(layers) for layers in maps.values()) == len(recorder.weights)


def test_maps_of_a_cached_run_are_the_rows_of_the_full_ones() -> None:
    model = encoder_decoder()
    src, tgt = padded([random_ids(5), random_ids(3)]), random_ids(2, 4)
    maps = attention_maps(model, src, tgt)
    recorder = RecordingKernel()
    other = twin(model, recorder)
    with torch.no_grad():
        cache = other.new_cache(src, 4)
        for step in range(4):
            recorder.weights.clear()
            other.decode_step(tgt[:, step : step + 1], cache)
            for layer in range(2):
                own, cross = recorder.weights[2 * layer : 2 * layer + 2]
                assert_close(own, maps["decoder"][layer][:, :, step : step + 1, : step + 1], 1e-5, "float32")
                assert_close(cross, maps["cross"][layer][:, :, step : step + 1], 1e-5, "float32")


def test_maps_take_masks_and_segments() -> None:
    """What changes the output changes its maps: they see the same keyword arguments."""
    model: Any = build_tiny(tiny_config("encoder-only", n_segments=2, pad_id=None))
    ids, mask = random_ids(1, 4), torch.tensor([[True, True, True, False]])
    assert not attention_maps(model, ids, mask=mask)["encoder"][0][..., 3].any()
    plain, other = (
        attention_maps(model, ids, segment_ids=s)["encoder"][0] for s in (None, torch.tensor([[0, 0, 1, 1]]))
    )
    assert not torch.equal(plain, other)


def test_recorded_weights_are_those_of_the_equation() -> None:
    recorder = RecordingKernel()
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    context = recorder(q, k, k, scale=0.5)
    right, weights = attention(q, k, k, scale=0.5)
    assert torch.equal(context, right) and torch.equal(recorder.weights[0], weights)
