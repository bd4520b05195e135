"""New tokens a second of a decoder-only model of GPT-2's size: the product, transformers, CTranslate2, same weights.

    python bench/text_generation.py [--batch 1 16] [--ways ...] [--memory]

124 M random weights, a prompt of 32 tokens, 64 tokens forced, greedy. In each round the ways take turns; in brackets
stands the ratio to the fastest peer. Outputs in float32 are compared: a way that says something else is named.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measuring
import models
import torch
from measuring import Result

from glassformer.config import GenerationConfig, ModelConfig
from glassformer.generation.search import generate
from glassformer.interop.ctranslate2 import vocabulary
from glassformer.model import DecoderOnly
from glassformer.model.quantized import with_precision
from glassformer.presets import PRESETS
from glassformer.tasks.decoding import ModelDecoding
from glassformer.tasks.model_folder import load_model_folder

PROMPT_TOKENS, NEW_TOKENS = 32, 64
EXACT = ("float32", "transformers", "ctranslate2")  # these say the same

Way = Callable[[torch.Tensor], list[list[int]]]  # prompts [B, T] -> the new tokens of each


def model_config(*, is_least: bool) -> ModelConfig:
    """GPT-2's architecture and size; the least one is for a look whether the script runs."""
    changes: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0, "pad_id": 0, "bos_id": 1, "eos_id": 2}
    changes |= {"unk_id": 3}
    if is_least:
        changes |= {"vocab_size": 1200, "d_model": 32, "d_ff": 64, "n_heads": 2, "n_decoder_layers": 2}
    return ModelConfig(**(PRESETS["gpt2"] | changes))


def load(way: str, work: Path, n_threads: int) -> Way:
    """A way to run the model, from the folder of its engine."""
    return models.load(
        way,
        work,
        ours=ours,
        transformers=transformers_way,
        ctranslate2=lambda path, model: ctranslate2_way(path, model, n_threads),
    )


def ours(path: Path, precision: str) -> Way:
    folder = load_model_folder(path)
    assert isinstance(folder.model, DecoderOnly)
    config, model = folder.config.model, with_precision(folder.model, precision)  # type: ignore[arg-type]
    del folder
    settings = GenerationConfig(beam_size=1, min_new_tokens=NEW_TOKENS)

    def run(prompts: torch.Tensor) -> list[list[int]]:
        found = generate(
            ModelDecoding(model, max_length=prompts.shape[1] + NEW_TOKENS),
            prompts,
            settings,
            eos_ids=[config.eos_id],
            max_new_tokens=torch.full((len(prompts),), NEW_TOKENS),
        )
        return [hypotheses[0].ids for hypotheses in found]

    return run


def transformers_way(path: Path, dtype: torch.dtype) -> Way:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
    eos_id = model.config.eos_token_id
    model.generation_config = transformers.GenerationConfig(pad_token_id=model.config.pad_token_id)

    def run(prompts: torch.Tensor) -> list[list[int]]:
        out = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=False,
            min_new_tokens=NEW_TOKENS,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=eos_id,
        )
        return [row[prompts.shape[1] :].tolist() for row in out]

    return run


def ctranslate2_way(path: Path, model: Path, n_threads: int) -> Way:
    import ctranslate2

    engine = ctranslate2.Generator(str(path), device="cpu", inter_threads=1, intra_threads=n_threads)
    folder = load_model_folder(model)
    names = vocabulary(folder.tokenizer, folder.config.model.vocab_size)
    del folder

    def run(prompts: torch.Tensor) -> list[list[int]]:
        out = engine.generate_batch(
            [[names[i] for i in row] for row in prompts.tolist()],
            min_length=NEW_TOKENS,
            max_length=NEW_TOKENS,
            include_prompt_in_result=False,
        )
        return [row.sequences_ids[0] for row in out]

    return run


def measure(options: argparse.Namespace) -> Iterator[Result]:
    folder = models.random_folder(model_config(is_least=options.least))
    n_ids = folder.tokenizer.vocab_size
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        models.write(folder, work, {models.OURS, *map(models.engine_of, options.ways)})
        del folder
        if options.memory:
            yield memory(work, options)
        ways = {way: load(way, work, options.threads) for way in options.ways}
        for batch in options.batch:
            prompts = draw_prompts(batch, n_ids)
            runs = {way: lambda run=run, prompts=prompts: run(prompts) for way, run in ways.items()}  # type: ignore[misc]
            seconds, found = measuring.take_turns(runs, options.rounds)
            expected = found.get("float32")
            others = [way for way in EXACT if way in found and found[way] != expected and expected]
            yield Result(
                case={"size": "gpt2", "batch": batch},
                unit="new tokens/s",
                values=measuring.per_second(batch * NEW_TOKENS, seconds),
                ours=[way for way in ways if way in models.PRECISIONS],
                notes={"other output": ", ".join(others)} if others else {},
            )


def draw_prompts(batch: int, n_ids: int) -> torch.Tensor:
    return torch.randint(4, n_ids, (batch, PROMPT_TOKENS), generator=torch.Generator().manual_seed(batch))


def memory(work: Path, options: argparse.Namespace) -> Result:
    """The most memory of a process that continues the largest batch."""
    values = {}
    for way in options.ways:
        out = measuring.alone(__file__, "--alone", way, work, "--threads", options.threads, "--batch", *options.batch)
        values[way] = [out["mib"]]
    case = {"size": "gpt2", "batch": max(options.batch)}
    ours_too = [way for way in values if way in models.PRECISIONS]
    return Result(case=case, unit="MiB at most, libraries left out", values=values, ours=ours_too, is_less_better=True)


def run_alone(way: str, work: Path, options: argparse.Namespace) -> None:
    content = json.loads((work / models.OURS / "config.json").read_text(encoding="utf-8"))["model"]
    prompts = draw_prompts(max(options.batch), content["vocab_size"])
    with measuring.memory_of(models.engine_of(way).partition("-")[0]):
        load(way, work, options.threads)(prompts)


def main() -> None:
    parser = measuring.parser_of(__doc__)
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 16])
    parser.add_argument(
        "--ways", nargs="*", choices=(*models.PRECISIONS, *models.PEERS), default=[*models.PRECISIONS, *models.PEERS]
    )
    parser.add_argument("--least", action="store_true", help="a model of no size, to see whether this runs")
    parser.add_argument("--memory", action="store_true", help="also the most memory of a process")
    parser.add_argument("--alone", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.alone:
        run_alone(options.alone[0], Path(options.alone[1]), options)
        return
    measuring.report(measure(options), options.json)


if __name__ == "__main__":
    main()
