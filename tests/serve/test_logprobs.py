"""Log-probabilities of the tokens of a completion, and of those that might have stood there."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from serve.serving import Running, generator

PROMPT = "the cat"


def expected(n: int, n_tokens: int) -> list[dict[str, float]]:
    """By one forward pass over the greedy continuation."""
    task = generator()
    ids = task.prompt_ids(PROMPT)
    found = []
    for _ in range(n_tokens):
        with torch.no_grad():
            logits = task.model(torch.tensor([ids]))[0, -1]
        logits[task.forbidden_ids] = -math.inf
        best = logits.log_softmax(-1).topk(n)
        texts = [text.decode("utf-8", "replace") for text in task.tokenizer.bytes_of(best.indices.tolist())]
        # Of two that look alike the likelier counts: it is written last.
        found.append(dict(reversed([*zip(texts, best.values.tolist(), strict=True)])))
        ids.append(int(best.indices[0]))
    return found


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_likeliest_tokens_are_those_of_the_model(server: Running, is_stream: bool) -> None:
    answer = server.complete(PROMPT, temperature=0, max_tokens=5, logprobs=4, stream=is_stream)
    if is_stream:
        events = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: {")]
        parts: list[Any] = [event["choices"][0]["logprobs"] for event in events]
        tops = [top for part in parts if part for top in part["top_logprobs"]]
    else:
        tops = answer.json()["choices"][0]["logprobs"]["top_logprobs"]
    assert len(tops) == 5
    for made, right in zip(tops, expected(4, 5), strict=True):
        assert made == pytest.approx(right, abs=1e-4)


def test_a_drawn_token_is_told_beside_the_likeliest(server: Running) -> None:
    """And n texts at once, with other requests' numbers of candidates, each have their own."""
    answer = server.complete(PROMPT, temperature=2, max_tokens=8, logprobs=2, seed=1, n=2).json()
    for choice in answer["choices"]:
        found = choice["logprobs"]
        assert len(found["top_logprobs"]) == len(found["tokens"]) == 8
        for token, log_prob, top in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True):
            assert 1 <= len(top) <= 3 and top[token] >= log_prob
    (plain,) = server.complete(PROMPT, temperature=0, max_tokens=3, logprobs=0).json()["choices"]
    assert [len(top) for top in plain["logprobs"]["top_logprobs"]] == [1, 1, 1]


def test_where_they_are_not_known_they_are_refused(server: Running) -> None:
    answer = server.complete(PROMPT, use_beam_search=True, logprobs=2)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "logprobs"
    assert server.complete(PROMPT, use_beam_search=True, logprobs=1).status_code == 200
    chat = {"model": "en-fr", "messages": [{"role": "user", "content": PROMPT}]}
    assert server.post("/v1/chat/completions", chat | {"logprobs": True}).status_code == 400
    assert server.post("/v1/chat/completions", chat | {"logprobs": False}).status_code == 200
