"""What a request may ask for, and who may ask."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from fastapi import Request

from glassformer.config import ServeConfig
from glassformer.errors import UserError
from glassformer.serve.refusal import Refusal

__all__ = ["Keys", "RateLimit", "bearer", "check_texts"]

MAX_CLIENTS = 10_000  # whose requests are counted; the one that was quiet longest is forgotten


def check_texts(config: ServeConfig, texts: Sequence[str], *, status: int, param: str) -> None:
    """Refuses more texts, or more characters in all, than the server takes."""
    if len(texts) > config.max_items:
        raise Refusal(
            status,
            f"Invalid request: {param} has {len(texts)} texts; at most {config.max_items} are taken.",
            param=param,
        )
    n_chars = sum(map(len, texts))
    if n_chars > config.max_chars:
        raise Refusal(
            status, f"Invalid request: request ({n_chars}) exceeds text limit ({config.max_chars})", param=param
        )


class Keys:
    """The API keys; `bool(keys)` says whether one is asked for."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key.encode() for key in keys]

    @classmethod
    def load(cls, path: str | None) -> Keys:
        """Reads one key a line; raises UserError when there is none, which would leave the door open."""
        if path is None:
            return cls([])
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise UserError(f"keys={path} cannot be read.", "A UTF-8 text file was expected.", "Check it.") from error
        keys = [line.strip() for line in lines if line.strip()]
        if not keys:
            raise UserError(f"keys={path} holds no key.", "One key a line was expected.", "Add one, or unset keys.")
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def allow(self, given: str | None) -> bool:
        """Whether a key is right; takes as long for any key."""
        if not self._keys:
            return True
        candidate = (given or "").encode("utf-8", "surrogateescape")
        matches = [hmac.compare_digest(candidate, key) for key in self._keys]  # all of them, whichever is right
        return any(matches)


class RateLimit:
    """At most `rate` requests a minute of one client, refilled steadily; a client may use a minute's worth at once."""

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client -> (requests left, when)

    def take(self, client: str) -> None:
        """Counts a request; raises Refusal 429."""
        if not self._rate:
            return
        now, full = self._clock(), float(self._rate)
        left, then = self._clients.pop(client, (full, now))
        left = min(full, left + (now - then) * self._rate / 60)
        is_right = left >= 1
        self._clients[client] = (left - is_right, now)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
        if not is_right:
            wait_s = (1 - left) * 60 / self._rate
            raise Refusal(429, f"Slowdown: {self._rate} per 1 minute", code="rate_limit", retry_after_s=wait_s)


def bearer(request: Request, scheme: str = "Bearer") -> str | None:
    """The credentials of an Authorization header of this scheme."""
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    return value if kind.lower() == scheme.lower() and value else None
