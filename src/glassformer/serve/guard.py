"""What stands around every request: who is addressed, how large, how long, whether the client is still there."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from glassformer.config import ServeConfig
from glassformer.serve.metrics import Metrics
from glassformer.serve.refusal import Refusal, refusal_of, refused

__all__ = ["Guard", "allowed_hosts"]

LOGGER = logging.getLogger("glassformer.serve")
FORM_BYTES = 16_384  # of a form around a file
LOOPBACK = ("127.0.0.1", "localhost", "::1")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Guard:
    """ASGI middleware. The body is read whole before the application sees the request, within its limits of bytes and
    time; the application's task is cancelled when the client leaves or the time is up; every request is counted and
    logged, without its texts, its query string, its key and its address."""

    def __init__(self, app: App, config: ServeConfig, metrics: Metrics) -> None:
        self._app, self._config, self._metrics = app, config, metrics
        self._hosts = allowed_hosts(config)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, answer = time.monotonic(), _Answer(send)
        self._metrics.active.inc()
        try:
            await self._serve(scope, receive, answer)
        finally:
            self._metrics.active.dec()
            self._note(scope, answer, time.monotonic() - started)

    async def _serve(self, scope: MutableMapping[str, Any], receive: Receive, answer: _Answer) -> None:
        try:
            headers = dict(scope["headers"])
            self._check_host(headers.get(b"host", b""))
            body = await self._body(headers, receive, self._most_bytes(scope["path"]))
            if body is not None:
                await self._run(scope, body, receive, answer)
        except Refusal as refusal:
            await self._refuse(scope, receive, answer, refusal)
        except Exception as error:
            self._log_failure(answer, error)
            await self._refuse(scope, receive, answer, refusal_of(error))

    def _check_host(self, host: bytes) -> None:
        name = host.decode("latin-1").lower()
        name = name[1 : name.find("]")] if name.startswith("[") else name.partition(":")[0]
        if self._hosts is not None and name not in self._hosts:
            raise Refusal(421, "This server does not go by that Host name.")

    def _most_bytes(self, path: str) -> int:
        """Bytes of a body that are taken."""
        most_of_file = self._config.max_file_bytes + FORM_BYTES if path == "/translate_file" else 0
        return max(self._config.max_body_bytes, most_of_file)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive, limit: int) -> bytes | None:
        """The body; None when the client left before its end."""
        length = headers.get(b"content-length", b"0")
        too_large = Refusal(413, f"The body is larger than {limit} bytes.")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refusal(415, "A compressed body is not read. Send it as it is.")
        if not length.isdigit():
            raise Refusal(400, "Content-Length is no number.")
        if len(length) > 18 or int(length) > limit:
            raise too_large
        end, body, is_last = time.monotonic() + self._config.read_timeout_s, bytearray(), False
        while not is_last:
            try:
                message = await asyncio.wait_for(receive(), end - time.monotonic())
            except (asyncio.TimeoutError, TimeoutError):
                raise Refusal(408, f"The body did not arrive within {self._config.read_timeout_s:g} seconds.") from None
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > limit:
                raise too_large
            is_last = not message.get("more_body", False)
        return bytes(body)

    async def _run(self, scope: MutableMapping[str, Any], body: bytes, receive: Receive, answer: _Answer) -> None:
        """Runs the application until it is done, the client leaves, or the time is up."""
        messages: asyncio.Queue[Message] = asyncio.Queue()
        messages.put_nowait({"type": "http.request", "body": body, "more_body": False})
        work = asyncio.ensure_future(self._app(scope, messages.get, answer.send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({work, leaving}, timeout=self._config.timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            elif leaving.done():
                answer.status = 499
                self._metrics.abandoned.inc()
            else:
                raise Refusal(504, f"The answer took longer than {self._config.timeout_s:g} seconds.")
        finally:
            await _ended(work, leaving)

    async def _refuse(
        self, scope: MutableMapping[str, Any], receive: Receive, answer: _Answer, refusal: Refusal
    ) -> None:
        """Sends the refusal. The connection closes, since the body may not have been read."""
        if answer.status is not None:  # it has begun: only its end can tell that something is wrong
            raise ConnectionAbortedError("the answer was cut short")
        response = refused(scope["path"], refusal)
        response.headers["Connection"] = "close"
        await response(scope, receive, answer.send)

    def _note(self, scope: MutableMapping[str, Any], answer: _Answer, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.requests.labels(route, answer.status or 0).inc()
        self._metrics.latency.labels(route).observe(seconds)
        LOGGER.info(
            "request",
            extra={"id": answer.id, "route": route, "method": scope["method"], "status": answer.status or 0}
            | {"ms": round(1000 * seconds, 1)},
        )

    def _log_failure(self, answer: _Answer, error: Exception) -> None:
        """The kind of the error and where it was, without its message, which may hold a client's text."""
        places = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
        LOGGER.error("failure", extra={"id": answer.id, "error": type(error).__name__, "at": places[-8:]})


class _Answer:
    """Sends a response, with the request's id, and remembers its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.id = secrets.token_hex(8)
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.id.encode())]
        await self._send(message)


async def _left(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ended(*tasks: asyncio.Future[None]) -> None:
    """Cancels tasks, and waits until they have cleaned up."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def allowed_hosts(config: ServeConfig) -> frozenset[str] | None:
    """Host names that requests may be addressed to; None: any."""
    if config.hosts:
        return frozenset(name.lower() for name in config.hosts) | set(LOOPBACK)
    return frozenset(LOOPBACK) if config.host in LOOPBACK else None
