"""Translated files until they are fetched: for a while, in bounded space, under names that nobody can guess."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import tempfile
import time
from pathlib import Path

from glassformer.serve.refusal import Refusal

__all__ = ["Downloads"]

KEEP_S = 600.0
MAX_BYTES = 256 * 1024 * 1024  # of all files; the oldest one makes room
NAME = re.compile(r"[0-9a-f]{32}\.[\w-]{1,80}\.[a-z]{1,5}")


class Downloads:
    """Files in a folder that only its owner can read.

    Args:
        folder: Of several processes together; unset: one of its own, which goes with it.
    """

    def __init__(self, folder: Path | None = None, *, keep_s: float = KEEP_S, max_bytes: int = MAX_BYTES) -> None:
        self._folder, self._keep_s, self._max_bytes = folder, keep_s, max_bytes
        self._own: tempfile.TemporaryDirectory[str] | None = None

    def keep(self, content: bytes, name: str, suffix: str) -> str:
        """Keeps a file; returns the name that it is found under, which ends as the file is called.

        Raises:
            Refusal: 503, there is no room.
        """
        stem = re.sub(r"[^\w-]+", "_", name).strip("_")[:60] or "document"
        stored = f"{secrets.token_hex(16)}.{stem}{suffix}"
        try:
            if self._folder is None:
                self._own = tempfile.TemporaryDirectory(prefix="glassformer-")
                self._folder = Path(self._own.name)
            self.clear_old(len(content))
            file = os.open(self._folder / stored, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "wb") as stream:
                stream.write(content)
        except OSError as error:
            raise Refusal(503, "The server has no room for translated files.", retry_after_s=60) from error
        return stored

    def read(self, stored: str) -> bytes:
        """The content of a file.

        Raises:
            Refusal: 404, there is none under this name, or not any more.
        """
        self.clear_old()
        if self._folder is not None and NAME.fullmatch(stored):
            try:
                return (self._folder / stored).read_bytes()
            except OSError:
                pass
        raise Refusal(404, f"There is no such file. A translated file is kept for {self._keep_s / 60:g} minutes.")

    def clear_old(self, n_bytes: int = 0) -> None:
        """Deletes files whose time is up, and the oldest ones where `n_bytes` more find no room."""
        if self._folder is None or not self._folder.is_dir():
            return
        files = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in self._folder.iterdir())
        n_bytes += sum(size for _, size, _ in files)
        for written, size, file in files:
            if written < time.time() - self._keep_s or n_bytes > self._max_bytes:
                file.unlink(missing_ok=True)
                n_bytes -= size

    def clear_later(self) -> None:
        """Deletes what is there now when its time is up, also if nobody comes any more."""
        asyncio.get_running_loop().call_later(self._keep_s + 1, self.clear_old)

    def close(self) -> None:
        """Deletes a folder of its own."""
        if self._own is not None:
            self._own.cleanup()
