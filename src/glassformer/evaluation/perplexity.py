"""Loss and perplexity over a corpus, the same for any batch size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.data.batches import tokens_together
from glassformer.errors import UserError
from glassformer.model import DecoderOnly

__all__ = ["LossMeter", "Window", "next_token_log_probs", "windows"]

CHUNK_ROWS = 256  # rows of logits held at once


@dataclass
class LossMeter:
    """Adds up negative log-likelihoods, so that the mean is taken once, over all tokens.

    `loss = sum_i NLL_i / n_tokens` and `perplexity = exp(loss)`. A mean of the means of batches would weigh a batch of
    three tokens like one of three thousand; sums and counts do not depend on how the corpus was cut into batches.

    The sum is a Python float, that is float64. Sum the tokens of a batch in float64 as well.

    Attributes:
        sum_nll: Sum of the negative log-likelihoods of the target tokens, in nats.
        n_tokens: Number of target tokens that were predicted (no padding, no start token).
        n_words: Number of words of those targets, where counted.
        n_bytes: Number of UTF-8 bytes of those targets, where counted.
    """

    sum_nll: float = 0.0
    n_tokens: int = 0
    n_words: int = 0
    n_bytes: int = 0

    def add(self, sum_nll: float, n_tokens: int, *, n_words: int = 0, n_bytes: int = 0) -> None:
        """Adds a batch; one without any target token adds nothing, whatever its 0/0 loss was.

        Args:
            sum_nll: Sum (not mean) of the batch's negative log-likelihoods, in nats.
            n_tokens: Target tokens that the sum runs over.
            n_words: Words of the targets, for `loss_per_word`.
            n_bytes: UTF-8 bytes of the targets, for `bits_per_byte`.

        Raises:
            UserError: A count is negative.
        """
        if min(n_tokens, n_words, n_bytes) < 0:
            raise UserError(
                f"n_tokens={n_tokens}, n_words={n_words}, n_bytes={n_bytes} cannot be counts.",
                "A count is 0 or more.",
                "Pass the numbers of tokens, words and bytes that the sum runs over.",
            )
        if n_tokens == 0:
            return
        self.sum_nll += float(sum_nll)
        self.n_tokens += n_tokens
        self.n_words += n_words
        self.n_bytes += n_bytes

    def merge(self, other: LossMeter) -> None:
        """Adds the sums of another process or shard."""
        self.add(other.sum_nll, other.n_tokens, n_words=other.n_words, n_bytes=other.n_bytes)

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood of a token, in nats; NaN without any token."""
        return self._per(self.n_tokens)

    @property
    def perplexity(self) -> float:
        """`exp(loss)` per token; infinity where that is more than a float64 holds."""
        return _exp(self.loss)

    @property
    def perplexity_per_word(self) -> float:
        """`exp(loss_per_word)`, the likelihood of an end token included where one was predicted."""
        return _exp(self.loss_per_word)

    @property
    def perplexity_per_byte(self) -> float:
        """`2^bits_per_byte`."""
        return _exp(self._per(self.n_bytes))

    @property
    def loss_per_word(self) -> float:
        """Negative log-likelihood per word, in nats: comparable between tokenizers; NaN without a count."""
        return self._per(self.n_words)

    @property
    def bits_per_byte(self) -> float:
        """Negative log-likelihood per UTF-8 byte, in bits; NaN without a count."""
        return self._per(self.n_bytes) / math.log(2)

    def _per(self, count: int) -> float:
        return self.sum_nll / count if count else math.nan

    def is_better_than(self, best_loss: float | None) -> bool:
        """Whether this loss is finite and below the best one so far. NaN and infinity are never the best."""
        return math.isfinite(self.loss) and (best_loss is None or not math.isfinite(best_loss) or self.loss < best_loss)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Window:
    """A part of a text that a model reads at once: tokens [start, end), of which [first, end) predict the next one."""

    start: int
    first: int
    end: int


def windows(n_tokens: int, context: int | None, stride: int) -> Iterator[Window]:
    """Covers a text of any length with windows of at most `context` tokens, each token predicting once.

    The first window predicts from all of its tokens, each further one from the next `stride` tokens. So whatever lies
    behind the first window is predicted from at least `context - stride + 1` tokens. A smaller stride gives the model
    more to read and costs n_tokens / stride windows.
    """
    end = n_tokens if context is None else min(n_tokens, context)
    yield Window(0, 0, end)
    while context is not None and end < n_tokens:
        first, end = end, min(n_tokens, end + stride)
        yield Window(end - context, first, end)


@torch.no_grad()
def next_token_log_probs(
    model: DecoderOnly,
    texts: Sequence[Sequence[int]],
    *,
    context: int | None = None,
    stride: int | None = None,
    batch_tokens: int | None = None,
) -> list[list[float]]:
    """log p(x_t | x_<t) in nats of every token but the first of each text; no text's numbers depend on the others.

    Args:
        model: In eval mode.
        texts: Ids of each text, its begin and end included where they belong to it.
        context: Most tokens read at once; unset: the model's max_positions, or the whole text.
        stride: See `windows`; unset: half of the context.
        batch_tokens: Tokens read together, pads included; a window of more is read alone. Unset: `tokens_together`.

    Raises:
        UserError: The stride is not in [1, context], or the context is not in [1, max_positions].
    """
    context = model.config.max_positions if context is None else context
    _check_windows(context, stride, model.config.max_positions)
    found = [[0.0] * max(0, len(text) - 1) for text in texts]
    todo = [
        (i, window)
        for i, text in enumerate(texts)
        if len(text) > 1
        for window in windows(len(text) - 1, context, stride or max(1, (context or 2) // 2))
    ]
    batch_tokens = batch_tokens or tokens_together(model.decoder.embedding.tokens.weight.device)
    todo.sort(key=lambda item: item[1].end - item[1].start, reverse=True)
    while todo:
        width = todo[0][1].end - todo[0][1].start
        size = max(1, batch_tokens // width)
        batch, todo = todo[:size], todo[size:]
        features = _features(model, [texts[i][w.start : w.end] for i, w in batch], width)
        for (i, w), row in zip(batch, features, strict=True):
            targets = torch.tensor(texts[i][w.first + 1 : w.end + 1], device=row.device)
            found[i][w.first : w.end] = _log_probs(model, row[w.first - w.start : w.end - w.start], targets)
    return found


def _features(model: DecoderOnly, rows: Sequence[Sequence[int]], width: int) -> Tensor:
    """[B, width, D] of rows of ids, padded on the right."""
    device = model.decoder.embedding.tokens.weight.device
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return model.features(ids, mask=torch.arange(width, device=device) < lengths[:, None])


def _log_probs(model: DecoderOnly, features: Tensor, targets: Tensor) -> list[float]:
    parts = zip(features.split(CHUNK_ROWS), targets.split(CHUNK_ROWS), strict=True)  # type: ignore[no-untyped-call]
    losses = [F.cross_entropy(model.project(x).double(), y, reduction="none") for x, y in parts]
    return [-loss for part in losses for loss in part.tolist()]


def _check_windows(context: int | None, stride: int | None, max_positions: int | None) -> None:
    most = max_positions or context
    if context is not None and most is not None and not 1 <= context <= most:
        raise UserError(
            f"context={context} with max_positions={max_positions}.",
            "A window has at least one token, and the model a position for each.",
            "Leave the context out to use all that the model has.",
        )
    if stride is not None and (stride < 1 or context is None or stride > context):
        raise UserError(
            f"stride={stride} with context={context}.",
            "A window moves on by at least one token and by no more than it holds.",
            "Use half of the context.",
        )
