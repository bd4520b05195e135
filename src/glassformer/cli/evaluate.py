"""`glassformer evaluate`: how good the outputs of a model, or of a file, are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import workers_option
from glassformer.errors import DataError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from glassformer.evaluation.report import Report, System
    from glassformer.evaluation.testset import TestSet
    from glassformer.tasks.translator import Translator


@click.command("evaluate")
@click.argument("model")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option("--src", metavar="CODE", help="Source language, a column or key of the data; unset: the model's own.")
@click.option("--tgt", metavar="CODE", help="Target language; unset: the model's own.")
@click.option(
    "--format", "format_", type=click.Choice(["tsv", "csv", "jsonl"]), help="Format of one file; else guessed."
)
@click.option("--encoding", metavar="NAME", help="Character encoding of the files; unset: utf-8.")
@click.option("--strict", "is_strict", is_flag=True, help="Stop at the first bad row instead of counting it.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Score only the first N rows with text.")
@click.option("--hypotheses", metavar="FILE", help="Score this file, a line for each row; MODEL is then -.")
@click.option("--against", metavar="MODEL|FILE", help="Test against another model, or a file of its outputs.")
@click.option(
    "--beam", type=click.IntRange(min=1), metavar="N", help="Beam size, 1 for greedy; unset: the model's own."
)
@click.option(
    "--precision",
    type=click.Choice(["float32", "bf16", "int8"]),
    default="float32",
    help="What MODEL computes in; --against stays float32, so that the two can be compared.",
)
@workers_option
@click.option("--tokenize", type=click.Choice(["13a", "intl", "zh", "char", "none"]), help="Words of BLEU; unset: 13a.")
@click.option("--rouge", "is_rouge", is_flag=True, help="Score ROUGE too; on, and TER off, for a model of summaries.")
@click.option("--no-ter", "is_without_ter", is_flag=True, help="Leave out TER, the slow metric.")
@click.option("--out", metavar="FOLDER", help="Write hypotheses.txt, report.json and report.md.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def command(
    model: str,
    data: tuple[str, ...],
    src: str | None,
    tgt: str | None,
    format_: Any,
    encoding: str | None,
    is_strict: bool,
    limit: int | None,
    hypotheses: str | None,
    against: str | None,
    beam: int | None,
    precision: Any,
    n_workers: int,
    tokenize: Any,
    is_rouge: bool,
    is_without_ter: bool,
    out: str | None,
    is_json: bool,
) -> None:
    """Score a model on parallel data: BLEU, chrF and TER, overall, by length, by domain, and where it is worst.

    MODEL is a folder that `glassformer train` wrote, or - for outputs in a file (--hypotheses). DATA is one TSV, CSV or
    JSONL file with both sides, or two plain files; compressed or not; - is standard input.
    """
    from pathlib import Path

    from glassformer.config import DataConfig, EvaluationConfig
    from glassformer.evaluation.report import evaluate
    from glassformer.evaluation.testset import read_test_set
    from glassformer.text.readers import PairReader

    _check_options(model, data, hypotheses, against, {"--beam": beam, "--workers": n_workers > 1 and n_workers})
    if hypotheses and precision != "float32":
        raise UserError(f"--precision {precision} with --hypotheses.", "It is for a model.", "Leave one of them out.")
    config = EvaluationConfig(tokenize=tokenize) if tokenize else EvaluationConfig()
    encoding = encoding or DataConfig().encoding
    # What can fail at once comes before what takes long.
    translator = None if hypotheses else _loaded(model, precision)
    other_translator = _loaded(against) if against and Path(against).is_dir() else None
    languages = _languages(model) | {name: value for name, value in (("src", src), ("tgt", tgt)) if value}
    reader = PairReader(data, **languages, format=format_, encoding=encoding, is_strict=is_strict)
    test_set = read_test_set(reader, limit)
    files = [path for path in (hypotheses, None if other_translator else against) if path]
    read = {path: _from_file(path, test_set, encoding) for path in files}
    folder = _made(out) if out else None

    system = read[hypotheses] if hypotheses else _translated(model, translator, test_set, beam, n_workers, precision)
    if folder:
        _write(folder / "hypotheses.txt", test_set.spread(system.hypotheses))
    other = None
    if against:
        other = _translated(against, other_translator, test_set, beam, n_workers) if other_translator else read[against]
        if folder and other_translator:
            _write(folder / "against.txt", test_set.spread(other.hypotheses))
    is_summary = any(each is not None and each.is_whole for each in (translator, other_translator))
    report = evaluate(
        system,
        test_set,
        other=other,
        use_ter=not (is_without_ter or is_summary),
        rouge_language=languages.get("tgt", "") if is_rouge or is_summary else None,
        config=config,
    )
    _deliver(report, folder, is_json)


def _check_options(
    model: str, data: tuple[str, ...], hypotheses: str | None, against: str | None, for_models: dict[str, Any]
) -> None:
    from pathlib import Path

    if hypotheses and model != "-":
        raise UserError(
            f"MODEL is {model!r} and --hypotheses is {hypotheses!r}: which one is to be scored is not clear.",
            "One system is scored, and may be compared with another.",
            f"Use - as MODEL to score the file, or --against {hypotheses} to compare the two.",
        )
    if model == "-" and not hypotheses:
        raise UserError(
            "MODEL is - and there is no --hypotheses.",
            "Without a model there must be outputs to score.",
            "Name a model folder, or a file of outputs with --hypotheses.",
        )
    if [*data, hypotheses, against].count("-") > 1:
        raise UserError(
            "Standard input (-) is named more than once.", "It can be read once.", "Put the other input into a file."
        )
    for name, value in for_models.items():
        if value and hypotheses and not (against and Path(against).is_dir()):
            raise UserError(
                f"{name} {value} has no model to search with.",
                "Only files of outputs are scored here.",
                f"Leave {name} out, or name a model.",
            )


def _loaded(path: str, precision: Any = "float32") -> Translator:
    from glassformer.tasks.translator import Translator

    return Translator.load(path, precision=precision)


def _languages(model: str) -> dict[str, str]:
    """The language codes that a model folder was trained with; nothing for anything else."""
    import json
    from pathlib import Path

    try:
        data = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))["data"]
        return {name: str(data[name]) for name in ("src", "tgt")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # a model that is damaged has been refused before


def _from_file(path: str, test_set: TestSet, encoding: str) -> System:
    from glassformer.evaluation.report import System
    from glassformer.text.readers import read_lines

    return System(name=path, hypotheses=test_set.select(list(read_lines(path, encoding=encoding)), path))


def _translated(
    path: str,
    translator: Translator | None,
    test_set: TestSet,
    beam: int | None,
    n_workers: int,
    precision: Any = "float32",
) -> System:
    import dataclasses
    import time

    from glassformer.evaluation.report import System
    from glassformer.tasks.translator_pool import shared_by

    assert translator is not None
    generation = dataclasses.replace(translator.generation, n_best=1)
    if beam:
        generation = dataclasses.replace(generation, beam_size=beam, do_sample=False)
    start = time.perf_counter()
    title = f"translating with {path}"
    with shared_by(n_workers, path, precision) as pool, _progress(title, len(test_set.sources)) as on_progress:
        found = translator.translate(test_set.sources, generation=generation, on_progress=on_progress, pool=pool)
    return System(
        name=path,
        hypotheses=[translation.text for translation in found],
        seconds=time.perf_counter() - start,
        truncated=sum(translation.finish_reason == "length" for translation in found),
        n_cut_sources=sum(translation.n_unread_tokens > 0 for translation in found),
        generation=dataclasses.asdict(generation),
    )


def _progress(title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """A bar with rate and time left on stderr; a line every ten seconds where that is not a terminal."""
    import time
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console, start = Console(stderr=True), time.perf_counter()

    def rate(done: int) -> float:
        return done / max(time.perf_counter() - start, 1e-9)

    @contextmanager
    def bar() -> Iterator[Callable[[int], None]]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
        )
        with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
            task = progress.add_task(title, total=total, rate="")
            yield lambda done: progress.update(
                task, completed=done, total=max(total, done), rate=f"{rate(done):.1f} sentences/s"
            )

    @contextmanager
    def lines() -> Iterator[Callable[[int], None]]:
        last = start

        def on_progress(done: int) -> None:
            nonlocal last
            if time.perf_counter() - last >= 10 or done >= total:
                last = time.perf_counter()
                left = max(total - done, 0) / max(rate(done), 1e-9)
                said = f"{title}: {done} of {total}, {rate(done):.1f} sentences/s, {left:.0f} s left"
                click.echo(said, err=True)

        yield on_progress

    return bar() if console.is_terminal else lines()


def _made(out: str) -> Path:
    """The output folder, made before the work so that a wrong name is known at once."""
    from pathlib import Path

    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--out {out} cannot be made: {error.strerror}.", "A folder was expected.", "Choose another name."
        ) from error
    return folder


def _write(path: Path, lines: Sequence[str]) -> None:
    """Writes each text as one line; the file appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.partial")
    text = "".join(line.replace("\n", " ") + "\n" for line in lines)
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DataError(
            f"{path} cannot be written: {error.strerror}.",
            "Room and rights to write were expected.",
            "Choose another --out.",
        ) from error


def _deliver(report: Report, folder: Path | None, is_json: bool) -> None:
    import json

    from glassformer.evaluation.report import strict_json, to_dict, to_markdown

    text = json.dumps(strict_json(to_dict(report)), ensure_ascii=False, indent=2, allow_nan=False)
    if folder:
        _write(folder / "report.json", text.split("\n"))
        _write(folder / "report.md", to_markdown(report).split("\n")[:-1])
        click.echo(f"wrote hypotheses.txt, report.json and report.md to {folder}", err=True)
    if is_json:
        click.echo(text)
    else:
        _show(report)


def _show(report: Report) -> None:
    """The report in the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from glassformer.evaluation.report import notes, signatures, tables

    console = Console()
    for table in tables(report):
        shown = Table(title=Text(table.title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
        for head in table.heads:
            is_text = head in ("source", "output", "reference")
            shown.add_column(Text(head), overflow="fold", ratio=1 if is_text else None)
        for row in table.rows:
            shown.add_row(*(Text(_printable(cell)) for cell in row))
        console.print(shown)
    for line in (*notes(report), *signatures(report)):
        console.print(Text(line))


def _printable(text: str) -> str:
    """The text without what steers a terminal, such as the escape sequences that an output may hold."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
