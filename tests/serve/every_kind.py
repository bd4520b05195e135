"""A server with a model of every kind, for the tests of the page and of the protocol that it speaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from glassformer.serve.service import Service
from glassformer.tasks import Translator
from serve.serving import Running, embedder, generator, running, translator, wait_until
from tasks.label_models import classifier, labeller
from tasks.small_models import make_translator, save_folder


@cache
def speaker() -> Translator:
    """A translator that makes nothing but letters, so that its words can be seen."""
    made = make_translator()
    pieces = made.tokenizer.pieces(range(made.tokenizer.vocab_size))
    made.forbidden_ids += [
        i for i, piece in enumerate(pieces) if i != made.tokenizer.eos_id and not piece.strip().isalpha()
    ]
    return made


@contextmanager
def every_kind(folder: Path, **settings: Any) -> Iterator[Running]:
    """Its translator en-fr lies in a folder; fr-de has none."""

    def load(service: Service) -> None:
        add = service.models.add
        add("en-fr", speaker(), direction=("en", "fr"), path=save_folder(folder / "en-fr"))
        add("fr-en", speaker(), direction=("fr", "en"))
        add("fr-de", translator(60), direction=("fr", "de"))
        add("lm", generator())
        add("embedder", embedder())
        add("tones", classifier())
        add("pairs", classifier(n_texts=2))
        add("names", labeller())

    with running(load, **settings) as server:
        wait_until(lambda: server.service.is_ready)
        yield server
