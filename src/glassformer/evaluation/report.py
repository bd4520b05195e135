"""Everything that `evaluate` says about a system: one report, shown as JSON, as Markdown or in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from glassformer.config import EvaluationConfig
from glassformer.evaluation.groups import Group, by_domain, by_length
from glassformer.evaluation.scores import Comparison, Counts, Scores, compare
from glassformer.evaluation.sentences import Faults, Sentence, faults, looks_tokenized, worst
from glassformer.evaluation.testset import TestSet

__all__ = ["Report", "System", "Table", "evaluate", "strict_json", "tables", "to_markdown"]

TITLES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "exact_match": "exact %"}
TITLES |= {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}


@dataclass(frozen=True, kw_only=True)
class System:
    """Outputs to score: one for each scored row, and how they were made."""

    name: str
    hypotheses: list[str]
    seconds: float | None = None
    truncated: int | None = None
    n_cut_sources: int | None = None
    generation: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """The scores of a system on a test set, and the comparison with another where there is one."""

    system: System
    test_set: TestSet
    scores: Scores
    lengths: list[Group]
    domains: list[Group]
    worst: list[Sentence]
    faults: Faults
    other: System | None = None
    other_scores: Scores | None = None
    comparison: list[Comparison] = field(default_factory=list)


@dataclass(frozen=True)
class Table:
    """A table to show: a title, the heads of the columns, rows of text."""

    title: str
    heads: list[str]
    rows: list[list[str]]


def evaluate(
    system: System,
    test_set: TestSet,
    *,
    other: System | None = None,
    use_ter: bool = True,
    rouge_language: str | None = None,
    config: EvaluationConfig | None = None,
) -> Report:
    """Scores a system, overall and by group, and tests it against another one on the same rows.

    Raises:
        DataError: A system has not one output for each row of the test set.
    """
    sources, references = test_set.sources, test_set.references
    options: dict[str, Any] = {"use_ter": use_ter, "rouge_language": rouge_language, "config": config}
    counts = Counts(system.hypotheses, references, **options)
    others = Counts(other.hypotheses, references, **options) if other else None
    return Report(
        system=system,
        test_set=test_set,
        scores=counts.scores(),
        lengths=by_length(counts, sources),
        domains=by_domain(counts, test_set.domains) if any(test_set.domains) else [],
        worst=worst(counts, sources, system.hypotheses, references, test_set.lines),
        faults=faults(sources, system.hypotheses, references),
        other=other,
        other_scores=others.scores() if others else None,
        comparison=compare(counts, others) if others else [],
    )


def notes(report: Report) -> list[str]:
    """Sentences that a reader of the scores must know: what was left out, and what makes them doubtful."""
    test_set, found = report.test_set, report.faults
    said = [test_set.summary()]
    for what, texts in (("outputs", report.system.hypotheses), ("references", test_set.references)):
        if looks_tokenized(texts):
            said.append(f"More than a tenth of the {what} end in ' .': BLEU expects text that is not tokenised yet.")
    parts = {
        "empty": found.empty,
        "copies of the source": found.copies,
        "caught in a loop": found.loops,
        "with other numbers than the source": found.numbers,
        "with other placeholders than the source": found.placeholders,
        "cut at the length limit": report.system.truncated or 0,
    }
    faulty = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
    said.append(f"Outputs: {faulty or 'none empty, copied, looping, or with a number or placeholder lost'}.")
    if not math.isnan(report.scores.length_ratio):
        said.append(f"The outputs have {report.scores.length_ratio:.3f} times as many words as the references.")
    if n_cut := report.system.n_cut_sources:
        said.append(f"{n_cut:,} sources were longer than the model reads: their ends were cut off.")
    if report.scores.ter is not None:
        said.append("TER counts edits: less is better.")
    said.append("exact %: outputs equal to their reference, character for character.")
    if any(group.is_small for group in report.lengths + report.domains):
        said.append("(few): a group with so few sentences that its scores say little.")
    return said


def tables(report: Report) -> list[Table]:
    """The tables of a report, in the order in which they are shown."""
    shown = [_overall(report)]
    if report.other is not None:
        shown.append(_compared(report.comparison, report.system.name, report.other.name))
    for title, groups in (("by words of the source", report.lengths), ("by domain", report.domains)):
        if groups:
            shown.append(_grouped(title, groups))
    if report.worst:
        heads = ["line", "chrF", "source", "output", "reference"]
        rows = [[str(s.line), f"{s.chrf:.1f}", s.source, s.hypothesis, s.reference] for s in report.worst]
        shown.append(Table("worst sentences", heads, rows))
    return shown


def signatures(report: Report) -> list[str]:
    """What was computed exactly, one line a metric, for papers and for comparing with other tools."""
    return [f"{TITLES[score.name]}: {score.signature}" for score in report.scores.all()]


def _overall(report: Report) -> Table:
    rows = [[TITLES[s.name], f"{s.value:.2f}", _interval(s.low, s.high)] for s in report.scores.all()]
    return Table(f"{report.system.name}: {report.scores.n} sentences", ["metric", "score", "95 % interval"], rows)


def _compared(comparison: Sequence[Comparison], name: str, other: str) -> Table:
    winners = {"a": "A", "b": "B", None: "neither"}
    rows = []
    for c in comparison:
        values = [f"{c.a:.2f}", f"{c.b:.2f}", f"{c.delta:+.2f}"]
        rows.append([TITLES[c.name], *values, _interval(c.low, c.high), f"{c.p_value:.4f}", winners[c.winner]])
    heads = ["metric", "A", "B", "A - B", "95 % interval", "p", "better"]
    return Table(f"paired test of A = {name} and B = {other}: better if p < 0.05", heads, rows)


def _grouped(title: str, groups: Sequence[Group]) -> Table:
    """One line a group; only the first metric has room for its interval here, report.json has them all."""
    names = [score.name for score in groups[0].scores.all()]
    heads = ["group", "sentences", TITLES[names[0]], "95 % interval", *(TITLES[name] for name in names[1:])]
    rows = []
    for group in groups:
        first, *others = group.scores.all()
        count = f"{group.scores.n:,}{' (few)' if group.is_small else ''}"
        values = [f"{score.value:.1f}" for score in others]
        rows.append([group.name, count, f"{first.value:.1f}", _interval(first.low, first.high), *values])
    return Table(title, heads, rows)


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{low:.1f}, {high:.1f}]"


def to_dict(report: Report) -> dict[str, Any]:
    """The report as plain values, without the outputs themselves; see `strict_json` for NaN."""
    described: dict[str, Any] = {"rows": report.test_set.described(), "notes": notes(report)}
    described |= _system(report.system, report.scores)
    for name, groups in (("by_length", report.lengths), ("by_domain", report.domains)):
        described[name] = [{"name": g.name, "is_small": g.is_small, **_scores(g.scores)} for g in groups]
    described |= {"worst": [asdict(s) for s in report.worst], "faults": asdict(report.faults)}
    if report.other is not None and report.other_scores is not None:
        described["against"] = _system(report.other, report.other_scores)
        described["comparison"] = [asdict(c) for c in report.comparison]
    return described


def _system(system: System, scores: Scores) -> dict[str, Any]:
    made = {name: getattr(system, name) for name in ("name", "seconds", "truncated", "n_cut_sources", "generation")}
    return {**made, **_scores(scores)}


def _scores(scores: Scores) -> dict[str, Any]:
    return {"n": scores.n, "length_ratio": scores.length_ratio, "scores": {s.name: asdict(s) for s in scores.all()}}


def strict_json(value: Any) -> Any:
    """Replaces NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_markdown(report: Report) -> str:
    """The report as a Markdown page."""
    parts = [f"# Evaluation of {report.system.name}", "\n".join(f"- {note}" for note in notes(report))]
    for table in tables(report):
        lines = [table.heads, ["---"] * len(table.heads), *table.rows]
        parts.append(f"## {table.title}\n\n" + "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines))
    parts.append("## Signatures\n\n" + "\n".join(f"- `{line}`" for line in signatures(report)))
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    """Text that cannot end a Markdown cell or open an HTML tag."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
