"""From files of text to a trained, measured, saved model: the main job, in the order in which it happens."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from glassformer.allocator import keep_freed_memory
from glassformer.config import Config, ModelConfig
from glassformer.data.store import TokenStore
from glassformer.data.stream import BatchStream
from glassformer.errors import ConfigError, TrainingError, UserError
from glassformer.model import EncoderDecoder, build_model
from glassformer.resolve import config_from_dict, config_to_dict
from glassformer.tasks.film import FILM, Probe
from glassformer.tasks.model_folder import load_model_folder, save_model_folder
from glassformer.tasks.probe import save_probe
from glassformer.tasks.run_folder import RunFolder, TrainingRequest
from glassformer.tasks.start import Start
from glassformer.tasks.summarization import SummarizationTask, summary_settings
from glassformer.tasks.task import CorpusSize, Tokenizers, TrainingTask
from glassformer.tasks.translation import TranslationTask
from glassformer.text.imported import load_tokenizer
from glassformer.text.tokenizer import Tokenizer, choose_vocab_size
from glassformer.training.checkpoint import Checkpoints, load_state, load_tensors, save_tensors
from glassformer.training.finetuning import choose_trained, frozen_parameters
from glassformer.training.lexicon import Lexicon, count_lexicon, start_from_lexicon
from glassformer.training.lora import merge_adapters, merged
from glassformer.training.objectives import TranslationObjective
from glassformer.training.parallel import Parallel
from glassformer.training.plan import Plan, make_plan
from glassformer.training.progress import RunLog, duration
from glassformer.training.trainer import RunLength, Trainer, TrainerState

__all__ = ["TrainingRequest", "run_training"]

_UNSHARED: dict[str, Any] = {"all": "decoder", "decoder": "decoder", "inputs": "none", "none": "none"}
LEXICON = "lexicon.safetensors"
QUICK_BUDGET_S = 2 * 3600  # up to this budget the vocabulary stays small


def build_task(request: TrainingRequest, folder: RunFolder) -> TrainingTask:
    """The task that the config names; its module is imported here, when it is needed."""
    name = request.resolved.config.task.name
    if name == "translate":
        return TranslationTask(request, folder.data)
    if name == "embed":
        from glassformer.tasks.embedding import EmbeddingTask

        return EmbeddingTask(request, folder.data)
    if name == "classify":
        from glassformer.tasks.classification import ClassificationTask

        return ClassificationTask(request, folder.data)
    if name == "label":
        from glassformer.tasks.labelling import LabellingTask

        return LabellingTask(request, folder.data)
    if name == "lm":
        from glassformer.tasks.language_modelling import LanguageModelTask

        return LanguageModelTask(request, folder.data)
    if name == "mlm":
        from glassformer.tasks.masked_language import MaskedLanguageTask

        return MaskedLanguageTask(request, folder.data)
    if name == "denoise":
        from glassformer.tasks.denoising import DenoisingTask

        return DenoisingTask(request, folder.data)
    return SummarizationTask(request, folder.data)


def run_training(request: TrainingRequest) -> dict[str, Any]:
    """Trains, measures and saves a model; returns its metrics.

    The run folder holds the best model so far, `log.jsonl`, `learning-curve.svg`, `data/` (the tokenised texts) and
    `checkpoints/`. The same request with `is_resumed` goes on from the newest checkpoint.
    """
    parallel = Parallel.start()
    folder = RunFolder(request.out)
    if parallel.is_main:
        folder.open(request)
    parallel.sum([0.0])  # the others wait for the folder
    if folder.saved("is_finished"):
        if parallel.is_main:
            request.say(f"{request.out} is finished already; nothing to do.")
        metrics = load_model_folder(request.out).metrics
    else:
        try:
            run = _Run(request, folder, parallel)
            if parallel.is_main and not folder.saved("plan"):
                run.prepare()
            parallel.sum([0.0])  # the others wait for the data
            state = run.train()
        except UserError:
            if parallel.is_main:
                folder.give_up()
            raise
        metrics = run.finish(state) if parallel.is_main else {}
    parallel.finish()
    return metrics


class _Run:
    """The steps of a run."""

    def __init__(self, request: TrainingRequest, folder: RunFolder, parallel: Parallel) -> None:
        self.folder, self.parallel = folder, parallel
        self.out = folder.path
        self.say: Callable[[str], None] = request.say if parallel.is_main else lambda text: None
        config = request.resolved.config
        self.start = None if config.task.start is None else Start(config.task.start)
        if self.start is not None:
            if config.training.init == "lexicon":
                raise ConfigError(
                    f"training.init=lexicon with --from {self.start.path}.",
                    "A lexicon starts a fresh model that learns from pairs of texts.",
                    "Leave one of them out.",
                )
            self.start.require_same(folder.saved("start"))
            config = self.start.adapted(config, request.chosen())
        if config.task.name == "summarize":
            config = summary_settings(config, request.chosen(), self.say)
        self.request = replace(request, resolved=replace(request.resolved, config=config))
        self.task = build_task(self.request, folder)

    # -- the data ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Checks the data, learns the vocabulary, tokenises, and plans the run; what is done already stays."""
        if self.start is not None:
            self.folder.save("start", {"sha256": self.start.sha256})
        self.say(f"Reading {', '.join(self.request.data)}")
        size = self.task.read()
        self.folder.data.mkdir(exist_ok=True)
        if self.start is None:
            self._learn_vocabularies(size)
        else:
            self.start.copy_tokenizers(self.folder.data)
        tokenizers = self._load_tokenizers()
        for part in ("train", "valid", *(["test"] if self.request.test else [])):
            self._store(part, tokenizers)
        init = self._choose_init(tokenizers)
        plan = self._plan(tokenizers, init)
        self.folder.save("plan", {"config": config_to_dict(plan.config), "length": asdict(plan.length)})

    def _learn_vocabularies(self, corpus: CorpusSize) -> None:
        config = self.request.resolved.config
        size = config.tokenizer.vocab_size
        if size is None:
            budget_s = config.training.budget_s
            is_quick = budget_s is not None and budget_s <= QUICK_BUDGET_S
            size, reason = choose_vocab_size(corpus.n_words, corpus.n_chars, config=config.tokenizer, is_quick=is_quick)
            self.say(f"tokenizer.vocab_size={size}: {reason}")
        for name, texts in self.task.vocabularies():
            path = self.folder.data / name
            if not path.exists():
                Tokenizer.train(texts, config.tokenizer, vocab_size=size).save(path)
            n_entries = Tokenizer.load(path).vocab_size
            fewer = f"; the texts support no more of the {size:,} wanted" if n_entries < size else ""
            self.say(f"Vocabulary {name}: {n_entries:,} entries ({config.tokenizer.kind}){fewer}.")

    def _load_tokenizers(self) -> Tokenizers:
        tgt = load_tokenizer(self.folder.data / "tokenizer.json")
        path = self.folder.data / "source_tokenizer.json"
        return Tokenizers(src=load_tokenizer(path) if path.exists() else tgt, tgt=tgt)

    def _store(self, part: str, tokenizers: Tokenizers) -> None:
        """Tokenises one part into its store, unless that is there, and says what was left out and why."""
        folder = self.folder.data / part
        if not (folder / "store.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            self.task.prepare(part, folder, tokenizers)
        store = TokenStore.open(folder)
        left_out = ", ".join(f"{entry['count']:,} {reason}" for reason, entry in store.excluded.items())
        self.say(
            f"{part}: {len(store):,} {self.task.objective.unit}, {store.n_tokens:,} tokens. Left out: "
            f"{left_out or 'nothing'}."
        )

    def _choose_init(self, tokenizers: Tokenizers) -> Literal["random", "lexicon"]:
        """Settles training.init: where a fresh model is to learn from pairs, what their pieces have to do with each
        other is counted first, unless that is done."""
        training = self.request.resolved.config.training
        can_count = self.start is None and isinstance(self.task.objective, TranslationObjective)
        if training.init == "random" or not can_count:
            return "random"
        path = self.folder.data / LEXICON
        if not path.exists():
            store = TokenStore.open(self.folder.data / "train")
            lexicon = count_lexicon(
                store.sources,
                store.targets,
                n_src=tokenizers.src.vocab_size,
                n_tgt=tokenizers.tgt.vocab_size,
                seed=training.seed,
            )
            save_tensors(path, lexicon._asdict())
            n_known, n = int(lexicon.tgt.any(1).sum()), len(lexicon.tgt)
            self.say(
                f"training.init=lexicon: {n_known:,} of {n:,} entries start near those that they share pairs with."
            )
        return "lexicon"

    # -- the plan ---------------------------------------------------------------------------------------------

    def _plan(self, tokenizers: Tokenizers, init: Literal["random", "lexicon"]) -> Plan:
        """Settles model, batch, rate and length, and prints each choice with its reason."""
        config, chosen = self.request.resolved.config, set(self.request.chosen())
        fit = self.task.objective.fit
        if self.start is None:
            model = fit(self._with_vocabulary(config.model, tokenizers))
        else:
            model = self.start.fitted(fit, config.model)
        if "model.vocab_size" in chosen and model.vocab_size != config.model.vocab_size:
            self.say(
                f"model.vocab_size={model.vocab_size} instead of {config.model.vocab_size}: that of the vocabulary."
            )
        if model.tying != config.model.tying:
            self.say(f"model.tying={model.tying}: two vocabularies cannot share one table.")
        self._set_up_process(config)
        bound = model.max_positions or config.data.max_tokens
        data = replace(config.data, max_tokens=min(config.data.max_tokens, bound))
        plan = make_plan(
            replace(config, model=model, data=data, training=replace(config.training, init=init)),
            TokenStore.open(self.folder.data / "train"),
            self.task.objective,
            chosen=chosen,
            elapsed_s=self.request.elapsed_s,
        )
        for reason in plan.reasons:
            self.say(reason)
        return plan

    def _with_vocabulary(self, model: ModelConfig, tokenizers: Tokenizers) -> ModelConfig:
        """The architecture with the vocabularies of these tokenizers."""
        src, tgt = tokenizers.src, tokenizers.tgt
        is_shared = src is tgt or tgt.vocab_hash == src.vocab_hash
        return replace(
            model,
            vocab_size=tgt.vocab_size,
            src_vocab_size=None if is_shared else src.vocab_size,
            tying=model.tying if is_shared else _UNSHARED[model.tying],
            pad_id=tgt.pad_id,
            bos_id=tgt.bos_id,
            eos_id=tgt.eos_id,
            unk_id=tgt.unk_id,
        )

    def _set_up_process(self, config: Config) -> None:
        keep_freed_memory()
        if config.training.n_threads is not None:
            torch.set_num_threads(config.training.n_threads)

    # -- training ---------------------------------------------------------------------------------------------

    def train(self) -> TrainerState:
        """Runs the trainer, from the newest checkpoint if there is one."""
        saved = self.folder.saved("plan")
        self.config = config = config_from_dict(saved["config"], str(self.out / "run.json"))
        self._set_up_process(config)
        self.tokenizers = self._load_tokenizers()
        self.valid = TokenStore.open(self.folder.data / "valid")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(config.training.seed)
        self.model = build_model(config.model)
        fresh = () if self.start is None else self.start.fill(self.model, self.say, self.folder.labels())
        if config.training.init == "lexicon" and isinstance(self.model, EncoderDecoder):
            start_from_lexicon(self.model, Lexicon(**load_tensors(self.folder.data / LEXICON)))
        choose_trained(self.model, config.training, fresh)
        self.model.to(device)
        self.validate = self.task.validator(self.valid, config, self.tokenizers, self.say)
        trainer = self._trainer(RunLength(**saved["length"]))
        n_all = sum(parameter.numel() for parameter in self.model.parameters())
        n_frozen = sum(parameter.numel() for parameter in frozen_parameters(self.model).values())
        count = f"{n_all - n_frozen:,} of {n_all:,}" if n_frozen else f"{n_all:,}"
        self.say(
            f"Training {count} parameters in {config.training.precision} on {device}, "
            f"{torch.get_num_threads()} threads, {self.parallel.world_size} process(es)."
        )
        try:
            return trainer.run()
        finally:
            if self.parallel.is_main and self.log.path.exists():
                self.log.draw(self.out / "learning-curve.svg")

    def _trainer(self, length: RunLength) -> Trainer:
        """The trainer, where the newest checkpoint left it."""
        config, parallel, objective = self.config, self.parallel, self.task.objective
        store = TokenStore.open(self.folder.data / "train")
        checkpoints = Checkpoints(self.out / "checkpoints", keep_last=config.training.keep_last)
        self.n_examples = len(store)
        self.log = RunLog(self.out, is_main=parallel.is_main, use_tensorboard=config.training.use_tensorboard)
        self.film = RunLog(self.out, is_main=parallel.is_main, name=FILM)
        has_film = bool(config.validation.film.strip()) and parallel.is_main
        self.probe = Probe(config, self.tokenizers) if has_film else None
        trainer = Trainer(
            objective.loss(self.model, config),
            self.model,
            BatchStream(
                objective.batches(config, store),
                rank=parallel.rank,
                world_size=parallel.world_size,
                accumulation=config.training.accumulation,
            ),
            config=config.training,
            validation=config.validation,
            length=length,
            checkpoints=checkpoints,
            log=self.log,
            parallel=parallel,
            validate=lambda model: self._filmed(model, trainer.state.update),
            on_best=lambda weights, figures: self._save_model(weights, {"validation": figures}),
        )
        self.model = trainer.plain_model  # type: ignore[assignment]  # a copy where the trained one is wrapped
        updates = checkpoints.updates()
        if updates:
            trainer.resume(updates[-1])
            self.say(f"Resumed from update {updates[-1]}.")
        self.log.rewind(trainer.state.update, trainer.state.groups)
        self.film.rewind(trainer.state.update, trainer.state.groups)
        if not self.film.read():
            self._record(self.model.eval(), update=0)
        return trainer

    def _filmed(self, model: nn.Module, update: int) -> dict[str, float]:
        """The figures of a validation, beside which the probe sentence is recorded."""
        self._record(model, update)
        return self.validate(model)

    def _record(self, model: nn.Module, update: int) -> None:
        """Adds a frame to the film, where there is one."""
        if self.probe is not None:
            self.film.write("frame", update=update, **self.probe.frame(model))  # type: ignore[arg-type]

    def _save_model(self, weights: dict[str, Tensor], metrics: dict[str, Any]) -> None:
        """Keeps the run folder a usable model."""
        command = shlex.join(["glassformer", *sys.argv[1:]])
        save_model_folder(
            self.out,
            config=self.config,
            weights=merged(weights, self.config.training),
            tokenizer=self.tokenizers.tgt,
            src_tokenizer=self.tokenizers.src,
            metrics=metrics,
            card=self.task.card(self.config, metrics, command, self.n_examples),
            labels=self.folder.labels(),
        )

    # -- the end ----------------------------------------------------------------------------------------------

    def finish(self, state: TrainerState) -> dict[str, Any]:
        """Measures the best model on the test data, or on the validation data, and saves it with its figures."""
        if state.best_update is None:
            raise TrainingError(
                f"No validation gave a finite {self.config.validation.metric}.",
                "The best of them becomes the model.",
                "Lower training.lr or raise training.warmup_steps, and start a new run.",
            )
        best = self._best_weights()
        merge_adapters(self.model)
        load_state(self.model, best, "The best model")
        budget_s = self.config.training.budget_s
        time_left = None if budget_s is None else budget_s - self.request.elapsed_s() - 1.0
        part = "test" if self.request.test else "validation"
        store = TokenStore.open(self.folder.data / "test") if self.request.test else self.valid
        self.model.eval()
        metrics = {"measured_on": part} | self.task.final_metrics(
            self.model, store, self.config, self.tokenizers, time_s=time_left
        )
        metrics |= {
            "best_update": state.best_update,
            "updates": state.update,
            "skipped_updates": state.skipped,
            "training_s": round(state.elapsed_s, 1),
            "examples_seen": state.pairs,
        }
        self._save_model(best, metrics)
        save_probe(self.out, self.model)
        self.log.write("finished", **metrics)
        self.log.draw(self.out / "learning-curve.svg")
        self.folder.save("is_finished", True)
        self.say(
            f"Done after {duration(self.request.elapsed_s())}: {state.update:,} updates; {part} "
            f"{self.task.summary(metrics, self.config)}. Model: {self.out}"
        )
        return metrics

    def _best_weights(self) -> dict[str, Tensor]:
        """The best checkpoint, or the average of the last ones where that was asked for and is better."""
        best = load_tensors(self.out / "model.safetensors")
        k = self.config.training.average_last
        if not k:
            return best
        checkpoints, frozen = Checkpoints(self.out / "checkpoints", keep_last=k), frozen_parameters(self.model)
        paths = [checkpoints.path(update) / "model.safetensors" for update in checkpoints.updates()[-k:]]
        parts = [merged(frozen | load_tensors(path), self.config.training) for path in paths]
        merge_adapters(self.model)
        average = {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}
        return self._better_of(best, average)

    def _better_of(self, best: dict[str, Tensor], average: dict[str, Tensor]) -> dict[str, Tensor]:
        losses = []
        for weights in (best, average):
            load_state(self.model, weights, "The checkpoint")
            losses.append(self.validate(self.model.eval())["loss"])
        self.say(f"Validation loss {losses[0]:.4f} of the best checkpoint, {losses[1]:.4f} of the average.")
        return average if losses[1] < losses[0] else best
