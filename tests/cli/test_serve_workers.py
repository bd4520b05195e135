"""`glassformer serve --workers`: what is killed comes back, and the port stays open meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from serve.serving import free_port, wait_ready
from tasks.small_models import save_folder


def start(folder: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "glassformer", "serve", f"model={folder}", "--workers", "1", "--port", str(port)]
    with log.open("wb") as file:
        return subprocess.Popen(command, stderr=file, env=os.environ | {"OMP_NUM_THREADS": "1"})


def events(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]


def test_a_killed_worker_is_begun_anew_and_sigterm_ends_all(tmp_path: Path) -> None:
    log, port = tmp_path / "log", free_port()
    process = start(save_folder(tmp_path / "demo"), port, log)
    url, fields = f"http://127.0.0.1:{port}", {"q": "the cat", "source": "en", "target": "fr"}
    try:
        wait_ready(url, 120)
        before = httpx.post(url + "/translate", json=fields, timeout=60).json()
        (pid,) = [event["pid"] for event in events(log) if event["event"] == "worker"]
        os.kill(pid, signal.SIGKILL)
        wait_ready(url, 60)
        assert httpx.post(url + "/translate", json=fields, timeout=60).json() == before
        pids = [event["pid"] for event in events(log) if event["event"] == "worker"]
        assert len(pids) == 2 and pids[0] == pid != pids[1]
        killed = [event for event in events(log) if event["event"].startswith("a worker was killed")]
        assert [event["signal"] for event in killed] == [9]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not Path(f"/proc/{pids[1]}").exists()
    finally:
        process.kill()


def test_a_model_that_cannot_be_read_ends_all(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "demo")
    (folder / "model.safetensors").write_bytes(b"damaged")
    process = start(folder, free_port(), tmp_path / "log")
    try:
        assert process.wait(120) == 2
    finally:
        process.kill()
    text = (tmp_path / "log").read_text()
    assert "error: " in text and "Traceback" not in text
