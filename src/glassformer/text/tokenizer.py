"""Text to ids and back, by pieces learned from the user's own text.

Every kind works over bytes, so no text is unknown, and without normalisation `decode(encode(text)) == text`.
The text of a user never becomes a special token: `</s>` in a text is four characters, unless `allow_special=True`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import tokenizers

from glassformer.config import TokenizerConfig
from glassformer.errors import TokenizerError
from glassformer.text.learning import (
    BYTE_CHARS,
    CONTINUING,
    KINDS,
    SPECIALS,
    choose_vocab_size,
    learn,
    require_known,
    sentinel_names,
)

__all__ = ["SPECIALS", "Tokenizer", "choose_vocab_size", "require_unicode"]


class Tokenizer:
    """A learned vocabulary and the way of cutting text into its pieces.

    Special tokens have fixed ids: `<pad>` 0, `<s>` 1 (begin, CLS), `</s>` 2 (end, SEP), `<unk>` 3, `<mask>` 4.
    Then come the `n_sentinels` of the config. `<unk>` is never made from text. Made by `train` or `load`.
    """

    pad_id, bos_id, eos_id, unk_id, mask_id = range(len(SPECIALS))

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self._library = library
        self._state: dict[str, Any] = json.loads(library.to_str())
        require_known(self._state, library)
        self._dropped_out: tuple[float, tokenizers.Tokenizer] = (0.0, library)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        config: TokenizerConfig,
        *,
        vocab_size: int | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Tokenizer:
        """Learns a vocabulary. The same texts and config give the same file, byte for byte.

        Args:
            texts: Read once, one at a time; twice when no size is given, to count the words.
            config: Kind, size and normalisation.
            vocab_size: Most entries, in place of `config.vocab_size`. The real size, `vocab_size` of the
                result, is lower when the texts support fewer pieces.
            on_progress: Called with the number of texts read so far.

        Raises:
            TokenizerError: Nothing to learn from, a size below the alphabet, or no size and texts that can be
                read only once.
        """
        size = config.vocab_size if vocab_size is None else vocab_size
        if size is None:
            if iter(texts) is texts:
                raise TokenizerError(
                    "vocab_size is not set and the texts can be read only once.",
                    "Choosing a size needs one pass to count words.",
                    "Set vocab_size, or give the texts as a list or a reader.",
                )
            size, _ = choose_vocab_size(*_count(texts), config=config)
        return cls(learn(texts, config, size, on_progress))

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Loads a `tokenizer.json` that `save` wrote.

        Raises:
            TokenizerError: The file is missing, damaged, or was not written by glassformer.
        """
        try:
            library = tokenizers.Tokenizer.from_str(Path(path).read_text(encoding="utf-8"))
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(
                f"{path} cannot be read as a tokenizer: {error}.",
                "A tokenizer.json as `Tokenizer.save` writes it was expected.",
                "Give the folder of a model that glassformer trained, or copy the file again.",
            ) from error
        return cls(library)

    def save(self, path: Path) -> None:
        """Writes one JSON file, readable by `tokenizers.Tokenizer.from_file` too. Whole or not at all.

        Raises:
            TokenizerError: The file cannot be written.
        """
        path, temporary = Path(path), None
        try:
            with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
                temporary = Path(file.name)
                file.write(self.to_json().encode())
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)  # the temporary file is private to its owner
            temporary.replace(path)
        except OSError as error:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
            raise TokenizerError(
                f"{path} cannot be written: {error.strerror}.",
                "A writable folder with room was expected.",
                "Free space or choose another folder.",
            ) from error

    def encode(
        self,
        text: str,
        *,
        add_bos: bool = False,
        add_eos: bool = False,
        max_length: int | None = None,
        allow_special: bool = False,
        dropout: float = 0.0,
    ) -> list[int]:
        """The ids of a text.

        A single space between two visible characters always begins a new word, so the ids of a text whose only
        white space is such spaces are those of its words, each with the space before it, end to end.

        Args:
            text: Any text. It cannot hold half a surrogate pair, which no UTF-8 text can.
            add_bos: Put `<s>` in front.
            add_eos: Put `</s>` at the end.
            max_length: Cut the text to this many ids, `<s>` and `</s>` included: they are always kept. A cut
                target that ends in `</s>` teaches a model to stop early, so cut targets without `add_eos`.
            allow_special: Take `</s>` and the like in the text as special tokens, not as text.
            dropout: Share of BPE merges skipped at random (sub-word regularisation, Provilkov et al. 2020). The
                library draws from its own source of randomness, which cannot be seeded.

        Raises:
            TokenizerError: Half a surrogate pair, a max_length without room for the special tokens, or dropout
                with a kind other than BPE.
        """
        ids = self._ids_with_special(text, dropout) if allow_special else self._ids([text], dropout)[0]
        n_added = add_bos + add_eos
        if max_length is not None:
            if max_length < n_added:
                raise TokenizerError(
                    f"max_length={max_length} leaves no room for the {n_added} special tokens.",
                    "The begin and end of a text are never cut off.",
                    f"Set max_length to {n_added} or more.",
                )
            ids = ids[: max_length - n_added]
        return ([self.bos_id] if add_bos else []) + ids + ([self.eos_id] if add_eos else [])

    def encode_batch(
        self, texts: Sequence[str], *, add_bos: bool = False, add_eos: bool = False, dropout: float = 0.0
    ) -> list[list[int]]:
        """`encode` of many texts, on all processors."""
        start, end = [self.bos_id] if add_bos else [], [self.eos_id] if add_eos else []
        return [[*start, *ids, *end] for ids in self._ids(texts, dropout)]

    def encode_words(self, texts: Sequence[str]) -> list[tuple[list[int], list[int | None]]]:
        """The ids of each text, and for each id the number of the word that it is a piece of."""
        self._ids(texts, 0.0)  # says which text cannot be encoded
        encodings = self._library.encode_batch(texts, add_special_tokens=False)
        return [(encoding.ids, encoding.word_ids) for encoding in encodings]

    def places(self, text: str) -> list[tuple[int, int]]:
        """Of each id of `encode(text)`, where the characters that it stands for begin and end in the text as given."""
        require_unicode(text)
        return list(self._library.encode(text, add_special_tokens=False).offsets)

    def to_json(self) -> str:
        """What `save` writes."""
        return self._library.to_str()

    def _ids_with_special(self, text: str, dropout: float) -> list[int]:
        ids: list[int] = []
        names = self.names[: len(SPECIALS) + len(self.sentinel_ids)]
        pattern = "(" + "|".join(map(re.escape, names)) + ")"
        for i, part in enumerate(re.split(pattern, text)):  # the group puts special tokens at odd places
            ids += [names.index(part)] if i % 2 else self._ids([part], dropout)[0]
        return ids

    def _ids(self, texts: Sequence[str], dropout: float) -> list[list[int]]:
        try:
            return [encoding.ids for encoding in self._with_dropout(dropout).encode_batch_fast(texts)]
        except (TypeError, UnicodeEncodeError):
            for text in texts:
                require_unicode(text)
            raise

    def _with_dropout(self, dropout: float) -> tokenizers.Tokenizer:
        if dropout == 0:
            return self._library
        if self.kind != "bpe" or not 0 < dropout < 1:
            raise TokenizerError(
                f"dropout={dropout} with kind={self.kind}.",
                "Only BPE has merges to skip, and the share lies in [0, 1).",
                "Use dropout=0 or train with kind=bpe.",
            )
        if self._dropped_out[0] != dropout:
            state = self._state | {"model": self._state["model"] | {"dropout": dropout}}
            self._dropped_out = (dropout, tokenizers.Tokenizer.from_str(json.dumps(state)))
        return self._dropped_out[1]

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of ids, exactly as it was encoded: no clean-up, no stripping.

        Bytes that are no valid UTF-8 (a model may emit half a character) become U+FFFD.

        Args:
            ids: Numbers from 0 to vocab_size - 1.
            skip_special: Leave special tokens out; otherwise they appear by name.

        Raises:
            TokenizerError: An id lies outside the vocabulary.
        """
        return b"".join(self.bytes_of(ids, skip_special=skip_special)).decode("utf-8", "replace")

    def decode_batch(self, batch: Iterable[Iterable[int]], *, skip_special: bool = True) -> list[str]:
        """`decode` of many sequences."""
        return [self.decode(ids, skip_special=skip_special) for ids in batch]

    def bytes_of(self, ids: Iterable[int], *, skip_special: bool = True) -> list[bytes]:
        """The bytes that each id stands for.

        Raises:
            TokenizerError: An id lies outside the vocabulary.
        """
        table = self._text_bytes if skip_special else self._all_bytes
        try:
            return [table[i] for i in ids]
        except KeyError as error:
            raise TokenizerError(
                f"Id {error} has no token.",
                f"Ids run from 0 to {self.vocab_size - 1}.",
                "Check that the tokenizer and the model belong together.",
            ) from None

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """A printable text for each id, leading space included.

        What cannot be shown is escaped: control characters as in Python (`\\n`, `\\u200d`), bytes that are part of
        a character as `\\xe2`.
        """
        texts = [piece.decode("utf-8", "backslashreplace") for piece in self.bytes_of(ids, skip_special=False)]
        return ["".join(c if c.isprintable() else repr(c)[1:-1] for c in text) for text in texts]

    def normalize(self, text: str) -> str:
        """The form to which `encode` brings a text first: `decode(encode(text)) == normalize(text)`."""
        require_unicode(text)
        normalizer = self._library.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    @property
    def kind(self) -> Literal["bpe", "wordpiece", "unigram"]:
        """How pieces are found: merges, longest match first, or the most probable path."""
        return KINDS[self._state["model"]["type"]]

    @property
    def normalization(self) -> str:
        """`none`, `nfc` or `nfkc`, as stored in the file."""
        normalizer = self._state["normalizer"]
        return "none" if normalizer is None else str(normalizer["type"]).lower()

    @property
    def never_made(self) -> list[int]:
        """Ids that a model that writes text is not let make: padding, begin, unknown, mask and sentinels."""
        return [self.pad_id, self.bos_id, self.unk_id, self.mask_id, *self.sentinel_ids]

    @cached_property
    def sentinel_ids(self) -> list[int]:
        """Ids of `<extra_id_0>`, `<extra_id_1>` and so on, which stand for hidden spans of text (T5)."""
        id_of = {name: i for i, name in enumerate(self.names)}
        return [id_of[name] for name in takewhile(id_of.__contains__, sentinel_names(len(id_of)))]

    @property
    def is_lossless(self) -> bool:
        """Whether `decode(encode(text)) == text` for every text; otherwise it is `normalize(text)`."""
        return self._library.normalizer is None

    @cached_property
    def vocab_size(self) -> int:
        """V: the entries really learned, special tokens included."""
        return self._library.get_vocab_size()

    @cached_property
    def vocab_hash(self) -> str:
        """SHA-256 of the pieces in the order of their ids: equal for equal vocabularies only."""
        return hashlib.sha256(json.dumps(self.names).encode()).hexdigest()

    @cached_property
    def names(self) -> list[str]:
        """The tokens as the tokenizer file writes them, in the order of their ids."""
        vocab = self._library.get_vocab()
        return sorted(vocab, key=vocab.__getitem__)

    @cached_property
    def _all_bytes(self) -> dict[int, bytes]:
        byte_of = {ord(char): byte for byte, char in enumerate(BYTE_CHARS)}
        names = [name.removeprefix(CONTINUING) or name if self.kind == "wordpiece" else name for name in self.names]
        return {i: name.translate(byte_of).encode("latin-1") for i, name in enumerate(names)}

    @cached_property
    def _text_bytes(self) -> dict[int, bytes]:
        return self._all_bytes | dict.fromkeys([*range(len(SPECIALS)), *self.sentinel_ids], b"")


def _count(texts: Iterable[str]) -> tuple[int, int]:
    n_words = n_chars = 0
    for text in texts:
        n_words += text.count(" ") + 1
        n_chars += len(text)
    return n_words, n_chars


def require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"The text holds half a surrogate pair, U+{ord(text[error.start]):04X}, at character {error.start}.",
            "A text that UTF-8 can write was expected.",
            "Replace it, for example by U+FFFD; it often comes from a text cut inside an emoji.",
        ) from None
