"""What a model adds to a prompt: whole, or piece by piece."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

from glassformer.generation.hypothesis import Hypothesis, LengthPenalty
from glassformer.generation.sampling import Made
from glassformer.generation.streaming import TextStream

__all__ = ["Completion", "CompletionStream"]


@dataclass(frozen=True)
class Completion:
    """What a model adds to a prompt.

    Attributes:
        text: The new text without the prompt, cut before the stop string if there was one.
        ids: All tokens made, the end token or those of the stop string included.
        token_log_probs: Log-probability of each, in nats; see `Hypothesis`.
        log_prob: Their sum.
        score: What several are ranked by; see `Hypothesis`.
        finish_reason: `eos`, `stop`, or `length` (cut at the limit or at the end of the context).
        alternatives: The further outputs: the other samples, or the next best hypotheses.
    """

    text: str
    ids: list[int]
    token_log_probs: list[float]
    log_prob: float
    score: float
    finish_reason: str
    alternatives: list[Completion] = field(default_factory=list)

    @classmethod
    def of(cls, hypothesis: Hypothesis, bytes_of: Callable[[int], bytes], stop: Sequence[str]) -> Completion:
        """The text of a hypothesis, which ends before a stop string, and its tokens up to there."""
        text, pieces = TextStream(stop), list[str]()
        for token in hypothesis.ids:
            pieces.append(text.push(bytes_of(token)))
            if text.is_stopped:
                break
        log_probs = hypothesis.token_log_probs[: len(pieces)]
        return cls(
            text="".join(pieces) + text.finish(),
            ids=hypothesis.ids[: len(pieces)],
            token_log_probs=log_probs,
            log_prob=math.fsum(log_probs),
            score=hypothesis.score,
            finish_reason="stop" if text.is_stopped else hypothesis.finish_reason,
        )


class CompletionStream(Iterator[str]):
    """Pieces of a text, none of them empty; after the last one, `completion` holds the whole.

    Nothing is computed before a piece is asked for. `close` ends the work early, and `completion` stays None.
    """

    def __init__(
        self,
        steps: Iterator[list[Made]],
        bytes_of: Callable[[int], bytes],
        penalty: LengthPenalty,
        stop: Sequence[str],
    ) -> None:
        self.completion: Completion | None = None
        self._bytes_of, self._penalty, self._stop = bytes_of, penalty, stop
        self._pieces = self._run(steps, TextStream(stop))

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Ends the stream."""
        self._pieces.close()

    def _run(self, steps: Iterator[list[Made]], text: TextStream) -> Generator[str, None, None]:
        ids, log_probs = list[int](), list[float]()
        reason = None
        for (made,) in steps:
            ids.append(made.token)
            log_probs.append(made.log_prob)
            reason = made.finish_reason
            if piece := text.push(self._bytes_of(made.token)):
                yield piece
            if text.is_stopped:
                break
        if rest := text.finish():
            yield rest
        hypothesis = Hypothesis.of(0, ids, log_probs, reason or "length", self._penalty)
        self.completion = Completion.of(hypothesis, self._bytes_of, self._stop)
