"""A model folder with random weights whose outputs differ clearly from text to text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from glassformer.config import Config, DataConfig, GenerationConfig, ModelConfig, TokenizerConfig
from glassformer.model import EncoderDecoder, Model
from glassformer.phrasebook import generate
from glassformer.tasks import Translator
from glassformer.tasks.model_folder import save_model_folder
from glassformer.text.tokenizer import Tokenizer
from helpers import build_tiny, tiny_config

LONG = "a long sentence with many words in it, and then some more of them, so that it is not short"


@cache
def tokenizer(seed: int = 1) -> Tokenizer:
    return Tokenizer.train([side for pair in generate(100, seed) for side in pair], TokenizerConfig(), vocab_size=300)


def build(settings: ModelConfig) -> Model:
    """Matrices three times as large as fresh ones, so that the outputs tell the texts apart."""
    model = build_tiny(settings)
    for name, parameter in model.named_parameters():
        if ".blocks." in name and parameter.ndim > 1:
            parameter.data *= 3
    return model


def config(max_tokens: int = 70, **changes: Any) -> Config:
    sizes: dict[str, Any] = {"vocab_size": tokenizer().vocab_size, "n_decoder_layers": 1}
    return Config(
        model=tiny_config(**(sizes | changes)),
        data=DataConfig(src="en", tgt="fr", max_tokens=max_tokens),
        generation=GenerationConfig(max_length_a=1.0, max_length_b=3),
    )


def save_folder(path: Path, *, settings: Config | None = None, source: Tokenizer | None = None) -> Path:
    """Writes a model folder; `source` is a vocabulary of the source's own."""
    settings = settings or config()
    model = build(settings.model)
    save_model_folder(
        path,
        config=settings,
        weights={name: p.detach() for name, p in model.named_parameters()},
        tokenizer=tokenizer(),
        src_tokenizer=source or tokenizer(),
        metrics={"bleu": 1.0},
        card="# A model\n",
    )
    return path


def make_translator(**changes: Any) -> Translator:
    settings = config(**changes)
    model = build(settings.model)
    assert isinstance(model, EncoderDecoder)
    return Translator(model, tokenizer(), tokenizer(), settings.generation, max_src_tokens=settings.data.max_tokens)
