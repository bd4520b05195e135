"""Nothing of a folder is ignored: what is not understood is an error that names it, and no code of it is run."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner
from huggingface_models import case, write_json
from safetensors.torch import load_file, save_file

from glassformer.cli import cli
from glassformer.errors import CheckpointError, ConfigError, LengthError, TokenizerError, UserError
from glassformer.interop.huggingface import import_huggingface
from glassformer.tasks.model_folder import load_model_folder
from tasks.small_models import save_folder

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
Tensors = dict[str, torch.Tensor]


def changed(
    name: str,
    path: Path,
    *,
    config: dict[str, Any] | None = None,
    generation: dict[str, Any] | None = None,
    tensors: Callable[[Tensors], object] = lambda tensors: None,
) -> Path:
    """A copy of a case's folder with other fields and tensors."""
    shutil.copytree(case(name).path, path)
    for file, fields in (("config.json", config), ("generation_config.json", generation)):
        if fields is not None:
            old = json.loads((path / file).read_text()) if (path / file).exists() else {}
            write_json(path / file, old | fields)
    state = load_file(path / "model.safetensors")
    tensors(state)
    save_file({key: value.clone() for key, value in state.items()}, path / "model.safetensors")
    return path


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("bert", {"position_embedding_type": "relative_key"}),
        ("bert", {"hidden_act": "quick_gelu"}),
        ("bert", {"hidden_act": "mish"}),
        ("bert", {"is_decoder": True}),
        ("bert", {"add_cross_attention": True}),
        ("bert", {"pruned_heads": {"0": [1]}}),
        ("bert", {"auto_map": {"AutoModel": "code.Model"}}),
        ("bert", {"quantization_config": {"bits": 4}}),
        ("bert", {"learnig_rate": 1}),
        ("bert", {"model_type": "mamba"}),
        ("bert", {"hidden_size": "20"}),
        ("bert", {"num_attention_heads": 3}),
        ("bert", {"layer_norm_eps": "1e-5"}),
        ("bart", {"dropout": None}),
        ("gpt2", {"tie_word_embeddings": "false"}),
        ("llama", {"attention_bias": 1}),
        ("t5", {"is_gated_act": None}),
        ("roberta", {"hidden_act": "relu"}),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
        ("llama", {"sliding_window": 16}),
        ("llama", {"eos_token_id": [2, 5]}),
        ("llama", {"eos_token_id": 300}),
        ("gpt2", {"bos_token_id": [0, 7]}),
        ("bert", {"pad_token_id": 7}),
        ("roberta", {"pad_token_id": 3}),
        ("t5", {"decoder_start_token_id": 9}),
        ("marian", {"num_hidden_layers": 7}),
        ("bart", {"hidden_size": 7}),
        ("bart", {"is_encoder_decoder": False}),
        ("t5", {"num_attention_heads": 7}),
        ("bert", {"model_type": "mbart"}),
        ("t5", {"feed_forward_proj": "gated-swiglu"}),
        ("marian", {"encoder_ffn_dim": 30}),
        ("marian", {"normalize_before": True}),
        ("marian", {"activation_function": "gelu_10"}),
        ("bart", {"add_final_layer_norm": True}),
    ],
)
def test_a_field_that_changes_the_numbers_is_refused_by_name(name: str, fields: dict[str, Any], tmp_path: Path) -> None:
    generation = {key: value for key, value in fields.items() if key.endswith("_token_id")}
    folder = changed(name, tmp_path / "theirs", config=fields, generation=generation or None)
    with pytest.raises(ConfigError) as error:
        import_huggingface(folder, tmp_path / "ours")
    word = next(iter(fields))
    ours = {"num_attention_heads": "n_heads", "rope_parameters": "rope_type"}
    assert ours.get(word, word) in str(error.value)
    assert not (tmp_path / "ours").exists()


def test_a_folder_of_ours_is_told_from_one_of_theirs(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "ours")
    with pytest.raises(ConfigError, match="is a model folder of glassformer already"):
        import_huggingface(folder, tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder_no_repeat_ngram_size": 3},
        {"num_beam_groups": 2},
        {"suppress_tokens": [7]},
        {"bad_words_ids": [[5, 6]]},
        {"forced_eos_token_id": 9},
        {"typical_p": 0.9},
        {"begin_suppress_tokens": [1]},
        {"unheard_of": 1},
    ],
)
def test_a_setting_of_generation_that_chooses_other_tokens_is_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = changed("marian", tmp_path / "theirs", generation=settings)
    with pytest.raises(ConfigError, match=next(iter(settings))):
        import_huggingface(folder, tmp_path / "ours")


@pytest.mark.parametrize(
    "settings",
    [
        {"num_beams": "4"},
        {"num_beams": True},
        {"num_beams": 2.0},
        {"do_sample": 1},
        {"do_sample": "false"},
        {"length_penalty": "1"},
        {"temperature": [1.0], "do_sample": True},
        {"max_length": 20.5},
        {"min_length": {}},
        {"forced_bos_token_id": "2"},
        {"forced_bos_token_id": 10**6},
        {"forced_bos_token_id": -1},
        {"suppress_tokens": 3},
        {"bad_words_ids": [[[0]]]},
        {"eos_token_id": True},
        {"eos_token_id": {"id": 0}},
        {"decoder_start_token_id": [[1]]},
    ],
)
def test_a_setting_of_generation_of_the_wrong_kind_or_out_of_range_is_refused(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    folder = changed("marian", tmp_path / "theirs", generation=settings)
    with pytest.raises(ConfigError, match=next(iter(settings))):
        import_huggingface(folder, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_settings_of_generation_are_honoured(tmp_path: Path) -> None:
    pad = case("marian").folder.config.model.pad_id
    settings = {
        "num_beams": 6,
        "length_penalty": 0.3,
        "max_length": 40,
        "min_length": 3,
        "no_repeat_ngram_size": 2,
        "repetition_penalty": 1.5,
        "bad_words_ids": [[pad]],
        "early_stopping": True,
    }
    report = import_huggingface(changed("marian", tmp_path / "theirs", generation=settings), tmp_path / "ours")
    ours = report.config.generation
    assert (ours.beam_size, ours.length_penalty, ours.alpha) == (6, "average", 0.3)
    assert (ours.max_new_tokens, ours.min_new_tokens) == (39, 2)  # theirs count the start token
    assert (ours.no_repeat_ngram_size, ours.repetition_penalty, ours.is_eos_forced) == (2, 1.5, True)
    assert any("early_stopping" in note for note in report.notes)


def test_settings_in_config_json_count_only_without_a_file_of_their_own(tmp_path: Path) -> None:
    folder = changed("bart", tmp_path / "theirs", config={"num_beams": 3, "forced_eos_token_id": 2})
    (folder / "generation_config.json").unlink()
    assert import_huggingface(folder, tmp_path / "alone").config.generation.beam_size == 3
    write_json(folder / "generation_config.json", {"eos_token_id": 2, "decoder_start_token_id": 2})
    ours = import_huggingface(folder, tmp_path / "both").config.generation
    assert ours.beam_size == 1 and not ours.is_eos_forced


def test_penalties_that_count_another_text_are_noted(tmp_path: Path) -> None:
    folder = changed("llama", tmp_path / "theirs", generation={"repetition_penalty": 1.3})
    assert any("repetition_penalty" in note for note in import_huggingface(folder, tmp_path / "ours").notes)


def test_fields_that_follow_from_another_win_over_it(tmp_path: Path) -> None:
    folder = changed("t5-v1.1", tmp_path / "theirs", config={"dense_act_fn": "silu"})
    assert import_huggingface(folder, tmp_path / "ours").config.model.activation == "silu"
    assert transformers.T5Config.from_pretrained(folder).dense_act_fn == "silu"


@pytest.mark.parametrize("fields", [{"_name_or_path": "x"}, {"use_cache": False}, {"torch_dtype": "float16"}])
def test_harmless_fields_pass(fields: dict[str, Any], tmp_path: Path) -> None:
    import_huggingface(changed("bert", tmp_path / "theirs", config=fields), tmp_path / "ours")


@pytest.mark.parametrize(
    ("name", "change", "word"),
    [
        ("bert", lambda t: t.update({"bert.extra.gamma_proj.weight": torch.ones(2)}), "gamma_proj.weight"),
        ("bert", lambda t: t.pop("bert.encoder.layer.1.output.dense.bias"), "layer.1.output.dense.bias"),
        ("gpt2", lambda t: t.update({"transformer.wte.weight": torch.ones(3, 4)}), "transformer.wte.weight"),
        ("gpt2", lambda t: t.update({"lm_head.weight": torch.ones(330, 20)}), "lm_head.weight"),
        ("bert", lambda t: t.update({"bert.embeddings.LayerNorm.gamma": torch.ones(20)}), "LayerNorm.gamma"),
        ("gpt2", lambda t: t["transformer.wpe.weight"][3].fill_(float("nan")), r"wpe\.weight holds 20 numbers"),
        ("gpt2", lambda t: t.update({"transformer.wpe.weight": torch.ones(48, 20).int()}), "the type int32"),
        ("pegasus", lambda t: t["model.encoder.embed_positions.weight"].add_(1), "embed_positions"),
    ],
)
def test_a_tensor_that_does_not_fit_is_an_error_with_its_name(
    name: str, change: Callable[[Tensors], object], word: str, tmp_path: Path
) -> None:
    folder = changed(name, tmp_path / "theirs", tensors=change)
    with pytest.raises(CheckpointError, match=word):
        import_huggingface(folder, tmp_path / "ours")


def rename_norms(tensors: Tensors) -> None:
    for name in [name for name in tensors if "LayerNorm" in name]:
        new = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors[new] = tensors.pop(name)


def drop_prefix(tensors: Tensors) -> None:
    for name in list(tensors):
        if name.startswith("bert."):
            tensors[name.removeprefix("bert.")] = tensors.pop(name)


@pytest.mark.parametrize(("name", "change"), [("bert", rename_norms), ("bert-pooler", drop_prefix)])
def test_old_names_and_names_without_prefix_give_the_same_model(
    name: str, change: Callable[[Tensors], object], tmp_path: Path
) -> None:
    import_huggingface(changed(name, tmp_path / "theirs", tensors=change), tmp_path / "ours")
    state = load_model_folder(tmp_path / "ours").model.state_dict()
    for key, tensor in case(name).state.items():
        assert torch.equal(state[key], tensor), key


def test_computed_and_foreign_heads_are_left_out_by_name(tmp_path: Path) -> None:
    def add(tensors: Tensors) -> None:
        tensors["bert.embeddings.position_ids"] = torch.arange(40)[None]
        tensors["cls.seq_relationship.weight"] = torch.ones(2, 20)

    report = import_huggingface(changed("bert", tmp_path / "theirs", tensors=add), tmp_path / "ours")
    assert set(report.left_out) == {"bert.embeddings.position_ids", "cls.seq_relationship.weight"}
    causal = {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 48, 48) for i in range(2)}
    folder = changed("gpt2", tmp_path / "gpt2", tensors=lambda t: t.update(causal))
    assert set(import_huggingface(folder, tmp_path / "ours2").left_out) == causal.keys()


def test_t5_without_shared_table_never_reads_the_output_matrix_as_input(tmp_path: Path) -> None:
    def move(tensors: Tensors) -> None:
        tensors["decoder.embed_tokens.weight"] = tensors.pop("shared.weight")

    folder = changed("t5-v1.1", tmp_path / "theirs", tensors=move)
    report = import_huggingface(folder, tmp_path / "ours")
    state, theirs = load_model_folder(tmp_path / "ours").model.state_dict(), load_file(folder / "model.safetensors")
    assert torch.equal(state["encoder.embedding.tokens.weight"], theirs["decoder.embed_tokens.weight"])
    assert torch.equal(state["decoder.embedding.tokens.weight"], theirs["decoder.embed_tokens.weight"])
    assert torch.equal(state["decoder.projection.weight"], theirs["lm_head.weight"])
    assert report.used["decoder.embed_tokens.weight"] == "encoder.embedding.tokens.weight"
    folder = changed("t5-v1.1", tmp_path / "no table", tensors=lambda t: t.pop("shared.weight"))
    with pytest.raises(CheckpointError, match=r"shared\.weight"):
        import_huggingface(folder, tmp_path / "ours2")


def test_t5_scales_its_output_only_when_the_config_says_so() -> None:
    assert case("t5").folder.config.model.scale_logits
    assert not case("t5-v1.1").folder.config.model.scale_logits
    assert not case("t5").folder.config.model.scale_scores


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.safetensors"])
def test_code_in_weights_is_never_run(file: str, tmp_path: Path) -> None:
    shutil.copytree(case("bert").path, tmp_path / "theirs")
    (tmp_path / "theirs" / "model.safetensors").unlink()
    torch.save({"x": torch.ones(1), "code": Hostile(tmp_path / "marker")}, tmp_path / "theirs" / file)
    with pytest.raises(CheckpointError, match=file):
        import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert not (tmp_path / "marker").exists()
    assert not (tmp_path / "ours").exists()


def test_bin_files_and_shards_are_read(tmp_path: Path) -> None:
    state = load_file(case("bert").path / "model.safetensors")
    for kind in ("bin", "shards"):
        shutil.copytree(case("bert").path, tmp_path / kind)
        (tmp_path / kind / "model.safetensors").unlink()
    torch.save(state, tmp_path / "bin" / "pytorch_model.bin")
    names = sorted(state)
    files = {name: f"model-{i % 2 + 1}-of-2.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: state[name] for name in names if files[name] == file}, tmp_path / "shards" / file)
    write_json(tmp_path / "shards" / "model.safetensors.index.json", {"weight_map": files})
    for kind in ("bin", "shards"):
        import_huggingface(tmp_path / kind, tmp_path / f"{kind}.ours")
        loaded = load_model_folder(tmp_path / f"{kind}.ours").model.state_dict()
        assert all(torch.equal(loaded[key], tensor) for key, tensor in case("bert").state.items())
    for damaged in ({"weight_map": [1]}, {"weight_map": {"x": 3}}, {}):
        write_json(tmp_path / "shards" / "model.safetensors.index.json", damaged)
        with pytest.raises(CheckpointError, match="weight_map"):
            import_huggingface(tmp_path / "shards", tmp_path / "ours")
    write_json(tmp_path / "shards" / "model.safetensors.index.json", {"weight_map": {"x": "../bert/model.safetensors"}})
    with pytest.raises(CheckpointError, match="outside"):
        import_huggingface(tmp_path / "shards", tmp_path / "ours")


def test_an_import_that_is_stopped_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("glassformer.interop.huggingface.reading.save_probe", stop)
    with pytest.raises(KeyboardInterrupt):
        import_huggingface(case("gpt2").path, tmp_path / "ours")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="file"):
        import_huggingface(case("gpt2").path, tmp_path / "file")


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    folder = changed("bert", tmp_path / "theirs")
    (folder / "config.json").write_text("[1")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        import_huggingface(folder, tmp_path / "ours")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x", "y")
    shutil.copy(case("bert").path / "config.json", folder)
    damaged: list[Any] = [{"model": {}}, {"model": {"vocab": {"a": 0}}}, {"model": {"vocab": [1]}, "added_tokens": []}]
    for content in damaged:
        write_json(folder / "tokenizer.json", content)
        with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
            import_huggingface(folder, tmp_path / "ours")
    (folder / "model.safetensors").write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointError, match="damaged"):
        import_huggingface(folder, tmp_path / "ours")


def test_a_text_beyond_the_position_table_is_refused() -> None:
    model = case("roberta").folder.model
    assert model.config.max_positions == 40  # 42 rows, of which two are read by no token
    model(torch.full((1, 40), 7))
    with pytest.raises(LengthError, match="41"):
        model(torch.full((1, 41), 7))


def test_the_command_says_what_was_left_out(tmp_path: Path) -> None:
    path, out = case("pegasus").path, tmp_path / "ours"
    done = CliRunner().invoke(cli, ["import", str(path), str(out), "--verbose"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "left out: model.encoder.embed_positions.weight (sinusoids" in done.output
    assert "model.shared.weight -> encoder.embedding.tokens.weight" in done.output
    with pytest.raises(UserError, match="not empty"):
        CliRunner().invoke(cli, ["import", str(path), str(out)], catch_exceptions=False)
