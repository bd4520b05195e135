"""Target tokens a second while decoding: the product, transformers and CTranslate2 with the same weights, in one run.

    python bench/decoding.py [--shape base small deep] [--cell 1,1 8,4 ...] [--first-token] [--memory base] [--ways ...]
    python bench/decoding.py --model MODEL ROWS.tsv [--rows 650] [--beam 1 4]

Weights are random and every output is forced to 30 tokens, from sources of 20, so that all compute the same amount.
In each round the ways take turns, each in a process of its own (--together: in one process). A line shows the median
over the rounds, and in brackets the ratio to the fastest peer, the median of the ratios of the rounds. Greedy outputs
in float32 are compared: a way that says something else is named. --first-token adds the time until one token is there,
--memory the most memory of a process that loads a model of such a size and decodes one cell (batch 64, beam 4), beyond
that of the imported libraries.

With --model, a trained translator translates the first column of real rows, and its BLEU on the second column stands
beside the speed of each way.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import machine
import measuring
import models
import torch
from measuring import Result

SHAPES = ("base", "small", "deep")
SRC_TOKENS, TGT_TOKENS = 20, 30
CELLS = [(batch, beam) for batch in (1, 8, 32, 64) for beam in (1, 4)]
LARGEST = (64, 4)  # the cell whose memory is measured
DEFAULT = ("float32", "int8", "bf16", "transformers", "ctranslate2", "ctranslate2-int8")
EXACT = ("float32", "transformers", "ctranslate2")  # these say the same

Way = Callable[[torch.Tensor, int, int], list[list[int]]]  # sources [B, S], beams, tokens -> the tokens of each


def load(way: str, work: Path, n_threads: int) -> Way:
    """A way to run the model, from the folder of its engine."""
    return models.load(
        way,
        work,
        ours=ours,
        transformers=transformers_way,
        ctranslate2=lambda path: ctranslate2_way(path, n_threads),
    )


def ours(path: Path, precision: str, device: str = "cpu") -> Way:
    from glassformer.config import GenerationConfig
    from glassformer.generation.search import generate
    from glassformer.tasks.decoding import ModelDecoding
    from glassformer.tasks.model_folder import load_model_folder

    folder = load_model_folder(path, precision=precision)  # type: ignore[arg-type]
    config, model = folder.config.model, folder.model.to(device)
    del folder

    def run(src: torch.Tensor, beam: int, n_tokens: int) -> list[list[int]]:
        n = len(src)
        settings = GenerationConfig(beam_size=beam, min_new_tokens=n_tokens, length_penalty="average")
        found = generate(
            ModelDecoding(model, max_length=n_tokens + 1, src=src.to(device)),
            torch.full((n, 1), config.bos_id, device=device),
            settings,
            eos_ids=[config.eos_id],
            max_new_tokens=torch.full((n,), n_tokens),
        )
        return [hypotheses[0].ids for hypotheses in found]

    return run


def transformers_way(path: Path, dtype: torch.dtype, device: str = "cpu") -> Way:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path, dtype=dtype).eval().to(device)
    ids = {"pad_token_id": model.config.pad_token_id, "decoder_start_token_id": model.config.decoder_start_token_id}
    model.generation_config = transformers.GenerationConfig(**ids)  # nothing forbidden: random weights choose anything

    def run(src: torch.Tensor, beam: int, n_tokens: int) -> list[list[int]]:
        out = model.generate(
            src.to(device),
            attention_mask=torch.ones_like(src, device=device),
            num_beams=beam,
            do_sample=False,
            min_new_tokens=n_tokens,
            max_new_tokens=n_tokens,
            eos_token_id=model.config.eos_token_id,
        )
        return [row[1:].tolist() for row in out]

    return run


def ctranslate2_way(path: Path, n_threads: int) -> Way:
    import ctranslate2

    engine = ctranslate2.Translator(str(path), device="cpu", inter_threads=1, intra_threads=n_threads)
    names = models.vocabulary_of(path)
    ids = {name: i for i, name in enumerate(names)}

    def run(src: torch.Tensor, beam: int, n_tokens: int) -> list[list[int]]:
        out = engine.translate_batch(
            [[names[i] for i in row] for row in src.tolist()],
            beam_size=beam,
            min_decoding_length=n_tokens,
            max_decoding_length=n_tokens,
        )
        return [[ids[token] for token in row.hypotheses[0]] for row in out]

    return run


def sources(batch: int, n_ids: int, eos_id: int) -> torch.Tensor:
    src = torch.randint(4, n_ids, (batch, SRC_TOKENS), generator=torch.Generator().manual_seed(batch))
    src[:, -1] = eos_id
    return src


def prepare(work: Path, options: argparse.Namespace) -> None:
    """The random model of each size, for each engine."""
    for size in options.shape:
        folder = models.random_folder(models.model_config(size))
        models.write(folder, work / size, {models.OURS, *map(models.engine_of, options.ways)})


def measure(work: Path, options: argparse.Namespace) -> Iterator[Result]:
    """Of each size memory, then speed of each cell and time to its first token, as far as they are wanted."""
    for size in options.shape:
        if size in options.memory:
            yield memory(size, work / size, options)
        ways = {way: load(way, work / size, options.threads) for way in options.ways}
        config = models.config_of(work / size)
        for batch, beam in options.cell:
            src = sources(batch, models.N_IDS, config.eos_id)
            case = {"size": size, "batch": batch, "beam": beam}
            yield speed(case, ways, src, beam, options.rounds)
            if options.first_token:
                yield first_token(case, ways, src, beam, options.rounds)


def speed(case: dict[str, Any], ways: Mapping[str, Way], src: torch.Tensor, beam: int, rounds: int) -> Result:
    runs = {name: lambda way=way: way(src, beam, TGT_TOKENS) for name, way in ways.items()}  # type: ignore[misc]
    seconds, found = measuring.take_turns(runs, rounds)
    return Result(
        case=case,
        unit="target tokens/s",
        values=measuring.per_second(len(src) * TGT_TOKENS, seconds),
        ours=models.ours_of(ways),
        digests={name: measuring.digest(out) for name, out in found.items() if beam == 1 and name in EXACT},
    )


def first_token(case: dict[str, Any], ways: Mapping[str, Way], src: torch.Tensor, beam: int, rounds: int) -> Result:
    runs = {name: lambda way=way: way(src, beam, 1) for name, way in ways.items()}  # type: ignore[misc]
    seconds, _ = measuring.take_turns(runs, rounds)
    values = {name: [1000 * s for s in times] for name, times in seconds.items()}
    return Result(
        case=case, unit="ms to the first token", values=values, ours=models.ours_of(ways), is_less_better=True
    )


def memory(size: str, work: Path, options: argparse.Namespace) -> Result:
    batch, beam = LARGEST
    runs = {way: ("--alone", way, work, "--threads", options.threads) for way in options.ways}
    values = {
        way: [machine.alone(__file__, *given)["mib"] for _ in range(options.rounds)] for way, given in runs.items()
    }
    case = {"size": size, "batch": batch, "beam": beam}
    unit = "MiB at most, libraries left out"
    return Result(case=case, unit=unit, values=values, ours=models.ours_of(values), is_less_better=True)


def run_alone(way: str, work: Path, n_threads: int) -> None:
    """Decodes the largest cell once, and says how much memory the model and that took."""
    batch, beam = LARGEST
    src = sources(batch, models.N_IDS, models.config_of(work).eos_id)
    with machine.memory_of(models.library_of(way)):
        load(way, work, n_threads)(src, beam, TGT_TOKENS)


def cell_of(text: str) -> tuple[int, int]:
    """`8,4` -> batch 8, beam 4."""
    batch, _, beam = text.partition(",")
    return int(batch), int(beam)


def main() -> None:
    parser = measuring.parser_of(__doc__, rounds=2)
    measuring.add_ways(parser, (*models.PRECISIONS, *models.PEERS), DEFAULT)
    parser.add_argument("--shape", nargs="*", choices=models.SIZES, default=list(SHAPES))
    parser.add_argument("--cell", nargs="*", type=cell_of, default=CELLS, metavar="BATCH,BEAM")
    parser.add_argument("--first-token", action="store_true", help="also the time until the first token is there")
    parser.add_argument("--memory", nargs="*", choices=models.SIZES, default=[], help="sizes: also the most memory")
    parser.add_argument("--model", nargs=2, type=Path, metavar=("MODEL", "ROWS.tsv"), help="real sentences instead")
    parser.add_argument("--rows", type=int, default=650, help="with --model: how many")
    parser.add_argument(
        "--workers", type=int, default=1, help="with --model: searches of one thread, beside each other"
    )
    parser.add_argument("--beam", nargs="*", type=int, default=[1, 4], help="with --model")
    parser.add_argument("--alone", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.alone:
        run_alone(options.alone[0], Path(options.alone[1]), options.threads)
    elif options.model:
        import sentences

        sentences.run(options)
    else:
        parts = [("--shape", size) for size in options.shape]
        measuring.run(options, lambda work: prepare(work, options), lambda work: measure(work, options), parts)


if __name__ == "__main__":
    main()
