"""Writes a clause in French, as underlying words that `spelling.surface` joins."""

from __future__ import annotations

from glassformer.phrasebook.conjugation import AUXILIARY_ETRE, conjugate
from glassformer.phrasebook.sentence import Clause, NounPhrase, Pronoun, Subject
from glassformer.phrasebook.spelling import has_vowel_sound, plural, surface
from glassformer.phrasebook.words import Adjective

__all__ = ["agree", "noun_phrase", "write"]

# Masculine, feminine, plural; the masculine form also stands before a feminine word with a vowel sound: mon amie.
POSSESSIVES = {
    "my": ("mon", "ma", "mes"),
    "your": ("votre", "votre", "vos"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "their": ("leur", "leur", "leurs"),
}
FIXED = {"two": ("deux",), "three": ("trois",), "a lot of": ("beaucoup", "de")}
HELPERS = {"near": "aller", "can": "pouvoir", "must": "devoir", "want": "vouloir"}
ADVERBS = {"not": "pas", "never": "jamais", "often": "souvent", "always": "toujours"}
QUESTIONS = {"": (), "who": (), "yes": ("est-ce", "que"), "what": ("qu'est-ce", "que")}
QUESTIONS |= {
    "where": ("où", "est-ce", "que"),
    "when": ("quand", "est-ce", "que"),
    "why": ("pourquoi", "est-ce", "que"),
}
REFLEXIVE = ("me", "se", "nous", "vous", "se")


def agree(adjective: Adjective, is_feminine: bool, is_plural: bool) -> str:
    """The form of the adjective for a gender and a number."""
    word = adjective.feminine if is_feminine else adjective.masculine
    return plural(word) if is_plural else word


def _article(phrase: NounPhrase, following: str, is_negated: bool, is_generic: bool) -> tuple[str, ...]:
    """The French determiner; negation turns un, du, de la and des into de, except behind être."""
    definite = "les" if phrase.is_plural else "la" if phrase.is_feminine else "le"
    masculine_form = not phrase.is_feminine or has_vowel_sound(following)
    if phrase.determiner in POSSESSIVES:
        forms = POSSESSIVES[phrase.determiner]
        return (forms[2] if phrase.is_plural else forms[0] if masculine_form else forms[1],)
    if phrase.determiner in FIXED:
        return FIXED[phrase.determiner]
    if phrase.determiner in ("the", "own"):
        return (definite,)
    if phrase.determiner in ("this", "these"):
        masculine = "cet" if has_vowel_sound(following) else "ce"
        return ("ces" if phrase.is_plural else "cette" if phrase.is_feminine else masculine,)
    if is_generic:
        return (definite,)
    # Before an adjective "des" is "de" in careful French: de grandes maisons.
    is_reduced = phrase.is_plural and phrase.adjective is not None and phrase.adjective.stands_first
    if is_negated or is_reduced:
        return ("de",)
    if phrase.determiner == "a":
        return ("une" if phrase.is_feminine else "un",)
    return ("de", definite)


def noun_phrase(phrase: NounPhrase, is_negated: bool = False, is_generic: bool = False) -> list[str]:
    """Determiner, noun and adjective in French order: une grande maison, un vieil arbre, une voiture rouge."""
    noun = phrase.noun.french_plural if phrase.is_plural else phrase.noun.french
    if "name" in phrase.noun.kinds:
        return [noun]
    words = [noun]
    if phrase.adjective:
        word = agree(phrase.adjective, phrase.is_feminine, phrase.is_plural)
        if phrase.adjective.stands_first:
            is_second_masculine = not phrase.is_feminine and not phrase.is_plural and has_vowel_sound(noun)
            words.insert(0, phrase.adjective.masculine_before_vowel if is_second_masculine else word)
        else:
            words.append(word)
    words = [*_article(phrase, words[0], is_negated, is_generic), *words]
    return [*words, "de", *noun_phrase(phrase.owner)] if phrase.owner else words


def _participle(clause: Clause, infinitive: str, has_etre: bool) -> str:
    """The past participle: with être it agrees with the subject, with avoir with a pronoun before the verb."""
    word = conjugate(infinitive).participle
    master = clause.subject if has_etre else clause.pronoun
    if master is None:
        return word
    word += "e" if master.is_feminine else ""
    return plural(word) if master.is_plural else word


def _copula(clause: Clause) -> tuple[str, list[str]]:
    tenses = conjugate("avoir" if clause.feeling else "être")
    forms = {"present": tenses.present, "past": tenses.imperfect, "future": tenses.future}[clause.tense]
    if clause.feeling:
        return forms[clause.subject.form], list(clause.feeling.french)
    assert clause.attribute is not None
    return forms[clause.subject.form], [agree(clause.attribute, clause.subject.is_feminine, clause.subject.is_plural)]


def _verb_group(clause: Clause) -> tuple[list[str], list[str]]:
    """Splits the verb around the place of "pas": (clitics and finite verb, the rest)."""
    if clause.verb is None:
        finite, rest = _copula(clause)
        return [finite], rest
    form, infinitive = clause.subject.form, clause.verb.french
    clitics = [REFLEXIVE[form]] if clause.verb.is_reflexive else []
    if clause.pronoun:
        clitics.append(clause.pronoun.french_object)
    if clause.tense in HELPERS:
        return [conjugate(HELPERS[clause.tense]).present[form]], [*clitics, infinitive]
    if clause.tense == "past":
        has_etre = clause.verb.is_reflexive or infinitive in AUXILIARY_ETRE
        auxiliary = conjugate("être" if has_etre else "avoir").present[form]
        return [*clitics, auxiliary], [_participle(clause, infinitive, has_etre)]
    verb = conjugate(infinitive)
    forms = {"future": verb.future, "imperfect": verb.imperfect}.get(clause.tense, verb.present)
    return [*clitics, forms[form]], []


def _complements(clause: Clause, is_negated: bool) -> list[str]:
    if clause.verb is None:
        return []
    preposition = [clause.verb.preposition] if clause.verb.preposition else []
    words: list[str] = [] if clause.objects else preposition
    for position, phrase in enumerate(clause.objects):
        words += ["et"] if position else []
        is_negated_object = is_negated and not preposition
        words += preposition + noun_phrase(phrase, is_negated_object, "generic" in clause.verb.flags)
    return [*words, "à", *noun_phrase(clause.recipient)] if clause.recipient else words


def _subject(subject: Subject) -> list[str]:
    return [subject.french] if isinstance(subject, Pronoun) else noun_phrase(subject)


def write(clause: Clause) -> str:
    """The clause in lower case, without a full stop; a question ends in " ?"."""
    is_negated = clause.adverb in ("not", "never")
    before, after = _verb_group(clause)
    words = [*QUESTIONS[clause.question], *_subject(clause.subject)]
    words += ["ne", *before] if is_negated else before
    words += [ADVERBS[clause.adverb]] if clause.adverb else []
    words += after + _complements(clause, is_negated)
    words += clause.place.french if clause.place else ()
    words += ["avec", *noun_phrase(clause.companion)] if clause.companion else []
    words += clause.time.french if clause.time else ()
    return surface(words) + (" ?" if clause.question else "")
