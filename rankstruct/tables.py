"""Tables as text, by tabulate: for terminals, Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

__all__ = ["escape_markdown", "format_table", "markdown_table"]


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], style: str = "simple", align: Sequence[str] | None = None
) -> str:
    """A table with a header; text to the left, numbers to the right, floats with four decimals.

    Args:
        header: names of the columns.
        rows: of cells.
        style: one of tabulate's, such as `"simple"`, `"github"`, `"latex_raw"` or `"unsafehtml"`.
        align: `"left"` or `"right"` for each column, in place of the rule.

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
    r"""A table of GitHub's Markdown; what would end a cell is escaped.

    >>> print(markdown_table(["trainer", "a|b"], [["SVMmap", "0.5"]]))
    | trainer   | a\|b   |
    |-----------|--------|
    | SVMmap    | 0.5    |
    """
    escaped = [[escape_markdown(str(cell)) for cell in row] for row in [header, *rows]]
    return format_table(escaped[0], escaped[1:], "github")


def escape_markdown(cell: str) -> str:
    """A cell's text without an end of the cell in it."""
    return cell.replace("|", "\\|")
