"""`glassformer generate` and `perplexity` as a user runs them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from glassformer.cli import cli
from glassformer.config import Config, DataConfig, ModelConfig, TokenizerConfig
from glassformer.errors import GlassformerError
from glassformer.model import build_model
from glassformer.phrasebook import generate as phrases
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.model_folder import save_model_folder
from glassformer.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder-only model with random weights, large enough to tell prompts apart."""
    tokenizer = Tokenizer.train([s for p in phrases(60, 1) for s in p], TokenizerConfig(), vocab_size=300)
    sizes: dict[str, Any] = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_decoder_layers": 1, "max_positions": 64}
    settings = ModelConfig(family="decoder-only", vocab_size=300, use_bos=True, positions="rotary", **sizes)
    torch.manual_seed(0)
    model = build_model(settings)
    path = tmp_path_factory.mktemp("model") / "lm"
    save_model_folder(
        path,
        config=Config(model=settings, data=DataConfig(max_tokens=64)),
        weights={name: 3 * p.detach() for name, p in model.named_parameters()},
        tokenizer=tokenizer,
        src_tokenizer=tokenizer,
        metrics={},
        card="",
    )
    return path


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], input=stdin)


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.output.split("\n")[:-1]


def test_int8_reads_other_weights_than_float32(folder: Path) -> None:
    def log_probs(precision: str) -> list[float]:
        (row,) = lines(
            run("generate", folder, "the", "--beam", 1, "--max-new-tokens", 1, "--json", "--precision", precision)
        )
        return [float(x) for x in json.loads(row)["logprobs"]]

    exact, rounded = log_probs("float32"), log_probs("int8")
    assert rounded == log_probs("int8") != exact
    assert rounded == pytest.approx(exact, abs=0.3)


def test_a_prompt_is_streamed_and_the_seed_decides(folder: Path) -> None:
    first, again, other = (run("generate", folder, "the", "--seed", s, "--max-new-tokens", 9) for s in (1, 1, 2))
    assert lines(first) == lines(again) != lines(other)
    (row,) = lines(run("generate", folder, "the", "--seed", 1, "--max-new-tokens", 9, "--json"))
    assert json.loads(row)["text"] + "\n" == first.output


def test_json_has_ids_log_probs_and_reason_for_each_sample(folder: Path) -> None:
    options = ["--n", 3, "--temperature", 1.5, "--top-k", 20, "--top-p", 0.9, "--min-p", 0.01, "--max-new-tokens", 5]
    rows = [json.loads(line) for line in lines(run("generate", folder, "the", "", *options, "--json"))]
    assert [(row["prompt"], row["index"]) for row in rows] == [(p, i) for p in ("the", "") for i in range(3)]
    for row in rows:
        assert len(row["ids"]) == len(row["logprobs"]) <= 5
        assert row["finish_reason"] in ("eos", "length")
        assert row["log_prob"] == pytest.approx(sum(row["logprobs"]))


def test_greedy_beam_and_stop(folder: Path) -> None:
    greedy = lines(run("generate", folder, "the", "--temperature", 0, "--max-new-tokens", 20, "--json"))
    beam_of_one = lines(run("generate", folder, "the", "--beam", 1, "--max-new-tokens", 20, "--json"))
    assert [json.loads(row)["ids"] for row in greedy] == [json.loads(row)["ids"] for row in beam_of_one]
    best = [json.loads(row) for row in lines(run("generate", folder, "the", "--beam", 4, "--n", 4, "--json"))]
    assert len({str(row["ids"]) for row in best}) == 4
    text = json.loads(greedy[0])["text"]
    stop = text[3:5]
    cut = run("generate", folder, "the", "--temperature", 0, "--max-new-tokens", 20, "--stop", stop, "--stop", "####")
    assert cut.output == text.partition(stop)[0] + "\n"


def test_a_file_standard_input_and_arguments_give_the_same_lines(folder: Path, tmp_path: Path) -> None:
    """G14, G17: one line of output for each line of input, blank ones too; nothing for nothing."""
    prompts = ["the cat", "", "   ", "a", "the cat"]
    options = ["--max-new-tokens", 6]
    file, out = tmp_path / "prompts.txt", tmp_path / "out.txt"
    file.write_text("".join(f"{prompt}\n" for prompt in prompts), encoding="utf-8")
    by_arguments = lines(run("generate", folder, *prompts, *options))
    assert len(by_arguments) == 5 and by_arguments[0] == by_arguments[4]
    assert lines(run("generate", folder, *options, stdin=file.read_text(encoding="utf-8"))) == by_arguments
    assert lines(run("generate", folder, "--input", file, "--output", out, *options)) == []
    assert out.read_text(encoding="utf-8").split("\n")[:-1] == by_arguments
    file.write_text("", encoding="utf-8")
    assert lines(run("generate", folder, "--input", file, *options)) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["the", "--input", "x"], "Texts and --input"),
        (["the", "--top-p", "2"], "top_p=2"),
        (["the", "--temperature", "nan"], "temperature=nan"),
        (["the", "--max-new-tokens", "-1"], "max_new_tokens=-1"),
        (["the", "--beam", "2", "--n", "3"], "n_best=3 with beam_size=2"),
        (["the", "--stop", ""], "stop='' is empty"),
        (["the " * 70], "max_positions=64"),
        (["the", "--set", "tempature=1"], "temperature"),
    ],
)
def test_what_cannot_be_is_one_message(folder: Path, arguments: list[str], message: str) -> None:
    result = run("generate", folder, *arguments)
    assert isinstance(result.exception, GlassformerError) and result.exception.exit_code == 2
    assert message in str(result.exception)


def test_perplexity_adds_up_over_lines_and_windows(folder: Path, tmp_path: Path) -> None:
    texts = ["the cat eats", "", "a dog", "the teacher never leaves " * 10]
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    figures = json.loads(lines(run("perplexity", folder, file, "--json"))[0])
    scores = TextGenerator.load(folder).score([text for text in texts if text])
    assert figures["texts"] == 3
    assert figures["tokens"] == sum(len(score.ids) for score in scores)
    total = -sum(sum(score.token_log_probs) for score in scores)
    assert figures["loss"] == pytest.approx(total / figures["tokens"])
    assert figures["perplexity_per_word"] == pytest.approx(math.exp(total / figures["words"]))
    assert figures["bits_per_byte"] == pytest.approx(total / math.log(2) / figures["bytes"])
    shown = lines(run("perplexity", folder, file, "--stride", 8))
    assert shown[0].split() == ["texts", "3"] and shown[5].startswith("perplexity ")
    whole = json.loads(lines(run("perplexity", folder, "--whole", "--no-eos", "--json", stdin="a\nb"))[0])
    assert (whole["texts"], whole["words"], whole["bytes"]) == (1, 2, 3)


def test_perplexity_of_nothing_and_of_no_file_is_an_error(folder: Path) -> None:
    for arguments, stdin in ((["-"], "\n\n"), (["/nowhere/at/all", "--whole"], None), (["-", "--stride", 65], "a")):
        result = run("perplexity", folder, *arguments, stdin=stdin)
        assert isinstance(result.exception, GlassformerError) and result.exception.exit_code == 2
