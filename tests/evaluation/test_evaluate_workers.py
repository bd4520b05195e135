"""`glassformer evaluate --workers`: a model in several processes is scored as in one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.small_models import save_folder
from training.runs import run_cli


def test_workers_change_no_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = save_folder(tmp_path / "m"), tmp_path / "data.tsv"
    data.write_text("".join(f"we eat {i} breads\tnous mangeons {i} pains\n" for i in range(300)), encoding="utf-8")
    reports = []
    for workers in ("1", "2"):
        options = ["--json", "--no-ter", "--out", str(tmp_path / workers), "--workers", workers]
        assert run_cli(["evaluate", str(model), str(data), *options], monkeypatch) == 0
        out, err = capsys.readouterr()
        assert "300 of 300" in err
        reports.append(json.loads(out))
    one, two = [(tmp_path / name / "hypotheses.txt").read_text(encoding="utf-8") for name in "12"]
    assert one == two and len(set(one.splitlines())) > 3
    assert reports[0]["scores"] == reports[1]["scores"]
