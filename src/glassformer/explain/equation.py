"""The model's equations in float64: what every served number is measured against."""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import Tensor, nn

from glassformer.explain.trace import Trace, run_whole, watch
from glassformer.model import Attention, LayerNorm, Model, RMSNorm
from glassformer.model.attention import RecordingKernel
from glassformer.model.norm import layer_norm, rms_norm

__all__ = ["Equation", "evaluate"]


class Equation:
    """A float64 copy of a model that runs the reference of every layer: plain attention, plain norms.

    The given model is only read. Rounding is 2^-53 here, so a difference from the served float32 is the served path's.
    """

    def __init__(self, model: Model) -> None:
        exact = {id(p): nn.Parameter(p.detach().double()) for p in model.parameters()}
        self.model: Model = copy.deepcopy(model, exact).double().eval()
        self.recorder = RecordingKernel()
        for module in self.model.modules():
            if isinstance(module, Attention):
                module.kernel = self.recorder
            elif isinstance(module, LayerNorm):
                module.forward = partial(layer_norm, gamma=module.gamma, beta=module.beta, eps=module.eps)  # type: ignore[method-assign]
            elif isinstance(module, RMSNorm):
                module.forward = partial(rms_norm, gamma=module.gamma, eps=module.eps)  # type: ignore[method-assign]


def evaluate(equation: Equation, *inputs: Tensor) -> tuple[Trace, dict[str, Tensor], Tensor]:
    """Runs the copy over whole texts, without a cache, with gradients.

    Args:
        equation: The copy.
        inputs: What the model's `forward` takes: (src, tgt) or (ids,).

    Returns:
        The trace, the attention weights [B, H, T, S] by module name (part of the graph), and what `run_whole` returns.
    """
    equation.recorder.weights.clear()
    with torch.enable_grad(), watch(equation.model) as calls:
        output = run_whole(equation.model, *inputs)
    order = [name for name in calls.into if name.rpartition(".")[2] in ("self_attention", "cross_attention")]
    weights = dict(zip(order, equation.recorder.weights, strict=True))
    return Trace.of(calls), weights, output
