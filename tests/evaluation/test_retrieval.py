"""Retrieval figures against values by hand and against a full sort."""

from __future__ import annotations

import math

import numpy as np
import pytest

from glassformer.evaluation import retrieval
from glassformer.evaluation.retrieval import relevant_ranks, retrieval_figures


def test_figures_of_known_ranks() -> None:
    """Query 0 finds its passage first; query 1 third; query 2 has two, at 2 and 12."""
    passages = np.eye(14)
    queries = np.zeros((3, 14))
    queries[0, 0] = 1
    queries[1, [3, 4, 5]] = 3, 2, 1
    queries[2] = np.arange(14, 0, -1)
    relevant = [[0], [5], [1, 11]]
    assert relevant_ranks(queries, passages, relevant) == [[1], [3], [2, 12]]
    figures = retrieval_figures(queries, passages, relevant)
    assert figures["recall@1"] == pytest.approx(1 / 3)
    assert figures["recall@10"] == pytest.approx((1 + 1 + 0.5) / 3)
    assert figures["mrr"] == pytest.approx((1 + 1 / 3 + 1 / 2) / 3)
    ideal = 1 + 1 / math.log2(3)
    assert figures["ndcg@10"] == pytest.approx((1 + 1 / math.log2(4) + 1 / math.log2(3) / ideal) / 3)


def test_model_that_gives_one_vector_for_everything_finds_nothing() -> None:
    same = np.full((40, 7), 0.1, dtype=np.float32)
    figures = retrieval_figures(same, same, [[i] for i in range(40)])
    assert figures["recall@10"] == 0.0 and figures["mrr"] == pytest.approx(1 / 40)


def test_ranks_equal_those_of_a_full_sort_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    queries, passages = rng.normal(size=(23, 5)).astype("f4"), rng.normal(size=(31, 5)).astype("f4")
    relevant = [sorted(rng.choice(31, size=rng.integers(1, 4), replace=False).tolist()) for _ in range(23)]
    expected = []
    for query, places in zip(queries, relevant, strict=True):
        order = np.argsort(-(passages.astype(float) @ query.astype(float)))
        expected.append(sorted(int(np.flatnonzero(order == place)[0]) + 1 for place in places))
    for size in (1, 4, 100):
        monkeypatch.setattr(retrieval, "CHUNK_QUERIES", size)
        assert relevant_ranks(queries, passages, relevant) == expected


def test_more_relevant_passages_than_places_can_still_be_perfect() -> None:
    figures = retrieval_figures(np.ones((1, 1)), np.concatenate([np.full((15, 1), 2.0), np.ones((3, 1))]), [range(15)])
    assert figures["ndcg@10"] == pytest.approx(1.0) and figures["recall@10"] == pytest.approx(10 / 15)
