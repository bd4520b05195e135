"""glassformer's own protocol, for its page: alignment, candidates, labels, reports."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel

from glassformer.generation.hypothesis import Hypothesis
from glassformer.serve.candidates import candidates
from glassformer.serve.completions import CompletionFields, settings_of
from glassformer.serve.detection import has_words
from glassformer.serve.fields import read_fields
from glassformer.serve.items import Item
from glassformer.serve.libretranslate import check_directions, detected_languages
from glassformer.serve.limits import bearer, check_texts
from glassformer.serve.models import Plan, ServedModel
from glassformer.serve.native_fields import ClassifyFields, ContinueFields, ExplainFields, LabelFields, TranslateFields
from glassformer.serve.openai import find
from glassformer.serve.pages import REPORT_POLICY
from glassformer.serve.refusal import Refusal
from glassformer.serve.reports import MAX_REPORT_CHARS
from glassformer.serve.service import Service, ignored_header, request_body
from glassformer.serve.words import segments_of
from glassformer.tasks.classifier import Classifier
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.labeller import Labeller
from glassformer.tasks.translator import Translation, Translator

__all__ = ["build_router"]

MAX_ALIGNED_CHARS = 2000  # of a text whose words are aligned; each segment takes one more run of the model
JSON = "application/json"
F = TypeVar("F", bound=BaseModel)
K = TypeVar("K")


def build_router(service: Service) -> APIRouter:
    """The routes of the protocol."""

    async def admit(request: Request) -> None:
        refusal = Refusal(401, "A key is needed, as Authorization: Bearer.", code="invalid_api_key")
        service.admit(request, bearer(request), missing=refusal, wrong=refusal)

    router = APIRouter(prefix="/glassformer", dependencies=[Depends(admit)])

    @router.post("/translate", openapi_extra=request_body(TranslateFields, JSON))
    async def translate(request: Request) -> JSONResponse:
        """Translate a text, and tell which of its words each word of the translation looked at."""
        fields, headers = await _fields(request, TranslateFields)
        return JSONResponse(await translated(service, fields), headers=headers)

    @router.post("/continue", openapi_extra=request_body(ContinueFields, JSON))
    async def go_on(request: Request) -> JSONResponse:
        """Continue a text, and tell what might have stood in place of each token."""
        fields, headers = await _fields(request, ContinueFields)
        return JSONResponse(await continued(service, fields), headers=headers)

    @router.post("/classify", openapi_extra=request_body(ClassifyFields, JSON))
    async def classify(request: Request) -> JSONResponse:
        """The probability of each label of a text."""
        fields, headers = await _fields(request, ClassifyFields)
        return JSONResponse(await classified(service, fields), headers=headers)

    @router.post("/label", openapi_extra=request_body(LabelFields, JSON))
    async def label(request: Request) -> JSONResponse:
        """The label of each word of a text."""
        fields, headers = await _fields(request, LabelFields)
        return JSONResponse(await labelled(service, fields), headers=headers)

    @router.post("/explain", openapi_extra=request_body(ExplainFields, JSON))
    async def explain(request: Request) -> HTMLResponse:
        """The report of `glassformer explain` for one sentence."""
        fields, headers = await _fields(request, ExplainFields)
        page = await reported(service, fields)
        return HTMLResponse(page, headers=headers | {"Content-Security-Policy": REPORT_POLICY})

    return router


async def _fields(request: Request, model: type[F]) -> tuple[F, dict[str, str]]:
    """The checked fields of a request, and the header that names those that were not read."""
    raw = await read_fields(request, takes_form=False)
    return raw.checked(model), ignored_header(raw, model)


def _task(model: ServedModel, kind: type[K], what: str) -> K:
    if not isinstance(model.task, kind):
        raise Refusal(400, f"model: {model.name} {what}.", param="model")
    return model.task


def _route(service: Service, fields: TranslateFields | ExplainFields, source: str | None) -> list[ServedModel]:
    """The models that a text goes through, by their name or by its languages."""
    if fields.model is not None:
        if fields.source or fields.target:
            raise Refusal(400, "model: give a model, or a source and a target.", param="model")
        return [find(service, fields.model)]
    if not source or not fields.target:
        raise Refusal(400, "source: give a source and a target, or a model.", param="source")
    target = fields.target.lower()
    check_directions(service, {source}, target)
    return service.models.route(source, target) if source != target else []


async def translated(service: Service, fields: TranslateFields) -> dict[str, Any]:
    """The answer to /glassformer/translate."""
    most = service.config.max_alternatives
    if fields.alternatives > most:
        raise Refusal(400, f"alternatives: at most {most} are given, not {fields.alternatives}.", param="alternatives")
    check_texts(service.config, [fields.text], status=400, param="text")
    detected = await detected_languages(service, [fields.text]) if fields.source == "auto" else []
    source = detected[0][0] if detected else (fields.source or "").lower()
    route = _route(service, fields, source)
    content: dict[str, Any] = {
        "models": [model.name for model in route],
        "detected": {"language": source, "confidence": detected[0][1]} if detected else None,
        "translations": [{"text": fields.text, "score": None, "log_prob": None, "tokens": 0}],
        "segments": [],
    }
    if not route or not has_words(fields.text):
        return content
    *first, last = route
    task, text = _task(last, Translator, "is no translator"), fields.text
    for model in first:
        (between,) = await service.models.translate(model, [text])
        text = between.text
    plan, results = await service.models.decode(last, [text], n_best=1 + fields.alternatives)
    best = plan.joined(results)[0]
    content["translations"] = [_translation(one) for one in _different(best)]
    if not first:
        is_aligned = len(text) <= MAX_ALIGNED_CHARS
        content["segments"] = await service.study.run(partial(_segments, task, text, plan, results, is_aligned))
    return content


def _different(best: Translation) -> list[Translation]:
    """A translation and its alternatives, each text once."""
    return list({one.text: one for one in reversed([best, *best.alternatives])}.values())[::-1]


def _translation(one: Translation) -> dict[str, Any]:
    return {"text": one.text, "score": one.score, "log_prob": one.log_prob, "tokens": len(one.ids)}


def _segments(
    translator: Translator, text: str, plan: Plan, results: Sequence[list[Hypothesis]], is_aligned: bool
) -> list[dict[str, Any]]:
    """Each segment: its place in the text and in the translation, and the places of its words in both."""
    found: list[dict[str, Any]] = []
    for segment in segments_of(translator, text, plan.lines[0], results):
        words = asdict(segment.words(translator)) if is_aligned else None
        place = {"source": segment.source, "target": segment.target}
        found.append(place | {"finish_reason": segment.translation.finish_reason, "words": words})
    return found


async def continued(service: Service, fields: ContinueFields) -> dict[str, Any]:
    """The answer to /glassformer/continue."""
    model = find(service, fields.model)
    task = _task(model, TextGenerator, "is no language model")
    check_texts(service.config, [fields.prompt], status=400, param="prompt")
    if not set(fields.kept) <= set(range(task.tokenizer.vocab_size)) - set(task.forbidden_ids):
        raise Refusal(400, "kept: ids of tokens that this model makes were expected.", param="kept")
    prompt = await asyncio.to_thread(task.prompt_ids, fields.prompt)
    asked = CompletionFields.model_validate({"model": model.name, "prompt": "", "temperature": fields.temperature})
    settings = replace(settings_of(task.generation, asked, 1, default_temperature=1.0), min_new_tokens=0)
    made, reason, ids = fields.kept, "eos", [*prompt, *fields.kept]
    limit = task.limit(len(ids), replace(settings, max_new_tokens=fields.max_tokens))
    if task.tokenizer.eos_id not in made:
        seed = secrets.randbits(48) if fields.seed is None else fields.seed
        item = Item(ids=ids, size=len(ids) + limit, settings=settings, limit=limit, seed=seed)
        with model.submit([item]) as job:
            ((hypothesis,),) = await job.results()
        service.models.count(model, [item], len(hypothesis.ids))
        made, reason = [*made, *hypothesis.ids], hypothesis.finish_reason
    tokens, places = await service.study.run(partial(candidates, task, prompt, made, fields.candidates))
    return {
        "text": task.tokenizer.decode(made),
        "finish_reason": reason,
        "tokens": [
            asdict(token) | {"candidates": list(map(asdict, of))} for token, of in zip(tokens, places, strict=True)
        ],
    }


async def classified(service: Service, fields: ClassifyFields) -> dict[str, Any]:
    """The answer to /glassformer/classify."""
    model = find(service, fields.model)
    task = _task(model, Classifier, "does not classify texts")
    if (fields.second is not None) != task.takes_pairs:
        raise Refusal(
            400, f"second: the model takes {'pairs' if task.takes_pairs else 'single texts'}.", param="second"
        )
    text = fields.text if fields.second is None else (fields.text, fields.second)
    check_texts(service.config, [text] if isinstance(text, str) else text, status=400, param="text")
    ((row, is_cut),) = await asyncio.to_thread(task.encode, [text])
    if not row:
        return {"chosen": [], "labels": [], "is_cut": False}
    (logits,) = await _voted(service, model, [row])
    found = task.classification(logits, is_cut)
    ranked = sorted(found.probabilities.items(), key=lambda pair: -pair[1])
    labels = [{"label": name, "probability": share} for name, share in ranked]
    return {"chosen": found.labels, "labels": labels, "is_cut": is_cut}


async def labelled(service: Service, fields: LabelFields) -> dict[str, Any]:
    """The answer to /glassformer/label."""
    model = find(service, fields.model)
    task = _task(model, Labeller, "does not label words")
    check_texts(service.config, [fields.text], status=400, param="text")
    (sentence,) = await asyncio.to_thread(task.encode, [fields.text])
    found = task.labelling(sentence, await _voted(service, model, sentence.rows))
    return {"words": list(map(asdict, found.words)), "entities": list(map(asdict, found.entities))}


async def _voted(service: Service, model: ServedModel, rows: Sequence[list[int]]) -> list[Any]:
    """The logits of each row, through the queue."""
    items = [Item(ids=row, size=len(row)) for row in rows]
    with model.submit(items) as job:
        found = await job.results()
    service.models.count(model, items, 0)
    return found


async def reported(service: Service, fields: ExplainFields) -> bytes:
    """The answer to /glassformer/explain."""
    for name, text in (("text", fields.text), ("reference", fields.reference or "")):
        if len(text) > MAX_REPORT_CHARS:
            what = f"{name}: a report is made of at most {MAX_REPORT_CHARS} characters, not {len(text)}."
            raise Refusal(400, what, param=name)
    route = _route(service, fields, (fields.source or "").lower())
    if len(route) != 1:
        raise Refusal(400, "target: a report is made of one model; this translation takes none or two.", param="target")
    if route[0].path is None:
        raise Refusal(400, f"model: {route[0].name} was not loaded from a folder.", param="model")
    return await service.reports.make(route[0].name, route[0].path, fields.text, fields.reference)
