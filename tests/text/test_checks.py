"""The data report: each finding seen where it is and nowhere else, counts that add up, no text kept in memory."""

import json
import math
from pathlib import Path

import pytest

from glassformer.config import DataConfig
from glassformer.errors import DataError
from glassformer.text.checks import check, judge
from glassformer.text.languages import guess_language
from glassformer.text.readers import Pair, PairReader
from glassformer.text.report import Report
from glassformer.text.signs import has_same_numbers, has_same_placeholders

ENGLISH = "this is the house that was not for you and I"
FRENCH = "ceci est la maison qui ne sont pas pour vous et moi"
GERMAN = "das ist das Haus und es war nicht für dich und mich"


def report(tmp_path: Path, rows: list[str], *, valid: list[str] | None = None, **options: object) -> Report:
    def reader(name: str, lines: list[str]) -> PairReader:
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
        return PairReader([str(tmp_path / name)])

    valid_reader = None if valid is None else reader("valid.tsv", valid)
    return check(reader("train.tsv", rows), valid_reader, DataConfig(**options))  # type: ignore[arg-type]


def found(made: Report) -> dict[str, list[int]]:
    return {finding.name: [example.row for example in finding.examples] for finding in made.findings}


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        ("a", "b", None),
        ("", "b", "blank source"),
        ("\u00a0 \t", "b", "blank source"),
        ("a", "  ", "blank target"),
        ("a", "b\x00", "control characters"),
        ("\x1b[31m", "b", "control characters"),
        ("a\nb", "b", "control characters"),
        ("a\uffff", "b", "control characters"),
        ("a\tb \u200d \u00a0 \u2028", "b", None),
        ("a" * 168, "b", None),
        ("a" * 170, "b", "length ratio above 9"),
        ("b", "a" * 170, "length ratio above 9"),
        ("a", "a", None),
    ],
)
def test_judge(src: str, tgt: str, reason: str | None) -> None:
    assert judge(Pair(src, tgt, None, 1), DataConfig()) == reason


def test_judge_follows_its_config() -> None:
    copy, long = Pair("a", "a", None, 1), Pair("a" * 1000, "b", None, 1)
    assert judge(copy, DataConfig(drop_copies=True)) == "copy"
    assert judge(long, DataConfig(max_length_ratio=math.inf)) is None


def test_blank_rows_are_left_out_together(tmp_path: Path) -> None:
    made = report(tmp_path, ["a\tx", "\ty", "c\tz", "  \tw"])
    assert (made.n_rows, made.n_pairs, made.n_used) == (4, 4, 2)
    assert found(made) == {"blank source": [2, 4]}


def test_repeats_are_counted_once_each(tmp_path: Path) -> None:
    rows = ["a\tx", "b\ty", "a\tx", "a\tz", "a\tx", "\tx", "\tx", "c\tx"]
    made = report(tmp_path, rows)
    assert found(made) == {"duplicate": [3, 5], "same source, other target": [4], "blank source": [6, 7]}
    assert made.n_used == 4
    assert report(tmp_path, rows, drop_duplicates=False).n_used == 6


def test_clean_data_give_no_finding(tmp_path: Path) -> None:
    made = report(tmp_path, [f"{ENGLISH} {i} %s\t{FRENCH} {i} %s\tui" for i in range(50)], src="en", tgt="fr")
    assert made.is_clean and made.n_used == 50 and made.domains == {"ui": 50}
    source = made.sides[0]
    assert (source.n_words, source.words["min"], source.words["max"]) == (50 * 13, 13, 13)
    assert (source.chars["min"], source.chars["max"]) == (len(ENGLISH) + 5, len(ENGLISH) + 6)
    assert (source.language, made.sides[1].language) == ("en", "fr")


@pytest.mark.parametrize("codes", [{"src": "en", "tgt": "fr"}, {}])
def test_swapped_and_foreign_rows(tmp_path: Path, codes: dict[str, str]) -> None:
    rows = [f"{ENGLISH} {i}\t{FRENCH} {i}" for i in range(20)]
    rows[3] = f"{FRENCH}\t{ENGLISH}"
    rows[7] = f"{ENGLISH}\t{GERMAN}"
    rows[9] = "Paris\tLondon"
    assert found(report(tmp_path, rows, **codes)) == {"swapped sides": [4], "wrong language": [8]}


def test_languages_named_the_wrong_way_round_are_seen(tmp_path: Path) -> None:
    made = report(tmp_path, [f"{ENGLISH} {i}\t{FRENCH} {i}" for i in range(20)], src="fr", tgt="en")
    assert made.findings[0].name == "swapped sides" and made.findings[0].count == 20


def test_copies_placeholders_numbers_and_bad_rows(tmp_path: Path) -> None:
    rows = ["a b\ta b", "%s of %d\t%d von %s", "%s files\tDateien", "in 1,000.5\ten 1 000,5", "in 2023\ten 2024", "one"]
    made = report(tmp_path, rows)
    assert found(made) == {"copy": [1], "placeholders differ": [3], "numbers differ": [5]}
    assert made.bad == {"1 column": 1} and made.bad_examples["1 column"].endswith("train.tsv, line 6")


def test_overlap_with_validation_data(tmp_path: Path) -> None:
    rows = ["The cat.\tx", "the CAT\ty", "a dog\tz", "!\tw"]
    made = report(tmp_path, rows, valid=["The cat.\tother", "?\tq"])
    assert found(made) == {"source in validation data": [1], "near copy of a validation source": [2]}


def test_examples_are_few_and_counts_are_whole(tmp_path: Path) -> None:
    made = report(tmp_path, [f"a{'.' * i}\t " for i in range(100)] + ["a\tb"])
    (finding,) = made.findings
    assert (finding.name, finding.count) == ("blank target", 100)
    assert [example.row for example in finding.examples] == [1, 2, 3, 4, 5]


def test_report_is_strict_json(tmp_path: Path) -> None:
    made = report(tmp_path, ["a\tx", "\ty", "one"], max_length_ratio=math.inf)
    values = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert values["rows"] == 3 and values["used"] == 1
    assert values["bad_rows"][0]["reason"] == "1 column"
    assert values["findings"][0]["examples"] == [{"row": 2, "src": "", "tgt": "y"}]


def test_empty_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="empty"):
        report(tmp_path, [])


@pytest.mark.parametrize(
    ("src", "tgt", "is_same"),
    [
        ("%s %d", "%d %s", True),
        ("%s of %s", "%2$s von %1$s", True),
        ("%s", "", False),
        ("%(name)s", "%(nom)s", False),
        ("%(name)s", "%(name)s !", True),
        ("{0} {name:>3}", "{name:>3} {0}", True),
        ("{0}", "{1}", False),
        ("%1 and %2", "%2 et %1", True),
        ("%1", "%2", False),
        ("$HOME costs $5", "$HOME coûte 5 $", True),
        ("${x}", "x", False),
        ("<b class='a'>x</b>", "<b>y</b>", True),
        ("<b>x</b>", "<b>y", False),
        ("a &amp; b", "a et b", False),
        ("100% sure", "sûr à 100 %", True),
        ("50%silk", "50 % soie", True),
        ("5% discount", "5 % de remise", True),
        ("a < b", "a", True),
    ],
)
def test_placeholders(src: str, tgt: str, is_same: bool) -> None:
    assert has_same_placeholders(src, tgt) is is_same
    assert has_same_placeholders(tgt, src) is is_same


@pytest.mark.parametrize(
    ("src", "tgt", "is_same"),
    [
        ("1,234.50", "1 234,50", True),
        ("7", "07", True),
        ("٣", "3", True),
        ("1 2", "2 1", True),
        ("1", "", False),
        ("%1 a", "a", True),
        ("9" * 10_000, "9" * 10_000, True),
        ("9" * 10_000, "9" * 9_999, False),
    ],
)
def test_numbers(src: str, tgt: str, is_same: bool) -> None:
    assert has_same_numbers(src, tgt) is is_same


@pytest.mark.parametrize(
    ("text", "language"),
    [
        *((ENGLISH, "en"), (FRENCH, "fr"), (GERMAN, "de"), ("", None), ("OK", None), ("Paris London Berlin", None)),
        *(("これは本です", "ja"), ("这是一本书", "zh"), ("Это книга", "ru"), ("이것은 책", "ko"), ("Αυτό είναι", "el")),
        *(("Took a picture of a dead dog leaping right onto a soldier.", None), ("The letter α", None)),
        *(("und und und", None), ("東京都庁の建物", "ja")),
    ],
)
def test_language_guesses(text: str, language: str | None) -> None:
    assert guess_language(text) == language
