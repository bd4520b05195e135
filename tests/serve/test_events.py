"""Streams that stay alive while nothing comes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import httpx
import openai
import pytest

from glassformer.serve import events
from glassformer.serve.items import Item
from serve.serving import Running, SlowBatch, running, wait_until


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Its model "slow" takes four times as long for a step as a stream may be silent."""
    monkeypatch.setattr(events, "PING_S", 0.05)
    with running() as server:
        server.slow.step_s = 0.2
        yield server


def lines_of(server: Running, **fields: Any) -> list[str]:
    answer = server.complete("a", "slow", stream=True, **fields)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    return answer.text.split("\n\n")[:-1]


def test_comments_come_while_nothing_else_does(slow: Running) -> None:
    lines = lines_of(slow, max_tokens=3)
    data = [line for line in lines if line != ": ping"]
    assert lines[0] == ": ping"  # also before the first piece
    assert lines.count(": ping") >= 3
    assert "".join(json.loads(line[6:])["choices"][0]["text"] for line in data[:-1]) == "xxx"
    assert lines[-1] == "data: [DONE]"
    slow.slow.step_s = 0
    assert ": ping" not in lines_of(slow, max_tokens=3)


def test_the_released_client_passes_over_them(slow: Running) -> None:
    client = openai.OpenAI(base_url=slow.url + "/v1", api_key="any", max_retries=0)
    stream = client.completions.create(model="slow", prompt="a", max_tokens=3, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "xxx"


def test_a_failure_after_the_first_comment_is_an_event(slow: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(items: Mapping[int, Item]) -> SlowBatch:
        time.sleep(slow.slow.step_s)
        raise ValueError("secret")

    monkeypatch.setattr(slow.slow, "begin", fail)
    *pings, last = lines_of(slow, max_tokens=3)
    assert set(pings) == {": ping"}
    assert json.loads(last[6:])["error"]["message"] == "The server failed to answer this request."
    slow.slow.step_s = 0  # before any comment it has a status of its own
    assert slow.complete("a", "slow", stream=True).status_code == 500


def test_the_work_ends_with_a_client_that_leaves_between_comments(slow: Running) -> None:
    slow.slow.step_s = 0.4
    with (
        httpx.Client() as client,
        client.stream(
            "POST",
            slow.url + "/v1/completions",
            json={"model": "slow", "prompt": "a", "max_tokens": 100, "stream": True},
        ) as answer,
    ):
        assert next(answer.iter_text()) == ": ping\n\n"
    wait_until(lambda: slow.service.metrics.active._value.get() == 0, within_s=2)
    n_steps = slow.slow.n_steps
    time.sleep(1)
    assert slow.slow.n_steps <= n_steps + 1


def test_what_is_given_up_while_it_begins_is_closed() -> None:
    closed = []

    async def endless() -> AsyncGenerator[str, None]:
        try:
            await asyncio.sleep(60)
            yield ""
        finally:
            closed.append(True)

    async def main() -> None:
        beginning = asyncio.ensure_future(events.begun(endless()))
        await asyncio.sleep(0.05)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning

    asyncio.run(main())
    assert closed == [True]
