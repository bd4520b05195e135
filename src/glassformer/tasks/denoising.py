"""The task of hidden spans: an encoder-decoder (T5) from documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.config import Config
from glassformer.data.batches import Batch
from glassformer.data.store import TokenStore
from glassformer.evaluation.perplexity import LossMeter
from glassformer.generation.search import generate
from glassformer.model import EncoderDecoder, Model
from glassformer.tasks.decoding import ModelDecoding
from glassformer.tasks.raw_text import PiecewiseTask
from glassformer.tasks.run_folder import TrainingRequest
from glassformer.tasks.task import Tokenizers
from glassformer.tasks.validation import in_time, shuffled, spread
from glassformer.training.language_objectives import DenoisingObjective
from glassformer.training.objectives import TranslationLoss

__all__ = ["DenoisingTask", "DenoisingValidator"]

CHUNK_ROWS = 200  # rows measured between two looks at the clock
VALIDATION_SEED = 0  # of the spans, whatever the seed of the run


class DenoisingTask(PiecewiseTask):
    """Trains an encoder-decoder to write out the hidden spans of a text."""

    objective: DenoisingObjective
    title = "Text-to-text model, trained by span corruption"

    def __init__(self, request: TrainingRequest, data: Path) -> None:
        super().__init__(request, data)
        self.objective = DenoisingObjective(data / "tokenizer.json")

    def validator(
        self, store: TokenStore, config: Config, tokenizers: Tokenizers, say: Callable[[str], None]
    ) -> Callable[[nn.Module], dict[str, float]]:
        validator = DenoisingValidator(store, config, self.objective)

        def validate(model: nn.Module) -> dict[str, float]:
            assert isinstance(model, EncoderDecoder)
            for line in validator.samples(model):
                say(line)
            meter = validator.measure(model, spread(len(store), config.validation.rows))
            return {"loss": meter.loss, "perplexity": meter.perplexity}

        return validate

    def final_metrics(
        self, model: Model, store: TokenStore, config: Config, tokenizers: Tokenizers, *, time_s: float | None
    ) -> dict[str, Any]:
        assert isinstance(model, EncoderDecoder)
        validator = DenoisingValidator(store, config, self.objective)
        meter, n_rows = LossMeter(), 0
        for rows in in_time(shuffled(len(store)), CHUNK_ROWS, time_s):
            meter.merge(validator.measure(model, rows))
            n_rows += len(rows)
        return {
            "loss": meter.loss,
            "perplexity": meter.perplexity,
            "target_tokens": meter.n_tokens,
            "loss_rows": n_rows,
            "rows": len(store),
        }

    def summary(self, metrics: dict[str, Any], config: Config) -> str:
        return (
            f"loss {metrics['loss']:.3f}, perplexity {metrics['perplexity']:.1f} of {metrics['target_tokens']:,} "
            "target tokens (hidden text, sentinels and ends)"
        )

    @property
    def limits(self) -> str:
        return (
            "It fills gaps in the kind of text that it was trained on, and is a start for fine-tuning on pairs rather "
            "than an end. Its loss counts sentinels and ends too, which are easier than text."
        )


class DenoisingValidator:
    """Loss on rows whose hidden spans are the same at every validation, in every run."""

    def __init__(self, store: TokenStore, config: Config, objective: DenoisingObjective) -> None:
        fixed = replace(config, training=replace(config.training, seed=VALIDATION_SEED))
        self.store, self.config, self.tokenizer = store, config, objective.tokenizer
        self.plan = objective.batches(fixed, store)

    @torch.no_grad()
    def measure(self, model: EncoderDecoder, rows: Sequence[int]) -> LossMeter:
        """The negative log-likelihood of some rows' targets; it does not depend on the size of the batches."""
        loss, meter = TranslationLoss(model, smoothing=0.0), LossMeter()
        device = next(model.parameters()).device
        for some in self.plan.in_turn(np.array(rows)):
            batch = self.plan.batch(some).to(device)
            meter.add(float(loss(batch)[1]), batch.n_tokens)
        return meter

    @torch.no_grad()
    def samples(self, model: EncoderDecoder) -> Iterator[str]:
        """Some rows with their hidden spans, what the model writes for them, and what they were."""
        decode = self.tokenizer.decode
        for row in spread(len(self.store), self.config.validation.samples):
            batch = self.plan.batch(np.array([row]))
            written = self._written(model, batch)
            src, tgt = (decode(ids, skip_special=False) for ids in self.plan.pairs(np.array([row]))[0])
            yield f"  {src}\n  -> {decode(written, skip_special=False)}\n   = {tgt}"

    def _written(self, model: EncoderDecoder, batch: Batch) -> list[int]:
        """The most probable target, token by token, without its end; at most as long as the right one."""
        device = next(model.parameters()).device
        greedy = replace(self.config.generation, beam_size=1, n_best=1, do_sample=False, min_new_tokens=0)
        own = self.tokenizer
        forbidden = set(own.never_made) - set(own.sentinel_ids)
        limit = batch.tgt_out.shape[1]
        found = generate(
            ModelDecoding(model, max_length=limit + 1, src=batch.src.to(device)),
            batch.tgt_in[:, :1].to(device),
            greedy,
            eos_ids=[own.eos_id],
            forbidden_ids=sorted(forbidden | set(range(own.vocab_size, model.config.vocab_size))),
            max_new_tokens=torch.tensor([limit]),
        )
        return [token for token in found[0][0].ids if token != own.eos_id]
