"""`glassformer phrasebook`: writes the embedded English-French phrasebook as TSV files."""

from __future__ import annotations

from pathlib import Path

import click

from glassformer.errors import DataError


@click.command(name="phrasebook")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for train, valid and test.tsv.")
@click.option("--pairs", type=int, help="Training pairs.")
@click.option("--seed", type=int, help="Seed of the sentences and of what is held out.")
def command(out: Path, pairs: int | None, seed: int | None) -> None:
    """Write the embedded English-French phrasebook.

    Files: train.tsv, and valid.tsv and test.tsv with combinations of words that train.tsv never has. Each line is an
    English sentence, a tab, and its French one. The same seed gives the same bytes.
    """
    from glassformer.config import PhrasebookConfig
    from glassformer.phrasebook import split

    default = PhrasebookConfig()
    n_train = default.pairs if pairs is None else pairs
    n_test, n_valid = default.test_rows, default.valid_rows
    train, held_out = split(default.seed if seed is None else seed, n_train, n_test + n_valid)
    files = {"train.tsv": train, "valid.tsv": held_out[n_test:], "test.tsv": held_out[:n_test]}
    for name, rows in files.items():
        text = "".join(f"{english}\t{french}\n" for english, french in rows)
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(text.encode())
        except OSError as error:
            raise DataError(
                f"{out / name} cannot be written: {error.strerror}.",
                "A folder to write in was expected.",
                "Choose another --out.",
            ) from error
        click.echo(f"{out / name}: {len(rows):,} pairs")
