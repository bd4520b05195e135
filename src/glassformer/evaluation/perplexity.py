"""Loss and perplexity over a corpus, the same for any batch size."""

from __future__ import annotations

import math
from dataclasses import dataclass

from glassformer.errors import UserError

__all__ = ["LossMeter"]


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
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf

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
