"""`glassformer translate --server`: the lines of the local command, from a server, without torch."""

from __future__ import annotations

import io
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from glassformer.cli.texts import one_line
from glassformer.serve.client import MAX_TEXTS
from glassformer.serve.service import Service
from serve.serving import Running, running, translator, wait_until
from tasks.small_models import LONG
from training.runs import run_cli

TEXTS = [
    "",
    "we eat bread",
    "   ",
    "a",
    "\u200b",
    LONG,
    "a",
    "it is \u00e9t\u00e9",
    *[f"the cat {i}" for i in range(70)],
]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(url: str, *arguments: str, model: str = "models/en-fr") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(f"{t}\n" for t in TEXTS).encode())))
        code = run_cli(["translate", model, "--server", url, *arguments], monkeypatch)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call


def test_the_lines_are_those_of_the_local_command(server: Running, run: Run, tmp_path: Path) -> None:
    assert len(TEXTS) > MAX_TEXTS
    expected = [one_line(t.text) for t in translator().translate(TEXTS)]
    code, out, _ = run(server.url)
    assert (code, out.split("\n")[:-1]) == (0, expected)
    code, out, _ = run(server.url + "/", "we eat bread", "a", "--output", str(tmp_path / "out"))
    assert (code, out) == (0, "") and (tmp_path / "out").read_text().split("\n")[:-1] == [expected[1], expected[3]]


def test_several_translations_of_each(server: Running, run: Run) -> None:
    settings = replace(translator().generation, n_best=3)
    best = translator().translate(["we eat bread", "", "the cat"], generation=settings)
    assert [len(b.alternatives) for b in best] == [2, 0, 2]
    expected = [[one_line(t.text) for t in (b, *b.alternatives)] for b in best]
    expected[1] += ["", ""]  # so that every text has three lines
    _, out, _ = run(server.url, "we eat bread", "", "the cat", "--n-best", "3")
    assert out.split("\n")[:-1] == [line for lines in expected for line in lines]


@pytest.mark.parametrize("options", [["--beam", "2"], ["--json"], ["--strict"], ["--set", "top_k=1"], ["--attention"]])
def test_what_the_server_cannot_do_is_refused(run: Run, options: list[str]) -> None:
    code, out, err = run("http://127.0.0.1:9", "a", *options)
    assert code == 2 and not out and f"{options[0]} was given with --server" in err


def test_errors_say_what_to_do(server: Running, run: Run) -> None:
    code, _, err = run("http://127.0.0.1:9", "a")
    assert code == 2 and "http://127.0.0.1:9 cannot be used" in err and "glassformer serve" in err
    code, _, err = run("127.0.0.1:9", "a")
    assert code == 2 and "is no address of a server" in err
    code, _, err = run(server.url, "a", model="none")
    assert code == 2 and "The model 'none' does not exist" in err and "en-fr" in err


ODD: list[tuple[bytes, str]] = [
    (b"{}", "no list of translations: {}"),
    (b"[1]", "no list of translations: [1]"),
    (b"null", "no list of translations"),
    (b'{"choices": null}', "no list of translations"),
    (b'{"choices": []}', "no list of translations"),
    (b'{"choices": [{"index": 0}]}', "no list of translations"),
    (b'{"choices": [{"index": 5, "text": "a"}]}', "no list of translations"),
    (b'{"choices": [{"index": "0", "text": "a"}]}', "no list of translations"),
    (b'{"choices": [{"index": [], "text": "a"}]}', "no list of translations"),
    (b'{"choices": [{"index": 0, "text": null}]}', "no list of translations"),
    (b"<html>", "its answer is no JSON"),
    (b"\xff", "cannot be used"),
    (b"", "its answer is no JSON"),
]


@pytest.mark.parametrize(("body", "said"), ODD)
def test_an_answer_of_another_kind_is_an_error_in_words(run: Run, body: bytes, said: str) -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body) as url:
        code, out, err = run(url, "a")
    assert code == 2 and not out and said in err and "glassformer serve" in err


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_is_an_error_in_words(run: Run, answer: bytes) -> None:
    with answering(answer) as url:
        code, out, err = run(url, "a")
    assert code == 2 and not out and "cannot be used" in err


def test_an_odd_address_or_a_long_wait_is_an_error_in_words(run: Run) -> None:
    for url in ("http://127.0.0.1:port", "http://", "http://a b", "http://\u00e9\u0301" + "a" * 70):
        code, _, err = run(url, "a")
        assert code == 2 and "cannot be used" in err, url
    for wait in (b"86400", b"9" * 5000, b"\xb2", b"soon"):
        with answering(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: " + wait + b"\r\n\r\n") as url:
            code, _, err = run(url, "a")
        assert code == 2 and "answers 503" in err


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The address of something that reads a request and sends this."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_key_is_sent(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text("secret\n")

    def load(service: Service) -> None:
        service.models.add("en-fr", translator(), direction=("en", "fr"))

    with running(load, keys=str(tmp_path / "keys")) as locked:
        wait_until(lambda: locked.service.is_ready)
        code, _, err = run(locked.url, "a")
        assert code == 2 and "401" in err and "GLASSFORMER_KEY" in err
        assert run(locked.url, "a", "--key", "secret")[0] == 0
        monkeypatch.setenv("GLASSFORMER_KEY", "secret")
        assert run(locked.url, "a")[0] == 0


def test_torch_is_not_imported() -> None:
    code = (
        "import sys, glassformer.serve.client, glassformer.cli.translate;"
        "assert not {'torch', 'fastapi'} & set(sys.modules), 'too much'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
