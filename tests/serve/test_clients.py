"""The released clients, unmodified, against a running server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import deepl
import httpx
import numpy as np
import openai
import pytest
from deep_translator import LibreTranslator
from libretranslate_aio import AsyncLibreTranslate, LibreTranslate
from libretranslate_aio.exceptions import BadRequestError, ForbiddenError
from libretranslatepy import LibreTranslateAPI

from glassformer.config import GenerationConfig
from serve.serving import Running, embedder, generator, running, translator

TEXT = "the cat eats a fish"


def translated(text: str) -> str:
    return translator().translate([text])[0].text


@pytest.fixture(scope="module")
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)


def test_libretranslatepy(server: Running) -> None:
    client = LibreTranslateAPI(server.url)
    assert client.translate(TEXT, "en", "fr") == translated(TEXT)
    assert client.detect("The weather is nice today, and we go out.")[0]["language"] == "en"
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["de", "fr"]},
        {"code": "fr", "name": "French", "targets": ["de"]},
    ]


def test_libretranslate_aio(server: Running, tmp_path: Path) -> None:
    """The client of the same protocol that sends files too, every call that it has."""
    (tmp_path / "letter.txt").write_text(f"{TEXT}\n\na fish\n")
    with LibreTranslate(server.url) as client:
        assert client.health()
        assert client.translate(TEXT, "en", "fr").translated_text == translated(TEXT)
        both = client.translate([TEXT, "a fish"], "auto", "fr", alternatives=1)
        assert both.translated_text == [translated(TEXT), translated("a fish")]
        assert isinstance(both.detected_language, list) and len(both.detected_language) == 2
        assert both.alternatives is not None and len(both.alternatives) == 2
        assert client.detect("The weather is nice today, and we go out.")[0].language == "en"
        assert [(language.code, language.targets) for language in client.languages()] == [
            ("en", ["de", "fr"]),
            ("fr", ["de"]),
        ]
        settings = client.frontend_settings()
        assert settings.char_limit == 50_000 and ".txt" in settings.supported_files_format
        letter = client.translate_file(tmp_path / "letter.txt", "en", "fr").translated_file_url
        assert httpx.get(letter).text == f"{translated(TEXT)}\n\n{translated('a fish')}\n"
        with pytest.raises(BadRequestError, match="zz is not supported"):
            client.translate_file(tmp_path / "letter.txt", "en", "zz")
        with pytest.raises(ForbiddenError, match="Suggestions are disabled"):
            client.suggest(TEXT, "un chat", "en", "fr")

    async def at_once() -> list[Any]:
        async with AsyncLibreTranslate(server.url) as client:
            return await asyncio.gather(*(client.translate(text, "en", "fr") for text in (TEXT, "a fish")))

    assert [answer.translated_text for answer in asyncio.run(at_once())] == [translated(TEXT), translated("a fish")]


def test_deep_translator(server: Running) -> None:
    client = LibreTranslator(source="en", target="fr", custom_url=server.url + "/", api_key="any")
    assert client.translate(TEXT) == translated(TEXT)
    assert client.translate_batch([TEXT, "a fish"]) == [translated(TEXT), translated("a fish")]


def test_deepl(server: Running) -> None:
    client = deepl.Translator("any", server_url=server.url)
    both = client.translate_text([TEXT, "a fish"], source_lang="EN", target_lang="FR")
    assert [result.text for result in both] == [translated(TEXT), translated("a fish")]
    assert {result.detected_source_lang for result in both} == {"EN"}
    one = client.translate_text("The weather is nice today, and we go out.", target_lang="FR", formality="prefer_more")
    assert one.detected_source_lang == "EN" and one.billed_characters == 41
    tagged = client.translate_text("<p>a fish</p>", source_lang="EN", target_lang="FR", tag_handling="html")
    assert tagged.text == f"<p>{translated('a fish')}</p>"
    assert [language.code for language in client.get_source_languages()] == ["EN", "FR"]
    assert [(x.code, x.supports_formality) for x in client.get_target_languages()] == [("DE", False), ("FR", False)]
    assert not client.get_usage().any_limit_reached
    with pytest.raises(deepl.DeepLException, match="zz is not supported"):
        client.translate_text("a", source_lang="EN", target_lang="ZZ")


def test_openai_models(server: Running, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["en-fr", "fr-de", "lm", "embedder", "slow"]
    assert client.models.retrieve("en-fr").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")


def test_openai_completions(server: Running, client: openai.OpenAI) -> None:
    answer = client.completions.create(model="en-fr", prompt=[TEXT, "a fish"])
    assert [choice.text for choice in answer.choices] == [translated(TEXT), translated("a fish")]
    greedy = GenerationConfig(beam_size=1, max_new_tokens=9)
    (expected,) = generator().generate([TEXT], generation=greedy)
    answer = client.completions.create(model="lm", prompt=TEXT, max_tokens=9, temperature=0, logprobs=0)
    (choice,) = answer.choices
    assert choice.text == expected.text and choice.finish_reason == "length"
    assert choice.logprobs is not None and choice.logprobs.token_logprobs == pytest.approx(expected.token_log_probs)
    assert "".join(choice.logprobs.tokens or []) == expected.text
    n_prompt = len(generator().prompt_ids(TEXT))
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (n_prompt, 9)


def test_openai_stream_is_the_whole_answer_in_pieces(server: Running, client: openai.OpenAI) -> None:
    settings: dict[str, Any] = {"model": "lm", "prompt": [TEXT, "a"], "max_tokens": 12, "seed": 5, "n": 2}
    whole = client.completions.create(**settings)
    assert len({choice.text for choice in whole.choices}) == 4
    texts, reasons, usage = ["", "", "", ""], {}, None
    for chunk in client.completions.create(**settings, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == {choice.index: choice.finish_reason for choice in whole.choices}
    assert usage == whole.usage


def test_openai_translation_is_streamed_by_segments(server: Running, client: openai.OpenAI) -> None:
    text = f"{TEXT}\n\na fish\n"
    pieces = [c.choices[0].text for c in client.completions.create(model="en-fr", prompt=text, stream=True)]
    assert len(pieces) == 2 and "".join(pieces) == translated(text)


def test_openai_chat(server: Running, client: openai.OpenAI) -> None:
    messages: Any = [{"role": "system", "content": "Translate."}, {"role": "user", "content": TEXT}]
    answer = client.chat.completions.create(model="en-fr", messages=messages, temperature=0)
    assert answer.choices[0].message.content == translated(TEXT)
    chunks = list(client.chat.completions.create(model="en-fr", messages=messages, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == translated(TEXT)
    with pytest.raises(openai.BadRequestError, match="no chat format"):
        client.chat.completions.create(model="lm", messages=messages)


def test_openai_embeddings(server: Running, client: openai.OpenAI) -> None:
    expected = embedder().embed([TEXT, "a"])
    for options in ({}, {"encoding_format": "float"}):  # the client asks for base64 itself
        answer = client.embeddings.create(model="embedder", input=[TEXT, "a"], **options)  # type: ignore[arg-type]
        assert np.abs(np.array([row.embedding for row in answer.data]) - expected).max() < 1e-6
    short = client.embeddings.create(model="embedder", input=TEXT, dimensions=8).data[0].embedding
    assert np.abs(np.array(short) - embedder().embed([TEXT], width=8)[0]).max() < 1e-6
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        client.embeddings.create(model="embedder", input=[1, 2, 3])


def test_clients_with_keys(tmp_path: Path) -> None:
    """S9: the right one of several keys opens, each in its protocol's place; a wrong one never."""
    (tmp_path / "keys").write_text("first\nsecond key\n")
    with running(keys=str(tmp_path / "keys")) as server:
        assert LibreTranslateAPI(server.url, "second key").translate(TEXT, "en", "fr") == translated(TEXT)
        assert LibreTranslator(source="en", target="fr", custom_url=server.url + "/", api_key="first").translate(TEXT)
        assert deepl.Translator("first", server_url=server.url).translate_text(TEXT, target_lang="FR")
        with pytest.raises(deepl.AuthorizationException):
            deepl.Translator("firs", server_url=server.url).translate_text(TEXT, target_lang="FR")
        assert openai.OpenAI(base_url=server.url + "/v1", api_key="second key").models.list()
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=server.url + "/v1", api_key="Second key").models.list()
