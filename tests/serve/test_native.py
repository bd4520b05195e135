"""glassformer's own protocol: what it tells of a model is what the model computes."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from glassformer.serve.words import made_places, read_places, segment_words
from serve.every_kind import every_kind, speaker
from serve.serving import Running, generator, translator, wait_until
from serve.test_hostile import BODIES, message
from tasks.label_models import classifier, labeller
from tasks.small_models import tokenizer

PATHS = [f"/glassformer/{name}" for name in ("translate", "continue", "classify", "label", "explain")]
TEXT = "We eat bread in the garden."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with every_kind(tmp_path_factory.mktemp("kinds")) as server:
        yield server


def native(server: Running, path: str, **fields: Any) -> Any:
    answer = server.post(f"/glassformer/{path}", fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_translation_is_the_translators_own_with_its_scores(server: Running) -> None:
    (best,) = speaker().translate([TEXT])
    found = native(server, "translate", text=TEXT, source="en", target="fr", alternatives=2)
    assert found["translations"][0]["text"] == best.text
    assert found["translations"][0]["log_prob"] == pytest.approx(best.log_prob, abs=1e-4)  # float32, other batches
    assert found["translations"][0]["tokens"] == len(best.ids)
    texts = [one["text"] for one in found["translations"]]
    assert 2 <= len(texts) == len(set(texts)) <= 3  # two hypotheses may read alike
    scores = [one["score"] for one in found["translations"]]
    assert scores == sorted(scores, reverse=True)


def test_the_weights_of_words_are_those_of_their_pieces(server: Running) -> None:
    (best,) = speaker().translate([TEXT])
    alignment = speaker().align(TEXT, best)
    (segment,) = native(server, "translate", text=TEXT, source="en", target="fr")["segments"]
    words = segment["words"]
    assert [TEXT[a:b] for a, b in words["source"]] == ["We", "eat", "bread", "in", "the", "garden", "."]
    joined = "".join(best.text[a:b] for a, b in words["target"])
    assert "".join(joined.split()) == "".join(best.text.split())
    weights = np.array(words["weights"])
    of_end = np.array(alignment.weights)[:, -1]  # what each piece gave to the source's end token
    assert weights.shape == (len(words["target"]), 7)
    assert weights.sum(1).max() <= 1 - of_end.min() + 1e-3 and (weights >= 0).all()
    pieces = ["".join(piece.split()) for piece in alignment.tgt_pieces]
    first = next(i for i, piece in enumerate(pieces) if piece)
    start, end = words["target"][0]
    count = next(n for n in range(1, 30) if len("".join(pieces[first : first + n])) >= end - start)
    mean = np.array(alignment.weights)[first : first + count].mean(0)
    assert weights[0].sum() == pytest.approx(1 - mean[-1], abs=1e-3)  # rounded to four digits


def test_segments_have_their_places_in_both_texts(server: Running) -> None:
    text = "  We eat bread.\r\n\n Where is  the house? "
    found = native(server, "translate", text=text, source="en", target="fr")
    whole = found["translations"][0]["text"]
    spans = [text[a:b] for a, b in (segment["source"] for segment in found["segments"])]
    assert spans == ["We eat bread.", "Where is  the house?"]
    for span, segment in zip(spans, found["segments"], strict=True):
        assert whole[slice(*segment["target"])] == speaker().translate([span])[0].text
    assert [text[a:b] for a, b in found["segments"][1]["words"]["source"]] == ["Where", "is", "the", "house", "?"]


def test_places_are_characters_also_where_tokens_are_bytes() -> None:
    text = "caf\u00e9 \U0001f41f\U0001f41f x"
    ids = tokenizer().encode(text)
    places = made_places(tokenizer(), ids)
    assert places[0][0] == 0 and places[-1][1] == len(text)
    assert all(a <= b == c for (a, b), (c, _) in pairwise(places))
    (made,) = speaker().translate([text])
    words = segment_words(speaker(), text, made)
    assert [text[a:b] for a, b in words.source] == ["caf\u00e9", "\U0001f41f\U0001f41f", "x"]


def test_a_segment_is_found_again_though_its_spaces_were_changed() -> None:
    text = "a  b\n\tcd"
    places, end = read_places(text, "a b", 0)
    assert [text[i] for i in (places[0], places[2])] == ["a", "b"] and end == 4
    places, end = read_places(text, "cd", end)
    assert places == [6, 7] and end == 8


def test_what_has_no_words_or_needs_no_model_comes_back(server: Running) -> None:
    for text, target in (("\U0001f41f ...", "fr"), (TEXT, "en")):
        found = native(server, "translate", text=text, source="en", target=target)
        assert found["translations"][0]["text"] == text and found["segments"] == []


def test_over_a_third_language_there_is_no_alignment(server: Running) -> None:
    found = native(server, "translate", text=TEXT, source="auto", target="de")
    assert found["models"] == ["en-fr", "fr-de"] and found["segments"] == [] and found["detected"]["language"] == "en"
    plain = server.post("/translate", {"q": TEXT, "source": "en", "target": "de"}).json()
    assert found["translations"][0]["text"] == plain["translatedText"]


def test_a_long_text_is_translated_without_alignment(server: Running) -> None:
    text = "We eat bread. Where is the house? " * 70
    found = native(server, "translate", text=text, source="en", target="fr")
    whole, segments = found["translations"][0]["text"], found["segments"]
    assert len(segments) > 1 and all(segment["words"] is None for segment in segments)
    spans = [text[slice(*segment["source"])] for segment in segments]
    assert [whole[slice(*segment["target"])] for segment in segments] == [t.text for t in speaker().translate(spans)]


def test_candidates_are_the_models_own_probabilities(server: Running) -> None:
    found = native(server, "continue", model="lm", prompt="We eat", max_tokens=5, candidates=4)
    ids = [token["id"] for token in found["tokens"]]
    prompt = generator().prompt_ids("We eat")
    assert ids == generator().generate(["We eat"], generation=_greedy(5))[0].ids
    for place, token in enumerate(found["tokens"]):
        assert token["candidates"][0]["id"] == token["id"]  # greedy takes the first
        shares = [other["probability"] for other in token["candidates"]]
        assert shares == sorted(shares, reverse=True) and len(shares) == 4 and sum(shares) <= 1
        assert token["probability"] == pytest.approx(_probability([*prompt, *ids[:place]], token["id"]), rel=1e-3)


def _greedy(n: int) -> Any:
    from dataclasses import replace

    return replace(generator().generation, max_new_tokens=n, min_new_tokens=0)


def _probability(before: list[int], token: int) -> float:
    """By one forward pass of its own over what came before."""
    import torch

    with torch.no_grad():
        logits = generator().model(torch.tensor([before]))[0, -1].double()
    logits[generator().forbidden_ids] = -math.inf
    return float(logits.softmax(-1)[token])


def test_a_text_goes_on_from_a_token_that_was_chosen(server: Running) -> None:
    first = native(server, "continue", model="lm", prompt="We eat", max_tokens=3, candidates=5)
    other = first["tokens"][1]["candidates"][3]["id"]
    kept = [first["tokens"][0]["id"], other]
    found = native(server, "continue", model="lm", prompt="We eat", kept=kept, max_tokens=2)
    assert [token["id"] for token in found["tokens"]][:2] == kept and len(found["tokens"]) <= 4
    assert found["tokens"][1]["probability"] == pytest.approx(
        first["tokens"][1]["candidates"][3]["probability"], rel=1e-3
    )


def test_labels_are_the_tasks_own(server: Running) -> None:
    (expected,) = classifier().classify([TEXT])
    found = native(server, "classify", model="tones", text=TEXT)
    assert found["chosen"] == list(expected.labels)
    for one in found["labels"]:
        assert one["probability"] == pytest.approx(expected.probabilities[one["label"]], abs=1e-5)
    assert native(server, "classify", model="tones", text=" ")["labels"] == []
    (expected,) = classifier(n_texts=2).classify([(TEXT, "x")])
    assert native(server, "classify", model="pairs", text=TEXT, second="x")["chosen"] == list(expected.labels)
    (labelling,) = labeller().label([TEXT])
    found = native(server, "label", model="names", text=TEXT)
    assert [word["label"] for word in found["words"]] == [word.label for word in labelling.words]
    assert [one["text"] for one in found["entities"]] == [entity.text for entity in labelling.entities]


def test_a_report_is_the_page_of_explain_and_names_no_folder(server: Running) -> None:
    answer = httpx.post(
        server.url + "/glassformer/explain", json={"text": TEXT, "source": "en", "target": "fr"}, timeout=110
    )
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "sandbox allow-scripts;" in policy and "default-src 'none'" in policy
    page = html.unescape(answer.text)
    assert f'<p class="output">{translator().translate([TEXT])[0].text}</p>' in page and "Model en-fr" in page
    path = server.service.models.all["en-fr"].path
    assert path is not None and str(path.parent) not in answer.text


@pytest.mark.parametrize(
    "fields",
    [
        {"text": TEXT, "source": "fr", "target": "de"},  # not loaded from a folder
        {"text": TEXT, "source": "en", "target": "de"},  # two models
        {"text": "x" * 501, "source": "en", "target": "fr"},
        {"text": "a\nb", "source": "en", "target": "fr"},
    ],
)
def test_what_cannot_be_explained_is_refused_with_the_reason(server: Running, fields: dict[str, str]) -> None:
    answer = httpx.post(server.url + "/glassformer/explain", json=fields, timeout=110)
    assert answer.status_code == 400
    message("/glassformer", answer)


WRONG = [
    ("translate", {"text": "a", "source": "en"}),
    ("translate", {"text": "a", "source": "en", "target": "zz"}),
    ("translate", {"text": "a", "model": "lm"}),
    ("translate", {"text": "a", "model": "en-fr", "target": "fr"}),
    ("translate", {"text": "a", "source": "en", "target": "fr", "alternatives": 11}),
    ("translate", {"text": "a" * 50_001, "source": "en", "target": "fr"}),
    ("continue", {"model": "en-fr", "prompt": "a"}),
    ("continue", {"model": "lm", "prompt": "a", "max_tokens": 257}),
    ("continue", {"model": "lm", "prompt": "a", "kept": [10**9]}),
    ("continue", {"model": "lm", "prompt": "a", "kept": [-1]}),
    ("continue", {"model": "lm", "prompt": "a", "kept": [0]}),
    ("continue", {"model": "lm", "prompt": "a", "kept": [7] * 257}),
    ("continue", {"model": "lm", "prompt": "a", "candidates": 21}),
    ("continue", {"model": "lm", "prompt": "a", "temperature": -1}),
    ("classify", {"model": "lm", "text": "a"}),
    ("classify", {"model": "pairs", "text": "a"}),
    ("classify", {"model": "tones", "text": "a", "second": "b"}),
    ("label", {"model": "tones", "text": "a"}),
]


@pytest.mark.parametrize(("path", "fields"), WRONG)
def test_wrong_values_are_400_with_the_field(server: Running, path: str, fields: dict[str, Any]) -> None:
    answer = server.post(f"/glassformer/{path}", fields)
    assert answer.status_code == 400, answer.text
    message("/glassformer", answer)


@pytest.mark.parametrize("path", PATHS)
def test_malformed_bodies_are_400(server: Running, path: str) -> None:
    with httpx.Client(base_url=server.url, headers={"Content-Type": "application/json"}) as client:
        for body in BODIES:
            answer = client.post(path, content=body)
            assert answer.status_code == 400, (body[:60], answer.text)
            message(path, answer)


def test_keys_are_asked_for_but_the_page_needs_none(tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("right\n")
    with every_kind(tmp_path, keys=str(keys)) as server:
        for path in PATHS:
            assert server.post(path, {}).status_code == 401
            wrong = {"Authorization": "Bearer wrong"}
            assert server.post(path, {}, headers=wrong).status_code == 401
        right = {"Authorization": "Bearer right"}
        content = {"text": TEXT, "source": "en", "target": "fr"}
        assert server.post("/glassformer/translate", content, headers=right).status_code == 200
        assert server.get("/").status_code == server.get("/page/app.js").status_code == 200


def test_the_page_is_strict_about_what_it_runs(server: Running) -> None:
    page = server.get("/")
    assert page.headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in page.headers["content-security-policy"]
    again = server.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304 and not again.content
    for name in ("nothing.js", "..%2fpages.py", "%2e%2e/pages.py", "__init__.py"):
        assert server.get(f"/page/{name}").status_code == 404
    assert "sandbox allow-scripts" in server.get("/page/frame.html").headers["content-security-policy"]


def test_a_report_whose_client_leaves_is_given_up(server: Running) -> None:
    with pytest.raises(httpx.ReadTimeout):
        content = {"text": TEXT, "source": "en", "target": "fr"}
        httpx.post(server.url + "/glassformer/explain", json=content, timeout=0.5)
    wait_until(lambda: server.service.reports.n_waiting == 0)
