"""What a worker thread runs: the search over a batch of items, or the encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from glassformer.generation.hypothesis import Hypothesis, LengthPenalty
from glassformer.generation.sampling import Made
from glassformer.generation.search import generate_items, generate_steps
from glassformer.generation.streaming import TextStream
from glassformer.serve.batcher import Done, Event, Item, Piece
from glassformer.tasks.classifier import Classifier
from glassformer.tasks.embedder import Embedder, embed_ids
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.labeller import Labeller
from glassformer.tasks.translator import Translator
from glassformer.tasks.votes import BATCH_TOKENS, votes

__all__ = ["EmbeddingEngine", "TextEngine", "VotesEngine"]


class TextEngine:
    """Decodes; beam search gives an item when it is done, greedy decoding and sampling give each token."""

    def __init__(self, task: Translator | TextGenerator) -> None:
        self._task = task

    def run(self, items: Sequence[Item], is_wanted: Callable[[int], bool]) -> Iterator[tuple[int, Event]]:
        settings = items[0].settings
        assert settings is not None
        if settings.do_sample or settings.beam_size == 1:
            yield from self._token_by_token(items, is_wanted)
            return
        limits = [item.limit for item in items]
        for i, hypotheses in generate_items(
            *self._task.decoding([item.ids for item in items], limits),
            settings,
            eos_ids=[self._task.tokenizer.eos_id],
            forbidden_ids=self._task.forbidden_ids,
            max_new_tokens=torch.tensor(limits),
            is_wanted=is_wanted,
        ):
            yield i, Done(hypotheses)

    def _token_by_token(self, items: Sequence[Item], is_wanted: Callable[[int], bool]) -> Iterator[tuple[int, Event]]:
        settings, limits = items[0].settings, [item.limit for item in items]
        assert settings is not None
        texts = [TextStream(item.stop) for item in items]
        made: list[list[Made]] = [[] for _ in items]
        for step in generate_steps(
            *self._task.decoding([item.ids for item in items], limits),
            settings,
            eos_ids=[self._task.tokenizer.eos_id],
            forbidden_ids=self._task.forbidden_ids,
            max_new_tokens=torch.tensor(limits),
            seeds=[item.seed for item in items],
            is_wanted=lambda i: is_wanted(i) and not texts[i].is_stopped,
        ):
            for token in step:
                i = token.row
                made[i].append(token)
                piece = texts[i].push(self._task.tokenizer.bytes_of([token.token])[0])
                reason = "stop" if texts[i].is_stopped else token.finish_reason
                if items[i].is_streamed:
                    text = piece + texts[i].finish() if reason else piece
                    yield i, Piece(text, token.token, token.log_prob)
                if reason:
                    ids, log_probs = [t.token for t in made[i]], [t.log_prob for t in made[i]]
                    penalty = LengthPenalty(settings.length_penalty, settings.alpha)
                    yield i, Done([Hypothesis.of(i, ids, log_probs, reason, penalty)])


class EmbeddingEngine:
    """Embeds."""

    def __init__(self, task: Embedder) -> None:
        self._task = task

    def run(self, items: Sequence[Item], is_wanted: Callable[[int], bool]) -> Iterator[tuple[int, Event]]:
        wanted = [i for i in range(len(items)) if is_wanted(i)]
        vectors = embed_ids(self._task.model, [items[i].ids for i in wanted])
        for i, vector in zip(wanted, vectors, strict=True):
            yield i, Done(vector)


class VotesEngine:
    """Votes for labels."""

    def __init__(self, task: Classifier | Labeller) -> None:
        self._task = task

    def run(self, items: Sequence[Item], is_wanted: Callable[[int], bool]) -> Iterator[tuple[int, Event]]:
        wanted = [i for i in range(len(items)) if is_wanted(i)]
        found = votes(self._task.model, [items[i].ids for i in wanted], batch_tokens=BATCH_TOKENS)
        for i, logits in zip(wanted, found, strict=True):
            yield i, Done(logits)
