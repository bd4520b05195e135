"""Labels of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glassformer.data.labelled import joined, room_for
from glassformer.errors import ConfigError, DataError
from glassformer.model import EncoderOnly
from glassformer.tasks.model_folder import ModelFolder, load_model_folder
from glassformer.tasks.votes import Votes, log_softmax, votes, voting_model
from glassformer.text.label_set import LabelSet
from glassformer.text.tokenizer import Tokenizer

__all__ = ["Classification", "Classifier", "Text", "probabilities"]

Text = str | tuple[str, str]


@dataclass(frozen=True)
class Classification:
    """What a model says of a text.

    Attributes:
        labels: The label, or in a multi-label model those that are likely enough; the most probable first. None of a
            blank text.
        probabilities: Of every label; they sum to 1, except in a multi-label model. Empty for a blank text.
        is_cut: The text was longer than the model reads; its end was not seen.
    """

    labels: tuple[str, ...]
    probabilities: dict[str, float]
    is_cut: bool = False

    @property
    def label(self) -> str | None:
        """The most probable one of `labels`."""
        return self.labels[0] if self.labels else None


class Classifier:
    """Labels texts with one model. `Classifier.load(path).classify(["We eat bread."])`.

    The label of a text does not depend on the texts beside it (probabilities in float32: within 1e-5).

    Attributes:
        labels: The labels that the model knows.
        takes_pairs: A text is a pair of texts, read together.
        max_tokens: Most tokens of a text, begin and end counted; the rest is cut off, of a pair the longer text first.
    """

    def __init__(
        self, model: EncoderOnly, tokenizer: Tokenizer, labels: LabelSet, *, is_multi_label: bool, max_tokens: int
    ) -> None:
        self.model, self.tokenizer, self.labels = model, tokenizer, labels
        self.is_multi_label, self.max_tokens = is_multi_label, max_tokens
        self.takes_pairs = labels.n_texts > 1

    @classmethod
    def load(cls, path: str | Path) -> Classifier:
        """Loads a model folder; see `load_model_folder` for the errors, and `of`."""
        return cls.of(load_model_folder(path))

    @classmethod
    def of(cls, folder: ModelFolder) -> Classifier:
        """The classifier of a loaded folder.

        Raises:
            CheckpointError: The model does not classify texts.
        """
        model, labels = voting_model(folder, "classify", "classify")
        config = folder.config
        limit = min(config.data.max_tokens, config.model.max_positions or config.data.max_tokens)
        is_multi_label = config.task.is_multi_label
        return cls(model, folder.tokenizer, labels, is_multi_label=is_multi_label, max_tokens=limit)

    def classify(
        self, texts: Sequence[Text], *, threshold: float = 0.5, batch_tokens: int | None = None
    ) -> list[Classification]:
        """What the model says of each text, in their order.

        Args:
            texts: Texts, or pairs `(text, text)` where the model takes pairs.
            threshold: A multi-label model gives the labels of at least this probability.
            batch_tokens: Tokens read together; changes speed and memory only.

        Raises:
            ConfigError: threshold is no probability.
            DataError: A pair was given to a model of single texts, or the other way round.
            TokenizerError: A text holds half a surrogate pair.
        """
        if not 0 <= threshold <= 1:
            raise ConfigError(f"threshold={threshold} is no probability.", "[0, 1] was expected.", "Use 0.5.")
        encoded = self.encode(texts)
        found = iter(votes(self.model, [row for row, _ in encoded if row], batch_tokens=batch_tokens))
        return [
            self.classification(next(found), is_cut, threshold=threshold) if row else Classification((), {})
            for row, is_cut in encoded
        ]

    def encode(self, texts: Sequence[Text]) -> list[tuple[list[int], bool]]:
        """Of each text or pair what `votes` takes, and whether it was cut; of a blank one no ids."""
        pairs = [self._pair(text) for text in texts]
        room = room_for(self.max_tokens, use_bos=self.model.config.use_bos, n_texts=self.labels.n_texts)
        firsts = self.tokenizer.encode_batch([a for a, _ in pairs])
        seconds = self.tokenizer.encode_batch([b or "" for _, b in pairs])
        found: list[tuple[list[int], bool]] = []
        for (first, second), a, b in zip(pairs, firsts, seconds, strict=True):
            is_blank = not first.strip() or (second is not None and not second.strip())
            row = joined(a, b if self.takes_pairs else None, room=room, eos_id=self.tokenizer.eos_id)
            found.append(([], False) if is_blank else (row, len(a) + len(b) > room))
        return found

    def _pair(self, text: Text) -> tuple[str, str | None]:
        if isinstance(text, str) == self.takes_pairs:
            raise DataError(
                f"{text!r} is {'one text' if isinstance(text, str) else 'a pair'}.",
                f"This model takes {'pairs (text, text)' if self.takes_pairs else 'single texts'}.",
                "Give each text so, or use another model.",
            )
        return (text, None) if isinstance(text, str) else text

    def classification(self, logits: Votes, is_cut: bool, *, threshold: float = 0.5) -> Classification:
        """What logits [L] say of a text, one that `encode` has cut or not."""
        shares = probabilities(logits, is_multi_label=self.is_multi_label)
        order = np.argsort(-shares, kind="stable")
        chosen = [i for i in order if shares[i] >= threshold] if self.is_multi_label else order[:1]
        names = self.labels.names
        return Classification(
            tuple(names[i] for i in chosen), dict(zip(names, map(float, shares), strict=True)), is_cut
        )


def probabilities(logits: Votes, *, is_multi_label: bool) -> Votes:
    """softmax(logits), or sigmoid(logits) where each label is a question of its own."""
    out: Votes = np.exp(-np.logaddexp(0, -logits)) if is_multi_label else np.exp(log_softmax(logits))
    return out
