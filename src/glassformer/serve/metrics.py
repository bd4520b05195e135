"""The figures of `/metrics`. No label holds a text, a key or an address."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics", "ModelWatcher"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All figures of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        every = {"registry": self.registry}
        name = "glassformer_"
        self.requests = Counter(name + "requests", "Requests answered.", ["route", "status"], **every)
        self.latency = Histogram(name + "request_seconds", "Time to the end.", ["route"], buckets=_SECONDS, **every)
        self.active = Gauge(name + "requests_active", "Requests being answered.", **every)
        self.abandoned = Counter(name + "requests_abandoned", "Requests whose client left.", **every)
        self.waiting = Gauge(name + "items_waiting", "Sequences in the queue.", ["model"], **every)
        self.running = Gauge(name + "items_running", "Sequences being decoded.", ["model"], **every)
        self.batch = Histogram(name + "batch_items", "Sequences of a batch.", ["model"], buckets=_ITEMS, **every)
        self.read = Counter(name + "tokens_read", "Tokens of sources and prompts.", ["model"], **every)
        self.made = Counter(name + "tokens_made", "Tokens made.", ["model"], **every)

    def text(self) -> bytes:
        """The figures in Prometheus's form."""
        return generate_latest(self.registry)


class ModelWatcher:
    """Tells the figures of one model's batches."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._waiting, self._running = metrics.waiting.labels(model), metrics.running.labels(model)
        self._batch = metrics.batch.labels(model)

    def batch(self, n_items: int) -> None:
        self._batch.observe(n_items)

    def step(self, n_waiting: int, n_running: int) -> None:
        self._waiting.set(n_waiting)
        self._running.set(n_running)
