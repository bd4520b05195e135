"""What the two tasks of labels share: of texts, and of words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from glassformer.config import Config
from glassformer.errors import ConfigError, DataError
from glassformer.shapes import total
from glassformer.tasks.model_card import file_names, filled_card
from glassformer.tasks.run_folder import TrainingRequest
from glassformer.tasks.task import CorpusSize, Tokenizers
from glassformer.tasks.translation import MAX_TOKENIZER_ROWS
from glassformer.text.label_set import LabelSet
from glassformer.text.split import Part, Source
from glassformer.text.tags import Scheme
from glassformer.training.checkpoint import write_text

__all__ = ["LabelTask"]

MAX_SHOWN = 12  # labels named in a message, the most frequent first
MAX_CONFUSIONS = 30  # labels of the largest table of confusions in a card


class LabelledRow(Protocol):
    """A row of a reader of labels."""

    labels: tuple[str, ...]


Row = TypeVar("Row", bound=LabelledRow)


class LabelTask(ABC, Generic[Row]):
    """Reads labelled data, learns its labels, and divides it."""

    figures: tuple[str, ...]  # that a validation gives, and that may choose the best model
    unit: str  # what a label belongs to, in the plural
    n_texts = 1  # texts of a row

    def __init__(self, request: TrainingRequest, data: Path) -> None:
        self.request, self.config, self.data = request, request.resolved.config, data
        bound = self.config.model.max_positions or self.config.data.max_tokens
        self.max_tokens = min(self.config.data.max_tokens, bound)
        metric = self.config.validation.metric
        if metric not in self.figures:
            raise ConfigError(
                f"validation.metric={metric} is no figure of --task {self.config.task.name}.",
                f"One of {', '.join(self.figures)} was expected.",
                "Choose one of these.",
            )

    # -- the data ---------------------------------------------------------------------------------------------

    @abstractmethod
    def reader(self, paths: Sequence[str]) -> Source[Row]:
        """Reads data files."""

    @abstractmethod
    def text_of(self, row: Row) -> str:
        """The text of a row: what decides into which part it goes, and what the vocabulary is learned from."""

    @abstractmethod
    def store(self, part: Source[Row], tokenizers: Tokenizers, folder: Path, *, is_train: bool) -> None:
        """Writes the store of a part and says what was shortened."""

    def scheme(self, rows: Iterable[Row]) -> Scheme:
        """The scheme of the labels, said to the user where there is one."""
        return "none"

    def read(self) -> CorpusSize:
        request = self.request
        self.parts: dict[str, Source[Row]] = self._divided(self.reader(request.data))
        if request.test:
            self.parts["test"] = self.reader(request.test)
        counts: Counter[str] = Counter()
        n_rows = n_labelled = n_words = n_chars = 0
        for row in self.parts["train"]:
            counts.update(row.labels)
            text = self.text_of(row)
            n_rows, n_labelled = n_rows + 1, n_labelled + self.n_labelled(row)
            n_words, n_chars = n_words + text.count(" ") + 1, n_chars + len(text)
        self._save_labels(counts, n_labelled)
        self.step = max(1, -(-n_rows // MAX_TOKENIZER_ROWS))
        return CorpusSize(n_rows, n_words, n_chars)

    def n_labelled(self, row: Row) -> int:
        """How many things of a row have labels."""
        return 1

    def _divided(self, reader: Source[Row]) -> dict[str, Source[Row]]:
        """The training and the validation part, which is held out where no file is given."""
        request = self.request
        n_rows = sum(1 for _ in reader)
        for reason, count in reader.bad.items():
            request.say(f"Bad rows: {count:,} with {reason}, first at {reader.bad_examples[reason]}.")
        if request.valid:
            return {"train": reader, "valid": self.reader(request.valid)}
        share = min(self.config.data.valid_rows / n_rows, 0.1)
        parts: dict[str, Source[Row]] = {
            name: Part(reader, key=self.text_of, valid_share=share, is_valid=name == "valid")
            for name in ("train", "valid")
        }
        if any(next(iter(part), None) is None for part in parts.values()):
            raise DataError(
                f"{n_rows:,} rows are too few to hold some out for validation.",
                "A tenth of them (or data.valid_rows) is held out.",
                "Give more data, or others with --valid.",
            )
        request.say(f"Held out for validation: about {share:.1%} of the rows, chosen by their text (no --valid).")
        return parts

    def _save_labels(self, counts: Mapping[str, int], n_labelled: int) -> None:
        names = sorted(counts)
        if len(names) < 2 and not (names and self.config.task.is_multi_label):
            raise DataError(
                f"The training data have {len(names)} label{'s' * (len(names) != 1)}: {', '.join(names) or 'none'}.",
                "At least two were expected.",
                "Check the column of the labels.",
            )
        scheme = self.scheme(self.parts["train"])
        labels = LabelSet(tuple(names), tuple(counts[name] for name in names), n_labelled, scheme, self.n_texts)
        self.data.mkdir(parents=True, exist_ok=True)
        write_text(self.data / "labels.json", labels.to_json())
        ranked = sorted(names, key=lambda name: -counts[name])
        shown = ", ".join(f"{name} {counts[name]:,}" for name in ranked[:MAX_SHOWN])
        more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
        share = counts[ranked[0]] / n_labelled
        self.request.say(
            f"{len(names)} labels of {n_labelled:,} {self.unit}: {shown}{more}. {ranked[0]!r} is right {share:.1%} of "
            "the time."
        )

    @property
    def labels(self) -> LabelSet:
        """The labels of the training data."""
        return LabelSet.load(self.data / "labels.json")

    def vocabularies(self) -> list[tuple[str, Iterable[str]]]:
        if self.step > 1:
            self.request.say(f"The vocabulary is learned from one row in {self.step}.")
        return [("tokenizer.json", self._texts())]

    def _texts(self) -> Iterator[str]:
        return map(self.text_of, islice(self.parts["train"], 0, None, self.step))

    def prepare(self, part: str, folder: Path, tokenizers: Tokenizers) -> None:
        self.store(self.parts[part], tokenizers, folder, is_train=part == "train")

    # -- the card ---------------------------------------------------------------------------------------------

    def filled_card(self, config: Config, metrics: dict[str, Any], *, title: str, command: str, **parts: str) -> str:
        """The card with the figures of each label."""
        model = config.model
        described = (
            f"Encoder-only Transformer, {total(model):,} parameters: {model.n_encoder_layers} layers, width "
            f"{model.d_model}, {model.n_heads} heads, feed-forward {model.d_ff}, vocabulary {model.vocab_size:,}, "
            f"{model.n_labels} labels."
        )
        card = filled_card(title, metrics, command=command, model=described, **parts)
        return card + _labels_section(metrics)

    def data_line(self, n_examples: int, unit: str) -> str:
        """How much data from which files."""
        return f"{n_examples:,} {unit} of {file_names(self.request.data)}"


def _labels_section(metrics: dict[str, Any]) -> str:
    """The figures of each label and the confusions, as tables."""
    lines = []
    if "labels" in metrics:
        lines += ["## Labels", "", "| label | precision | recall | F1 | rows |", "| --- | --- | --- | --- | --- |"]
        for name, rate in metrics["labels"].items():
            figures = " | ".join(f"{rate[key]:.3f}" for key in ("precision", "recall", "f1"))
            lines.append(f"| {_cell(name)} | {figures} | {rate['support']:,} |")
        lines.append("")
    confusion = metrics.get("confusion", {})
    if 0 < len(confusion) <= MAX_CONFUSIONS:
        lines += ["## Confusions", "", "Rows are the right labels, columns the model's.", ""]
        lines += [f"| | {' | '.join(map(_cell, confusion))} |", "| --- " * (len(confusion) + 1) + "|"]
        for name, row in confusion.items():
            lines.append(f"| {_cell(name)} | {' | '.join(f'{row.get(other, 0):,}' for other in confusion)} |")
        lines.append("")
    return "\n" + "\n".join(lines) if lines else ""


def _cell(text: str) -> str:
    """A text that does not end a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")
