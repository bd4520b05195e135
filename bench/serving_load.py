r"""Many clients for a long time: every answer is compared with the offline one, and the memory is watched.

The texts are the rows, one to eight of them together. Of several models each request asks one at random. One that
copies its source makes an answer that was mixed up easy to see:

    glassformer phrasebook --out runs/phrasebook
    awk -F '\t' '{ print $1 FS $1 }' runs/phrasebook/train.tsv > runs/copy.tsv
    glassformer train runs/copy.tsv --src la --tgt eo --preset tiny --budget 3m --out runs/copy

Exit status 1: an answer was wrong or lost, or the median of the memory in the last quarter of the time is more than 5 %
above that in the second. (In the first the queue fills; then it moves up and down with what is at work.)

python bench/serving_load.py MODEL ROWS.tsv [MODEL ROWS.tsv ...] [--clients 64] [--seconds 600]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import httpx
import numpy as np
from machine import cpu_seconds
from serving import free_port, ready

from glassformer.serve.models import direction_of
from glassformer.tasks import Translator
from glassformer.tasks.model_folder import load_model_folder

MAX_GROWTH = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL ROWS.tsv")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600)
    given = parser.parse_args()
    if len(given.models) % 2:
        parser.error("each MODEL needs its ROWS.tsv")
    questions = [Questions.read(*pair) for pair in zip(given.models[::2], given.models[1::2], strict=True)]
    sys.exit(asyncio.run(load(questions, given.clients, given.seconds)))


@dataclass(frozen=True)
class Questions:
    """What is asked of one model."""

    model: str
    direction: tuple[str, str]
    texts: list[str]
    n_sentences: list[int]  # of each text
    expected: list[str]

    @classmethod
    def read(cls, model: str, rows: str) -> Questions:
        """Texts of one to eight of the first 1,000 rows, most of them short, and what is made of them offline."""
        lines = Path(rows).read_text(encoding="utf-8").splitlines()[:1000]
        rng, rest = random.Random(0), (line.split("\t")[0] for line in lines if line.strip())
        parts = list(iter(lambda: list(islice(rest, rng.choice([1, 1, 1, 2, 3, 8]))), []))
        texts = [(" " if number % 2 else "\n").join(part) for number, part in enumerate(parts)]
        folder = load_model_folder(model)
        direction = direction_of(folder)
        assert direction is not None, "translators are asked"
        expected = [translation.text for translation in Translator.of(folder).translate(texts)]
        copied = sum(text == found for text, found in zip(texts, expected, strict=True))
        print(f"{model}: {len(texts)} texts, of which it copies {copied}", flush=True)
        return cls(model, direction, texts, list(map(len, parts)), expected)


async def load(questions: list[Questions], n_clients: int, seconds: float) -> int:
    """Clients of three kinds: one text, a few at once, and one in ten who leaves before the answer."""
    port = free_port()
    models = [f"{number}={asked.model}" for number, asked in enumerate(questions)]
    process = subprocess.Popen(
        [sys.executable, "-m", "glassformer", "serve", *models, "--port", str(port), "--threads", "1"],
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    latencies: defaultdict[str, list[float]] = defaultdict(list)
    sizes: list[int] = []
    limits = httpx.Limits(max_connections=n_clients)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=600) as client:
            await ready(client)
            start, processor = time.monotonic(), cpu_seconds(process.pid)
            end = start + seconds

            async def one_client(number: int) -> None:
                rng = random.Random(number)
                while time.monotonic() < end:
                    asked = rng.choice(questions)
                    count = counts[asked.model]
                    rows = rng.sample(range(len(asked.texts)), rng.choice([1, 1, 1, 5]))
                    leaves = rng.random() < 0.1
                    source, target = asked.direction
                    fields = {"q": [asked.texts[i] for i in rows], "source": source, "target": target}
                    begin = time.perf_counter()
                    try:
                        answer = await client.post("/translate", json=fields, timeout=0.2 if leaves else 600)
                    except httpx.TimeoutException:
                        count["left" if leaves else "lost"] += 1
                        continue
                    except httpx.TransportError:
                        count["lost"] += 1
                        continue
                    latencies[asked.model].append(time.perf_counter() - begin)
                    is_right = answer.json().get("translatedText") == [asked.expected[i] for i in rows]
                    count["right" if is_right else f"wrong ({answer.status_code})"] += 1
                    count["texts"] += len(rows)
                    count["sentences"] += sum(asked.n_sentences[i] for i in rows)

            async def watch() -> None:
                while time.monotonic() < end:
                    await asyncio.sleep(seconds / 20)
                    sizes.append(resident_mib(process.pid))

            await asyncio.gather(watch(), *(one_client(number) for number in range(n_clients)))
            seconds, processor = time.monotonic() - start, cpu_seconds(process.pid) - processor
    finally:
        process.terminate()
        status = process.wait(60)
    quarter = max(1, len(sizes) // 4)
    growth = statistics.median(sizes[-quarter:]) / statistics.median(sizes[quarter : 2 * quarter] or sizes) - 1
    n_wrong = sum(n for count in counts.values() for name, n in count.items() if name.startswith(("wrong", "lost")))
    for model, count in counts.items():
        tell(model, count, latencies[model], seconds)
    if len(questions) > 1:
        tell("all", sum(counts.values(), Counter()), [value for part in latencies.values() for value in part], seconds)
    print(f"{n_wrong} answers wrong or lost; exit status of the server {status}")
    print(f"{seconds:.0f} s; {processor:.0f} s of processor time for the server")
    print(f"memory {growth:+.1%}; resident MiB at each twentieth of the time:", *sizes)
    return int(bool(n_wrong or growth > MAX_GROWTH or status))


def tell(name: str, count: Counter[str], latencies: list[float], seconds: float) -> None:
    """What came of the requests, how many a second, and how long they took."""
    p50, p95, p99 = np.percentile(latencies, [50, 95, 99])
    print(
        f"{name}: {dict(count)}; {count['texts'] / seconds:.2f} texts/s, {count['sentences'] / seconds:.2f} sentences/s"
    )
    print(f"{name}: latency p50 {p50:.2f} s, p95 {p95:.2f} s, p99 {p99:.2f} s")


def resident_mib(pid: int) -> int:
    """Memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


if __name__ == "__main__":
    main()
