"""`glassformer serve` as a process: flags, environment, a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from glassformer.cli.serve import command
from glassformer.config import ServeConfig, field_comments
from glassformer.errors import UserError
from glassformer.model.quantized import Int8Linear
from glassformer.serve.models import names_of
from glassformer.serve.service import Service
from serve.serving import free_port, wait_ready
from tasks.small_models import save_folder


def test_sigterm_ends_what_was_accepted_and_exits_with_0(tmp_path: Path) -> None:
    """And the log holds no text of a user, the flags come from the environment."""
    folder, port = save_folder(tmp_path / "demo"), free_port()
    text = "the cat eats a fish and a secret. " * 40
    process = subprocess.Popen(
        [sys.executable, "-m", "glassformer", "serve", f"model={folder}"],
        env=os.environ | {"GLASSFORMER_PORT": str(port), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + 90
        wait_ready(url, within_s=90)
        answers: list[httpx.Response] = []

        def ask() -> None:
            fields = {"q": text, "source": "en", "target": "fr"}
            answers.append(httpx.post(url + "/translate", json=fields, timeout=60))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        while "requests_active 5.0" not in httpx.get(url + "/metrics").text and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(60)
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, log
    assert [answer.status_code for answer in answers] == [200] * 4
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {"ready", "request"} <= {line["event"] for line in lines}
    assert "secret" not in log and "127.0.0.1" not in "".join(log.splitlines()[1:])


def test_every_setting_is_a_flag_with_its_comment() -> None:
    help_text = " ".join(CliRunner().invoke(command, ["--help"], terminal_width=10_000).output.split())
    for name, comment in field_comments(ServeConfig).items():
        assert f"--{name.replace('_', '-')}" in help_text
        assert " ".join(comment.split()) in help_text, name


def test_models_are_loaded_in_the_precision_asked_for(tmp_path: Path) -> None:
    service = Service(ServeConfig(precision="int8"))
    service.models.load({"demo": save_folder(tmp_path / "demo")})
    try:
        (served,) = service.models.all.values()
        assert any(isinstance(module, Int8Linear) for module in served.task.model.modules())
    finally:
        service.close()
    wrong = CliRunner().invoke(command, [str(tmp_path / "demo"), "--precision", "int4"])
    assert wrong.exit_code == 2 and "'float32', 'bf16', 'int8'" in wrong.output


def test_names_of_models(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    assert names_of([str(tmp_path / "a"), f"x={tmp_path / 'b'}"]) == {"a": tmp_path / "a", "x": tmp_path / "b"}
    for wrong in ([f"a={tmp_path / 'b'}", str(tmp_path / "a")], [str(tmp_path / "none")], [f"={tmp_path / 'a'}"]):
        with pytest.raises(UserError):
            names_of(wrong)


def test_a_folder_that_cannot_be_served_ends_the_command(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "demo")
    (folder / "model.safetensors").write_bytes(b"damaged")
    done = subprocess.run(
        [sys.executable, "-m", "glassformer", "serve", str(folder), "--port", str(free_port())],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and "error: " in done.stderr


def test_no_key_in_the_file_opens_no_door(tmp_path: Path) -> None:
    """S9: an empty file of keys would let everyone in."""
    from glassformer.serve.limits import Keys

    (tmp_path / "keys").write_text("\n \n")
    for path in (tmp_path / "keys", tmp_path / "none"):
        with pytest.raises(UserError, match="keys="):
            Keys.load(str(path))
    assert not Keys([]) and Keys([]).allow(None)
    keys = Keys(["one", "two"])
    assert keys.allow("one") and keys.allow("two") and not any(map(keys.allow, ("", "o", None)))
