"""Model folders in memory, of every family, with random weights whose outputs differ clearly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from glassformer.explain import Explanation, explain
from glassformer.tasks.model_folder import ModelFolder
from helpers import VARIANTS
from tasks.small_models import build, config, tokenizer

TEXT = "She reads a book."
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


@cache
def page_of(case: str) -> str:
    """Its page, made once."""
    return explained(case).to_html()


@cache
def content_of(case: str) -> dict[str, Any]:
    """Its JSON with every number, written and read once."""
    content: dict[str, Any] = json.loads(explained(case).to_json(is_full=True))
    return content


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


class Page(HTMLParser):
    """Collects what a page would load, and checks that its tags are closed."""

    void = frozenset({"meta", "img", "input", "link", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.loads += [values[name] for name in ("src", "srcset", "action") if name in values]
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if "href" in values else []
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag
