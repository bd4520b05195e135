"""Learns a vocabulary from text: how text is cut into words, which pieces are kept, and how many.

All three kinds work over the 256 bytes of UTF-8 (each byte is shown as one printable character, the
alphabet of GPT-2), so that no text is unknown to any of them. They differ only in how pieces are found.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from glassformer.config import TokenizerConfig
from glassformer.errors import TokenizerError

__all__ = [
    "BYTE_CHARS",
    "CONTINUING",
    "KINDS",
    "SPECIALS",
    "WORD_PATTERN",
    "choose_vocab_size",
    "learn",
    "min_vocab_size",
    "require_known",
    "sentinel_names",
]

# Ids 0 to 4, in every vocabulary. `<s>` also serves as CLS, `</s>` as SEP.
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")
# Names of the library's models -> ours.
KINDS: dict[str, Literal["bpe", "wordpiece", "unigram"]] = {
    "BPE": "bpe",
    "WordPiece": "wordpiece",
    "Unigram": "unigram",
}
# WordPiece: mark of a piece that does not begin a word.
CONTINUING = "##"
# A word has at most 64 letters: a bound on the work for text without spaces, in training and in use alike.
# In turn: letters with their leading space (marks and joiners belong to them; an apostrophe before a further
# letter too, as in l'eau = l' + eau), one digit, other signs, white space. The last space before a word is
# left to that word. Letters never stand in one word with `<` or `>`, so no piece can spell a special token.
WORD_PATTERN = (
    r" ?\p{L}[\p{L}\p{M}\x{200C}\x{200D}]{0,63}(?:['’](?=\p{L}))?"
    r"| ?\p{N}"
    r"| ?[^\s\p{L}\p{N}]{1,64}"
    r"|\s{1,64}(?!\S)|\s{1,64}"
)
# Longer texts are cut for training only, so that one huge line costs no more memory than many short ones.
_MAX_TEXT_CHARS = 20_000
_PROGRESS_EVERY = 10_000


def _byte_chars() -> str:
    """The printable character of each byte: its own Latin-1 one, or one from U+0100 on where that is not visible."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return "".join(chr(byte) if byte in visible else chr(next(hidden)) for byte in range(256))


BYTE_CHARS = _byte_chars()


def choose_vocab_size(
    n_words: int, n_chars: int = 0, *, config: TokenizerConfig | None = None, is_quick: bool = False
) -> tuple[int, str]:
    """Chooses the size of a vocabulary: 80 times the cube root of the number of words, in [500, 32000].

    A vocabulary must grow with the data, or rare pieces are hardly trained; it grows more slowly than the data,
    as new words do. The rule gives 4,000 at 125 thousand words, 8,000 at 1 million and 32,000 at 64 million.

    Args:
        n_words: Words of both sides, split at spaces.
        n_chars: Characters of both sides. Scripts without spaces are taken as 6 characters a word.
        config: Kind of the vocabulary, where its alphabet with 100 pieces more may be the least. Unset: the default.
        is_quick: Whether little time is given to training: then at most 8,000, since a table of more rows costs
            time in each projection and has rows that are hardly seen.

    Returns:
        The size (a multiple of 100) and the reason, as one sentence.
    """
    words = max(n_words, n_chars // 6)
    size = round(80 * words ** (1 / 3) / 100) * 100
    least = max(500, math.ceil(min_vocab_size(config or TokenizerConfig()) / 100 + 1) * 100)
    most = max(least, 8_000 if is_quick else 32_000)
    size = min(max(size, least), most)
    bounds = f"within {least:,} and {most:,}"
    return size, f"{size:,} vocabulary entries for {words:,} words: 80 times the cube root, {bounds}."


def sentinel_names(n: int) -> tuple[str, ...]:
    """Names of the entries that stand for hidden spans of text, as T5 has them."""
    return tuple(f"<extra_id_{k}>" for k in range(n))


def min_vocab_size(config: TokenizerConfig) -> int:
    """The special tokens and the bytes; WordPiece needs each byte twice, at the start of a word and inside it."""
    return len(SPECIALS) + config.n_sentinels + (512 if config.kind == "wordpiece" else 256)


def learn(
    texts: Iterable[str], config: TokenizerConfig, vocab_size: int, on_progress: Callable[[int], None] | None = None
) -> Tokenizer:
    """Trains the library's tokenizer. The same texts and config give the same vocabulary, byte for byte.

    Args:
        texts: Read once, one at a time.
        config: Kind and normalisation.
        vocab_size: Most entries, special tokens included. Fewer are learned where the texts support fewer.
        on_progress: Called with the number of texts read, every 10,000 texts.

    Raises:
        TokenizerError: Not one visible character in the texts, or a vocab_size below `min_vocab_size`.
    """
    smallest = min_vocab_size(config)
    if vocab_size < smallest:
        raise TokenizerError(
            f"vocab_size={vocab_size} is smaller than the alphabet of kind={config.kind}.",
            f"The special tokens and the 256 bytes need {smallest} entries.",
            f"Set vocab_size to {smallest} or more.",
        )
    tokenizer, trainer = _untrained(config, vocab_size)
    feed = _Feed(texts, on_progress)
    tokenizer.train_from_iterator(iter(feed), trainer)
    if feed.is_blank:
        raise TokenizerError(
            f"The {feed.n_texts} texts to learn a vocabulary from hold no visible character.",
            "At least one word was expected.",
            "Check that the file is the right one and is not empty.",
        )
    return _canonical(tokenizer, vocab_size, len(SPECIALS) + config.n_sentinels)


class _Feed:
    """Hands texts to the trainer, cut to a bounded length, and notes whether there was anything in them."""

    def __init__(self, texts: Iterable[str], on_progress: Callable[[int], None] | None) -> None:
        self._texts, self._on_progress = texts, on_progress
        self.n_texts, self.is_blank = 0, True

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            self.n_texts += 1
            if self.is_blank and not text.isspace() and text:
                self.is_blank = False
            if self._on_progress is not None and self.n_texts % _PROGRESS_EVERY == 0:
                self._on_progress(self.n_texts)
            if len(text) <= _MAX_TEXT_CHARS:
                yield text
            else:
                yield from (text[i : i + _MAX_TEXT_CHARS] for i in range(0, len(text), _MAX_TEXT_CHARS))


def _untrained(config: TokenizerConfig, vocab_size: int) -> tuple[Tokenizer, Any]:
    """The library's tokenizer and trainer for a kind. Each alphabet is given in a fixed order."""
    alphabet = sorted(BYTE_CHARS)
    specials = [*SPECIALS, *sentinel_names(config.n_sentinels)]
    words: list[Any] = [pre_tokenizers.Split(Regex(WORD_PATTERN), "isolated")]
    undo: list[Any] = [decoders.ByteLevel()]
    common: dict[str, Any] = {"vocab_size": vocab_size, "show_progress": False, "initial_alphabet": alphabet}
    model: Any
    trainer: Any
    if config.kind == "bpe":
        model = models.BPE()
        trainer = trainers.BpeTrainer(special_tokens=specials, min_frequency=2, **common)
    elif config.kind == "wordpiece":
        model = models.WordPiece(unk_token="<unk>", max_input_chars_per_word=1000)
        # Given as special tokens because the trainer would number continuing bytes in the order of a hash table.
        fixed = [*specials, *alphabet, *(CONTINUING + char for char in alphabet)]
        trainer = trainers.WordPieceTrainer(special_tokens=fixed, min_frequency=2, **common)
        # A # is a word of its own: otherwise a piece that begins with ## could be either text or the mark.
        words.append(pre_tokenizers.Split("#", "isolated"))
        undo.insert(0, decoders.Replace(Regex(f"^{CONTINUING}(?=.)"), ""))
    else:
        model = models.Unigram()
        trainer = trainers.UnigramTrainer(special_tokens=specials, unk_token="<unk>", **common)
    tokenizer = Tokenizer(model)
    if config.normalization != "none":
        tokenizer.normalizer = normalizers.NFC() if config.normalization == "nfc" else normalizers.NFKC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*words, byte_level])
    tokenizer.decoder = decoders.Sequence(undo)
    return tokenizer, trainer


def _canonical(tokenizer: Tokenizer, vocab_size: int, n_specials: int) -> Tokenizer:
    """Takes the special tokens off the list that is looked up in text, and puts the pieces of Unigram in order."""
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = []
    if state["model"]["type"] == "Unigram":
        vocab = state["model"]["vocab"]
        state["model"]["vocab"] = vocab[:n_specials] + _ordered(vocab[n_specials:], vocab_size - n_specials)
    return Tokenizer.from_str(json.dumps(state))


def _ordered(pieces: list[tuple[str, float]], n_pieces: int) -> list[tuple[str, float]]:
    """Unigram's pieces and scores made repeatable, and no more than were asked for.

    The library sums scores in the order of a hash table, gives the bytes that no text needs scores of about the
    lowest one, 0.0001 apart, in such an order too, and may return some pieces too many.
    """
    floor = min((score for piece, score in pieces if len(piece) > 1), default=0.0)
    is_unneeded = {piece for piece, score in pieces if len(piece) == 1 and score < floor + 256 * 1.1e-4}
    scored = [(piece, floor - 1 if piece in is_unneeded else score) for piece, score in pieces]
    ordered = sorted(((piece, round(score, 6)) for piece, score in scored), key=lambda entry: (-entry[1], entry[0]))
    n_spare = n_pieces - len(BYTE_CHARS)
    longer = {piece for piece, _ in [entry for entry in ordered if len(entry[0]) > 1][:n_spare]}
    return [(piece, score) for piece, score in ordered if len(piece) == 1 or piece in longer]


def require_known(state: dict[str, Any], library: Tokenizer) -> None:
    """Refuses a file whose text could become special tokens, or with pieces that are not made of bytes."""
    vocab = library.get_vocab()
    names = sorted(vocab, key=vocab.__getitem__)
    alphabet = set(BYTE_CHARS)
    is_known = (
        state["model"]["type"] in KINDS
        and not state["added_tokens"]
        and sorted(vocab.values()) == list(range(len(vocab)))
        and tuple(names[: len(SPECIALS)]) == SPECIALS
        and alphabet.issuperset("".join(names))
        and alphabet.issubset(names)
    )
    if not is_known:
        raise TokenizerError(
            "The tokenizer was not trained by glassformer.",
            f"Byte pieces with {', '.join(SPECIALS)} as ids 0 to {len(SPECIALS) - 1} were expected.",
            "Load a tokenizer.json that `glassformer train` wrote.",
        )
