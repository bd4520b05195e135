"""`glassformer train --from FOLDER`: what is taken over, what may differ, what is refused, and that it resumes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from glassformer.data.batches import Collator
from glassformer.data.store import TokenStore
from glassformer.interop.huggingface import import_huggingface
from glassformer.tasks import Translator
from glassformer.tasks.model_folder import load_model_folder
from interop.huggingface_models import build
from training.runs import SETTINGS, Child, log_of, run_cli, sha256, together, train_arguments, write_pairs

Train = Callable[..., tuple[int, str]]
RUN = {name: value for name, value in SETTINGS.items() if not name.startswith(("model.", "tokenizer."))}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, and `base`, a model that has made a few updates on them."""
    folder = tmp_path_factory.mktemp("data")
    write_pairs(folder / "train.tsv", 60)
    write_pairs(folder / "valid.tsv", 4, first=100)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        settings = {"model__dropout": 0.2, "generation__alpha": 0.9, "data__max_tokens": 77}
        assert run_cli(train_arguments(folder, folder / "base", 4, **settings), monkeypatch) == 0
    return folder


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Train:
    """Runs a command line and gives its exit code and what it said."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)

    def call(arguments: list[str]) -> tuple[int, str]:
        capfd.readouterr()
        code = run_cli(arguments, monkeypatch)
        err = capfd.readouterr().err
        assert "Traceback" not in err
        return code, err

    return call


def finetune(
    data: Path, out: Path, *more: str, start: Path | None = None, steps: int = 3, **settings: Any
) -> list[str]:
    """The command line of a tiny run that starts from `start` (the base)."""
    changed = RUN | {name.replace("__", "."): value for name, value in settings.items()}
    sets = [text for name, value in changed.items() for text in ("--set", f"{name}={value}")]
    files = [str(data / "train.tsv"), "--valid", str(data / "valid.tsv"), "--from", str(start or data / "base")]
    return ["train", *files, "--steps", str(steps), "--out", str(out), *more, *sets]


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


# -- what is taken over --------------------------------------------------------------------------------------------


def test_run_takes_over_architecture_vocabulary_and_weights(data: Path, tmp_path: Path, train: Train) -> None:
    out = tmp_path / "run"
    code, said = train(finetune(data, out, training__lr=1e-9))
    assert code == 0, said
    base, found = load_model_folder(data / "base"), load_model_folder(out)
    assert found.config.model == base.config.model, "dropout too"
    assert (out / "tokenizer.json").read_bytes() == (data / "base" / "tokenizer.json").read_bytes()
    assert found.config.generation.alpha == 0.9 and found.config.data.max_tokens == 77
    assert (found.config.data.src, found.config.data.tgt) == ("en", "fr"), "the same task has the same languages"
    old, new = weights(data / "base"), weights(out)
    assert old.keys() == new.keys()
    assert all((old[name] - new[name]).abs().max() < 1e-6 for name in old)
    assert f"{len(old)} tensors of weights (sha256 {sha256(data / 'base' / 'model.safetensors')[:12]})" in said
    assert "Fresh: nothing. Not used: nothing." in said
    assert json.loads((out / "run.json").read_text())["start"] == {
        "sha256": sha256(data / "base" / "model.safetensors")
    }
    assert "Vocabulary" not in said, "none is learned"


def test_rate_is_a_tenth_and_dropout_and_preset_are_left_alone(data: Path, tmp_path: Path, train: Train) -> None:
    """Also under a budget, which would choose another preset for a fresh model."""
    arguments = finetune(data, tmp_path / "run", "--budget", "12s")
    del arguments[arguments.index("--steps") : arguments.index("--steps") + 2]
    code, said = train(arguments)
    assert code == 0, said
    assert "training.lr=0.0006: a tenth of a fresh model's" in said
    assert "preset " not in said and "model.dropout" not in said
    assert load_model_folder(tmp_path / "run").config.model == load_model_folder(data / "base").config.model


def test_dropout_and_tokenization_may_differ(data: Path, tmp_path: Path, train: Train) -> None:
    settings = {"model__dropout": 0.05, "tokenizer__bpe_dropout": 0.1, "task__prefix": "to French: "}
    code, said = train(finetune(data, tmp_path / "run", **settings))
    assert code == 0, said
    config = load_model_folder(tmp_path / "run").config
    assert (config.model.dropout, config.tokenizer.bpe_dropout, config.task.prefix) == (0.05, 0.1, "to French: ")
    assert Translator.load(tmp_path / "run").prefix == "to French: "
    code, said = train(finetune(data, tmp_path / "next", start=tmp_path / "run"))
    assert load_model_folder(tmp_path / "next").config.task.prefix == "to French: ", "the same task keeps its prefix"


@pytest.mark.parametrize(
    ("more", "settings", "words"),
    [
        ((), {"model__d_model": 32}, ["model.d_model=32 where the start has 16"]),
        (("--preset", "tiny"), {}, ["model.d_model=128 where the start has 16", "model.vocab_size=4000", "a preset"]),
        ((), {"tokenizer__vocab_size": 500}, ["tokenizer.vocab_size=500 where the start has 300"]),
        ((), {"model__norm_placement": "post"}, ["model.norm_placement=post where the start has pre"]),
        (
            ("--task", "lm"),
            {"validation__bleu_rows": 0},
            ["model.family=decoder-only where the start has encoder-decoder"],
        ),
        ((), {"training__frozen": "body"}, ["training.frozen=body freezes all parameters"]),
        ((), {"training__init": "lexicon"}, ["training.init=lexicon with --from"]),
    ],
)
def test_another_architecture_is_refused(
    data: Path, tmp_path: Path, train: Train, more: tuple[str, ...], settings: dict[str, Any], words: list[str]
) -> None:
    arguments = finetune(data, tmp_path / "run", *more, **settings)
    if "lm" in more:
        (tmp_path / "text.txt").write_text("a line of text\n" * 40, encoding="utf-8")
        arguments = [str(tmp_path / "text.txt") if a.endswith((".tsv",)) else a for a in arguments]
    code, said = train(arguments)
    assert code == 2, said
    assert all(word in said for word in words), said
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize("fault", ["missing", "no model", "damaged"])
def test_start_that_is_none(data: Path, tmp_path: Path, train: Train, fault: str) -> None:
    start = tmp_path / "start"
    if fault != "missing":
        shutil.copytree(data / "base", start)
        (start / ("config.json" if fault == "no model" else "model.safetensors")).write_bytes(b"{}")
    code, said = train(finetune(data, tmp_path / "run", start=start))
    assert code == 2 and "start" in said, said


@pytest.mark.parametrize("setting", ["training.lora_rank=2", "training.frozen=encoder"])
def test_freezing_without_a_start_is_refused(data: Path, tmp_path: Path, train: Train, setting: str) -> None:
    code, said = train([*train_arguments(data, tmp_path / "run"), "--set", setting])
    assert code == 2 and f"{setting.partition('=')[0]} is set without task.start" in said
    assert not (tmp_path / "run").exists()


# -- frozen parts and adapters -------------------------------------------------------------------------------------


def test_frozen_encoder_is_the_start_s_to_the_bit(data: Path, tmp_path: Path, train: Train) -> None:
    code, said = train(finetune(data, tmp_path / "run", training__frozen="encoder", training__ema_decay=0.5))
    assert code == 0, said
    old, new = weights(data / "base"), weights(tmp_path / "run")
    same = {name for name in old if torch.equal(old[name], new[name])}
    assert same == {name for name in old if name.startswith("encoder.")} and same
    assert "parameters in float32" in said and " of " in said.partition("Training ")[2].partition("parameters")[0]


def test_adapters_leave_an_ordinary_model(data: Path, tmp_path: Path, train: Train) -> None:
    out = tmp_path / "run"
    code, said = train(finetune(data, out, training__lora_rank=2, training__average_last=2, training__save_every=1))
    assert code == 0, said
    assert "training.lr=0.006" in said, "adapters are fresh, and take the rate of a fresh model"
    old, new = weights(data / "base"), weights(out)
    assert old.keys() == new.keys(), "no name of a wrapper"
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed == {name for name in old if "_attention.w_" in name}
    kept = load_file(next((out / "checkpoints").glob("*/model.safetensors")))
    assert all(name.endswith(("lora_a", "lora_b")) for name in kept) and len(kept) == 2 * len(changed)
    assert Translator.load(out).translate(["We eat bread."])[0].n_segments == 1
    # The average is that of the merged models: each matrix is W plus a mean of products, of rank 2 * 2 at most.
    difference = new["encoder.stack.blocks.0.self_attention.w_q.weight"].double()
    difference -= old["encoder.stack.blocks.0.self_attention.w_q.weight"].double()
    assert torch.linalg.matrix_rank(difference, atol=1e-6) <= 4
    code, said = train(finetune(data, tmp_path / "next", start=out, steps=1))
    assert code == 0 and "Fresh: nothing. Not used: nothing." in said, "a start like any other"


# -- resume --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"training__lora_rank": 2}, {"training__frozen": "embeddings"}], ids=["lora", "frozen"]
)
def test_killed_and_resumed_run_equals_the_unbroken_one(data: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    settings = options | {"training__ema_decay": 0.9, "training__save_every": 2, "training__accumulation": 2}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    child = Child(finetune(data, whole, steps=8, **settings), tmp_path / "whole.txt")
    assert child.wait() == 0, child.text()
    arguments = [*finetune(data, broken, steps=8, **settings), "--resume"]
    child = Child(arguments, tmp_path / "broken.txt")
    if child.wait_until(lambda: (broken / "checkpoints" / "step-4").exists()):
        child.send(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL, child.text()
    child = Child(arguments, tmp_path / "broken.txt")
    assert child.wait() == 0, child.text()
    assert "Resumed from update" in child.text()
    assert log_of(broken) == log_of(whole)
    for file in ("model", "checkpoints/step-8/model", "checkpoints/step-8/average", "checkpoints/step-8/optimizer"):
        assert sha256(broken / f"{file}.safetensors") == sha256(whole / f"{file}.safetensors")


def test_changed_start_is_refused(data: Path, tmp_path: Path, train: Train) -> None:
    start, out = tmp_path / "start", tmp_path / "run"
    shutil.copytree(data / "base", start)
    assert train(finetune(data, out, start=start))[0] == 0
    saved = json.loads((out / "run.json").read_text(encoding="utf-8"))
    del saved["is_finished"]
    (out / "run.json").write_text(json.dumps(saved), encoding="utf-8")
    before = sha256(out / "model.safetensors")
    tensors = weights(start)
    tensors["encoder.stack.norm.gamma"][0] += 1e-3
    save_file(tensors, start / "model.safetensors", {"format": "pt"})
    code, said = train([*finetune(data, out, start=start), "--resume"])
    assert code == 2 and f"--from {start} has changed" in said
    assert sha256(out / "model.safetensors") == before


@pytest.mark.parametrize("fsdp", ["false", "true"])
def test_adapters_in_two_processes(data: Path, tmp_path: Path, fsdp: str) -> None:
    options = {"training__lora_rank": 2, "model__dropout": 0, "training__ema_decay": 0.5, "data__batch_tokens": 300}
    alone = Child(finetune(data, tmp_path / "one", steps=4, **options), tmp_path / "one.txt")
    assert alone.wait() == 0, alone.text()
    ranks = together(finetune(data, tmp_path / "two", steps=4, training__fsdp=fsdp, **options), tmp_path)
    for rank in ranks:
        assert rank.wait(120) == 0, "\n".join(each.text() for each in ranks)
    one, two, base = weights(tmp_path / "one"), weights(tmp_path / "two"), weights(data / "base")
    assert one.keys() == two.keys() == base.keys(), "no name of a wrapper"
    assert all((one[name] - two[name]).abs().max() < 1e-4 for name in one)
    assert any((one[name] - base[name]).abs().max() > 1e-3 for name in one)


# -- imported models -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "start_id", "eos_id", "has_bos"),
    [("t5", 0, 1, False), ("marian", None, 0, False), ("bart", 2, 2, True)],
)
def test_imported_models_learn_from_pairs(
    data: Path, tmp_path: Path, train: Train, name: str, start_id: int | None, eos_id: int, has_bos: bool
) -> None:
    build(name, tmp_path / "theirs")
    report = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    model = report.config.model
    start_id = model.pad_id if start_id is None else start_id  # Marian starts with its padding token
    assert (model.bos_id, model.eos_id, model.use_bos) == (start_id, eos_id, has_bos)
    rows = ["the cat sat\tthe dog ran", "hello world\thello you", "the mat\tthe fox", "a cat\ta dog"] * 3
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "valid.tsv").write_text("\n".join(rows[:4]) + "\n", encoding="utf-8")
    arguments = finetune(data, tmp_path / "run", start=tmp_path / "ours", steps=2, task__prefix="hello: ")
    arguments[1], arguments[3] = str(tmp_path / "pairs.tsv"), str(tmp_path / "valid.tsv")
    code, said = train(arguments)
    assert code == 0, said
    found = load_model_folder(tmp_path / "run")
    assert found.config.model == model
    for file in ("tokenizer.json", "source_tokenizer.json"):
        if (tmp_path / "ours" / file).exists():
            assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "ours" / file).read_bytes()
    # What training reads is what the imported model reads in use: prefix, begin token where there is one, end token.
    ids = {"pad_id": model.pad_id or 0, "bos_id": model.bos_id, "eos_id": model.eos_id}
    batch = Collator(TokenStore.open(tmp_path / "run" / "data" / "valid"), **ids)(np.array([0]))
    assert batch.src[0].tolist() == Translator.load(tmp_path / "run")._encode(["the cat sat"])[0]
    assert batch.tgt_in[0].tolist() == [start_id, *found.tokenizer.encode("the dog ran")]
    assert batch.tgt_out[0].tolist() == [*found.tokenizer.encode("the dog ran"), eos_id]
    changed = {
        key for key, w in weights(tmp_path / "run").items() if not torch.equal(w, weights(tmp_path / "ours")[key])
    }
    assert changed, "it has learned"
