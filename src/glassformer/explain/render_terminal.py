"""The explanation in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from itertools import groupby

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassformer.explain.result import Array, AttentionMap, Explanation, Row
from glassformer.explain.tokens import join_columns, join_rows

__all__ = ["chosen_map", "count", "show", "show_map", "show_rows", "summary"]

N_SHOWN = 4  # numbers of an opened step


def summary(explanation: Explanation) -> str:
    """The verdict of the proof in a sentence."""
    off, worst, rows = explanation.first_off, explanation.worst, explanation.rows
    proved = sum(row.delta is not None for row in rows)
    if off is not None:
        return (
            f"The served path leaves the equations at {off.key}: it differs by {off.relative:.1e} of the step's scale, "
            f"more than {explanation.tolerance:.0e}. Every step after it may follow from that one."
        )
    return (
        f"Served = equation: {proved} of {len(rows)} steps have a served tensor, and none differs by more than "
        f"{worst.relative:.1e} of its scale ({worst.key}); allowed are {explanation.tolerance:.0e}. The other "
        f"{len(rows) - proved} lie inside fused kernels, and the first tensor after each carries the proof."
    )


def show(explanation: Explanation, console: Console, *, opened: Sequence[str] = ()) -> None:
    """Prints the walk, a line for each part; parts and steps that match a pattern of `opened` step by step."""
    config = explanation.config
    stacks = {"encoder-only": [config.n_encoder_layers], "decoder-only": [config.n_decoder_layers]}
    layers = " + ".join(map(str, stacks.get(config.family, [config.n_encoder_layers, config.n_decoder_layers])))
    console.print(f"{config.family}, {layers} layers, D={config.d_model}, H={config.n_heads}, K={config.head_width}")
    console.print(Text(f"text    {explanation.text}"))
    if explanation.output:
        console.print(Text(f"output  {explanation.output}"))
    for name, tokens in (("reads", explanation.src), ("after", explanation.tgt), ("writes", explanation.chosen)):
        if tokens is not None:
            pairs = zip(tokens.labels, tokens.ids, strict=True)
            console.print(Text(f"{name:<8}" + "  ".join(f"{label} {id_}" for label, id_ in pairs), style="dim"))
    console.print(Text(summary(explanation), style="bold red" if explanation.first_off else "green"))
    console.print()
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("part", no_wrap=True)
    for name in ("steps", "FLOPs", "bytes", "max Δ"):
        table.add_column(name, justify="right", no_wrap=True)
    for group, members in groupby(explanation.rows, key=lambda row: row.group):
        rows = list(members)
        worst = max((row.relative for row in rows if row.relative is not None), default=None)
        is_off = worst is not None and not worst <= explanation.tolerance
        table.add_row(
            group,
            str(len(rows)),
            count(sum(row.flops for row in rows)),
            count(sum(row.size_bytes for row in rows)),
            Text("" if worst is None else f"{worst:.1e}", style="bold red" if is_off else ""),
        )
    console.print(table)
    console.print("Δ: largest difference over the largest number of the step, float64 equation - served.")
    if "why_not" in explanation.views:
        why_not = explanation.views["why_not"]
        console.print(Text(f"Why not “{why_not.reference}”? {why_not.verdict}"))
    if opened:
        rows = [row for row in explanation.rows if _is_open(row, opened)]
        if not rows:
            keys = ", ".join(row.key for row in explanation.rows[:3])
            console.print(Text(f"No step is named {' or '.join(opened)}. Steps have names such as {keys}."))
        show_rows(rows, console)
    else:
        console.print("Open steps with --open, such as --open 'encoder.1.self.*' or --open '*.weights'.")


def _is_open(row: Row, patterns: Sequence[str]) -> bool:
    return any(fnmatch(row.key, pattern) or pattern == "all" for pattern in patterns)


def show_rows(rows: Sequence[Row], console: Console) -> None:
    """Prints steps with equation, shape, first numbers and proof; a few lines each."""
    for group, members in groupby(rows, key=lambda row: row.group):
        console.print()
        console.print(Text(group, style="bold"))
        for row in members:
            _show_row(row, console)


def _show_row(row: Row, console: Console) -> None:
    console.print(Text.assemble((f"  {row.name}", "bold cyan"), f" = {row.equation}", (f"  ({row.source})", "dim")))
    shape = " ".join(map(str, row.shape))
    cost = f"   {count(row.flops)} FLOPs" if row.flops else ""
    proof = f"   Δ {row.delta:.1e} ({row.relative:.1e} of scale)" if row.delta is not None else ""
    console.print(Text(f"    {row.symbolic} = {shape}{cost}{proof}"))
    numbers = " ".join(f"{value:.4g}" for value in row.value.reshape(-1)[:N_SHOWN])
    facts = "   ".join(f"{name} {value:.3g}" for name, value in row.facts.items())
    console.print(Text(f"    {numbers} ...   {facts}".rstrip(), style="dim"))
    if row.note:
        console.print(Text(f"    {row.note}", style="dim italic"))


def show_map(map_: AttentionMap, console: Console, *, head: int | None, is_words: bool) -> None:
    """Prints one attention as a grid in percent; `head` counts from 1, None is the mean of all."""
    weights, rows, columns, title = chosen_map(map_, head=head, is_words=is_words)
    console.print()
    console.print(Text(f"{title}, in %: rows are queries, columns are keys.", style="bold"))
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("")
    for column in columns:
        table.add_column(Text(column), justify="right", no_wrap=True, max_width=6)
    for label, row in zip(rows, np.asarray(weights), strict=True):
        table.add_row(Text(label), *(Text(f"{100 * w:.0f}", style=_shade(float(w))) for w in row))
    console.print(table)


def chosen_map(map_: AttentionMap, *, head: int | None, is_words: bool) -> tuple[Array, list[str], list[str], str]:
    """Weights of one head (from 1; None: the mean of all), its labels of rows and columns, and a title."""
    weights = map_.weights.mean(0) if head is None else map_.weights[head - 1]
    name = "mean of the heads" if head is None else f"head {head}, entropy {map_.entropy[head - 1]:.2f} nats"
    title = f"{map_.title}, {name}"
    if not is_words:
        return weights, map_.queries.labels, map_.keys.labels, title
    weights = join_rows(join_columns(weights, map_.keys.words), map_.queries.words)
    return weights, map_.queries.word_labels, map_.keys.word_labels, title


def _shade(weight: float) -> str:
    """Bold where a key gets a third of the attention or more, dim below a tenth."""
    return "bold reverse" if weight >= 1 / 3 else "bold" if weight >= 0.1 else "dim"


def count(number: float) -> str:
    """A count in three digits: 49.2 M. Nothing for 0."""
    for unit in ("", " k", " M"):
        if number < 1000:
            return f"{number:.3g}{unit}" if number else ""
        number /= 1000
    return f"{number:.3g} G"
