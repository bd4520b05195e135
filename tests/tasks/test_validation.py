"""Validation: a loss that depends on the model and the data alone, and a model left as it was."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from small_models import config, tokenizer

from glassformer.config import Config, DataConfig, ValidationConfig
from glassformer.data.batches import validation_batches
from glassformer.data.prepare import prepare
from glassformer.data.store import TokenStore
from glassformer.evaluation.perplexity import LossMeter
from glassformer.model import EncoderDecoder
from glassformer.phrasebook import generate
from glassformer.tasks.validation import TranslationValidator, dataset_loss, final_metrics
from glassformer.text.readers import PairReader
from glassformer.training.objectives import TranslationLoss, cross_entropy
from helpers import build_tiny


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """Seven pairs of very different lengths."""
    folder = tmp_path_factory.mktemp("store")
    pairs = [*generate(5), ("a", "b"), (" ".join(["long"] * 12), "tr\u00e8s " * 12)]
    (folder / "pairs.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    found = prepare(PairReader([str(folder / "pairs.tsv")]), tokenizer(), tokenizer(), folder / "s", DataConfig())
    assert len(found) == 7
    return found


@pytest.fixture(scope="module")
def model() -> EncoderDecoder:
    found = build_tiny(config().model)
    assert isinstance(found, EncoderDecoder)
    return found


def settings(batch_tokens: int, **validation: int) -> Config:
    return dataclasses.replace(
        config(),
        data=DataConfig(batch_tokens=batch_tokens),
        validation=ValidationConfig(**({"bleu_rows": 3, "samples": 1} | validation)),
    )


def by_hand(model: EncoderDecoder, store: TokenStore) -> tuple[float, int]:
    """Sum over all pairs, one at a time, and the number of their target tokens with the end mark."""
    total, n_tokens = 0.0, 0
    for i in range(len(store)):
        src = torch.tensor([[*store.src(i).tolist(), 2]])
        tgt = [*store.tgt(i).tolist(), 2]
        logits = model(src, torch.tensor([[1, *tgt[:-1]]]))[0].double()
        total += cross_entropy(logits, torch.tensor(tgt), pad_id=0, smoothing=0.0).item()
        n_tokens += len(tgt)
    return total, n_tokens


@pytest.mark.parametrize("batch_tokens", [1, 60, 150, 10_000])
def test_loss_is_the_same_for_any_batch_size(model: EncoderDecoder, store: TokenStore, batch_tokens: int) -> None:
    total, n_tokens = by_hand(model, store)
    meter = dataset_loss(model, store, settings(batch_tokens))
    assert meter.n_tokens == n_tokens
    assert meter.loss == pytest.approx(total / n_tokens, rel=1e-6)
    assert meter.perplexity == pytest.approx(math.exp(total / n_tokens), rel=1e-5)


@pytest.mark.parametrize("world_size", [2, 3])
def test_loss_is_the_same_for_any_number_of_processes(
    model: EncoderDecoder, store: TokenStore, world_size: int
) -> None:
    """Seven pairs are odd: a process without a row adds nothing."""
    loss, meter = TranslationLoss(model, smoothing=0.1), LossMeter()
    for rank in range(world_size):
        place = {"rank": rank, "world_size": world_size}
        for part in validation_batches(store, batch_tokens=100, pad_id=0, bos_id=1, eos_id=2, **place):
            meter.add(loss(part)[1].item(), part.n_tokens)
    total, n_tokens = by_hand(model, store)
    assert meter.n_tokens == n_tokens
    assert meter.loss == pytest.approx(total / n_tokens, rel=1e-6)


def test_validation_is_without_smoothing_and_touches_no_random_numbers(
    model: EncoderDecoder, store: TokenStore
) -> None:
    said: list[str] = []
    before = torch.random.get_rng_state()
    figures = TranslationValidator(store, settings(100), tokenizer(), tokenizer(), say=said.append)(model)
    assert torch.equal(torch.random.get_rng_state(), before)
    total, n_tokens = by_hand(model, store)
    assert figures["loss"] == pytest.approx(total / n_tokens, rel=1e-6)
    assert set(figures) == {"loss", "perplexity", "bleu", "chrf"}
    assert len(said) == 1 and "->" in said[0]
    assert set(TranslationValidator(store, settings(100, bleu_rows=0), tokenizer(), tokenizer(), say=print)(model)) == {
        "loss",
        "perplexity",
    }


def test_final_figures_say_what_they_were_measured_on(model: EncoderDecoder, store: TokenStore) -> None:
    model.train()
    metrics = final_metrics(model, store, settings(100), tokenizer(), tokenizer(), time_s=None)
    assert not model.training
    assert (metrics["rows"], metrics["bleu_rows"]) == (7, 7)
    assert "tok:13a" in metrics["bleu_signature"] and "nc:6" in metrics["chrf_signature"]
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))
    assert {"bleu", "chrf", "exact_match"} <= set(metrics)


def test_with_no_time_left_one_chunk_is_translated_all_the_same(
    model: EncoderDecoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassformer.tasks.validation.CHUNK_ROWS", 5)
    (tmp_path / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in generate(12)), encoding="utf-8")
    store = prepare(PairReader([str(tmp_path / "pairs.tsv")]), tokenizer(), tokenizer(), tmp_path / "s", DataConfig())
    metrics = final_metrics(model, store, settings(100), tokenizer(), tokenizer(), time_s=0.0)
    assert (metrics["rows"], metrics["bleu_rows"]) == (12, 5)
