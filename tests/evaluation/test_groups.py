"""Groups by length and domain: each sentence in exactly one, scored as if it were alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config import EvaluationConfig
from glassformer.errors import DataError
from glassformer.evaluation.groups import by_domain, by_length
from glassformer.evaluation.scores import Counts, score

CONFIG = EvaluationConfig(n_resamples=50, length_bounds=(2, 4), small_group=3, max_domains=3)
SOURCES = ["a", "a b", "a b c", "a b c d", "a b c d e", "a  b c d e f"]
REFERENCES = ["x y z", "un deux trois quatre", "le chat dort bien", "oui non oui non", "a b c d e f", "g h i j k"]
HYPOTHESES = ["x y", "un deux trois quatre", "le chien dort bien", "oui non", "a b c d f", "g h i j k"]


def counts(config: EvaluationConfig = CONFIG) -> Counts:
    return Counts(HYPOTHESES, REFERENCES, use_ter=False, config=config)


def test_lengths_are_parted_at_the_bounds() -> None:
    groups = by_length(counts(), SOURCES)
    assert [(g.name, g.scores.n, g.is_small) for g in groups] == [
        ("up to 2", 2, True),
        ("3 to 4", 2, True),
        ("over 4", 2, True),
    ]
    assert groups[1].scores == score(HYPOTHESES[2:4], REFERENCES[2:4], use_ter=False, config=CONFIG)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40), st.sets(st.integers(1, 60), max_size=6))
def test_every_sentence_is_in_exactly_one_group(lengths: list[int], bounds: set[int]) -> None:
    config = EvaluationConfig(n_resamples=0, length_bounds=tuple(sorted(bounds)))
    texts = [f"t{i}" for i in range(len(lengths))]
    counted = Counts(texts, texts, use_ter=False, config=config)
    groups = by_length(counted, [" ".join(["w"] * length) for length in lengths])
    assert sum(group.scores.n for group in groups) == len(lengths)
    starts = [0, *(bound + 1 for bound in sorted(bounds))]
    ends = [*sorted(bounds), 1000]
    expected = [sum(a <= n <= b for n in lengths) for a, b in zip(starts, ends, strict=True)]
    assert [group.scores.n for group in groups] == [n for n in expected if n]


def test_domains_are_listed_by_size_then_name() -> None:
    groups = by_domain(counts(), ["ui", "man", "ui", "bible", "man", "ui"])
    assert [(g.name, g.scores.n, g.is_small) for g in groups] == [
        ("ui", 3, False),
        ("man", 2, True),
        ("bible", 1, True),
    ]
    alone = [HYPOTHESES[1], HYPOTHESES[4]], [REFERENCES[1], REFERENCES[4]]
    assert groups[1].scores == score(*alone, use_ter=False, config=CONFIG)


def test_many_domains_end_in_one_group_and_none_is_lost() -> None:
    groups = by_domain(counts(), ["a", "b", "c", "d", "a", None])
    assert [(g.name, g.scores.n) for g in groups] == [("a", 2), ("(none)", 1), ("(3 other domains)", 3)]


def test_another_number_of_rows_is_an_error() -> None:
    with pytest.raises(DataError, match="5 rows to group and 6 scored"):
        by_length(counts(), SOURCES[:-1])
