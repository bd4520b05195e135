"""The model folder: complete, strict when it is read, and nothing in it is ever run."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import config, save_folder, tokenizer

from glassformer.config import TokenizerConfig
from glassformer.errors import CheckpointError, ConfigError, GlassformerError, TokenizerError
from glassformer.model import EncoderDecoder
from glassformer.model.quantized import Precision
from glassformer.phrasebook import generate
from glassformer.tasks import Translator
from glassformer.tasks.model_folder import load_model_folder
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.checkpoint import load_tensors, save_tensors
from helpers import random_ids


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_folder(tmp_path / "model")


def change(path: Path, section: str | None, **values: Any) -> None:
    """Sets keys of a JSON file; None removes one."""
    content = json.loads(path.read_text(encoding="utf-8"))
    place = content[section] if section else content
    for key, value in values.items():
        place[key] = value
        if value is None:
            del place[key]
    path.write_text(json.dumps(content), encoding="utf-8")


def test_folder_holds_everything_and_loads_the_same_model(folder: Path) -> None:
    names = {"config.json", "generation.json", "metrics.json", "README.md", "model.safetensors", "tokenizer.json"}
    assert {path.name for path in folder.iterdir()} == names
    loaded = load_model_folder(folder)
    assert loaded.config == config()
    assert loaded.metrics == {"bleu": 1.0}
    assert loaded.src_tokenizer is loaded.tokenizer
    assert not loaded.model.training
    assert isinstance(loaded.model, EncoderDecoder)
    again = load_model_folder(str(folder)).model
    src, tgt = random_ids(2, 6), random_ids(2, 5, seed=1)
    assert torch.equal(loaded.model(src, tgt), again(src, tgt))


def test_two_vocabularies(tmp_path: Path) -> None:
    own = Tokenizer.train([src for src, _ in generate(50)], TokenizerConfig(), vocab_size=290)
    settings = config(tying="decoder", src_vocab_size=290)
    folder = save_folder(tmp_path / "m", settings=settings, source=own)
    loaded = load_model_folder(folder)
    assert (loaded.src_tokenizer.vocab_size, loaded.tokenizer.vocab_size) == (290, 300)
    assert Translator.load(folder).translate(["hello"])[0].text
    (folder / "source_tokenizer.json").unlink()
    with pytest.raises(TokenizerError):
        load_model_folder(folder)


# -- configuration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "section", "values", "expected"),
    [
        ("config.json", "model", {"d_modle": 16}, r"config\.json.*'model\.d_modle'.*Did you mean 'd_model'"),
        ("config.json", None, {"modle": {}}, r"'modle' is an unknown section.*Did you mean 'model'"),
        ("config.json", None, {"d_model": 16}, r"'d_model' is an unknown section"),
        ("config.json", "model", {"d_model": "16"}, r"model\.d_model=\"16\" is of the wrong kind"),
        ("config.json", "model", {"dropout": float("nan")}, r"model\.dropout=nan"),
        ("config.json", "model", {"n_heads": 7, "d_head": None}, r"lacks model\.d_head"),
        ("config.json", "model", {"d_ff": -4}, r"d_ff=-4 is too small"),
        ("config.json", "model", {"norm_eps": None}, r"lacks model\.norm_eps"),
        ("config.json", None, {"format": 2}, r"has format 2\..*reads format 1"),
        ("config.json", None, {"format": None}, r"no key 'format'"),
        ("config.json", None, {"model": []}, r"model=\[\] is no object"),
        ("config.json", None, {"vocab_sha256": []}, r"is not the one that the model was trained with"),
        ("config.json", None, {"vocab_sha256": None}, r"is not the one that the model was trained with"),
        ("generation.json", None, {"beam": 3}, r"generation\.json.*'generation\.beam'.*Did you mean 'beam_size'"),
        ("generation.json", None, {"beam_size": 0}, r"beam_size=0 is too small"),
    ],
)
def test_config_that_is_not_right_is_refused(
    folder: Path, file: str, section: str | None, values: dict[str, Any], expected: str
) -> None:
    change(folder / file, section, **values)
    with pytest.raises(GlassformerError, match=expected) as error:
        load_model_folder(folder)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\x00", "\ufeff"])
@pytest.mark.parametrize("file", ["config.json", "generation.json", "metrics.json", "tokenizer.json"])
def test_damaged_json_is_refused_by_name(folder: Path, file: str, text: str) -> None:
    (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(GlassformerError, match=file.replace(".", r"\.")) as error:
        load_model_folder(folder)
    assert error.value.exit_code == 2


def test_missing_files_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no model folder"):
        load_model_folder(tmp_path / "nothing")
    for name in ("model.safetensors", "tokenizer.json", "generation.json"):
        kept = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises(GlassformerError, match=name.replace(".", r"\.")):
            load_model_folder(folder)
        (folder / name).write_bytes(kept)
    (folder / "metrics.json").unlink()
    assert load_model_folder(folder).metrics == {}


def test_model_of_another_family_cannot_translate(folder: Path) -> None:
    settings = dataclasses.replace(config(), model=dataclasses.replace(config().model, family="decoder-only"))
    save_folder(folder, settings=settings)
    with pytest.raises(CheckpointError, match="family decoder-only"):
        Translator.load(folder)


# -- vocabulary ---------------------------------------------------------------------------------------------------


def test_tokenizer_larger_than_the_model_is_refused_with_both_numbers(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "m", settings=config(vocab_size=280))
    with pytest.raises(TokenizerError, match="has 300 entries and the model 280 rows"):
        load_model_folder(folder)


def test_model_larger_than_the_tokenizer_loads(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "m", settings=config(vocab_size=340))
    assert Translator.load(folder).translate(["hello"])[0].ids


def test_other_vocabulary_of_the_same_size_is_refused(folder: Path) -> None:
    other = tokenizer(seed=2)
    assert other.vocab_size == tokenizer().vocab_size
    other.save(folder / "tokenizer.json")
    with pytest.raises(TokenizerError, match="another checksum"):
        load_model_folder(folder)


# -- hostile files ------------------------------------------------------------------------------------------------


class Trap:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize(
    "file", ["model.safetensors", "config.json", "generation.json", "tokenizer.json", "metrics.json"]
)
def test_pickle_is_never_run(folder: Path, tmp_path: Path, file: str) -> None:
    marker = tmp_path / "marker"
    for protocol in (0, 2, 5):
        (folder / file).write_bytes(pickle.dumps(Trap(marker), protocol=protocol))
        with pytest.raises(GlassformerError):
            load_model_folder(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(marker)))
    with pytest.raises(GlassformerError):
        load_model_folder(folder)
    assert not marker.exists()


@pytest.mark.parametrize("change", ["missing", "additional", "shape"])
def test_weights_that_do_not_fit_are_refused_with_names(folder: Path, change: str) -> None:
    tensors = load_tensors(folder / "model.safetensors")
    name = next(iter(tensors))
    if change == "missing":
        del tensors[name]
    elif change == "additional":
        name = "surprise"
        tensors[name] = torch.ones(1)
    else:
        tensors[name] = torch.ones(3, 3)
    save_tensors(folder / "model.safetensors", tensors)
    with pytest.raises(CheckpointError, match=name) as error:
        load_model_folder(folder)
    assert "safetensors" in str(error.value)


def test_weights_in_another_type_are_converted(folder: Path) -> None:
    tensors = load_tensors(folder / "model.safetensors")
    save_tensors(folder / "model.safetensors", {name: t.double() for name, t in tensors.items()})
    loaded = load_model_folder(folder).model
    assert all(torch.equal(p, tensors[name]) for name, p in loaded.named_parameters())


def test_config_error_is_a_value_error(folder: Path) -> None:
    change(folder / "config.json", "model", d_ff=0)
    with pytest.raises(ValueError, match="d_ff=0"):
        load_model_folder(folder)
    assert issubclass(ConfigError, ValueError)


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
def test_a_loaded_model_does_not_need_its_file_any_more(folder: Path, precision: Precision) -> None:
    if precision == "int8" and "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("int8 kernels are for x86-64")
    loaded, path = load_model_folder(folder, precision=precision), folder / "model.safetensors"
    src, tgt = random_ids(1, 5), random_ids(1, 4, seed=1)
    with torch.no_grad():
        before = loaded.model(src, tgt)
        path.write_bytes(bytes(path.stat().st_size))  # the same file, now all zeros
        assert torch.equal(loaded.model(src, tgt), before)
    with path.open("wb"):  # emptied: what still read it would be killed
        pass
    with torch.no_grad():
        assert torch.equal(loaded.model(src, tgt), before)
