"""The fields of a Hugging Face config.json: each is honoured, known to change no number, or refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from glassformer.config import Activation, ModelConfig
from glassformer.errors import ConfigError

__all__ = ["ACTIVATIONS", "Fields", "canonical", "unexpressed"]

Kind = TypeVar("Kind", bool, float)

# Names of activations. The first for each of ours is the one that is written.
ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}

# Fields that change no output of the network.
_HARMLESS = frozenset(
    [
        "_name_or_path",
        "architectures",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "use_cache",
        "model_type",
        "id2label",
        "label2id",
        "num_labels",
        "problem_type",
        "finetuning_task",
        "task_specific_params",
        "initializer_range",
        "initializer_factor",
        "init_std",
        "chunk_size_feed_forward",
        "gradient_checkpointing",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "torchscript",
        "tokenizer_class",
        "_attn_implementation",
        "_commit_hash",
        "use_bfloat16",
        "tf_legacy_loss",
        "classifier_dropout",
        "encoder_layerdrop",
        "decoder_layerdrop",
        "layerdrop",
        "classif_dropout",
    ]
)
# Fields that must have one value, since any other changes the network in a way that is not built here.
_REQUIRED: dict[str, Collection[object]] = {
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": (None, {}, []),
    "quantization_config": (None,),
    "auto_map": (None,),
    "position_embedding_type": (None, "absolute"),
    "attention_type": (None, "original_full"),
    "sliding_window": (None,),
    "static_position_embeddings": (None, True, False),
}


class Fields:
    """A config that notes which of its fields were asked for; `finish` refuses the others.

    Args:
        values: The content of config.json.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)
        self._taken: set[str] = set()

    def take(self, name: str, default: Any = None) -> Any:
        """The value of a field, or the default where it is absent; null stays None."""
        self._taken.add(name)
        return self.values.get(name, default)

    def setting(self, name: str, default: Kind) -> Kind:
        """A flag or a real number; where it is absent, the default, whose kind it must have."""
        value = self.take(name, default)
        kinds = (bool,) if isinstance(default, bool) else (float, int)
        if not isinstance(value, kinds) or isinstance(value, bool) != isinstance(default, bool):
            raise ConfigError(
                f"config.json: {name}={value!r} is of the wrong kind.",
                f"{'true or false' if isinstance(default, bool) else 'A number'} was expected.",
                "Use the config.json that belongs to the weights.",
            )
        return type(default)(value)

    def number(self, name: str, *names: str, default: int | None = None) -> int:
        """A whole number, which may stand under several names of one field.

        Raises:
            ConfigError: It is none, or two of the names have different values.
        """
        found = {each: value for each in (name, *names) if (value := self.take(each)) is not None}
        name = next(iter(found), name)
        value = found.get(name, default)
        if any(other != value for other in found.values()):
            raise ConfigError(
                f"config.json: {' and '.join(f'{each}={other!r}' for each, other in found.items())}.",
                "They are names of one field, so they must be equal.",
                "Remove the wrong one.",
            )
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(
                f"config.json: {name}={value!r} is no whole number.",
                "The architecture needs it.",
                "Use the config.json that belongs to the weights.",
            )
        return value

    def activation(self, name: str, default: str) -> Activation:
        """The activation under our name; an unknown one is refused, never replaced."""
        value = self.take(name, default)
        if value not in ACTIVATIONS:
            raise ConfigError(
                f"config.json: {name}={value!r} is not built here.",
                f"Known are {', '.join(ACTIVATIONS)}.",
                "This model cannot be imported.",
            )
        return ACTIVATIONS[value]

    def require(self, name: str, *allowed: object, reason: str = "Another value changes the network.") -> None:
        """Refuses a field that is there with another value."""
        if name in self.values and self.values[name] not in allowed:
            raise ConfigError(
                f"config.json: {name}={self.values[name]!r} is not built here.",
                reason,
                f"Only {' or '.join(map(repr, allowed))} can be imported.",
            )
        self._taken.add(name)

    def finish(self) -> None:
        """Refuses every field that was not asked for and is not known to be harmless."""
        for name, allowed in _REQUIRED.items():
            if name not in self._taken:
                self.require(name, *allowed)
        unknown = sorted(self.values.keys() - self._taken - _HARMLESS)
        if unknown:
            listed = ", ".join(f"{name}={self.values[name]!r}" for name in unknown)
            raise ConfigError(
                f"config.json holds fields that are not known here: {listed}.",
                "Each might change the network, so none is ignored.",
                "Remove those of which you know that they do not matter, and import again.",
            )


def canonical(config: ModelConfig) -> dict[str, Any]:
    """The fields that matter for this architecture; those that change nothing in it have their default."""
    idle: set[str] = {"dropout", "attention_dropout", "ffn_dropout", "pad_id", "bos_id", "eos_id", "unk_id", "use_bos"}
    idle |= {"pooling", "is_normalized"}
    if config.positions != "learned":
        idle.add("position_offset")
    if config.positions != "rotary":
        idle.add("rotary_base")
    if config.positions not in ("rotary", "sinusoidal"):
        idle.add("sinusoid_layout")
    if config.positions != "t5_relative":
        idle |= {"n_relative_buckets", "max_relative_distance"}
    if config.family == "encoder-only":
        idle |= {"n_decoder_layers", "scale_logits", "use_output_bias"}
    if config.family == "decoder-only":
        idle.add("n_encoder_layers")
    defaults = {each.name: each.default for each in dataclasses.fields(ModelConfig)}
    values = {name: defaults[name] if name in idle else value for name, value in dataclasses.asdict(config).items()}
    values["n_kv_heads"] = None if config.kv_heads == config.n_heads else config.kv_heads
    values["d_head"] = None if config.head_width * config.n_heads == config.d_model else config.head_width
    values["src_vocab_size"] = None if config.source_vocab_size == config.vocab_size else config.source_vocab_size
    if config.family != "encoder-decoder":
        values["src_vocab_size"] = None
        values["tying"] = "decoder" if config.is_output_tied else "none"
    return values


def unexpressed(config: ModelConfig, fixed: Mapping[str, Any], free: Collection[str]) -> list[str]:
    """What of a config an architecture cannot hold: fields that are neither free in it nor have its value.

    Args:
        config: Ours.
        fixed: Fields that the architecture has with one value; a field not named has our default.
        free: Fields that it can hold with any value.
    """
    defaults = {each.name: each.default for each in dataclasses.fields(ModelConfig)}
    wanted = defaults | dict(fixed)
    return [
        f"{name}={value} (it has {wanted[name]})"
        for name, value in canonical(config).items()
        if name not in free and value != wanted[name]
    ]
