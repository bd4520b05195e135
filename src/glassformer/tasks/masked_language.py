"""The task of hidden tokens: an encoder (BERT) from documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import Config
from glassformer.data.masking import MaskedBatch
from glassformer.data.packing import IGNORED
from glassformer.data.store import Integers, TokenStore
from glassformer.evaluation.perplexity import LossMeter
from glassformer.model import EncoderOnly, Model
from glassformer.tasks.raw_text import PiecewiseTask
from glassformer.tasks.run_folder import TrainingRequest
from glassformer.tasks.task import Tokenizers
from glassformer.tasks.validation import in_time, shuffled, spread
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.language_objectives import MaskedObjective

__all__ = ["MaskedLanguageTask", "MaskedValidator", "pseudo_perplexity", "unigram_entropy"]

CHUNK_ROWS = 200  # rows measured between two looks at the clock
PSEUDO_ROWS = 200  # most rows behind the pseudo-perplexity, which reads a row once for each of its tokens
VALIDATION_SEED = 0  # of the masks, whatever the seed of the run
_BLOCK_IDS = 1 << 22


class MaskedLanguageTask(PiecewiseTask):
    """Trains an encoder-only model to predict hidden tokens of a text from all the others."""

    objective: MaskedObjective
    title = "Masked language model"

    def __init__(self, request: TrainingRequest, data: Path) -> None:
        super().__init__(request, data)
        self.data, self.objective = data, MaskedObjective(data / "tokenizer.json")

    def _form(self) -> dict[str, Any]:
        return super()._form() | {"with_words": self.config.task.use_whole_words}

    def validator(
        self, store: TokenStore, config: Config, tokenizers: Tokenizers, say: Callable[[str], None]
    ) -> Callable[[nn.Module], dict[str, float]]:
        entropy = unigram_entropy(TokenStore.open(self.data / "train"))
        say(f"Entropy of the unigram distribution of the training tokens: {entropy:.3f} nats.")
        validator = MaskedValidator(store, config, self.objective)

        def validate(model: nn.Module) -> dict[str, float]:
            assert isinstance(model, EncoderOnly)
            for line in validator.samples(model):
                say(line)
            return validator.measure(model, spread(len(store), config.validation.rows)).figures()

        return validate

    def final_metrics(
        self, model: Model, store: TokenStore, config: Config, tokenizers: Tokenizers, *, time_s: float | None
    ) -> dict[str, Any]:
        assert isinstance(model, EncoderOnly)
        validator = MaskedValidator(store, config, self.objective)
        order, half_s = shuffled(len(store)), None if time_s is None else time_s / 2
        meter, n_rows = _Meter(), 0
        for rows in in_time(order, CHUNK_ROWS, half_s):
            meter.merge(validator.measure(model, rows))
            n_rows += len(rows)
        pseudo, n_pseudo = LossMeter(), 0
        for rows in in_time(order[:PSEUDO_ROWS], 10, half_s):
            pseudo.merge(pseudo_perplexity(model, store, tokenizers.tgt, rows, config))
            n_pseudo += len(rows)
        return meter.figures() | {
            "unigram_entropy": unigram_entropy(TokenStore.open(self.data / "train")),
            "pseudo_perplexity": pseudo.perplexity,
            "pseudo_perplexity_rows": n_pseudo,
            "predicted_tokens": meter.n_tokens,
            "loss_rows": n_rows,
            "rows": len(store),
        }

    def summary(self, metrics: dict[str, Any], config: Config) -> str:
        return (
            f"loss {metrics['loss']:.3f} (unigram entropy {metrics['unigram_entropy']:.3f}), accuracy "
            f"{metrics['accuracy']:.1%} of {metrics['predicted_tokens']:,} hidden tokens, pseudo-perplexity "
            f"{metrics['pseudo_perplexity']:.1f} on {metrics['pseudo_perplexity_rows']:,} rows"
        )

    @property
    def limits(self) -> str:
        share = self.config.task.mask_share
        return (
            "It fills gaps in the kind of text that it was trained on, and is a start for other tasks rather than an "
            f"end. Loss and accuracy are over the {share:.0%} of the tokens that were chosen to be predicted, those "
            "that were left visible among them. Pseudo-perplexity hides one token at a time (Salazar et al. 2020)."
        )


@dataclass
class _Meter(LossMeter):
    """Counts what was predicted right, too."""

    n_right: int = 0

    def merge(self, other: LossMeter) -> None:
        super().merge(other)
        assert isinstance(other, _Meter)
        self.n_right += other.n_right

    def figures(self) -> dict[str, float]:
        """Loss, perplexity and share of the hidden tokens whose most probable token is right."""
        accuracy = self.n_right / self.n_tokens if self.n_tokens else math.nan
        return {"loss": self.loss, "perplexity": self.perplexity, "accuracy": accuracy}


class MaskedValidator:
    """Loss and accuracy on rows whose masks are the same at every validation, in every run."""

    def __init__(self, store: TokenStore, config: Config, objective: MaskedObjective) -> None:
        fixed = replace(config, training=replace(config.training, seed=VALIDATION_SEED))
        self.store, self.config, self.tokenizer = store, config, objective.tokenizer
        self.plan = objective.batches(fixed, store)

    @torch.no_grad()
    def measure(self, model: EncoderOnly, rows: Sequence[int]) -> _Meter:
        """The figures of some rows; they do not depend on the size of the batches."""
        meter = _Meter()
        for some in self.plan.in_turn(np.array(rows)):
            logits, targets = _predictions(model, self.plan.batch(some))
            nll = nn.functional.cross_entropy(logits.double(), targets, reduction="sum")
            meter.add(float(nll), len(targets))
            meter.n_right += int((logits.argmax(-1) == targets).sum())
        return meter

    @torch.no_grad()
    def samples(self, model: EncoderOnly) -> Iterator[str]:
        """Some rows with what was hidden, and what the model makes of it."""
        for row in spread(len(self.store), self.config.validation.samples):
            batch = self.plan.batch(np.array([row]))
            best = _predictions(model, batch)[0].argmax(-1).cpu()
            filled = batch.ids.clone()
            filled[batch.targets != IGNORED] = best
            hidden = self.tokenizer.decode(_inside(batch.ids, self.tokenizer), skip_special=False)
            yield f"  {hidden}\n  -> {self.tokenizer.decode(_inside(filled, self.tokenizer), skip_special=False)}"
            yield f"   = {self.tokenizer.decode(self.store.src(row).tolist())}"


def _inside(ids: Tensor, tokenizer: Tokenizer) -> list[int]:
    """The ids of one row without what frames them."""
    return [i for i in ids[0].tolist() if i not in (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id)]


def _predictions(model: EncoderOnly, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
    """Logits of what was hidden [N, V] and what it was [N]."""
    assert model.mlm_head is not None
    batch = batch.to(next(model.parameters()).device)
    is_target = batch.targets != IGNORED
    logits: Tensor = model.mlm_head(model(batch.ids)[is_target])
    return logits, batch.targets[is_target]


@torch.no_grad()
def pseudo_perplexity(
    model: EncoderOnly, store: TokenStore, tokenizer: Tokenizer, rows: Sequence[int], config: Config
) -> LossMeter:
    """Sum over each token x_t of -log p(x_t | all other tokens of the row), with x_t alone hidden.

    `perplexity` of the result is the pseudo-perplexity exp(-PLL / N), N the tokens of all rows.

    Source: Salazar et al. 2020, equations 1 and 4.
    """
    meter = LossMeter()
    for row in rows:
        ids = store.src(row).astype(np.int64)
        n_together = max(1, (config.data.batch_tokens or 3000) // (len(ids) + 2))
        for start in range(0, len(ids), n_together):
            places = np.arange(start, min(start + n_together, len(ids)))
            batch = _one_hidden(ids, places, row, tokenizer, use_bos=config.model.use_bos)
            logits, targets = _predictions(model, batch)
            meter.add(float(nn.functional.cross_entropy(logits.double(), targets, reduction="sum")), len(places))
    return meter


def _one_hidden(ids: Integers, places: Integers, row: int, tokenizer: Tokenizer, *, use_bos: bool) -> MaskedBatch:
    """A text once for each of `places` [n], with the token there hidden."""
    start = [tokenizer.bos_id] if use_bos else []
    framed = torch.tensor([*start, *ids.tolist(), tokenizer.eos_id]).repeat(len(places), 1)
    targets = torch.full_like(framed, IGNORED)
    at = torch.arange(len(places)), torch.from_numpy(places) + len(start)
    targets[at] = framed[at]
    framed[at] = tokenizer.mask_id
    n_tokens = len(places)
    rows = torch.full((n_tokens,), row)
    return MaskedBatch(
        ids=framed, targets=targets, rows=rows, n_tokens=n_tokens, n_src_tokens=framed.numel() - n_tokens
    )


def unigram_entropy(store: TokenStore) -> float:
    """-sum_v p_v log p_v in nats, p_v the share of token v among those of the store.

    It is the loss of a model that knows how frequent each token is, and nothing of its context.
    """
    ids = store.sources.ids
    counts = np.zeros(int(ids.max(initial=0)) + 1, dtype=np.int64)
    for start in range(0, len(ids), _BLOCK_IDS):
        counts += np.bincount(ids[start : start + _BLOCK_IDS], minlength=len(counts))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
