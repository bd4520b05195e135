"""French spelling between words: elision (l'eau), contraction (au, du), and which words begin with a vowel sound."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["has_vowel_sound", "plural", "surface"]

ELIDED = frozenset(("je", "ne", "me", "se", "le", "la", "de", "que", "ce"))
CONTRACTED = {("à", "le"): "au", ("à", "les"): "aux", ("de", "le"): "du", ("de", "les"): "des"}
# The h of these words keeps the two words apart: le homard, la hache.
ASPIRATED = frozenset(("haricot", "haricots", "hibou", "hiboux", "homard", "héros"))
VOWELS = frozenset("aeiouyàâéèêîôœ")


def has_vowel_sound(word: str) -> bool:
    """Whether the words before `word` elide: l'homme and l'eau, but le héros."""
    first = word[0].lower()
    return first in VOWELS or (first == "h" and word not in ASPIRATED)


def plural(word: str) -> str:
    """The regular French plural: s, x for -eau, nothing after s, x and z."""
    return word if word[-1] in "sxz" else word + ("x" if word.endswith("eau") else "s")


def surface(words: Iterable[str]) -> str:
    """Joins underlying words into French as it is written.

    Elision comes before contraction: "de le homme" is "de l'homme", "de le pain" is "du pain".
    """
    rest = list(words)
    text = ""
    while rest:
        word = rest.pop(0)
        following = rest[0] if rest else ""
        is_article_elided = following in ("le", "la") and len(rest) > 1 and has_vowel_sound(rest[1])
        if (word, following) in CONTRACTED and not is_article_elided:
            text += CONTRACTED[word, rest.pop(0)] + " "
        elif word in ELIDED and following and has_vowel_sound(following):
            text += word[:-1] + "'"
        else:
            text += word + " "
    return text.strip()
