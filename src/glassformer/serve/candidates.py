"""What a language model might have said in place of each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from glassformer.tasks.generator import TextGenerator

__all__ = ["Candidate", "candidates"]


@dataclass(frozen=True)
class Candidate:
    """A token, as a piece that can be shown, with its probability before temperature and the like."""

    id: int
    piece: str
    probability: float


@torch.inference_mode()
def candidates(
    generator: TextGenerator, prompt: Sequence[int], made: Sequence[int], n_best: int
) -> tuple[list[Candidate], list[list[Candidate]]]:
    """The tokens that follow a prompt, and the `n_best` most probable ones in place of each.

    One forward pass: p = softmax(project(decoder(ids))) at the last prompt token and at each token but the last;
    tokens that the model is not let make have none, the others share its mass. ids [1, T] -> p [len(made), V].
    """
    if not made:
        return [], []
    model = generator.model
    ids = torch.tensor([[*prompt, *made[:-1]]], device=model.decoder.embedding.tokens.weight.device)
    logits = model.project(model.decoder(ids)[0, -len(made) :])
    logits[:, generator.forbidden_ids] = -torch.inf
    shares = logits.float().softmax(-1)
    found = shares.topk(min(n_best, shares.shape[-1]), dim=-1)

    def named(tokens: Sequence[int], values: Sequence[float]) -> list[Candidate]:
        pieces = generator.tokenizer.pieces(tokens)
        return [Candidate(*parts) for parts in zip(tokens, pieces, values, strict=True) if parts[2] > 0]

    chosen = shares[torch.arange(len(made)), torch.tensor(made)].tolist()
    tokens = [Candidate(*parts) for parts in zip(made, generator.tokenizer.pieces(made), chosen, strict=True)]
    return tokens, [named(*rows) for rows in zip(found.indices.tolist(), found.values.tolist(), strict=True)]
