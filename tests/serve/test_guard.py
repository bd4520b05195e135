"""Bodies, slow clients, names, origins, clients that leave."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from glassformer.config import ServeConfig
from glassformer.errors import ConfigError
from serve.serving import Running, running, wait_until

HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def strict() -> Iterator[Running]:
    """Small limits, so that they are met quickly."""
    settings = {"max_body_bytes": 2000, "read_timeout_s": 0.5, "max_connections": 60, "timeout_s": 1.0}
    with running(**settings, cors=("https://good.example",)) as server:
        yield server


def is_fine(server: Running) -> bool:
    answer = server.post("/translate", {"q": "a fish", "source": "en", "target": "fr"})
    return answer.status_code == 200 and bool(answer.json()["translatedText"])


@pytest.mark.parametrize(
    ("rest", "status"),
    [
        (b"Content-Length: 10000000000\r\n\r\n{", 413),
        (b"Content-Length: 50000\r\n\r\n" + b"x" * 50_000, 413),
        (b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n" + b"400\r\n" + b"x" * 1024, 413),
        (b"Content-Length: -5\r\n\r\n", 400),
        (b"Content-Length: five\r\n\r\n", 400),
        (b"Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\n{}", 415),
    ],
)
def test_bodies_are_bounded_before_they_are_read(strict: Running, rest: bytes, status: int) -> None:
    """S4: by their header, and chunk for chunk."""
    begin = time.monotonic()
    answer = strict.raw(HEAD + rest)
    assert answer.startswith(b"HTTP/1.1 %d" % status), answer
    assert time.monotonic() - begin < 3
    assert is_fine(strict)


def test_slow_clients_are_cut_by_an_absolute_deadline(strict: Running) -> None:
    """S5: a byte now and then does not keep a connection; others are served meanwhile."""
    connections = [socket.create_connection(("127.0.0.1", strict.port)) for _ in range(20)]
    begin = time.monotonic()
    for connection in connections[:10]:
        connection.sendall(b"GET / HTT")
    for connection in connections[10:]:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    assert is_fine(strict)

    def closed_after(connection: socket.socket) -> tuple[float, bytes]:
        connection.settimeout(0.1)
        heard = b""
        while time.monotonic() - begin < 20:
            try:
                connection.sendall(b"x")
                part = connection.recv(1000)
            except TimeoutError:
                continue
            except OSError:
                break
            heard += part
            if not part:
                break
        return time.monotonic() - begin, heard

    for connection in (connections[0], connections[-1]):
        seconds, heard = closed_after(connection)
        assert 0.3 < seconds < 15
    assert heard.startswith(b"HTTP/1.1 408") and b"within 0.5 seconds" in heard
    for connection in connections:
        connection.close()


def test_a_connection_may_rest_between_requests_but_not_within_one(strict: Running) -> None:
    """A client that keeps a connection for longer than it has time for headers must not meet its end."""
    connection = http.client.HTTPConnection("127.0.0.1", strict.port, timeout=10)
    for _ in range(2):
        connection.request("GET", "/languages")
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read()
        time.sleep(0.8)
    assert connection.sock is not None  # still the first one
    connection.sock.sendall(b"GET /lang")
    with contextlib.suppress(ConnectionResetError):
        assert connection.sock.recv(100) == b""
    connection.close()


def test_an_answer_that_takes_too_long_is_given_up(strict: Running) -> None:
    answer = strict.complete("a", "slow", max_tokens=5000)
    assert answer.status_code == 504
    assert answer.json()["error"]["message"] == "The answer took longer than 1 seconds."
    n_steps = strict.slow.n_steps
    time.sleep(0.2)
    assert strict.slow.n_steps <= n_steps + 1


def test_the_work_of_a_client_that_leaves_ends(server: Running) -> None:
    """S3: after the first piece of a stream, and while it waits for a whole answer; and nothing is left of it."""
    for is_stream in (True, False):
        body = {"model": "slow", "prompt": "a", "max_tokens": 5000, "stream": is_stream}
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            content = json.dumps(body).encode()
            head = HEAD.replace(b"/translate", b"/v1/completions") + b"Content-Length: %d\r\n\r\n" % len(content)
            before = server.slow.n_steps
            connection.sendall(head + content)
            wait_until(lambda before=before: server.slow.n_steps > before + 2)
            if is_stream:
                assert b"data: " in connection.recv(4096)
        metrics = server.service.metrics
        wait_until(lambda metrics=metrics: metrics.active._value.get() == 0, within_s=2)
        time.sleep(0.05)
        n_steps = server.slow.n_steps
        time.sleep(0.2)
        assert server.slow.n_steps == n_steps
    assert is_fine(server)


def test_others_are_answered_while_the_model_works(server: Running) -> None:
    """S13: health in a moment, and a second request beside a long one."""
    thread = threading.Thread(target=server.complete, args=("a", "slow"), kwargs={"max_tokens": 100})
    thread.start()
    seconds = []
    with httpx.Client(base_url=server.url) as client:
        while thread.is_alive():
            begin = time.monotonic()
            assert client.get("/health").json() == {"status": "ok"}
            seconds.append(time.monotonic() - begin)
            time.sleep(0.02)
    assert len(seconds) > 10 and sorted(seconds)[len(seconds) // 2] < 0.2


def test_origins(strict: Running, server: Running) -> None:
    """S8: no page may read an answer unless it was asked for, and then exactly that one."""
    header = "access-control-allow-origin"
    for origin in ("https://evil.example", "null", "http://localhost:3000", "https://good.example"):
        assert header not in server.get("/languages", headers={"Origin": origin}).headers
        answer = strict.get("/languages", headers={"Origin": origin})
        assert answer.headers.get(header) == (origin if "good" in origin else None)
        if "good" in origin:
            assert "Origin" in answer.headers["vary"]
        assert "access-control-allow-credentials" not in answer.headers
    preflight = {"Origin": "https://good.example", "Access-Control-Request-Method": "POST"}
    assert httpx.options(strict.url + "/translate", headers=preflight).status_code == 200


def test_any_origin_is_a_star_without_credentials() -> None:
    with running(lambda service: None, cors=("*",)) as server:
        answer = server.get("/health", headers={"Origin": "https://evil.example", "Cookie": "a=b"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers


def test_other_names_of_the_host_are_refused(server: Running) -> None:
    """S8: a name that an attacker's DNS points here."""
    for host, status in (
        ("evil.example", 421),
        ("localhost:1", 200),
        ("[::1]:80", 200),
        ("127.0.0.1.evil.example", 421),
    ):
        assert server.get("/health", headers={"Host": host}).status_code == status
    assert b"421" in server.raw(b"GET /health HTTP/1.0\r\n\r\n")


def test_a_json_text_in_a_form_that_needs_no_preflight_is_refused(server: Running) -> None:
    body = b'{"q": "a", "source": "en", "target": "fr"}'
    for path in ("/translate", "/v1/completions", "/v2/translate"):
        answer = httpx.post(server.url + path, content=body, headers={"Content-Type": "text/plain"})
        assert answer.status_code == 415, path


def test_until_the_models_are_loaded_it_is_alive_but_not_ready() -> None:
    waits = threading.Event()
    with running(lambda service: waits.wait(20) and None) as server:
        assert server.get("/health").status_code == 200
        assert server.get("/ready").status_code == 503
        answer = server.complete("a")
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["code"] == "loading"
        waits.set()
        wait_until(lambda: server.get("/ready").status_code == 200)


def test_the_defaults_are_closed() -> None:
    config = ServeConfig()
    assert config.host == "127.0.0.1" and config.cors == () and config.keys is None


@pytest.mark.parametrize("wrong", [{"port": 70_000}, {"timeout_s": float("nan")}, {"threads": 0}, {"rate": -1}])
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ServeConfig(**wrong)  # type: ignore[arg-type]
