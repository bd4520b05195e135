"""Writes sentences with persons, places and dates as BIO tags, in CoNLL form, from a seed.

    python bench/tagged_sentences.py train.conll --rows 8000 --seed 1

Names are made of syllables, a few thousand different ones; a fifth of the persons and places bear a word that is
also a place, a person or a month (May, April, Florence, Jordan): only the rest of the sentence tells.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

SYLLABLES = ("ka", "lo", "mi", "ren", "sa", "tor", "vel", "ni", "bru", "dan", "el", "gor", "hul", "is", "jo", "mar")
FIRST_ENDS, LAST_ENDS, PLACE_ENDS = ("a", "o", "ie", "n"), ("son", "ez", "mann", "ski"), ("ville", "burg", "ton", "ia")
AMBIGUOUS_PEOPLE = ("May", "April", "June", "Florence", "Jordan", "Charlotte")
AMBIGUOUS_PLACES = ("Florence", "Jordan", "Charlotte", "Nancy")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
THINGS = ("book", "letter", "car", "house", "painting", "report", "train", "garden")
TEMPLATES = (
    "{PER} was born in {LOC} on {DATE} .",
    "{PER} lives in {LOC} with {PER} .",
    "On {DATE} , {PER} left {LOC} for {LOC} .",
    "The {thing} from {LOC} belongs to {PER} .",
    "{PER} and {PER} will meet on {DATE} .",
    "It rained in {LOC} until {DATE} .",
    "Did {PER} send the {thing} to {LOC} ?",
    "The {thing} was sold before {DATE} , said {PER} .",
    "No {thing} was found near {LOC} .",
    "May I see the {thing} ?",
    "Since {DATE} nobody has seen the {thing} of {PER} .",
    "{LOC} , {LOC} and {LOC} are far from here .",
    "In march step they carried the {thing} away .",
    "Dr. {PER} , who grew up near {LOC} , wrote a {thing} .",
)


def _made(chance: random.Random, ends: tuple[str, ...]) -> str:
    return ("".join(chance.choices(SYLLABLES, k=chance.randint(1, 2))) + chance.choice(ends)).capitalize()


def _person(chance: random.Random) -> str:
    first = chance.choice(AMBIGUOUS_PEOPLE) if chance.random() < 0.2 else _made(chance, FIRST_ENDS)
    return f"{first} {_made(chance, LAST_ENDS)}" if chance.random() < 0.5 else first


def _place(chance: random.Random) -> str:
    if chance.random() < 0.2:
        return chance.choice(AMBIGUOUS_PLACES)
    prefix = chance.choice(("", "", "New ", "Port ", "San "))
    return prefix + _made(chance, PLACE_ENDS)


def _date(chance: random.Random) -> str:
    month, day, year = chance.choice(MONTHS), chance.randint(1, 28), chance.randint(1800, 2030)
    return chance.choice((f"{day} {month} {year}", f"{month} {day}", chance.choice(DAYS), f"{month} {year}", str(year)))


def sentences(n_rows: int, seed: int) -> list[list[tuple[str, str]]]:
    """Sentences of (word, tag)."""
    chance = random.Random(seed)
    makers = {"PER": _person, "LOC": _place, "DATE": _date}
    rows = []
    for _ in range(n_rows):
        row: list[tuple[str, str]] = []
        for part in chance.choice(TEMPLATES).split():
            kind = part.strip("{}")
            if kind in makers:
                words = makers[kind](chance).split()
                row += [(word, f"{'I' if i else 'B'}-{kind}") for i, word in enumerate(words)]
            else:
                row.append((chance.choice(THINGS) if kind == "thing" else part, "O"))
        rows.append(row)
    return rows


def conll(rows: list[list[tuple[str, str]]]) -> str:
    """A word and its tag a line, a blank line behind each sentence."""
    return "".join("".join(f"{word}\t{tag}\n" for word, tag in row) + "\n" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.path.write_text(conll(sentences(options.rows, options.seed)), encoding="utf-8")


if __name__ == "__main__":
    main()
