"""`glassformer info`: figures, errors and exit codes, through the command line itself."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.cli import main
from glassformer.config import Config, ModelConfig, TokenizerConfig
from glassformer.tasks.model_folder import save_model_folder
from glassformer.text.tokenizer import Tokenizer


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["glassformer", "info", *words])
    monkeypatch.setattr(sys.stdout, "reconfigure", lambda **_: None, raising=False)
    monkeypatch.setattr(sys.stderr, "reconfigure", lambda **_: None, raising=False)
    with pytest.raises(SystemExit) as caught:
        main()
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


def test_json_of_the_lessons_sizes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("paper-base", "--set", "model.vocab_size=100256", "--json")
    code, out, _ = run(capsys, monkeypatch, *words)
    report = json.loads(out)
    steps = {step["name"]: step["shape"] for step in report["steps"]}
    assert code == 0
    assert steps["logits"] == [4, 12, 100256] and steps["memory"] == [4, 10, 512]
    assert report["config"]["vocab_size"] == 100256
    assert report["total_parameters"] == sum(report["parameters"].values()) == 63_045_632 + (100256 - 37000) * 512
    assert report["cache_bytes"] == 2 * 6 * 4 * 512 * 22 * 4


def test_tables_name_parts_costs_and_steps(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "gpt2", "--batch", "3", "--tgt-length", "7")
    assert code == 0
    for words in ("124,439,808", "position table", "key-value cache", "(3, 7, 50257)", "[B, T, V]", "target 7 tokens"):
        assert words in out
    assert "source" not in out.partition("Steps")[2]


def test_a_model_folder_that_a_run_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer.train(["we eat bread"] * 3, TokenizerConfig(), vocab_size=300)
    model = ModelConfig(d_model=8, d_ff=12, n_heads=2, vocab_size=300)
    save_model_folder(
        tmp_path,
        config=dataclasses.replace(Config(), model=model),
        weights={},
        tokenizer=tokenizer,
        src_tokenizer=tokenizer,
        metrics={},
        card="",
    )
    code, out, err = run(capsys, monkeypatch, str(tmp_path), "--json", "--set", "model.n_heads=4")
    assert (code, err) == (0, "")
    assert json.loads(out)["config"]["n_heads"] == 4 and json.loads(out)["config"]["d_ff"] == 12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["papr-base"], "'papr-base' is no preset, and no folder"),
        (["small", "--set", "model.n_heads=7"], "n_heads=7 does not divide d_model=256"),
        (["small", "--set", "training.lr=1"], "has no effect on info"),
        (["small", "--batch", "0"], "0 is not in the range"),
        (["gpt2", "--tgt-length", "2000"], "2000 is more than max_positions=1024"),
        ([], "Missing argument"),
    ],
)
def test_errors_are_one_message_and_exit_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, out) == (2, "")
    assert message in err and "Traceback" not in err


def test_info_imports_no_torch() -> None:
    code = "import sys; from glassformer.cli import cli; cli(['info', 'tiny'], standalone_mode=False)"
    subprocess.run(
        [sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], check=True, stdout=subprocess.DEVNULL
    )
