"""Many clients at once: every answer is the one that its request gets alone."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx

from glassformer.phrasebook import generate
from serve.serving import Running


def requests(n: int, seed: int) -> list[tuple[str, dict[str, Any]]]:
    """Different texts of 1 to 50 words with different settings, for all protocols."""
    rng = random.Random(seed)
    words = [word for src, _ in generate(50, seed) for word in src.split()]
    made: list[tuple[str, dict[str, Any]]] = []
    for i in range(n):
        text = f"{i} " + " ".join(rng.choice(words) for _ in range(rng.randint(1, 50)))
        lm = {"model": "lm", "prompt": text, "max_tokens": rng.randint(1, 12), "seed": i}
        made.append(
            [
                ("/translate", {"q": [text, "a"], "source": "en", "target": "fr"}),
                ("/translate", {"q": text, "source": "en", "target": "fr", "alternatives": 3}),
                ("/v1/completions", lm | {"temperature": rng.choice([0.0, 0.7, 1.3]), "n": rng.randint(1, 3)}),
                ("/v1/completions", lm | {"use_beam_search": True, "n": 2, "stop": ["e"]}),
                ("/v1/completions", {"model": "en-fr", "prompt": [text, "b"], "seed": i, "temperature": 0.9}),
                ("/v1/embeddings", {"model": "embedder", "input": [f"{i} a fish", str(i)]}),
            ][i % 6]
        )
    return made


def contents(path: str, answer: dict[str, Any]) -> Any:
    if path == "/v1/embeddings":
        return [[round(x, 4) for x in row["embedding"]] for row in answer["data"]]
    return answer["choices"] if path.startswith("/v1") else answer


def test_no_answer_is_wrong_lost_or_mixed(server: Running) -> None:
    """S1: 64 requests at once, each as alone; one in ten clients leaves."""
    wanted = requests(64, seed=3)

    async def ask(client: httpx.AsyncClient, path: str, fields: dict[str, Any], leaves: bool = False) -> Any:
        if leaves:
            try:
                await client.post(path, json=fields, timeout=0.05)
            except httpx.TimeoutException:
                return None
        answer = await client.post(path, json=fields, timeout=120)
        assert answer.status_code == 200, answer.text
        return contents(path, answer.json())

    async def main() -> tuple[list[Any], list[Any]]:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(base_url=server.url, limits=limits) as client:
            rng = random.Random(1)
            together = [ask(client, *request, leaves=rng.random() < 0.1) for request in wanted]
            found = await asyncio.gather(*together)
            alone = [await ask(client, *request) for request in wanted[:30]]
        return found, alone

    found, alone = asyncio.run(main())
    checked = [(a, b) for a, b in zip(found, alone, strict=False) if a is not None]
    assert len(checked) > 20
    for together, single in checked:
        assert together == single


def test_nothing_is_left_of_requests(server: Running) -> None:
    """S14: at rest nobody waits, nothing runs, no job is kept."""
    for model in server.service.models.all.values():
        server.post("/v1/completions", {"model": model.name, "prompt": "a", "max_tokens": 2})
        assert not [job for job in model.batcher._jobs if not job.is_cancelled]
    metrics = server.get("/metrics").text
    assert 'glassformer_items_waiting{model="lm"} 0.0' in metrics
    assert 'glassformer_items_running{model="lm"} 0.0' in metrics
    assert "glassformer_requests_active 1.0" in metrics
