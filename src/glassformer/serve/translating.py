"""Passages of documents through the models of a route."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice

from glassformer.serve.documents.passages import Passage
from glassformer.serve.models import ServedModel
from glassformer.serve.service import Service
from glassformer.serve.words import links_of
from glassformer.tasks.translator import Translator

__all__ = ["translate_passages"]


async def translate_passages(
    service: Service, passages: Sequence[Passage], route: Sequence[ServedModel]
) -> Sequence[Passage]:
    """The passages translated, as one batch; markup stands where the words are that looked at its words."""
    for model in route:
        task = model.task
        assert isinstance(task, Translator)
        plan, results = await service.models.decode(model, [passage.text for passage in passages])
        rest, translations, found = iter(results), plan.joined(results), list[Passage]()
        for passage, lines, translation in zip(passages, plan.lines, translations, strict=True):
            hypotheses = list(islice(rest, sum(map(len, lines))))
            links = None
            if not passage.is_plain and translation.text:
                links = await service.study.run(partial(links_of, task, passage.text, lines, hypotheses))
            found.append(passage.filled(translation.text, links))
        passages = found
    return passages
