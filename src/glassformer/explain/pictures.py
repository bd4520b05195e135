"""Drawings of the page: a matrix, a bundle of lines, the tree of a search. Small SVG without a style of its own.

The page's style sheet gives the colours (`l1` to `l9` for weights, `n1` to `n9` for negative numbers), so that light
and dark need one drawing. Cells of one strength share a path, which keeps 36 matrices of 30 x 35 within 300 kB.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from markupsafe import Markup, escape

from glassformer.explain.beams import SearchView
from glassformer.explain.result import Array

__all__ = ["curve", "lines", "matrix", "thumbnail", "tree"]

CELL = 15  # side of a cell, unless another is given
N_LEVELS = 9
CHAR = 6.8  # width of a character of a label
MAX_LABEL = 16
STEP, LINE = 124, 20  # width of a step of the tree, height of a hypothesis
DIGITS = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyz", dtype=np.uint8)


def matrix(
    values: Array,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    axes: tuple[str, str] = ("query", "key"),
    cell: int = CELL,
) -> Markup:
    """A labelled matrix. Rows are queries and columns keys, and both say so.

    Of several heads [H, T, S], the first is drawn, on one scale for all. The numbers travel in `data-values` for the
    page's script, which tells them and draws the other heads: two digits of base 36 each, 0 to 1294 from `data-low` to
    `data-high`, and 1295 for minus infinity.
    """
    heads = values.reshape(-1, len(rows), len(columns))
    left, top = _room(rows) + 22, _room(columns) + 20
    width, height = left + cell * len(columns) + 6, max(top + cell * len(rows), top + 8 * len(axes[0])) + 4
    finite = heads[np.isfinite(heads)]
    low, high = float(finite.min(initial=0.0)), float(finite.max(initial=0.0))
    body = [
        f'<g transform="translate({left},{top}) scale({cell})">{_cells(heads[0], max(-low, high) or 1.0)}</g>',
        f'<rect class="frame" x="{left}" y="{top}" width="{cell * len(columns)}" height="{cell * len(rows)}"/>',
        f'<text class="axis" x="{left}" y="12">{escape(axes[1])} →</text>',
        f'<text class="axis" transform="translate(12,{top}) rotate(90)">{escape(axes[0])} →</text>',
    ]
    for i, label in enumerate(rows):
        body.append(
            f'<text x="{left - 5}" y="{top + cell * i + cell // 2 + 4}" text-anchor="end">{_label(label)}</text>'
        )
    for j, label in enumerate(columns):
        x = left + cell * j + cell // 2 + 4
        body.append(f'<text transform="translate({x},{top - 5}) rotate(-90)">{_label(label)}</text>')
    data = f'data-values="{_packed(heads, low, high)}" data-low="{low:.6g}" data-high="{high:.6g}"'
    data += f' data-rows="{len(rows)}" data-columns="{len(columns)}"'
    place = f'data-left="{left}" data-top="{top}" data-cell="{cell}"'
    return _svg(width, height, title, body, f'class="matrix" tabindex="0" {data} {place}')


def thumbnail(values: Array, *, title: str, href: str) -> Markup:
    """A matrix without labels, as a link to the large one."""
    n_rows, n_columns = values.shape
    largest = float(values.max()) or 1.0
    box = f"0 0 {n_columns} {n_rows}"
    return Markup(
        f'<a class="thumb" href="#{escape(href)}" title="{escape(title)}"><svg viewBox="{box}" role="img" '
        f'aria-label="{escape(title)}" preserveAspectRatio="none">{_cells(values, largest)}</svg></a>'
    )


def lines(values: Array, rows: Sequence[str], columns: Sequence[str], *, title: str) -> Markup:
    """Queries on the left, keys on the right, a line for each weight of a twentieth or more."""
    left, gap = _room(rows) + 8, 150
    right, n = left + gap, max(len(rows), len(columns))
    body = [f'<text class="axis" x="{left}" y="12" text-anchor="end">query</text>']
    body.append(f'<text class="axis" x="{right}" y="12">key</text>')
    heavy = values >= 0.05
    shares = np.clip(np.round(N_LEVELS * values[heavy]), 1, N_LEVELS).astype(int).tolist()
    for (i, j), share in zip(np.argwhere(heavy).tolist(), shares, strict=True):
        y, z = 28 + 16 * i, 28 + 16 * j
        body.append(f'<path class="s{share}" d="M{left + 4} {y - 4}L{right - 4} {z - 4}"/>')
    body += [
        f'<text x="{left}" y="{28 + 16 * i}" text-anchor="end">{_label(text)}</text>' for i, text in enumerate(rows)
    ]
    body += [f'<text x="{right}" y="{28 + 16 * j}">{_label(text)}</text>' for j, text in enumerate(columns)]
    return _svg(right + _room(columns) + 8, 28 + 16 * n, title, body, 'class="lines"')


def curve(points: Sequence[tuple[float, float]], *, title: str, name: str) -> Markup:
    """A figure over the updates; each dot is a link to the frame of its update."""
    (x_low, x_high), (y_low, y_high) = ((min(side), max(side)) for side in zip(*points, strict=True))
    width, height, left, right, top, bottom = 460, 190, 64, 14, 26, 40
    body = [
        f'<text class="axis" x="{left}" y="14">{escape(title)}</text>',
        f'<rect class="frame" x="{left}" y="{top}" width="{width - left - right}" height="{height - top - bottom}"/>',
        f'<text x="{left - 6}" y="{top + 10}" text-anchor="end">{y_high:.4g}</text>',
        f'<text x="{left - 6}" y="{height - bottom}" text-anchor="end">{y_low:.4g}</text>',
        f'<text x="{left}" y="{height - bottom + 16}">{x_low:g}</text>',
        f'<text x="{width - right}" y="{height - bottom + 16}" text-anchor="end">{x_high:g}</text>',
        f'<text class="axis" x="{(width + left) / 2:.0f}" y="{height - 8}" text-anchor="middle">update</text>',
    ]
    places = []
    for x, y in points:
        across, up = (x - x_low) / ((x_high - x_low) or 1), (y - y_low) / ((y_high - y_low) or 1)
        places.append(
            (left + 8 + across * (width - left - right - 16), height - bottom - 8 - up * (height - top - bottom - 16))
        )
    body.append(f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in places)}"/>')
    for (update, value), (x, y) in zip(points, places, strict=True):
        tip = f"update {update:g}: {name} {value:.4g}"
        body.append(
            f'<a href="#frame-{update:g}" aria-label="{tip}"><circle cx="{x:.1f}" cy="{y:.1f}" r="5" '
            f'data-frame="frame-{update:g}"><title>{tip}</title></circle></a>'
        )
    return _svg(width, height, f"{title} over the updates", body, 'class="curve"')


def tree(view: SearchView) -> Markup:
    """Every step of a search from left to right: kept hypotheses on top, ended and pruned candidates below them."""
    body, deepest = [], 0
    before = {0: (8, 20)}  # place of a live hypothesis -> where it is drawn
    body.append('<text class="out" x="8" y="24">start</text>')
    for i, step in enumerate(view.steps):
        x, live, row = 70 + STEP * i, {}, 0
        for candidate in sorted(step.candidates, key=lambda c: {"kept": 0, "ended": 1, "pruned": 2}[c.fate]):
            y = 20 + LINE * row
            row += 1
            start = before.get(candidate.parent)
            kind = candidate.fate + (" out" if candidate.is_output else "")
            if start is not None:
                x_from = start[0] + (STEP - 28 if i else 34)
                body.append(
                    f'<path class="{kind}" d="M{x_from} {start[1]}C{x - 12} {start[1]} {x_from + 12} {y} {x - 4} {y}"/>'
                )
            mark = {"kept": "", "ended": "■ ", "pruned": "✕ "}[candidate.fate]
            text = f"{mark}{_label(candidate.piece.replace(' ', '␣'), 9)} {candidate.total:.1f}"
            tip = f"{candidate.piece!r}: {candidate.fate}; log p {candidate.log_prob:.3f}, sum {candidate.total:.3f}"
            tip += f", score {candidate.score:.3f}"
            body.append(f'<text class="{kind}" x="{x}" y="{y + 4}">{text}<title>{escape(tip)}</title></text>')
            if candidate.fate == "kept":
                live[candidate.place] = (x, y)
        deepest, before = max(deepest, row), live
    title = "Search: one column a step; each text shows a piece and the summed log-probability"
    return _svg(90 + STEP * len(view.steps), 30 + LINE * deepest, title, body, 'class="tree"')


def _cells(values: Array, largest: float) -> str:
    """One path for each strength; neighbours of one row and strength are one stroke."""
    strength = np.nan_to_num(np.abs(values) / largest, posinf=0.0)
    levels = np.where(strength < 0.02, 0, np.clip(np.ceil(N_LEVELS * strength), 1, N_LEVELS)).astype(int)
    levels = np.where(values < 0, -levels, levels)
    is_start = np.diff(levels, axis=1, prepend=N_LEVELS + 1) != 0
    is_end = np.diff(levels, axis=1, append=N_LEVELS + 1) != 0
    (rows, starts), ends = np.nonzero(is_start), np.nonzero(is_end)[1] + 1
    paths: dict[int, list[str]] = {}
    runs = zip(levels[is_start].tolist(), rows.tolist(), starts.tolist(), (ends - starts).tolist(), strict=True)
    for level, y, x, n in runs:
        if level:
            paths.setdefault(level, []).append(f"M{x} {y}h{n}v1h-{n}z")
    return "".join(
        f'<path class="{"l" if level > 0 else "n"}{abs(level)}" d="{"".join(parts)}"/>'
        for level, parts in sorted(paths.items())
    )


def _packed(values: Array, low: float, high: float) -> str:
    shares = np.where(np.isfinite(values), (values - low) / ((high - low) or 1.0), 1295 / 1294)
    numbers = (1294 * shares).round().astype(int).reshape(-1)
    packed: bytes = DIGITS[np.stack([numbers // 36, numbers % 36], axis=-1)].tobytes()
    return packed.decode()


def _svg(width: float, height: float, title: str, body: Sequence[str], attributes: str) -> Markup:
    return Markup(
        f'<svg {attributes} role="img" aria-label="{escape(title)}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">{"".join(body)}</svg>'
    )


def _room(labels: Sequence[str]) -> int:
    return int(CHAR * max((min(len(label), MAX_LABEL) for label in labels), default=0)) + 6


@cache
def _label(text: str, longest: int = MAX_LABEL) -> Markup:
    return escape(text if len(text) <= longest else text[: longest - 1] + "…")
