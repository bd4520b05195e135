"""How long a server is away when its worker is killed: kill -9 under load, again and again.

python bench/serving_recovery.py MODEL [--rounds 5] [--clients 8]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
from serving import free_port, ready

FIELDS = {"q": "We eat bread in the garden.", "source": "en", "target": "fr"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=8, help="that ask all the time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(given.model, given.rounds, given.clients, Path(folder) / "log"))


async def measure(model: str, n_rounds: int, n_clients: int, log: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "glassformer", "serve", model, "--port", str(port), "--workers", "1"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env=os.environ | {"OMP_NUM_THREADS": "1"})
    outcomes: Counter[str] = Counter()
    away: list[float] = []
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            await ready(client)
            expected = (await client.post("/translate", json=FIELDS)).json()
            asking = [asyncio.ensure_future(ask(client, expected, outcomes)) for _ in range(n_clients)]
            for _ in range(n_rounds):
                await asyncio.sleep(2)
                away.append(await killed(client, worker_of(log)))
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
    finally:
        process.terminate()
        status = process.wait(60)
    print("seconds from kill -9 to the first answer:", *(f"{seconds:.2f}" for seconds in away))
    print(f"answers of {n_clients} clients meanwhile: {dict(outcomes)}; exit {status}")


async def ask(client: httpx.AsyncClient, expected: object, outcomes: Counter[str]) -> None:
    """One request after the other; a connection that breaks is what a client sees of the kill."""
    while True:
        try:
            answer = await client.post("/translate", json=FIELDS)
            is_right = answer.status_code == 200 and answer.json() == expected
            outcomes["right" if is_right else f"status {answer.status_code}"] += 1
        except httpx.TransportError as error:
            outcomes[type(error).__name__] += 1
            await asyncio.sleep(0.05)


async def killed(client: httpx.AsyncClient, pid: int) -> float:
    """Kills the worker; returns the seconds until a request that begins then has its answer."""
    begin = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    while True:
        try:
            if (await client.post("/translate", json=FIELDS)).status_code == 200:
                return time.perf_counter() - begin
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.02)


def worker_of(log: Path) -> int:
    """The process that was begun last."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return int([line["pid"] for line in lines if line["event"] == "worker"][-1])


if __name__ == "__main__":
    main()
