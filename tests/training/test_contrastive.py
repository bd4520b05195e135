"""The contrastive loss: its value by hand, what never counts as a negative, nested widths, and that it learns."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from glassformer.config import Config, ModelConfig, TaskConfig
from glassformer.data.triple_batches import TripleBatch, text_keys
from glassformer.errors import ConfigError
from glassformer.training.contrastive import (
    ContrastiveLoss,
    ContrastiveObjective,
    contrastive_loss,
    false_negatives,
    nested_widths,
)
from helpers import BOS, EOS, assert_close, encoder_only, padded

NONE = torch.zeros(2, 2, dtype=torch.bool)


def make_batch(queries: list[list[int]], passages: list[list[int]], *, n_tokens: int | None = None) -> TripleBatch:
    framed = [[torch.tensor([BOS, *ids, EOS]) for ids in texts] for texts in (queries, passages)]
    return TripleBatch(
        queries=padded(framed[0]),
        passages=padded(framed[1]),
        query_keys=text_keys(queries),
        passage_keys=text_keys(passages),
        rows=torch.arange(len(queries)),
        n_tokens=len(queries) if n_tokens is None else n_tokens,
        n_src_tokens=sum(map(len, framed[0] + framed[1])),
    )


def test_two_orthogonal_pairs_have_the_loss_of_the_equation() -> None:
    """Cosines 1 and 0: -log(e^s / (e^s + 1)) in both directions; lengths do not matter."""
    vectors = torch.eye(2, dtype=torch.float64)
    loss = contrastive_loss(3 * vectors, 0.5 * vectors, NONE, scale=2.0)
    assert loss.tolist() == pytest.approx([math.log(1 + math.exp(-2))] * 2, abs=1e-12)


def test_directions_are_averaged_and_hard_negatives_are_columns_of_one_of_them() -> None:
    queries = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    passages = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)  # the last one is a negative
    loss = contrastive_loss(queries, passages, torch.zeros(2, 3, dtype=torch.bool), scale=1.0)

    def nll(scores: list[float], own: int) -> float:
        return math.log(sum(map(math.exp, scores))) - scores[own]

    # there: rows [1, .6, 0] and [0, .8, 1]; back: columns [1, 0] and [.6, .8]
    expected = [(nll([1, 0.6, 0], 0) + nll([1, 0], 0)) / 2, (nll([0, 0.8, 1], 1) + nll([0.6, 0.8], 1)) / 2]
    assert loss.tolist() == pytest.approx(expected, abs=1e-12)


def test_equal_texts_are_never_negatives() -> None:
    a, b, c, d = text_keys([[5], [6], [7], [8]]).tolist()
    queries = torch.tensor([a, a, c, b])
    passages = torch.tensor([b, d, b, c, a])
    expected = [
        # 0: a -> b. Passage 1 belongs to an equal query, passage 2 equals its positive, passage 4 is itself.
        [False, True, True, False, True],
        [True, False, False, False, True],
        [True, False, False, True, False],  # c -> b
        [True, False, True, False, False],  # b -> c: passages 0 and 2 are b itself
    ]
    assert false_negatives(queries, passages).tolist() == expected


def test_excluded_passage_gets_no_gradient_in_either_direction() -> None:
    torch.manual_seed(0)
    queries, passages = torch.randn(3, 4), torch.randn(4, 4, requires_grad=True)
    keys = text_keys([[5], [6], [7]])
    is_excluded = false_negatives(keys, torch.cat([text_keys([[8], [8], [9]]), keys[:1]]))
    (grad,) = torch.autograd.grad(contrastive_loss(queries, passages, is_excluded, scale=20.0)[0], passages)
    assert torch.equal(grad[1], torch.zeros(4)) and torch.equal(grad[3], torch.zeros(4))
    assert grad[0].abs().max() > 0 and grad[2].abs().max() > 0


def test_widths_halve_down_to_the_least() -> None:
    assert nested_widths(96, None) == [96]
    assert nested_widths(96, 24) == [96, 48, 24]
    assert nested_widths(96, 25) == [96, 48]
    assert nested_widths(30, 1) == [30, 15]


def test_loss_module_is_the_sum_over_queries_and_the_mean_over_widths() -> None:
    model = encoder_only(is_normalized=True, pooling="mean", use_bos=True)
    batch = make_batch([[5, 6], [7], [8, 9, 10]], [[6, 5], [7, 7], [11], [12, 13]])
    loss, nll = ContrastiveLoss(model, TaskConfig(name="embed", min_width=10, similarity_scale=7.0))(batch)
    q, p = model.embed(batch.queries), model.embed(batch.passages)
    free = torch.zeros(3, 4, dtype=torch.bool)
    parts = [contrastive_loss(q[:, :w], p[:, :w], free, scale=7.0).sum() for w in (20, 10)]
    assert_close(loss, (parts[0] + parts[1]) / 2, 1e-5, "float32 sums")
    assert_close(nll, parts[0], 1e-5, "float32 sums")
    assert not nll.requires_grad


def test_part_without_rows_takes_part_with_nothing() -> None:
    model = encoder_only()
    loss, nll = ContrastiveLoss(model, TaskConfig())(make_batch([[5], [6]], [[7], [8]], n_tokens=0))
    loss.backward()
    assert loss.item() == nll.item() == 0.0
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert grads and all(torch.equal(grad, torch.zeros_like(grad)) for grad in grads)


def test_a_few_updates_bring_the_pairs_together() -> None:
    torch.manual_seed(0)
    model = encoder_only(is_normalized=True, pooling="mean").train()
    loss_of = ContrastiveLoss(model, TaskConfig())
    batch = make_batch([[i, i + 1] for i in range(5, 13)], [[i + 9, i] for i in range(5, 13)])
    losses: list[float] = []
    for _ in range(30):
        loss: Tensor = loss_of(batch)[0] / 8
        parameters = list(model.parameters())
        grads = torch.autograd.grad(loss, parameters, allow_unused=True)
        with torch.no_grad():
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter -= 0.1 * (0.0 if grad is None else grad)
        losses.append(loss.item())
    assert losses[-1] < 0.1 < 1 < losses[0]


def test_architecture_is_one_stack_that_normalises() -> None:
    fitted = ContrastiveObjective().fit(ModelConfig(n_encoder_layers=2, n_decoder_layers=3))
    assert (fitted.family, fitted.n_encoder_layers, fitted.pooling) == ("encoder-only", 5, "mean")
    assert fitted.is_normalized and fitted.use_bos
    own = ModelConfig(family="encoder-only", n_encoder_layers=2, pooling="max")
    assert ContrastiveObjective("max").fit(own) == replace(own, is_normalized=True, use_bos=True)
    with pytest.raises(ConfigError, match="decoder-only does not fit"):
        ContrastiveObjective().fit(ModelConfig(family="decoder-only"))
    model = encoder_only()
    with pytest.raises(ConfigError, match="min_width=21"):
        ContrastiveObjective().loss(model, Config(model=model.config, task=TaskConfig(min_width=21)))
