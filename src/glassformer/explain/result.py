"""What `explain` returns: one object with every row and view, for the terminal, HTML, JSON and notebooks alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.config import ModelConfig
from glassformer.explain.tokens import Tokens

__all__ = ["AttentionMap", "Explanation", "Row"]

Array = NDArray[np.float64]


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
        """Mean over the queries of -sum p ln p, in nats: [H]. 0: one key has all; ln S: spread evenly."""
        weights = np.where(self.weights > 0, self.weights, 1.0)
        found: Array = -(self.weights * np.log(weights)).sum(-1).mean(-1)
        return found


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

    def to_json(self, *, is_full: bool = False) -> str:
        """The documented JSON; `is_full` adds every number of every row."""
        from glassformer.explain.render_json import to_json

        return to_json(self, is_full=is_full)

    def to_html(self) -> str:
        """One page that needs nothing else."""
        from glassformer.explain.render_html import to_html

        return to_html(self)

    def _repr_html_(self) -> str:
        from glassformer.explain.render_html import to_notebook

        return to_notebook(self)
