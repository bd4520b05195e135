"""The lexicon: pieces that share pairs get vectors that are alike, and a fresh model takes them over."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from glassformer.data.store import TokenLists
from glassformer.model import EncoderDecoder, build_model
from glassformer.training.lexicon import Lexicon, count_lexicon, start_from_lexicon
from helpers import tiny_config

N_WORDS = 30
FIRST = 4  # source words are 4 .. 33, their translations 34 .. 63
N_ENTRIES = FIRST + 2 * N_WORDS


def lists(rows: list[list[int]]) -> TokenLists:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return TokenLists(np.array([piece for row in rows for piece in row], dtype=np.uint16), offsets)


def corpus(n_pairs: int = 600) -> tuple[TokenLists, TokenLists]:
    """Pairs of five words (one of them may stand twice) and their translations in another order."""
    chance = np.random.default_rng(5)
    sources = [chance.integers(FIRST, FIRST + N_WORDS, 5).tolist() for _ in range(n_pairs)]
    targets = [[piece + N_WORDS for piece in reversed(row)] for row in sources]
    return lists(sources), lists(targets)


def fresh(**changes: object) -> EncoderDecoder:
    torch.manual_seed(3)
    sizes: dict[str, object] = {"vocab_size": N_ENTRIES, "d_model": 32, "d_head": 8}
    model = build_model(tiny_config(**(sizes | changes)))
    assert isinstance(model, EncoderDecoder)
    return model


def tables(model: EncoderDecoder) -> tuple[Tensor, Tensor]:
    return model.encoder.embedding.tokens.weight.detach(), model.decoder.embedding.tokens.weight.detach()


def nearest_targets(src: Tensor, tgt: Tensor) -> list[int]:
    """For each source word the nearest entry among the target words."""
    words, others = src[FIRST : FIRST + N_WORDS], tgt[FIRST + N_WORDS :]
    return (torch.nn.functional.normalize(words) @ torch.nn.functional.normalize(others).T).argmax(1).tolist()


def test_the_products_of_the_vectors_are_the_associations() -> None:
    # Two pieces, each in half of the 40 pairs and always with its own partner.
    rows = [[0], [1]] * 20
    lexicon = count_lexicon(lists(rows), lists(rows), n_src=2, n_tgt=2, seed=1)
    strength = math.log(20 * 40 / (20 * 20)) - 1  # below zero: twice what chance gives is not enough
    assert strength < 0
    assert not lexicon.src.any()
    rows = [[k] for k in range(10)] * 4
    lexicon = count_lexicon(lists(rows), lists(rows), n_src=10, n_tgt=10, seed=1)
    expected = (math.log(4 * 40 / (4 * 4)) - 1) * torch.eye(10)
    torch.testing.assert_close(lexicon.src @ lexicon.tgt.T, expected, atol=1e-5, rtol=0)


def test_a_piece_counts_once_a_pair_and_rare_ones_do_not_count() -> None:
    rows = [[k, k, k] for k in range(10)] * 4 + [[10], [10]]
    lexicon = count_lexicon(lists(rows), lists(rows), n_src=11, n_tgt=11, seed=1)
    once = [[k] for k in range(10)] * 4 + [[10], [10]]
    plain = count_lexicon(lists(once), lists(once), n_src=11, n_tgt=11, seed=1)
    torch.testing.assert_close(lexicon.src @ lexicon.tgt.T, plain.src @ plain.tgt.T, atol=1e-5, rtol=0)
    assert not lexicon.src[10].any()
    assert lexicon.src[:10].any(1).all()


@pytest.mark.parametrize("tying", ["all", "decoder", "none"])
def test_a_fresh_model_knows_which_words_translate_each_other(tying: str) -> None:
    sources, targets = corpus()
    lexicon = count_lexicon(sources, targets, n_src=N_ENTRIES, n_tgt=N_ENTRIES, seed=1)
    model = fresh(tying=tying)
    right = list(range(N_WORDS))
    assert nearest_targets(*tables(model)) != right
    start_from_lexicon(model, lexicon)
    src, tgt = tables(model)
    assert nearest_targets(src, tgt) == right
    assert nearest_targets(src, model.decoder.projection.weight.detach()) == right
    assert torch.equal(src, tgt) == (tying == "all")


def test_rows_keep_their_length_and_unknown_ones_everything() -> None:
    sources, targets = corpus()
    lexicon = count_lexicon(sources, targets, n_src=N_ENTRIES, n_tgt=N_ENTRIES, seed=1)
    model, before = fresh(), fresh()
    start_from_lexicon(model, lexicon)
    (after, _), (old, _) = tables(model), tables(before)
    torch.testing.assert_close(after.norm(dim=1), old.norm(dim=1))
    assert torch.equal(after[:FIRST], old[:FIRST])
    assert not torch.equal(after[FIRST:], old[FIRST:])


def test_only_tables_and_square_values_of_cross_attention_change() -> None:
    sources, targets = corpus()
    lexicon = count_lexicon(sources, targets, n_src=N_ENTRIES, n_tgt=N_ENTRIES, seed=1)
    model, before = fresh(n_kv_heads=2), fresh(n_kv_heads=2)
    start_from_lexicon(model, lexicon)
    old = dict(before.named_parameters())
    changed = {name for name, weight in model.named_parameters() if not torch.equal(weight, old[name])}
    blocks = [f"decoder.stack.blocks.{i}.cross_attention.w_o.weight" for i in range(2)]  # w_v is not square here
    assert changed == {"encoder.embedding.tokens.weight", *blocks}
    for name in blocks:
        assert torch.equal(dict(model.named_parameters())[name], torch.eye(32))


def test_the_vectors_are_a_function_of_the_pairs_and_the_seed() -> None:
    sources, targets = corpus()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = count_lexicon(sources, targets, n_src=N_ENTRIES, n_tgt=N_ENTRIES, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    two = count_lexicon(sources, targets, n_src=N_ENTRIES, n_tgt=N_ENTRIES, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("width", [8, 32, 600])
def test_narrow_and_wide_models(width: int) -> None:
    model = fresh(d_model=width)
    start_from_lexicon(model, Lexicon(torch.randn(N_ENTRIES, 256), torch.randn(N_ENTRIES, 256)))
    src, _ = tables(model)
    assert src.shape == (N_ENTRIES, width)
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
