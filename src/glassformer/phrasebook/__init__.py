"""The embedded phrasebook: a small English-French grammar that writes correct pairs of sentences from a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import chain, islice

from glassformer.config import PhrasebookConfig
from glassformer.errors import ConfigError
from glassformer.phrasebook.chance import Chance
from glassformer.phrasebook.grammar import Line, draw_attribute, draw_event
from glassformer.phrasebook.presence import draw_presence

__all__ = ["Pair", "generate", "split"]

Pair = tuple[str, str]

# The sentence of the tutorial is translated unseen: this cell is always held out.
SHOWN = ("we eat bread", "nous mangeons du pain")
SHOWN_CELL = "we|eat|present|bread"
HELD_SHARE = 0.1
PATTERNS: dict[Callable[[Chance], Line], float] = {draw_event: 77, draw_attribute: 13, draw_presence: 10}
NAMES = ("I", "Paul", "Anna", "Marie")


def _style(chance: Chance, english: str, french: str) -> Pair:
    """Some sentences begin with a capital and end with a full stop.

    Where English has a capital in any case ("I", "Paul"), the full stop decides both, so that French stays determined.
    """
    style = chance.weighted({"plain": 70, "both": 20, "capital": 5, "stop": 5})
    starts_high = english.split()[0].split("'")[0] in NAMES
    has_capital = style == "both" or (style == "capital" and not starts_high)
    has_stop = not english.endswith("?") and (style == "both" or (style == "stop" and not starts_high))
    sides = (side[0].upper() + side[1:] if has_capital else side for side in (english, french))
    english, french = (side + "." if has_stop else side for side in sides)
    return english, french


def _lines(seed: int) -> Iterator[tuple[Pair, frozenset[str]]]:
    """Endless distinct pairs with their cells."""
    chance = Chance(seed)
    seen: set[str] = set()
    n_repeats = 0
    while n_repeats < 10_000:
        english, french, cells = chance.weighted(PATTERNS)(chance)
        pair = _style(chance, english, french)
        n_repeats += 1
        if pair[0] not in seen:
            n_repeats = 0
            seen.add(pair[0])
            yield pair, cells
    raise ConfigError(
        f"The phrasebook has no more new sentences after {len(seen):,}.",
        "The grammar is large, not endless.",
        "Ask for fewer pairs.",
    )


def _is_held_out(seed: int, cell: str) -> bool:
    digest = hashlib.blake2b(f"{seed}|{cell}".encode(), digest_size=8).digest()
    return cell == SHOWN_CELL or int.from_bytes(digest, "big") < HELD_SHARE * 2**64


def _require_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"{name}={count} is too small.", "At least one pair was expected.", f"Set {name} higher.")


def generate(n_pairs: int = PhrasebookConfig.pairs, seed: int = PhrasebookConfig.seed) -> Iterator[Pair]:
    """Writes distinct pairs (English, French); the same seed gives the same pairs in the same order.

    Each English sentence has exactly one French one in the book: "you" is one person, addressed as vous; "I", "you",
    "we" and "they" are masculine; the simple past is the passé composé, "used to" the imparfait, "was" the imparfait.

    Args:
        n_pairs: How many pairs.
        seed: Seed of every choice.

    Raises:
        ConfigError: `n_pairs` is not positive, or more than the grammar can give.
    """
    _require_positive(n_pairs=n_pairs)
    return (pair for pair, _ in islice(_lines(seed), n_pairs))


def split(seed: int, n_train: int, n_test: int) -> tuple[list[Pair], list[Pair]]:
    """Writes pairs to train on and pairs of held-out combinations.

    A cell is (subject, verb, tense, complement): "we | eat | present | bread", whatever the articles, the negation, the
    question and the time. A tenth of all cells, chosen by the seed, is held out: no training pair has such a cell, each
    held-out pair has one. Every word of a held-out pair, on both sides, stands in a training pair. The first held-out
    pair is "we eat bread", as soon as its words stand in the training pairs (a few thousand are enough).

    Args:
        seed: Seed of the sentences and of the cells.
        n_train: How many training pairs.
        n_test: How many held-out pairs.

    Returns:
        (train, held_out), with no English and no French sentence in both.

    Raises:
        ConfigError: A count is not positive, or more than the grammar can give.
    """
    _require_positive(n_train=n_train, n_test=n_test)
    train: list[Pair] = []
    candidates: list[Pair] = [SHOWN]
    lines = _lines(seed)
    while len(train) < n_train:
        pair, cells = next(lines)
        is_held_out = any(_is_held_out(seed, cell) for cell in cells)
        (candidates if is_held_out else train).append(pair)
    train_french = {french for _, french in train}
    words = {word for pair in train for side in pair for word in side.split()}
    held_out: list[Pair] = []
    more = (pair for pair, cells in lines if any(_is_held_out(seed, cell) for cell in cells))
    for pair in chain(candidates, islice(more, 100 * n_test)):
        is_new = pair[1] not in train_french and (pair != SHOWN or not held_out)
        if is_new and all(word in words for side in pair for word in side.split()):
            held_out.append(pair)
        if len(held_out) == n_test:
            return train, held_out
    raise ConfigError(
        f"n_train={n_train} is too few for n_test={n_test}: only {len(held_out)} held-out pairs have known words.",
        "Every word of a held-out pair must stand in a training pair.",
        "Ask for more training pairs or fewer held-out ones.",
    )
