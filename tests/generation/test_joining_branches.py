"""Joins of searches whose texts go on in branches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from glassformer.config import GenerationConfig
from glassformer.generation.beam import BeamSearch
from glassformer.generation.search import begin_search, generate
from glassformer.tasks.decoding import ModelDecoding
from helpers import VARIANTS, build_tiny, tiny_config


def joined_and_alone(
    model: Any, prompts: list[list[int]], settings: GenerationConfig, joins: dict[int, int], limit: int, **options: Any
) -> tuple[dict[int, Any], dict[int, Any]]:
    """What comes of each prompt where prompt joins[t] joins after t steps, and alone."""
    options = {"eos_ids": [2], **options}

    def begun(i: int) -> tuple[ModelDecoding, torch.Tensor]:
        src = torch.tensor([[5 + i, 6, 7]]) if model.config.family == "encoder-decoder" else None
        return ModelDecoding(model, max_length=len(prompts[i]) + limit, src=src), torch.tensor([prompts[i]])

    alone = {}
    for i in range(len(prompts)):
        made = generate(*begun(i), settings, max_new_tokens=torch.tensor([limit]), seeds=[i], **options)[0]
        alone[i] = [hypothesis.ids for hypothesis in made]
    found: dict[int, Any] = {}
    rows: dict[int, dict[int, list[int]]] = {}

    def step(search: Any) -> None:
        for made in search.step():
            if isinstance(search, BeamSearch):
                found[made[0]] = [hypothesis.ids for hypothesis in made[1]]
            else:
                rows.setdefault(made.item, {}).setdefault(made.row, []).append(made.token)

    search: Any = None
    with torch.no_grad():
        for t in range(limit + max(joins) + 2):
            if search is not None and not search.is_done:
                step(search)
            if t in joins:
                new = begin_search(
                    *begun(joins[t]), settings, items=[joins[t]], max_new_tokens=[limit], seeds=[joins[t]], **options
                )
                step(new)
                if search is None:
                    search = new
                else:
                    assert not search.is_done
                    search.join(new)
    assert search.is_done
    return found | {item: list(ids.values()) for item, ids in rows.items()}, alone


@pytest.mark.parametrize("name", VARIANTS)
def test_equal_lengths_may_be_other_positions(name: str) -> None:
    """Three branches that have read a token each hold as many as a prompt of four."""
    changes = dict(VARIANTS[name]) | {"vocab_size": 60}
    if changes.get("positions") == "learned":
        changes["max_positions"] = 70
    model = build_tiny(tiny_config("decoder-only", **changes), seed=1)
    for parameter_name, parameter in model.named_parameters():
        if ".blocks." in parameter_name and parameter.ndim > 1:
            parameter.data *= 2
    found, alone = joined_and_alone(
        model, [[1], [1, 5, 6, 7]], GenerationConfig(beam_size=3), {0: 0, 1: 1}, 9, forbidden_ids=[0, 1]
    )
    assert found == alone


def test_places_of_a_beam_that_are_empty_do_not_part_its_branches() -> None:
    """As BART: a forced first token leaves three of four places empty, and those must not read as padding."""
    model = build_tiny(tiny_config("encoder-decoder", vocab_size=1000, pad_id=1, bos_id=0), seed=1)
    settings = GenerationConfig(beam_size=4, forced_bos_id=0)
    found, alone = joined_and_alone(model, [[2]] * 3, settings, {0: 0, 4: 1, 8: 2}, 20, forbidden_ids=[1, 3])
    assert found == alone


@pytest.mark.parametrize("t", [1, 2, 3])
def test_draws_join_after_one_of_them_has_ended(t: int) -> None:
    settings = GenerationConfig(do_sample=True, n_best=3, seed=3)
    model = build_tiny(tiny_config("decoder-only", vocab_size=6), seed=1)
    found, alone = joined_and_alone(model, [[1, 5, 4], [1, 5]], settings, {0: 0, t: 1}, 9, forbidden_ids=[0, 1])
    assert found == alone


@torch.no_grad()
def test_a_search_that_is_joined_all_the_time_stays_narrow() -> None:
    """What only texts that are done have seen, or had in their memory, is left out when others join."""
    model = build_tiny(tiny_config("encoder-decoder", vocab_size=60), seed=1)
    settings, lengths = GenerationConfig(beam_size=3), [20, 4, 6, 5, 4, 6, 5, 4]
    search: Any = None
    for item, length in enumerate(lengths):
        src = torch.arange(length)[None] % 50 + 5
        decoding = ModelDecoding(model, max_length=13, src=src)
        start = torch.tensor([[1]])
        new = begin_search(decoding, start, settings, items=[item], eos_ids=[], max_new_tokens=[12], forbidden_ids=[0])
        new.step()
        if search is None:
            search = new
        else:
            search.join(new)
        cache = search.decoding.cache
        n_seen = int(cache.branches.any(1).sum(1).max())
        assert 4 * n_seen > 3 * cache.length
        assert cache.cross[0].k.shape[2] == max(lengths[i] for i in search.items)
        for _ in range(5):
            search.step()
    assert search.items == [6, 7]
