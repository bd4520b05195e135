"""What the measurements share: turns, rounds, medians, ratios, a process for each way, the file of results.

Every script runs its ways in turn, round by round, and compares within a round: what slows the machine down for a
while slows all of them. Each way of each round has a process of its own (`apart`). A result file is JSON,
{"about": ..., "results": [one entry a case]}; `report.py` reads it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from machine import Company, about

T = TypeVar("T")
LEAST_S = 1.0  # of a measurement: shorter ones hang on one moment
QUIET = 0.03  # share of the processors that others may take


@dataclass(kw_only=True)
class Result:
    """The figures of one case: of each way, one for each round.

    Attributes:
        case: What was measured, such as {"size": "base", "batch": 8, "beam": 4}.
        unit: Of the figures.
        values: Way -> its figure in each round.
        ours: Which ways are the product's; the others are peers.
        is_less_better: Times and memory.
        bounds: Ways that are neither: what the machine would allow.
        digests: Way -> the digest of what came out, for those ways that should all give the same.
        notes: What else was seen.
        others: Share of the processors that other processes took meanwhile; above a few percent, measure again.
    """

    case: dict[str, Any]
    unit: str
    values: dict[str, list[float]]
    ours: list[str]
    is_less_better: bool = False
    bounds: list[str] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    others: float = 0.0

    def name(self) -> str:
        return f"{case_name(self.case)}, {self.unit}"

    def median(self, way: str) -> float:
        return statistics.median(self.values[way])

    def spread(self, way: str) -> float:
        """Half of the distance between the largest and the smallest figure, as a share of the median."""
        figures = self.values[way]
        return (max(figures) - min(figures)) / 2 / statistics.median(figures)

    def best_peer(self) -> str | None:
        """None where there is none; one that gave something else than it should is not compared."""
        return self._best(set(self.values) - {*self.ours, *self.bounds, *self.different()})

    def best_of_ours(self) -> str | None:
        return self._best(set(self.ours) - set(self.different()))

    def _best(self, ways: set[str]) -> str | None:
        best = min if self.is_less_better else max
        return best((way for way in self.values if way in ways), key=self.median, default=None)

    def different(self) -> list[str]:
        """The ways that gave something else than the first of those that should all give the same."""
        expected = next(iter(self.digests.values()), None)
        return [way for way, digest in self.digests.items() if digest != expected]

    def ratio(self, way: str, peer: str) -> float:
        """How many times as good as the peer: the median of the ratios of the rounds."""
        pairs = list(zip(self.values[way], self.values[peer], strict=True))
        return statistics.median(b / a if self.is_less_better else a / b for a, b in pairs)

    def line(self) -> str:
        """The case in one line; in brackets the ratio to the best peer."""
        peer = self.best_peer()
        parts = []
        for way in self.values:
            ratio = f" ({self.ratio(way, peer):.2f})" if peer is not None and way in self.ours else ""
            parts.append(f"{way} {number(self.median(way))}{ratio}")
        return "; ".join([f"{self.name()}: {', '.join(parts)}", *self.remarks()])

    def remarks(self) -> list[str]:
        """What else was seen, whose output was another, and whether the machine was alone."""
        remarks = [f"{name}: {note}" for name, note in self.notes.items()]
        if self.different():
            remarks.append(f"other output, so not compared: {', '.join(self.different())}")
        if self.others > QUIET:
            remarks.append(f"OTHER PROCESSES TOOK {self.others:.0%} OF THE PROCESSORS")
        return remarks

    def add(self, other: Result) -> None:
        """Takes up the same case of another way or another round."""
        for way, figures in other.values.items():
            self.values.setdefault(way, []).extend(figures)
        for names, more in ((self.ours, other.ours), (self.bounds, other.bounds)):
            names += [way for way in more if way not in names]
        self.notes |= other.notes
        self.digests |= other.digests
        self.others = max(self.others, other.others)


def case_name(case: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in case.items())


def number(value: float) -> str:
    """Three digits at least, and no more where there are none to trust."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def take_turns(
    ways: Mapping[str, Callable[[], T]], rounds: int, *, is_warm: bool = False
) -> tuple[dict[str, list[float]], dict[str, T]]:
    """Runs each way in every round, again and again for LEAST_S; returns the seconds of one run of each, and what
    came out first.

    A round to warm up comes before, and is not counted, unless the caller has done that.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    first: dict[str, T] = {}
    for turn in range(0 if is_warm else -1, rounds):
        for name, way in ways.items():
            start, n_runs = time.perf_counter(), 0
            while n_runs == 0 or (turn >= 0 and time.perf_counter() - start < LEAST_S):
                out = way()
                n_runs += 1
            if turn >= 0:
                seconds[name].append((time.perf_counter() - start) / n_runs)
            first.setdefault(name, out)
    return seconds, first


def digest(out: object) -> str:
    """A short name of what came out (anything that JSON can say): the same for the same."""
    return hashlib.sha256(json.dumps(out).encode()).hexdigest()[:16]


def per_second(count: float, seconds: Mapping[str, list[float]]) -> dict[str, list[float]]:
    return {name: [count / s for s in values] for name, values in seconds.items()}


# -- what every script has ------------------------------------------------------------------------------------------


def parser_of(description: str | None, *, rounds: int = 3) -> argparse.ArgumentParser:
    """A parser with --rounds, --threads and --json."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    return parser


def add_ways(parser: argparse.ArgumentParser, ways: Sequence[str], default: Sequence[str]) -> None:
    """The options of a script that `run`s."""
    parser.add_argument("--ways", nargs="*", choices=ways, default=list(default))
    parser.add_argument("--together", action="store_true", help="all ways in one process, in turn")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)  # this is the process of one way; it lies there


def run(
    options: argparse.Namespace,
    prepare: Callable[[Path], None],
    measure: Callable[[Path], Iterable[Result]],
    parts: Sequence[Sequence[str]] = ((),),
) -> None:
    """Measures and reports, each way of each round in a process of its own, or all in this one.

    Args:
        options: Those of `parser_of` and `add_ways`.
        prepare: Writes the models of all ways into a folder, once.
        measure: The cases of the ways in the options, from that folder.
        parts: Options that choose a part of the cases, for each part: its rounds are done before the next one's.
    """
    if options.work is not None:
        report(measure(options.work), options.json)
        return
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        prepare(work)
        report(measure(work) if options.together else apart(options, work, parts), options.json)


def apart(options: argparse.Namespace, work: Path, parts: Sequence[Sequence[str]]) -> Iterator[Result]:
    """Runs the script anew for each way of each round; after a round come its cases, with all rounds so far.

    Threads that wait by spinning, as those of CTranslate2 do, take from the way that comes next in the same process,
    and so may what a way has told the allocator.
    """
    file = work / "one.json"
    for part in parts:
        found: dict[str, Result] = {}
        for _ in range(options.rounds):
            for way in options.ways:
                one = ["--ways", way, "--rounds", "1", "--work", str(work), "--json", str(file)]
                subprocess.run([sys.executable, *sys.argv, *part, *one], check=True, stdout=subprocess.DEVNULL)
                for result in load(file)[1]:
                    if (kept := found.setdefault(result.name(), result)) is not result:
                        kept.add(result)
            yield from found.values()


def report(results: Iterable[Result], path: Path | None, **more: Any) -> list[Result]:
    """Prints each result as it comes and writes all of them to a file; `more` is said about the machine.

    A case that comes again takes the place of what it was.
    """
    said = about() | more
    kept: dict[str, Result] = {}
    company = Company()
    for result in results:
        result.others = max(result.others, round(company.share(), 3))
        print(result.line(), flush=True)
        kept[result.name()] = result
        if path is not None:  # after each: what was measured stays when the rest is broken off
            content = {"about": said, "results": [asdict(result) for result in kept.values()]}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return list(kept.values())


def load(path: Path) -> tuple[dict[str, Any], list[Result]]:
    """A file of results."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["about"], [Result(**entry) for entry in content["results"]]
