"""The data report: what a parallel corpus holds, what looks wrong in it, and what training leaves out."""

from __future__ import annotations

import re
from array import array
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from glassformer.config import DataConfig
from glassformer.text.languages import LANGUAGES, guess_language
from glassformer.text.readers import Pair, PairReader
from glassformer.text.report import Example, Finding, Report, Side
from glassformer.text.signs import CONTROL, has_same_numbers, has_same_placeholders

__all__ = ["check", "judge"]

_QUANTILES = {"min": 0.0, "5%": 0.05, "25%": 0.25, "median": 0.5, "75%": 0.75, "95%": 0.95, "99%": 0.99, "max": 1.0}
# Codes of languages as small numbers; 0 is no guess.
_NAMES: list[str | None] = [None, *sorted(LANGUAGES)]
_CODES = {name: code for code, name in enumerate(_NAMES)}
_NO_WORD = re.compile(r"[\W_]+")


def judge(pair: Pair, config: DataConfig) -> str | None:
    """Why a pair is left out of training, or None for a pair that is used.

    The length ratio is (longer + 20) / (shorter + 20) in characters, so that short texts may differ more.

    Cost: about one microsecond.
    """
    src, tgt = pair.src, pair.tgt
    if not src or src.isspace():
        return "blank source"
    if not tgt or tgt.isspace():
        return "blank target"
    # isprintable is far cheaper than a search; it is false for some harmless characters too.
    if not (src.isprintable() and tgt.isprintable()) and (CONTROL.search(src) or CONTROL.search(tgt)):
        return "control characters"
    longer, shorter = max(len(src), len(tgt)) + 20, min(len(src), len(tgt)) + 20
    if longer > config.max_length_ratio * shorter:
        return f"length ratio above {config.max_length_ratio:g}"
    if config.drop_copies and src == tgt:
        return "copy"
    return None


def check(reader: PairReader, valid_reader: PairReader | None = None, config: DataConfig | None = None) -> Report:
    """Reads the data once to count, and once more as far as the last example to fetch its text.

    Args:
        reader: The data.
        valid_reader: Validation data, to find texts that stand in both.
        config: Which rows training leaves out, and the language codes of the two sides.

    Raises:
        DataError: The data cannot be read (see `PairReader`).

    Cost: about 50,000 pairs a second, and 34 bytes of memory a pair: texts are kept as hashes of 64 bits.
    """
    census = _Census(config or DataConfig(), valid_reader)
    for pair in reader:
        census.add(pair)
    n_rows, bad, bad_examples = reader.n_rows, dict(reader.bad), dict(reader.bad_examples)
    findings = census.findings()
    _fetch_examples(findings, reader)
    return Report(
        n_rows=n_rows,
        n_pairs=len(census.pair_hashes),
        bad=bad,
        bad_examples=bad_examples,
        domains=dict(census.domains.most_common()),
        sides=census.sides(),
        findings=findings,
        lengths=census.lengths(),
    )


def _fetch_examples(findings: list[Finding], reader: PairReader) -> None:
    wanted: dict[int, list[Finding]] = {}
    for finding in findings:
        for place in finding.places:
            wanted.setdefault(place, []).append(finding)
    last = max(wanted, default=-1)
    for place, pair in enumerate(reader):
        if place > last:
            break
        for finding in wanted.get(place, ()):
            finding.examples.append(Example(pair.row, pair.src, pair.tgt))


class _Census:
    """Counts over one pass. A pair is known by its place: how many pairs were read before it."""

    def __init__(self, config: DataConfig, valid_reader: PairReader | None) -> None:
        self.config = config
        self.found: dict[str, Finding] = {}
        self.domains: Counter[str] = Counter()
        self.pair_hashes, self.src_hashes = array("q"), array("q")
        self.words, self.chars = (array("I"), array("I")), (array("I"), array("I"))
        self.guesses = (array("b"), array("b"))  # index into _CODES, 0 for no guess
        self.is_judged_out = bytearray()
        self.valid, self.valid_normalized = _source_hashes(valid_reader)

    def add(self, pair: Pair) -> None:
        src, tgt, place = pair.src, pair.tgt, len(self.pair_hashes)
        self.pair_hashes.append(hash((src, tgt)))
        self.src_hashes.append(hash(src))
        for side, text in enumerate((src, tgt)):
            self.words[side].append(len(text.split()))
            self.chars[side].append(len(text))
            self.guesses[side].append(_CODES[guess_language(text)])
        if pair.domain is not None:
            self.domains[pair.domain] += 1
        reason = judge(pair, self.config)
        self.is_judged_out.append(reason is not None)
        if reason is not None:
            self._note(reason, "", place, is_left_out=True)
        elif src == tgt:
            self._note("copy", "Both sides are equal.", place)
        if not has_same_placeholders(src, tgt):
            self._note("placeholders differ", "Such as %s, {0}, $x, <b> or &amp;: not the same on both sides.", place)
        if not has_same_numbers(src, tgt):
            self._note(
                "numbers differ", "Not the same digits on both sides; translations may write numbers out.", place
            )
        if self.valid:
            self._compare_with_valid(src, place)

    def _note(self, name: str, note: str, place: int, *, is_left_out: bool = False) -> None:
        if name not in self.found:
            self.found[name] = Finding(name, note, is_left_out)
        self.found[name].add(place)

    def _compare_with_valid(self, src: str, place: int) -> None:
        if hash(src) in self.valid:
            self._note("source in validation data", "The measured quality would be too good.", place)
        elif hash(_normalized(src)) in self.valid_normalized:
            self._note("near copy of a validation source", "Equal but for case, spaces and punctuation.", place)

    def findings(self) -> list[Finding]:
        """All findings, those that training leaves out first, then by count."""
        self._find_repeats()
        self._find_languages()
        found = [finding for finding in self.found.values() if finding.count]
        return sorted(found, key=lambda finding: (not finding.is_left_out, -finding.count, finding.name))

    def _find_repeats(self) -> None:
        pairs, sources = (np.frombuffer(hashes, np.int64) for hashes in (self.pair_hashes, self.src_hashes))
        good = np.flatnonzero(np.frombuffer(self.is_judged_out, np.uint8) == 0)
        repeats = good[_repeats(pairs[good])]
        duplicate = Finding("duplicate", "The pair stands in the data already.", self.config.drop_duplicates)
        duplicate.add_all(repeats)
        once = np.setdiff1d(good, repeats, assume_unique=True)
        other = Finding("same source, other target", "The source stands in the data already, with another target.")
        other.add_all(once[_repeats(sources[once])])
        self.found |= {finding.name: finding for finding in (duplicate, other)}

    def _languages(self) -> tuple[int, int]:
        """The language of each side: the one named, if it is known here, or else the most frequent guess."""
        found = []
        for code, guesses in zip((self.config.src, self.config.tgt), self.guesses, strict=True):
            found.append(_CODES[code] if code in LANGUAGES else _most_frequent(guesses))
        return found[0], found[1]

    def _find_languages(self) -> None:
        src, tgt = (np.frombuffer(guesses, np.int8) for guesses in self.guesses)
        src_code, tgt_code = self._languages()
        if not src_code or not tgt_code or src_code == tgt_code:
            return
        is_swapped = (src == tgt_code) & (tgt == src_code)
        is_wrong = ((src != 0) & (src != src_code)) | ((tgt != 0) & (tgt != tgt_code))
        src_name, tgt_name = _NAMES[src_code], _NAMES[tgt_code]
        swapped = Finding("swapped sides", f"The source looks like {tgt_name}, the target like {src_name} (a guess).")
        swapped.add_all(np.flatnonzero(is_swapped))
        wrong = Finding(
            "wrong language", f"A side does not look like {src_name} or {tgt_name} where it should (a guess)."
        )
        wrong.add_all(np.flatnonzero(is_wrong & ~is_swapped))
        self.found |= {finding.name: finding for finding in (swapped, wrong)}

    def lengths(self) -> dict[str, NDArray[np.uint32]]:
        names = (self.config.src, self.config.tgt)
        return {name: np.frombuffer(words, np.uint32) for name, words in zip(names, self.words, strict=True)}

    def sides(self) -> tuple[Side, Side]:
        src, tgt = (self._side(side, name) for side, name in enumerate((self.config.src, self.config.tgt)))
        return src, tgt

    def _side(self, side: int, name: str) -> Side:
        words, chars = (np.frombuffer(counts[side], np.uint32) for counts in (self.words, self.chars))
        return Side(
            name=name,
            n_words=int(words.sum(dtype=np.int64)),
            n_chars=int(chars.sum(dtype=np.int64)),
            words=_quantiles(words),
            chars=_quantiles(chars),
            language=_NAMES[_most_frequent(self.guesses[side])],
        )


def _most_frequent(guesses: array[int]) -> int:
    counts = np.bincount(np.frombuffer(guesses, np.int8), minlength=len(_NAMES))
    counts[0] = 0
    return int(counts.argmax()) if counts.any() else 0


def _quantiles(values: NDArray[np.uint32]) -> dict[str, int]:
    return {name: int(np.quantile(values, q, method="lower")) for name, q in _QUANTILES.items()}


def _repeats(hashes: NDArray[np.int64]) -> NDArray[np.intp]:
    """The places of all values that stand further in front already."""
    order: NDArray[np.intp] = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    is_repeat = ordered[1:] == ordered[:-1]
    return np.extract(is_repeat, order[1:])


def _normalized(text: str) -> str:
    return _NO_WORD.sub("", text.casefold())


def _source_hashes(reader: PairReader | None) -> tuple[set[int], set[int]]:
    """Hashes of the sources of validation data, exact and without case, spaces and punctuation."""
    if reader is None:
        return set(), set()
    sources = [pair.src for pair in reader]
    normalized = {_normalized(src) for src in sources} - {""}
    return {hash(src) for src in sources}, {hash(src) for src in normalized}
