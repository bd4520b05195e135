"""int8 and bfloat16 at run time: near the float model, each text on its own, the given model untouched."""

from __future__ import annotations

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.model import attention_maps
from glassformer.model.quantized import ACTIVATION_MAX, Int8Linear, quantize_rows, with_precision
from helpers import FAMILIES, assert_close, build_tiny, encoder_decoder, padded, random_ids, run, tiny_config

has_kernel = pytest.mark.skipif(
    "fbgemm" not in torch.backends.quantized.supported_engines, reason="int8 kernels are for x86-64"
)


def test_rows_are_rounded_to_half_a_step_of_their_own_scale() -> None:
    weight = torch.tensor([[1.27, -0.5, 0.004], [100.0, 0.0, -127.0], [0.0, 0.0, 0.0]])
    q, scale = quantize_rows(weight)
    assert q.dtype == torch.int8
    assert q.tolist() == [[127, -50, 0], [100, 0, -127], [0, 0, 0]]
    assert_close(scale, torch.tensor([0.01, 1.0, 1.0]), 1e-8, "max / 127; a row of zeros has 1")


@has_kernel
def test_the_kernel_computes_its_equation_without_saturating() -> None:
    """The largest values in every place: 8-bit activations would saturate in 16-bit sums without VNNI."""
    weight = torch.full((4, 64), 127.0) * torch.tensor([[1.0], [-1.0], [1.0], [0.5]])
    x = torch.cat([torch.full((1, 64), 2.0), torch.full((1, 64), -2.0)])
    bias = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert_close(Int8Linear(weight, bias)(x), x @ weight.T + bias, 0.1, "rounding of 16256 in float32")


@has_kernel
def test_activations_have_a_scale_for_each_token() -> None:
    weight, x = torch.randn(8, 16), torch.randn(3, 16)
    layer = Int8Linear(weight, None, scale=0.5)
    q, scale = quantize_rows(weight)
    m = x.abs().amax(1, keepdim=True)
    expected = 0.5 * m * ((ACTIVATION_MAX * x / m).round() / ACTIVATION_MAX) @ (q * scale[:, None]).T
    assert_close(layer(x), expected, 1e-4, "the same integers, another order of sums")
    assert torch.equal(layer(x * 1000.0)[1], layer(x * torch.tensor([[1e-9], [1000.0], [1e9]]))[1])


@has_kernel
@pytest.mark.parametrize("family", FAMILIES)
def test_int8_is_near_the_float_model_for_every_family(family: str) -> None:
    model = build_tiny(tiny_config(family, use_attention_bias=True))
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    other = with_precision(model, "int8")
    src, tgt = random_ids(3, 7), random_ids(3, 5, seed=1)
    with torch.no_grad():
        expected, actual = run(model, src, tgt), run(other, src, tgt)
    gap = float((actual - expected).pow(2).mean().sqrt() / expected.std())
    assert 1e-4 < gap < 0.1, gap  # it is int8, and near
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())


@has_kernel
def test_a_text_in_int8_depends_on_no_other_text_and_no_padding() -> None:
    model = with_precision(encoder_decoder(), "int8")
    rows, tgt = [random_ids(n, seed=n) for n in (3, 9, 5)], random_ids(3, 4)
    with torch.no_grad():
        together = model(padded(rows), tgt)
        for i, row in enumerate(rows):
            assert_close(model(row[None], tgt[i : i + 1])[0], together[i], 1e-5, "float attention over other widths")


@has_kernel
def test_an_int8_model_can_be_seen_through_and_shares_its_tables() -> None:
    model = encoder_decoder()
    other = with_precision(model, "int8")
    assert other.decoder.embedding.tokens.weight is model.decoder.embedding.tokens.weight
    maps = attention_maps(other, random_ids(1, 4), random_ids(1, 3))
    assert_close(maps["cross"][0].sum(-1), torch.ones(1, 4, 3), 1e-5, "weights of a query sum to 1")


def test_bf16_and_float32() -> None:
    model = encoder_decoder()
    assert with_precision(model, "float32") is model
    assert with_precision(model, "bf16").decoder.embedding.tokens.weight.dtype == torch.bfloat16
    assert model.decoder.embedding.tokens.weight.dtype == torch.float32


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="precision=int4 is unknown"):
        with_precision(encoder_decoder(), "int4")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="float64"):
        with_precision(encoder_decoder().double(), "int8")


@has_kernel
def test_a_model_in_int8_stays_what_it_is() -> None:
    model = with_precision(encoder_decoder(), "int8")
    assert with_precision(model, "int8") is model
    for other in ("float32", "bf16"):
        with pytest.raises(ConfigError, match=f"precision={other} for a model in int8"):
            with_precision(model, other)  # type: ignore[arg-type]


@has_kernel
def test_a_large_result_is_made_in_parts_and_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Int8Linear(torch.randn(12, 16), torch.randn(12), scale=0.5)
    x = torch.randn(5, 3, 16)
    expected = layer(x)
    for largest in (1, 24, 100, 179):
        monkeypatch.setattr("glassformer.model.quantized.LARGE", largest)
        assert torch.equal(layer(x), expected)


@has_kernel
def test_a_matrix_is_quantised_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(7, 5)
    expected = quantize_rows(weight)
    monkeypatch.setattr("glassformer.model.quantized.ROWS", 3)
    assert all(torch.equal(a, b) for a, b in zip(quantize_rows(weight), expected, strict=True))
