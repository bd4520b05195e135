"""What a model is trained to make small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from glassformer.config import Config, Family, ModelConfig
from glassformer.data.batches import Batch, BatchPlan
from glassformer.data.store import TokenStore
from glassformer.data.stream import Batches
from glassformer.errors import ConfigError
from glassformer.model import EncoderDecoder, Model
from glassformer.model.heads import MaskedLMHead
from glassformer.model.transformer import Decoder

__all__ = [
    "Objective",
    "TranslationLoss",
    "TranslationObjective",
    "batch_options",
    "cross_entropy",
    "decoder_loss",
    "projected_cross_entropy",
    "stack_of",
]

CHUNK_ROWS = 512  # rows of logits held at once: 16 MB at a vocabulary of 8,000, which stays near the caches


class Objective(Protocol):
    """What a model learns from: its architecture, its loss, its batches."""

    unit: str  # what a row of the store is, in the plural

    def fit(self, model: ModelConfig) -> ModelConfig:
        """The architecture with the stacks and heads that this objective needs; ConfigError when it cannot be."""

    def loss(self, model: Model, config: Config) -> nn.Module:
        """A module: batch -> (loss, plain negative log-likelihood), both summed over what is predicted."""

    def batches(self, config: Config, store: TokenStore) -> Batches:
        """The batches of each epoch."""


def stack_of(model: ModelConfig, family: Family) -> ModelConfig:
    """The architecture with one stack: an encoder-decoder's layers, all of them, become those of `family`.

    Raises:
        ConfigError: The architecture is that of the other single stack.
    """
    if model.family == family:
        return model
    if model.family != "encoder-decoder":
        raise ConfigError(
            f"model.family={model.family} does not fit this task.",
            f"It trains the family {family}.",
            "Leave model.family out, or choose another preset.",
        )
    n_layers = model.n_encoder_layers + model.n_decoder_layers
    if family == "encoder-only":
        return replace(model, family=family, n_encoder_layers=n_layers)
    return replace(model, family=family, n_decoder_layers=n_layers)


def cross_entropy(logits: Tensor, targets: Tensor, *, pad_id: int, smoothing: float) -> Tensor:
    """Reference: sum over real targets y of -(1 - e) log p_y - e/V sum_v log p_v.

    The mass e is spread over all V entries. Targets equal to pad_id give no loss and no gradient.

    Args:
        logits: [N, V].
        targets: int64 [N].
        pad_id: Target that is left out.
        smoothing: e, in [0, 1).

    Returns:
        The sum, a scalar. Divide by the number of real targets of the whole update for the mean.

    Source: Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4.
    """
    is_real = targets != pad_id
    log_probs = logits.log_softmax(-1)
    nll = -log_probs.gather(1, targets[:, None]).squeeze(1)
    loss = (1 - smoothing) * nll - smoothing * log_probs.mean(-1)
    return loss.masked_fill(~is_real, 0.0).sum()


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Projection and loss in one: logits exist for one chunk of rows at a time, never in whole.

    The gradient of the logits, softmax(logits) - target distribution, is known in the forward pass already, so
    those of features and matrix are made there, chunk by chunk, and only scaled in the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]  # a frozen matrix needs none
        n_vocab = weight.shape[0]
        w, rows = weight.to(dtype), x.to(dtype)
        grad_x = torch.empty_like(x) if needs_x else None
        grad_weight = torch.zeros_like(weight) if needs_weight else None
        grad_bias = torch.zeros_like(bias) if needs_bias and bias is not None else None
        loss = x.new_zeros((), dtype=torch.float64)  # rounding must not depend on the cut into batches
        nll = torch.zeros_like(loss)
        for start in range(0, len(x), CHUNK_ROWS):
            part, target = rows[start : start + CHUNK_ROWS], targets[start : start + CHUNK_ROWS, None]
            logits = (part @ w.t()).to(weight.dtype)  # [C, V]
            if bias is not None:
                logits += bias
            logits -= logits.amax(1, keepdim=True)
            chosen = logits.gather(1, target).squeeze(1)
            mean = logits.mean(1) if smoothing else 0.0
            total = logits.exp_().sum(1)
            log_total = total.log()
            nll += (log_total - chosen).sum(dtype=nll.dtype)
            loss += (log_total - (1 - smoothing) * chosen - smoothing * mean).sum(dtype=loss.dtype)
            if not (needs_x or needs_weight or needs_bias):
                continue
            grad = logits.div_(total[:, None])  # softmax; now minus the target distribution
            if smoothing:
                grad -= smoothing / n_vocab
            grad.scatter_add_(1, target, torch.full_like(target, smoothing - 1, dtype=grad.dtype))
            if grad_bias is not None:
                grad_bias += grad.sum(0)
            grad = grad.to(dtype)
            if grad_x is not None:
                grad_x[start : start + CHUNK_ROWS] = grad @ w
            if grad_weight is not None:
                grad_weight += grad.t() @ part
        ctx.save_for_backward(grad_x, grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if grad is None else grad * grads[0] for grad in ctx.saved_tensors]
        return (*scaled, None, None, None)


def projected_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    pad_id: int,
    smoothing: float,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """`cross_entropy(features weight^T + bias, targets)` without ever holding all logits.

    Args:
        features: [B, T, D].
        weight: [V, D].
        bias: [V] or None.
        targets: int64 [B, T].
        pad_id: Target that is left out; its rows are not computed at all.
        smoothing: See `cross_entropy`.
        dtype: Of the matrix products; unset: that of the features.

    Returns:
        The smoothed loss and the plain negative log-likelihood (without gradient), both summed over real targets
        in float64.

    Cost: 3 products of 2·N·D·V FLOPs when gradients are needed, N the real targets; memory of 512 rows of logits.
    """
    is_real = (targets != pad_id).flatten()
    x = features.flatten(0, 1)[is_real]
    dtype = dtype or x.dtype
    out = _ProjectedCrossEntropy.apply(x, weight, bias, targets.flatten()[is_real], smoothing, dtype)  # type: ignore[no-untyped-call]
    loss, nll = out
    return loss, nll


def decoder_loss(
    features: Tensor, decoder: Decoder | MaskedLMHead, targets: Tensor, *, ignored_id: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """`projected_cross_entropy` of a decoder's features [B, T, D] under its projection, in the autocast type if any."""
    device_type, projection = features.device.type, decoder.projection
    dtype = torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None
    with torch.autocast(device_type, enabled=False):
        x = features.to(projection.weight.dtype) * projection.scale
        return projected_cross_entropy(
            x, projection.weight, projection.bias, targets, pad_id=ignored_id, smoothing=smoothing, dtype=dtype
        )


class TranslationLoss(nn.Module):
    """Label-smoothed loss of an encoder-decoder on a batch of pairs.

    A module around the model, so that wrappers for several processes see one `forward`.
    """

    def __init__(self, model: EncoderDecoder, *, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The smoothed loss and the plain negative log-likelihood, summed over the batch's real target tokens."""
        pad_id = self.model.config.pad_id
        assert pad_id is not None  # checked when the run is planned
        features = self.model.features(batch.src, batch.tgt_in)
        return decoder_loss(features, self.model.decoder, batch.tgt_out, ignored_id=pad_id, smoothing=self.smoothing)


def batch_options(config: Config) -> dict[str, int]:
    """What every `BatchPlan` takes."""
    data, model = config.data, config.model
    assert data.batch_tokens is not None and model.pad_id is not None  # set when the run is planned
    return {
        "batch_tokens": data.batch_tokens,
        "sort_window": data.sort_window,
        "seed": config.training.seed,
        "pad_id": model.pad_id,
        "bos_id": model.bos_id,
        "eos_id": model.eos_id,
    }


class TranslationObjective:
    """Predict a target from its source: an encoder-decoder on pairs."""

    unit = "pairs"

    def fit(self, model: ModelConfig) -> ModelConfig:
        if model.family != "encoder-decoder":
            raise ConfigError(
                f"model.family={model.family} cannot translate.",
                "Pairs train an encoder-decoder.",
                "Leave model.family out, or choose another preset.",
            )
        return model

    def loss(self, model: Model, config: Config) -> nn.Module:
        assert isinstance(model, EncoderDecoder)
        return TranslationLoss(model, smoothing=config.training.label_smoothing)

    def batches(self, config: Config, store: TokenStore) -> BatchPlan:
        return BatchPlan(store, **batch_options(config))
