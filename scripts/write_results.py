"""Write the figures in the README and the documentation from the result files in `docs/results`.

A result file is JSON with `date`, `versions`, `command` and `tables`, as `scripts/benchmark.py` and the long commands write
it; `origin` is the source of figures whose own file was lost. Pages mark the places to fill by comments:

    <!-- table FILE: TABLE -->                 the table of this name of FILE.json
    <!-- table FILE: TABLE; across COLUMN -->  one column of rows "trainer, option=value", one row per trainer
    <!-- table FILE: TABLE; C=100; A, B -->    the rows with this value of a column; these columns
    <!-- note FILE: TABLE -->                  the file's note on the table
    <!-- figure FILE: TABLE; ROW; COLUMN -->   one cell; ROW is the row's first cells, separated by /
    <!-- source FILE -->                       the command, date and versions
    <!-- papers PAPER -->                      the tables and figures of a paper, one row each, from `papers.yaml`
    <!-- end -->

Tables of more than `LONG` rows are folded. `charts.yaml` describes the charts, which are drawn into `docs/_static/charts`.

`papers.yaml` says what each table and figure of a paper shows, and which result files and tables correspond to it, or gives a
state and a reason; `{FILE: TABLE; ROW; COLUMN}` in its text is one cell. Commands come from the result files. Commands, configs,
scripts, files and tables must exist. `stale.yaml` lists the results that are older than the last commit of their config, script
or command; only `--stale` writes it.

    python scripts/write_results.py            # write the pages and charts
    python scripts/write_results.py --check    # exit code 1 if a page or chart does not agree with the files
    python scripts/write_results.py --stale    # find stale results, then write the pages
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from charts import Panel, draw
from rankstruct.cli import COMMANDS
from rankstruct.commands._arguments import CommandParser
from rankstruct.files import write_text
from rankstruct.text_tables import markdown_table

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"(<!-- (table|note|figure|source|papers) ([^>]*?) -->).*?(<!-- end -->)", re.DOTALL)
PAPERS = ["number", "shows", "command", "measured", "result", "differences, what is missing"]
STATES = ("not run", "not built", "tested", "nothing to measure")
LONG = 9  # rows of a table that is shown unfolded
PACKAGES = {"scripts/experiment.py": "scripts/papers", "scripts/benchmark.py": "scripts/benchmarks"}


def pages(root: Path) -> list[Path]:
    """The README and every page of the documentation."""
    return [root / "README.md", *sorted(path for path in root.glob("docs/**/*.md") if "_build" not in path.parts)]


def read(path: Path) -> dict[str, Any]:
    """A result file."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def filled(text: str, results: Path) -> str:
    """The page with the figures of the result files filled in.

    Raises:
        ValueError: if it names an unknown file, table, row or column.
    """

    def found(place: re.Match[str]) -> str:
        begin, kind, what, end = place.groups()
        if kind == "papers":
            return f"{begin}\n\n{markdown_table(PAPERS, paper_rows(results, what))}\n\n{end}"
        name, _, rest = what.partition(": ")
        result = _result(results, name, begin)
        if kind == "source":
            return f"{begin}\n{_source(result)}\n{end}"
        table, *cell = rest.split("; ")
        if kind == "note":
            if table not in result.get("notes", {}):
                raise ValueError(f"{begin}: {name}.json has no note on {table}")
            return f"{begin}\n{result['notes'][table]}\n{end}"
        header, rows = _table(result, name, table, begin)
        if kind == "table":
            for view in cell:
                header, rows = _seen(header, rows, view, begin)
            return f"{begin}\n\n{_folded(markdown_table(header, [list(map(_shown, row)) for row in rows]), table, rows)}\n\n{end}"
        return f"{begin}{_cell(header, rows, cell, begin)}{end}"

    return PLACE.sub(found, text)


def _folded(shown: str, table: str, rows: list[list[Any]]) -> str:
    """A long table as a line that opens."""
    if len(rows) <= LONG:
        return shown
    return f"<details>\n<summary>Table: {table}, {len(rows)} rows</summary>\n\n{shown}\n\n</details>"


def charts(root: Path) -> dict[Path, str]:
    """The files of the charts and their text.

    Raises:
        ValueError: if `charts.yaml` cannot be read or names an unknown file, table, row, column or key.
    """
    results = root / "docs" / "results"
    path = results / "charts.yaml"
    described = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    found = {}
    for name, panels in described.items():
        drawn = []
        try:
            for keys in panels:
                panel = Panel(**keys)
                file, _, table = panel.table.partition(": ")
                drawn.append((panel, *_table(_result(results, file, name), file, table, name)))
            found[root / "docs" / "_static" / "charts" / f"{name}.svg"] = draw(drawn)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path.name}, {name}: {error}") from None
    return found


def _result(results: Path, name: str, begin: str) -> dict[str, Any]:
    path = results / f"{name}.json"
    if not path.is_file():
        raise ValueError(f"{begin}: there is no {path.name}")
    return read(path)


def _table(result: dict[str, Any], name: str, table: str, begin: str) -> tuple[list[str], list[list[Any]]]:
    if table not in result["tables"]:
        raise ValueError(f"{begin}: the tables of {name}.json are {', '.join(result['tables'])}")
    return result["tables"][table]["header"], result["tables"][table]["rows"]


def _seen(header: list[str], rows: list[list[Any]], view: str, begin: str) -> tuple[list[str], list[list[Any]]]:
    """A view of a table: `across COLUMN`, `COLUMN=VALUE`, or a choice of columns."""
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
        raise ValueError(f"{begin}: {len(mine)} rows match; the columns are {', '.join(header)}")
    return _shown(mine[0][header.index(column)])


def _shown(cell: Any) -> str:
    return f"{cell:.4f}" if isinstance(cell, float) else str(cell)


def _source(result: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    machine = ", {cores} cores of {processor}".format_map(result["machine"]) if "machine" in result else ""
    took = next((f", {result[unit]:.4g} {unit}" for unit in ("seconds", "minutes") if unit in result), "")
    origin = f"; {result['origin']}" if "origin" in result else ""
    return f"(`{result['command']}`, {result['date']}{took}{f', {versions}' if versions else ''}{machine}{origin}.)"


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of a paper, an entry of `papers.yaml`.

    Attributes:
        number: its number in the paper.
        shows: what it shows there.
        results: tables by the name of their result file; none if `state` is given.
        state: one of `STATES`.
        command: the command that produces it, if no result file has one.
        found: the result here.
        why: the reason why it differs from the paper, or is missing.
    """

    number: str
    shows: str
    results: dict[str, list[str]] = field(default_factory=dict)
    state: str = ""
    command: str = ""
    found: str = ""
    why: str = ""

    def commands(self, results: Path) -> list[str]:
        """The commands that produce it."""
        named = [_result(results, name, self.number)["command"] for name in self.results]
        return list(dict.fromkeys([*named, *([self.command] if self.command else [])]))


def exhibits(results: Path) -> dict[str, list[Exhibit]]:
    """The tables and figures of each paper.

    Raises:
        ValueError: if the file cannot be read, or an entry has an unknown state, or neither or both of state and results.
    """
    path = results / "papers.yaml"
    try:
        papers = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
        found = {paper: [Exhibit(**entry) for entry in entries] for paper, entries in papers.items()}
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    for paper, entries in found.items():
        for each in entries:
            if bool(each.results) == bool(each.state) or each.state not in ("", *STATES):
                raise ValueError(f"{paper}, {each.number}: expected results, or a state out of {', '.join(STATES)}")
    return found


def makers(command: str, root: Path) -> list[str]:
    """The files of the checkout that a command depends on: its configs, and the code of the script or command itself.

    Raises:
        ValueError: if there is no such command, config or script.
    """
    words = shlex.split(command)
    if words[0] in ("python", "pytest") and (root / words[1]).is_file():
        found = [words[1], PACKAGES[words[1]]] if words[1] in PACKAGES else [words[1]]
    elif words[0] == "rankstruct" and words[1] in COMMANDS:
        found = [f"rankstruct/commands/{COMMANDS[words[1]][0]}.py"]
    else:
        raise ValueError(f"no such command or script: {command}")
    option = ""
    for word in words[2:]:
        if word.startswith("--"):
            option = word
        elif option in ("--config", "--configs"):
            paths = sorted(root.glob(word if word.endswith(".yaml") else f"configs/{word}.yaml"))
            if not paths:
                raise ValueError(f"no config {word}: {command}")
            found += [path.relative_to(root).as_posix() for path in paths]
    return found


def paper_rows(results: Path, paper: str) -> list[list[str]]:
    """The rows of a paper's tables and figures, with the columns `PAPERS`.

    Raises:
        ValueError: if an entry names an unknown command, config, script, file, table, row or column.
    """
    if paper not in (known := exhibits(results)):
        raise ValueError(f"<!-- papers {paper} -->: papers.yaml has {', '.join(known)}")
    stale, rows = read_stale(results), []
    try:
        for each in known[paper]:
            rows.append(_row(each, results, stale))
    except ValueError as error:
        raise ValueError(f"{paper}, {each.number}: {error}") from None
    return rows


def _row(each: Exhibit, results: Path, stale: dict[str, str]) -> list[str]:
    def cell(place: re.Match[str]) -> str:
        name, table, *where = re.split(": |; ", place[1])
        return _cell(*_table(_result(results, name, place[0]), name, table, place[0]), where, place[0])

    commands = each.commands(results)
    for command in commands:
        makers(command, results.parents[1])
    measured = [_measured(results, name, tables, stale) for name, tables in each.results.items()]
    made = "; ".join(f"`{command}`" for command in commands)
    told = [re.sub(r"\{([^}]*)\}", cell, text) for text in (each.found, each.why)]
    return [each.number, each.shows, made, "; ".join(measured) or each.state, *told]


def _measured(results: Path, name: str, tables: list[str], stale: dict[str, str]) -> str:
    """The date of a result, with links to its tables."""
    result, links = _result(results, name, name), []
    for table in tables:
        _table(result, name, table, table)
        links.append(f"[{table}]({_place(results, f'{name}: {table}')})")
    return f"{result['date']}, {', '.join(links)}{f', **stale**: {stale[name]}' if name in stale else ''}"


def _place(results: Path, table: str) -> str:
    """A link from a page of the results to the heading above a table."""
    for page in pages(results.parents[1])[1:]:
        text = page.read_text(encoding="utf-8")
        if shown := re.search(rf"<!-- table {re.escape(table)}( -->|;)", text):
            heading = re.findall(r"^#+ (.*)$", text[: shown.start()], re.MULTILINE)[-1]
            return f"{Path(os.path.relpath(page, results)).as_posix()}#{anchor(heading)}"
    raise ValueError(f"no page shows the table {table}")


def anchor(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def read_stale(results: Path) -> dict[str, str]:
    """The change that made each result stale, as `--stale` recorded it."""
    path = results / "stale.yaml"
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}


def find_stale(root: Path) -> dict[str, str] | None:
    """The changes after the day on which a result of `papers.yaml` was measured; None without the git history."""

    def git(*args: str) -> str:
        return subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    results, found = root / "docs" / "results", {}
    try:
        if git("rev-parse", "--is-shallow-repository") != "false":
            return None
        for name in sorted({name for each in exhibits(results).values() for e in each for name in e.results}):
            result = _result(results, name, "papers.yaml")
            days = {path: git("log", "-1", "--format=%cs", "--", path) for path in makers(result["command"], root)}
            youngest = max(days, key=lambda path: days[path])
            if days[youngest] > result["date"]:
                found[name] = f"{youngest} changed on {days[youngest]}"
    except (OSError, subprocess.CalledProcessError):
        return None
    return found


def main(arguments: list[str] | None = None) -> int:
    """Write the pages that changed, or only list them."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if something would change")
    parser.add_argument(
        "--stale", action="store_true", help="first find stale results from the git history, and record them"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    given = parser.parse_args(arguments)
    changed = []
    try:
        if given.stale and note_stale(given.root, given.check):
            changed.append(given.root / "docs" / "results" / "stale.yaml")
        for path, new in charts(given.root).items():
            if not path.is_file() or path.read_text(encoding="utf-8") != new:
                changed.append(path)
                if not given.check:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_text(path, new)
        for page in pages(given.root):
            text = page.read_text(encoding="utf-8")
            try:
                new = filled(text, given.root / "docs" / "results")
            except ValueError as error:
                raise ValueError(f"{page.relative_to(given.root)}: {error}") from None
            if new != text:
                changed.append(page)
                if not given.check:
                    write_text(page, new)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for page in changed:
        print(f"{page.relative_to(given.root)} {'does not agree with the result files' if given.check else 'written'}")
    return int(bool(changed) and given.check)


def note_stale(root: Path, check: bool) -> bool:
    """Print stale results, and record them in `stale.yaml` unless `check`; True if the record changed."""
    found = find_stale(root)
    if found is None:
        raise ValueError("the git history is missing or incomplete; stale.yaml is not changed")
    for name, reason in found.items():
        print(f"stale: {name}.json, {reason}")
    if found == read_stale(root / "docs" / "results"):
        return False
    if not check:
        write_text(root / "docs" / "results" / "stale.yaml", yaml.safe_dump(found, width=120))
    return True


if __name__ == "__main__":
    sys.exit(main())
