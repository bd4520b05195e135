"""Real sentences through a trained translator, by every way, with the BLEU of each: `decoding.py --model`.

With --workers N the ways that can have N searches of one thread beside each other: the product N processes, CTranslate2
its inter_threads.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measuring
import models
import sacrebleu
import torch
from measuring import Result

from glassformer.config import GenerationConfig
from glassformer.text.imported import load_tokenizer
from glassformer.text.tokenizer import Tokenizer

PEER_BATCH = 32  # sentences that a peer decodes together, sorted by length
WARM_UP = 64  # sentences

Way = Callable[[list[str], int], list[str]]  # texts, beams -> translations


def run(options: argparse.Namespace) -> None:
    """Measures the sentences that `options` names and reports; each way of each round in a process of its own."""
    parts = [("--beam", str(beam)) for beam in options.beam]
    measuring.run(options, lambda work: prepare(work, options), lambda work: measure(work, options), parts)


def prepare(work: Path, options: argparse.Namespace) -> None:
    from glassformer.tasks.model_folder import load_model_folder

    (work / models.OURS).symlink_to(options.model[0].resolve())
    models.write(load_model_folder(options.model[0]), work, set(map(models.engine_of, options.ways)) - {models.OURS})


def measure(work: Path, options: argparse.Namespace) -> Iterator[Result]:
    """Sentences a second of each way, at each beam size; all search for the best mean log-probability of a token."""
    lines = [line.split("\t") for line in options.model[1].read_text(encoding="utf-8").splitlines()[: options.rows]]
    texts, references = [line[0] for line in lines], [line[1] for line in lines]
    ways = {way: load(way, work, options) for way in options.ways}
    for beam in options.beam:
        runs = {way: lambda run=run, beam=beam: run(texts, beam) for way, run in ways.items()}  # type: ignore[misc]
        for run in ways.values():
            run(texts[:WARM_UP], beam)
        seconds, found = measuring.take_turns(runs, options.rounds, is_warm=True)
        expected = float32_of(work / f"float32-{beam}.json", found)
        yield Result(
            case={"model": options.model[0].name, "rows": len(texts), "workers": options.workers, "beam": beam},
            unit="sentences/s",
            values=measuring.per_second(len(texts), seconds),
            ours=models.ours_of(ways),
            notes={way: quality(out, expected, references) for way, out in found.items()},
        )


def float32_of(file: Path, found: dict[str, list[str]]) -> list[str] | None:
    """What the product says in float32: here, or in an earlier process, which left it in the file."""
    if "float32" in found:
        file.write_text(json.dumps(found["float32"]), encoding="utf-8")
    expected: list[str] | None = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    return expected


def quality(found: list[str], expected: list[str] | None, references: list[str]) -> str:
    bleu = f"BLEU {sacrebleu.corpus_bleu(found, [references]).score:.2f}"
    if expected is None:
        return bleu
    return f"{bleu}, {sum(a == b for a, b in zip(found, expected, strict=True))} as float32"


def load(way: str, work: Path, options: argparse.Namespace) -> Way:
    model = work / models.OURS
    return models.load(
        way,
        work,
        ours=lambda path, precision: ours(path, precision, options.workers),
        transformers=lambda path, dtype: transformers_way(path, model, dtype),
        ctranslate2=lambda path: ctranslate2_way(path, model, options.threads, options.workers),
    )


def ours(path: Path, precision: Any, n_workers: int) -> Way:
    from glassformer.tasks import Translator, TranslatorPool

    translator = Translator.load(path, precision=precision)
    pool = TranslatorPool(path, n_workers, precision=precision) if n_workers > 1 else None

    def run(texts: list[str], beam: int) -> list[str]:
        settings = GenerationConfig(beam_size=beam, length_penalty="average", alpha=1.0)
        return [found.text for found in translator.translate(texts, generation=settings, pool=pool)]

    return run


def tokenizers_of(model: Path) -> tuple[Tokenizer, Tokenizer]:
    """Those of source and target in a model folder of the product."""
    target, source = load_tokenizer(model / "tokenizer.json"), model / "source_tokenizer.json"
    return load_tokenizer(source) if source.exists() else target, target


def most_tokens(model: Path, n_source: int) -> int:
    """The bound that the product sets to a translation of so many source tokens."""
    saved = json.loads((model / "generation.json").read_text(encoding="utf-8"))
    settings = GenerationConfig(**saved)
    return int(settings.max_length_a * n_source) + settings.max_length_b


def in_batches(texts: list[str], lengths: list[int]) -> Iterator[list[int]]:
    """Numbers of texts of like length."""
    order = sorted(range(len(texts)), key=lambda i: lengths[i], reverse=True)
    for start in range(0, len(order), PEER_BATCH):
        yield order[start : start + PEER_BATCH]


def transformers_way(path: Path, model: Path, dtype: torch.dtype) -> Way:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    engine = transformers.AutoModelForSeq2SeqLM.from_pretrained(path, dtype=dtype).eval()
    source, target = tokenizers_of(model)

    def run(texts: list[str], beam: int) -> list[str]:
        ids = source.encode_batch(texts, add_eos=True)
        found = [""] * len(texts)
        for some in in_batches(texts, [len(row) for row in ids]):
            rows = [torch.tensor(ids[i]) for i in some]
            src = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=source.pad_id)
            out = engine.generate(
                src,
                attention_mask=(src != source.pad_id).long(),
                num_beams=beam,
                do_sample=False,
                length_penalty=1.0,
                max_new_tokens=most_tokens(model, src.shape[1]),
            )
            for i, row in zip(some, out, strict=True):
                found[i] = target.decode(row[1:].tolist())
        return found

    return run


def ctranslate2_way(path: Path, model: Path, n_threads: int, n_workers: int) -> Way:
    import ctranslate2

    each = max(1, n_threads // n_workers)
    engine = ctranslate2.Translator(str(path), device="cpu", inter_threads=n_workers, intra_threads=each)
    source, target = tokenizers_of(model)
    src_names = models.vocabulary_of(path, "source")
    ids_of = {name: i for i, name in enumerate(models.vocabulary_of(path))}

    def run(texts: list[str], beam: int) -> list[str]:
        ids = source.encode_batch(texts, add_eos=True)
        out = engine.translate_batch(
            [[src_names[i] for i in row] for row in ids],
            beam_size=beam,
            length_penalty=1,
            max_batch_size=PEER_BATCH,
            max_input_length=0,
            max_decoding_length=most_tokens(model, max(len(row) for row in ids)),
        )
        return [target.decode([ids_of[name] for name in row.hypotheses[0]]) for row in out]

    return run
