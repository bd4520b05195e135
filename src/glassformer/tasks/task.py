"""What a training run asks of a task. The run itself is the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import nn

from glassformer.config import Config
from glassformer.data.store import TokenStore
from glassformer.model import Model
from glassformer.tasks.run_folder import TrainingRequest
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.objectives import Objective

__all__ = ["CorpusSize", "Tokenizers", "TrainingTask"]


class CorpusSize(NamedTuple):
    """What the size of a vocabulary is chosen from."""

    n_rows: int
    n_words: int
    n_chars: int


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizer of what is read and that of what is written; mostly the same one."""

    src: Tokenizer
    tgt: Tokenizer


class TrainingTask(Protocol):
    """One kind of model: its data, its loss, its figures. A run calls the methods in the order in which they stand.

    A task is made anew when a run is resumed; what it must know again it reads from the run folder.
    """

    @property
    def objective(self) -> Objective:
        """What the model learns."""

    def __init__(self, request: TrainingRequest, data: Path) -> None: ...

    def read(self) -> CorpusSize:
        """Checks the data, reports what is found, and divides what is not divided yet."""

    def vocabularies(self) -> list[tuple[str, Iterable[str]]]:
        """File name and training texts of each vocabulary to learn: that of the target first, `tokenizer.json`."""

    def prepare(self, part: str, folder: Path, tokenizers: Tokenizers) -> None:
        """Writes the store of a part: `train`, `valid` or `test`."""

    def validator(
        self, store: TokenStore, config: Config, tokenizers: Tokenizers, say: Callable[[str], None]
    ) -> Callable[[nn.Module], dict[str, float]]:
        """What measures the model while it trains; `loss` is among its figures."""

    def final_metrics(
        self, model: Model, store: TokenStore, config: Config, tokenizers: Tokenizers, *, time_s: float | None
    ) -> dict[str, Any]:
        """The figures of the finished model, in time_s seconds if there is a bound."""

    def summary(self, metrics: dict[str, Any], config: Config) -> str:
        """The final figures as the end of a sentence."""

    def card(self, config: Config, metrics: dict[str, Any], command: str, n_examples: int) -> str:
        """The README.md of the model folder."""
