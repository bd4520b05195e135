"""A rough guess at the language of a sentence, good enough to find rows in the wrong one.

Frequent small words tell the languages of the Latin script apart, the script tells others. A guess needs at least
three different such words, and three times as many as for any other language. Short texts and languages that are
not listed give none.
"""

from __future__ import annotations

import re

__all__ = ["LANGUAGES", "guess_language"]

_WORDS = {
    "de": "in der die das und ist nicht ein eine einen einem einer mit auf für von zu den dem des sich auch wird "
    "werden sind wenn oder aber wie über nach bei aus durch kann ich sie wir ihr sein haben hat",
    "en": "the and of to is are was were be been this that these those with for from you your it not have has will "
    "a in on we i would can which when where what they their there if by at he she his her an as or but into",
    "es": "el la los las de y que en un una es no con por para del al se su sus como más pero este esta son fue "
    "cuando donde hay está ser también o si lo",
    "fr": "le la les des et est un une dans pour que qui ne pas vous nous il elle ils sur avec ce cette ces sont par "
    "au aux du de en se son sa ses ou mais plus être peut votre je leur lui si",
    "it": "il lo la gli le di e che è un una in per non con del della dei delle si sono come più ma questo questa "
    "nel nella al alla da anche o se essere ha",
    "nl": "in de het een en van is niet dat die met voor op te zijn er aan ook als maar door wordt worden kan naar bij "
    "uit om dit deze ik je hij zij wij hebben heeft of",
    "pl": "i w na z do nie się jest to że o jak ale po co tak za od przez dla są był być czy może tego jego",
    "pt": "o a os as de e que em um uma é não com por para do da dos das se no na ao seu sua como mais mas este "
    "esta são foi quando onde ou ser também",
    "sv": "och att det som en ett på är av för med till den inte har de om så men var jag kan från vid eller när",
}
_LANGUAGES_OF: dict[str, list[str]] = {}
for _language, _words in _WORDS.items():
    for _word in _words.split():
        _LANGUAGES_OF.setdefault(_word, []).append(_language)

# Kana before Han, because Japanese has both.
_SCRIPTS = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "el": re.compile(r"[\u0370-\u03ff]"),
    "ar": re.compile(r"[\u0600-\u06ff]"),
    "he": re.compile(r"[\u0590-\u05ff]"),
    "hi": re.compile(r"[\u0900-\u097f]"),
    "th": re.compile(r"[\u0e00-\u0e7f]"),
}
_BEYOND_LATIN = re.compile(r"[\u0370-\u1dff\u3040-\ud7af]")

LANGUAGES = frozenset(_WORDS) | frozenset(_SCRIPTS)


def guess_language(text: str) -> str | None:
    """The code of the likely language, or None when the text does not tell.

    Args:
        text: A sentence.

    Returns:
        One of `LANGUAGES`. A code of a script stands for every language written in it (`ru` for Cyrillic).
    """
    if not text.isascii() and _BEYOND_LATIN.search(text):
        counts = {language: len(script.findall(text)) for language, script in _SCRIPTS.items()}
        if counts["ja"]:
            counts["ja"] += counts.pop("zh")
        best = max(counts, key=counts.__getitem__)
        return best if counts[best] > len(text) / 3 else None
    votes: dict[str, int] = {}
    for word in set(text.lower().split()):
        for language in _LANGUAGES_OF.get(word, ()):
            votes[language] = votes.get(language, 0) + 1
    if not votes:
        return None
    best = max(votes, key=votes.__getitem__)
    most = votes.pop(best)
    return best if most >= 3 and most >= 3 * max(votes.values(), default=0) else None
