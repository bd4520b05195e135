"""`glassformer explain`: every step of a model's own computation, with the proof that it is the one that serves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import STDOUT, first_import, write_file
from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.explain import AttentionMap, Explanation


@click.command("explain")
@click.argument("model", metavar="MODEL", required=False)
@click.argument("text", metavar="TEXT", required=False)
@click.option("--target", metavar="TEXT", help="Follow this translation in place of the model's own.")
@click.option("--why-not", metavar="TEXT", help="Follow a reference and say where and why the model leaves it.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write one page.")
@click.option("--json", "json_", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write JSON.")
@click.option("--full", is_flag=True, help="With --json: every number of every step.")
@click.option(
    "--open", "opened", multiple=True, metavar="PATTERN", help="Steps to open, such as 'encoder.1.*'; all: each."
)
@click.option("--attention", metavar="KEY", help="Print an attention: encoder.1.self, decoder.2.cross, ...")
@click.option("--head", type=click.IntRange(min=1), metavar="N", help="With --attention: one head, from 1.")
@click.option("--words", is_flag=True, help="With --attention: join sub-words to words.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw as SVG: the map of --attention, else the steps of --open as a graph, else the parts of the model.",
)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any setting of generation.json.")
@click.option("--request", metavar="ID", help="In place of MODEL and TEXT: a request that a server has kept.")
@click.option(
    "--log", envvar="GLASSFORMER_EXPLAIN_LOG", metavar="FOLDER", help="Where it keeps them (its --explain-log)."
)
def command(
    model: str | None,
    text: str | None,
    target: str | None,
    why_not: str | None,
    html: Path | None,
    json_: Path | None,
    full: bool,
    opened: tuple[str, ...],
    attention: str | None,
    head: int | None,
    words: bool,
    picture: Path | None,
    sets: tuple[str, ...],
    request: str | None,
    log: str | None,
) -> None:
    """Show how the model in the folder MODEL computes on TEXT, step by step.

    Each step has its equation, shape, numbers, cost, and the largest difference between the equation in float64 and
    the tensor of the path that serves. Exits with 1 when they differ. A FILE of - is standard output; the table of
    steps then goes to standard error.
    """
    if full and json_ is None:
        raise UserError("--full was given without --json.", "It adds numbers to the JSON.", "Give --json FILE.")
    if attention is None and (head is not None or words):
        raise UserError(
            "--head or --words was given without --attention.", "They choose what it prints.", "Give --attention KEY."
        )
    if (n_stdout := [html, json_, picture].count(STDOUT)) > 1:
        raise UserError(f"- was given {n_stdout} times.", "Standard output takes one of them.", "Name a file.")
    with first_import():
        from glassformer.explain import explain
        from glassformer.resolve import override
        from glassformer.tasks.model_folder import load_model_folder

    kept = _kept(request, log, model, text, target)
    folder = load_model_folder(kept["folder"])
    saved = kept.get("generation", folder.config.generation)
    generation = override(saved, "generation", sets, {})
    text, target = kept["text"], kept["target"]
    with_views = any((html, json_, why_not))
    explanation = explain(folder, text, target=target, reference=why_not, generation=generation, with_views=with_views)
    map_ = None if attention is None else _map(explanation, attention, head)
    _print(explanation, opened, map_, head, words, to_stderr=n_stdout > 0)
    if picture is not None:
        write_file(picture, _drawing(explanation, opened, map_, head, words), "Picture")
    if html is not None:
        write_file(html, explanation.to_html(), "Page")
    if json_ is not None:
        write_file(json_, explanation.to_json(is_full=full) + "\n", "JSON")
    if explanation.first_off is not None:
        raise SystemExit(1)


def _kept(
    request: str | None, log: str | None, model: str | None, text: str | None, target: str | None
) -> dict[str, Any]:
    """What is explained: MODEL and TEXT, or a request with its settings."""
    if request is None:
        if model is None or text is None:
            raise UserError("MODEL or TEXT is missing.", "Both were expected, or --request ID.", "Give them.")
        return {"folder": model, "text": text, "target": target}
    if model is not None or target is not None or log is None:
        what = "--request was given without --log." if log is None else "--request was given with MODEL or --target."
        raise UserError(what, "A request has its own model and text.", "Write explain --request ID --log FOLDER.")
    from glassformer.serve.explained import read_request

    return read_request(Path(log), request)


def _map(explanation: Explanation, key: str, head: int | None) -> AttentionMap:
    maps = {map_.key: map_ for map_ in explanation.maps}
    if key not in maps:
        raise UserError(f"--attention {key} is unknown.", f"Known: {', '.join(maps)}.", "Choose one of them.")
    if head is not None and head > explanation.config.n_heads:
        raise UserError(
            f"--head {head} was given.", f"This model has {explanation.config.n_heads} heads.", "Choose one of them."
        )
    return maps[key]


def _print(
    explanation: Explanation,
    opened: tuple[str, ...],
    map_: AttentionMap | None,
    head: int | None,
    is_words: bool,
    *,
    to_stderr: bool,
) -> None:
    from rich.console import Console

    from glassformer.explain.render_terminal import show, show_map

    width = None if Console(stderr=to_stderr).is_terminal else 80
    console = Console(highlight=False, stderr=to_stderr, width=width)
    show(explanation, console, opened=opened)
    if map_ is not None:
        show_map(map_, console, head=head, is_words=is_words)


def _drawing(
    explanation: Explanation, opened: tuple[str, ...], map_: AttentionMap | None, head: int | None, is_words: bool
) -> str:
    from glassformer.explain.graph import draw_parts, draw_steps
    from glassformer.explain.render_terminal import chosen_map
    from glassformer.svg import heatmap

    if map_ is not None:
        weights, rows, columns, title = chosen_map(map_, head=head, is_words=is_words)
        return heatmap(weights.tolist(), rows=rows, columns=columns, title=title)
    return draw_steps(explanation, opened) if opened else draw_parts(explanation)
