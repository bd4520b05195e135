"""Settings of generation, from generation_config.json or (older) config.json, and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from glassformer.config import Config, GenerationConfig
from glassformer.errors import ConfigError
from glassformer.interop.huggingface.fields import Fields

__all__ = ["GENERATION_FIELDS", "read_generation", "write_generation"]

# What each unsupported setting is when it does nothing; another value is refused.
_OFF: dict[str, tuple[object, ...]] = {
    "num_beam_groups": (None, 1),
    "diversity_penalty": (None, 0, 0.0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "encoder_repetition_penalty": (None, 1, 1.0),
    "typical_p": (None, 1, 1.0),
    "epsilon_cutoff": (None, 0, 0.0),
    "eta_cutoff": (None, 0, 0.0),
    "top_h": (None,),
    "penalty_alpha": (None, 0, 0.0),
    "guidance_scale": (None, 1, 1.0),
    "exponential_decay_length_penalty": (None,),
    "begin_suppress_tokens": (None, []),
    "forced_decoder_ids": (None, []),
    "sequence_bias": (None,),
    "constraints": (None,),
    "force_words_ids": (None,),
    "dola_layers": (None,),
    "prompt_lookup_num_tokens": (None,),
    "watermarking_config": (None,),
    "stop_strings": (None,),
    "low_memory": (None, False),
}
# Settings that choose no other token; the last ones are honoured by the tokenizer or the model's config.
_HARMLESS = frozenset(
    [
        "_from_model_config",
        "transformers_version",
        "output_attentions",
        "output_hidden_states",
        "output_scores",
        "output_logits",
        "return_dict_in_generate",
        "use_cache",
        "cache_implementation",
        "cache_config",
        "remove_invalid_values",
        "renormalize_logits",
        "num_return_sequences",
        "max_matching_ngram_size",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "assistant_confidence_threshold",
        "assistant_early_exit",
        "max_time",
        "compile_config",
        "disable_compile",
        "is_assistant",
        "return_legacy_cache",
        "prefix",
        "max_initial_timestamp_index",
        "trust_remote_code",
        "generation_kwargs",
        "token_healing",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "sep_token_id",
        "decoder_start_token_id",
    ]
)
# Settings that are honoured, and their kinds; each may be null too.
_NUMBER, _COUNT, _FLAG, _LIST = (float, int), (int,), (bool,), (list,)
_HONOURED: dict[str, tuple[type, ...]] = {
    "num_beams": _COUNT,
    "length_penalty": _NUMBER,
    "early_stopping": (bool, str),
    "do_sample": _FLAG,
    "temperature": _NUMBER,
    "top_k": _COUNT,
    "top_p": _NUMBER,
    "min_p": _NUMBER,
    "repetition_penalty": _NUMBER,
    "no_repeat_ngram_size": _COUNT,
    "max_length": _COUNT,
    "max_new_tokens": _COUNT,
    "min_length": _COUNT,
    "min_new_tokens": _COUNT,
    "forced_bos_token_id": _COUNT,
    "forced_eos_token_id": (int, list),
    "bad_words_ids": _LIST,
    "suppress_tokens": _LIST,
}
_KIND_NAMES: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    str: '"never"',
}
GENERATION_FIELDS = frozenset([*_OFF, *_HARMLESS, *_HONOURED])


def read_generation(
    values: Mapping[str, Any], *, is_seq2seq: bool, vocab_size: int, eos_id: int, never_made: Collection[int]
) -> tuple[GenerationConfig, list[str]]:
    """Our settings, and a note for each of theirs that has no place here and changes little.

    Args:
        values: generation_config.json, over the settings that config.json holds.
        is_seq2seq: Whether limits count the start token of a decoder.
        vocab_size: Ids that the model can make.
        eos_id: The end token.
        never_made: Ids that are never made here; settings that forbid them, and no others, are honoured.

    Raises:
        ConfigError: A setting that chooses other tokens, and is not built here, or one of the wrong kind.
    """
    _require_kinds(values)
    fields, notes = Fields(values), list[str]()
    for name, off in _OFF.items():
        fields.require(name, *off, reason="It chooses other tokens.")
    for name in _HARMLESS:
        fields.take(name)
    settings: dict[str, Any] = {"beam_size": fields.take("num_beams") or 1, "length_penalty": "average"}
    settings["alpha"] = _or(fields.take("length_penalty"), 1.0)
    if fields.take("early_stopping") not in (None, "never") and settings["beam_size"] > 1:
        notes.append("early_stopping has no effect: the search here ends when no better hypothesis can follow.")
    settings |= _sampling(fields)
    settings["repetition_penalty"] = _or(fields.take("repetition_penalty"), 1.0)
    settings["no_repeat_ngram_size"] = fields.take("no_repeat_ngram_size") or 0
    if not is_seq2seq and (settings["repetition_penalty"] != 1 or settings["no_repeat_ngram_size"]):
        notes.append("repetition_penalty and no_repeat_ngram_size count what is made; there they count the prompt too.")
    settings |= _lengths(fields, is_seq2seq, notes)
    settings["forced_bos_id"] = forced = fields.take("forced_bos_token_id")
    if forced is not None and not 0 <= forced < vocab_size:
        raise ConfigError(
            f"forced_bos_token_id={forced} is no id of the vocabulary.",
            f"0 to {vocab_size - 1} was expected.",
            "Correct forced_bos_token_id in generation_config.json.",
        )
    forced_end = fields.take("forced_eos_token_id")
    if forced_end not in (None, eos_id, [eos_id]):
        raise ConfigError(
            f"forced_eos_token_id={forced_end!r} is not the end token {eos_id}.",
            "Here the last token that a limit allows can only be the end token.",
            "Remove forced_eos_token_id from generation_config.json.",
        )
    settings["is_eos_forced"] = forced_end is not None
    _check_forbidden(fields, never_made)
    fields.finish()
    return GenerationConfig(**settings), notes


def _require_kinds(values: Mapping[str, Any]) -> None:
    for name, kinds in _HONOURED.items():
        value = values.get(name)
        # type() and not isinstance: true is no number
        if value is not None and type(value) not in kinds:
            raise ConfigError(
                f"{name}={value!r} is of the wrong kind.",
                f"{' or '.join(_KIND_NAMES[kind] for kind in kinds).capitalize()} was expected, or null.",
                f"Correct {name} in generation_config.json (or config.json, where there is none).",
            )


def _check_forbidden(fields: Fields, never_made: Collection[int]) -> None:
    for name in ("bad_words_ids", "suppress_tokens"):
        for words in fields.take(name) or []:
            ids = words if isinstance(words, list) else [words]
            if len(ids) != 1 or type(ids[0]) is not int or ids[0] not in never_made:
                raise ConfigError(
                    f"{name} forbids {ids}.",
                    "Here padding, start, unknown and mask are never made, and no list of further words is built.",
                    f"Remove {name} from generation_config.json.",
                )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _sampling(fields: Fields) -> dict[str, Any]:
    """Without `do_sample` the other settings mean nothing, and are left at ours."""
    found = {name: fields.take(name) for name in ("temperature", "top_k", "top_p", "min_p")}
    if not fields.take("do_sample"):
        return {}
    defaults = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": 0.0}  # theirs
    return {"do_sample": True} | {name: _or(value, defaults[name]) for name, value in found.items()}


def _lengths(fields: Fields, is_seq2seq: bool, notes: list[str]) -> dict[str, int | None]:
    """Limits in new tokens; theirs count the decoder's start token, or the whole prompt."""
    longest, shortest = fields.take("max_length"), fields.take("min_length")
    most, least = fields.take("max_new_tokens"), fields.take("min_new_tokens") or 0
    if is_seq2seq:
        most = most if most is not None or longest is None else max(longest - 1, 1)
        least = max(least, (shortest or 0) - 1)
    elif most is None and longest is not None:
        notes.append(f"max_length={longest} has no effect: it counts the prompt, and here limits count new tokens.")
    return {"max_new_tokens": most, "min_new_tokens": least}


def write_generation(config: Config, never_made: Collection[int]) -> dict[str, Any]:
    """generation_config.json, without the ids of special tokens.

    `gnmt`, ((5 + L) / 6)^alpha, has no counterpart there. It is written as L^alpha, which it nears as L grows, so a
    beam may then prefer another length. A limit that depends on the source is written as the one of the longest source.

    Args:
        config: Ours.
        never_made: Ids that our search never makes.
    """
    ours = config.generation
    values: dict[str, Any] = {
        "num_beams": ours.beam_size,
        "length_penalty": 0.0 if ours.length_penalty == "none" else ours.alpha,
        "early_stopping": "never" if ours.beam_size > 1 else False,
        "do_sample": ours.do_sample,
        "repetition_penalty": ours.repetition_penalty,
        "no_repeat_ngram_size": ours.no_repeat_ngram_size,
        "min_new_tokens": ours.min_new_tokens or None,
        "max_new_tokens": _limit(config),
        "forced_bos_token_id": ours.forced_bos_id,
        "forced_eos_token_id": config.model.eos_id if ours.is_eos_forced else None,
        "suppress_tokens": list(never_made) or None,
        "renormalize_logits": True,
    }
    if ours.do_sample:
        values |= {"temperature": ours.temperature, "top_k": ours.top_k, "top_p": ours.top_p}
        values |= {"min_p": ours.min_p or None}
    return {name: value for name, value in values.items() if value is not None}


def _limit(config: Config) -> int:
    ours = config.generation
    if ours.max_new_tokens is not None:
        return ours.max_new_tokens
    limit = int(ours.max_length_a * config.data.max_tokens) + ours.max_length_b
    return min(limit, (config.model.max_positions or 1024) - 1)
