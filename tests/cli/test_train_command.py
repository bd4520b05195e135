"""`glassformer train`: what it leaves behind, what it refuses, and that nothing is lost when it fails."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from safetensors.torch import load_file

from glassformer.tasks import Translator
from glassformer.tasks.model_folder import load_model_folder
from glassformer.training.checkpoint import Checkpoints
from training.runs import log_of, run_cli, sha256, train_arguments, write_pairs

Train = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_pairs(folder / "train.tsv", 60)
    write_pairs(folder / "valid.tsv", 6, first=100)
    return folder


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Train:
    """Runs a command line and gives its exit code and what it said."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)

    def call(arguments: list[str]) -> tuple[int, str]:
        code = run_cli(arguments, monkeypatch)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        assert out.count("error") == 0
        return code, err

    return call


def test_run_folder_is_a_model_that_says_what_it_is(data: Path, tmp_path: Path, train: Train) -> None:
    out = tmp_path / "new" / "run"
    code, said = train(train_arguments(data, out, 12, training__log_every=5))
    assert code == 0
    for words in ("60 rows", "Vocabulary tokenizer.json: 300 entries", "train: 60 pairs", "training.lr=", "Done after"):
        assert words in said
    files = {path.name for path in out.iterdir() if path.is_file()}
    model = {"config.json", "generation.json", "metrics.json", "README.md", "model.safetensors", "tokenizer.json"}
    model.add("probe.json")
    assert files == model | {"run.json", "log.jsonl", "learning-curve.svg"}
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert (metrics["updates"], metrics["rows"], metrics["measured_on"]) == (12, 6, "validation")
    assert [entry["update"] for entry in log_of(out, "train")] == [5, 10]
    assert [entry["update"] for entry in log_of(out, "validation")] == [4, 8, 12]
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "from en to fr" in card and "glassformer train" in card and "60 pairs of train.tsv" in card
    assert len(Translator.load(out).translate(["we eat bread"])) == 1
    # The saved configuration repeats the run.
    again = ["train", *train_arguments(data, tmp_path / "again")[1:6], "--out", str(tmp_path / "again")]
    code, _ = train([*again, "--src", "en", "--tgt", "fr", "--config", str(out / "config.json")])
    assert code == 0
    assert sha256(tmp_path / "again" / "model.safetensors") == sha256(out / "model.safetensors")


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer__is_shared": "false"},
        {"training__average_last": 2},
        {"model__positions": "learned", "model__max_positions": 16},
        {"validation__metric": "chrf", "model__tying": "none"},
        {"training__schedule": "cosine", "training__normalization": "sentences", "training__max_grad_norm": 0},
        {"training__precision": "bf16"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_variants_train_save_and_load(data: Path, tmp_path: Path, train: Train, settings: dict[str, Any]) -> None:
    code, said = train(train_arguments(data, tmp_path / "run", 8, **settings))
    assert code == 0
    folder = load_model_folder(tmp_path / "run")
    assert Translator.load(tmp_path / "run").translate(["we eat bread " * 20])[0].n_segments >= 1
    if "tokenizer__is_shared" in settings:
        assert "two vocabularies cannot share one table" in said
        assert folder.src_tokenizer.vocab_hash != folder.tokenizer.vocab_hash
    if "model__max_positions" in settings:
        assert folder.config.data.max_tokens == 16
        assert "more than 16 tokens" in said, "what does not fit is left out and counted"
    if "training__average_last" in settings:
        assert "of the average" in said


def test_average_of_the_last_checkpoints(
    data: Path, tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The better one of best and average becomes the model; here the average is taken to be."""
    monkeypatch.setattr("glassformer.tasks.training_run._Run._better_of", lambda run, best, average: average)
    settings = {"training__average_last": 2, "training__save_every": 3, "training__lr": 0.02}
    assert train(train_arguments(data, tmp_path / "run", 12, **settings))[0] == 0
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints", keep_last=2)
    assert checkpoints.updates() == [9, 12]
    parts = [checkpoints.load(update).weights for update in (9, 12)]
    for name, weight in load_file(tmp_path / "run" / "model.safetensors").items():
        assert torch.allclose(weight, (parts[0][name] + parts[1][name]) / 2)
    assert not torch.allclose(weight, parts[1][name])
    assert Translator.load(tmp_path / "run").translate(["we eat bread"])


def test_run_without_any_finite_validation(
    data: Path, tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"loss": float("nan"), "perplexity": float("nan")}
    monkeypatch.setattr("glassformer.tasks.validation.TranslationValidator.__call__", lambda self, model: broken)
    code, said = train(train_arguments(data, tmp_path / "run", 4))
    assert code == 1
    assert "No validation gave a finite loss" in said and "Lower training.lr" in said
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_vocabulary_larger_than_the_texts_support(tmp_path: Path, train: Train) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"a b c {i}\ta b c d {i}\n" for i in range(30)), encoding="utf-8")
    write_pairs(tmp_path / "valid.tsv", 3)
    out = tmp_path / "run"
    code, said = train(train_arguments(tmp_path, out, 4, tokenizer__vocab_size=9000, model__vocab_size=9000))
    assert code == 0
    size = load_model_folder(out).config.model.vocab_size
    assert 200 < size < 400
    assert f"{size} entries (bpe); the texts support no more of the 9,000 wanted" in said
    assert f"model.vocab_size={size} instead of 9000" in said
    assert load_file(out / "model.safetensors")["encoder.embedding.tokens.weight"].shape[0] == size


def test_bad_rows_are_counted_and_never_stop_a_run(data: Path, tmp_path: Path, train: Train) -> None:
    rows = (data / "train.tsv").read_bytes()
    bad = b"one column\n" + b"a\x00b\tc\n" + b"x" * 1_000_001 + b"\ty\n" + b"\t\n" + b" \tblank\n"
    with gzip.open(tmp_path / "train.tsv.gz", "wb") as file:
        file.write(rows + bad)
    arguments = train_arguments(data, tmp_path / "run", 4)
    arguments[1] = str(tmp_path / "train.tsv.gz")
    code, said = train(arguments)
    assert code == 0
    kept = said.split("train: ")[1].split(".")[0]
    assert kept.startswith(("60 pairs", "61 pairs"))
    for reason in ("1 column", "longer than 1,000,000 characters"):
        assert reason in said
    code, said = train([*arguments[:-1], arguments[-1], "--strict", "--out", str(tmp_path / "strict")])
    assert code == 2
    assert "train.tsv.gz, line 61: 1 column" in said


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "train.tsv cannot be read"),
        (b"", "train.tsv is empty"),
        (b"caf\xe9\tcaf\xe9\n", "train.tsv, line 1: byte 0xE9 at offset 3 is not utf-8"),
        (b"no tab here\n" * 5, "No row of"),
        (b"\x00\x00\x00", "train.tsv"),
        (b"x" * 1_000_002, "longer than 1,000,000 characters"),
        (b"a b\tc d\n", "1 pairs are too few to hold some out for validation"),
    ],
    ids=["missing", "empty", "latin-1", "one column", "nul", "one long line", "one pair"],
)
def test_data_that_cannot_be_used(tmp_path: Path, train: Train, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "train.tsv").write_bytes(content)
    arguments = train_arguments(tmp_path, tmp_path / "run", 4)
    del arguments[2:4]  # no --valid
    code, said = train(arguments)
    assert code == 2
    error = said[said.index("error: ") :]
    assert message in error
    assert not (tmp_path / "run").exists()


def test_sides_of_different_length(tmp_path: Path, train: Train) -> None:
    (tmp_path / "a.en").write_text("one\ntwo\nthree\nfour\nfive\n", encoding="utf-8")
    (tmp_path / "a.fr").write_text("un\ndeux\ntrois\nquatre\n", encoding="utf-8")
    code, said = train(["train", str(tmp_path / "a.en"), str(tmp_path / "a.fr"), "--out", str(tmp_path / "run")])
    assert code == 2
    assert "a.en" in said and "a.fr" in said and "5" in said and "4" in said


@pytest.mark.parametrize(
    ("settings", "extra", "message"),
    [
        ({"training__learnig_rate": 1}, [], "'training.learnig_rate' is an unknown key"),
        ({"training__max_grad_nrom": 1}, [], "Did you mean 'max_grad_norm'"),
        ({"lr": 1}, [], "Did you mean 'training.lr'"),
        ({"training__lr": "fast"}, [], "training.lr"),
        ({"training__lr": "nan"}, [], "training.lr"),
        ({"model__n_heads": 3}, [], "n_heads=3 does not divide d_model=16"),
        ({"model__family": "decoder-only"}, [], "model.family=decoder-only cannot translate"),
        ({"validation__metric": "bleu", "validation__bleu_rows": 0}, [], "metric=bleu with bleu_rows=0"),
        ({"tokenizer__vocab_size": 10}, [], "10"),
        ({}, ["--epochs", "3"], "steps and epochs are both set"),
        ({}, ["--preset", "smal"], "smal"),
        ({}, ["--budget", "soon"], "'soon' is no duration"),
        ({}, ["b.tsv", "c.tsv"], "3 files were given"),
        ({}, ["--set", "training.seed"], "has no '='"),
        ({}, ["--set", "training.n_threads=2"], "gives training.n_threads twice"),
    ],
)
def test_settings_that_cannot_be_used(
    data: Path, tmp_path: Path, train: Train, settings: dict[str, Any], extra: list[str], message: str
) -> None:
    code, said = train([*train_arguments(data, tmp_path / "run", **settings), *extra])
    assert code == 2
    assert message in said
    assert not (tmp_path / "run").exists()


def test_a_refused_run_leaves_its_name_to_the_mended_command(data: Path, tmp_path: Path, train: Train) -> None:
    """Also when it is refused after the data are prepared; a run that was there before stays as it is."""
    out, long = tmp_path / "run", "bread " * 200
    code, said = train(train_arguments(data, out, 2, validation__film=long))
    assert (code, "validation.film has" in said, out.exists()) == (2, True, False)
    out.mkdir()
    assert train(train_arguments(data, out, 2, data__encoding="no such codec"))[0] == 2
    assert list(out.iterdir()) == []
    assert train(train_arguments(data, out, 2))[0] == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert train(train_arguments(data, out, 3))[0] == 2
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_out_that_is_no_folder_for_a_run(data: Path, tmp_path: Path, train: Train) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    code, said = train(train_arguments(data, tmp_path / "file"))
    assert (code, "is a file" in said) == (2, True)
    code, said = train(train_arguments(data, tmp_path / "file" / "run"))
    assert code in (1, 2) and "file/run" in said
    mine = tmp_path / "mine"
    (mine / "data" / "train").mkdir(parents=True)
    (mine / "README.md").write_text("mine", encoding="utf-8")
    (mine / "data" / "train" / "corpus").write_text("mine", encoding="utf-8")
    for arguments in (train_arguments(data, mine), [*train_arguments(data, mine), "--resume"]):
        code, said = train(arguments)
        assert (code, "holds other files" in said) == (2, True)
    assert (mine / "README.md").read_text(encoding="utf-8") == "mine"
    assert (mine / "data" / "train" / "corpus").read_text(encoding="utf-8") == "mine"
    (tmp_path / "empty").mkdir()
    assert train(train_arguments(data, tmp_path / "empty", 2))[0] == 0


def test_resume_is_needed_and_goes_with_the_same_command_only(data: Path, tmp_path: Path, train: Train) -> None:
    out = tmp_path / "run"
    assert train(train_arguments(data, out, 4))[0] == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    code, said = train(train_arguments(data, out, 4))
    assert (code, "holds a run already" in said) == (2, True)
    code, said = train([*train_arguments(data, out, 4, training__lr=0.1), "--resume"])
    assert (code, "was begun with other settings" in said) == (2, True)
    code, said = train([*train_arguments(data, out, 5), "--resume"])
    assert (code, "'training.steps': 4" in said) == (2, True)
    code, said = train([*train_arguments(data, out, 4), "--resume"])
    assert (code, "is finished already; nothing to do" in said) == (0, True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert train([*train_arguments(data, tmp_path / "other", 4), "--resume"])[0] == 0, "nothing to resume: a new run"


# -- damage, hostile files and full disks -------------------------------------------------------------------------


def unfinished(data: Path, out: Path, train: Train) -> list[str]:
    """A run that looks as if it had been killed before its last evaluation."""
    arguments = train_arguments(data, out, 8)
    assert train(arguments)[0] == 0
    content = json.loads((out / "run.json").read_text(encoding="utf-8"))
    del content["is_finished"]
    (out / "run.json").write_text(json.dumps(content), encoding="utf-8")
    return [*arguments, "--resume"]


def test_damaged_checkpoint_is_named_and_the_one_before_it_serves(data: Path, tmp_path: Path, train: Train) -> None:
    out = tmp_path / "run"
    arguments = unfinished(data, out, train)
    model = sha256(out / "model.safetensors")
    path = out / "checkpoints" / "step-8" / "optimizer.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    code, said = train(arguments)
    assert (code, "step-8 is damaged" in said) == (2, True)
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    code, said = train(arguments)
    assert (code, "Resumed from update 4" in said) == (0, True)
    assert sha256(out / "model.safetensors") == model
    assert [entry["update"] for entry in log_of(out, "train")] == list(range(1, 9))


@pytest.mark.parametrize(
    "file",
    [
        *("run.json", "data/tokenizer.json", "data/train/store.json", "data/train/src.0.ids"),
        *("checkpoints/step-8/state.json", "checkpoints/step-8/model.safetensors"),
    ],
)
def test_pickle_in_a_run_folder_is_never_run(data: Path, tmp_path: Path, train: Train, file: str) -> None:
    arguments = unfinished(data, tmp_path / "run", train)
    marker = tmp_path / "marker"

    (tmp_path / "run" / file).write_bytes(trap(marker))
    code, said = train(arguments)
    assert code == 2
    assert Path(file).name in said or "step-8" in said or "data/train" in said
    assert not marker.exists()


def trap(marker: Path) -> bytes:
    """A pickle that writes a file when it is loaded."""
    return b"cposix\nsystem\n(S'touch %s'\ntR." % str(marker).encode()


@pytest.mark.parametrize("call", [1, 2, 3, 5, 7])  # the first is that of the lexicon
def test_full_disk_loses_nothing(
    data: Path, tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """The disk is full at the n-th file of tensors; with room again the run goes on to the same model."""
    assert train(train_arguments(data, tmp_path / "whole", 8))[0] == 0
    out, calls = tmp_path / "run", 0
    kept = safetensors.torch.save_file

    def save_file(tensors: Any, path: Path, metadata: Any = None) -> None:
        nonlocal calls
        calls += 1
        if calls >= call:
            Path(path).write_bytes(b"half")
            raise safetensors.SafetensorError("I/O error: No space left on device (os error 28)")
        kept(tensors, path, metadata)

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", save_file)
        code, said = train(train_arguments(data, out, 8))
    assert code == 1
    assert said.count("\nerror: ") == 1 and "No space left on device" in said and "--resume" in said
    assert not [path for path in out.rglob("*") if "partial" in path.name]
    for update in Checkpoints(out / "checkpoints", keep_last=2).updates():
        Checkpoints(out / "checkpoints", keep_last=2).load(update)
    if call > 2:
        assert load_model_folder(out)
    assert train([*train_arguments(data, out, 8), "--resume"])[0] == 0
    assert sha256(out / "model.safetensors") == sha256(tmp_path / "whole" / "model.safetensors")
    assert log_of(out) == log_of(tmp_path / "whole")


def test_full_disk_at_the_log(data: Path, tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Path.open

    def open_file(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if path.name == "log.jsonl" and "a" in mode:
            raise OSError(28, "No space left on device")
        return kept(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", open_file)
    code, said = train(train_arguments(data, tmp_path / "run", 4))
    assert code == 1
    assert "log.jsonl could not be written (No space left on device)" in said


def test_run_that_is_never_finite_ends_with_advice(data: Path, tmp_path: Path, train: Train) -> None:
    settings = {"training__lr": 1e30, "training__max_skipped": 2, "training__warmup_steps": 1}
    code, said = train(train_arguments(data, tmp_path / "run", 30, **settings, training__schedule="constant"))
    assert code == 1
    assert said.count("error: ") == 1
    assert "Lower training.lr" in said


# -- a budget -----------------------------------------------------------------------------------------------------


def budget_arguments(data: Path, out: Path, budget: str) -> list[str]:
    arguments = train_arguments(data, out)
    del arguments[arguments.index("--steps") : arguments.index("--steps") + 2]
    return [*arguments, "--budget", budget]


def test_budget_that_is_too_small_is_refused(data: Path, tmp_path: Path, train: Train) -> None:
    code, said = train(budget_arguments(data, tmp_path / "run", "5s"))
    assert code == 2
    assert "A budget of 5 s leaves" in said and "Give a larger --budget" in said


@pytest.mark.slow
def test_budget_is_kept(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    started = time.monotonic()
    command = [sys.executable, "-m", "glassformer", *budget_arguments(data, out, "30s")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8")
    wall_s = time.monotonic() - started
    assert done.returncode == 0, done.stderr
    assert 15 < wall_s <= 36  # start-up of the process, which the budget does not cover, on a busy machine
    assert "of training at" in done.stderr
    metrics = load_model_folder(out).metrics
    assert metrics["training_s"] > 5 and metrics["bleu_rows"] == 6
    last = log_of(out, "train")[-1]
    assert last["lr"] < 0.05 * max(entry["lr"] for entry in log_of(out, "train")), "the rate has come to its end"


# -- the platform -------------------------------------------------------------------------------------------------


def test_locale_without_utf_8_gives_the_same_model(tmp_path: Path, train: Train) -> None:
    folder = tmp_path / "d\u00e9j\u00e0"
    folder.mkdir()
    write_pairs(folder / "train.tsv", 40)
    write_pairs(folder / "valid.tsv", 3, first=100)
    assert train(train_arguments(folder, tmp_path / "here", 4))[0] == 0
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONWARNDEFAULTENCODING": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "glassformer", *train_arguments(folder, tmp_path / "c", 4)]
    done = subprocess.run(command, env=plain | locale, capture_output=True)
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if b"EncodingWarning" in line]
    assert not [line for line in warned if b"glassformer" in line], "torch has some, this package has none"
    assert sha256(tmp_path / "c" / "model.safetensors") == sha256(tmp_path / "here" / "model.safetensors")
    assert "d\u00e9j\u00e0" in (tmp_path / "c" / "README.md").read_text(encoding="utf-8")


def test_print_config_shows_values_and_origins(data: Path, tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    assert run_cli([*train_arguments(data, tmp_path / "run"), "--print-config"], monkeypatch) == 0
    out = capfd.readouterr().out
    assert "model.d_model" in out and "--set" in out and "default" in out
    assert not (tmp_path / "run").exists()
