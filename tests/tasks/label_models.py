"""Models that vote for labels, with random weights whose votes differ clearly from text to text; tiny runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassformer.model import EncoderOnly
from glassformer.tasks.classifier import Classifier
from glassformer.tasks.labeller import Labeller
from glassformer.text.label_set import LabelSet
from glassformer.text.tags import Scheme
from helpers import tiny_config
from tasks.small_models import build, tokenizer

TAGS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
SETTINGS = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.n_heads": 2,
    "model.n_encoder_layers": 1,
    "model.n_decoder_layers": 0,
    "model.family": "encoder-only",
    "tokenizer.vocab_size": 300,
    "data.batch_tokens": 300,
    "training.precision": "float32",
    "training.n_threads": 1,
    "training.log_every": 1,
    "validation.samples": 0,
}


def label_set(names: tuple[str, ...], *, scheme: Scheme = "none", n_texts: int = 1) -> LabelSet:
    return LabelSet(names, tuple(range(1, len(names) + 1)), sum(range(len(names) + 1)), scheme, n_texts)


def classifier(*, n_texts: int = 1, is_multi_label: bool = False, max_tokens: int = 70, **changes: Any) -> Classifier:
    labels = label_set(("bad", "good", "so so"), n_texts=n_texts)
    model = _model("classify", labels, n_segments=2 if n_texts > 1 else 0, **changes)
    return Classifier(model, tokenizer(), labels, is_multi_label=is_multi_label, max_tokens=max_tokens)


def labeller(*, max_tokens: int = 70, scheme: Scheme = "BIO", **changes: Any) -> Labeller:
    labels = label_set(TAGS, scheme=scheme)
    return Labeller(_model("label", labels, **changes), tokenizer(), labels, max_tokens=max_tokens)


def _model(head: str, labels: LabelSet, **changes: Any) -> EncoderOnly:
    sizes: dict[str, Any] = {"vocab_size": tokenizer().vocab_size, "head": head, "n_labels": len(labels)}
    model = build(tiny_config("encoder-only", **(sizes | {"use_bos": True, "n_encoder_layers": 2} | changes)))
    assert isinstance(model, EncoderOnly)
    return model


def train_arguments(data: Path, out: Path, task: str, steps: int, **settings: Any) -> list[str]:
    """The command line of a tiny run; a setting's `__` stands for the dot."""
    changed = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
    sets = [text for name, value in changed.items() for text in ("--set", f"{name}={value}")]
    return ["train", str(data), "--task", task, "--steps", str(steps), "--out", str(out), *sets]
