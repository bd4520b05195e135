"""How well embeddings find what belongs to a query: recall, nDCG and reciprocal rank, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CUTOFF", "relevant_ranks", "retrieval_figures"]

CUTOFF = 10  # results that recall@10 and nDCG@10 look at
TIE = 1e-9  # scores that differ by less are equal: rounding must not decide who is first
CHUNK_QUERIES = 256

Vectors = NDArray[np.floating[Any]]


def relevant_ranks(queries: Vectors, passages: Vectors, relevant: Sequence[Sequence[int]]) -> list[list[int]]:
    """The ranks, from 1, of each query's relevant passages among all passages by inner product.

    A passage that is not relevant and scores the same stands in front, so that a model that gives one vector for
    everything finds nothing. Products are made in float64.

    Args:
        queries: [N, D].
        passages: [M, D].
        relevant: For each query, the numbers of the passages that answer it; at least one.

    Returns:
        For each query the ranks of its relevant passages, rising.

    Cost: 8 bytes times 256 queries times M; N M D products.
    """
    columns = np.asarray(passages, dtype=np.float64).T
    ranks: list[list[int]] = []
    for start in range(0, len(queries), CHUNK_QUERIES):
        scores = np.asarray(queries[start : start + CHUNK_QUERIES], dtype=np.float64) @ columns
        for row, places in zip(scores, relevant[start : start + CHUNK_QUERIES], strict=True):
            own = np.sort(row[list(places)])[::-1]
            row[list(places)] = -np.inf
            ranks.append([i + 1 + int((row >= score - TIE).sum()) for i, score in enumerate(own)])
    return ranks


def retrieval_figures(queries: Vectors, passages: Vectors, relevant: Sequence[Sequence[int]]) -> dict[str, float]:
    """Means over the queries, each from 0 to 1.

    recall@k: share of the relevant passages among the first k. nDCG@10: sum of 1/log2(1 + rank) over the relevant
    passages of rank <= 10, over its largest possible value. MRR: 1 / rank of the first relevant passage.

    Args: as `relevant_ranks`.

    Source: Järvelin & Kekäläinen 2002 for nDCG, with relevance 0 or 1.
    """
    ranks = relevant_ranks(queries, passages, relevant)
    return {
        "recall@1": _mean([_recall(own, 1) for own in ranks]),
        "recall@10": _mean([_recall(own, CUTOFF) for own in ranks]),
        "ndcg@10": _mean([_gain(own) / _gain(range(1, len(own) + 1)) for own in ranks]),
        "mrr": _mean([1 / own[0] for own in ranks]),
    }


def _recall(ranks: Sequence[int], k: int) -> float:
    return sum(rank <= k for rank in ranks) / len(ranks)


def _gain(ranks: Sequence[int]) -> float:
    return sum(1 / math.log2(1 + rank) for rank in ranks if rank <= CUTOFF)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
