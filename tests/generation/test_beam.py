"""Beam search: finishing rule, batches, cache order, n-best (known failures G1, G2, G4, G6, G7, G14, G15, G18)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from table_model import BOS, EOS, RecurrentDecoding, TableDecoding, limits, start

from glassformer.config import GenerationConfig
from glassformer.errors import ConfigError, GenerationError
from glassformer.generation import Hypothesis, LengthPenalty, generate

A = 2


def search(decoding, n_items, config, limit=4, **options):
    options = {"eos_ids": [EOS], "forbidden_ids": [BOS], "max_new_tokens": limits(n_items, limit)} | options
    return generate(decoding, start(n_items), config, **options)


def short_or_long(item, made):
    """P(a) = 0.6, P(eos) = 0.4; then a, a, eos for sure."""
    if not made:
        return [0, 0.4, 0.6]
    return [0, 0, 1] if len(made) < 3 else [0, 1, 0]


@pytest.mark.parametrize("kind", ["gnmt", "average", "none"])
@pytest.mark.parametrize("alpha", [0, 0.6, 1, 2])
@pytest.mark.parametrize("n_best", [1, 2])
def test_a_longer_and_better_output_is_awaited(kind, alpha, n_best):
    config = GenerationConfig(beam_size=2, n_best=n_best, length_penalty=kind, alpha=alpha)
    (found,) = search(TableDecoding(short_or_long, 1), 1, config, limit=10)
    assert found[0].ids == [A, A, A, EOS]
    assert found[0].log_prob == pytest.approx(math.log(0.6), abs=1e-6)
    assert [hypothesis.ids for hypothesis in found[1:]] == [[EOS]] * (n_best - 1)


def test_search_ends_as_soon_as_nothing_better_can_come():
    """alpha 0: after eos (0.9) no live hypothesis (0.1) can win, so there is one step, not fifty."""
    decoding = TableDecoding(lambda item, made: [0, 0.9, 0.1], 1)
    search(decoding, 1, GenerationConfig(beam_size=2, alpha=0.0), limit=50)
    assert decoding.n_rows_at_step == [1]


# --- the oracle: every output of up to 4 tokens of random tables over {a, b, c, eos} -------------------------------

N_TABLES, MAX_LENGTH = 200, 4
PREFIXES = [made for n in range(MAX_LENGTH) for made in itertools.product((0, 2, 3), repeat=n)]


@pytest.fixture(scope="module")
def tables():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(N_TABLES, len(PREFIXES), 4, generator=generator)
    return [dict(zip(PREFIXES, rows.softmax(-1).tolist(), strict=True)) for rows in logits]


def enumerate_outputs(table, kind, alpha):
    """All outputs that end within 4 tokens or are cut there, best first, as (score, ids)."""

    def f(n):
        return {"gnmt": ((5 + n) / 6) ** alpha, "average": n**alpha, "none": 1}[kind]

    outputs = []
    for made in PREFIXES:
        total = sum(math.log(table[made[:i]][token]) for i, token in enumerate(made))
        for token in range(4):
            if token == EOS or len(made) == MAX_LENGTH - 1:
                outputs.append(((total + math.log(table[made][token])) / f(len(made) + 1), [*made, token]))
    return sorted(outputs, reverse=True)


@pytest.mark.parametrize("kind", ["gnmt", "average"])
@pytest.mark.parametrize("alpha", [0, 0.6, 1, 2, -0.5])
def test_a_wide_beam_finds_what_enumeration_finds(tables, kind, alpha):
    for n_best in (1, 3):
        config = GenerationConfig(beam_size=256, n_best=n_best, length_penalty=kind, alpha=alpha)
        decoding = TableDecoding(lambda item, made: tables[item].get(made, [0.25] * 4), N_TABLES)
        found = search(decoding, N_TABLES, config, limit=MAX_LENGTH, forbidden_ids=[])
        for table, hypotheses in zip(tables, found, strict=True):
            right = enumerate_outputs(table, kind, alpha)[:n_best]
            assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in right], abs=1e-5)
            assert [h.ids for h in hypotheses] == [ids for _, ids in right]


@pytest.mark.parametrize("alpha", [0.6, 2, -0.5])
def test_narrow_beams_have_the_same_first_entries_whatever_n_best(tables, alpha):
    found = {}
    for n_best in (1, 2, 4):
        config = GenerationConfig(beam_size=4, n_best=n_best, alpha=alpha)
        decoding = TableDecoding(lambda item, made: tables[item].get(made, [0.25] * 4), N_TABLES)
        found[n_best] = search(decoding, N_TABLES, config, forbidden_ids=[])
    for one, two, four in zip(found[1], found[2], found[4], strict=True):
        assert one == four[:1] and two == four[:2]


# --- batches and caches ---------------------------------------------------------------------------------------------


@pytest.fixture
def sources():
    sources = torch.randn(20, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    sources[5] = sources[2]
    return sources


def outputs(found):
    return [[(h.ids, h.finish_reason, pytest.approx(h.score, abs=1e-4)) for h in hypotheses] for hypotheses in found]


@pytest.mark.parametrize("beam_size", [1, 2, 3, 4, 5])
def test_batch_single_and_reversed_give_the_same(sources, beam_size):
    config = GenerationConfig(beam_size=beam_size, n_best=min(beam_size, 4), max_length_b=0)
    lengths = torch.tensor([3 + i % 12 for i in range(20)])
    lengths[5] = lengths[2]
    lengths[7] = 60
    together = search(RecurrentDecoding(sources), 20, config, max_new_tokens=lengths)
    alone = [
        search(RecurrentDecoding(sources[i : i + 1]), 1, config, max_new_tokens=lengths[i : i + 1])[0]
        for i in range(20)
    ]
    backwards = search(RecurrentDecoding(sources.flip(0)), 20, config, max_new_tokens=lengths.flip(0))[::-1]
    assert outputs(together) == outputs(alone) == outputs(backwards)
    assert outputs(together)[5] == outputs(together)[2]
    assert [h[0].item for h in together] == list(range(20))
    assert {h[0].finish_reason for h in together} == {"eos", "length"}


@pytest.mark.parametrize("beam_size", [1, 2, 3, 4, 5])
def test_cached_equals_uncached(sources, beam_size):
    config = GenerationConfig(beam_size=beam_size, n_best=beam_size)
    cached = RecurrentDecoding(sources)
    found = search(cached, 20, config, limit=15)
    assert outputs(found) == outputs(search(RecurrentDecoding(sources, is_cached=False), 20, config, limit=15))
    assert (cached.n_swapped > 0) == (beam_size > 1)


def test_control_a_cache_that_is_not_reordered_breaks_most_outputs(sources):
    class Forgetful(RecurrentDecoding):
        def select(self, rows):
            if len(rows) != len(self.sources):  # only dropped and multiplied
                super().select(rows)

    config = GenerationConfig(beam_size=4, n_best=4)
    right, wrong = (search(kind(sources), 20, config, limit=15) for kind in (RecurrentDecoding, Forgetful))
    assert sum(a != b for a, b in zip(outputs(right), outputs(wrong), strict=True)) >= 10


def test_finished_items_leave_the_batch():
    """Items end at steps 1, 3 and 5; with every end the rows of that item go, and no other item notices."""
    ends = [1, 3, 5]

    def table(item, made):
        return [0, 0.98, 0.01, 0.01] if len(made) + 1 >= ends[item] else [0, 0.0001, 0.6, 0.3999]

    decoding = TableDecoding(table, 3)
    config = GenerationConfig(beam_size=2, alpha=0.0)
    found = search(decoding, 3, config, limit=20)
    assert [len(hypotheses[0].ids) for hypotheses in found] == ends
    assert decoding.n_rows_at_step == [3, 4, 4, 2, 2]


def test_select_is_not_called_when_it_would_change_nothing():
    decoding = TableDecoding(lambda item, made: [0, 0.001, 0.999], 2)
    decoding.select = None
    search(decoding, 2, GenerationConfig(beam_size=1), limit=3)


# --- n-best, lengths, ends ------------------------------------------------------------------------------------------


def test_fewer_finished_than_asked_for():
    config = GenerationConfig(beam_size=5, n_best=5)
    rare_end = [0, 0.01, *[0.99 / 9] * 9]
    (found,) = search(TableDecoding(lambda item, made: rare_end, 1), 1, config, limit=2)
    assert len(found) == len({tuple(h.ids) for h in found}) == 5
    assert not any(h.is_finished for h in found)
    (found,) = search(TableDecoding(lambda item, made: [0, 0.01, 0.99], 1), 1, config, limit=2)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    assert [(h.ids, h.is_finished) for h in found] == [([A, A], False), ([A, EOS], True), ([EOS], True)]


@pytest.mark.parametrize("n_best", [0, 6])
def test_n_best_outside_the_beam_is_an_error(n_best):
    with pytest.raises(ConfigError, match="n_best"):
        GenerationConfig(beam_size=5, n_best=n_best)


def test_equal_scores_have_one_order():
    def uniform(item, made):
        return [0, 0.25, 0.25, 0.25, 0.25]

    config = GenerationConfig(beam_size=4, n_best=4, alpha=0.0)
    alone = search(TableDecoding(uniform, 1), 1, config)
    assert all(
        [h.ids for h in item] == [h.ids for h in alone[0]] for item in search(TableDecoding(uniform, 9), 9, config)
    )


@pytest.mark.parametrize("alpha", [0, 0.6, 1])
@pytest.mark.parametrize("kind", ["gnmt", "average"])
def test_scores_can_be_reproduced_from_the_tokens(sources, alpha, kind):
    config = GenerationConfig(beam_size=4, n_best=4, alpha=alpha, length_penalty=kind)
    found = search(RecurrentDecoding(sources), 20, config, limit=15, forbidden_ids=[])
    for h in (h for hypotheses in found for h in hypotheses):
        i = h.item
        tokens = torch.tensor([[BOS, *h.ids]])
        decoding = RecurrentDecoding(sources[i : i + 1])
        steps = [decoding.step(tokens[:, t]).log_softmax(-1)[0, tokens[0, t + 1]].item() for t in range(len(h.ids))]
        f = ((5 + len(h.ids)) / 6) ** alpha if kind == "gnmt" else len(h.ids) ** alpha
        assert h.token_log_probs == pytest.approx(steps, abs=1e-5)
        assert h.log_prob == pytest.approx(sum(steps), abs=1e-4)
        assert h.score == pytest.approx(sum(steps) / f, abs=1e-4)
        assert h.is_finished == (h.ids[-1] == EOS)


def test_larger_alpha_prefers_longer_outputs():
    def table(item, made):  # eos 0.3, or a a a eos 0.2
        return [0, 0.6, 0.4] if not made else ([0, 0, 1] if len(made) < 3 else [0, 1, 0])

    lengths = [
        len(search(TableDecoding(table, 1), 1, GenerationConfig(beam_size=2, alpha=alpha))[0][0].ids)
        for alpha in (-1, 0, 0.6, 2)
    ]
    assert lengths == sorted(lengths) and lengths[0] == 1 and lengths[-1] == 4


def test_several_eos_ids_take_the_best_places():
    def table(item, made):
        return [0, 0.3, 0.05, 0.02, 0.01, 0.29, 0.28, 0.05]

    eos_ids = [1, 5, 6]
    config = GenerationConfig(beam_size=3, n_best=3, alpha=0.0)
    (found,) = search(TableDecoding(table, 1), 1, config, limit=6, eos_ids=eos_ids)
    assert [h.ids for h in found] == [[1], [5], [6]]

    def long_is_sure(item, made):
        return [0, 0.3, 0.06, 0.02, 0.01, 0.29, 0.28, 0.04] if not made else [0, 0, 1, 0, 0, 0, 0, 0]

    (found,) = search(TableDecoding(long_is_sure, 1), 1, replace(config, alpha=4.0), limit=6, eos_ids=eos_ids)
    assert found[0].ids == [A] * 6  # ends in all the best places leave hypotheses alive
    (found,) = search(TableDecoding(table, 1), 1, replace(config, min_new_tokens=4), limit=6, eos_ids=eos_ids)
    assert all(len(h.ids) >= 5 and not set(h.ids[:-1]) & set(eos_ids) for h in found)
    # Suppression happens before normalisation: a token's probability is its share of what is allowed.
    assert found[0].token_log_probs[0] == pytest.approx(math.log(0.05 / 0.13), abs=1e-5)


def test_forced_prefixes_of_any_length():
    def table(item, made):
        return [0, 0.5, 0.3, 0.2]

    config = GenerationConfig(beam_size=3, n_best=2, alpha=0.0)
    found = search(TableDecoding(table, 3), 3, config, forced=[[3, 3], [], [2]])
    assert [h[0].ids for h in found] == [[3, 3, EOS], [EOS], [2, EOS]]
    assert [h[0].log_prob for h in found] == pytest.approx([math.log(0.5)] * 3, abs=1e-6)
    assert all(len(h) == 2 for h in found)


@pytest.mark.parametrize("token", [-1, 4, 10**6])
@pytest.mark.parametrize("settings", [{"beam_size": 3}, {"beam_size": 1}])
def test_a_forced_token_outside_the_vocabulary_is_an_error(token, settings):
    decoding = TableDecoding(lambda item, made: [0, 0.5, 0.3, 0.2], 1)
    with pytest.raises(ConfigError, match=f"forced token {token}.*Ids run from 0 to 3"):
        search(decoding, 1, GenerationConfig(**settings), forced=[[2, token]])


def test_an_item_without_any_token_left_is_an_error_with_its_number():
    config = GenerationConfig(beam_size=2, no_repeat_ngram_size=1, min_new_tokens=4)
    with pytest.raises(GenerationError, match="item 0: all are -inf"):
        search(TableDecoding(lambda item, made: [0, 0.4, 0.3, 0.3], 1), 1, config)


def test_a_hypothesis_with_nowhere_to_go_dies_and_others_live():
    """b can only be followed by nothing allowed; the search goes on with a."""

    def table(item, made):
        if not made:
            return [0, 0, 0.4, 0.6]
        return [0, 1, 0, 0] if made == (A,) else [0, 0, 0, 1]

    config = GenerationConfig(beam_size=2, no_repeat_ngram_size=1)
    (found,) = search(TableDecoding(table, 1), 1, config)
    assert [h.ids for h in found] == [[A, EOS]]


@pytest.mark.parametrize("alpha", [math.nan, math.inf, 1000])
def test_alpha_whose_powers_overflow_is_an_error(alpha):
    with pytest.raises(ConfigError, match="alpha"):
        GenerationConfig(alpha=alpha)


def test_length_penalty_values():
    assert LengthPenalty("gnmt", 0.6)(7) == pytest.approx(2**0.6)
    assert LengthPenalty("average", 2)(3) == 9
    assert LengthPenalty("none", 2)(3) == 1
    assert Hypothesis.of(0, [], [], "length", LengthPenalty("average", 1)).score == 0
