"""Why not this output: a reference is followed step by step until the model leaves it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glassformer.explain.equation import Equation
from glassformer.explain.served import Served
from glassformer.generation.hypothesis import LengthPenalty
from glassformer.model import EncoderDecoder
from glassformer.text.tokenizer import Tokenizer

__all__ = ["ReferenceStep", "WhyNot", "why_not"]


@dataclass(frozen=True, kw_only=True)
class ReferenceStep:
    """One token of the reference, with the model's vote on it."""

    piece: str
    log_prob: float  # nats
    rank: int  # 1: the model's first choice at this place
    best_piece: str
    best_log_prob: float
    is_live: bool  # the reference up to here was among the hypotheses that the search kept

    @property
    def prob(self) -> float:
        return math.exp(self.log_prob)

    @property
    def best_prob(self) -> float:
        return math.exp(self.best_log_prob)


@dataclass(frozen=True, kw_only=True)
class WhyNot:
    """Where the model leaves a reference.

    `source_words` tells, for the place where it does, how much each source word speaks for the model's token and
    against the reference's: gradient x input of log p(model's) - log p(reference's), positive for the model's.
    """

    reference: str
    verdict: str
    parts_at: int | None  # place of the first token that differs from the output's, from 0
    left_at: int | None  # place of the first token that the search pruned
    score: float  # of the reference: its log-probability over the length penalty
    output_score: float
    steps: list[ReferenceStep]
    source_words: list[tuple[str, float]]


def why_not(equation: Equation, search: Served, reference: Served, log_probs: Tensor, tokenizer: Tokenizer) -> WhyNot:
    """Follows a reference through the search.

    Args:
        equation: The float64 copy.
        search: The run that made the output.
        reference: The run that followed the reference.
        log_probs: [T, V] of the reference's places, after the rules of the search.
        tokenizer: Of the target.
    """
    assert search.decoding is not None and search.chosen is not None and reference.chosen is not None
    assert search.log_prob is not None
    ids, live = reference.chosen.ids, {tuple(text) for texts in search.decoding.steps for text in texts}
    prompt = search.tgt.ids[: search.n_prompt] if search.tgt is not None else []
    steps = []
    for i, token in enumerate(ids):
        row = log_probs[i]
        best = int(row.argmax())
        is_live = (*prompt, *ids[: i + 1]) in live or ids[: i + 1] == search.chosen.ids[: i + 1]
        steps.append(
            ReferenceStep(
                piece=reference.chosen.pieces[i],
                log_prob=float(row[token]),
                rank=1 + int((row > row[token]).sum()),
                best_piece=tokenizer.pieces([best])[0],
                best_log_prob=float(row[best]),
                is_live=is_live,
            )
        )
    if steps[:-1] and steps[-2].is_live:  # the end is not a hypothesis to go on with: it is kept when what it ends was
        steps[-1] = replace(steps[-1], is_live=True)
    penalty = LengthPenalty(search.generation.length_penalty, search.generation.alpha)
    score = sum(step.log_prob for step in steps) / penalty(len(ids))
    output_score = search.log_prob / penalty(len(search.chosen.ids))
    left_at = next((i for i, step in enumerate(steps) if not step.is_live), None)
    parts_at = next((i for i, token in enumerate(ids) if search.chosen.ids[i : i + 1] != [token]), None)
    return WhyNot(
        reference=reference.output,
        verdict=_verdict(steps, left_at, parts_at, score, output_score),
        parts_at=parts_at,
        left_at=left_at,
        score=score,
        output_score=output_score,
        steps=steps,
        source_words=[] if parts_at is None else _source_words(equation, search, reference, parts_at),
    )


def _verdict(
    steps: list[ReferenceStep], left_at: int | None, parts_at: int | None, score: float, output_score: float
) -> str:
    if parts_at is None:
        return "This is what the model says."
    step = steps[parts_at]
    said = (
        f"The two part at token {parts_at + 1}: the reference has {step.piece!r} (p {step.prob:.3g}, rank {step.rank})"
    )
    said += f" where the model prefers {step.best_piece!r} (p {step.best_prob:.3g})." if step.rank > 1 else "."
    if left_at is None:
        said += " The search kept the reference to its end"
    else:
        gone = steps[left_at]
        said += f" The search lets the reference go at token {left_at + 1}, {gone.piece!r} (rank {gone.rank})"
    said += f"; its score would be {score:.3f}, and the output has {output_score:.3f}."
    if score > output_score:
        said += " By the model's own score the reference is better: a larger beam may find it."
    return said


def _source_words(equation: Equation, search: Served, reference: Served, place: int) -> list[tuple[str, float]]:
    """Gradient x input of each source word, at the first place where output and reference differ."""
    model, src = equation.model, reference.src
    assert isinstance(model, EncoderDecoder) and src is not None
    assert search.chosen is not None and reference.chosen is not None and reference.tgt is not None
    ours = search.chosen.ids[place] if place < len(search.chosen.ids) else model.config.eos_id
    kept: list[Tensor] = []
    handle = model.encoder.embedding.register_forward_hook(lambda module, arguments, output: kept.append(output))
    try:
        with torch.enable_grad():
            logits = model(torch.tensor([src.ids]), torch.tensor([reference.tgt.ids[: place + 1]]))[0, -1]
            (gradient,) = torch.autograd.grad(logits[ours] - logits[reference.chosen.ids[place]], kept[:1])
    finally:
        handle.remove()
    share = (gradient * kept[0].detach()).sum(-1)[0]  # [S]
    totals = [float(share[word].sum()) for word in src.words]
    return sorted(zip(src.word_labels, totals, strict=True), key=lambda item: -abs(item[1]))
