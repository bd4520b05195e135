"""A second model that shares every weight of the first and runs another attention kernel."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor

from glassformer.model.attention import Attention, Kernel, RecordingKernel
from glassformer.model.transformer import EncoderDecoder, Model

__all__ = ["attention_maps", "twin"]

M = TypeVar("M", bound=Model)


def twin(model: M, kernel: Kernel) -> M:
    """The same weights (not copies) under another attention kernel; the given model is not touched."""
    shared = {id(parameter): parameter for parameter in model.parameters()}  # deepcopy takes these as copied already
    other = copy.deepcopy(model, shared)
    for module in other.modules():
        if isinstance(module, Attention):
            module.kernel = kernel
    return other


@torch.no_grad()
def attention_maps(model: Model, *inputs: Tensor, **options: Tensor | None) -> dict[str, list[Tensor]]:
    """Attention weights of one forward pass, by the reference equation, before dropout.

    Args:
        model: Any family.
        inputs: What its `forward` takes: (src, tgt) or (ids,).
        options: Its keyword arguments, such as masks.

    Returns:
        `encoder`, `decoder` and `cross`, those that the family has: one [B, H, T, S] per layer. Rows are queries.
    """
    recorder = RecordingKernel()
    twin(model, recorder).eval()(*inputs, **options)
    n_encoder = model.config.n_encoder_layers
    if not isinstance(model, EncoderDecoder):
        return {"decoder" if model.config.family == "decoder-only" else "encoder": recorder.weights}
    decoder = recorder.weights[n_encoder:]  # self and cross-attention in turn
    return {"encoder": recorder.weights[:n_encoder], "decoder": decoder[0::2], "cross": decoder[1::2]}
