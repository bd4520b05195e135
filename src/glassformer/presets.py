"""Named architectures. What a preset does not name keeps its default of `config.py`.

Counts of parameters (`glassformer info NAME`, proved by tests):

- `paper-base` has 63,045,632 with 37,000 shared tokens, 63 M where table 3 of the paper says 65 M; the paper gives its
  vocabulary as "about 37,000" and does not say what it counts. Its attention projections are matrices without biases
  (section 3.2.2); biases would add 36,864 only.
- `paper-big` has 214,171,648; the paper says 213 M.
- `bert-base` counts the pooler and leaves out the masked-LM head, as the published 109,482,240 does. The head
  (`use_mlm_head`) adds 622,650: dense 590,592, norm 1,536, output bias 30,522; its projection is the token table.
- `gpt2` is the published 124,439,808: the output projection is the token table and counts once.
- `t5-small` is the published 60,506,624: one table for source, target and output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError, suggestion

__all__ = ["PRESETS", "REASONS", "TASK_DEFAULTS", "preset_config", "require_read"]

_PAPER: dict[str, Any] = {
    "family": "encoder-decoder",
    "vocab_size": 37000,
    "n_encoder_layers": 6,
    "n_decoder_layers": 6,
    "positions": "sinusoidal",
    "sinusoid_layout": "interleaved",
    "norm": "layernorm",
    "norm_placement": "post",
    "norm_eps": 1e-6,  # not in the paper; the authors' tensor2tensor has it
    "use_final_norm": False,
    "activation": "relu",
    "scale_embedding": True,
    "tying": "all",
    "use_attention_bias": False,
    "use_ffn_bias": True,
    "use_norm_bias": True,
}

PRESETS: dict[str, dict[str, Any]] = {
    "paper-base": _PAPER | {"d_model": 512, "d_ff": 2048, "n_heads": 8, "dropout": 0.1},
    "paper-big": _PAPER | {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3},
    "tiny": {
        "vocab_size": 4000,
        "d_model": 128,
        "d_ff": 512,
        "n_heads": 4,
        "n_encoder_layers": 2,
        "n_decoder_layers": 2,
    },
    "small": {
        "vocab_size": 8000,
        "d_model": 256,
        "d_ff": 1024,
        "n_heads": 4,
        "n_encoder_layers": 3,
        "n_decoder_layers": 3,
    },
    "medium": {
        "vocab_size": 16000,
        "d_model": 512,
        "d_ff": 2048,
        "n_heads": 8,
        "n_encoder_layers": 6,
        "n_decoder_layers": 6,
    },
    "bert-base": {
        "family": "encoder-only",
        "vocab_size": 30522,
        "d_model": 768,
        "d_ff": 3072,
        "n_heads": 12,
        "n_encoder_layers": 12,
        "n_decoder_layers": 0,
        "positions": "learned",
        "max_positions": 512,
        "n_segments": 2,
        "norm_placement": "post",
        "norm_eps": 1e-12,
        "use_embedding_norm": True,
        "use_final_norm": False,
        "activation": "gelu",
        "scale_embedding": False,
        "use_attention_bias": True,
        "use_pooler": True,
        "attention_dropout": 0.1,
        "pad_id": 0,
        "unk_id": 100,
        "bos_id": 101,  # [CLS]
        "eos_id": 102,  # [SEP]
    },
    "gpt2": {
        "family": "decoder-only",
        "vocab_size": 50257,
        "d_model": 768,
        "d_ff": 3072,
        "n_heads": 12,
        "n_encoder_layers": 0,
        "n_decoder_layers": 12,
        "positions": "learned",
        "max_positions": 1024,
        "activation": "gelu_tanh",
        "scale_embedding": False,
        "use_attention_bias": True,
        "tying": "decoder",
        "attention_dropout": 0.1,
        "pad_id": 50256,  # GPT-2 has one special token, <|endoftext|>, for every purpose
        "bos_id": 50256,
        "eos_id": 50256,
        "unk_id": 50256,
    },
    "t5-small": {
        "family": "encoder-decoder",
        "vocab_size": 32128,
        "d_model": 512,
        "d_ff": 2048,
        "n_heads": 8,
        "d_head": 64,
        "n_encoder_layers": 6,
        "n_decoder_layers": 6,
        "positions": "t5_relative",
        "n_relative_buckets": 32,
        "max_relative_distance": 128,
        "norm": "rmsnorm",
        "norm_eps": 1e-6,
        "activation": "relu",
        "scale_embedding": False,
        "scale_scores": False,
        "scale_logits": True,
        "tying": "all",
        "use_ffn_bias": False,
        "use_norm_bias": False,
        "attention_dropout": 0.1,
        "ffn_dropout": 0.1,
        "pad_id": 0,
        "bos_id": 0,  # T5 starts a target with the padding token
        "eos_id": 1,
        "unk_id": 2,
    },
}

REASONS: dict[str, str] = {
    "paper-base": "Vaswani et al. 2017, base, to the letter: post-norm, one shared table, 37,000 tokens",
    "paper-big": "Vaswani et al. 2017, big: twice as wide, 16 heads, dropout 0.3 (English-German)",
    "tiny": "for a first look and for tests: learns a phrasebook in minutes on two cores",
    "small": "for a laptop and some ten thousand pairs: good translations within the hour on two cores",
    "medium": "the widths of 2017 with pre-norm: for a million pairs and a night, or a GPU",
    "bert-base": "BERT base, uncased, with pooler: 109,482,240 parameters as published",
    "gpt2": "GPT-2, the smallest: 124,439,808 parameters as published",
    "t5-small": "T5 v1.0 small: 60,506,624 parameters as published",
}


# Settings whose default is another one in a task: "section.key" -> value. Smoothing would spoil a perplexity.
_NO_SMOOTHING: dict[str, object] = {"training.label_smoothing": 0.0}
TASK_DEFAULTS: dict[str, dict[str, object]] = {
    "lm": _NO_SMOOTHING,
    "mlm": _NO_SMOOTHING,
    "denoise": _NO_SMOOTHING | {"tokenizer.n_sentinels": 100},
    "embed": _NO_SMOOTHING,
}

_WRITING = ("translate", "summarize", "lm", "denoise")  # tasks whose models write text
# Settings that only some tasks read: "section.key", or "section." for all of its keys -> these tasks, and the values
# that say no more than what the other tasks do anyway.
_READ_BY: dict[str, tuple[tuple[str, ...], tuple[object, ...]]] = {
    "task.prefix": (("translate", "summarize"), ("",)),
    "task.mask_share": (("mlm", "denoise"), ()),
    "task.use_whole_words": (("mlm",), (False,)),
    "task.mean_span": (("denoise",), ()),
    "task.is_multi_label": (("classify",), (False,)),
    "task.use_class_weights": (("classify", "label"), (False,)),
    "task.has_negatives": (("embed",), (False,)),
    "task.similarity_scale": (("embed",), ()),
    "task.min_width": (("embed",), (None,)),
    "data.document": (("lm", "mlm", "denoise"), ("line",)),
    "data.across_documents": (("lm",), (False,)),
    "data.drop_copies": (("translate", "summarize", "embed"), (False,)),
    "data.max_length_ratio": (("translate", "summarize", "embed"), (float("inf"),)),
    "training.init": (("translate", "summarize"), ("auto", "random")),
    "training.label_smoothing": ((*_WRITING, "mlm", "classify", "label"), (0.0,)),
    "validation.bleu_rows": (("translate", "summarize"), (0,)),
    "validation.samples": ((*_WRITING, "mlm", "classify", "label"), (0,)),
    "generation.": (_WRITING, ()),
}

# The figures that a validation of each task gives, among which `validation.metric` chooses.
_FIGURES: dict[str, tuple[str, ...]] = {
    "translate": ("loss", "bleu", "chrf"),
    "summarize": ("loss", "rouge1", "rouge2", "rougeL"),
    "mlm": ("loss", "accuracy"),
    "lm": ("loss",),
    "denoise": ("loss",),
    "embed": ("loss", "recall@1", "recall@10", "ndcg@10", "mrr"),
    "classify": ("loss", "accuracy", "macro_f1", "micro_f1"),
    "label": ("loss", "accuracy", "macro_f1", "entity_f1"),
}


def require_read(task: str, chosen: Mapping[str, object]) -> None:
    """Refuses settings ("section.key" -> value, chosen by the user) that a training of this task would not read.

    Raises:
        ConfigError: With the name of the setting and the tasks that read it.
    """
    for name, value in chosen.items():
        tasks, harmless = _READ_BY.get(name) or _READ_BY.get(f"{name.partition('.')[0]}.", ((task,), ()))
        if task not in tasks and value not in harmless:
            raise ConfigError(
                f"{name}={value} has no effect with --task {task}.",
                f"It is read by {_listed(tasks)}.",
                f"Leave out {name}, or choose another --task.",
            )
    metric = chosen.get("validation.metric", "loss")
    if metric not in _FIGURES[task]:
        raise ConfigError(
            f"validation.metric={metric} is no figure of --task {task}.",
            f"One of {', '.join(_FIGURES[task])} was expected.",
            "Choose one of these.",
        )


def _listed(tasks: Iterable[str]) -> str:
    return ", ".join(f"--task {task}" for task in tasks)


def preset_config(name: str) -> ModelConfig:
    """Builds the architecture of a preset.

    Raises:
        ConfigError: If there is no preset of this name.
    """
    if name not in PRESETS:
        raise ConfigError(f"preset={name!r} is unknown.", "A preset names an architecture.", suggestion(name, PRESETS))
    return ModelConfig(**PRESETS[name])
