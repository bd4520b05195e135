"""The walk as a graph: boxes are steps with equation and shape, lines lead from what a step is computed of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from markupsafe import escape

from glassformer.explain.result import Explanation, Row

__all__ = ["draw_parts", "draw_steps"]

CHAR, PAD, HEIGHT, GAP, LANE = 6.9, 12, 44, 26, 16  # pixels: a character, inside a box, a box, between boxes, a by-pass
STYLE = (
    "text{font:12px system-ui,'DejaVu Sans',sans-serif;fill:#1c2330}.name{font-weight:600}"
    ".shape{font:11px ui-monospace,'DejaVu Sans Mono',monospace;fill:#1f5fbf}.box{fill:#eef3fb;stroke:#9db7dc}"
    ".given .box{fill:none;stroke:#9aa5b4;stroke-dasharray:4 3}.line{fill:none;stroke:#5b6472}.page{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e8ee}.shape{fill:#7fb2ff}.box{fill:#1c2636;stroke:#42577a}"
    ".line{stroke:#9aa5b4}.page{fill:#10141b}}"
)


@dataclass
class _Node:
    """A box: two lines of text, and the keys that it is made of."""

    name: str
    detail: str
    inputs: list[str]
    is_given: bool = False  # made by a step that is not drawn
    rank: int = 0
    x: float = 0.0

    @property
    def width(self) -> float:
        return 2 * PAD + CHAR * max(1.06 * len(self.name), len(self.detail))

    @property
    def y(self) -> float:
        return GAP + self.rank * (HEIGHT + GAP)


def draw_steps(explanation: Explanation, patterns: Sequence[str]) -> str:
    """An SVG document of the steps whose keys match one of the patterns, such as `encoder.1.self.*`."""
    rows = {row.key: row for row in explanation.rows}
    nodes = {
        key: _Node(f"{row.name} = {row.equation}", _shape(row), list(row.inputs))
        for key, row in rows.items()
        if any(fnmatch(key, pattern) or pattern == "all" for pattern in patterns)
    }
    given = {key: rows[key] for node in nodes.values() for key in node.inputs if key not in nodes}
    before = {key: _Node(key, _shape(row), [], is_given=True) for key, row in given.items()}
    return _drawing(before | nodes, f"Steps {', '.join(patterns)}")


def draw_parts(explanation: Explanation) -> str:
    """An SVG document of the whole model: its parts, and which reads which."""
    group_of = {row.key: row.group for row in explanation.rows}
    nodes: dict[str, _Node] = {}
    for row in explanation.rows:
        node = nodes.setdefault(row.group, _Node(row.group, "", []))
        node.detail = _shape(row)
        sources = [group_of[key] for key in row.inputs if group_of[key] != row.group]
        node.inputs += [group for group in sources if group not in node.inputs]
    return _drawing(nodes, f"{explanation.config.family}: its parts")


def _shape(row: Row) -> str:
    return f"{row.symbolic} = {' '.join(map(str, row.shape))}"


def _drawing(nodes: dict[str, _Node], title: str) -> str:
    """Places each box below those that it is made of; lines that pass a row go round it on the right."""
    for node in nodes.values():  # in the order of computation
        node.rank = max((nodes[key].rank + 1 for key in node.inputs), default=0)
    ranks: dict[int, list[_Node]] = {}
    for node in nodes.values():
        ranks.setdefault(node.rank, []).append(node)
    widths = {rank: sum(node.width + GAP for node in row) - GAP for rank, row in ranks.items()}
    widest = max(widths.values())
    for rank, row in ranks.items():
        x = GAP + (widest - widths[rank]) / 2
        for node in row:
            node.x = x
            x += node.width + GAP
    lines, lane = [], GAP + widest + LANE
    for node in nodes.values():
        for key in node.inputs:
            source = nodes[key]
            if node.rank == source.rank + 1:
                lines.append(_line(source, node))
            else:
                lines.append(_bypass(source, node, lane))
                lane += LANE
    boxes = [_box(node) for node in nodes.values()]
    width, height = lane + GAP, GAP + len(ranks) * (HEIGHT + GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"><title>{escape(title)}</title>'
        f'<style>{STYLE}</style><defs><marker id="tip" markerWidth="7" markerHeight="7" refX="6" refY="3" '
        f'orient="auto">'
        f'<path d="M0 0L6 3L0 6" class="line"/></marker></defs><rect class="page" width="100%" height="100%"/>'
        f"{''.join(lines)}{''.join(boxes)}</svg>\n"
    )


def _line(source: _Node, node: _Node) -> str:
    x, y = source.x + source.width / 2, source.y + HEIGHT
    to_x = node.x + node.width / 2
    return f'<path class="line" marker-end="url(#tip)" d="M{x:.0f} {y:.0f}L{to_x:.0f} {node.y:.0f}"/>'


def _bypass(source: _Node, node: _Node, lane: float) -> str:
    x, y = source.x + source.width, source.y + HEIGHT / 2
    to_x, to_y = node.x + node.width, node.y + HEIGHT / 2
    return f'<path class="line" marker-end="url(#tip)" d="M{x:.0f} {y:.0f}H{lane:.0f}V{to_y:.0f}H{to_x:.0f}"/>'


def _box(node: _Node) -> str:
    middle = node.x + node.width / 2
    return (
        f'<g class="{"given" if node.is_given else "step"}"><rect class="box" x="{node.x:.0f}" y="{node.y:.0f}" '
        f'width="{node.width:.0f}" height="{HEIGHT}" rx="7"/><text class="name" x="{middle:.0f}" y="{node.y + 18:.0f}" '
        f'text-anchor="middle">{escape(node.name)}</text><text class="shape" x="{middle:.0f}" y="{node.y + 34:.0f}" '
        f'text-anchor="middle">{escape(node.detail)}</text></g>'
    )
