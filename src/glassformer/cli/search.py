"""`glassformer search`: the lines of an index nearest to a query."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from glassformer.cli.texts import chunks_of

if TYPE_CHECKING:
    from glassformer.tasks.index import Found


@click.command("search")
@click.argument("index", metavar="INDEX")
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option("-k", "k", type=int, default=10, show_default=True, metavar="N", help="Results for each query.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object a query: query, results.")
@click.option("--model", metavar="FOLDER", help="Where the model of the index lies now, if it was moved.")
@click.option("--encoding", default=None, metavar="NAME", help="Character encoding of standard input (utf-8).")
def command(
    index: str, queries: tuple[str, ...], k: int, is_json: bool, model: str | None, encoding: str | None
) -> None:
    """Find the K texts of INDEX nearest to each QUERY; without QUERY, to each line of standard input.

    Every text is compared. A result is its score (inner product: the cosine where the model normalises), its line in
    the indexed file, and the text. Blank queries find nothing.
    """
    from glassformer.cli.embed import cut_warning
    from glassformer.tasks.index import Index

    searched = Index.load(index, model=model)
    is_single = len(queries) == 1
    cut: list[int] = []
    first = 1
    for chunk in chunks_of(queries, None, encoding):
        numbers = [i for i, query in enumerate(chunk) if query.strip()]
        cut_here: list[int] = []
        found = iter(searched.search([chunk[i] for i in numbers], k=k, on_cut=cut_here.append))
        cut += [first + numbers[i] for i in cut_here]
        first += len(chunk)
        for query in chunk:
            results = next(found) if query.strip() else []
            click.echo(_json_line(query, results) if is_json else _text(query, results, is_single))
    cut_warning(len(cut), searched.embedder.max_tokens, cut)


def _json_line(query: str, results: list[Found]) -> str:
    content = {"query": query, "results": [asdict(found) for found in results]}
    return json.dumps(content, ensure_ascii=False, allow_nan=False)


def _text(query: str, results: list[Found], is_single: bool) -> str:
    """A result a line: score, line, text between tabs; the query above, where there are several."""
    lines = [f"{found.score:.4f}\t{found.line}\t{found.text}" for found in results]
    return "\n".join(lines if is_single else [query, *(f"  {line}" for line in lines)])
