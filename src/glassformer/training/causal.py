"""Causal language modelling: predict each token of a document from those before it."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from glassformer.config import Config, ModelConfig
from glassformer.data.packing import IGNORED, PackedBatch, PackedPlan
from glassformer.data.store import TokenStore
from glassformer.errors import ConfigError
from glassformer.model import DecoderOnly, Model
from glassformer.training.objectives import decoder_loss, stack_of

__all__ = ["CausalLoss", "CausalObjective", "packed_plan"]


class CausalLoss(nn.Module):
    """Label-smoothed loss of a decoder-only model on a batch of packed documents.

    A module around the model, so that wrappers for several processes see one `forward`.
    """

    def __init__(self, model: DecoderOnly, *, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """The smoothed loss and the plain negative log-likelihood, summed over the batch's targets."""
        features = self.model.features(batch.ids, documents=batch.documents)
        return decoder_loss(features, self.model.decoder, batch.targets, ignored_id=IGNORED, smoothing=self.smoothing)


class CausalObjective:
    """Predict the next token: a decoder-only model on packed documents, the source side of the store."""

    unit = "documents"

    def fit(self, model: ModelConfig) -> ModelConfig:
        # A decoder that was asked for as such (GPT-2, an imported one) keeps its way of beginning a text.
        return model if model.family == "decoder-only" else replace(stack_of(model, "decoder-only"), use_bos=True)

    def loss(self, model: Model, config: Config) -> nn.Module:
        assert isinstance(model, DecoderOnly)
        return CausalLoss(model, smoothing=config.training.label_smoothing)

    def batches(self, config: Config, store: TokenStore) -> PackedPlan:
        return packed_plan(config, store, seed=config.training.seed)


def packed_plan(config: Config, store: TokenStore, *, seed: int | None) -> PackedPlan:
    """The packed batches that the config describes; seed None: in the order of the store, for validation.

    Raises:
        ConfigError: The rows would be longer than the model's positions.
    """
    data, model = config.data, config.model
    if model.max_positions is not None and data.max_tokens > model.max_positions:
        raise ConfigError(
            f"data.max_tokens={data.max_tokens} is more than model.max_positions={model.max_positions}.",
            "A row of packed documents needs a position for each token.",
            "Lower data.max_tokens.",
        )
    return PackedPlan(
        store,
        max_tokens=data.max_tokens,
        batch_tokens=data.batch_tokens or data.max_tokens,
        seed=seed,
        pad_id=model.eos_id if model.pad_id is None else model.pad_id,  # pads are a document of their own: any id does
        bos_id=model.bos_id,
        eos_id=model.eos_id,
        use_bos=model.use_bos,
        across_documents=data.across_documents,
    )
