"""What the measurements share: turns, rounds, medians, ratios, memory of a process, the machine, the file of results.

Every script runs its ways in turn, round by round, and compares within a round: what slows the machine down for a
while slows all of them. A result file is JSON, {"about": ..., "results": [one entry a case]}; `report.py` reads it.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")
LIBRARIES = (
    "torch",
    "transformers",
    "ctranslate2",
    "x-transformers",
    "sentence-transformers",
    "onnxruntime",
    "accelerate",
)
QUIET = 0.03  # share of the processors that others may take
SHORTEST_S = 0.5  # the system counts in hundredths of a second: of a shorter time nothing can be said


@dataclass(kw_only=True)
class Result:
    """The figures of one case: of each way, one for each round.

    Attributes:
        case: What was measured, such as {"size": "base", "batch": 8, "beam": 4}.
        unit: Of the figures.
        values: Way -> its figure in each round.
        ours: Which ways are the product's; the others are peers.
        is_less_better: Times and memory.
        notes: What else was seen.
        others: Share of the processors that other processes took meanwhile; above a few percent, measure again.
    """

    case: dict[str, Any]
    unit: str
    values: dict[str, list[float]]
    ours: list[str]
    is_less_better: bool = False
    notes: dict[str, Any] = field(default_factory=dict)
    others: float = 0.0

    def median(self, way: str) -> float:
        return statistics.median(self.values[way])

    def spread(self, way: str) -> float:
        """Half of the distance between the largest and the smallest figure, as a share of the median."""
        figures = self.values[way]
        return (max(figures) - min(figures)) / 2 / statistics.median(figures)

    def best_peer(self) -> str | None:
        peers = [way for way in self.values if way not in self.ours]
        best = min if self.is_less_better else max
        return best(peers, key=self.median) if peers else None

    def ratio(self, way: str, peer: str) -> float:
        """How many times as good as the peer: the median of the ratios of the rounds."""
        pairs = list(zip(self.values[way], self.values[peer], strict=True))
        return statistics.median(b / a if self.is_less_better else a / b for a, b in pairs)

    def line(self) -> str:
        """The case in one line; in brackets the ratio to the best peer."""
        peer = self.best_peer()
        parts = []
        for way in self.values:
            is_compared = way in self.ours and peer is not None
            ratio = f" ({self.ratio(way, peer):.2f})" if is_compared and peer else ""
            parts.append(f"{way} {number(self.median(way))}{ratio}")
        notes = "".join(f"; {name}: {note}" for name, note in self.notes.items())
        return f"{case_name(self.case)}, {self.unit}: {', '.join(parts)}{notes}{self.warning()}"

    def warning(self) -> str:
        """What to say where the machine was not alone."""
        return f"; OTHER PROCESSES TOOK {self.others:.0%}" if self.others > QUIET else ""


def case_name(case: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in case.items())


def number(value: float) -> str:
    """Three digits at least, and no more where there are none to trust."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def take_turns(ways: Mapping[str, Callable[[], T]], rounds: int) -> tuple[dict[str, list[float]], dict[str, T]]:
    """Runs each way once in every round; returns the seconds of each, and what came out of a first round to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    first: dict[str, T] = {}
    for turn in range(-1, rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            out = way()
            if turn < 0:
                first[name] = out
            else:
                seconds[name].append(time.perf_counter() - start)
    return seconds, first


def per_second(count: float, seconds: Mapping[str, list[float]]) -> dict[str, list[float]]:
    return {name: [count / s for s in values] for name, values in seconds.items()}


# -- memory ---------------------------------------------------------------------------------------------------------


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
        """Seconds of the clock, of all processors at work, and of this process with the children it waited for."""
        file = Path("/proc/stat")
        if not file.exists():
            return time.monotonic(), 0.0, 0.0
        user, nice, system, _, _, *rest = map(int, file.read_text(encoding="utf-8").split("\n")[0].split()[1:])
        busy = (user + nice + system + sum(rest[:3])) / os.sysconf("SC_CLK_TCK")  # rest: interrupts, what a host takes
        return time.monotonic(), busy, sum(os.times()[:4])


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


# -- what every script has ------------------------------------------------------------------------------------------


def parser_of(description: str | None, *, rounds: int = 3) -> argparse.ArgumentParser:
    """A parser with --rounds, --threads and --json."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    return parser


def report(results: Iterable[Result], path: Path | None, **more: Any) -> list[Result]:
    """Prints each result as it comes and writes all of them to a file; `more` is said about the machine."""
    content: dict[str, Any] = {"about": about() | more, "results": []}
    kept, company = [], Company()
    for result in results:
        result.others = round(company.share(), 3)
        print(result.line(), flush=True)
        kept.append(result)
        content["results"].append(asdict(result))
        if path is not None:  # after each: what was measured stays when the rest is broken off
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return kept


def load(path: Path) -> tuple[dict[str, Any], list[Result]]:
    """A file of results."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["about"], [Result(**entry) for entry in content["results"]]
