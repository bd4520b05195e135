"""ROUGE of summaries: how many words, word pairs and longest common sequences they share with their references.

The scores are those of the package rouge-score (extra `rouge`), which published figures come from. Its words are runs
of a to z and 0 to 9, with Porter's stems: right for English alone. For other languages words are runs of letters, marks
and digits of any script, without stems.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.errors import ConfigError
from glassformer.text.languages import LANGUAGES, guess_language

__all__ = ["ROUGE_NAMES", "Rouge", "is_english"]

ROUGE_NAMES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])(?![。！？」』）])\s*")
_N_GUESSED = 200  # texts from which a language is guessed


class Rouge:
    """ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum, each as F1 = 2PR / (P + R) of a summary and its reference.

    P and R are the share of the summary's and of the reference's words (pairs of words; words of the longest common
    subsequence) that both have. Lsum unites the subsequences of each sentence of the reference; sentences are parted
    at their end marks.

    Args:
        is_english: Use the package's own words and stems.

    Raises:
        ConfigError: The package rouge-score is not installed.

    Source: Lin 2004.
    """

    def __init__(self, *, is_english: bool) -> None:
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ModuleNotFoundError:
            raise ConfigError(
                "ROUGE needs the package rouge-score, which is not installed.",
                "It is an extra of glassformer.",
                "Run: pip install 'glassformer[rouge]'.",
            ) from None
        own = {"use_stemmer": True} if is_english else {"tokenizer": _Words()}
        self._scorer: Any = RougeScorer(list(ROUGE_NAMES), **own)
        kind = "stem:porter|words:a-z0-9" if is_english else "stem:no|words:unicode"
        self.signature = f"{kind}|f1:mean|sentences:marks|version:rouge_score-{version('rouge_score')}"

    def f1(self, hypotheses: Sequence[str], references: Sequence[str]) -> npt.NDArray[np.float64]:
        """[N, 4] F1 of each pair, 0 to 1, in the order of `ROUGE_NAMES`. Empty texts share nothing: 0."""
        rows = []
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            scores = self._scorer.score(_one_a_line(reference), _one_a_line(hypothesis))
            rows.append([scores[name].fmeasure for name in ROUGE_NAMES])
        return np.array(rows, dtype=np.float64).reshape(-1, len(ROUGE_NAMES))


def is_english(texts: Iterable[str], code: str) -> bool:
    """Whether texts are English: by their code where that is a language's, else by a guess from their small words."""
    if code in LANGUAGES or code in ("en", "eng"):
        return code in ("en", "eng")
    guesses = Counter(guess_language(text) for text, _ in zip(texts, range(_N_GUESSED), strict=False))
    del guesses[None]
    return bool(guesses) and guesses.most_common(1)[0][0] == "en"


class _Words:
    """Words of any script, as the package wants them: an object with `tokenize`."""

    def tokenize(self, text: str) -> list[str]:
        return "".join(map(_spaced, unicodedata.normalize("NFC", text).lower())).split()


@cache
def _spaced(char: str) -> str:
    """Letters, marks and digits as they are; Han and kana, which are written without spaces, apart; else a space."""
    if unicodedata.category(char)[0] not in "LMN":
        return " "
    return f" {char} " if re.match(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]", char) else char


def _one_a_line(text: str) -> str:
    return _SENTENCE_ENDS.sub("\n", text)
