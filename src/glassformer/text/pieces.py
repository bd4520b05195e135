"""Imported tokenizers that are SentencePiece models (an extra of glassformer)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from glassformer.errors import TokenizerError
from glassformer.text.imported import SPACE, ImportedTokenizer, piece_bytes
from glassformer.text.tokenizer import require_unicode

__all__ = ["PieceTokenizer"]


class PieceTokenizer(ImportedTokenizer):
    """A SentencePiece model. With `names`, its pieces have the ids of that list (Marian), else their own."""

    def __init__(self, saved: Mapping[str, Any]) -> None:
        super().__init__(saved)
        try:
            import sentencepiece
        except ModuleNotFoundError:
            raise TokenizerError(
                "This tokenizer needs the package sentencepiece, which is not installed.",
                "It is an extra of glassformer.",
                "Run: pip install 'glassformer[sentencepiece]'.",
            ) from None
        self._pieces = sentencepiece.SentencePieceProcessor(model_proto=base64.b64decode(saved["model"]))

    @cached_property
    def names(self) -> list[str]:
        if self.saved["names"] is not None:
            return list(self.saved["names"])
        own = [self._pieces.id_to_piece(i) for i in range(self._pieces.get_piece_size())]
        return [*own, *self.saved["added"]]

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def special_ids(self) -> frozenset[int]:
        own = {self._id_of[name] for name in self.saved["added"] if name in self._id_of}
        return frozenset(own | {value for value in self._special.values() if value is not None})

    @property
    def kind(self) -> Literal["bpe", "wordpiece", "unigram"]:
        return "unigram"

    def normalize(self, text: str) -> str:
        require_unicode(text)
        return str(self._pieces.normalize(text))

    def _ids(self, texts: Sequence[str], dropout: float) -> list[list[int]]:
        if dropout:
            raise TokenizerError(
                f"dropout={dropout} with an imported SentencePiece model.",
                "Only BPE has merges to skip.",
                "Use dropout=0.",
            )
        for text in texts:
            require_unicode(text)
        unknown: Any = self._special["unk"]
        parted = [self._without_code(text) for text in texts]
        batch: list[list[str]] = self._pieces.encode([text for _, text in parted], out_type=str)
        return [
            [*code, *(self._id_of.get(piece, unknown) for piece in pieces)]
            for (code, _), pieces in zip(parted, batch, strict=True)
        ]

    def _without_code(self, text: str) -> tuple[list[int], str]:
        """A language code of the vocabulary, such as >>fr<<, at the start of a text, and the rest (Marian)."""
        code = None if self.saved["names"] is None else re.match(r">>[^<>\s]+<<", text)
        return ([self._id_of[code[0]]], text[code.end() :]) if code and code[0] in self._id_of else ([], text)

    def _ids_with_special(self, text: str, dropout: float) -> list[int]:
        """Special tokens anywhere."""
        start, text = self._without_code(text)
        names = sorted((self.names[i] for i in self.special_ids), key=len, reverse=True)
        parts = re.split("(" + "|".join(map(re.escape, names)) + ")", text)
        for i, part in enumerate(parts):
            start += [self._id_of[part]] if i % 2 else self._ids([part], dropout)[0]
        return start

    def _text_of(self, ids: list[int], skip_special: bool) -> str:
        text, run = "", list[str]()
        for i in ids:
            if i not in self.special_ids:
                run.append(self.names[i])
            elif not skip_special:
                text, run = f"{text}{self._pieces.decode_pieces(run)}{self.names[i]} ", []
        return (text + str(self._pieces.decode_pieces(run))).replace(SPACE, " ").strip()

    @cached_property
    def _all_bytes(self) -> dict[int, bytes]:
        return {i: piece_bytes(name) for i, name in enumerate(self.names)}
