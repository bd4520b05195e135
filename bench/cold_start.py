"""Wall time of `glassformer translate MODEL "Hello"` from the start of the process, and where it goes.

    python bench/cold_start.py [MODEL] [--rounds 10]

Without MODEL, one of the `small` size with random weights is made. The notes have the modules whose own import takes
longest (`python -X importtime`), and how much of the imports torch is, with all that it imports.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import measuring
import models
from measuring import Result

TEXT = "Hello"
N_SHOWN = 12


def command_of(model: Path, *, options: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, *options, "-m", "glassformer", "translate", str(model), TEXT]


def environment(n_threads: int) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": str(n_threads)}


def wall_s(model: Path, n_threads: int) -> float:
    start = time.perf_counter()
    subprocess.run(command_of(model), check=True, stdout=subprocess.DEVNULL, env=environment(n_threads))
    return time.perf_counter() - start


def import_times(model: Path, n_threads: int) -> list[tuple[str, float, float]]:
    """(module, its own ms, ms with all that it imports), the longest own time first."""
    command = command_of(model, options=("-X", "importtime"))
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment(n_threads)).stderr
    return parsed(out)


def parsed(output: str) -> list[tuple[str, float, float]]:
    """The lines of -X importtime, `import time: own us | cumulative us | module`."""
    lines = re.findall(r"^import time:\s+(\d+) \|\s+(\d+) \|\s+(\S+)$", output, re.MULTILINE)
    times = [(name, int(own) / 1000, int(both) / 1000) for own, both, name in lines]
    return sorted(times, key=lambda entry: -entry[1])


def measure(model: Path, rounds: int, n_threads: int) -> Iterator[Result]:
    wall_s(model, n_threads)  # brings the files into memory
    seconds = [wall_s(model, n_threads) for _ in range(rounds)]
    times = import_times(model, n_threads)
    torch_ms = max((both for name, _, both in times if name == "torch"), default=0.0)
    notes = {
        "torch with its imports, ms, under -X importtime": f"{torch_ms:,.0f}",
        "own imports, ms": ", ".join(f"{name} {own:.0f}" for name, own, _ in times[:N_SHOWN]),
        "slowest, s": f"{max(seconds):.2f}",
    }
    yield Result(
        case={"command": f'glassformer translate MODEL "{TEXT}"', "model": model.name},
        unit="s from the start of the process",
        values={"glassformer": seconds},
        ours=["glassformer"],
        is_less_better=True,
        notes=notes,
    )


def main() -> None:
    parser = measuring.parser_of(__doc__, rounds=10)
    parser.add_argument("model", type=Path, nargs="?")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        model = options.model
        if model is None:
            model = Path(work) / models.OURS
            models.write(models.random_folder(models.model_config("small")), Path(work), {models.OURS})
        measuring.report(measure(model, options.rounds, options.threads), options.json)


if __name__ == "__main__":
    main()
