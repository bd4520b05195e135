"""Tokenises pairs of sentences once, into a token store."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glassformer.config import DataConfig
from glassformer.data.duplicates import SeenHashes
from glassformer.data.store import TokenLists, TokenStore
from glassformer.data.words import WordTable, encode_texts
from glassformer.data.writer import StoreWriter
from glassformer.errors import DataError
from glassformer.text.checks import judge
from glassformer.text.imported import ImportedTokenizer
from glassformer.text.readers import Pair
from glassformer.text.tokenizer import Tokenizer

__all__ = ["Reader", "Selection", "SourceForm", "chunks", "prepare", "require_free"]

_CHUNK_PAIRS = 8192
_CHUNK_CHARS = 1 << 22  # a chunk of long lines has fewer pairs, so that memory stays bounded
_SHOWN_CHARS = 80
_MAX_DOMAINS = 1 << 16
# The settings that decide which pairs are stored.
_SELECTING = ("max_tokens", "max_length_ratio", "drop_duplicates", "drop_copies")


class Reader(Protocol):
    """What `prepare` needs of a `PairReader`; the attributes describe the last pass."""

    n_rows: int
    bad: Any  # reason -> count
    bad_examples: dict[str, str]  # reason -> place of the first such row

    def __iter__(self) -> Iterator[Pair]: ...


def prepare(
    reader: Reader,
    src_tokenizer: Tokenizer,
    tgt_tokenizer: Tokenizer,
    folder: Path,
    config: DataConfig,
    *,
    form: SourceForm | None = None,
    n_variants: int = 1,
    bpe_dropout: float = 0.0,
    on_progress: Callable[[int], None] | None = None,
) -> TokenStore:
    """Tokenises every pair that the config admits, and writes them into a new folder.

    Pairs keep the order of the input. The others are counted by reason in `store.excluded`. The same rows, tokenizers
    and config give the same bytes, except with bpe_dropout, where the tokenisations are drawn anew.

    Args:
        reader: The pairs; read once.
        src_tokenizer: Encodes the sources.
        tgt_tokenizer: Encodes the targets; may be the same.
        folder: Must not exist yet, or be empty. A run that is cut leaves nothing under this name.
        config: Which pairs are left out.
        form: What is done to the sources first; unset: nothing.
        n_variants: Tokenisations stored of each pair with bpe_dropout; one is stored without.
        bpe_dropout: Share of merges skipped at random.
        on_progress: Called with the number of rows read so far.

    Raises:
        DataError: The folder is not empty, no pair is left, or the reader raises it.
        GlassformerError: The files cannot be written, for example because the disk is full.

    Cost: memory for a chunk of pairs, the words seen (about 100 MB a side at most), and 8 bytes a pair to find
    duplicates, twice that for moments. The rate is measured by bench/prepare.py; bpe_dropout makes it several times
    slower, and n_variants as many times again.
    """
    require_free(folder)
    n_variants = n_variants if bpe_dropout > 0 else 1
    encode_src, encode_tgt = (_encoder(tokenizer, bpe_dropout) for tokenizer in (src_tokenizer, tgt_tokenizer))
    shape = _SourceShape(form or SourceForm(), src_tokenizer, config.max_tokens - 1)
    selection = Selection(config)
    with StoreWriter(folder, (src_tokenizer.vocab_size, tgt_tokenizer.vocab_size), n_variants) as writer:
        for chunk in chunks(reader):
            pairs = selection.admit(chunk)
            src, tgt = [shape.form.prefix + pair.src for pair in pairs], [pair.tgt for pair in pairs]
            variants = [(shape(encode_src(src)), encode_tgt(tgt)) for _ in range(n_variants)]
            is_kept = selection.fitting(pairs, variants)
            writer.append(selection.numbered_domains(pairs), [pair.row for pair in pairs], variants, is_kept)
            if on_progress is not None:
                on_progress(reader.n_rows)
        about = selection.report(reader, writer.n_pairs)
        about |= {"src_vocab_hash": src_tokenizer.vocab_hash, "tgt_vocab_hash": tgt_tokenizer.vocab_hash}
        about |= {"n_variants": n_variants, "bpe_dropout": bpe_dropout, "n_cut": shape.n_cut // n_variants}
        writer.finish(about)
    return TokenStore.open(folder)


def require_free(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise DataError(
            f"The folder {folder} exists already.",
            "A token store is written into a new folder.",
            "Open it with TokenStore.open, remove it, or choose another name.",
        )


def chunks(reader: Reader) -> Iterator[list[Pair]]:
    chunk: list[Pair] = []
    n_chars = 0
    for pair in reader:
        chunk.append(pair)
        n_chars += len(pair.src) + len(pair.tgt)
        if len(chunk) == _CHUNK_PAIRS or n_chars >= _CHUNK_CHARS:
            yield chunk
            chunk, n_chars = [], 0
    if chunk:
        yield chunk


def _encoder(tokenizer: Tokenizer, dropout: float) -> Callable[[list[str]], TokenLists]:
    """With dropout each occurrence of a word is drawn anew, and imported tokenizers may cut words by what is around."""
    is_by_word = dropout == 0 and not isinstance(tokenizer, ImportedTokenizer)
    return WordTable(tokenizer).encode if is_by_word else partial(encode_texts, tokenizer, dropout=dropout)


@dataclass(frozen=True, kw_only=True)
class SourceForm:
    """What is done to each source before it is stored."""

    prefix: str = ""  # text put before it, such as "summarize: "
    use_bos: bool = False  # its ids begin with the tokenizer's begin token
    is_cut: bool = False  # one of more than max_tokens is cut at its end instead of left out


class _SourceShape:
    """Puts the begin token in front of lists of ids and cuts them to `limit`, the end token of later not counted."""

    def __init__(self, form: SourceForm, tokenizer: Tokenizer, limit: int) -> None:
        self.form, self.limit = form, limit
        self.start = [tokenizer.bos_id] if form.use_bos else []
        self.n_cut = 0

    def __call__(self, lists: TokenLists) -> TokenLists:
        if not self.start and not self.form.is_cut:
            return lists
        ids = np.insert(lists.ids, np.repeat(lists.offsets[:-1], len(self.start)), self.start * len(lists))
        offsets = lists.offsets + len(self.start) * np.arange(len(lists) + 1)
        lengths = np.diff(offsets)
        kept = np.minimum(lengths, self.limit) if self.form.is_cut else lengths
        self.n_cut += int((kept < lengths).sum())
        places = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)
        return TokenLists(ids[places < np.repeat(kept, lengths)], np.concatenate([[0], np.cumsum(kept)]))


class Selection:
    """Decides which pairs are stored, and keeps count of the others by reason."""

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        self._seen = SeenHashes()
        self._inputs = hashlib.sha256()
        self._excluded: dict[str, dict[str, Any]] = {}
        self._domains: dict[str, int] = {}

    def admit(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs to tokenise: right by themselves, and not seen before."""
        digests = b"".join(map(_digest, pairs))
        self._inputs.update(digests)
        reasons = [judge(pair, self._config) for pair in pairs]
        if self._config.drop_duplicates:
            right = [i for i, reason in enumerate(reasons) if reason is None]
            is_new = self._seen.add(np.frombuffer(digests, dtype="<u8")[right])
            for i in np.array(right, dtype=np.int64)[~is_new]:
                reasons[i] = "duplicate"
        return self.leave_out(pairs, reasons)

    def fitting(self, pairs: list[Pair], variants: Sequence[tuple[TokenLists, TokenLists]]) -> NDArray[np.bool_]:
        """[n] True where both sides have 1 to max_tokens tokens, EOS included in the latter, in every variant."""
        lengths = np.array([[np.diff(lists.offsets) for lists in sides] for sides in variants])  # (variants, 2, n)
        is_empty = np.any(lengths == 0, axis=(0, 1))
        is_long = np.any(lengths + 1 > self._config.max_tokens, axis=(0, 1))
        long = f"more than {self._config.max_tokens} tokens"
        self.leave_out(pairs, [r or None for r in np.select([is_empty, is_long], ["no token", long], "").tolist()])
        is_kept: NDArray[np.bool_] = ~(is_empty | is_long)
        return is_kept

    def leave_out(self, pairs: list[Pair], reasons: Sequence[str | None]) -> list[Pair]:
        left = []
        for pair, reason in zip(pairs, reasons, strict=True):
            if reason is None:
                left.append(pair)
                continue
            example = f"line {pair.row}: {_shortened(pair.src)} | {_shortened(pair.tgt)}"
            self._excluded.setdefault(reason, {"count": 0, "example": example})["count"] += 1
        return left

    def numbered_domains(self, pairs: list[Pair]) -> list[int]:
        """The number of each pair's domain, in the order of their appearance."""
        numbers = [self._domains.setdefault(pair.domain or "", len(self._domains)) for pair in pairs]
        if len(self._domains) > _MAX_DOMAINS:
            raise DataError(
                f"The domain column has more than {_MAX_DOMAINS} different values.",
                "A domain is a name that many rows share.",
                "Leave this column out of the data.",
            )
        return numbers

    def report(self, reader: Reader, n_pairs: int) -> dict[str, Any]:
        """What `store.json` says about the selection. Raises DataError when no pair is left."""
        bad = {reason: {"count": n, "example": reader.bad_examples[reason]} for reason, n in reader.bad.items()}
        excluded = {**bad, **self._excluded}
        if n_pairs == 0:
            reasons = "; ".join(
                f"{about['count']:,} {reason} ({about['example']})" for reason, about in excluded.items()
            )
            raise DataError(
                f"No pair is left of {reader.n_rows:,} rows: {reasons}.",
                "At least one pair was expected.",
                "Check the file, or loosen max_tokens and max_length_ratio.",
            )
        return {
            "n_read": reader.n_rows,
            "excluded": excluded,
            "domains": list(self._domains),
            "selection": {name: _finite(getattr(self._config, name)) for name in _SELECTING},
            "inputs_sha256": self._inputs.hexdigest(),
        }


def _digest(pair: Pair) -> bytes:
    """64 bits of the two texts. The length in front keeps ("ab", "c") and ("a", "bc") apart."""
    text = f"{len(pair.src)} {pair.src}{pair.tgt}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).digest()


def _finite(value: float) -> float | None:
    """JSON has no infinity; null stands for no limit."""
    return None if math.isinf(value) else value


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
