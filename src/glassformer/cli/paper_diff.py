"""`glassformer paper-diff`: each choice of a model against "Attention Is All You Need"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from glassformer.errors import CheckpointError

if TYPE_CHECKING:
    from glassformer.config import Config
    from glassformer.explain.paper import Comparison

SECTIONS = ("model", "tokenizer", "data", "training", "generation")


@click.command("paper-diff")
@click.argument("model", metavar="MODEL|RUN|PRESET")
@click.option("--different", is_flag=True, help="Only what differs.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def command(model: str, different: bool, is_json: bool) -> None:
    """Compare each choice with "Attention Is All You Need", section by section, and say why it matters.

    MODEL is a model folder, RUN a run that has not saved its model yet, PRESET an architecture, of which data and
    training are no part. Nothing is loaded but the configuration.
    """
    from glassformer.explain.paper import compare

    config, sections, title = _config(model)
    rows = [row for row in compare(config, sections=sections) if row.verdict == "different" or not different]
    if is_json:
        import dataclasses
        import json

        click.echo(json.dumps([dataclasses.asdict(row) for row in rows], ensure_ascii=False, indent=2))
    else:
        _show(title, rows)


def _config(model: str) -> tuple[Config, tuple[str, ...], str]:
    """The config, the sections that it speaks of, and a line that says which."""
    from pathlib import Path

    from glassformer.presets import PRESETS, REASONS
    from glassformer.resolve import config_from_dict, resolve
    from glassformer.tasks.model_folder import CONFIG, load_config
    from glassformer.tasks.run_folder import RunFolder

    path = Path(model)
    if model in PRESETS and not path.exists():
        return resolve(model, None, (), {}).config, ("model",), f"preset {model}: {REASONS[model]}"
    if (path / CONFIG).is_file():
        return load_config(path), SECTIONS, f"model {model}"
    plan = RunFolder(path).saved("plan")
    if plan is None:
        raise CheckpointError(
            f"{model!r} is no preset, and no folder with a config.json or a planned run.",
            f"Presets: {', '.join(PRESETS)}.",
            "Give one of them, or the folder that `glassformer train --out` wrote.",
        )
    return config_from_dict(plan["config"], str(path / "run.json")), SECTIONS, f"run {model}"


def _show(title: str, rows: list[Comparison]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=150)
    console.print(f'{title}, against "Attention Is All You Need" (Vaswani et al. 2017)', markup=False, highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("setting", "yours", "paper", "section", "", "why it matters"):
        table.add_column(name, no_wrap=name == "setting", overflow="fold")
    styles = {"same": "green", "different": "bold yellow", "not in the paper": "dim"}
    for row in rows:
        yours = "unset" if row.yours is None else f"{row.yours:g}" if isinstance(row.yours, float) else str(row.yours)
        table.add_row(
            row.setting, Text(yours), row.paper, row.section, Text(row.verdict, style=styles[row.verdict]), row.why
        )
    console.print(table)
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in styles}
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) or "Nothing differs.")
