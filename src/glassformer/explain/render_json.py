"""The explanation as JSON; docs/explain.schema.json describes it."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np

from glassformer import __version__
from glassformer.explain.result import AttentionMap, Explanation, Row
from glassformer.explain.tokens import Tokens

__all__ = ["plain", "to_dict", "to_json"]

N_FIRST = 8  # numbers of each row that are always given
N_DIGITS = 4  # significant digits of views


def to_json(explanation: Explanation, *, is_full: bool) -> str:
    """JSON text; NaN and infinities, which JSON does not have, are null: a masked score is null."""
    return json.dumps(to_dict(explanation, is_full=is_full), ensure_ascii=False, allow_nan=False)


def to_dict(explanation: Explanation, *, is_full: bool) -> dict[str, Any]:
    """The content of the JSON."""
    off, worst = explanation.first_off, explanation.worst
    return {
        "format": 1,
        "glassformer": __version__,
        "model": explanation.model,
        "config": dataclasses.asdict(explanation.config),
        "text": explanation.text,
        "output": explanation.output,
        "tokens": {
            name: None if tokens is None else _tokens(tokens)
            for name, tokens in (
                ("source", explanation.src),
                ("target", explanation.tgt),
                ("chosen", explanation.chosen),
            )
        },
        "proof": {
            "tolerance": explanation.tolerance,
            "first_off": None if off is None else off.key,
            "worst": {"key": worst.key, "relative": worst.relative},
        },
        "steps": [_row(row, is_full) for row in explanation.rows],
        "attention": [_map(map_) for map_ in explanation.maps],
        "views": {name: plain(view) for name, view in explanation.views.items()},
    }


def _row(row: Row, is_full: bool) -> dict[str, Any]:
    content = {
        field.name: plain(getattr(row, field.name), n_digits=None)
        for field in dataclasses.fields(row)
        if field.name != "value"
    }
    content |= {"bytes": row.size_bytes, "relative": row.relative}
    content["first"] = plain(row.value.reshape(-1)[:N_FIRST])
    if is_full:
        content["values"] = plain(row.value, n_digits=None)
    return content


def _map(map_: AttentionMap) -> dict[str, Any]:
    return {
        "key": map_.key,
        "title": map_.title,
        "rows": "queries",
        "columns": "keys",
        "queries": map_.queries.labels,
        "keys": map_.keys.labels,
        "weights": plain(map_.weights),
        "entropy": plain(map_.entropy),
    }


def _tokens(tokens: Tokens) -> dict[str, Any]:
    return {
        "ids": tokens.ids,
        "pieces": tokens.pieces,
        "is_special": tokens.is_special,
        "words": tokens.words,
        "word_labels": tokens.word_labels,
    }


def plain(value: Any, n_digits: int | None = N_DIGITS) -> Any:
    """Dataclasses, arrays and numbers as JSON has them; numbers rounded to significant digits, None: as they are."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), n_digits) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item, n_digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, n_digits) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), n_digits)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if n_digits is None else float(f"{value:.{n_digits}g}")
    return value
