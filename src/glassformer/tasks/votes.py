"""The votes of a model for the labels of texts or of pieces of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.data.batches import tokens_together
from glassformer.data.label_batches import Framing
from glassformer.errors import CheckpointError
from glassformer.model import EncoderOnly
from glassformer.tasks.model_folder import ModelFolder
from glassformer.text.label_set import LabelSet

__all__ = ["log_softmax", "votes", "voting_model"]

Votes = NDArray[np.float64]


@torch.inference_mode()
def votes(
    model: EncoderOnly, rows: Sequence[Sequence[int] | NDArray[Any]], *, batch_tokens: int | None = None
) -> list[Votes]:
    """The logits of each row: [L] (head `classify`), or [T, L] for its T ids (head `label`).

    Rows of like length are read together; a row's logits do not depend on the others (float32: within 1e-5).

    Args:
        model: In eval mode, with a head.
        rows: Ids without begin and end tokens, as a store of labels holds them.
        batch_tokens: Tokens read together; changes speed and memory only. Unset: `tokens_together`.
    """
    framing = Framing(model.config)
    device = model.encoder.embedding.tokens.weight.device
    batch_tokens = batch_tokens or tokens_together(device)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    found: list[Votes] = [np.zeros(0)] * len(rows)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * (len(rows[order[stop]]) + framing.n_added) <= batch_tokens:
            stop += 1
        part = order[start:stop]
        framed = framing([rows[i] for i in part])
        segments = None if framed.segment_ids is None else framed.segment_ids.to(device)
        logits = model.label_logits(framed.ids.to(device), mask=framed.mask.to(device), segment_ids=segments)
        for i, row in zip(part, logits.double().cpu().numpy(), strict=True):
            first = len(framing.start)
            found[i] = row if row.ndim == 1 else row[first : first + len(rows[i])]
        start = stop
    return found


def log_softmax(logits: Votes) -> Votes:
    """log p = logits - log sum exp(logits), over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    out: Votes = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return out


def voting_model(folder: ModelFolder, head: str, task: str) -> tuple[EncoderOnly, LabelSet]:
    """The model of a folder and its labels.

    Raises:
        CheckpointError: The model has no such head.
    """
    if not isinstance(folder.model, EncoderOnly) or folder.config.model.head != head or folder.labels is None:
        raise CheckpointError(
            f"{folder.path} holds a model of the family {folder.config.model.family} with "
            f"head={folder.config.model.head}.",
            f"A model trained with --task {task} was expected.",
            f"Train one: glassformer train --task {task} DATA --out FOLDER.",
        )
    return folder.model, folder.labels
