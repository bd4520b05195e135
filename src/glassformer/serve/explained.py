"""Requests that ask for an explanation (`X-Explain: 1`): their text is kept, so that the report can be made later."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fastapi import Request

from glassformer.config import GenerationConfig
from glassformer.errors import UserError
from glassformer.serve.models import ServedModel
from glassformer.serve.refusal import Refusal
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.translator import Translator

__all__ = ["MAX_KEPT", "ExplainLog", "read_request"]

MAX_KEPT = 10_000  # requests; the oldest one makes room
ID = re.compile(r"[0-9a-f]{32}")


class ExplainLog:
    """A folder with a file for each request, which only its owner can read. The ids cannot be guessed."""

    def __init__(self, folder: str | None) -> None:
        self._folder = Path(folder) if folder else None
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def is_asked(self, request: Request) -> bool:
        """Whether a request has the header.

        Raises:
            Refusal: 400, the server keeps nothing.
        """
        if request.headers.get("x-explain", "0") == "0":
            return False
        if self._folder is None:
            raise Refusal(400, "X-Explain: this server keeps no texts. Leave it out (or start it with --explain-log).")
        return True

    def keep(
        self, model: ServedModel, texts: Sequence[str], settings: GenerationConfig, limit: int | None, output: str
    ) -> dict[str, str]:
        """Writes down what a report needs; returns the header with the id.

        Raises:
            Refusal: 400, it is no single sentence, or a drawn continuation of a prompt, which cannot be made again.
        """
        assert self._folder is not None
        task, text = model.task, texts[0] if len(texts) == 1 else ""
        is_one = isinstance(task, TextGenerator) or (
            isinstance(task, Translator) and sum(map(len, task.segments(text))) == 1
        )
        if len(texts) != 1 or not text.strip() or not is_one:
            raise Refusal(400, "X-Explain: one text of one sentence is explained.")
        if settings.do_sample and isinstance(task, TextGenerator):
            raise Refusal(400, "X-Explain: what was drawn cannot be made again. Use temperature=0.")
        if model.path is None:
            raise Refusal(400, f"X-Explain: {model.name} has no folder.")
        content = {
            "time": round(time.time(), 3),
            "model": model.name,
            "folder": str(model.path.resolve()),
            "text": text,
            "target": output if settings.do_sample else None,  # the report follows what was drawn
            "generation": asdict(replace(settings, max_new_tokens=limit)),
        }
        name = secrets.token_hex(16)
        self._make_room(self._folder)
        file = os.open(self._folder / f"{name}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            json.dump(content, stream, ensure_ascii=False)
        return {"X-Explain-Id": name}

    def _make_room(self, folder: Path) -> None:
        files = list(folder.glob("*.json"))
        for old in sorted(files, key=lambda file: file.stat().st_mtime)[: max(0, len(files) - MAX_KEPT + 1)]:
            old.unlink(missing_ok=True)


def read_request(folder: Path, name: str) -> dict[str, Any]:
    """What was kept of a request.

    Raises:
        UserError: It is no id, or nothing is kept under it.
    """
    if not ID.fullmatch(name):
        raise UserError(f"{name[:80]!a} is no id of a request.", "32 hexadecimal digits were expected.", "Check it.")
    try:
        content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        content["generation"] = GenerationConfig(**content["generation"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"The request {name} cannot be read in {folder} ({type(error).__name__}).",
            "A file that the server wrote was expected.",
            "Check the id and --log.",
        ) from error
    return content
