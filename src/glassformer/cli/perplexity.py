"""`glassformer perplexity`: how well a decoder-only model predicts texts."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassformer.cli.texts import chunks_of
from glassformer.errors import DataError, UserError

if TYPE_CHECKING:
    from glassformer.evaluation.perplexity import LossMeter


@click.command("perplexity")
@click.argument("model", metavar="MODEL")
@click.argument("source", metavar="[FILE]", default="-")
@click.option("--whole", is_flag=True, help="The file is one text; otherwise each line is one, blank lines left out.")
@click.option("--no-eos", is_flag=True, help="Do not predict the end of each text.")
@click.option("--context", type=int, metavar="N", help="Most tokens read at once; unset: all the model takes.")
@click.option("--stride", type=int, metavar="N", help="Tokens by which a window moves on; unset: half of the context.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object.")
@click.option("--encoding", default="utf-8", metavar="NAME", help="Character encoding of the file (utf-8).")
def command(
    model: str,
    source: str,
    whole: bool,
    no_eos: bool,
    context: int | None,
    stride: int | None,
    is_json: bool,
    encoding: str,
) -> None:
    """Perplexity of the texts in FILE (or standard input) under the decoder-only model in the folder MODEL.

    Texts longer than the context are read in windows that overlap; each token counts once. Words are what white space
    separates, bytes those of UTF-8. The likelihood of the end of a text is part of all figures (see --no-eos).
    """
    from glassformer.evaluation.perplexity import LossMeter
    from glassformer.tasks.generator import TextGenerator
    from glassformer.text.lines import shown_name

    generator = TextGenerator.load(model)
    chunks = iter([[_text(source, encoding)]]) if whole else chunks_of((), source, encoding)
    meter, n_texts = LossMeter(), 0
    for chunk in chunks:
        texts = [text for text in chunk if text.strip()]
        n_texts += len(texts)
        for score in generator.score(texts, with_eos=not no_eos, context=context, stride=stride):
            meter.merge(score.meter)
    if not meter.n_tokens:
        raise DataError(
            f"{shown_name(source)} holds no token to predict.", "At least one text was expected.", "Check the file."
        )
    _print(meter, n_texts, is_json)


def _text(source: str, encoding: str) -> str:
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        return data.decode(encoding)
    except (OSError, LookupError, UnicodeDecodeError) as error:
        raise UserError(
            f"{source} cannot be read ({error}).",
            f"A text in {encoding} was expected.",
            "Check the file, or --encoding.",
        ) from error


def _print(meter: LossMeter, n_texts: int, is_json: bool) -> None:
    figures = {
        "texts": n_texts,
        "tokens": meter.n_tokens,
        "words": meter.n_words,
        "bytes": meter.n_bytes,
        "loss": meter.loss,
        "perplexity": meter.perplexity,
        "perplexity_per_word": meter.perplexity_per_word,
        "perplexity_per_byte": meter.perplexity_per_byte,
        "bits_per_byte": meter.bits_per_byte,
    }
    if is_json:
        click.echo(json.dumps({name: value if math.isfinite(value) else None for name, value in figures.items()}))
        return
    for name, value in figures.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
        click.echo(f"{name.replace('_', ' '):<20} {shown:>14}")
