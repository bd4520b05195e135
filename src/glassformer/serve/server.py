"""The process: sockets, signals, logs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.config import ServeConfig
from glassformer.errors import UserError
from glassformer.serve.app import build_app
from glassformer.serve.service import Service

__all__ = ["deadline_protocol", "serve", "start_logging"]

# Longer than clients keep a connection that rests (httpx 5 s): else a request could meet its end.
KEEP_ALIVE_S = 75
LOGGER = logging.getLogger("glassformer.serve")
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def serve(
    config: ServeConfig,
    folders: dict[str, Path],
    listener: socket.socket | None = None,
    downloads: Path | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT; then takes no more connections and ends the requests that it has.

    Args:
        config: Where it listens, and what it bears.
        folders: The model folder of each name.
        listener: A socket that listens already; unset: made from the config.
        downloads: Folder of the translated files of all processes that share the socket.

    Raises:
        GlassformerError: A model cannot be loaded, or the keys cannot be read.
        UserError: The address cannot be listened on.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the cores belong to the matrix products
    start_logging()
    service = Service(config, downloads)
    failures: list[Exception] = []

    def on_failure(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    server = uvicorn.Server(
        uvicorn_config(build_app(service, lambda: service.models.load(folders), on_failure), config)
    )
    # uvicorn raises the signal once more when all is done; it has been obeyed by then.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        server.run(sockets=None if listener is None else [listener])
    except SystemExit as error:
        what = f"host={config.host} port={config.port} cannot be listened on."
        raise UserError(what, "A free port of this machine was expected.", "Choose another --port.") from error
    if failures:
        raise failures[0]


def uvicorn_config(app: Any, config: ServeConfig) -> uvicorn.Config:
    """How uvicorn is run."""
    return uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        http=deadline_protocol(config.read_timeout_s),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=config.max_connections,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(config.drain_s) or 1,
        h11_max_incomplete_event_size=16_384,
    )


def deadline_protocol(seconds: float) -> type[H11Protocol]:
    """An HTTP protocol that closes a connection which has not sent a request's headers within `seconds`.

    uvicorn's own clock starts again with every byte, so a client that sends one now and then would never be cut off.
    Between two requests a connection may rest, for as long as uvicorn lets it.
    """

    class DeadlineProtocol(H11Protocol):
        deadline: asyncio.TimerHandle | None = None
        is_resting = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.start_clock()

        def connection_lost(self, exc: Exception | None) -> None:
            self.stop_clock()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.is_resting:
                self.is_resting = False
                self.start_clock()
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self.stop_clock()

        def on_response_complete(self) -> None:
            self.stop_clock()
            self.is_resting = True
            super().on_response_complete()

        def start_clock(self) -> None:
            self.stop_clock()
            self.deadline = self.loop.call_later(seconds, self.transport.abort)

        def stop_clock(self) -> None:
            if self.deadline is not None:
                self.deadline.cancel()
                self.deadline = None

    return DeadlineProtocol


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event, and what was given as extra."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        content = {"time": f"{moment}.{int(record.msecs):03}Z", "level": record.levelname.lower()}
        content["event"] = record.getMessage()
        content |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        return json.dumps(content, ensure_ascii=True, default=str)


def start_logging() -> None:
    """Sends the logs of the server, and uvicorn's warnings, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name, level in (("glassformer.serve", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
