"""OpenAI's protocol: /v1/models, /v1/completions, /v1/chat/completions, /v1/embeddings."""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field

from glassformer.generation.hypothesis import Candidates
from glassformer.serve.chat import ChatFields, as_chat, as_completion
from glassformer.serve.completions import Choice, CompletionFields
from glassformer.serve.events import begun, event, kept_alive
from glassformer.serve.fields import Fields, read_fields
from glassformer.serve.items import Item
from glassformer.serve.limits import bearer, check_texts
from glassformer.serve.models import ServedModel
from glassformer.serve.refusal import Refusal
from glassformer.serve.service import Service, ignored_header, request_body
from glassformer.serve.work import Work, work_for
from glassformer.tasks.classifier import Classifier
from glassformer.tasks.embedder import Embedder
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.labeller import Labeller
from glassformer.tasks.translator import Translator
from glassformer.text.tokenizer import Tokenizer

__all__ = ["build_router"]

JSON = "application/json"
TASKS = {
    Translator: "translate",
    TextGenerator: "generate",
    Embedder: "embed",
    Classifier: "classify",
    Labeller: "label",
}
LOWEST = -9999.0  # stands for minus infinity, which JSON has not

Shape = Callable[[dict[str, Any]], dict[str, Any]]


class EmbeddingFields(BaseModel):
    """Fields of /v1/embeddings."""

    model: str = Field(description="Name of the model; see /v1/models.")
    input: str | list[str] = Field(description="Text, or texts.")
    encoding_format: Literal["float", "base64"] | None = Field(None, description="base64: little-endian float32.")
    dimensions: int | None = Field(None, ge=1, description="Keep so many features.")
    user: str | None = Field(None, description="Not read.")


def build_router(service: Service) -> APIRouter:
    """The routes of the protocol."""

    async def admit(request: Request) -> None:
        refusal = Refusal(401, "Incorrect API key provided.", code="invalid_api_key")
        service.admit(request, bearer(request), missing=refusal, wrong=refusal)

    router = APIRouter(prefix="/v1", dependencies=[Depends(admit)])

    @router.get("/models")
    async def models() -> dict[str, Any]:
        """The models."""
        return {"object": "list", "data": [described(model) for model in service.models.all.values()]}

    @router.get("/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """One model."""
        return described(find(service, name))

    @router.post("/completions", openapi_extra=request_body(CompletionFields, JSON))
    async def completions(request: Request) -> Response:
        """Continue prompts with a language model, or translate them with a translator."""
        raw = await read_fields(request, takes_form=False)
        refuse_ids(raw, "prompt")
        fields = raw.checked(CompletionFields)
        return await completed(service, request, fields, ignored_header(raw, CompletionFields), lambda answer: answer)

    @router.post("/chat/completions", openapi_extra=request_body(ChatFields, JSON))
    async def chat(request: Request) -> Response:
        """Translate the last message of the user."""
        raw = await read_fields(request, takes_form=False)
        fields = raw.checked(ChatFields)
        if not isinstance(find(service, fields.model).task, Translator):
            raise Refusal(400, f"model: {fields.model} has no chat format. Use /v1/completions.", param="model")
        return await completed(service, request, as_completion(fields), ignored_header(raw, ChatFields), as_chat)

    @router.post("/embeddings", openapi_extra=request_body(EmbeddingFields, JSON))
    async def embeddings(request: Request) -> JSONResponse:
        """One vector for each text."""
        raw = await read_fields(request, takes_form=False)
        refuse_ids(raw, "input")
        content = await embedded(service, raw.checked(EmbeddingFields))
        return JSONResponse(content, headers=ignored_header(raw, EmbeddingFields))

    return router


def find(service: Service, name: str) -> ServedModel:
    """The model of a name; Refusal 404."""
    if name not in service.models.all:
        known = ", ".join(service.models.all)
        raise Refusal(404, f"The model {name[:80]!r} does not exist. There are: {known}.", param="model",
                      code="model_not_found")  # fmt: skip
    return service.models.all[name]


def described(model: ServedModel) -> dict[str, Any]:
    """A model, as /v1/models has it, with what it does."""
    task, config = model.task, model.task.model.config
    content = {"id": model.name, "object": "model", "created": model.created, "owned_by": "glassformer"}
    content |= {"task": TASKS[type(task)], "max_model_len": config.max_positions}
    if model.direction:
        content |= {"source": model.direction[0], "target": model.direction[1]}
    if isinstance(task, Embedder):
        content |= {"dimensions": task.width, "pooling": config.pooling, "normalized": config.is_normalized}
    if isinstance(task, Classifier | Labeller):
        content |= {"labels": task.labels.names, "takes_pairs": task.labels.n_texts > 1}
    return content


def refuse_ids(raw: Fields, name: str) -> None:
    """Refuses token ids, which belong to another vocabulary than the model's."""
    value = raw.values.get(name)
    if isinstance(value, list) and value and not any(isinstance(part, str) for part in value):
        raise Refusal(
            400, f"{name}: token ids of another vocabulary mean nothing here. Send text "
            "(LangChain: check_embedding_ctx_length=False).", param=name,
        )  # fmt: skip


async def completed(
    service: Service, request: Request, fields: CompletionFields, headers: dict[str, str], shape: Shape
) -> Response:
    """The answer, whole or as a stream, in the shape of the endpoint."""
    model = find(service, fields.model)
    if not isinstance(model.task, Translator | TextGenerator):
        raise Refusal(
            400, f"model: {model.name} writes no texts; its task is {TASKS[type(model.task)]}.", param="model"
        )
    work = await asyncio.to_thread(work_for, service.config, model, fields)
    head = {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model.name,
    }
    is_explained = service.explain_log.is_asked(request)
    if is_explained and fields.stream:
        raise Refusal(400, "X-Explain: a stream is not explained.")
    if fields.stream:
        with_usage = bool((fields.stream_options or {}).get("include_usage"))
        chunks = streamed(service, model, work, head, shape, with_usage, fields.logprobs is not None)
        events = kept_alive(await begun(chunks), chunks)
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)
    with model.submit(work.items) as job:
        choices = work.choices(await job.results())
    n_made = sum(len(choice.tokens) for choice in choices)
    service.models.count(model, work.items, n_made)
    if is_explained:
        headers |= await asyncio.to_thread(explained, service, model, work, fields, choices)
    answer = head | {
        "choices": [choice_content(model, choice, fields.logprobs is not None) for choice in choices],
        "usage": usage(work, n_made),
    }
    return JSONResponse(shape(answer), headers=headers)


def explained(
    service: Service, model: ServedModel, work: Work, fields: CompletionFields, choices: list[Choice]
) -> dict[str, str]:
    """Keeps a request for its explanation; returns the header with its id."""
    prompts = [fields.prompt] if isinstance(fields.prompt, str) else fields.prompt
    settings = work.items[0].settings if work.items else None
    if len(work.items) != 1 or settings is None:
        raise Refusal(400, "X-Explain: one text of one sentence is explained.")
    return service.explain_log.keep(model, prompts, settings, work.items[0].limit, choices[0].text)


async def streamed(
    service: Service,
    model: ServedModel,
    work: Work,
    head: dict[str, Any],
    shape: Shape,
    with_usage: bool,
    with_log_probs: bool,
) -> AsyncGenerator[str, None]:
    """Server-sent events of the choices as they are made."""
    n_made = 0
    with model.submit(work.items) as job:
        async for choice in work.pieces(job):
            n_made += len(choice.tokens)
            yield event(shape(head | {"choices": [choice_content(model, choice, with_log_probs)]}))
    service.models.count(model, work.items, n_made)
    if with_usage:
        yield event(shape(head | {"choices": [], "usage": usage(work, n_made)}))
    yield "data: [DONE]\n\n"


def usage(work: Work, n_made: int) -> dict[str, int]:
    """Tokens read and made."""
    return {"prompt_tokens": work.n_read, "completion_tokens": n_made, "total_tokens": work.n_read + n_made}


def choice_content(model: ServedModel, choice: Choice, with_log_probs: bool) -> dict[str, Any]:
    """A choice, with the log-probabilities of its tokens where they are asked for."""
    content = {"index": choice.index, "text": choice.text, "logprobs": None, "finish_reason": choice.finish_reason}
    if with_log_probs:
        tokens = [b.decode("utf-8", "replace") for b in model.task.tokenizer.bytes_of(choice.tokens)]
        offsets = [sum(map(len, tokens[:i])) for i in range(len(tokens))]
        log_probs = [max(log_prob, LOWEST) for log_prob in choice.log_probs]
        tops = choice.top or [()] * len(tokens)
        content["logprobs"] = {
            "tokens": tokens,
            "token_logprobs": log_probs,
            "top_logprobs": [
                _likeliest(model.task.tokenizer, chosen, top)
                for chosen, top in zip(zip(tokens, log_probs, strict=True), tops[: len(tokens)], strict=True)
            ],
            "text_offset": offsets,
        }
    return content


def _likeliest(tokenizer: Tokenizer, chosen: tuple[str, float], top: Candidates) -> dict[str, float]:
    """The likeliest tokens and the chosen one; of two that look alike the likelier."""
    names = [text.decode("utf-8", "replace") for text in tokenizer.bytes_of([token for token, _ in top])]
    found = {chosen[0]: chosen[1]}
    for name, (_, log_prob) in zip(names, top, strict=True):
        found[name] = max(log_prob, LOWEST, found.get(name, LOWEST))
    return found


async def embedded(service: Service, fields: EmbeddingFields) -> dict[str, Any]:
    """The answer to /v1/embeddings."""
    model = find(service, fields.model)
    task = model.task
    if not isinstance(task, Embedder):
        raise Refusal(400, f"model: {model.name} makes no embeddings.", param="model")
    texts = [fields.input] if isinstance(fields.input, str) else fields.input
    if not texts:
        raise Refusal(400, "input: at least one text was expected.", param="input")
    check_texts(service.config, texts, status=400, param="input")
    rows = await asyncio.to_thread(task.encode, texts, on_cut=_refuse_long(task))
    items = [Item(ids=ids, size=len(ids)) for ids in rows]
    task.check_width(fields.dimensions)
    with model.submit(items) as job:
        vectors = task.shortened(np.stack(await job.results()), fields.dimensions or task.width)
    service.models.count(model, items, 0)
    data = [
        {"object": "embedding", "index": i, "embedding": _encoded(vector, fields.encoding_format)}
        for i, vector in enumerate(vectors)
    ]
    n_read = sum(map(len, rows))
    usage = {"prompt_tokens": n_read, "total_tokens": n_read}
    return {"object": "list", "model": model.name, "data": data, "usage": usage}


def _refuse_long(task: Embedder) -> Callable[[int], None]:
    def refuse(i: int) -> None:
        raise Refusal(400, f"input: text {i} has more than the {task.max_tokens} tokens that are read.", param="input")

    return refuse


def _encoded(vector: Any, encoding: str | None) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
