"""The best tokens are those of a full sort, whatever the size of the vocabulary."""

from __future__ import annotations

import pytest
import torch

from glassformer.generation.best import best_token, best_tokens, log_probs_of

SIZES = [1, 7, 64, 255, 256, 257, 1000, 4096, 4159]


def random_logits(vocab_size: int) -> torch.Tensor:
    return torch.randn(19, vocab_size, generator=torch.Generator().manual_seed(vocab_size))


@pytest.mark.parametrize("vocab_size", SIZES)
@pytest.mark.parametrize("n", [0, 1, 5, 9])
def test_best_tokens_are_those_of_a_full_sort(vocab_size: int, n: int) -> None:
    logits, n = random_logits(vocab_size), min(n, vocab_size)
    values, ids = logits.sort(dim=1, descending=True)
    best, tokens = best_tokens(logits, n)
    assert torch.equal(best, values[:, :n])
    assert torch.equal(tokens, ids[:, :n])


@pytest.mark.parametrize("vocab_size", SIZES)
def test_of_equal_logits_the_lowest_id_is_best(vocab_size: int) -> None:
    logits = random_logits(vocab_size)
    assert torch.equal(best_token(logits), logits.argmax(1))
    for first in {0, vocab_size // 3, vocab_size - 1}:
        row = torch.full((2, vocab_size), -1.0)
        row[0, first:] = 2.0
        row[1] = -torch.inf
        assert best_token(row).tolist() == [first, 0]


def test_all_the_best_may_lie_in_one_block_or_in_the_last_columns() -> None:
    logits = torch.zeros(3, 1100)
    logits[0, 128:134] = torch.arange(1.0, 7.0)
    logits[1, 1094:1100] = torch.arange(1.0, 7.0)
    logits[2] = -torch.inf
    logits[2, [3, 700]] = torch.tensor([1.0, 2.0])
    assert best_tokens(logits, 4)[1][:2].tolist() == [[133, 132, 131, 130], [1099, 1098, 1097, 1096]]
    assert best_tokens(logits, 2)[1][2].tolist() == [700, 3]
    assert best_tokens(logits, 4)[0][2].tolist() == [2.0, 1.0, -torch.inf, -torch.inf]


def test_log_probabilities_are_those_of_a_softmax_in_float64_and_never_above_zero() -> None:
    logits = random_logits(4096) * 20
    ids = best_tokens(logits, 5)[1]
    expected = logits.double().log_softmax(1).gather(1, ids)
    found = log_probs_of(ids, logits)
    assert (found.double() - expected).abs().max() <= 1e-5  # float32 at logits of 80
    assert found.max() <= 0
