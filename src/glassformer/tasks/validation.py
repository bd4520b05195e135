"""Measures a translator while it trains, and at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

import torch
from torch import nn

from glassformer.config import Config, EvaluationConfig, Metric
from glassformer.data.batches import Batch, validation_batches
from glassformer.data.store import TokenStore
from glassformer.evaluation.perplexity import LossMeter
from glassformer.evaluation.scores import score
from glassformer.model import EncoderDecoder
from glassformer.tasks.translator import Translator
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.objectives import projected_cross_entropy

__all__ = ["Scoring", "TranslationValidator", "final_metrics", "in_time", "shuffled", "spread"]

# Outputs, references, config -> figures by name, and signatures.
Scoring = Callable[[list[str], list[str], Config], dict[str, Any]]
METRICS = frozenset(get_args(Metric))  # what is shown while a model trains

CHUNK_ROWS = 20  # rows translated between two looks at the clock; the loss takes ten times as many


class TranslationValidator:
    """Loss, perplexity, BLEU and chrF of a model on a fixed sample of the validation pairs.

    The sample is spread evenly over the data. BLEU and chrF come from greedy decoding; the loss is without label
    smoothing and the same for any batch size.
    """

    def __init__(
        self,
        store: TokenStore,
        config: Config,
        src_tokenizer: Tokenizer,
        tokenizer: Tokenizer,
        *,
        say: Callable[[str], None],
        scoring: Scoring | None = None,
    ) -> None:
        self.store, self.config, self.say = store, config, say
        self.scoring = scoring or translation_scores
        self.src_tokenizer, self.tokenizer = src_tokenizer, tokenizer

    def __call__(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, EncoderDecoder)
        meter = self.loss(model, self.config.validation.rows)
        figures = {"loss": meter.loss, "perplexity": meter.perplexity}
        rows = spread(len(self.store), self.config.validation.bleu_rows)
        if rows:
            sources, references = _texts(self.store, rows, self.src_tokenizer, self.tokenizer)
            greedy = replace(self.config.generation, beam_size=1, n_best=1, do_sample=False)
            translator = _translator(model, self.config, self.src_tokenizer, self.tokenizer)
            outputs = [t.text for t in translator.translate(sources, generation=greedy)]
            scores = self.scoring(outputs, references, self.config)
            figures |= {name: value for name, value in scores.items() if name in METRICS}
            for i in range(min(self.config.validation.samples, len(rows))):
                self.say(f"  {sources[i]}\n  -> {outputs[i]}\n   = {references[i]}")
        return figures

    @torch.no_grad()
    def loss(self, model: EncoderDecoder, n_rows: int | None = None) -> LossMeter:
        """Negative log-likelihood over n_rows pairs (all when left out)."""
        rows = spread(len(self.store), n_rows) if n_rows else None
        return dataset_loss(model, self.store, self.config, rows)


def _translator(model: EncoderDecoder, config: Config, src_tokenizer: Tokenizer, tokenizer: Tokenizer) -> Translator:
    """A translator of stored texts, which have their prefix already."""
    return Translator(
        model,
        src_tokenizer,
        tokenizer,
        config.generation,
        max_src_tokens=config.data.max_tokens,
        is_whole=config.task.name == "summarize",
    )


def translation_scores(outputs: list[str], references: list[str], config: Config) -> dict[str, Any]:
    """BLEU, chrF and exact match, with signatures."""
    scores = score(outputs, references, use_ter=False, config=EvaluationConfig(n_resamples=0))
    return {
        "bleu": scores.bleu.value,
        "bleu_signature": scores.bleu.signature,
        "chrf": scores.chrf.value,
        "chrf_signature": scores.chrf.signature,
        "exact_match": scores.exact_match.value,
    }


@torch.no_grad()
def dataset_loss(
    model: EncoderDecoder, store: TokenStore, config: Config, rows: Sequence[int] | None = None
) -> LossMeter:
    """Plain negative log-likelihood of the targets of some rows, or of all; independent of the batch size."""
    meter = LossMeter()
    for batch in validation_batches(
        store,
        rows=rows,
        batch_tokens=config.data.batch_tokens or 3000,
        pad_id=model.config.pad_id or 0,
        bos_id=model.config.bos_id,
        eos_id=model.config.eos_id,
    ):
        meter.add(_nll(model, batch), batch.n_tokens)
    return meter


def _nll(model: EncoderDecoder, batch: Batch) -> float:
    device = model.decoder.embedding.tokens.weight.device
    batch = batch.to(device)
    projection = model.decoder.projection
    features = model.features(batch.src, batch.tgt_in) * projection.scale
    _, nll = projected_cross_entropy(
        features, projection.weight, projection.bias, batch.tgt_out, pad_id=model.config.pad_id or 0, smoothing=0.0
    )
    return float(nll)


def final_metrics(
    model: EncoderDecoder,
    store: TokenStore,
    config: Config,
    src_tokenizer: Tokenizer,
    tokenizer: Tokenizer,
    *,
    time_s: float | None,
    scoring: Scoring | None = None,
) -> dict[str, Any]:
    """Loss, and the scores of the model's own search (BLEU, chrF, exact match), on all rows or as time allows.

    Rows are taken in an order spread over the data, so that a part of them is a fair sample; how many were taken is
    in `loss_rows` and `bleu_rows`. The loss has a quarter of the time.
    """
    model.eval()
    order = shuffled(len(store))
    started = time.monotonic()
    meter, n_loss_rows = LossMeter(), 0
    for rows in in_time(order, 10 * CHUNK_ROWS, None if time_s is None else time_s / 4):
        meter.merge(dataset_loss(model, store, config, rows))
        n_loss_rows += len(rows)
    translator = _translator(model, config, src_tokenizer, tokenizer)
    outputs: list[str] = []
    references: list[str] = []
    for rows in in_time(order, CHUNK_ROWS, None if time_s is None else time_s - (time.monotonic() - started)):
        sources, wanted = _texts(store, rows, src_tokenizer, tokenizer)
        outputs += [translation.text for translation in translator.translate(sources)]
        references += wanted
    return {
        "loss": meter.loss,
        "perplexity": meter.perplexity,
        **(scoring or translation_scores)(outputs, references, config),
        "loss_rows": n_loss_rows,
        "bleu_rows": len(outputs),
        "rows": len(store),
    }


def in_time(rows: list[int], size: int, time_s: float | None) -> Iterator[list[int]]:
    """Chunks of rows: the first one always, a further one while it is likely to end within time_s seconds."""
    started = time.monotonic()
    for number, start in enumerate(range(0, len(rows), size)):
        spent = time.monotonic() - started
        if time_s is not None and number and spent * (number + 1) / number > time_s:
            return
        yield rows[start : start + size]


def _texts(
    store: TokenStore, rows: list[int], src_tokenizer: Tokenizer, tokenizer: Tokenizer
) -> tuple[list[str], list[str]]:
    """The texts of some rows, back from their ids (the tokenizers lose nothing but what normalisation changes)."""
    sources = src_tokenizer.decode_batch([store.src(i).tolist() for i in rows])
    references = tokenizer.decode_batch([store.tgt(i).tolist() for i in rows])
    return sources, references


def spread(n: int, wanted: int) -> list[int]:
    """Up to `wanted` of n rows at equal distances."""
    wanted = min(wanted, n)
    return [i * n // wanted for i in range(wanted)]


def shuffled(n: int) -> list[int]:
    """All rows, in a fixed order that mixes the parts of the data."""
    generator = torch.Generator().manual_seed(0)
    return torch.randperm(n, generator=generator).tolist()
