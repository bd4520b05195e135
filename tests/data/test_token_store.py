"""The store: what goes in comes out, what is left out is told, and damage is noticed."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import write_store

from glassformer.config import DataConfig, TokenizerConfig
from glassformer.data.duplicates import SeenHashes
from glassformer.data.prepare import prepare
from glassformer.data.store import TokenStore
from glassformer.data.words import WordTable
from glassformer.errors import DataError, GlassformerError
from glassformer.text.readers import Pair, PairReader
from glassformer.text.tokenizer import Tokenizer

TEXTS = ["we eat bread", "nous mangeons du pain", "I am here", "je suis là", "l'eau est bonne"]


class Rows:
    """A reader of pairs in memory."""

    def __init__(self, pairs: list[tuple[str, str]], domains: list[str | None] | None = None) -> None:
        self.pairs, self.domains = pairs, domains or [None] * len(pairs)
        self.n_rows, self.bad, self.bad_examples = len(pairs), dict[str, int](), dict[str, str]()

    def __iter__(self) -> Iterator[Pair]:
        for row, ((src, tgt), domain) in enumerate(zip(self.pairs, self.domains, strict=True), 1):
            yield Pair(src, tgt, domain, row)


class WideTokenizer:
    """A stand-in whose vocabulary needs four bytes an id."""

    vocab_hash, vocab_size = "wide", 70_000

    def encode_batch(self, texts: list[str], *, add_eos: bool = False, dropout: float = 0.0) -> list[list[int]]:
        return [[69_999 - len(text)] for text in texts]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, TokenizerConfig(), vocab_size=300)


def texts_of(store: TokenStore, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [
        (tokenizer.decode(store.src(i).tolist()), tokenizer.decode(store.tgt(i).tolist())) for i in range(len(store))
    ]


def counts(store: TokenStore) -> dict[str, int]:
    return {reason: about["count"] for reason, about in store.excluded.items()}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_pairs_come_back_in_order_with_row_and_domain(tmp_path: Path, tokenizer: Tokenizer) -> None:
    pairs = [("we eat", "nous mangeons"), ("I am", "je suis"), ("bread", "pain"), ("here", "là")]
    reader = Rows(pairs, ["talk", None, "food", "talk"])
    store = prepare(reader, tokenizer, tokenizer, tmp_path / "store", DataConfig())
    assert texts_of(store, tokenizer) == pairs
    assert [store.domain(i) for i in range(4)] == ["talk", "", "food", "talk"]
    assert store.row_numbers.tolist() == [1, 2, 3, 4]
    assert store.src(0).tolist() == tokenizer.encode("we eat")  # no BOS, no EOS
    assert store.lengths.tolist() == [[len(tokenizer.encode(text)) for text in pair] for pair in pairs]
    assert store.src(0).dtype == np.uint16
    assert store.info.src_vocab_hash == tokenizer.vocab_hash
    assert not store.src(0).flags.writeable and not store.src(0).flags.owndata  # a view into the file


def test_blank_sides_leave_out_the_whole_pair(tmp_path: Path, tokenizer: Tokenizer) -> None:
    reader = Rows([("a", "x"), ("", "y"), ("c", "z"), ("  ", "w"), ("d", "")])
    store = prepare(reader, tokenizer, tokenizer, tmp_path / "store", DataConfig())
    assert texts_of(store, tokenizer) == [("a", "x"), ("c", "z")]
    assert counts(store) == {"blank source": 2, "blank target": 1}
    assert store.excluded["blank source"]["example"] == "line 2:  | y"
    assert (store.info.n_read, store.row_numbers.tolist()) == (5, [1, 3])


def test_everything_left_out_is_counted_by_reason(tmp_path: Path, tokenizer: Tokenizer) -> None:
    good = [f"we eat bread {n}\tnous mangeons du pain {n}\n" for n in range(3)]
    odd = ["one column\n", "a\tb\tc\td\n", f"x\t{'long ' * 100}\n", good[1], "same\tsame\n", "\tblank\n"]
    long = "I am here " * 40
    path = tmp_path / "data.tsv"
    path.write_text("".join([*good, *odd, f"{long}\t{long[:-1]}!\n"]), encoding="utf-8")
    config = DataConfig(max_tokens=60, drop_copies=True)
    store = prepare(PairReader([str(path)]), tokenizer, tokenizer, tmp_path / "store", config)
    assert counts(store) == {
        "1 column": 1,
        "more than 3 columns": 1,
        "length ratio above 9": 1,
        "duplicate": 1,
        "copy": 1,
        "blank source": 1,
        "more than 60 tokens": 1,
    }
    assert sum(counts(store).values()) + len(store) == store.info.n_read == 10
    assert store.excluded["1 column"]["example"] == f"{path}, line 4"
    assert store.excluded["duplicate"]["example"].startswith("line 7: we eat bread 1")


def test_max_tokens_counts_the_end_token(tmp_path: Path, tokenizer: Tokenizer) -> None:
    n = len(tokenizer.encode("we eat bread"))
    reader = Rows([("we eat bread", "du")])
    with pytest.raises(DataError, match=f"No pair is left of 1 rows: 1 more than {n} tokens"):
        prepare(reader, tokenizer, tokenizer, tmp_path / "a", DataConfig(max_tokens=n))
    assert len(prepare(reader, tokenizer, tokenizer, tmp_path / "b", DataConfig(max_tokens=n + 1))) == 1


def test_rows_and_domains_stay_with_their_pairs_when_one_between_is_too_long(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    pairs = [("a", "b"), ("we eat bread " * 9, "nous mangeons du pain " * 9), ("c", "d")]
    store = prepare(Rows(pairs, ["x", "y", "z"]), tokenizer, tokenizer, tmp_path / "store", DataConfig(max_tokens=20))
    assert texts_of(store, tokenizer) == [("a", "b"), ("c", "d")]
    assert store.row_numbers.tolist() == [1, 3]
    assert [store.domain(i) for i in range(2)] == ["x", "z"]


def test_duplicates_are_found_across_chunks_and_the_first_one_stays(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassformer.data.prepare._CHUNK_PAIRS", 2)
    pairs = [("a", "b"), ("ab", "c"), ("a", "bc"), ("a", "b"), ("a", "b"), ("b", "a"), ("ab", "c")]
    store = prepare(Rows(pairs), tokenizer, tokenizer, tmp_path / "store", DataConfig())
    assert store.row_numbers.tolist() == [1, 2, 3, 6]
    assert counts(store) == {"duplicate": 3}
    store = prepare(Rows(pairs), tokenizer, tokenizer, tmp_path / "all", DataConfig(drop_duplicates=False))
    assert texts_of(store, tokenizer) == pairs


def test_only_left_out_pairs_is_an_error_and_leaves_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match="No pair is left of 2 rows: 2 blank source"):
        prepare(Rows([("", "x"), (" ", "y")]), tokenizer, tokenizer, tmp_path / "store", DataConfig())
    assert list(tmp_path.iterdir()) == []


def test_the_same_input_gives_the_same_bytes(tmp_path: Path, tokenizer: Tokenizer) -> None:
    pairs = [("we eat", "nous mangeons"), ("I am", "je suis")]
    a, b, c = (
        prepare(Rows(rows), tokenizer, tokenizer, tmp_path / name, DataConfig(max_length_ratio=float("inf")))
        for name, rows in (("a", pairs), ("b", pairs), ("c", pairs[::-1]))
    )
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert a.checksum == b.checksum != c.checksum
    assert a.info.inputs_sha256 == b.info.inputs_sha256 != c.info.inputs_sha256
    assert "Infinity" not in (tmp_path / "a" / "store.json").read_text(encoding="utf-8")  # no JSON


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    wide: Any = WideTokenizer()
    store = prepare(Rows([("abc", "de")]), wide, wide, tmp_path / "store", DataConfig())
    assert store.src(0).dtype == np.uint32
    assert (store.src(0).tolist(), store.tgt(0).tolist()) == ([69_996], [69_997])


def test_variants_are_other_tokenisations_of_the_same_texts(tmp_path: Path, tokenizer: Tokenizer) -> None:
    pairs = [(f"we eat bread {n}", f"nous mangeons du pain {n}") for n in range(20)]
    store = prepare(Rows(pairs), tokenizer, tokenizer, tmp_path / "a", DataConfig(), n_variants=3, bpe_dropout=0.3)
    assert [texts_of(store.variant(k), tokenizer) for k in range(store.n_variants)] == [pairs] * 3
    sources = [store.variant(k).sources.ids.tolist() for k in range(3)]
    assert sources[0] != sources[1] != sources[2]
    with pytest.raises(IndexError):
        store.variant(3)
    assert prepare(Rows(pairs), tokenizer, tokenizer, tmp_path / "b", DataConfig(), n_variants=3).n_variants == 1


def test_progress_counts_rows_read(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.data.prepare._CHUNK_PAIRS", 2)
    path = tmp_path / "data.tsv"
    path.write_text("a\tb\nbad\nc\td\ne\tf\n", encoding="utf-8")
    seen: list[int] = []
    reader = PairReader([str(path)])
    prepare(reader, tokenizer, tokenizer, tmp_path / "store", DataConfig(), on_progress=seen.append)
    assert seen == [3, 4]


def test_long_lines_make_shorter_chunks(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.data.prepare._CHUNK_CHARS", 30)
    seen: list[int] = []
    pairs = [(f"we eat bread {n} times", f"nous mangeons du pain {n} fois") for n in range(6)]
    prepare(Rows(pairs), tokenizer, tokenizer, tmp_path / "store", DataConfig(), on_progress=seen.append)
    assert len(seen) == 6


@pytest.mark.parametrize("existing", ["file", "folder"])
def test_an_existing_folder_is_not_touched(tmp_path: Path, tokenizer: Tokenizer, existing: str) -> None:
    target = tmp_path / "store"
    if existing == "folder":
        target.mkdir()
    kept = target if existing == "file" else target / "notes.txt"
    kept.write_text("mine", encoding="utf-8")
    with pytest.raises(DataError, match="exists already"):
        prepare(Rows([("a", "b")]), tokenizer, tokenizer, target, DataConfig())
    assert kept.read_text(encoding="utf-8") == "mine"


def test_an_error_while_reading_leaves_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "data.tsv"
    path.write_bytes(b"a\tb\n" * 3 + b"caf\xe9\tx\n")
    with pytest.raises(DataError, match="line 4"):
        prepare(PairReader([str(path)]), tokenizer, tokenizer, tmp_path / "store", DataConfig())
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_and_leaves_nothing(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(GlassformerError, match="cannot be written: No space left on device") as error:
        prepare(Rows([("a", "b")]), tokenizer, tokenizer, tmp_path / "store", DataConfig())
    assert error.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_killed_run_leaves_nothing_that_looks_complete(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    script = """
import os, signal, sys
from pathlib import Path
from glassformer.config import DataConfig
from glassformer.data import prepare as module
from glassformer.text.readers import Pair
from glassformer.text.tokenizer import Tokenizer
module._CHUNK_PAIRS = 1
class Rows:
    n_rows, bad, bad_examples = 3, {}, {}
    def __iter__(self):
        yield Pair("a", "b", None, 1)
        yield Pair("c", "d", None, 2)
        os.kill(os.getpid(), signal.SIGKILL)
tokenizer = Tokenizer.load(Path(sys.argv[1]) / "tokenizer.json")
module.prepare(Rows(), tokenizer, tokenizer, Path(sys.argv[1]) / "store", DataConfig())
"""
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "store.partial").exists()
    with pytest.raises(DataError):
        TokenStore.open(tmp_path / "store")
    with pytest.raises(DataError):
        TokenStore.open(tmp_path / "store.partial")
    store = prepare(Rows([("a", "b")]), tokenizer, tokenizer, tmp_path / "store", DataConfig())
    assert len(store) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "tokenizer.json"]


@pytest.mark.parametrize("name", ["src.0.ids", "tgt.0.offsets", "rows", "domains", "store.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "longer"])
def test_damage_is_noticed_when_a_store_is_opened(tmp_path: Path, name: str, damage: str) -> None:
    folder = tmp_path / "store"
    write_store(folder, [(3, 4), (5, 6)])
    path = folder / name
    data = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "changed":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    else:
        path.write_bytes(data[:-2] if damage == "cut" else data + b"x")
    with pytest.raises(DataError, match=f"damaged: {name}"):
        TokenStore.open(folder)


def test_a_file_of_another_size_is_told_with_both_sizes(tmp_path: Path) -> None:
    write_store(tmp_path / "store", [(3, 4), (5, 6)])
    with (tmp_path / "store" / "rows").open("ab") as file:
        file.write(b"12345")
    with pytest.raises(DataError, match="rows has 21 bytes instead of 16"):
        TokenStore.open(tmp_path / "store")


def test_an_edited_description_is_noticed(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [(3, 4), (5, 6)]).folder / "store.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"n_pairs": 2', '"n_pairs": 1'), encoding="utf-8")
    with pytest.raises(DataError, match=r"store.json does not match its checksum"):
        TokenStore.open(tmp_path / "store")


def test_another_format_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    write_store(folder, [(3, 4)])
    content = json.loads((folder / "store.json").read_text(encoding="utf-8"))
    (folder / "store.json").write_text(json.dumps(content | {"format": 99}), encoding="utf-8")
    with pytest.raises(DataError, match="has format 99"):
        TokenStore.open(folder)


def test_a_column_without_shared_names_is_no_domain(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassformer.data.prepare._MAX_DOMAINS", 2)
    reader = Rows([("a", "b"), ("c", "d"), ("e", "f")], ["0.1", "0.2", "0.3"])
    with pytest.raises(DataError, match="domain column has more than 2 different values"):
        prepare(reader, tokenizer, tokenizer, tmp_path / "store", DataConfig())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 60), max_size=20), max_size=12))
def test_seen_hashes_are_a_set(arrays: list[list[int]]) -> None:
    seen, known = SeenHashes(), set[int]()
    for values in arrays:
        expected = []
        for value in values:
            expected.append(value not in known)
            known.add(value)
        assert seen.add(np.array(values, dtype=np.uint64)).tolist() == expected


ODD_TEXTS = st.lists(
    st.text(
        st.sampled_from("ab é'’\u0301\u200d.,!?<>/s5 \t\n\r\u00a0\u2028\x1c\0#▁漢")
        | st.characters(exclude_categories=["Cs"])
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("normalization", ["none", "nfc", "nfkc"])
@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_a_table_of_words_gives_what_the_library_gives_for_whole_texts(kind: Any, normalization: Any) -> None:
    size = 600 if kind == "wordpiece" else 320
    config = TokenizerConfig(kind=kind, normalization=normalization)
    tokenizer = Tokenizer.train(TEXTS, config, vocab_size=size)
    table = WordTable(tokenizer)

    @settings(max_examples=30, deadline=None)
    @given(ODD_TEXTS)
    def compare(texts: list[str]) -> None:
        lists = table.encode(texts)
        expected = [encoding.ids for encoding in tokenizer._library.encode_batch(texts)]
        assert [lists[i].tolist() for i in range(len(lists))] == expected

    compare()


def test_a_table_of_words_forgets_when_it_is_full(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.data.words._MAX_CHARS", 30)
    table = WordTable(tokenizer)
    for n in range(20):
        texts = [f"we eat {n} bread", f"{n} times"]
        lists = table.encode(texts)
        assert [lists[i].tolist() for i in range(2)] == tokenizer.encode_batch(texts)
        assert len(table) < 20
