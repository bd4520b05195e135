"""The table of all ways to run a model passes for a sound model, and names the row and the step of a damaged one."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_models import case
from safetensors.torch import load_file, save_file

from glassformer.cli import main
from glassformer.config import ModelConfig
from glassformer.interop.parity import BOUNDS, Batch, ParityRow, compare, torch_ways
from glassformer.interop.parity_run import run_parity
from glassformer.model import Model, build_model
from glassformer.model.cache import KVCache
from glassformer.tasks.probe import exact_twin, probe, probe_difference
from tasks.small_models import config, save_folder

W_Q = "encoder.stack.blocks.0.self_attention.w_q"


@pytest.fixture
def folder(trained_folder: Path, tmp_path: Path) -> Path:
    """A copy of a trained model that may be damaged."""
    return Path(shutil.copytree(trained_folder / "runs" / "demo", tmp_path / "model"))


def swap_heads(folder: Path, name: str = f"{W_Q}.weight", d_head: int = 8) -> None:
    weights = load_file(folder / "model.safetensors")
    weight = weights[name]
    weights[name] = torch.cat([weight[d_head : 2 * d_head], weight[:d_head], weight[2 * d_head :]])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    saved = json.loads(path.read_text(encoding="utf-8"))
    saved["model"] |= changes
    path.write_text(json.dumps(saved), encoding="utf-8")


def quick(path: Path, **options: Any) -> dict[str, Any]:
    rows = run_parity(path, [], n_rows=4, use_exports=False, use_compile=False, **options)
    return {row.name: row for row in rows}


def test_a_sound_model_passes_every_row(folder: Path) -> None:
    rows = quick(folder)
    assert len(rows) == 8
    for row in rows.values():
        assert row.is_passed and row.first_step is None, row
    assert rows["fused float32, padded batch"].same_outputs == 1.0
    assert rows["cached, token by token"].max_difference <= 1e-5
    assert 0 < rows["bf16"].relative_difference <= BOUNDS["bf16"], "another dtype gives other numbers"


def test_what_an_engine_cannot_express_is_not_compared_and_no_fault(tmp_path: Path) -> None:
    """No GPT-2 has sinusoidal positions: the gate of a sound language model stays open."""
    path = save_folder(tmp_path / "lm", settings=config(family="decoder-only", use_bos=True, max_positions=64))
    rows = {row.name: row for row in run_parity(path, [], n_rows=2, use_compile=False)}
    assert rows["huggingface float32"].note.startswith("not compared: No architecture of transformers")
    assert rows["ctranslate2 float32"].max_difference <= 1e-4
    assert all(row.is_passed for row in rows.values())


@pytest.mark.parametrize(
    ("damage", "step"),
    [
        (swap_heads, W_Q),
        (lambda folder: change_config(folder, norm_eps=1.01e-5), "encoder.stack.blocks.0.self_residual.norm"),
        (lambda folder: change_config(folder, sinusoid_layout="halves"), "encoder.embedding.positions"),
        (lambda folder: change_config(folder, scale_embedding=False), "encoder.embedding.tokens"),
    ],
    ids=["swapped head", "epsilon", "positions", "embedding scale"],
)
def test_damage_since_saving_is_named_by_its_first_step(
    folder: Path, damage: Callable[[Path], None], step: str
) -> None:
    damage(folder)
    row = quick(folder)["as it was saved"]
    assert not row.is_passed and row.first_step == step


def test_another_folder_is_held_against_the_model(folder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    assert quick(folder, against=[other])[f"model {other}"].is_passed
    swap_heads(other)
    row = quick(folder, against=[other])[f"model {other}"]
    assert not row.is_passed and row.first_step == W_Q


def test_a_shifted_position_in_the_cache_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoding path alone is wrong; full passes stay right."""
    advance = KVCache.advance_positions

    def shifted(cache: KVCache, n_tokens: int, mask: torch.Tensor | None) -> int:
        advance(cache, n_tokens, mask)
        cache.next_positions = cache.next_positions + 1
        return int(torch.as_tensor(cache.next_positions).max())

    monkeypatch.setattr(KVCache, "advance_positions", shifted)
    rows = quick(folder)
    assert rows["fused float32, padded batch"].is_passed
    row = rows["cached, token by token"]
    assert not row.is_passed and row.first_step == "decoder.embedding.positions"


@pytest.mark.parametrize("family", ["encoder-only", "decoder-only", "encoder-decoder"])
def test_every_family_has_its_ways(family: Any) -> None:
    torch.manual_seed(0)
    heads: dict[str, Any] = {"use_mlm_head": True} if family == "encoder-only" else {}
    model: Model = build_model(
        ModelConfig(family=family, d_model=16, d_ff=32, n_heads=2, vocab_size=37, **heads)
    ).eval()
    ids, mask = torch.arange(14).view(2, 7) % 30 + 5, torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    has_src, has_tgt = family != "decoder-only", family != "encoder-only"
    batch = Batch(
        src=ids if has_src else None,
        src_mask=mask if has_src else None,
        tgt=ids if has_tgt else None,
        tgt_mask=mask if has_tgt else None,
    )
    exact = exact_twin(model)
    rows = [compare(way, exact, batch) for way in torch_ways(model, use_compile=False)]
    assert all(row.is_passed for row in rows), rows
    assert ("cached, token by token" in {row.name for row in rows}) == has_tgt
    saved = json.loads(json.dumps(probe(model)))
    assert probe_difference(saved, model) == (0.0, None)


@pytest.mark.parametrize("name", ["roberta", "gpt2", "llama"])
def test_an_imported_folder_passes_and_its_damage_is_named(name: str, tmp_path: Path) -> None:
    """The built-in texts are longer than its position table, and a language model's outputs are compared too."""
    found = case(name)
    rows = quick(found.path.with_suffix(".imported"))
    # Weights this random are further from bf16 and int8 than trained ones.
    assert all(row.is_passed for row in rows.values() if row.dtype.startswith("float")), rows
    same = rows["fused float32, padded batch"].same_outputs
    assert same == (None if found.folder.config.model.family == "encoder-only" else 1.0)
    damaged = Path(shutil.copytree(found.path.with_suffix(".imported"), tmp_path / "damaged"))
    change_config(damaged, norm_eps=2 * found.folder.config.model.norm_eps)
    row = quick(damaged)["as it was saved"]
    assert not row.is_passed and ".norm" in str(row.first_step)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_difference_that_is_not_finite_is_plain_json(number: float) -> None:
    """As of an export whose weights were damaged."""
    row = ParityRow(name="export", dtype="float32", max_difference=number, bound=1e-4, is_passed=False)
    assert json.loads(json.dumps(row.to_dict(), allow_nan=False))["max_difference"] is None


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_a_row_that_fails(folder: Path, number: float) -> None:
    weights = load_file(folder / "model.safetensors")
    weights[f"{W_Q}.weight"][0, 0] = number
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    rows = quick(folder)
    assert not any(row.is_passed for row in rows.values())
    assert "non-finite logits" in rows["equations in float64"].note
    assert rows["as it was saved"].first_step == W_Q and rows["as it was saved"].relative_difference == math.inf


def test_the_command_is_a_gate(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = folder.parent / "parity.html"
    arguments = ["parity", str(folder), "--rows", "3", "--no-exports", "--no-compile", "--json", "--html", str(page)]
    for is_damaged in (False, True):
        if is_damaged:
            swap_heads(folder)
        monkeypatch.setattr(sys, "argv", ["glassformer", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert (end.value.code or 0) == is_damaged
        rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
        assert rows["as it was saved"]["is_passed"] != is_damaged
    assert W_Q.split(".")[0] in page.read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["glassformer", *arguments[:-1], "-"])
    with pytest.raises(SystemExit):
        main()
    assert "--json and --html - both want standard output" in capsys.readouterr().err
