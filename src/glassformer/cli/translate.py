"""`glassformer translate`: a text, a file or standard input, line for line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import first_import, precision_option, workers_option
from glassformer.cli.texts import CHUNK_LINES, chunks_of, one_line, text_writer
from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.config import GenerationConfig
    from glassformer.tasks import Translation, Translator


@click.command("translate")
@click.argument("model", metavar="MODEL")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--input", "source", metavar="FILE", help="Translate the lines of a file; - is standard input.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write here.")
@click.option("--beam", type=int, metavar="N", help="Hypotheses kept; 1 is greedy.")
@click.option("--n-best", type=int, metavar="N", help="Outputs for each text, one a line, best first.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object a line: text, score, tokens, alignment.")
@click.option("--attention", is_flag=True, help="Draw the cross-attention of each text in the terminal.")
@click.option(
    "--picture", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.svg", help="And as a picture."
)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any setting of generation.json.")
@click.option("--encoding", default=None, metavar="NAME", help="Character encoding of the input (utf-8).")
@precision_option
@workers_option
@click.option("--strict", is_flag=True, help="Refuse a text longer than the model takes instead of splitting it.")
@click.option("--server", envvar="GLASSFORMER_SERVER", metavar="URL", help="Ask a running server for its model MODEL.")
@click.option("--key", envvar="GLASSFORMER_KEY", metavar="KEY", help="Key for the server; better as GLASSFORMER_KEY.")
def command(
    model: str,
    texts: tuple[str, ...],
    source: str | None,
    output: Path | None,
    beam: int | None,
    n_best: int | None,
    is_json: bool,
    attention: bool,
    picture: Path | None,
    sets: tuple[str, ...],
    encoding: str | None,
    precision: Any,
    n_workers: int,
    strict: bool,
    server: str | None,
    key: str | None,
) -> None:
    """Translate TEXTs with the model in the folder MODEL; without TEXT and --input, standard input, line for line."""
    chunks = chunks_of(texts, source, encoding, CHUNK_LINES * n_workers)
    if server is not None:
        local = {"--beam": beam, "--json": is_json, "--attention": attention, "--picture": picture, "--set": sets}
        _refuse_local(local | {"--strict": strict, "--precision": precision != "float32", "--workers": n_workers > 1})
        _translate_remotely(server, key, model, chunks, n_best or 1, output)
        return
    with first_import():
        from glassformer.tasks import Translator
        from glassformer.tasks.translator_pool import shared_by

    if picture and len(texts) != 1:
        raise UserError("--picture was given without one TEXT.", "A picture shows one text.", "Give the text itself.")
    translator = Translator.load(model, precision=precision)
    generation = _generation(translator.generation, sets, beam, n_best)
    n_cut = 0
    with shared_by(n_workers, model, precision) as pool, text_writer(output) as write:
        for chunk in chunks:
            found = translator.translate(chunk, generation=generation, is_strict=strict, pool=pool)
            n_cut += sum(translation.n_unread_tokens > 0 for translation in found)
            for text, translation in zip(chunk, found, strict=True):
                write(_json_line(translator, text, translation) if is_json else _text_lines(translation, generation))
                if attention or picture:
                    _show_attention(translator, text, translation, attention, picture)
    if n_cut:
        limit = translator.max_src_tokens
        click.echo(f"{n_cut:,} texts had more than {limit} tokens: what came after them was not read.", err=True)


def _refuse_local(options: dict[str, object]) -> None:
    for name in [name for name, value in options.items() if value]:
        raise UserError(
            f"{name} was given with --server.",
            "The server uses the settings that it was started with.",
            f"Leave out {name}, or --server (and GLASSFORMER_SERVER).",
        )


def _translate_remotely(
    server: str, key: str | None, model: str, chunks: Iterator[list[str]], n_best: int, output: Path | None
) -> None:
    from glassformer.serve.client import RemoteTranslator

    translator = RemoteTranslator(server, Path(model).name, key=key)  # a server names a folder by its last part
    with text_writer(output) as write:
        for chunk in chunks:
            for found in translator.translate(chunk, n_best=n_best):
                write(_n_lines(found, n_best))


def _generation(saved: GenerationConfig, sets: tuple[str, ...], beam: int | None, n_best: int | None) -> Any:
    """The model's own settings, changed by the options."""
    from glassformer.resolve import override

    flags = {"beam_size": beam, "n_best": n_best}
    return override(saved, "generation", sets, {key: value for key, value in flags.items() if value is not None})


def _text_lines(translation: Translation, generation: GenerationConfig) -> str:
    return _n_lines([t.text for t in (translation, *translation.alternatives)], generation.n_best)


def _n_lines(texts: list[str], n_best: int) -> str:
    """One line a hypothesis, exactly n_best of them; missing ones are empty lines."""
    return "\n".join([*map(one_line, texts), *[""] * (n_best - len(texts))])


def _json_line(translator: Translator, text: str, translation: Translation) -> str:
    """All that is known of one translation, as strict JSON."""

    def described(t: Translation) -> dict[str, Any]:
        keys = ("text", "score", "log_prob", "tokens", "finish_reason")
        return {key: getattr(t, key) for key in keys}

    content = {"source": text, **described(translation), "segments": translation.n_segments}
    content["unread_tokens"] = translation.n_unread_tokens
    content["alternatives"] = [described(t) for t in translation.alternatives]
    if translation.n_segments == 1:
        alignment = translator.align(text, translation)
        content["alignment"] = vars(alignment)
    return json.dumps(content, ensure_ascii=False, allow_nan=False)


def _show_attention(
    translator: Translator, text: str, translation: Translation, in_terminal: bool, picture: Path | None
) -> None:
    from glassformer.svg import heatmap

    if translation.n_segments != 1:
        click.echo("No attention is drawn for a blank text, or one that was split.", err=True)
        return
    alignment = translator.align(text, translation)
    if in_terminal:
        _print_grid(alignment.tgt_pieces, alignment.src_pieces, alignment.weights)
    if picture:
        image = heatmap(
            alignment.weights,
            rows=alignment.tgt_pieces,
            columns=alignment.src_pieces,
            title="Cross-attention, mean over layers and heads",
        )
        with text_writer(picture) as write:
            write(image)
        click.echo(f"Picture: {picture}", err=True)


def _print_grid(rows: list[str], columns: list[str], weights: list[list[float]]) -> None:
    """The weights as a grid; the heavier the print, the more attention."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1))
    table.add_column("")
    for column in columns:
        table.add_column(Text(column), justify="right")
    for label, row in zip(rows, weights, strict=True):
        cells = [Text(f"{100 * w:.0f}", style=_shade(w)) for w in row]
        table.add_row(Text(label), *cells)
    console = Console(stderr=True)
    console.print("Cross-attention in %: rows are queries (target), columns keys (source).")
    console.print(table)


def _shade(weight: float) -> str:
    """Bold where a key gets a third of the attention or more, dim below a tenth."""
    return "bold reverse" if weight >= 1 / 3 else "bold" if weight >= 0.1 else "dim"
