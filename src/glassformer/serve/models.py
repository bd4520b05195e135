"""The models that are served: what they are, and a worker for each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from glassformer.config import GenerationConfig, ServeConfig
from glassformer.errors import UserError
from glassformer.generation.hypothesis import Hypothesis
from glassformer.model import DecoderOnly, EncoderDecoder
from glassformer.serve.batcher import Batcher
from glassformer.serve.engines import EmbeddingEngine, TextEngine, VotesEngine
from glassformer.serve.items import Engine, Item, Job
from glassformer.serve.metrics import Metrics, ModelWatcher
from glassformer.serve.threads import off_loop
from glassformer.tasks.classifier import Classifier
from glassformer.tasks.decoding import seed_of
from glassformer.tasks.embedder import Embedder
from glassformer.tasks.generator import TextGenerator
from glassformer.tasks.labeller import Labeller
from glassformer.tasks.model_folder import ModelFolder, load_model_folder
from glassformer.tasks.translator import Translation, Translator, join_lines

__all__ = ["Models", "Plan", "ServedModel", "names_of"]

Task = Translator | TextGenerator | Embedder | Classifier | Labeller


@dataclass(frozen=True)
class ServedModel:
    """A model behind its queue."""

    name: str
    task: Task
    batcher: Batcher
    direction: tuple[str, str] | None  # source and target language of a translator
    path: Path | None = None  # its folder, where it was loaded from one
    created: int = field(default_factory=lambda: int(time.time()))

    def submit(self, items: Sequence[Item]) -> Job:
        """Queues the items of a request; see `Batcher.submit`."""
        return self.batcher.submit(items)


class Plan:
    """The texts of a request as the segments that a translator reads.

    Items are the segments of all texts in order; `joined` makes one translation a text of their results.
    """

    def __init__(
        self,
        translator: Translator,
        texts: Sequence[str],
        settings: GenerationConfig,
        *,
        seeds: Sequence[int] | None = None,  # of each text; unset: made from it
        is_streamed: bool = False,
    ) -> None:
        self._translator = translator
        self.lines = [translator.segments(text) for text in texts]
        self.owners = [i for i, text in enumerate(self.lines) for line in text for _ in line]  # the text of each item
        segments = [segment for text in self.lines for line in text for segment in line]
        shared = replace(settings, max_new_tokens=None)  # each item has a limit of its own
        self.items = [
            Item(
                ids=ids,
                size=len(ids),
                settings=shared,
                limit=translator.limit(len(ids), settings),
                seed=seed_of(segment) if seeds is None else seeds[owner] + place,
                is_streamed=is_streamed,
            )
            for place, (owner, segment, ids) in enumerate(
                zip(self.owners, segments, translator.source_ids(segments), strict=True)
            )
        ]

    def joined(self, results: Sequence[object]) -> list[Translation]:
        """The translation of each text."""
        found = iter(map(self._translator.translation_of, results))  # type: ignore[arg-type]
        return [join_lines([[next(found) for _ in line] for line in text]) for text in self.lines]


class Models:
    """Loads models, and finds the one for a name or a direction."""

    def __init__(self, config: ServeConfig, metrics: Metrics) -> None:
        self._config, self._metrics = config, metrics
        self.all: dict[str, ServedModel] = {}
        self.directions: dict[tuple[str, str], ServedModel] = {}

    def load(self, folders: dict[str, Path]) -> None:
        """Loads each folder and decodes something with it, so that the first request finds it warm.

        Raises:
            CheckpointError: A folder cannot be read, or holds a model that cannot be served.
        """
        n_sharing = len(folders) * max(1, self._config.workers)
        n_threads = self._config.threads or max(1, torch.get_num_threads() // n_sharing)
        for name, path in folders.items():
            folder = load_model_folder(path, precision=self._config.precision)
            self.add(name, task_of(folder), direction=direction_of(folder), path=path, n_threads=n_threads)

    def add(
        self,
        name: str,
        task: Task,
        *,
        direction: tuple[str, str] | None = None,
        path: Path | None = None,
        engine: Engine | None = None,
        n_threads: int = 1,
    ) -> ServedModel:
        """Puts a model behind a queue; of two for one direction the first is used."""
        if engine is None:
            engine = engine_of(task)
        warm_up(task)
        batcher = Batcher(
            engine,
            batch_tokens=self._config.batch_tokens,
            max_waiting=self._config.max_waiting,
            wait_s=self._config.batch_wait_s,
            watcher=ModelWatcher(self._metrics, name),
            prepare=lambda: torch.set_num_threads(n_threads),  # the setting belongs to the thread that calls it
        )
        model = ServedModel(name, task, batcher, direction, path)
        self.all[name] = model
        if direction is not None:
            self.directions.setdefault(direction, model)
        return model

    def route(self, src: str, tgt: str) -> list[ServedModel]:
        """The models that lead from one language to another: one, or two over a third language; [] if none do."""
        if (src, tgt) in self.directions:
            return [self.directions[src, tgt]]
        for (start, middle), model in self.directions.items():
            if start == src and (middle, tgt) in self.directions:
                return [model, self.directions[middle, tgt]]
        return []

    def targets(self, src: str) -> list[str]:
        """The languages that a text in `src` can be translated into."""
        ends = sorted({tgt for _, tgt in self.directions})
        return [tgt for tgt in ends if tgt != src and self.route(src, tgt)]

    @property
    def sources(self) -> list[str]:
        """The languages that are translated from."""
        return sorted({src for src, _ in self.directions})

    @property
    def languages(self) -> list[str]:
        """All languages."""
        return sorted({code for pair in self.directions for code in pair})

    def close(self) -> None:
        """Ends the workers."""
        for model in self.all.values():
            model.batcher.close()

    async def translate(self, model: ServedModel, texts: Sequence[str], *, n_best: int = 1) -> list[Translation]:
        """The translation of each text by the model's own search, with up to n_best - 1 alternatives."""
        plan, results = await self.decode(model, texts, n_best=n_best)
        return plan.joined(results)

    async def decode(
        self, model: ServedModel, texts: Sequence[str], *, n_best: int = 1
    ) -> tuple[Plan, list[list[Hypothesis]]]:
        """The same as segments: the hypotheses of each item of the plan."""
        assert isinstance(model.task, Translator)
        saved = model.task.generation
        beam_size = 1 if saved.do_sample else max(saved.beam_size, n_best)
        settings = replace(saved, n_best=1 if saved.do_sample else n_best, beam_size=beam_size)
        plan = await off_loop(texts, Plan, model.task, texts, settings)
        with model.submit(plan.items) as job:
            results = await job.results()
        self.count(model, plan.items, sum(len(best.ids) for best, *_ in results))
        return plan, results

    def count(self, model: ServedModel, items: Sequence[Item], n_made: int) -> None:
        """Adds the tokens of a request to the figures."""
        self._metrics.read.labels(model.name).inc(sum(len(item.ids) for item in items))
        self._metrics.made.labels(model.name).inc(n_made)


def task_of(folder: ModelFolder) -> Task:
    """What serves the model of a folder."""
    if isinstance(folder.model, EncoderDecoder):
        return Translator.of(folder)
    if isinstance(folder.model, DecoderOnly):
        return TextGenerator(folder.model, folder.tokenizer, folder.config.generation)
    if folder.labels is not None:
        return Classifier.of(folder) if folder.config.model.head == "classify" else Labeller.of(folder)
    return Embedder.of(folder)


def engine_of(task: Task) -> Engine:
    """What computes its batches."""
    if isinstance(task, Embedder):
        return EmbeddingEngine(task)
    if isinstance(task, Classifier | Labeller):
        return VotesEngine(task)
    return TextEngine(task)


def direction_of(folder: ModelFolder) -> tuple[str, str] | None:
    """Source and target language, as lower-case codes."""
    is_translator = isinstance(folder.model, EncoderDecoder) and folder.config.task.name == "translate"
    return (folder.config.data.src.lower(), folder.config.data.tgt.lower()) if is_translator else None


def names_of(arguments: Sequence[str]) -> dict[str, Path]:
    """Name -> folder of arguments `FOLDER` or `NAME=FOLDER`; the name of a folder is its last part."""
    folders: dict[str, Path] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        folder = Path(path if equals else argument)
        name = name if equals else folder.resolve().name
        if not (folder / "config.json").is_file():
            raise UserError(f"{folder} is no model folder.", "A folder with a config.json was expected.", "Check it.")
        if not name or name in folders:
            raise UserError(
                f"The name {name!r} is given to two models or is empty.", "Each has its own.", "Write NAME=FOLDER."
            )
        folders[name] = folder
    return folders


def warm_up(task: Task) -> None:
    """Runs a model once."""
    if isinstance(task, Embedder):
        task.embed(["."])
    elif isinstance(task, Classifier):
        task.classify([(".", ".") if task.takes_pairs else "."])
    elif isinstance(task, Labeller):
        task.label(["."])
    elif isinstance(task, Translator):
        task.translate(["."])
    else:
        task.generate(["."], generation=replace(task.generation, max_new_tokens=2, min_new_tokens=0))
