"""Runs of `train --task classify` and `--task label` from data to use."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.data.store import TokenStore
from glassformer.model import EncoderOnly
from glassformer.tasks.classification import ClassificationValidator
from glassformer.tasks.classifier import Classifier
from glassformer.tasks.labeller import Labeller
from glassformer.tasks.labelling import LabellingValidator, expected_labels, sentence_votes, whole_sentences
from glassformer.tasks.model_folder import load_model_folder
from glassformer.training.label_losses import choice_loss
from tasks import label_models
from training.runs import log_of, run_cli, sha256

GOOD, BAD, THINGS = ("fine", "great", "lovely"), ("poor", "awful", "dull"), ("film", "book", "meal", "walk")


def reviews(n: int, seed: int = 0) -> list[tuple[str, str]]:
    chance = random.Random(seed)
    rows = []
    for _ in range(n):
        label = chance.choice(("good", "bad"))
        word = chance.choice(GOOD if label == "good" else BAD)
        rows.append((f"the {chance.choice(THINGS)} was {word} {chance.randint(0, 999)}", label))
    return rows


def write(path: Path, rows: list[tuple[str, ...]]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def sentences(n: int, seed: int = 0) -> str:
    chance = random.Random(seed)
    out = []
    for _ in range(n):
        name, place = chance.choice(("Anna", "Paul Kay")), chance.choice(("Lyon", "New York"))
        words = [*name.split(), "lives", "in", *place.split(), str(chance.randint(0, 999))]
        tags = [
            "B-PER",
            *["I-PER"] * (len(name.split()) - 1),
            "O",
            "O",
            "B-LOC",
            *["I-LOC"] * (len(place.split()) - 1),
            "O",
        ]
        out.append("".join(f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True)))
    return "\n".join(out)


def metrics_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def reviews_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned reviews."""
    folder = tmp_path_factory.mktemp("reviews")
    write(folder / "train.tsv", reviews(300))  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        arguments = label_models.train_arguments(
            folder / "train.tsv", folder / "run", "classify", 60, training__lr=0.01, validation__metric="accuracy"
        )
        assert run_cli(arguments, patch) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def words_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned names and places, with sentences that are longer than the model reads."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "train.conll").write_text(sentences(150), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        arguments = label_models.train_arguments(
            folder / "train.conll", folder / "run", "label", 80, training__lr=0.01, data__max_tokens=8
        )
        assert run_cli(arguments, patch) == 0
    return folder / "run"


def test_a_classifier_is_learned_and_used(reviews_run: Path) -> None:
    metrics = metrics_of(reviews_run)
    assert metrics["accuracy"] > 0.95 and metrics["macro_f1"] > 0.95
    assert metrics["rows_measured"] == metrics["rows"] == sum(rate["support"] for rate in metrics["labels"].values())
    classifier = Classifier.load(reviews_run)
    assert classifier.labels.names == ("bad", "good")
    found = classifier.classify(["the book was lovely 4", "the meal was awful 77"])
    assert [one.label for one in found] == ["good", "bad"]
    card = (reviews_run / "README.md").read_text(encoding="utf-8")
    assert "| good | " in card and "## Confusions" in card


def test_the_figures_are_those_of_the_classifier_in_use(reviews_run: Path) -> None:
    store = TokenStore.open(reviews_run / "data" / "valid")
    classifier = Classifier.load(reviews_run)
    texts = classifier.tokenizer.decode_batch([store.src(i).tolist() for i in range(len(store))])
    found = classifier.classify(texts)
    expected = [classifier.labels.names[int(store.tgt(i)[0])] for i in range(len(store))]
    right = [one.label == label for one, label in zip(found, expected, strict=True)]
    assert metrics_of(reviews_run)["accuracy"] == pytest.approx(sum(right) / len(right))


def test_a_labeller_is_learned_and_used(words_run: Path) -> None:
    metrics = metrics_of(words_run)
    assert metrics["entity_f1"] > 0.9 and set(metrics["entities"]) == {"LOC", "PER"}
    labeller = Labeller.load(words_run)
    assert labeller.labels.scheme == "BIO"
    text = "Paul Kay lives in New York 12"
    (found,) = labeller.label([text])
    assert [(e.type, text[e.start : e.end]) for e in found.entities] == [("PER", "Paul Kay"), ("LOC", "New York")]


def test_the_figures_are_those_of_the_labeller_in_use(words_run: Path) -> None:
    folder = load_model_folder(words_run)
    store, labeller = TokenStore.open(words_run / "data" / "valid"), Labeller.load(words_run)
    rows = whole_sentences(store)
    assert max(map(len, rows)) > 1, "some sentence was divided"
    expected = expected_labels(store, rows)
    texts = [folder.tokenizer.decode([i for row in part for i in store.src(row).tolist()]) for part in rows]
    found = labeller.label([text.split() for text in texts])
    assert [len(one.words) for one in found] == list(map(len, expected))
    said = [[labeller.labels.index[word.label] for word in one.words] for one in found]
    pairs = [pair for one, other in zip(said, expected, strict=True) for pair in zip(one, other, strict=True)]
    assert metrics_of(words_run)["accuracy"] == pytest.approx(sum(a == b for a, b in pairs) / len(pairs))
    assert isinstance(folder.model, EncoderOnly)
    votes = torch.cat([torch.from_numpy(one) for one in sentence_votes(folder.model, store, rows)])
    _, nll = choice_loss(votes, torch.tensor([n for row in expected for n in row]), weights=None, smoothing=0.0)
    assert metrics_of(words_run)["loss"] == pytest.approx(float(nll) / len(votes), rel=1e-9)


def test_figures_do_not_depend_on_the_batch(
    reviews_run: Path, words_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, validator_of in ((reviews_run, ClassificationValidator), (words_run, LabellingValidator)):
        folder = load_model_folder(path)
        assert folder.labels is not None
        validator = validator_of(
            TokenStore.open(path / "data" / "valid"), folder.config, folder.labels, folder.tokenizer, say=print
        )
        figures = validator(folder.model)
        for batch_tokens in (1, 70):
            monkeypatch.setattr("glassformer.tasks.votes.tokens_together", lambda device, n=batch_tokens: n)
            assert validator(folder.model) == pytest.approx(figures, rel=1e-6)


@pytest.mark.parametrize("task", ["classify", "label"])
def test_a_broken_run_goes_on_to_the_same_weights(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "train"
    if task == "classify":
        write(data, reviews(60))  # type: ignore[arg-type]
    else:
        data.write_text(sentences(40), encoding="utf-8")
    options: dict[str, Any] = {"model__dropout": 0.1, "training__save_every": 3, "training__keep_last": 9}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run_cli(label_models.train_arguments(data, whole, task, 8, **options), monkeypatch) == 0

    from glassformer.training.trainer import Trainer

    update = Trainer._update

    def stops(self: Trainer, *arguments: Any) -> None:
        if self.state.update == 5:
            raise KeyboardInterrupt
        update(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", stops)
        assert run_cli(label_models.train_arguments(data, broken, task, 8, **options), monkeypatch) == 130
    arguments = [*label_models.train_arguments(data, broken, task, 8, **options), "--resume"]
    assert run_cli(arguments, monkeypatch) == 0
    assert sha256(broken / "checkpoints/step-8/model.safetensors") == sha256(
        whole / "checkpoints/step-8/model.safetensors"
    )
    assert log_of(broken) == log_of(whole)


def test_pairs_several_labels_and_weights_from_data_to_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        (text, text if i % 2 else "other", f"same,{label}" if i % 2 else "")
        for i, (text, label) in enumerate(reviews(60))
    ]
    data = write(tmp_path / "a.tsv", rows)
    arguments = label_models.train_arguments(
        data,
        tmp_path / "run",
        "classify",
        4,
        task__is_multi_label=True,
        task__use_class_weights=True,
        validation__metric="micro_f1",
        tokenizer__bpe_dropout=0.1,
        tokenizer__n_variants=2,
    )
    assert run_cli(arguments, monkeypatch) == 0
    folder = load_model_folder(tmp_path / "run")
    assert folder.labels is not None and folder.labels.names == ("bad", "good", "same")
    assert folder.config.model.n_segments == 2 and folder.labels.n_texts == 2
    assert {"accuracy", "macro_f1", "micro_f1"} <= set(folder.metrics)
    (found,) = Classifier.load(tmp_path / "run").classify([("a film", "other")])
    assert set(found.probabilities) == {"bad", "good", "same"}


def test_what_cannot_be_trained_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "a.tsv", [(f"text {i}", "x") for i in range(40)])
    cases = [
        ("classify", {}, "The training data have 1 label: x."),
        ("classify", {"validation__metric": "entity_f1"}, "is no figure of --task classify"),
        ("classify", {"data__max_tokens": 2}, "leaves room for 0 tokens"),
        ("label", {"tokenizer__bpe_dropout": 0.1}, "tokenizer.bpe_dropout=0.1 with --task label"),
        ("classify", {"model__family": "decoder-only", "model__n_decoder_layers": 1}, "does not fit this task"),
    ]
    write(tmp_path / "b.tsv", [(f"text {i}", "xy"[i % 2]) for i in range(40)])
    for number, (task, settings, message) in enumerate(cases):
        path = data if number == 0 else tmp_path / "b.tsv"
        arguments = label_models.train_arguments(path, tmp_path / f"run{number}", task, 2, **settings)
        assert run_cli(arguments, monkeypatch) == 2
        assert message in capfd.readouterr().err


def test_an_unknown_label_of_the_validation_data_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.tsv", reviews(40))  # type: ignore[arg-type]
    write(tmp_path / "v.tsv", [("a film", "good"), ("a walk", "so so"), ("x",)])
    arguments = label_models.train_arguments(tmp_path / "a.tsv", tmp_path / "run", "classify", 2)
    assert run_cli([*arguments, "--valid", str(tmp_path / "v.tsv")], monkeypatch) == 0
    told = capfd.readouterr().err
    assert "valid: 1 texts" in told
    assert "1 with the label 'so so', which the training data do not have" in told


@pytest.mark.parametrize("has_same_labels", [True, False])
def test_votes_are_taken_over_for_the_same_labels_only(
    reviews_run: Path,
    has_same_labels: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    names = {"good": "good", "bad": "bad"} if has_same_labels else {"good": "a", "bad": "b"}  # as many, other meanings
    data = write(tmp_path / "a.tsv", [(text, names[label]) for text, label in reviews(60, seed=5)])
    arguments = ["train", str(data), "--task", "classify", "--from", str(reviews_run), "--out", str(tmp_path / "run")]
    arguments += ["--steps", "1", "--set", "training.lr=1e-9", "--set", "training.precision=float32"]
    assert run_cli(arguments, monkeypatch) == 0
    assert ("Fresh: nothing" in capfd.readouterr().err) is has_same_labels
    assert (metrics_of(tmp_path / "run")["accuracy"] > 0.9) is has_same_labels


def test_a_started_model_reads_pairs_with_the_segments_that_it_has(
    reviews_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        (text, other, "yx"[i % 2])
        for i, ((text, _), (other, _)) in enumerate(zip(reviews(60), reviews(60, 1), strict=True))
    ]
    data = write(tmp_path / "a.tsv", rows)
    arguments = ["train", str(data), "--task", "classify", "--from", str(reviews_run), "--out", str(tmp_path / "run")]
    assert run_cli([*arguments, "--steps", "1", "--set", "training.precision=float32"], monkeypatch) == 0
    classifier = Classifier.load(tmp_path / "run")
    assert classifier.takes_pairs and classifier.model.config.n_segments == 0
    assert classifier.classify([("a film", "a walk")])[0].label in ("x", "y")
