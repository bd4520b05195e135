"""`glassformer generate`: continue a text, as it is written in the terminal, or many texts line for line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import precision_option
from glassformer.cli.texts import chunks_of, from_argument, one_line, text_writer

if TYPE_CHECKING:
    from glassformer.config import GenerationConfig
    from glassformer.tasks.completion import Completion
    from glassformer.tasks.generator import TextGenerator


@click.command("generate")
@click.argument("model", metavar="MODEL")
@click.argument("prompts", nargs=-1, metavar="[PROMPT]...")
@click.option("--input", "source", metavar="FILE", help="Continue each line of a file; - is standard input.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write here.")
@click.option("--max-new-tokens", type=int, metavar="N", help="Most tokens made; unset: the model's setting, or 256.")
@click.option("--temperature", type=float, metavar="X", help="Divides the logits; 0: always the best token.")
@click.option("--top-k", type=int, metavar="K", help="Draw among the K best tokens; 0: off.")
@click.option("--top-p", type=float, metavar="P", help="Draw among the fewest tokens that hold this mass; 1: off.")
@click.option("--min-p", type=float, metavar="P", help="Draw among tokens with this share of the best one's.")
@click.option("--seed", type=int, metavar="N", help="Of the draws; the same seed gives the same text.")
@click.option("--beam", type=int, metavar="N", help="Draw nothing; search for the best text with N hypotheses.")
@click.option("--n", "n_best", type=int, metavar="N", help="Outputs for each prompt: samples, or the best of the beam.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be given several times.")
@click.option("--json", "is_json", is_flag=True, help="A JSON object a line: text, ids, logprobs, finish_reason.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any setting of generation.json.")
@precision_option
@click.option("--encoding", default=None, metavar="NAME", help="Character encoding of the input (utf-8).")
def command(
    model: str,
    prompts: tuple[str, ...],
    source: str | None,
    output: Path | None,
    seed: int | None,
    beam: int | None,
    n_best: int | None,
    stop: tuple[str, ...],
    is_json: bool,
    sets: tuple[str, ...],
    precision: Any,
    encoding: str | None,
    **options: float | None,
) -> None:
    """Continue PROMPTs with the decoder-only model in the folder MODEL; without PROMPT, the lines of standard input.

    One PROMPT is written as it is made. Of several, each output is one line (line ends become spaces; --json keeps
    them). Tokens are drawn unless --beam is given. An empty PROMPT ('') lets the model begin by itself.
    """
    from glassformer.tasks.generator import TextGenerator

    chunks = chunks_of(prompts, source, encoding)
    generator = TextGenerator.load(model, precision=precision)
    generation = _generation(generator.generation, sets, seed, beam, n_best, options)
    is_streamed = len(prompts) == 1 and not is_json and generation.n_best == 1 and output is None
    if is_streamed and (generation.do_sample or generation.beam_size == 1):
        _stream(generator, from_argument(prompts[0]), generation, stop)
        return
    with text_writer(output) as write:
        for chunk in chunks:
            found = generator.generate(chunk, generation=generation, stop=stop)
            for prompt, best in zip(chunk, found, strict=True):
                for index, completion in enumerate((best, *best.alternatives)):
                    write(_json_line(prompt, index, completion) if is_json else one_line(completion.text))


def _generation(
    saved: GenerationConfig,
    sets: tuple[str, ...],
    seed: int | None,
    beam: int | None,
    n_best: int | None,
    options: dict[str, float | None],
) -> Any:
    """The model's own settings, changed by the options; drawing instead of its search unless a beam is asked for."""
    from glassformer.resolve import override

    flags = {"beam_size": beam or 1, "do_sample": beam is None, "seed": seed, "n_best": n_best, **options}
    return override(saved, "generation", sets, {key: value for key, value in flags.items() if value is not None})


def _stream(generator: TextGenerator, prompt: str, generation: GenerationConfig, stop: tuple[str, ...]) -> None:
    for piece in generator.stream(prompt, generation=generation, stop=stop):
        click.echo(piece, nl=False)
    click.echo()


def _json_line(prompt: str, index: int, completion: Completion) -> str:
    """All that is known of one output, as strict JSON; logprobs are in nats, one for each id."""
    content = {
        "prompt": prompt,
        "index": index,
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "log_prob": completion.log_prob,
        "ids": completion.ids,
        "logprobs": completion.token_log_probs,
    }
    return json.dumps(content, ensure_ascii=False, allow_nan=False)
