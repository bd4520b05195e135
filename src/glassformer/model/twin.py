"""A second model that shares every weight of the first and runs another attention kernel."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from glassformer.model.attention import Attention, Kernel, RecordingKernel
from glassformer.model.transformer import EncoderDecoder, Model, build_model

__all__ = ["attention_maps", "twin"]

M = TypeVar("M", bound=Model)


def twin(model: M, kernel: Kernel) -> M:
    """The same weights (not copies) under another attention kernel; the given model is not touched."""
    with torch.device("meta"):
        other = build_model(model.config)
    other.load_state_dict(model.state_dict(keep_vars=True), assign=True)
    for module in other.modules():
        if isinstance(module, Attention):
            module.kernel = kernel
    return other.train(model.training)  # type: ignore[return-value]


@torch.no_grad()
def attention_maps(model: Model, *inputs: Tensor) -> dict[str, list[Tensor]]:
    """Attention weights of one forward pass, by the reference equation, before dropout.

    Args:
        model: Any family.
        inputs: What its `forward` takes: (src, tgt) or (ids,).

    Returns:
        `encoder`, `decoder` and `cross`, those that the family has: one [B, H, T, S] per layer. Rows are queries.
    """
    recorder = RecordingKernel()
    twin(model, recorder).eval()(*inputs)
    n_encoder = model.config.n_encoder_layers
    if not isinstance(model, EncoderDecoder):
        return {"decoder" if model.config.family == "decoder-only" else "encoder": recorder.weights}
    decoder = recorder.weights[n_encoder:]  # self and cross-attention in turn
    return {"encoder": recorder.weights[:n_encoder], "decoder": decoder[0::2], "cross": decoder[1::2]}
