"""The causal loss: shifted once, counted where something is predicted, one row apart from the next."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from glassformer.config import Config, DataConfig, ModelConfig
from glassformer.data.packing import IGNORED, PackedBatch
from glassformer.errors import ConfigError
from glassformer.model import DecoderOnly
from glassformer.training.causal import CausalLoss, CausalObjective, packed_plan
from glassformer.training.objectives import cross_entropy
from helpers import assert_close, decoder_only, random_ids


def batch_of(ids: Tensor, documents: Tensor | None = None) -> PackedBatch:
    """Rows [B, T + 1] of one document each, as ids and the token after each."""
    documents = torch.ones_like(ids) if documents is None else documents
    is_inside = documents[:, 1:] == documents[:, :-1]
    targets = ids[:, 1:].masked_fill(~is_inside, IGNORED)
    return PackedBatch(ids=ids[:, :-1], targets=targets, documents=documents[:, :-1], n_tokens=int(is_inside.sum()))


def uniform(vocab_size: int) -> DecoderOnly:
    model = decoder_only(vocab_size=vocab_size, tying="none")
    torch.nn.init.zeros_(model.decoder.projection.weight)
    return model


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_reference_of_the_logits(smoothing: float) -> None:
    model = decoder_only()
    batch = batch_of(random_ids(2, 9), torch.tensor([[1, 1, 1, 2, 2, 2, 2, 3, 3], [1, 1, 1, 1, 1, 1, 1, 0, 0]]))
    loss, nll = CausalLoss(model, smoothing=smoothing)(batch)
    logits = model(batch.ids, documents=batch.documents).flatten(0, 1)
    is_target = batch.targets.flatten() != IGNORED
    targets = batch.targets.flatten()[is_target]
    right = cross_entropy(logits[is_target], targets, pad_id=IGNORED, smoothing=smoothing)
    assert_close(loss, right, 1e-4, "float32 sums in another order")
    plain = cross_entropy(logits[is_target], targets, pad_id=IGNORED, smoothing=0.0)
    assert_close(nll, plain, 1e-4, "float32")


def test_a_uniform_model_has_ln_v_for_each_of_the_six_targets() -> None:
    """N10: rows of 5 and 3 tokens, apart and packed with a boundary."""
    loss = CausalLoss(uniform(8), smoothing=0.0).requires_grad_(False)
    apart = [batch_of(random_ids(1, n, vocab_size=8)) for n in (5, 3)]
    packed = batch_of(random_ids(1, 8, vocab_size=8), torch.tensor([[1] * 5 + [2] * 3]))
    assert packed.n_tokens == sum(batch.n_tokens for batch in apart) == 6
    assert float(loss(packed)[0]) / 6 == pytest.approx(math.log(8), abs=1e-6)
    assert sum(float(loss(batch)[0]) for batch in apart) / 6 == pytest.approx(math.log(8), abs=1e-6)


def test_a_batch_without_targets_has_loss_and_gradients_of_zero() -> None:
    """N11."""
    model = decoder_only().train()
    batch = PackedBatch(
        ids=random_ids(2, 4),
        targets=torch.full((2, 4), IGNORED),
        documents=torch.ones(2, 4, dtype=torch.int64),
        n_tokens=0,
    )
    loss, _ = CausalLoss(model, smoothing=0.1)(batch)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_another_second_row_leaves_the_loss_of_the_first_as_it_is() -> None:
    """N14 (c)."""
    model = decoder_only()
    ids = random_ids(2, 8)
    changed = ids.clone()
    changed[1] = random_ids(8, seed=5)
    rows = [CausalLoss(model, smoothing=0.0)(batch_of(part))[1] for part in (ids, changed)]
    second = [CausalLoss(model, smoothing=0.0)(batch_of(part[1:]))[1] for part in (ids, changed)]
    assert_close(rows[0] - second[0], rows[1] - second[1], 1e-5, "float32")
    assert not torch.equal(second[0], second[1])


def test_a_model_that_has_learned_a_sequence_goes_on_with_it() -> None:
    """N14 (b): a label shifted twice, or not at all, would continue otherwise."""
    torch.manual_seed(0)
    model = decoder_only(n_decoder_layers=1).train()
    loss, batch = CausalLoss(model, smoothing=0.0), batch_of(torch.arange(4, 16)[None])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(200):
        mean = loss(batch)[0] / batch.n_tokens
        if float(mean.detach()) < 0.05:
            break
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
    assert float(mean.detach()) < 0.05
    ids = torch.tensor([[4, 5]])
    for _ in range(10):
        ids = torch.cat([ids, model.eval()(ids)[:, -1:].argmax(-1)], dim=1)
    assert ids.tolist() == [list(range(4, 16))]


def test_an_encoder_and_rows_beyond_the_positions_are_refused() -> None:
    with pytest.raises(ConfigError, match="family=encoder-only does not fit"):
        CausalObjective().fit(ModelConfig(family="encoder-only"))
    config = Config(model=ModelConfig(family="decoder-only", max_positions=16), data=DataConfig(max_tokens=17))
    with pytest.raises(ConfigError, match=r"max_tokens=17 is more than model\.max_positions=16"):
        packed_plan(config, None, seed=1)  # type: ignore[arg-type]


def test_the_layers_of_both_stacks_become_one_and_its_texts_begin_with_bos() -> None:
    model = CausalObjective().fit(ModelConfig(n_encoder_layers=2, n_decoder_layers=3))
    assert (model.family, model.n_decoder_layers, model.use_bos) == ("decoder-only", 5, True)
    own = ModelConfig(family="decoder-only", n_decoder_layers=3)
    assert CausalObjective().fit(own) == own
