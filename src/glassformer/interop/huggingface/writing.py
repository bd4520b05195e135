"""From a model folder of ours to a Hugging Face folder that `AutoModel...from_pretrained` and `AutoTokenizer` load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.families import ARCHITECTURES
from glassformer.interop.huggingface.fields import unexpressed
from glassformer.interop.huggingface.generation import write_generation
from glassformer.interop.huggingface.sentence_transformers import write_sentence_settings
from glassformer.interop.huggingface.table import to_theirs
from glassformer.interop.huggingface.tokenizers_out import write_tokenizers
from glassformer.interop.refusal import RefusedExport
from glassformer.tasks.model_folder import ModelFolder
from glassformer.training.checkpoint import save_tensors

__all__ = ["choose_architecture", "export_huggingface"]


def export_huggingface(folder: ModelFolder, out: Path) -> None:
    """Writes config.json, weights, tokenizer files and (for models that write text) generation_config.json.

    The architecture is the first that computes the same. What a model does not have and the architecture does is
    written so that it changes nothing (a bias as zeros).

    Args:
        folder: The model.
        out: A folder that is there and empty.

    Raises:
        RefusedExport: No architecture of transformers can hold the model, with the reason for each.
        TokenizerError: The tokenizers cannot be written in a way that AutoTokenizer reads.
    """
    config = folder.config.model
    architecture, values = choose_architecture(config)
    state = {name: parameter.detach() for name, parameter in folder.model.named_parameters()}
    tensors = to_theirs(architecture.table(config), state) | architecture.computed(config, values)
    if config.family == "encoder-only" and not config.use_mlm_head:  # a base model alone has no prefix
        tensors = {name.removeprefix(architecture.prefix): tensor for name, tensor in tensors.items()}
    ids = _ids(folder)
    _write_json(out / "config.json", {**values, **ids, "dtype": "float32"})
    save_tensors(out / "model.safetensors", _apart(tensors), {"format": "pt"})
    if config.family != "encoder-only":
        _write_json(out / "generation_config.json", {**write_generation(folder.config, never_made(folder)), **ids})
    elif config.pooling != "first" or config.is_normalized:
        write_sentence_settings(config, folder.config.data.max_tokens, out)
    write_tokenizers(folder, out)


def never_made(folder: ModelFolder) -> list[int]:
    """Ids that our search never makes: special tokens other than the end, and rows without a token."""
    model, forced = folder.config.model, folder.config.generation.forced_bos_id
    unused = range(folder.tokenizer.vocab_size, model.vocab_size)
    return sorted({*folder.tokenizer.never_made, *unused} - {model.eos_id, forced})


def choose_architecture(config: ModelConfig) -> tuple[Architecture, dict[str, Any]]:
    """The first architecture that can hold a model, and its config.json without the ids of special tokens.

    Raises:
        RefusedExport: None can.
    """
    reasons = []
    for architecture in ARCHITECTURES.values():
        if architecture.fixed.get("family", "encoder-decoder") != config.family:
            continue
        problems = unexpressed(config, architecture.fixed, architecture.free)
        if not problems:
            try:
                return architecture, architecture.write(config)
            except ConfigError as error:
                problems = [str(error)]
        reasons.append(f"{architecture.model_type}: {', '.join(problems)}")
    raise RefusedExport(
        f"No architecture of transformers computes this model ({'; '.join(reasons)}).",
        "An export must give the same numbers, without code of its own.",
        "Export to onnx, or train with settings that one of them has.",
    )


def _ids(folder: ModelFolder) -> dict[str, Any]:
    config = folder.config.model
    ids: dict[str, Any] = {"pad_token_id": config.pad_id, "eos_token_id": config.eos_id}
    if config.family == "encoder-decoder":
        ids["decoder_start_token_id"] = config.bos_id
    else:
        ids["bos_token_id"] = config.bos_id
    return ids


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies, since safetensors refuses tensors that share memory."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
