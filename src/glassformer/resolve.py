"""Puts a configuration together: defaults < preset < file < `--set section.key=value` < flags. Nothing is ignored."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from glassformer import __version__
from glassformer.config import Config, field_comments
from glassformer.errors import ConfigError, suggestion
from glassformer.presets import PRESETS, TASK_DEFAULTS, preset_config, require_read

__all__ = [
    "FORMAT",
    "Resolved",
    "config_from_dict",
    "config_to_dict",
    "describe",
    "override",
    "resolve",
]

_HEAD = ("format", "glassformer", "vocab_sha256")  # keys of config.json that are no settings
FORMAT = 1  # version of config.json; raised when an old file would mean something else

# Fields that files of format 1 may lack because they were written before the field was there, and what the file then
# means. These values stay when a default changes: an old model must not.
_ADDED: dict[str, object] = {
    "model.position_offset": 0,
    "model.window": None,
    "model.head": "none",
    "model.n_labels": 0,
    "model.pooling": "first",
    "model.is_normalized": False,
    "model.use_bos": False,
    "task.name": "translate",
    "task.start": None,
    "task.prefix": "",
    "task.mask_share": 0.15,
    "task.use_whole_words": False,
    "task.mean_span": 3.0,
    "task.is_multi_label": False,
    "task.use_class_weights": False,
    "task.has_negatives": False,
    "task.similarity_scale": 20.0,
    "task.min_width": None,
    "tokenizer.n_sentinels": 0,
    "data.document": "line",
    "data.across_documents": False,
    "validation.film": "",
    "training.init": "random",
    "training.frozen": "none",
    "training.lora_rank": 0,
    "training.lora_alpha": 16.0,
    "training.lora_targets": "attention",
    "generation.forced_bos_id": None,
    "generation.is_eos_forced": False,
}

_SECTIONS: dict[str, type] = typing.get_type_hints(Config)
_HINTS: dict[str, dict[str, Any]] = {name: typing.get_type_hints(cls) for name, cls in _SECTIONS.items()}
_NAMES = [f"{section}.{key}" for section, hints in _HINTS.items() for key in hints]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resolved:
    """A configuration, and where each of its values came from."""

    config: Config
    origin: dict[str, str]  # "section.key" -> "default", "preset small", "file run.json", "--set" or "flag"


def resolve(preset: str | None, file: Path | None, sets: Sequence[str], flags: Mapping[str, object]) -> Resolved:
    """Merges the five sources of settings; a later one wins. The first one, the defaults, depends on the task.

    Args:
        preset: Name of a preset (the `model` section), or None.
        file: JSON file with some of the sections of `Config`; a saved config.json is one. Or None.
        sets: Texts `section.key=value`; the value is read by the type of its field, `none` or `unset` means unset.
        flags: "section.key" -> value; None: the flag was not given.

    Raises:
        ConfigError: For each name that is unknown, each value of the wrong type, values that contradict each other,
            and settings that the task does not read; with the place.
    """
    sources: list[tuple[str, dict[str, object]]] = []
    if preset is not None:
        preset_config(preset)
        sources.append((f"preset {preset}", {f"model.{key}": value for key, value in PRESETS[preset].items()}))
    if file is not None:
        sources.append((f"file {file}", _values_of(_read_json(file), str(file))))
    sources.append(("--set", _values_of_sets(sets)))
    given = {name: value for name, value in flags.items() if value is not None}
    sources.append(("flag", {name: _checked(name, value, "the flags") for name, value in given.items()}))

    task = [str(settings["task.name"]) for _, settings in sources if "task.name" in settings]
    values: dict[str, object] = dict(TASK_DEFAULTS.get(task[-1], {})) if task else {}
    origin = dict.fromkeys(_NAMES, "default")
    for source, settings in sources:
        values |= settings
        origin |= dict.fromkeys(settings, source)
    config = _build(values, origin)
    require_read(config.task.name, _chosen(values, origin))
    return Resolved(config=config, origin=origin)


def _chosen(values: Mapping[str, object], origin: Mapping[str, str]) -> dict[str, object]:
    """What the user set. A file may be the whole config of another run, so its defaults are no choice."""
    return {
        name: value
        for name, value in values.items()
        if origin[name] in ("--set", "flag") or (origin[name].startswith("file ") and value != _default(name))
    }


def override(saved: Any, section: str, sets: Sequence[str], flags: Mapping[str, object]) -> Any:
    """One section changed by texts `key=value` and by flags ("key" -> value), in this order, with the same checks."""
    given = _values_of_sets([f"{section}.{text}" for text in sets])
    given |= {f"{section}.{key}": _checked(f"{section}.{key}", value, "the flags") for key, value in flags.items()}
    return dataclasses.replace(saved, **{name.partition(".")[2]: value for name, value in given.items()})


def describe(resolved: Resolved) -> list[tuple[str, str, str, str]]:
    """Rows for `--print-config`: ("section.key", value, origin, comment). An unset value reads `unset`."""
    rows = []
    for name in _NAMES:
        section, key = name.split(".")
        value = getattr(getattr(resolved.config, section), key)
        comment = field_comments(_SECTIONS[section])[key]
        rows.append((name, "unset" if value is None else _shown(value), resolved.origin[name], comment))
    return rows


def config_to_dict(config: Config) -> dict[str, Any]:
    """The content of config.json: `format`, `glassformer` (version), then every field of every section.

    An infinite value is written as the text "inf", since JSON has no infinity.
    """
    head: dict[str, Any] = {"format": FORMAT, "glassformer": __version__}
    sections = dataclasses.asdict(config)
    return head | {
        section: {key: "inf" if value == math.inf else value for key, value in fields.items()}
        for section, fields in sections.items()
    }


def config_from_dict(saved: Mapping[str, Any], place: str) -> Config:
    """Reads back what `config_to_dict` wrote; `place` (a file name) stands in the messages.

    Raises:
        ConfigError: If the format is another one, a key is unknown or missing, or a value is of the wrong type.
    """
    if "format" not in saved:
        raise ConfigError(
            f"{place} has no key 'format'.",
            f"A saved configuration has format {FORMAT}.",
            "Use the config.json of a model folder that glassformer wrote.",
        )
    settings = _values_of(saved, place)
    _require_whole(settings, list(_SECTIONS), place)
    settings = _ADDED | settings
    return _build(settings, dict.fromkeys(settings, place))


def _build(values: Mapping[str, object], origin: Mapping[str, str]) -> Config:
    """Makes the sections; an error of theirs is told where the values that it names come from."""
    built = {}
    for section, cls in _SECTIONS.items():
        names = {key: f"{section}.{key}" for key in _HINTS[section]}
        try:
            built[section] = cls(**{key: values[name] for key, name in names.items() if name in values})
        except ConfigError as error:
            named = [name for key, name in names.items() if re.search(rf"\b{key}\b", error.what)]
            places = "; ".join(f"{name}: {origin[name]}" for name in named)
            raise ConfigError(error.what, error.expected, f"{error.remedy} ({places})") from None
    return Config(**built)


def _read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object; twice the same key in one object is an error."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        parsed = json.loads(text, object_pairs_hook=tuple)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", "A JSON file.", "Check the name.") from None
    except UnicodeDecodeError as error:
        what = f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} at offset {error.start}."
        raise ConfigError(what, "Configuration files are UTF-8.", "Save the file as UTF-8.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}.", "A JSON object.", "Mend the file at that place.") from None
    if not isinstance(parsed, tuple):
        raise ConfigError(f"{path} holds no JSON object.", 'It looks like {"model": {...}}.', "Put sections into it.")
    return dict(_as_dict(parsed, str(path)))


def _as_dict(parsed: Any, place: str) -> Any:
    """Turns objects, read as tuples of pairs, into dicts."""
    if not isinstance(parsed, tuple):
        return parsed
    result: dict[str, object] = {}
    for key, value in parsed:
        if key in result:
            raise ConfigError(
                f"{place}: the key {key!r} stands there twice.", "A key has one value.", "Remove one of the two."
            )
        result[key] = _as_dict(value, f"{place}: {key}")
    return result


def _values_of(content: Mapping[str, Any], place: str) -> dict[str, object]:
    """Flattens sections to "section.key" -> checked value."""
    if "format" in content and content["format"] != FORMAT:
        raise ConfigError(
            f"{place} has format {content['format']!r}.",
            f"glassformer {__version__} reads format {FORMAT}.",
            f"Use the version that wrote it ({content.get('glassformer', 'unknown')}).",
        )
    settings = {}
    for section, fields in content.items():
        if section in _HEAD:
            continue
        if section not in _SECTIONS:
            raise _unknown(section, place)
        if not isinstance(fields, Mapping):
            example = f'{{"{section}": {{"{next(iter(_HINTS[section]))}": ...}}}}'
            raise ConfigError(
                f"{place}: {section}={fields!r} is no object.", "A section holds keys.", f"Write {example}."
            )
        for key, value in fields.items():
            settings[f"{section}.{key}"] = _checked(f"{section}.{key}", value, place)
    if "format" in content:
        sections = [section for section in _SECTIONS if section in content]
        _require_whole(settings, sections, place)
        settings = {name: value for name, value in _ADDED.items() if name.partition(".")[0] in sections} | settings
    return settings


def _require_whole(settings: Mapping[str, object], sections: Sequence[str], place: str) -> None:
    known = {*settings, *_ADDED}
    missing = [name for name in _NAMES if name.partition(".")[0] in sections and name not in known]
    if missing:
        raise ConfigError(
            f"{place} lacks {', '.join(missing[:5])}{' and more' if len(missing) > 5 else ''}.",
            "A saved configuration (with the key 'format') holds every field, so that no default can change a model.",
            "Restore the file, or remove the key 'format' to start a new run with defaults.",
        )


def _values_of_sets(sets: Sequence[str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for text in sets:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(
                f"--set {text!r} has no '='.", "The form is section.key=value.", "For example --set training.seed=7."
            )
        name = name.strip()
        if name in settings:
            raise ConfigError(f"--set gives {name} twice.", "A key has one value.", "Remove one of the two.")
        settings[name] = _checked(name, _parse(_hint(name, "--set"), value), "--set")
    return settings


def _default(name: str) -> object:
    section, _, key = name.partition(".")
    return _SECTIONS[section].__dataclass_fields__[key].default  # type: ignore[attr-defined]


def _hint(name: str, place: str) -> Any:
    """The type of the field "section.key"."""
    section, _, key = name.partition(".")
    if key not in _HINTS.get(section, {}):
        raise _unknown(name, place)
    return _HINTS[section][key]


def _unknown(name: str, place: str) -> ConfigError:
    section, _, key = name.rpartition(".")
    homes = [f"{home}.{key}" for home, hints in _HINTS.items() if key in hints]
    if homes:
        remedy = f"Did you mean {' or '.join(map(repr, homes))}?"
    elif section in _HINTS:
        remedy = suggestion(key, _HINTS[section])
    else:
        remedy = suggestion(section or key, _SECTIONS)
    kind = "key" if section in _HINTS else "section"
    return ConfigError(f"{place}: {name!r} is an unknown {kind}.", "Every name must be known.", remedy)


def _options(hint: Any) -> Iterator[Any]:
    """The parts of `X | None`, or the type itself."""
    yield from typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _parse(hint: Any, text: str) -> object:
    """Reads a text of `--set` by the type of its field; a text that does not fit comes back as it is, to be refused."""
    options = list(_options(hint))
    text = text.strip() if options != [str] else text
    if type(None) in options and text.lower() in ("none", "unset"):
        return None
    if bool in options and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if int in options and re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        return int(text)
    if float in options and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", text, re.IGNORECASE):
        return float(text)
    return text


def _checked(name: str, value: object, place: str) -> object:
    """Returns the value if it is of the field's type; whole numbers pass for real ones, and "inf" for infinity."""
    for option in _options(_hint(name, place)):
        if typing.get_origin(option) is Literal:
            if isinstance(value, str) and value in typing.get_args(option):
                return value
        elif option is float:
            if value == "inf":
                return math.inf
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                return float(value)
        elif type(value) is option:
            return value
    raise ConfigError(
        f"{place}: {name}={_shown(value)} is of the wrong kind.",
        f"{_expected(name, place)} was expected.",
        f"It means: {field_comments(_SECTIONS[name.split('.')[0]])[name.split('.')[1]]}.",
    )


def _expected(name: str, place: str) -> str:
    words = {int: "A whole number", float: "A finite number", bool: "true or false", str: "A text", type(None): "unset"}
    parts = []
    for option in _options(_hint(name, place)):
        is_literal = typing.get_origin(option) is Literal
        parts.append("One of " + ", ".join(typing.get_args(option)) if is_literal else words[option])
    return ", or ".join(parts)


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, float) else repr(value)
