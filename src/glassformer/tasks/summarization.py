"""The task of summarization: a long text and its summary, scored by ROUGE."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.config import Config
from glassformer.data.store import TokenStore
from glassformer.evaluation.rouge import ROUGE_NAMES, Rouge
from glassformer.evaluation.scores import Counts
from glassformer.model import EncoderDecoder, Model
from glassformer.shapes import total
from glassformer.tasks.model_card import file_names, filled_card
from glassformer.tasks.run_folder import TrainingRequest
from glassformer.tasks.segments import as_one_line
from glassformer.tasks.task import Tokenizers
from glassformer.tasks.translation import TranslationTask
from glassformer.tasks.validation import TranslationValidator, final_metrics
from glassformer.text.readers import Pair, PairReader
from glassformer.text.report import Report

__all__ = ["SummarizationTask", "summary_settings"]

MAX_TOKENS = 512  # of a text: more of it is read than of a sentence
LENGTH_SHARE = 0.5  # of the text's tokens that a summary may have, beside generation.max_length_b
# Findings about pairs of translations, which say nothing about summaries.
_OF_TRANSLATIONS = frozenset({"numbers differ", "placeholders differ", "swapped sides", "wrong language"})


def summary_settings(config: Config, chosen: Collection[str], say: Callable[[str], None]) -> Config:
    """The settings for long texts with short summaries, where the user chose nothing; says which they are."""
    data, generation = config.data, config.generation
    if "data.max_length_ratio" not in chosen:
        data = replace(data, max_length_ratio=math.inf)
        say("data.max_length_ratio=inf: a summary is much shorter than its text.")
    if "data.max_tokens" not in chosen and data.max_tokens < MAX_TOKENS:
        data = replace(data, max_tokens=MAX_TOKENS)
        say(f"data.max_tokens={MAX_TOKENS}: longer texts are cut there, in training and in use.")
    if "generation.max_length_a" not in chosen and generation.max_new_tokens is None:
        generation = replace(generation, max_length_a=LENGTH_SHARE)
        say(f"generation.max_length_a={LENGTH_SHARE}: a summary may have half as many tokens as its text.")
    return replace(config, data=data, generation=generation)


def rouge_scores(outputs: list[str], references: list[str], config: Config) -> dict[str, Any]:
    """ROUGE F1 in per cent, each with its 95 % bootstrap interval, and the signature."""
    scores = Counts(outputs, references, use_ter=False, rouge_language=config.data.tgt).scores().rouge
    figures: dict[str, Any] = {}
    for each in scores:
        figures |= {each.name: each.value, f"{each.name}_low": each.low, f"{each.name}_high": each.high}
    return figures | {"rouge_signature": scores[0].signature}


class SummarizationTask(TranslationTask):
    """Trains an encoder-decoder from pairs of a text and its summary. A text that is too long is cut, not left out."""

    def __init__(self, request: TrainingRequest, data: Path) -> None:
        Rouge(is_english=True)  # says at once when its package is missing
        super().__init__(replace(request, show_report=lambda report: request.show_report(_of_summaries(report))), data)
        self.source_form = replace(self.source_form, is_cut=True)

    def _reader(self, paths: Iterable[str]) -> PairReader:
        data = self.config.data
        return _Lines(list(paths), src=data.src, tgt=data.tgt, encoding=data.encoding, is_strict=data.is_strict)

    def prepare(self, part: str, folder: Path, tokenizers: Tokenizers) -> None:
        super().prepare(part, folder, tokenizers)
        n_cut = TokenStore.open(folder).info.n_cut
        if n_cut:
            limit = self.data_config.max_tokens
            self.request.say(f"{part}: {n_cut:,} texts of more than {limit} tokens were cut at their end.")

    def validator(
        self, store: TokenStore, config: Config, tokenizers: Tokenizers, say: Callable[[str], None]
    ) -> Callable[[nn.Module], dict[str, float]]:
        return TranslationValidator(store, config, tokenizers.src, tokenizers.tgt, say=say, scoring=rouge_scores)

    def final_metrics(
        self, model: Model, store: TokenStore, config: Config, tokenizers: Tokenizers, *, time_s: float | None
    ) -> dict[str, Any]:
        assert isinstance(model, EncoderDecoder)
        metrics = final_metrics(
            model, store, config, tokenizers.src, tokenizers.tgt, time_s=time_s, scoring=rouge_scores
        )
        metrics["rouge_rows"] = metrics.pop("bleu_rows")
        return metrics

    def summary(self, metrics: dict[str, Any], config: Config) -> str:
        shown = ", ".join(f"ROUGE-{name.removeprefix('rouge')} {metrics[name]:.1f}" for name in ROUGE_NAMES)
        beam = config.generation.beam_size
        return f"loss {metrics['loss']:.3f}, {shown} on {metrics['rouge_rows']:,} rows (beam {beam})"

    def card(self, config: Config, metrics: dict[str, Any], command: str, n_examples: int) -> str:
        model, limit = config.model, config.data.max_tokens
        return filled_card(
            "Summaries",
            metrics,
            command=command,
            model=f"Encoder-decoder Transformer, {total(model):,} parameters: {model.n_encoder_layers} + "
            f"{model.n_decoder_layers} layers, width {model.d_model}, vocabulary {model.vocab_size:,}.",
            data=f"{n_examples:,} texts with summaries of {file_names(self.request.data)}; a text of more than {limit} "
            "tokens was cut at its end.",
            limits=f"It reads the first {limit} tokens of a text and nothing after them. It may leave out what matters "
            "and state what the text does not: check what matters.",
        )


class _Lines(PairReader):
    """Texts and summaries as one line each, as they are read in use."""

    def __iter__(self) -> Iterator[Pair]:
        for pair in super().__iter__():
            yield replace(pair, src=as_one_line(pair.src), tgt=as_one_line(pair.tgt))


def _of_summaries(report: Report) -> Report:
    return replace(report, findings=[found for found in report.findings if found.name not in _OF_TRANSLATIONS])
