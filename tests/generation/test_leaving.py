"""Items that nobody wants any more leave a running search, and the others do not notice."""

from __future__ import annotations

import torch

from glassformer.config import GenerationConfig
from glassformer.generation.hypothesis import Hypothesis
from glassformer.generation.search import generate, generate_items, generate_steps
from tasks.small_models import make_translator

TEXTS = ["the cat", "a fish and a bird", "we eat bread", "the dog"]


def ids_of(hypotheses: list[Hypothesis]) -> list[list[int]]:
    return [hypothesis.ids for hypothesis in hypotheses]


def test_beam_search_gives_each_item_when_it_is_done_and_drops_the_unwanted() -> None:
    model, settings = make_translator(), GenerationConfig(beam_size=3)
    limits = [3, 9, 9, 6]
    common = {"eos_ids": [model.tokenizer.eos_id], "max_new_tokens": torch.tensor(limits)}
    sources = model.source_ids(TEXTS)
    expected = generate(*model.decoding(sources, limits), settings, **common)
    for i, found in generate_items(*model.decoding(sources, limits), settings, **common):
        assert found == expected[i]
    asked: list[int] = []

    def is_wanted(item: int) -> bool:
        asked.append(item)
        return item != 1 or asked.count(1) < 3

    made = dict(generate_items(*model.decoding(sources, limits), settings, is_wanted=is_wanted, **common))
    assert asked.count(1) == 3  # at the third step it left
    assert {i: ids_of(found) for i, found in made.items()} == {i: ids_of(expected[i]) for i in (0, 2, 3)}
    assert list(generate_items(*model.decoding(sources, limits), settings, is_wanted=lambda i: False, **common)) == []


def test_token_by_token_too() -> None:
    model, settings = make_translator(), GenerationConfig(beam_size=1)
    limits = [4, 9, 9, 6]
    common = {"eos_ids": [model.tokenizer.eos_id], "max_new_tokens": torch.tensor(limits)}
    sources = model.source_ids(TEXTS)

    def tokens(**options: object) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {i: [] for i in range(4)}
        for step in generate_steps(*model.decoding(sources, limits), settings, **common, **options):  # type: ignore[arg-type]
            for made in step:
                found[made.row].append(made.token)
                seen[made.row] = len(found[made.row])
        return found

    seen: dict[int, int] = {}
    whole = tokens()
    assert len(whole[2]) > 3
    left = tokens(is_wanted=lambda i: i != 2 or seen[2] < 3)
    assert left[2] == whole[2][:3]
    assert [left[i] for i in (0, 1, 3)] == [whole[i] for i in (0, 1, 3)]
