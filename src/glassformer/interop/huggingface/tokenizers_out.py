"""Tokenizer files that AutoTokenizer reads: those of an imported tokenizer as they came, or ours in their form."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from glassformer.config import ModelConfig
from glassformer.errors import TokenizerError
from glassformer.tasks.model_folder import ModelFolder
from glassformer.text.imported import ImportedTokenizer, LibraryTokenizer
from glassformer.text.pieces import PieceTokenizer
from glassformer.text.tokenizer import SPECIALS, Tokenizer

__all__ = ["write_tokenizers"]


def write_tokenizers(folder: ModelFolder, out: Path) -> None:
    """Writes the tokenizers of source and target.

    Raises:
        TokenizerError: There are two, and not of the kind that transformers keeps as two.
    """
    source, target = folder.src_tokenizer, folder.tokenizer
    if isinstance(source, PieceTokenizer) and isinstance(target, PieceTokenizer) and source.saved["names"] is not None:
        _marian(source, target, out)
        return
    if source.vocab_hash != target.vocab_hash:
        raise TokenizerError(
            "Source and target have vocabularies of their own.",
            "AutoTokenizer reads two only as SentencePiece models, which these are not.",
            "Train with one shared vocabulary (tokenizer.is_shared=true) to export to Hugging Face.",
        )
    if isinstance(target, ImportedTokenizer):
        _imported(target, out)
    else:
        _ours(target, folder.config.model, out)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _imported(tokenizer: ImportedTokenizer, out: Path) -> None:
    for name, content in tokenizer.files.items():
        _write(out / name, content)
    if isinstance(tokenizer, LibraryTokenizer):
        _write(out / "tokenizer.json", tokenizer.saved["tokenizer"])
    else:
        (out / tokenizer.saved["file"]).write_bytes(base64.b64decode(tokenizer.saved["model"]))


def _marian(source: PieceTokenizer, target: PieceTokenizer, out: Path) -> None:
    for name, content in target.files.items():
        _write(out / name, content)
    for side, tokenizer in (("source", source), ("target", target)):
        (out / f"{side}.spm").write_bytes(base64.b64decode(tokenizer.saved["model"]))
    _write(out / "vocab.json", {name: i for i, name in enumerate(source.names)})
    if source.vocab_hash != target.vocab_hash:
        _write(out / "target_vocab.json", {name: i for i, name in enumerate(target.names)})


def _ours(tokenizer: Tokenizer, config: ModelConfig, out: Path) -> None:
    """Our file with the special tokens around a text, and settings that keep the user's text text."""
    bos, eos = SPECIALS[tokenizer.bos_id], SPECIALS[tokenizer.eos_id]
    state: dict[str, Any] = json.loads(tokenizer.to_json())
    frame = ([bos] if config.use_bos else [], [eos] if config.family != "decoder-only" else [])
    single, pair = _template(frame, "A"), [*_template(frame, "A"), *_template(([], frame[1]), "B")]
    state["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": {name: {"id": name, "ids": [SPECIALS.index(name)], "tokens": [name]} for name in (bos, eos)},
    }
    options = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    state["added_tokens"] = [{"id": i, "content": name} | options for i, name in enumerate(SPECIALS)]
    _write(out / "tokenizer.json", state)
    roles = {"pad_token": 0, "bos_token": 1, "eos_token": 2, "unk_token": 3, "mask_token": 4}
    encoder = {"cls_token": 1, "sep_token": 2} if config.family == "encoder-only" else {}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{role: SPECIALS[i] for role, i in (roles | encoder).items()},
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # </s> in a text is four characters, here as there
        "model_input_names": ["input_ids", "attention_mask"] + ["token_type_ids"] * (config.n_segments > 1),
    }
    if config.max_positions is not None:
        settings["model_max_length"] = config.max_positions
    _write(out / "tokenizer_config.json", settings)


def _template(frame: tuple[list[str], list[str]], sequence: str) -> list[dict[str, Any]]:
    number = {"A": 0, "B": 1}[sequence]
    before, after = ([{"SpecialToken": {"id": name, "type_id": number}} for name in names] for names in frame)
    return [*before, {"Sequence": {"id": sequence, "type_id": number}}, *after]
