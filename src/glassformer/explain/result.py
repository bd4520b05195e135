"""What `explain` returns: one object with every row and view, for the terminal, HTML, JSON and notebooks alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.explain.tokens import Tokens

__all__ = ["AttentionMap", "Explanation", "Row", "mean_entropy"]

Array = NDArray[np.float64]


def mean_entropy(weights: Array) -> Array:
    """Mean over the queries of -sum p ln p, in nats: [H, T, S] -> [H]. 0: one key has all; ln S: spread evenly."""
    weights = np.where(weights > 0, weights, 1.0)
    found: Array = -(weights * np.log(weights)).sum(-1).mean(-1)
    return found


@dataclass(frozen=True, kw_only=True)
class Row:
    """One step of the computation.

    `delta` is the largest difference between the equation in float64 and the tensor of the path that served, None
    where that path has no such tensor (`note` says why). `scale` is the largest number of the equation's tensor.
    """

    key: str  # encoder.1.self.weights: stack, layer from 1, sub-layer, step
    group: str  # heading that it stands under
    name: str
    equation: str
    source: str  # paper and section
    symbolic: str  # [B, H, T, S]
    shape: tuple[int, ...]
    value: Array = field(repr=False)
    inputs: tuple[str, ...] = ()  # keys of the rows that it is computed from
    parameters: tuple[str, ...] = ()  # names of the weights in model.safetensors
    flops: int = 0  # of the matrix product, two per multiply-add
    delta: float | None = None
    scale: float = 0.0
    note: str = ""
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Memory of the tensor in float32."""
        return 4 * int(np.prod(self.shape))

    @property
    def relative(self) -> float | None:
        """delta over the row's scale."""
        return None if self.delta is None else self.delta / (self.scale or 1.0)


@dataclass(frozen=True, kw_only=True)
class AttentionMap:
    """Weights of one attention. Rows are queries, columns are keys, in every face."""

    key: str  # encoder.1.self
    title: str
    weights: Array = field(repr=False)  # [H, T, S]
    queries: Tokens
    keys: Tokens

    @property
    def entropy(self) -> Array:
        """Of each head, in nats: [H]; see `mean_entropy`."""
        return mean_entropy(self.weights)


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One text in one model, step by step."""

    model: str
    config: ModelConfig
    text: str
    output: str
    src: Tokens | None
    tgt: Tokens | None  # what the decoder reads
    chosen: Tokens | None  # what it wrote, one token after each that it reads
    rows: list[Row]
    maps: list[AttentionMap]
    tolerance: float
    views: dict[str, Any] = field(default_factory=dict)  # name of a view -> its dataclass

    @property
    def first_off(self) -> Row | None:
        """The first row whose served tensor differs from the equation by more than the tolerance, if any."""
        return next((row for row in self.rows if row.relative is not None and not row.relative <= self.tolerance), None)

    @property
    def worst(self) -> Row:
        """The row with the largest relative difference."""
        return max((row for row in self.rows if row.relative is not None), key=lambda row: row.relative or 0.0)

    def row(self, key: str) -> Row:
        """The row of this key."""
        return next(row for row in self.rows if row.key == key)

    def to_numpy(self) -> dict[str, Array]:
        """Key -> the equation's numbers."""
        return {row.key: row.value for row in self.rows}

    def to_bertviz(self) -> dict[str, Any]:
        """The arguments of BertViz's `head_view(**...)` and `model_view(**...)`.

        Attention is a tuple with a float64 tensor [1, H, T, S] for each layer. An encoder-decoder has three,
        `encoder_attention`, `decoder_attention` and `cross_attention`, with `encoder_tokens` and `decoder_tokens`;
        the other families have `attention` and `tokens`. CircuitsVis takes one layer: `weights[0]` and the tokens.
        """
        import torch

        found: dict[str, Any] = {}
        for map_ in self.maps:
            side, _, kind = map_.key.split(".")
            name = (
                "attention"
                if self.src is None or self.tgt is None
                else f"{'cross' if kind == 'cross' else side}_attention"
            )
            found[name] = (*found.get(name, ()), torch.from_numpy(map_.weights[None]))
        names = ("encoder_tokens", "decoder_tokens") if self.src and self.tgt else ("tokens", "tokens")
        sides = zip(names, (self.src, self.tgt), strict=True)
        return found | {name: tokens.labels for name, tokens in sides if tokens is not None}

    def to_json(self, *, is_full: bool = False) -> str:
        """The documented JSON; `is_full` adds every number of every row. UserError without views."""
        from glassformer.explain.render_json import to_json

        self._require_views()
        return to_json(self, is_full=is_full)

    def to_html(self) -> str:
        """One page that needs nothing else. UserError without views."""
        from glassformer.explain.render_html import to_html

        self._require_views()
        return to_html(self)

    def _require_views(self) -> None:
        if not self.views:
            raise UserError(
                "The explanation was made without views.", "The page and the JSON show them.", "Leave out with_views."
            )

    def _repr_html_(self) -> str:
        from glassformer.explain.render_html import to_notebook

        self._require_views()
        return to_notebook(self)
