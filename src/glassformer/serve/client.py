"""A client of a running server, by the standard library alone, so that the command line is there at once."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

from glassformer.errors import UserError

__all__ = ["RemoteTranslator"]

MAX_TEXTS, MAX_CHARS = 64, 20_000  # of one request; a server's own limits are higher unless it was told otherwise
TRIES = 10  # while the server is busy or begins
MAX_WAIT_S = 60  # before a try, when the server asks for it


class RemoteTranslator:
    """Translates with a model of a server (`/v1/completions`).

    Args:
        url: Of the server, such as http://127.0.0.1:5000.
        model: Name of the model there.
        key: Where the server asks for one.
        timeout_s: Seconds to wait for an answer.
    """

    def __init__(self, url: str, model: str, *, key: str | None = None, timeout_s: float = 300.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise UserError(f"{url!r} is no address of a server.", "http://HOST:PORT was expected.", "Check --server.")
        self._url, self._model, self._timeout_s = url.rstrip("/"), model, timeout_s
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def translate(self, texts: Sequence[str], *, n_best: int = 1) -> list[list[str]]:
        """The n best translations of each text, by the model's own search; fewer where it finds no more.

        Raises:
            UserError: The server cannot be reached, refuses, in its own words, or answers something else.
        """
        return [found for part in _parts(texts) for found in self._ask(part, n_best)]

    def _ask(self, texts: list[str], n_best: int) -> list[list[str]]:
        answer = self._post("/v1/completions", {"model": self._model, "prompt": texts, "n": n_best})
        try:
            choices = {choice["index"]: choice["text"] for choice in answer["choices"]}
            found = [
                [choices[i] for i in range(n_best * place, n_best * (place + 1)) if i in choices]
                for place in range(len(texts))
            ]
            is_right = all(found) and all(isinstance(text, str) for text in choices.values())
        except (KeyError, TypeError, ValueError):
            is_right = False
        if not is_right:
            shown = json.dumps(answer)[:200]
            raise UserError(
                f"{self._url} answers what is no list of translations: {shown}",
                f"The choices of /v1/completions were expected, one or more for each of {len(texts)} texts.",
                "Check that --server is the address of a `glassformer serve`.",
            )
        return found

    def _post(self, path: str, content: dict[str, Any]) -> Any:
        request = urllib.request.Request(self._url + path, json.dumps(content).encode(), self._headers, method="POST")
        for n_left in reversed(range(TRIES)):
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                wait_s = error.headers.get("Retry-After", "")
                is_short = wait_s.isdecimal() and len(wait_s) < 4 and int(wait_s) <= MAX_WAIT_S
                if not (n_left and error.code in (429, 503) and is_short):
                    raise self._refused(error) from error
                error.close()
                time.sleep(int(wait_s))
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise UserError(
                    f"{self._url} cannot be used ({_reason(error)}).",
                    "A running `glassformer serve` was expected.",
                    "Check --server, or start one.",
                ) from error
        raise AssertionError("the last try raises")

    def _refused(self, error: urllib.error.HTTPError) -> UserError:
        """The server's own words."""
        with error:
            body = error.read(65_536).decode("utf-8", "replace")
        try:
            said = json.loads(body)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            said = body[:200]
        hint = "Give --key or GLASSFORMER_KEY." if error.code == 401 else "Change the request."
        return UserError(f"{self._url} answers {error.code}: {said}", "An answer was expected.", hint)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "its answer is no JSON"
    return str(getattr(error, "reason", error)) or type(error).__name__


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in requests of a modest size."""
    part: list[str] = []
    n_chars = 0
    for text in texts:
        if part and (len(part) == MAX_TEXTS or n_chars + len(text) > MAX_CHARS):
            yield part
            part, n_chars = [], 0
        part.append(text)
        n_chars += len(text)
    if part:
        yield part
