"""Medians, ratios within rounds, turns, files of results and their page, worked out by hand. Nothing is timed."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import cold_start
import growth
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


def test_ways_take_turns_and_the_first_round_is_not_counted() -> None:
    calls: list[str] = []
    ways = {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"}
    seconds, first = measuring.take_turns(ways, 2)
    assert calls == ["a", "b"] * 3
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}
    assert first == {"a": 1, "b": 2}


def test_memory_of_a_process_is_its_own(tmp_path: Path) -> None:
    script = tmp_path / "holds.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(measuring.__file__).parent)!r}); import measuring\n"
        "with measuring.memory_of('json'):\n    held = bytearray(int(sys.argv[1]) * 2**20); del held\n",
        encoding="utf-8",
    )
    ballast = torch.ones(64 * 2**18)  # 64 MiB of the parent, which ru_maxrss of a child would begin with
    small, large = (measuring.alone(str(script), mib)["mib"] for mib in (1, 60))
    assert ballast.sum() == 64 * 2**18
    assert 55 < large - small < 65


def test_paths_of_the_machine_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench/tokens.py", "/home/someone/pairs.tsv", "--json", "runs/a.json"])
    assert measuring.about()["command"] == "python bench/tokens.py pairs.tsv --json runs/a.json"


def test_results_come_back_from_their_file_and_fill_the_page(tmp_path: Path) -> None:
    memory = result(unit="MiB", values={"bf16": [10.0], "peer": [30.0]}, is_less_better=True, notes={"seen": "it all"})
    measuring.report([result(), memory], tmp_path / "decoding.json")
    about, found = measuring.load(tmp_path / "decoding.json")
    assert [dataclasses.replace(entry, others=0.0) for entry in found] == [result(), memory]
    assert about["versions"]["torch"] == torch.__version__ and about["cores"] >= 1
    text = report.page(tmp_path, tmp_path / "images", "images")
    assert "| base | 8 | 1 | 220 ±45% (**2.00**) | 60 ±17% | 100 ±5% |" in text
    assert "| base | 8 | 1 | 10 (**3.00**) | 30 |" in text
    assert "- size base, batch 8, beam 1: seen: it all" in text
    assert "## Generation" not in text
    picture = (tmp_path / "images" / report.PICTURE).read_text(encoding="utf-8")
    assert picture.startswith("<svg") and "fast peer" in picture


def test_company_is_what_others_took_of_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([(0.0, 10.0, 3.0), (10.0, 25.0, 13.0), (20.0, 25.0, 13.0)])
    monkeypatch.setattr(measuring.Company, "_now", staticmethod(lambda: next(moments)))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    company = measuring.Company()
    assert company.share() == 5 / 20  # of 20 seconds of processors, 15 were at work, 10 of them for us
    assert company.share() == 0


def test_a_result_from_a_busy_machine_says_so() -> None:
    assert "OTHER PROCESSES TOOK 25%" in result(others=0.25).line()
    assert "other processes took 25% of the processors" in report.noted([result(others=0.25)])
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
