"""`glassformer masks`: what each token may see, and a test that it sees no more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassformer.cli import STDOUT, write_file
from glassformer.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from glassformer.explain.masks import MaskPicture, MasksView

TEXTS = ("We eat bread.", "She reads a long book in the garden.")


@click.command("masks")
@click.argument("model", metavar="MODEL")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--json", "json_", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write JSON.")
def command(model: str, texts: tuple[str, ...], json_: Path | None) -> None:
    """Show the masks of the model in the folder MODEL as its kernels get them, and test them for leaks.

    TEXTs, at least two of unequal lengths, make one padded batch; without any, two are chosen. The test changes
    tokens that may not be seen, future ones and pads, and looks which outputs move. Exits with 1 when one does.
    A FILE of - is standard output; all else then goes to standard error.
    """
    if len(texts) == 1 or any(not text.strip() for text in texts):
        raise UserError(
            "One text, or a blank one, was given.", "Padding shows between two texts at least.", "Give a second text."
        )
    from rich.console import Console

    from glassformer.explain.masks import masks_view
    from glassformer.tasks.model_folder import load_model_folder

    view = masks_view(load_model_folder(model), list(texts or TEXTS))
    to_stderr = json_ == STDOUT
    width = None if Console(stderr=to_stderr).is_terminal else 80
    console = Console(highlight=False, stderr=to_stderr, width=width)
    for picture in view.pictures:
        _draw(picture, console)
    _report(view, console)
    if json_ is not None:
        import json

        from glassformer.explain.render_json import plain

        write_file(json_, json.dumps(plain(view), ensure_ascii=False) + "\n", "JSON")
    if view.has_leak:
        raise SystemExit(1)


def _draw(picture: MaskPicture, console: Console) -> None:
    from rich.text import Text

    console.print(Text(f"{picture.key}: {picture.says}", style="bold"))
    console.print("Rows are queries, columns are keys in the same order; █ may attend, · may not.")
    width = min(14, max(map(len, picture.queries)))
    keys = " ".join(picture.keys)
    console.print(Text(f"{'keys':>{width}}  {keys}", style="dim"), soft_wrap=False)
    for label, row in zip(picture.queries, picture.mask, strict=True):
        console.print(Text(f"{label[:width]:>{width}}  " + "".join("█" if seen else "·" for seen in row)))
    console.print()


def _report(view: MasksView, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("leak test", "question", "tries", "moved by", ""):
        table.add_column(name, justify="right" if name in ("tries", "moved by") else "left")
    for check in view.checks:
        verdict = Text("holds", style="green") if check.is_right else Text("FAILS", style="bold red")
        worst = "" if check.name.startswith("control") else f"{check.worst:.1e}"
        table.add_row(check.name, check.question, str(check.n_changes), worst, verdict)
    console.print(table)
    for check in view.checks:
        for line in check.moved[:3]:
            console.print(Text(f"{check.name}: {line}", style="red"))
        if len(check.moved) > 3:
            console.print(Text(f"{check.name}: and {len(check.moved) - 3} more", style="red"))
