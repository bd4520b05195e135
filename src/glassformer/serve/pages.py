"""The page at `/`: plain files of this package, read once."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response

from glassformer.serve.refusal import Refusal

__all__ = ["REPORT_POLICY", "build_router"]

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

# A report runs its own script and style, reaches nothing, and is no page of this origin: `frame.html` takes it in.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "frame-ancestors 'self'"
)


def build_router() -> APIRouter:
    """`/` and the files that it asks for. None needs a key: they hold nothing of the server's."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def index(request: Request) -> Response:
        return _file(request, "index.html")

    @router.get("/page/{name}")
    async def file(request: Request, name: str) -> Response:
        return _file(request, name)

    return router


@cache
def _files() -> dict[str, bytes]:
    folder = files("glassformer.serve") / "page"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in TYPES}


def _file(request: Request, name: str) -> Response:
    """A file; 304 where the browser has this version of it."""
    if name not in _files():
        raise Refusal(404, "Not Found.")
    content = _files()[name]
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {
        "Content-Security-Policy": REPORT_POLICY if name == "frame.html" else POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",  # keep it, and ask whether it is still the same
        "ETag": tag,
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=TYPES[name.rpartition(".")[2]], headers=headers)
