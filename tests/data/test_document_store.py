"""The store of documents: whole or in pieces, nothing lost, duplicates counted, words known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import DataConfig, TokenizerConfig
from glassformer.data import documents as module
from glassformer.data.documents import _cut, _lists, _parts, document_hashes, prepare_documents
from glassformer.data.store import TokenStore
from glassformer.data.words import WordTable
from glassformer.errors import DataError
from glassformer.text.documents import Document, DocumentReader
from glassformer.text.tokenizer import Tokenizer

TEXTS = ["the cat sat", "on the\nmat  and more", "the cat sat", " a", "extraordinarily long words " * 9]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the cat sat on the mat"] * 30, TokenizerConfig(), vocab_size=300)


def store_of(texts: list[str], tokenizer: Tokenizer, folder: Path, **options: Any) -> TokenStore:
    lines = folder / "t.jsonl"
    lines.write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    config = options.pop("config", DataConfig())
    return prepare_documents(DocumentReader([str(lines)]), tokenizer, folder / "store", config, **options)


def texts_in(store: TokenStore, tokenizer: Tokenizer) -> list[str]:
    return tokenizer.decode_batch([store.src(i).tolist() for i in range(len(store))])


def test_documents_stay_whole_and_duplicates_are_counted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    store = store_of(TEXTS, tokenizer, tmp_path)
    assert texts_in(store, tokenizer) == [TEXTS[0], TEXTS[1], TEXTS[3], TEXTS[4]]
    assert store.row_numbers.tolist() == [1, 2, 4, 5]
    assert store.excluded["duplicate"]["count"] == 1
    assert "line 3: the cat sat" in store.excluded["duplicate"]["example"]
    assert len(store.targets.ids) == 0
    assert store.n_tokens == len(store.sources.ids)


def test_duplicates_may_stay(tokenizer: Tokenizer, tmp_path: Path) -> None:
    store = store_of(TEXTS, tokenizer, tmp_path, config=DataConfig(drop_duplicates=False))
    assert texts_in(store, tokenizer) == TEXTS and store.excluded == {}


@pytest.mark.parametrize("with_words", [False, True])
def test_long_documents_are_cut_and_nothing_is_dropped(tokenizer: Tokenizer, tmp_path: Path, with_words: bool) -> None:
    store = store_of(TEXTS, tokenizer, tmp_path, max_piece=7, with_words=with_words)
    lengths = np.diff(store.sources.offsets)
    assert lengths.max() == 7 and lengths.min() > 0
    assert store.sources.ids.tolist() == [i for text in dict.fromkeys(TEXTS) for i in tokenizer.encode(text)]
    assert list(dict.fromkeys(store.row_numbers.tolist())) == [1, 2, 4, 5]
    if with_words:
        assert store.targets.gather(np.arange(len(store))).sum() == lengths.sum()
        assert all(store.tgt(i).sum() == store.src(i).size for i in range(len(store)))
        assert store.n_tokens == lengths.sum()  # the words are no tokens


def test_words_of_a_piece_by_hand() -> None:
    """Words of 2, 3 and 1 pieces, and one of 4 pieces, in rows of 4: a cut divides a word."""
    ids, words = _lists([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10]]), _lists([[2, 3, 1], [4]])
    (src, tgt), owners = _cut(ids, words, 4)
    assert [src[i].tolist() for i in range(len(src))] == [[1, 2, 3, 4], [5, 6], [7, 8, 9, 10]]
    assert [tgt[i].tolist() for i in range(len(tgt))] == [[2, 2], [1, 1], [4]]
    assert owners.tolist() == [0, 0, 1]


@given(st.lists(st.sampled_from(["ab", " ", "  ", "\n", "c ", "é", " d"]), max_size=30).map("".join))
@settings(max_examples=80, deadline=None)
def test_a_huge_text_in_parts_has_the_same_ids(tokenizer: Tokenizer, text: str) -> None:
    """T8: a cut at a space between visible characters changes nothing, and every part is bounded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PART_CHARS", 12)
        parts = _parts(text)
    assert "".join(parts) == text and all(len(part) <= 12 for part in parts)
    cuts = np.cumsum([len(part) for part in parts])[:-1]
    if all(text[c] == " " and not text[c - 1].isspace() and not text[c + 1 : c + 2].isspace() for c in cuts):
        assert [i for part in parts for i in tokenizer.encode(part)] == tokenizer.encode(text)
    assert tokenizer.decode([i for part in parts for i in tokenizer.encode(part)]) == text
    assert WordTable(tokenizer).encode([text])[0].tolist() == tokenizer.encode(text)


def test_a_huge_line_reaches_the_tokenizer_in_parts(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T8: a tokenizer needs some hundred bytes a character, so it never gets a huge text at once."""
    longest = []
    encode = tokenizer.encode_batch

    def noted(texts: list[str], **options: Any) -> list[list[int]]:
        longest.append(max(map(len, texts), default=0))
        return encode(texts, **options)

    monkeypatch.setattr(tokenizer, "encode_batch", noted)
    texts = ["x" * 300_000, "the\ncat " * 30_000, "\u4e2d" * 100_000]
    store = store_of(texts, tokenizer, tmp_path)
    assert texts_in(store, tokenizer) == texts
    assert max(longest) <= 1 << 16


def test_nothing_left_is_an_error(tokenizer: Tokenizer, tmp_path: Path) -> None:
    class Empty:
        n_rows, bad, bad_examples = 5, dict[str, int](), dict[str, str]()

        def __iter__(self) -> Any:
            return iter([])

    with pytest.raises(DataError, match="No document is left of 5"):
        prepare_documents(Empty(), tokenizer, tmp_path / "store", DataConfig())
    assert not (tmp_path / "store").exists()


def test_equal_texts_have_equal_hashes() -> None:
    a, b, c = document_hashes([Document("a", "f", 1), Document("b", "f", 2), Document("a", "g", 3)])
    assert a == c != b
