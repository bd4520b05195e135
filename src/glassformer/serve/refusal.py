"""What a client gets in place of an answer, in the form of its protocol."""

from __future__ import annotations

import math
from typing import Any

from fastapi.responses import JSONResponse

__all__ = ["Refusal", "refusal_of", "refused"]

# HTTP status -> the type of an OpenAI error.
_OPENAI_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
    504: "unavailable_error",
}


class Refusal(Exception):
    """A request that is not served.

    Args:
        status: HTTP status.
        message: For the client; never a path of this machine, never another client's text.
        param: The field that is wrong.
        code: A short name of the error for programs.
        retry_after_s: Seconds after which it is worth to ask again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_after_s = retry_after_s

    def body(self, path: str) -> dict[str, Any]:
        """The error as the protocol that owns `path` writes it."""
        if path.startswith("/v1/"):
            kind = _OPENAI_TYPES.get(self.status, "invalid_request_error")
            return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}
        return {"message" if path.startswith("/v2/") else "error": self.message}


def refused(path: str, refusal: Refusal) -> JSONResponse:
    """The response to a request for `path` that is refused."""
    headers = {}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(refusal.retry_after_s)))
    return JSONResponse(refusal.body(path), refusal.status, headers)


def refusal_of(error: Exception) -> Refusal:
    """What a client is told of an error that is not its fault: that there was one."""
    return Refusal(500, "The server failed to answer this request.", code=type(error).__name__)
