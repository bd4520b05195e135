"""Reports of `explain`, each made by a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from glassformer.serve.refusal import Refusal

__all__ = ["MAX_REPORT_CHARS", "REFUSED", "Reports"]

REFUSED = 3  # exit status of a process whose text cannot be explained
MAX_REPORT_CHARS = 500  # of a text; a report has a number for every pair of tokens in every head
MAX_WAITING = 4  # most reports at a time


class Reports:
    """Makes one report at a time. The process ends when the client leaves, and gives way to the models' work."""

    def __init__(self) -> None:
        self._turn, self.n_waiting = asyncio.Semaphore(1), 0  # reports that are made or wait

    async def make(self, name: str, folder: Path, text: str, reference: str | None) -> bytes:
        """The report of a text, and of a reference that the search has left, as HTML.

        Raises:
            Refusal: 400 with the reason why the text cannot be explained; 503 when too many wait.
        """
        if self.n_waiting >= MAX_WAITING:
            raise Refusal(503, f"{MAX_WAITING} reports are being made already.", retry_after_s=10)
        self.n_waiting += 1
        try:
            async with self._turn:
                request = {"name": name, "folder": str(folder), "text": text, "reference": reference}
                return await _made(request)
        finally:
            self.n_waiting -= 1


async def _made(request: dict[str, str | None]) -> bytes:
    """Runs `report_process`; the text goes in by standard input, so that no list of processes shows it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "glassformer.serve.report_process",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip
    try:
        page, problem = await process.communicate(json.dumps(request).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return page
    if process.returncode == REFUSED:
        raise Refusal(400, problem.decode())
    raise RuntimeError(f"the report ended with status {process.returncode}")
