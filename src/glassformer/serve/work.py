"""From the fields of a completion to items of the queue, and from their events to choices."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import cast

from glassformer.config import ServeConfig
from glassformer.generation.hypothesis import Hypothesis
from glassformer.generation.streaming import TextStream
from glassformer.serve.completions import (
    Choice,
    CompletionFields,
    check_total,
    check_unsupported,
    reason_of,
    settings_of,
    stops_of,
)
from glassformer.serve.items import Done, Item, Job, Piece
from glassformer.serve.limits import check_texts
from glassformer.serve.models import Plan, ServedModel
from glassformer.serve.refusal import Refusal
from glassformer.tasks.completion import Completion
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.translator import Translator

__all__ = ["Work", "work_for"]

DEFAULT_TOKENS = 16  # of a language model where max_tokens is not given, as OpenAI has it
CONTEXT_SHARE = 256  # new tokens that an item is counted with in a batch; few texts reach their limit


class Work:
    """What a request asks of a model.

    Attributes:
        items: For the queue.
        n_read: Tokens of the prompts.
    """

    items: list[Item]
    n_read: int

    def choices(self, results: Sequence[list[object]]) -> list[Choice]:
        """All choices, those of the first prompt first. Prompt i has the indices from n * i on; a beam search may find
        fewer than n texts, and a blank text has one translation."""
        raise NotImplementedError

    def pieces(self, job: Job) -> AsyncIterator[Choice]:
        """The same, piece by piece."""
        raise NotImplementedError


def work_for(config: ServeConfig, model: ServedModel, fields: CompletionFields) -> Work:
    """Checks the fields against the model and the limits.

    Raises:
        Refusal: 400, with the name of the field.
        UserError: A setting contradicts another, or a prompt is too long.
    """
    prompts = [fields.prompt] if isinstance(fields.prompt, str) else fields.prompt
    if not prompts:
        raise Refusal(400, "prompt: at least one text was expected.", param="prompt")
    check_texts(config, prompts, status=400, param="prompt")
    check_unsupported(fields)
    n = fields.n or 1
    most = config.max_alternatives + 1
    if n > most:
        raise Refusal(400, f"n: at most {most} choices are given, not {n}.", param="n")
    if fields.best_of not in (None, n):
        raise Refusal(400, f"best_of: only n={n} is supported.", param="best_of")
    stop = stops_of(fields.stop)
    if isinstance(model.task, Translator):
        return TranslationWork(config, model.task, prompts, fields, n, stop)
    if isinstance(model.task, TextGenerator):
        return GenerationWork(config, model.task, prompts, fields, n, stop)
    raise AssertionError(f"{model.name} writes no texts; `openai.completed` refuses it")


class GenerationWork(Work):
    """Prompts that a language model continues; n draws are n items, the n best of a beam are one."""

    def __init__(
        self,
        config: ServeConfig,
        task: TextGenerator,
        prompts: Sequence[str],
        fields: CompletionFields,
        n: int,
        stop: tuple[str, ...],
    ) -> None:
        self._task, self._stop, self._prompts = task, stop, prompts if fields.echo else None
        settings = settings_of(task.generation, fields, n, default_temperature=1.0)
        if settings.beam_size > 1 and fields.stream:
            raise Refusal(400, "stream: beam search knows its first token last.", param="stream")
        if settings.beam_size > 1 and (fields.logprobs or 0) > 1:
            raise Refusal(400, "logprobs: of beam search only the chosen tokens are known (0 or 1).", param="logprobs")
        max_tokens = fields.max_tokens or DEFAULT_TOKENS
        check_total(config, len(prompts) * n, max_tokens)
        rows = [task.prompt_ids(prompt) for prompt in prompts]
        self.n_read = sum(map(len, rows))
        seed = secrets.randbits(48) if fields.seed is None else fields.seed
        self._n, self._n_items = n, 1 if settings.beam_size > 1 else n
        limits = [task.limit(len(ids), replace(settings, max_new_tokens=max_tokens)) for ids in rows]
        self.items = [
            Item(
                ids=ids,
                size=len(ids) + min(limit, CONTEXT_SHARE),
                settings=settings,
                limit=limit,
                seed=seed + place,
                stop=stop,
                is_streamed=bool(fields.stream),
                n_top=fields.logprobs or 0,
            )
            for ids, limit in zip(rows, limits, strict=True)
            for place in range(self._n_items)
        ]

    def choices(self, results: Sequence[list[object]]) -> list[Choice]:
        n_each = self._n // self._n_items
        found = {
            i * n_each + place: (Completion.of(h, self._task.bytes_of, self._stop), h.top)
            for i, result in enumerate(results)
            for place, h in enumerate(cast("list[Hypothesis]", result))
        }
        return [
            Choice(i, self._echoed(i) + made.text, reason_of(made.finish_reason), made.ids, made.token_log_probs, top)
            for i, (made, top) in found.items()
        ]

    async def pieces(self, job: Job) -> AsyncIterator[Choice]:
        begun: set[int] = set()
        async for i, event in job.events():
            if isinstance(event, Piece):
                text = event.text if i in begun else self._echoed(i) + event.text
                begun.add(i)
                yield Choice(i, text, None, [event.token], [event.log_prob], [event.top])
            else:
                yield Choice(i, "", reason_of(event.result[0].finish_reason))

    def _echoed(self, index: int) -> str:
        return self._prompts[index // self._n] if self._prompts else ""


class TranslationWork(Work):
    """Prompts that a translator translates, each as its segments; pieces of an answer are whole segments."""

    def __init__(
        self,
        config: ServeConfig,
        task: Translator,
        prompts: Sequence[str],
        fields: CompletionFields,
        n: int,
        stop: tuple[str, ...],
    ) -> None:
        if fields.echo or fields.logprobs is not None:
            name = "echo" if fields.echo else "logprobs"
            raise Refusal(400, f"{name}: translators do not support it.", param=name)
        self._task, self._stop = task, stop
        settings = settings_of(task.generation, fields, n, default_temperature=None)
        settings = replace(settings, max_new_tokens=fields.max_tokens or settings.max_new_tokens)
        if fields.max_tokens:
            settings = replace(settings, min_new_tokens=min(settings.min_new_tokens, fields.max_tokens))
        check_total(config, len(prompts) * n, fields.max_tokens or 1)
        self._n_best = 1 if settings.do_sample else n
        if self._n_best > 1 and fields.stream:
            raise Refusal(400, "stream: several translations by beam search are known together.", param="stream")
        texts = [prompt for prompt in prompts for _ in range(n if settings.do_sample else 1)]
        seed = secrets.randbits(48) if fields.seed is None else fields.seed
        seeds = [seed + 1000 * i for i in range(len(texts))]
        self._plan = Plan(task, texts, settings, seeds=seeds, is_streamed=bool(fields.stream))
        self.items = self._plan.items
        self.n_read = sum(len(item.ids) for item in self.items) // (n if settings.do_sample else 1)

    def choices(self, results: Sequence[list[object]]) -> list[Choice]:
        n = self._n_best
        found = {
            i * n + place: translation
            for i, best in enumerate(self._plan.joined(results))
            for place, translation in enumerate([best, *best.alternatives][:n])
        }
        choices = []
        for i, made in found.items():
            stream = TextStream(self._stop)
            text = stream.push(made.text.encode()) + stream.finish()
            reason = "stop" if stream.is_stopped else reason_of(made.finish_reason)
            choices.append(Choice(i, text, reason, made.ids))
        return choices

    async def pieces(self, job: Job) -> AsyncIterator[Choice]:
        """The segments of each text in their order, whichever is done first."""
        texts = [_Growing(i, lines, self._stop) for i, lines in enumerate(self._plan.lines)]
        for text in texts:
            if not text.n_left:
                yield Choice(text.index, text.separators[0], "stop")
        first = {owner: self._plan.owners.index(owner) for owner in set(self._plan.owners)}
        async for i, event in job.events():
            if isinstance(event, Done):
                owner = self._plan.owners[i]
                made = self._task.translation_of(event.result)
                for choice in texts[owner].add(i - first[owner], Choice(owner, made.text, None, made.ids)):
                    yield choice


class _Growing:
    """The text of one prompt, whose segments arrive in any order."""

    def __init__(self, index: int, lines: list[list[str]], stop: tuple[str, ...]) -> None:
        self.index, self._stream = index, TextStream(stop)
        self.separators = [""]  # before each segment, and after the last one
        for number, line in enumerate(lines):
            if number:
                self.separators[-1] += "\n"
            for place, _ in enumerate(line):
                self.separators[-1] += " " if place else ""
                self.separators.append("")
        self.n_left = len(self.separators) - 1
        self._waiting: dict[int, Choice] = {}
        self._next, self._is_over = 0, False

    def add(self, place: int, segment: Choice) -> Iterator[Choice]:
        """Takes the segment at a place; yields those that can be sent now."""
        self._waiting[place] = segment
        while not self._is_over and self._next in self._waiting:
            segment = self._waiting.pop(self._next)
            text = self._stream.push((self.separators[self._next] + segment.text).encode())
            self._next += 1
            self._is_over = self._stream.is_stopped or self._next == self.n_left
            if self._is_over:
                text += self._stream.push(self.separators[self._next].encode()) + self._stream.finish()
            yield Choice(self.index, text, "stop" if self._is_over else None, segment.tokens)
