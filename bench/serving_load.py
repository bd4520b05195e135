"""Many clients for a long time: every answer is compared with the offline one, and the memory is watched.

The texts are the rows, one to eight of them together. Exit status 1: an answer was wrong or lost, or the memory at the
end is more than 5 % above that after a tenth of the time.

python bench/serving_load.py MODEL ROWS.tsv [--clients 64] [--seconds 600]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import httpx
import numpy as np
from serving import free_port, ready

from glassformer.tasks import Translator

MAX_GROWTH = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("rows", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600)
    given = parser.parse_args()
    lines = given.rows.read_text(encoding="utf-8").splitlines()[:1000]
    parts = mixed([line.split("\t")[0] for line in lines if line.strip()])
    texts = [(" " if number % 2 else "\n").join(part) for number, part in enumerate(parts)]
    expected = [translation.text for translation in Translator.load(given.model).translate(texts)]
    sys.exit(asyncio.run(load(given.model, texts, list(map(len, parts)), expected, given.clients, given.seconds)))


def mixed(rows: list[str]) -> list[list[str]]:
    """The rows in texts of one to eight, most of them short."""
    rng, rest = random.Random(0), iter(rows)
    return list(iter(lambda: list(islice(rest, rng.choice([1, 1, 1, 2, 3, 8]))), []))


async def load(
    model: str, texts: list[str], n_sentences: list[int], expected: list[str], n_clients: int, seconds: float
) -> int:
    """Clients of three kinds: one text, a few at once, and one in ten who leaves before the answer."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "glassformer", "serve", model, "--port", str(port), "--threads", "1"],
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    counts: Counter[str] = Counter()
    latencies: list[float] = []
    sizes: list[int] = []
    limits = httpx.Limits(max_connections=n_clients)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=600) as client:
            await ready(client)
            start = time.monotonic()
            end = start + seconds

            async def one_client(number: int) -> None:
                rng = random.Random(number)
                while time.monotonic() < end:
                    rows = rng.sample(range(len(texts)), rng.choice([1, 1, 1, 5]))
                    leaves = rng.random() < 0.1
                    fields = {"q": [texts[i] for i in rows], "source": "en", "target": "fr"}
                    begin = time.perf_counter()
                    try:
                        answer = await client.post("/translate", json=fields, timeout=0.2 if leaves else 600)
                    except httpx.TimeoutException:
                        counts["left" if leaves else "lost"] += 1
                        continue
                    except httpx.TransportError:
                        counts["lost"] += 1
                        continue
                    latencies.append(time.perf_counter() - begin)
                    is_right = answer.json().get("translatedText") == [expected[i] for i in rows]
                    counts["right" if is_right else f"wrong ({answer.status_code})"] += 1
                    counts["texts"] += len(rows)
                    counts["sentences"] += sum(n_sentences[i] for i in rows)

            async def watch() -> None:
                while time.monotonic() < end:
                    await asyncio.sleep(seconds / 20)
                    sizes.append(resident_mib(process.pid))

            await asyncio.gather(watch(), *(one_client(number) for number in range(n_clients)))
            seconds = time.monotonic() - start
    finally:
        process.terminate()
        status = process.wait(60)
    p50, p95, p99 = np.percentile(latencies, [50, 95, 99])
    growth = max(sizes[-3:]) / sizes[len(sizes) // 10] - 1
    n_wrong = counts["lost"] + sum(n for name, n in counts.items() if name.startswith("wrong"))
    print(f"{dict(counts)}; {counts['texts'] / seconds:.2f} texts/s, {counts['sentences'] / seconds:.2f} sentences/s")
    print(f"{n_wrong} answers wrong or lost; memory {growth:+.1%}; exit status of the server {status}")
    print(f"latency p50 {p50:.2f} s, p95 {p95:.2f} s, p99 {p99:.2f} s")
    print("resident MiB at each twentieth of the time:", *sizes)
    return int(bool(n_wrong or growth > MAX_GROWTH or status))


def resident_mib(pid: int) -> int:
    """Memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


if __name__ == "__main__":
    main()
