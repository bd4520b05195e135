"""Sentence embeddings: one vector for each text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.data.batches import tokens_together
from glassformer.errors import CheckpointError, ConfigError
from glassformer.model import EncoderOnly
from glassformer.model.quantized import Precision
from glassformer.tasks.model_folder import ModelFolder, load_model_folder
from glassformer.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Embedder", "embed_ids"]


Vectors = NDArray[np.float32]


class Embedder:
    """Makes vectors of texts with one model. `Embedder.load(path).embed(["We eat bread."])`.

    Texts of like meaning have vectors of large inner product, which is the cosine where the model normalises. The
    vector of a text does not depend on the texts beside it (float32: within 1e-6).

    Attributes:
        width: D, features of a vector.
        max_tokens: Most tokens of a text, begin and end counted; more are cut off.
    """

    def __init__(self, model: EncoderOnly, tokenizer: Tokenizer, *, max_tokens: int) -> None:
        self.model, self.tokenizer, self.max_tokens = model, tokenizer, max_tokens
        self.width = model.config.d_model

    @classmethod
    def load(cls, path: str | Path, *, precision: Precision = "float32") -> Self:
        """Loads a model folder, trained here or imported; see `load_model_folder` for the errors."""
        return cls.of(load_model_folder(path, precision=precision))

    @classmethod
    def of(cls, folder: ModelFolder) -> Self:
        """The embedder of a loaded folder."""
        if not isinstance(folder.model, EncoderOnly):
            raise CheckpointError(
                f"{folder.path} holds a model of the family {folder.config.model.family}.",
                "Embeddings need an encoder-only model.",
                "Train one with --task embed, or import one.",
            )
        limit = min(folder.config.data.max_tokens, folder.config.model.max_positions or folder.config.data.max_tokens)
        return cls(folder.model, folder.tokenizer, max_tokens=limit)

    def embed(
        self,
        texts: Sequence[str],
        *,
        width: int | None = None,
        batch_tokens: int | None = None,
        on_cut: Callable[[int], None] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Vectors:
        """The vector of each text; row i belongs to text i. An empty text is its begin and end tokens alone.

        Args:
            texts: Any number of texts.
            width: Keep the first features only, brought to length 1 again where the model normalises. Good for models
                trained with task.min_width.
            batch_tokens: Tokens read together; changes speed and memory only. Unset: `tokens_together`.
            on_cut: Called with the number, from 0, of each text that is longer than max_tokens.
            on_progress: Called with the number of texts done so far.

        Returns:
            float32 [n, D], or [n, width].

        Raises:
            ConfigError: width lies outside 1 to D.
            TokenizerError: A text holds half a surrogate pair.
        """
        self.check_width(width)
        ids = self.encode(texts, on_cut=on_cut)
        vectors = embed_ids(self.model, ids, batch_tokens=batch_tokens, on_progress=on_progress)
        return vectors if width is None else self.shortened(vectors, width)

    def check_width(self, width: int | None) -> None:
        """Raises ConfigError when a width lies outside 1 to D."""
        if width is not None and not 1 <= width <= self.width:
            raise ConfigError(
                f"width={width} was asked of vectors of {self.width} features.",
                f"1 to {self.width} was expected.",
                "Leave width out for the whole vector.",
            )

    def encode(self, texts: Sequence[str], *, on_cut: Callable[[int], None] | None = None) -> list[list[int]]:
        """The ids that the model reads: begin where it has one, text, end; at most max_tokens of them."""
        start = [self.tokenizer.bos_id] if self.model.config.use_bos else []
        room = self.max_tokens - len(start) - 1
        framed: list[list[int]] = []
        for i, ids in enumerate(self.tokenizer.encode_batch(texts)):
            if len(ids) > room and on_cut is not None:
                on_cut(i)
            framed.append([*start, *ids[:room], self.tokenizer.eos_id])
        return framed

    def shortened(self, vectors: Vectors, width: int) -> Vectors:
        """The first features of each vector, brought to length 1 again where the model normalises."""
        part = vectors[:, :width]
        if not self.model.config.is_normalized:
            return np.ascontiguousarray(part)
        length = np.linalg.norm(part, axis=1, keepdims=True)
        shortened: Vectors = (part / np.maximum(length, 1e-12)).astype(np.float32)
        return shortened


@torch.inference_mode()
def embed_ids(
    model: EncoderOnly,
    ids: Sequence[Sequence[int]],
    *,
    batch_tokens: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Vectors:
    """The vectors [n, D] of framed ids; texts of like length are read together, each at its own place in the result."""
    device = model.encoder.embedding.tokens.weight.device
    out: Vectors = np.zeros((len(ids), model.config.d_model), dtype=np.float32)
    batch_tokens = batch_tokens or tokens_together(device)
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    n_done = 0
    while n_done < len(order):
        part = _batch(ids, order, n_done, batch_tokens)
        length = len(ids[part[-1]])
        batch = torch.full((len(part), length), model.config.pad_id or 0)
        mask = torch.zeros(batch.shape, dtype=torch.bool)
        for row, i in enumerate(part):
            batch[row, : len(ids[i])] = torch.tensor(ids[i])
            mask[row, : len(ids[i])] = True
        out[part] = model.embed(batch.to(device), mask=mask.to(device)).float().cpu().numpy()
        n_done += len(part)
        if on_progress is not None:
            on_progress(n_done)
    return out


def _batch(ids: Sequence[Sequence[int]], order: list[int], start: int, batch_tokens: int) -> list[int]:
    """The texts of a rising order that fill a batch from `start` on; one at least."""
    end = start + 1
    while end < len(order) and (end + 1 - start) * len(ids[order[end]]) <= batch_tokens:
        end += 1
    return order[start:end]
