"""Each position scheme against values by hand and against the property it is made for."""

from __future__ import annotations

import math

import pytest
import torch

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError, LengthError
from glassformer.model.positions import (
    ALiBi,
    RelativeBias,
    SinusoidalPositions,
    rotary_phases,
    rotate,
    sinusoidal_table,
)
from helpers import assert_close, build_tiny, decoder_only, encoder_only, random_ids, run, tiny_config


def test_sinusoids_by_hand() -> None:
    """P1, and the interleaved layout of the paper: sine and cosine as neighbours."""
    table = sinusoidal_table(100, 5)
    f_1, f_2 = 10000**-0.4, 10000**-0.8
    rows = [[0, 1, 0, 1, 0], [math.sin(1), math.cos(1), math.sin(f_1), math.cos(f_1), math.sin(f_2)]]
    assert table.shape == (100, 5)
    assert table.dtype == torch.float64
    assert_close(table[:2], torch.tensor(rows, dtype=torch.float64), 1e-12, "float64")
    last = [math.sin(99), math.cos(99), math.sin(99 * f_1), math.cos(99 * f_1), math.sin(99 * f_2)]
    assert_close(table[99], torch.tensor(last, dtype=torch.float64), 1e-12, "float64")


def test_sinusoids_in_halves_hold_the_same_numbers() -> None:
    for width in (1, 2, 5, 8):
        interleaved, halves = sinusoidal_table(9, width), sinusoidal_table(9, width, is_interleaved=False)
        assert torch.equal(halves, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], dim=1))


@pytest.mark.parametrize("width", [1, 2, 5, 512])
def test_sinusoids_of_any_width_are_bounded_and_distinct(width: int) -> None:
    table = sinusoidal_table(600, width)
    assert table.shape == (600, width)
    assert float(table.abs().max()) <= 1
    assert len({tuple(row) for row in table.tolist()}) == 600


def test_shifted_positions_are_a_fixed_rotation() -> None:
    """PE(pos + k) = R(k) PE(pos), the same R(k) for every pos."""
    width, k = 8, 7
    table = sinusoidal_table(300, width)
    rotation = torch.zeros(width, width, dtype=torch.float64)
    for i in range(0, width, 2):
        cos, sin = math.cos(k / 10000 ** (i / width)), math.sin(k / 10000 ** (i / width))
        rotation[i, i : i + 2] = torch.tensor([cos, sin], dtype=torch.float64)
        rotation[i + 1, i : i + 2] = torch.tensor([-sin, cos], dtype=torch.float64)
    assert_close(table[k:], table[:-k] @ rotation.T, 1e-12, "float64")
    assert_close(rotation @ rotation.T, torch.eye(width), 1e-12, "a rotation keeps lengths")


def test_sinusoids_grow_without_bound_and_keep_their_rows() -> None:
    module = SinusoidalPositions(d_model=6, is_interleaved=True)
    long = module(torch.tensor([[4999, 3]]), n_positions=5000, dtype=torch.float32)
    short = module(torch.tensor([[3]]), n_positions=4, dtype=torch.float32)
    assert torch.equal(long[:, 1], short[:, 0])
    assert_close(long[0, 0], sinusoidal_table(5000, 6)[4999], 1e-7, "float64 rounded once")
    half = module(torch.tensor([[4999]]), n_positions=5000, dtype=torch.bfloat16)
    assert torch.equal(half[0, 0], sinusoidal_table(5000, 6)[4999].bfloat16())


def test_a_change_of_dtype_does_not_make_the_table_longer() -> None:
    module = SinusoidalPositions(d_model=6, is_interleaved=True)
    for dtype in (torch.float32, torch.bfloat16) * 10:
        module(torch.tensor([[3]]), n_positions=4, dtype=dtype)
    assert len(module._table) == 128


def test_a_sinusoidal_model_reads_any_length_and_width() -> None:
    config = ModelConfig(family="decoder-only", vocab_size=23, d_model=5, d_ff=7, n_heads=1, n_decoder_layers=1)
    with torch.no_grad():
        assert build_tiny(config)(random_ids(1, 1100)).shape == (1, 1100, 23)


def test_heads_that_do_not_divide_the_width_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="n_heads=3 does not divide d_model=16"):
        ModelConfig(d_model=16, n_heads=3)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "alibi"])
@pytest.mark.parametrize("family", ["encoder-decoder", "encoder-only", "decoder-only"])
def test_a_text_past_max_positions_names_both_numbers(family: str, positions: str) -> None:
    """P2 (a): a ValueError with 17 and 16, before the table is read."""
    model = build_tiny(tiny_config(family, positions=positions, max_positions=16))
    run(model, random_ids(1, 16), random_ids(1, 16))
    with pytest.raises(LengthError, match="17 tokens and max_positions=16") as caught:
        run(model, random_ids(1, 17), random_ids(1, 17))
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_cached_text_past_max_positions_is_refused(positions: str) -> None:
    """P2 (b): no wrap-around, no clamping; and the next text works."""
    model = decoder_only(positions=positions, max_positions=16)
    cache = model.new_cache(1, 40)
    model.decode_step(random_ids(1, 10), cache)
    for _ in range(6):
        model.decode_step(random_ids(1, 1), cache)
    with pytest.raises(LengthError, match="17 tokens and max_positions=16"):
        model.decode_step(random_ids(1, 1), cache)
    assert model.decode_step(random_ids(1, 10), model.new_cache(1, 16)).shape == (1, 10, 23)


def test_pads_on_the_left_use_no_positions() -> None:
    model = decoder_only(positions="learned", max_positions=8)
    ids = torch.cat([torch.zeros(2, 5, dtype=torch.long), random_ids(2, 7)], dim=1)
    ids[1, 4] = 7  # eight real tokens
    with torch.no_grad():
        assert_close(model(ids)[0, 5:], model(ids[:1, 5:])[0], 1e-5, "float32")
        cache = model.new_cache(2, 20)
        model.decode_step(ids[:, :8], cache)
        assert_close(model.decode_step(ids[:, 8:], cache), model(ids)[:, 8:], 1e-5, "float32")
    with pytest.raises(LengthError, match="9 tokens"):
        model.decode_step(random_ids(2, 1), cache)


def test_rotary_by_hand() -> None:
    cos, sin = rotary_phases(torch.tensor([[0, 3]]), d_head=4, base=100.0, dtype=torch.float64)
    angles = torch.tensor([[0, 0], [3, 3 / 10]], dtype=torch.float64)  # 100^(-2/4) = 1/10
    assert_close(cos[0, 0], angles.cos(), 1e-12, "float64")
    assert_close(sin[0, 0], angles.sin(), 1e-12, "float64")
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).expand(1, 1, 2, 4)
    c, s = math.cos(3), math.sin(3)
    c_2, s_2 = math.cos(0.3), math.sin(0.3)
    pairs = [[c - 2 * s, s + 2 * c, 3 * c_2 - 4 * s_2, 3 * s_2 + 4 * c_2]]
    halves = [[c - 3 * s, 2 * c_2 - 4 * s_2, s + 3 * c, 2 * s_2 + 4 * c_2]]
    for is_interleaved, right in ((True, pairs), (False, halves)):
        turned = rotate(x, (cos, sin), is_interleaved=is_interleaved)[0, 0]
        assert torch.equal(turned[0], x[0, 0, 0])
        assert_close(turned[1:], torch.tensor(right, dtype=torch.float64), 1e-12, "float64")


@pytest.mark.parametrize("is_interleaved", [True, False])
def test_rotary_products_depend_on_the_distance_alone(is_interleaved: bool) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 6, dtype=torch.float64)

    def product(m: int, n: int) -> float:
        turned = [
            rotate(
                x, rotary_phases(torch.tensor([[p]]), d_head=6, base=1e4, dtype=x.dtype), is_interleaved=is_interleaved
            )
            for x, p in ((q, m), (k, n))
        ]
        assert abs(float(turned[0].norm() - q.norm())) < 1e-12
        return float((turned[0] * turned[1]).sum())

    assert product(7, 4) == pytest.approx(product(1003, 1000), abs=1e-9)
    assert product(7, 4) != pytest.approx(product(4, 7), abs=1e-3)


def test_rotary_phases_keep_neighbours_apart_in_bfloat16() -> None:
    """P4: integer positions and float64 angles, rounded once."""
    positions = torch.arange(4096)[None]
    cos, sin = (x[0, 0] for x in rotary_phases(positions, d_head=64, base=1e4, dtype=torch.bfloat16))
    cos_32, sin_32 = (x[0, 0] for x in rotary_phases(positions, d_head=64, base=1e4, dtype=torch.float32))
    assert_close(cos, cos_32, 2**-8, "one rounding to bfloat16")
    assert_close(sin, sin_32, 2**-8, "one rounding to bfloat16")
    exact = torch.arange(4096, dtype=torch.float64)[:, None] / 1e4 ** (torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    assert_close(cos_32, exact.cos(), 1e-6, "float32")
    assert not torch.equal(cos[256], cos[257])
    assert len({tuple(row) for row in torch.cat([cos_32, sin_32], dim=1).tolist()}) == 4096


def test_alibi_slopes_of_the_paper() -> None:
    assert ALiBi(n_heads=8).slopes == [2**-i for i in range(1, 9)]
    assert ALiBi(n_heads=16).slopes == pytest.approx([2 ** (-i / 2) for i in range(1, 17)])
    next_power = [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]  # of 16 heads: the first, third, fifth, seventh
    assert ALiBi(n_heads=12).slopes == pytest.approx([2**-i for i in range(1, 9)] + next_power)
    assert ALiBi(n_heads=1).slopes == [2**-8]


def test_alibi_by_hand() -> None:
    bias = ALiBi(n_heads=2)(torch.tensor([[3]]), torch.tensor([[0, 2, 3, 5]]))
    assert bias.tolist() == [[[[-3 / 16, -1 / 16, 0, -2 / 16]], [[-3 / 256, -1 / 256, 0, -2 / 256]]]]


def test_t5_buckets_by_hand() -> None:
    """32 buckets up to a distance of 128: exact up to 15 (causal) or 7 (both ways), then by the logarithm."""
    causal = RelativeBias(n_heads=1, n_buckets=32, max_distance=128, is_causal=True)
    back = torch.tensor([0, 1, 15, 16, 20, 32, 64, 113, 127, 128, 10_000])
    assert causal.bucket(-back).tolist() == [0, 1, 15, 16, 17, 21, 26, 31, 31, 31, 31]
    assert causal.bucket(torch.tensor([1, 50])).tolist() == [0, 0]  # keys to the right are masked anyway
    both = RelativeBias(n_heads=1, n_buckets=32, max_distance=128, is_causal=False)
    assert both.bucket(-torch.tensor([0, 1, 7, 8, 20, 50, 127, 128, 10_000])).tolist() == [
        0,
        1,
        7,
        8,
        10,
        13,
        15,
        15,
        15,
    ]
    assert both.bucket(torch.tensor([1, 7, 8, 20, 50, 127, 128, 10_000])).tolist() == [17, 23, 24, 26, 29, 31, 31, 31]


def test_t5_bias_reads_the_bucket_of_key_minus_query() -> None:
    module = RelativeBias(n_heads=2, n_buckets=8, max_distance=16, is_causal=False)
    module.weight.data = torch.arange(16.0).reshape(8, 2)
    bias = module(torch.tensor([[1]]), torch.tensor([[0, 1, 2]]))
    assert bias.tolist() == [[[[2, 0, 10]], [[3, 1, 11]]]]  # buckets 1, 0, 5


@pytest.mark.parametrize(("buckets", "distance"), [(2, 128), (32, 16), (32, 8)])
def test_t5_buckets_that_leave_no_room_are_a_config_error(buckets: int, distance: int) -> None:
    with pytest.raises(ConfigError, match=f"n_relative_buckets={buckets} with max_relative_distance={distance}"):
        ModelConfig(positions="t5_relative", n_relative_buckets=buckets, max_relative_distance=distance)


@pytest.mark.parametrize(("buckets", "distance"), [(4, 3), (5, 4), (32, 17)])
def test_t5_buckets_at_the_border_work(buckets: int, distance: int) -> None:
    for is_causal in (True, False):
        module = RelativeBias(n_heads=1, n_buckets=buckets, max_distance=distance, is_causal=is_causal)
        reached = module.bucket(torch.arange(-200, 201))
        assert int(reached.min()) >= 0 and int(reached.max()) < buckets


def test_without_positions_an_encoder_is_permutation_equivariant() -> None:
    order = torch.tensor([3, 0, 4, 1, 2])
    ids = torch.tensor([[5, 9, 13, 17, 21]])
    with torch.no_grad():
        for positions, is_equal in (("none", True), ("sinusoidal", False), ("rotary", False), ("alibi", False)):
            model = encoder_only(positions=positions)
            gap = float((model(ids[:, order]) - model(ids)[:, order]).abs().max())
            assert (gap < 1e-5) if is_equal else (gap > 1e-2), positions


@pytest.mark.parametrize("positions", ["rotary", "t5_relative", "alibi"])
def test_relative_schemes_see_distances_only(positions: str) -> None:
    """A text moved to the right by two unseen tokens keeps its outputs."""
    model = decoder_only(positions=positions)
    seen = torch.tensor([[False, False, True, True, True, True, True, True]])
    stack, x = model.decoder.stack, torch.randn(1, 8, 20)
    with torch.no_grad():
        moved = stack(x, torch.arange(8)[None] + 100, key_mask=seen)[:, 2:]
        assert_close(moved, stack(x[:, 2:], torch.arange(6)[None]), 1e-5, "float32")
