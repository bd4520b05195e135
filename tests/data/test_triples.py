"""Queries, positives and hard negatives: read, stored, and put into batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.config import DataConfig, TokenizerConfig
from glassformer.data.batches import BatchPlan
from glassformer.data.store import TokenStore
from glassformer.data.triple_batches import TripleBatches, passages_of, text_keys
from glassformer.data.triples import Triple, TripleReader, prepare_triples
from glassformer.errors import DataError
from glassformer.text.tokenizer import Tokenizer

ROWS = [
    ("who wrote Hamlet", "Shakespeare did", ["Marlowe did not", "nobody knows"]),
    ("capital of France", "Paris </s> it is", []),
    ("how tall", "two metres", ["blue"]),
    ("why", "because", []),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([text for q, p, n in ROWS for text in (q, p, *n)], TokenizerConfig(), vocab_size=270)


def write(path: Path, rows: list[Any]) -> str:
    text = "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return str(path)


def as_jsonl(path: Path) -> str:
    return write(path, [{"query": q, "positive": p, "negatives": n} for q, p, n in ROWS])


def triples(reader: TripleReader) -> list[tuple[Any, ...]]:
    return [(row.src, row.tgt, list(row.negatives) if isinstance(row, Triple) else None) for row in reader]


def make_store(folder: Path, tokenizer: Tokenizer, **changes: Any) -> TokenStore:
    reader = TripleReader([as_jsonl(folder / "rows.jsonl")])
    return prepare_triples(reader, tokenizer, folder / "store", DataConfig(**changes))


def make_batches(store: TokenStore, *, batch_tokens: int = 10_000, use_bos: bool = True) -> TripleBatches:
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
    plan = BatchPlan(store, batch_tokens=batch_tokens, sort_window=100, seed=1, **ids)
    return TripleBatches(plan, store, use_bos=use_bos, **ids)


def test_formats_give_the_same_triples(tmp_path: Path) -> None:
    tsv = write(tmp_path / "rows.tsv", ["\t".join([q, p, *n]) + "\t\n" for q, p, n in ROWS])  # a ragged end
    assert triples(TripleReader([as_jsonl(tmp_path / "a.jsonl")])) == [(q, p, n) for q, p, n in ROWS]
    assert triples(TripleReader([tsv], has_negatives=True)) == [(q, p, n) for q, p, n in ROWS]


def test_third_column_is_a_domain_unless_negatives_are_asked_for(tmp_path: Path) -> None:
    (row,) = TripleReader([write(tmp_path / "rows.tsv", ["a b\tc\tnews\n"])])
    assert row.domain == "news" and not isinstance(row, Triple)


def test_bad_rows_are_counted_with_their_reason(tmp_path: Path) -> None:
    good = {"query": "q", "positive": "p"}
    bad = [
        good | {"negatives": "x"},
        good | {"negatives": ["x", " "]},
        good | {"negatives": ["\ud83d"]},
        {"query": "q"},
        "[1]\n",
    ]
    reader = TripleReader([write(tmp_path / "rows.jsonl", [good, *bad])])
    assert len(list(reader)) == 1
    assert sorted(reader.bad) == [
        "a blank negative",
        "half a surrogate pair",
        "negatives that are no list of texts",
        "no JSON object",
        "no text under src and tgt",
    ]
    assert reader.bad_examples["a blank negative"].endswith("line 3")
    tsv = TripleReader([write(tmp_path / "rows.tsv", ["a\tb\tc\td\n", "alone\n", "\n"])], has_negatives=True)
    assert len(list(tsv)) == 1 and dict(tsv.bad) == {"1 column": 1, "blank line": 1}


@pytest.mark.parametrize("name", ["rows.csv", "two"])
def test_formats_without_a_place_for_negatives_refuse_them(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, ["a,b,c\n"])
    with pytest.raises(DataError, match="JSONL"):
        list(TripleReader([path] * (1 + (name == "two")), has_negatives=True))
    headed = write(tmp_path / "headed.csv", ["query,positive,negative_1\n", "a,b,c\n"])
    with pytest.raises(DataError, match="asked of CSV"):
        list(TripleReader([headed]))


def test_csv_header_names_query_and_positive(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", ["positive,query\n", "p,q\n"])
    assert [(row.src, row.tgt) for row in TripleReader([path])] == [("q", "p")]


def test_store_gives_every_text_back(tmp_path: Path, tokenizer: Tokenizer) -> None:
    store = make_store(tmp_path, tokenizer)
    for i, (query, positive, negatives) in enumerate(ROWS):
        assert tokenizer.decode(store.src(i)) == query
        assert tokenizer.decode_batch(passages_of(store, i, tokenizer.eos_id)) == [positive, *negatives]


def test_row_with_one_long_text_is_left_out_and_reported(tmp_path: Path, tokenizer: Tokenizer) -> None:
    longest = [max(len(tokenizer.encode(text)) + 2 for text in (q, p, *n)) for q, p, n in ROWS]
    bound = longest[0] - 1  # the negative of row 0 decides
    store = make_store(tmp_path, tokenizer, max_tokens=bound)
    kept = [i for i, length in enumerate(longest) if length <= bound]
    assert 0 not in kept and store.row_numbers.tolist() == [i + 1 for i in kept]
    assert store.excluded[f"a text of more than {bound} tokens"]["count"] == len(ROWS) - len(kept)


def test_dropout_stores_several_tokenisations(tmp_path: Path, tokenizer: Tokenizer) -> None:
    reader = TripleReader([as_jsonl(tmp_path / "rows.jsonl")])
    store = prepare_triples(reader, tokenizer, tmp_path / "s", DataConfig(), n_variants=3, bpe_dropout=0.5)
    assert store.n_variants == 3
    batches = make_batches(store)
    for k in range(3):
        texts = [tokenizer.decode(ids) for ids in batches.batch(batches.epoch(k)[0], k).passages.tolist()]
        assert sorted(texts) == sorted([p for _, p, _ in ROWS] + [text for *_, n in ROWS for text in n])


def test_batch_holds_positives_in_order_then_hard_negatives(tmp_path: Path, tokenizer: Tokenizer) -> None:
    store = make_store(tmp_path, tokenizer)
    batches = make_batches(store)
    rows = batches.epoch(0)[0]
    batch = batches.batch(rows)
    wanted = [ROWS[i] for i in rows]
    assert [tokenizer.decode(ids) for ids in batch.queries.tolist()] == [q for q, *_ in wanted]
    passages = [p for _, p, _ in wanted] + [text for *_, n in wanted for text in n]
    assert [tokenizer.decode(ids) for ids in batch.passages.tolist()] == passages
    assert bool((batch.queries[:, 0] == 1).all())
    ends = [int(ids[int((ids != 0).sum()) - 1]) for ids in (*batch.queries, *batch.passages)]
    assert set(ends) == {2}
    assert batch.n_tokens == batches.n_tokens(rows) == 4
    assert batch.n_src_tokens == int((batch.queries != 0).sum() + (batch.passages != 0).sum())
    assert bool((make_batches(store, use_bos=False).batch(rows).queries[:, 0] != 1).all())
    assert make_batches(store, use_bos=False).fingerprint != batches.fingerprint


def test_ranks_share_the_rows_and_a_rank_without_rows_counts_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    batches = make_batches(make_store(tmp_path, tokenizer))
    rows = batches.epoch(0)[0]
    parts = [batches.batch(rows, rank=rank, world_size=5) for rank in range(5)]
    assert [part.n_tokens for part in parts] == [1, 1, 1, 1, 0]
    assert torch.cat([part.rows for part in parts]).tolist() == rows.tolist()
    assert parts[4].n_src_tokens == 0 and len(parts[4].queries) == 1


def test_keys_are_equal_for_equal_texts_only() -> None:
    keys = text_keys([[5, 6], [5], [5, 6], [6, 5], []]).tolist()
    assert keys[0] == keys[2] and len(set(keys)) == 4 and min(keys) >= 0
