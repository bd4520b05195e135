"""Numbers by hand: attention, its scale, norms, activations, embedding and logit scales, dropout."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.model import Attention, FeedForward, LayerNorm, RMSNorm, attention, build_model, fused_attention
from glassformer.model.attention import RecordingKernel
from glassformer.model.feedforward import ACTIVATIONS
from glassformer.model.norm import layer_norm, rms_norm
from glassformer.model.stack import build_attention
from glassformer.model.twin import attention_maps, twin
from helpers import (
    FAMILIES,
    assert_close,
    build_tiny,
    chunks,
    decoder_only,
    encoder_decoder,
    random_ids,
    run,
    tiny_config,
)

E = math.e


def test_two_tokens_in_closed_form() -> None:
    """Scores 0 and 1 give the weights [1, e] / (1 + e)."""
    q, k, v = torch.tensor([[[[1.0]]]]), torch.tensor([[[[0.0], [1.0]]]]), torch.tensor([[[[10.0], [20.0]]]])
    context, weights = attention(q, k, v, scale=1.0)
    assert_close(weights, torch.tensor([[[[1 / (1 + E), E / (1 + E)]]]]), 1e-7, "float32")
    with torch.no_grad():
        for out in (context, fused_attention(q, k, v, scale=1.0)):
            assert_close(out, torch.tensor([[[[(10 + 20 * E) / (1 + E)]]]]), 1e-5, "float32 numbers of size 20")


def test_scale_bias_mask_and_shared_heads_by_hand() -> None:
    """Row by row with plain Python numbers: 4 query heads over 2 key heads, a bias, a mask."""
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 2, 3), torch.randn(1, 2, 3, 3), torch.randn(1, 2, 3, 3)
    bias, mask = torch.randn(1, 4, 2, 3), torch.tensor([[True, False, True], [True, True, True]])
    with torch.no_grad():
        contexts = [attention(q, k, v, scale=0.5, mask=mask, bias=bias)[0]]
        contexts.append(fused_attention(q, k, v, scale=0.5, mask=mask, bias=bias))
    for h in range(4):
        for i in range(2):
            keys, values = k[0, h // 2], v[0, h // 2]  # heads 0 and 1 share the first, 2 and 3 the second
            sizes = [math.exp(0.5 * float(q[0, h, i] @ keys[j]) + float(bias[0, h, i, j])) for j in range(3)]
            sizes = [size if mask[i, j] else 0.0 for j, size in enumerate(sizes)]
            right = torch.tensor(sizes) / sum(sizes) @ values
            for context in contexts:
                assert_close(context[0, h, i], right, 1e-6, "float32")


def test_score_differences_have_unit_variance_after_scaling() -> None:
    """Var(q·k) = d_k for independent entries of unit variance; times 1/sqrt(d_k) it is 1.

    log(w_0 / w_1) is the difference of two independent scores: variance 2 after scaling, 2 d_k before.
    """
    torch.manual_seed(0)
    d_k, n = 64, 20_000
    layer = build_attention(tiny_config(d_head=d_k))
    assert layer.scale == 1 / 8
    q, k, v = (torch.randn(1, n, length, d_k, dtype=torch.float64) for length in (1, 2, 2))
    products = (q * k[:, :, :1]).sum(-1)
    assert float(products.var()) == pytest.approx(d_k, rel=0.05)
    for scale, right in ((layer.scale, 2.0), (1.0, 2.0 * d_k)):
        weights = attention(q, k, v, scale=scale)[1]
        log_ratio = (weights[..., 0] / weights[..., 1]).log()
        assert float(log_ratio.var()) == pytest.approx(right, rel=0.05)


def test_unscaled_scores_saturate_the_softmax_and_starve_its_gradient() -> None:
    """The trace of the softmax's Jacobian, 1 - sum w^2, is what gradients are multiplied by."""
    torch.manual_seed(0)
    d_k = 64
    q, k, v = (torch.randn(1, 500, length, d_k) for length in (1, 10, 10))
    traces, largest = [], []
    for scale in (d_k**-0.5, 1.0):
        weights = attention(q, k, v, scale=scale)[1]
        traces.append(float((1 - weights.square().sum(-1)).mean()))
        largest.append(float(weights.amax(-1).mean()))
    assert largest[0] < 0.5 < 0.8 < largest[1]
    assert traces[0] > 0.7
    assert traces[1] < traces[0] / 4


def test_huge_scores_stay_finite() -> None:
    q = torch.tensor([[[[1e4]]]], requires_grad=True)
    k = torch.tensor([[[[-1e4], [1e4], [1e4]]]], requires_grad=True)
    for kernel in (fused_attention, RecordingKernel()):
        context = kernel(q, k, k, scale=1.0, mask=torch.tensor([True, True, False]))
        assert float(context.detach()) == 1e4
        assert all(bool(g.isfinite().all()) for g in torch.autograd.grad(context.sum(), (q, k)))


@pytest.mark.parametrize(("eps", "right"), [(1e-12, 0.9999995), (1e-5, 0.3015113)])
def test_layer_norm_takes_the_given_epsilon(eps: float, right: float) -> None:
    """N1, input A."""
    module = LayerNorm(d_model=2, eps=eps, use_bias=True)
    x = torch.tensor([1e-3, -1e-3])
    for out in (module(x), layer_norm(x, torch.ones(2), torch.zeros(2), eps)):
        assert_close(out, torch.tensor([right, -right]), 1e-6, "float32")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_norm_modules_equal_their_references(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    atol = 1e-12 if dtype == torch.float64 else 0.15
    x, gamma, beta = torch.randn(3, 5, 7, dtype=dtype) * 3 + 2, torch.randn(7, dtype=dtype), torch.randn(7, dtype=dtype)
    for use_bias in (True, False):
        module: nn.Module = LayerNorm(d_model=7, eps=1e-3, use_bias=use_bias)
        module.gamma.data, right = gamma, layer_norm(x, gamma, beta if use_bias else None, 1e-3)
        if use_bias:
            module.beta.data = beta
        assert_close(module(x), right, atol, "the order of the sums, and the rounding of the dtype")
    module = RMSNorm(d_model=7, eps=1e-3)
    module.gamma.data = gamma
    assert_close(module(x), rms_norm(x, gamma, 1e-3), atol, "the order of the sums, and the rounding of the dtype")


def test_rms_norm_by_hand_neither_centres_nor_shifts() -> None:
    module = RMSNorm(d_model=2, eps=0.5)
    size = math.sqrt((9 + 16) / 2 + 0.5)
    assert_close(module(torch.tensor([3.0, 4.0])), torch.tensor([3 / size, 4 / size]), 1e-6, "float32")
    assert [name for name, _ in module.named_parameters()] == ["gamma"]


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_norm_of_a_model_has_the_epsilon_of_the_config(family: str, norm: str) -> None:
    """N1, input B: embedding norm, both or three norms of a block, final norm, norm of the masked-language head."""
    heads = {"use_mlm_head": True} if family == "encoder-only" else {}
    model = build_model(tiny_config(family, norm=norm, norm_eps=0.123, use_embedding_norm=True, **heads))
    norms = [module.eps for module in model.modules() if isinstance(module, LayerNorm | RMSNorm)]
    per_family = {
        "encoder-decoder": 1 + 2 + 1 + 1 + 2 * 3 + 1,
        "encoder-only": 1 + 2 + 1 + 1,
        "decoder-only": 1 + 4 + 1,
    }
    assert norms == [0.123] * per_family[family]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gelu", {1.0: 0.8413447, -2.0: -0.0455003, -3.0: -0.0040497}),
        ("gelu_tanh", {1.0: 0.8411920, -2.0: -0.0454023, -3.0: -0.0036374}),
        ("relu", {1.0: 1.0, -2.0: 0.0}),
        ("silu", {1.0: 1 / (1 + 1 / E), -2.0: -2 / (1 + E**2)}),
    ],
)
def test_activations(name: Any, values: dict[float, float]) -> None:
    """N2, also through the whole network, with unit matrices."""
    network = FeedForward(d_model=1, d_ff=1, activation=name, is_gated=False, use_bias=False, dropout=0.0)
    network.w_1.weight.data.fill_(1.0)
    network.w_2.weight.data.fill_(1.0)
    for x, right in values.items():
        assert float(ACTIVATIONS[name](torch.tensor(x))) == pytest.approx(right, abs=1e-6)
        assert float(network(torch.tensor([x])).detach()) == pytest.approx(right, abs=1e-6)


def test_the_two_forms_of_gelu_differ_most_near_2_7() -> None:
    x = torch.linspace(-5, 5, 10_001, dtype=torch.float64)
    gap = (ACTIVATIONS["gelu"](x) - ACTIVATIONS["gelu_tanh"](x)).abs()
    assert float(gap.max()) == pytest.approx(4.73e-4, abs=1e-6)
    assert float(x[gap.argmax()].abs()) == pytest.approx(2.7, abs=0.1)


def test_gated_network_by_hand() -> None:
    network = FeedForward(d_model=1, d_ff=2, activation="relu", is_gated=True, use_bias=True, dropout=0.0)
    assert network.w_3 is not None
    network.w_1.weight.data, network.w_1.bias.data = torch.tensor([[1.0], [-1.0]]), torch.tensor([0.5, 0.0])
    network.w_3.weight.data, network.w_3.bias.data = torch.tensor([[3.0], [5.0]]), torch.tensor([1.0, 0.0])
    network.w_2.weight.data, network.w_2.bias.data = torch.tensor([[2.0, 7.0]]), torch.tensor([0.25])
    assert float(network(torch.tensor([2.0])).detach()) == (2.0 + 0.5) * (3 * 2.0 + 1) * 2 + 0.25
    assert float(network(torch.tensor([-1.0])).detach()) == 1.0 * -5.0 * 7 + 0.25


def test_dropout_of_the_network_stands_after_the_activation() -> None:
    network = FeedForward(d_model=1, d_ff=1000, activation="relu", is_gated=False, use_bias=False, dropout=0.5)
    network.w_1.weight.data.fill_(1.0)
    network.w_2.weight.data.fill_(1.0)
    torch.manual_seed(0)
    n_kept = float(network(torch.tensor([1.0])).detach()) / 2
    assert n_kept == round(n_kept) and 400 < n_kept < 600


@pytest.mark.parametrize(("is_scaled", "factor"), [(True, 4.0), (False, 1.0)])
def test_embedding_scale(is_scaled: bool, factor: float) -> None:
    """N6: once, on the inputs of both sides, and never on the logits."""
    model = encoder_decoder(d_model=16, positions="none", scale_embedding=is_scaled)
    table = model.encoder.embedding.tokens.weight
    ids = torch.tensor([[7]])
    with torch.no_grad():
        for side in (model.encoder, model.decoder):
            out = side.embedding(ids, torch.zeros(1, 1, dtype=torch.long), n_positions=1)
            assert torch.equal(out[0, 0], factor * table[7])
        features = model.features(ids, ids)
        assert torch.equal(model(ids, ids), features @ table.T)
        assert torch.equal(model.project(features), features @ table.T)


def test_logit_scale_and_output_bias() -> None:
    """N4: D^-0.5 where the config asks for it, before the projection; the bias is not scaled."""
    model = decoder_only(d_model=16, scale_logits=True, use_output_bias=True)
    projection = model.decoder.projection
    assert projection.bias is not None
    with torch.no_grad():
        x = torch.randn(1, 2, 16)
        assert_close(model.project(x), x @ projection.weight.T / 4 + projection.bias, 1e-6, "float32")


@pytest.mark.parametrize(("is_scaled", "scale"), [(True, 6**-0.5), (False, 1.0)])
def test_score_scale_follows_the_config(is_scaled: bool, scale: float) -> None:
    """N4: T5 has none. The width that counts is d_head, not d_model / n_heads."""
    model = encoder_decoder(scale_scores=is_scaled, positions="none")
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    assert [layer.scale for layer in layers] == pytest.approx([scale] * 5)
    src = random_ids(1, 4)
    block: Any = model.encoder.stack.blocks[0]
    layer, residual = block.self_attention, block.self_residual
    with torch.no_grad():
        x = residual.norm(model.encoder.embedding(src, torch.arange(4)[None], n_positions=4))
        scores = layer.split(layer.w_q(x)) @ layer.split(layer.w_k(x)).mT * scale
    assert_close(attention_maps(model, src, src)["encoder"][0], scores.softmax(-1), 1e-6, "float32")


def test_embedding_sum_of_tokens_segments_and_norm() -> None:
    """BERT: tokens, positions and segments are added and then normalised; segment 0 when none is given."""
    options = {"positions": "learned", "n_segments": 2, "use_embedding_norm": True, "scale_embedding": False}
    model: Any = build_tiny(tiny_config("encoder-only", **options))
    part, ids, segments = model.encoder.embedding, torch.tensor([[5, 9]]), torch.tensor([[0, 1]])
    places = torch.arange(2)[None]
    total = part.tokens.weight[ids] + part.positions.weight[:2] + part.segments[segments]
    with torch.no_grad():
        out = part(ids, places, n_positions=2, segment_ids=segments)
        assert_close(out, layer_norm(total, part.norm.gamma, part.norm.beta, 1e-5), 1e-6, "float32")
        default = part(ids, places, n_positions=2)
    assert torch.equal(default, part(ids, places, n_positions=2, segment_ids=torch.zeros_like(ids)))
    assert not torch.equal(default, out)


def test_masked_language_head_and_pooler_by_hand() -> None:
    model: Any = build_tiny(tiny_config("encoder-only", use_mlm_head=True, use_pooler=True, activation="gelu"))
    x = torch.randn(2, 3, 20)
    head, table = model.mlm_head, model.encoder.embedding.tokens.weight
    with torch.no_grad():
        inner = torch.nn.functional.gelu(x @ head.dense.weight.T + head.dense.bias)
        right = layer_norm(inner, head.norm.gamma, head.norm.beta, 1e-5) @ table.T + head.projection.bias
        assert_close(head(x), right, 1e-5, "float32")
        dense = model.pooler.dense
        assert_close(model.pooler(x), torch.tanh(x[:, 0] @ dense.weight.T + dense.bias), 1e-6, "float32")


def passes(model: Any, src: Tensor, tgt: Tensor) -> list[Tensor]:
    """Plain forward, the reference kernel and, for decoders, the cached path."""
    outs = [run(model, src, tgt), run(twin(model, RecordingKernel()), src, tgt)]
    if model.config.family != "encoder-only":
        cache = model.new_cache(src, 5) if model.config.family == "encoder-decoder" else model.new_cache(2, 5)
        outs.append(torch.cat([model.decode_step(chunk, cache) for chunk in chunks(tgt, 2)], dim=1))
    return outs


@pytest.mark.parametrize("place", ["attention_dropout", "ffn_dropout", "dropout"])
@pytest.mark.parametrize("has_gradients", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_dropout_in_eval_mode(family: str, has_gradients: bool, place: str) -> None:
    """N13: equal bit for bit, the random state untouched, on every path, also after loading; train mode differs."""
    model: Any = build_tiny(tiny_config(family, **{place: 0.5}))
    loaded = build_model(model.config).eval()
    loaded.load_state_dict(model.state_dict())
    src, tgt = random_ids(2, 6), random_ids(2, 5, seed=1)
    with torch.set_grad_enabled(has_gradients):
        state = torch.get_rng_state()
        first, second, third = (passes(m, src, tgt) for m in (model, model, loaded))
        assert torch.equal(torch.get_rng_state(), state)
        for a, b, c in zip(first, second, third, strict=True):
            assert torch.equal(a, b) and torch.equal(a, c)
        model.train()
        for a, b in zip(passes(model, src, tgt), passes(model, src, tgt), strict=True):
            assert not torch.equal(a, b)


def test_attention_dropout_acts_on_cross_attention() -> None:
    layer = build_attention(tiny_config(attention_dropout=0.5)).train()
    x, memory = torch.randn(1, 3, 20), torch.randn(1, 9, 20)
    assert not torch.equal(layer(x, memory), layer(x, memory))
    layer.eval()
    assert torch.equal(layer(x, memory), layer(x, memory))


def test_weights_are_returned_before_dropout() -> None:
    torch.manual_seed(0)
    q = torch.randn(1, 2, 4, 3)
    context, weights = attention(q, q, q, scale=1.0, dropout=0.5)
    clean, right = attention(q, q, q, scale=1.0)
    assert torch.equal(weights, right)
    assert not torch.equal(context, clean)
