"""A sentence filmed while a model trains: what is recorded, that a resumed run has no frame twice, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from explain_models import Page, folder

from glassformer.cli import cli
from glassformer.config import Config, ValidationConfig
from glassformer.errors import ConfigError, UserError
from glassformer.explain.film import Film, read_film
from glassformer.tasks.film import Probe
from glassformer.tasks.task import Tokenizers
from glassformer.tasks.translator import Translator
from glassformer.tasks.validation import TranslationValidator
from tasks.small_models import tokenizer
from training.runs import log_of, run_cli, sha256, train_arguments, write_pairs

SENTENCE = "We eat bread."


@pytest.fixture(scope="module")
def film(trained_folder: Path) -> Film:
    return read_film(trained_folder / "runs" / "demo")


def filmed(config: Config, text: str = SENTENCE) -> Probe:
    return Probe(
        Config(**(vars(config) | {"validation": ValidationConfig(film=text)})), Tokenizers(tokenizer(), tokenizer())
    )


def test_there_is_a_frame_before_training_and_one_at_each_validation(trained_folder: Path, film: Film) -> None:
    validations = log_of(trained_folder / "runs" / "demo", "validation")
    assert [frame.update for frame in film.frames] == [0, *(entry["update"] for entry in validations)]
    assert len(validations) > 2 and film.text == SENTENCE
    assert [loss for _, loss in film.curve("loss")] == [entry["loss"] for entry in validations]
    assert len(film.curve("bleu")) == len(validations) and film.frames[0].loss is None


def test_frames_hold_attention_candidates_and_entropy(film: Film) -> None:
    for frame in film.frames:
        assert [map_.key for map_ in frame.maps] == ["encoder.1.self", "decoder.1.self", "decoder.1.cross"]
        for map_ in frame.maps:
            assert map_.weights.shape == (2, len(map_.queries), len(map_.keys))
            assert np.allclose(map_.weights.sum(-1), 1, atol=0.002 * len(map_.keys))  # rounded to three digits
            assert (map_.entropy >= 0).all() and (map_.entropy <= np.log(len(map_.keys)) + 0.01).all()
        assert len(frame.read) == len(frame.chosen) == len(frame.candidates) > 0
        for chosen, best in zip(frame.chosen, frame.candidates, strict=True):
            assert [p for _, p in best] == sorted((p for _, p in best), reverse=True)
            assert chosen in [piece for piece, _ in best] or all("<" in piece for piece, _ in best)


def test_the_last_frame_is_what_the_model_says(trained_folder: Path, film: Film) -> None:
    translator = Translator.load(trained_folder / "runs" / "demo")
    log = log_of(trained_folder / "runs" / "demo", "validation")
    best = max(entry["update"] for entry in log if entry["is_best"])
    (frame,) = [frame for frame in film.frames if frame.update == best]
    generation = type(translator.generation)(
        **(vars(translator.generation) | {"beam_size": 1, "max_length_a": 1.0, "max_length_b": 12})
    )
    assert frame.output == translator.translate([SENTENCE], generation=generation)[0].text


def test_a_resumed_run_has_no_frame_twice_and_the_film_changes_no_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(tmp_path / "train.tsv", 60)
    write_pairs(tmp_path / "valid.tsv", 6, first=100)
    settings = {"validation__film": SENTENCE, "training__save_every": 3}
    whole, broken, unfilmed = (tmp_path / name for name in ("whole", "broken", "unfilmed"))
    assert run_cli(train_arguments(tmp_path, whole, **settings), monkeypatch) == 0
    assert run_cli(train_arguments(tmp_path, unfilmed, training__save_every=3), monkeypatch) == 0
    assert not (unfilmed / "film.jsonl").exists()
    assert sha256(unfilmed / "model.safetensors") == sha256(whole / "model.safetensors")

    call, n_calls = TranslationValidator.__call__, 0

    def killed(self: TranslationValidator, model: Any) -> dict[str, float]:
        """The second validation, after update 8, is cut after its frame; the newest checkpoint is of update 6."""
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:
            raise KeyboardInterrupt
        return call(self, model)

    with monkeypatch.context() as patch:
        patch.setattr(TranslationValidator, "__call__", killed)
        assert run_cli(train_arguments(tmp_path, broken, **settings), patch) == 130
    assert [json.loads(line)["update"] for line in (broken / "film.jsonl").read_text().splitlines()] == [0, 4, 8]
    assert run_cli([*train_arguments(tmp_path, broken, **settings), "--resume"], monkeypatch) == 0
    assert (broken / "film.jsonl").read_bytes() == (whole / "film.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("family", "changes", "keys"),
    [
        ("decoder-only", {}, ["decoder.1.self"]),
        ("encoder-only", {"use_mlm_head": True}, ["encoder.1.self"]),
        ("encoder-only", {"use_pooler": True}, ["encoder.1.self"]),
    ],
)
def test_other_families_are_filmed_too(family: str, changes: dict[str, Any], keys: list[str]) -> None:
    model = folder(family, **changes)
    frame = filmed(model.config).frame(model.model)
    assert list(frame["attention"]) == keys
    n_tokens = len(frame["attention"][keys[0]][0])
    assert n_tokens == len(frame["src"] or frame["tgt"])
    assert len(frame["candidates"]) == {"decoder-only": len(frame["chosen"])}.get(
        family, n_tokens * ("use_mlm_head" in changes)
    )


def test_a_sentence_that_is_too_long_is_refused_before_training() -> None:
    with pytest.raises(ConfigError, match=r"validation\.film has"):
        filmed(folder().config, "bread " * 100)


def test_a_run_without_a_film_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--set validation\.film="):
        read_film(tmp_path)


def test_the_command_writes_a_page_that_needs_nothing_else(trained_folder: Path, film: Film, tmp_path: Path) -> None:
    target = tmp_path / "film.html"
    result = CliRunner().invoke(cli, ["film", str(trained_folder / "runs" / "demo"), "--html", str(target)])
    assert result.exit_code == 0 and SENTENCE in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80 and "\0" not in result.stdout
    text, page = target.read_text(encoding="utf-8"), Page()
    page.feed(text)
    piped = CliRunner().invoke(cli, ["film", str(trained_folder / "runs" / "demo"), "--html", "-"])
    assert piped.stdout == text and SENTENCE in piped.stderr
    assert page.open == [] and all(source.startswith("data:") for source in page.loads)
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert all(f'id="frame-{frame.update}"' in text for frame in film.frames)
    assert "Validation loss" in text and "BLEU" in text and "key →" in text
