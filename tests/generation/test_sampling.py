"""Greedy decoding, sampling, limits and guards (known failures G2, G7, G8, G9, G18)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from table_model import BOS, EOS, RecurrentDecoding, TableDecoding, limits, start

from glassformer.config import GenerationConfig
from glassformer.errors import ConfigError, GenerationError
from glassformer.generation import generate
from glassformer.generation.guard import check_logits
from glassformer.generation.processors import Rules, Temperature
from glassformer.generation.sampling import Sampler

SAMPLE = GenerationConfig(do_sample=True, seed=3)
GREEDY = GenerationConfig(beam_size=1)


def run(decoding, n_items, config, limit=12, **options):
    options = {"eos_ids": [EOS], "forbidden_ids": [BOS], "max_new_tokens": limits(n_items, limit)} | options
    return generate(decoding, start(n_items), config, **options)


@pytest.fixture
def sources():
    return torch.randn(9, 7, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def test_draws_follow_the_probabilities():
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0])
    sampler = Sampler(Rules([]), [(1, row) for row in range(4000)])
    drawn = sampler(torch.empty(4000, 0), probs.log().repeat(4000, 1))
    shares = torch.bincount(drawn, minlength=5) / 4000
    assert shares[4] == 0
    # Four standard deviations of a share of 0.5 among 4000.
    torch.testing.assert_close(shares, probs, atol=4 * math.sqrt(0.25 / 4000), rtol=0)


def test_a_token_without_probability_is_never_drawn():
    class Extreme:
        def __init__(self, value):
            self.value = value

        def random(self):
            return self.value

    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.1, -math.inf]]).repeat(2, 1)
    sampler = Sampler(Rules([]), [(0,), (0,)])
    sampler.streams = [Extreme(0.0), Extreme(1 - 2**-53)]
    assert sampler(torch.empty(2, 0), logits).tolist() == [1, 3]


def test_rows_with_mixed_temperatures():
    logits = torch.tensor([1.0, 2.0, 0.0, 1.5]).repeat(4, 1)
    temperatures = torch.tensor([0, 1e-6, 1, 5])
    seeds = [(7, row) for row in range(4)]
    together = Sampler(Rules([Temperature(temperatures)]), seeds)
    alone = [Sampler(Rules([Temperature(temperatures[row])]), seeds[row : row + 1]) for row in range(4)]
    history = torch.empty(4, 0)
    drawn = torch.stack([together(history, logits) for _ in range(300)], 1)
    for row in range(4):
        assert drawn[row].tolist() == [alone[row](history[:1], logits[:1]).item() for _ in range(300)]
    assert set(drawn[0].tolist()) == set(drawn[1].tolist()) == {1}
    assert len(set(drawn[3].tolist())) == 4
    together.select(torch.tensor([2, 0]))  # settings and streams follow their rows
    drawn = torch.stack([together(history[:2], logits[:2]) for _ in range(50)], 1)
    assert drawn[0].tolist() == [alone[2](history[:1], logits[:1]).item() for _ in range(50)]
    assert set(drawn[1].tolist()) == {1}


def test_samples_do_not_depend_on_the_batch(sources):
    seeds = [100 + i for i in range(9)]
    lengths = torch.tensor([2, 9, 30, 4, 5, 6, 7, 8, 20])
    config = replace(SAMPLE, n_best=3, top_k=8, top_p=0.95, min_p=0.01, temperature=1.3)
    together = run(RecurrentDecoding(sources), 9, config, seeds=seeds, max_new_tokens=lengths)
    for i in range(9):
        (alone,) = run(
            RecurrentDecoding(sources[i : i + 1]), 1, config, seeds=seeds[i : i + 1], max_new_tokens=lengths[i : i + 1]
        )
        assert [h.ids for h in alone] == [h.ids for h in together[i]]
        assert {h.item for h in together[i]} == {i}
    flipped = run(RecurrentDecoding(sources.flip(0)), 9, config, seeds=seeds[::-1], max_new_tokens=lengths.flip(0))
    assert [[h.ids for h in item] for item in flipped[::-1]] == [[h.ids for h in item] for item in together]


def test_draws_differ_by_seed_item_and_number(sources):
    many = sources[:1].repeat(3, 1)
    found = run(RecurrentDecoding(many), 3, replace(SAMPLE, n_best=3), seeds=[5, 5, 6])
    ids = [[tuple(h.ids) for h in item] for item in found]
    assert ids[0] == ids[1] != ids[2]
    assert len(set(ids[0])) == 3
    other = run(RecurrentDecoding(many), 3, replace(SAMPLE, n_best=3, seed=-4), seeds=[5, 5, 6])
    assert [tuple(h.ids) for h in other[0]] != ids[0]
    one = run(RecurrentDecoding(many), 3, SAMPLE, seeds=[5, 5, 6])
    assert [tuple(h.ids) for h in one[0]] == ids[0][:1]


def test_temperature_zero_and_top_k_1_are_greedy(sources):
    greedy = [item[0].ids for item in run(RecurrentDecoding(sources), 9, GREEDY)]
    for config in (replace(SAMPLE, temperature=0.0), replace(SAMPLE, top_k=1), replace(SAMPLE, top_p=0.0)):
        assert [item[0].ids for item in run(RecurrentDecoding(sources), 9, config)] == greedy


def test_log_probs_are_those_of_the_model_not_of_the_filters():
    config = replace(SAMPLE, temperature=0.0)
    ((found,),) = run(TableDecoding(lambda item, made: [0, 0.3, 0.7], 1), 1, config, limit=2)
    assert found.token_log_probs == pytest.approx([math.log(0.7)] * 2, abs=1e-6)
    assert found.score == pytest.approx(2 * math.log(0.7) / (7 / 6) ** 0.6, abs=1e-6)


@pytest.mark.parametrize("config", [GREEDY, GenerationConfig(beam_size=3), SAMPLE])
def test_limits_count_new_tokens_only(config):
    """A prompt of 21 tokens takes nothing of the limit; the end token may be the last one allowed."""

    def table(item, made):  # ends after 20 + 5 tokens
        return [0, 1, 0] if len(made) == 24 else [0, 0, 1]

    prefix = torch.tensor([[BOS, *[2] * 20]])
    reasons = {}
    for limit in (0, 1, 4, 5, 6):
        decoding = TableDecoding(table, 1)
        ((found,),) = generate(decoding, prefix, config, eos_ids=[EOS], max_new_tokens=limits(1, limit))
        assert len(found.ids) == min(limit, 5)
        reasons[limit] = found.finish_reason
    assert reasons == {0: "length", 1: "length", 4: "length", 5: "eos", 6: "eos"}


@pytest.mark.parametrize("config", [GREEDY, GenerationConfig(beam_size=3, n_best=2), replace(SAMPLE, n_best=2)])
def test_items_without_room_stay_in_their_place(config, sources):
    lengths = torch.tensor([0, 5, 0, 5])
    found = run(RecurrentDecoding(sources[:4]), 4, config, max_new_tokens=lengths)
    assert [item[0].ids for item in found[::2]] == [[], []]
    assert [[h.item for h in item][:1] for item in found] == [[0], [1], [2], [3]]
    full = run(RecurrentDecoding(sources[:4]), 4, config, limit=5)
    assert [h.ids for h in found[3]] == [h.ids for h in full[3]]
    assert generate(None, start(2), config, eos_ids=[EOS], max_new_tokens=limits(2, 0))[1][0].finish_reason == "length"
    assert generate(None, start(0), config, eos_ids=[EOS], max_new_tokens=limits(0, 0)) == []


@pytest.mark.parametrize("config", [GREEDY, SAMPLE])
def test_min_length_holds_for_single_rows(config):
    decoding = TableDecoding(lambda item, made: [0, 0.5, 0.1, 0.4], 3)
    for item in run(decoding, 3, replace(config, min_new_tokens=4), eos_ids=[1, 3]):
        assert len(item[0].ids) >= 5 and not {1, 3} & set(item[0].ids[:-1])


def test_a_limit_without_room_for_what_is_asked_is_an_error(sources):
    with pytest.raises(ConfigError, match=r"min_new_tokens=9 .* max_new_tokens=8 of item 1"):
        run(None, 2, replace(GREEDY, min_new_tokens=9), max_new_tokens=torch.tensor([9, 8]))
    with pytest.raises(ConfigError, match=r"forced tokens=3 .* max_new_tokens=2 of item 0"):
        run(None, 1, GREEDY, limit=2, forced=[[2, 2, 2]])


@pytest.mark.parametrize("config", [GREEDY, GenerationConfig(beam_size=3), replace(SAMPLE, n_best=3)])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_name_the_item(config, bad):
    """Item 0 ends at once, item 2 goes wrong at the second step: it is still called item 2."""

    class Broken(TableDecoding):
        def step(self, tokens):
            logits = super().step(tokens)
            for row, (item, _) in enumerate(self.rows):
                if item == 2:
                    logits[row] = bad
            return logits

    def table(item, made):
        return [0, 1, 0, 0] if item == 0 else [0, 0, 0.6, 0.4]

    with pytest.raises(GenerationError, match="non-finite logits for item 2"):
        run(Broken(table, 3), 3, config)


def test_a_bad_row_among_several_of_an_item_names_its_item():
    logits = torch.zeros(6, 4)  # items 7, 8, 9 with two rows each
    logits[2, 1] = math.nan
    with pytest.raises(GenerationError, match="item 8"):
        check_logits(logits, [7, 8, 9])
