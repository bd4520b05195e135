"""The task of labelling: the label of each word, and the entities that the labels mark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.config import Config
from glassformer.data.labelled import prepare_words, room_for
from glassformer.data.store import TokenStore
from glassformer.errors import ConfigError
from glassformer.evaluation.labels import choice_report, confusion_table, entity_report, rates_table
from glassformer.model import EncoderOnly, Model
from glassformer.tasks.label_task import LabelTask
from glassformer.tasks.run_folder import TrainingRequest
from glassformer.tasks.task import Tokenizers
from glassformer.tasks.validation import in_time, shuffled, spread
from glassformer.tasks.votes import Votes, votes
from glassformer.text.label_set import LabelSet
from glassformer.text.labelled import LabelledWords, WordReader
from glassformer.text.split import Source
from glassformer.text.tags import Scheme, TagCensus
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.label_losses import LabellingObjective, choice_loss

__all__ = ["LabellingTask", "LabellingValidator"]

CHUNK_SENTENCES = 500  # sentences measured between two looks at the clock


class LabellingTask(LabelTask[LabelledWords]):
    """Trains an encoder-only model from sentences whose words have labels."""

    unit = "words"
    figures = ("loss", "accuracy", "macro_f1", "entity_f1")

    def __init__(self, request: TrainingRequest, data: Path) -> None:
        super().__init__(request, data)
        self.objective = LabellingObjective(data)
        if self.config.tokenizer.bpe_dropout:
            raise ConfigError(
                f"tokenizer.bpe_dropout={self.config.tokenizer.bpe_dropout} with --task label.",
                "The division of long sentences into rows would differ from one tokenisation to the next.",
                "Leave it out.",
            )

    def reader(self, paths: Sequence[str]) -> WordReader:
        data = self.config.data
        return WordReader(list(paths), encoding=data.encoding, is_strict=data.is_strict)

    def text_of(self, row: LabelledWords) -> str:
        return " ".join(row.words)

    def n_labelled(self, row: LabelledWords) -> int:
        return len(row.words)

    def scheme(self, rows: Iterable[LabelledWords]) -> Scheme:
        census = TagCensus()
        for row in rows:
            census.add(row.labels)
        scheme = census.scheme
        if scheme == "none":
            if self.config.validation.metric == "entity_f1":
                raise ConfigError(
                    "validation.metric=entity_f1 where the labels mark no entities.",
                    "Tags such as B-PER, I-PER and O were expected.",
                    "Use validation.metric=accuracy.",
                )
            self.request.say("The labels are no entity tags (B-X, I-X, O): accuracy and F1 of words are measured.")
            return scheme
        n_broken = census.n_broken(scheme)
        breaks = f"; {n_broken:,} steps from word to word break it" if n_broken else ""
        self.request.say(f"The tags follow the scheme {scheme}{breaks}. Entities are read as conlleval reads them.")
        return scheme

    def store(self, part: Source[LabelledWords], tokenizers: Tokenizers, folder: Path, *, is_train: bool) -> None:
        n_split = prepare_words(
            part,
            tokenizers.tgt,
            self.labels,
            folder,
            room=room_for(self.max_tokens, use_bos=True, n_texts=1),
            drop_duplicates=is_train and self.config.data.drop_duplicates,
        )
        if n_split:
            self.request.say(
                f"{folder.name}: {n_split:,} sentences of more than {self.max_tokens} tokens were divided between "
                "words; the parts count as sentences."
            )

    def validator(
        self, store: TokenStore, config: Config, tokenizers: Tokenizers, say: Callable[[str], None]
    ) -> Callable[[nn.Module], dict[str, float]]:
        return LabellingValidator(store, config, self.labels, tokenizers.tgt, say=say)

    def final_metrics(
        self, model: Model, store: TokenStore, config: Config, tokenizers: Tokenizers, *, time_s: float | None
    ) -> dict[str, Any]:
        assert isinstance(model, EncoderOnly)
        sentences = whole_sentences(store)
        seen: list[list[int]] = []
        found: list[Votes] = []
        for part in in_time(shuffled(len(sentences)), CHUNK_SENTENCES, time_s):
            seen += [sentences[i] for i in part]
            found += sentence_votes(model, store, [sentences[i] for i in part])
        figures, details = measured(found, expected_labels(store, seen), self.labels)
        return figures | {"sentences_measured": len(seen), "sentences": len(sentences)} | details

    def summary(self, metrics: dict[str, Any], config: Config) -> str:
        figures = ", ".join(f"{name} {metrics[name]:.3f}" for name in self.figures if name in metrics)
        return f"{figures} on {metrics['sentences_measured']:,} sentences"

    def card(self, config: Config, metrics: dict[str, Any], command: str, n_examples: int) -> str:
        scheme = self.labels.scheme
        tags = "" if scheme == "none" else f" The tags follow the scheme {scheme}."
        return self.filled_card(
            config,
            metrics,
            title="Labels of words",
            command=command,
            data=self.data_line(n_examples, "sentences") + f"; those of more than {self.max_tokens} tokens were "
            f"divided between words.{tags}",
            limits="It knows the kind of text and the labels that it was trained on, and words divided as its training "
            "data divide them. Its probabilities were not calibrated.",
        )


class LabellingValidator:
    """Loss, accuracy and F1 of words, and entity F1, on a fixed sample of sentences; the same for any batch size.

    The loss is a mean over words, without label smoothing and class weights.
    """

    def __init__(
        self, store: TokenStore, config: Config, labels: LabelSet, tokenizer: Tokenizer, *, say: Callable[[str], None]
    ) -> None:
        self.store, self.labels, self.tokenizer, self.say = store, labels, tokenizer, say
        self.n_samples = config.validation.samples
        sentences = whole_sentences(store)
        self.sentences = [sentences[i] for i in spread(len(sentences), config.validation.rows)]

    def __call__(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, EncoderOnly)
        found = sentence_votes(model, self.store, self.sentences)
        expected = expected_labels(self.store, self.sentences)
        for rows, logits, right in list(zip(self.sentences, found, expected, strict=True))[: self.n_samples]:
            text = self.tokenizer.decode([number for i in rows for number in self.store.src(i).tolist()])
            self.say(f"  {text}\n  -> {self._named(logits.argmax(-1))}\n   = {self._named(right)}")
        return measured(found, expected, self.labels)[0]

    def _named(self, numbers: Iterable[int]) -> str:
        return " ".join(self.labels.names[number] for number in numbers)


def whole_sentences(store: TokenStore) -> list[list[int]]:
    """The rows of the store that form each sentence: more than one where it was divided."""
    places = store.row_numbers
    bounds = np.flatnonzero(np.diff(places)) + 1
    return [rows.tolist() for rows in np.split(np.arange(len(places)), bounds)]


def sentence_votes(model: EncoderOnly, store: TokenStore, sentences: Sequence[Sequence[int]]) -> list[Votes]:
    """The logits [T, L] of the T words of each sentence, at the first piece of each word."""
    rows = [i for sentence in sentences for i in sentence]
    found = votes(model, [store.src(i) for i in rows])
    words = iter([logits[store.tgt(i) > 0] for i, logits in zip(rows, found, strict=True)])
    return [np.concatenate([next(words) for _ in sentence]) for sentence in sentences]


def expected_labels(store: TokenStore, sentences: Sequence[Sequence[int]]) -> list[list[int]]:
    """The labels of the words of each sentence."""
    numbers = [np.concatenate([store.tgt(i) for i in sentence]).astype(np.int64) for sentence in sentences]
    return [(row[row > 0] - 1).tolist() for row in numbers]


def measured(
    found: Sequence[Votes], expected: Sequence[list[int]], labels: LabelSet
) -> tuple[dict[str, float], dict[str, Any]]:
    """The figures of votes for the words of sentences, and the tables of each label and entity type."""
    targets = torch.tensor([number for sentence in expected for number in sentence])
    logits = torch.from_numpy(np.concatenate(found))
    _, nll = choice_loss(logits, targets, weights=None, smoothing=0.0)
    words = choice_report(targets.tolist(), logits.argmax(-1).tolist(), len(labels))
    figures = {"loss": float(nll) / len(targets), "accuracy": words.accuracy, "macro_f1": words.macro_f1}
    details: dict[str, Any] = {
        "labels": rates_table(labels.names, words.rates),
        "confusion": confusion_table(labels.names, words.confusion),
    }
    if labels.scheme == "none":
        return figures, details
    names = np.array(labels.names)
    said = [names[logits.argmax(-1)].tolist() for logits in found]
    report = entity_report([names[sentence].tolist() for sentence in expected], said)
    rates = report.rates
    figures |= {"entity_f1": rates.f1, "entity_precision": rates.precision, "entity_recall": rates.recall}
    return figures, {"entities": rates_table(list(report.types), list(report.types.values()))} | details
