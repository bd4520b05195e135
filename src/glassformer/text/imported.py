"""Tokenizers that come with imported weights: they give the ids that their own library gives.

One file, `tokenizer.json`, holds all of it: what the library needs, the ids of the special tokens, and the files of
settings beside it, so that an export can write them back. Text of the user never becomes a special token, as with our
own tokenizers; `allow_special=True` gives the ids that the original gives.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import tokenizers

from glassformer.errors import TokenizerError
from glassformer.text.learning import BYTE_CHARS, CONTINUING, KINDS
from glassformer.text.tokenizer import Tokenizer

__all__ = ["SPACE", "ImportedTokenizer", "LibraryTokenizer", "load_tokenizer", "piece_bytes"]

FORMAT = "glassformer imported tokenizer 1"
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
SPACE = "▁"  # how SentencePiece shows a space


def load_tokenizer(path: Path) -> Tokenizer:
    """Loads the tokenizer of a model folder, our own kind or an imported one.

    Raises:
        TokenizerError: The file is missing, damaged, or of neither kind.
    """
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
        is_imported = isinstance(saved, dict) and saved.get("format") == FORMAT
    except (OSError, ValueError, RecursionError):
        is_imported = False  # `Tokenizer.load` says what is wrong
    return ImportedTokenizer.of(saved) if is_imported else Tokenizer.load(path)


class ImportedTokenizer(Tokenizer):
    """A tokenizer of another library, with the interface of ours.

    Args:
        saved: The content of the file. `special` maps `pad`, `bos`, `eos`, `unk`, `mask` to ids (or null), `files`
            the names of the original's files of settings to their content.
    """

    def __init__(self, saved: Mapping[str, Any]) -> None:
        self.saved = saved
        self._special: dict[str, int | None] = saved["special"]

    @staticmethod
    def of(saved: Mapping[str, Any]) -> ImportedTokenizer:
        """The class that fits the content of a file.

        Raises:
            TokenizerError: The content is damaged.
        """
        from glassformer.text.pieces import PieceTokenizer  # it is built on this class

        kinds: dict[str, type[ImportedTokenizer]] = {"tokenizers": LibraryTokenizer, "sentencepiece": PieceTokenizer}
        try:
            return kinds[saved["library"]](saved)
        except TokenizerError:
            raise
        except Exception as error:  # the libraries raise bare exceptions
            raise TokenizerError(
                f"The imported tokenizer cannot be read: {error!r}.",
                "A tokenizer.json as `glassformer import` writes it was expected.",
                "Import the model again.",
            ) from error

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """As `load_tokenizer`."""
        return load_tokenizer(path)

    def to_json(self) -> str:
        return json.dumps(self.saved, ensure_ascii=False)

    def with_special(self, **ids: int | None) -> ImportedTokenizer:
        """The same tokenizer with other ids for `pad`, `bos`, `eos`, `unk` or `mask`."""
        return self.of({**self.saved, "special": self._special | ids})

    def _special_id(self, role: str) -> int:
        value = self._special[role]
        if value is None:
            raise TokenizerError(
                f"This imported tokenizer has no {role} token.",
                "What was asked for needs one.",
                "Use a model whose tokenizer has it.",
            )
        return value

    @property
    def pad_id(self) -> int:  # type: ignore[override]
        """Id that fills rows of a batch."""
        return self._special_id("pad")

    @property
    def bos_id(self) -> int:  # type: ignore[override]
        """Id in front of a text that is read (CLS)."""
        return self._special_id("bos")

    @property
    def eos_id(self) -> int:  # type: ignore[override]
        """Id at the end of a text (SEP)."""
        return self._special_id("eos")

    @property
    def unk_id(self) -> int:  # type: ignore[override]
        """Id of what the vocabulary lacks."""
        return self._special_id("unk")

    @property
    def mask_id(self) -> int:  # type: ignore[override]
        """Id of a hidden token in masked-language training."""
        return self._special_id("mask")

    @property
    def never_made(self) -> list[int]:
        ids = {value for role, value in self._special.items() if role != "eos" and value is not None}
        return sorted(ids - {self.eos_id})

    @property
    def files(self) -> dict[str, Any]:
        """The original's files of settings, by name."""
        files: dict[str, Any] = self.saved["files"]
        return files

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The name of each id."""

    @cached_property
    def _names(self) -> list[str]:
        return self.names

    @cached_property
    def vocab_size(self) -> int:
        return len(self.names)

    @cached_property
    def vocab_hash(self) -> str:
        return hashlib.sha256(json.dumps(self.names).encode()).hexdigest()

    @property
    def is_lossless(self) -> bool:
        return False

    @property
    def normalization(self) -> str:
        return "imported"

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of ids, as the original's library puts it together."""
        ids = list(ids)
        for i in ids:
            if not 0 <= i < self.vocab_size:
                raise TokenizerError(
                    f"Id {i} has no token.",
                    f"Ids run from 0 to {self.vocab_size - 1}.",
                    "Check that the tokenizer and the model belong together.",
                )
        return self._text_of(ids, skip_special)

    @abstractmethod
    def _text_of(self, ids: list[int], skip_special: bool) -> str: ...

    @property
    @abstractmethod
    def special_ids(self) -> frozenset[int]:
        """Ids that stand for no text: the named ones and further ones of the original."""

    @cached_property
    def _text_bytes(self) -> dict[int, bytes]:
        return self._all_bytes | dict.fromkeys(self.special_ids, b"")


class LibraryTokenizer(ImportedTokenizer):
    """A `tokenizers.Tokenizer`: byte-level BPE, WordPiece, Unigram and others."""

    def __init__(self, saved: Mapping[str, Any]) -> None:
        super().__init__(saved)
        state: dict[str, Any] = {**saved["tokenizer"], "truncation": None, "padding": None}
        self._whole = tokenizers.Tokenizer.from_str(json.dumps(state))
        self._state = _without_special(state, self.special_ids)
        self._library = tokenizers.Tokenizer.from_str(json.dumps(self._state))
        self._dropped_out = (0.0, self._library)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        added = {token["id"] for token in self.saved["tokenizer"]["added_tokens"] if token["special"]}
        return frozenset(added | {value for value in self._special.values() if value is not None})

    @cached_property
    def names(self) -> list[str]:
        of = {i: name for name, i in self._whole.get_vocab(with_added_tokens=True).items()}
        return [of.get(i, f"<unused {i}>") for i in range(max(of) + 1)]

    def framed(self) -> tuple[bool, bool]:
        """Whether the original puts a begin token in front of a text, and an end token behind it."""
        ids = self._whole.encode("a").ids
        return bool(ids) and ids[0] == self._special["bos"], bool(ids) and ids[-1] == self._special["eos"]

    @property
    def kind(self) -> Literal["bpe", "wordpiece", "unigram"]:
        return KINDS.get(self._state["model"]["type"], "unigram")

    def _ids_with_special(self, text: str, dropout: float) -> list[int]:
        return self._whole.encode(text, add_special_tokens=False).ids

    def _text_of(self, ids: list[int], skip_special: bool) -> str:
        if skip_special:
            ids = [i for i in ids if i not in self.special_ids]
        return self._whole.decode(ids, skip_special_tokens=False)

    @cached_property
    def _is_byte_level(self) -> bool:
        return '"ByteLevel"' in json.dumps(self._state["decoder"])

    @cached_property
    def _all_bytes(self) -> dict[int, bytes]:
        return {
            i: self._bytes(name) if i not in self.special_ids else name.encode() for i, name in enumerate(self.names)
        }

    def _bytes(self, name: str) -> bytes:
        if self._is_byte_level:
            return bytes(_BYTES[char] for char in name) if all(char in _BYTES for char in name) else name.encode()
        if self.kind == "wordpiece":
            return (name.removeprefix(CONTINUING) if name.startswith(CONTINUING) else f" {name}").encode()
        return piece_bytes(name)


_BYTES = {char: byte for byte, char in enumerate(BYTE_CHARS)}


def piece_bytes(name: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace(SPACE, " ").encode()


def _without_special(state: dict[str, Any], special_ids: Iterable[int]) -> dict[str, Any]:
    """The library's file without special tokens: no text becomes one, and all other ids stay what they are.

    They leave the list of tokens that are looked up in text. Those that the vocabulary itself holds get a space in
    their name, which no text can spell, since every pre-tokenizer splits at spaces or writes them in another way.
    The unknown token keeps its name, by which the library finds it.
    """
    special = set(special_ids)
    model = dict(state["model"])
    kept = model.get("unk_token")
    if isinstance(model.get("vocab"), list):  # Unigram: [piece, score], the unknown one known by its place
        model["vocab"] = [
            [f" {p}", score] if i in special else [p, score] for i, (p, score) in enumerate(model["vocab"])
        ]
    else:
        model["vocab"] = {
            f" {name}" if i in special and name != kept else name: i for name, i in model["vocab"].items()
        }
    n_own = len(model["vocab"])
    # Tokens beside the vocabulary are numbered by their order, so a gap is filled by what no text should hold.
    added = [
        {**token, "content": f"\U0010ffff{token['id']}"} if token["id"] in special else token
        for token in state["added_tokens"]
        if token["id"] not in special or token["id"] >= n_own
    ]
    while added and added[-1]["id"] in special:
        added.pop()
    return {**state, "model": model, "added_tokens": added, "post_processor": None}
