"""`glassformer label`: the labels of the words of a text, of a file or of standard input, line for line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassformer.cli.texts import chunks_of, one_line, text_writer
from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.tasks.labeller import Labelling


@click.command("label")
@click.argument("model", metavar="MODEL")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--input", "source", metavar="FILE", help="Label the lines of a file; - is standard input.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write here.")
@click.option("--words", "has_words", is_flag=True, help="The lines are words already, with spaces between them.")
@click.option("--constrained", is_flag=True, help="Forbid tags that break their scheme (Viterbi).")
@click.option("--json", "is_json", is_flag=True, help="One JSON object a line: text, words, entities with places.")
@click.option("--conll", "is_conll", is_flag=True, help="A word and its label a line, a blank line after each text.")
@click.option("--encoding", default=None, metavar="NAME", help="Character encoding of the input (utf-8).")
def command(
    model: str,
    texts: tuple[str, ...],
    source: str | None,
    output: Path | None,
    has_words: bool,
    constrained: bool,
    is_json: bool,
    is_conll: bool,
    encoding: str | None,
) -> None:
    """Label the words of TEXTs with the model in the folder MODEL; without TEXT and --input, of standard input.

    Line n of the output is line n of the input with its entities in brackets: `[PER Anna] lives in [LOC Lyon].` Where
    the labels mark no entities, each word is followed by its label: `The/DET dog/NOUN`.
    """
    from glassformer.tasks.labeller import Labeller

    if is_json and is_conll:
        raise UserError("Both --json and --conll were given.", "One form of output was expected.", "Leave one out.")
    chunks = chunks_of(texts, source, encoding)
    labeller = Labeller.load(model)
    has_entities = labeller.labels.scheme != "none"
    with text_writer(output) as write:
        for chunk in chunks:
            given = [line.split() for line in chunk] if has_words else chunk
            for found in labeller.label(given, is_constrained=constrained):
                if is_json:
                    write(json.dumps(asdict(found), ensure_ascii=False, allow_nan=False))
                elif is_conll:
                    write("".join(f"{word.text}\t{word.label}\n" for word in found.words))
                else:
                    write(_bracketed(found) if has_entities else _followed(found))


def _bracketed(found: Labelling) -> str:
    """The text with its entities in brackets, on one line."""
    parts, end = [], 0
    for entity in found.entities:
        parts += [found.text[end : entity.start], f"[{entity.type} {entity.text}]"]
        end = entity.end
    return one_line("".join([*parts, found.text[end:]]))


def _followed(found: Labelling) -> str:
    """Each word with its label."""
    return one_line(" ".join(f"{word.text}/{word.label}" for word in found.words))
