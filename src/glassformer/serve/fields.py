"""The fields of a request: strict JSON, or a form together with the query string."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile

from glassformer.serve.refusal import Refusal

__all__ = ["Fields", "json_object", "read_fields"]

MAX_FILES = 4  # of a form; more are not read

Model = TypeVar("Model", bound=BaseModel)


class Fields:
    """What a client sent, still unchecked.

    Attributes:
        values: By name.
        is_json: Numbers and truth values have their types; in a form all is text.
        file: Name and content of the file of a form, its field `file`.
    """

    def __init__(self, values: Mapping[str, Any], *, is_json: bool, file: tuple[str, bytes] | None = None) -> None:
        self.values, self.is_json, self.file = dict(values), is_json, file

    def checked(self, model: type[Model]) -> Model:
        """The fields as a checked object; raises Refusal 400 with the name of the field that is wrong."""
        try:
            return model.model_validate(self.values, strict=self.is_json)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            name = ".".join(str(part) for part in first["loc"][:1])
            raise Refusal(400, f"{name}: {first['msg']}.", param=name or None, code="invalid_value") from None

    def ignored(self, model: type[BaseModel]) -> list[str]:
        """Names that the model does not know, as far as they can stand in a header."""
        known = set(model.model_fields) | {"api_key"}
        names = [name for name in self.values if name not in known and re.fullmatch(r"[\w.-]{1,40}", name, re.ASCII)]
        return names[:20]


async def read_fields(request: Request, *, takes_form: bool, takes_file: bool = False) -> Fields:
    """Reads the body (once; later calls get the same).

    Raises:
        Refusal: 400 for a body that is no strict JSON object or no form, 415 for one of another type.
    """
    if not hasattr(request.state, "fields"):
        request.state.fields = await _read(request, takes_form, takes_file)
    fields: Fields = request.state.fields
    return fields


async def _read(request: Request, takes_form: bool, takes_file: bool) -> Fields:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if kind == "application/json":
        return Fields(json_object(body), is_json=True)
    is_form = kind in ("application/x-www-form-urlencoded", "multipart/form-data")
    if not takes_form or (body and not is_form):
        expected = "application/json" + (" or a form" if takes_form else "")
        raise Refusal(415, f"The Content-Type {kind[:60]!r} is not read here. Send {expected}.")
    async with request.form(max_files=MAX_FILES) as form:  # closes its files
        pairs = [*request.query_params.multi_items(), *(form.multi_items() if body else ())]
        files = [value for name, value in pairs if isinstance(value, UploadFile) and takes_file and name == "file"]
        values = _texts([(name, value) for name, value in pairs if value not in files[:1]])
        file = (files[0].filename or "", await files[0].read()) if files else None
    _check_unicode(values)
    return Fields(values, is_json=False, file=file)


def _texts(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """By name; lists where a name stands several times."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if not isinstance(value, str):
            raise Refusal(400, f"{name}: a text was expected, not a file.", param=name)
        text = value.replace("\r\n", "\n").replace("\r", "\n")
        if name in values:
            old = values[name]
            values[name] = [*old, text] if isinstance(old, list) else [old, text]
        else:
            values[name] = text
    return values


def json_object(body: bytes) -> dict[str, Any]:
    """Parses a strict JSON object: UTF-8, no NaN or infinity, no key twice, no half of a surrogate pair.

    Raises:
        Refusal: 400, with what is wrong.
    """
    try:
        values = json.loads(
            body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except UnicodeDecodeError:
        raise Refusal(400, "Invalid JSON format: the body is not UTF-8.") from None
    except RecursionError:
        raise Refusal(400, "Invalid JSON format: it is nested too deeply.") from None
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise Refusal(400, f"Invalid JSON format: {reason}.") from None
    if not isinstance(values, dict):
        raise Refusal(400, "Invalid JSON format: an object was expected.")
    _check_unicode(values)
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key stands there twice")
    return values


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _check_unicode(values: Mapping[str, Any]) -> None:
    """Refuses half a surrogate pair, wherever it stands."""
    for name, value in values.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except (UnicodeEncodeError, RecursionError):
            shown = name.encode("ascii", "replace").decode()[:40]
            raise Refusal(400, f"{shown}: it holds half of a surrogate pair, which is no text.", param=shown) from None
