"""Charts of the result files, as SVG: what `docs/results/charts.yaml` describes, which `scripts/write_results.py` draws.

The text of a chart depends only on its figures, so that a test can compare it with the file in the checkout. Its colours
follow the colour scheme of the page that shows it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Any

_WIDTH, _ROW, _AXIS = 520, 19, 34  # of a chart, of a line of text, below a panel
_LETTER = 6.9  # about the width of one, in the type of the labels
_STYLE = (
    "text{font:12.5px system-ui,sans-serif;fill:#333}.title{font-weight:600}.small{font-size:11px}"
    ".grid{stroke:#888;stroke-opacity:.28}.one{stroke:#888;stroke-dasharray:4 3}"
    ".b0{fill:#8a8f98}.b1{fill:#2f80e4}.s0{stroke:#8a8f98}.s1{stroke:#2f80e4}"
    "path{fill:none;stroke-width:2}.c0{stroke:#2f80e4}.c1{stroke:#e07b28}.c2{stroke:#2c9c5a}.c3{stroke:#b452c4}"
    ".c4{stroke:#8a8f98}.c5{stroke:#c9a400}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
)
_COLOURS = 6


@dataclass(frozen=True)
class Panel:
    """One part of a chart.

    Attributes:
        table: `FILE: TABLE`, the figures.
        title: what stands above it.
        column: the column whose cells are shown, one row of the table each.
        row: instead of `column`, the row whose cells are shown: its first cells, separated by ` / `.
        only: the rows, or with `row` the columns, in this order; all if empty.
        ours: those in colour.
        kind: `"bars"` from 1 or 0, `"dots"` with an interval if the cell has one, or `"lines"`: a line per row over the columns.
        across: for lines, a column of `only` per line, over the rows whose second cell is this one; x is the last number of the
            first cell.
        log: a logarithmic axis of values; for lines, of x.
        axis: the label of the axis.
    """

    table: str
    title: str = ""
    column: str = ""
    row: str = ""
    only: list[str] = field(default_factory=list)
    ours: list[str] = field(default_factory=list)
    kind: str = "dots"
    across: str = ""
    log: bool = False
    axis: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("bars", "dots", "lines"):
            raise ValueError(f"a chart's kind is bars, dots or lines, not {self.kind}")


def number(cell: Any) -> tuple[float, float, float] | None:
    """A cell and the ends of its interval, such as `0.45 (0.40 to 0.49)` or `0.45 ± 0.01`; None for a cell without a number."""
    found = re.match(r"[+-]?\d+(\.\d+)?", str(cell))
    if found is None:
        return None
    value = float(found[0])
    if ends := re.search(r"\(([+-]?[\d.]+) to ([+-]?[\d.]+)\)", str(cell)):
        return value, float(ends[1]), float(ends[2])
    spread = re.search(r"± ([\d.]+)", str(cell))
    width = float(spread[1]) if spread else 0.0
    return value, value - width, value + width


def draw(panels: list[tuple[Panel, list[str], list[list[Any]]]]) -> str:
    """The chart of panels, each with the header and the rows of its table, one below the other.

    Raises:
        ValueError: if a row or column is not in the table.
    """
    parts, top = [], 0.0
    for panel, header, rows in panels:
        made, height = _lines(panel, header, rows, top) if panel.kind == "lines" else _rows(panel, header, rows, top)
        parts += made
        top += height
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top:.0f}" width="{_WIDTH}" height="{top:.0f}"'
        f' role="img">\n<style>{_STYLE}</style>\n{body}\n</svg>\n'
    )


def _chosen(panel: Panel, there: list[str]) -> list[str]:
    if missing := [name for name in [*panel.only, *panel.ours] if name not in there]:
        raise ValueError(f"{panel.table}: no {missing[0]!r} out of {', '.join(there)}")
    return panel.only or there


def _cells(panel: Panel, header: list[str], rows: list[list[Any]]) -> dict[str, tuple[float, float, float]]:
    if panel.row:
        wanted = panel.row.split(" / ")
        mine = [row for row in rows if [str(cell) for cell in row[: len(wanted)]] == wanted]
        if len(mine) != 1:
            raise ValueError(f"{panel.table}: {len(mine)} rows are {panel.row!r}")
        cells = dict(zip(header[len(wanted) :], mine[0][len(wanted) :], strict=True))
    elif panel.column not in header:
        raise ValueError(f"{panel.table}: no column {panel.column!r} out of {', '.join(header)}")
    else:
        cells = {str(row[0]): row[header.index(panel.column)] for row in rows}
    found = {name: number(cells[name]) for name in _chosen(panel, list(cells))}
    return {name: cell for name, cell in found.items() if cell is not None}


def _text(x: float, y: float, text: str, css: str = "", anchor: str = "start") -> str:
    styled = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{styled}>{escape(text)}</text>'


def _ticks(low: float, high: float, log: bool) -> list[float]:
    if log:
        return [10.0**power for power in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high)) + 1)]
    step = 10.0 ** math.floor(math.log10((high - low) / 3))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 5)
    return [step * at for at in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _axis(panel: Panel, low: float, high: float, left: float, right: float) -> Callable[[float], float]:
    """The function from a value to its x."""
    at = math.log10 if panel.log else float
    return lambda value: left + (right - left) * (at(value) - at(low)) / (at(high) - at(low))


def _rows(panel: Panel, header: list[str], rows: list[list[Any]], top: float) -> tuple[list[str], float]:
    cells = _cells(panel, header, rows)
    left = 22 + _LETTER * max(map(len, cells))
    right, first = _WIDTH - 58.0, top + (26 if panel.title else 8)
    low, high = min(cell[1] for cell in cells.values()), max(cell[2] for cell in cells.values())
    if panel.kind == "bars":
        low = min(low, 1.0) if panel.log else 0.0
    margin = 0.06 * (high - low or 1.0)
    low, high = (low / 1.5, high * 1.3) if panel.log else (low - margin * (panel.kind == "dots"), high + margin)
    x, last = _axis(panel, low, high, left, right), first + _ROW * len(cells)
    parts = [_text(0, top + 14, panel.title, "title")] if panel.title else []
    for tick in _ticks(low, high, panel.log):
        css = "one" if panel.log and tick == 1 else "grid"
        parts.append(f'<line class="{css}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{first:.0f}" y2="{last:.0f}"/>')
        parts.append(_text(x(tick), last + 13, f"{tick:g}", "small", "middle"))
    start = x(1.0 if panel.log else 0.0) if panel.kind == "bars" else 0.0
    for place, (name, (value, least, most)) in enumerate(cells.items()):
        y, ours = first + _ROW * (place + 0.5), int(name in panel.ours)
        parts.append(_text(left - 8, y + 4.5, name, anchor="end"))
        if panel.kind == "bars":
            begin, width = min(start, x(value)), abs(x(value) - start)
            parts.append(f'<rect class="b{ours}" x="{begin:.1f}" y="{y - 6:.1f}" width="{width:.1f}" height="12"/>')
        else:
            if most > least:
                ends = f'x1="{x(least):.1f}" x2="{x(most):.1f}" y1="{y:.1f}" y2="{y:.1f}"'
                parts.append(f'<line class="s{ours}" stroke-width="2" {ends}/>')
            parts.append(f'<circle class="b{ours}" cx="{x(value):.1f}" cy="{y:.1f}" r="4.5"/>')
        shown = f"{value:.3g}" if panel.kind == "bars" else f"{value:.4f}"
        parts.append(_text(_WIDTH - 2, y + 4.5, shown, "small", "end"))
    if panel.axis:
        parts.append(_text((left + right) / 2, last + 29, panel.axis, "small", "middle"))
    return parts, last - top + (_AXIS + 4 if panel.axis else 24)


def _series(panel: Panel, header: list[str], rows: list[list[Any]]) -> Iterable[tuple[str, list[tuple[float, float]]]]:
    def position(name: str) -> float:
        return float(re.findall(r"[\d.]+", name)[-1])

    if panel.across:
        mine = [row for row in rows if str(row[1]) == panel.across]
        for name in _chosen(panel, header[2:]):
            cells = [(position(str(row[0])), number(row[header.index(name)])) for row in mine]
            yield name, [(x, cell[0]) for x, cell in cells if cell]
        return
    names = [name for name in header if re.search(r"\d$", name)]
    label = header.index(names[0]) - 1
    chosen = _chosen(panel, [str(row[label]) for row in rows])
    for row in rows:
        if row[label] in chosen:
            cells = [(position(name), number(row[header.index(name)])) for name in names]
            yield str(row[label]), [(x, cell[0]) for x, cell in cells if cell]


def _lines(panel: Panel, header: list[str], rows: list[list[Any]], top: float) -> tuple[list[str], float]:
    series = list(_series(panel, header, rows))
    points = [point for _, each in series for point in each]
    right = _WIDTH - 24 - _LETTER * max(len(name) for name, _ in series)
    left, first, height = 44.0, top + (26 if panel.title else 8), 190.0
    x = _axis(panel, min(p[0] for p in points), max(p[0] for p in points), left, right)
    low, high = min(p[1] for p in points), max(p[1] for p in points)
    margin = 0.06 * (high - low or 1.0)
    low, high = low - margin, high + margin

    def y(value: float) -> float:
        return first + height * (high - value) / (high - low)

    parts = [_text(0, top + 14, panel.title, "title")] if panel.title else []
    for tick in _ticks(low, high, log=False):
        parts.append(f'<line class="grid" x1="{left}" x2="{right:.1f}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(_text(left - 6, y(tick) + 4, f"{tick:g}", "small", "end"))
    marks = sorted({p[0] for p in points})
    parts += [_text(x(tick), first + height + 15, f"{tick:g}", "small", "middle") for tick in marks]
    for place, (_, each) in enumerate(series):
        path = " L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in each)
        parts.append(f'<path class="c{place % _COLOURS}" d="M{path}"/>')
    ordered = sorted(enumerate(series), key=lambda item: y(item[1][1][-1][1]))
    below = -math.inf
    for left_over, (place, (name, each)) in zip(range(len(series) - 1, -1, -1), ordered, strict=True):
        below = max(below + 14, min(y(each[-1][1]), first + height - 14 * left_over))
        mark = f'x1="{right + 2:.1f}" x2="{right + 8:.1f}" y1="{below:.1f}" y2="{below:.1f}"'
        parts.append(f'<line class="c{place % _COLOURS}" stroke-width="3" {mark}/>')
        parts.append(_text(right + 12, below + 4.5, name, "small"))
    if panel.axis:
        parts.append(_text((left + right) / 2, first + height + 32, panel.axis, "small", "middle"))
    return parts, first + height + _AXIS + 6 - top
