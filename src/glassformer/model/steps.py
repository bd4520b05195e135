"""Watches a model while it runs: what each of its parts gives, in the order in which it is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.model.attention import attention
from glassformer.model.transformer import Model

__all__ = ["reference_kernel", "watched"]

_SILENT = (nn.ModuleList, nn.Dropout)  # parts that compute nothing when a model is used


def reference_kernel(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """`attention`, the equation itself, as the kernel of a model (see `twin`)."""
    return attention(q, k, v, **options)[0]


@contextmanager
def watched(model: Model) -> Iterator[dict[str, list[Tensor]]]:
    """The outputs of every part of the model, by the name of the module: a list of one tensor for each call.

    The names come in the order in which the parts first finish, so the first one that differs between two runs of
    the same computation is where they part. What runs is not changed by watching.
    """
    outputs: dict[str, list[Tensor]] = {}

    def keep(name: str, output: object) -> None:
        if isinstance(output, Tensor):
            outputs.setdefault(name, []).append(output.detach())

    handles = [
        module.register_forward_hook(lambda _, __, output, name=name: keep(name, output))
        for name, module in model.named_modules()
        if name and not isinstance(module, _SILENT)
    ]
    try:
        with torch.no_grad():
            yield outputs
    finally:
        for handle in handles:
            handle.remove()
