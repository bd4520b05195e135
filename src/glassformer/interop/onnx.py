"""A model as graphs for onnxruntime: dynamic batch and lengths, decoders with and without cache, float32 or int8."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from glassformer import __version__
from glassformer.interop.onnx_graphs import Graph, graphs_of
from glassformer.interop.refusal import require_extra
from glassformer.tasks.model_folder import ModelFolder

__all__ = ["OPSET", "export_onnx"]

OPSET = 18
MAX_FILE_BYTES = 1_800_000_000  # a graph is one protocol buffer, which holds less than 2 GiB


def export_onnx(folder: ModelFolder, out: Path, *, quantize: str | None = None) -> None:
    """Writes the graphs of a model into the folder `out`, which exists.

    Encoder-decoder: `encoder_model.onnx`, `decoder_model.onnx` (first call) and `decoder_with_past_model.onnx`.
    Decoder-only: `model.onnx` and `model_with_past.onnx`. Encoder-only: `model.onnx`, with one output for each head.

    Args:
        folder: The model and its config.
        out: Where to write.
        quantize: None for float32, or `int8`: weights of matrix products with one scale a column, activations
            quantised as they come, one scale for the batch; tables, and an output that shares one, stay float32.
    """
    require_extra("onnx")
    for graph in graphs_of(folder.model):
        path = out / graph.file
        _write(graph, path, folder)
        if quantize == "int8":
            _quantize(path)


def _write(graph: Graph, path: Path, folder: ModelFolder) -> None:
    n_bytes = sum(p.numel() * p.element_size() for p in graph.module.parameters())
    with _quiet(), torch.no_grad():
        program: Any = torch.onnx.export(
            graph.module,
            graph.example,
            input_names=graph.inputs,
            output_names=graph.outputs,
            dynamic_shapes=graph.axes,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    program.model.metadata_props["glassformer"] = __version__
    program.model.metadata_props["config"] = json.dumps(asdict(folder.config.model))
    program.save(str(path), external_data=n_bytes > MAX_FILE_BYTES)


def _quantize(path: Path) -> None:
    """Replaces a graph by its int8 form.

    Weights get 7 bits (`reduce_range`): with 8, CPUs without VNNI saturate, as they add two products in 16 bits.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    full = path.with_suffix(".float32.onnx")
    path.rename(full)
    with _quiet():
        quantize_dynamic(
            full,
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=full.with_suffix(".onnx.data").exists(),
        )
    for file in path.parent.glob(f"{full.name}*"):
        file.unlink()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the exporters' own remarks, which are about their code, from the user. Errors still are raised."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
