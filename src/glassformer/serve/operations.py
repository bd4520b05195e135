"""What the operator asks: is it alive, is it ready, how does it go."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from glassformer.serve.limits import bearer
from glassformer.serve.refusal import Refusal
from glassformer.serve.service import Service

__all__ = ["build_router"]


def build_router(service: Service) -> APIRouter:
    """/health, /ready and /metrics."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/ready")
    async def ready() -> JSONResponse:
        """The models are loaded and warm; 503 until then."""
        if not service.is_ready:
            raise Refusal(503, "The models are being loaded.", retry_after_s=2)
        return JSONResponse({"status": "ready"})

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:
        """The figures, in Prometheus's form; with a key, where keys are asked for."""
        if not service.keys.allow(bearer(request)):
            raise Refusal(401, "Invalid API key")
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
