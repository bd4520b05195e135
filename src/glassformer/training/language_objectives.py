"""Learning from raw text beside the next token: hidden tokens (BERT) and hidden spans (T5)."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

from torch import Tensor, nn

from glassformer.config import Config, ModelConfig
from glassformer.data.masking import MaskedBatch, MaskedPlan, text_ids
from glassformer.data.packing import IGNORED
from glassformer.data.spans import SpanPlan
from glassformer.data.store import TokenStore
from glassformer.errors import ConfigError
from glassformer.model import EncoderDecoder, EncoderOnly, Model
from glassformer.text.imported import load_tokenizer
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.objectives import TranslationLoss, batch_options, decoder_loss, stack_of

__all__ = ["DenoisingObjective", "MaskedLoss", "MaskedObjective"]


class MaskedLoss(nn.Module):
    """Label-smoothed loss of the hidden tokens of a batch. Nothing is projected for the other places.

    A module around the model, so that wrappers for several processes see one `forward`.
    """

    def __init__(self, model: EncoderOnly, *, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
        """The smoothed loss and the plain negative log-likelihood, summed over the batch's targets."""
        head = self.model.mlm_head
        assert head is not None  # set by `MaskedObjective.fit`
        is_target = batch.targets != IGNORED
        features = head.transform(self.model(batch.ids)[is_target])
        return decoder_loss(
            features[None], head, batch.targets[is_target][None], ignored_id=IGNORED, smoothing=self.smoothing
        )


class _OfTokenizer:
    """An objective that must know the vocabulary; `path` is the file of the run's tokenizer."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.path)


class MaskedObjective(_OfTokenizer):
    """Predict hidden tokens from both sides: an encoder on rows of text."""

    unit = "rows"

    def fit(self, model: ModelConfig) -> ModelConfig:
        return replace(stack_of(model, "encoder-only"), use_bos=True, use_mlm_head=True)

    def loss(self, model: Model, config: Config) -> nn.Module:
        assert isinstance(model, EncoderOnly)
        return MaskedLoss(model, smoothing=config.training.label_smoothing)

    def batches(self, config: Config, store: TokenStore) -> MaskedPlan:
        return MaskedPlan(
            store,
            mask_id=self.tokenizer.mask_id,
            text_ids=text_ids(self.tokenizer),
            share=config.task.mask_share,
            use_whole_words=config.task.use_whole_words,
            use_bos=config.model.use_bos,
            **batch_options(config),
        )


class DenoisingObjective(_OfTokenizer):
    """Write out the hidden spans of a text: an encoder-decoder on rows of text."""

    unit = "rows"

    def fit(self, model: ModelConfig) -> ModelConfig:
        if model.family != "encoder-decoder":
            raise ConfigError(
                f"model.family={model.family} does not fit the task denoise.",
                "A text with hidden spans is read by an encoder, and the spans are written by a decoder.",
                "Leave model.family out, or choose another preset.",
            )
        return model

    def loss(self, model: Model, config: Config) -> nn.Module:
        assert isinstance(model, EncoderDecoder)
        return TranslationLoss(model, smoothing=config.training.label_smoothing)

    def batches(self, config: Config, store: TokenStore) -> SpanPlan:
        return SpanPlan(
            store,
            sentinel_ids=self.tokenizer.sentinel_ids,
            share=config.task.mask_share,
            mean_span=config.task.mean_span,
            use_bos=config.model.use_bos,
            **batch_options(config),
        )
