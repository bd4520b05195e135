"""Checkpoints: whole or not at all, checked when read, and nothing in them is ever run."""

from __future__ import annotations

import errno
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from glassformer.errors import CheckpointError, GlassformerError
from glassformer.training.checkpoint import (
    Checkpoint,
    Checkpoints,
    load_state,
    load_tensors,
    save_tensors,
    write_folder,
    write_text,
)
from helpers import encoder_decoder, random_ids


class Trap:
    """An object that writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def checkpoint(update: int, value: float = 1.0) -> Checkpoint:
    tensors = {"b": torch.full((3, 2), value), "a": torch.arange(5.0)}
    return Checkpoint(update, tensors, {"b/exp_avg": torch.ones(3, 2)}, {}, {"trainer": {"update": update}})


def store(folder: Path, *updates: int, keep_last: int = 9) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep_last=keep_last)
    for update in updates:
        checkpoints.save(checkpoint(update))
    return checkpoints


def test_round_trip(tmp_path: Path) -> None:
    loaded = store(tmp_path / "new" / "folder", 7).load(7)
    assert loaded.update == 7
    assert loaded.state == {"trainer": {"update": 7}}
    assert loaded.average == {}
    assert torch.equal(loaded.weights["a"], torch.arange(5.0))
    assert torch.equal(loaded.optimizer["b/exp_avg"], torch.ones(3, 2))


def test_rotation_goes_by_number(tmp_path: Path) -> None:
    assert store(tmp_path, 200, 400, 600, 1000, keep_last=2).updates() == [600, 1000]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1000", "step-600"]


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "gone", "pickle"])
def test_damaged_checkpoint_is_refused(tmp_path: Path, file: str, damage: str) -> None:
    checkpoints = store(tmp_path / "c", 5, 10)
    path, marker = checkpoints.path(10) / file, tmp_path / "marker"
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "pickle":
        path.write_bytes(pickle.dumps(Trap(marker)))
    elif damage == "flipped":
        # In the JSON: a digit of the state, which leaves a valid file.
        last = b'"update": 10'
        place = content.rindex(last) + len(last) - 1 if file == "state.json" else len(content) - 6
        content[place] ^= 1
        path.write_bytes(content)
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(CheckpointError, match=r"step-10 is damaged.*Delete that folder to go on from the one before"):
        checkpoints.load(10)
    assert not marker.exists()
    assert checkpoints.load(5).update == 5


@pytest.mark.parametrize("text", ["[]", "1", '"x"', "{}", "[" * 100_000, '{"sha256": 1, "checkpoint": []}', "\x00"])
def test_state_that_is_no_state_is_refused(tmp_path: Path, text: str) -> None:
    checkpoints = store(tmp_path, 1)
    (checkpoints.path(1) / "state.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpoints.load(1)


@pytest.mark.parametrize("n_bytes", [0, 3, 8, 60])
def test_tensor_file_with_other_content_is_never_run(tmp_path: Path, n_bytes: int) -> None:
    marker, path = tmp_path / "marker", tmp_path / "model.safetensors"
    for content in (pickle.dumps(Trap(marker)), b"\x10\x00\x00\x00\x00\x00\x00\x00" + b"{" * 60):
        path.write_bytes(content[n_bytes:])
        with pytest.raises(CheckpointError, match="damaged"):
            load_tensors(path)
    torch.save({"a": Trap(marker)}, path)
    with pytest.raises(CheckpointError, match="damaged"):
        load_tensors(path)
    assert not marker.exists()
    with pytest.raises(CheckpointError, match="does not exist"):
        load_tensors(tmp_path / "none.safetensors")


# -- a full disk --------------------------------------------------------------------------------------------------


def full(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def no_room_for_tensors(tensors: dict[str, Tensor], path: Path, metadata: Any = None) -> None:
    Path(path).write_bytes(b"half")
    raise safetensors.SafetensorError("I/O error: No space left on device (os error 28)")


def test_full_disk_leaves_what_was_saved_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = store(tmp_path, 5)
    write_text(tmp_path / "a.json", "old")
    save_tensors(tmp_path / "m.safetensors", {"a": torch.ones(2)})
    before = sorted(tmp_path.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", no_room_for_tensors)
        for save in (lambda: checkpoints.save(checkpoint(10)), lambda: save_tensors(tmp_path / "m.safetensors", {})):
            with pytest.raises(GlassformerError, match=r"No space left on device.*What was saved before") as error:
                save()
            assert error.value.exit_code == 1
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(GlassformerError, match=r"a.json could not be written \(No space left on device\)"):
            write_text(tmp_path / "a.json", "new")
        with pytest.raises(GlassformerError):
            checkpoints.save(checkpoint(5, value=2.0))
    assert sorted(tmp_path.rglob("*")) == before, "nothing is left over, nothing is gone"
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "old"
    assert torch.equal(load_tensors(tmp_path / "m.safetensors")["a"], torch.ones(2))
    assert torch.equal(checkpoints.load(5).weights["b"], torch.ones(3, 2))


def test_interrupted_folder_leaves_nothing_and_a_stale_one_is_no_obstacle(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), write_folder(tmp_path / "step-3") as folder:
        write_text(folder / "x", "y")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".step-3.partial").mkdir()  # a kill leaves this
    (tmp_path / ".step-3.partial" / "rest").write_text("", encoding="utf-8")
    assert store(tmp_path, 3).updates() == [3]
    assert [path.name for path in tmp_path.iterdir()] == ["step-3"]


def test_saved_tensors_can_be_read_by_others(tmp_path: Path) -> None:
    save_tensors(tmp_path / "m.safetensors", {"a": torch.ones(2)})
    assert (tmp_path / "m.safetensors").stat().st_mode & 0o777 == 0o644


# -- names, shapes, tying -----------------------------------------------------------------------------------------


def test_load_state_names_what_is_missing_unexpected_or_of_another_shape() -> None:
    model = encoder_decoder()
    state = {name: p.detach().clone() for name, p in model.named_parameters()}
    first, second, third = sorted(state)[:3]
    before = state[third].clone()
    state["surprise"] = state.pop(first)
    state[second] = torch.zeros(2, 2)
    state[third] = state[third] + 1
    with pytest.raises(CheckpointError) as error:
        load_state(model, state, "model.safetensors")
    text = str(error.value)
    assert f"missing ['{first}'], unexpected ['surprise']" in text
    assert f"{second} [2, 2] for {list(dict(model.named_parameters())[second].shape)}" in text
    assert torch.equal(dict(model.named_parameters())[third], before), "no partial load"


@pytest.mark.parametrize(("tying", "n_tables"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_tied_tables_stay_tied_after_save_load_and_a_step(tmp_path: Path, tying: str, n_tables: int) -> None:
    model = encoder_decoder(seed=1, tying=tying)
    state = {name: p.detach() for name, p in model.named_parameters()}
    assert sum("tokens" in name or "projection" in name for name in state) == n_tables
    save_tensors(tmp_path / "m.safetensors", state)
    loaded = encoder_decoder(seed=2, tying=tying)
    load_state(loaded, load_tensors(tmp_path / "m.safetensors"), "m")
    src, tgt = random_ids(2, 5), random_ids(2, 4, seed=1)
    assert torch.equal(loaded(src, tgt), model(src, tgt))
    loaded(src, tgt).sum().backward()
    torch.optim.SGD(loaded.parameters(), lr=0.1).step()
    tables = [loaded.encoder.embedding.tokens.weight, loaded.decoder.embedding.tokens.weight]
    tables.append(loaded.decoder.projection.weight)
    assert len({table.data_ptr() for table in tables}) == n_tables
    assert len(list(loaded.parameters())) == len(state)


@pytest.mark.parametrize("tying", ["all", "none"])
def test_weights_of_another_tying_are_refused(tying: str) -> None:
    other = encoder_decoder(tying="none" if tying == "all" else "all")
    state = {name: p.detach() for name, p in other.named_parameters()}
    with pytest.raises(CheckpointError, match=r"projection\.weight"):
        load_state(encoder_decoder(tying=tying), state, "m")


def test_json_of_the_state_is_strict(tmp_path: Path) -> None:
    text = (store(tmp_path, 1).path(1) / "state.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail)["checkpoint"]["update"] == 1
