"""Losses over labels: closed forms, what is left out, weights."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from glassformer.config import Config, ModelConfig, TaskConfig
from glassformer.data.packing import IGNORED
from glassformer.errors import ConfigError
from glassformer.text.label_set import LabelSet
from glassformer.training.label_losses import (
    ClassificationObjective,
    LabellingObjective,
    choice_loss,
    class_weights,
    yes_no_loss,
)


def test_uniform_votes_cost_ln_l_and_ln_2() -> None:
    _, nll = choice_loss(torch.zeros(5, 7), torch.arange(5), weights=None, smoothing=0.1)
    assert float(nll) == pytest.approx(5 * math.log(7), abs=1e-12)
    _, nll = yes_no_loss(torch.zeros(5, 7), torch.ones(5, 7), weights=None, smoothing=0.1)
    assert float(nll) == pytest.approx(5 * math.log(2), abs=1e-12)


def test_smoothed_loss_of_the_known_failure_n8() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]] + [[5.0, -3.0, 1.0, 0.0]] * 3, requires_grad=True)
    targets = torch.tensor([0, IGNORED, IGNORED, IGNORED])
    loss, nll = choice_loss(logits, targets, weights=None, smoothing=0.1)
    assert float(loss.detach()) == pytest.approx(0.590190, abs=1e-6)
    assert float(nll) == pytest.approx(0.440190, abs=1e-6)
    loss.backward()
    assert logits.grad is not None and not logits.grad[1:].any()


def test_smoothed_yes_and_no_in_closed_form() -> None:
    logit = 0.7
    p = 1 / (1 + math.exp(-logit))
    loss, nll = yes_no_loss(torch.tensor([[logit, logit]]), torch.tensor([[1.0, 0.0]]), weights=None, smoothing=0.2)
    yes, no = -math.log(p), -math.log(1 - p)
    assert float(nll) == pytest.approx((yes + no) / 2, abs=1e-7)
    assert float(loss) == pytest.approx((0.9 * yes + 0.1 * no + 0.1 * yes + 0.9 * no) / 2, abs=1e-7)


@pytest.mark.parametrize("is_multi_label", [False, True])
def test_a_batch_without_a_target_costs_nothing_and_moves_nothing(is_multi_label: bool) -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    targets = torch.full((3, 4), float(IGNORED)) if is_multi_label else torch.full((3,), IGNORED)
    weights = torch.ones(2, 4) if is_multi_label else torch.ones(4)
    loss, nll = (yes_no_loss if is_multi_label else choice_loss)(logits, targets, weights=weights, smoothing=0.1)
    loss.backward()
    assert float(loss.detach()) == float(nll) == 0.0
    assert logits.grad is not None and not logits.grad.any()


def test_gradients_of_both_losses_are_right() -> None:
    logits = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    targets, flags = torch.tensor([0, 2, IGNORED, 1]), torch.tensor([[1.0, 0, 1], [0, 0, 0], [IGNORED] * 3, [1, 1, 1]])

    def choice(x: Tensor) -> Tensor:
        return choice_loss(x, targets, weights=torch.tensor([0.5, 1.0, 2.0]), smoothing=0.1)[0]

    def yes_no(x: Tensor) -> Tensor:
        return yes_no_loss(
            x, flags, weights=torch.rand(2, 3, generator=torch.Generator().manual_seed(0)), smoothing=0.1
        )[0]

    assert torch.autograd.gradcheck(choice, logits)
    assert torch.autograd.gradcheck(yes_no, logits)


def test_class_weights_are_inverse_to_frequency_with_mean_one_over_the_data() -> None:
    labels = LabelSet(("a", "b", "c"), (1, 3, 6), 10)
    weights = class_weights(labels, is_multi_label=False)
    assert weights.tolist() == pytest.approx([10 / 3, 10 / 9, 10 / 18])
    assert float((weights * torch.tensor(labels.counts)).sum() / 10) == pytest.approx(1.0)
    no, yes = class_weights(labels, is_multi_label=True)
    assert yes.tolist() == pytest.approx([5.0, 10 / 6, 10 / 12])
    counts = torch.tensor(labels.counts)
    assert ((yes * counts + no * (10 - counts)) / 10).tolist() == pytest.approx([1.0] * 3)


def test_weights_multiply_the_loss_and_not_the_reported_likelihood() -> None:
    logits, targets = torch.zeros(2, 3), torch.tensor([0, 2])
    loss, nll = choice_loss(logits, targets, weights=torch.tensor([2.0, 9.0, 0.5]), smoothing=0.0)
    assert float(loss) == pytest.approx(2.5 * math.log(3))
    assert float(nll) == pytest.approx(2 * math.log(3))
    weights = torch.tensor([[3.0, 1.0], [1.0, 5.0]])  # of a no, of a yes
    loss, _ = yes_no_loss(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]), weights=weights, smoothing=0.0)
    assert float(loss) == pytest.approx((3 + 5) / 2 * math.log(2))


@pytest.mark.parametrize(("n_texts", "n_segments"), [(1, 0), (2, 2)])
def test_the_architecture_fits_the_data(tmp_path: Path, n_texts: int, n_segments: int) -> None:
    (tmp_path / "labels.json").write_text(LabelSet(("a", "b", "c"), (1, 1, 1), 3, "none", n_texts).to_json(), "utf-8")
    fitted = ClassificationObjective(tmp_path).fit(ModelConfig(n_encoder_layers=2, n_decoder_layers=2))
    assert (fitted.family, fitted.n_encoder_layers, fitted.head, fitted.n_labels) == ("encoder-only", 4, "classify", 3)
    assert fitted.n_segments == n_segments and fitted.use_bos
    bert = ModelConfig(family="encoder-only", n_encoder_layers=3, use_pooler=True, use_mlm_head=True, n_segments=2)
    fitted = ClassificationObjective(tmp_path).fit(bert)
    assert fitted.use_pooler and not fitted.use_mlm_head and fitted.n_segments == 2 and fitted.n_encoder_layers == 3
    fitted = LabellingObjective(tmp_path).fit(bert)
    assert fitted.head == "label" and not fitted.use_pooler
    with pytest.raises(ConfigError, match="decoder-only"):
        LabellingObjective(tmp_path).fit(ModelConfig(family="decoder-only"))


def test_the_kind_of_prediction_follows_the_settings(tmp_path: Path) -> None:
    objective = ClassificationObjective(tmp_path)
    assert objective.kind(Config()) == "single"
    assert objective.kind(Config(task=TaskConfig(is_multi_label=True))) == "multi"
    assert LabellingObjective(tmp_path).kind(Config()) == "words"
