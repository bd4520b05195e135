"""The task of embeddings: an encoder that places a text near the one that belongs to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.config import Config
from glassformer.data.store import TokenStore
from glassformer.data.triples import TripleReader, prepare_triples
from glassformer.errors import ConfigError
from glassformer.model import EncoderOnly, Model
from glassformer.shapes import total
from glassformer.tasks.model_card import file_names, filled_card
from glassformer.tasks.row_vectors import RowVectors
from glassformer.tasks.run_folder import TrainingRequest
from glassformer.tasks.task import Tokenizers
from glassformer.tasks.translation import TranslationTask
from glassformer.tasks.validation import in_time, shuffled, spread
from glassformer.text.readers import PairReader
from glassformer.training.contrastive import ContrastiveObjective
from glassformer.training.parallel import Parallel

__all__ = ["EmbeddingTask", "EmbeddingValidator"]

CHUNK_ROWS = 500  # rows embedded between two looks at the clock


class EmbeddingTask(TranslationTask):
    """Trains an encoder-only model from pairs of texts that belong together, with or without hard negatives."""

    def __init__(self, request: TrainingRequest, data: Path) -> None:
        super().__init__(request, data)
        if not self.config.tokenizer.is_shared:
            raise ConfigError(
                "tokenizer.is_shared=False with task embed.",
                "One encoder reads both sides.",
                "Leave it out.",
            )
        chosen = request.chosen()
        model = self.config.model
        is_own = "model.pooling" in chosen or model.is_normalized  # a sentence model to start from keeps its pooling
        self.objective = ContrastiveObjective(model.pooling if is_own else "mean")
        if "data.max_length_ratio" not in chosen:  # a query may be far shorter than its passage
            self.data_config = replace(self.data_config, max_length_ratio=math.inf)

    def _reader(self, paths: Iterable[str]) -> PairReader:
        data = self.config.data
        return TripleReader(
            list(paths),
            has_negatives=self.config.task.has_negatives,
            src=data.src,
            tgt=data.tgt,
            encoding=data.encoding,
            is_strict=data.is_strict,
        )

    def prepare(self, part: str, folder: Path, tokenizers: Tokenizers) -> None:
        config = self.config.tokenizer
        prepare_triples(
            self.parts[part],
            tokenizers.tgt,
            folder,
            self.data_config,
            n_variants=config.n_variants,
            bpe_dropout=config.bpe_dropout if part == "train" else 0.0,
        )

    def validator(
        self, store: TokenStore, config: Config, tokenizers: Tokenizers, say: Callable[[str], None]
    ) -> Callable[[nn.Module], dict[str, float]]:
        n = Parallel.start().world_size
        if n > 1:
            say(f"Each of the {n} processes contrasts its own part of a batch: a query has 1/{n} of the negatives.")
        return EmbeddingValidator(store, config)

    def final_metrics(
        self, model: Model, store: TokenStore, config: Config, tokenizers: Tokenizers, *, time_s: float | None
    ) -> dict[str, Any]:
        assert isinstance(model, EncoderOnly)
        validator = EmbeddingValidator(store, config)
        figures = {"loss": validator(model)["loss"], "loss_rows": len(validator.rows)}
        vectors = RowVectors(model, store)
        for part in in_time(shuffled(len(store)), CHUNK_ROWS, None if time_s is None else time_s / 2):
            vectors.add(part)
        return figures | vectors.figures() | {"retrieval_rows": len(vectors.rows), "rows": len(store)}

    def summary(self, metrics: dict[str, Any], config: Config) -> str:
        return (
            f"recall@1 {metrics['recall@1']:.3f}, recall@10 {metrics['recall@10']:.3f}, nDCG@10 "
            f"{metrics['ndcg@10']:.3f}, MRR {metrics['mrr']:.3f}, each query among the passages of "
            f"{metrics['retrieval_rows']:,} rows"
        )

    def card(self, config: Config, metrics: dict[str, Any], command: str, n_examples: int) -> str:
        model, task = config.model, config.task
        widths = f" Its first {task.min_width} or more features serve as a shorter vector." if task.min_width else ""
        return filled_card(
            "Sentence embeddings",
            metrics,
            command=command,
            model=f"Encoder-only Transformer, {total(model):,} parameters: {model.n_encoder_layers} layers, width "
            f"{model.d_model}, {model.n_heads} heads, feed-forward {model.d_ff}, vocabulary {model.vocab_size:,}. "
            f"A text's vector has {model.d_model} features ({model.pooling} of its tokens, length 1).{widths}",
            data=f"{n_examples:,} pairs of {file_names(self.request.data)}; texts of more than "
            f"{config.data.max_tokens} tokens were left out.",
            limits="It knows the kind of text that it was trained on, and likeness as its pairs show it. Texts of more "
            f"than {config.data.max_tokens} tokens are cut. Figures are for the passages of these rows: among more of "
            "them each is harder to find.",
        )


class EmbeddingValidator:
    """Loss and retrieval figures of a model on a fixed sample of the validation rows; see `RowVectors`."""

    def __init__(self, store: TokenStore, config: Config) -> None:
        self.store, self.config = store, config
        self.rows = spread(len(store), config.validation.rows)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, EncoderOnly)
        vectors = RowVectors(model, self.store)
        vectors.add(self.rows)
        return {"loss": vectors.loss(self.config.task.similarity_scale)} | vectors.figures()
