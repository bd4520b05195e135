"""Which input tokens the output rests on: three readings of attention, each with a test of how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.explain.result import Array, AttentionMap
from glassformer.explain.served import Served
from glassformer.model import EncoderDecoder, Model

__all__ = ["Relevance", "RelevanceView", "attention_gradients", "relevance_view", "rollout"]

SHARES = (0.2, 0.4, 0.6, 0.8)  # of the input's tokens that are deleted
N_RANDOM = 4  # random orders that deletion is compared with


@dataclass(frozen=True, kw_only=True)
class Relevance:
    """One reading. Rows are output tokens, columns input tokens; each row sums to 1 (or is all 0).

    `deletion`: how much the model's certainty of its output falls when the input tokens are deleted in this
    reading's order, over the same for random orders, mean over four shares. 1: no better than chance.
    """

    method: str
    weights: Array
    deletion: float
    drops: list[float]


@dataclass(frozen=True, kw_only=True)
class RelevanceView:
    """All readings of one text. `measure` says what falls when tokens are deleted."""

    rows: list[str]
    columns: list[str]
    row_words: list[list[int]]
    column_words: list[list[int]]
    measure: str
    shares: list[float]
    random_drops: list[float]
    readings: list[Relevance]


def attention_gradients(weights: Mapping[str, Tensor], output: Tensor, served: Served) -> dict[str, Array]:
    """Attention x gradient: max(0, A · d log p(output) / dA), mean over heads. Module name -> [T, S].

    Source: Chefer, Gur & Wolf 2021, equation 5, without the propagation through layers.
    """
    if served.chosen is None:
        aim = output.mean(1).pow(2).sum() / 2  # an encoder without an output: the size of its mean vector
    else:
        log_probs = output[0, -len(served.chosen.ids) :].log_softmax(-1)
        aim = log_probs.gather(1, torch.tensor(served.chosen.ids)[:, None]).sum()
    gradients = torch.autograd.grad(aim, list(weights.values()), allow_unused=True)
    return {
        name: np.zeros(values.shape[2:])
        if gradient is None
        else (values.detach() * gradient).clamp(min=0).mean(1)[0].numpy()
        for (name, values), gradient in zip(weights.items(), gradients, strict=True)
    }


def rollout(maps: list[AttentionMap]) -> Array:
    """How much of each input token reaches each output token when every residual carries half: [T, S].

    A layer mixes with (A + 1) / 2, A the mean over heads. A decoder layer first mixes its own tokens, then takes
    half of its stream from the encoder's tokens by cross-attention.

    Source: Abnar & Zuidema 2020, equation 1; for cross-attention the same rule on the joined tokens.
    """
    of = {side: [m for m in maps if m.key.startswith(side)] for side in ("encoder", "decoder")}
    memory = _self_rollout(of["encoder"])
    if not of["decoder"]:
        return memory
    own = [m for m in of["decoder"] if m.key.endswith("self")]
    cross = [m for m in of["decoder"] if m.key.endswith("cross")]
    if not cross:
        return _self_rollout(own)
    n_tgt, n_src = own[0].weights.shape[-1], len(memory)
    from_src, from_tgt = np.zeros((n_tgt, n_src)), np.eye(n_tgt)
    for self_map, cross_map in zip(own, cross, strict=True):
        mix = (self_map.weights.mean(0) + np.eye(n_tgt)) / 2
        from_src, from_tgt = mix @ from_src, mix @ from_tgt
        from_src = (from_src + cross_map.weights.mean(0) @ memory) / 2
        from_tgt = from_tgt / 2
    return from_src


def _self_rollout(maps: list[AttentionMap]) -> Array:
    mixed: Array = np.eye(maps[0].weights.shape[-1]) if maps else np.eye(0)
    for map_ in maps:
        mixed = (map_.weights.mean(0) + np.eye(len(mixed))) / 2 @ mixed
    return mixed


def relevance_view(
    model: Model, served: Served, maps: list[AttentionMap], gradients: Mapping[str, Array]
) -> RelevanceView:
    """Three readings with their deletion scores. `model` is the one that serves."""
    kind = "cross" if isinstance(model, EncoderDecoder) else "self"
    chosen = [map_ for map_ in maps if map_.key.endswith(kind)]
    pulled = [values for name, values in gradients.items() if f".{kind}_attention" in name]
    inputs = served.src or served.tgt
    outputs = served.chosen or served.src
    assert inputs is not None and outputs is not None
    n_in = len(inputs.ids) if served.src is not None else served.n_prompt
    n_out = len(outputs.ids)
    found = {
        "mean over layers and heads": np.mean([map_.weights.mean(0) for map_ in chosen], axis=0),
        "rollout": rollout(maps),
        "attention x gradient": np.sum(pulled, axis=0),
    }
    deletion = _Deletion(model, served, n_in)
    random = np.mean([deletion.drops(order) for order in deletion.random_orders()], axis=0)
    readings = []
    for name, weights in found.items():
        weights = weights[-n_out:, :n_in]
        total = weights.sum(-1, keepdims=True)
        weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        drops = deletion.drops(np.argsort(-weights.sum(0), kind="stable"))
        score = float(np.mean(drops) / np.mean(random)) if np.mean(random) > 0 else float("nan")
        readings.append(Relevance(method=name, weights=weights, deletion=score, drops=drops.tolist()))
    return RelevanceView(
        rows=outputs.labels,
        columns=inputs.labels[:n_in],
        row_words=outputs.words,
        column_words=[word for word in inputs.words if word[-1] < n_in],
        measure=deletion.measure,
        shares=list(SHARES),
        random_drops=random.tolist(),
        readings=readings,
    )


class _Deletion:
    """Deletes input tokens, really (the others close ranks), and measures what that does to the output."""

    def __init__(self, model: Model, served: Served, n_in: int) -> None:
        self.model, self.served = model, served
        inputs = served.src or served.tgt
        assert inputs is not None
        self.places = [i for i in range(n_in) if not inputs.is_special[i]]
        self.measure = (
            "1 - cosine of the mean vector"
            if served.chosen is None
            else "nats lost per output token, log p of the output"
        )
        self.mean: Tensor | None = None  # of the whole text, for an encoder
        self.whole = self._certainty(torch.ones(1, len(inputs.ids), dtype=torch.bool))

    def random_orders(self) -> list[NDArray[np.int64]]:
        generator = np.random.default_rng(0)
        return [generator.permutation(self.places) for _ in range(N_RANDOM)]

    def drops(self, order: NDArray[np.int64]) -> Array:
        """Loss of certainty after deleting the first 20, 40, 60, 80 % of the tokens in this order."""
        inputs = self.served.src or self.served.tgt
        assert inputs is not None
        ordered = [int(place) for place in order if int(place) in set(self.places)]
        keep = torch.ones(len(SHARES), len(inputs.ids), dtype=torch.bool)
        for row, share in enumerate(SHARES):
            keep[row, ordered[: round(share * len(ordered))]] = False
        dropped: Array = (self.whole - self._certainty(keep)).numpy()
        return dropped

    @torch.no_grad()
    def _certainty(self, keep: Tensor) -> Tensor:
        """[N]: log p of the output per token, or how near the mean vector stays to the whole text's."""
        served, n = self.served, len(keep)
        ids = tuple(x.expand(n, -1) for x in served.inputs)
        if isinstance(self.model, EncoderDecoder):
            output = self.model(*ids, src_mask=keep)
        else:
            output = self.model(*ids, mask=keep)
        if served.chosen is None:
            means = (output * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)
            self.mean = means if self.mean is None else self.mean
            return torch.cosine_similarity(means, self.mean).double()
        logits = output[:, -len(served.chosen.ids) :]
        targets = torch.tensor(served.chosen.ids).expand(n, -1)[..., None]
        log_probs = logits.gather(2, targets)[..., 0] - logits.logsumexp(-1)
        certainty: Tensor = log_probs.double().mean(1)
        return certainty
