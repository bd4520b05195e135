"""The task of pairs: translation, and whatever else turns one text into another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.config import Config, DataConfig
from glassformer.data.prepare import SourceForm, prepare
from glassformer.data.store import TokenStore
from glassformer.errors import DataError
from glassformer.model import EncoderDecoder, Model
from glassformer.tasks.model_card import model_card
from glassformer.tasks.run_folder import TrainingRequest
from glassformer.tasks.task import CorpusSize, Tokenizers
from glassformer.tasks.validation import TranslationValidator, final_metrics
from glassformer.text.checks import check
from glassformer.text.readers import PairReader
from glassformer.text.split import Part
from glassformer.training.objectives import Objective, TranslationObjective

__all__ = ["MAX_TOKENIZER_ROWS", "TranslationTask"]

MAX_TOKENIZER_ROWS = 200_000  # rows that the vocabulary is learned from; every k-th of more


class TranslationTask:
    """Trains an encoder-decoder from pairs of texts."""

    objective: Objective = TranslationObjective()

    def __init__(self, request: TrainingRequest, data: Path) -> None:
        self.request, self.config = request, request.resolved.config
        self.data_config = _bounded(self.config)
        self.source_form = SourceForm(prefix=self.config.task.prefix, use_bos=self.config.model.use_bos)

    def read(self) -> CorpusSize:
        data, request = self.data_config, self.request
        reader = self._reader(request.data)
        valid_reader = self._reader(request.valid) if request.valid else None
        report = check(reader, valid_reader, data)
        request.show_report(report)
        self.parts: dict[str, Any] = {"train": reader, "valid": valid_reader}
        if valid_reader is None:
            share = min(data.valid_rows / max(report.n_used, 1), 0.1)
            for name in self.parts:
                self.parts[name] = Part(reader, key=lambda pair: pair.src, valid_share=share, is_valid=name == "valid")
            if any(next(iter(part), None) is None for part in self.parts.values()):
                raise DataError(
                    f"{report.n_used:,} pairs are too few to hold some out for validation.",
                    "A tenth of them (or data.valid_rows) is held out.",
                    "Give more pairs, or others with --valid.",
                )
            request.say(
                f"Held out for validation: about {share:.1%} of the rows, chosen by their source text (no --valid)."
            )
        if request.test:
            self.parts["test"] = self._reader(request.test)
        self.step = max(1, -(-report.n_rows // MAX_TOKENIZER_ROWS))
        n_words, n_chars = (sum(getattr(side, name) for side in report.sides) for name in ("n_words", "n_chars"))
        return CorpusSize(report.n_rows, n_words, n_chars)

    def vocabularies(self) -> list[tuple[str, Iterable[str]]]:
        if self.step > 1:
            self.request.say(f"The vocabulary is learned from every {self.step}th row.")
        if self.config.tokenizer.is_shared:
            return [("tokenizer.json", self._texts("src", "tgt"))]
        return [("tokenizer.json", self._texts("tgt")), ("source_tokenizer.json", self._texts("src"))]

    def _texts(self, *sides: str) -> Iterator[str]:
        for pair in islice(self.parts["train"], 0, None, self.step):
            for side in sides:
                yield getattr(pair, side)

    def _reader(self, paths: Iterable[str]) -> PairReader:
        data = self.config.data
        return PairReader(list(paths), src=data.src, tgt=data.tgt, encoding=data.encoding, is_strict=data.is_strict)

    def prepare(self, part: str, folder: Path, tokenizers: Tokenizers) -> None:
        config = self.config.tokenizer
        prepare(
            self.parts[part],
            tokenizers.src,
            tokenizers.tgt,
            folder,
            self.data_config,
            form=self.source_form,
            n_variants=config.n_variants,
            bpe_dropout=config.bpe_dropout if part == "train" else 0.0,
        )

    def validator(
        self, store: TokenStore, config: Config, tokenizers: Tokenizers, say: Callable[[str], None]
    ) -> Callable[[nn.Module], dict[str, float]]:
        return TranslationValidator(store, config, tokenizers.src, tokenizers.tgt, say=say)

    def final_metrics(
        self, model: Model, store: TokenStore, config: Config, tokenizers: Tokenizers, *, time_s: float | None
    ) -> dict[str, Any]:
        assert isinstance(model, EncoderDecoder)
        return final_metrics(model, store, config, tokenizers.src, tokenizers.tgt, time_s=time_s)

    def summary(self, metrics: dict[str, Any], config: Config) -> str:
        return (
            f"loss {metrics['loss']:.3f}, BLEU {metrics['bleu']:.1f}, chrF {metrics['chrf']:.1f}, "
            f"exact match {metrics['exact_match']:.1f} % on {metrics['bleu_rows']:,} rows (beam "
            f"{config.generation.beam_size})"
        )

    def card(self, config: Config, metrics: dict[str, Any], command: str, n_examples: int) -> str:
        return model_card(config, metrics, data=self.request.data, command=command, n_pairs=n_examples)


def _bounded(config: Config) -> DataConfig:
    """The settings of the data, where no text is longer than the model has positions."""
    bound = config.model.max_positions or config.data.max_tokens
    return replace(config.data, max_tokens=min(config.data.max_tokens, bound))
