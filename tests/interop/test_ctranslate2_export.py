"""CTranslate2 computes and finds what the model computes and finds (known failures X1, N2), or refuses it by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export_models import ALIBI_OF_SIX_HEADS, FURTHER, folder_of, rows_for, small_models

from glassformer.config import GenerationConfig
from glassformer.interop.comparison import compare
from glassformer.interop.ctranslate2 import ctranslate2_refusal, export_ctranslate2, position_limit, vocabulary
from glassformer.interop.ctranslate2_translator import ctranslate2_log_probs, ctranslate2_translations
from glassformer.interop.engines import CTranslate2Engine
from glassformer.tasks.model_folder import ModelFolder
from glassformer.tasks.translator import Translator
from helpers import FAMILIES, VARIANTS

pytest.importorskip("ctranslate2")

TEXTS = [
    "The cat eats the bread.",
    "We see a big house in the town.",
    'He said: "no" 🙂 and\u00a0left  twice',
    "yes",
    "A woman reads the red book, and the man sleeps, and then the children play in the garden.",
]


def exported(folder: ModelFolder, out: Path, quantize: str | None = None) -> Path:
    export_ctranslate2(folder, out, quantize=quantize)
    return out


# The encoder of an encoder-only model is that of a translator: a few variants of it are enough.
ENCODERS = ("plain", "gelu-exact", "large-epsilon", "unscaled-scores", "rotary-shared-kv-rmsnorm")
CASES = [
    (family, name)
    for name, changes in (VARIANTS | FURTHER).items()
    for family in FAMILIES
    if (family != "encoder-only" or name in ENCODERS)
    and (family == "decoder-only" or changes.get("positions") != "alibi")  # refused, see below
]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_numbers_and_greedy_outputs_are_those_of_the_model(family: str, name: str, tmp_path: Path) -> None:
    folder = folder_of(family, **(VARIANTS | FURTHER)[name])
    engine = CTranslate2Engine(exported(folder, tmp_path), folder)
    comparison = compare(folder, engine, rows_for(folder, tmp_path), is_int8=False)
    assert comparison.is_same, comparison
    assert comparison.max_difference <= 1e-5, comparison


def test_alibi_slopes_of_a_number_of_heads_that_is_no_power_of_two(tmp_path: Path) -> None:
    folder = folder_of("decoder-only", **ALIBI_OF_SIX_HEADS)
    engine = CTranslate2Engine(exported(folder, tmp_path), folder)
    assert compare(folder, engine, rows_for(folder, tmp_path), is_int8=False).max_difference <= 1e-5


def test_segments_and_pooler_of_an_encoder(tmp_path: Path) -> None:
    import ctranslate2

    folder = folder_of("encoder-only", n_segments=2, use_pooler=True, use_embedding_norm=True)
    engine = ctranslate2.Encoder(str(exported(folder, tmp_path)))
    ids = [[7, 8, 9, 10, 11]]
    out = engine.forward_batch(ids, token_type_ids=[[0, 0, 1, 1, 1]])
    with torch.no_grad():
        features = folder.model(torch.tensor(ids), segment_ids=torch.tensor([[0, 0, 1, 1, 1]]))
        pooled = folder.model.pooler(features)  # type: ignore[operator, union-attr]
    np.testing.assert_allclose(np.array(out.last_hidden_state), features.numpy(), atol=1e-5)
    np.testing.assert_allclose(np.array(out.pooler_output), pooled.numpy(), atol=1e-5)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"alpha": 0.6}, {"forced_bos_id": 40}, {"min_new_tokens": 4}])
def test_texts_ids_and_scores_of_a_translator(beam_size: int, options: dict[str, Any], tmp_path: Path) -> None:
    folder = folder_of("encoder-decoder")
    generation = GenerationConfig(beam_size=beam_size, max_length_a=1.0, max_length_b=3, **options)
    ours = Translator.of(folder).translate(TEXTS, generation=generation)
    theirs = ctranslate2_translations(exported(folder, tmp_path), folder, TEXTS, generation=generation)
    assert [t.text for t in theirs] == [t.text for t in ours]
    assert [t.ids for t in theirs] == [t.ids for t in ours]
    assert [t.score for t in theirs] == pytest.approx([t.score for t in ours], abs=1e-4)
    assert [t.finish_reason for t in theirs] == [t.finish_reason for t in ours]


def test_two_vocabularies_keep_their_own_sizes_and_order(tmp_path: Path) -> None:
    src = small_models.Tokenizer.train(TEXTS, small_models.TokenizerConfig(), vocab_size=290)
    folder = folder_of("encoder-decoder", src_vocab_size=src.vocab_size, tying="decoder", vocab_size=307)
    folder = ModelFolder(folder.path, folder.config, folder.model, folder.tokenizer, src, {})
    exported(folder, tmp_path)
    saved = json.loads((tmp_path / "target_vocabulary.json").read_text(encoding="utf-8"))
    assert json.loads((tmp_path / "source_vocabulary.json").read_text(encoding="utf-8")) == src.names
    assert saved[: folder.tokenizer.vocab_size] == folder.tokenizer.names
    assert len(saved) == 307 and len(set(saved)) == 307  # rows beyond the tokenizer have names of their own
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert (config["decoder_start_token"], config["eos_token"], config["unk_token"]) == ("<s>", "</s>", "<unk>")
    engine = CTranslate2Engine(tmp_path, folder)
    assert compare(folder, engine, rows_for(folder, tmp_path), is_int8=False).is_same


def test_a_start_token_that_is_the_padding_token(tmp_path: Path) -> None:
    folder = folder_of("encoder-decoder", bos_id=0)
    engine = CTranslate2Engine(exported(folder, tmp_path), folder)
    assert compare(folder, engine, rows_for(folder, tmp_path), is_int8=False).is_same


def test_the_model_is_untouched_and_int8_is_near(tmp_path: Path) -> None:
    folder = folder_of("encoder-decoder")
    before = {name: parameter.clone() for name, parameter in folder.model.named_parameters()}
    exported(folder, tmp_path, "int8")  # its optimisation scales arrays in place
    assert all(torch.equal(before[name], parameter) for name, parameter in folder.model.named_parameters())
    engine = CTranslate2Engine(tmp_path, folder)
    comparison = compare(folder, engine, rows_for(folder, tmp_path), is_int8=True)
    assert comparison.is_same
    assert comparison.max_difference > 1e-3  # it really is int8


def test_the_position_table_is_ours_and_long_enough(tmp_path: Path) -> None:
    folder = folder_of("encoder-decoder", sinusoid_layout="halves", max_positions=None)
    assert position_limit(folder) == 1024
    sources, targets = [[5] * 900], [[6] * 1000]
    theirs = ctranslate2_log_probs(exported(folder, tmp_path), folder, sources, targets)
    with torch.no_grad():
        logits = folder.model(torch.tensor(sources), torch.tensor([[1, *targets[0]]]))[0]
    ours = logits.log_softmax(-1).gather(1, torch.tensor([*targets[0], 2])[:, None])[:, 0]
    np.testing.assert_allclose(theirs[0], ours.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("family", "changes", "word"),
    [
        ("encoder-decoder", {"positions": "alibi"}, "alibi"),
        ("encoder-only", {"positions": "alibi"}, "alibi"),
        ("decoder-only", {"window": 3}, "window=3"),
        ("encoder-decoder", {"positions": "rotary", "n_segments": 2}, "n_segments=2"),
    ],
)
def test_what_it_cannot_express_is_refused_by_name(family: str, changes: dict[str, Any], word: str) -> None:
    reason = ctranslate2_refusal(folder_of(family, **changes).config.model)
    assert reason is not None and word in reason


def test_vocabulary_names_every_row_once() -> None:
    tokenizer = small_models.tokenizer()
    names = vocabulary(tokenizer, 310)
    assert len(names) == len(set(names)) == 310
    assert names[:5] == ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("name", ["marian", "marian-separate", "bart", "t5-v1.1", "llama-tied", "roberta"])
def test_a_model_imported_from_transformers_goes_on_to_ctranslate2(name: str, tmp_path: Path) -> None:
    """Other start, end and unknown tokens, offsets of positions, rows without a token, separate vocabularies."""
    pytest.importorskip("transformers")
    pytest.importorskip("sentencepiece")
    from huggingface_models import case

    folder = case(name).folder
    engine = CTranslate2Engine(exported(folder, tmp_path), folder)
    comparison = compare(folder, engine, rows_for(folder, tmp_path), is_int8=False)
    assert comparison.is_same, comparison
