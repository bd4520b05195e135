"""The task of classification: which label a text has, or which labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import Config
from glassformer.data.labelled import prepare_texts, room_for
from glassformer.data.store import TokenStore
from glassformer.evaluation.labels import choice_report, confusion_table, rates_table, yes_no_report
from glassformer.model import EncoderOnly, Model
from glassformer.tasks.classifier import probabilities
from glassformer.tasks.label_task import LabelTask
from glassformer.tasks.run_folder import TrainingRequest
from glassformer.tasks.task import Tokenizers
from glassformer.tasks.validation import in_time, shuffled, spread
from glassformer.tasks.votes import Votes, votes
from glassformer.text.label_set import LabelSet
from glassformer.text.labelled import LabelledText, TextReader
from glassformer.text.split import Source
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.label_losses import ClassificationObjective, choice_loss, yes_no_loss

__all__ = ["ClassificationTask", "ClassificationValidator"]

CHUNK_ROWS = 500  # rows measured between two looks at the clock


class ClassificationTask(LabelTask[LabelledText]):
    """Trains an encoder-only model from texts, or pairs of texts, with labels."""

    unit = "texts"

    def __init__(self, request: TrainingRequest, data: Path) -> None:
        is_multi_label = request.resolved.config.task.is_multi_label
        self.figures = ("loss", "accuracy", "macro_f1", *(["micro_f1"] if is_multi_label else []))
        super().__init__(request, data)
        self.objective = ClassificationObjective(data, is_started=self.config.task.start is not None)
        self.has_pairs: bool | None = None

    def reader(self, paths: Sequence[str]) -> TextReader:
        data = self.config.data
        return TextReader(
            list(paths),
            is_multi_label=self.config.task.is_multi_label,
            has_pairs=self.has_pairs,
            encoding=data.encoding,
            is_strict=data.is_strict,
        )

    def _divided(self, reader: Source[LabelledText]) -> dict[str, Source[LabelledText]]:
        assert isinstance(reader, TextReader)
        self.has_pairs = next(iter(reader)).text_b is not None
        self.n_texts = 2 if self.has_pairs else 1
        return super()._divided(reader)

    def text_of(self, row: LabelledText) -> str:
        return row.text if row.text_b is None else f"{row.text} {row.text_b}"

    def store(self, part: Source[LabelledText], tokenizers: Tokenizers, folder: Path, *, is_train: bool) -> None:
        config, labels = self.config, self.labels
        n_cut = prepare_texts(
            part,
            tokenizers.tgt,
            labels,
            folder,
            room=room_for(self.max_tokens, use_bos=True, n_texts=labels.n_texts),
            drop_duplicates=is_train and config.data.drop_duplicates,
            n_variants=config.tokenizer.n_variants,
            dropout=config.tokenizer.bpe_dropout if is_train else 0.0,
        )
        if n_cut:
            self.request.say(f"{folder.name}: {n_cut:,} texts were cut to {self.max_tokens} tokens, the ends kept.")

    def validator(
        self, store: TokenStore, config: Config, tokenizers: Tokenizers, say: Callable[[str], None]
    ) -> Callable[[nn.Module], dict[str, float]]:
        return ClassificationValidator(store, config, self.labels, tokenizers.tgt, say=say)

    def final_metrics(
        self, model: Model, store: TokenStore, config: Config, tokenizers: Tokenizers, *, time_s: float | None
    ) -> dict[str, Any]:
        assert isinstance(model, EncoderOnly)
        rows: list[int] = []
        found: list[Votes] = []
        for part in in_time(shuffled(len(store)), CHUNK_ROWS, time_s):
            found += votes(model, [store.src(i) for i in part])
            rows += part
        figures, details = measured(found, store, rows, self.labels, is_multi_label=config.task.is_multi_label)
        return figures | {"rows_measured": len(rows), "rows": len(store)} | details

    def summary(self, metrics: dict[str, Any], config: Config) -> str:
        return (
            ", ".join(f"{name} {metrics[name]:.3f}" for name in self.figures) + f" on {metrics['rows_measured']:,} rows"
        )

    def card(self, config: Config, metrics: dict[str, Any], command: str, n_examples: int) -> str:
        kind = "Multi-label classifier" if config.task.is_multi_label else "Classifier"
        return self.filled_card(
            config,
            metrics,
            title=f"{kind} of {'pairs of texts' if self.labels.n_texts > 1 else 'texts'}",
            command=command,
            data=self.data_line(n_examples, self.unit) + f"; texts of more than {self.max_tokens} tokens were cut.",
            limits="It knows the kind of text and the labels that it was trained on, and gives a label to any text "
            "whatever. Its probabilities were not calibrated. What stands behind the first "
            f"{self.max_tokens} tokens of a text is not read.",
        )


class ClassificationValidator:
    """Loss, accuracy and F1 of a model on a fixed sample of the validation rows; the same for any batch size.

    The loss is without label smoothing and class weights.
    """

    def __init__(
        self, store: TokenStore, config: Config, labels: LabelSet, tokenizer: Tokenizer, *, say: Callable[[str], None]
    ) -> None:
        self.store, self.config, self.labels, self.tokenizer, self.say = store, config, labels, tokenizer, say
        self.rows = spread(len(store), config.validation.rows)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, EncoderOnly)
        is_multi_label = self.config.task.is_multi_label
        found = votes(model, [self.store.src(i) for i in self.rows])
        for i, logits in list(zip(self.rows, found, strict=True))[: self.config.validation.samples]:
            said, right = _chosen(logits, is_multi_label=is_multi_label), self.store.tgt(i).tolist()
            text = self.tokenizer.decode(self.store.src(i).tolist())
            self.say(f"  {text}\n  -> {self._named(said)}\n   = {self._named(right)}")
        return measured(found, self.store, self.rows, self.labels, is_multi_label=is_multi_label)[0]

    def _named(self, numbers: Sequence[int]) -> str:
        return ", ".join(self.labels.names[number] for number in numbers) or "no label"


def _chosen(logits: Votes, *, is_multi_label: bool) -> list[int]:
    """The labels that the model gives."""
    if is_multi_label:
        return np.flatnonzero(probabilities(logits, is_multi_label=True) >= 0.5).tolist()
    return [int(logits.argmax())]


def measured(
    found: Sequence[Votes], store: TokenStore, rows: Sequence[int], labels: LabelSet, *, is_multi_label: bool
) -> tuple[dict[str, float], dict[str, Any]]:
    """The figures of votes for some rows, and the tables of each label."""
    logits = torch.from_numpy(np.stack(found))
    if not is_multi_label:
        expected = [int(store.tgt(i)[0]) for i in rows]
        _, nll = choice_loss(logits, torch.tensor(expected), weights=None, smoothing=0.0)
        choice = choice_report(expected, logits.argmax(-1).tolist(), len(labels))
        figures = {"loss": float(nll) / len(rows), "accuracy": choice.accuracy, "macro_f1": choice.macro_f1}
        confusion = confusion_table(labels.names, choice.confusion)
        return figures, {"labels": rates_table(labels.names, choice.rates), "confusion": confusion}
    has = torch.zeros(logits.shape, dtype=torch.bool)
    for flags, i in zip(has, rows, strict=True):
        flags[store.tgt(i).astype(np.int64)] = True
    _, nll = yes_no_loss(logits, has.double(), weights=None, smoothing=0.0)
    shares: Tensor = logits.sigmoid()
    report = yes_no_report(has.numpy(), (shares >= 0.5).numpy())
    figures = {name: getattr(report, name) for name in ("accuracy", "macro_f1", "micro_f1")}
    return {"loss": float(nll) / len(rows)} | figures, {"labels": rates_table(labels.names, report.rates)}
