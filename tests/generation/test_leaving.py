"""Items that nobody wants any more leave a running search, and the others do not notice."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from glassformer.config import GenerationConfig
from glassformer.generation.beam import BeamSearch
from glassformer.generation.search import begin_search, generate
from tasks.small_models import make_translator

TEXTS = ["the cat", "a fish and a bird", "we eat bread", "the dog"]
LIMITS = [3, 9, 9, 6]


def begun(settings: GenerationConfig) -> Any:
    model = make_translator()
    arguments = {"items": range(4), "eos_ids": [model.tokenizer.eos_id], "max_new_tokens": LIMITS}
    return begin_search(*model.decoding(model.source_ids(TEXTS), LIMITS), settings, **arguments)  # type: ignore[arg-type]


@torch.no_grad()
def run(search: Any, leaves: dict[int, int]) -> dict[int, list[list[int]]]:
    """The ids that are made of each item; item i leaves after `leaves[i]` steps."""
    found: dict[int, list[list[int]]] = {}
    n_steps = 0
    while not search.is_done:
        n_steps += 1
        for made in search.step():
            if isinstance(search, BeamSearch):
                item, hypotheses = made
                found[item] = [hypothesis.ids for hypothesis in hypotheses]
            else:
                found.setdefault(made.item, [[]])[0].append(made.token)
        search.drop(lambda item, n=n_steps: leaves.get(item, 99) > n)  # type: ignore[misc]
        if isinstance(search, BeamSearch):
            assert set(search.pools.of) == set(search.items)  # nothing of an item is kept
    return found


@pytest.mark.parametrize("changes", [{"beam_size": 1}, {"beam_size": 3}, {"beam_size": 1, "do_sample": True}])
def test_who_leaves_is_gone_and_the_others_go_on(changes: dict[str, Any]) -> None:
    settings = GenerationConfig(**changes)
    model = make_translator()
    whole = generate(
        *model.decoding(model.source_ids(TEXTS), LIMITS),
        settings,
        eos_ids=[model.tokenizer.eos_id],
        max_new_tokens=torch.tensor(LIMITS),
    )
    expected = {i: [hypothesis.ids for hypothesis in hypotheses] for i, hypotheses in enumerate(whole)}
    assert len(expected[1][0]) > 2 and len(expected[2][0]) > 3
    assert run(begun(settings), {}) == expected
    left = run(begun(settings), {1: 2, 2: 3})
    assert [left[0], left[3]] == [expected[0], expected[3]]
    is_by_token = settings.beam_size == 1
    assert left.get(2) == ([expected[2][0][:3]] if is_by_token else None)
    assert run(begun(settings), dict.fromkeys(range(4), 1)).keys() == (expected.keys() if is_by_token else set())


def test_all_may_leave_before_the_first_step() -> None:
    search = begun(GenerationConfig(beam_size=3))
    search.drop(lambda item: item == 2)
    assert run(search, {}).keys() == {2}
    search = begun(GenerationConfig(beam_size=1))
    search.drop(lambda item: False)
    assert search.is_done
