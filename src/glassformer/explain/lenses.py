"""What the stream would say at each layer, what the feed-forward networks notice, and how the stream grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glassformer.explain.equation import Equation
from glassformer.explain.result import Array, Row
from glassformer.explain.served import Served
from glassformer.model import DecoderOnly, EncoderOnly
from glassformer.text.tokenizer import Tokenizer

__all__ = ["Feature", "LensView", "lens_views"]

N_TOP = 3  # tokens said at each place
N_FEATURES = 5  # of each feed-forward network


@dataclass(frozen=True, kw_only=True)
class Feature:
    """An inner feature of a feed-forward network: where it is strongest, and which tokens it votes for."""

    layer: int
    number: int
    strength: float
    at: str
    votes: list[str]


@dataclass(frozen=True, kw_only=True)
class LensView:
    """One stack. `said[i][t]` holds (piece, probability) of the first tokens that point i of the stream would say.

    `norms`: length of the stream, mean over tokens; `updates`: length of what each sub-layer adds to it.
    """

    side: str
    through: str  # what turns the stream into votes
    tokens: list[str]
    points: list[str]
    said: list[list[list[tuple[str, float]]]]
    norms: list[float]
    updates: dict[str, float]
    features: list[Feature]


def lens_views(equation: Equation, served: Served, rows: list[Row], tokenizers: dict[str, Tokenizer]) -> list[LensView]:
    """Logit lens of each stack (nostalgebraist 2020): the stream after each layer through the model's own output.

    A decoder's stream goes through the final norm and the projection; an encoder's through its final norm and its
    token table (or masked-language head), since nothing else of the model reads it as words.
    """
    views = []
    for side, tokens in (("encoder", served.src), ("decoder", served.tgt)):
        if tokens is not None:
            speak, through = _speaker(equation, side)
            views.append(_view(side, tokens.labels, rows, speak, through, tokenizers[side], equation))
    return views


def _speaker(equation: Equation, side: str) -> tuple[Callable[[Tensor], Tensor], str]:
    model = equation.model
    stack = getattr(model, side).stack
    norm = stack.norm if stack.norm is not None else torch.nn.Identity()
    if side == "decoder":
        assert not isinstance(model, EncoderOnly)
        projection = model.decoder.projection
        return lambda x: projection(norm(x)), "final norm and output projection"
    assert not isinstance(model, DecoderOnly)
    if isinstance(model, EncoderOnly) and model.mlm_head is not None:
        head = model.mlm_head
        return lambda x: head(norm(x)), "final norm and masked-LM head"
    table = model.encoder.embedding.tokens.weight
    return lambda x: norm(x) @ table.T, "final norm and source token table"


@torch.no_grad()
def _view(
    side: str,
    tokens: list[str],
    rows: list[Row],
    speak: Callable[[Tensor], Tensor],
    through: str,
    tokenizer: Tokenizer,
    equation: Equation,
) -> LensView:
    own = [row for row in rows if row.key.startswith(f"{side}.")]
    points = {"input": next(row for row in own if row.key == f"{side}.input.input").value}
    for row in own:
        if row.key.rpartition(".")[0].endswith(".ffn") and row.name in ("add", "add & norm"):
            points[f"layer {row.key.split('.')[1]}"] = row.value
    said = [_say(speak(torch.from_numpy(x))[0], tokenizer) for x in points.values()]
    updates = {
        f"layer {row.key.split('.')[1]}, {row.key.split('.')[2]}": _length(row.value)
        for row in own
        if row.name in ("output", "contraction")
    }
    return LensView(
        side=side,
        through=through,
        tokens=tokens,
        points=list(points),
        said=said,
        norms=[_length(x) for x in points.values()],
        updates=updates,
        features=_features(side, own, tokens, speak, tokenizer, equation),
    )


def _say(logits: Tensor, tokenizer: Tokenizer) -> list[list[tuple[str, float]]]:
    best, ids = logits.topk(N_TOP)
    probs = (best - logits.logsumexp(-1, keepdim=True)).exp()
    return [
        [(_piece(tokenizer, i), p) for i, p in zip(row_ids, row, strict=True)]
        for row_ids, row in zip(ids.tolist(), probs.tolist(), strict=True)
    ]


def _features(
    side: str,
    rows: list[Row],
    tokens: list[str],
    speak: Callable[[Tensor], Tensor],
    tokenizer: Tokenizer,
    equation: Equation,
) -> list[Feature]:
    """The features with the largest activation of each layer; votes: the direction that it writes, spoken."""
    found = []
    blocks = getattr(equation.model, side).stack.blocks
    for row in (row for row in rows if row.name == "activation"):
        layer, strength = int(row.key.split(".")[1]), row.value[0]  # [T, F]
        directions = blocks[layer - 1].feed_forward.w_2.weight.T  # [F, D]
        best = np.argsort(-strength.max(0), kind="stable")[:N_FEATURES]
        votes = speak(directions[torch.from_numpy(best)]).topk(N_TOP).indices.tolist()
        for number, ids in zip(best.tolist(), votes, strict=True):
            place = int(strength[:, number].argmax())
            found.append(
                Feature(
                    layer=layer,
                    number=number,
                    strength=float(strength[place, number]),
                    at=tokens[place],
                    votes=[_piece(tokenizer, i) for i in ids],
                )
            )
    return found


def _piece(tokenizer: Tokenizer, i: int) -> str:
    return tokenizer.pieces([i])[0].replace(" ", "␣") if i < tokenizer.vocab_size else f"(unused row {i})"


def _length(x: Array) -> float:
    return float(np.linalg.norm(x[0], axis=-1).mean())
