"""The figures of `/metrics`. No label holds a text, a key or an address."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics", "ModelWatcher"]

PREFIX = "glassformer_"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All figures of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests answered.", "route", "status")
        self.latency = self._histogram("request_seconds", "Time to the end of the answer.", _SECONDS, "route")
        self.active = self._gauge("requests_active", "Requests being answered.")
        self.abandoned = self._counter("requests_abandoned", "Requests whose client left.")
        self.waiting = self._gauge("items_waiting", "Sequences in the queue.", "model")
        self.running = self._gauge("items_running", "Sequences being decoded.", "model")
        self.batch = self._histogram("batch_items", "Sequences of a batch.", _ITEMS, "model")
        self.read = self._counter("tokens_read", "Tokens of sources and prompts.", "model")
        self.made = self._counter("tokens_made", "Tokens made.", "model")

    def text(self) -> bytes:
        """The figures in Prometheus's form."""
        return generate_latest(self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, bounds: Sequence[float], *labels: str) -> Histogram:
        return Histogram(PREFIX + name, meaning, labels, buckets=bounds, registry=self.registry)


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
