"""From the fields of an OpenAI request to items of the queue, and from their events to choices."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pydantic import BaseModel, Field

from glassformer.config import GenerationConfig, ServeConfig
from glassformer.generation.streaming import TextStream, check_stop
from glassformer.serve.batcher import Done, Item, Job, Piece
from glassformer.serve.limits import check_texts
from glassformer.serve.models import Plan, ServedModel
from glassformer.serve.refusal import Refusal
from glassformer.tasks.completion import Completion
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.translator import Translator

__all__ = ["Choice", "CompletionFields", "Work", "work_for"]

DEFAULT_TOKENS = 16  # of a language model where max_tokens is not given, as OpenAI has it
CONTEXT_SHARE = 256  # new tokens that an item is counted with in a batch; few texts reach their limit
MAX_STOPS, MAX_STOP_CHARS = 16, 256


class CompletionFields(BaseModel):
    """Fields of /v1/completions."""

    model: str = Field(description="Name of the model; see /v1/models.")
    prompt: str | list[str] = Field(description="Text to continue, or to translate; or several.")
    max_tokens: int | None = Field(None, ge=1, description="Most new tokens; unset: 16, or the end of a translation.")
    temperature: float | None = Field(None, ge=0, le=100, description="0: the best; above: drawn.")
    top_p: float | None = Field(None, gt=0, le=1, description="Draw among the tokens that hold this mass.")
    top_k: int | None = Field(None, ge=-1, description="Draw among the k best tokens; 0 or -1: all.")
    min_p: float | None = Field(None, ge=0, le=1, description="Draw among tokens of this share of the best one's.")
    n: int | None = Field(None, ge=1, description="Choices for each prompt.")
    best_of: int | None = Field(None, ge=1, description="As n.")
    stop: str | list[str] | None = Field(None, description="Texts that end a choice.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="Repeats a draw.")
    stream: bool | None = Field(None, description="Send pieces as server-sent events.")
    stream_options: dict[str, bool] | None = Field(None, description="include_usage.")
    logprobs: int | None = Field(None, ge=0, le=1, description="0 or 1: log-probabilities of the tokens chosen.")
    echo: bool | None = Field(None, description="Begin with the prompt.")
    repetition_penalty: float | None = Field(None, gt=0, le=100, description="Above 1: fewer repetitions.")
    length_penalty: float | None = Field(None, ge=-10, le=10, description="Beam search: exponent of the length.")
    use_beam_search: bool | None = Field(None, description="Search for the best; n choices are the n best.")
    suffix: str | None = Field(None, description="Not supported.")
    presence_penalty: float | None = Field(None, description="Not supported, but for 0.")
    frequency_penalty: float | None = Field(None, description="Not supported, but for 0.")
    logit_bias: dict[str, float] | None = Field(None, description="Not supported, but when empty.")
    user: str | None = Field(None, description="Not read.")


@dataclass
class Choice:
    """One text of an answer, or a further piece of it."""

    index: int
    text: str
    finish_reason: str | None  # stop or length; None: more is to come
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


class Work:
    """What a request asks of a model.

    Attributes:
        items: For the queue.
        n_read: Tokens of the prompts.
    """

    items: list[Item]
    n_read: int

    def choices(self, results: Sequence[list[object]]) -> list[Choice]:
        """All choices, those of the first prompt first."""
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
    _check_unsupported(fields)
    n = fields.n or 1
    most = config.max_alternatives + 1
    if n > most:
        raise Refusal(400, f"n: at most {most} choices are given, not {n}.", param="n")
    if fields.best_of not in (None, n):
        raise Refusal(400, f"best_of: only n={n} is supported.", param="best_of")
    stop = _stops(fields.stop)
    if isinstance(model.task, Translator):
        return TranslationWork(config, model.task, prompts, fields, n, stop)
    if isinstance(model.task, TextGenerator):
        return GenerationWork(config, model.task, prompts, fields, n, stop)
    raise Refusal(400, f"model: {model.name} makes embeddings. Use /v1/embeddings.", param="model")


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
        max_tokens = fields.max_tokens or DEFAULT_TOKENS
        _check_total(config, len(prompts) * n, max_tokens)
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
            )
            for ids, limit in zip(rows, limits, strict=True)
            for place in range(self._n_items)
        ]

    def choices(self, results: Sequence[list[object]]) -> list[Choice]:
        found = [Completion.of(h, self._task.bytes_of, self._stop) for result in results for h in result]  # type: ignore[arg-type]
        return [
            Choice(i, self._echoed(i) + made.text, reason_of(made.finish_reason), made.ids, made.token_log_probs)
            for i, made in enumerate(found)
        ]

    async def pieces(self, job: Job) -> AsyncIterator[Choice]:
        begun: set[int] = set()
        async for i, event in job.events():
            if isinstance(event, Piece):
                text = event.text if i in begun else self._echoed(i) + event.text
                begun.add(i)
                yield Choice(i, text, None, [event.token], [event.log_prob])
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
        _check_total(config, len(prompts) * n, fields.max_tokens or 1)
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
        found = [t for best in self._plan.joined(results) for t in [best, *best.alternatives][: self._n_best]]
        choices = []
        for i, made in enumerate(found):
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


def settings_of(
    saved: GenerationConfig, fields: CompletionFields, n: int, *, default_temperature: float | None
) -> GenerationConfig:
    """The settings of a request; what is not given is the model's own, but its limit of new tokens.

    A temperature above 0 draws, 0 takes the best: by the model's own search for a translator (no
    `default_temperature`), greedily for a language model.
    """
    given = {"top_p": fields.top_p, "min_p": fields.min_p, "repetition_penalty": fields.repetition_penalty}
    if fields.top_k is not None:
        given["top_k"] = max(0, fields.top_k)
    if fields.length_penalty is not None:
        given |= {"length_penalty": "average", "alpha": fields.length_penalty}  # type: ignore[dict-item]
    changes = {name: value for name, value in given.items() if value is not None}
    saved = replace(saved, n_best=1)
    temperature = default_temperature if fields.temperature is None else fields.temperature
    if fields.temperature is None and saved.do_sample:
        temperature = saved.temperature
    if fields.use_beam_search or (not temperature and default_temperature is None and not saved.do_sample):
        if fields.use_beam_search and fields.temperature:
            raise Refusal(400, "temperature: beam search draws nothing. Leave out one of the two.", param="temperature")
        beam_size = max(saved.beam_size, n, 2 if fields.use_beam_search else 1)
        changes |= {"do_sample": False, "beam_size": beam_size, "n_best": n}
    elif temperature:
        changes |= {"do_sample": True, "temperature": temperature, "beam_size": 1}
    else:
        changes |= {"do_sample": False, "beam_size": 1}
    return replace(saved, **changes)  # type: ignore[arg-type]


def reason_of(finish_reason: str) -> str:
    """Why a text ended, in OpenAI's words."""
    return "length" if finish_reason == "length" else "stop"


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    texts = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if len(texts) > MAX_STOPS or any(len(text) > MAX_STOP_CHARS for text in texts):
        raise Refusal(400, f"stop: at most {MAX_STOPS} texts of {MAX_STOP_CHARS} characters are taken.", param="stop")
    return tuple(map(check_stop, texts))


def _check_total(config: ServeConfig, n_texts: int, max_tokens: int) -> None:
    if n_texts * max_tokens > config.max_tokens:
        raise Refusal(
            400,
            f"max_tokens: {n_texts} texts x {max_tokens} tokens are asked for; at most {config.max_tokens} are made "
            "for one request.",
            param="max_tokens",
        )


def _check_unsupported(fields: CompletionFields) -> None:
    for name in ("suffix", "presence_penalty", "frequency_penalty", "logit_bias"):
        if getattr(fields, name):
            raise Refusal(400, f"{name} is not supported. Leave it out.", param=name, code="unsupported")
    if fields.stream_options is not None and not fields.stream:
        raise Refusal(400, "stream_options: they need stream=true.", param="stream_options")
    if fields.echo and fields.logprobs is not None:
        raise Refusal(400, "echo: log-probabilities of the prompt are not supported.", param="echo")
