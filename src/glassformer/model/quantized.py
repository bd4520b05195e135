"""The same model in fewer bits, for running only: int8 weights through torch's own kernel, or bfloat16."""

from __future__ import annotations

import copy
import warnings
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError, GlassformerError
from glassformer.model.attention import Attention
from glassformer.model.block import Block
from glassformer.model.heads import OutputProjection
from glassformer.model.transformer import Model

__all__ = ["Int8Linear", "Precision", "quantize_rows", "with_precision"]

Precision = Literal["float32", "bf16", "int8"]
M = TypeVar("M", bound=Model)

# Activations take 8 bits, -127 to 127, where the CPU adds their products in 32 bits (VNNI); else 7, -63 to 63, for the
# kernel then adds two products in 16 bits, which would saturate.
_CAPABILITIES: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # an older torch does not tell
ACTIVATION_MAX = 127 if _CAPABILITIES.get("avx512_vnni", False) else 63
LARGE = 1 << 21  # numbers of a result that is made in one piece
ROWS = 1024  # quantised at a time, so that a vocabulary's matrix is never held in full beside its rounded one


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric int8 for each output channel: q = round(W / s) with s = max|W| / 127 of the row.

    Args:
        weight: [N, K].

    Returns:
        q int8 [N, K] and s float32 [N], with |W - q s| <= s / 2. A row of zeros has s = 1.
    """
    parts = []
    for rows in torch.split(weight.detach(), ROWS):
        largest = rows.float().abs().amax(1)  # [ROWS]
        scale = torch.where(largest > 0, largest / 127, torch.ones_like(largest))
        parts.append(((rows.float() / scale[:, None]).round_().to(torch.int8), scale))
    q, scales = zip(*parts, strict=True)
    return torch.cat(q), torch.cat(scales)


class Int8Linear(nn.Module):
    """y = x W^T + b with int8 weights, one scale a row of W, and activations of 8 bits, one scale a token.

    Each token x_t is brought to [-1, 1] by m_t = max|x_t| and rounded to steps of 1/A, A = 127 (63 on CPUs without
    VNNI), so that the product is one of integers, and exact: y_t = m_t (round(A x_t / m_t) / A) (q s)^T + b. A token's
    result depends on no other token, so neither on the batch nor on its padding.

    Args:
        weight: W, [N, K] float.
        bias: [N] or None; kept in float32.
        scale: Factor of x before the product.

    Shape: [..., K] -> [..., N], float32.

    Cost: measured on an AVX2 CPU without VNNI in docs/exports.md. Memory: a quarter of float32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, scale: float = 1.0) -> None:
        super().__init__()
        self.packed = _pack(*quantize_rows(weight))
        self.n_out = len(weight)
        self.bias = None if bias is None else bias.detach().clone()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, keepdim=True).clamp_(min=torch.finfo(torch.float32).tiny)
        if x.numel() // x.shape[-1] * self.n_out <= LARGE:
            return self._product(x / largest, largest)
        # The kernel's integers take as much memory again as its result: they are made for some rows at a time.
        out = x.new_empty(*x.shape[:-1], self.n_out)
        parts = (torch.split(part.flatten(0, -2), max(1, LARGE // self.n_out)) for part in (x, largest, out))
        for rows, m, y in zip(*parts, strict=True):
            self._product(rows / m, m, out=y)
        return out

    def _product(self, x: Tensor, m: Tensor, out: Tensor | None = None) -> Tensor:
        """m (x W^T) + b, |x| <= 1; written to `out`, if any."""
        y: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default(
            x, 1 / ACTIVATION_MAX, ACTIVATION_MAX + 1, self.packed
        )
        if self.scale != 1.0:
            m = m * self.scale
        out = y if out is None else out
        return torch.mul(y, m, out=out) if self.bias is None else torch.addcmul(self.bias, y, m, out=out)


def with_precision(model: M, precision: Precision) -> M:
    """The model at another precision, for inference; the given model is not touched.

    `float32` is the model itself. `bf16` holds and computes everything in bfloat16. `int8` runs every linear layer and
    the output projection through `Int8Linear`; token and position tables, norms and attention stay float32, and the
    tables are shared with the given model.

    Raises:
        ConfigError: Another name, int8 for a model that is not on a CPU in float32, or another type for one in int8.
        GlassformerError: This torch has no int8 kernel for this processor.
    """
    if precision not in get_args(Precision):
        raise ConfigError(
            f"precision={precision} is unknown.", f"Known: {', '.join(get_args(Precision))}.", "Use one of these."
        )
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        if precision != "int8":
            raise ConfigError(
                f"precision={precision} for a model in int8.", "Its weights are rounded already.", "Load it anew."
            )
        return model
    if precision == "float32":
        return model
    if precision == "bf16":
        rounded = {id(p): nn.Parameter(p.detach().to(torch.bfloat16), p.requires_grad) for p in model.parameters()}
        return copy.deepcopy(model, rounded)
    _check_int8(next(model.parameters()))
    shared = {id(parameter): parameter for parameter in model.parameters()}  # deepcopy takes these as copied already
    other = copy.deepcopy(model, shared)
    for parent in list(other.modules()):
        if isinstance(parent, Block):
            _stack(parent.self_attention)
    for parent in list(other.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Int8Linear(child.weight, child.bias))
            elif isinstance(child, OutputProjection):
                setattr(parent, name, Int8Linear(child.weight, child.bias, scale=child.scale))
    return other


def _stack(attention: Attention) -> None:
    """W_Q, W_K and W_V of a self-attention as one matrix."""
    parts = [attention.w_q, attention.w_k, attention.w_v]
    weight = torch.cat([part.weight.detach() for part in parts])
    stacked = nn.Linear(weight.shape[1], weight.shape[0], bias=attention.w_q.bias is not None, device="meta")
    stacked.weight = nn.Parameter(weight, requires_grad=False)
    if attention.w_q.bias is not None:
        stacked.bias = nn.Parameter(torch.cat([part.bias.detach() for part in parts]), requires_grad=False)
    attention.w_qkv = stacked
    del attention.w_q, attention.w_k, attention.w_v


def _check_int8(weight: Tensor) -> None:
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        raise ConfigError(
            f"precision=int8 for a model in {weight.dtype} on {weight.device}.",
            "The int8 kernel takes float32 on a CPU.",
            "Leave the model there, or use bf16.",
        )
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        raise GlassformerError(
            "precision=int8 cannot run here: this torch has no fbgemm.",
            "Its int8 kernels are made for x86-64 processors.",
            "Use bf16 or float32, or the CTranslate2 export with --quantize int8.",
        )


def _pack(weight: Tensor, scale: Tensor) -> Any:
    """The weights in the layout of the kernel."""
    engine = torch.backends.quantized.engine
    with warnings.catch_warnings():
        # torch means to replace its quantized tensors. Of what it offers without them, only oneDNN's product takes
        # one scale a token, and it was up to five times slower here (docs/exports.md).
        warnings.filterwarnings("ignore", message="(?s).*quantized tensor creation functions")
        try:
            torch.backends.quantized.engine = "fbgemm"
            zeros = torch.zeros(len(scale), dtype=torch.int64)
            tensor = torch._make_per_channel_quantized_tensor(weight, scale.double(), zeros, 0)
            return torch.ops.quantized.linear_prepack(tensor, None)
        finally:
            torch.backends.quantized.engine = engine
