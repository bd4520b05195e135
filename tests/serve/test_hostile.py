"""Malformed and greedy requests: a clear 4xx in the form of the protocol, never a 500, and the next request is fine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve.serving import Running, running

BODIES: list[bytes] = [
    b"", b"{", b"null", b"[]", b'"x"', b"1", b"{}", b'{"q": null}', b'{"q": 5}', b'{"q": []}', b'{"q": {"a": 1}}',
    b'{"q": ["a", 1], "source": "en", "target": "fr"}', b'{"q": "a", "q": "b", "source": "en", "target": "fr"}',
    b'{"q": "a", "source": "en", "target": 5}', b'{"q": "a", "source": "en", "target": "zz"}',
    b'{"q": "a", "source": "en", "target": "fr", "alternatives": true}',
    b'{"q": "a", "source": "en", "target": "fr", "alternatives": NaN}',
    b'{"q": "a", "source": "en", "target": "fr", "alternatives": 1e999}',
    b'{"q": "a", "source": "en", "target": "fr", "alternatives": 1' + b"0" * 5000 + b"}",
    b'{"q": "a", "source": "en", "target": "fr", "alternatives": 10000}',
    b'{"q": "a", "source": "en", "target": "fr", "alternatives": -1}',
    b'{"q": "a", "source": "en", "target": "fr", "format": "pdf"}',
    b'{"q": "emoji \\ud83d", "source": "en", "target": "fr"}', b'{"q": "\\ude00 x", "source": "en", "target": "fr"}',
    b'{"q": "a", "source": "\\ud83d", "target": "fr"}', b'{"\\ud83d": "a"}',
    b'{"q": "a", "source": "en", "target": "fr", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    '{"q": "a"}'.encode("utf-16"), b'{"q": "\xe9"}', b'\xef\xbb\xbf{"q": "a"}',
    json.dumps({"q": ["a"] * 1000, "source": "en", "target": "fr"}).encode(),
    json.dumps({"q": "a" * 60_000, "source": "en", "target": "fr"}).encode(),
]  # fmt: skip
PATHS = ["/translate", "/detect", "/v2/translate", "/v1/completions", "/v1/chat/completions", "/v1/embeddings"]


def message(path: str, answer: httpx.Response) -> str:
    """The text of an error, which has the form of its protocol."""
    content = answer.json()
    if path.startswith("/v1/"):
        assert set(content["error"]) == {"message", "type", "param", "code"}
        text = content["error"]["message"]
    else:
        (text,) = (content["message"],) if path.startswith("/v2/") else (content["error"],)
    assert isinstance(text, str) and text and "Traceback" not in text and "/work" not in text and ".py" not in text
    return text


def is_fine(server: Running) -> bool:
    answer = server.post("/translate", {"q": "a fish \U0001f41f", "source": "en", "target": "fr"})
    return answer.status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_malformed_bodies_are_400(server: Running, path: str) -> None:
    """S10, S12, S6: what is no strict JSON, and what is of the wrong type."""
    with httpx.Client(base_url=server.url, headers={"Content-Type": "application/json"}) as client:
        for body in BODIES:
            if path == "/detect" and b'"q": "a' in body and b"\\u" not in body:
                continue  # right for this path
            answer = client.post(path, content=body)
            assert answer.status_code in (400, 404, 413), (body[:60], answer.text)
            message(path, answer)
    assert is_fine(server)


def test_the_field_is_named(server: Running) -> None:
    answer = server.post("/translate", {"q": "a", "source": "en", "target": "fr", "alternatives": "x"})
    assert "alternatives" in answer.json()["error"]
    answer = httpx.post(
        server.url + "/translate",
        content=b'{"q": "\\ud83d", "source": "en", "target": "fr"}',
        headers={"Content-Type": "application/json"},
    )
    assert answer.json()["error"].startswith("q: ")


WRONG: dict[str, list[Any]] = {
    "max_tokens": [10**9, -1, 0, 1.5, "5", True],
    "n": [0, 10**6, "2", True],
    "temperature": [-1, 1e308, "hot", True],
    "top_p": [2, 0, -1],
    "top_k": [-2, 1.5],
    "min_p": [2],
    "stop": [["x"] * 100_000, "x" * 1_000_000, "", [1], 5],
    "seed": [1.5, 2**70],
    "best_of": [3],
    "logprobs": [-1, 100, True],
    "suffix": ["x"],
    "presence_penalty": [1],
    "logit_bias": [{"5": 1}],
    "stream_options": [{"include_usage": True}, 5],
    "repetition_penalty": [0, -1, 1e9],
    "length_penalty": [1e5],
    "use_beam_search": ["yes"],
    "prompt": [[], [1, 2], [[1]], 5, None],
    "stream": ["true", 1],
}


@pytest.mark.parametrize("name", WRONG)
def test_nonsense_parameters_are_400_with_their_name(server: Running, name: str) -> None:
    """S7."""
    for value in WRONG[name]:
        fields = {"model": "lm", "prompt": "a", name: value}
        answer = server.post("/v1/completions", fields)
        assert answer.status_code in (400, 413), (value, answer.text[:200])
        if answer.status_code == 400:
            assert name in message("/v1/completions", answer) or (name == "stop" and value == "")
    assert is_fine(server)


def test_limits_hold_for_the_product(server: Running) -> None:
    answer = server.complete(["a"] * 100, n=10, max_tokens=100)
    assert answer.status_code == 400
    assert "1000 texts x 100 tokens are asked for; at most 32768" in answer.json()["error"]["message"]
    answer = server.complete("a", use_beam_search=True, n=12)
    assert answer.status_code == 400 and "at most 11" in answer.json()["error"]["message"]
    answer = server.complete("a", use_beam_search=True, stream=True)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "stream"
    answer = server.complete("a " * 3000)
    assert answer.status_code == 400 and "max_positions=2000" in answer.json()["error"]["message"]


def test_unknown_fields_are_listed(server: Running) -> None:
    fields = {"q": "a", "source": "en", "target": "fr", "beems": 5, "x\ny": 1}
    assert server.post("/translate", fields).headers["x-ignored-fields"] == "beems"


def test_numbers_that_json_has_not_are_not_sent(server: Running) -> None:
    """S6: also where a rule leaves one token alone."""
    for settings in ({"top_k": 1}, {"temperature": 0}, {"top_p": 1e-9}, {"min_p": 1.0}):
        answer = server.complete(["a", ""], logprobs=1, max_tokens=5, **settings)
        assert answer.status_code == 200
        content = json.loads(answer.text, parse_constant=lambda name: pytest.fail(name))
        for choice in content["choices"]:
            assert all(-9999.0 <= x <= 0 for x in choice["logprobs"]["token_logprobs"])


def test_paths_and_methods(server: Running) -> None:
    for method, path, status in (
        ("GET", "/none", 404),
        ("GET", "/translate", 405),
        ("GET", "/detect", 405),
        ("POST", "/languages", 405),
        ("POST", "/health", 405),
        ("PUT", "/v1/completions", 405),
        ("DELETE", "/v2/translate", 405),
        ("GET", "/v1/models/none", 404),
        ("GET", "/" + "x" * 5000, 404),
    ):
        answer = httpx.request(method, server.url + path)
        assert answer.status_code == status, (method, path)
        message(path, answer)
    long = server.raw(b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert long == b"" or long.startswith(b"HTTP/1.1 400")
    assert is_fine(server)


def test_every_route_asks_for_the_key(tmp_path: Path) -> None:
    """S9: all routes but those that clients ask without one; each wrong key gets the same answer."""
    (tmp_path / "keys").write_text("the secret key\n")
    public = {"/health", "/ready", "/spec", "/languages", "/frontend/settings", "/download_file/{name}"}
    with running(keys=str(tmp_path / "keys"), rate=1000) as server:
        routes = [(path, method) for path, methods in server.get("/spec").json()["paths"].items() for method in methods]
        assert len(routes) >= 14
        for path, method in routes:
            if path in public:
                continue
            answers = set()
            for key in (None, "the", "The secret key", "the secret key!", "wrong", "é"):
                headers = {} if key is None else {"Authorization": f"{_scheme(path)} {key}".encode()}
                answer = httpx.request(method, server.url + path.replace("{name}", "lm"), headers=headers)
                assert answer.status_code in (400, 401, 403), (path, key)
                assert "secret" not in answer.text
                answers |= {(answer.status_code, answer.text)} if key is not None else set()
            assert len(answers) == 1, path
        headers = {"Authorization": "Bearer the secret key"}
        metrics = server.get("/metrics", headers=headers).text
        assert "secret" not in metrics and 'route="/v1/completions",status="401"' in metrics
        assert server.get("/languages").status_code == 200


def _scheme(path: str) -> str:
    return "DeepL-Auth-Key" if path.startswith("/v2/") else "Bearer"


def test_rates_are_counted_for_each_key(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one\ntwo\n")
    with running(keys=str(tmp_path / "keys"), rate=2) as server:
        fields = {"q": "a fish", "source": "en", "target": "fr"}
        codes = [
            server.post("/translate", fields | {"api_key": key}).status_code for key in ("one", "one", "one", "two")
        ]
        assert codes == [200, 200, 429, 200]
        answer = server.post("/translate", fields | {"api_key": "one"})
        assert answer.json()["error"] == "Slowdown: 2 per 1 minute" and 1 <= int(answer.headers["retry-after"]) <= 30


def test_guesses_of_keys_are_counted_for_their_address(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one\n")
    with running(keys=str(tmp_path / "keys"), rate=3) as server:
        fields = {"q": "a fish", "source": "en", "target": "fr"}
        guesses = [{"api_key": "two"}, {}, {"api_key": "three"}, {"api_key": "four"}]
        assert [server.post("/translate", fields | guess).status_code for guess in guesses] == [403, 400, 403, 429]
        assert server.post("/translate", fields | {"api_key": "one"}).status_code == 200
