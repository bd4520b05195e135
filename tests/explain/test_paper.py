"""Each choice against the paper: its own two models are the same, and every other value is told."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from glassformer.cli import cli
from glassformer.config import Config, GenerationConfig, ModelConfig, TrainingConfig
from glassformer.explain.paper import FACTS, compare
from glassformer.presets import preset_config

ALL = ("model", "tokenizer", "data", "training", "generation")
# Ids and what belongs to one family, scheme or head only: the row of that choice speaks for them.
NO_CHOICE = {"pad_id", "bos_id", "eos_id", "unk_id", "use_bos", "n_labels", "n_segments", "src_vocab_size"}
NO_CHOICE |= {"position_offset", "rotary_base", "n_relative_buckets", "max_relative_distance", "is_normalized"}
NO_CHOICE |= {"use_mlm_head", "use_pooler", "head", "pooling"}
RENAMED = {"d_head": "head_width", "n_kv_heads": "kv_heads"}


def verdicts(config: Config) -> dict[str, str]:
    return {row.setting: row.verdict for row in compare(config, sections=ALL)}


@pytest.mark.parametrize("preset", ["paper-base", "paper-big"])
def test_the_models_of_the_paper_are_the_same(preset: str) -> None:
    rows = compare(Config(model=preset_config(preset)), sections=("model",))
    assert {row.setting for row in rows if row.verdict == "different"} == set()
    assert sum(row.verdict == "same" for row in rows) > 25


def test_every_field_of_the_architecture_is_compared() -> None:
    compared = {fact.setting.removeprefix("model.") for fact in FACTS if fact.setting.startswith("model.")}
    assert compared == {RENAMED.get(field.name, field.name) for field in fields(ModelConfig)} - NO_CHOICE
    assert len({fact.setting for fact in FACTS}) == len(FACTS)


def test_each_fact_names_a_setting_a_section_and_a_reason() -> None:
    for fact in FACTS:
        fact.value(Config())
        assert fact.section[0] in "3456" and fact.says and fact.why.endswith(".")


def test_what_differs_is_told() -> None:
    """One change at a time, from the paper's base model."""
    base = preset_config("paper-base")
    for changes in (
        {"norm_placement": "pre"},
        {"activation": "gelu"},
        {"positions": "rotary"},
        {"tying": "none"},
        {"scale_scores": False},
        {"dropout": 0.2},
        {"norm": "rmsnorm"},
        {"window": 8},
    ):
        found = verdicts(Config(model=replace(base, **changes)))
        (name,) = changes
        assert {s for s, v in found.items() if s.startswith("model.") and v == "different"} == {f"model.{name}"}
    assert verdicts(Config(model=replace(base, n_kv_heads=2)))["model.kv_heads"] == "different"


def test_the_rate_is_that_of_equation_3() -> None:
    base = Config(model=preset_config("paper-base"))
    for lr, warmup, verdict in ((7e-4, 4000, "same"), (7e-4, 400, "different"), (None, 4000, "different")):
        config = replace(base, training=TrainingConfig(lr=lr, warmup_steps=warmup))
        assert verdicts(config)["training.lr"] == verdict
    longest = replace(base, generation=GenerationConfig(max_length_a=1.0, max_length_b=50))
    assert verdicts(longest)["generation.max_length_b"] == "same"
    assert verdicts(base)["generation.max_length_b"] == "different"


def test_what_does_not_apply_is_left_out() -> None:
    gpt = verdicts(Config(model=preset_config("gpt2")))
    assert (
        "model.n_encoder_layers" not in gpt and "model.sinusoid_layout" not in gpt and "model.n_decoder_layers" in gpt
    )


def test_the_command_takes_a_model_a_run_and_a_preset(trained_folder: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> str:
        result = CliRunner().invoke(cli, ["paper-diff", *map(str, arguments)])
        assert result.exit_code == 0, result.output
        return result.output

    demo = trained_folder / "runs" / "demo"
    rows = {row["setting"]: row for row in json.loads(run(demo, "--json"))}
    assert rows["model.d_model"]["yours"] == 16 and rows["model.d_model"]["verdict"] == "different"
    assert rows["training.beta2"]["verdict"] == "same" and rows["training.warmup_steps"]["section"] == "5.3"
    (tmp_path / "run.json").write_bytes((demo / "run.json").read_bytes())
    planned = {row["setting"]: row["yours"] for row in json.loads(run(tmp_path, "--json"))}
    assert planned == {name: row["yours"] for name, row in rows.items()}
    shown = run("tiny", "--different")
    assert (
        "post: LayerNorm(x + Sublayer(x))" in " ".join(shown.split())
        and "same" not in shown
        and "training" not in shown
    )
    assert "Nothing differs." in run("paper-base", "--different")


def test_a_name_that_is_neither_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["paper-diff", str(tmp_path)])
    assert result.exit_code != 0 and "no preset" in str(result.exception)


def test_rows_are_plain_data() -> None:
    assert json.dumps([dataclasses.asdict(row) for row in compare(Config(), sections=ALL)])
