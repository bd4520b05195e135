"""Medians, ratios within rounds, turns, files of results and their page, worked out by hand. Nothing is timed."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cold_start
import growth
import machine
import measuring
import pytest
import report
import torch
from measuring import Result


def result(**changes: Any) -> Result:
    fields: dict[str, Any] = {
        "case": {"size": "base", "batch": 8, "beam": 1},
        "unit": "target tokens/s",
        "values": {"bf16": [300.0, 100.0, 220.0], "slow peer": [50.0, 60.0, 70.0], "fast peer": [100.0, 100.0, 110.0]},
        "ours": ["bf16"],
    }
    return Result(**(fields | changes))


def test_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    found = result()
    assert found.best_peer() == "fast peer"
    assert found.median("bf16") == 220
    assert found.ratio("bf16", "fast peer") == 2.0  # of 3, 1 and 2; the ratio of the medians would be 2.2
    assert found.spread("bf16") == pytest.approx(100 / 220)


def test_of_times_the_least_is_best_and_the_ratio_is_turned_round() -> None:
    found = result(values={"bf16": [2.0], "a": [8.0], "b": [5.0]}, is_less_better=True)
    assert found.best_peer() == "b"
    assert found.ratio("bf16", "b") == 2.5


def test_without_peers_there_is_no_ratio() -> None:
    alone = result(values={"bf16": [2.0]})
    assert alone.best_peer() is None and "(" not in alone.line()


def test_a_peer_that_gives_something_else_is_named_and_not_compared() -> None:
    found = result(digests={"bf16": "a", "slow peer": "a", "fast peer": "b"})
    assert found.best_peer() == "slow peer"
    assert "bf16 220 (3.14)" in found.line()  # the median of 6, 100 / 60 and 220 / 70
    assert found.remarks() == ["other output, so not compared: fast peer"]
    assert measuring.digest([[1, 2]]) == measuring.digest([[1, 2]]) != measuring.digest([[1], [2]])


def test_a_bound_is_no_peer() -> None:
    found = result(bounds=["fast peer"])
    assert found.best_peer() == "slow peer" and found.best_of_ours() == "bf16"


def test_ways_take_turns_and_the_first_round_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "LEAST_S", 0.0)
    calls: list[str] = []
    ways = {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"}
    seconds, first = measuring.take_turns(ways, 2)
    assert calls == ["a", "b"] * 3
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}
    assert first == {"a": 1, "b": 2}


def test_a_short_way_runs_again_until_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def way() -> float:
        now[0] += 0.3
        return now[0]

    monkeypatch.setattr(measuring.time, "perf_counter", lambda: now[0])
    seconds, first = measuring.take_turns({"a": way}, 1)
    assert seconds == {"a": [pytest.approx(0.3)]} and first == {"a": 0.3}
    assert now[0] == pytest.approx(0.3 + 4 * 0.3)  # one to warm up, then four for a second


def test_without_a_round_to_warm_up_the_first_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "LEAST_S", 0.0)
    calls: list[str] = []
    seconds, first = measuring.take_turns({"a": lambda: calls.append("a") or len(calls)}, 2, is_warm=True)
    assert (len(calls), len(seconds["a"]), first) == (2, 2, {"a": 1})


SCRIPT = """
import os, sys
sys.path.insert(0, {bench!r})
import measuring
from measuring import Result

parser = measuring.parser_of("", rounds=2)
measuring.add_ways(parser, ("ours", "peer"), ("ours", "peer"))
parser.add_argument("--size", nargs="*", default=["a", "b"])
options = parser.parse_args()

def prepare(work):
    (work / "made").write_text(str(os.getpid()))

def measure(work):
    calls = work / "calls"
    for size in options.size:
        for way in options.ways:
            calls.write_text((calls.read_text() if calls.exists() else "") + f"{{way}} {{size}}\\n")
        n = len(calls.read_text().splitlines())
        values = {{way: [float(n + i)] * options.rounds for i, way in enumerate(options.ways)}}
        notes = {{way: f"{{os.getpid()}} {{(work / 'made').read_text()}}" for way in options.ways}}
        ours = [way for way in options.ways if way == "ours"]
        yield Result(case={{"size": size}}, unit="calls", values=values, ours=ours, notes=notes)

measuring.run(options, prepare, measure, [("--size", size) for size in options.size])
"""


def run_script(folder: Path, *options: str) -> list[Result]:
    script, out = folder / "script.py", folder / "out.json"
    script.write_text(SCRIPT.format(bench=str(Path(measuring.__file__).parent)), encoding="utf-8")
    subprocess.run([sys.executable, script, "--json", out, *options], check=True, stdout=subprocess.DEVNULL)
    return measuring.load(out)[1]


def test_each_way_of_each_round_has_a_process_of_its_own(tmp_path: Path) -> None:
    found = run_script(tmp_path)
    assert [entry.case["size"] for entry in found] == ["a", "b"]
    # The rounds of a part come before the next part, and in a round the ways take turns.
    assert [entry.values for entry in found] == [{"ours": [1, 3], "peer": [2, 4]}, {"ours": [5, 7], "peer": [6, 8]}]
    assert [entry.ours for entry in found] == [["ours"], ["ours"]]
    processes = [note.split() for entry in found for note in entry.notes.values()]
    assert len({process for process, _ in processes}) == 4
    assert len({parent for _, parent in processes}) == 1  # the folder was prepared once


def test_together_all_ways_have_one_process(tmp_path: Path) -> None:
    found = run_script(tmp_path, "--together", "--rounds", "1")
    assert len({note for entry in found for note in entry.notes.values()}) == 1
    assert [set(entry.values) for entry in found] == [{"ours", "peer"}] * 2


def test_a_case_that_comes_again_takes_the_place_of_what_it_was(tmp_path: Path) -> None:
    again = result(values={"bf16": [1.0, 2.0]})
    measuring.report([result(), again], tmp_path / "a.json")
    assert len(json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["results"]) == 1
    assert measuring.load(tmp_path / "a.json")[1][0].values == again.values


def test_memory_of_a_process_is_its_own(tmp_path: Path) -> None:
    script = tmp_path / "holds.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(machine.__file__).parent)!r}); import machine\n"
        "with machine.memory_of('json'):\n    held = bytearray(int(sys.argv[1]) * 2**20); del held\n",
        encoding="utf-8",
    )
    ballast = torch.ones(64 * 2**18)  # 64 MiB of the parent, which ru_maxrss of a child would begin with
    small, large = (machine.alone(str(script), mib)["mib"] for mib in (1, 60))
    assert ballast.sum() == 64 * 2**18
    assert 55 < large - small < 65


def test_paths_of_the_machine_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench/tokens.py", "/home/someone/pairs.tsv", "--json", "runs/a.json"])
    assert machine.about()["command"] == "python bench/tokens.py pairs.tsv --json runs/a.json"


def test_results_come_back_from_their_file_and_fill_the_page(tmp_path: Path) -> None:
    memory = result(unit="MiB", values={"bf16": [10.0], "peer": [30.0]}, is_less_better=True, notes={"seen": "it all"})
    measuring.report([result(), memory], tmp_path / "decoding.json")
    about, found = measuring.load(tmp_path / "decoding.json")
    assert [dataclasses.replace(entry, others=0.0) for entry in found] == [result(), memory]
    assert about["versions"]["torch"] == torch.__version__ and about["cores"] >= 1
    text = report.page(tmp_path, tmp_path / "images", "images")
    assert "| base | 8 | 1 | 220 ±45% (**2.00**) | 60 ±17% (3.14) | 100 ±5% (2.00) |" in text
    assert "| base | 8 | 1 | 10 (**3.00**) | 30 (3.00) |" in text
    assert "- size base, batch 8, beam 1, MiB: seen: it all" in text
    assert "## Generation" not in text
    picture = (tmp_path / "images" / report.PICTURE).read_text(encoding="utf-8")
    assert picture.startswith("<svg") and "fast peer" in picture


def test_company_is_what_others_took_of_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([(0.0, 10.0, 3.0), (10.0, 25.0, 13.0), (20.0, 25.0, 13.0)])
    monkeypatch.setattr(machine.Company, "_now", staticmethod(lambda: next(moments)))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    company = machine.Company()
    assert company.share() == 5 / 20  # of 20 seconds of processors, 15 were at work, 10 of them for us
    assert company.share() == 0


def test_a_result_from_a_busy_machine_says_so() -> None:
    assert "OTHER PROCESSES TOOK 25%" in result(others=0.25).line()
    assert "OTHER PROCESSES TOOK 25% OF THE PROCESSORS" in report.noted([result(others=0.25)])
    assert report.noted([result(others=0.01)]) == ""


def test_import_times_are_read_and_the_longest_comes_first() -> None:
    lines = "import time: self [us] | cumulative | imported package\n"
    lines += "import time:      1500 |       1500 |   json.decoder\nimport time:      2000 |       3500 | json\n"
    assert cold_start.parsed(lines + "Bonjour\n") == [("json", 2.0, 3.5), ("json.decoder", 1.5, 1.5)]


def test_only_one_size_grows() -> None:
    sizes = [growth.config_of("d_model", value) for value in (128, 256)]
    assert [(c.d_model, c.d_ff, c.n_heads, c.n_encoder_layers, length) for c, length in sizes] == [
        (128, 512, 2, 3, 64),
        (256, 1024, 4, 3, 64),
    ]
    config, length = growth.config_of("length", 512)
    assert length == 512 and config == growth.config_of("d_model", 256)[0]


def test_no_script_takes_the_name_of_a_folder_of_tests() -> None:
    scripts = {file.stem for file in Path(measuring.__file__).parent.glob("*.py")}
    assert "measuring" in scripts
    assert not scripts & {folder.name for folder in Path(__file__).parent.parent.iterdir()}
