"""`glassformer film`: one sentence through the training of a model."""

from __future__ import annotations

from pathlib import Path

import click

from glassformer.cli import STDOUT, write_file


@click.command("film")
@click.argument("run", metavar="RUN")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the page is written.  [default: RUN/film.html]",
)
def command(run: str, html: Path | None) -> None:
    """Show what a model made of one sentence while it was trained: attention, candidates and entropy on a slider.

    RUN is the folder of a run that was begun with `--set validation.film="We eat bread."`; it may be training still.
    The outputs are printed, and the page is written.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from glassformer.explain.film import read_film

    film = read_film(run)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("update", "loss", "BLEU"):
        table.add_column(name, justify="right")
    table.add_column(Text(film.text), overflow="fold")
    for frame in film.frames:
        loss, bleu = ("" if figure is None else f"{figure:.2f}" for figure in (frame.loss, frame.bleu))
        table.add_row(str(frame.update), loss, bleu, Text(frame.output))
    is_piped = html == STDOUT
    console = Console(highlight=False, width=None if Console().is_terminal else 80, stderr=is_piped)
    console.print(table)
    write_file(html or Path(run) / "film.html", film.to_html(), "Page")
