"""What the tasks that learn from raw text share: its reading, its division, its vocabulary."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from glassformer.config import Config
from glassformer.data.documents import document_hashes, prepare_documents
from glassformer.data.store import TokenStore
from glassformer.errors import ConfigError, DataError
from glassformer.model import Model
from glassformer.shapes import total
from glassformer.tasks.model_card import file_names, filled_card
from glassformer.tasks.run_folder import TrainingRequest
from glassformer.tasks.task import CorpusSize, Tokenizers
from glassformer.text.documents import Document, DocumentReader
from glassformer.text.split import Part
from glassformer.training.objectives import Objective

__all__ = ["RawTextTask"]

MAX_TOKENIZER_CHARS = 100_000_000  # characters that the vocabulary is learned from; of more, every k-th document


class RawTextTask:
    """Trains a model from documents; a task says what is learned from them."""

    objective: Objective
    title: str  # of the model card

    def __init__(self, request: TrainingRequest, data: Path) -> None:
        self.request, self.config = request, request.resolved.config
        if not self.config.tokenizer.is_shared:
            raise ConfigError(
                f"tokenizer.is_shared=False with the task {self.config.task.name}.",
                "Raw text has one vocabulary.",
                "Leave it out.",
            )

    # -- the data ---------------------------------------------------------------------------------------------

    def read(self) -> CorpusSize:
        request, reader = self.request, self._reader(self.request.data)
        size, hashes = _measured(reader)
        self.step = max(1, -(-size.n_chars // MAX_TOKENIZER_CHARS))
        request.say(f"{size.n_rows:,} documents, {size.n_words:,} words, {size.n_chars:,} characters.")
        self.parts: dict[str, Any] = {"train": reader}
        for part, paths in (("valid", request.valid), ("test", request.test)):
            if paths:
                self.parts[part] = self._reader(paths)
                _, others = _measured(self.parts[part])
                n_known = int(np.isin(others, hashes).sum())
                if n_known:
                    request.say(f"warning: {n_known:,} of {len(others):,} {part} documents stand in the training data.")
        if not request.valid:
            self._hold_out(reader, size.n_rows)
        return size

    def _hold_out(self, reader: DocumentReader, n_documents: int) -> None:
        share = min(self.config.data.valid_rows / n_documents, 0.1)
        for name in ("train", "valid"):
            part = Part(reader, key=lambda document: document.text, valid_share=share, is_valid=name == "valid")
            self.parts[name] = part
            if next(iter(part), None) is None:
                raise DataError(
                    f"{n_documents:,} documents are too few to hold some out for validation.",
                    "A tenth of them (or data.valid_rows) is held out.",
                    "Give others with --valid, or say what a document is (data.document).",
                )
        self.request.say(
            f"Held out for validation: about {share:.1%} of the documents, chosen by their text (no --valid)."
        )

    def _reader(self, paths: Sequence[str]) -> DocumentReader:
        data = self.config.data
        return DocumentReader(paths, form=data.document, encoding=data.encoding, is_strict=data.is_strict)

    def vocabularies(self) -> list[tuple[str, Iterable[str]]]:
        if self.step > 1:
            self.request.say(f"The vocabulary is learned from every {self.step}th document.")
        return [("tokenizer.json", self._texts())]

    def _texts(self) -> Iterator[str]:
        for document in islice(self.parts["train"], 0, None, self.step):
            yield document.text

    def prepare(self, part: str, folder: Path, tokenizers: Tokenizers) -> None:
        config = self.config.tokenizer
        prepare_documents(
            self.parts[part],
            tokenizers.tgt,
            folder,
            self.config.data,
            n_variants=config.n_variants,
            bpe_dropout=config.bpe_dropout if part == "train" else 0.0,
            **self._form(),
        )

    def _form(self) -> dict[str, Any]:
        """How documents become rows; see `prepare_documents`."""
        return {}

    # -- the figures ------------------------------------------------------------------------------------------

    @abstractmethod
    def validator(
        self, store: TokenStore, config: Config, tokenizers: Tokenizers, say: Callable[[str], None]
    ) -> Callable[[nn.Module], dict[str, float]]: ...

    @abstractmethod
    def final_metrics(
        self, model: Model, store: TokenStore, config: Config, tokenizers: Tokenizers, *, time_s: float | None
    ) -> dict[str, Any]: ...

    @abstractmethod
    def summary(self, metrics: dict[str, Any], config: Config) -> str: ...

    @property
    @abstractmethod
    def limits(self) -> str:
        """What the model cannot do, for its card."""

    def card(self, config: Config, metrics: dict[str, Any], command: str, n_examples: int) -> str:
        model = config.model
        n_layers = {
            "encoder-only": f"{model.n_encoder_layers}",
            "decoder-only": f"{model.n_decoder_layers}",
            "encoder-decoder": f"{model.n_encoder_layers} + {model.n_decoder_layers}",
        }[model.family]
        return filled_card(
            self.title,
            metrics,
            command=command,
            model=f"{model.family.capitalize()} Transformer, {total(model):,} parameters: {n_layers} layers, width "
            f"{model.d_model}, {model.n_heads} heads, feed-forward {model.d_ff}, vocabulary {model.vocab_size:,}.",
            data=f"{n_examples:,} {self.objective.unit} of {file_names(self.request.data)}.",
            limits=self.limits,
        )


class PiecewiseTask(RawTextTask):
    """A task that reads one row of text at a time: longer documents are cut, and nothing is dropped."""

    def __init__(self, request: TrainingRequest, data: Path) -> None:
        super().__init__(request, data)
        task, bound = self.config.task.name, self.config.model.max_positions
        self.max_piece = min(self.config.data.max_tokens, bound or self.config.data.max_tokens) - 2  # begin and end
        if self.max_piece < 1:
            raise ConfigError(
                f"data.max_tokens={self.config.data.max_tokens} leaves no room for text.",
                "A row has a begin, an end and a token at least.",
                "Use data.max_tokens=256, say.",
            )
        if self.config.tokenizer.bpe_dropout:
            raise ConfigError(
                f"tokenizer.bpe_dropout={self.config.tokenizer.bpe_dropout} with the task {task}.",
                "Documents are cut into rows by their tokens, which each tokenisation would do in another way.",
                "Leave it out.",
            )

    def _form(self) -> dict[str, Any]:
        return {"max_piece": self.max_piece}


def _measured(reader: DocumentReader) -> tuple[CorpusSize, np.ndarray[Any, np.dtype[np.uint64]]]:
    """The size of the documents, and 64 bits of each of their texts."""
    n_words = n_chars = 0

    def counted() -> Iterator[Document]:
        nonlocal n_words, n_chars
        for document in reader:
            n_words += len(document.text.split())
            n_chars += len(document.text)
            yield document

    hashes = document_hashes(counted())
    return CorpusSize(len(hashes), n_words, n_chars), hashes
