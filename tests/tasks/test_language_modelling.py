"""Training from raw text, from files to model folders: figures, resuming, what is refused."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from glassformer.config import Config, DataConfig, TokenizerConfig, TrainingConfig, ValidationConfig
from glassformer.data.documents import prepare_documents
from glassformer.data.packing import IGNORED
from glassformer.data.store import TokenStore
from glassformer.model import DecoderOnly, EncoderDecoder, EncoderOnly
from glassformer.phrasebook import generate
from glassformer.resolve import resolve
from glassformer.tasks.denoising import DenoisingValidator
from glassformer.tasks.language_modelling import LanguageModelValidator
from glassformer.tasks.masked_language import MaskedValidator, pseudo_perplexity, unigram_entropy
from glassformer.tasks.model_folder import load_model_folder
from glassformer.tasks.task import Tokenizers
from glassformer.text.documents import DocumentReader
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.causal import CausalObjective
from glassformer.training.language_objectives import DenoisingObjective, MaskedObjective
from helpers import build_tiny, tiny_config
from training.runs import SETTINGS, log_of, run_cli, sha256

TASKS = {"lm": "decoder-only", "mlm": "encoder-only", "denoise": "encoder-decoder"}
LINES = [french for _, french in generate(160, 5)]
Train = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text")
    (path / "train.txt").write_text("\n".join([*LINES[:120], *LINES[:3], ""]), encoding="utf-8")
    (path / "valid.txt").write_text("\n".join(LINES[120:]), encoding="utf-8")
    return path


@pytest.fixture
def train(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Train:
    """Trains a tiny model on the text and gives the exit code and what was said."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    names = {"model.", "tokenizer.", "data.", "training.", "validation.every", "validation.samples"}

    def call(task: str, out: Path, *arguments: str, steps: int = 8, **settings: Any) -> tuple[int, str]:
        changed = {name: value for name, value in SETTINGS.items() if any(map(name.startswith, names))}
        changed |= {"tokenizer.vocab_size": 400, "validation.samples": 1}
        changed |= {name.replace("__", "."): value for name, value in settings.items()}
        sets = [text for name, value in changed.items() for text in ("--set", f"{name}={value}")]
        data = [str(folder / "train.txt"), "--valid", str(folder / "valid.txt")]
        code = run_cli(
            ["train", *data, "--task", task, "--steps", str(steps), "--out", str(out), *sets, *arguments], monkeypatch
        )
        out_text, err = capfd.readouterr()
        assert "Traceback" not in err and not out_text
        return code, err

    return call


@pytest.mark.parametrize("task", TASKS)
def test_a_run_leaves_a_model_with_its_figures(task: str, tmp_path: Path, train: Train) -> None:
    code, said = train(task, tmp_path / "run", task__use_whole_words=task == "mlm")
    assert code == 0
    assert "123 documents" in said
    assert "3 duplicate" in said and "Done after" in said
    saved = load_model_folder(tmp_path / "run")
    assert saved.config.model.family == TASKS[task]
    assert saved.config.training.label_smoothing == 0.0
    assert len(saved.tokenizer.sentinel_ids) == (100 if task == "denoise" else 0)
    assert saved.metrics["perplexity"] == pytest.approx(math.exp(saved.metrics["loss"]))
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "train.txt" in card and f"| loss | {saved.metrics['loss']:.4g} |" in card
    validations = log_of(tmp_path / "run", "validation")
    assert validations[-1]["loss"] == min(v["loss"] for v in validations) < validations[0]["loss"]
    if task == "lm":
        assert saved.config.model.use_bos
        n_bytes = sum(len(line.encode()) for line in LINES[120:])
        assert saved.metrics["bytes"] == n_bytes
        assert saved.metrics["words"] == sum(len(line.split()) for line in LINES[120:])
        nll = saved.metrics["loss"] * saved.metrics["tokens"]
        assert saved.metrics["word_perplexity"] == pytest.approx(math.exp(nll / saved.metrics["words"]))
        assert saved.metrics["bits_per_byte"] == pytest.approx(nll / n_bytes / math.log(2))
    if task == "mlm":
        assert saved.config.model.use_mlm_head and saved.config.model.use_bos
        assert 0 <= saved.metrics["accuracy"] <= 1 < saved.metrics["pseudo_perplexity"]
        assert f"{saved.metrics['unigram_entropy']:.3f} nats" in said


@pytest.mark.parametrize("task", ["mlm", "denoise"])
def test_a_resumed_run_hides_what_the_unbroken_one_did(task: str, tmp_path: Path, train: Train) -> None:
    """R1: masks and spans of later epochs are those of the unbroken run, to the bit."""
    out = tmp_path / "run"
    settings = {"training__save_every": 5, "data__batch_tokens": 1500, "validation__samples": 0}
    assert train(task, out, steps=12, **settings)[0] == 0
    weights = sha256(out / "checkpoints" / "step-12" / "model.safetensors")
    assert max(entry["epoch"] for entry in log_of(out, "train")) >= 1, "an epoch ends inside the run"
    shutil.rmtree(out / "checkpoints" / "step-12")
    run = json.loads((out / "run.json").read_text(encoding="utf-8"))
    del run["is_finished"]
    (out / "run.json").write_text(json.dumps(run), encoding="utf-8")
    code, said = train(task, out, "--resume", steps=12, **settings)
    assert code == 0 and "Resumed from update 10" in said
    assert sha256(out / "checkpoints" / "step-12" / "model.safetensors") == weights


@pytest.mark.parametrize(
    ("task", "settings", "words"),
    [
        ("mlm", {"model__family": "decoder-only"}, "It trains the family encoder-only"),
        ("lm", {"model__family": "encoder-only"}, "It trains the family decoder-only"),
        ("denoise", {"model__family": "encoder-only"}, "does not fit the task denoise"),
        ("denoise", {"tokenizer__n_sentinels": 0}, "sentinels, and the vocabulary has 0"),
        ("mlm", {"tokenizer__bpe_dropout": 0.1}, "bpe_dropout=0.1 with the task mlm"),
        ("mlm", {"data__max_tokens": 2}, "leaves no room for text"),
        ("lm", {"tokenizer__is_shared": "false"}, "Raw text has one vocabulary"),
    ],
)
def test_what_does_not_fit_is_refused(
    task: str, settings: dict[str, Any], words: str, tmp_path: Path, train: Train
) -> None:
    code, said = train(task, tmp_path / "run", **settings)
    assert code == 2 and words in said


def test_few_documents_without_valid_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.txt").write_text("a single line of text", encoding="utf-8")
    code = run_cli(["train", str(tmp_path / "one.txt"), "--task", "lm", "--out", str(tmp_path / "run")], monkeypatch)
    assert code == 2 and "1 documents are too few" in capfd.readouterr().err


def test_known_validation_documents_are_reported(folder: Path, tmp_path: Path, train: Train) -> None:
    code, said = train("lm", tmp_path / "run", "--test", str(folder / "train.txt"), steps=4)
    assert code == 0
    assert "warning: 123 of 123 test documents stand in the training data." in said
    assert "valid documents" not in said


def test_raw_text_may_lie_in_many_files(folder: Path, tmp_path: Path, train: Train) -> None:
    more = [write(tmp_path / f"{name}.txt", f"{name} is a text of its own") for name in ("one", "two")]
    code, said = train("lm", tmp_path / "run", *more, steps=4)
    assert code == 0 and "125 documents" in said


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_defaults_of_a_task_can_be_overruled() -> None:
    assert resolve(None, None, [], {"task.name": "mlm"}).config.training.label_smoothing == 0.0
    assert resolve(None, None, ["task.name=mlm"], {}).origin["training.label_smoothing"] == "default"
    assert (
        resolve(None, None, ["training.label_smoothing=0.2"], {"task.name": "lm"}).config.training.label_smoothing
        == 0.2
    )
    assert resolve(None, None, [], {}).config.training.label_smoothing == 0.1


# -- figures, without a run -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Path]:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer = Tokenizer.train(LINES, TokenizerConfig(n_sentinels=20), vocab_size=320)
    tokenizer.save(path)
    return tokenizer, path


@pytest.fixture(scope="module")
def store(tokenizer: tuple[Tokenizer, Path], folder: Path) -> TokenStore:
    reader = DocumentReader([str(folder / "valid.txt")])
    return prepare_documents(reader, tokenizer[0], folder / "store", DataConfig(), max_piece=30)


def config_for(family: str, *, batch_tokens: int = 300, seed: int = 1, **changes: Any) -> Config:
    model = tiny_config(family, vocab_size=320, **changes)
    return Config(
        model=model,
        data=DataConfig(batch_tokens=batch_tokens, max_tokens=32),
        training=TrainingConfig(seed=seed),
        validation=ValidationConfig(rows=20, samples=0),
    )


def masked_model(config: Config) -> EncoderOnly:
    model = build_tiny(config.model)
    assert isinstance(model, EncoderOnly)
    return model


def test_the_masked_loss_is_that_of_all_logits(store: TokenStore, tokenizer: tuple[Tokenizer, Path]) -> None:
    objective = MaskedObjective(tokenizer[1])
    config = config_for("encoder-only", use_mlm_head=True, use_bos=True)
    model = masked_model(config)
    batch = objective.batches(config, store).batch(np.arange(9))
    _, nll = objective.loss(model, config)(batch)
    assert model.mlm_head is not None
    logits = model.mlm_head(model(batch.ids)).flatten(0, 1)
    expected = nn.functional.cross_entropy(
        logits.double(), batch.targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    assert float(nll) == pytest.approx(expected.item(), rel=1e-5)


def test_a_masked_batch_without_targets_changes_nothing(store: TokenStore, tokenizer: tuple[Tokenizer, Path]) -> None:
    """N11."""
    objective = MaskedObjective(tokenizer[1])
    config = config_for("encoder-only", use_mlm_head=True)
    model = masked_model(config)
    empty = objective.batches(config, store).batch(np.array([0]), rank=1, world_size=2)
    loss, nll = objective.loss(model, config)(empty)
    loss.backward()
    assert loss.item() == nll.item() == 0.0 and empty.n_tokens == 0
    gradients = [p.grad for p in model.parameters()]
    assert all(g is not None and not g.any() for g in gradients)


@pytest.mark.parametrize("batch_tokens", [40, 130, 5000])
def test_figures_do_not_depend_on_the_batch_size_or_the_seed(
    store: TokenStore, tokenizer: tuple[Tokenizer, Path], batch_tokens: int
) -> None:
    """N17, N16: validation hides the same tokens in every run; sums are divided once."""
    rows = list(range(len(store)))
    own, path = tokenizer
    for seed, size in ((1, 77), (9, batch_tokens)):
        config = config_for("encoder-only", use_mlm_head=True, batch_tokens=size, seed=seed)
        masked = MaskedValidator(store, config, MaskedObjective(path)).measure(masked_model(config), rows)
        pairs = config_for("encoder-decoder", batch_tokens=size, seed=seed)
        translator = build_tiny(pairs.model)
        assert isinstance(translator, EncoderDecoder)
        spans = DenoisingValidator(store, pairs, DenoisingObjective(path)).measure(translator, rows)
        plain = config_for("decoder-only", batch_tokens=size, seed=seed, use_bos=True)
        decoder = build_tiny(plain.model)
        assert isinstance(decoder, DecoderOnly)
        texts = LanguageModelValidator(store, plain, Tokenizers(own, own), print).measure(decoder, rows)
        found = [masked.loss, masked.n_right, masked.n_tokens, spans.loss, spans.n_tokens, texts.loss, texts.n_tokens]
        if seed == 1:
            expected = found
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_loss_of_documents_is_that_of_packed_rows_without_cuts(
    store: TokenStore, tokenizer: tuple[Tokenizer, Path]
) -> None:
    """N10, N14: training and validation count and shift alike."""
    config = config_for("decoder-only", use_bos=True)
    wide = replace(config, data=replace(config.data, max_tokens=4000))
    model = build_tiny(config.model)
    assert isinstance(model, DecoderOnly)
    plan = CausalObjective().batches(wide, store)
    batch = plan.batch(plan.epoch(0)[0])
    _, nll = CausalObjective().loss(model, config)(batch)
    meter = LanguageModelValidator(store, wide, Tokenizers(*[tokenizer[0]] * 2), print).measure(
        model, range(len(store))
    )
    assert batch.n_tokens == meter.n_tokens == store.n_tokens + len(store)
    assert nll.item() / batch.n_tokens == pytest.approx(meter.loss, rel=1e-5)


def test_pseudo_perplexity_hides_one_token_at_a_time(store: TokenStore, tokenizer: tuple[Tokenizer, Path]) -> None:
    config = config_for("encoder-only", use_mlm_head=True, use_bos=True, batch_tokens=50)
    model, own = masked_model(config), tokenizer[0]
    assert model.mlm_head is not None
    total = 0.0
    for row in (0, 3):
        ids = [own.bos_id, *store.src(row).tolist(), own.eos_id]
        for place in range(1, len(ids) - 1):
            hidden = torch.tensor([[*ids[:place], own.mask_id, *ids[place + 1 :]]])
            total -= model.mlm_head(model(hidden))[0, place].log_softmax(-1)[ids[place]].item()
    meter = pseudo_perplexity(model, store, own, [0, 3], config)
    assert meter.n_tokens == len(store.src(0)) + len(store.src(3))
    assert meter.sum_nll == pytest.approx(total, rel=1e-5)


def test_unigram_entropy_by_hand(tmp_path: Path) -> None:
    own = Tokenizer.train(["a b"] * 5, TokenizerConfig(), vocab_size=261)
    (tmp_path / "t.txt").write_text("aaab\nab ", encoding="utf-8")  # four a, two b, one space
    store = prepare_documents(DocumentReader([str(tmp_path / "t.txt")]), own, tmp_path / "store", DataConfig())
    expected = -sum(n / 7 * math.log(n / 7) for n in (4, 2, 1))
    assert unigram_entropy(store) == pytest.approx(expected)


def test_a_uniform_model_has_a_loss_of_ln_v(store: TokenStore, tokenizer: tuple[Tokenizer, Path]) -> None:
    config = config_for("encoder-only", use_mlm_head=True)
    model = masked_model(config)
    assert model.mlm_head is not None and model.mlm_head.projection.bias is not None
    with torch.no_grad():
        model.mlm_head.projection.weight.zero_()
        model.mlm_head.projection.bias.zero_()
    validator = MaskedValidator(store, config, MaskedObjective(tokenizer[1]))
    assert validator.measure(model, [0, 1, 2]).loss == pytest.approx(math.log(320))
