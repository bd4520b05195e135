"""Learning to place a query near its passage and far from the others of its batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import Config, ModelConfig, TaskConfig
from glassformer.data.batches import BatchPlan
from glassformer.data.store import TokenStore
from glassformer.data.triple_batches import TripleBatch, TripleBatches
from glassformer.errors import ConfigError
from glassformer.model import EncoderOnly, Model
from glassformer.training.objectives import stack_of

__all__ = ["ContrastiveLoss", "ContrastiveObjective", "contrastive_loss", "false_negatives", "nested_widths"]


def contrastive_loss(queries: Tensor, passages: Tensor, is_excluded: Tensor, *, scale: float) -> Tensor:
    """Reference: cross-entropy over scaled cosines, from queries to passages and back.

    With s_ij = scale * cos(q_i, p_j), query i has the positive p_i; the passages behind the first Q are hard negatives:
    L_i = 1/2 (-log softmax_j(s_ij)[i] - log softmax_k(s_ki)[i]), j over all passages, k over all queries.

    Args:
        queries: [Q, D].
        passages: [P, D], P >= Q; passage i < Q is the positive of query i.
        is_excluded: bool [Q, P], True where passage j is no negative of query i; see `false_negatives`.
        scale: Factor of the cosines.

    Returns:
        L [Q], float32 or wider.

    Source: Henderson et al. 2017, section 4; Radford et al. 2021, figure 3 (both directions).
    """
    n = len(queries)
    scores = scale * F.normalize(queries, dim=-1) @ F.normalize(passages, dim=-1).T  # [Q, P]
    scores = scores.masked_fill(is_excluded, -torch.inf)
    own = torch.arange(n, device=scores.device)
    there = F.cross_entropy(scores, own, reduction="none")
    back = F.cross_entropy(scores[:, :n].T, own, reduction="none")
    return (there + back) / 2


def false_negatives(query_keys: Tensor, passage_keys: Tensor) -> Tensor:
    """Where a passage must not count as a negative of a query, because it is right by its text.

    Passage j is none of query i when it equals i's positive, or i itself, or is the positive of a query equal to i.
    The positive itself, j = i, stays.

    Args:
        query_keys: int64 [Q], equal for equal texts.
        passage_keys: int64 [P], from the same numbering; the positives first.

    Returns:
        bool [Q, P].
    """
    n = len(query_keys)
    is_right = (passage_keys == passage_keys[:n, None]) | (passage_keys == query_keys[:, None])
    is_right[:, :n] |= query_keys == query_keys[:, None]
    is_right[:, :n].fill_diagonal_(False)
    return is_right


def nested_widths(d_model: int, min_width: int | None) -> list[int]:
    """D, D/2, D/4 ... as long as they are whole and not below min_width; D alone without one."""
    widths = [d_model]
    while min_width is not None and widths[-1] % 2 == 0 and widths[-1] // 2 >= min_width:
        widths.append(widths[-1] // 2)
    return widths


class ContrastiveLoss(nn.Module):
    """The contrastive loss of a batch, one encoder for both sides.

    With nested widths it is the mean of the losses of the first D, D/2, ... features, so that a shortened vector serves
    too. Each process and each batch of an accumulated update is contrasted by itself: a query's negatives are the
    passages of its own part.

    Source: Kusupati et al. 2022, equation 1, for the nested widths.
    """

    def __init__(self, model: EncoderOnly, task: TaskConfig) -> None:
        super().__init__()
        self.model, self.scale = model, task.similarity_scale
        self.widths = nested_widths(model.config.d_model, task.min_width)

    def forward(self, batch: TripleBatch) -> tuple[Tensor, Tensor]:
        """The loss, and that of the full width alone, summed over the batch's queries; a part without any gives 0."""
        queries, passages = self.model.embed(batch.queries), self.model.embed(batch.passages)
        is_excluded = false_negatives(batch.query_keys, batch.passage_keys)
        with torch.autocast(queries.device.type, enabled=False):
            losses = [
                contrastive_loss(
                    queries[:, :width].float(), passages[:, :width].float(), is_excluded, scale=self.scale
                ).sum(dtype=torch.float64)
                for width in self.widths
            ]
        share = 1.0 if batch.n_tokens else 0.0  # a rank without rows takes part with nothing
        return share * torch.stack(losses).mean(), share * losses[0].detach()


class ContrastiveObjective:
    """Place a text near the one that belongs to it: an encoder on pairs, with or without hard negatives.

    Args:
        pooling: How one vector is made of a text's tokens.
    """

    unit = "pairs"

    def __init__(self, pooling: Literal["first", "mean", "max"] = "mean") -> None:
        self.pooling = pooling

    def fit(self, model: ModelConfig) -> ModelConfig:
        return replace(stack_of(model, "encoder-only"), use_bos=True, is_normalized=True, pooling=self.pooling)

    def loss(self, model: Model, config: Config) -> nn.Module:
        assert isinstance(model, EncoderOnly)
        width = config.task.min_width
        if width is not None and width > config.model.d_model:
            raise ConfigError(
                f"task.min_width={width} is more than model.d_model={config.model.d_model}.",
                "It is the narrowest part of the vector that is trained.",
                "Set it to a half or a quarter of d_model, say.",
            )
        return ContrastiveLoss(model, config.task)

    def batches(self, config: Config, store: TokenStore) -> TripleBatches:
        data, model = config.data, config.model
        assert data.batch_tokens is not None and model.pad_id is not None
        ids = {"pad_id": model.pad_id, "bos_id": model.bos_id, "eos_id": model.eos_id}
        plan = BatchPlan(
            store,
            batch_tokens=data.batch_tokens,
            sort_window=data.sort_window,
            seed=config.training.seed,
            **ids,
        )
        return TripleBatches(plan, store, use_bos=model.use_bos, **ids)
