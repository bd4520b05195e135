"""Summaries: long texts are cut in training and in use, said and counted; figures are ROUGE."""

from __future__ import annotations

import json
import math
import os
import random
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.config import Config, DataConfig
from glassformer.data.prepare import SourceForm, _SourceShape, prepare
from glassformer.data.store import TokenLists, TokenStore
from glassformer.errors import LengthError
from glassformer.phrasebook import generate
from glassformer.resolve import Resolved, resolve
from glassformer.tasks import Translator
from glassformer.tasks.model_folder import load_model_folder
from glassformer.tasks.run_folder import TrainingRequest
from glassformer.tasks.summarization import SummarizationTask, summary_settings
from glassformer.tasks.task import Tokenizers
from glassformer.tasks.training_run import run_training
from glassformer.tasks.validation import TranslationValidator
from glassformer.text.readers import PairReader
from tasks.small_models import make_translator, tokenizer
from training.runs import SETTINGS, run_cli


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def write_texts(path: Path, n: int, seed: int) -> Path:
    """Texts of several sentences; the first one is the summary."""
    sentences = [src for src, _ in islice(generate(200, 3), 200)]
    draw = random.Random(seed)
    texts = [draw.sample(sentences, draw.randint(2, 5)) for _ in range(n)]
    path.write_text("".join(f"{'. '.join(text)}.\t{text[0]}.\n" for text in texts), encoding="utf-8")
    return path


# -- settings ------------------------------------------------------------------------------------------------------


def test_settings_for_long_texts_unless_chosen() -> None:
    said: list[str] = []
    found = summary_settings(Config(), set(), said.append)
    assert (found.data.max_length_ratio, found.data.max_tokens, found.generation.max_length_a) == (math.inf, 512, 0.5)
    assert [text.partition("=")[0] for text in said] == [
        "data.max_length_ratio",
        "data.max_tokens",
        "generation.max_length_a",
    ]
    said.clear()
    chosen = {"data.max_length_ratio", "data.max_tokens", "generation.max_length_a"}
    assert summary_settings(Config(), chosen, said.append) == Config()
    assert said == []
    longer = replace(Config(), data=DataConfig(max_tokens=1024))
    assert summary_settings(longer, set(), said.append).data.max_tokens == 1024, "what a start reads stays"


# -- stores --------------------------------------------------------------------------------------------------------


def shaped(lists: list[list[int]], limit: int, **form: Any) -> tuple[list[list[int]], int]:
    shape = _SourceShape(SourceForm(**form), tokenizer(), limit)
    offsets = np.cumsum([0, *map(len, lists)])
    out = shape(TokenLists(np.array([i for ids in lists for i in ids], dtype=np.uint32), offsets))
    return [out[i].tolist() for i in range(len(out))], shape.n_cut


def test_sources_are_cut_before_their_end_token() -> None:
    lists = [[10, 20, 30, 40], [], [50, 60], [70, 80, 90]]
    assert shaped(lists, 3, is_cut=True) == ([[10, 20, 30], [], [50, 60], [70, 80, 90]], 1)
    assert shaped(lists, 3) == (lists, 0)
    assert shaped(lists, 3, is_cut=True, use_bos=True) == ([[1, 10, 20], [1], [1, 50, 60], [1, 70, 80]], 2)
    assert shaped(lists, 3, use_bos=True) == ([[1, 10, 20, 30, 40], [1], [1, 50, 60], [1, 70, 80, 90]], 0)


def test_store_keeps_long_texts_and_leaves_out_long_summaries(tmp_path: Path) -> None:
    sentence = "my aunt looked for a house"
    rows = [f"{sentence}\t{sentence}", f"{' '.join([sentence] * 9)}\ta house", f"a house\t{' '.join([sentence] * 9)}"]
    (tmp_path / "data.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    config = DataConfig(max_tokens=30, max_length_ratio=math.inf)
    reader = PairReader([str(tmp_path / "data.tsv")])
    form = SourceForm(prefix="summarize: ", is_cut=True)
    store = prepare(reader, tokenizer(), tokenizer(), tmp_path / "store", config, form=form)
    assert len(store) == 2 and store.info.n_cut == 1
    assert store.excluded["more than 30 tokens"]["count"] == 1
    assert store.src(0).tolist() == tokenizer().encode(f"summarize: {sentence}")
    whole = tokenizer().encode("summarize: " + " ".join([sentence] * 9))
    assert store.src(1).tolist() == whole[:29], "with its end token it has 30"
    assert TokenStore.open(tmp_path / "store").info.n_cut == 1
    plain = prepare(reader, tokenizer(), tokenizer(), tmp_path / "plain", config)
    assert plain.excluded["more than 30 tokens"]["count"] == 2 and plain.info.n_cut == 0


# -- use -----------------------------------------------------------------------------------------------------------


def summarizer(max_tokens: int, prefix: str = "") -> Translator:
    plain = make_translator()
    return Translator(
        plain.model, tokenizer(), tokenizer(), plain.generation, max_src_tokens=max_tokens, prefix=prefix, is_whole=True
    )


def test_text_is_read_whole_and_cut_at_its_end() -> None:
    text = "my aunt looked for a house\nyour doctor is not cold. " * 4
    ids = tokenizer().encode(text.strip().replace("\n", " "), add_eos=True)
    model = summarizer(20)
    found = model.translate([text, "a house", " \n "])
    assert [each.n_unread_tokens for each in found] == [len(ids) - 20, 0, 0]
    assert [each.n_segments for each in found] == [1, 1, 0]
    seen: list[list[int]] = []
    decode = model.search
    model.search = lambda sources, *rest: (seen.extend(sources), decode(sources, *rest))[1]  # type: ignore[assignment, method-assign]
    model.translate([text])
    assert seen == [[*ids[:19], tokenizer().eos_id]]
    assert len(model.align(text, found[0]).src_pieces) == 20
    with pytest.raises(LengthError, match=f"A text has {len(ids)} tokens. The model takes at most 20"):
        model.translate([text], is_strict=True)
    assert summarizer(len(ids)).translate([text], is_strict=True)[0].n_unread_tokens == 0


@pytest.mark.parametrize("is_whole", [True, False])
def test_prefix_is_put_before_every_text_once(is_whole: bool) -> None:
    plain = make_translator()
    options: dict[str, Any] = {"max_src_tokens": 40, "is_whole": is_whole}
    prefixed = Translator(plain.model, tokenizer(), tokenizer(), plain.generation, prefix="say it: ", **options)
    bare = Translator(plain.model, tokenizer(), tokenizer(), plain.generation, **options)
    text = "my aunt looked for a house"
    found, expected = prefixed.translate([text])[0], bare.translate([f"say it: {text}"])[0]
    assert (found.text, found.score) == (expected.text, expected.score) and found.text
    assert found.score != bare.translate([text])[0].score
    assert prefixed.align(text, found) == bare.align(f"say it: {text}", expected)
    assert prefixed.translate([""])[0].finish_reason == "blank"


def test_each_part_of_a_long_text_has_the_prefix_and_fits() -> None:
    plain = make_translator()
    model = Translator(plain.model, tokenizer(), tokenizer(), plain.generation, max_src_tokens=25, prefix="say it: ")
    text = "my aunt looked for a house. " * 6
    lines = model.segments(text)
    assert len(lines) == 1 and len(lines[0]) > 1
    assert max(model._n_tokens(part) for part in lines[0]) <= 25


# -- the whole task ------------------------------------------------------------------------------------------------

TINY = SETTINGS | {"task.name": "summarize", "task.prefix": "summarize: ", "data.max_tokens": 45, "data.tgt": "en"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few updates, and what it said."""
    folder = tmp_path_factory.mktemp("summaries")
    sets = [f"{name}={value}" for name, value in (TINY | {"validation.metric": "rougeL"}).items()]
    said: list[str] = []
    reports: list[Any] = []
    run_training(
        TrainingRequest(
            data=[str(write_texts(folder / "train.tsv", 40, 1))],
            valid=[str(write_texts(folder / "valid.tsv", 5, 2))],
            out=folder / "run",
            resolved=resolve(None, None, sets, {"training.steps": 4}),
            say=said.append,
            show_report=reports.append,
        )
    )
    (folder / "said.txt").write_text("\n".join(said), encoding="utf-8")
    (folder / "found.json").write_text(json.dumps([found.name for found in reports[0].findings]), encoding="utf-8")
    return folder


def test_run_says_what_it_cut_and_measures_rouge(folder: Path) -> None:
    said = (folder / "said.txt").read_text(encoding="utf-8")
    store = TokenStore.open(folder / "run" / "data" / "train")
    assert store.info.n_cut > 0 and store.lengths[:, 0].max() == 44
    assert f"train: {store.info.n_cut} texts of more than 45 tokens were cut at their end." in said
    assert "ROUGE-1 " in said and "ROUGE-Lsum " in said
    metrics = json.loads((folder / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert {"rouge1", "rouge2", "rougeL", "rougeLsum", "rougeL_low", "rougeL_high"} <= set(metrics)
    assert metrics["rouge_rows"] == 5 and "stem:porter" in metrics["rouge_signature"] and "bleu" not in metrics
    card = (folder / "run" / "README.md").read_text(encoding="utf-8")
    assert "a text of more than 45 tokens was cut" in card and "rouge_signature" in card
    assert "numbers differ" not in (folder / "found.json").read_text(encoding="utf-8")


def test_folder_is_used_with_prefix_and_cut(folder: Path) -> None:
    model = Translator.load(folder / "run")
    assert (model.prefix, model.is_whole, model.max_src_tokens) == ("summarize: ", True, 45)
    lines = (folder / "valid.tsv").read_text(encoding="utf-8").splitlines()
    text = max((line.partition("\t")[0] for line in lines), key=len)
    assert model.translate([text])[0].n_unread_tokens == len(tokenizer_of(model, text)) - 45


def tokenizer_of(model: Translator, text: str) -> list[int]:
    return model.src_tokenizer.encode(f"summarize: {text}", add_eos=True)


def test_stored_sources_are_those_of_use(folder: Path) -> None:
    """Training, validation and use read the same ids, so that figures tell of the model in use."""
    model = Translator.load(folder / "run")
    store = TokenStore.open(folder / "run" / "data" / "valid")
    for i, line in enumerate((folder / "valid.tsv").read_text(encoding="utf-8").splitlines()):
        ids = model._cut(model._encode([line.partition("\t")[0]])[0])
        assert [*store.src(i).tolist(), model.src_tokenizer.eos_id] == ids


def test_validation_reads_texts_as_use_does(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a whole where they have several lines, and without a second prefix."""
    seen: list[list[int]] = []
    decode = Translator.search

    def spy(self: Translator, sources: list[list[int]], *rest: Any) -> Any:
        seen.extend(sources)
        return decode(self, sources, *rest)

    monkeypatch.setattr(Translator, "search", spy)
    saved = load_model_folder(folder / "run")
    text = " my aunt looked for a house.\r\n\n Your doctor\tis here. " * 9
    (tmp_path / "data.jsonl").write_text(json.dumps({"src": text, "tgt": "a\nhouse"}), encoding="utf-8")
    resolved = Resolved(config=saved.config, origin={})
    request = TrainingRequest(data=[], out=tmp_path, resolved=resolved, say=lambda text: None)
    task = SummarizationTask(request, tmp_path)
    task.parts = {"valid": task._reader([str(tmp_path / "data.jsonl")])}
    task.prepare("valid", tmp_path / "valid", Tokenizers(saved.tokenizer, saved.tokenizer))
    store = TokenStore.open(tmp_path / "valid")
    assert saved.tokenizer.decode(store.tgt(0)) == "a house"
    validate = TranslationValidator(store, saved.config, saved.src_tokenizer, saved.tokenizer, say=lambda text: None)
    validate(saved.model)
    Translator.load(folder / "run").translate([text])
    assert len(seen) == 2 and seen[0] == seen[1] and len(seen[0]) == 45
    assert saved.tokenizer.decode(seen[0]).startswith("summarize: my aunt looked for a house. Your doctor is")


def test_commands_on_a_model_of_summaries(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run, data = str(folder / "run"), str(folder / "valid.tsv")
    assert run_cli(["evaluate", run, data, "--json"], monkeypatch) == 0
    out, _ = capfd.readouterr()
    report = json.loads(out)
    assert list(report["scores"])[:4] == ["rouge1", "rouge2", "rougeL", "rougeLsum"] and "ter" not in report["scores"]
    assert report["n_cut_sources"] > 0 and any("ends were cut off" in note for note in report["notes"])
    metrics = json.loads((folder / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert report["scores"]["rouge1"]["value"] == pytest.approx(metrics["rouge1"])
    assert run_cli(["translate", run, "my aunt looked for a house. " * 9, "--json"], monkeypatch) == 0
    out, err = capfd.readouterr()
    assert "1 texts had more than 45 tokens: what came after them was not read." in err
    assert json.loads(out)["unread_tokens"] > 0
