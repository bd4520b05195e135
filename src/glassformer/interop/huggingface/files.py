"""Reading the files of a Hugging Face folder: JSON and tensors, never code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.training.checkpoint import load_tensors

__all__ = ["read_json", "read_tensors"]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}).", "A JSON file was expected.", "Copy the whole folder again."
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object.", "One was expected.", "Copy the whole folder again.")
    return content


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder: from safetensors, whole or in shards, else from pytorch_model.bin read without code.

    Raises:
        CheckpointError: There are none, a file is damaged, or a .bin file holds more than tensors.
    """
    for stem, suffix in (("model", "safetensors"), ("pytorch_model", "bin")):
        read = load_tensors if suffix == "safetensors" else _load_bin
        if (folder / f"{stem}.{suffix}").is_file():
            return read(folder / f"{stem}.{suffix}")
        index = folder / f"{stem}.{suffix}.index.json"
        if index.is_file():
            return {name: t for shard in _shards(index) for name, t in read(folder / shard).items()}
    raise CheckpointError(
        f"{folder} has no weights.",
        "model.safetensors or pytorch_model.bin was expected, whole or in shards.",
        "Copy the weights into the folder; files of TensorFlow and Flax are not read.",
    )


def _shards(index: Path) -> list[str]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(
            f"{index} has no weight_map of names.", "It names a file for each tensor.", "Copy the whole folder again."
        )
    shards = sorted(set(names.values()))
    for shard in shards:
        if Path(shard).name != shard:
            raise CheckpointError(
                f"{index} names the file {shard!r}, which lies outside the folder.",
                "Shards lie beside their index.",
                "Do not use this folder unless you trust where it comes from.",
            )
    return shards


def _load_bin(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises several kinds, all of them mean that the file is not only tensors
        raise CheckpointError(
            f"{path} was refused: it is damaged or holds more than tensors ({str(error).splitlines()[0]}).",
            "Loading anything else could run code from the file.",
            "Get the model as safetensors, or convert it where you trust it.",
        ) from error
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(
            f"{path} holds no table of tensors.", "Names and tensors were expected.", "Get the model as safetensors."
        )
    return content
