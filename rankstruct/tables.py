"""Plain text tables for terminals."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with a header; text to the left, numbers to the right, floats with four decimals.

    >>> print(format_table(["measure", "value"], [["AP", 0.5], ["nDCG@10", 0.25]]))
    measure   value
    -------  ------
    AP       0.5000
    nDCG@10  0.2500
    """
    cells = [[f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    columns = range(len(header))
    widths = [max(len(line[i]) for line in [list(header), *cells]) for i in columns]
    numeric = [all(isinstance(row[i], int | float) for row in rows) and bool(rows) for i in columns]
    lines = [list(header), ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(line[i].rjust(widths[i]) if numeric[i] else line[i].ljust(widths[i]) for i in columns).rstrip()
        for line in lines
    )
