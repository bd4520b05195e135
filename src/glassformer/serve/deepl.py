"""DeepL's protocol, version 2: /v2/translate, /v2/languages, /v2/usage."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, field_validator

from glassformer.serve.detection import language_name
from glassformer.serve.fields import read_fields
from glassformer.serve.libretranslate import detected_languages, explained, translate_routed
from glassformer.serve.limits import bearer, check_texts
from glassformer.serve.refusal import Refusal
from glassformer.serve.service import Service, ignored_header, request_body

__all__ = ["build_router"]

FORMS = ("application/json", "application/x-www-form-urlencoded")


class TranslateFields(BaseModel):
    """Fields of /v2/translate."""

    text: list[str] = Field(min_length=1, description="Texts to translate.")
    target_lang: str = Field(max_length=40, description="Language to translate into, such as FR.")
    source_lang: str | None = Field(None, max_length=40, description="Their language; unset: detected of each text.")
    tag_handling: str | None = Field(None, max_length=40, description="html or xml, to keep tags.")
    formality: str | None = Field(None, max_length=40, description="default, or prefer_more or prefer_less.")
    glossary_id: str | None = Field(None, description="Not supported.")
    show_billed_characters: bool = Field(True, description="They are always given.")

    @field_validator("text", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class LanguagesFields(BaseModel):
    """Fields of /v2/languages."""

    type: str = Field("source", pattern="^(source|target)$", description="source or target.")


def build_router(service: Service) -> APIRouter:
    """The routes of the protocol."""

    async def admit(request: Request) -> None:
        refusal = Refusal(403, "Authorization failure, check auth_key")
        service.admit(request, bearer(request, "DeepL-Auth-Key"), missing=refusal, wrong=refusal)

    router = APIRouter(prefix="/v2", dependencies=[Depends(admit)])
    used: Counter[str] = Counter()  # characters that each key has had translated

    def user_of(request: Request) -> str:
        return (bearer(request, "DeepL-Auth-Key") or "") if service.keys else ""

    @router.post("/translate", openapi_extra=request_body(TranslateFields, *FORMS))
    async def translate(request: Request) -> JSONResponse:
        """Translate texts as one batch."""
        raw = await read_fields(request, takes_form=True)
        fields = raw.checked(TranslateFields)
        check_texts(service.config, fields.text, status=413, param="text")
        _check_settings(fields)
        if fields.source_lang:
            sources = [language_code(fields.source_lang)] * len(fields.text)
        else:
            sources = [code for code, _ in await detected_languages(service, fields.text)]
        is_html, is_explained = fields.tag_handling is not None, service.explain_log.is_asked(request)
        found = await translate_routed(
            service, fields.text, sources, language_code(fields.target_lang), is_html=is_html
        )
        translations = [
            {"detected_source_language": source.upper(), "text": best, "billed_characters": len(text)}
            for source, text, (best, *_) in zip(sources, fields.text, found, strict=True)
        ]
        headers = ignored_header(raw, TranslateFields)
        if is_explained:
            target = language_code(fields.target_lang)
            headers |= await explained(service, fields.text, sources[0], target, is_html=is_html)
        used[user_of(request)] += sum(map(len, fields.text))
        return JSONResponse({"translations": translations}, headers=headers)

    @router.get("/languages")
    @router.post("/languages")
    async def languages(request: Request) -> list[dict[str, Any]]:
        """The languages that are translated from, or into."""
        fields = (await read_fields(request, takes_form=True)).checked(LanguagesFields)
        models = service.models
        codes = models.sources if fields.type == "source" else sorted({tgt for _, tgt in models.directions})
        extra = {"supports_formality": False} if fields.type == "target" else {}
        return [{"language": code.upper(), "name": language_name(code)} | extra for code in codes]

    @router.get("/usage")
    async def usage(request: Request) -> dict[str, int]:
        """Characters that the key has had translated since the start (without keys: everybody). They never run out."""
        return {"character_count": used[user_of(request)], "character_limit": 1_000_000_000_000}

    return router


def language_code(name: str) -> str:
    """`EN-GB` -> `en`."""
    return name.partition("-")[0].lower()


def _check_settings(fields: TranslateFields) -> None:
    if fields.formality not in (None, "default", "prefer_more", "prefer_less"):
        raise Refusal(400, "Value for 'formality' not supported. Use default, prefer_more or prefer_less.")
    if fields.tag_handling not in (None, "html", "xml"):
        raise Refusal(400, "Value for 'tag_handling' not supported. Use html or xml.")
    if fields.glossary_id is not None:
        raise Refusal(400, "'glossary_id' is not supported.")
