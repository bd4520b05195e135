"""Recomputes every step of `glassformer explain --json FILE --full` with numpy alone.

    python recompute.py explanation.json model.safetensors

Each step takes the numbers of the earlier steps that it names in `inputs` and the weights that it names in
`parameters`, applies its equation, and is compared with the numbers in the file. Prints the largest difference.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

Array = Any


def read_weights(path: Path) -> dict[str, Array]:
    """A safetensors file: eight bytes of length, a JSON header, then the numbers."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    body = content[8 + length :]
    return {
        name: np.frombuffer(body[slice(*about["data_offsets"])], dtype=np.float32).reshape(about["shape"]).astype(float)
        for name, about in header.items()
        if name != "__metadata__"
    }


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def gelu(x: Array) -> Array:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def split(x: Array, width: int) -> Array:
    return x.reshape(*x.shape[:-1], -1, width).swapaxes(1, 2)


def sinusoids(shape: tuple[int, ...], *, is_interleaved: bool) -> Array:
    _, n, d = shape
    angle = np.arange(n)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    if not is_interleaved:
        return np.concatenate([np.sin(angle), np.cos(angle)[:, : d // 2]], 1)[None]
    table = np.zeros((n, d))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)[:, : d // 2]
    return table[None]


def turned(x: Array, config: dict[str, Any]) -> Array:
    width = x.shape[-1]
    angle = np.arange(x.shape[2])[:, None] / config["rotary_base"] ** (np.arange(0, width, 2) / width)
    cos, sin = np.cos(angle), np.sin(angle)
    if config["sinusoid_layout"] == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def step(name: str, x: list[Array], w: list[Array], config: dict[str, Any], shape: tuple[int, ...]) -> Array | None:
    """One equation; x are the inputs, w the parameters. None: a step that starts a chain (ids, a bias's table)."""
    heads = config["d_head"] or config["d_model"] // config["n_heads"]
    if name in ("Q", "K", "V"):
        return split(linear(x[0], w), heads)
    if name in ("Q turned", "K turned"):
        return turned(x[0], config)
    if name == "scores":
        keys = np.repeat(x[1], x[0].shape[1] // x[1].shape[1], axis=1)
        return x[0] @ keys.swapaxes(-1, -2)
    if name == "context":
        return x[0] @ np.repeat(x[1], x[0].shape[1] // x[1].shape[1], axis=1)
    if name in ("norm", "add & norm", "memory", "features"):
        return norm(x, w, config)
    if name == "positions":
        return (
            sinusoids(shape, is_interleaved=config["sinusoid_layout"] == "interleaved")
            if not w
            else w[0][None, : shape[1]]
        )
    simple = {
        "embeddings": lambda: (
            w[0][x[0].astype(int)] * (math.sqrt(config["d_model"]) if config["scale_embedding"] else 1)
        ),
        "input": lambda: None if w else sum(x),
        "mean": lambda: x[0].mean(-1, keepdims=True),
        "variance": lambda: x[0].var(-1, keepdims=True),
        "mean square": lambda: (x[0] ** 2).mean(-1, keepdims=True),
        "scaled": lambda: x[0] / math.sqrt(heads),
        "biased": lambda: x[0] + x[1],
        "masked": lambda: np.where(np.tri(*shape[-2:], dtype=bool), x[0], -np.inf),
        "weights": lambda: softmax(x[0]),
        "probabilities": lambda: softmax(x[0]),
        "concatenation": lambda: x[0].swapaxes(1, 2).reshape(shape),
        "output": lambda: linear(x[0], w),
        "add": lambda: x[0] + x[1],
        "expansion": lambda: linear(x[0], w),
        "gate": lambda: linear(x[0], w),
        "activation": lambda: ACTIVATIONS[config["activation"]](x[0]) * (x[1] if len(x) > 1 else 1),
        "contraction": lambda: linear(x[0], w),
        "head": lambda: head(x[0], w, config),
        "pooler": lambda: np.tanh(linear(x[0][:, 0], w)),
        "logits": lambda: linear(x[0] * (config["d_model"] ** -0.5 if config["scale_logits"] else 1), w),
    }
    return simple[name]() if name in simple else None


def linear(x: Array, w: list[Array]) -> Array:
    return x @ w[0].T + (w[1] if len(w) > 1 else 0)


def head(x: Array, w: list[Array], config: dict[str, Any]) -> Array:
    y = ACTIVATIONS[config["activation"]](linear(x, w[:2]))
    mean, square = y.mean(-1, keepdims=True), (y**2).mean(-1, keepdims=True)
    inputs = [y, mean, y.var(-1, keepdims=True)] if config["norm"] == "layernorm" else [y, square]
    return norm(inputs, w[2:], config)


def norm(x: list[Array], w: list[Array], config: dict[str, Any]) -> Array:
    if not w:
        return x[0]  # the result of a stack without a final norm
    centred = x[0] - x[1] if len(x) > 2 else x[0]
    return centred / np.sqrt(x[-1] + config["norm_eps"]) * w[0] + (w[1] if len(w) > 1 else 0)


def differences(explanation: dict[str, Any], weights: dict[str, Array]) -> dict[str, float]:
    """Key of each step that follows from others -> largest difference between recomputed and given numbers."""
    values = {row["key"]: np.array(row["values"], dtype=float) for row in explanation["steps"]}
    for key, value in values.items():  # null is minus infinity
        values[key] = np.where(np.isnan(value), -np.inf, value)
    found = {}
    for row in explanation["steps"]:
        inputs = [values[key] for key in row["inputs"]]
        mine = step(
            row["name"],
            inputs,
            [weights[name] for name in row["parameters"]],
            explanation["config"],
            tuple(row["shape"]),
        )
        if mine is not None:
            given = values[row["key"]]
            hidden = np.isneginf(given)
            assert (np.isneginf(mine) == hidden).all(), row["key"]
            found[row["key"]] = float(np.abs(np.where(hidden, 0, mine) - np.where(hidden, 0, given)).max())
    return found


if __name__ == "__main__":
    gaps = differences(json.loads(Path(sys.argv[1]).read_text("utf-8")), read_weights(Path(sys.argv[2])))
    worst = max(gaps, key=lambda key: gaps[key])
    print(f"{len(gaps)} steps recomputed, largest difference {gaps[worst]:.1e} ({worst})")
