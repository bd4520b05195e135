"""Readers: every line of the file and no other, damaged files named, bad rows counted."""

import codecs
import gzip
import io
import json
import lzma
import random
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from glassformer.errors import DataError
from glassformer.text.alignment import parting
from glassformer.text.readers import MAX_LINE_CHARS, PairReader, read_lines

COMPRESSORS = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}
LINES = [f"line {i} é" for i in range(10_000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def pairs(*args: str, **options: object) -> list[tuple[str, str, str | None]]:
    return [(pair.src, pair.tgt, pair.domain) for pair in PairReader(args, **options)]  # type: ignore[arg-type]


def test_only_newlines_end_lines(tmp_path: Path) -> None:
    odd = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei\rj"
    path = write(tmp_path / "t", f"{odd}\n{odd}\n{odd}\n")
    assert list(read_lines(path)) == [odd] * 3
    assert list(read_lines(write(tmp_path / "t", "a\r\n\r\nb\r\n"))) == ["a", "", "b"]
    assert list(read_lines(write(tmp_path / "t", "a\r\r\nb\r"))) == ["a\r", "b\r"]


def test_byte_order_mark_goes_at_the_start_only(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "t", "\ufeffa\n\ufeffb\n"))) == ["a", "\ufeffb"]
    assert list(read_lines(write(tmp_path / "t", "\ufeff\ufeffa\n"))) == ["\ufeffa"]
    utf16 = codecs.BOM_UTF16_LE + "a\né漢\n".encode("utf-16-le")
    assert list(read_lines(write(tmp_path / "t", utf16), encoding="utf-16")) == ["a", "é漢"]


@pytest.mark.parametrize(
    ("content", "lines"), [("", []), ("\n", [""]), ("a", ["a"]), ("a\n\n", ["a", ""]), ("\na", ["", "a"])]
)
def test_lines_are_those_that_wc_counts(content: str, lines: list[str], tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "t", content))) == lines


def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t", "é漢\r\n\r\nab\r\ncd\n" * 3)
    for size in range(1, 12):
        monkeypatch.setattr("glassformer.text.lines._BLOCK_BYTES", size)
        assert list(read_lines(path)) == ["é漢", "", "ab", "cd"] * 3


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_compressed_files(kind: str, tmp_path: Path) -> None:
    compress = COMPRESSORS[kind]
    assert list(read_lines(write(tmp_path / "no-suffix", compress(TEXT)))) == LINES
    assert list(read_lines(write(tmp_path / "members", compress(TEXT) + compress(TEXT)))) == LINES * 2
    assert list(read_lines(write(tmp_path / f"plain.{kind}", TEXT))) == LINES
    assert list(read_lines(write(tmp_path / "none", compress(b"")))) == []


@pytest.mark.parametrize("kind", COMPRESSORS)
@pytest.mark.parametrize("cut", [1, 6, 0.5, -8])
def test_cut_file_is_an_error(kind: str, cut: float, tmp_path: Path) -> None:
    whole = COMPRESSORS[kind](TEXT)
    path = write(tmp_path / f"t.{kind}", whole[: -int(cut if cut != 0.5 else len(whole) / 2)])
    with pytest.raises(DataError, match=r"t\.\w+ is cut off or damaged"):
        list(read_lines(path))


@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_damaged_file_is_an_error(kind: str, tmp_path: Path) -> None:
    whole = bytearray(COMPRESSORS[kind](TEXT))
    whole[-7] ^= 0xFF  # in the checksum of gzip, in the footer of xz
    with pytest.raises(DataError, match="cut off or damaged"):
        list(read_lines(write(tmp_path / f"t.{kind}", bytes(whole))))


def test_wrong_byte_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t", b"ok\nfine\ncaf\xe9\n")
    for size in (1, 2, 5, 1000):
        monkeypatch.setattr("glassformer.text.lines._BLOCK_BYTES", size)
        with pytest.raises(DataError, match="t, line 3: byte 0xE9 at offset 11 is not utf-8"):
            list(read_lines(path))
    assert list(read_lines(path, encoding="latin-1"))[2] == "café"
    with pytest.raises(DataError, match="line 1"):
        list(read_lines(write(tmp_path / "end", b"caf\xc3")))
    for encoding in ("nonsense", "hex", "rot13", "zlib"):  # the last three are codecs, but of no text
        with pytest.raises(DataError, match=f"encoding='{encoding}' is unknown"):
            list(read_lines(path, encoding=encoding))


def test_wide_characters_need_their_mark_or_a_named_order(tmp_path: Path) -> None:
    marked, bare = (write(tmp_path / name, "caf\xe9\nb\n".encode(name)) for name in ("utf-16", "utf-16-le"))
    assert (
        list(read_lines(marked, encoding="utf-16")) == list(read_lines(bare, encoding="utf-16-le")) == ["caf\xe9", "b"]
    )
    with pytest.raises(DataError, match=r"is not utf-16 .*BOM.*utf-16-le"):
        list(read_lines(bare, encoding="utf-16"))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.tsv", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            list(read_lines(str(path)))
    with pytest.raises(DataError, match="is empty"):
        pairs(write(tmp_path / "empty.tsv", ""))


def test_zstd_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(DataError, match=r"pip install 'glassformer\[zstd\]'"):
        list(read_lines(write(tmp_path / "t.zst", COMPRESSORS["zst"](TEXT))))


def test_tsv_columns(tmp_path: Path) -> None:
    rows = ["a\tb", 'say "x\tdis "x\tui', "one", "a\tb\tc\td", "", "\tb", "a\\tb\tc\t"]
    reader = PairReader([write(tmp_path / "t.tsv", "\n".join(rows))])
    read = [(pair.src, pair.tgt, pair.domain, pair.row) for pair in reader]
    assert read == [("a", "b", None, 1), ('say "x', 'dis "x', "ui", 2), ("", "b", None, 6), ("a\\tb", "c", None, 7)]
    assert reader.n_rows == 7
    assert reader.bad == {"1 column": 1, "more than 3 columns": 1, "blank line": 1}
    assert reader.bad_examples["more than 3 columns"] == f"{tmp_path / 't.tsv'}, line 4"
    assert [pair.row for pair in reader] == [1, 2, 6, 7]
    assert reader.bad.total() == 3  # a second pass does not add up


def test_strict_stops_at_the_first_bad_row(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", "a\tb\none\n")
    with pytest.raises(DataError, match=r"t\.tsv, line 2: 1 column"):
        pairs(path, is_strict=True)
    with pytest.raises(DataError, match=r"No row of .* can be read \(3 rows: 1 column\)"):
        pairs(write(tmp_path / "t.tsv", "a\nb\nc\n"))


def test_plain_files_keep_tabs_and_blanks(tmp_path: Path) -> None:
    src, tgt = write(tmp_path / "a.txt", "a\tx\n\nc\n  "), write(tmp_path / "b.txt", "x\ny\nz\nw\n")
    assert pairs(src, tgt) == [("a\tx", "x", None), ("", "y", None), ("c", "z", None), ("  ", "w", None)]


@pytest.mark.parametrize(("n_src", "n_tgt"), [(5, 4), (4, 5), (5, 0), (300, 299)])
@pytest.mark.parametrize("kind", ["txt", "gz"])
def test_unequal_files_are_refused(n_src: int, n_tgt: int, kind: str, tmp_path: Path) -> None:
    names = []
    for side, n in (("src", n_src), ("tgt", n_tgt)):
        content = "".join(f"{side} {i}\n" for i in range(n)).encode()
        names.append(write(tmp_path / f"{side}.{kind}", gzip.compress(content) if kind == "gz" else content))
    with pytest.raises(DataError, match=rf"src\.{kind} has {n_src} lines, but .*tgt\.{kind} has {n_tgt}\."):
        pairs(*names)


@pytest.mark.parametrize("place", [1, 2, 40, 500, 990])
@pytest.mark.parametrize("shift", [1, 4])
def test_the_parting_is_found(place: int, shift: int) -> None:
    draw = random.Random(place)
    src = [draw.randint(10, 200) for _ in range(1000)]
    tgt = [round(1.2 * n * draw.uniform(0.8, 1.25)) for n in src]
    found = parting(src, tgt[: place - 1] + tgt[place - 1 + shift :])
    assert found is not None and abs(found - place) <= 3
    swapped = parting(tgt[: place - 1] + tgt[place - 1 + shift :], src)
    assert swapped is not None and abs(swapped - place) <= 3


def test_the_first_of_several_partings_is_found() -> None:
    draw = random.Random(0)
    src = [draw.randint(10, 200) for _ in range(1000)]
    tgt = [round(n * draw.uniform(0.8, 1.25)) for n in src]
    found = parting(src, [n for i, n in enumerate(tgt) if i not in (300, 600, 900)])
    assert found is not None and abs(found - 301) <= 5


def test_no_parting_where_lengths_do_not_tell() -> None:
    draw = random.Random(0)
    assert parting([3, 4, 5], [3, 4]) is None
    noise = [draw.randint(10, 200) for _ in range(1000)]
    assert parting(noise, [draw.randint(10, 200) for _ in range(999)]) is None
    assert parting([7] * 100, [7] * 99) is None


def test_huge_line_is_a_bad_row(tmp_path: Path) -> None:
    huge = "x" * (MAX_LINE_CHARS + 1)
    good = "y" * MAX_LINE_CHARS
    reader = PairReader([write(tmp_path / "t.tsv", f"a\tb\n{huge}\tb\n{huge * 3}\nc\td\n")])
    assert [pair.row for pair in reader] == [1, 4]
    assert reader.bad == {"longer than 1,000,000 characters": 2}
    plain = PairReader([write(tmp_path / "a", f"a\n{huge}\nc\n{good}"), write(tmp_path / "b", "a\nb\nc\nd\n")])
    assert [pair.row for pair in plain] == [1, 3, 4]
    csv = PairReader([write(tmp_path / "t.csv", f"a,b\n{huge},b\nc,d\n")])
    assert [pair.row for pair in csv] == [1, 3]
    assert csv.bad == {"longer than 1,000,000 characters": 1}


def test_csv(tmp_path: Path) -> None:
    rows = 'a,"b, ""c"""\nd,e,ui\n"x\ny",z\n\none\n1,2,3,4\n"broken" quote,b\nf,g\n'
    reader = PairReader([write(tmp_path / "t.csv", rows)])
    read = [(pair.src, pair.tgt, pair.domain, pair.row) for pair in reader]
    assert read == [("a", 'b, "c"', None, 1), ("d", "e", "ui", 2), ("x\ny", "z", None, 3), ("f", "g", None, 9)]
    assert reader.bad["blank line"] == reader.bad["too few columns"] == reader.bad["more than 3 columns"] == 1
    assert sum(count for reason, count in reader.bad.items() if reason.startswith("broken CSV")) == 1
    assert reader.n_rows == 8


def test_csv_columns_named_in_the_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "id,FR,en,domain\n1,du pain,bread,food\n2,eau\n")
    reader = PairReader([path], src="en", tgt="fr")
    assert [(pair.src, pair.tgt, pair.domain) for pair in reader] == [("bread", "du pain", "food")]
    assert reader.bad.total() == 1
    assert pairs(write(tmp_path / "t.csv", "source,target\na,b\n")) == [("a", "b", None)]


def test_jsonl(tmp_path: Path) -> None:
    rows = [
        '{"en": "bread", "fr": "pain", "domain": "food"}',
        '{"src": "a\\u2028", "tgt": "b"}',
        '{"translation": {"en": "x", "fr": "y"}}',
        "{broken",
        "[1, 2]",
        '{"en": "a"}',
        '{"en": 1, "fr": "b"}',
        '{"en": "\\ud83d", "fr": "b"}',
        '{"en": "\\ud83d\\ude00", "fr": "b"}',
        "",
    ]
    reader = PairReader([write(tmp_path / "t.jsonl", "\n".join(rows) + "\n")], src="en", tgt="fr")
    read = [(pair.src, pair.tgt, pair.domain) for pair in reader]
    assert read == [("bread", "pain", "food"), ("a\u2028", "b", None), ("x", "y", None), ("😀", "b", None)]
    assert reader.bad == {
        "no JSON": 1,
        "no JSON object": 1,
        "no text under en and fr": 2,
        "half a surrogate pair": 1,
        "blank line": 1,
    }


def test_format_is_seen_in_the_first_line(tmp_path: Path) -> None:
    assert pairs(write(tmp_path / "a.txt.xz", lzma.compress(b"a\tb\n"))) == [("a", "b", None)]
    assert pairs(write(tmp_path / "data", json.dumps({"src": "a", "tgt": "b"}))) == [("a", "b", None)]
    assert pairs(write(tmp_path / "t.CSV.gz", gzip.compress(b"a,b\n"))) == [("a", "b", None)]
    assert pairs(write(tmp_path / "x", "a,b\n"), format="csv") == [("a", "b", None)]
    with pytest.raises(DataError, match="one side only"):
        pairs(write(tmp_path / "one.txt", "a sentence\n"))
    with pytest.raises(DataError, match="3 data files"):
        pairs("a", "b", "c")


def test_standard_input_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"a\tb\nc\td\n", gzip.compress(b"a\tb\nc\td\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        reader = PairReader(["-"])
        assert [pair.src for pair in reader] == [pair.src for pair in reader] == ["a", "c"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x\ny\n")))
    both = PairReader(["-", write(tmp_path / "b", "1\n2\n")])
    assert [pair.src for pair in both] == [pair.src for pair in both] == ["x", "y"]


def test_reading_does_not_depend_on_the_locale(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", "é\tü\n")
    code = (
        "import sys; from glassformer.text.readers import PairReader\n"
        "print(ascii([pair.src for pair in PairReader(sys.argv[1:])]))"
    )
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONWARNDEFAULTENCODING": "1"}
    command = [sys.executable, "-W", "error::EncodingWarning:glassformer", "-c", code, path]
    shown = subprocess.run(command, check=True, env=environment, capture_output=True, encoding="utf-8")
    assert shown.stdout == "['\\xe9']\n"
