"""The server on several machines: a Ray Serve deployment whose replicas each hold the models.

    serve run glassformer.serve.ray_app:build models=runs/demo replicas=2

`models` is a list of folders or NAME=FOLDER, separated by commas; every machine finds them under the same path. All
other names are settings of `ServeConfig`, as its environment variables have them (`keys=/etc/keys`). Ray's proxy
listens; `host` and `port` are its own. Figures, rate limits and counts are those of one replica.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import typing
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi.responses import StreamingResponse
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from glassformer.config import ServeConfig
from glassformer.errors import UserError
from glassformer.serve.app import build_app
from glassformer.serve.models import names_of
from glassformer.serve.server import start_logging
from glassformer.serve.service import Service

__all__ = ["Replica", "build"]


class Replica:
    """One copy of the server, in a process of its own."""

    def __init__(self, config: ServeConfig, folders: dict[str, Path]) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        start_logging()
        self._service = Service(config)
        self._service.models.load(folders)
        self._service.is_ready = True
        self._app = build_app(self._service)

    async def __call__(self, request: Request) -> Response:
        """Hands a request to the application, and its answer back piece by piece."""
        messages: asyncio.Queue[Any] = asyncio.Queue()
        work = asyncio.ensure_future(self._app(request.scope, request.receive, messages.put))
        work.add_done_callback(lambda work: messages.put_nowait(None))  # the end, also where it failed
        begin = await messages.get()
        if begin is None:
            work.result()
            return Response(status_code=499)  # the client left
        answer = StreamingResponse(_body(messages, work), status_code=begin["status"])
        answer.raw_headers = list(begin["headers"])
        return answer

    def check_health(self) -> None:
        """Ray begins a replica anew when this raises."""
        dead = [name for name, model in self._service.models.all.items() if not model.batcher.is_alive]
        if dead:
            raise RuntimeError(f"the worker of {dead[0]} has ended")


async def _body(messages: asyncio.Queue[Any], work: asyncio.Future[None]) -> AsyncIterator[bytes]:
    try:
        while (message := await messages.get()) is not None:
            yield message.get("body", b"")
        work.result()
    finally:
        work.cancel()


def build(arguments: dict[str, str]) -> Any:
    """The application for `serve run` and for a Ray config file.

    Raises:
        UserError: A name is not known, or a folder holds no model.
    """
    given = dict(arguments)
    models, replicas = given.pop("models", ""), int(given.pop("replicas", 2))
    deployment = serve.deployment(num_replicas=replicas, max_ongoing_requests=1000)(Replica)
    return deployment.bind(_config(given), names_of([part for part in models.split(",") if part]))


def _config(given: dict[str, str]) -> ServeConfig:
    hints = typing.get_type_hints(ServeConfig)
    known = {field.name for field in dataclasses.fields(ServeConfig)} - {"port", "workers"}
    for name in set(given) - known:
        raise UserError(f"{name} is no setting.", f"One of {', '.join(sorted(known))} was expected.", "Check it.")
    # A file lies with the replica that translated it, where another one does not find it.
    values: dict[str, Any] = {"host": "0.0.0.0", "max_file_bytes": 0}
    for name, text in given.items():
        kinds = (hints[name], *typing.get_args(hints[name]))
        is_list = typing.get_origin(hints[name]) is tuple
        kind = str if is_list else next(kind for kind in (int, float, str) if kind in kinds)
        values[name] = tuple(text.split(",")) if is_list else kind(text)
    return ServeConfig(**values)
