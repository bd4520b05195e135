"""Scores by the length of the source and by domain. Each sentence falls into exactly one group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.errors import DataError
from glassformer.evaluation.scores import Counts, Scores

__all__ = ["Group", "by_domain", "by_length"]


@dataclass(frozen=True)
class Group:
    """The scores of some of the sentences; `is_small` warns that their intervals are wide."""

    name: str
    scores: Scores
    is_small: bool


def by_length(counts: Counts, sources: Sequence[str]) -> list[Group]:
    """Scores the sentences by the number of words of their source, parted at white space.

    Args:
        counts: What `Counts` took of N sentences; its config names the bounds.
        sources: The N source sentences.

    Returns:
        The groups that have a sentence, short ones first: `up to 5`, `6 to 10`, ..., `over 50`.

    Raises:
        DataError: There are not as many sources as sentences.
    """
    bounds = counts.config.length_bounds
    starts = (0, *(bound + 1 for bound in bounds))
    names = [f"{start} to {end}" if start else f"up to {end}" for start, end in zip(starts, bounds, strict=False)]
    names.append(f"over {bounds[-1]}" if bounds else "all lengths")
    indices = [sum(len(source.split()) > bound for bound in bounds) for source in sources]
    return _groups(counts, [names[index] for index in indices], names)


def by_domain(counts: Counts, domains: Sequence[str | None]) -> list[Group]:
    """Scores the sentences by the domain column of their rows.

    Args:
        counts: What `Counts` took of N sentences.
        domains: The domain of each; None is listed as `(none)`.

    Returns:
        The groups, largest first, then by name. From the config's `max_domains` on they are one, `(N other domains)`.

    Raises:
        DataError: There are not as many domains as sentences.
    """
    labels = [domain or "(none)" for domain in domains]
    sizes = Counter(labels)
    names = sorted(sizes, key=lambda name: (-sizes[name], name))
    limit = counts.config.max_domains
    if len(names) > limit:
        rest = f"({len(names) - limit + 1} other domains)"
        kept = set(names[: limit - 1])
        labels = [label if label in kept else rest for label in labels]
        names = [*names[: limit - 1], rest]
    return _groups(counts, labels, names)


def _groups(counts: Counts, labels: Sequence[str], names: Sequence[str]) -> list[Group]:
    if len(labels) != counts.n:
        raise DataError(
            f"There are {len(labels)} rows to group and {counts.n} scored sentences.",
            "Every sentence belongs to one group.",
            "Pass one source or domain for each sentence.",
        )
    members: dict[str, list[int]] = {name: [] for name in names}
    for index, label in enumerate(labels):
        members[label].append(index)
    small = counts.config.small_group
    return [Group(name, counts.scores(rows), len(rows) < small) for name, rows in members.items() if rows]
