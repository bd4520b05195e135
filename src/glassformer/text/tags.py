"""Tags of words that mark entities: `B-PER I-PER O`. Which scheme they follow, which entities they mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import DataError

__all__ = ["Scheme", "Span", "TagCensus", "allowed_steps", "entities", "is_allowed", "viterbi"]

Scheme = Literal["none", "BIO", "IOB1", "BIOES"]

OUTSIDE = "O"
_TAG = re.compile(r"O|[BIES]-.+", re.DOTALL)
_BILOU = re.compile(r"[LU]-.+", re.DOTALL)
_FORBIDDEN = -1e6  # log-probability of a step that a scheme forbids: far below any real sum, yet finite


class Span(NamedTuple):
    """An entity: its type, and its words `start` to `end - 1`."""

    type: str
    start: int
    end: int


def entities(tags: Sequence[str]) -> list[Span]:
    """The entities that a sequence of tags means, read leniently: a broken sequence still gives entities.

    An entity begins at B- or S-, at I- or E- that continues nothing of its type, and ends before a tag that does not
    continue it, or with E- or S-. These are the rules of conlleval, and of seqeval without `mode="strict"`.

    Source: Tjong Kim Sang & De Meulder 2003 (CoNLL-2003 shared task and its script).
    """
    spans: list[Span] = []
    start: int | None = None
    prefix, kind = OUTSIDE, ""
    for i, tag in enumerate([*tags, OUTSIDE]):
        next_prefix, next_kind = _parts(tag)
        continues = start is not None and next_prefix in "IE" and prefix in "BI" and next_kind == kind
        if start is not None and not continues:
            spans.append(Span(kind, start, i))
            start = None
        if start is None and next_prefix != OUTSIDE:
            start = i
        prefix, kind = next_prefix, next_kind
    return spans


def _parts(tag: str) -> tuple[str, str]:
    """`B-PER` -> B, PER. A bare B has the type `_`, as in seqeval."""
    return (OUTSIDE, "") if tag == OUTSIDE else (tag[0], tag[1:].split("-", 1)[-1] or "_")


def is_allowed(tag: str, following: str, scheme: Scheme) -> bool:
    """Whether a tag may follow another one; the places before the first and behind the last word count as O."""
    if scheme == "none":
        return True
    (prefix, kind), (next_prefix, next_kind) = _parts(tag), _parts(following)
    is_inside = prefix in "BI" and kind == next_kind
    if scheme == "BIO":
        return next_prefix != "I" or is_inside
    if scheme == "IOB1":
        return next_prefix != "B" or is_inside
    return (is_inside and next_prefix in "IE") if prefix in "BI" else next_prefix in "BSO"


class TagCensus:
    """Counts which tag follows which, and tells from that the scheme of the tags.

    BIO (also IOB2): every entity begins with B-. IOB1: B- only between two neighbours of one type. BIOES: the last
    word has E-, the only one S-. none: the labels are no entity tags at all, such as parts of speech.
    """

    def __init__(self) -> None:
        self.steps: Counter[tuple[str, str]] = Counter()

    def add(self, tags: Iterable[str]) -> None:
        """Counts the tags of a sentence."""
        before = OUTSIDE
        for tag in tags:
            self.steps[before, tag] += 1
            before = tag
        self.steps[before, OUTSIDE] += 1

    @property
    def scheme(self) -> Scheme:
        """The scheme that the tags seen follow, or follow best.

        Raises:
            DataError: The tags are of the scheme BILOU, which is not read.
        """
        tags = {tag for step in self.steps for tag in step} - {OUTSIDE}
        if any(_BILOU.fullmatch(tag) for tag in tags) and all(_TAG.fullmatch(t) or _BILOU.fullmatch(t) for t in tags):
            raise DataError(
                "The tags have the scheme BILOU.",
                "BIO, IOB1 or BIOES was expected.",
                "Write E- in place of L- and S- in place of U-: then it is BIOES.",
            )
        if not tags or not all(_TAG.fullmatch(tag) for tag in tags):
            return "none"
        if any(tag[0] in "ES" for tag in tags):
            return "BIOES"
        return "IOB1" if self.n_broken("BIO") and not self.n_broken("IOB1") else "BIO"

    def n_broken(self, scheme: Scheme) -> int:
        """Steps from tag to tag that a scheme forbids."""
        return sum(count for step, count in self.steps.items() if not is_allowed(*step, scheme))


def allowed_steps(names: Sequence[str], scheme: Scheme) -> NDArray[np.bool_]:
    """[L + 1, L + 1]: whether label j may follow label i; the last row and column stand for the sentence's bounds."""
    places = [*names, OUTSIDE]
    return np.array([[is_allowed(tag, following, scheme) for following in places] for tag in places])


def viterbi(log_probs: NDArray[Any], allowed: NDArray[np.bool_]) -> list[int]:
    """The most probable labels of a sentence among those whose every step is allowed.

    best_t[j] = log p_t(j) + max_i (best_{t-1}[i] + step[i, j]), with step 0 where allowed, read back from the end.
    Where no sequence is allowed throughout, the one with the fewest forbidden steps is taken.

    Args:
        log_probs: [T, L].
        allowed: [L + 1, L + 1], as `allowed_steps` gives.

    Returns:
        T labels.

    Source: Viterbi 1967. Cost: T L^2.
    """
    step = np.where(allowed, 0.0, _FORBIDDEN)
    if len(log_probs) == 0:
        return []
    best = step[-1, :-1] + log_probs[0].astype(np.float64)
    cames: list[NDArray[np.intp]] = []
    for row in log_probs[1:]:
        paths = best[:, None] + step[:-1, :-1]  # [L, L]: from i to j
        cames.append(paths.argmax(0))
        best = paths.max(0) + row
    labels = [int((best + step[:-1, -1]).argmax())]
    for came in reversed(cames):
        labels.append(int(came[labels[-1]]))
    return labels[::-1]
