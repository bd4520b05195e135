"""`glassformer check`: a report on parallel data before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from glassformer.text.report import Report

_N_BARS = 12


@click.command("check")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option(
    "--src", default=None, metavar="CODE", help="Source language, such as en; also a column or key of the data."
)
@click.option("--tgt", default=None, metavar="CODE", help="Target language, such as fr.")
@click.option("--valid", multiple=True, metavar="FILE", help="Validation data (twice for two plain files).")
@click.option(
    "--format", "format_", type=click.Choice(["tsv", "csv", "jsonl"]), help="Format of one file; else guessed."
)
@click.option("--encoding", default=None, metavar="NAME", help="Character encoding of the files (utf-8).")
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--picture", type=click.Path(dir_okay=False), metavar="FILE.svg", help="Draw the distribution of lengths."
)
@click.option("--strict", "is_strict", is_flag=True, help="Exit with 1 when anything is found.")
def command(
    data: tuple[str, ...],
    src: str | None,
    tgt: str | None,
    valid: tuple[str, ...],
    format_: Any,
    encoding: str | None,
    is_json: bool,
    picture: str | None,
    is_strict: bool,
) -> None:
    """Report on parallel data: counts, lengths, and what looks wrong.

    DATA is one TSV, CSV or JSONL file with both sides, or two plain files; compressed or not; - is standard input.
    """
    from glassformer.config import DataConfig
    from glassformer.text.checks import check
    from glassformer.text.readers import PairReader

    given = {"src": src, "tgt": tgt, "encoding": encoding}
    config = DataConfig(**{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]

    def reader(paths: tuple[str, ...]) -> PairReader:
        return PairReader(paths, src=config.src, tgt=config.tgt, format=format_, encoding=config.encoding)

    report = check(reader(data), reader(valid) if valid else None, config)
    if picture:
        _draw(report, picture)
    if is_json:
        import json

        click.echo(json.dumps(report.to_dict(), ensure_ascii=False, allow_nan=False, indent=2))
    else:
        from rich.console import Console

        _show(report, Console(highlight=False))
    if is_strict and not report.is_clean:
        raise click.exceptions.Exit(1)


def show_report(report: Report) -> None:
    """The same summary on standard error, for `glassformer train`."""
    from rich.console import Console

    _show(report, Console(highlight=False, stderr=True))


def _draw(report: Report, path: str) -> None:
    from pathlib import Path

    from glassformer.errors import UserError
    from glassformer.svg import histogram

    series = {name: words.tolist() for name, words in report.lengths.items()}
    try:
        Path(path).write_text(histogram(series, title="Length of the rows", x_label="words"), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"--picture {path} cannot be written: {error.strerror}.",
            "A writable place was expected.",
            "Choose another.",
        ) from error


def _show(report: Report, console: Console) -> None:
    console.print(
        f"{report.n_rows:,} rows, {report.n_pairs:,} pairs read, {report.n_used:,} of them used for training."
    )
    for reason, count in report.bad.items():
        console.print(f"Bad rows: {count:,} with {reason}, first at {report.bad_examples[reason]}.", markup=False)
    if report.domains:
        domains = ", ".join(f"{name} {count:,}" for name, count in report.domains.items())
        console.print(f"Domains: {domains}", markup=False)
    console.print(_lengths_table(report))
    _show_bars(report, console)
    if not report.findings:
        console.print("Nothing looks wrong.")
        return
    console.print(_findings_table(report))
    for finding in report.findings:
        for example in finding.examples[:2]:
            src, tgt = (_clipped(text) for text in (example.src, example.tgt))
            console.print(f"{finding.name}, line {example.row:,}: {src} | {tgt}", markup=False)


def _lengths_table(report: Report) -> Any:
    from rich.table import Table

    shown = ("min", "5%", "median", "95%", "99%", "max")
    table = Table("side", "looks like", "total", *shown, title="Lengths of the rows")
    for side in report.sides:
        for unit, total, lengths in (("words", side.n_words, side.words), ("chars", side.n_chars, side.chars)):
            quantiles = (f"{lengths[name]:,}" for name in shown)
            table.add_row(f"{side.name} {unit}", side.language or "-", f"{total:,}", *quantiles)
    return table


def _findings_table(report: Report) -> Any:
    from rich.table import Table

    table = Table("finding", "rows", "share", "in training", "meaning", title="What looks wrong")
    for finding in report.findings:
        share = f"{finding.count / report.n_pairs:.2%}"
        table.add_row(
            finding.name, f"{finding.count:,}", share, "left out" if finding.is_left_out else "used", finding.note
        )
    return table


def _show_bars(report: Report, console: Console) -> None:
    """A small histogram of the words of each row, both sides beside each other; the last bar holds the rest."""
    import numpy as np

    high = max(int(np.quantile(words, 0.99)) for words in report.lengths.values())
    width = max(1, -(-(high + 1) // _N_BARS))
    counts = {
        name: np.bincount(np.minimum(words // width, _N_BARS - 1), minlength=_N_BARS)
        for name, words in report.lengths.items()
    }
    most = max(int(count.max()) for count in counts.values())
    console.print(f"Words of a row ({' and '.join(counts)}):", markup=False)
    for i in range(_N_BARS):
        label = f"{i * width}+" if i == _N_BARS - 1 else f"{i * width}-{(i + 1) * width - 1}"
        bars = "  ".join(f"{'█' * round(24 * count[i] / most):24} {count[i]:>9,}" for count in counts.values())
        console.print(f"{label:>9} {bars}", markup=False)


def _clipped(text: str) -> str:
    """A text on one line of the terminal, control characters escaped."""
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:80])
    return shown + ("..." if len(text) > 80 else "")
