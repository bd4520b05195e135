"""Out and in again: nothing is lost, and what transformers loads computes the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from huggingface_models import CORPUS, DECODERS, ENCODERS, TEXTS, TRANSLATORS, case
from safetensors.torch import load_file

from glassformer.config import Config, ModelConfig, TokenizerConfig
from glassformer.errors import TokenizerError
from glassformer.interop.huggingface import export_huggingface, import_huggingface
from glassformer.interop.refusal import RefusedExport
from glassformer.tasks.model_folder import ModelFolder, load_model_folder
from glassformer.text.tokenizer import Tokenizer
from helpers import assert_close, build_tiny, tiny_config

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")


def assert_same_tensors(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(actual[name], tensor), name


@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS, *TRANSLATORS])
def test_what_is_imported_and_exported_is_the_same(name: str, tmp_path: Path) -> None:
    found = case(name)
    export_huggingface(found.folder, tmp_path)
    loaded = type(found.model).from_pretrained(tmp_path)
    left_out = found.report.left_out.keys()
    assert_same_tensors(
        {key: value for key, value in loaded.state_dict().items() if key not in left_out},
        {key: value for key, value in found.model.state_dict().items() if key not in left_out},
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(tokenizer) is type(found.tokenizer)
    assert tokenizer(TEXTS)["input_ids"] == found.tokenizer(TEXTS)["input_ids"]
    again = tmp_path / "again"
    import_huggingface(tmp_path, again)
    folder = load_model_folder(again)
    assert folder.config.model == found.folder.config.model
    assert_same_tensors(folder.model.state_dict(), found.folder.model.state_dict())
    assert [folder.tokenizer.encode(text) for text in TEXTS] == [found.folder.tokenizer.encode(t) for t in TEXTS]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(CORPUS, TokenizerConfig(vocab_size=300))


# What can be trained here from nothing, and the architecture that holds it.
BERT = {"norm_placement": "post", "use_final_norm": False, "use_embedding_norm": True, "scale_embedding": False}
OWN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "translator": ("pegasus", "encoder-decoder", {}),
    "translator of 2017": ("marian", "encoder-decoder", {"norm_placement": "post", "use_final_norm": False}),
    "T5": (
        "t5",
        "encoder-decoder",
        {
            "positions": "t5_relative",
            "norm": "rmsnorm",
            "scale_scores": False,
            "scale_embedding": False,
            "scale_logits": True,
            "use_ffn_bias": False,
        },
    ),
    "encoder": ("bert", "encoder-only", BERT | {"positions": "learned", "n_segments": 2, "use_mlm_head": True}),
    "language model": ("gpt2", "decoder-only", {"positions": "learned", "scale_embedding": False}),
    "rotary language model": (
        "llama",
        "decoder-only",
        {
            "positions": "rotary",
            "sinusoid_layout": "halves",
            "norm": "rmsnorm",
            "is_gated": True,
            "scale_embedding": False,
            "use_ffn_bias": False,
            "n_kv_heads": 2,
        },
    ),
}


def own_folder(tokenizer: Tokenizer, family: str, changes: dict[str, Any]) -> ModelFolder:
    sizes = {"vocab_size": tokenizer.vocab_size + 3, "d_model": 24, "d_head": None, "dropout": 0.1}
    sizes |= {"n_relative_buckets": 32, "max_relative_distance": 128}
    config = replace(tiny_config(family, **changes), **sizes)
    model = build_tiny(config)
    return ModelFolder(Path("unused"), Config(model=config), model, tokenizer, tokenizer, {})


@pytest.mark.parametrize("name", OWN)
def test_a_model_trained_here_goes_out_and_comes_back(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model_type, family, changes = OWN[name]
    folder = own_folder(tokenizer, family, changes)
    export_huggingface(folder, tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert config.model_type == model_type
    loaded = getattr(transformers, config.architectures[0]).from_pretrained(tmp_path).eval()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    encoded = theirs(TEXTS, padding=True, padding_side="right", return_tensors="pt")
    encoded.pop("token_type_ids", None)
    ids, mask = encoded["input_ids"], encoded["attention_mask"].bool()
    add_eos = family != "decoder-only"
    assert [row[keep].tolist() for row, keep in zip(ids, mask, strict=True)] == [
        tokenizer.encode(text, add_eos=add_eos) for text in TEXTS
    ]
    with torch.no_grad():
        if family == "encoder-decoder":
            tgt = torch.tensor([[1, 9, 40, 7]] * len(ids))
            assert_close(
                folder.model(ids, tgt, src_mask=mask), loaded(**encoded, decoder_input_ids=tgt).logits, 1e-5, "float32"
            )
        else:
            ours = folder.model(ids, mask=mask)
            ours = ours if family == "decoder-only" else folder.model.mlm_head(ours)  # type: ignore[operator, union-attr]
            assert_close(ours[mask], loaded(**encoded).logits[mask], 1e-5, "float32")
    import_huggingface(tmp_path, tmp_path / "again")
    again = load_model_folder(tmp_path / "again")
    assert_same_tensors(again.model.state_dict(), folder.model.state_dict())
    assert [again.tokenizer.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]


def test_text_that_looks_like_a_control_token_stays_text_after_an_export(tokenizer: Tokenizer, tmp_path: Path) -> None:
    export_huggingface(own_folder(tokenizer, "encoder-decoder", {}), tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "hello </s> <pad> world"
    ids = theirs(text)["input_ids"]
    assert ids == tokenizer.encode(text, add_eos=True)
    assert theirs.decode(ids, skip_special_tokens=True) == text


@pytest.mark.parametrize(
    ("family", "changes", "word"),
    [
        ("encoder-decoder", {"positions": "alibi"}, "positions=alibi"),
        ("encoder-decoder", {"norm_eps": 1e-3}, "norm_eps=0.001"),
        ("encoder-decoder", {"is_gated": True}, "is_gated=True"),
        ("decoder-only", {"positions": "learned", "scale_embedding": False, "window": 8}, "window=8"),
        (
            "encoder-only",
            BERT | {"positions": "learned", "n_segments": 2, "norm_placement": "pre"},
            "norm_placement=pre",
        ),
    ],
)
def test_what_no_architecture_holds_is_refused_with_the_reason(
    family: str, changes: dict[str, Any], word: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with pytest.raises(RefusedExport, match="No architecture of transformers") as error:
        export_huggingface(own_folder(tokenizer, family, changes), tmp_path)
    assert word in str(error.value)
    assert not list(tmp_path.iterdir())


def test_two_vocabularies_of_ours_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    other = Tokenizer.train(CORPUS, TokenizerConfig(vocab_size=280))
    changes = {"norm_placement": "post", "use_final_norm": False, "tying": "decoder"}
    folder = own_folder(tokenizer, "encoder-decoder", changes)
    config = replace(folder.config.model, src_vocab_size=other.vocab_size)
    folder = replace(folder, config=replace(folder.config, model=config), model=build_tiny(config), src_tokenizer=other)
    with pytest.raises(TokenizerError, match="vocabularies of their own"):
        export_huggingface(folder, tmp_path)


def test_separate_vocabularies_of_marian_keep_their_sizes() -> None:
    config: ModelConfig = case("marian-separate").folder.config.model
    folder = case("marian-separate").folder
    assert folder.src_tokenizer.vocab_size == config.source_vocab_size != config.vocab_size
    assert folder.tokenizer.vocab_size == config.vocab_size
    assert folder.model.encoder.embedding.tokens.weight.shape[0] == config.source_vocab_size  # type: ignore[union-attr]


def test_gpt2_matrices_are_stored_transposed(tmp_path: Path) -> None:
    found = case("gpt2")
    export_huggingface(found.folder, tmp_path)
    written = load_file(tmp_path / "model.safetensors")
    block = found.folder.model.decoder.stack.blocks[0].self_attention  # type: ignore[union-attr]
    assert torch.equal(written["transformer.h.0.attn.c_proj.weight"], block.w_o.weight.T)
    stacked = torch.cat([block.w_q.weight, block.w_k.weight, block.w_v.weight]).T
    assert torch.equal(written["transformer.h.0.attn.c_attn.weight"], stacked)
