"""Precedence of settings, and that no key or value is ignored or bent."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer import __version__
from glassformer.config import Config, GenerationConfig, ModelConfig
from glassformer.errors import ConfigError
from glassformer.presets import PRESETS, preset_config
from glassformer.resolve import config_from_dict, config_to_dict, describe, resolve


def file_with(folder: Path, text: str) -> Path:
    path = folder / "run.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_given_gives_the_defaults() -> None:
    resolved = resolve(None, None, [], {})
    assert resolved.config == Config()
    assert set(resolved.origin.values()) == {"default"}


def test_later_sources_win_and_each_value_tells_its_origin(tmp_path: Path) -> None:
    # One key per level of precedence: each is set by its own source and by all that come before.
    file = file_with(tmp_path, '{"model": {"d_ff": 72, "n_heads": 2, "dropout": 0.2, "n_encoder_layers": 7}}')
    sets = ["model.n_heads=8", "model.dropout=0.3"]
    resolved = resolve("tiny", file, sets, {"model.dropout": 0.4, "training.seed": 5, "training.steps": None})
    model, origin = resolved.config.model, resolved.origin
    assert (model.norm_eps, origin["model.norm_eps"]) == (ModelConfig().norm_eps, "default")
    assert (model.d_model, origin["model.d_model"]) == (PRESETS["tiny"]["d_model"], "preset tiny")
    assert (model.d_ff, origin["model.d_ff"]) == (72, f"file {file}")
    assert (model.n_heads, origin["model.n_heads"]) == (8, "--set")
    assert (model.dropout, origin["model.dropout"]) == (0.4, "flag")
    assert (resolved.config.training.seed, origin["training.seed"]) == (5, "flag")
    assert (resolved.config.training.steps, origin["training.steps"]) == (None, "default")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"training": {"learnig_rate": 1e-4}}', ["'training.learnig_rate'", "lr"]),
        ('{"training": {"num-epochs": 3}}', ["'training.num-epochs'", "Did you mean 'epochs'?"]),
        ('{"trainning": {"lr": 1e-4}}', ["'trainning'", "Did you mean 'training'?"]),
        ('{"lr": 1e-4}', ["'lr'", "Did you mean 'training.lr'?"]),
        ('{"training.lr": 1e-4}', ["'training.lr'", "Did you mean 'training.lr'?"]),
        ('{"model": {"lr": 1e-4}}', ["'model.lr'", "Did you mean 'training.lr'?"]),
        ('{"model": {"seed": 1}}', ["'model.seed'", "'training.seed' or 'generation.seed'"]),
        ('{"model": {"training": {"lr": 1}}}', ["'model.training'"]),
        ('{"training": {"lr": {"peak": 1}}}', ["training.lr", "A finite number"]),
        ('{"training": 3}', ["training=3", "section holds keys"]),
        ('{"training": {"epochs": "3"}}', ['training.epochs="3"', "A finite number, or unset was expected"]),
        ('{"training": {"lr": "1e-4"}}', ['training.lr="1e-4"', "A finite number"]),
        ('{"training": {"steps": "3"}}', ['training.steps="3"', "A whole number, or unset"]),
        ('{"training": {"steps": 3.0}}', ["training.steps=3.0", "A whole number"]),
        ('{"training": {"steps": true}}', ["training.steps=true", "A whole number"]),
        ('{"training": {"lr": true}}', ["training.lr=true", "A finite number"]),
        ('{"training": {"lr": NaN}}', ["training.lr=nan", "A finite number"]),
        ('{"training": {"lr": Infinity}}', ["training.lr=inf", "A finite number"]),
        ('{"training": {"lr": 1e999}}', ["training.lr=inf", "A finite number"]),
        ('{"training": {"lr": "inf"}}', ["lr=inf", "finite", "training.lr: file"]),
        ('{"training": {"seed": null}}', ["training.seed=null", "A whole number was expected"]),
        ('{"training": {"compile": 1}}', ["training.compile=1", "true or false"]),
        ('{"training": {"compile": "true"}}', ['training.compile="true"', "true or false"]),
        ('{"model": {"activation": "swish"}}', ["model.activation", "One of relu, gelu, gelu_tanh, silu"]),
        ('{"model": {"activation": 3}}', ["model.activation=3", "One of relu, gelu, gelu_tanh, silu"]),
        ('{"data": {"src": 3}}', ["data.src=3", "A text"]),
        ('{"model": {"n_heads": -2}}', ["n_heads=-2", "model.n_heads: file"]),
        ('{"model": {"n_heads": 6, "d_model": 64}}', ["n_heads=6 does not divide d_model=64", "model.d_model: file"]),
        ('{"training": {"lr": 1, "lr": 2}}', ["training", "'lr'", "twice"]),
        ('{"model": {}, "model": {}}', ["'model'", "twice"]),
        ("[1]", ["no JSON object"]),
        ("{", ["is not JSON", "line 1"]),
        ("", ["is not JSON"]),
        ("[" * 100_000, ["is not JSON"]),
        ('{"format": 2, "glassformer": "9.1"}', ["format 2", "format 1", "9.1"]),
        ('{"format": 1, "model": {}}', ["lacks model.family"]),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_with_its_place(tmp_path: Path, text: str, words: list[str]) -> None:
    path = file_with(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        resolve(None, path, [], {})
    for word in [str(path) if "format" not in text else "run.json", *words]:
        assert word in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json cannot be read: No such file"):
        resolve(None, tmp_path / "none.json", [], {})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        resolve(None, tmp_path, [], {})
    (tmp_path / "latin.json").write_bytes(b'{"data": {"src": "\xe9"}}')
    with pytest.raises(ConfigError, match="not UTF-8: byte 0xe9 at offset 18"):
        resolve(None, tmp_path / "latin.json", [], {})


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "bom.json").write_bytes(b'\xef\xbb\xbf{"training": {"seed": 7}}')
    assert resolve(None, tmp_path / "bom.json", [], {}).config.training.seed == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("training.steps=30", 30),
        ("training.steps= 30 ", 30),
        ("training.steps=none", None),
        ("training.steps=unset", None),
        ("training.lr=1e-4", 1e-4),
        ("training.lr=.5", 0.5),
        ("training.weight_decay=1", 1.0),
        ("training.compile=True", True),
        ("training.compile=false", False),
        ("data.max_length_ratio=inf", math.inf),
        ("data.src=none", "none"),
        ("data.src=a=b", "a=b"),
        ("model.positions=none", "none"),
        ("generation.length_penalty=average", "average"),
    ],
)
def test_set_reads_a_value_by_the_type_of_its_field(text: str, value: object) -> None:
    resolved = resolve(None, None, [text], {})
    name = text.partition("=")[0]
    section, key = name.split(".")
    found = getattr(getattr(resolved.config, section), key)
    assert found == value and type(found) is type(value)
    assert resolved.origin[name] == "--set"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training.steps", ["has no '='"]),
        ("steps=3", ["'steps'", "Did you mean 'training.steps'?"]),
        ("training.stps=3", ["'training.stps'", "Did you mean 'steps'?"]),
        ("trainig.steps=3", ["'trainig.steps'", "Did you mean 'training.steps'?"]),
        ("model.training.lr=3", ["'model.training.lr'"]),
        ("training.steps=3.5", ['training.steps="3.5"', "A whole number"]),
        ("training.steps=", ['training.steps=""', "A whole number"]),
        ("training.steps=1_000", ["A whole number"]),
        ("training.lr=nan", ['training.lr="nan"', "A finite number"]),
        ("training.seed=none", ["A whole number was expected"]),
        ("training.compile=yes", ["true or false"]),
        ("model.norm=batchnorm", ["One of layernorm, rmsnorm"]),
        ("model.rotary_base=inf", ["rotary_base=inf"]),
    ],
)
def test_what_is_wrong_in_set_is_refused(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(None, None, [text], {})
    for word in words:
        assert word in str(caught.value)


def test_the_same_set_twice_and_unknown_flags_and_presets_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.seed twice"):
        resolve(None, None, ["training.seed=1", "training.seed=2"], {})
    with pytest.raises(ConfigError, match=r"the flags: 'training\.sed'"):
        resolve(None, None, [], {"training.sed": 1})
    with pytest.raises(ConfigError, match=r"preset='smal'.*Did you mean 'small'"):
        resolve("smal", None, [], {})
    with pytest.raises(ConfigError, match="unknown"):
        preset_config("")


def test_a_contradiction_tells_where_both_values_come_from() -> None:
    with pytest.raises(ConfigError, match=r"model\.d_model: preset tiny; model\.n_heads: --set"):
        resolve("tiny", None, ["model.n_heads=7"], {})


def saved_in(folder: Path, config: Config) -> Path:
    return file_with(folder, json.dumps(config_to_dict(config), ensure_ascii=False, allow_nan=False))


def test_every_configuration_comes_back_from_its_file(tmp_path: Path) -> None:
    for name in PRESETS:
        config = dataclasses.replace(Config(), model=preset_config(name), generation=GenerationConfig(beam_size=7))
        path = saved_in(tmp_path, config)
        assert config_from_dict(json.loads(path.read_text(encoding="utf-8")), "config.json") == config
        assert resolve(None, path, [], {}).config == config


def test_a_saved_configuration_is_standard_json_with_format_and_version(tmp_path: Path) -> None:
    config = resolve(None, None, ["data.max_length_ratio=inf", "data.src=日本"], {}).config
    saved = config_to_dict(config)
    assert list(saved) == ["format", "glassformer", *(field.name for field in dataclasses.fields(Config))]
    assert (saved["format"], saved["glassformer"]) == (1, __version__)
    assert saved["data"]["max_length_ratio"] == "inf"  # JSON has no infinity
    assert resolve(None, saved_in(tmp_path, config), [], {}).config == config


def test_a_saved_configuration_must_be_whole_and_of_this_format() -> None:
    saved = config_to_dict(Config())
    assert config_from_dict(saved, "config.json") == Config()
    with pytest.raises(ConfigError, match=r"config\.json has format 7.*reads format 1"):
        config_from_dict(saved | {"format": 7}, "config.json")
    with pytest.raises(ConfigError, match="has no key 'format'"):
        config_from_dict({"model": {}}, "config.json")
    with pytest.raises(ConfigError, match=r"config\.json: 'extra' is an unknown section"):
        config_from_dict(saved | {"extra": {}}, "config.json")
    without = {section: fields for section, fields in saved.items() if section != "generation"}
    with pytest.raises(ConfigError, match=r"lacks generation\.beam_size.* and more"):
        config_from_dict(without, "config.json")
    del saved["model"]["norm_eps"]
    with pytest.raises(ConfigError, match=r"lacks model\.norm_eps"):
        config_from_dict(saved, "config.json")


def test_describe_has_a_row_and_a_comment_for_every_field() -> None:
    rows = describe(resolve("tiny", None, ["training.seed=9"], {}))
    assert len(rows) == sum(len(dataclasses.fields(getattr(Config(), f.name))) for f in dataclasses.fields(Config))
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["training.seed"] == ("9", "--set", "seed of initialisation, order and dropout")
    assert by_name["model.d_model"][:2] == ("128", "preset tiny")
    assert by_name["training.steps"][:2] == ("unset", "default")
    assert all(comment for *_, comment in rows)


def test_files_are_utf_8_whatever_the_platform_says(tmp_path: Path) -> None:
    # Case D7: a C locale without UTF-8 mode, and Python asked to complain about any default encoding.
    code = (
        "from pathlib import Path; from glassformer.resolve import resolve;"
        "assert resolve(None, Path('run.json'), [], {}).config.data.src == chr(233)"
    )
    (tmp_path / "run.json").write_bytes('{"data": {"src": "é"}}'.encode())
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", code]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)


def test_a_file_from_before_a_field_was_added_means_what_it_meant() -> None:
    saved = config_to_dict(Config())
    del saved["model"]["window"], saved["task"]
    assert config_from_dict(saved, "old config.json") == Config()
    del saved["model"]["norm_eps"]  # this one was always there
    with pytest.raises(ConfigError, match=r"old config\.json lacks model\.norm_eps"):
        config_from_dict(saved, "old config.json")


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("translate", "task.use_whole_words=true"),
        ("translate", "task.mask_share=0.15"),  # the default, but asked for
        ("lm", "task.mean_span=4"),
        ("lm", "training.init=lexicon"),
        ("lm", "task.prefix=say: "),
        ("mlm", "generation.beam_size=2"),
        ("mlm", "validation.bleu_rows=10"),
        ("denoise", "task.is_multi_label=true"),
        ("classify", "task.min_width=16"),
        ("classify", "data.max_length_ratio=3"),
        ("label", "task.has_negatives=true"),
        ("embed", "training.label_smoothing=0.1"),
        ("embed", "validation.samples=1"),
        ("embed", "generation.temperature=0"),
        ("embed", "data.document=paragraph"),
    ],
)
def test_a_setting_that_the_task_does_not_read_is_refused(task: str, text: str) -> None:
    name = text.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"{name}=.* has no effect with --task {task}\. It is read by --task "):
        resolve(None, None, [text], {"task.name": task})


@pytest.mark.parametrize(
    ("task", "texts"),
    [
        ("embed", ["training.label_smoothing=0", "validation.samples=0", "validation.bleu_rows=0"]),
        (
            "lm",
            ["training.init=random", "task.use_whole_words=false", "data.max_length_ratio=inf", "generation.top_k=5"],
        ),
        ("mlm", ["task.use_whole_words=true", "task.mask_share=0.3", "training.label_smoothing=0.1"]),
    ],
)
def test_what_a_task_reads_or_does_anyway_may_be_said(task: str, texts: list[str]) -> None:
    assert resolve(None, None, texts, {"task.name": task}).config.task.name == task


def test_the_whole_config_of_another_run_is_no_choice_of_its_defaults(tmp_path: Path) -> None:
    saved, path = config_to_dict(Config()), tmp_path / "config.json"
    path.write_text(json.dumps(saved), encoding="utf-8")
    assert resolve(None, path, [], {"task.name": "embed"}).config.task.name == "embed"
    saved["generation"]["alpha"] = 0.9
    path.write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"generation\.alpha=0\.9 has no effect"):
        resolve(None, path, [], {"task.name": "embed"})


@pytest.mark.parametrize(
    ("task", "metric"),
    [("translate", "rougeL"), ("summarize", "bleu"), ("lm", "accuracy"), ("mlm", "bleu"), ("embed", "chrf")],
)
def test_a_metric_that_no_validation_gives_is_refused_before_training(task: str, metric: str) -> None:
    with pytest.raises(ConfigError, match=f"validation.metric={metric} is no figure of --task {task}.*loss"):
        resolve(None, None, [f"validation.metric={metric}"], {"task.name": task})
