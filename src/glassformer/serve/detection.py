"""Which language a text is in, and what languages are called."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

__all__ = ["Detected", "detect", "has_words", "language_name"]

Detected = tuple[str, float]  # code, confidence in [0, 100]

_NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German",
    "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque",
    "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese",
    "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "ms": "Malay", "nb": "Norwegian", "nl": "Dutch",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak",
    "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "ta": "Tamil", "th": "Thai",
    "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def language_name(code: str) -> str:
    """English name of a language; of one that is not listed, its code."""
    return _NAMES.get(code, code)


def has_words(text: str) -> bool:
    """Whether there is a letter or a digit, something that could be translated."""
    return any(unicodedata.category(char)[0] in "LN" for char in text)


def detect(text: str, candidates: Sequence[str]) -> list[Detected]:
    """The candidates, the likeliest first, each with its probability among all languages that are known.

    So a text in a language that is no candidate has low confidences. Never empty: where nothing is known, English
    with 0.
    """
    if not has_words(text):
        return [("en", 0.0)]
    found = dict(_identifier().rank(text))
    ranked = [(code, round(100 * float(found.get(code, 0.0)), 1)) for code in candidates]
    return sorted(ranked, key=lambda pair: -pair[1]) or [("en", 0.0)]


@cache
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
