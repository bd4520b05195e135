"""What a worker thread runs: the search over a batch of items, or the encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from glassformer.generation.beam import BeamSearch
from glassformer.generation.hypothesis import Hypothesis, LengthPenalty
from glassformer.generation.sampling import Made
from glassformer.generation.search import begin_search
from glassformer.generation.streaming import TextStream
from glassformer.serve.items import Done, Event, Item, Piece
from glassformer.tasks.classifier import Classifier
from glassformer.tasks.embedder import Embedder, embed_ids
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.labeller import Labeller
from glassformer.tasks.translator import Translator
from glassformer.tasks.votes import votes

__all__ = ["EmbeddingEngine", "TextEngine", "VotesEngine"]


class TextEngine:
    """Decodes; beam search gives an item when it is done, greedy decoding and sampling give each token."""

    def __init__(self, task: Translator | TextGenerator) -> None:
        self._task = task

    def begin(self, items: Mapping[int, Item]) -> TextBatch:
        return TextBatch(self._task, items)


@dataclass
class _Text:
    """A text that is made token by token."""

    item: Item
    stream: TextStream
    made: list[Made] = field(default_factory=list)


class TextBatch:
    """A search that goes on while texts come and leave."""

    @torch.inference_mode()
    def __init__(self, task: Translator | TextGenerator, items: Mapping[int, Item]) -> None:
        self._task = task
        self._texts = {number: _Text(item, TextStream(item.stop)) for number, item in items.items()}
        limits = [item.limit for item in items.values()]
        settings = next(iter(items.values())).settings
        assert settings is not None
        self._penalty = LengthPenalty(settings.length_penalty, settings.alpha)
        self._search = begin_search(
            *task.decoding([item.ids for item in items.values()], limits),
            settings,
            items=list(items),
            eos_ids=[task.tokenizer.eos_id],
            forbidden_ids=task.forbidden_ids,
            max_new_tokens=limits,
            seeds=[item.seed for item in items.values()],
            n_top=[item.n_top for item in items.values()],
        )

    @property
    def is_done(self) -> bool:
        return self._search.is_done

    @torch.inference_mode()
    def step(self, is_wanted: Callable[[int], bool]) -> list[tuple[int, Event]]:
        search = self._search
        search.drop(lambda number: is_wanted(number) and number in self._texts)
        if search.is_done:
            return []
        events: list[tuple[int, Event]] = []
        if isinstance(search, BeamSearch):
            events = [(number, Done(hypotheses)) for number, hypotheses in search.step()]
        else:
            for token in search.step():
                events += [(token.item, event) for event in self._events_of(token)]
        for number, event in events:
            if isinstance(event, Done):
                del self._texts[number]
        return events

    @torch.inference_mode()
    def join(self, other: TextBatch) -> None:
        self._search.join(other._search)  # type: ignore[arg-type] # equal settings: the same kind of search
        self._texts |= other._texts

    def _events_of(self, token: Made) -> list[Event]:
        text = self._texts[token.item]
        text.made.append(token)
        piece = text.stream.push(self._task.tokenizer.bytes_of([token.token])[0])
        reason = "stop" if text.stream.is_stopped else token.finish_reason
        events: list[Event] = []
        if text.item.is_streamed:
            events.append(
                Piece(piece + text.stream.finish() if reason else piece, token.token, token.log_prob, token.top)
            )
        if reason:
            ids, log_probs = [t.token for t in text.made], [t.log_prob for t in text.made]
            hypothesis = Hypothesis.of(token.item, ids, log_probs, reason, self._penalty)
            events.append(Done([replace(hypothesis, top=[t.top for t in text.made])]))
        return events


class EmbeddingEngine:
    """Embeds."""

    def __init__(self, task: Embedder) -> None:
        self._task = task

    def begin(self, items: Mapping[int, Item]) -> OneStep:
        return OneStep(lambda rows: embed_ids(self._task.model, rows), items)


class VotesEngine:
    """Votes for labels."""

    def __init__(self, task: Classifier | Labeller) -> None:
        self._task = task

    def begin(self, items: Mapping[int, Item]) -> OneStep:
        return OneStep(lambda rows: votes(self._task.model, rows), items)


class OneStep:
    """Texts that an encoder reads at once."""

    def __init__(self, compute: Callable[[list[list[int]]], Iterable[Any]], items: Mapping[int, Item]) -> None:
        self._compute, self._items, self.is_done = compute, items, False

    def step(self, is_wanted: Callable[[int], bool]) -> list[tuple[int, Event]]:
        self.is_done = True
        wanted = [number for number in self._items if is_wanted(number)]
        results = self._compute([self._items[number].ids for number in wanted])
        return [(number, Done(result)) for number, result in zip(wanted, results, strict=True)]

    def join(self, other: OneStep) -> None:
        raise AssertionError("it is done after one step")
