"""LibreTranslate's protocol, field by field."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from serve.serving import Running, translator

TEXT = "the cat eats a fish"
LONG = "The weather is nice today, and we go out."


def ask(server: Running, **fields: Any) -> httpx.Response:
    return server.post("/translate", {"source": "en", "target": "fr"} | fields)


def texts_of(text: str, n: int = 1) -> list[str]:
    return [t.text for t in translator().translate([text])][:n]


def test_one_text_and_a_batch_in_its_order(server: Running) -> None:
    assert ask(server, q=TEXT).json() == {"translatedText": texts_of(TEXT)[0]}
    batch = [TEXT, "", "a fish", "\U0001f41f \n", TEXT]
    expected = [texts_of(TEXT)[0], "", texts_of("a fish")[0], "\U0001f41f \n", texts_of(TEXT)[0]]
    assert ask(server, q=batch).json() == {"translatedText": expected}


def test_form_and_query_are_read_together(server: Running) -> None:
    for options in (
        {"data": {"q": TEXT, "source": "en", "target": "fr"}},
        {"params": {"q": TEXT, "source": "EN", "target": "fr"}},
        {"params": {"source": "en", "target": "fr"}, "data": {"q": TEXT, "alternatives": "0"}},
    ):
        answer = httpx.post(server.url + "/translate", timeout=60, **options)  # type: ignore[arg-type]
        assert answer.json() == {"translatedText": texts_of(TEXT)[0]}
    answer = httpx.post(server.url + "/translate", data={"q": "a fish\r\na fish", "source": "en", "target": "fr"})
    assert answer.json()["translatedText"] == "\n".join(texts_of("a fish") * 2)


def test_languages_are_detected_of_each_text(server: Running) -> None:
    texts = [LONG, "Il fait beau aujourd'hui, et nous sortons.", "\U0001f41f"]
    content = ask(server, q=texts, source="auto").json()
    assert [found["language"] for found in content["detectedLanguage"]] == ["en", "fr", "en"]
    assert content["detectedLanguage"][2]["confidence"] == 0 and content["detectedLanguage"][0]["confidence"] > 90
    assert content["translatedText"][1:] == texts[1:]  # it is in the target language already
    assert "detectedLanguage" not in ask(server, q=LONG).json()
    assert ask(server, q=LONG, source="auto").json()["detectedLanguage"]["language"] == "en"


def test_alternatives_are_given_where_they_are_asked_for(server: Running) -> None:
    content = ask(server, q=TEXT, alternatives=3).json()
    assert content["translatedText"] == texts_of(TEXT)[0]
    every = [content["translatedText"], *content["alternatives"]]
    assert len(every) == len(set(every)) and 1 < len(every) <= 4
    content = ask(server, q=[TEXT, "a fish"], alternatives=2).json()
    assert len(content["alternatives"]) == 2 and all(isinstance(row, list) for row in content["alternatives"])
    assert ask(server, q="<b>a</b>", alternatives=2, format="html").json()["alternatives"] == []


def test_tags_stay_where_they_are(server: Running) -> None:
    fish = texts_of("a fish")[0]
    escaped = fish.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    answer = ask(server, q=["<p class='x'> a fish <br>a fish</p>", "<p>"], format="html").json()
    assert answer["translatedText"] == [f"<p class='x'> {escaped} <br>{escaped}</p>", "<p>"]


@pytest.mark.parametrize("target", ["fr", "de"])  # by one model, and over a third language
def test_a_sentence_with_tags_inside_is_translated_whole(server: Running, target: str) -> None:
    document = "<p>the <b>cat <i>eats</i></b> <!-- c -->a <a href='x'>fish</a> <img src=y></p>"
    (plain, tagged) = (
        ask(server, q=q, format="html", target=target).json()["translatedText"] for q in (f"<p>{TEXT}</p>", document)
    )
    tag = re.compile(r"<[^>]*>")
    if target == "fr":  # the second model reads odd letters that the first one writes, and the spaces between them
        assert tag.sub("", tagged).split() == tag.sub("", plain).split()
    tags = tag.findall(tagged)
    assert sorted(tags) == sorted(tag.findall(document)) and tags[0] == "<p>" and tags[-2:] == ["<img src=y>", "</p>"]
    for outer, inner in (("b", "i"), ("a", None)):
        (inside,) = re.findall(rf"<{outer}\b.*</{outer}>", tagged)
        assert inner is None or re.search(rf"<{inner}>.*</{inner}>", inside)


def test_over_a_third_language(server: Running) -> None:
    (french,) = texts_of(TEXT)
    german = translator(60).translate([french])[0].text
    assert ask(server, q=TEXT, target="de").json()["translatedText"] == german


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": "a", "target": ""}, "Invalid request: missing target parameter"),
        ({"q": "a", "target": "zz"}, "zz is not supported"),
        ({"q": "a", "source": "de"}, "French (fr) is not available as a target language from German (de)"),
        ({"q": "a", "format": "pdf"}, "pdf format is not supported"),
        ({"q": "a", "alternatives": 11}, "alternatives: at most 10 are given, not 11."),
        ({"q": "a" * 50_001}, "Invalid request: request (50001) exceeds text limit (50000)"),
        ({"q": ["a"] * 129}, "Invalid request: q has 129 texts; at most 128 are taken."),
    ],
)
def test_errors(server: Running, fields: dict[str, Any], error: str) -> None:
    answer = ask(server, **fields)
    assert (answer.status_code, answer.json()) == (400, {"error": error})


def test_detect(server: Running) -> None:
    (english, french, *_) = server.post("/detect", {"q": LONG}).json()
    assert english["language"] == "en" and english["confidence"] > 90 > french["confidence"]
    assert server.post("/detect", {"q": " \U0001f41f"}).json() == [{"confidence": 0.0, "language": "en"}]
    german = server.post("/detect", {"q": "Das Wetter ist heute schön, und wir gehen hinaus."}).json()
    assert german[0]["language"] == "de"


def test_what_a_page_needs(server: Running) -> None:
    settings = server.get("/frontend/settings").json()
    assert settings["charLimit"] == 50_000 and settings["keyRequired"] is False
    assert settings["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert httpx.post(server.url + "/suggest", data={"q": "a"}).status_code == 403
    assert "/translate" in server.get("/spec").json()["paths"]
