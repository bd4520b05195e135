"""New tokens a second of a decoder-only model of GPT-2's size: the product, transformers, CTranslate2, same weights.

    python bench/text_generation.py [--batch 1 16] [--ways ...] [--memory]

124 M random weights, a prompt of 32 tokens, 64 tokens forced, greedy. In each round the ways take turns, each in a
process of its own; in brackets stands the ratio to the fastest peer. Outputs in float32 are compared: a way that says
something else is named.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import machine
import measuring
import models
import torch
from measuring import Result

from glassformer.config import GenerationConfig, ModelConfig
from glassformer.presets import PRESETS

PROMPT_TOKENS, NEW_TOKENS = 32, 64
EXACT = ("float32", "transformers", "ctranslate2")  # these say the same

Way = Callable[[torch.Tensor, int], list[list[int]]]  # prompts [B, T], how many -> the new tokens of each


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
        ctranslate2=lambda path: ctranslate2_way(path, n_threads),
    )


def ours(path: Path, precision: str) -> Way:
    from glassformer.generation.search import generate
    from glassformer.tasks.decoding import ModelDecoding
    from glassformer.tasks.model_folder import load_model_folder

    folder = load_model_folder(path, precision=precision)  # type: ignore[arg-type]
    config, model = folder.config.model, folder.model
    del folder

    def run(prompts: torch.Tensor, n_tokens: int) -> list[list[int]]:
        found = generate(
            ModelDecoding(model, max_length=prompts.shape[1] + n_tokens),
            prompts,
            GenerationConfig(beam_size=1, min_new_tokens=n_tokens),
            eos_ids=[config.eos_id],
            max_new_tokens=torch.full((len(prompts),), n_tokens),
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

    def run(prompts: torch.Tensor, n_tokens: int) -> list[list[int]]:
        out = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=False,
            min_new_tokens=n_tokens,
            max_new_tokens=n_tokens,
            eos_token_id=eos_id,
        )
        return [row[prompts.shape[1] :].tolist() for row in out]

    return run


def ctranslate2_way(path: Path, n_threads: int) -> Way:
    import ctranslate2

    engine = ctranslate2.Generator(str(path), device="cpu", inter_threads=1, intra_threads=n_threads)
    names = models.vocabulary_of(path)

    def run(prompts: torch.Tensor, n_tokens: int) -> list[list[int]]:
        out = engine.generate_batch(
            [[names[i] for i in row] for row in prompts.tolist()],
            min_length=n_tokens,
            max_length=n_tokens,
            include_prompt_in_result=False,
        )
        return [row.sequences_ids[0] for row in out]

    return run


def prepare(work: Path, options: argparse.Namespace) -> None:
    folder = models.random_folder(model_config(is_least=options.least))
    models.write(folder, work, {models.OURS, *map(models.engine_of, options.ways)})


def measure(work: Path, options: argparse.Namespace) -> Iterator[Result]:
    if options.memory:
        yield memory(work, options)
    ways = {way: load(way, work, options.threads) for way in options.ways}
    for batch in options.batch:
        prompts = draw_prompts(batch)
        runs = {way: lambda run=run, given=prompts: run(given, NEW_TOKENS) for way, run in ways.items()}  # type: ignore[misc]
        seconds, found = measuring.take_turns(runs, options.rounds)
        yield Result(
            case={"size": "gpt2", "batch": batch},
            unit="new tokens/s",
            values=measuring.per_second(batch * NEW_TOKENS, seconds),
            ours=models.ours_of(ways),
            digests={way: measuring.digest(out) for way, out in found.items() if way in EXACT},
        )


def draw_prompts(batch: int) -> torch.Tensor:
    return torch.randint(4, models.N_IDS, (batch, PROMPT_TOKENS), generator=torch.Generator().manual_seed(batch))


def memory(work: Path, options: argparse.Namespace) -> Result:
    """The most memory of a process that continues the largest batch."""
    rest = ("--threads", options.threads, "--batch", *options.batch)
    values = {
        way: [machine.alone(__file__, "--alone", way, work, *rest)["mib"] for _ in range(options.rounds)]
        for way in options.ways
    }
    case, unit = {"size": "gpt2", "batch": max(options.batch)}, "MiB at most, libraries left out"
    return Result(case=case, unit=unit, values=values, ours=models.ours_of(values), is_less_better=True)


def run_alone(way: str, work: Path, options: argparse.Namespace) -> None:
    prompts = draw_prompts(max(options.batch))
    with machine.memory_of(models.library_of(way)):
        load(way, work, options.threads)(prompts, NEW_TOKENS)


def main() -> None:
    parser = measuring.parser_of(__doc__, rounds=2)
    every = (*models.PRECISIONS, *models.PEERS)
    measuring.add_ways(parser, every, every)
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 16])
    parser.add_argument("--least", action="store_true", help="a model of no size, to see whether this runs")
    parser.add_argument("--memory", action="store_true", help="also the most memory of a process")
    parser.add_argument("--alone", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.alone:
        run_alone(options.alone[0], Path(options.alone[1]), options)
        return
    measuring.run(options, lambda work: prepare(work, options), lambda work: measure(work, options))


if __name__ == "__main__":
    main()
