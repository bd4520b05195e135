"""Why not this output: a reference is followed step by step until the model leaves it."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True)
class WhyNot:
    """Where the model leaves a reference.

    `source_words` tells, for the place where it does, how much each source word speaks for the model's token and
    against the reference's: gradient x input of log p(model's) - log p(reference's), positive for the model's.
    """

    reference: str
    verdict: str
    left_at: int | None  # place of the first token that the search pruned, from 0
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
    penalty = LengthPenalty(search.generation.length_penalty, search.generation.alpha)
    score = sum(step.log_prob for step in steps) / penalty(len(ids))
    output_score = search.log_prob / penalty(len(search.chosen.ids))
    left_at = next((i for i, step in enumerate(steps) if not step.is_live), None)
    place = next((i for i, token in enumerate(ids) if search.chosen.ids[i : i + 1] != [token]), None)
    if place is not None and left_at is None:
        left_at = None if steps[-1].is_live else len(ids) - 1
    words = [] if place is None else _source_words(equation, search, reference, place)
    return WhyNot(
        reference=reference.output,
        verdict=_verdict(steps, left_at, place, score, output_score),
        left_at=left_at,
        score=score,
        output_score=output_score,
        steps=steps,
        source_words=words,
    )


def _verdict(
    steps: list[ReferenceStep], left_at: int | None, place: int | None, score: float, output_score: float
) -> str:
    if place is None:
        return "This is what the model says."
    compared = f"Its score is {score:.3f}, that of the output {output_score:.3f}."
    if score > output_score:
        compared += " The model prefers the reference: the search lost it, and a larger beam may find it."
    if left_at is None:
        return f"The search kept the reference to its end. {compared}"
    step = steps[left_at]
    return (
        f"The search lets the reference go at token {left_at + 1}, {step.piece!r}: rank {step.rank} there with "
        f"p = {2.718281828459045**step.log_prob:.3g}, after {step.best_piece!r} with "
        f"p = {2.718281828459045**step.best_log_prob:.3g}. {compared}"
    )


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
