"""`glassformer classify`: the label of a text, of a file or of standard input, line for line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassformer.cli.texts import chunks_of, one_line, text_writer
from glassformer.errors import DataError

if TYPE_CHECKING:
    from glassformer.tasks.classifier import Classification, Text


@click.command("classify")
@click.argument("model", metavar="MODEL")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--input", "source", metavar="FILE", help="Classify the lines of a file; - is standard input.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write here.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object a line: text, labels, all probabilities.")
@click.option(
    "--threshold", type=float, default=0.5, metavar="P", help="Multi-label: give labels of at least this probability."
)
@click.option("--encoding", default=None, metavar="NAME", help="Character encoding of the input (utf-8).")
def command(
    model: str,
    texts: tuple[str, ...],
    source: str | None,
    output: Path | None,
    is_json: bool,
    threshold: float,
    encoding: str | None,
) -> None:
    """Classify TEXTs with the model in the folder MODEL; without TEXT and --input, standard input, line for line.

    A line of output holds the label, a tab and its probability; several labels and their probabilities are separated
    by commas. A blank line has no label. A model of pairs takes two texts a line, with a tab between them.
    """
    from glassformer.tasks.classifier import Classifier

    chunks = chunks_of(texts, source, encoding)
    classifier = Classifier.load(model)
    n_lines, cut = 0, []
    with text_writer(output) as write:
        for chunk in chunks:
            given: list[Text] = list(chunk)
            if classifier.takes_pairs:
                given = [_pair(line, n_lines + i) for i, line in enumerate(chunk, 1)]
            for line, found in zip(chunk, classifier.classify(given, threshold=threshold), strict=True):
                n_lines += 1
                cut += [n_lines] * found.is_cut
                write(_json_line(line, found) if is_json else _text_line(found))
    if cut:
        shown = ", ".join(map(str, cut[:10])) + (", ..." if len(cut) > 10 else "")
        click.echo(f"warning: {len(cut):,} texts were cut to {classifier.max_tokens} tokens (lines {shown}).", err=True)


def _pair(line: str, number: int) -> tuple[str, str]:
    fields = line.split("\t")
    if not line.strip():
        return "", ""
    if len(fields) != 2:
        raise DataError(
            f"Line {number} has {len(fields)} column{'s' * (len(fields) != 1)}.",
            "This model reads pairs: two texts with a tab between them.",
            "Mend the line, or use a model of single texts.",
        )
    return fields[0], fields[1]


def _text_line(found: Classification) -> str:
    labels = ",".join(map(one_line, found.labels))
    shares = ",".join(f"{found.probabilities[label]:.4f}" for label in found.labels)
    return f"{labels}\t{shares}" if labels else ""


def _json_line(line: str, found: Classification) -> str:
    content = {
        "text": line,
        "labels": found.labels,
        "probabilities": found.probabilities,
        "is_cut": found.is_cut,
    }
    return json.dumps(content, ensure_ascii=False, allow_nan=False)
