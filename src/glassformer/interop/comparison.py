"""Whether an export computes what the model computes: the same texts through both, each number against its partner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from glassformer.config import GenerationConfig
from glassformer.errors import DataError
from glassformer.generation.search import generate
from glassformer.model import DecoderOnly, EncoderDecoder
from glassformer.tasks.decoding import ModelDecoding
from glassformer.tasks.model_folder import ModelFolder

__all__ = ["FLOAT_BOUND", "INT8_BOUND", "CheckRows", "Comparison", "Engine", "check_rows", "compare", "values_of_model"]

# float32: sums in another order. Tiny models differ by 2e-6, a trained translator of 7.6 million parameters by 1e-5.
FLOAT_BOUND = 1e-4
# int8: root mean square of the differences over the standard deviation of the values. See docs/exports.md.
INT8_BOUND = 0.3
N_GREEDY = 24  # tokens made greedily for each text of a language model

SENTENCES = (
    "Yes.",
    "We eat bread.",
    "The package could not be installed: there is no room left on the disk.",
    "Il y a trois pommes sur la table, et personne ne les mange.",
    "This program is free software; you can redistribute it and/or modify it under the terms of its license.",
    "“Where is it?” she asked (twice), and then: 3.14 × 2 = 6.28 €.",
    "A sentence that is long enough to need more positions than the others, with a second part that repeats some of "
    "its words, and a third part that repeats some of its words again, so that padding is found in every other row.",
)


@dataclass(frozen=True)
class CheckRows:
    """Ids that are run through a model and its export.

    Attributes:
        texts: What they were made of, for messages.
        inputs: Source ids (encoder-decoder), or ids of the text.
        outputs: What the model makes of each greedily, with its end; empty for an encoder.
        targets: The same as the decoder of an encoder-decoder can read them back: without end; else empty.
    """

    texts: list[str]
    inputs: list[list[int]]
    outputs: list[list[int]] = field(default_factory=list)
    targets: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How far an export is from its model.

    Attributes:
        compared: What the numbers are: `log-probabilities`, `logits` or `features`.
        n_texts: Texts compared, in one padded batch against each alone.
        max_difference: Largest absolute difference of two numbers.
        relative_rms: Root mean square of the differences over the standard deviation of the model's numbers.
        bound: Most that is allowed: of max_difference for float32, of relative_rms for int8.
        same_outputs: Texts whose greedy output is the same, or differs at a tie; None for an encoder.
        ties: Of these, the texts that differ at a tie.
        first_difference: The first text beyond the bound or with another output.
        is_same: Whether all is within the bound.
    """

    compared: str
    n_texts: int
    max_difference: float
    relative_rms: float
    bound: float
    same_outputs: int | None
    ties: int
    first_difference: str | None
    is_same: bool


class Engine(Protocol):
    """An export, loaded by the engine that it was written for."""

    def values(self, rows: CheckRows) -> list[np.ndarray]:
        """The numbers of `values_of_model`, all texts in one padded batch."""
        ...

    def greedy(self, rows: CheckRows) -> list[list[int]] | None:
        """Greedy output of each text as `greedy_of_model` makes it; None for an encoder."""
        ...


def check_rows(folder: ModelFolder, file: Path | None) -> CheckRows:
    """Texts to compare on: the lines of a file, or built-in sentences, and random pieces of the vocabulary."""
    texts = list(SENTENCES)
    if file is not None:
        try:
            texts = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeError) as error:
            raise DataError(f"{file} cannot be read ({error}).", "Lines of UTF-8 text were expected.", "") from error
    if not texts:
        raise DataError(f"{file} holds no text.", "One sentence a line was expected.", "Give another --check file.")
    config, tokenizer = folder.config.model, folder.src_tokenizer
    is_text_model = config.family != "encoder-only"
    encoded = tokenizer.encode_batch(texts, add_bos=config.use_bos or not is_text_model, add_eos=True)
    if config.family == "decoder-only":
        encoded = [[config.bos_id, *ids[:-1]] for ids in encoded]
    draw = np.random.default_rng(0)
    pieces = [draw.integers(5, tokenizer.vocab_size, size=n).tolist() for n in (3, 17)]  # behind the special ids
    limit = min(folder.config.data.max_tokens, config.max_positions or folder.config.data.max_tokens)
    inputs = [ids[:limit] for ids in [*encoded, *pieces]]
    rows = CheckRows([*texts, *(tokenizer.decode(ids) for ids in pieces)], inputs)
    if config.family == "encoder-only":
        return rows
    rows = replace(rows, outputs=greedy_of_model(folder, rows))
    if config.family == "decoder-only":
        return rows
    n_read = None if config.max_positions is None else config.max_positions - 1  # behind the start token
    return replace(rows, targets=[_without_end(ids, config.eos_id)[:n_read] for ids in rows.outputs])


@torch.no_grad()
def values_of_model(folder: ModelFolder, rows: CheckRows) -> list[np.ndarray]:
    """What is compared, each text computed alone.

    Encoder-decoder: log-probabilities [T + 1] of the target's tokens and its end. Decoder-only: logits [T, V].
    Encoder-only: features [T, D].
    """
    model, config = folder.model, folder.config.model
    if not isinstance(model, EncoderDecoder):
        return [model(torch.tensor([ids]), mask=_all_real(ids))[0].numpy() for ids in rows.inputs]
    values = []
    for src, tgt in zip(rows.inputs, rows.targets, strict=True):
        read, made = torch.tensor([[config.bos_id, *tgt]]), torch.tensor([*tgt, config.eos_id])
        logits = model(torch.tensor([src]), read, src_mask=_all_real(src), tgt_mask=_all_real(read[0]))[0]
        values.append(logits.log_softmax(-1).gather(1, made[:, None])[:, 0].numpy())
    return values


def greedy_of_model(folder: ModelFolder, rows: CheckRows) -> list[list[int]]:
    """Greedy output of each text, alone: of a translator as saved with it, of a language model 24 tokens."""
    model = folder.model
    assert isinstance(model, EncoderDecoder | DecoderOnly)
    outputs = []
    for ids in rows.inputs:
        limit = greedy_limit(folder, ids)
        prefix, src = greedy_prefix(folder, ids)
        decoding = ModelDecoding(model, max_length=prefix.shape[1] + limit, src=src)
        outputs.append(greedy(folder, decoding, prefix, limit))
    return outputs


def greedy_prefix(folder: ModelFolder, ids: list[int]) -> tuple[Tensor, Tensor | None]:
    """What the decoder is given first, [1, T], and the source [1, S] of an encoder-decoder."""
    if isinstance(folder.model, DecoderOnly):
        return torch.tensor([ids[: max(1, len(ids) // 2)]]), None
    return torch.tensor([[folder.config.model.bos_id]]), torch.tensor([ids])


def greedy_limit(folder: ModelFolder, ids: list[int]) -> int:
    """Most tokens made."""
    generation, bound = folder.config.generation, folder.config.model.max_positions
    limit = N_GREEDY
    if isinstance(folder.model, EncoderDecoder):
        limit = generation.max_new_tokens or int(generation.max_length_a * len(ids)) + generation.max_length_b
    elif bound is not None:
        bound -= len(ids)
    return limit if bound is None else max(1, min(limit, bound))


def greedy(folder: ModelFolder, decoding: object, prefix: Tensor, limit: int) -> list[int]:
    """The greedy search over a `Decoding`."""
    tokenizer, config = folder.tokenizer, folder.config.model
    [[found]] = generate(
        decoding,  # type: ignore[arg-type]
        prefix,
        GenerationConfig(beam_size=1),
        eos_ids=[config.eos_id],
        forbidden_ids=[*tokenizer.never_made, *range(tokenizer.vocab_size, config.vocab_size)],
        max_new_tokens=torch.tensor([limit]),
    )
    return found.ids


def compare(folder: ModelFolder, engine: Engine, rows: CheckRows, *, is_int8: bool) -> Comparison:
    """Runs the rows through both. For int8, outputs may differ, and the typical difference is bounded."""
    ours, theirs = values_of_model(folder, rows), engine.values(rows)
    gaps = [np.abs(a.astype(np.float64) - b) for a, b in zip(ours, theirs, strict=True)]
    largest = [float(gap.max(initial=0.0)) if np.isfinite(gap).all() else float("inf") for gap in gaps]
    spread = float(np.concatenate([a.ravel() for a in ours]).std()) or 1.0
    rms = float(np.sqrt(np.mean(np.concatenate([gap.ravel() ** 2 for gap in gaps])))) / spread
    beyond = [i for i, gap in enumerate(largest) if gap > FLOAT_BOUND] if not is_int8 else []
    n_same, ties, other = _outputs(folder, engine, rows)
    wrong = sorted({*beyond, *([] if is_int8 else other)})
    family = folder.config.model.family
    return Comparison(
        compared={"encoder-decoder": "log-probabilities", "decoder-only": "logits"}.get(family, "features"),
        n_texts=len(ours),
        max_difference=max(largest),
        relative_rms=rms,
        bound=INT8_BOUND if is_int8 else FLOAT_BOUND,
        same_outputs=n_same,
        ties=ties,
        first_difference=rows.texts[wrong[0]] if wrong else None,
        is_same=rms <= INT8_BOUND if is_int8 else not wrong,
    )


def _outputs(folder: ModelFolder, engine: Engine, rows: CheckRows) -> tuple[int | None, int, list[int]]:
    """Texts with the same greedy output, those of them that differ at a tie, and the numbers of the other texts."""
    theirs = engine.greedy(rows)
    if theirs is None:
        return None, 0, []
    ours = rows.outputs
    differing = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    other = [i for i in differing if not _is_tie(folder, rows.inputs[i], ours[i], theirs[i])]
    return len(ours) - len(other), len(differing) - len(other), other


@torch.no_grad()
def _is_tie(folder: ModelFolder, ids: list[int], ours: list[int], theirs: list[int]) -> bool:
    """Whether the model's own logits of the first two tokens that differ are as close as rounding can bring them."""
    place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if place is None:
        return False  # one is the beginning of the other
    prefix, src = greedy_prefix(folder, ids)
    read = torch.cat([prefix, torch.tensor([ours[:place]], dtype=torch.int64)], 1)
    logits = folder.model(read) if src is None else folder.model(src, read)
    return bool((logits[0, -1, ours[place]] - logits[0, -1, theirs[place]]).abs() <= 2 * FLOAT_BOUND)


def _all_real(ids: Sequence[int] | Tensor) -> Tensor:
    return torch.ones(1, len(ids), dtype=torch.bool)


def _without_end(ids: list[int], eos_id: int) -> list[int]:
    return ids[:-1] if ids[-1:] == [eos_id] else ids
