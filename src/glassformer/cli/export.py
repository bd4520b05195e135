"""`glassformer export`: a model for transformers, CTranslate2 or onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from glassformer.interop.export import Export


@click.command("export")
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL")
@click.argument("out", type=click.Path(path_type=Path), metavar="OUT")
@click.option(
    "--to", type=click.Choice(["huggingface", "ctranslate2", "onnx"]), required=True, help="Which engine will read it."
)
@click.option("--quantize", type=click.Choice(["int8"]), help="Weights in 8 bits (ctranslate2, onnx).")
@click.option(
    "--check",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare on these sentences, one a line; unset: built-in ones.",
)
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def command(model: Path, out: Path, to: Any, quantize: str | None, check: Path | None, is_json: bool) -> None:
    """Write the model in the folder MODEL for another engine, into the new folder OUT.

    The export is loaded again by its engine and compared on sentences. One that differs is not put in place.
    """
    from glassformer.interop.export import export

    done = export(model, out, to=to, quantize=quantize, check=check, say=lambda text: click.echo(text, err=True))
    if is_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps(asdict(done), default=str, indent=2, ensure_ascii=False))
    else:
        _show(done)


def _show(done: Export) -> None:
    comparison = done.comparison
    click.echo(f"{done.out}: {done.size_bytes / 1e6:.1f} MB, {done.to}{' int8' if done.quantize else ''}")
    bound = "relative rms" if done.quantize else "largest difference"
    click.echo(
        f"{comparison.n_texts} texts, {comparison.compared}: largest difference {comparison.max_difference:.2g}, "
        f"relative rms {comparison.relative_rms:.2g} (bound on the {bound}: {comparison.bound:g})"
    )
    if comparison.same_outputs is not None:
        ties = f", {comparison.ties} of them at a tie" if comparison.ties else ""
        click.echo(f"same greedy output: {comparison.same_outputs} of {comparison.n_texts}{ties}")
    click.echo(f"{done.out / 'README.md'} tells how to load it, {done.out / 'export.json'} keeps this comparison.")
