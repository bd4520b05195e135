"""Draws noun phrases that make sense: what can be counted, owned, and described by which adjective."""

from __future__ import annotations

from functools import cache

from glassformer.phrasebook.chance import Chance
from glassformer.phrasebook.lexicon import ADJECTIVES, NOUNS
from glassformer.phrasebook.sentence import PRONOUNS, NounPhrase, Subject
from glassformer.phrasebook.words import Adjective, Noun

__all__ = ["described_by", "draw_person", "draw_subject", "draw_thing", "kinds_of", "nouns_of"]

OWNERS = ("my", "your", "his", "her", "our", "their")
PEOPLE = frozenset(("person", "kin"))
OWNED = frozenset(("text", "clothes", "object", "small", "animal", "home", "written"))
UNOWNED = frozenset(("transport", "show", "sound", "building", "tree", "part"))
MASS = {"": 42, "the": 15, "this": 8, "own": 15, "a lot of": 14}
SINGULAR = {"a": 40, "the": 24, "this": 12, "own": 24}
PLURAL = {"": 34, "the": 18, "these": 10, "own": 14, "two": 8, "three": 5, "a lot of": 11}
# The determiners left over: new things are had, known things are liked, and behind a preposition "des" would vanish.
ALLOWED = {
    "any": frozenset((*MASS, *SINGULAR, *PLURAL)),
    "new": frozenset(("", "a", "two", "three", "a lot of")),
    "generic": frozenset(("", "the", "this", "these", "own")),
    "definite": frozenset(("a", "the", "this", "these", "own")),
    "one": frozenset(("a", "the", "this", "own")),
    "known": frozenset(("the", "this", "these", "own")),
}


@cache
def nouns_of(kinds: frozenset[str]) -> tuple[Noun, ...]:
    """The nouns of any of the kinds."""
    return tuple(noun for noun in NOUNS if noun.kinds & kinds)


@cache
def described_by(kinds: frozenset[str], is_predicate: bool) -> tuple[Adjective, ...]:
    """The adjectives that go with a word of these kinds, beside the noun or behind "to be"."""
    unfit = "beside" if is_predicate else "predicate"
    return tuple(word for word in ADJECTIVES if word.kinds & kinds and word.position != unfit)


def kinds_of(subject: Subject) -> frozenset[str]:
    """The classes of a subject; a pronoun is a grown person."""
    return subject.noun.kinds if isinstance(subject, NounPhrase) else frozenset(("speaker", "person", "adult"))


def draw_person(chance: Chance, noun: Noun) -> NounPhrase:
    """A person: Paul, my sister, the old baker, these children."""
    if "name" in noun.kinds:
        return NounPhrase(noun, "")
    if "kin" in noun.kinds:
        has_plural = noun.english not in ("mother", "father")
        return NounPhrase(noun, chance.one(OWNERS), has_plural and chance.happens(0.3))
    is_plural = chance.happens(0.4)
    determiner = chance.weighted({"the": 5, "these": 2, "two": 1} if is_plural else {"the": 6, "this": 3, "a": 1})
    if "close" in noun.kinds and chance.happens(0.5):
        determiner = chance.one(OWNERS)
    return NounPhrase(noun, determiner, is_plural, _draw_adjective(chance, noun, 0.12))


def draw_subject(chance: Chance) -> Subject:
    """Who does it: most often a pronoun, and above all one whose verb forms no noun has."""
    if chance.happens(0.7):
        return chance.weighted({pronoun: 5 if pronoun.form in (0, 2, 3) else 3 for pronoun in PRONOUNS})
    return draw_person(chance, chance.one(nouns_of(PEOPLE)))


def draw_thing(chance: Chance, noun: Noun, allowed: str) -> NounPhrase:
    """A thing with one of the allowed determiners and now and then an adjective."""
    if noun.kinds & PEOPLE:
        return draw_person(chance, noun)
    can_count = not noun.is_mass and "single" not in noun.kinds and allowed != "one"
    is_plural = can_count and chance.happens(0.35)
    weights = MASS if noun.is_mass else PLURAL if is_plural else SINGULAR
    can_own = "home" in noun.kinds or not noun.kinds & UNOWNED
    weights = {
        word: weight for word, weight in weights.items() if word in ALLOWED[allowed] and (can_own or word != "own")
    }
    determiner = chance.weighted(weights)
    owner = None
    if determiner == "own":
        can_have_owner = not noun.is_mass and bool(noun.kinds & OWNED)
        if can_have_owner and chance.happens(0.3):
            person = chance.one(nouns_of(frozenset(("kin", "name"))))
            owner = NounPhrase(person, "" if "name" in person.kinds else chance.one(OWNERS))
        else:
            determiner = chance.one(OWNERS)
    return NounPhrase(noun, determiner, is_plural, None if owner else _draw_adjective(chance, noun, 0.25), owner)


def _draw_adjective(chance: Chance, noun: Noun, probability: float) -> Adjective | None:
    words = described_by(noun.kinds, False)
    return chance.one(words) if words and "kin" not in noun.kinds and chance.happens(probability) else None
