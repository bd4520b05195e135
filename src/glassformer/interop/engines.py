"""Exports loaded by the engines that they were written for, behind one protocol, so that they can be compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.interop.comparison import CheckRows, Engine, greedy, greedy_limit, greedy_prefix
from glassformer.interop.ctranslate2 import vocabulary
from glassformer.interop.onnx_decoding import OnnxDecoding, OnnxGraphs
from glassformer.tasks.model_folder import ModelFolder

__all__ = ["ENGINES", "CTranslate2Engine", "HuggingFaceEngine", "OnnxEngine"]


class CTranslate2Engine:
    """An export in CTranslate2, of any family."""

    def __init__(self, export: Path, folder: ModelFolder) -> None:
        import ctranslate2

        config = folder.config.model
        kinds = {"encoder-decoder": ctranslate2.Translator, "decoder-only": ctranslate2.Generator}
        self.folder, self.engine = folder, kinds.get(config.family, ctranslate2.Encoder)(str(export), device="cpu")
        self.names = vocabulary(folder.tokenizer, config.vocab_size)
        self.src_names = vocabulary(folder.src_tokenizer, config.source_vocab_size)

    def values(self, rows: CheckRows) -> list[np.ndarray]:
        family = self.folder.config.model.family
        if family == "encoder-decoder":
            sources = [[self.src_names[i] for i in ids] for ids in rows.inputs]
            targets = [[self.names[i] for i in ids] for ids in rows.targets]
            results = self.engine.score_batch(sources, targets, max_input_length=0)
            return [np.array(result.log_probs, dtype=np.float32) for result in results]
        if family == "decoder-only":
            padded = np.array(self.engine.forward_batch(rows.inputs))
        else:
            segments = {"token_type_ids": [[0] * len(ids) for ids in rows.inputs]}
            given = segments if self.folder.config.model.n_segments else {}
            padded = np.array(self.engine.forward_batch(rows.inputs, **given).last_hidden_state)
        return [values[: len(ids)] for values, ids in zip(padded, rows.inputs, strict=True)]

    def greedy(self, rows: CheckRows) -> list[list[int]] | None:
        if self.folder.config.model.family == "encoder-only":
            return None
        return [self._greedy(ids) for ids in rows.inputs]

    def _greedy(self, ids: list[int]) -> list[int]:
        tokenizer, config = self.folder.tokenizer, self.folder.config.model
        forbidden = [*tokenizer.never_made, *range(tokenizer.vocab_size, config.vocab_size)]
        options = {"beam_size": 1, "suppress_sequences": [[self.names[i]] for i in forbidden], "return_end_token": True}
        limit = greedy_limit(self.folder, ids)
        if config.family == "encoder-decoder":
            source = [[self.src_names[i] for i in ids]]
            [result] = self.engine.translate_batch(
                source, max_input_length=0, max_decoding_length=limit, min_decoding_length=0, **options
            )
            return [self.names.index(name) for name in result.hypotheses[0]]
        prompt = [[self.names[i] for i in greedy_prefix(self.folder, ids)[0][0].tolist()]]
        [result] = self.engine.generate_batch(prompt, max_length=limit, include_prompt_in_result=False, **options)
        made: list[int] = result.sequences_ids[0]
        return made


class OnnxEngine:
    """An export in onnxruntime, of any family."""

    def __init__(self, export: Path, folder: ModelFolder) -> None:
        self.folder, self.graphs = folder, OnnxGraphs(export)

    def values(self, rows: CheckRows) -> list[np.ndarray]:
        family = self.folder.config.model.family
        ids, mask = (part.numpy() for part in _padded(rows.inputs))
        if family == "encoder-only":
            segments = {"token_type_ids": np.zeros_like(ids)} if self.folder.config.model.n_segments else {}
            padded = self.graphs.run("model.onnx", input_ids=ids, attention_mask=mask, **segments)["last_hidden_state"]
        elif family == "decoder-only":
            padded = self.graphs.run("model.onnx", input_ids=ids, attention_mask=mask)["logits"]
        else:
            memory = self.graphs.run("encoder_model.onnx", input_ids=ids, attention_mask=mask)["last_hidden_state"]
            read = _read(self.folder, rows)[0].numpy()
            inputs = {"input_ids": read, "encoder_attention_mask": mask, "encoder_hidden_states": memory}
            return _log_probs(
                self.folder, rows, torch.from_numpy(self.graphs.run("decoder_model.onnx", **inputs)["logits"])
            )
        return [values[: len(ids)] for values, ids in zip(padded, rows.inputs, strict=True)]

    def greedy(self, rows: CheckRows) -> list[list[int]] | None:
        """By our search, so through the graph with past."""
        if self.folder.config.model.family == "encoder-only":
            return None
        outputs = []
        for ids in rows.inputs:
            prefix, src = greedy_prefix(self.folder, ids)
            outputs.append(
                greedy(self.folder, OnnxDecoding(self.graphs, src=src), prefix, greedy_limit(self.folder, ids))
            )
        return outputs


class HuggingFaceEngine:
    """An export in transformers, loaded by its Auto classes."""

    def __init__(self, export: Path, folder: ModelFolder) -> None:
        import transformers

        transformers.utils.logging.disable_progress_bar()
        kinds = {
            "encoder-decoder": transformers.AutoModelForSeq2SeqLM,
            "decoder-only": transformers.AutoModelForCausalLM,
        }
        kind = kinds.get(folder.config.model.family, transformers.AutoModel)
        self.folder, self.model = folder, kind.from_pretrained(export).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(export)

    @torch.no_grad()
    def values(self, rows: CheckRows) -> list[np.ndarray]:
        ids, mask = _padded(rows.inputs)
        family = self.folder.config.model.family
        if family == "encoder-decoder":
            read, read_mask = _read(self.folder, rows)
            out = self.model(
                input_ids=ids, attention_mask=mask, decoder_input_ids=read, decoder_attention_mask=read_mask
            )
            return _log_probs(self.folder, rows, out.logits)
        out = self.model(input_ids=ids, attention_mask=mask)
        padded = out.logits if family == "decoder-only" else out.last_hidden_state
        return [values[: len(row)].numpy() for values, row in zip(padded, rows.inputs, strict=True)]

    def greedy(self, rows: CheckRows) -> list[list[int]] | None:
        if self.folder.config.model.family == "encoder-only":
            return None
        return [
            greedy(self.folder, _Whole(self.model, src), prefix, greedy_limit(self.folder, ids))
            for ids in rows.inputs
            for prefix, src in [greedy_prefix(self.folder, ids)]
        ]


class _Whole:
    """A `Decoding` of one row over a transformers model, each step with all tokens again."""

    def __init__(self, model: Any, src: Tensor | None) -> None:
        self.model, self.src = model, src

    @torch.no_grad()
    def prefill(self, prefix: Tensor) -> Tensor:
        self.read = prefix
        if self.src is None:
            given = {"input_ids": prefix, "attention_mask": torch.ones_like(prefix)}
        else:
            given = {"input_ids": self.src, "attention_mask": torch.ones_like(self.src), "decoder_input_ids": prefix}
        logits: Tensor = self.model(**given).logits[:, -1]
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        return self.prefill(torch.cat([self.read, tokens[:, None]], 1))

    def select(self, rows: Tensor) -> None:
        self.read = self.read[rows]


def _padded(rows: list[list[int]], pad_id: int = 0) -> tuple[Tensor, Tensor]:
    """ids [B, T], padded on the right, and their mask int64 [B, T]."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad_id] * (width - len(row))] for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])


def _read(folder: ModelFolder, rows: CheckRows) -> tuple[Tensor, Tensor]:
    """What the decoder reads: the start token, then the target."""
    return _padded([[folder.config.model.bos_id, *ids] for ids in rows.targets])


def _log_probs(folder: ModelFolder, rows: CheckRows, logits: Tensor) -> list[np.ndarray]:
    """Those of each target and its end, of padded logits [B, T + 1, V]."""
    log_probs = logits.log_softmax(-1)
    eos_id = folder.config.model.eos_id
    return [
        row[: len(ids) + 1].gather(1, torch.tensor([*ids, eos_id])[:, None])[:, 0].numpy()
        for row, ids in zip(log_probs, rows.targets, strict=True)
    ]


ENGINES: dict[str, Callable[[Path, ModelFolder], Engine]] = {
    "ctranslate2": CTranslate2Engine,
    "onnx": OnnxEngine,
    "huggingface": HuggingFaceEngine,
}
