"""/translate_file and /download_file of LibreTranslate's protocol, and where the files are meanwhile."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from glassformer.serve.documents.formats import FORMATS
from glassformer.serve.downloads import Downloads
from glassformer.serve.refusal import Refusal
from serve.every_kind import speaker
from serve.office import docx, entries, odt, run
from serve.serving import Running, running, wait_until

TEXT = "the cat eats a fish"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """Its translators write nothing but letters."""

    def load(service: Any) -> None:
        service.models.add("en-fr", speaker(), direction=("en", "fr"))
        service.models.add("fr-de", speaker(), direction=("fr", "de"))

    with running(load, max_chars=2000) as server:
        wait_until(lambda: server.service.is_ready)
        yield server


def send(server: Running, name: str, content: bytes, **fields: str) -> httpx.Response:
    data = {"source": "en", "target": "fr"} | fields
    return httpx.post(server.url + "/translate_file", files={"file": (name, content)}, data=data, timeout=60)


def fetch(server: Running, name: str, content: bytes, **fields: str) -> bytes:
    answer = send(server, name, content, **fields)
    assert answer.status_code == 200, answer.text
    url = answer.json()["translatedFileUrl"]
    assert url.startswith(server.url + "/download_file/")
    return httpx.get(url).content


def translated(text: str) -> str:
    return speaker().translate([text])[0].text


def test_each_format_comes_back_translated(server: Running) -> None:
    french = translated(TEXT)
    assert fetch(server, "a.txt", f"{TEXT}\n\n  {TEXT}\n".encode()).decode() == f"{french}\n\n  {french}\n"
    assert fetch(server, "a.HTML", f"<p class=x>{TEXT}</p>".encode()).decode() == f"<p class=x>{french}</p>"
    times = "1\n00:00:01,000 --> 00:00:02,500\n"
    assert fetch(server, "a.srt", f"{times}{TEXT}\n\n".encode()).decode() == f"{times}{french}\n\n"
    word = fetch(server, "a.docx", docx(f"<w:p>{run('the cat ')}{run('eats a fish')}</w:p>"))
    assert f">{french}</w:t>".encode() in entries(word)["word/document.xml"]
    text = fetch(server, "a.odt", odt(f"<text:p>{TEXT}</text:p>"))
    assert f"<text:p>{french}</text:p>".encode() in entries(text)["content.xml"]


def test_formats_go_where_their_words_went(server: Running) -> None:
    bold = fetch(server, "a.docx", docx(f"<w:p>{run('the ')}{run('cat', '<w:b/>')}{run(' eats a fish')}</w:p>"))
    runs = re.findall(r"<w:r>(.*?)</w:r>", entries(bold)["word/document.xml"].decode())
    texts = ["".join(re.findall(r">([^<]*)</w:t>", run)) for run in runs]
    assert "".join(texts) == translated(TEXT)
    assert [text for text, run in zip(texts, runs, strict=True) if "<w:b/>" in run and text.strip()]


def test_the_language_is_detected_and_over_a_third_language(server: Running) -> None:
    english = "The weather is nice today, and we go out."
    assert fetch(server, "a.txt", english.encode(), source="auto").decode() == translated(english)
    german = fetch(server, "a.txt", TEXT.encode(), target="de").decode()
    assert german == translated(translated(TEXT))
    assert fetch(server, "a.txt", TEXT.encode(), target="en").decode() == TEXT
    assert fetch(server, "a.txt", b"\n***\n", source="auto").decode() == "\n***\n"


def test_the_download_is_a_file_and_no_page(server: Running) -> None:
    url = send(server, "../Mon été & moi.html", b"<script>alert(1)</script>").json()["translatedFileUrl"]
    answer = httpx.get(url)
    assert answer.content == b"<script>alert(1)</script>"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''Mon_%C3%A9t%C3%A9_moi_fr.html"
    assert answer.headers["content-security-policy"] == "sandbox"
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cache-control"] == "no-store"
    answer = httpx.post(
        server.url + "/translate_file",
        files={"file": ("a.txt", b"")},
        data={"source": "en", "target": "fr"},
        headers={"X-Forwarded-Proto": "https"},
    )
    assert answer.json()["translatedFileUrl"].startswith(server.url.replace("http:", "https:"))


@pytest.mark.parametrize(
    ("name", "content", "fields", "status", "error"),
    [
        ("a.pdf", b"a", {}, 400, "Invalid request: file format not supported"),
        ("docx", b"a", {}, 400, "Invalid request: file format not supported"),
        ("a.txt", b"a", {"target": ""}, 400, "Invalid request: missing target parameter"),
        ("a.txt", b"a", {"source": ""}, 400, "Invalid request: missing source parameter"),
        ("a.txt", b"a", {"target": "zz"}, 400, "zz is not supported"),
        ("a.txt", b"a", {"source": "de"}, 400, "French (fr) is not available as a target language from German (de)"),
        ("a.txt", b"a b " * 600, {}, 400, "Invalid request: request (2399) exceeds text limit (2000)"),
        ("a.txt", b"\xff\xff", {}, 400, "file: it is no text in utf-8."),
        ("a.docx", b"nothing", {}, 400, "file: it is no document that can be read"),
        ("a.docx", bytes(10_485_761), {}, 413, "The file is larger than 10485760 bytes."),
        ("a.docx", bytes(10_600_000), {}, 413, "The body is larger than 10502144 bytes."),
    ],
)
def test_errors(server: Running, name: str, content: bytes, fields: dict[str, str], status: int, error: str) -> None:
    answer = send(server, name, content, **fields)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(error)


def test_what_is_no_file(server: Running) -> None:
    url = server.url + "/translate_file"
    fields = {"source": "en", "target": "fr"}
    assert httpx.post(url, data=fields).json()["error"] == "Invalid request: missing file parameter"
    assert httpx.post(url, json=fields | {"file": "a"}).json()["error"] == "Invalid request: missing file parameter"
    two = [("file", ("a.txt", b"a")), ("file", ("b.txt", b"b"))]
    assert httpx.post(url, data=fields, files=two).json()["error"] == "file: a text was expected, not a file."
    broken = httpx.post(url, content=b"--x\r\nnothing", headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert broken.status_code == 400
    elsewhere = httpx.post(server.url + "/translate", data=fields | {"q": "a"}, files={"file": ("a.txt", b"a")})
    assert elsewhere.status_code == 400
    for name in ("nothing", "0" * 32 + ".a_fr.txt", "..%2F..%2Fetc%2Fpasswd", "0" * 32 + ".%2F.txt"):
        assert httpx.get(f"{server.url}/download_file/{name}").status_code == 404


def test_settings_tell_the_formats_and_it_can_be_turned_off(server: Running) -> None:
    settings = server.get("/frontend/settings").json()
    assert settings["filesTranslation"] is True
    assert settings["supportedFilesFormat"] == [".txt", ".html", ".srt", ".docx", ".odt"] == list(FORMATS)
    with running(lambda service: None, max_file_bytes=0) as closed:
        wait_until(lambda: closed.service.is_ready)
        settings = closed.get("/frontend/settings").json()
        assert settings["filesTranslation"] is False and settings["supportedFilesFormat"] == []
        for answer in (send(closed, "a.txt", b"a"), closed.get("/download_file/a")):
            assert answer.status_code == 403
            assert answer.json() == {"error": "Files translation are disabled on this server."}


def test_few_documents_are_held_at_a_time(server: Running) -> None:
    waits = threading.Event()
    plain = FORMATS[".txt"]

    def slow(content: bytes) -> Any:
        waits.wait(20)
        return plain(content)

    FORMATS[".txt"] = slow
    try:
        answers: list[httpx.Response] = []
        threads = [threading.Thread(target=lambda: answers.append(send(server, "a.txt", b"a"))) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.service.metrics.active._value.get() == 4)
        busy = send(server, "a.txt", b"a")
        waits.set()
        for thread in threads:
            thread.join()
    finally:
        FORMATS[".txt"] = plain
    assert busy.status_code == 503 and int(busy.headers["retry-after"]) >= 1
    assert [answer.status_code for answer in answers] == [200] * 4


def test_files_are_the_owners_and_go_with_the_server() -> None:
    downloads = Downloads()
    stored = downloads.keep(b"one", "a/../b c", ".txt")
    assert re.fullmatch(r"[0-9a-f]{32}\.a_b_c\.txt", stored) and downloads.read(stored) == b"one"
    assert downloads._folder is not None
    folder = downloads._folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and stat.S_IMODE((folder / stored).stat().st_mode) == 0o600
    downloads.close()
    assert not folder.exists()
    with pytest.raises(Refusal, match="no such file"):
        downloads.read(stored)


def test_files_are_deleted_when_their_time_is_up_or_room_is_needed(tmp_path: Path) -> None:
    downloads = Downloads(tmp_path, keep_s=60, max_bytes=10)
    first, second = downloads.keep(b"12345", "a", ".txt"), downloads.keep(b"12345", "b", ".txt")
    os.utime(tmp_path / first, (time.time() - 30,) * 2)
    assert (downloads.read(first), downloads.read(second)) == (b"12345", b"12345")
    third = downloads.keep(b"1", "c", ".txt")
    assert {file.name for file in tmp_path.iterdir()} == {second, third}
    os.utime(tmp_path / second, (time.time() - 61,) * 2)
    assert Downloads(tmp_path, keep_s=60).read(third) == b"1"  # another process clears them too
    assert {file.name for file in tmp_path.iterdir()} == {third}
    with pytest.raises(Refusal, match="no such file"):
        downloads.read(second)


def test_files_are_deleted_also_when_nobody_comes_any_more(tmp_path: Path) -> None:
    downloads = Downloads(tmp_path, keep_s=-0.9)  # a tenth of a second from now

    async def keep() -> None:
        downloads.keep(b"1", "a", ".txt")
        downloads.clear_later()
        assert len(list(tmp_path.iterdir())) == 1
        await asyncio.sleep(0.3)

    asyncio.run(keep())
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no room") as caught:
        Downloads(tmp_path / "missing").keep(b"1", "a", ".txt")
    assert caught.value.status == 503
