"""Writes a clause in English."""

from __future__ import annotations

from glassformer.phrasebook.sentence import Clause, NounPhrase, Pronoun, Subject
from glassformer.phrasebook.words import Verb

__all__ = ["be", "noun_phrase", "write"]

SHORT = {"do not": "don't", "does not": "doesn't", "did not": "didn't", "will not": "won't", "can not": "can't"}
SHORT |= {"is not": "isn't", "are not": "aren't", "was not": "wasn't", "were not": "weren't", "must not": "mustn't"}


def noun_phrase(phrase: NounPhrase) -> str:
    """Determiner, adjective, noun: "an old house", "my brother's keys"."""
    words = [phrase.noun.english_plural if phrase.is_plural else phrase.noun.english]
    if phrase.adjective:
        words.insert(0, phrase.adjective.english)
    if phrase.owner:
        words.insert(0, noun_phrase(phrase.owner) + "'s")
    elif phrase.determiner == "a":
        words.insert(0, "an" if words[0][0] in "aeiou" else "a")
    elif phrase.determiner:
        words.insert(0, phrase.determiner)
    return " ".join(words)


def be(subject: Subject, is_past: bool = False) -> str:
    """The form of "to be" that goes with the subject."""
    if subject.is_plural or (isinstance(subject, Pronoun) and subject.english == "you"):
        return "were" if is_past else "are"
    if isinstance(subject, Pronoun) and subject.english == "I":
        return "was" if is_past else "am"
    return "was" if is_past else "is"


def _third_person(base: str) -> str:
    if base == "have":
        return "has"
    if base.endswith(("s", "x", "ch", "sh", "o")):
        return base + "es"
    return base[:-1] + "ies" if base[-1] == "y" and base[-2] not in "aeiou" else base + "s"


def _copula(clause: Clause) -> tuple[str, str]:
    if clause.tense == "future":
        return "will", "be"
    return be(clause.subject, clause.tense == "past"), ""


def _verb_group(clause: Clause, verb: Verb, needs_auxiliary: bool) -> tuple[str, str]:
    """Splits the verb into an auxiliary ("" where none is needed) and the rest."""
    base, past, ing = verb.english
    is_third = be(clause.subject) == "is"
    do = ("does" if is_third else "do") if needs_auxiliary else ""
    want = "wants" if is_third and not do else "want"
    return {
        "present": (do, _third_person(base) if is_third and not do else base),
        "past": ("did", base) if needs_auxiliary else ("", past),
        "progressive": (be(clause.subject), ing),
        "future": ("will", base),
        "near": (be(clause.subject), f"going to {base}"),
        "imperfect": ("", f"used to {base}"),
        "can": ("can", base),
        "must": ("must", base),
        "want": (do, f"{want} to {base}"),
    }[clause.tense]


def _complements(clause: Clause) -> list[str]:
    words = [clause.verb.particle if clause.verb else ""]
    if clause.pronoun:
        words.append(clause.pronoun.english_object)
    words.append(" and ".join(noun_phrase(phrase) for phrase in clause.objects))
    if clause.recipient:
        words += ["to", noun_phrase(clause.recipient)]
    words += [phrase.english for phrase in (clause.feeling, clause.place) if phrase]
    words.append(f"with {noun_phrase(clause.companion)}" if clause.companion else "")
    words.append(clause.time.english if clause.time else "")
    if clause.attribute:
        is_plural = clause.subject.is_plural
        words.append(clause.attribute.english_plural if is_plural else clause.attribute.english)
    return words


def write(clause: Clause) -> str:
    """The clause in lower case, without a full stop; a question ends in "?"."""
    is_inverted = clause.question not in ("", "who")
    if clause.verb:
        auxiliary, rest = _verb_group(clause, clause.verb, is_inverted or clause.adverb == "not")
    else:
        auxiliary, rest = _copula(clause)
    adverb = clause.adverb
    if adverb == "not" and clause.is_short and f"{auxiliary} not" in SHORT:
        auxiliary, adverb = SHORT[f"{auxiliary} not"], ""
    elif (auxiliary, adverb) == ("can", "not"):
        auxiliary, adverb = "cannot", ""
    subject = clause.subject.english if isinstance(clause.subject, Pronoun) else noun_phrase(clause.subject)
    words = [auxiliary, subject] if is_inverted else [subject, auxiliary]
    if is_inverted and clause.question != "yes":
        words.insert(0, clause.question)
    words += [adverb, rest, *_complements(clause)]
    return " ".join(word for word in words if word) + ("?" if clause.question else "")
