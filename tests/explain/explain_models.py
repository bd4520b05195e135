"""Model folders in memory, of every family, with random weights whose outputs differ clearly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from glassformer.explain import Explanation, explain
from glassformer.tasks.model_folder import ModelFolder
from helpers import VARIANTS
from tasks.small_models import build, config, tokenizer

TEXT = "We eat bread in the garden."
FAMILY_CASES: list[tuple[str, dict[str, Any]]] = [("encoder-decoder", {}), ("decoder-only", {})]
FAMILY_CASES += [("encoder-only", {"use_mlm_head": True}), ("encoder-only", {"use_pooler": True})]
# Every position scheme and switch in the family that has all kinds of attention.
CASES = FAMILY_CASES + [("encoder-decoder", variant) for variant in VARIANTS.values()]
IDS = ["encoder-decoder", "decoder-only", "masked-lm", "pooler", *VARIANTS]


def folder(family: str = "encoder-decoder", **changes: Any) -> ModelFolder:
    """A model over the phrasebook's small vocabulary."""
    if changes.get("positions") == "learned":
        changes |= {"max_positions": 70}
    settings = config(family=family, **changes)
    model = build(settings.model)
    return ModelFolder(Path("memory"), settings, model, tokenizer(), tokenizer(), {})


@cache
def explained(case: str) -> Explanation:
    """The explanation of TEXT by the model of a case; made once, since no test changes it."""
    family, changes = CASES[IDS.index(case)]
    return explain(folder(family, **changes), TEXT)


@contextmanager
def broken(module: nn.Module, fault: Any) -> Iterator[None]:
    """A fault planted in the output of one module of the model that serves."""
    handle = module.register_forward_hook(lambda _, __, output: fault(output))
    try:
        yield
    finally:
        handle.remove()


def shifted(output: Tensor) -> Tensor:
    """Off by a thousandth: nobody would see it in a translation."""
    return output * 1.001
