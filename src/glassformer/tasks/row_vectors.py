"""The vectors of the texts of a store's rows, and what they tell of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from glassformer.data.store import TokenStore
from glassformer.data.triple_batches import passages_of, text_keys
from glassformer.evaluation.retrieval import retrieval_figures
from glassformer.model import EncoderOnly
from glassformer.tasks.embedder import Vectors, embed_ids
from glassformer.training.contrastive import contrastive_loss, false_negatives

__all__ = ["RowVectors"]

Text = tuple[int, ...]


class RowVectors:
    """Embeds the queries, positives and hard negatives of rows; equal texts once.

    Every query is compared with every passage at once, so no figure depends on the size of a batch.

    Attributes:
        rows: The rows added so far.
    """

    def __init__(self, model: EncoderOnly, store: TokenStore) -> None:
        self._model, self._store = model, store
        self._vectors: dict[Text, Vectors] = {}
        self.rows: list[int] = []
        self._queries: list[Text] = []
        self._passages: list[list[Text]] = []  # of each row: the positive, then its hard negatives

    def add(self, rows: Sequence[int]) -> None:
        """Embeds the texts of further rows."""
        eos_id = self._model.config.eos_id
        self.rows += rows
        queries = [tuple(self._store.src(i).tolist()) for i in rows]
        passages = [[tuple(ids) for ids in passages_of(self._store, i, eos_id)] for i in rows]
        self._queries += queries
        self._passages += passages
        texts = dict.fromkeys([*queries, *(text for row in passages for text in row)])
        new = [text for text in texts if text not in self._vectors]
        start = [self._model.config.bos_id] if self._model.config.use_bos else []
        vectors = embed_ids(self._model, [[*start, *text, eos_id] for text in new])
        self._vectors |= dict(zip(new, vectors, strict=True))

    def loss(self, scale: float) -> float:
        """The contrastive loss of all rows as one batch, at the full width: the mean over the queries."""
        passages = [row[0] for row in self._passages] + [text for row in self._passages for text in row[1:]]
        is_excluded = false_negatives(text_keys(self._queries), text_keys(passages))
        queries, others = torch.from_numpy(self._stack(self._queries)), torch.from_numpy(self._stack(passages))
        return float(contrastive_loss(queries, others, is_excluded, scale=scale).mean(dtype=torch.float64))

    def figures(self) -> dict[str, float]:
        """`retrieval_figures` of every query, each text once, among the positives of all rows."""
        number = {text: i for i, text in enumerate(dict.fromkeys(row[0] for row in self._passages))}
        relevant: dict[Text, set[int]] = {}
        for query, row in zip(self._queries, self._passages, strict=True):
            relevant.setdefault(query, set()).add(number[row[0]])
        return retrieval_figures(
            self._stack(relevant), self._stack(number), [sorted(places) for places in relevant.values()]
        )

    def _stack(self, texts: Iterable[Text]) -> Vectors:
        return np.stack([self._vectors[text] for text in texts])
