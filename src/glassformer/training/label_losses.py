"""Losses and objectives of models that vote for labels: of texts, or of words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from glassformer.config import Config, ModelConfig
from glassformer.data.batches import BatchPlan
from glassformer.data.label_batches import Framing, Kind, LabelBatch, LabelBatches, TargetMaker
from glassformer.data.packing import IGNORED
from glassformer.data.store import TokenStore
from glassformer.model import EncoderOnly, Model
from glassformer.text.label_set import LabelSet
from glassformer.training.objectives import stack_of

__all__ = [
    "ClassificationObjective",
    "LabelLoss",
    "LabellingObjective",
    "choice_loss",
    "class_weights",
    "yes_no_loss",
]


def choice_loss(logits: Tensor, targets: Tensor, *, weights: Tensor | None, smoothing: float) -> tuple[Tensor, Tensor]:
    """One label out of L: sum over real targets y of w_y (-(1 - e) log p_y - e/L sum_l log p_l).

    Args:
        logits: [N, L].
        targets: int64 [N]; IGNORED ones give no loss and no gradient.
        weights: w [L], or None for 1.
        smoothing: e, in [0, 1).

    Returns:
        The loss, and the plain negative log-likelihood -log p_y (without weights and smoothing), both summed over
        real targets in float64. Without any real target both are 0.
    """
    is_real = targets != IGNORED
    targets = targets[is_real]
    log_probs = logits[is_real].double().log_softmax(-1)
    nll = -log_probs.gather(1, targets[:, None]).squeeze(1)
    loss = (1 - smoothing) * nll - smoothing * log_probs.mean(-1)
    if weights is not None:
        loss = loss * weights.double()[targets]
    return loss.sum(), nll.detach().sum()


def yes_no_loss(logits: Tensor, targets: Tensor, *, weights: Tensor | None, smoothing: float) -> tuple[Tensor, Tensor]:
    """Each of L labels by itself: sum over texts of the mean over labels of -w log p, p = sigmoid(logit) or 1 - that.

    With smoothing e a yes counts as 1 - e/2 and a no as e/2.

    Args:
        logits: [N, L].
        targets: float [N, L], 1 or 0; rows of IGNORED give no loss and no gradient.
        weights: [2, L], of a no and of a yes for each label, or None for 1.
        smoothing: e, in [0, 1).

    Returns:
        The loss and the plain negative log-likelihood, as `choice_loss`. Guessing gives ln 2 a text.
    """
    is_real = targets[:, 0] != IGNORED
    targets, logits = targets[is_real].double(), logits[is_real].double()
    yes, no = -nn.functional.logsigmoid(logits), -nn.functional.logsigmoid(-logits)  # [N, L]
    nll = targets * yes + (1 - targets) * no
    share = targets * (1 - smoothing) + smoothing / 2
    loss = share * yes + (1 - share) * no
    if weights is not None:
        loss = loss * torch.where(targets > 0, weights[1].double(), weights[0].double())
    return loss.mean(-1).sum(), nll.detach().mean(-1).sum()


def class_weights(labels: LabelSet, *, is_multi_label: bool) -> Tensor:
    """Weights by inverse frequency whose mean over the training data is 1.

    One label a text: w_l = n / (L n_l), with n texts of which n_l have label l. Several: the two answers for each label
    are two classes, n / 2 n_l for a yes and n / 2 (n - n_l) for a no.

    Returns:
        float32 [L], or [2, L] with no and yes.

    Source: King & Zeng 2001; known as "balanced" weights.
    """
    counts = torch.tensor(labels.counts, dtype=torch.float64)
    if not is_multi_label:
        return (labels.n_rows / (len(labels) * counts)).float()
    both = torch.stack([labels.n_rows - counts, counts]).clamp(min=1)  # a label that every text has has no "no"
    return (labels.n_rows / (2 * both)).float()


class LabelLoss(nn.Module):
    """The loss of a model's votes on a batch. A module around the model, so that wrappers see one `forward`."""

    weights: Tensor | None

    def __init__(self, model: EncoderOnly, *, kind: Kind, weights: Tensor | None, smoothing: float) -> None:
        super().__init__()
        self.model, self.kind, self.smoothing = model, kind, smoothing
        device = model.encoder.embedding.tokens.weight.device
        self.register_buffer("weights", None if weights is None else weights.to(device), persistent=False)

    def forward(self, batch: LabelBatch) -> tuple[Tensor, Tensor]:
        """The loss and the plain negative log-likelihood, summed over the batch's predictions."""
        logits = self.model.label_logits(batch.ids, mask=batch.mask, segment_ids=batch.segment_ids)
        loss = yes_no_loss if self.kind == "multi" else choice_loss
        targets = batch.targets if self.kind == "multi" else batch.targets.flatten()
        return loss(logits.flatten(0, -2), targets, weights=self.weights, smoothing=self.smoothing)


class _LabelObjective:
    """Vote for labels: an encoder-only model with a head over them. The labels lie in `labels.json` of the data.

    A fresh model that reads pairs has segments; one that is started from another has them where that one has.
    """

    unit = ""
    head: Literal["classify", "label"]

    def __init__(self, data: Path, *, is_started: bool = False) -> None:
        self._file, self._is_started = data / "labels.json", is_started

    @property
    def labels(self) -> LabelSet:
        """The labels of the training data."""
        return LabelSet.load(self._file)

    def fit(self, model: ModelConfig) -> ModelConfig:
        labels = self.labels
        needs_segments = labels.n_texts > 1 and not self._is_started
        return replace(
            stack_of(model, "encoder-only"),
            head=self.head,
            n_labels=len(labels),
            n_segments=max(model.n_segments, 2 if needs_segments else 0),
            use_bos=True,
            use_mlm_head=False,  # heads that this task does not train
            use_pooler=model.use_pooler and self.head == "classify",
        )

    def kind(self, config: Config) -> Kind:
        """What one prediction is."""
        raise NotImplementedError

    def loss(self, model: Model, config: Config) -> nn.Module:
        assert isinstance(model, EncoderOnly)
        task, weights = config.task, None
        if task.use_class_weights:
            weights = class_weights(self.labels, is_multi_label=self.kind(config) == "multi")
        return LabelLoss(model, kind=self.kind(config), weights=weights, smoothing=config.training.label_smoothing)

    def batches(self, config: Config, store: TokenStore) -> LabelBatches:
        data, model = config.data, config.model
        assert data.batch_tokens is not None
        framing = Framing(model)
        plan = BatchPlan(
            store,
            batch_tokens=data.batch_tokens,
            sort_window=data.sort_window,
            seed=config.training.seed,
            pad_id=framing.pad_id,
            bos_id=model.bos_id,
            eos_id=model.eos_id,
        )
        targets = TargetMaker(self.kind(config), n_labels=model.n_labels, n_before=len(framing.start))
        return LabelBatches(plan, store, framing, targets)


class ClassificationObjective(_LabelObjective):
    """Predict the label of a text, or of two texts read together, or for each label whether a text has it."""

    unit = "texts"
    head: Literal["classify", "label"] = "classify"

    def kind(self, config: Config) -> Kind:
        return "multi" if config.task.is_multi_label else "single"


class LabellingObjective(_LabelObjective):
    """Predict the label of each word of a sentence, at the first of the word's pieces."""

    unit = "sentences"
    head: Literal["classify", "label"] = "label"

    def kind(self, config: Config) -> Kind:
        return "words"
