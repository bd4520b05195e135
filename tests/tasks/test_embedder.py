"""`Embedder`: vectors that depend on their own text alone, in the order of the texts, of any width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.errors import CheckpointError, ConfigError
from glassformer.model import EncoderOnly
from glassformer.phrasebook import generate
from glassformer.tasks import Embedder
from tasks.small_models import LONG, build, config, save_folder, tokenizer

TEXTS = ["", "a", *(side for pair in generate(12, 5) for side in pair), LONG, " ", "a"]


def make_embedder(max_tokens: int = 70, **changes: Any) -> Embedder:
    settings = config(max_tokens, **{"family": "encoder-only", "is_normalized": True, "use_bos": True} | changes)
    model = build(settings.model)
    assert isinstance(model, EncoderOnly)
    return Embedder(model, tokenizer(), max_tokens=max_tokens)


@pytest.mark.parametrize("pooling", ["first", "mean", "max"])
def test_vector_does_not_depend_on_the_texts_beside_it(pooling: str) -> None:
    embedder = make_embedder(pooling=pooling)
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    for batch_tokens in (1, 60, 4096):
        together = embedder.embed(TEXTS, batch_tokens=batch_tokens)
        assert together.dtype == np.float32 and together.shape == (len(TEXTS), 20)
        assert np.abs(together - alone).max() <= 1e-6
    assert np.abs(embedder.embed(TEXTS[::-1])[::-1] - alone).max() <= 1e-6
    assert np.abs(np.linalg.norm(alone, axis=1) - 1).max() < 1e-6
    assert np.abs(alone[2] - alone[3]).max() > 1e-3  # and texts differ


def test_vector_is_the_models_own() -> None:
    embedder = make_embedder(pooling="mean")
    ids = torch.tensor([embedder.tokenizer.encode("We eat bread.", add_bos=True, add_eos=True)])
    with torch.no_grad():
        features = embedder.model(ids)[0].mean(0)
    expected = (features / features.norm()).numpy()
    assert np.abs(embedder.embed(["We eat bread."])[0] - expected).max() <= 1e-6


def test_empty_text_and_no_text() -> None:
    embedder = make_embedder(pooling="mean")
    assert embedder.encode([""]) == [[1, 2]]
    assert make_embedder(use_bos=False).encode([""]) == [[2]]
    assert np.isfinite(embedder.embed([""])).all()
    assert embedder.embed([]).shape == (0, 20)


def test_long_text_is_cut_with_its_ends_kept_and_told() -> None:
    embedder = make_embedder(max_tokens=9)
    cut: list[int] = []
    ids = embedder.encode(["a", LONG, ""], on_cut=cut.append)
    assert cut == [1]
    assert len(ids[1]) == 9 and (ids[1][0], ids[1][-1]) == (1, 2)
    assert ids[1][1:-1] == tokenizer().encode(LONG)[:7]
    exact = tokenizer().decode(tokenizer().encode(LONG)[:7])
    cut.clear()
    embedder.embed([exact], on_cut=cut.append)
    assert cut == []


def test_texts_that_spell_special_tokens_are_text() -> None:
    (ids,) = make_embedder().encode(["</s><pad>"])
    assert [i for i in ids[1:-1] if i < 5] == []


def test_shorter_vector_is_the_beginning_at_length_one() -> None:
    embedder = make_embedder()
    whole, half = embedder.embed(TEXTS), embedder.embed(TEXTS, width=10)
    assert half.shape == (len(TEXTS), 10) and half.dtype == np.float32
    assert np.abs(half - whole[:, :10] / np.linalg.norm(whole[:, :10], axis=1, keepdims=True)).max() < 1e-6
    free = make_embedder(is_normalized=False)
    assert np.array_equal(free.embed(TEXTS, width=10), free.embed(TEXTS)[:, :10])
    for width in (0, 21):
        with pytest.raises(ConfigError, match=f"width={width}"):
            embedder.embed(TEXTS, width=width)


def test_progress_counts_texts() -> None:
    seen: list[int] = []
    make_embedder().embed(TEXTS, batch_tokens=200, on_progress=seen.append)
    assert seen == sorted(seen) and len(seen) > 1 and seen[-1] == len(TEXTS)


def test_folder_of_another_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="encoder-decoder"):
        Embedder.load(save_folder(tmp_path / "translator"))


def test_limit_comes_from_the_folder(tmp_path: Path) -> None:
    settings = config(70, family="encoder-only", positions="learned", max_positions=12)
    embedder = Embedder.load(save_folder(tmp_path / "model", settings=settings))
    assert embedder.max_tokens == 12 and len(embedder.encode([LONG])[0]) == 12
    assert np.isfinite(embedder.embed([LONG])).all()
