"""Errors that all exports share: a package is missing, or an engine cannot express a model."""

from __future__ import annotations

import importlib.util

from glassformer.errors import GlassformerError, UserError

__all__ = ["ExportError", "RefusedExport", "installed", "require_extra"]

# Extra of this package -> the modules that it brings.
EXTRAS = {
    "ctranslate2": ("ctranslate2",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "huggingface": ("transformers",),
}


class ExportError(GlassformerError, RuntimeError):
    """An export that was written does not compute what the model computes. Exit code 1."""


class RefusedExport(UserError, ValueError):
    """An engine cannot express a model. Exit code 2."""


def installed(extra: str) -> bool:
    """Whether every package that an extra brings can be imported."""
    return all(importlib.util.find_spec(module) is not None for module in EXTRAS[extra])


def require_extra(extra: str) -> None:
    """Raises GlassformerError when a package that the extra brings is not installed."""
    missing = [module for module in EXTRAS[extra] if importlib.util.find_spec(module) is None]
    if missing:
        raise GlassformerError(
            f"{' and '.join(missing)} cannot be imported.",
            f"This needs the packages of the extra {extra}.",
            f"Run: pip install 'glassformer[{extra}]'.",
        )
