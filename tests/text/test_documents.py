"""Raw text: each document as it stands in the file, whatever the file, and an account of what is none."""

import gzip
import io
import json
import lzma
import sys
from pathlib import Path

import pytest
import zstandard

from glassformer.config import TokenizerConfig
from glassformer.errors import DataError
from glassformer.text.documents import DocumentForm, DocumentReader
from glassformer.text.learning import SPECIALS, sentinel_names
from glassformer.text.split import Part
from glassformer.text.tokenizer import Tokenizer

COMPRESSORS = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}
ODD = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei\rj\x00k"


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def read(*paths: str, form: DocumentForm = "line", **options: bool) -> list[tuple[str, int]]:
    return [(document.text, document.row) for document in DocumentReader(paths, form=form, **options)]


def test_lines_end_at_newlines_only_and_keep_their_spaces(tmp_path: Path) -> None:
    """D2, T9: no other sign ends a line, control bytes stay, the byte-order mark goes."""
    path = write(tmp_path / "t", f"\ufeff  two  spaces \r\n{ODD}\nlast")
    assert read(path) == [("  two  spaces ", 1), (ODD, 2), ("last", 3)]


def test_blank_lines_are_counted(tmp_path: Path) -> None:
    reader = DocumentReader([write(tmp_path / "t", "a\n\n \t\nb\n")])
    assert [document.text for document in reader] == ["a", "b"]
    assert (reader.n_rows, dict(reader.bad)) == (4, {"blank line": 2})
    assert reader.bad_examples["blank line"].endswith("t, line 2")
    assert len(list(reader)) == 2 and reader.bad.total() == 2  # a second pass begins anew
    with pytest.raises(DataError, match="line 2: blank line"):
        read(write(tmp_path / "t", "a\n\nb"), is_strict=True)


def test_paragraphs_stand_between_blank_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "t", "\n\none\n two\r\n\n \nthree\n\n\nfour\nfive")
    assert read(path, form="paragraph") == [("one\n two", 3), ("three", 7), ("four\nfive", 10)]


def test_json_lines(tmp_path: Path) -> None:
    rows = [json.dumps({"text": "a\n\nb", "id": 1}), "{", "[1]", '{"texte": "x"}', '{"text": 3}', '{"text": " "}', ""]
    path = write(tmp_path / "t.jsonl", "\n".join([*rows, '{"text": "\\ud83d"}', '{"text": "é"}']))
    reader = DocumentReader([path])
    assert [(document.text, document.row) for document in reader] == [("a\n\nb", 1), ("é", 9)]
    assert dict(reader.bad) == {
        "no JSON": 1,
        "no text under text": 3,
        "blank text": 1,
        "blank line": 1,
        "half a surrogate pair": 1,
    }
    plain = write(tmp_path / "t.txt", '{"text": "a"}\n')
    assert read(plain) == [('{"text": "a"}', 1)]  # the name or the setting says that it is JSON, not the text
    assert read(plain, form="jsonl") == [("a", 1)]
    assert read(write(tmp_path / "u.ndjson.gz", gzip.compress(b'{"text": "b"}\n'))) == [("b", 1)]


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_compressed_files_one_after_the_other(tmp_path: Path, kind: str) -> None:
    first = write(tmp_path / f"a.{kind}", COMPRESSORS[kind](b"one\ntwo\n"))
    second = write(tmp_path / "b", "three")
    assert [text for text, _ in read(first, second)] == ["one", "two", "three"]


def test_standard_input_is_read_as_often_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("é\nb\n".encode())))
    reader = DocumentReader(["-"])
    assert [[document.place for document in reader] for _ in range(2)] == [
        ["standard input, line 1", "standard input, line 2"]
    ] * 2


def test_what_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    """D6, D7: a cut file and a wrong byte are named."""
    with pytest.raises(DataError, match="cut off or damaged"):
        read(write(tmp_path / "cut.gz", gzip.compress(b"a line\n" * 10_000)[:-6]))
    with pytest.raises(DataError, match="line 2: byte 0xE9 at offset 5"):
        read(write(tmp_path / "latin", b"a\ncaf\xe9\n"))
    for content in ("", "\n \n"):
        with pytest.raises(DataError, match="holds no document"):
            read(write(tmp_path / "empty", content))
    with pytest.raises(DataError, match="cannot be read"):
        read(str(tmp_path / "none"))
    for paths in ((), ("-", "-")):
        with pytest.raises(DataError, match="One file of text or more"):
            DocumentReader(paths)


def test_a_held_out_text_stands_in_one_part_only(tmp_path: Path) -> None:
    texts = [f"text {i % 200}" for i in range(600)]
    reader = DocumentReader([write(tmp_path / "t", "\n".join(texts))])
    parts = [
        [row.text for row in Part(reader, key=lambda row: row.text, valid_share=0.2, is_valid=is_valid)]
        for is_valid in (False, True)
    ]
    assert sorted(parts[0] + parts[1]) == sorted(texts)
    assert not set(parts[0]) & set(parts[1])
    assert 0.1 < len(parts[1]) / 600 < 0.3


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_sentinels_have_fixed_ids_and_no_text_becomes_one(kind: str, tmp_path: Path) -> None:
    """T1, for the entries that stand for hidden spans."""
    texts = ["le chat <extra_id_0> dort", "un <extra_id_1> chien </s>"] * 40
    config = TokenizerConfig(kind=kind, n_sentinels=3)  # type: ignore[arg-type]
    tokenizer = Tokenizer.train(texts, config, vocab_size=600)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.sentinel_ids == tokenizer.sentinel_ids == [5, 6, 7]
    for text in (*texts[:2], "<extra_id_2><extra_id_3>", "< extra_id_0 >"):
        ids = loaded.encode(text)
        assert loaded.decode(ids) == text
        assert min(ids) >= len(SPECIALS) + 3
    asked_for = loaded.encode("a <extra_id_1> b", allow_special=True)
    assert 6 in asked_for and loaded.decode(asked_for) == "a  b"
    assert loaded.decode(asked_for, skip_special=False) == "a <extra_id_1> b"
    assert set(loaded.never_made) >= {5, 6, 7}
    assert Tokenizer.train(texts, TokenizerConfig(kind=kind), vocab_size=600).sentinel_ids == []  # type: ignore[arg-type]
    assert sentinel_names(2) == ("<extra_id_0>", "<extra_id_1>")


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_pieces_know_their_word(kind: str) -> None:
    tokenizer = Tokenizer.train(["le chat dort"] * 30, TokenizerConfig(kind=kind), vocab_size=530)  # type: ignore[arg-type]
    text = "le chaton, dort l'ours  3"
    ((ids, words),) = tokenizer.encode_words([text])
    assert ids == tokenizer.encode(text)
    pieces = [
        "".join(piece for piece, number in zip(tokenizer.pieces(ids), words, strict=True) if number == n)
        for n in range((words[-1] or 0) + 1)
    ]
    assert pieces == ["le", " chaton", ",", " dort", " l'", "ours", " ", " 3"]
