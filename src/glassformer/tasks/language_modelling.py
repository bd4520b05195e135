"""The task of the next token: a language model (GPT) from documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from glassformer.config import Config
from glassformer.data.store import TokenStore
from glassformer.evaluation.perplexity import LossMeter
from glassformer.model import DecoderOnly, Model
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.raw_text import RawTextTask
from glassformer.tasks.task import Tokenizers
from glassformer.tasks.validation import in_time, shuffled, spread
from glassformer.training.causal import CausalObjective

__all__ = ["LanguageModelTask", "LanguageModelValidator"]

CHUNK_DOCUMENTS = 50  # documents measured between two looks at the clock
SAMPLE_TOKENS = 30  # of a text shown at a validation
PROMPT_TOKENS = 4


class LanguageModelTask(RawTextTask):
    """Trains a decoder-only model to predict each token of a document from those before it."""

    objective = CausalObjective()
    title = "Language model"

    def validator(
        self, store: TokenStore, config: Config, tokenizers: Tokenizers, say: Callable[[str], None]
    ) -> LanguageModelValidator:
        return LanguageModelValidator(store, config, tokenizers, say)

    def final_metrics(
        self, model: Model, store: TokenStore, config: Config, tokenizers: Tokenizers, *, time_s: float | None
    ) -> dict[str, Any]:
        validator = LanguageModelValidator(store, config, tokenizers, self.request.say)
        meter, n_documents = LossMeter(), 0
        for rows in in_time(shuffled(len(store)), CHUNK_DOCUMENTS, time_s):
            meter.merge(validator.measure(model, rows))
            n_documents += len(rows)
        counts = {"tokens": meter.n_tokens, "words": meter.n_words, "bytes": meter.n_bytes}
        return _figures(meter) | counts | {"loss_documents": n_documents, "documents": len(store)}

    def summary(self, metrics: dict[str, Any], config: Config) -> str:
        return (
            f"loss {metrics['loss']:.3f}, perplexity {metrics['perplexity']:.1f} a token, "
            f"{metrics['word_perplexity']:.1f} a word, {metrics['bits_per_byte']:.3f} bits a byte, on "
            f"{metrics['loss_documents']:,} documents"
        )

    @property
    def limits(self) -> str:
        return (
            "It knows the kind of text that it was trained on, and goes on in its manner; what it says need not be "
            "true. Perplexities are exp(-log p / n) with the log-probability of all tokens of a document, its end "
            "among them, divided by its tokens with the end, or by its words (what white space separates)."
        )


class LanguageModelValidator:
    """Perplexity of a model on documents, each read by itself: the same whatever the batch and the other documents.

    A document of more than data.max_tokens tokens is read in windows that overlap by a half; every token counts once.
    With samples, the beginnings of some documents are continued by the most probable tokens, and shown.
    """

    def __init__(self, store: TokenStore, config: Config, tokenizers: Tokenizers, say: Callable[[str], None]) -> None:
        self.store, self.config, self.tokenizer, self.say = store, config, tokenizers.tgt, say
        self.rows = spread(len(store), config.validation.rows)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, DecoderOnly)
        self._show(model, self.rows[: self.config.validation.samples])
        return _figures(self.measure(model, self.rows))

    def measure(self, model: Model, rows: Sequence[int]) -> LossMeter:
        """The figures of some documents."""
        assert isinstance(model, DecoderOnly)
        texts = self.tokenizer.decode_batch([self.store.src(i).tolist() for i in rows])
        meter = LossMeter()
        data = self.config.data
        generator = TextGenerator(model, self.tokenizer, self.config.generation)
        for score in generator.score(texts, context=data.max_tokens, batch_tokens=data.batch_tokens or 8192):
            meter.merge(score.meter)
        return meter

    def _show(self, model: DecoderOnly, rows: Sequence[int]) -> None:
        prompts = self.tokenizer.decode_batch([self.store.src(i)[:PROMPT_TOKENS].tolist() for i in rows])
        greedy = replace(self.config.generation, beam_size=1, n_best=1, do_sample=False, max_new_tokens=SAMPLE_TOKENS)
        made = TextGenerator(model, self.tokenizer, greedy).generate(prompts)
        for prompt, completion in zip(prompts, made, strict=True):
            self.say(f"  {prompt} -> {completion.text}")


def _figures(meter: LossMeter) -> dict[str, float]:
    return {
        "loss": meter.loss,
        "perplexity": meter.perplexity,
        "word_perplexity": meter.perplexity_per_word,
        "byte_perplexity": meter.perplexity_per_byte,
        "bits_per_byte": meter.bits_per_byte,
    }
