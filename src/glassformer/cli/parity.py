"""`glassformer parity`: one table of every way to run a model, against its equations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import STDOUT, write_file
from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.interop.parity import ParityRow


@click.command("parity")
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL")
@click.argument("data", nargs=-1, metavar="[DATA...]")
@click.option("--rows", default=32, show_default=True, type=click.IntRange(1, 10_000), help="Texts to compare on.")
@click.option(
    "--against",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="An export, or another model folder, to be held against the model as well (repeatable).",
)
@click.option("--exports/--no-exports", default=True, help="Export to each engine that is installed, and compare.")
@click.option("--compile/--no-compile", "use_compile", default=True, help="Also through torch.compile (a minute).")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the table as a page, too; - is standard output.",
)
def command(
    model: Path,
    data: tuple[str, ...],
    rows: int,
    against: tuple[Path, ...],
    exports: bool,
    use_compile: bool,
    as_json: bool,
    html: Path | None,
) -> None:
    """Prove that every way to run MODEL computes the same.

    DATA are pairs as for `train`, whose targets give a difference in BLEU; for a model that is no translator texts,
    one a line, of which the first column is read. Left out, built-in sentences are used. Exits with 1 when a way
    leaves its bound: a gate for your own CI.
    """
    if as_json and html == STDOUT:
        raise UserError("--json and --html - both want standard output.", "One of them can have it.", "Name a file.")
    from glassformer.interop.parity_run import run_parity

    found = run_parity(
        model,
        data,
        n_rows=rows,
        against=against,
        use_exports=exports,
        use_compile=use_compile,
        say=lambda text: click.echo(text, err=True),
    )
    if as_json:
        click.echo(json.dumps([row.to_dict() for row in found], indent=1, allow_nan=False))
    _print_table(found, str(model), is_shown=not as_json, html=html)
    if not all(row.is_passed for row in found):
        sys.exit(1)


def _print_table(rows: list[ParityRow], name: str, *, is_shown: bool, html: Path | None) -> None:
    import io

    from rich.console import Console

    if is_shown:
        console = Console(stderr=html == STDOUT, highlight=False)
        console.print(*_table(rows, name), sep="\n")
    if html is not None:
        recorder = Console(record=True, width=100, file=io.StringIO(), highlight=False)
        recorder.print(*_table(rows, name), sep="\n")
        write_file(html, recorder.export_html(), "Page")


def _table(rows: list[ParityRow], name: str) -> list[Any]:
    """The table, which fits 80 columns, and below it what there is to say about its rows."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=f"Ways to run {name}, against the equations in float64",
        box=None,
        padding=(0, 1, 0, 0),
        title_justify="left",
    )
    for heading in ("way", "largest\ndifference", "relative", "bound", "same\noutput", "BLEU", "tokens/s", ""):
        table.add_column(heading, justify="left" if heading in ("way", "") else "right", vertical="bottom")
    notes = list(dict.fromkeys(row.note for row in rows if row.note))
    for row in rows:
        is_compared = row.max_difference is not None or row.relative_difference is not None
        state = Text("ok" if is_compared else "-") if row.is_passed else Text("LEFT", style="bold red")
        mark = f" ({notes.index(row.note) + 1})" if row.note else ""
        table.add_row(*_cells(row), state + mark)
    failed = [Text(f"{row.name} leaves its bound at {row.first_step}.", "red") for row in rows if not row.is_passed]
    return [table, *failed, *(Text(f"({number}) {note}") for number, note in enumerate(notes, 1))]


def _cells(row: ParityRow) -> list[str]:
    def shown(value: Any, form: str) -> str:
        return "" if value is None else format(value, form)

    return [
        row.name,
        shown(row.max_difference, ".1e"),
        shown(row.relative_difference, ".1e"),
        shown(row.bound, ".1e"),
        shown(row.same_outputs, ".1%"),
        shown(row.bleu_difference, "+.2f"),
        shown(row.tokens_per_s, ",.0f"),
    ]
