"""Write the figures of the README and of the documentation's pages from the result files in `docs/results`.

A result file is JSON with `date`, `versions`, `command` and `tables`, as `rankstruct benchmark --json` and the long commands
write it; `origin` says where figures come from whose own file is lost. Pages name what is to stand between two comments:

    <!-- table FILE: TABLE -->                 the table of this name of FILE.json
    <!-- table FILE: TABLE; across COLUMN -->  one column of rows "trainer, option=value": a row a trainer
    <!-- table FILE: TABLE; C=100; A, B -->    the rows with this value of a column; these columns
    <!-- note FILE: TABLE -->                  what the file says of the table
    <!-- figure FILE: TABLE; ROW; COLUMN -->   one cell; of ROW the first cells, with / between them
    <!-- source FILE -->                       by which command it was measured, when, with what
    <!-- end -->

    python scripts/write_results.py            # write the pages
    python scripts/write_results.py --check    # exit code 1 where a page is not what the files say
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from rankstruct.files import write_text
from rankstruct.tables import markdown_table

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"(<!-- (table|note|figure|source) ([^>]*?) -->).*?(<!-- end -->)", re.DOTALL)


def pages(root: Path) -> list[Path]:
    """The README and every page of the documentation."""
    return [root / "README.md", *sorted(path for path in root.glob("docs/**/*.md") if "_build" not in path.parts)]


def read(path: Path) -> dict[str, Any]:
    """A result file."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def filled(text: str, results: Path) -> str:
    """A page with the figures of the result files.

    Raises:
        ValueError: it names a file, table, row or column that is not there.
    """

    def found(place: re.Match[str]) -> str:
        begin, kind, what, end = place.groups()
        name, _, rest = what.partition(": ")
        path = results / f"{name}.json"
        if not path.is_file():
            raise ValueError(f"{begin}: there is no {path.name}")
        result = read(path)
        if kind == "source":
            return f"{begin}\n{_source(result)}\n{end}"
        table, *cell = rest.split("; ")
        if kind == "note":
            if table not in result.get("notes", {}):
                raise ValueError(f"{begin}: {path.name} has no note on {table}")
            return f"{begin}\n{result['notes'][table]}\n{end}"
        if table not in result["tables"]:
            raise ValueError(f"{begin}: the tables of {path.name} are {', '.join(result['tables'])}")
        header, rows = result["tables"][table]["header"], result["tables"][table]["rows"]
        if kind == "table":
            for view in cell:
                header, rows = _seen(header, rows, view, begin)
            return f"{begin}\n\n{markdown_table(header, [list(map(_shown, row)) for row in rows])}\n\n{end}"
        return f"{begin}{_cell(header, rows, cell, begin)}{end}"

    return PLACE.sub(found, text)


def _seen(header: list[str], rows: list[list[Any]], view: str, begin: str) -> tuple[list[str], list[list[Any]]]:
    """What a view shows of a table: `across COLUMN`, `COLUMN=VALUE`, or columns."""
    column, equals, value = view.removeprefix("across ").partition("=")
    across, columns = view.startswith("across "), [column] if equals else column.split(", ")
    if unknown := [name for name in columns if name not in header]:
        raise ValueError(f"{begin}: no column {unknown[0]!r}; the columns are {', '.join(header)}")
    if equals:
        return header, [row for row in rows if _shown(row[header.index(column)]) == value]
    if not across:
        return columns, [[row[header.index(name)] for name in columns] for row in rows]
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name, _, setting = str(row[0]).rpartition(", ")
        found.setdefault(name, {})[setting.partition("=")[2]] = row[header.index(column)]
    settings = list(dict.fromkeys(setting for each in found.values() for setting in each))
    return [header[0], *settings], [[name, *(each.get(s, "") for s in settings)] for name, each in found.items()]


def _cell(header: list[str], rows: list[list[Any]], cell: list[str], begin: str) -> str:
    if len(cell) != 2:
        raise ValueError(f"{begin}: expected FILE: TABLE; ROW; COLUMN")
    wanted, column = cell[0].split(" / "), cell[1]
    mine = [row for row in rows if row[: len(wanted)] == wanted]
    if len(mine) != 1 or column not in header:
        raise ValueError(f"{begin}: {len(mine)} rows begin so; the columns are {', '.join(header)}")
    return _shown(mine[0][header.index(column)])


def _shown(cell: Any) -> str:
    return f"{cell:.4f}" if isinstance(cell, float) else str(cell)


def _source(result: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    machine = ", {cores} cores of {processor}".format_map(result["machine"]) if "machine" in result else ""
    took = next((f", {result[unit]:.4g} {unit}" for unit in ("seconds", "minutes") if unit in result), "")
    origin = f"; {result['origin']}" if "origin" in result else ""
    return f"(`{result['command']}`, {result['date']}{took}{f', {versions}' if versions else ''}{machine}{origin}.)"


def main(arguments: list[str] | None = None) -> int:
    """Write what has changed, or only say it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if something would change")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the checkout (default: this one)")
    given = parser.parse_args(arguments)
    changed = []
    for page in pages(given.root):
        text = page.read_text(encoding="utf-8")
        try:
            new = filled(text, given.root / "docs" / "results")
        except ValueError as error:
            print(f"{page.relative_to(given.root)}: {error}", file=sys.stderr)
            return 2
        if new != text:
            changed.append(page)
            if not given.check:
                write_text(page, new)
    for page in changed:
        print(f"{page.relative_to(given.root)} {'is not what the result files say' if given.check else 'written'}")
    return int(bool(changed) and given.check)


if __name__ == "__main__":
    sys.exit(main())
