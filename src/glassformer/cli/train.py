"""`glassformer train`: from pairs of sentences to a translator."""

from __future__ import annotations

import re
import time
from pathlib import Path

import click

from glassformer.errors import ConfigError

_UNITS = {"s": 1, "m": 60, "h": 3600}


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Reads 90s, 30m, 1.5h or 1h30m."""
    if value is None:
        return None
    if not re.fullmatch(r"(\d+(\.\d+)?[smh])+", value):
        raise click.BadParameter(f"{value!r} is no duration; write 90s, 30m or 1h30m.")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smh])", value))


@click.command("train")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option("--src", metavar="CODE", help="Source language, such as en.")
@click.option("--tgt", metavar="CODE", help="Target language, such as fr.")
@click.option(
    "--task", metavar="NAME", help="translate (default), summarize, lm, mlm, denoise, classify, label or embed."
)
@click.option("--from", "start", metavar="FOLDER", help="Model folder to start from (fine-tuning).")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FOLDER", help="Folder of the run.")
@click.option("--valid", multiple=True, metavar="FILE", help="Validation data (twice for two plain files).")
@click.option("--test", multiple=True, metavar="FILE", help="Data of the final figures; left out: the validation data.")
@click.option("--preset", metavar="NAME", help="Architecture: tiny, small, medium, paper-base, paper-big, t5-small.")
@click.option("--budget", callback=_seconds, metavar="TIME", help="Wall-clock for everything, such as 30m or 1h30m.")
@click.option("--steps", type=int, metavar="N", help="Optimizer updates.")
@click.option("--epochs", type=float, metavar="N", help="Passes over the data.")
@click.option("--seed", type=int, metavar="N", help="Seed of everything that is random.")
@click.option("--resume", is_flag=True, help="Go on with the run in --out, to the same weights as without a break.")
@click.option("--strict", is_flag=True, help="Stop at the first bad row of the data instead of counting it.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings as JSON, such as a config.json."
)
@click.option(
    "--set", "sets", multiple=True, metavar="SECTION.KEY=VALUE", help="Any other setting; see --print-config."
)
@click.option(
    "--print-config", is_flag=True, help="Show each setting, its value, its origin and its meaning, and stop."
)
def command(
    data: tuple[str, ...],
    task: str | None,
    start: str | None,
    src: str | None,
    tgt: str | None,
    out: Path,
    valid: tuple[str, ...],
    test: tuple[str, ...],
    preset: str | None,
    budget: float | None,
    steps: int | None,
    epochs: float | None,
    seed: int | None,
    resume: bool,
    strict: bool,
    config: Path | None,
    sets: tuple[str, ...],
    print_config: bool,
) -> None:
    """Train a model: a translator from pairs of sentences, or another one of --task.

    DATA is one TSV, CSV or JSONL file with both sides, or two plain files; compressed or not; - is standard input.
    For lm, mlm and denoise it is any number of files of raw text, a document a line (see data.document).
    What is left out is chosen from the data and the machine, and printed with the reason.
    """
    started = time.monotonic()  # a budget covers the imports too
    from glassformer.resolve import describe, resolve

    flags = {
        "task.name": task,
        "task.start": start,
        "data.src": src,
        "data.tgt": tgt,
        "data.is_strict": strict or None,
        "training.budget_s": budget,
        "training.steps": steps,
        "training.epochs": epochs,
        "training.seed": seed,
    }
    resolved = resolve(preset, config, sets, flags)
    if print_config:
        _print_settings(describe(resolved))
        return
    n_files = max(len(data), len(valid), len(test))
    if n_files > 2 and resolved.config.task.name not in ("lm", "mlm", "denoise"):  # raw text may lie in many files
        raise ConfigError(
            f"{n_files} files were given.",
            "One file with both sides or two plain files were expected.",
            "Join the files first, for example with cat.",
        )
    from glassformer.cli import printable
    from glassformer.cli.check import show_report
    from glassformer.tasks.training_run import TrainingRequest, run_training

    def say(text: str) -> None:
        click.echo(printable(text), err=True)

    request = TrainingRequest(
        data=data,
        out=out,
        resolved=resolved,
        valid=valid,
        test=test,
        is_resumed=resume,
        started=started,
        say=say,
        show_report=show_report,
    )
    run_training(request)


def _print_settings(rows: list[tuple[str, str, str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("setting", "value", "from", "meaning", box=None)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
