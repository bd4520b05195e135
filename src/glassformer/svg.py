"""Small pictures as plain SVG text: a histogram, a line chart, a heat map. No library, no script, no outside file.

Each picture carries its own style sheet for light and dark pages, a title that screen readers speak, and axes with
round numbers. Text from the user's data is escaped, and characters that XML forbids are shown by their symbol.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence

__all__ = ["heatmap", "histogram", "line_chart"]

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 24, 64, 60  # margins around the plotting area
_CELL = 26  # side of one cell of a heat map
_MAX_LABEL = 24  # characters of a heat map's label; the tooltip holds all of them

_COLOURS_LIGHT = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#475569")
_COLOURS_DARK = ("#60a5fa", "#fbbf24", "#34d399", "#f472b6", "#a78bfa", "#94a3b8")


def histogram(
    series: dict[str, Sequence[float]], *, title: str, x_label: str, y_label: str = "rows", n_bins: int = 40
) -> str:
    """Draws how often values fall into bins of equal width, one translucent area per series.

    Whole numbers get bins of a whole width. When the largest value lies beyond three times the 99 % quantile, the
    last bin holds everything above it, so that one huge value does not flatten the picture; the axis says so.

    Args:
        series: Name -> values, of any length; values that are not finite are left out.
        title: Heading, also spoken by screen readers.
        x_label: What is counted, with its unit.
        y_label: What one count is.
        n_bins: Most bins.

    Returns:
        An SVG document.
    """
    values = {name: [float(v) for v in points if math.isfinite(v)] for name, points in series.items()}
    every = sorted(v for points in values.values() for v in points) or [0.0, 1.0]
    low, high = every[0], every[-1]
    cap = every[math.ceil(0.99 * len(every)) - 1]
    is_capped = high - low > 3 * (cap - low) > 0
    high = cap if is_capped else high
    if all(v.is_integer() for v in every):
        width = float(max(1, math.ceil((high - low + 1) / n_bins)))
        n_bins = math.ceil((high - low + 1) / width)
    else:
        width = (high - low) / n_bins or 1.0
    counts = {name: [0] * n_bins for name in values}
    for name, points in values.items():
        for value in points:
            counts[name][min(int((value - low) / width), n_bins - 1)] += 1
    frame = _Frame((low, low + n_bins * width), (0.0, float(max([1, *map(max, counts.values())]))))
    shapes = []
    for i, (name, heights) in enumerate(counts.items()):
        corners = [(low, 0.0)]
        for k, count in enumerate(heights):
            corners += [(low + k * width, float(count)), (low + (k + 1) * width, float(count))]
        path = _path([frame.at(x, y) for x, y in [*corners, (low + n_bins * width, 0.0)]])
        tip = _escaped(f"{name}: {len(values[name]):,}")
        shapes.append(f'<path class="area c{i % 6}" d="{path}Z"><title>{tip}</title></path>')
    note = f"; the last bar holds all from {_number(low + (n_bins - 1) * width)} up" if is_capped else ""
    return frame.document(shapes, title=title, x_label=x_label + note, y_label=y_label, legend=list(series))


def line_chart(
    series: dict[str, list[tuple[float, float]]], *, title: str, x_label: str, y_label: str, log_y: bool = False
) -> str:
    """Draws one line per series over shared axes, for example loss and validation loss over the steps.

    Args:
        series: Name -> points (x, y). Points that are not finite are left out, and with `log_y` those at or below
            zero as well; the line goes on at the next point.
        title: Heading, also spoken by screen readers.
        x_label: Name and unit of x.
        y_label: Name and unit of y.
        log_y: Whether equal steps upwards are equal factors.

    Returns:
        An SVG document.
    """
    kept = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y) and (y > 0 or not log_y)]
        for name, points in series.items()
    }
    frame = _Frame(
        _span(x for points in kept.values() for x, _ in points),
        _span((y for points in kept.values() for _, y in points), is_log=log_y),
        is_log=log_y,
    )
    shapes = []
    for i, points in enumerate(kept.values()):
        places = [frame.at(x, y) for x, y in points]
        if len(places) > 1:
            shapes.append(f'<path class="line c{i % 6}" d="{_path(places)}"/>')
        if len(places) <= 30:
            shapes += [f'<circle class="dot c{i % 6}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places]
    return frame.document(shapes, title=title, x_label=x_label, y_label=y_label, legend=list(series))


def heatmap(
    values: Sequence[Sequence[float]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    row_label: str = "query",
    column_label: str = "key",
) -> str:
    """Draws a matrix as coloured cells, for example attention weights: the fuller the colour, the larger the value.

    The scale runs from 0 (or the smallest value, when that is negative) to the largest value, and is written below.
    Each cell's tooltip names its row, column and value. Cells that are not finite (masked) stay empty.

    Args:
        values: [rows, columns].
        rows: One label per row.
        columns: One label per column.
        title: Heading, also spoken by screen readers.
        row_label: What a row is.
        column_label: What a column is.

    Returns:
        An SVG document.

    Raises:
        ValueError: If `values` does not have one row per row label and one column per column label.
    """
    finite = [float(v) for row in values for v in row if math.isfinite(v)]
    low, high = min([0.0, *finite]), max(finite, default=1.0)
    left = 48 + max(map(_text_width, map(_short, rows)), default=0)
    top = 64 + max(map(_text_width, map(_short, columns)), default=0)
    cells, right, bottom = [], left + _CELL * len(columns), top + _CELL * len(rows)
    for i, (row, row_name) in enumerate(zip(values, rows, strict=True)):
        y = top + i * _CELL
        cells.append(_text(left - 8, y + 17, _short(row_name), anchor="end"))
        for j, (value, column_name) in enumerate(zip(row, columns, strict=True)):
            share = (value - low) / ((high - low) or 1.0) if math.isfinite(value) else 0.0
            tip = _escaped(f"{row_label} {row_name}, {column_label} {column_name}: {float(value):.4g}")
            cells.append(
                f'<rect class="cell c0" x="{left + j * _CELL}" y="{y}" width="{_CELL}" height="{_CELL}" '
                f'fill-opacity="{share:.3f}"><title>{tip}</title></rect>'
            )
    for j, name in enumerate(columns):
        x = left + j * _CELL + 17
        cells.append(_text(x, top - 8, _short(name), turn=-90))
    cells.append(f'<rect class="axis" x="{left}" y="{top}" width="{right - left}" height="{bottom - top}"/>')
    scale = f"empty {_number(low)}, full {high:.3g}"
    cells.append(_text(left, bottom + 22, f"{column_label} across, {row_label} down; {scale}", kind="small"))
    width = max(right, left + 300, 18 + 1.25 * _text_width(title)) + _RIGHT  # the title is set larger
    return _document(width, bottom + 40, title, cells)


class _Frame:
    """A plotting area: maps data to places, draws axes, grid, ticks and legend."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], *, is_log: bool = False) -> None:
        self.is_log = is_log
        self.x_ticks, self.y_ticks = _ticks(*x), _log_ticks(*y) if is_log else _ticks(*y, is_outer=True)
        self.x, self.y = x, (self.y_ticks[0], self.y_ticks[-1])

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Place of a data point, in pixels."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        scale = math.log if self.is_log else float
        up = (scale(y) - scale(self.y[0])) / (scale(self.y[1]) - scale(self.y[0]))
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    def document(self, shapes: list[str], *, title: str, x_label: str, y_label: str, legend: Sequence[str]) -> str:
        """The whole picture around the shapes."""
        (left, bottom), (right, top) = self.at(self.x[0], self.y[0]), self.at(self.x[1], self.y[1])
        parts = []
        for value in self.y_ticks:
            y = self.at(self.x[0], value)[1]
            parts.append(f'<path class="grid" d="M{left:.1f},{y:.1f}H{right:.1f}"/>')
            parts.append(_text(left - 8, y + 4, _number(value), anchor="end"))
        for value in self.x_ticks:
            x = self.at(value, self.y[0])[0]
            parts.append(f'<path class="axis" d="M{x:.1f},{bottom:.1f}v5"/>')
            parts.append(_text(x, bottom + 20, _number(value), anchor="middle"))
        parts += [*shapes, f'<path class="axis" d="M{left:.1f},{top:.1f}V{bottom:.1f}H{right:.1f}"/>']
        parts.append(_text((left + right) / 2, bottom + 44, x_label, anchor="middle"))
        parts.append(_text(18, (top + bottom) / 2, y_label, anchor="middle", turn=-90))
        x = left
        for i, name in enumerate(legend):
            parts.append(f'<rect class="key c{i % 6}" x="{x:.1f}" y="{_TOP - 22}" width="12" height="12"/>')
            parts.append(_text(x + 18, _TOP - 12, _short(name)))
            x += 40 + _text_width(_short(name))
        return _document(max(_WIDTH, x), _HEIGHT, title, parts)


def _document(width: float, height: float, title: str, parts: list[str]) -> str:
    heading = _escaped(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{heading}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">\n'
        f"<title>{heading}</title>\n<style>{_style()}</style>\n"
        f'<rect class="page" width="100%" height="100%"/>\n<text class="title" x="18" y="26">{heading}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _style() -> str:
    def colours(page: str, ink: str, grid: str, series: Sequence[str]) -> str:
        fill = "".join(f".c{i}{{fill:{c}}}.line.c{i},.area.c{i}{{stroke:{c}}}" for i, c in enumerate(series))
        ground = f".page{{fill:{page}}}text{{fill:{ink}}}.axis{{stroke:{ink}}}.grid,.cell{{stroke:{grid}}}"
        return ground + fill + ".line{fill:none}"

    return (
        "text{font:12px system-ui,'Segoe UI','DejaVu Sans',sans-serif}.title{font-size:15px;font-weight:600}"
        ".small{font-size:11px}.axis{fill:none}.grid,.cell{stroke-width:.7}.line{stroke-width:2}"
        ".area{fill-opacity:.35;stroke-width:1.2}"
        + colours("#ffffff", "#1e293b", "#e2e8f0", _COLOURS_LIGHT)
        + f"@media (prefers-color-scheme:dark){{{colours('#0f172a', '#e2e8f0', '#334155', _COLOURS_DARK)}}}"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", turn: int = 0, kind: str = "") -> str:
    place = f'transform="translate({x:.1f},{y:.1f}) rotate({turn})"' if turn else f'x="{x:.1f}" y="{y:.1f}"'
    return f'<text class="{kind}" {place} text-anchor="{anchor}">{_escaped(text)}</text>'


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _escaped(text: str) -> str:
    """Escapes markup; shows control characters by their pictures and other code points that XML forbids by U+FFFD."""
    text = re.sub("[\x00-\x1f]", lambda found: chr(0x2400 + ord(found[0])), text)
    return html.escape(re.sub("[\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text))


def _short(text: str) -> str:
    return text if len(text) <= _MAX_LABEL else text[: _MAX_LABEL - 1] + "…"


def _text_width(text: str) -> int:
    """Estimated pixels of a 12-pixel text; East Asian wide characters count double."""
    return sum(13 if unicodedata.east_asian_width(c) in "WF" else 7 for c in text)


def _number(value: float) -> str:
    if value.is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.6g}"


def _span(values: Iterable[float], *, is_log: bool = False) -> tuple[float, float]:
    """Smallest and largest value, drawn apart when they are one (or none)."""
    every = list(values) or [1.0]
    low, high = min(every), max(every)
    if low < high:
        return low, high
    return (low / 2, high * 2) if is_log else (low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2)


def _ticks(low: float, high: float, *, is_outer: bool = False) -> list[float]:
    """About six multiples of 1, 2 or 5 times a power of ten within `low` and `high`; `is_outer`: around them."""
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    if is_outer:
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    else:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten around the values; 1, 2 and 5 times those when they span less than two decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if last - first > 2:
        step = math.ceil((last - first) / 8)
        return [float(f"1e{k}") for k in range(first, last + step, step)]
    every = [float(f"{m}e{k}") for k in range(first, last + 1) for m in (1, 2, 5)]
    below = [v for v in every if v <= low]
    return [max(below), *(v for v in every if low < v < high), min(v for v in every if v >= high)]
