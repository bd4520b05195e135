"""One table: every way to run a model against its equations in float64.

A row is one way to run the model. Three things are measured on the same texts:

- the largest difference of the logits (of log-probabilities or vectors where an engine gives no logits) to those of
  the reference equations in float64, over all real positions, teacher-forced on the reference's own outputs;
- the first step of the computation whose relative difference leaves the bound;
- the share of texts whose output is the same, and the difference in BLEU where there are references.

Bounds are relative to the largest logit, since rounding is relative (`BOUNDS`).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.model import DecoderOnly, EncoderDecoder, EncoderOnly, Model, twin
from glassformer.model.quantized import Precision, with_precision
from glassformer.model.steps import reference_kernel, watched
from glassformer.tasks.model_folder import ModelFolder
from glassformer.tasks.probe import load_probe, probe_difference

__all__ = ["BOUNDS", "Batch", "ParityRow", "Way", "compare", "sample_batch", "torch_ways"]

# Largest difference allowed, relative to the largest number of the reference: 32 units of rounding in float32 (2^-23),
# 8 in bfloat16 (2^-8), where sums are kept in float32. int8 has 7 to 8 bits in weights and activations, and every
# layer rounds again: ten steps of 1/127. Trained models of 2 to 12 layers stay several times below each.
BOUNDS = {"float64": 1e-9, "float32": 32 * 2.0**-23, "bf16": 8 * 2.0**-8, "int8": 10 / 127}
CHUNK = 3  # tokens of a chunk in the cached run by chunks


@dataclass(frozen=True, kw_only=True)
class ParityRow:
    """One way to run the model."""

    name: str
    dtype: str  # which bound holds
    max_difference: float | None = None  # of the logits, absolute
    relative_difference: float | None = None  # over the largest logit of the reference
    bound: float | None = None
    first_step: str | None = None  # first part whose relative difference leaves the bound
    same_outputs: float | None = None  # share of the texts
    bleu_difference: float | None = None
    tokens_per_s: float | None = None
    note: str = ""
    is_passed: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The row as plain JSON, which has no infinity and no NaN: such a difference is null, and the row fails."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Texts as ids, padded: src [B, S] (None for a decoder-only model), tgt [B, T] (None for an encoder-only one)."""

    src: Tensor | None
    src_mask: Tensor | None
    tgt: Tensor | None
    tgt_mask: Tensor | None

    def real(self, logits: Tensor) -> Tensor:
        """The rows of logits [B, T, V] that belong to real tokens: [N, V]; of [B, V] all."""
        mask = self.src_mask if self.tgt is None else self.tgt_mask
        return logits if mask is None or logits.ndim == 2 else logits[mask]

    def rows(self) -> Iterator[Batch]:
        """Each text alone, without pads."""
        n_rows = len(self.tgt if self.tgt is not None else self.src)  # type: ignore[arg-type]
        for i in range(n_rows):
            cut = {}
            for side in ("src", "tgt"):
                ids, mask = getattr(self, side), getattr(self, f"{side}_mask")
                cut[side] = None if ids is None else (ids[i] if mask is None else ids[i][mask[i]])[None]
            yield Batch(src=cut["src"], src_mask=None, tgt=cut["tgt"], tgt_mask=None)


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to run the model: how it is called, and which bound it keeps."""

    name: str
    dtype: str
    logits: Callable[[Batch], Tensor]
    model: Model | None = None  # whose parts can be watched
    note: str = ""


def votes(model: Model, batch: Batch) -> Tensor:
    """Logits of every position (of the text, for a classifier; features where an encoder has no head)."""
    if isinstance(model, EncoderDecoder):
        assert batch.src is not None and batch.tgt is not None
        out: Tensor = model(batch.src, batch.tgt, src_mask=batch.src_mask, tgt_mask=batch.tgt_mask)
        return out
    if isinstance(model, DecoderOnly):
        out = model(batch.tgt, mask=batch.tgt_mask)
        return out
    assert batch.src is not None
    if model.label_head is not None:
        return model.label_logits(batch.src, mask=batch.src_mask)
    out = model(batch.src, mask=batch.src_mask)
    return out if model.mlm_head is None else model.mlm_head(out)


def cached_votes(model: EncoderDecoder | DecoderOnly, batch: Batch, size: int) -> Tensor:
    """The same logits with a cache, `size` tokens at a time."""
    assert batch.tgt is not None
    n_rows, n_tokens = batch.tgt.shape
    if isinstance(model, EncoderDecoder):
        assert batch.src is not None
        cache = model.new_cache(batch.src, n_tokens, src_mask=batch.src_mask)
    else:
        cache = model.new_cache(n_rows, n_tokens)
    parts = []
    for start in range(0, n_tokens, size):
        ids = batch.tgt[:, start : start + size]
        mask = None if batch.tgt_mask is None else batch.tgt_mask[:, start : start + size]
        if isinstance(model, EncoderDecoder):
            parts.append(model.decode_step(ids, cache, tgt_mask=mask))
        else:
            parts.append(model.decode_step(ids, cache, mask=mask))
    return torch.cat(parts, dim=1)


def torch_ways(model: Model, *, use_compile: bool = True) -> Iterator[Way]:
    """The ways in which torch runs the model."""
    reference = twin(model, reference_kernel)
    yield Way(name="reference float32", dtype="float32", logits=lambda batch: votes(reference, batch), model=reference)
    yield Way(name="fused float32, padded batch", dtype="float32", logits=lambda b: votes(model, b), model=model)
    yield Way(
        name="fused float32, one text alone",
        dtype="float32",
        logits=lambda batch: _stacked([votes(model, row) for row in batch.rows()], batch),
    )
    if not isinstance(model, EncoderOnly):
        for name, size in (("token by token", 1), (f"chunks of {CHUNK}", CHUNK)):
            yield Way(
                name=f"cached, {name}",
                dtype="float32",
                logits=lambda batch, size=size: cached_votes(model, batch, size),  # type: ignore[misc]
                model=model,
            )
    if use_compile:
        logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # it warns where a mask is looked at
        compiled: Any = torch.compile(model, dynamic=True)
        yield Way(name="compiled", dtype="float32", logits=lambda batch: votes_by(compiled, model, batch))
    precisions: tuple[Precision, ...] = ("bf16", "int8")
    for dtype in precisions:
        other = with_precision(model, dtype)
        yield Way(name=dtype, dtype=dtype, logits=lambda b, m=other: votes(m, b).double(), model=other)  # type: ignore[misc]


def votes_by(call: Callable[..., Tensor], model: Model, batch: Batch) -> Tensor:
    """`votes` through another callable that stands for the model's forward."""
    if isinstance(model, EncoderDecoder):
        return call(batch.src, batch.tgt, src_mask=batch.src_mask, tgt_mask=batch.tgt_mask)
    if isinstance(model, DecoderOnly):
        return call(batch.tgt, mask=batch.tgt_mask)
    return call(batch.src, mask=batch.src_mask)


def _stacked(rows: Sequence[Tensor], batch: Batch) -> Tensor:
    """Logits of texts run alone, brought back to the padded form; what stands at pads is not looked at."""
    if rows[0].ndim == 2:
        return torch.cat(list(rows))
    mask = batch.src_mask if batch.tgt is None else batch.tgt_mask
    if mask is None:
        return torch.cat(list(rows))
    out = rows[0].new_zeros((*mask.shape, rows[0].shape[-1]))
    out[mask] = torch.cat([row[0] for row in rows])
    return out


def compare(way: Way, exact: Model, batch: Batch) -> ParityRow:
    """Measures one way against the equations in float64 on one batch."""
    with watched(exact) as wanted_steps:
        wanted = batch.real(votes(exact, batch))
    with torch.no_grad():
        found = batch.real(way.logits(batch)).double()
        started = time.monotonic()
        way.logits(batch)  # again: the first run compiles, or allocates
        seconds = time.monotonic() - started
    difference = float((found - wanted).abs().max())
    size = float(wanted.abs().max())
    bound = BOUNDS[way.dtype]
    is_passed = difference <= bound * size  # False for NaN too
    return ParityRow(
        name=way.name,
        dtype=way.dtype,
        max_difference=difference,
        relative_difference=difference / size,
        bound=bound,
        first_step=None if is_passed else first_difference(way, wanted_steps, batch) or "the logits",
        tokens_per_s=len(found) / seconds,
        note=way.note,
        is_passed=is_passed,
    )


def first_difference(way: Way, wanted: dict[str, list[Tensor]], batch: Batch) -> str | None:
    """The first part whose output leaves the bound; None where the parts cannot be watched.

    A cached run calls a decoder's part once for each chunk; its outputs are joined along the tokens.
    """
    if way.model is None:
        return None
    with watched(way.model) as found:
        way.logits(batch)
    for name, outputs in wanted.items():
        if name not in found:
            continue
        ours, theirs = _joined(found[name]), _joined(outputs)
        if ours.shape[1:] != theirs.shape[1:]:
            continue  # a part that sees another number of tokens, such as a projection of the last one alone
        is_source = name.startswith("encoder") or ".cross_attention.w_k" in name or ".cross_attention.w_v" in name
        mask = batch.src_mask if is_source else batch.tgt_mask
        if mask is not None and ours.ndim > 2 and ours.shape[1] == mask.shape[1]:
            ours, theirs = (x.expand(len(mask), *x.shape[1:])[mask] for x in (ours, theirs))  # positions have one row
        if not float((ours - theirs).abs().max()) <= BOUNDS[way.dtype] * float(theirs.abs().max()):
            return name
    return None


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """The outputs of several calls as one, along the tokens; float64. A part that rows share may have one row."""
    if parts[0].ndim < 3:
        return torch.cat(list(parts)).double()
    n_rows = max(len(part) for part in parts)
    return torch.cat([part.expand(n_rows, *part.shape[1:]) for part in parts], dim=1).double()


def saved_row(folder: ModelFolder) -> ParityRow:
    """The model against what it computed when it was saved (`probe.json`)."""
    saved = load_probe(folder.path)
    if saved is None:
        note = "the folder has no probe.json: damage since it was saved cannot be seen"
        return ParityRow(name="as it was saved", dtype="float64", note=note)
    difference, first = probe_difference(saved, folder.model)
    return ParityRow(
        name="as it was saved",
        dtype="float64",
        relative_difference=difference,
        bound=BOUNDS["float64"],
        first_step=first,
        is_passed=first is None,
        note="equations in float64 on a fixed input, every step",
    )


def sample_batch(folder: ModelFolder, texts: Sequence[str], targets: Sequence[Sequence[int]] = ()) -> Batch:
    """Texts as the model reads them, cut to what it takes; `targets`: what an encoder-decoder wrote for each."""
    model, config = folder.model, folder.config.model
    longest, pad_id = config.max_positions, config.pad_id or 0
    ids = [folder.src_tokenizer.encode(folder.config.task.prefix + text) for text in texts]
    if isinstance(model, DecoderOnly):
        tgt, mask = _padded([[config.bos_id, *row][:longest] for row in ids], pad_id)
        return Batch(src=None, src_mask=None, tgt=tgt, tgt_mask=mask)
    start = [config.bos_id] * config.use_bos
    room = None if longest is None else max(longest - len(start) - 1, 0)
    src, src_mask = _padded([[*start, *row[:room], config.eos_id] for row in ids], pad_id)
    if isinstance(model, EncoderOnly):
        return Batch(src=src, src_mask=src_mask, tgt=None, tgt_mask=None)
    tgt, tgt_mask = _padded([[config.bos_id, *row[:-1]][:longest] for row in targets], pad_id)
    return Batch(src=src, src_mask=src_mask, tgt=tgt, tgt_mask=tgt_mask)


def _padded(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad_id)
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]
