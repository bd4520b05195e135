"""The table of steps while it is being written: one method appends a row, with its cost and its proof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.explain.result import Array, Row
from glassformer.explain.trace import Trace
from glassformer.shapes import walk

__all__ = ["Table", "names_of", "to_array"]

PAPER = "Vaswani et al. 2017"
SOURCES = {
    "embeddings": f"{PAPER}, 3.4",
    "positions": f"{PAPER}, 3.5",
    "segments": "Devlin et al. 2019, 3",
    "projection": f"{PAPER}, 3.2.2",
    "kernel": f"{PAPER}, 3.2.1, eq. 1",
    "rotary": "Su et al. 2021, eq. 34",
    "t5_relative": "Raffel et al. 2020, 2.1",
    "alibi": "Press et al. 2022, 3",
    "mask": f"{PAPER}, 3.2.3",
    "layernorm": "Ba et al. 2016, eq. 4",
    "rmsnorm": "Zhang & Sennrich 2019, eq. 4",
    "residual": f"{PAPER}, 3.1",
    "ffn": f"{PAPER}, 3.3, eq. 2",
    "output": f"{PAPER}, 3.4",
    "head": "Devlin et al. 2019",
}


def to_array(tensor: Tensor) -> Array:
    """A float64 array of its own."""
    array: Array = tensor.detach().to("cpu").double().numpy().copy()
    return array


def names_of(model: nn.Module) -> dict[str, str]:
    """Every name of a parameter -> the name under which model.safetensors keeps it (shared ones are kept once)."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(p), name) for name, p in model.named_parameters(remove_duplicate=False)}


class Table:
    """Rows so far, and where the next one belongs.

    Attributes:
        group: Heading of the next rows.
        prefix: Start of their keys.
        stream: Key of the row that holds the residual stream now.
        length: `S` in the encoder, `T` in the decoder.
    """

    def __init__(
        self,
        config: ModelConfig,
        sizes: tuple[int, int, int],
        equation: Trace,
        served: Trace,
        names: Mapping[str, str],
    ) -> None:
        self.config, self.equation, self.served, self.names = config, equation, served, names
        self.walked = {step.name: step for step in walk(config, *sizes)}
        self.rows: list[Row] = []
        self.group, self.prefix, self.stream, self.length = "", "", "", "S"

    def out(self, name: str, module: str, **about: Any) -> str:
        """The row of what a module gives."""
        return self.add(name, self.equation.out[module], self.served.out.get(module), **about)

    def into(self, name: str, module: str, **about: Any) -> str:
        """The row of what a module receives."""
        return self.add(name, self.equation.into[module], self.served.into.get(module), **about)

    def add(
        self,
        name: str,
        value: Tensor,
        served: Tensor | None,
        *,
        source: str,
        walked: str = "",
        equation: str = "",
        letters: str = "",
        inner: int = 0,
        weights: tuple[str, ...] = (),
        note: str = "",
        **about: Any,
    ) -> str:
        """Appends a row and returns its key.

        Args:
            name: What the step makes.
            value: The equation's tensor.
            served: The serving path's, if it has one.
            source: Which of SOURCES.
            walked: Name in `shapes.walk`, which has equation and letters where they are not given.
            equation: In words of the paper.
            letters: Symbolic shape.
            inner: Width that a matrix product sums over.
            weights: Names of parameters; those that the model does not have are left out.
            note: Why there is no served tensor.
            about: Further fields of the row.
        """
        step, exact = self.walked.get(walked), to_array(value)
        finite = exact[np.isfinite(exact)]
        delta = None
        if served is None:
            note = note or "no tensor of its own in the path that served"
        else:
            got = to_array(served)
            delta = float(np.abs(exact[:, -got.shape[1] :] - got).max())
            if got.shape[1] < exact.shape[1]:
                note = f"served for the last {got.shape[1]} positions only"
        row = Row(
            key=f"{self.prefix}.{name}",
            group=self.group,
            name=name,
            equation=equation or (step.equation if step else ""),
            source=SOURCES[source],
            symbolic=letters or (step.symbolic if step else ""),
            shape=exact.shape,
            value=exact,
            parameters=tuple(self.names[weight] for weight in weights if weight in self.names),
            flops=2 * exact.size * inner,
            delta=delta,
            scale=float(np.abs(finite).max()) if finite.size else 0.0,
            note=note,
            **about,
        )
        self.rows.append(row)
        return row.key

    def split(self, x: Tensor) -> Tensor:
        """[B, T, H*K] -> [B, H, T, K]."""
        return x.view(*x.shape[:-1], -1, self.config.head_width).transpose(1, 2)
