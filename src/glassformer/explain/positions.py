"""How a model knows the order: its own positions as a table, by scale, by distance, and as a rotation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.explain.result import Array
from glassformer.model import Decoder, DecoderOnly, Encoder, Model
from glassformer.model.positions import rotary_phases, rotate, sinusoidal_table

__all__ = ["PositionsView", "positions_view"]

N_POSITIONS = 64
SHIFTS = (1, 5, 20)


@dataclass(frozen=True, kw_only=True)
class PositionsView:
    """The position scheme of a model.

    Attributes:
        kind: As in the config.
        says: What the scheme does, in a sentence.
        table: [positions, D], for schemes that add a vector.
        signature: Dimension -> its numbers over the positions: low ones change fast, high ones slowly.
        by_distance: Name -> (distance, number): what a distance alone does to the score or the dot product.
        shift: Distance k -> largest difference between PE(pos + k) and PE(pos) turned by k's angles.
    """

    kind: str
    says: str
    table: Array | None = None
    signature: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    by_distance: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    distance_label: str = ""
    shift: dict[int, float] = field(default_factory=dict)


SAYS = {
    "sinusoidal": "A fixed vector per position is added to the embeddings; PE(pos + k) is PE(pos), turned.",
    "learned": "A learned vector per position is added to the embeddings; there are no more than the table has rows.",
    "rotary": "Queries and keys are turned by angles that grow with the position; scores see the distance alone.",
    "t5_relative": "A learned number for each head and bucket of distance is added to the scores of every layer.",
    "alibi": "A fixed number that falls with the distance, at another slope for each head, is added to the scores.",
    "none": "Nothing: this model sees a set, but for what a causal mask gives away.",
}


def positions_view(model: Model) -> PositionsView:
    """The positions of a model's first stack that has them."""
    config = model.config
    kind = config.positions
    if kind in ("sinusoidal", "learned"):
        return _added(config, kind, _table(model, config))
    if kind == "rotary":
        return _rotary(config)
    if kind == "none":
        return PositionsView(kind=kind, says=SAYS[kind])
    return _bias(model, kind)


def _side(model: Model) -> Encoder | Decoder:
    return model.decoder if isinstance(model, DecoderOnly) else model.encoder


def _table(model: Model, config: ModelConfig) -> Array:
    if config.positions == "sinusoidal":
        is_interleaved = config.sinusoid_layout == "interleaved"
        table: Array = sinusoidal_table(N_POSITIONS, config.d_model, is_interleaved=is_interleaved).numpy()
        return table
    side = _side(model)
    n_positions = min(N_POSITIONS, config.max_positions or N_POSITIONS)
    places = torch.arange(n_positions)[None]
    with torch.no_grad():
        positions = side.embedding.positions
        assert positions is not None
        learned: Tensor = positions(places, n_positions=n_positions, dtype=torch.float32)
    rows: Array = learned[0].double().numpy()
    return rows


def _added(config: ModelConfig, kind: str, table: Array) -> PositionsView:
    n, width = table.shape
    pairs = max(1, width // 2)
    step = 2 if config.sinusoid_layout == "interleaved" or kind == "learned" else 1
    picked = sorted({round(share * (pairs - 1)) * step for share in (0, 0.1, 0.2, 0.4)})
    products = table @ table.T
    dots = [(float(k), float(np.diagonal(products, k).mean())) for k in range(n)]
    return PositionsView(
        kind=kind,
        says=SAYS[kind],
        table=table,
        signature={f"dimension {i}": _points(table[:, i]) for i in picked},
        by_distance={"PE(pos) · PE(pos + k)": dots},
        distance_label="dot product",
        shift={k: _rotation_gap(config, table, k) for k in SHIFTS if k < n} if kind == "sinusoidal" else {},
    )


def _rotation_gap(config: ModelConfig, table: Array, k: int) -> float:
    """Largest difference between PE(pos + k) and each pair of PE(pos) turned by k / 10000^(2i/D)."""
    width = table.shape[1] // 2 * 2
    if config.sinusoid_layout == "interleaved":
        sines, cosines = table[:, 0:width:2], table[:, 1:width:2]
    else:
        half = (table.shape[1] + 1) // 2
        sines, cosines = table[:, : width // 2], table[:, half:]
    angle = k / 10000 ** (np.arange(0, width, 2) / config.d_model)
    turned_sines = sines * np.cos(angle) + cosines * np.sin(angle)
    turned_cosines = cosines * np.cos(angle) - sines * np.sin(angle)
    gaps = np.abs(turned_sines[:-k] - sines[k:]), np.abs(turned_cosines[:-k] - cosines[k:])
    return float(max(gap.max() for gap in gaps))


def _rotary(config: ModelConfig) -> PositionsView:
    """A query and a key of ones, turned: their score by distance, and that only the distance counts."""
    places = torch.arange(N_POSITIONS)[None]
    phases = rotary_phases(places, d_head=config.head_width, base=config.rotary_base, dtype=torch.float64)
    ones = torch.ones(1, 1, N_POSITIONS, config.head_width, dtype=torch.float64)
    turned = rotate(ones, phases, is_interleaved=config.sinusoid_layout == "interleaved")[0, 0].numpy()
    products = turned @ turned.T / config.head_width
    cos, sin = (phase[0, 0].numpy() for phase in phases)
    return PositionsView(
        kind="rotary",
        says=SAYS["rotary"],
        table=np.concatenate([cos, sin], axis=1),
        signature={f"cos of pair {i}": _points(cos[:, i]) for i in sorted({0, cos.shape[1] // 4, cos.shape[1] // 2})},
        by_distance={
            "score of equal q and k": [(float(k), float(np.diagonal(products, k).mean())) for k in range(N_POSITIONS)]
        },
        distance_label="score over K",
        shift={k: float(np.ptp(np.diagonal(products, k))) for k in SHIFTS},
    )


def _bias(model: Model, kind: str) -> PositionsView:
    side = _side(model)
    places = torch.arange(N_POSITIONS)[None]
    last = torch.tensor([[N_POSITIONS // 2 if side.stack.is_causal is False else N_POSITIONS - 1]])
    with torch.no_grad():
        assert side.stack.bias is not None
        bias = side.stack.bias(last, places)[0, :, 0].double().numpy()  # [H, S]
    distances = [float(place - int(last)) for place in range(N_POSITIONS)]
    return PositionsView(
        kind=kind,
        says=SAYS[kind],
        by_distance={f"head {h + 1}": list(zip(distances, row.tolist(), strict=True)) for h, row in enumerate(bias)},
        distance_label="bias of the score",
    )


def _points(values: Array | Sequence[float]) -> list[tuple[float, float]]:
    return [(float(i), float(value)) for i, value in enumerate(values)]
