"""Three set forms: there is bread on the table, where is my key?, this is my brother."""

from __future__ import annotations

from glassformer.phrasebook import english, french
from glassformer.phrasebook.chance import Chance
from glassformer.phrasebook.grammar import Line
from glassformer.phrasebook.lexicon import NOUNS, SPOTS
from glassformer.phrasebook.nouns import PEOPLE, draw_thing, nouns_of
from glassformer.phrasebook.spelling import surface

__all__ = ["draw_presence"]

FOUND = frozenset(("food", "given", "object", "small", "clothes", "animal", "building", "transport", "person", "kin"))


def draw_presence(chance: Chance) -> Line:
    """One of the three forms."""
    return chance.weighted({_there_is: 5, _where_is: 2, _this_is: 3})(chance)


def _there_is(chance: Chance) -> Line:
    spot = chance.one(SPOTS)
    noun = chance.one([noun for noun in nouns_of(spot.kinds) if "name" not in noun.kinds])
    phrase = draw_thing(chance, noun, "new")
    if noun.kinds & PEOPLE and phrase.determiner not in ("a", "two"):
        return _there_is(chance)
    tense = chance.weighted({"present": 5, "past": 3, "future": 2})
    form = chance.weighted(
        {"statement": 6, "negation": 2, "question": 2} if phrase.determiner == "" else {"statement": 1}
    )
    verb = "will be" if tense == "future" else english.be(phrase, tense == "past")
    has = {"present": "a", "past": "avait", "future": "aura"}[tense]
    thing = english.noun_phrase(phrase)
    left = {
        "statement": f"there {verb} {thing} {spot.english}",
        "negation": f"there {verb} no {thing} {spot.english}",
        "question": " ".join((verb.split()[0], "there", *verb.split()[1:], "any", thing, spot.english)) + "?",
    }[form]
    right = ["il", "ne", "y", has, "pas"] if form == "negation" else ["il", "y", has]
    right += [*french.noun_phrase(phrase, form == "negation"), *spot.french]
    mark = " ?" if form == "question" else ""
    right = ["est-ce", "que", *right] if mark else right
    return left, surface(right) + mark, frozenset((f"there|{tense}|{noun.english}|{spot.english}",))


def _where_is(chance: Chance) -> Line:
    noun = chance.one([noun for noun in nouns_of(FOUND) if not noun.is_mass])
    phrase = draw_thing(chance, noun, "known")
    if phrase.determiner in ("a", "two"):
        return _where_is(chance)
    left = f"where {english.be(phrase)} {english.noun_phrase(phrase)}?"
    right = ["où", "sont" if phrase.is_plural else "est", *french.noun_phrase(phrase)]
    return left, surface(right) + " ?", frozenset((f"where|{noun.english}|{phrase.is_plural}|{phrase.determiner}",))


def _this_is(chance: Chance) -> Line:
    noun = chance.one([noun for noun in NOUNS if "mass" not in noun.kinds])
    phrase = draw_thing(chance, noun, "any")
    if phrase.determiner in ("this", "these", "a lot of"):
        return _this_is(chance)
    is_negated = chance.happens(0.25)
    left = ["these are" if phrase.is_plural else "this is", "not" if is_negated else "", english.noun_phrase(phrase)]
    verb = "sont" if phrase.is_plural else "est"
    right = ["ce", "ne", verb, "pas"] if is_negated else ["ce", verb]
    # Behind être negation leaves the article alone: ce n'est pas un chien.
    right += french.noun_phrase(phrase)
    cell = f"this|{noun.english}|{phrase.is_plural}|{phrase.determiner}"
    return " ".join(word for word in left if word), surface(right), frozenset((cell,))
