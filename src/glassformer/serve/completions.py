"""The fields of an OpenAI completion: what they mean, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pydantic import BaseModel, Field

from glassformer.config import GenerationConfig, ServeConfig
from glassformer.generation.hypothesis import Candidates
from glassformer.generation.streaming import check_stop
from glassformer.serve.refusal import Refusal

__all__ = ["Choice", "CompletionFields", "check_total", "check_unsupported", "reason_of", "settings_of", "stops_of"]

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
    logprobs: int | None = Field(
        None, ge=0, le=20, description="Log-probabilities of the tokens, and of the n likeliest."
    )
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
    top: list[Candidates] = field(default_factory=list)  # the likeliest tokens in place of each


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


def stops_of(stop: str | list[str] | None) -> tuple[str, ...]:
    """The texts that end a choice; refuses too many or too long ones."""
    texts = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if len(texts) > MAX_STOPS or any(len(text) > MAX_STOP_CHARS for text in texts):
        raise Refusal(400, f"stop: at most {MAX_STOPS} texts of {MAX_STOP_CHARS} characters are taken.", param="stop")
    return tuple(map(check_stop, texts))


def check_total(config: ServeConfig, n_texts: int, max_tokens: int) -> None:
    """Refuses more tokens than one request may ask for."""
    if n_texts * max_tokens > config.max_tokens:
        raise Refusal(
            400,
            f"max_tokens: {n_texts} texts x {max_tokens} tokens are asked for; at most {config.max_tokens} are made "
            "for one request.",
            param="max_tokens",
        )


def check_unsupported(fields: CompletionFields) -> None:
    """Refuses fields that would change the answer and are not supported."""
    for name in ("suffix", "presence_penalty", "frequency_penalty", "logit_bias"):
        if getattr(fields, name):
            raise Refusal(400, f"{name} is not supported. Leave it out.", param=name, code="unsupported")
    if fields.stream_options is not None and not fields.stream:
        raise Refusal(400, "stream_options: they need stream=true.", param="stream_options")
    if fields.echo and fields.logprobs is not None:
        raise Refusal(400, "echo: log-probabilities of the prompt are not supported.", param="echo")
