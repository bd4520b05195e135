"""What a word of the phrasebook is, and how one is read from a line of the lexicon."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.phrasebook.spelling import plural

__all__ = ["Adjective", "Noun", "Phrase", "Verb", "adjective", "noun", "phrase", "rows", "verb"]


# Each word exists once, so that words are compared by identity (eq=False), which is fast.
@dataclass(frozen=True, eq=False)
class Noun:
    """A noun in both languages; `is_mass` nouns have no plural."""

    english: str
    english_plural: str
    french: str
    french_plural: str
    is_feminine: bool
    kinds: frozenset[str]

    @property
    def is_mass(self) -> bool:
        """True for what is not counted: bread, water, money."""
        return "mass" in self.kinds


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective: masculine, feminine and (before a vowel sound) the second masculine, as in beau, belle, bel.

    A trade behind "to be" is one too: "she is a student" is "elle est étudiante".
    """

    english: str
    english_plural: str
    masculine: str
    feminine: str
    masculine_before_vowel: str
    position: str
    kinds: frozenset[str]

    @property
    def stands_first(self) -> bool:
        """Whether French puts it before the noun."""
        return self.position in ("before", "beside")


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb in both languages.

    `english` holds base, past and -ing form; `particle` the word behind it (look *for*); `preposition` what French
    puts before the object (habiter *dans*); `objects`, `places` and `flags` are classes, see `VERBS`.
    """

    english: tuple[str, str, str]
    particle: str
    french: str
    preposition: str
    is_reflexive: bool
    objects: frozenset[str]
    places: frozenset[str]
    flags: frozenset[str]


@dataclass(frozen=True, eq=False)
class Phrase:
    """A fixed phrase in both languages; the French one is in the underlying form that `spelling.surface` joins."""

    english: str
    french: tuple[str, ...]
    kinds: frozenset[str]


def rows(table: str) -> list[list[str]]:
    """The cells of a table written as text."""
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _english_plural(word: str) -> str:
    if word.endswith(("s", "x", "ch", "sh")) or word in ("tomato", "hero"):
        return word + "es"
    return word[:-1] + "ies" if word[-1] == "y" and word[-2] not in "aeiou" else word + "s"


def noun(english: str, french: str, gender: str, kinds: str) -> Noun:
    """Reads a noun; an irregular plural stands behind a slash."""
    english, _, english_plural = english.partition("/")
    french, _, french_plural = french.partition("/")
    plurals = english_plural or _english_plural(english), french_plural or plural(french)
    return Noun(english, plurals[0], french, plurals[1], gender == "f", frozenset(kinds.split()))


def adjective(english: str, french: str, position: str, kinds: str) -> Adjective:
    """Reads an adjective: masculine/feminine/masculine before a vowel."""
    masculine, _, rest = french.partition("/")
    feminine, _, before_vowel = rest.partition("/")
    feminine = feminine or (masculine if masculine.endswith("e") else masculine + "e")
    singular, _, english_plural = english.partition("/")
    forms = (masculine, feminine, before_vowel or masculine)
    return Adjective(singular, english_plural or singular, *forms, position, frozenset(kinds.split()))


def verb(english: str, french: str, objects: str, places: str = "", flags: str = "") -> Verb:
    """Reads a verb: "look looked looking for" beside "chercher", "talk talked talking to" beside "parler à"."""
    base, past, ing, *particle = english.split()
    is_reflexive = french.startswith("se ")
    infinitive, _, preposition = french.removeprefix("se ").partition(" ")
    classes = (frozenset(cell.split()) for cell in (objects, places, flags))
    return Verb((base, past, ing), " ".join(particle), infinitive, preposition, is_reflexive, *classes)


def phrase(english: str, french: str, kinds: str = "") -> Phrase:
    """Reads a fixed phrase."""
    return Phrase(english, tuple(french.split()), frozenset(kinds.split()))
