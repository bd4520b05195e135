"""Files with labels: what is read, what is left out and counted, what is an error."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from glassformer.errors import CheckpointError, DataError
from glassformer.text.label_set import LabelSet
from glassformer.text.labelled import MAX_WORDS, TextReader, WordReader


def texts_of(path: Path, content: str | bytes, **options: Any) -> tuple[list[tuple[Any, ...]], TextReader]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    reader = TextReader([str(path)], **options)
    return [(row.text, row.text_b, row.labels, row.row) for row in reader], reader


def sentences_of(path: Path, content: str, **options: Any) -> tuple[list[tuple[Any, ...]], WordReader]:
    path.write_text(content, encoding="utf-8")
    reader = WordReader([str(path)], **options)
    return [(row.words, row.labels, row.row) for row in reader], reader


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "good film\tpos\nbad film\tneg\n"),
        ("a.tsv", "text\tlabel\ngood film\tpos\nbad film\tneg"),
        ("a.tsv", "Label\tText\npos\tgood film\nneg\tbad film\n"),
        ("a.csv", 'label,id,text\npos,1,"good film"\n neg ,2,bad film\n'),
        ("a.jsonl", '{"text": "good film", "label": "pos"}\n{"label": "neg", "text": "bad film"}\n'),
        ("a", '{"text": "good film", "labels": ["pos"]}\n{"label": "neg", "text": "bad film"}\n'),
        ("a", "good film\tpos\r\nbad film\tneg\r\n"),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str, content: str) -> None:
    rows, reader = texts_of(tmp_path / name, content)
    assert [row[:3] for row in rows] == [("good film", None, ("pos",)), ("bad film", None, ("neg",))]
    assert reader.n_rows == 2 and not reader.bad


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "a\tb\tyes\nc\td\tno\n"),
        ("a.csv", "text,text_b,label\na,b,yes\nc,d,no\n"),
        ("a.jsonl", '{"text": "a", "text_b": "b", "label": "yes"}\n{"text": "c", "text_b": "d", "label": "no"}\n'),
    ],
)
def test_pairs_of_texts(tmp_path: Path, name: str, content: str) -> None:
    rows, reader = texts_of(tmp_path / name, content)
    assert [row[:3] for row in rows] == [("a", "b", ("yes",)), ("c", "d", ("no",))]
    assert reader.has_pairs


def test_several_labels(tmp_path: Path) -> None:
    content = "x\tb, a,b\ny\t\nz\ta\n"
    rows, _ = texts_of(tmp_path / "a.tsv", content, is_multi_label=True)
    assert [row[2] for row in rows] == [("a", "b"), (), ("a",)]
    rows, _ = texts_of(tmp_path / "a.jsonl", '{"text": "x", "labels": ["b", 7]}\n', is_multi_label=True)
    assert rows[0][2] == ("7", "b")
    rows, _ = texts_of(tmp_path / "a.tsv", "x\tred, green\n")
    assert rows[0][2] == ("red, green",), "a comma is part of a label where each text has one"


def test_bad_rows_are_counted_with_their_line_and_never_shift_a_column(tmp_path: Path) -> None:
    content = "a\tpos\n\nonly text\nx\ty\tz\tpos\n \tneg\nb\t \nc\td\tneg\ne\tneg\n"
    rows, reader = texts_of(tmp_path / "a.tsv", content)
    assert [(row[0], row[2], row[3]) for row in rows] == [("a", ("pos",), 1), ("e", ("neg",), 8)]
    assert reader.bad == {
        "blank line": 1,
        "1 column": 1,
        "4 columns in place of 2 or 3": 1,
        "blank text": 1,
        "no label": 1,
        "two texts where others are one": 1,
    }
    assert reader.n_rows == 8
    assert reader.bad_examples["1 column"].endswith("a.tsv, line 3")
    with pytest.raises(DataError, match=r"line 2: blank line"):
        texts_of(tmp_path / "a.tsv", content, is_strict=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "no JSON object"),
        ("{", "no JSON"),
        ('{"label": "x"}', "no text under text and text_b"),
        ('{"text": "x"}', "no key label or labels"),
        ('{"text": "x", "label": 1.5}', "a label that is neither a text nor a whole number"),
        ('{"text": "x", "labels": ["a", "b"]}', "several labels without task.is_multi_label"),
        ('{"text": "\\ud83d", "label": "a"}', "half a surrogate pair"),
    ],
)
def test_bad_json_rows(tmp_path: Path, line: str, reason: str) -> None:
    _, reader = texts_of(tmp_path / "a.jsonl", '{"text": "x", "label": "a"}\n' + line + "\n")
    assert reader.bad == {reason: 1}


def test_csv_records_over_several_lines_and_broken_ones(tmp_path: Path) -> None:
    content = 'text,label\n"one\ntwo",a\n"x"y,b\nthree,c\nfour\n'
    rows, reader = texts_of(tmp_path / "a.csv", content)
    assert [(row[0], row[3]) for row in rows] == [("one\ntwo", 2), ("three", 5)]
    assert sorted(reader.bad.values()) == [1, 1] and reader.bad["too few columns"] == 1
    assert reader.n_rows == 4
    with pytest.raises(DataError, match="names the columns a, b"):
        texts_of(tmp_path / "a.csv", "a,b\nx,y\n")


def test_only_newlines_end_lines(tmp_path: Path) -> None:
    odd = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei\rj"
    rows, _ = texts_of(tmp_path / "a.tsv", f"\ufeff{odd}\tpos\r\nx\tneg\r\n")
    assert [(row[0], row[2]) for row in rows] == [(odd, ("pos",)), ("x", ("neg",))]
    sentences, _ = sentences_of(tmp_path / "a.conll", f"{odd}\tO\r\n\r\nx O\r\n")
    assert [row[0] for row in sentences] == [(odd,), ("x",)]


def test_compressed_cut_and_wrongly_encoded_files(tmp_path: Path) -> None:
    lines = "".join(f"text {i}\tl{i % 3}\n" for i in range(3000)).encode()
    whole = gzip.compress(lines)
    rows, _ = texts_of(tmp_path / "a.tsv.gz", whole)
    assert len(rows) == 3000
    with pytest.raises(DataError, match="cut off or damaged"):
        texts_of(tmp_path / "a.tsv.gz", whole[:-6])
    with pytest.raises(DataError, match="0xE9 at offset 3"):
        texts_of(tmp_path / "a.tsv", b"caf\xe9\tx\n")
    rows, _ = texts_of(tmp_path / "a.tsv", b"caf\xe9\tx\n", encoding="latin-1")
    assert rows[0][0] == "café"


@pytest.mark.parametrize(("content", "message"), [("", "holds no labelled text"), ("x\n\n", "line 1: 1 column")])
def test_a_file_without_a_row_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        texts_of(tmp_path / "a.tsv", content)
    with pytest.raises(DataError, match="Join your files first"):
        TextReader(["a", "b"])


def test_standard_input_is_read_as_often_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tpos\n")))
    reader = TextReader(["-"])
    assert [row.text for row in reader] == [row.text for row in reader] == ["a"]


def test_conll_sentences(tmp_path: Path) -> None:
    content = "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\n\n# _ _ O\nNew\u00a0York\tB-LOC\n"
    rows, reader = sentences_of(tmp_path / "a.conll", content)
    assert rows == [
        (("EU", "rejects"), ("B-ORG", "O"), 3),
        (("#", "New\u00a0York"), ("O", "B-LOC"), 7),
    ]
    assert reader.n_rows == 2


def test_a_sentence_with_a_bad_line_is_left_out_whole(tmp_path: Path) -> None:
    content = "a O\nb\nc O\n\nd O\n\ne\t\n\n" + "x O\n" * (MAX_WORDS + 2) + "\ny O\n"
    rows, reader = sentences_of(tmp_path / "a.txt", content)
    assert [row[0] for row in rows] == [("d",), ("y",)]
    assert reader.bad == {"1 column": 1, "an empty column": 1, f"a sentence of more than {MAX_WORDS:,} words": 1}
    assert reader.bad_examples["1 column"].endswith("line 2")
    assert reader.n_rows == 5


def test_json_sentences_need_a_label_for_each_token(tmp_path: Path) -> None:
    good = {"tokens": ["a", "b c"], "labels": ["O", "B-X"]}
    bad: list[dict[str, Any]] = [
        {"tokens": ["a", "b"], "labels": ["O"]},
        {"tokens": [], "labels": []},
        {"tokens": ["a", " "], "labels": ["O", "O"]},
        {"tokens": "ab", "labels": ["O", "O"]},
    ]
    content = "".join(json.dumps(record) + "\n" for record in (good, *bad))
    rows, reader = sentences_of(tmp_path / "a.jsonl", content)
    assert rows == [(("a", "b c"), ("O", "B-X"), 1)]
    assert reader.bad == {"2 tokens and 1 labels": 1, "no token": 1, "tokens and labels that are no lists of texts": 2}


def test_label_sets_come_back_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    labels = LabelSet(("B-é", "O"), (3, 4), 7, "BIO", 1)
    path = tmp_path / "labels.json"
    path.write_text(labels.to_json(), encoding="utf-8")
    assert LabelSet.load(path) == labels
    assert labels.index == {"B-é": 0, "O": 1}
    for damage in ("", "[]", labels.to_json().replace('"O"', '"B-é"'), labels.to_json().replace("BIO", "B")):
        path.write_text(damage, encoding="utf-8")
        with pytest.raises(CheckpointError, match="is damaged"):
            LabelSet.load(path)
