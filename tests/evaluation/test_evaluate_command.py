"""`glassformer evaluate` with a stubbed translator: what is counted, what is written, how it fails."""

from __future__ import annotations

import functools
import json
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from glassformer import config
from glassformer.cli import main
from glassformer.config import GenerationConfig

PAIRS = [
    ("We eat bread.", "Nous mangeons du pain.", "food"),
    ("We drink water.", "Nous buvons de l'eau.", "food"),
    ("The cat sleeps on the chair.", "Le chat dort sur la chaise.", "home"),
    ("I have 3 dogs.", "J'ai 3 chiens.", "home"),
]
GOOD = {src: tgt for src, tgt, _ in PAIRS}


@dataclass
class StubTranslation:
    text: str
    finish_reason: str = "eos"
    n_unread_tokens: int = 0


class StubTranslator:
    """Translates by heart; a folder named `bad*` holds a model that knows nothing."""

    calls: list[tuple[str, list[str], GenerationConfig]]
    is_whole = False

    def __init__(self, path: str) -> None:
        self.path = path
        self.generation = GenerationConfig(beam_size=4, n_best=2)

    @classmethod
    def load(cls, path: str, **_: Any) -> StubTranslator:
        return cls(path)

    def translate(
        self, texts: list[str], *, generation: Any = None, on_progress: Any = None, pool: Any = None
    ) -> list[StubTranslation]:
        assert pool is None
        self.calls.append((self.path, list(texts), generation))
        on_progress(len(texts))
        if Path(self.path).name.startswith("bad"):
            return [StubTranslation("bla", "length")] * len(texts)
        return [StubTranslation(GOOD[text]) for text in texts]


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    stub = types.ModuleType("glassformer.tasks.translator")
    stub.Translator = StubTranslator  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "glassformer.tasks.translator", stub)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    quick = functools.partial(config.EvaluationConfig, n_resamples=50, n_trials=199)
    monkeypatch.setattr(config, "EvaluationConfig", quick)
    Path("model").mkdir()
    Path("bad").mkdir()
    write("data.tsv", ["\t".join(pair) for pair in PAIRS])
    StubTranslator.calls = []
    return StubTranslator.calls


def write(name: str, lines: list[str]) -> None:
    Path(name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["glassformer", "evaluate", *args])
        with pytest.raises(SystemExit) as exit_info:
            main()
        out, err = capsys.readouterr()
        return int(exit_info.value.code or 0), out, err

    return run


def report_of(out: str) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    report: dict[str, Any] = json.loads(out, parse_constant=refuse)
    return report


def test_a_model_is_scored_overall_by_length_and_by_domain(run: Any, calls: list[Any]) -> None:
    code, out, err = run("model", "data.tsv", "--json")
    assert code == 0
    report = report_of(out)
    assert {name: found["value"] for name, found in report["scores"].items()} == pytest.approx(
        {"bleu": 100, "chrf": 100, "ter": 0, "exact_match": 100}
    )
    assert report["scores"]["bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert {group["name"]: group["n"] for group in report["by_length"]} == {"up to 5": 3, "6 to 10": 1}
    assert {group["name"]: (group["n"], group["is_small"]) for group in report["by_domain"]} == {
        "food": (2, True),
        "home": (2, True),
    }
    assert calls[0][:2] == ("model", [src for src, _, _ in PAIRS])
    assert calls[0][2] == GenerationConfig(beam_size=4, n_best=1)
    assert report["generation"]["beam_size"] == 4
    assert "4 of 4" in err


def test_the_terminal_shows_tables_notes_and_signatures(run: Any) -> None:
    code, out, _ = run("bad", "data.tsv")
    assert code == 0
    for text in ("bad: 4 sentences", "by words of the source", "by domain", "worst sentences", "2 (few)", "tok:13a"):
        assert text in out
    assert "1 with other numbers than the source" in out
    assert "4 cut at the length limit" in out


def test_escape_sequences_of_an_output_do_not_reach_the_terminal(run: Any) -> None:
    write("outputs.txt", ["\x1b[31mred\x1b]0;title\x07", "b", "c", "d"])
    code, out, _ = run("-", "data.tsv", "--hypotheses", "outputs.txt")
    assert code == 0
    assert "red" in out and "\x1b[31m" not in out and "\x1b]0" not in out


def test_beam_and_limit_reach_the_model(run: Any, calls: list[Any]) -> None:
    code, out, _ = run("model", "data.tsv", "--json", "--beam", "1", "--limit", "2", "--no-ter")
    assert code == 0
    assert calls[0][1:] == ([PAIRS[0][0], PAIRS[1][0]], GenerationConfig(beam_size=1, n_best=1))
    report = report_of(out)
    assert report["rows"] == {"total": 4, "scored": 2, "left_out": {"beyond the limit": 2}}
    assert "ter" not in report["scores"]


def test_blank_and_bad_rows_are_left_out_for_model_and_file_alike(run: Any, calls: list[Any]) -> None:
    good = ["\t".join(pair) for pair in PAIRS]
    write("data.tsv", [good[0], "\tx", "one column", good[1], "y\t  ", good[2]])
    write("outputs.txt", [GOOD[PAIRS[0][0]], "junk", "junk", GOOD[PAIRS[1][0]], "junk", "Le chat dort."])
    code, out, _ = run("model", "data.tsv", "--json", "--against", "outputs.txt")
    assert code == 0
    report = report_of(out)
    assert calls[0][1] == [PAIRS[i][0] for i in (0, 1, 2)]
    assert report["rows"]["total"] == 6 and report["rows"]["scored"] == 3
    assert report["rows"]["left_out"] == {
        "with a blank source": 1,
        "with a blank reference": 1,
        "unreadable (1 column)": 1,
    }
    assert report["n"] == report["against"]["n"] == 3
    assert report["against"]["scores"]["exact_match"]["value"] == pytest.approx(200 / 3)
    assert [s["line"] for s in report["worst"]] == [1, 4, 6]
    assert any("Scored 3 of 6 rows" in note for note in report["notes"])


def test_rows_of_csv_with_a_header_and_line_breaks_stay_with_their_outputs(run: Any) -> None:
    Path("data.csv").write_text('src,tgt,domain\n"We eat\nbread.",A b.,x\nTwo,C d.,y\n', encoding="utf-8")
    write("outputs.txt", ["A b.", "C d."])
    code, out, _ = run("-", "data.csv", "--hypotheses", "outputs.txt", "--json")
    assert code == 0
    report = report_of(out)
    assert report["scores"]["exact_match"]["value"] == 100
    assert [s["line"] for s in report["worst"]] == [2, 4]


def test_files_are_written_and_can_be_scored_again(run: Any) -> None:
    good = ["\t".join(pair) for pair in PAIRS]
    write("data.tsv", [good[0], "\t", *good[1:]])
    code, out, err = run("bad", "data.tsv", "--out", "new/folder", "--json", "--limit", "3")
    assert code == 0 and "hypotheses.txt" in err
    assert Path("new/folder/hypotheses.txt").read_text() == "bla\n\nbla\nbla\n"
    written = report_of(Path("new/folder/report.json").read_text(encoding="utf-8"))
    assert written == report_of(out)
    page = Path("new/folder/report.md").read_text(encoding="utf-8")
    assert page.startswith("# Evaluation of bad\n") and "| BLEU | 0.00 |" in page
    assert sorted(p.name for p in Path("new/folder").iterdir()) == ["hypotheses.txt", "report.json", "report.md"]
    code, out, _ = run("-", "data.tsv", "--hypotheses", "new/folder/hypotheses.txt", "--limit", "3", "--json")
    assert code == 0
    assert report_of(out)["scores"] == written["scores"]


def test_outputs_in_a_file_are_scored_without_a_model(run: Any, calls: list[Any]) -> None:
    write("src.txt", [src for src, _, _ in PAIRS])
    write("tgt.txt", [tgt for _, tgt, _ in PAIRS])
    write("outputs.txt", ["", *[tgt for _, tgt, _ in PAIRS][1:]])
    code, out, _ = run("-", "src.txt", "tgt.txt", "--hypotheses", "outputs.txt", "--json")
    assert code == 0 and calls == []
    report = report_of(out)
    assert report["scores"]["exact_match"]["value"] == 75
    assert report["faults"]["empty"] == 1
    assert report["by_domain"] == []
    assert report["generation"] is None
    assert (report["worst"][0]["line"], report["worst"][0]["hypothesis"]) == (1, "")


def test_two_models_are_compared_on_the_same_rows(run: Any, calls: list[Any]) -> None:
    write("data.tsv", ["\t".join(pair) for pair in PAIRS] * 6)
    code, out, _ = run("model", "data.tsv", "--against", "bad", "--out", "o", "--json")
    assert code == 0
    report = report_of(out)
    assert [path for path, _, _ in calls] == ["model", "bad"]
    assert calls[0][1] == calls[1][1]
    for found in report["comparison"]:
        assert found["winner"] == "a" and found["p_value"] == 1 / 200
    assert Path("o/against.txt").read_text() == "bla\n" * 24
    code, out, _ = run("model", "data.tsv", "--against", "bad")
    assert "paired test of A = model and B = bad" in out
    assert any(line.split()[0] == "TER" and line.split()[-1] == "A" for line in out.splitlines() if line.strip())


def test_a_model_against_itself_is_no_different(run: Any) -> None:
    code, out, _ = run("model", "data.tsv", "--against", "model", "--json")
    assert code == 0
    assert {(found["p_value"], found["winner"]) for found in report_of(out)["comparison"]} == {(1.0, None)}
    code, out, _ = run("model", "data.tsv", "--against", "model")
    assert out.count("neither") == 4


def test_languages_of_the_model_name_the_keys_of_the_data(run: Any) -> None:
    lines = [json.dumps({"en": src, "fr": tgt}) for src, tgt, _ in PAIRS]
    write("data.jsonl", lines)
    Path("model/config.json").write_text(json.dumps({"data": {"src": "en", "tgt": "fr"}}))
    code, out, _ = run("model", "data.jsonl", "--json")
    assert code == 0 and report_of(out)["n"] == 4
    code, _, err = run("model", "data.jsonl", "--src", "de")
    assert code == 2 and "no text under de and fr" in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["model", "missing.tsv"], "missing.tsv cannot be read"),
        (["model", "empty.tsv"], "empty.tsv is empty"),
        (["model", "blank.tsv"], "none of 2 rows has text on both sides"),
        (["model", "three.txt", "four.txt"], "three.txt has 3 lines, but four.txt has 4"),
        (["-", "data.tsv", "--hypotheses", "three.txt"], "three.txt has 3 lines and the data has 4 rows"),
        (["-", "data.tsv", "--hypotheses", "five.txt", "--limit", "1"], "five.txt has 5 lines and the data has 4 rows"),
        (["-", "data.tsv", "--hypotheses", "missing.txt"], "missing.txt cannot be read"),
        (["-", "data.tsv", "--hypotheses", "latin.txt"], "latin.txt, line 1: byte 0xE9"),
        (["model", "data.tsv", "--against", "missing"], "missing cannot be read"),
        (["-", "data.tsv"], "MODEL is - and there is no --hypotheses"),
        (["model", "data.tsv", "--hypotheses", "four.txt"], "which one is to be scored"),
        (["-", "data.tsv", "--hypotheses", "four.txt", "--beam", "2"], "--beam 2 has no model"),
        (["-", "data.tsv", "--hypotheses", "four.txt", "--workers", "2"], "--workers 2 has no model"),
        (["-", "-", "--hypotheses", "-"], "named more than once"),
        (["model", "data.tsv", "--out", "data.tsv"], "--out data.tsv cannot be made"),
        (["model", "data.tsv", "--limit", "0"], "--limit"),
        (["model"], "DATA"),
    ],
)
def test_a_users_error_is_one_message_and_exit_2(run: Any, calls: list[Any], args: list[str], message: str) -> None:
    write("empty.tsv", [])
    write("blank.tsv", ["  \tx", "y\t "])
    for name, n in (("three.txt", 3), ("four.txt", 4), ("five.txt", 5)):
        write(name, ["a"] * n)
    Path("latin.txt").write_bytes("caf\xe9\n".encode("latin-1") * 4)
    code, out, err = run(*args)
    assert code == 2
    assert message in err and "Traceback" not in err
    assert out == ""
    assert calls == [], "the error is found before anything is translated"


def test_a_write_that_fails_leaves_no_part_behind(run: Any) -> None:
    Path("o/report.json").mkdir(parents=True)  # cannot be replaced by a file
    code, _, err = run("model", "data.tsv", "--out", "o")
    assert code == 2 and "report.json cannot be written" in err
    assert sorted(p.name for p in Path("o").iterdir()) == ["hypotheses.txt", "report.json"]


def test_json_has_null_where_a_number_is_not_finite(run: Any) -> None:
    write("data.tsv", ["a\t<skipped>"])  # BLEU's tokenizer makes nothing of this reference
    write("outputs.txt", [""])
    code, out, _ = run("-", "data.tsv", "--hypotheses", "outputs.txt", "--json")
    assert code == 0
    assert report_of(out)["length_ratio"] is None
