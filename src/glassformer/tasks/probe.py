"""A fingerprint of what a model computes, kept beside its weights: damage to weights, settings or code shows.

`probe.json` holds a few numbers of every step on one fixed input, computed by the equations in float64 when the model
was saved. `probe_differences` computes them again. A swapped head, another epsilon or a shifted position changes no
checksum that a changed file could not carry too, but it changes these.
"""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import CheckpointError
from glassformer.model import EncoderDecoder, EncoderOnly, Model, twin
from glassformer.model.steps import reference_kernel, watched
from glassformer.training.checkpoint import write_text

__all__ = ["PROBE", "exact_twin", "load_probe", "probe", "probe_difference", "save_probe"]

PROBE = "probe.json"
N_VALUES = 4  # numbers kept of each step
LENGTHS = (7, 4)  # tokens of the two texts of the input; the second one is padded


def exact_twin(model: Model) -> Model:
    """The model in float64 under the reference equations, in eval mode; the given one is not touched."""
    return twin(copy.deepcopy(model).cpu().double(), reference_kernel).eval()


def save_probe(folder: Path, model: Model) -> None:
    """Writes `probe.json` into a model folder."""
    write_text(folder / PROBE, json.dumps(probe(model), indent=0) + "\n")


def load_probe(folder: Path) -> dict[str, Any] | None:
    """The probe of a model folder; None: it has none."""
    path = folder / PROBE
    if not path.exists():
        return None
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}).", "JSON was expected.", "Restore it.") from error


def probe(model: Model) -> dict[str, list[float]]:
    """A few numbers of every step on the fixed input: module name -> numbers, in the order of computation."""
    exact = exact_twin(model)
    ids, mask = _input(exact.config, exact.config.source_vocab_size)
    with watched(exact) as steps:
        if isinstance(exact, EncoderDecoder):
            tgt, tgt_mask = _input(exact.config, exact.config.vocab_size)
            exact(ids, tgt, src_mask=mask, tgt_mask=tgt_mask)
        elif isinstance(exact, EncoderOnly):
            features = exact(ids, mask=mask)
            for head in (exact.pooler, exact.mlm_head):
                if head is not None:
                    head(features)
            if exact.label_head is not None:
                exact.label_logits(ids, mask=mask)
        else:
            exact(ids, mask=mask)
    return {name: _sample(outputs) for name, outputs in steps.items()}


def probe_difference(saved: dict[str, Any], model: Model) -> tuple[float, str | None]:
    """Largest relative difference to a saved probe, and the first step whose difference is above rounding.

    The numbers of one step are compared relative to its largest one. Two machines differ by rounding of float64,
    about 1e-13; 1e-9 is the bound.
    """
    worst, first = 0.0, None
    found = probe(model)
    for name in [*found, *(name for name in saved if name not in found)]:
        ours, theirs = found.get(name), saved.get(name)
        difference = math.inf
        if (
            ours is not None
            and theirs is not None
            and len(ours) == len(theirs)
            and all(map(math.isfinite, [*ours, *theirs]))
        ):
            size = max(map(abs, [*ours, *theirs, 1e-30]))
            difference = max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / size
        if not difference <= 1e-9 and first is None:
            first = name
        worst = max(worst, difference)
    return worst, first


def _input(config: ModelConfig, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Two texts of fixed ids, spread over the vocabulary: [2, T], and where they are real."""
    n_tokens = min(LENGTHS[0], config.max_positions or LENGTHS[0])
    ids = (torch.arange(2 * n_tokens).view(2, n_tokens) * 2654435761 + 97) % vocab_size
    mask = torch.arange(n_tokens) < torch.tensor([[n_tokens], [min(LENGTHS[1], n_tokens)]])
    return ids, mask


def _sample(outputs: list[Tensor]) -> list[float]:
    """Sums over a step's output with weights in [-1, 1] that no pattern of heads or positions fits."""
    values = torch.cat([output.flatten().double() for output in outputs])
    places = torch.arange(1, len(values) + 1, dtype=torch.float64)
    return [float((values * (places * 0.7548776662 * k).sin()).sum()) for k in range(1, N_VALUES + 1)]
