"""What the modules of a model received and gave in one run, by name. The model computes as always."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.generation.decoding import Decoding
from glassformer.model import Attention, EncoderOnly, Model
from glassformer.model.attention import Kernel

__all__ = ["KernelCall", "Trace", "WatchedDecoding", "run_whole", "watch"]


@dataclass
class KernelCall:
    """What one attention kernel was given and gave."""

    q: Tensor  # [B, H, T, K], turned where positions are rotary
    k: Tensor  # [B, G, T, K], the newest keys, as many as queries: in self-attention those of the queries' own tokens
    scale: float
    mask: Tensor | None
    bias: Tensor | None
    context: Tensor  # [B, H, T, K]


class _Watched:
    """The kernel of one attention with a notebook beside it: the same call, the same result."""

    def __init__(self, kernel: Kernel, calls: list[KernelCall]) -> None:
        self.kernel, self.calls = kernel, calls

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, **options: Any) -> Tensor:
        context = self.kernel(q, k, v, scale=scale, **options)
        mask, bias = options.get("mask"), options.get("bias")
        # A copy of the keys: a cache hands out views of memory that later steps write over.
        newest, bias = k[:, :, -q.shape[2] :].detach().clone(), None if bias is None else bias.detach()
        self.calls.append(KernelCall(q.detach(), newest, scale, mask, bias, context.detach()))
        return context


@dataclass
class Calls:
    """Inputs and outputs of every module, one entry per call, the newest last."""

    into: dict[str, list[Tensor]] = field(default_factory=dict)
    out: dict[str, list[Tensor]] = field(default_factory=dict)
    kernels: dict[str, list[KernelCall]] = field(default_factory=dict)


@contextmanager
def watch(model: nn.Module) -> Iterator[Calls]:
    """Keeps what each module of the model receives and gives while the block runs; dropout, which is off, is left out.

    Forward hooks only: no module is replaced and no other path taken. The kernel of each attention is the one that
    was there, called by a wrapper that notes its arguments. A module that stands in two places (a shared token table)
    is named after the place that is running.
    """
    calls, running, handles = Calls(), list[str](), []
    names: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if not isinstance(module, nn.Dropout):
            names.setdefault(module, []).append(name)

    def enter(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        own = names[module]
        if len(own) > 1:
            parent = running[-1] if running else ""
            own = [name for name in own if name.rpartition(".")[0] == parent] or own
        running.append(own[0])

    def leave(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        name = running.pop()
        if arguments and isinstance(arguments[0], Tensor):
            calls.into.setdefault(name, []).append(arguments[0].detach())
        if isinstance(output, Tensor):
            # The search overwrites logits; they are the only output that anyone writes to.
            kept = output.detach()
            calls.out.setdefault(name, []).append(kept.clone() if name.endswith("projection") else kept)

    attentions = [module for module in names if isinstance(module, Attention)]
    for module in names:
        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    for module in attentions:
        module.kernel = _Watched(module.kernel, calls.kernels.setdefault(names[module][0], []))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
        for module in attentions:
            assert isinstance(module.kernel, _Watched)
            module.kernel = module.kernel.kernel


def run_whole(model: Model, *inputs: Tensor) -> Tensor:
    """One pass over whole texts, without a cache, and the heads that stand on an encoder.

    Args:
        model: Any family.
        inputs: What its `forward` takes: (src, tgt) or (ids,).

    Returns:
        Logits where the model has them, else features.
    """
    output: Tensor = model(*inputs)
    if not isinstance(model, EncoderOnly):
        return output
    if model.label_head is not None:
        model.votes(output, None)
    elif model.pooler is not None:
        model.pooler(output)
    return output if model.mlm_head is None else model.mlm_head(output)


class WatchedDecoding:
    """A decoding that is passed through unchanged, with the text of every row at every step kept."""

    def __init__(self, inner: Decoding) -> None:
        self.inner = inner
        self.rows: list[list[int]] = []  # tokens of each live row
        self.steps: list[list[list[int]]] = []  # the same after each forward pass
        self.logits: list[Tensor] = []  # [R, V] of each forward pass, before any rule
        self.selects: list[list[list[int]]] = []  # row numbers chosen after each forward pass

    def prefill(self, prefix: Tensor) -> Tensor:
        self.rows = prefix.tolist()
        return self._keep(self.inner.prefill(prefix))

    def step(self, tokens: Tensor) -> Tensor:
        self.rows = [[*row, token] for row, token in zip(self.rows, tokens.tolist(), strict=True)]
        return self._keep(self.inner.step(tokens))

    def select(self, rows: Tensor) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]
        self.selects[-1].append(rows.tolist())
        self.inner.select(rows)

    def _keep(self, logits: Tensor) -> Tensor:
        self.steps.append([list(row) for row in self.rows])
        self.logits.append(logits.clone())  # the search overwrites them
        self.selects.append([])
        return logits

    def lineage(self, tokens: Sequence[int]) -> list[int]:
        """The row that held the start of these tokens at each step, for the steps that they went through."""
        rows = []
        for texts in self.steps:
            found = [i for i, text in enumerate(texts) if text == list(tokens[: len(text)])]
            if not found:
                break
            rows.append(found[0])
        return rows


class Trace:
    """The tensors of one text in one run: by module name what went in, what came out, and the kernel's calls."""

    def __init__(
        self, into: Mapping[str, Tensor], out: Mapping[str, Tensor], kernels: Mapping[str, KernelCall]
    ) -> None:
        self.into, self.out, self.kernels = into, out, kernels

    @classmethod
    def of(cls, calls: Calls, lineage: Sequence[int] | None = None) -> Trace:
        """Joins the calls of each module along the tokens.

        Args:
            calls: What was kept.
            lineage: The batch row of the text at each decoding step, when rows were decoded step by step.
        """
        if lineage is None:
            return cls(_last(calls.into), _last(calls.out), {name: kept[-1] for name, kept in calls.kernels.items()})
        join = _joiner(lineage)
        kernels = {name: _join_kernels(kept, join) for name, kept in calls.kernels.items() if kept}
        into = {name: join(name, kept) for name, kept in calls.into.items()}
        return cls(_known(into), _known({name: join(name, kept) for name, kept in calls.out.items()}), _known(kernels))


def _last(kept: Mapping[str, list[Tensor]]) -> dict[str, Tensor]:
    return {name: tensors[-1] for name, tensors in kept.items()}


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _joiner(lineage: Sequence[int]) -> Callable[..., Tensor | None]:
    """Joins tensors of consecutive steps into [1, sum of T, ...]; what ran once is taken as it is.

    They are [R, T, ...], after the first step also [1, R, ...]: the branches of one text, side by side.
    """

    def join(name: str, kept: Sequence[Tensor], dim: int = 1) -> Tensor | None:
        if len(kept) < len(lineage):
            return kept[0][:1] if len(kept) == 1 else None
        if kept[0].ndim == 2 and name.endswith("projection"):
            return torch.stack([tensor[row] for tensor, row in zip(kept, lineage, strict=False)])[None]  # [R, V] each
        rows = [
            tensor[min(row, len(tensor) - 1)] if step == 0 or len(tensor) > 1 else _branch(tensor[0], row, dim - 1)
            for step, (tensor, row) in enumerate(zip(kept, lineage, strict=False))
        ]
        if any(row.shape[dim:] != rows[0].shape[dim:] for row in rows):
            return None  # grows with the cache, as a bias of all distances does
        return torch.cat(rows, dim - 1)[None]

    return join


def _branch(tensor: Tensor, row: int, dim: int) -> Tensor:
    """What belongs to one branch of a text, whose branches stand side by side along `dim`."""
    return tensor.narrow(dim, min(row, tensor.shape[dim] - 1), 1)


def _join_kernels(kept: Sequence[KernelCall], join: Callable[..., Tensor | None]) -> KernelCall | None:
    q, k, context = (join("", [getattr(call, name) for call in kept], 2) for name in ("q", "k", "context"))
    if q is None or k is None or context is None:
        return None
    return KernelCall(q=q, k=k, scale=kept[-1].scale, mask=None, bias=None, context=context)
