"""What serving costs: many clients at once, beside one offline batch and one text after the other.

The server is a process of its own; its processor time is told beside the wall clock. The clients are this process.

python bench/serving.py MODEL ROWS.tsv [--clients 32] [--rows 320] [--threads 1] [--workers 1]
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import machine
import numpy as np
import torch

from glassformer.tasks import Translator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("rows", type=Path)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rows", dest="n_rows", type=int, default=320)
    parser.add_argument("--alone", type=int, default=40, help="rows for one text after the other")
    parser.add_argument("--threads", type=int, default=1, help="threads of the products, in each way")
    parser.add_argument("--workers", type=int, default=1, help="processes of the server, which share out the threads")
    given = parser.parse_args()
    lines = given.rows.read_text(encoding="utf-8").splitlines()
    texts = [line.split("\t")[0] for line in lines if line.strip()][: given.n_rows]
    torch.set_num_threads(given.threads)
    offline, expected = offline_rate(given.model, texts)
    alone = alone_rate(given.model, texts[:: max(1, len(texts) // given.alone)])
    own = time.process_time()
    served, cpu_served, latencies, answers = asyncio.run(served_rate(given, texts))
    own = time.process_time() - own
    n_same = sum(a == b for a, b in zip(answers, expected, strict=True))
    for name, (wall, cpu) in {"offline batch": offline, "one by one": alone, "served": (served, cpu_served)}.items():
        print(f"{name:14} {wall:8.2f} sentences/s of wall clock {cpu:8.2f} of processor time")
    print(f"served / offline {served / offline[0]:.2f} wall, {cpu_served / offline[1]:.2f} processor")
    print(f"served / one by one {served / alone[0]:.2f} wall, {cpu_served / alone[1]:.2f} processor")
    p50, p95, p99 = np.percentile(latencies, [50, 95, 99])
    print(f"latency p50 {p50:.2f} s, p95 {p95:.2f} s, p99 {p99:.2f} s; {n_same} of {len(texts)} answers as offline")
    print(f"processor time of a request: server {1000 / cpu_served:.1f} ms, client {1000 * own / len(texts):.1f} ms")


def offline_rate(model: str, texts: list[str]) -> tuple[tuple[float, float], list[str]]:
    translator = Translator.load(model)
    translator.translate(texts[:4])
    wall, cpu = time.perf_counter(), time.process_time()
    found = translator.translate(texts)
    seconds, processor = time.perf_counter() - wall, time.process_time() - cpu
    return (len(texts) / seconds, len(texts) / processor), [translation.text for translation in found]


def alone_rate(model: str, texts: list[str]) -> tuple[float, float]:
    translator = Translator.load(model)
    translator.translate(texts[:4])
    wall, cpu = time.perf_counter(), time.process_time()
    for text in texts:
        translator.translate([text])
    return len(texts) / (time.perf_counter() - wall), len(texts) / (time.process_time() - cpu)


async def served_rate(given: argparse.Namespace, texts: list[str]) -> tuple[float, float, list[float], list[str]]:
    n_clients, port = given.clients, free_port()
    command = [sys.executable, "-m", "glassformer", "serve", given.model, "--port", str(port)]
    command += ["--threads", str(max(1, given.threads // given.workers))]
    command += ["--workers", str(given.workers)] if given.workers > 1 else []
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        limits = httpx.Limits(max_connections=n_clients)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=600) as client:
            await ready(client)
            answers: list[str] = [""] * len(texts)
            latencies: list[float] = []
            rest = iter(range(len(texts)))

            async def one_client() -> None:
                for i in rest:
                    begin = time.perf_counter()
                    fields = {"q": texts[i], "source": "en", "target": "fr"}
                    answer = await client.post("/translate", json=fields)
                    answers[i] = answer.json()["translatedText"]
                    latencies.append(time.perf_counter() - begin)

            wall, cpu = time.perf_counter(), machine.cpu_seconds(process.pid)
            await asyncio.gather(*(one_client() for _ in range(n_clients)))
            seconds, processor = time.perf_counter() - wall, machine.cpu_seconds(process.pid) - cpu
        return len(texts) / seconds, len(texts) / processor, latencies, answers
    finally:
        process.terminate()
        process.wait(60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def ready(client: httpx.AsyncClient) -> None:
    for _ in range(600):
        try:
            if (await client.get("/ready")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.2)
    raise SystemExit("the server did not become ready")


if __name__ == "__main__":
    main()
