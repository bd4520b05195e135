"""LibreTranslate's protocol: /translate, /detect, /languages, /frontend/settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from glassformer.serve.detection import Detected, detect, has_words, language_name
from glassformer.serve.documents.formats import FORMATS
from glassformer.serve.documents.markup import Markup
from glassformer.serve.fields import read_fields
from glassformer.serve.limits import bearer, check_texts
from glassformer.serve.refusal import Refusal
from glassformer.serve.service import Service, ignored_header, request_body
from glassformer.serve.translating import translate_passages
from glassformer.tasks.translator import Translation, Translator

__all__ = ["admission", "build_router", "check_directions", "detected_languages", "translate_routed"]

FORMS = ("application/json", "application/x-www-form-urlencoded")


class TranslateFields(BaseModel):
    """Fields of /translate."""

    q: str | list[str] = Field(description="Text or texts to translate.")
    source: str = Field(description="Code of their language, or auto.", max_length=40)
    target: str = Field(description="Code of the language to translate into.", max_length=40)
    format: str = Field("text", description="text, or html to keep tags.", max_length=40)
    alternatives: int = Field(0, ge=0, description="Further translations of each text.")
    api_key: str | None = Field(None, description="Key, where one is asked for.")


class DetectFields(BaseModel):
    """Fields of /detect."""

    q: str = Field(description="Text whose language is asked for.")
    api_key: str | None = Field(None, description="Key, where one is asked for.")


def build_router(service: Service) -> APIRouter:
    """The routes of the protocol."""

    router = APIRouter()
    guarded = APIRouter(dependencies=[Depends(admission(service))])

    @guarded.post("/translate", openapi_extra=request_body(TranslateFields, *FORMS))
    async def translate(request: Request) -> JSONResponse:
        """Translate a text, or several as one batch."""
        raw = await read_fields(request, takes_form=True)
        if not raw.values.get("q"):
            raise Refusal(400, "Invalid request: missing q parameter", param="q")
        for name in ("source", "target"):
            if not raw.values.get(name):
                raise Refusal(400, f"Invalid request: missing {name} parameter", param=name)
        fields = raw.checked(TranslateFields)
        is_explained = service.explain_log.is_asked(request)
        content = await answered(service, fields)
        headers = ignored_header(raw, TranslateFields)
        if is_explained:
            source = fields.source.lower()
            if source == "auto" and isinstance(fields.q, str):
                source = content["detectedLanguage"]["language"]
            headers |= await explained(
                service, fields.q, source, fields.target.lower(), is_html=fields.format == "html"
            )
        return JSONResponse(content, headers=headers)

    @guarded.post("/detect", openapi_extra=request_body(DetectFields, *FORMS))
    async def detect_language(request: Request) -> JSONResponse:
        """The likeliest languages of a text, best first."""
        raw = await read_fields(request, takes_form=True)
        if not raw.values.get("q"):
            raise Refusal(400, "Invalid request: missing q parameter", param="q")
        fields = raw.checked(DetectFields)
        check_texts(service.config, [fields.q], status=400, param="q")
        found = await asyncio.to_thread(detect, fields.q, service.models.languages)
        return JSONResponse([{"confidence": share, "language": code} for code, share in found])

    @guarded.post("/suggest")
    async def suggest() -> JSONResponse:
        """Suggestions are not kept."""
        raise Refusal(403, "Suggestions are disabled on this server.")

    @router.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        """The languages, and what each can be translated into."""
        return [
            {"code": code, "name": language_name(code), "targets": service.models.targets(code)}
            for code in service.models.sources
        ]

    @router.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """What a page needs to know."""
        targets = [tgt for src in service.models.sources for tgt in service.models.targets(src)]
        target = {"code": targets[0], "name": language_name(targets[0])} if targets else {}
        return {
            "charLimit": service.config.max_chars,
            "frontendTimeout": 500,
            "apiKeys": bool(service.keys),
            "keyRequired": bool(service.keys),
            "suggestions": False,
            "filesTranslation": bool(service.config.max_file_bytes),
            "supportedFilesFormat": list(FORMATS) if service.config.max_file_bytes else [],
            "language": {"source": {"code": "auto", "name": "Auto Detect"}, "target": target},
        }

    router.include_router(guarded)
    return router


def admission(service: Service, *, takes_file: bool = False) -> Callable[[Request], Awaitable[None]]:
    """Lets a request in by the key that this protocol has in its fields, or by that of its header."""

    async def admit(request: Request) -> None:
        fields = await read_fields(request, takes_form=True, takes_file=takes_file)
        given = fields.values.get("api_key")
        key = given if isinstance(given, str) and given else bearer(request)
        service.admit(
            request,
            key,
            missing=Refusal(400, "Please contact the server operator to get an API key"),
            wrong=Refusal(403, "Invalid API key"),
        )

    return admit


async def answered(service: Service, fields: TranslateFields) -> dict[str, Any]:
    """The answer to /translate."""
    if fields.format not in ("text", "html"):
        raise Refusal(400, f"{fields.format} format is not supported", param="format")
    most = service.config.max_alternatives
    if fields.alternatives > most:
        raise Refusal(400, f"alternatives: at most {most} are given, not {fields.alternatives}.", param="alternatives")
    texts = [fields.q] if isinstance(fields.q, str) else fields.q
    check_texts(service.config, texts, status=400, param="q")
    source, target = fields.source.lower(), fields.target.lower()
    is_html = fields.format == "html"
    detected = await detected_languages(service, texts) if source == "auto" else []
    sources = [code for code, _ in detected] or [source] * len(texts)
    n_best = 1 if is_html else 1 + fields.alternatives
    found = await translate_routed(service, texts, sources, target, n_best=n_best, is_html=is_html)
    content: dict[str, Any] = {"translatedText": [best for best, *_ in found]}
    if detected:
        content["detectedLanguage"] = [{"confidence": share, "language": code} for code, share in detected]
    if fields.alternatives:
        content["alternatives"] = [others for _, *others in found]
    return {name: value[0] for name, value in content.items()} if isinstance(fields.q, str) else content


async def explained(
    service: Service, texts: str | Sequence[str], source: str, target: str, *, is_html: bool
) -> dict[str, str]:
    """Keeps a request for its explanation; returns the header with its id."""
    route = service.models.route(source, target)
    if is_html or len(route) != 1:
        raise Refusal(400, "X-Explain: plain text that one model translates is explained.")
    texts = [texts] if isinstance(texts, str) else texts
    assert isinstance(route[0].task, Translator)
    settings = replace(route[0].task.generation, n_best=1)
    return await asyncio.to_thread(service.explain_log.keep, route[0], texts, settings, settings.max_new_tokens, "")


async def detected_languages(service: Service, texts: Sequence[str]) -> list[Detected]:
    """The likeliest language of each text among those of the server."""
    codes = service.models.languages
    return await asyncio.to_thread(lambda: [detect(text, codes)[0] for text in texts])


async def translate_routed(
    service: Service, texts: Sequence[str], sources: Sequence[str], target: str, *, n_best: int = 1, is_html: bool
) -> list[list[str]]:
    """Of each text up to n_best different translations, best first, by the models that lead to the target.

    Texts without a word, and texts in the target language, are their own translation.
    """
    found: list[list[str]] = [[text] for text in texts]
    groups: dict[str, list[int]] = {}
    for i, (text, source) in enumerate(zip(texts, sources, strict=True)):
        if has_words(text):
            groups.setdefault(source, []).append(i)
    check_directions(service, set(sources), target)

    async def translate_group(source: str, places: list[int]) -> None:
        group = [texts[i] for i in places]
        for i, outputs in zip(places, await _translate(service, group, source, target, n_best, is_html), strict=True):
            found[i] = outputs

    await asyncio.gather(*(translate_group(source, places) for source, places in groups.items() if source != target))
    return found


def check_directions(service: Service, sources: set[str], target: str) -> None:
    """Refuses languages that the server has not, and directions that no models lead in."""
    models = service.models
    for code in [*sorted(sources), target]:
        if code not in models.languages:
            raise Refusal(400, f"{code} is not supported")
    for source in sorted(sources - {target}):
        if not models.route(source, target):
            raise Refusal(
                400,
                f"{language_name(target)} ({target}) is not available as a target language from "
                f"{language_name(source)} ({source})",
            )


async def _translate(
    service: Service, texts: Sequence[str], source: str, target: str, n_best: int, is_html: bool
) -> list[list[str]]:
    """Through one model, or through two of which the last one gives the alternatives."""
    route = service.models.route(source, target)
    if is_html:
        pages = await asyncio.to_thread(lambda: [Markup(text) for text in texts])
        passages = [passage for page in pages for passage in page.passages]
        translated = iter(await translate_passages(service, passages, route))
        return [[page.filled(list(islice(translated, len(page.passages))))] for page in pages]
    *first, last = route
    for model in first:
        texts = [translation.text for translation in await service.models.translate(model, texts)]
    return [_different(translation) for translation in await service.models.translate(last, texts, n_best=n_best)]


def _different(translation: Translation) -> list[str]:
    """The texts of a translation and its alternatives, each once."""
    return list(dict.fromkeys(t.text for t in (translation, *translation.alternatives)))
