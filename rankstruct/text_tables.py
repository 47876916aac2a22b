"""Text tables for terminals, Markdown, LaTeX and HTML, by tabulate."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

__all__: list[str] = []


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], style: str = "simple", align: Sequence[str] | None = None
) -> str:
    """Format a table: text left-aligned, numbers right-aligned, floats with four decimals.

    Args:
        header: column names.
        rows: rows of cells.
        style: a tabulate format, such as `"simple"`, `"github"`, `"latex_raw"` or `"unsafehtml"`.
        align: `"left"` or `"right"` per column, instead of the default.

    >>> print(format_table(["measure", "value"], [["AP", 0.5], ["nDCG@10", 0.25]]))
    measure      value
    ---------  -------
    AP          0.5000
    nDCG@10     0.2500
    """
    cells = [[f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    numeric = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(header))]
    sides = align or ["right" if each else "left" for each in numeric]
    text = tabulate(cells, header, style, disable_numparse=True, colalign=sides if rows else None)
    return "\n".join(line.rstrip() for line in text.splitlines())


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Format a table in GitHub Markdown, with cells escaped.

    >>> print(markdown_table(["trainer", "a|b"], [["SVMmap", "0.5"]]))
    | trainer   | a\|b   |
    |-----------|--------|
    | SVMmap    | 0.5    |
    """
    escaped = [[escape_markdown(str(cell)) for cell in row] for row in [header, *rows]]
    return format_table(escaped[0], escaped[1:], "github")


def escape_markdown(cell: str) -> str:
    """Escape the bars in a cell's text."""
    return cell.replace("|", "\\|")
