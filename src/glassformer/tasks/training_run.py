"""From files of pairs to a trained, measured, saved translator: the main job, in the order in which it happens."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer import __version__
from glassformer.config import Config, DataConfig
from glassformer.data.prepare import prepare
from glassformer.data.store import TokenStore
from glassformer.data.stream import BatchStream
from glassformer.errors import ConfigError, DataError, TrainingError
from glassformer.model import EncoderDecoder, build_model
from glassformer.resolve import Resolved, config_from_dict, config_to_dict
from glassformer.tasks.model_card import model_card
from glassformer.tasks.model_folder import load_model_folder, save_model_folder
from glassformer.tasks.validation import TranslationValidator, final_metrics
from glassformer.text.checks import check
from glassformer.text.readers import PairReader
from glassformer.text.report import Report
from glassformer.text.split import Part
from glassformer.text.tokenizer import Tokenizer, choose_vocab_size
from glassformer.training.checkpoint import Checkpoints, explained, load_state, load_tensors, write_text
from glassformer.training.objectives import TranslationLoss
from glassformer.training.parallel import Parallel
from glassformer.training.plan import Plan, batch_plan, make_plan
from glassformer.training.progress import RunLog, duration
from glassformer.training.trainer import RunLength, Trainer, TrainerState

__all__ = ["TrainingRequest", "train_translator"]

QUICK_BUDGET_S = 2 * 3600  # up to this budget the vocabulary stays small
MAX_TOKENIZER_ROWS = 200_000  # rows that the vocabulary is learned from; every k-th of more


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """What the user asked for."""

    data: Sequence[str]
    out: Path
    resolved: Resolved
    valid: Sequence[str] = ()
    test: Sequence[str] = ()
    is_resumed: bool = False
    started: float = field(default_factory=time.monotonic)
    say: Callable[[str], None] = print
    show_report: Callable[[Report], None] = lambda report: None

    def elapsed_s(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self.started

    def described(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed."""
        settings = {name: value for name, value, origin, _ in self.settings() if origin != "default"}
        return {
            "data": list(self.data),
            "valid": list(self.valid),
            "test": list(self.test),
            "settings": settings,
        }

    def settings(self) -> list[tuple[str, Any, str, str]]:
        """Each setting as name, value, origin and section."""
        rows = []
        for name, origin in self.resolved.origin.items():
            section, key = name.split(".")
            rows.append((name, getattr(getattr(self.resolved.config, section), key), origin, section))
        return rows


def train_translator(request: TrainingRequest) -> dict[str, Any]:
    """Trains, measures and saves a translator; returns its metrics.

    The run folder holds the best model so far, `log.jsonl`, `learning-curve.svg`, `data/` (the tokenised pairs) and
    `checkpoints/`. The same request with `is_resumed` goes on from the newest checkpoint.
    """
    parallel = Parallel.start()
    run = _Run(request, parallel)
    if run.is_finished():
        run.say(f"{request.out} is finished already; nothing to do.")
        metrics = run.metrics()
    else:
        if parallel.is_main:
            run.prepare()
        parallel.sum([0.0])  # the others wait for the data
        state = run.train()
        metrics = run.finish(state) if parallel.is_main else {}
    parallel.finish()
    return metrics


class _Run:
    """One run folder and the steps of making it."""

    def __init__(self, request: TrainingRequest, parallel: Parallel) -> None:
        self.request, self.parallel = request, parallel
        self.out = request.out
        self.data = self.out / "data"
        self.say = request.say if parallel.is_main else lambda text: None
        if parallel.is_main:
            self._open_folder()
        parallel.sum([0.0])

    # -- the folder -------------------------------------------------------------------------------------------

    def _open_folder(self) -> None:
        """Makes the run folder, or checks that the one that is there belongs to the same request."""
        path, wanted = self.out / "run.json", self.request.described()
        if path.exists():
            if not self.request.is_resumed:
                raise ConfigError(
                    f"{self.out} holds a run already.",
                    "A new run needs a folder of its own.",
                    "Go on with --resume, or choose another --out.",
                )
            saved = self._saved("request") or {}
            changed = [key for key in wanted if json.loads(json.dumps(wanted[key])) != saved.get(key)]
            if changed:
                raise ConfigError(
                    f"The run in {self.out} was begun with other {' and '.join(changed)}: "
                    + "; ".join(f"{key} was {saved.get(key)}, is {wanted[key]}" for key in changed)
                    + ".",
                    "A run is resumed with the same command.",
                    "Repeat the first command with --resume, or choose another --out.",
                )
            return
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"--out {self.out} is a file.", "A folder was expected.", "Choose another name.")
        if self.out.is_dir() and any(not file.name.startswith(".") for file in self.out.iterdir()):
            raise ConfigError(
                f"--out {self.out} holds other files.",
                "A run needs a folder of its own, where it writes README.md, config.json, data/ and more.",
                "Choose a new name.",
            )
        with explained(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
        self._save("request", wanted)

    def _saved(self, key: str) -> Any:
        path = self.out / "run.json"
        try:
            return dict(json.loads(path.read_text(encoding="utf-8"))).get(key) if path.exists() else None
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise ConfigError(f"{path} is damaged ({error}).", "JSON was expected.", "Start a new run.") from error

    def _save(self, key: str, value: Any) -> None:
        path = self.out / "run.json"
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"glassformer": __version__}
        write_text(path, json.dumps(content | {key: value}, indent=1))

    def is_finished(self) -> bool:
        """Whether the run has come to its end."""
        return bool(self._saved("is_finished"))

    def metrics(self) -> dict[str, Any]:
        """The metrics saved with the model."""
        return load_model_folder(self.out).metrics

    # -- the data ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Checks the data, learns the vocabulary, tokenises, and plans the run; what is done already stays."""
        if self._saved("plan"):
            return
        data, say = self._data_config(), self.say
        reader = self._reader(self.request.data)
        valid_reader = self._reader(self.request.valid) if self.request.valid else None
        say(f"Reading {', '.join(self.request.data)}")
        report = check(reader, valid_reader, data)
        self.request.show_report(report)
        if valid_reader is None:
            share = min(data.valid_rows / max(report.n_used, 1), 0.1)
            train: Any = Part(reader, valid_share=share, is_valid=False)
            valid: Any = Part(reader, valid_share=share, is_valid=True)
            if any(next(iter(part), None) is None for part in (train, valid)):
                raise DataError(
                    f"{report.n_used:,} pairs are too few to hold some out for validation.",
                    "A tenth of them (or data.valid_rows) is held out.",
                    "Give more pairs, or others with --valid.",
                )
            say(f"Held out for validation: about {share:.1%} of the rows, chosen by their source text (no --valid).")
        else:
            train, valid = reader, valid_reader
        tokenizer, src_tokenizer = self._tokenizers(train, report)
        self._store("train", train, src_tokenizer, tokenizer)
        self._store("valid", valid, src_tokenizer, tokenizer)
        if self.request.test:
            self._store("test", self._reader(self.request.test), src_tokenizer, tokenizer)
        plan = self._plan(tokenizer, src_tokenizer)
        self._save("plan", {"config": config_to_dict(plan.config), "length": asdict(plan.length)})

    def _data_config(self) -> DataConfig:
        """The settings of the data, where no text is longer than the model has positions."""
        config = self.request.resolved.config
        bound = config.model.max_positions or config.data.max_tokens
        return replace(config.data, max_tokens=min(config.data.max_tokens, bound))

    def _reader(self, paths: Sequence[str]) -> PairReader:
        data = self.request.resolved.config.data
        return PairReader(paths, src=data.src, tgt=data.tgt, encoding=data.encoding, is_strict=data.is_strict)

    def _tokenizers(self, pairs: Iterable[Any], report: Report) -> tuple[Tokenizer, Tokenizer]:
        """Learns the vocabulary, or both; (target, source)."""
        config = self.request.resolved.config.tokenizer
        size = config.vocab_size
        if size is None:
            n_words = sum(side.n_words for side in report.sides)
            n_chars, budget_s = (
                sum(side.n_chars for side in report.sides),
                self.request.resolved.config.training.budget_s,
            )
            is_quick = budget_s is not None and budget_s <= QUICK_BUDGET_S
            size, reason = choose_vocab_size(n_words, n_chars, is_quick=is_quick)
            self.say(f"tokenizer.vocab_size={size}: {reason}")
        step = max(1, -(-report.n_rows // MAX_TOKENIZER_ROWS))
        if step > 1:
            self.say(f"The vocabulary is learned from every {step}th row.")

        def texts(*sides: str) -> Iterator[str]:
            for pair in islice(pairs, 0, None, step):
                for side in sides:
                    yield getattr(pair, side)

        self.data.mkdir(exist_ok=True)
        found = []
        for name, sides in self._vocabularies():
            path = self.data / name
            if not path.exists():
                Tokenizer.train(texts(*sides), config, vocab_size=size).save(path)
            found.append(Tokenizer.load(path))
            n_entries = found[-1].vocab_size
            fewer = f"; the texts support no more of the {size:,} wanted" if n_entries < size else ""
            self.say(f"Vocabulary of {' and '.join(sides)}: {n_entries:,} entries ({config.kind}){fewer}.")
        return found[0], found[-1]

    def _vocabularies(self) -> list[tuple[str, tuple[str, ...]]]:
        if self.request.resolved.config.tokenizer.is_shared:
            return [("tokenizer.json", ("src", "tgt"))]
        return [("tokenizer.json", ("tgt",)), ("source_tokenizer.json", ("src",))]

    def _store(self, name: str, pairs: Any, src_tokenizer: Tokenizer, tokenizer: Tokenizer) -> None:
        """Tokenises one part into its store, unless that is there, and says what was left out and why."""
        folder, config = self.data / name, self.request.resolved.config.tokenizer
        if not (folder / "store.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            is_train = name == "train"
            prepare(
                pairs,
                src_tokenizer,
                tokenizer,
                folder,
                self._data_config(),
                n_variants=config.n_variants,
                bpe_dropout=config.bpe_dropout if is_train else 0.0,
            )
        store = TokenStore.open(folder)
        left_out = ", ".join(f"{entry['count']:,} {reason}" for reason, entry in store.excluded.items())
        n_tokens = int(store.lengths.sum())
        self.say(f"{name}: {len(store):,} pairs, {n_tokens:,} tokens. Left out: {left_out or 'nothing'}.")

    # -- the plan ---------------------------------------------------------------------------------------------

    def _plan(self, tokenizer: Tokenizer, src_tokenizer: Tokenizer) -> Plan:
        """Settles model, batch, rate and length, and prints each choice with its reason."""
        resolved = self.request.resolved
        config = resolved.config
        chosen = {name for name, origin in resolved.origin.items() if origin != "default"}
        if config.model.family != "encoder-decoder":
            raise ConfigError(
                f"model.family={config.model.family} cannot translate.",
                "Pairs train an encoder-decoder.",
                "Leave model.family out, or choose another preset.",
            )
        is_shared = src_tokenizer is tokenizer or tokenizer.vocab_hash == src_tokenizer.vocab_hash
        model = replace(
            config.model,
            vocab_size=tokenizer.vocab_size,
            src_vocab_size=None if is_shared else src_tokenizer.vocab_size,
            tying=config.model.tying if is_shared or config.model.tying != "all" else "decoder",
            pad_id=tokenizer.pad_id,
            bos_id=tokenizer.bos_id,
            eos_id=tokenizer.eos_id,
            unk_id=tokenizer.unk_id,
        )
        if "model.vocab_size" in chosen and model.vocab_size != config.model.vocab_size:
            self.say(
                f"model.vocab_size={model.vocab_size} instead of {config.model.vocab_size}: that of the vocabulary."
            )
        if model.tying != config.model.tying:
            self.say("model.tying=decoder: two vocabularies cannot share one table.")
        store = TokenStore.open(self.data / "train")
        self._use_threads(config)
        config = replace(config, model=model, data=self._data_config())
        plan = make_plan(config, store, chosen=chosen, elapsed_s=self.request.elapsed_s)
        for reason in plan.reasons:
            self.say(reason)
        return plan

    def _use_threads(self, config: Config) -> None:
        if config.training.n_threads is not None:
            torch.set_num_threads(config.training.n_threads)

    # -- training ---------------------------------------------------------------------------------------------

    def train(self) -> TrainerState:
        """Runs the trainer, from the newest checkpoint if there is one."""
        saved = self._saved("plan")
        self.config = config = config_from_dict(saved["config"], str(self.out / "run.json"))
        length = RunLength(**saved["length"])
        self._use_threads(config)
        self.tokenizer, self.src_tokenizer = self._load_tokenizers()
        store, self.valid = TokenStore.open(self.data / "train"), TokenStore.open(self.data / "valid")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(config.training.seed)
        model = build_model(config.model).to(device)
        assert isinstance(model, EncoderDecoder)
        parallel = self.parallel
        stream = BatchStream(
            batch_plan(config, store),
            rank=parallel.rank,
            world_size=parallel.world_size,
            accumulation=config.training.accumulation,
        )
        self.log = RunLog(self.out, is_main=parallel.is_main, use_tensorboard=config.training.use_tensorboard)
        checkpoints = Checkpoints(self.out / "checkpoints", keep_last=config.training.keep_last)
        validator = TranslationValidator(self.valid, config, self.src_tokenizer, self.tokenizer, say=self.say)
        trainer = Trainer(
            TranslationLoss(model, smoothing=config.training.label_smoothing),
            model,
            stream,
            config=config.training,
            validation=config.validation,
            length=length,
            checkpoints=checkpoints,
            log=self.log,
            parallel=parallel,
            validate=validator,
            on_best=self._save_best,
        )
        assert isinstance(trainer.plain_model, EncoderDecoder)
        self.model = trainer.plain_model
        updates = checkpoints.updates()
        if updates:
            trainer.resume(updates[-1])
            self.say(f"Resumed from update {updates[-1]}.")
        self.log.rewind(trainer.state.update, trainer.state.groups)
        n_parameters = sum(parameter.numel() for parameter in model.parameters())
        self.say(
            f"Training {n_parameters:,} parameters in {config.training.precision} on {device}, "
            f"{torch.get_num_threads()} threads, {parallel.world_size} process(es)."
        )
        try:
            return trainer.run()
        finally:
            if parallel.is_main and self.log.path.exists():
                self.log.draw(self.out / "learning-curve.svg")

    def _load_tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        found = [Tokenizer.load(self.data / name) for name, _ in self._vocabularies()]
        return found[0], found[-1]

    def _save_best(self, weights: dict[str, Tensor], figures: dict[str, float]) -> None:
        """Keeps the run folder a usable model: the best weights so far."""
        self._save_model(weights, {"validation": figures})

    def _save_model(self, weights: dict[str, Tensor], metrics: dict[str, Any]) -> None:
        save_model_folder(
            self.out,
            config=self.config,
            weights=weights,
            tokenizer=self.tokenizer,
            src_tokenizer=self.src_tokenizer,
            metrics=metrics,
            card=model_card(self.config, metrics, data=self.request.data, command=_command(), n_pairs=self._n_pairs()),
        )

    def _n_pairs(self) -> int:
        return len(TokenStore.open(self.data / "train"))

    # -- the end ----------------------------------------------------------------------------------------------

    def finish(self, state: TrainerState) -> dict[str, Any]:
        """Measures the best model on the test data, or on the validation data, and saves it with its figures."""
        if state.best_update is None:
            raise TrainingError(
                f"No validation gave a finite {self.config.validation.metric}.",
                "The best of them becomes the model.",
                "Lower training.lr or raise training.warmup_steps, and start a new run.",
            )
        best = load_tensors(self.out / "model.safetensors")
        k = self.config.training.average_last
        if k:
            best = self._better_of(best, self._average(k))
        load_state(self.model, best, "The best model")
        budget_s = self.config.training.budget_s
        time_left = None if budget_s is None else budget_s - self.request.elapsed_s() - 1.0
        part = "test" if self.request.test else "validation"
        store = TokenStore.open(self.data / "test") if self.request.test else self.valid
        metrics = {"measured_on": part} | final_metrics(
            self.model, store, self.config, self.src_tokenizer, self.tokenizer, time_s=time_left
        )
        metrics |= {
            "best_update": state.best_update,
            "updates": state.update,
            "skipped_updates": state.skipped,
            "training_s": round(state.elapsed_s, 1),
            "pairs_seen": state.pairs,
        }
        self._save_model(best, metrics)
        self.log.write("finished", **metrics)
        self.log.draw(self.out / "learning-curve.svg")
        self._save("is_finished", True)
        self.say(
            f"Done after {duration(self.request.elapsed_s())}: {state.update:,} updates; "
            f"{part} loss {metrics['loss']:.3f}, BLEU {metrics['bleu']:.1f}, chrF {metrics['chrf']:.1f}, "
            f"exact match {metrics['exact_match']:.1f} % on {metrics['bleu_rows']:,} rows (beam "
            f"{self.config.generation.beam_size}). Model: {self.out}"
        )
        return metrics

    def _average(self, k: int) -> dict[str, Tensor]:
        """Mean of the weights of the last k checkpoints."""
        checkpoints = Checkpoints(self.out / "checkpoints", keep_last=k)
        parts = [load_tensors(checkpoints.path(update) / "model.safetensors") for update in checkpoints.updates()[-k:]]
        return {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}

    def _better_of(self, best: dict[str, Tensor], average: dict[str, Tensor]) -> dict[str, Tensor]:
        validator = TranslationValidator(self.valid, self.config, self.src_tokenizer, self.tokenizer, say=self.say)
        losses = []
        for weights in (best, average):
            load_state(self.model, weights, "The checkpoint")
            losses.append(validator.loss(self.model).loss)
        self.say(f"Validation loss {losses[0]:.4f} of the best checkpoint, {losses[1]:.4f} of the average.")
        return average if losses[1] < losses[0] else best


def _command() -> str:
    return shlex.join(["glassformer", *sys.argv[1:]])
