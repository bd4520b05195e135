"""Checkpoints on disk: safetensors and JSON, written beside, synced, then renamed. Nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from glassformer.errors import CheckpointError, GlassformerError

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "explained",
    "load_state",
    "load_tensors",
    "save_tensors",
    "write_folder",
    "write_text",
]


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Says in three sentences that a file could not be written. Exit code 1: the call itself was right."""
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        raise GlassformerError(
            f"{path} could not be written ({getattr(error, 'strerror', None) or error}).",
            "What was saved before is untouched.",
            "Make room or choose another folder, then repeat the command (a training run with --resume).",
        ) from error


@contextmanager
def _written_beside(path: Path) -> Iterator[Path]:
    """Gives a temporary name; what is written there is synced and renamed to `path`, or removed after an error."""
    temporary = path.with_name(f".{path.name}.partial")
    with explained(path):
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    with _written_beside(path) as temporary:
        # Names from a command line that is not UTF-8 keep their bytes.
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape", newline="\n")


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Writes tensors as safetensors, whole or not at all."""
    contiguous = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    with _written_beside(path) as temporary:
        safetensors.torch.save_file(contiguous, temporary, metadata)
        temporary.chmod(0o644)  # the library makes it private to its owner


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Reads a safetensors file; CheckpointError when it is missing or damaged."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist.", "A safetensors file was expected.", "Check the folder's name.")
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
    except Exception as error:
        raise CheckpointError(
            f"{path} is damaged ({error}).",
            "A whole safetensors file was expected.",
            "Restore it from a copy, or use another checkpoint.",
        ) from error
    return tensors


def load_state(model: nn.Module, state: dict[str, Tensor], source: str, *, is_shared: bool = False) -> None:
    """Fills a model; every parameter must be there with its shape, and nothing else may be.

    With `is_shared` the parameters are the tensors of `state` themselves, where their type is right: no copy is made.
    """
    parameters = dict(model.named_parameters())
    missing, unexpected = sorted(parameters.keys() - state.keys()), sorted(state.keys() - parameters.keys())
    wrong = [name for name in parameters.keys() & state.keys() if parameters[name].shape != state[name].shape]
    if missing or unexpected or wrong:
        shapes = [f"{n} {list(state[n].shape)} for {list(parameters[n].shape)}" for n in sorted(wrong)]
        raise CheckpointError(
            f"{source} does not fit its config: missing {missing or 'nothing'}, unexpected {unexpected or 'nothing'}, "
            f"of another shape {shapes or 'nothing'}.",
            "Exactly the config's parameters were expected.",
            "Use the weights and the config of one model.",
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            if is_shared and state[name].dtype == parameter.dtype:
                parameter.data = state[name]
            else:
                parameter.copy_(state[name])


@contextmanager
def write_folder(path: Path) -> Iterator[Path]:
    """Gives a temporary folder that takes the name `path` when the block ends well, and is removed otherwise."""
    temporary = path.with_name(f".{path.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    with explained(path):
        try:
            temporary.mkdir(parents=True)
            yield temporary
            _sync(temporary)
            shutil.rmtree(path, ignore_errors=True)
            temporary.rename(path)
            _sync(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on: weights, moments, and the JSON state."""

    update: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    average: dict[str, Tensor]
    state: dict[str, Any]


class Checkpoints:
    """The folder `checkpoints/` of a run; one `step-N` folder each, the newest `keep_last` are kept."""

    def __init__(self, folder: Path, *, keep_last: int) -> None:
        self.folder = folder
        self.keep_last = keep_last

    def updates(self) -> list[int]:
        """Updates that have a whole checkpoint, in order."""
        names = [path.name for path in self.folder.glob("step-*")] if self.folder.is_dir() else []
        return sorted(int(name.removeprefix("step-")) for name in names)

    def path(self, update: int) -> Path:
        """Folder of one checkpoint."""
        return self.folder / f"step-{update}"

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes one, then removes those beyond `keep_last`."""
        with write_folder(self.path(checkpoint.update)) as folder:
            save_tensors(folder / "model.safetensors", checkpoint.weights)
            save_tensors(folder / "optimizer.safetensors", checkpoint.optimizer)
            if checkpoint.average:
                save_tensors(folder / "average.safetensors", checkpoint.average)
            sums = {path.name: _sha256(path) for path in sorted(folder.glob("*.safetensors"))}
            content = {"update": checkpoint.update, "files": sums, "state": checkpoint.state}
            write_text(folder / "state.json", json.dumps({"sha256": _digest(content), "checkpoint": content}, indent=1))
        for update in self.updates()[: -self.keep_last]:
            shutil.rmtree(self.path(update), ignore_errors=True)

    def load(self, update: int) -> Checkpoint:
        """Reads one; CheckpointError when a file is missing or differs from its recorded checksum."""
        folder = self.path(update)
        try:
            saved = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            sums, state = saved["checkpoint"]["files"], saved["checkpoint"]["state"]
            is_whole = saved["sha256"] == _digest(saved["checkpoint"])
            is_whole = is_whole and all(_sha256(folder / name) == digest for name, digest in sums.items())
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            is_whole = False
        if not is_whole:
            raise CheckpointError(
                f"The checkpoint {folder} is damaged.",
                "Its files were expected to have their recorded checksums.",
                "Delete that folder to go on from the one before it, or from the start.",
            )
        return Checkpoint(
            update=update,
            weights=load_tensors(folder / "model.safetensors"),
            optimizer=load_tensors(folder / "optimizer.safetensors"),
            average=load_tensors(folder / "average.safetensors") if "average.safetensors" in sums else {},
            state=state,
        )


def _digest(content: dict[str, Any]) -> str:
    """Of the JSON content; what stands in a file is read back to the same text."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
