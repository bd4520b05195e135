"""Streams: the chunks joined are the decoded text, no character is ever split, and the cost is linear."""

import random

import pytest

from glassformer.config import TokenizerConfig
from glassformer.text.stream import StreamDecoder
from glassformer.text.tokenizer import Tokenizer

SENTENCES = [
    " leading space",
    "wait !",
    "a    .",
    "in 2024, 12 %",
    "漢字かな",
    "aé漢😀👩\u200d👩\u200d👧z",
    "l'eau </s> d'or",
    "\n\ttabs ",
]


@pytest.fixture(scope="module", params=["bpe", "wordpiece", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(SENTENCES * 5, TokenizerConfig(kind=request.param), vocab_size=600)


def stream(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool = True) -> list[str]:
    decoder = StreamDecoder(tokenizer, skip_special=skip_special)
    return [*(decoder.push(i) for i in ids), decoder.finish()]


def test_chunks_join_to_the_decoded_text(tokenizer: Tokenizer) -> None:
    draw = random.Random(0)
    for i in range(300):
        random_ids = [draw.randrange(tokenizer.vocab_size) for _ in range(30)]
        for ids in (random_ids, tokenizer.encode(SENTENCES[i % len(SENTENCES)])):
            for skip_special in (True, False):
                chunks = stream(tokenizer, ids, skip_special=skip_special)
                assert "".join(chunks) == tokenizer.decode(ids, skip_special=skip_special)


def test_no_chunk_splits_a_character_wherever_the_stream_ends() -> None:
    bytes_only = Tokenizer.train(["a"], TokenizerConfig(), vocab_size=261)
    ids = bytes_only.encode("aé漢😀👩\u200d👩\u200d👧z")
    assert len(ids) == len("aé漢😀👩\u200d👩\u200d👧z".encode())
    for n in range(len(ids) + 1):
        *chunks, end = stream(bytes_only, ids[:n])
        assert "\ufffd" not in "".join(chunks)
        assert "".join(chunks) + end == bytes_only.decode(ids[:n])
    assert end == ""


def test_each_id_is_decoded_once(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[list[int]] = []
    bytes_of = tokenizer.bytes_of

    def counted(ids: list[int], **options: bool) -> list[bytes]:
        decoded.append(ids)
        return bytes_of(ids, **options)

    ids = tokenizer.encode(" ".join(SENTENCES))
    monkeypatch.setattr(tokenizer, "bytes_of", counted)
    stream(tokenizer, ids)
    assert decoded == [[token_id] for token_id in ids]
