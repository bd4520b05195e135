"""Tokenizer files of a Hugging Face folder: read into our tokenizers, and written back."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from glassformer.errors import CheckpointError, TokenizerError
from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.files import read_json
from glassformer.text.imported import FORMAT, ImportedTokenizer

__all__ = ["read_tokenizers"]

SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_ROLES = {
    "pad": ("pad_token",),
    "bos": ("cls_token", "bos_token"),
    "eos": ("sep_token", "eos_token"),
    "unk": ("unk_token",),
    "mask": ("mask_token",),
}


def read_tokenizers(folder: Path, architecture: Architecture) -> tuple[ImportedTokenizer, ImportedTokenizer]:
    """The tokenizers of source and target; one and the same where the folder has one.

    Raises:
        CheckpointError: The folder has no tokenizer that is known here.
        TokenizerError: Its files are damaged, or a package is missing.
    """
    settings = {name: read_json(folder / name) for name in SETTINGS if (folder / name).is_file()}
    names = _special_names(settings, architecture)
    if (folder / "source.spm").is_file():
        return _marian(folder, settings, names)
    if (folder / "tokenizer.json").is_file():
        library: dict[str, Any] = read_json(folder / "tokenizer.json")
    elif (folder / "vocab.txt").is_file():
        library = _wordpiece(folder, settings, names)
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        library = _byte_bpe(folder, settings, names)
    else:
        tokenizer = _pieces(folder, settings, names, architecture)
        return tokenizer, tokenizer
    ids = _ids_of(library)
    saved = {
        "format": FORMAT,
        "library": "tokenizers",
        "special": {role: ids.get(name) if name else None for role, name in names.items()},
        "tokenizer": library,
        "files": settings,
    }
    tokenizer = ImportedTokenizer.of(saved)
    return tokenizer, tokenizer


def _special_names(settings: Mapping[str, Any], architecture: Architecture) -> dict[str, str | None]:
    """Name of the token for each role: from the files, or what the architecture has."""
    known = dict(architecture.special)
    config = settings.get("tokenizer_config.json", {})
    for source in (settings.get("special_tokens_map.json", {}), config):
        for key, value in source.items():
            if key.endswith("_token"):
                known[key] = value["content"] if isinstance(value, dict) else value
    return {role: next((known[key] for key in keys if known.get(key)), None) for role, keys in _ROLES.items()}


def _ids_of(library: Mapping[str, Any]) -> dict[str, int]:
    try:
        vocab = library["model"]["vocab"]
        ids = dict(vocab) if isinstance(vocab, dict) else {piece: i for i, (piece, _) in enumerate(vocab)}
        return ids | {token["content"]: token["id"] for token in library["added_tokens"]}
    except (LookupError, TypeError, ValueError) as error:
        raise TokenizerError(
            f"tokenizer.json is not a file of the tokenizers library ({error!r}).",
            "A vocabulary and the tokens beside it were expected.",
            "Copy the whole folder again.",
        ) from error


def _wordpiece(folder: Path, settings: Mapping[str, Any], names: Mapping[str, str | None]) -> dict[str, Any]:
    """BERT's tokenizer from its list of pieces."""
    options = settings.get("tokenizer_config.json", {})
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    vocab = {line.rstrip("\r"): i for i, line in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    library = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=names["unk"] or "[UNK]"))
    library.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=options.get("tokenize_chinese_chars", True),
        strip_accents=options.get("strip_accents"),
        lowercase=options.get("do_lower_case", True),
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    return _with_added(library, settings, names)


def _byte_bpe(folder: Path, settings: Mapping[str, Any], names: Mapping[str, str | None]) -> dict[str, Any]:
    """The tokenizer of GPT-2, RoBERTa and BART from its pieces and merges."""
    options = settings.get("tokenizer_config.json", {})
    model = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    library = tokenizers.Tokenizer(model)
    add_space = options.get("add_prefix_space", False)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_space)
    library.decoder = decoders.ByteLevel()
    return _with_added(library, settings, names)


def _with_added(
    library: tokenizers.Tokenizer, settings: Mapping[str, Any], names: Mapping[str, str | None]
) -> dict[str, Any]:
    """The library's file with the tokens that the files of settings add, under the ids that they name."""
    for i, token in sorted(_added(settings).items()):
        (library.add_special_tokens if token.special else library.add_tokens)([token])
        if library.token_to_id(token.content) != i:
            raise TokenizerError(
                f"The added token {token.content!r} has the id {i} and would be {library.token_to_id(token.content)}.",
                "Added tokens follow on the vocabulary without a gap.",
                "Save the tokenizer as tokenizer.json, and import again.",
            )
    library.add_special_tokens(
        [
            # The mask takes the space in front of it, so that it stands for a whole word (RoBERTa, BART).
            tokenizers.AddedToken(name, lstrip=role == "mask" and name == "<mask>", normalized=False)
            for role, name in names.items()
            if name is not None and name not in {token.content for token in _added(settings).values()}
        ]
    )
    state: dict[str, Any] = json.loads(library.to_str())
    return state


def _added(settings: Mapping[str, Any]) -> dict[int, tokenizers.AddedToken]:
    """Tokens beside the vocabulary by id: `added_tokens_decoder` of tokenizer_config.json, and added_tokens.json."""
    found = {i: {"content": name} for name, i in settings.get("added_tokens.json", {}).items()}
    decoder = settings.get("tokenizer_config.json", {}).get("added_tokens_decoder", {})
    found |= {int(i): token for i, token in decoder.items()}
    return {i: tokenizers.AddedToken(**token) for i, token in found.items()}


def _marian(
    folder: Path, settings: Mapping[str, Any], names: Mapping[str, str | None]
) -> tuple[ImportedTokenizer, ImportedTokenizer]:
    """Two SentencePiece models whose pieces have the ids of vocab.json (and of target_vocab.json for the target)."""
    is_separate = bool(settings.get("tokenizer_config.json", {}).get("separate_vocabs", False))
    found = []
    for side, vocabulary in (
        ("source", "vocab.json"),
        ("target", "target_vocab.json" if is_separate else "vocab.json"),
    ):
        ids: dict[str, int] = read_json(folder / vocabulary)
        if sorted(ids.values()) != list(range(len(ids))):
            raise TokenizerError(
                f"{folder / vocabulary} does not number its pieces 0, 1, 2 ...",
                "Each id has one piece.",
                "Use the file that belongs to the model.",
            )
        found.append(
            ImportedTokenizer.of(
                {
                    "format": FORMAT,
                    "library": "sentencepiece",
                    "special": {role: ids.get(name) if name else None for role, name in names.items()},
                    "model": _model(folder / f"{side}.spm"),
                    "names": sorted(ids, key=ids.__getitem__),
                    "added": [],
                    "files": settings,
                }
            )
        )
    return found[0], found[1]


def _pieces(
    folder: Path, settings: Mapping[str, Any], names: Mapping[str, str | None], architecture: Architecture
) -> ImportedTokenizer:
    """One SentencePiece model whose pieces have their own ids, with T5's sentinels behind them."""
    path = next((folder / name for name in ("spiece.model", "tokenizer.model") if (folder / name).is_file()), None)
    if path is None:
        raise CheckpointError(
            f"{folder} has no tokenizer that is known here.",
            "tokenizer.json, vocab.txt, vocab.json with merges.txt, source.spm with target.spm, spiece.model or "
            "tokenizer.model was expected.",
            "Copy the tokenizer's files into the folder.",
        )
    n_sentinels = (
        settings.get("tokenizer_config.json", {}).get("extra_ids", 100) if architecture.model_type == "t5" else 0
    )
    added = [f"<extra_id_{i}>" for i in reversed(range(n_sentinels))]
    saved = {
        "format": FORMAT,
        "library": "sentencepiece",
        "special": dict.fromkeys(names),
        "model": _model(path),
        "names": None,
        "added": added,
        "file": path.name,
        "files": settings,
    }
    ids = {name: i for i, name in enumerate(ImportedTokenizer.of(saved).names)}
    return ImportedTokenizer.of(
        saved | {"special": {role: ids.get(name) if name else None for role, name in names.items()}}
    )


def _model(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
