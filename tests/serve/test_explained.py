"""X-Explain: a request is kept where the operator allows it, and its report is made later."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from glassformer.errors import UserError
from glassformer.serve import explained
from glassformer.serve.explained import read_request
from glassformer.serve.models import task_of
from glassformer.serve.service import Service
from glassformer.tasks.model_folder import load_model_folder
from serve.serving import Running, generator, running, wait_until
from tasks.small_models import save_folder
from training.runs import run_cli

ASKS = {"X-Explain": "1"}
TEXT = "the cat eats a fish"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("kept")
    folder = save_folder(path / "demo")

    def load(service: Service) -> None:
        task = task_of(load_model_folder(folder))
        service.models.add("demo", task, direction=("en", "fr"), path=folder)
        service.models.add("lm", generator(), path=folder)

    with running(load, explain_log=str(path / "log" / "texts")) as server:
        wait_until(lambda: server.service.is_ready)
        yield server, path / "log" / "texts"


def asked(server: Running, path: str, content: dict[str, Any], headers: dict[str, str] = ASKS) -> Any:
    return server.post(path, content, headers=headers)


BODIES = {
    "/translate": {"q": TEXT, "source": "en", "target": "fr"},
    "/v2/translate": {"text": [TEXT], "source_lang": "EN", "target_lang": "FR"},
    "/v1/completions": {"model": "demo", "prompt": TEXT},
    "/v1/chat/completions": {"model": "demo", "messages": [{"role": "user", "content": TEXT}]},
}


@pytest.mark.parametrize("path", BODIES)
def test_what_is_kept_is_what_was_asked(kept: tuple[Running, Path], path: str) -> None:
    server, folder = kept
    answer = asked(server, path, BODIES[path])
    assert answer.status_code == 200
    name = answer.headers["X-Explain-Id"]
    content = read_request(folder, name)
    assert content["text"] == TEXT and Path(content["folder"]).name == "demo" and content["target"] is None
    assert content["generation"].beam_size == server.service.models.all["demo"].task.generation.beam_size
    file = folder / f"{name}.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(folder.stat().st_mode) == 0o700
    n_files = len(list(folder.iterdir()))
    assert "X-Explain-Id" not in asked(server, path, BODIES[path], {}).headers
    assert len(list(folder.iterdir())) == n_files


def test_the_report_is_made_of_the_request(
    kept: tuple[Running, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    server, folder = kept
    answers = [
        asked(server, "/v1/completions", {"model": "demo", "prompt": TEXT, "temperature": temperature, "seed": 3})
        for temperature in (0, 0.8)
    ]
    for answer in answers:
        page = tmp_path / "report.json"
        run = ["explain", "--request", answer.headers["X-Explain-Id"], "--log", str(folder), "--json", str(page)]
        assert run_cli(run, monkeypatch) == 0, capfd.readouterr().err
        report = json.loads(page.read_text())
        assert report["text"] == TEXT and report["output"].strip() == answer.json()["choices"][0]["text"].strip()
    assert answers[0].json()["choices"] != answers[1].json()["choices"]


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("/translate", {"q": [TEXT, TEXT]}),
        ("/translate", {"q": f"{TEXT}\n{TEXT}"}),
        ("/translate", {"format": "html"}),
        ("/v1/completions", {"prompt": [TEXT, TEXT]}),
        ("/v1/completions", {"prompt": " "}),
        ("/v1/completions", {"stream": True}),
        ("/v1/completions", {"model": "lm", "temperature": 1}),
    ],
)
def test_what_cannot_be_explained_is_refused(kept: tuple[Running, Path], path: str, changes: dict[str, Any]) -> None:
    server, folder = kept
    n_files = len(list(folder.iterdir()))
    answer = asked(server, path, BODIES[path] | changes)
    assert answer.status_code == 400 and "X-Explain" in answer.text
    assert len(list(folder.iterdir())) == n_files


def test_nothing_is_kept_unless_the_operator_says_so(server: Running) -> None:
    answer = asked(server, "/translate", BODIES["/translate"])
    assert answer.status_code == 400 and "--explain-log" in answer.text


@pytest.mark.parametrize("name", ["../secret", "a" * 31, "A" * 32, "0" * 32, "", f"{'0' * 31}/", f"{'0' * 32}\n"])
def test_no_id_leads_out_of_the_folder(kept: tuple[Running, Path], name: str) -> None:
    (kept[1].parent / "secret.json").write_text("{}")
    with pytest.raises(UserError):
        read_request(kept[1], name)


def test_the_oldest_make_room(kept: tuple[Running, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    server, folder = kept
    monkeypatch.setattr(explained, "MAX_KEPT", 3)
    names = [asked(server, "/translate", BODIES["/translate"]).headers["X-Explain-Id"] for _ in range(5)]
    assert {file.stem for file in folder.iterdir()} == set(names[-3:])


def test_usage_counts_the_characters_of_a_key(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one\ntwo\n")

    def load(service: Service) -> None:
        service.models.add("demo", task_of(load_model_folder(save_folder(tmp_path / "demo"))), direction=("en", "fr"))

    with running(load, keys=str(tmp_path / "keys")) as server:
        wait_until(lambda: server.service.is_ready)
        first, second = ({"Authorization": f"DeepL-Auth-Key {key}"} for key in ("one", "two"))
        for headers, n in ((first, 2), (second, 1)):
            for _ in range(n):
                assert asked(server, "/v2/translate", BODIES["/v2/translate"], headers).status_code == 200
        used = [server.get("/v2/usage", headers=headers).json()["character_count"] for headers in (first, second)]
    assert used == [2 * len(TEXT), len(TEXT)]
