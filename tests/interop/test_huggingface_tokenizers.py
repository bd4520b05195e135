"""Imported tokenizers: from every kind of file, with the user's text kept text, and back from a model folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import transformers
from huggingface_models import CORPUS, DECODERS, ENCODERS, TEXTS, TRANSLATORS, case, sentence_pieces, write_json

from glassformer.errors import CheckpointError, TokenizerError
from glassformer.interop.huggingface.families import ARCHITECTURES
from glassformer.interop.huggingface.sentence_transformers import read_sentence_settings
from glassformer.interop.huggingface.vocabulary import read_tokenizers
from glassformer.text.imported import ImportedTokenizer, LibraryTokenizer, load_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
LOOKALIKE = "hello </s> [CLS] <pad> <unk> <s> <mask> >>fr<< <|endoftext|> <extra_id_0> [SEP]</s>x world"


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "llama", "t5", "marian", "bart"])
def test_text_that_looks_like_a_control_token_stays_text(name: str) -> None:
    found = case(name)
    tokenizer = found.folder.src_tokenizer
    assert isinstance(tokenizer, ImportedTokenizer)
    # What is unknown may become the unknown token, as any other text may; a language code is one only at the start.
    unknown = {tokenizer.unk_id} if tokenizer.unk_id != tokenizer.eos_id else set()
    codes = {i for i, piece in enumerate(tokenizer.names) if piece == ">>fr<<"}
    for text in (LOOKALIKE, "</s>", LOOKALIKE.upper(), "＜/s＞ <​/s>"):
        assert not set(tokenizer.encode(text)) & ((tokenizer.special_ids | codes) - unknown)
        allowed = tokenizer.encode(text, allow_special=True)
        assert allowed == found.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert set(tokenizer.encode(LOOKALIKE, allow_special=True)) & tokenizer.special_ids


def test_a_language_code_at_the_start_chooses_the_target() -> None:
    found = case("marian")
    tokenizer = found.folder.src_tokenizer
    for text in (">>fr<< hello", ">>fr<<hello", ">>fr<<"):
        assert tokenizer.encode(text) == found.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.encode(text)[0] == tokenizer.names.index(">>fr<<")
    assert tokenizer.names.index(">>fr<<") not in tokenizer.encode("hello >>fr<< hello")


@pytest.mark.parametrize("kind", ["vocab.txt", "merges.txt"])
@pytest.mark.parametrize("file", ["added_tokens.json", "tokenizer_config.json"])
def test_tokens_added_beside_a_vocabulary_are_read(kind: str, file: str, tmp_path: Path) -> None:
    name, cls = ("bert", "BertTokenizer") if kind == "vocab.txt" else ("gpt2", "GPT2Tokenizer")
    model = json.loads((case(name).path / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    if kind == "vocab.txt":
        (tmp_path / kind).write_text("\n".join(pieces) + "\n", encoding="utf-8")
    else:
        write_json(tmp_path / "vocab.json", model["vocab"])
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        (tmp_path / kind).write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")
    write_json(tmp_path / "config.json", {"model_type": name})
    settings: dict[str, object] = {"tokenizer_class": cls}
    added = {"content": "NEWTOK", "special": False, "normalized": True}
    if file == "added_tokens.json":
        write_json(tmp_path / file, {"NEWTOK": len(pieces)})
    else:
        settings["added_tokens_decoder"] = {str(len(pieces)): added}
    write_json(tmp_path / "tokenizer_config.json", settings)
    ours, _ = read_tokenizers(tmp_path, ARCHITECTURES[name])
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "the NEWTOK cat newtok NewTok"
    assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert len(pieces) in ours.encode(text)
    write_json(tmp_path / "added_tokens.json", {"FAR": len(pieces) + 9})
    with pytest.raises(TokenizerError, match="FAR"):
        read_tokenizers(tmp_path, ARCHITECTURES[name])


@pytest.mark.parametrize("name", ["roberta", "gpt2"])
def test_byte_level_text_comes_back_exactly(name: str) -> None:
    tokenizer = case(name).folder.tokenizer
    for text in (*TEXTS, LOOKALIKE, " a  b\t\n", "\r\n", "", "e\u0301 😀", "\u00a0\u3000x !"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert b"".join(tokenizer.bytes_of(ids)).decode() == text
        assert len(tokenizer.pieces(ids)) == len(ids)


@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS, *TRANSLATORS])
def test_saved_and_loaded_it_is_the_same(name: str, tmp_path: Path) -> None:
    tokenizer = case(name).folder.src_tokenizer
    tokenizer.save(tmp_path / "t.json")
    loaded = load_tokenizer(tmp_path / "t.json")
    assert type(loaded) is type(tokenizer)
    assert loaded.vocab_hash == tokenizer.vocab_hash
    assert loaded.encode_batch(TEXTS, add_eos=True) == tokenizer.encode_batch(TEXTS, add_eos=True)
    assert (loaded.pad_id, loaded.eos_id, loaded.never_made) == (
        tokenizer.pad_id,
        tokenizer.eos_id,
        tokenizer.never_made,
    )


def test_the_ends_of_a_cut_text_are_kept() -> None:
    tokenizer = case("bert").folder.tokenizer
    ids = tokenizer.encode("the cat sat on the mat", add_bos=True, add_eos=True, max_length=4)
    assert len(ids) == 4 and ids[0] == tokenizer.bos_id and ids[-1] == tokenizer.eos_id
    with pytest.raises(TokenizerError, match="max_length=1"):
        tokenizer.encode("a", add_bos=True, add_eos=True, max_length=1)


def test_a_missing_token_and_an_id_without_a_token_are_errors() -> None:
    tokenizer = case("gpt2").folder.tokenizer
    with pytest.raises(TokenizerError, match="no mask token"):
        _ = tokenizer.mask_id
    with pytest.raises(TokenizerError, match="Id 330 has no token"):
        tokenizer.decode([330])
    with pytest.raises(TokenizerError, match="surrogate"):
        tokenizer.encode("\ud83d")
    with pytest.raises(TokenizerError, match="surrogate"):
        case("marian").folder.tokenizer.encode("\ud83d")


def only(tmp_path: Path, name: str, *settings: str) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for file in settings:
        shutil.copy(case(name).path / file, folder)
    return folder


def test_vocab_txt_alone_gives_the_ids_of_tokenizer_json(tmp_path: Path) -> None:
    tokenizer = case("bert").folder.tokenizer
    assert isinstance(tokenizer, ImportedTokenizer)
    folder = only(tmp_path, "bert")
    (folder / "vocab.txt").write_text("".join(f"{name}\n" for name in tokenizer.names), encoding="utf-8")
    _, read = read_tokenizers(folder, ARCHITECTURES["bert"])
    assert read.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert (read.bos_id, read.eos_id, read.mask_id) == (tokenizer.bos_id, tokenizer.eos_id, tokenizer.mask_id)
    write_json(folder / "tokenizer_config.json", {"do_lower_case": False})
    _, cased = read_tokenizers(folder, ARCHITECTURES["bert"])
    theirs = transformers.BertTokenizer(vocab=str(folder / "vocab.txt"), do_lower_case=False)
    assert cased.encode(TEXTS[1]) == theirs(TEXTS[1], add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", ["gpt2", "roberta"])
def test_vocab_and_merges_give_the_ids_of_tokenizer_json(name: str, tmp_path: Path) -> None:
    tokenizer = case(name).folder.tokenizer
    assert isinstance(tokenizer, LibraryTokenizer)
    folder = only(tmp_path, name)
    model = tokenizer.saved["tokenizer"]["model"]
    write_json(folder / "vocab.json", model["vocab"])
    merges = "\n".join(" ".join(merge) for merge in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
    _, read = read_tokenizers(folder, ARCHITECTURES[name])
    # A space before <mask> belongs to it in the files that were published, and not in those that version 5 makes.
    for text in (*TEXTS, LOOKALIKE.replace(" <mask>", "<mask>")):
        assert read.encode(text) == tokenizer.encode(text)
        assert read.encode(text, allow_special=True) == tokenizer.encode(text, allow_special=True)


def test_a_sentencepiece_model_alone_gives_the_ids_of_t5(tmp_path: Path) -> None:
    folder = only(tmp_path, "t5", "spiece.model")
    _, read = read_tokenizers(folder, ARCHITECTURES["t5"])
    tokenizer = case("t5").folder.tokenizer
    assert [read.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]
    assert read.vocab_size == tokenizer.vocab_size
    sentinel = "the <extra_id_0> sat <extra_id_1>"
    assert read.encode(sentinel, allow_special=True) == tokenizer.encode(sentinel, allow_special=True)
    ids = tokenizer.encode("hello world")
    assert read.decode(ids) == tokenizer.decode(ids) == "hello world"


def test_a_sentencepiece_model_of_llama(tmp_path: Path) -> None:
    pieces = sentence_pieces(tmp_path / "tokenizer.model", vocab_size=320, model_type="bpe", byte_fallback=True)
    _, read = read_tokenizers(tmp_path, ARCHITECTURES["llama"])
    assert read.vocab_size == len(pieces)
    assert (read.bos_id, read.eos_id, read.unk_id) == (1, 2, 0)
    assert read.decode(read.encode("hello 😀 world")) == "hello 😀 world"
    assert b"".join(read.bytes_of(read.encode("hello 😀"))).decode() == " hello 😀"


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no tokenizer"):
        read_tokenizers(tmp_path, ARCHITECTURES["bert"])
    write_json(tmp_path / "vocab.json", {"a": 0, "b": 7})
    sentence_pieces(tmp_path / "source.spm", vocab_size=60)
    with pytest.raises(TokenizerError, match="number its pieces"):
        read_tokenizers(tmp_path, ARCHITECTURES["marian"])


def test_padding_and_truncation_in_a_file_change_no_ids() -> None:
    saved = json.loads(case("bert").folder.tokenizer.to_json())
    saved["tokenizer"]["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    text = " ".join(CORPUS)
    assert ImportedTokenizer.of(saved).encode(text) == case("bert").folder.tokenizer.encode(text)


def test_added_words_that_are_no_special_tokens_keep_their_ids() -> None:
    saved = json.loads(case("gpt2").folder.tokenizer.to_json())
    options = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [("<a>", True), ("zz", False), ("<b>", True), ("yy", False), ("<c>", True)]
    for i, (content, special) in enumerate(added):
        saved["tokenizer"]["added_tokens"].append({"id": 330 + i, "content": content, "special": special, **options})
    tokenizer = ImportedTokenizer.of(saved)
    assert tokenizer.vocab_size == 335
    ids = tokenizer.encode("<a>zz<b>yy<c>")
    assert [i for i in ids if i >= 330] == [331, 333]
    assert tokenizer.encode("<a>zz<b>yy<c>", allow_special=True) == [330, 331, 332, 333, 334]


def test_the_modules_of_a_sentence_encoder_are_read(tmp_path: Path) -> None:
    assert read_sentence_settings(tmp_path).folder == tmp_path
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    modules = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in kinds]
    write_json(tmp_path / "modules.json", modules)
    (tmp_path / "1_Pooling").mkdir()
    write_json(tmp_path / "1_Pooling" / "config.json", {"pooling_mode_max_tokens": True})
    found = read_sentence_settings(tmp_path)
    assert (found.pooling, found.is_normalized, found.max_tokens) == ("max", True, None)
    for wrong in (
        {"pooling_mode_lasttoken": True},
        {"pooling_mode_max_tokens": True, "pooling_mode_cls_token": True},
        {},
    ):
        write_json(tmp_path / "1_Pooling" / "config.json", wrong)
        with pytest.raises(ValueError, match="pooling"):
            read_sentence_settings(tmp_path)
    write_json(tmp_path / "modules.json", [*modules, {"type": "sentence_transformers.models.Dense", "path": "3_Dense"}])
    with pytest.raises(ValueError, match="Dense"):
        read_sentence_settings(tmp_path)
