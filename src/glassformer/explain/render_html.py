"""The explanation as one page: no network, readable without scripts, light and dark by the reader's setting."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup, escape

from glassformer import svg
from glassformer.explain import pictures
from glassformer.explain.render_terminal import count, summary
from glassformer.explain.result import Array, AttentionMap, Explanation, Row
from glassformer.explain.tokens import Tokens, join_columns, join_rows

__all__ = ["chart", "environment", "to_html", "to_notebook"]

N_TOKENS, N_NUMBERS = 4, 6  # of a vector that an opened step shows
N_POINTS = 31  # of the curve of an activation
MATRICES = ("scores", "scaled", "bias", "biased", "masked", "weights")


@cache
def environment() -> jinja2.Environment:
    """The templates of `page/`, with what they draw and write with."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("glassformer.explain", "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"count": count, "piece": _piece, "shape": _shape, "number": lambda value: f"{value:.4g}"}
    found.globals |= {
        "matrix": pictures.matrix,
        "chart": chart,
        "read": lambda name: Markup(found.loader.get_source(found, name)[0]),  # type: ignore[union-attr]
    }
    return found


def to_html(explanation: Explanation) -> str:
    """The page."""
    return (
        environment()
        .get_template("page.html")
        .render(
            e=explanation,
            summary=summary(explanation),
            groups=[_Group(name, list(rows)) for name, rows in groupby(explanation.rows, key=lambda row: row.group)],
            letters=_letters(explanation),
            maps=[_map(map_) for map_ in explanation.maps],
            relevance=_relevance(explanation),
            candidates=_candidates(explanation),
            tree=pictures.tree(explanation.views["search"]) if "search" in explanation.views else None,
            numbers=_numbers,
            table_picture=_table_picture(explanation),
            v=explanation.views,
            why_not=explanation.views.get("why_not"),
        )
    )


def to_notebook(explanation: Explanation) -> str:
    """The page in a frame of its own, so that its style stays inside."""
    page = escape(to_html(explanation))
    return (
        f'<iframe srcdoc="{page}" style="width:100%;height:720px;border:1px solid #8888" title="explanation"></iframe>'
    )


class _Group:
    """Rows under one heading."""

    def __init__(self, name: str, rows: list[Row]) -> None:
        self.name, self.rows = name, rows
        self.flops, self.size_bytes = sum(row.flops for row in rows), sum(row.size_bytes for row in rows)
        self.worst = max((row.relative for row in rows if row.relative is not None), default=None)


def _letters(explanation: Explanation) -> list[tuple[str, str, int]]:
    config = explanation.config
    sizes = [("B", "texts", 1)]
    if explanation.tgt is not None:
        sizes.append(("T", "target tokens (queries)", len(explanation.tgt.ids)))
    if explanation.src is not None:
        sizes.append(("S", "source tokens (keys)", len(explanation.src.ids)))
    widths = [("D", "residual stream", config.d_model), ("H", "heads", config.n_heads)]
    widths += [("G", "key-value heads", config.kv_heads), ("K", "one head", config.head_width)]
    return (
        sizes + widths + [("F", "inside the feed-forward network", config.d_ff), ("V", "vocabulary", config.vocab_size)]
    )


def _numbers(row: Row, explanation: Explanation) -> Markup:
    """A picture of the heads, or the first numbers of the first tokens."""
    tokens = explanation.src if row.key.startswith("encoder") or explanation.tgt is None else explanation.tgt
    keys = explanation.src if ".cross." in row.key else tokens
    assert tokens is not None or keys is not None
    if row.name in MATRICES and tokens is not None and keys is not None:
        title = f"{row.key}: rows queries, columns keys"
        picture = pictures.matrix(row.value[0], tokens.labels, keys.labels, title=title)
        caption = f'<figcaption>head <b class="head">1</b> of {row.shape[1]}</figcaption>'
        return Markup(f'<figure>{caption}<div class="scroll">{picture}</div></figure>')
    labels = (keys if row.name in ("K", "V") else tokens) or explanation.src
    drawn = _table(row, labels)
    if row.name == "activation" and not explanation.config.is_gated:
        points = sorted({(float(x), float(y)) for x, y in _spread(explanation.row(row.inputs[0]), row)})
        name = explanation.config.activation
        drawn += chart({name: points}, f"{name}: what goes in, and what comes out", "expansion", "activation")
    return drawn


def _spread(row: Row, after: Row) -> Array:
    """Pairs of numbers of two rows of one shape, spread evenly over the order of the first: [N_POINTS, 2]."""
    order = row.value.reshape(-1).argsort()
    chosen = order[np.linspace(0, len(order) - 1, N_POINTS).round().astype(int)]
    found: Array = np.stack([x.value.reshape(-1)[chosen] for x in (row, after)], axis=-1)
    return found


def _table(row: Row, tokens: Tokens | None) -> Markup:
    value = row.value[0]
    if value.ndim == 1:
        value = value[:, None]
    if value.ndim == 3:
        value = value[0]  # the first head
    labels = (
        tokens.labels
        if tokens is not None and len(tokens.labels) == len(value)
        else [str(i) for i in range(len(value))]
    )
    lines = []
    for label, numbers in zip(labels[:N_TOKENS], value[:N_TOKENS], strict=False):
        cells = "".join(f"<td>{number:.4g}</td>" for number in numbers[:N_NUMBERS])
        more = "<td>…</td>" if len(numbers) > N_NUMBERS else ""
        lines.append(f"<tr><th>{escape(label)}</th>{cells}{more}</tr>")
    tail = "<tr><th>…</th></tr>" if len(value) > N_TOKENS else ""
    return Markup(f'<div class="scroll"><table class="numbers">{"".join(lines)}{tail}</table></div>')


def _map(map_: AttentionMap) -> dict[str, Any]:
    """One attention: each head as matrix by piece and by word, as lines, and small."""
    heads = []
    for h, weights in enumerate(map_.weights):
        name = f"{map_.title}, head {h + 1}: rows are queries, columns keys"
        joined = join_rows(join_columns(weights, map_.keys.words), map_.queries.words)
        heads.append(
            {
                "number": h + 1,
                "id": f"{map_.key}.{h + 1}",
                "entropy": float(map_.entropy[h]),
                "pieces": pictures.matrix(weights, map_.queries.labels, map_.keys.labels, title=name),
                "words": pictures.matrix(joined, map_.queries.word_labels, map_.keys.word_labels, title=name),
                "lines": pictures.lines(weights, map_.queries.labels, map_.keys.labels, title=name),
                "thumb": pictures.thumbnail(weights, title=name, href=f"{map_.key}.{h + 1}"),
            }
        )
    specials = [label for label, special in zip(map_.keys.labels, map_.keys.is_special, strict=True) if special]
    shares = map_.weights[:, :, [i for i, special in enumerate(map_.keys.is_special) if special]].sum(-1).mean()
    return {"map": map_, "heads": heads, "specials": specials, "share": float(shares)}


def _relevance(explanation: Explanation) -> list[dict[str, Any]]:
    view = explanation.views["relevance"]
    rows, columns = (
        ["".join(labels[i] for i in word).replace("␣", " ").strip() for word in words]
        for labels, words in ((view.rows, view.row_words), (view.columns, view.column_words))
    )
    return [
        {
            "reading": reading,
            "picture": pictures.matrix(
                join_rows(join_columns(reading.weights, view.column_words), view.row_words),
                rows,
                columns,
                title=f"{reading.method}: rows output words, columns input words",
                axes=("output word (query)", "input word (key)"),
            ),
        }
        for reading in view.readings
    ]


def _table_picture(explanation: Explanation) -> Markup | None:
    """The table of the first positions, both signs."""
    table = explanation.views["positions"].table
    if table is None:
        return None
    cell = max(3, min(pictures.CELL, 1000 // table.shape[1]))
    rows, columns = ([str(i) if i % (64 // cell) == 0 else "" for i in range(n)] for n in table.shape)
    title = "Positions: rows positions, columns dimensions"
    return pictures.matrix(table, rows, columns, title=title, axes=("position", "dimension"), cell=cell)


def _candidates(explanation: Explanation) -> list[dict[str, Any]]:
    """The first choices after each token that the decoder read, from the lens at the top of its stack."""
    lens = next((lens for lens in explanation.views["lenses"] if lens.side == "decoder"), None)
    if lens is None or explanation.chosen is None:
        return []
    said = lens.said[-1][-len(explanation.chosen.ids) :]
    read = lens.tokens[-len(explanation.chosen.ids) :]
    return [
        {"read": before, "chosen": chosen, "said": best}
        for before, chosen, best in zip(read, explanation.chosen.labels, said, strict=True)
    ]


def chart(series: dict[str, Sequence[tuple[float, float]]], title: str, x_label: str, y_label: str) -> Markup:
    """A line chart as an image: its style sheet stays inside."""
    drawing = svg.line_chart({k: list(v) for k, v in series.items()}, title=title, x_label=x_label, y_label=y_label)
    data = base64.b64encode(drawing.encode()).decode()
    return Markup(f'<img class="chart" alt="{escape(title)}" src="data:image/svg+xml;base64,{data}">')


def _piece(text: str) -> str:
    return text.replace(" ", "␣")


def _shape(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
