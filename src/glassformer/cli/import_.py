"""`glassformer import`: a Hugging Face folder becomes a model folder."""

from __future__ import annotations

import click


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, file_okay=False))
@click.argument("out", metavar="OUT", type=click.Path())
@click.option("--verbose", is_flag=True, help="List which tensor fills which parameter.")
def command(path: str, out: str, verbose: bool) -> None:
    """Read a local Hugging Face folder (BERT, RoBERTa, DistilBERT, GPT-2, Llama, T5, Marian, BART, Pegasus).

    PATH holds config.json, weights (safetensors, or .bin without code) and tokenizer files; a folder of
    sentence-transformers too. OUT becomes a model folder. Nothing is downloaded, no code of the folder is run, and what
    is not understood is an error.
    """
    from glassformer.interop.huggingface import import_huggingface
    from glassformer.shapes import total

    report = import_huggingface(path, out)
    model = report.config.model
    click.echo(f"{out}: {model.family} of the type {report.model_type}, {total(model):,} parameters.")
    click.echo(f"{len(report.used)} tensors used, {len(report.left_out)} left out.")
    if verbose:
        for theirs, ours in report.used.items():
            click.echo(f"  {theirs} -> {ours}")
    for name, reason in report.left_out.items():
        click.echo(f"left out: {name} ({reason})")
    for note in report.notes:
        click.echo(f"note: {note}")
