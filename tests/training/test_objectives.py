"""The loss: its value by hand, its gradients against the reference, and how sums become means."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from glassformer.config import TrainingConfig
from glassformer.training.objectives import CHUNK_ROWS, TranslationLoss, cross_entropy, projected_cross_entropy
from glassformer.training.optimizer import build_optimizers, parameter_groups
from helpers import BOS, EOS, PAD, assert_close, encoder_decoder, random_ids
from training.runs import batch

ROW = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64)


def projected(logits: Tensor, targets: Tensor, smoothing: float, pad_id: int) -> tuple[Tensor, Tensor]:
    """The fast loss of given logits: features times the unit matrix."""
    eye = torch.eye(logits.shape[1], dtype=logits.dtype)
    return projected_cross_entropy(logits[None], eye, None, targets[None], pad_id=pad_id, smoothing=smoothing)


@pytest.mark.parametrize(("smoothing", "expected"), [(0.1, 0.590190), (0.0, 0.440190)])
def test_known_value_and_pads_give_exactly_no_gradient(smoothing: float, expected: float) -> None:
    pads = torch.tensor([[9.0, -3.0, 4.0, 1.0]] * 3, dtype=torch.float64)
    logits = torch.cat([ROW, pads]).requires_grad_()
    targets = torch.tensor([0, 3, 3, 3])
    for loss in (
        cross_entropy(logits, targets, pad_id=3, smoothing=smoothing),
        projected(logits, targets, smoothing, pad_id=3)[0],
    ):
        assert loss.item() == pytest.approx(expected, abs=1e-6)
        (grad,) = torch.autograd.grad(loss, logits)
        assert grad[0].abs().max() > 0.01
        assert torch.equal(grad[1:], torch.zeros_like(grad[1:]))


def test_smoothed_loss_comes_with_the_plain_one() -> None:
    _, nll = projected(ROW, torch.tensor([0]), 0.1, pad_id=3)
    assert nll.item() == pytest.approx(0.440190, abs=1e-6)
    assert not nll.requires_grad


def test_batch_of_pads_alone_has_loss_zero_and_finite_gradients() -> None:
    model = encoder_decoder()
    loss, nll = TranslationLoss(model, smoothing=0.1)(
        batch([(random_ids(5), torch.tensor([], dtype=torch.long))], eos=False)
    )
    loss.backward()
    assert loss.item() == nll.item() == 0.0
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_projected_equals_reference_in_value_and_gradients(use_bias: bool, smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    n_rows, n_features, n_vocab = 2 * CHUNK_ROWS + 76, 7, 23  # the last chunk is not full

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    features, weight = draw(4, n_rows // 4, n_features), draw(n_vocab, n_features)
    bias = draw(n_vocab) if use_bias else None
    targets = torch.randint(0, n_vocab, (4, n_rows // 4), generator=generator)  # some are pads
    assert (targets != PAD).sum() > 2 * CHUNK_ROWS
    inputs = [x for x in (features, weight, bias) if x is not None]

    loss, nll = projected_cross_entropy(features, weight, bias, targets, pad_id=PAD, smoothing=smoothing)
    logits = nn.functional.linear(features, weight, bias).flatten(0, 1)
    reference = cross_entropy(logits, targets.flatten(), pad_id=PAD, smoothing=smoothing)
    plain = cross_entropy(logits, targets.flatten(), pad_id=PAD, smoothing=0.0)
    assert_close(loss, reference, 1e-10 * n_rows, "float64, a sum of a thousand terms")
    assert_close(nll, plain, 1e-10 * n_rows, "float64, a sum of a thousand terms")
    scale = 0.37  # the gradient from above is not 1
    for fast, slow in zip(
        torch.autograd.grad(loss * scale, inputs), torch.autograd.grad(reference * scale, inputs), strict=True
    ):
        assert_close(fast, slow, 1e-10, "float64")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_uniform_logits_give_ln_v(smoothing: float) -> None:
    n_vocab = 19
    loss, nll = projected(torch.zeros(5, n_vocab), torch.arange(1, 6), smoothing, pad_id=0)
    assert loss.item() / 5 == pytest.approx(math.log(n_vocab), rel=1e-6)
    assert nll.item() / 5 == pytest.approx(math.log(n_vocab), rel=1e-6)


def test_denominator_counts_predicted_tokens_only() -> None:
    """Rows of 5 and 3 tokens have 4 and 2 targets after BOS; a uniform model over 8 has ln 8, in one batch or two."""
    model = encoder_decoder(vocab_size=8, tying="none")
    nn.init.zeros_(model.decoder.projection.weight)
    loss = TranslationLoss(model, smoothing=0.0)
    rows = [
        (random_ids(3, vocab_size=8), random_ids(3, vocab_size=8)),
        (random_ids(2, vocab_size=8), random_ids(1, vocab_size=8)),
    ]
    together = batch(rows)
    assert together.n_tokens == 4 + 2
    apart = [batch([row]) for row in rows]
    for parts in ([together], apart):
        mean = sum(loss(part)[0].item() for part in parts) / sum(part.n_tokens for part in parts)
        assert mean == pytest.approx(2.079442, abs=1e-6)


def test_row_does_not_see_the_row_beside_it() -> None:
    model = encoder_decoder()
    first = (random_ids(6, seed=1), random_ids(6, seed=2))
    found = []
    for seed in (3, 4):
        both = batch([first, (random_ids(6, seed=seed), random_ids(6, seed=seed + 9))])
        features = model.features(both.src, both.tgt_in)[:1]
        weight = model.decoder.projection.weight
        found.append(projected_cross_entropy(features, weight, None, both.tgt_out[:1], pad_id=PAD, smoothing=0.1)[0])
    assert torch.equal(*found)


def test_model_trained_on_a_sequence_continues_it() -> None:
    """Shifted twice, position t would learn token t + 2; not at all, it would learn to copy."""
    model = encoder_decoder(n_decoder_layers=1)
    sequence = torch.arange(4, 16)
    one = batch([(sequence[:2], sequence)])
    assert one.tgt_in[0].tolist() == [BOS, *range(4, 16)]
    assert one.tgt_out[0].tolist() == [*range(4, 16), EOS]
    loss = TranslationLoss(model.train(), smoothing=0.0)
    optimizers = build_optimizers(model, TrainingConfig(weight_decay=0.0), lr=0.01)
    for _ in range(200):
        value, _ = loss(one)
        (value / one.n_tokens).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if value / one.n_tokens < 0.05:
            break
    assert value / one.n_tokens < 0.05
    tokens = [BOS, 4, 5]
    with torch.no_grad():
        while len(tokens) < 14:
            tokens.append(int(model.eval()(one.src, torch.tensor([tokens]))[0, -1].argmax()))
    assert tokens[3:] == [*range(6, 16), EOS]


def test_true_next_token_gives_no_loss() -> None:
    targets = torch.arange(1, 7)
    logits = 30.0 * nn.functional.one_hot(targets, 8).double()
    assert projected(logits, targets, 0.0, pad_id=0)[0].item() < 1e-4


# -- parameter groups ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tying", ["none", "decoder", "all"])
@pytest.mark.parametrize("use_muon", [False, True])
def test_every_parameter_is_in_exactly_one_group(tying: str, use_muon: bool) -> None:
    model = encoder_decoder(tying=tying, use_attention_bias=True, use_output_bias=True)
    groups = parameter_groups(model, use_muon=use_muon)
    ids = [id(parameter) for group in groups.values() for parameter in group.values()]
    assert sorted(ids) == sorted(id(parameter) for parameter in model.parameters())
    assert sum(p.numel() for group in groups.values() for p in group.values()) == sum(
        p.numel() for p in model.parameters()
    )
    assert all(name.endswith(("bias", "norm.weight")) or "norm" in name for name in groups["plain"])
    assert bool(groups["muon"]) == use_muon
    assert not any("tokens" in name or "projection" in name for name in groups["muon"])


def test_decay_acts_once_on_matrices_and_never_on_norms_and_biases() -> None:
    model = encoder_decoder(tying="all", use_attention_bias=True, use_output_bias=True)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for optimizer in build_optimizers(model, TrainingConfig(weight_decay=0.1), lr=0.1):
        optimizer.step()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            assert_close(parameter, before[name] * 0.99, 1e-6, f"{name}: one step of decay, 1 - 0.1 * 0.1")
        else:
            assert torch.equal(parameter, before[name]), name
