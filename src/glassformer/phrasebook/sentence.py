"""The meaning of a sentence, apart from either language: what `english` and `french` both write out."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.phrasebook.words import Adjective, Noun, Phrase, Verb

__all__ = ["PRONOUNS", "WHO", "Clause", "NounPhrase", "Pronoun", "Subject"]


@dataclass(frozen=True)
class Pronoun:
    """A person. `form` indexes the French verb forms je, il, nous, vous, ils."""

    english: str
    english_object: str
    french: str
    french_object: str
    form: int
    is_feminine: bool
    is_plural: bool


# "I", "we" and "you" are masculine; "you" is one person, spoken to politely; "they" and "them" are masculine.
PRONOUNS = (
    Pronoun("I", "me", "je", "me", 0, False, False),
    Pronoun("you", "you", "vous", "vous", 3, False, False),
    Pronoun("he", "him", "il", "le", 1, False, False),
    Pronoun("she", "her", "elle", "la", 1, True, False),
    Pronoun("we", "us", "nous", "nous", 2, False, True),
    Pronoun("they", "them", "ils", "les", 4, False, True),
)


WHO = Pronoun("who", "", "qui", "", 1, False, False)


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner and adjective.

    `determiner` is an English word, "" for none, "own" for the owner's: my brother's book. A name has no noun.
    """

    noun: Noun
    determiner: str
    is_plural: bool = False
    adjective: Adjective | None = None
    owner: NounPhrase | None = None

    @property
    def is_feminine(self) -> bool:
        """The gender of the noun."""
        return self.noun.is_feminine

    @property
    def form(self) -> int:
        """The French verb form, il or ils."""
        return 4 if self.is_plural else 1


Subject = Pronoun | NounPhrase


@dataclass(frozen=True)
class Clause:
    """Subject, verb, complements, tense, and how it is said.

    `verb` is None for "to be" with an `attribute` (an adjective) or a `feeling` (hungry: avoir faim). `tense` is one of
    present, progressive, past, future, near, imperfect, can, must, want. `adverb` is "", not, never, often or always.
    `question` is "", yes, where, when, why, who or what.
    """

    subject: Subject
    tense: str
    verb: Verb | None = None
    objects: tuple[NounPhrase, ...] = ()
    pronoun: Pronoun | None = None
    recipient: NounPhrase | None = None
    place: Phrase | None = None
    companion: NounPhrase | None = None
    time: Phrase | None = None
    adverb: str = ""
    question: str = ""
    attribute: Adjective | None = None
    feeling: Phrase | None = None
    is_short: bool = False
