"""A running server with small models, for the tests of its protocols."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import uvicorn

from glassformer.config import GenerationConfig, ServeConfig
from glassformer.generation.hypothesis import Hypothesis
from glassformer.model import DecoderOnly, EncoderOnly
from glassformer.serve.app import build_app
from glassformer.serve.items import Done, Event, Item, Piece
from glassformer.serve.server import uvicorn_config
from glassformer.serve.service import Service
from glassformer.tasks import Embedder, Translator
from glassformer.tasks.generator import TextGenerator
from tasks.small_models import build, config, make_translator, tokenizer


@cache
def translator(max_tokens: int = 70) -> Translator:
    return make_translator(max_tokens=max_tokens)


@cache
def generator() -> TextGenerator:
    model = build(config(family="decoder-only", use_bos=True, positions="rotary", max_positions=2000).model)
    assert isinstance(model, DecoderOnly)
    return TextGenerator(model, tokenizer(), GenerationConfig(beam_size=1))


@cache
def embedder() -> Embedder:
    model = build(config(family="encoder-only", use_bos=True, is_normalized=True, pooling="mean").model)
    assert isinstance(model, EncoderOnly)
    return Embedder(model, tokenizer(), max_tokens=70)


class SlowEngine:
    """Makes one token "x" of each item every `step_s` seconds, and counts the steps."""

    def __init__(self, step_s: float = 0.02) -> None:
        self.step_s, self.n_steps = step_s, 0

    def begin(self, items: Mapping[int, Item]) -> SlowBatch:
        return SlowBatch(self, items)


class SlowBatch:
    def __init__(self, engine: SlowEngine, items: Mapping[int, Item]) -> None:
        self.engine, self.items, self.lengths = engine, dict(items), dict.fromkeys(items, 0)

    @property
    def is_done(self) -> bool:
        return not self.items

    def step(self, is_wanted: Callable[[int], bool]) -> list[tuple[int, Event]]:
        self.items = {number: item for number, item in self.items.items() if is_wanted(number)}
        if not self.items:
            return []
        time.sleep(self.engine.step_s)
        self.engine.n_steps += 1
        events: list[tuple[int, Event]] = []
        for number, item in list(self.items.items()):
            self.lengths[number] += 1
            length = self.lengths[number]
            events.append((number, Piece("x", 5, -1.0)))
            if length == item.limit:
                del self.items[number]
                made = {"item": number, "ids": [5] * length, "token_log_probs": [-1.0] * length}
                hypothesis = Hypothesis(**made, log_prob=-length, score=-1.0, finish_reason="length")
                events.append((number, Done([hypothesis])))
        return events

    def join(self, other: SlowBatch) -> None:
        self.items |= other.items
        self.lengths |= other.lengths


@dataclass
class Running:
    """A server that answers at `url`."""

    url: str
    service: Service
    slow: SlowEngine

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def post(self, path: str, content: Any = None, **options: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=content, timeout=60, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60, **options)

    def complete(self, prompt: Any, model: str = "lm", **fields: Any) -> httpx.Response:
        return self.post("/v1/completions", {"model": model, "prompt": prompt} | fields)

    def raw(self, data: bytes, *, wait_s: float = 10) -> bytes:
        """What comes back for bytes, until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait_s) as connection:
            heard = b""
            with suppress(ConnectionError):  # it may close before it has read all
                connection.sendall(data)
                while part := connection.recv(65536):
                    heard += part
            return heard


@contextmanager
def running(load: Callable[[Service], None] | None = None, **settings: Any) -> Iterator[Running]:
    """Starts a server in a thread of this process, on a free port; ends it at the end."""
    service, slow = Service(ServeConfig(**({"port": 0} | settings))), SlowEngine()

    def load_all() -> None:
        add = service.models.add
        add("en-fr", translator(), direction=("en", "fr"))
        add("fr-de", translator(60), direction=("fr", "de"))
        add("lm", generator())
        add("embedder", embedder())
        add("slow", generator(), engine=slow)

    failures: list[Exception] = []
    app = build_app(service, (lambda: load(service)) if load else load_all, failures.append)
    server = uvicorn.Server(uvicorn_config(app, service.config))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started and (service.is_ready or failures or load is not None))
        assert not failures, failures
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Running(f"http://127.0.0.1:{port}", service, slow)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], object], *, within_s: float = 30) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_ready(url: str, within_s: float) -> None:
    """Waits for a server in a process of its own."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            if httpx.get(url + "/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("it did not become ready")
