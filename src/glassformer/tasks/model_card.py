"""The README.md of a model folder: what the model is, what it was made from, how good it is, and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer import __version__
from glassformer.config import Config
from glassformer.shapes import total

__all__ = ["file_names", "filled_card", "model_card"]


def model_card(config: Config, metrics: dict[str, Any], *, data: Sequence[str], command: str, n_pairs: int) -> str:
    """The card of a translator."""
    model = config.model
    return filled_card(
        f"Translator from {config.data.src} to {config.data.tgt}",
        metrics,
        command=command,
        model=f"Encoder-decoder Transformer, {total(model):,} parameters: {model.n_encoder_layers} + "
        f"{model.n_decoder_layers} layers, width {model.d_model}, {model.n_heads} heads, "
        f"feed-forward {model.d_ff}, vocabulary {model.vocab_size:,}.",
        data=f"{n_pairs:,} pairs of {file_names(data)}; sides of more than {config.data.max_tokens} tokens were left "
        "out.",
        limits="It knows the kind of text that it was trained on. Texts of more than "
        f"{config.data.max_tokens} tokens are split at sentence ends. It may drop, repeat or invent words, and change "
        "numbers and names: check what matters.",
    )


def file_names(data: Sequence[str]) -> str:
    """The names of the data files, without their folders."""
    return ", ".join(Path(name).name for name in data)


def filled_card(title: str, metrics: dict[str, Any], *, command: str, model: str, data: str, limits: str) -> str:
    """Fills the card of any model; a figure that is not there is not made up."""
    figures = metrics.get("validation", metrics)
    rows = [
        f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value:.4g} |"
        for name, value in figures.items()
        if isinstance(value, int | float)
    ]
    signatures = [f"- {name}: `{value}`" for name, value in metrics.items() if name.endswith("_signature")]
    return "\n".join(
        [
            f"# {title}",
            "",
            f"Made by glassformer {__version__} with",
            "",
            f"    {command}",
            "",
            "## Model",
            "",
            model,
            "",
            "## Data",
            "",
            data,
            "",
            f"## Figures on the {metrics.get('measured_on', 'validation')} rows",
            "",
            "| figure | value |",
            "| --- | --- |",
            *rows,
            "",
            *signatures,
            "",
            "## Limits",
            "",
            limits,
            "",
        ]
    )
