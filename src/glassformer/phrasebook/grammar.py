"""Draws clauses: which tense, adverb, question, object, place and time go together."""

from __future__ import annotations

from dataclasses import replace

from glassformer.phrasebook import english, french
from glassformer.phrasebook.chance import Chance
from glassformer.phrasebook.lexicon import DESTINATIONS, FEELINGS, LOCATIONS, NOUNS, TIMES, VERBS
from glassformer.phrasebook.nouns import (
    PEOPLE,
    described_by,
    draw_person,
    draw_subject,
    draw_thing,
    kinds_of,
    nouns_of,
)
from glassformer.phrasebook.sentence import PRONOUNS, WHO, Clause, NounPhrase, Pronoun, Subject
from glassformer.phrasebook.words import Noun, Verb

__all__ = ["Line", "draw_attribute", "draw_event", "write"]

TENSES = {
    "present": 26,
    "past": 20,
    "future": 14,
    "near": 10,
    "progressive": 8,
    "imperfect": 10,
    "can": 4,
    "must": 4,
    "want": 4,
}
MISSING_TENSES = {
    "sudden": ("progressive",),
    "once": ("imperfect",),
    "mishap": ("progressive", "imperfect", "future", "near", "can", "must", "want"),
}
TENSES_OF_A_STATE = {"present": 6, "future": 2, "near": 1, "imperfect": 2}
TENSES_OF_A_LASTING_STATE = {"present": 4, "imperfect": 1}
TENSES_OF_BEING = {"present": 5, "past": 3, "future": 2}
QUESTIONS = {"": 78, "yes": 9, "why": 4, "when": 3, "where": 3, "who": 4, "what": 3}
# Adverbs that sound right with a tense; every tense can be negated but "used to".
ADVERBS = {
    "present": {"": 60, "not": 20, "never": 7, "often": 7, "always": 6},
    "past": {"": 70, "not": 20, "never": 5, "often": 5},
    "future": {"": 70, "not": 20, "never": 5, "always": 5},
    "imperfect": {"": 1},
}
PLAIN_ADVERBS = {"": 3, "not": 1}
DONE_BY_PETS = ("eat", "drink", "sleep", "run")
NOWHERE = {"destination", "way", "early"}
SAME_SIDE = {"I": ("I", "we"), "we": ("I", "we"), "you": ("you",)}
VERBS_OF_PEOPLE = [verb for verb in VERBS if verb.objects & PEOPLE and not verb.preposition]

Line = tuple[str, str, frozenset[str]]


def _name(subject: Subject) -> str:
    if isinstance(subject, Pronoun):
        return subject.english
    return subject.noun.english_plural if subject.is_plural else subject.noun.english


def write(clause: Clause) -> Line:
    """Both sides and the cells (subject, verb, tense, complement) by which combinations are held out."""
    verb = " ".join((clause.verb.english[0], clause.verb.particle)) if clause.verb else "be"
    tense = "present" if clause.tense == "progressive" else clause.tense
    others = [phrase.noun.english for phrase in clause.objects]
    others += [clause.pronoun.english_object] if clause.pronoun else []
    others += [clause.attribute.english] if clause.attribute else []
    others += [clause.feeling.english] if clause.feeling else []
    others += [clause.place.english] if clause.place and not others else []
    stem = f"{_name(clause.subject)}|{verb.strip()}|{tense}|"
    cells = frozenset(stem + other for other in others or [clause.question])
    return english.write(clause), french.write(clause), cells


def draw_event(chance: Chance) -> Line:
    """Somebody does something."""
    verb = chance.one(VERBS)
    subject = draw_subject(chance)
    tense = chance.weighted(_tenses(verb))
    clause = _draw_mood(chance, Clause(subject, tense, verb))
    clause = _draw_objects(chance, clause, verb)
    return write(_draw_circumstances(chance, clause, verb))


def _tenses(verb: Verb) -> dict[str, int]:
    if "lasting" in verb.flags:
        return TENSES_OF_A_LASTING_STATE
    if "state" in verb.flags:
        return TENSES_OF_A_STATE
    missing = {tense for flag in verb.flags & MISSING_TENSES.keys() for tense in MISSING_TENSES[flag]}
    return {tense: weight for tense, weight in TENSES.items() if tense not in missing}


def _is_state(clause: Clause) -> bool:
    """Whether nobody says "often", asks when, or adds a time."""
    if clause.attribute:
        return "passing" not in clause.attribute.kinds
    return clause.verb is not None and bool(clause.verb.flags & {"state", "lasting"})


def _is_doubtful(clause: Clause) -> bool:
    """Whether English alone does not tell the past from the present ("I read"): then a time has to."""
    is_same = clause.verb is not None and clause.verb.english[0] == clause.verb.english[1]
    return is_same and clause.tense == "past" and clause.question in ("", "who") and clause.adverb != "not"


def _questions(clause: Clause) -> dict[str, int]:
    """The questions that can be asked in this tense of this verb."""
    verb = clause.verb
    questions = dict(QUESTIONS)
    if not kinds_of(clause.subject) & PEOPLE:
        del questions["who"]
    if clause.tense in ("imperfect", "must"):
        questions = {"": questions[""], "who": questions["who"]}
    if verb is None or _is_state(clause) or not verb.places or verb.places & NOWHERE:
        questions.pop("where", None)
    if verb is None or _is_state(clause):
        questions.pop("when", None)
    if verb is None or not verb.objects or verb.preposition or verb.objects & {"building"} or verb.objects <= PEOPLE:
        questions.pop("what", None)
    return questions


def _draw_mood(chance: Chance, clause: Clause) -> Clause:
    """Question, adverb and contraction (don't)."""
    question = chance.weighted(_questions(clause))
    adverb, is_short = "", False
    if question == "":
        is_plain = clause.tense != "imperfect" and (_is_state(clause) or _is_doubtful(clause))
        adverb = chance.weighted(PLAIN_ADVERBS if is_plain else ADVERBS.get(clause.tense, PLAIN_ADVERBS))
        is_short = chance.happens(0.35)
    elif question == "why" and _name(clause.subject) != "I" and chance.happens(0.4):
        adverb, is_short = "not", True
    elif question == "yes" and clause.tense == "present" and not _is_state(clause) and chance.happens(0.2):
        adverb = "often"
    subject = WHO if question == "who" else clause.subject
    return replace(clause, subject=subject, question=question, adverb=adverb, is_short=is_short)


def _draw_objects(chance: Chance, clause: Clause, verb: Verb) -> Clause:
    if not verb.objects:
        return _draw_pet(chance, clause, verb)
    if clause.question == "what":
        return _draw_recipient(chance, clause, verb)
    if verb in VERBS_OF_PEOPLE and chance.happens(0.35):
        sides = SAME_SIDE.get(_name(clause.subject), ())
        return replace(clause, pronoun=chance.one([word for word in PRONOUNS if word.english not in sides]))
    others = [noun for noun in nouns_of(verb.objects) if not _is_same(noun, clause.subject)]
    allowed = (
        "one"
        if verb.preposition == "dans"
        else "definite"
        if verb.preposition
        else "generic"
        if "generic" in verb.flags
        else "any"
    )
    allowed = "new" if verb.english[0] == "have" else allowed
    noun = chance.one(others)
    objects = [draw_thing(chance, noun, allowed)]
    if clause.adverb in ("", "often", "always") and not verb.preposition and chance.happens(0.08):
        others = [other for other in others if other != noun and other.kinds & noun.kinds - {"mass"}]
        objects += [draw_thing(chance, chance.one(others), allowed)] if others else []
    if clause.adverb in ("not", "never") and objects[0].determiner == "" and "generic" not in verb.flags:
        is_named = "name" in noun.kinds
        objects = [replace(objects[0], determiner="any")] if chance.happens(0.4) and not is_named else objects
    return _draw_recipient(chance, _draw_pet(chance, replace(clause, objects=tuple(objects)), verb), verb)


def _is_same(noun: Noun, subject: Subject) -> bool:
    return isinstance(subject, NounPhrase) and subject.noun is noun


def _draw_recipient(chance: Chance, clause: Clause, verb: Verb) -> Clause:
    if "to" not in verb.flags:
        return clause
    return replace(clause, recipient=_draw_other(chance, clause))


def _draw_other(chance: Chance, clause: Clause) -> NounPhrase:
    """A person who is not the subject."""
    return draw_person(chance, chance.one([noun for noun in nouns_of(PEOPLE) if not _is_same(noun, clause.subject)]))


def _draw_pet(chance: Chance, clause: Clause, verb: Verb) -> Clause:
    """Lets a dog or a cat take the place of the person where it can."""
    is_unfit = verb.english[0] not in DONE_BY_PETS or isinstance(clause.subject, Pronoun) or clause.tense == "want"
    if is_unfit or not all("fed" in phrase.noun.kinds for phrase in clause.objects) or not chance.happens(0.5):
        return clause
    return replace(clause, subject=draw_thing(chance, chance.one(nouns_of(frozenset(("pet",)))), "known"))


def _draw_circumstances(chance: Chance, clause: Clause, verb: Verb) -> Clause:
    """Place and time."""
    if "destination" in verb.places:
        clause = replace(clause, place=chance.one(DESTINATIONS))
    elif clause.question != "where" and chance.happens(0.2):
        places = [place for place in LOCATIONS if place.kinds & verb.places]
        clause = replace(clause, place=chance.one(places)) if places else clause
    if "joint" in verb.flags and chance.happens(0.25):
        clause = replace(clause, companion=_draw_other(chance, clause))
    has_time = clause.question != "when" and clause.adverb in ("", "not") and chance.happens(0.3)
    if not _is_doubtful(clause) and (_is_state(clause) or not has_time):
        return clause
    unfit = {"week"} if "brief" in verb.flags else set()
    times = [time for time in TIMES if clause.tense in time.kinds and not time.kinds & unfit]
    times = [time for time in times if not (_is_doubtful(clause) and time.english == "today")]
    if "mishap" in verb.flags and clause.tense == "present":
        times = []
    return replace(clause, time=chance.one(times)) if times else clause


def draw_attribute(chance: Chance) -> Line:
    """Somebody or something is tired, red, a baker, or hungry."""
    if chance.happens(0.6):
        subject = draw_subject(chance)
    else:
        noun = chance.one([noun for noun in NOUNS if described_by(noun.kinds, True) and not noun.kinds & PEOPLE])
        subject = replace(draw_thing(chance, noun, "known"), adjective=None)
    clause = Clause(subject, chance.weighted(TENSES_OF_BEING))
    if kinds_of(subject) & PEOPLE and chance.happens(0.3):
        clause = replace(clause, feeling=chance.one(FEELINGS))
    else:
        clause = replace(clause, attribute=chance.one(described_by(kinds_of(subject), True)))
    return write(_draw_mood(chance, clause))
