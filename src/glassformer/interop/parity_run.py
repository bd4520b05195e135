"""The whole of `glassformer parity`: rows by torch, rows by exports, outputs and their BLEU."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import torch

from glassformer.config import EvaluationConfig
from glassformer.errors import CheckpointError, GenerationError, GlassformerError
from glassformer.evaluation.scores import score
from glassformer.interop.comparison import FLOAT_BOUND, INT8_BOUND, SENTENCES, CheckRows, check_rows, greedy_of_model
from glassformer.interop.comparison import compare as compare_export
from glassformer.interop.ctranslate2_translator import CTranslate2Translator
from glassformer.interop.engines import ENGINES
from glassformer.interop.export import TARGETS, Target, export
from glassformer.interop.parity import Batch, ParityRow, Way, compare, sample_batch, saved_row, torch_ways, votes
from glassformer.interop.refusal import RefusedExport, installed
from glassformer.model import DecoderOnly, EncoderDecoder, Model
from glassformer.tasks.model_folder import ModelFolder, load_model_folder
from glassformer.tasks.probe import exact_twin
from glassformer.tasks.translator import Translation, Translator
from glassformer.text.lines import read_lines
from glassformer.text.readers import PairReader

__all__ = ["run_parity"]

Say = Callable[[str], None]
MIN_TARGET_TOKENS = 4  # of a translation that every way is compared on
EXPORTS: tuple[tuple[Target, str | None], ...] = (
    ("huggingface", None),
    ("ctranslate2", None),
    ("ctranslate2", "int8"),
    ("onnx", None),
    ("onnx", "int8"),
)


def run_parity(
    path: Path,
    data: Sequence[str],
    *,
    n_rows: int,
    against: Sequence[Path] = (),
    use_exports: bool = True,
    use_compile: bool = True,
    say: Say = lambda text: None,
) -> list[ParityRow]:
    """Compares every way to run a model with its equations in float64.

    Args:
        path: A model folder.
        data: Files of pairs as for training; none: built-in sentences.
        n_rows: Most texts compared.
        against: Exports, or other model folders, that should compute the same.
        use_exports: Export to each engine that is installed.
        use_compile: Run through torch.compile, too.
        say: Called before each row.

    Raises:
        GlassformerError: A folder or the data cannot be read.
    """
    folder = load_model_folder(path)
    texts, references = _texts(folder, data, n_rows)
    outputs = _Outputs(folder, texts, references)
    exact = exact_twin(folder.model)
    say(f"comparing on {len(texts)} texts")
    rows = [saved_row(folder)]
    try:
        batch = outputs.batch(exact)
    except GenerationError as error:  # of weights that are not finite: there is nothing to compare with
        return [*rows, _failed("equations in float64", "float64", error)]
    for way in torch_ways(folder.model, use_compile=use_compile):
        say(way.name)
        rows.append(_guarded(way.name, way.dtype, partial(_torch_row, way, exact, batch, outputs)))
    check = check_rows(folder, None)
    for place in against:
        if (place / "export.json").exists():
            name = f"export {place}"
            rows.append(_guarded(name, "float32", partial(_export_row, name, place, folder, check, outputs)))
        else:
            rows.append(_guarded(f"model {place}", "float32", partial(_folder_row, place, exact, batch)))
    for target, quantize in EXPORTS if use_exports else ():
        name = f"{target} {quantize or 'float32'}"
        say(f"export to {name}")
        rows.append(_guarded(name, "float32", partial(_fresh_export, name, target, quantize, folder, check, outputs)))
    return rows


def _texts(folder: ModelFolder, data: Sequence[str], n_rows: int) -> tuple[list[str], list[str]]:
    if not data:
        return list(SENTENCES)[:n_rows], []
    config = folder.config.data
    if not isinstance(folder.model, EncoderDecoder):
        lines = (line.split("\t")[0].strip() for path in data for line in read_lines(path, encoding=config.encoding))
        return list(islice(filter(None, lines), n_rows)), []
    pairs = list(islice(PairReader(list(data), src=config.src, tgt=config.tgt, encoding=config.encoding), n_rows))
    return [pair.src for pair in pairs], [pair.tgt for pair in pairs]


class _Outputs:
    """What a model makes of the texts by each way, beside what the equations make of them.

    A translator translates them as it is saved; a language model continues the first half of each greedily.
    """

    def __init__(self, folder: ModelFolder, texts: Sequence[str], references: Sequence[str]) -> None:
        self.folder, self.texts, self.references = folder, texts, references
        self.is_translator = isinstance(folder.model, EncoderDecoder)
        self.wanted: list[str] = []
        self.prompts = CheckRows([], [])

    @torch.no_grad()
    def batch(self, exact: Model) -> Batch:
        """The texts as ids, with what the equations in float64 make of them; those outputs are kept."""
        if isinstance(exact, EncoderDecoder):
            found = Translator.of(replace(self.folder, model=exact)).translate(self.texts)
            self.wanted = [translation.text for translation in found]
            return sample_batch(self.folder, self.texts, list(map(self._target, self.texts, found)))
        batch = sample_batch(self.folder, self.texts)
        if isinstance(exact, DecoderOnly):
            self.prompts = CheckRows(list(self.texts), [row.tgt[0].tolist() for row in batch.rows()])  # type: ignore[index]
            self.wanted = self._continued(exact)[0]
        return batch

    def _target(self, text: str, found: Translation) -> list[int]:
        """What the decoder reads for a text: its translation, or the text itself where that is hardly anything.

        A model that ends at once would otherwise be compared at its first token alone.
        """
        if len(found.ids) >= MIN_TARGET_TOKENS:
            return found.ids
        return self.folder.tokenizer.encode(text, add_eos=True)

    def _continued(self, model: Model) -> tuple[list[str], int]:
        """The texts that a language model makes, and the number of their tokens."""
        outputs = greedy_of_model(replace(self.folder, model=model), self.prompts)
        return [self.folder.tokenizer.decode(ids) for ids in outputs], sum(map(len, outputs))

    def add(self, row: ParityRow, model: Model | None) -> ParityRow:
        """The row with the outputs of a model that can be searched."""
        if not self.wanted or model is None or row.name.startswith("cached"):
            return row  # the search itself runs with the cache
        if self.is_translator:
            return self.with_outputs(row, Translator.of(replace(self.folder, model=model)))
        started = time.monotonic()
        texts, n_tokens = self._continued(model)
        return replace(row, same_outputs=self._same(texts), tokens_per_s=n_tokens / (time.monotonic() - started))

    def with_outputs(self, row: ParityRow, translator: Translator) -> ParityRow:
        """The row with the outputs of a translator, their agreement, BLEU and speed."""
        started = time.monotonic()
        found = translator.translate(self.texts)
        seconds = time.monotonic() - started
        texts = [translation.text for translation in found]
        bleu = None
        if self.references:
            bleu = self._bleu(texts) - self._bleu(self.wanted)
        n_tokens = sum(len(translation.ids) for translation in found)
        return replace(row, same_outputs=self._same(texts), bleu_difference=bleu, tokens_per_s=n_tokens / seconds)

    def _same(self, texts: list[str]) -> float:
        return sum(a == b for a, b in zip(texts, self.wanted, strict=True)) / len(texts)

    def _bleu(self, texts: list[str]) -> float:
        config = EvaluationConfig(n_resamples=0)
        return score(texts, list(self.references), use_ter=False, config=config).bleu.value


def _torch_row(way: Way, exact: Model, batch: Batch, outputs: _Outputs) -> ParityRow:
    return outputs.add(compare(way, exact, batch), way.model)


def _fresh_export(
    name: str, target: Target, quantize: str | None, folder: ModelFolder, check: CheckRows, outputs: _Outputs
) -> ParityRow:
    """An export made for the table, where the engine is installed and can express the model."""
    if not installed(target):
        return ParityRow(name=name, dtype="float32", note=f"not compared: {TARGETS[target]} is not installed")
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) / "export"
        try:
            export(folder, place, to=target, quantize=quantize)
        except RefusedExport as error:
            return ParityRow(name=name, dtype="float32", note=f"not compared: {error}")
        return _export_row(name, place, folder, check, outputs)


def _export_row(name: str, place: Path, folder: ModelFolder, check: CheckRows, outputs: _Outputs) -> ParityRow:
    """An export, loaded by its engine, on the same texts as when it was written."""
    about = json.loads((place / "export.json").read_text(encoding="utf-8"))
    is_int8 = about.get("quantize") is not None
    found = compare_export(folder, ENGINES[about["to"]](place, folder), check, is_int8=is_int8)
    row = ParityRow(
        name=name,
        dtype="int8" if is_int8 else "float32",
        max_difference=found.max_difference,
        relative_difference=found.relative_rms if is_int8 else None,
        bound=INT8_BOUND if is_int8 else FLOAT_BOUND,
        same_outputs=None if found.same_outputs is None else found.same_outputs / found.n_texts,
        first_step=None if found.is_same else f"{found.compared} of {found.first_difference!r}",
        is_passed=found.is_same,
        note=f"{found.compared}; {'bound on the relative rms' if is_int8 else 'bound on the difference itself'}",
    )
    if about["to"] == "ctranslate2" and outputs.is_translator:
        return outputs.with_outputs(row, CTranslate2Translator.over(place, folder))
    return row


def _folder_row(place: Path, exact: Model, batch: Batch) -> ParityRow:
    """Another model folder, by the fused path."""
    other = load_model_folder(place).model
    if other.config != exact.config:
        fields = [k for k, v in vars(other.config).items() if v != getattr(exact.config, k)]
        return ParityRow(
            name=f"model {place}", dtype="float32", is_passed=False, first_step=f"config: {', '.join(fields)}"
        )
    way = Way(name=f"model {place}", dtype="float32", logits=lambda b: votes(other, b), model=other)
    return compare(way, exact, batch)


def _guarded(name: str, dtype: str, make: Callable[[], ParityRow]) -> ParityRow:
    """A way that cannot run here is a row that says so and fails, not the end of the table."""
    try:
        with torch.no_grad():
            return make()
    except (GlassformerError, RuntimeError, ImportError, CheckpointError) as error:
        return _failed(name, dtype, error)


def _failed(name: str, dtype: str, error: Exception) -> ParityRow:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ParityRow(name=name, dtype=dtype, is_passed=False, first_step="the run itself", note=first[:200])
