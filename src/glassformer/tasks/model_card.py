"""The README.md of a model folder: what the model is, what it was made from, how good it is, and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer import __version__
from glassformer.config import Config
from glassformer.shapes import total

__all__ = ["model_card"]


def model_card(config: Config, metrics: dict[str, Any], *, data: Sequence[str], command: str, n_pairs: int) -> str:
    """Fills the card from the config and the figures; a figure that is not there is not made up."""
    model, direction = config.model, f"{config.data.src} to {config.data.tgt}"
    names = ", ".join(Path(name).name for name in data)
    figures = metrics.get("validation", metrics)
    rows = [
        f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value:.4g} |"
        for name, value in figures.items()
        if isinstance(value, int | float)
    ]
    signatures = [f"- {name}: `{metrics[name]}`" for name in ("bleu_signature", "chrf_signature") if name in metrics]
    return "\n".join(
        [
            f"# Translator from {direction}",
            "",
            f"Made by glassformer {__version__} with",
            "",
            f"    {command}",
            "",
            "## Model",
            "",
            f"Encoder-decoder Transformer, {total(model):,} parameters: {model.n_encoder_layers} + "
            f"{model.n_decoder_layers} layers, width {model.d_model}, {model.n_heads} heads, "
            f"feed-forward {model.d_ff}, vocabulary {model.vocab_size:,}.",
            "",
            "## Data",
            "",
            f"{n_pairs:,} pairs of {names}; sides of more than {config.data.max_tokens} tokens were left out.",
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
            f"It knows the kind of text that it was trained on. Texts of more than {config.data.max_tokens} tokens are "
            "split at sentence ends. It may drop, repeat or invent words, and change numbers and names: check what "
            "matters.",
            "",
        ]
    )
