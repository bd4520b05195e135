"""Target tokens a second while decoding: the product, transformers and CTranslate2 with the same weights, in one run.

    python bench/decoding.py [--shape base small deep] [--rounds 3] [--threads 2] [--ways ...] [--json FILE]

Weights are random and every output is forced to 30 tokens, from sources of 20, so that all compute the same amount.
In each round the ways take turns, cell by cell. The table shows the median over the rounds, and in brackets the ratio
to the fastest peer, the median of the ratios of the rounds. Greedy outputs in float32 are compared: a way that says
something else is marked.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from glassformer.config import Config, GenerationConfig, ModelConfig
from glassformer.generation.search import generate
from glassformer.interop.ctranslate2 import export_ctranslate2, vocabulary
from glassformer.interop.huggingface.writing import export_huggingface
from glassformer.model import EncoderDecoder, build_model
from glassformer.model.quantized import with_precision
from glassformer.phrasebook import generate as phrases
from glassformer.tasks.decoding import ModelDecoding
from glassformer.tasks.model_folder import ModelFolder
from glassformer.text.tokenizer import Tokenizer

SHAPES: dict[str, dict[str, Any]] = {
    "base": {"d_model": 512, "d_ff": 2048, "n_heads": 8, "n_encoder_layers": 6, "n_decoder_layers": 6},
    "small": {"d_model": 256, "d_ff": 1024, "n_heads": 4, "n_encoder_layers": 3, "n_decoder_layers": 3},
    "deep": {"d_model": 512, "d_ff": 2048, "n_heads": 8, "n_encoder_layers": 10, "n_decoder_layers": 2},
}
VOCABULARY = {"base": 32_000, "small": 8_000, "deep": 32_000}
SRC_TOKENS, TGT_TOKENS = 20, 30
CELLS = [(batch, beam) for batch in (1, 8, 32, 64) for beam in (1, 4)]
OURS, PEERS = ("float32", "int8", "bf16"), ("transformers", "ctranslate2", "ctranslate2-int8")

Way = Callable[[torch.Tensor, int], list[list[int]]]  # sources [B, S], beams -> the tokens of each


def random_folder(shape: str) -> ModelFolder:
    """A model with random weights and a tokenizer whose vocabulary is filled up with unused entries."""
    torch.manual_seed(1)
    texts = [text for pair in zip(range(2000), phrases(2000, 1), strict=False) for text in pair[1]]
    config = Config(
        model=ModelConfig(family="encoder-decoder", vocab_size=VOCABULARY[shape], dropout=0.0, **SHAPES[shape])
    )
    tokenizer = Tokenizer.train(texts, config.tokenizer, vocab_size=1000)
    model = build_model(config.model).eval()
    return ModelFolder(Path(), config, model, tokenizer, tokenizer, {})


def ours(folder: ModelFolder, precision: str) -> Way:
    assert isinstance(folder.model, EncoderDecoder)
    model = with_precision(folder.model, precision)  # type: ignore[arg-type]
    config = folder.config.model

    def run(src: torch.Tensor, beam: int) -> list[list[int]]:
        n = len(src)
        settings = GenerationConfig(beam_size=beam, min_new_tokens=TGT_TOKENS, length_penalty="average")
        found = generate(
            ModelDecoding(model, max_length=TGT_TOKENS + 1, src=src),
            torch.full((n, 1), config.bos_id),
            settings,
            eos_ids=[config.eos_id],
            max_new_tokens=torch.full((n,), TGT_TOKENS),
        )
        return [hypotheses[0].ids for hypotheses in found]

    return run


def transformers_way(folder: ModelFolder, work: Path) -> Way:
    import transformers

    transformers.logging.set_verbosity_error()
    work.mkdir()
    export_huggingface(folder, work)
    (work / "generation_config.json").unlink()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(work).eval()
    eos = folder.config.model.eos_id

    def run(src: torch.Tensor, beam: int) -> list[list[int]]:
        out = model.generate(
            src,
            attention_mask=torch.ones_like(src),
            num_beams=beam,
            do_sample=False,
            min_new_tokens=TGT_TOKENS,
            max_new_tokens=TGT_TOKENS,
            eos_token_id=eos,
        )
        return [row[1:].tolist() for row in out]

    return run


def ctranslate2_way(folder: ModelFolder, work: Path, quantize: str | None, n_threads: int) -> Way:
    import ctranslate2

    work.mkdir()
    export_ctranslate2(folder, work, quantize=quantize)
    engine = ctranslate2.Translator(str(work), device="cpu", inter_threads=1, intra_threads=n_threads)
    names = vocabulary(folder.tokenizer, folder.config.model.vocab_size)
    ids = {name: i for i, name in enumerate(names)}

    def run(src: torch.Tensor, beam: int) -> list[list[int]]:
        out = engine.translate_batch(
            [[names[i] for i in row] for row in src.tolist()],
            beam_size=beam,
            min_decoding_length=TGT_TOKENS,
            max_decoding_length=TGT_TOKENS,
        )
        return [[ids[token] for token in row.hypotheses[0]] for row in out]

    return run


def ways_of(folder: ModelFolder, work: Path, names: list[str], n_threads: int) -> dict[str, Way]:
    made: dict[str, Callable[[], Way]] = {name: lambda name=name: ours(folder, name) for name in OURS}  # type: ignore[misc]
    made["transformers"] = lambda: transformers_way(folder, work / "hf")
    for name, quantize in (("ctranslate2", None), ("ctranslate2-int8", "int8")):
        made[name] = lambda name=name, quantize=quantize: ctranslate2_way(folder, work / name, quantize, n_threads)  # type: ignore[misc]
    return {name: made[name]() for name in names}


def measure(shape: str, names: list[str], rounds: int, n_threads: int) -> list[dict[str, Any]]:
    """One entry a cell: tokens/s of each way in each round, and whose greedy output is not that of float32."""
    folder = random_folder(shape)
    size = folder.tokenizer.vocab_size
    cells = []
    with tempfile.TemporaryDirectory() as work, torch.no_grad():
        ways = ways_of(folder, Path(work), names, n_threads)
        for batch, beam in CELLS:
            src = torch.randint(4, size, (batch, SRC_TOKENS), generator=torch.Generator().manual_seed(batch))
            src[:, -1] = folder.config.model.eos_id
            expected = ours(folder, "float32")(src, beam)
            speeds: dict[str, list[float]] = {name: [] for name in ways}
            others = []
            for number in range(-1, rounds):  # the first round warms up
                for name, way in ways.items():
                    start = time.perf_counter()
                    found = way(src, beam)
                    seconds = time.perf_counter() - start
                    if number >= 0:
                        speeds[name].append(batch * TGT_TOKENS / seconds)
                    elif beam == 1 and "int8" not in name and name != "bf16" and found != expected:
                        others.append(name)
            cells.append({"shape": shape, "batch": batch, "beam": beam, "tokens_per_s": speeds, "other_output": others})
            print(row_of(cells[-1]), flush=True)
    return cells


def row_of(cell: dict[str, Any]) -> str:
    speeds = {name: statistics.median(values) for name, values in cell["tokens_per_s"].items()}
    peers = [name for name in speeds if name in PEERS]
    text = f"{cell['shape']:6} batch {cell['batch']:2}, beam {cell['beam']}:"
    for name, speed in speeds.items():
        text += f"  {name} {speed:,.0f}"
        if name in OURS and peers:
            best = max(peers, key=lambda peer: speeds[peer])
            pairs = zip(cell["tokens_per_s"][name], cell["tokens_per_s"][best], strict=True)
            text += f" ({statistics.median(a / b for a, b in pairs):.2f})"
    return text + (f"  OTHER OUTPUT: {', '.join(cell['other_output'])}" if cell["other_output"] else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="*", choices=SHAPES, default=["base", "small", "deep"])
    parser.add_argument("--ways", nargs="*", choices=(*OURS, *PEERS), default=["float32", "int8", *PEERS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cells = [cell for shape in options.shape for cell in measure(shape, options.ways, options.rounds, options.threads)]
    if options.json:
        about = {"machine": platform.processor(), "threads": options.threads, "torch": torch.__version__}
        options.json.write_text(json.dumps({"about": about, "cells": cells}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
