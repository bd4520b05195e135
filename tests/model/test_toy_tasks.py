"""The model learns: copy and reverse to more than 99 % within seconds, and one batch by heart."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.model import EncoderDecoder, build_model
from helpers import BOS, EOS, N_SPECIAL, encoder_decoder, random_ids

VOCAB = 14


def toy_model(**changes: Any) -> EncoderDecoder:
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "d_model": 32, "d_ff": 64, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1}
    model = build_model(ModelConfig(**(sizes | {"dropout": 0.0} | changes)))
    assert isinstance(model, EncoderDecoder)
    return model


def examples(n: int, task: str, seed: int) -> tuple[Tensor, Tensor]:
    """Sources of 5 random ids; targets are BOS, the answer, EOS."""
    src = random_ids(n, 5, seed=seed, vocab_size=VOCAB)
    answer = src if task == "copy" else src.flip(1)
    return src, F.pad(F.pad(answer, (1, 0), value=BOS), (0, 1), value=EOS)


def step_loss(model: EncoderDecoder, src: Tensor, tgt: Tensor) -> Tensor:
    return F.cross_entropy(model(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten())


@torch.no_grad()
def greedy_accuracy(model: EncoderDecoder, task: str) -> float:
    """Share of tokens right when the model writes alone, through the cache, on sources it has not seen."""
    src, tgt = examples(200, task, seed=10**6)
    model.eval()
    cache = model.new_cache(src, 6)
    chunk, written = torch.full((200, 1), BOS), []
    for _ in range(6):
        chunk = model.decode_step(chunk, cache).argmax(-1)
        written.append(chunk)
    model.train()
    return float((torch.cat(written, dim=1) == tgt[:, 1:]).float().mean())


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("copy", {}),
        ("reverse", {}),
        ("reverse", {"norm_placement": "post", "use_final_norm": False, "positions": "learned", "max_positions": 9}),
        ("copy", {"n_kv_heads": 1, "norm": "rmsnorm", "is_gated": True, "activation": "silu"}),
    ],
)
def test_copy_and_reverse_are_learned(task: str, changes: dict[str, Any]) -> None:
    model = toy_model(**changes)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
    accuracy, start = 0.0, time.process_time()
    for step in range(1200):
        optimizer.zero_grad()
        step_loss(model, *examples(64, task, seed=step)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % 50 == 49 and (accuracy := greedy_accuracy(model, task)) > 0.99:
            break
    print(f"{task}: {accuracy:.4f} after {step + 1} steps, {time.process_time() - start:.1f} CPU seconds")
    assert accuracy > 0.99


def test_one_batch_is_learned_by_heart() -> None:
    """Random pairs have no rule, so the loss falls to about zero only if every token's path carries gradients."""
    model = encoder_decoder().train()
    src, tgt = random_ids(8, 6, seed=1), random_ids(8, 7, seed=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(300):
        optimizer.zero_grad()
        loss = step_loss(model, src, tgt)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if float(loss.detach()) < 0.01:
            break
    assert float(loss.detach()) < 0.01
    assert int(tgt.min()) >= N_SPECIAL
