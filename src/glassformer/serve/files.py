"""Files of LibreTranslate's protocol: /translate_file, /download_file."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import PurePath
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from glassformer.serve.detection import detect
from glassformer.serve.documents.formats import FORMATS, MEDIA_TYPES, Document
from glassformer.serve.fields import read_fields
from glassformer.serve.libretranslate import admission, check_directions
from glassformer.serve.refusal import Refusal
from glassformer.serve.service import Service, ignored_header, request_body
from glassformer.serve.translating import translate_passages

__all__ = ["build_router"]

MAX_AT_ONCE = 4  # documents that are held in memory
_HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Cache-Control": "no-store"}


class FileFields(BaseModel):
    """Fields of /translate_file, beside `file`."""

    source: str = Field(description="Code of its language, or auto.", max_length=40)
    target: str = Field(description="Code of the language to translate into.", max_length=40)
    api_key: str | None = Field(None, description="Key, where one is asked for.")


def build_router(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter()
    room = asyncio.Semaphore(MAX_AT_ONCE)
    off = Refusal(403, "Files translation are disabled on this server.")

    @router.post(
        "/translate_file",
        dependencies=[Depends(admission(service, takes_file=True))],
        openapi_extra=_with_file(request_body(FileFields, "multipart/form-data")),
    )
    async def translate_file(request: Request) -> JSONResponse:
        """Translate a document; the answer tells where it can be fetched for some minutes."""
        if not service.config.max_file_bytes:
            raise off
        raw = await read_fields(request, takes_form=True, takes_file=True)
        for name, value in (("file", raw.file), ("source", ...), ("target", ...)):
            if not (value if name == "file" else raw.values.get(name)):
                raise Refusal(400, f"Invalid request: missing {name} parameter", param=name)
        fields = raw.checked(FileFields)
        assert raw.file is not None
        name, content = raw.file
        path = PurePath(name.replace("\\", "/"))
        suffix, target = path.suffix.lower(), fields.target.lower()
        if suffix not in FORMATS:
            known = ", ".join(FORMATS)
            raise Refusal(400, f"Invalid request: file format not supported. There are: {known}", param="file")
        if len(content) > service.config.max_file_bytes:
            raise Refusal(413, f"The file is larger than {service.config.max_file_bytes} bytes.")
        if room.locked():
            raise Refusal(503, f"{MAX_AT_ONCE} documents are being translated already.", retry_after_s=10)
        async with room:
            document = await service.study.run(partial(FORMATS[suffix], content))
            made = await translated(service, document, fields.source.lower(), target)
        stored = await asyncio.to_thread(service.downloads.keep, made, f"{path.stem}_{target}", suffix)
        service.downloads.clear_later()
        url = request.url_for("download_file", name=stored)
        if request.headers.get("x-forwarded-proto") == "https":  # behind a proxy with TLS
            url = url.replace(scheme="https")
        return JSONResponse({"translatedFileUrl": str(url)}, headers=ignored_header(raw, FileFields))

    @router.get("/download_file/{name}")
    async def download_file(name: str) -> Response:
        """A translated document. Its name is what lets it be fetched."""
        if not service.config.max_file_bytes:
            raise off
        content = await asyncio.to_thread(service.downloads.read, name)
        shown = name.partition(".")[2]
        headers = _HEADERS | {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(shown)}"}
        return Response(content, media_type=MEDIA_TYPES[PurePath(shown).suffix], headers=headers)

    return router


async def translated(service: Service, document: Document, source: str, target: str) -> bytes:
    """A document in another language."""
    passages = document.passages
    n_chars = sum(len(passage.text) for passage in passages)
    if n_chars > service.config.max_chars:
        most = service.config.max_chars
        raise Refusal(400, f"Invalid request: request ({n_chars}) exceeds text limit ({most})", param="file")
    if source == "auto" and passages:
        text = "\n".join(passage.text for passage in passages)
        ((source, _), *_) = await asyncio.to_thread(detect, text, service.models.languages)
    check_directions(service, {source} if passages else set(), target)
    route = service.models.route(source, target) if passages and source != target else []
    return await service.study.run(partial(document.filled, await translate_passages(service, passages, route)))


def _with_file(description: dict[str, object]) -> dict[str, object]:
    """A description of fields, with the file."""
    schema = description["requestBody"]["content"]["multipart/form-data"]["schema"]  # type: ignore[index]
    schema["properties"]["file"] = {
        "type": "string",
        "format": "binary",
        "description": f"One of {', '.join(FORMATS)}.",
    }
    schema["required"].append("file")
    return description
