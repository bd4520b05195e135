"""Imported models give the numbers, tokens and ids of transformers: float32, unusual fields, five padded inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from huggingface_models import DECODERS, ENCODERS, TEXTS, TRANSLATORS, Case, case
from torch import Tensor

from glassformer.generation.search import generate
from glassformer.model import DecoderOnly, EncoderDecoder, EncoderOnly
from glassformer.tasks.decoding import ModelDecoding
from helpers import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
REASON = "float32, sums in another order"


def batch(found: Case) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Ids and mask of the five texts by the original's tokenizer, padded on the right, and all that it gives."""
    encoded = dict(found.tokenizer(TEXTS, padding=True, return_tensors="pt"))
    return encoded["input_ids"], encoded["attention_mask"].bool(), encoded


@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS, *TRANSLATORS])
def test_the_tokenizer_gives_the_same_ids_and_texts(name: str) -> None:
    found = case(name)
    config = found.folder.config.model
    frame = {"add_bos": config.use_bos, "add_eos": config.family != "decoder-only"}
    unseen = "".join(map(chr, range(0x4E00, 0x4E00 + 50)))
    # T6: WordPiece gives up a word of more than 100 letters, and one with a letter that it does not know.
    words = ["A" * 100, "A" * 101, "hello😀world", unseen] if found.folder.tokenizer.kind == "wordpiece" else []
    for text in [*TEXTS, "", "two  spaces ", "Unseen: żółw 漢字 😀", *words]:
        assert found.folder.src_tokenizer.encode(text, **frame) == found.tokenizer(text)["input_ids"]
        target = found.folder.tokenizer.encode(text, **frame)
        assert target == found.tokenizer(text_target=text)["input_ids"]
        assert found.folder.tokenizer.decode(target) == found.tokenizer.decode(target, skip_special_tokens=True)


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_give_the_same_features_and_logits(name: str) -> None:
    found = case(name)
    model, (ids, mask, encoded) = found.folder.model, batch(found)
    assert isinstance(model, EncoderOnly)
    with torch.no_grad():
        theirs = found.model(**encoded, output_hidden_states=True)
        ours = model(ids, mask=mask, segment_ids=encoded.get("token_type_ids"))
        assert_close(ours[mask], theirs.hidden_states[-1][mask], 1e-5, REASON)
        if model.mlm_head is not None:
            assert_close(model.mlm_head(ours)[mask], theirs.logits[mask], 1e-5, REASON)
        if model.pooler is not None:
            assert_close(model.pooler(ours), theirs.pooler_output, 1e-5, REASON)


@pytest.mark.parametrize("segments", [0, 1, 2])
def test_the_segments_of_bert_are_read(segments: int) -> None:
    found = case("bert")
    ids, mask, encoded = batch(found)
    encoded["token_type_ids"] = torch.full_like(ids, segments)
    with torch.no_grad():
        theirs = found.model(**encoded, output_hidden_states=True).hidden_states[-1]
        ours = found.folder.model(ids, mask=mask, segment_ids=encoded["token_type_ids"])
    assert_close(ours[mask], theirs[mask], 1e-5, REASON)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_give_the_same_logits(name: str) -> None:
    found = case(name)
    ids, mask, encoded = batch(found)
    with torch.no_grad():
        ours, theirs = found.folder.model(ids, mask=mask), found.model(**encoded).logits
    assert_close(ours[mask], theirs[mask], 1e-5, REASON)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_encoder_decoders_give_the_same_logits(name: str) -> None:
    found = case(name)
    model, (ids, mask, encoded) = found.folder.model, batch(found)
    assert isinstance(model, EncoderDecoder)
    tgt = torch.randint(3, 40, (len(ids), 7), generator=torch.Generator().manual_seed(0))
    tgt[:, 0] = model.config.bos_id
    tgt_mask = torch.arange(7)[None] < torch.tensor([7, 3, 5, 1, 7])[:, None]
    with torch.no_grad():
        ours = model(ids, tgt, src_mask=mask, tgt_mask=tgt_mask)
        theirs = found.model(**encoded, decoder_input_ids=tgt, decoder_attention_mask=tgt_mask.long()).logits
    assert_close(ours[tgt_mask], theirs[tgt_mask], 1e-5, REASON)


@pytest.mark.parametrize("name", ["bert", "llama", "marian"])
def test_in_bf16_the_numbers_stay_near(name: str) -> None:
    found = case(name)
    ids, mask, _ = batch(found)
    model = found.folder.model
    given = (ids, ids[:, :4]) if isinstance(model, EncoderDecoder) else (ids,)
    mask = mask[:, :4] if isinstance(model, EncoderDecoder) else mask
    with torch.no_grad():
        expected = model(*given)[mask]
        model.to(torch.bfloat16)
        rounded = model(*given)[mask].float()
        model.to(torch.float32)
        found.folder.model.load_state_dict(found.state)
    # bf16 keeps 8 bits: each of some forty roundings in a row moves a number by up to 2^-9 of its size.
    assert_close(rounded, expected, 40 * 2**-9 * float(expected.abs().max()), "bf16 rounds to 8 bits")


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("name", [*DECODERS, *TRANSLATORS])
def test_greedy_and_beam_search_give_the_same_tokens(name: str, beam_size: int) -> None:
    found = case(name)
    model, n_new = found.folder.model, 10
    assert not isinstance(model, EncoderOnly)
    config = replace(found.folder.config.generation, beam_size=beam_size, alpha=0.7, max_new_tokens=n_new)
    # Their search ends early by a guess unless it is told never to; a cache of unequal stacks breaks theirs (T5).
    options = {"num_beams": beam_size, "length_penalty": 0.7, "max_new_tokens": n_new, "do_sample": False}
    options |= {"early_stopping": "never"} if beam_size > 1 else {}
    options |= {"use_cache": not name.startswith("t5")}
    eos, pad = model.config.eos_id, found.folder.src_tokenizer.pad_id
    ids, mask, encoded = batch(found)
    if isinstance(model, DecoderOnly):
        prompts = [row[keep][:5] for row, keep in zip(ids, mask, strict=True)]
        theirs = [found.model.generate(p[None], pad_token_id=eos, **options)[0, len(p) :].tolist() for p in prompts]
        ours = [_search(ModelDecoding(model, max_length=len(p) + n_new), p[None], config, eos)[0] for p in prompts]
    else:
        theirs = found.model.generate(**encoded, **options)[:, 1:].tolist()
        src = ids.masked_fill(~mask, pad)
        start = torch.full((len(ids), 1), model.config.bos_id)
        ours = _search(ModelDecoding(model, max_length=n_new + 1, src=src), start, config, eos)
    for row, expected in zip(ours, theirs, strict=True):
        assert row == expected[: len(row)]
        assert set(expected[len(row) :]) <= {eos, pad}


def _search(decoding: ModelDecoding, prefix: Tensor, config: object, eos: int) -> list[list[int]]:
    limits = torch.full((len(prefix),), 10)
    return [found[0].ids for found in generate(decoding, prefix, config, eos_ids=[eos], max_new_tokens=limits)]  # type: ignore[arg-type]


def test_forced_tokens_are_honoured() -> None:
    found = case("bart").folder.config
    assert found.generation.forced_bos_id == 0 and found.generation.is_eos_forced
    assert found.model.bos_id == 2 and found.model.use_bos  # a target starts with </s>, a source with <s>
