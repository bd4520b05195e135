"""What is wrong with single outputs: the worst ones, copies, loops, lost numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.evaluation.scores import Counts
from glassformer.text.signs import has_same_numbers, has_same_placeholders

__all__ = ["Faults", "Sentence", "faults", "has_loop", "looks_tokenized", "worst"]


@dataclass(frozen=True)
class Sentence:
    """One output beside its source and reference. `line` is its line in the data, from 1; `chrf` its own chrF."""

    line: int
    chrf: float
    source: str
    hypothesis: str
    reference: str


@dataclass(frozen=True)
class Faults:
    """Numbers of outputs with a fault that needs no reader to see. One output can have several."""

    empty: int
    copies: int
    loops: int
    numbers: int
    placeholders: int


def worst(
    counts: Counts, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], lines: Sequence[int]
) -> list[Sentence]:
    """The sentences with the lowest chrF, worst first, equal ones in the order of the data; at most `n_worst`."""
    chrf = counts.sentence_chrf()
    order = sorted(range(counts.n), key=lambda i: (chrf[i], i))[: counts.config.n_worst]
    return [Sentence(lines[i], chrf[i], sources[i], hypotheses[i], references[i]) for i in order]


def faults(sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> Faults:
    """Counts the outputs that are empty, copied, looping, or lost a number or placeholder.

    - empty: nothing but white space;
    - copies: equal to the source, where the reference is not;
    - loops: `has_loop`, where the reference has none;
    - numbers, placeholders: other ones than in the source, where the reference has those of the source.
    """
    triples = list(zip(sources, hypotheses, references, strict=True))
    return Faults(
        empty=sum(not hypothesis.strip() for hypothesis in hypotheses),
        copies=sum(hypothesis == source != reference for source, hypothesis, reference in triples),
        loops=sum(has_loop(hypothesis) and not has_loop(reference) for _, hypothesis, reference in triples),
        numbers=sum(has_same_numbers(s, r) and not has_same_numbers(s, h) for s, h, r in triples),
        placeholders=sum(has_same_placeholders(s, r) and not has_same_placeholders(s, h) for s, h, r in triples),
    )


def has_loop(text: str) -> bool:
    """Whether up to 8 words stand 4 times in a row, or up to 4 characters 12 times in a row."""
    return _repeats(text.split(), 8, 4) or _repeats(text, 4, 12)


def _repeats(items: Sequence[str], max_period: int, n_times: int) -> bool:
    for period in range(1, max_period + 1):
        run = 0  # how many items in a row equal the one a period before
        for item, earlier in zip(items[period:], items, strict=False):
            run = run + 1 if item == earlier else 0
            if run == period * (n_times - 1):
                return True
    return False


def looks_tokenized(texts: Sequence[str]) -> bool:
    """Whether more than a tenth of the texts end in a full stop set apart (` .`), as tokenised text does.

    BLEU tokenises by itself, so text that is tokenised already gets a score that compares with no other.
    """
    return sum(text.endswith(" .") for text in texts) * 10 > len(texts)
