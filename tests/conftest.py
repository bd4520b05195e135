"""What several tests need: a folder with a small trained model, a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glassformer.phrasebook import split
from glassformer.resolve import resolve
from glassformer.tasks.training_run import TrainingRequest, run_training
from helpers import CHROMIUM

TINY = [
    "model.d_model=16",
    "model.d_ff=32",
    "model.n_heads=2",
    "model.n_encoder_layers=1",
    "model.n_decoder_layers=1",
    "tokenizer.vocab_size=400",
    "data.batch_tokens=600",
    "validation.rows=20",
    "validation.bleu_rows=2",
    "validation.every=5",
    "validation.film=We eat bread.",
    "training.precision=float32",
    "generation.beam_size=2",
]


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose `runs/demo` is a model that has made twenty updates on the phrasebook."""
    folder = tmp_path_factory.mktemp("trained")
    train, _ = split(seed=1, n_train=300, n_test=20)
    data = folder / "pairs.tsv"
    data.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in train), encoding="utf-8")
    resolved = resolve(None, None, TINY, {"training.steps": 20, "data.src": "en", "data.tgt": "fr"})
    run_training(
        TrainingRequest(data=[str(data)], out=folder / "runs" / "demo", resolved=resolved, say=lambda text: None)
    )
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window. A module that asks for it skips itself where there is none."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as library:
        browser = library.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
