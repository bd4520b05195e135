"""Real sentences through a trained translator, by every way, with the BLEU of each: `decoding.py --model`."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import decoding
import measuring
import models
import sacrebleu
import torch
from measuring import Result

from glassformer.config import GenerationConfig
from glassformer.interop.ctranslate2 import vocabulary
from glassformer.model import EncoderDecoder
from glassformer.model.quantized import with_precision
from glassformer.tasks.model_folder import ModelFolder, load_model_folder
from glassformer.tasks.translator import Translator

PEER_BATCH = 32  # sentences that a peer decodes together, sorted by length

Way = Callable[[list[str], int], list[str]]  # texts, beams -> translations


def measure(path: Path, rows: Path, options: argparse.Namespace) -> Iterator[Result]:
    """Sentences a second of each way, at each beam size; all search for the best mean log-probability of a token."""
    lines = [line.split("\t") for line in rows.read_text(encoding="utf-8").splitlines()[: options.rows]]
    texts, references = [line[0] for line in lines], [line[1] for line in lines]
    folder = load_model_folder(path)
    with tempfile.TemporaryDirectory() as work:
        models.write(folder, Path(work), {models.engine_of(way) for way in options.ways} - {models.OURS})
        ways = {way: load(way, folder, Path(work), options.threads) for way in options.ways}
        for beam in options.beam:
            case = {"model": path.name, "rows": len(texts), "beam": beam}
            yield compare(case, ways, texts, references, beam, options.rounds)


def compare(
    case: dict[str, Any], ways: dict[str, Way], texts: list[str], references: list[str], beam: int, rounds: int
) -> Result:
    runs = {name: lambda way=way: way(texts, beam) for name, way in ways.items()}  # type: ignore[misc]
    seconds, found = measuring.take_turns(runs, rounds)
    return Result(
        case=case,
        unit="sentences/s",
        values=measuring.per_second(len(texts), seconds),
        ours=decoding.ours_of(ways),
        notes={name: quality(out, found.get("float32"), references) for name, out in found.items()},
    )


def quality(found: list[str], expected: list[str] | None, references: list[str]) -> str:
    bleu = f"BLEU {sacrebleu.corpus_bleu(found, [references]).score:.2f}"
    if expected is None:
        return bleu
    return f"{bleu}, {sum(a == b for a, b in zip(found, expected, strict=True))} as float32"


def load(way: str, folder: ModelFolder, work: Path, n_threads: int) -> Way:
    if way in models.PRECISIONS:
        return ours(folder, way)
    path = work / models.engine_of(way)
    if way.startswith("transformers"):
        return transformers_way(folder, path, torch.bfloat16 if way.endswith("bf16") else torch.float32)
    return ctranslate2_way(folder, path, n_threads)


def ours(folder: ModelFolder, precision: str) -> Way:
    translator = Translator.of(folder)
    assert isinstance(folder.model, EncoderDecoder)
    translator.model = with_precision(folder.model, precision)  # type: ignore[arg-type]

    def run(texts: list[str], beam: int) -> list[str]:
        settings = GenerationConfig(beam_size=beam, length_penalty="average", alpha=1.0)
        return [found.text for found in translator.translate(texts, generation=settings)]

    return run


def in_batches(texts: list[str], lengths: list[int]) -> Iterator[list[int]]:
    """Numbers of texts of like length."""
    order = sorted(range(len(texts)), key=lambda i: lengths[i], reverse=True)
    for start in range(0, len(order), PEER_BATCH):
        yield order[start : start + PEER_BATCH]


def transformers_way(folder: ModelFolder, path: Path, dtype: torch.dtype) -> Way:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path, dtype=dtype).eval()
    generation = folder.config.generation

    def run(texts: list[str], beam: int) -> list[str]:
        ids = folder.src_tokenizer.encode_batch(texts, add_eos=True)
        found = [""] * len(texts)
        for some in in_batches(texts, [len(row) for row in ids]):
            rows = [torch.tensor(ids[i]) for i in some]
            src = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=folder.src_tokenizer.pad_id)
            out = model.generate(
                src,
                attention_mask=(src != folder.src_tokenizer.pad_id).long(),
                num_beams=beam,
                do_sample=False,
                length_penalty=1.0,
                max_new_tokens=int(generation.max_length_a * src.shape[1]) + generation.max_length_b,
            )
            for i, row in zip(some, out, strict=True):
                found[i] = folder.tokenizer.decode(row[1:].tolist())
        return found

    return run


def ctranslate2_way(folder: ModelFolder, path: Path, n_threads: int) -> Way:
    import ctranslate2

    engine = ctranslate2.Translator(str(path), device="cpu", inter_threads=1, intra_threads=n_threads)
    config, generation = folder.config.model, folder.config.generation
    src_names = vocabulary(folder.src_tokenizer, config.source_vocab_size)
    ids_of = {name: i for i, name in enumerate(vocabulary(folder.tokenizer, config.vocab_size))}

    def run(texts: list[str], beam: int) -> list[str]:
        ids = folder.src_tokenizer.encode_batch(texts, add_eos=True)
        longest = max(len(row) for row in ids)
        out = engine.translate_batch(
            [[src_names[i] for i in row] for row in ids],
            beam_size=beam,
            length_penalty=1,
            max_batch_size=PEER_BATCH,
            max_input_length=0,
            max_decoding_length=int(generation.max_length_a * longest) + generation.max_length_b,
        )
        return [folder.tokenizer.decode([ids_of[name] for name in row.hypotheses[0]]) for row in out]

    return run
