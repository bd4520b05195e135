"""`glassformer info`: what an architecture is made of, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from glassformer.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from glassformer.config import ModelConfig


@click.command()
@click.argument("model", metavar="MODEL|PRESET")
@click.option("--batch", default=4, show_default=True, type=click.IntRange(min=1), help="Texts in a batch.")
@click.option("--src-length", default=10, show_default=True, type=click.IntRange(min=1), help="Tokens of a source.")
@click.option("--tgt-length", default=12, show_default=True, type=click.IntRange(min=1), help="Tokens of a target.")
@click.option("--set", "sets", multiple=True, metavar="model.KEY=VALUE", help="Change a field first; repeatable.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def command(model: str, batch: int, src_length: int, tgt_length: int, sets: tuple[str, ...], is_json: bool) -> None:
    """Parameters by part, FLOPs, memory, and the shape of each step.

    MODEL is a folder that `glassformer train` wrote; PRESET is one of paper-base, paper-big, tiny, small, medium,
    bert-base, gpt2, t5-small. Nothing is loaded but the configuration.
    """
    for text in sets:
        if not text.startswith("model."):
            raise ConfigError(
                f"--set {text} has no effect on info.", "Only the section model is shown.", "Use model.KEY=VALUE."
            )
    config, title = _config(model, sets)
    report = _report(config, batch, src_length, tgt_length)
    if is_json:
        import json

        click.echo(json.dumps({"model": model} | report, ensure_ascii=False, indent=2))
    else:
        _show(title, report)


def _config(model: str, sets: tuple[str, ...]) -> tuple[ModelConfig, str]:
    """The architecture of a preset or a model folder, and a line that says which."""
    from pathlib import Path

    from glassformer.presets import PRESETS, REASONS
    from glassformer.resolve import resolve

    if model in PRESETS:
        return resolve(model, None, sets, {}).config.model, f"preset {model}: {REASONS[model]}"
    path = Path(model) / "config.json"
    if not path.is_file():
        raise CheckpointError(
            f"{model!r} is no preset, and no folder with a config.json.",
            f"Presets: {', '.join(PRESETS)}.",
            "Give one of them, or the folder that `glassformer train --out` wrote.",
        )
    return resolve(None, path, sets, {}).config.model, f"model {model}"


def _report(config: ModelConfig, batch: int, src_length: int, tgt_length: int) -> dict[str, Any]:
    import dataclasses

    from glassformer import shapes

    return {
        "config": dataclasses.asdict(config),
        "batch": batch,
        "src_length": src_length,
        "tgt_length": tgt_length,
        "parameters": shapes.parameters(config),
        "total_parameters": shapes.total(config),
        "flops_per_token": dataclasses.asdict(shapes.flops_per_token(config, src_length, tgt_length)),
        "cache_bytes": shapes.cache_bytes(config, batch, tgt_length, src_length),
        "training_bytes": shapes.training_bytes(config, batch, src_length, tgt_length),
        "steps": [dataclasses.asdict(step) for step in shapes.walk(config, batch, src_length, tgt_length)],
    }


def _show(title: str, report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=132)
    console.print(title, markup=False)

    parts = Table("part", "parameters", "share", title="Parameters")
    for column in parts.columns[1:]:
        column.justify = "right"
    for name, count in report["parameters"].items():
        parts.add_row(name, f"{count:,}", f"{count / report['total_parameters']:.1%}")
    parts.add_section()
    parts.add_row("total", f"{report['total_parameters']:,}", "")
    console.print(parts)

    sizes = f"batch {report['batch']}"
    if report["config"]["family"] != "decoder-only":
        sizes += f", source {report['src_length']} tokens"
    if report["config"]["family"] != "encoder-only":
        sizes += f", target {report['tgt_length']} tokens"
    costs = Table("what", "amount", title=f"Cost ({sizes}; float32)")
    costs.columns[1].justify = "right"
    for name, operations in report["flops_per_token"].items():
        costs.add_row(f"{name}, FLOPs a token (2 per multiply-add, attention included)", f"{operations:,.0f}")
    costs.add_row("key-value cache", _bytes(report["cache_bytes"]))
    for name, size in report["training_bytes"].items():
        costs.add_row(f"training: {name}", _bytes(size))
    costs.add_row("training: all", _bytes(sum(report["training_bytes"].values())))
    console.print(costs)

    steps = Table("step", "shape", "", "equation", title=f"Steps ({sizes})")
    for step in report["steps"]:
        shape = f"({', '.join(map(str, step['shape']))})"
        steps.add_row(step["name"], shape, step["symbolic"].replace("[", r"\["), step["equation"].replace("[", r"\["))
    console.print(steps)


def _bytes(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
