"""Export of a model: written beside, loaded again by its engine, compared, and only then put in place."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from glassformer import __version__
from glassformer.errors import UserError
from glassformer.interop.comparison import Comparison, check_rows, compare
from glassformer.interop.ctranslate2 import ctranslate2_refusal, export_ctranslate2
from glassformer.interop.engines import ENGINES
from glassformer.interop.export_readme import readme
from glassformer.interop.onnx import export_onnx
from glassformer.interop.refusal import ExportError, RefusedExport, require_extra
from glassformer.tasks.model_folder import GENERATION, ModelFolder, load_model_folder
from glassformer.training.checkpoint import write_folder, write_text

__all__ = ["TARGETS", "Export", "Target", "export"]

Target = Literal["huggingface", "ctranslate2", "onnx"]
# Target -> the package that reads it.
TARGETS: dict[Target, str] = {"huggingface": "transformers", "ctranslate2": "ctranslate2", "onnx": "onnxruntime"}


@dataclass(frozen=True)
class Export:
    """What was written, and how far it is from the model."""

    out: Path
    to: Target
    quantize: str | None
    comparison: Comparison
    size_bytes: int


def export(
    model: Path | ModelFolder,
    out: Path,
    *,
    to: Target,
    quantize: str | None = None,
    check: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Export:
    """Writes a model for another engine into a folder of its own.

    Args:
        model: A model folder.
        out: The folder to write; must not exist, or be empty.
        to: Which engine.
        quantize: None, or `int8` (CTranslate2 and ONNX).
        check: File of sentences to compare on, one a line; None: built-in ones.
        say: Called with lines that the user should read.

    Raises:
        ExportError: What was written does not compute the same; nothing is put in place.
        RefusedExport: The engine cannot express the model, or has no such quantisation.
        UserError: `out` is in use.
    """
    _require_free(out)
    require_extra(to)
    folder = model if isinstance(model, ModelFolder) else load_model_folder(model)
    _require_expressible(folder, to, quantize)
    rows = check_rows(folder, check)
    for line in _remarks(folder, to):
        say(line)
    with write_folder(out) as temporary:
        if to == "huggingface":
            from glassformer.interop.huggingface import export_huggingface

            export_huggingface(folder, temporary)
        else:
            _write_companions(folder, temporary)
            (export_ctranslate2 if to == "ctranslate2" else export_onnx)(folder, temporary, quantize=quantize)
        say(f"written; loading it with {TARGETS[to]} and comparing {len(rows.texts)} texts")
        comparison = compare(folder, ENGINES[to](temporary, folder), rows, is_int8=quantize is not None)
        if not comparison.is_same:
            raise _difference(comparison, to)
        if not (temporary / "README.md").exists():
            write_text(temporary / "README.md", readme(folder, to, quantize))
        write_text(temporary / "export.json", _report(folder, to, quantize, comparison))
    size_bytes = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return Export(out, to, quantize, comparison, size_bytes)


def _require_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already.", "A new name, or an empty folder, was expected.", "Choose another.")


def _require_expressible(folder: ModelFolder, to: Target, quantize: str | None) -> None:
    if quantize is not None and to == "huggingface":
        raise RefusedExport(
            f"--quantize {quantize} with --to huggingface.",
            "transformers quantises when it loads a model.",
            "Leave --quantize out, or use --to ctranslate2 or onnx.",
        )
    reason = ctranslate2_refusal(folder.config.model) if to == "ctranslate2" else None
    if reason is not None:
        raise RefusedExport(
            f"CTranslate2 cannot express this model. {reason}.",
            "Every setting that changes a number must be honoured.",
            "Use --to onnx, or train with another setting.",
        )


def _remarks(folder: ModelFolder, to: Target) -> list[str]:
    """What of the model the engine leaves out."""
    config = folder.config.model
    if to != "ctranslate2" or config.family != "encoder-only":
        return []
    heads = [name for name, has in (("use_mlm_head", config.use_mlm_head), ("head", config.head != "none")) if has]
    heads += [name for name in ("pooling", "is_normalized") if getattr(config, name) not in ("first", False)]
    return [f"CTranslate2 runs the encoder and the pooler alone; not written: {', '.join(heads)}"] if heads else []


def _write_companions(folder: ModelFolder, out: Path) -> None:
    """What an export needs beside its weights."""
    folder.tokenizer.save(out / "tokenizer.json")
    if folder.src_tokenizer is not folder.tokenizer:
        folder.src_tokenizer.save(out / "source_tokenizer.json")
    if folder.config.model.family != "encoder-only":
        write_text(out / GENERATION, json.dumps(asdict(folder.config.generation), indent=2) + "\n")


def _difference(comparison: Comparison, to: Target) -> ExportError:
    return ExportError(
        f"The {to} export differs from the model: {comparison.compared} by up to {comparison.max_difference:.3g} "
        f"(relative rms {comparison.relative_rms:.3g}, bound {comparison.bound:g}), first at "
        f"{comparison.first_difference!r}.",
        "An export must compute what its model computes; it was not put in place.",
        "Report the config of the model; another --to may work.",
    )


def _report(folder: ModelFolder, to: Target, quantize: str | None, comparison: Comparison) -> str:
    """export.json: what was written by which versions, and how it compared."""
    content: dict[str, Any] = {
        "format": 1,
        "to": to,
        "quantize": quantize,
        "family": folder.config.model.family,
        "versions": {
            "glassformer": __version__,
            "torch": torch.__version__,
            TARGETS[to]: importlib.metadata.version(TARGETS[to]),
        },
        "comparison": asdict(comparison),
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
