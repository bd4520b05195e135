"""The mapping of names as a table, read in both directions: their tensors to ours, and ours back to theirs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import CheckpointError

__all__ = ["Entry", "Mapped", "linear", "map_layers", "norm", "to_ours", "to_theirs", "without_zero_biases"]


@dataclass(frozen=True)
class Entry:
    """One of their tensors and what it is here.

    Attributes:
        ours: Our tensor; several when theirs holds them stacked along the output side, in this order.
        theirs: The name that is written, then other names under which files hold the same tensor.
        is_transposed: Theirs is [in, out], as GPT-2 stores its matrices.
        is_row: Theirs is [1, V] and ours [V].
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    is_transposed: bool = False
    is_row: bool = False


@dataclass
class Mapped:
    """What became of the tensors of a file."""

    state: dict[str, Tensor]
    used: dict[str, str] = field(default_factory=dict)  # theirs -> ours
    left_out: dict[str, str] = field(default_factory=dict)  # theirs -> reason
    notes: list[str] = field(default_factory=list)


def linear(
    ours: str | Sequence[str], theirs: str, *, has_bias: bool = True, is_transposed: bool = False
) -> list[Entry]:
    """Weight and bias of a linear layer, or of several that they hold stacked."""
    names = (ours,) if isinstance(ours, str) else tuple(ours)
    weights, biases = (tuple(f"{name}.{part}" for name in names) for part in ("weight", "bias"))
    entries = [Entry(weights, (f"{theirs}.weight",), is_transposed=is_transposed)]
    return [*entries, Entry(biases, (f"{theirs}.bias",))] if has_bias else entries


def norm(ours: str, theirs: str, *, has_bias: bool = True) -> list[Entry]:
    """Gain and (unless it is an RMSNorm) bias of a norm."""
    entries = [Entry((f"{ours}.gamma",), (f"{theirs}.weight",))]
    return [*entries, Entry((f"{ours}.beta",), (f"{theirs}.bias",))] if has_bias else entries


def map_layers(stack: str, n_layers: int, entries_of: Callable[[str, int], list[Entry]]) -> list[Entry]:
    """The entries of all blocks of a stack (`encoder` or `decoder`): `entries_of(our prefix, number)` for each."""
    return [entry for i in range(n_layers) for entry in entries_of(f"{stack}.stack.blocks.{i}", i)]


def to_ours(
    entries: Iterable[Entry],
    tensors: dict[str, Tensor],
    sizes: dict[str, tuple[int, ...]],
    left_out: Sequence[tuple[str, str]],
) -> Mapped:
    """Fills our tensors from theirs; each of theirs is used, or left out for a reason that is known.

    Args:
        entries: The table.
        tensors: Theirs.
        sizes: Shape of each of our tensors.
        left_out: Pairs of a regular expression for names that have no place here, and the reason.

    Raises:
        CheckpointError: A tensor is missing, of another shape, not finite, unknown, or differs from another of the
            same meaning.
    """
    mapped = Mapped({})
    for entry in entries:
        present = [name for name in entry.theirs if name in tensors]
        if not present:
            raise CheckpointError(
                f"The weights lack {entry.theirs[0]}, which would fill {', '.join(entry.ours)}.",
                "Every parameter of the architecture must be there.",
                "Use the whole file of the model; nothing was made up in its place.",
            )
        _require_equal(present, tensors)
        _require_numbers(present[0], tensors[present[0]], may_forbid=entry.is_row)
        mapped.state |= _split(entry, tensors[present[0]], sizes, present[0])
        mapped.used |= dict.fromkeys(present, ", ".join(entry.ours))
    for name in sorted(tensors.keys() - mapped.used.keys()):
        mapped.left_out[name] = _reason(name, left_out)
    return mapped


def _require_equal(names: Sequence[str], tensors: dict[str, Tensor]) -> None:
    for name in names[1:]:
        if not torch.equal(tensors[names[0]], tensors[name]):
            raise CheckpointError(
                f"{names[0]} and {name} differ, and the config says that they are one tensor.",
                "Which of them is meant cannot be told.",
                "Remove the wrong one from the file, or set tie_word_embeddings to false when both are meant.",
            )


def _require_numbers(name: str, tensor: Tensor, *, may_forbid: bool) -> None:
    """Weights are finite floating point numbers; a bias of the logits may forbid a token by minus infinity."""
    if tensor.is_floating_point():
        is_wrong = tensor.isnan() | (tensor.isposinf() if may_forbid else tensor.isinf())
        found = f"{int(is_wrong.sum())} numbers that are not finite" if is_wrong.any() else None
    else:
        found = f"numbers of the type {str(tensor.dtype).removeprefix('torch.')}"
    if found:
        raise CheckpointError(
            f"{name} holds {found}.",
            "Weights are finite floating point numbers.",
            "Get the file again; quantised weights are not read.",
        )


def _split(entry: Entry, tensor: Tensor, sizes: dict[str, tuple[int, ...]], name: str) -> dict[str, Tensor]:
    """Their tensor as ours, checked against the shapes of the architecture."""
    whole = tensor.T if entry.is_transposed and tensor.dim() == 2 else tensor
    whole = whole.flatten() if entry.is_row else whole
    wanted = [sizes[ours] for ours in entry.ours]
    stacked = (sum(size[0] for size in wanted), *wanted[0][1:])
    if tuple(whole.shape) != stacked:
        raise CheckpointError(
            f"{name} has the shape {list(tensor.shape)}, which gives {list(whole.shape)} here.",
            f"{list(stacked)} was expected for {', '.join(entry.ours)}.",
            "Use the weights and the config.json of one model.",
        )
    parts: tuple[Tensor, ...] = whole.split([size[0] for size in wanted])  # type: ignore[no-untyped-call]
    return dict(zip(entry.ours, parts, strict=True))


def _reason(name: str, left_out: Sequence[tuple[str, str]]) -> str:
    for pattern, reason in left_out:
        if re.fullmatch(pattern, name):
            return reason
    raise CheckpointError(
        f"The tensor {name} of the weights is unknown.",
        "Every tensor must have its place, or a known reason to be left out.",
        "Check that config.json belongs to the weights; if the tensor is not needed, remove it from the file.",
    )


def to_theirs(entries: Iterable[Entry], state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors from ours. A bias that this model does not have is written as zeros, which changes no number."""
    tensors: dict[str, Tensor] = {}
    for entry in entries:
        parts = [_tensor(name, state) for name in entry.ours]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        whole = whole.T if entry.is_transposed else whole
        tensors[entry.theirs[0]] = (whole[None] if entry.is_row else whole).contiguous()
    return tensors


def _tensor(name: str, state: dict[str, Tensor]) -> Tensor:
    if name in state:
        return state[name]
    module, _, part = name.rpartition(".")
    if part not in ("bias", "beta"):
        raise KeyError(name)  # a table that does not fit its config
    like = state.get(f"{module}.gamma" if part == "beta" else f"{module}.weight")
    if like is None:  # a tied projection has no weight of its own: one number for each row of the token table
        like = state.get("decoder.embedding.tokens.weight", state.get("encoder.embedding.tokens.weight"))
    assert like is not None
    return like.new_zeros(len(like))


_BIASES = {
    "use_attention_bias": r"attention\.w_\w\.bias",
    "use_ffn_bias": r"feed_forward\.w_\d\.bias",
    "use_norm_bias": r"norm\.beta",
    "use_output_bias": r"^decoder\.projection\.bias",
}


def without_zero_biases(config: ModelConfig, mapped: Mapped) -> ModelConfig:
    """The config without the kinds of biases that are zero throughout; they are taken from `mapped` too.

    So a model without biases, which an export had to write as zeros, comes back as it was.
    """
    for flag, pattern in _BIASES.items():
        names = [name for name in mapped.state if re.search(pattern, name)]
        if not names or any(bool(((t != 0) | t.signbit()).any()) for t in map(mapped.state.__getitem__, names)):
            continue
        config = replace(config, **{flag: False})  # type: ignore[arg-type]
        for name in names:
            del mapped.state[name]
        mapped.notes.append(f"{flag}=False: {len(names)} tensors of zeros, {names[0]} and the like, add nothing.")
    return config
