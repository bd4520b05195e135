"""The machine: memory of a process, speed of matrix products, what others take, its name and what is installed."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import torch

LIBRARIES = (
    "torch",
    "transformers",
    "ctranslate2",
    "x-transformers",
    "sentence-transformers",
    "onnxruntime",
    "accelerate",
)
SHORTEST_S = 0.5  # the system counts in hundredths of a second: of a shorter time nothing can be said


def memory_mib(kind: str) -> float:
    """What this process holds in memory, mapped files included: now (`VmRSS`) or at most so far (`VmHWM`); Linux."""
    # Not ru_maxrss: a process started by vfork begins with that of its parent.
    found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1]) / 1024


@contextmanager
def memory_of(library: str) -> Iterator[None]:
    """Prints as JSON what a block takes at most beyond what is held once the library is imported.

    All of these processes import torch for the bench's own sake; so a peer that does without is not charged for it.
    """
    importlib.import_module(library)
    before = memory_mib("VmRSS")
    yield
    print(json.dumps({"mib": memory_mib("VmHWM") - before}))


def alone(script: str, *arguments: object) -> dict[str, Any]:
    """What a script prints as JSON in its last line, run in a process of its own."""
    command = [sys.executable, script, *map(str, arguments)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


# -- the machine ----------------------------------------------------------------------------------------------------


def matrix_rate(rows: int, width_in: int, width_out: int, dtype: torch.dtype, *, seconds: float = 0.3) -> float:
    """FLOP/s of the product [rows, width_in] x [width_in, width_out], the median over a time."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(rows, width_in, device=device, dtype=dtype)
    weight = torch.randn(width_out, width_in, device=device, dtype=dtype)
    times: list[float] = []
    with torch.no_grad():
        torch.nn.functional.linear(x, weight)
        synchronize()
        while sum(times) < seconds:
            start = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            synchronize()
            times.append(time.perf_counter() - start)
    return 2 * rows * width_in * width_out / statistics.median(times)


def synchronize() -> None:
    """Waits for an accelerator, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def cpu_seconds(pid: int) -> float:
    """Processor time so far of a process, of the children it waited for, and of those that run; Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, map(int, children)))


class Company:
    """How much of the machine other processes take (Linux; 0 elsewhere)."""

    def __init__(self) -> None:
        self._last = self._now()

    def share(self) -> float:
        """Share of the processors' time since the last call that neither this process nor its children took."""
        last, self._last = self._last, self._now()
        wall, busy, own = (now - then for now, then in zip(self._last, last, strict=True))
        if wall < SHORTEST_S:
            return 0.0
        return max(0.0, busy - own) / (wall * (os.cpu_count() or 1))

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Seconds of the clock, of all processors at work, and of this process with its children."""
        file = Path("/proc/stat")
        if not file.exists():
            return time.monotonic(), 0.0, 0.0
        user, nice, system, _, _, *rest = map(int, file.read_text(encoding="utf-8").split("\n")[0].split()[1:])
        busy = (user + nice + system + sum(rest[:3])) / os.sysconf("SC_CLK_TCK")  # rest: interrupts, what a host takes
        return time.monotonic(), busy, cpu_seconds(os.getpid())


def about() -> dict[str, Any]:
    """Machine, versions, command and date. Paths outside the working folder are cut to their last part."""
    return {
        "date": date.today().isoformat(),
        "command": shlex.join(["python", *(plain_path(part) for part in sys.argv)]),
        "machine": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": versions(),
    }


def plain_path(text: str) -> str:
    return Path(text).name if text.startswith("/") else text


def processor() -> str:
    """Its name, with the instructions that matter here."""
    file = Path("/proc/cpuinfo")
    content = file.read_text(encoding="utf-8") if file.exists() else ""
    name = re.search(r"model name\s*: (.*)", content)
    flags = [
        flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8") if flag in content
    ]
    return f"{name[1] if name else platform.processor()} ({' '.join(flags)})"


def versions() -> dict[str, str]:
    installed = {}
    for name in LIBRARIES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed
