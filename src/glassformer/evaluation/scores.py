"""BLEU, chrF, TER, exact match and ROUGE of a corpus, with signatures, intervals and a paired test.

A corpus score is a function of the sum of each sentence's counts. The counts are taken once, by sacreBLEU; a group of
sentences, a bootstrap resample or a random exchange of two systems is then another sum of the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from glassformer.config import EvaluationConfig
from glassformer.errors import DataError
from glassformer.evaluation.rouge import ROUGE_NAMES, Rouge, is_english

__all__ = ["Comparison", "Counts", "Score", "Scores", "compare", "exact_match", "score"]

Array = npt.NDArray[np.float64]
_CHUNK = 4_000_000  # weights held at once while resampling: 32 MB
_ROUNDING = 1e-9  # a difference that rounding alone can make


@dataclass(frozen=True)
class Score:
    """A corpus score from 0 to 100 (TER may pass 100), its 95 % bootstrap interval, and what was computed exactly."""

    name: str
    value: float
    low: float | None
    high: float | None
    signature: str


@dataclass(frozen=True)
class Scores:
    """The scores of one set of sentences.

    `ter` is None, and `rouge` empty, where it was not asked for. `length_ratio` is the hypotheses' number of BLEU
    tokens over that of the references; NaN for references without a token.
    """

    n: int
    bleu: Score
    chrf: Score
    ter: Score | None
    exact_match: Score
    length_ratio: float
    rouge: list[Score] = field(default_factory=list)

    def all(self) -> list[Score]:
        """The scores in the order of the tables: ROUGE first, where it was asked for."""
        others = [score for score in (self.bleu, self.chrf, self.ter, self.exact_match) if score is not None]
        return [*self.rouge, *others]


@dataclass(frozen=True)
class Comparison:
    """A paired test of two systems on one metric.

    `delta = a - b`, with its 95 % paired bootstrap interval; `p_value` as in `compare`. `winner` is "a" or "b" where
    p < 0.05, else None.
    """

    name: str
    a: float
    b: float
    delta: float
    low: float | None
    high: float | None
    p_value: float
    winner: str | None


@dataclass(frozen=True)
class _Table:
    """One metric's counts: a row [k] for each sentence, and the score of a sum of rows."""

    name: str
    rows: Array
    compute: Callable[[Array], float]
    signature: str


class Counts:
    """The counts of each sentence behind each metric, taken once.

    Args:
        hypotheses: N outputs, as they are; an empty one counts as an output without a word.
        references: N references, as they are. Tokenisation happens once, inside sacreBLEU.
        use_ter: Count TER as well; that takes several times as long as BLEU and chrF together.
        rouge_language: Take ROUGE as well, of texts in this language (a code; of an unknown one it is guessed).
        config: Tokenisation of BLEU, and size and seed of the bootstrap.

    Raises:
        DataError: There are no sentences, or not as many hypotheses as references.
        ConfigError: ROUGE is asked for and its package is not installed.
    """

    def __init__(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str],
        *,
        use_ter: bool = True,
        rouge_language: str | None = None,
        config: EvaluationConfig | None = None,
    ) -> None:
        _require_partners(hypotheses, references)
        self.config = config or EvaluationConfig()
        self.n = len(hypotheses)
        # force: sacreBLEU's hint about tokenised text would go to a log; sentences.looks_tokenized is shown instead.
        scorers = {"bleu": BLEU(tokenize=self.config.tokenize, force=True), "chrf": CHRF()}
        if use_ter:
            scorers["ter"] = TER()
        self.tables = [_table(name, scorer, hypotheses, references) for name, scorer in scorers.items()]
        pairs = zip(hypotheses, references, strict=True)
        matches = np.array([(hypothesis == reference, 1) for hypothesis, reference in pairs], dtype=np.float64)
        self.tables.append(_Table("exact_match", matches, _share, "nrefs:1|case:mixed|space:yes|unit:%"))
        if rouge_language is not None:
            rouge = Rouge(is_english=is_english(references, rouge_language))
            for name, f1 in zip(ROUGE_NAMES, rouge.f1(hypotheses, references).T, strict=True):
                rows = np.stack([f1, np.ones_like(f1)], axis=1)  # the score is a mean over texts
                self.tables.append(_Table(name, rows, _share, rouge.signature))

    def scores(self, rows: Sequence[int] | None = None) -> Scores:
        """Scores all sentences, or those with the given indices, which may not be none."""
        tables = [table.rows if rows is None else table.rows[list(rows)] for table in self.tables]
        intervals: list[tuple[float | None, float | None]] = [(None, None)] * len(tables)
        resampled = ""
        if self.config.n_resamples:
            sums = _resampled_sums(np.hstack(tables), self.config)
            intervals = [_interval(values) for values in self._values(sums)]
            resampled = f"|bs:{self.config.n_resamples}|seed:{self.config.seed}"
        found = {
            table.name: Score(table.name, table.compute(part.sum(0)), low, high, table.signature + resampled)
            for table, part, (low, high) in zip(self.tables, tables, intervals, strict=True)
        }
        hyp_length, ref_length = tables[0].sum(0)[:2]
        ratio = float(hyp_length / ref_length) if ref_length else math.nan
        return Scores(
            n=len(tables[0]),
            bleu=found["bleu"],
            chrf=found["chrf"],
            ter=found.get("ter"),
            exact_match=found["exact_match"],
            length_ratio=ratio,
            rouge=[found[name] for name in ROUGE_NAMES if name in found],
        )

    def sentence_chrf(self) -> list[float]:
        """chrF of each sentence alone, from 0 to 100."""
        table = next(table for table in self.tables if table.name == "chrf")
        return [table.compute(row) for row in table.rows]

    def _values(self, sums: Array) -> list[Array]:
        """Scores of R sums of rows [R, all columns]: for each metric an array [R]."""
        values, start = [], 0
        for table in self.tables:
            part = sums[:, start : start + table.rows.shape[1]]
            values.append(np.array([table.compute(row) for row in part]))
            start += table.rows.shape[1]
        return values


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    use_ter: bool = True,
    config: EvaluationConfig | None = None,
) -> Scores:
    """BLEU, chrF, TER and exact match of hypotheses against one reference each.

    Intervals are percentiles 2.5 and 97.5 of the scores of resamples drawn with replacement (Koehn 2004).

    Args:
        hypotheses: N outputs.
        references: N references.
        use_ter: Whether TER is wanted; it takes several times as long as the other two together.
        config: Tokenisation, number of resamples (0: no intervals) and seed.

    Raises:
        DataError: There are no sentences, or not as many hypotheses as references.

    Source: Papineni et al. 2002 (BLEU), Popović 2015 (chrF), Snover et al. 2006 (TER), Post 2018 (signatures).
    """
    return Counts(hypotheses, references, use_ter=use_ter, config=config).scores()


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Per cent of hypotheses equal to their reference, character for character.

    Raises:
        DataError: There are no sentences, or not as many hypotheses as references.
    """
    _require_partners(hypotheses, references)
    return 100 * sum(map(str.__eq__, hypotheses, references)) / len(references)


def compare(a: Counts, b: Counts) -> list[Comparison]:
    """Tests whether two systems differ, sentence by sentence on the same references.

    Approximate randomisation: if the systems were alike, exchanging their outputs of a sentence would change nothing.
    Each of R trials exchanges a random half; `p = (1 + #{|delta*| >= |delta|}) / (1 + R)`, two-sided. Identical systems
    give p = 1. (sacreBLEU counts `>` alone, so that identical systems come out as different there: p = 1 / (1 + R).)
    Each metric is tested by itself, with no correction for testing several.

    Args:
        a: Counts of one system.
        b: Counts of the other, of the same sentences and metrics.

    Raises:
        DataError: The two do not hold the same number of sentences, or were not counted alike.

    Source: Riezler and Maxwell 2005; Phipson and Smyth 2010 (the 1 in the p-value).
    """
    signatures_a, signatures_b = ([table.signature for table in counts.tables] for counts in (a, b))
    if a.n != b.n or signatures_a != signatures_b:
        raise DataError(
            f"One system has {a.n} sentences counted by {signatures_a}, the other {b.n} by {signatures_b}.",
            "A paired test needs the same sentences and metrics.",
            "Count both with the same references and settings.",
        )
    rows_a, rows_b = (np.hstack([table.rows for table in counts.tables]) for counts in (a, b))
    exchanged = _exchanged_sums(rows_a - rows_b, a.config) + rows_b.sum(0)
    trials = zip(a._values(exchanged), a._values(rows_a.sum(0) + rows_b.sum(0) - exchanged), strict=True)
    p_values = []
    observed = [(x.compute(x.rows.sum(0)), y.compute(y.rows.sum(0))) for x, y in zip(a.tables, b.tables, strict=True)]
    for (values_a, values_b), (value_a, value_b) in zip(trials, observed, strict=True):
        n_as_large = int(np.sum(np.abs(values_a - values_b) >= abs(value_a - value_b) - _ROUNDING))
        p_values.append((1 + n_as_large) / (1 + a.config.n_trials))
    intervals = _delta_intervals(a, np.hstack([rows_a, rows_b]))
    return [
        Comparison(table.name, x, y, x - y, *interval, p, _winner(table.name, x - y, p))
        for table, (x, y), interval, p in zip(a.tables, observed, intervals, p_values, strict=True)
    ]


def _delta_intervals(a: Counts, rows: Array) -> Sequence[tuple[float | None, float | None]]:
    """Paired bootstrap: both systems are scored on the same resamples."""
    if not a.config.n_resamples:
        return [(None, None)] * len(a.tables)
    sums_a, sums_b = np.split(_resampled_sums(rows, a.config), 2, axis=1)
    return [_interval(x - y) for x, y in zip(a._values(sums_a), a._values(sums_b), strict=True)]


def _winner(name: str, delta: float, p_value: float) -> str | None:
    if p_value >= 0.05:
        return None
    return "a" if (delta < 0) == (name == "ter") else "b"  # TER counts edits: less is better


def _table(name: str, scorer: Any, hypotheses: Sequence[str], references: Sequence[str]) -> _Table:
    # The two methods behind sacreBLEU's own corpus_score; a test holds that both ways give the same value.
    rows = scorer._extract_corpus_statistics(list(hypotheses), [list(references)])
    signature = str(scorer.get_signature())
    return _Table(
        name, np.array(rows, dtype=np.float64), lambda s: float(scorer._compute_score_from_stats(s).score), signature
    )


def _share(sums: Array) -> float:
    return float(100 * sums[0] / sums[1])


def _interval(values: Array) -> tuple[float, float]:
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def _chunks(count: int, n: int) -> Iterator[int]:
    """Cuts `count` draws over n sentences into parts whose weights fit in memory."""
    step = max(1, _CHUNK // n)
    yield from (min(step, count - start) for start in range(0, count, step))


def _resampled_sums(rows: Array, config: EvaluationConfig) -> Array:
    """Sums [R, k] of the rows of R resamples with replacement of n sentences from n."""
    rng, n = np.random.default_rng(config.seed), len(rows)
    sums = []
    for size in _chunks(config.n_resamples, n):
        drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        sums.append(weights.astype(np.float64) @ rows)
    return np.concatenate(sums)


def _exchanged_sums(differences: Array, config: EvaluationConfig) -> Array:
    """Sums [R, k] of the rows of a random half of the sentences, each in or out with probability 1/2."""
    rng, n = np.random.default_rng(config.seed), len(differences)
    chosen = (rng.integers(2, size=(size, n), dtype=bool) for size in _chunks(config.n_trials, n))
    return np.concatenate([part.astype(np.float64) @ differences for part in chosen])


def _require_partners(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(
            f"There are {len(hypotheses)} hypotheses and {len(references)} references.",
            "Each hypothesis is scored against one reference.",
            "Check that both come from the same rows.",
        )
    if not hypotheses:
        raise DataError("There are no sentences to score.", "At least one pair was expected.", "Check the input.")
