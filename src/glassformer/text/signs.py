"""Signs that a translation must carry over unchanged: placeholders, tags, entities and numbers."""

from __future__ import annotations

import re

__all__ = ["CONTROL", "has_same_numbers", "has_same_placeholders"]

# Everything below U+0020 except the tab, DEL, the C1 controls and the two code points that are no characters.
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ufffe\uffff]")
_PLACEHOLDER = re.compile(
    r"%\(\w+\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z]"  # %(name)s
    r"|%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh?|ll?|[zqjt])?[diouxXeEfFgGcsrap@](?![a-zA-Z])"  # %s, %1$d, %5.2f
    r"|%\d+"  # %1
    r"|\{\w*(?:[.:!\[][^{}\s]*)?\}"  # {}, {0}, {name:>3}
    r"|\$\{?[A-Za-z_]\w*\}?"  # $x, ${x}
    r"|</?[A-Za-z][\w:-]*"  # <b ...>, </b>: the name only, attributes may differ
    r"|&(?:[A-Za-z]\w*|#\d+|#x[0-9a-fA-F]+);"  # &amp;, &#39;
)
_POSITION = re.compile(r"^%\d+\$")
_MAY_HOLD_PLACEHOLDER = re.compile(r"[%{$<&]")
_NUMBER = re.compile(r"\d{1,18}")


def _placeholders(text: str) -> list[str]:
    # %1$s and %s are one thing: a translation may need positions where the source does not.
    return sorted(_POSITION.sub("%", found) for found in _PLACEHOLDER.findall(text))


def has_same_placeholders(src: str, tgt: str) -> bool:
    """Whether both texts hold the same placeholders, tags and entities, each as often, in any order."""
    if not (_MAY_HOLD_PLACEHOLDER.search(src) or _MAY_HOLD_PLACEHOLDER.search(tgt)):
        return True
    return _placeholders(src) == _placeholders(tgt)


def _numbers(text: str) -> list[int]:
    return sorted(
        map(int, _NUMBER.findall(_PLACEHOLDER.sub(" ", text) if _MAY_HOLD_PLACEHOLDER.search(text) else text))
    )


def has_same_numbers(src: str, tgt: str) -> bool:
    """Whether both texts hold the same runs of digits, in any order.

    1,000.5 and 1 000,5 are the same runs, so that the writing of numbers in each language does not matter.
    """
    return _numbers(src) == _numbers(tgt)
