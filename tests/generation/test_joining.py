"""Searches that begin at different times go on as one, and nobody notices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from glassformer.config import GenerationConfig
from glassformer.generation.beam import BeamSearch
from glassformer.generation.sampling import RowSearch
from glassformer.generation.search import begin_search, generate
from glassformer.model import DecoderOnly
from glassformer.tasks.generator import TextGenerator
from tasks.small_models import build, config, make_translator, tokenizer

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beams": {"beam_size": 3, "n_best": 2},
    "wide beams": {"beam_size": 7, "length_penalty": "average"},
    "draws": {"do_sample": True, "top_k": 20, "top_p": 0.9},
    "all rules": {"beam_size": 2, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2, "min_new_tokens": 3}
    | {"forced_bos_id": 9, "is_eos_forced": True},
    "rules and draws": {"do_sample": True, "repetition_penalty": 1.5, "no_repeat_ngram_size": 1, "min_new_tokens": 2},
}
TEXTS = ["the cat", "a fish and a bird and a horse in the street", "we eat bread", "the dog", "she sees the red house"]
LIMITS = [4, 17, 9, 3, 12]


def language_model(**changes: Any) -> TextGenerator:
    model = build(config(family="decoder-only", use_bos=True, max_positions=64, **changes).model)
    assert isinstance(model, DecoderOnly)
    return TextGenerator(model, tokenizer(), GenerationConfig())


def run(
    task: Any, rows: Sequence[list[int]], settings: GenerationConfig, joins: dict[int, list[int]]
) -> dict[int, Any]:
    """What comes of each row, where the rows `joins[t]` join after t steps."""
    found: dict[int, Any] = {}
    search: Any = None
    for t in range(60):
        if search is not None:
            note(found, search)
        for i in joins.get(t, ()):
            new = begin_search(
                *task.decoding([rows[i]], [LIMITS[i]]),
                settings,
                items=[i],
                eos_ids=[task.tokenizer.eos_id],
                forbidden_ids=task.forbidden_ids,
                max_new_tokens=[LIMITS[i]],
                seeds=[100 + i],
            )
            note(found, new)
            if search is None or search.is_done:
                search = new
            elif not new.is_done:
                search.join(new)
    assert search.is_done
    return found


@torch.no_grad()
def note(found: dict[int, Any], search: BeamSearch | RowSearch) -> None:
    if search.is_done:
        return
    for made in search.step():
        if isinstance(search, BeamSearch):
            item, hypotheses = made  # type: ignore[misc]
            found[item] = [hypothesis.ids for hypothesis in hypotheses]
        else:
            found.setdefault(made.item, [[]])[0].append(made.token)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["translator", "sinusoidal", "learned", "rotary", "alibi", "t5_relative", "window"])
def test_what_joins_a_running_search_is_as_alone(kind: str, way: str) -> None:
    if kind == "translator":
        task: Any = make_translator()
        rows = task.source_ids(TEXTS)
    else:
        changes = {"positions": "rotary", "window": 4} if kind == "window" else {"positions": kind}
        task = language_model(**changes)
        rows = [task.prompt_ids(text) for text in TEXTS]
    settings = GenerationConfig(**WAYS[way])
    alone = {
        i: [
            hypothesis.ids
            for hypothesis in generate(
                *task.decoding([row], [LIMITS[i]]),
                settings,
                eos_ids=[task.tokenizer.eos_id],
                forbidden_ids=task.forbidden_ids,
                max_new_tokens=torch.tensor([LIMITS[i]]),
                seeds=[100 + i],
            )[0]
        ]
        for i, row in enumerate(rows)
    }
    assert run(task, rows, settings, {0: [1], 2: [0, 3], 3: [4], 9: [2]}) == alone
    assert run(task, rows, settings, {0: [3], 1: [0], 6: [2, 1], 30: [4]}) == alone
