"""The application: every protocol on one service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from glassformer import __version__
from glassformer.errors import UserError
from glassformer.serve import deepl, files, libretranslate, native, openai, operations, pages
from glassformer.serve.guard import Guard
from glassformer.serve.refusal import Refusal, refused
from glassformer.serve.service import Service

__all__ = ["build_app"]

LOGGER = logging.getLogger("glassformer.serve")


def build_app(
    service: Service,
    load: Callable[[], None] = lambda: None,
    on_failure: Callable[[Exception], None] = lambda error: None,
) -> FastAPI:
    """Builds the application.

    Args:
        service: Models, limits and figures.
        load: Loads the models; run in a thread when the application starts, while it answers already.
        on_failure: Called when that fails.
    """

    async def start() -> None:
        try:
            await asyncio.to_thread(load)
            service.is_ready = True
            LOGGER.info("ready", extra={"models": sorted(service.models.all)})
        except Exception as error:
            on_failure(error)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.ensure_future(start())
        yield
        loading.cancel()
        service.close()

    app = FastAPI(
        title="glassformer", version=__version__, openapi_url="/spec", docs_url=None, redoc_url=None, lifespan=lifespan
    )
    for protocol in (operations, libretranslate, files, deepl, openai, native):
        app.include_router(protocol.build_router(service))
    app.include_router(pages.build_router())
    app.add_exception_handler(Refusal, _on_refusal)
    app.add_exception_handler(UserError, _on_user_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_middleware(Guard, config=service.config, metrics=service.metrics)
    if service.config.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.config.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            max_age=1_728_000,
        )
    return app


async def _on_refusal(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refusal)
    return refused(request.url.path, error)


async def _on_user_error(request: Request, error: Exception) -> JSONResponse:
    """A setting or a text that the model does not take: the message says which, and what it takes."""
    return refused(request.url.path, Refusal(400, str(error), code="invalid_value"))


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    """Unknown paths, wrong methods and unreadable forms."""
    assert isinstance(error, HTTPException)
    response = refused(request.url.path, Refusal(error.status_code, f"{error.detail}."))
    response.headers.update(error.headers or {})
    return response
