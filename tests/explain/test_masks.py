"""The leak test: right models pass, and each planted fault is found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from explain_models import IDS, explained, folder
from torch import Tensor

from glassformer.cli import cli
from glassformer.explain.masks import MasksView, masks_view
from glassformer.model import Attention, fused_attention
from glassformer.tasks.model_folder import ModelFolder
from tasks.small_models import save_folder

TEXTS = ["We eat bread.", "She reads a long book in the garden."]


def failing(view: MasksView) -> set[str]:
    return {check.name for check in view.checks if not check.is_right}


@pytest.mark.parametrize("case", IDS)
def test_a_right_model_has_no_leak(case: str) -> None:
    view = explained(case).views["masks"]
    assert failing(view) == set(), [check for check in view.checks if not check.is_right]
    assert len(view.checks) >= 3


def planted(
    model: ModelFolder, change: Callable[[Tensor | None, Tensor, Tensor], Tensor | None], where: str
) -> ModelFolder:
    """The model with kernels that are given another mask: change(mask, q, k)."""
    for name, module in model.model.named_modules():
        if isinstance(module, Attention) and where in name:

            def kernel(q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, **options: Any) -> Tensor:
                return fused_attention(q, k, v, mask=change(mask, q, k), **options)

            module.kernel = kernel  # type: ignore[assignment]
    return model


def inverted(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    return None if mask is None else ~mask


def off_by_one(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Each query sees the token after it too."""
    if mask is None or mask.shape[-2] == 1:
        return mask
    return mask | torch.cat([mask[..., 1:, :], mask[..., -1:, :]], -2)


def without_pads(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The padding mask is forgotten."""
    return None


def chunk_without_mask(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The causal mask is left out when older keys come from a cache: right for one token, a leak inside a chunk."""
    return None if q.shape[2] < k.shape[2] else mask


def top_left(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The causal triangle begins at the first key, not at the last one (known failure M5)."""
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril() if q.shape[2] < k.shape[2] else mask


@pytest.mark.parametrize("family", ["encoder-decoder", "decoder-only"])
@pytest.mark.parametrize(
    ("change", "where", "found"),
    [
        (inverted, "decoder.stack.blocks.0.self", "future, full pass"),
        (off_by_one, "decoder.stack.blocks.0.self", "future, full pass"),
        (chunk_without_mask, "decoder.stack.blocks.0.self", "future, cached, in chunks"),
        (top_left, "decoder.stack.blocks.0.self", "cache = full pass"),
    ],
)
def test_a_planted_leak_of_the_future_is_found(family: str, change: Any, where: str, found: str) -> None:
    view = masks_view(planted(folder(family), change, where), TEXTS)
    assert found in failing(view) and view.has_leak
    assert all(check.moved for check in view.checks if not check.is_right)


@pytest.mark.parametrize(
    ("family", "change", "where"),
    [
        ("encoder-decoder", without_pads, "encoder.stack"),
        ("encoder-decoder", without_pads, "cross_attention"),
        ("encoder-decoder", inverted, "cross_attention"),
        ("encoder-only", without_pads, "encoder.stack"),
        ("encoder-only", inverted, "encoder.stack"),
        ("decoder-only", without_pads, "decoder.stack"),
    ],
)
def test_a_planted_leak_of_pads_is_found(family: str, change: Any, where: str) -> None:
    assert {"pads", "alone = in a batch"} <= failing(masks_view(planted(folder(family), change, where), TEXTS))


def test_a_model_that_sees_nothing_fails_a_control() -> None:
    """A mask that hides everything leaks nothing: the controls are there for it."""

    def blind(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor:
        return torch.zeros(q.shape[2], k.shape[2], dtype=torch.bool)

    view = masks_view(planted(folder(), blind, "attention"), TEXTS)
    assert failing(view) == {"control: past", "control: source"}


def test_pictures_show_what_the_kernel_gets() -> None:
    pictures = {picture.key: picture for picture in masks_view(folder(), TEXTS).pictures}
    assert list(pictures) == ["encoder.self", "decoder.self", "decoder.cross"]
    for picture in pictures.values():
        assert picture.mask.shape == (len(picture.queries), len(picture.keys))
    encoder, decoder, cross = pictures.values()
    real = [key != "<pad>" for key in encoder.keys]
    assert not all(real) and (encoder.mask == real).all() and (cross.mask == real).all()
    n = len(decoder.keys)
    assert not decoder.mask[torch.ones(n, n).triu(1).bool().numpy()].any()
    assert decoder.queries == decoder.keys and cross.queries == decoder.queries and cross.keys == encoder.keys


def test_the_command_exits_with_0_and_with_1_on_a_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_folder(tmp_path / "model")
    result = CliRunner().invoke(cli, ["masks", str(path), *TEXTS, "--json", str(tmp_path / "masks.json")])
    assert result.exit_code == 0, result.output
    assert "Rows are queries, columns are keys" in result.output and "holds" in result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    result = CliRunner().invoke(cli, ["masks", str(path), *TEXTS, "--json", "-"])
    assert json.loads(result.stdout) == json.loads((tmp_path / "masks.json").read_text(encoding="utf-8"))
    assert "holds" in result.stderr
    leaky = planted(folder(), off_by_one, "decoder.stack.blocks.0.self")
    monkeypatch.setattr("glassformer.tasks.model_folder.load_model_folder", lambda path: leaky)
    result = CliRunner().invoke(cli, ["masks", str(path), *TEXTS])
    assert result.exit_code == 1 and "FAILS" in result.output and "moved the output at token" in result.output


def test_one_text_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["masks", str(tmp_path), "one text"])
    assert result.exit_code != 0 and "second text" in str(result.exception)


def test_checks_are_plain_data() -> None:
    check = masks_view(folder(), TEXTS, max_changes=2).checks[0]
    assert dataclasses.asdict(check)["n_changes"] == 2
