"""The search as it ran: every hypothesis of the beam at each step, kept and pruned; and why not another output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from glassformer.explain.served import Served
from glassformer.generation.hypothesis import LengthPenalty
from glassformer.generation.processors import Rules
from glassformer.generation.search import build_rules
from glassformer.text.tokenizer import Tokenizer

__all__ = ["Candidate", "SearchStep", "SearchView", "search_log_probs", "search_view"]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A hypothesis extended by one token."""

    parent: int  # place of the extended hypothesis among those of its step, from 0
    piece: str
    log_prob: float  # of the token, nats
    total: float  # of the whole hypothesis
    score: float  # the total over the length penalty
    fate: Literal["kept", "ended", "pruned"]
    is_output: bool  # lies on the way to the output
    place: int  # among the hypotheses of the next step when kept, else -1


@dataclass(frozen=True, kw_only=True)
class SearchStep:
    """Live hypotheses and what can follow them, best first."""

    texts: list[str]
    candidates: list[Candidate]


@dataclass(frozen=True, kw_only=True)
class SearchView:
    """The whole search. `delta` compares the output's sum here with the one that the search reported."""

    beam_size: int
    length_penalty: str
    alpha: float
    steps: list[SearchStep]
    log_prob: float
    delta: float


def search_log_probs(served: Served, tokenizer: Tokenizer) -> list[Tensor]:
    """Log-probabilities [R, V] of each step, after the rules that the search applies to its logits.

    The rules see the same rows in the same order as they did in the search.
    """
    assert served.decoding is not None
    decoding, first, config = served.decoding, served.n_prompt, served.generation
    n_rows = len(decoding.steps[0])
    rules = Rules(
        build_rules(
            config,
            n_rows,
            eos_ids=[tokenizer.eos_id],
            forbidden_ids=served.forbidden,
            limits=None if served.limit is None else [served.limit] * n_rows,
            forced=None if config.forced_bos_id is None else [[config.forced_bos_id]] * n_rows,
        )
    )
    found = []
    for texts, logits, selects in zip(decoding.steps, decoding.logits, decoding.selects, strict=True):
        history = torch.tensor([text[first:] for text in texts], dtype=torch.int64).view(len(texts), -1)
        found.append(rules(history, logits.clone()).double().log_softmax(-1))
        for rows in selects:
            rules.select(torch.tensor(rows))
    return found


def search_view(served: Served, tokenizer: Tokenizer) -> SearchView:
    """Rebuilds the steps of the search that made the output from the votes that it read."""
    assert served.decoding is not None and served.tgt is not None and served.chosen is not None
    generation, decoding = served.generation, served.decoding
    penalty = LengthPenalty(generation.length_penalty, generation.alpha)
    output = [*served.tgt.ids[: served.n_prompt], *served.chosen.ids]
    totals = {tuple(decoding.steps[0][0]): 0.0}
    steps = []
    for i, log_probs in enumerate(search_log_probs(served, tokenizer)):
        texts = [tuple(text) for text in decoding.steps[i]]
        following = [tuple(text) for text in decoding.steps[i + 1]] if i + 1 < len(decoding.steps) else []
        extended = _extensions(texts, log_probs, totals, generation.beam_size + 1)
        candidates, n_pruned = [], 0
        for rank, (total, parent, token, log_prob) in enumerate(extended):
            text = (*texts[parent], token)
            is_ended = token == tokenizer.eos_id and rank < generation.beam_size
            fate: Literal["kept", "ended", "pruned"] = (
                "ended" if is_ended else "kept" if text in following else "pruned"
            )
            n_pruned += fate == "pruned"
            if fate == "pruned" and n_pruned > generation.beam_size:
                continue
            totals[text] = total
            candidates.append(
                Candidate(
                    parent=parent,
                    piece=tokenizer.pieces([token])[0],
                    log_prob=log_prob,
                    total=total,
                    score=total / penalty(len(text) - served.n_prompt),
                    fate=fate,
                    is_output=list(text) == output[: len(text)],
                    place=following.index(text) if fate == "kept" else -1,
                )
            )
        shown = [tokenizer.decode(text[served.n_prompt :]) for text in texts]
        steps.append(SearchStep(texts=shown, candidates=candidates))
    log_prob = totals.get(tuple(output), float("nan"))
    return SearchView(
        beam_size=generation.beam_size,
        length_penalty=generation.length_penalty,
        alpha=generation.alpha,
        steps=steps,
        log_prob=log_prob,
        delta=abs(log_prob - (served.log_prob or 0.0)),
    )


def _extensions(
    texts: Sequence[tuple[int, ...]], log_probs: Tensor, totals: dict[tuple[int, ...], float], n_each: int
) -> list[tuple[float, int, int, float]]:
    """(total, parent, token, log-probability) of the best tokens after each live hypothesis, best total first."""
    found, seen = [], set()
    for parent, text in enumerate(texts):
        if text in seen or text not in totals:
            continue  # an empty place of the beam
        seen.add(text)
        best, tokens = log_probs[parent].topk(min(n_each, log_probs.shape[1]))
        for value, token in zip(best.tolist(), tokens.tolist(), strict=True):
            if value > -float("inf"):
                found.append((totals[text] + value, parent, token, value))
    return sorted(found, key=lambda item: -item[0])
