"""What the protocols share: the models, the limits, the figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastapi import Request
from pydantic import BaseModel

from glassformer.config import ServeConfig
from glassformer.serve.downloads import Downloads
from glassformer.serve.explained import ExplainLog
from glassformer.serve.fields import Fields
from glassformer.serve.limits import Keys, RateLimit
from glassformer.serve.metrics import Metrics
from glassformer.serve.models import Models
from glassformer.serve.refusal import Refusal
from glassformer.serve.reports import Reports
from glassformer.serve.study import Study

__all__ = ["Service", "ignored_header", "request_body"]


class Service:
    """One server's state.

    Args:
        config: Its settings.
        downloads: Folder of the translated files of several processes; unset: one of its own.
    """

    def __init__(self, config: ServeConfig, downloads: Path | None = None) -> None:
        self.config = config
        self.metrics = Metrics()
        self.models = Models(config, self.metrics)
        self.keys = Keys.load(config.keys)
        self.rate = RateLimit(config.rate)
        self.explain_log = ExplainLog(config.explain_log)
        self.study, self.reports, self.downloads = Study(), Reports(), Downloads(downloads)
        self.is_ready = False

    def close(self) -> None:
        """Ends the threads, and deletes the files."""
        self.models.close()
        self.study.close()
        self.downloads.close()

    def admit(self, request: Request, key: str | None, *, missing: Refusal, wrong: Refusal) -> None:
        """Lets a request in that has a right key, is not one too many, and finds the models loaded.

        What has no right key counts for its address, so that keys cannot be guessed faster than requests are taken.

        Raises:
            Refusal: `missing` or `wrong`; 429; 503.
        """
        is_allowed = self.keys.allow(key)
        address = request.client.host if request.client else ""
        self.rate.take(f"key {key}" if self.keys and is_allowed else f"address {address}")
        if not is_allowed:
            raise missing if key is None else wrong
        if not self.is_ready:
            raise Refusal(503, "The models are being loaded.", code="loading", retry_after_s=2)


def ignored_header(fields: Fields, model: type[BaseModel]) -> dict[str, str]:
    """The header that lists the fields which were not read, if there were any."""
    names: Sequence[str] = fields.ignored(model)
    return {"X-Ignored-Fields": ", ".join(names)} if names else {}


def request_body(model: type[BaseModel], *types: str) -> dict[str, object]:
    """The part of an OpenAPI description that tells the fields of a body."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in types}}}
