"""Exported graphs in onnxruntime: features, logits, and our own search over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from glassformer.errors import CheckpointError
from glassformer.generation.decoding import Decoding
from glassformer.interop.refusal import require_extra
from glassformer.tasks.model_folder import ModelFolder
from glassformer.tasks.translator import Translator

__all__ = ["OnnxDecoding", "OnnxGraphs", "OnnxTranslator"]

_ERRORS_ONLY = 3  # a level of onnxruntime's log


class OnnxGraphs:
    """The graphs of an exported folder, loaded for a CPU. Inputs and outputs go by their names.

    Args:
        export: What `export_onnx` wrote.
        n_threads: Threads of one operation; 0 leaves the number to onnxruntime.
    """

    def __init__(self, export: Path, *, n_threads: int = 0) -> None:
        require_extra("onnx")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = n_threads, _ERRORS_ONLY
        self.sessions: dict[str, Any] = {
            path.name: onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for path in sorted(export.glob("*.onnx"))
        }
        if not self.sessions:
            raise CheckpointError(
                f"{export} holds no .onnx file.", "A folder made by `glassformer export --to onnx` was expected.", ""
            )

    def run(self, file: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Runs one graph; the outputs by name, in their order. Names with dots are given by `**{...}`."""
        session = self.sessions[file]
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))


class OnnxDecoding:
    """A `Decoding` over exported graphs of an encoder-decoder or a decoder-only model, so that our search runs on them.

    Args:
        graphs: The loaded export.
        src: [B, S] source ids (encoder-decoder only).
        src_mask: [B, S], True at real tokens; None: all are.
    """

    def __init__(self, graphs: OnnxGraphs, *, src: Tensor | None = None, src_mask: Tensor | None = None) -> None:
        self.graphs, self.past = graphs, {}
        self.fixed: dict[str, np.ndarray] = {}  # what every step is given again
        self.n_seen = 0
        if src is not None:
            mask = torch.ones_like(src) if src_mask is None else src_mask.long()
            self.fixed = {"encoder_attention_mask": mask.numpy()}
            encoded = graphs.run("encoder_model.onnx", input_ids=src.numpy(), attention_mask=mask.numpy())
            self.memory = encoded["last_hidden_state"]
        self.has_memory = src is not None

    past: dict[str, np.ndarray]

    def prefill(self, prefix: Tensor) -> Tensor:
        if self.has_memory:
            return self._run("decoder_model.onnx", prefix, {"encoder_hidden_states": self.memory})
        return self._run("model.onnx", prefix, {})

    def step(self, tokens: Tensor) -> Tensor:
        file = "decoder_with_past_model.onnx" if self.has_memory else "model_with_past.onnx"
        return self._run(file, tokens[:, None], self.past)

    def select(self, rows: Tensor) -> None:
        order = rows.numpy()
        self.past = {name: array[order] for name, array in self.past.items()}
        self.fixed = {name: array[order] for name, array in self.fixed.items()}

    def _run(self, file: str, tokens: Tensor, inputs: dict[str, np.ndarray]) -> Tensor:
        self.n_seen += tokens.shape[1]
        masks = self.fixed
        if not self.has_memory:
            masks = {"attention_mask": np.ones((len(tokens), self.n_seen), dtype=np.int64)}
        outputs = self.graphs.run(file, input_ids=tokens.numpy(), **masks, **inputs)
        logits = torch.from_numpy(outputs.pop("logits"))
        # Cross keys and values come once, from the first graph.
        self.past = self.past | {f"past_key_values.{name.removeprefix('present.')}": a for name, a in outputs.items()}
        return logits[:, -1]


class OnnxTranslator(Translator):
    """A `Translator` whose search asks exported graphs for its votes; all else is as ever."""

    graphs: OnnxGraphs

    @classmethod
    def over(cls, export: Path, folder: ModelFolder, *, n_threads: int = 0) -> Self:
        """Loads the export of a model (encoder-decoder)."""
        translator = cls.of(folder)
        translator.graphs = OnnxGraphs(export, n_threads=n_threads)
        return translator

    def new_decoding(self, src: Tensor, max_length: int) -> Decoding:
        pad_id = self.model.config.pad_id
        return OnnxDecoding(self.graphs, src=src, src_mask=None if pad_id is None else src != pad_id)
