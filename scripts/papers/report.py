"""Tables (Markdown, CSV, LaTeX), plots (PNG, SVG) and an HTML page from the cells of an experiment.

Trainers with random scores are in the tables, but not in the colour scale of the figures or among the curves.

In a table of measures, each trainer is tested against the best of the plan's baselines for each measure, with Holm's correction
over all tests of one data set. `++` and `+` mark better values with p < 0.01 and p < 0.05, `--` and `-` worse ones.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import yaml
from matplotlib.figure import Figure

from papers.page import Section, figure, page
from papers.plan import Plan
from papers.significance import holm, stars
from rankstruct.diagnostics import draw_paths, panels
from rankstruct.files import versions, whole_file, write_result, write_text
from rankstruct.statistics import PairedComparison, Spread, bootstrap_interval, compare_paired, spread
from rankstruct.text_tables import escape_markdown, format_table

Row = tuple[str, Any]  # a trainer's name and the value of the varied option, or None


@dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    >>> table = Table("means", ["trainer", "AP"], [["SVMmap", "0.5 ++"]], "Two queries.")
    >>> print(table.markdown())
    | trainer   | AP     |
    |-----------|--------|
    | SVMmap    | 0.5 ++ |
    <BLANKLINE>
    Two queries.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    note: str = ""
    best: frozenset[tuple[int, int]] = frozenset()  # row and column of cells with a bold first word

    def _shown(self, style: str, before: str, after: str, escape: Callable[[str], str]) -> str:
        def shown(place: tuple[int, int], cell: str) -> str:
            first, space, rest = cell.partition(" ")
            return f"{before}{escape(first)}{after}{space}{escape(rest)}" if place in self.best else escape(cell)

        rows = [[shown((i, j), cell) for j, cell in enumerate(row)] for i, row in enumerate(self.rows)]
        align = ["left", *["right"] * (len(self.header) - 1)] if style == "latex_raw" else None
        return format_table([escape(cell) for cell in self.header], rows, style, align)

    def markdown(self) -> str:
        """A table of GitHub's Markdown, and the note."""
        text = self._shown("github", "**", "**", escape_markdown)
        return f"{text}\n\n{self.note}" if self.note else text

    def latex(self) -> str:
        """A LaTeX tabular."""
        return self._shown("latex_raw", r"\textbf{", "}", _latex) + "\n"

    def html(self) -> str:
        """The table and the note."""
        note = f'<p class="note">{html.escape(self.note)}</p>' if self.note else ""
        return f'<div class="wide">{self._shown("unsafehtml", "<b>", "</b>", html.escape)}</div>\n{note}'

    def csv(self) -> str:
        """Comma-separated values."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([self.header, *self.rows])
        return out.getvalue()


def _latex(text: str) -> str:
    words = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "±": r"$\pm$", "<": "$<$", ">": "$>$", "|": "$|$"}
    words |= {plain: f"\\{plain}" for plain in "_%&#{}$"}
    return "".join(words.get(letter, letter) for letter in text).replace("--", "$--$")


@dataclass(frozen=True)
class Entry:
    """One entry of the table of measures, and its test.

    Attributes:
        set_name: the set.
        trainer: name in the table.
        value: the value of the varied option, or None.
        measure: the measure on the test lists.
        mean: over queries (or folds), seeds averaged.
        deviation: standard deviation of that mean over seeds.
        seeds: how many.
        low: the lower end of its 95 % bootstrap interval over queries.
        high: the upper end.
        baseline: the best baseline by this measure; "" if the trainer is a baseline, or there are none.
        difference: the mean minus that of the baseline.
        wins: queries on which the trainer is better.
        losses: queries on which it is worse.
        p: two-sided.
        p_holm: corrected over all tests of the data set; NaN without a test.
    """

    set_name: str
    trainer: str
    value: Any
    measure: str
    mean: float
    deviation: float
    seeds: int
    low: float
    high: float
    baseline: str
    difference: float
    wins: int
    losses: int
    p: float
    p_holm: float

    @property
    def mark(self) -> str:
        """`++`, `+`, `-`, `--` or nothing."""
        return stars(self.p_holm).replace("*", "+" if self.difference > 0 else "-")


class Gathered:
    """The values of one data set, one array per trainer and measure."""

    def __init__(self, plan: Plan, records: Mapping[tuple, Mapping[str, Any]], set_name: str) -> None:
        every = [cell for cell in plan.cells() if cell.set_name == set_name]
        missing = {(cell.name, cell.value) for cell in every if cell.key not in records}
        by_row: dict[Row, dict[int, list[Mapping[str, Any]]]] = {}
        for cell in every:
            if cell.key in records:
                by_row.setdefault((cell.name, cell.value), {}).setdefault(cell.seed, []).append(records[cell.key])
        self.incomplete = sorted(row_name(plan, row) for row in by_row if row in missing)
        by_row = {row: seeds for row, seeds in by_row.items() if row not in missing}
        units = [
            {(cell["cell"][3], qid) for cell in cells for qid in cell["qids"]}
            for seeds in by_row.values()
            for cells in seeds.values()
        ]
        common = set.intersection(*units) if units else set()
        self.queries = len(common)
        self.rows = list(by_row)
        self.values: dict[tuple[Row, str], np.ndarray] = {}  # [seeds, units]
        self.seconds: dict[Row, float] = {}
        self.cpu_seconds: dict[Row, float] = {}
        self.choices: dict[Row, list[str]] = {}
        self.removed: dict[str, list[int]] = {}
        self.remarks: dict[str, list[str]] = {}  # by warning: trainers and their numbers of cells
        self.paths: dict[Row, list[dict[str, Any]]] = {}  # of max-margin trainers: `{"path": rows}` a fold, first seed
        for row, seeds in by_row.items():
            first, cells = seeds[min(seeds)], [cell for of_seed in seeds.values() for cell in of_seed]
            for remark, count in Counter(remark for cell in cells for remark in cell.get("remarks", [])).items():
                self.remarks.setdefault(remark, []).append(f"{row_name(plan, row)} {count} of {len(cells)}")
            for clock, taken in (("seconds", self.seconds), ("cpu_seconds", self.cpu_seconds)):
                taken[row] = float(np.mean([sum(cell[clock] for cell in cells) for cells in seeds.values()]))
            self.choices[row] = [_short(cell["choice"]) for cell in first]
            if all(cell.get("path") for cell in first):
                self.paths[row] = [{"path": cell["path"]} for cell in first]
            self.removed[row[0]] = np.sum([cell["removed"] for cell in first], axis=0).tolist()
            for measure in plan.all_measures:
                runs = [_units(cells, measure, common, plan.pairs) for cells in seeds.values()]
                self.values[row, measure] = np.array(runs)

    def split(self, row: Row) -> dict[str, float]:
        """Seconds of a max-margin trainer in the argmax, in the quadratic program and elsewhere, over all C and folds."""
        rows = [each for cell in self.paths[row] for each in cell["path"]]
        argmax, quadratic, total = (sum(each[k] for each in rows) for k in ("oracle_seconds", "qp_seconds", "seconds"))
        return {"argmax": argmax, "QP": quadratic, "other": max(total - argmax - quadratic, 0.0)}

    def mean(self, row: Row, measure: str) -> Spread:
        """Mean over units, and its standard deviation over seeds."""
        return spread(self.values[row, measure].mean(1))

    def units(self, row: Row, measure: str) -> np.ndarray:
        """One value per unit, averaged over seeds."""
        return self.values[row, measure].mean(0)


def _units(cells: Sequence[Mapping[str, Any]], measure: str, common: set, pairs: str) -> list[float]:
    """The values of one seed by fold: those of the queries that all trainers have, or their means."""
    found: list[float] = []
    for cell in sorted(cells, key=lambda cell: cell["cell"][3]):
        values = zip(cell["qids"], cell["values"][measure], strict=True)
        of_fold = [value for qid, value in sorted(values) if (cell["cell"][3], qid) in common]
        found += of_fold if pairs == "query" else [float(np.mean(of_fold))]
    return found


def _short(choice: Mapping[str, Any]) -> str:
    return " ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in choice.items()) or "-"


def _title(set_name: str, what: str) -> str:
    return f"{set_name}: {what}" if set_name else what


def row_name(plan: Plan, row: Row) -> str:
    """The name of a row in tables."""
    return row[0] if row[1] is None or plan.vary is None else f"{row[0]}, {plan.vary.option}={row[1]}"


def by_chance(plan: Plan, rows: Sequence[Row]) -> list[bool]:
    """Whether each row is of a trainer with random scores; all False if there is no other."""
    found = [plan.trainers[name]["trainer"] == "random" for name, _ in rows]
    return found if not all(found) else [False] * len(found)


def _drawn(plan: Plan, gathered: Gathered) -> list[Row]:
    """The rows that curves are drawn of."""
    return [row for row, chance in zip(gathered.rows, by_chance(plan, gathered.rows), strict=True) if not chance]


def measure_entries(plan: Plan, gathered: Gathered, set_name: str) -> list[Entry]:
    """Every trainer on every measure, tested against the best baseline of the measure, corrected over the set."""
    baselines = [row for row in gathered.rows if row[0] in plan.baselines]
    found = []
    for row in gathered.rows:
        for measure in plan.measures:
            over_seeds, units = gathered.mean(row, measure), gathered.units(row, measure)
            low, high = bootstrap_interval(units, resamples=2000)
            best, against = "", PairedComparison(np.nan, 0, 0, np.nan)
            if baselines and row not in baselines:
                chosen = max(baselines, key=lambda other, measure=measure: gathered.mean(other, measure).mean)  # type: ignore[misc]
                best = row_name(plan, chosen)
                against = compare_paired(units, gathered.units(chosen, measure), plan.test)
            mean = over_seeds.mean, over_seeds.deviation, over_seeds.seeds, low, high
            found.append(Entry(set_name, *row, measure, *mean, best, *astuple(against), np.nan))  # type: ignore[call-arg, arg-type]
    corrected = iter(holm([entry.p for entry in found if entry.baseline]))
    return [replace(entry, p_holm=float(next(corrected))) if entry.baseline else entry for entry in found]


def measure_table(plan: Plan, gathered: Gathered, entries: Sequence[Entry], set_name: str) -> Table:
    """Trainer x test measure (Chakrabarti, Khanna, Sawant, Bhattacharyya, KDD 2008, figure 9); a column's best is bold."""
    means = np.array([entry.mean for entry in entries]).reshape(len(gathered.rows), len(plan.measures))
    shown = [
        f"{entry.mean:.4f}{f' ± {entry.deviation:.4f}' if entry.seeds > 1 else ''} {entry.mark}".rstrip()
        for entry in entries
    ]
    cells = np.array(shown, object).reshape(means.shape).tolist()
    rows = [[row_name(plan, row), *line] for row, line in zip(gathered.rows, cells, strict=True)]
    # A column further: the first has the names.
    bold = frozenset((i, j + 1) for i, j in np.argwhere(means == means.max(0)).tolist())
    title, note = _title(set_name, "trained by row, tested by column"), _note(plan, gathered, entries)
    return Table(title, ["trainer", *plan.measures], rows, note, bold)


def _note(plan: Plan, gathered: Gathered, entries: Sequence[Entry]) -> str:
    """The note under the table of measures."""
    of = _units_of(plan)
    number = gathered.queries if plan.pairs == "query" else len(plan.data.folds)
    note = f"Means over {number} test {of}, expected values over ties; a query with nothing relevant counts 0."
    if any(f.seeds > 1 for f in entries):
        note += " ± is the standard deviation over seeds."
    if any(f.baseline for f in entries):
        opponents = ", ".join(
            f"{m} {next(f.baseline for f in entries if f.measure == m and f.baseline)}" for m in plan.measures
        )
        count = sum(bool(f.baseline) for f in entries)
        note += (
            f" ++ / + better and -- / - worse than the best of the baselines ({opponents}), p < 0.01 / 0.05, two-sided "
            f"{plan.test} test over {of}, Holm's correction over {count} tests."
        )
    if gathered.incomplete:
        note += f" Left out, since cells are missing: {', '.join(gathered.incomplete)}."
    for remark, who in gathered.remarks.items():
        note += f" {remark} (cells of {', '.join(who)})."
    removed = {name: counts for name, counts in gathered.removed.items() if any(counts)}
    if removed:
        parts = next(iter(removed.values()))
        if all(counts == parts for counts in removed.values()) and len(removed) == len(gathered.removed):
            note += f" Documents removed over all folds: {parts[0]} of training, {parts[1]} of validation, {parts[2]} of test."
        else:
            note += f" Documents removed (training, validation, test): {removed}."
    return note


def win_table(plan: Plan, gathered: Gathered, set_name: str) -> Table:
    """The reference against every other trainer: mean, wins and losses of the reference, stars of the test (not corrected)."""
    wanted = plan.reference or next(iter(plan.trainers))
    reference = next((row for row in gathered.rows if row[0] == wanted), gathered.rows[0])
    rows = []
    for row in gathered.rows:
        line = [row_name(plan, row)]
        for measure in plan.measures:
            line.append(f"{gathered.mean(row, measure).mean:.4f}")
            if row != reference:
                found = compare_paired(gathered.units(reference, measure), gathered.units(row, measure), plan.test)
                line[-1] += f" {found.wins}/{found.losses} {stars(found.p)}".rstrip()
        rows.append(line)
    rows.sort(key=lambda line: line[0] != row_name(plan, reference))
    title = _title(set_name, f"{row_name(plan, reference)} against each other")
    note = f"Mean, then wins/losses of {row_name(plan, reference)}; ** p < 0.01, * p < 0.05, {plan.test} test, not corrected."
    return Table(title, ["trainer", *plan.measures], rows, note)


def interval_table(plan: Plan, gathered: Gathered, entries: Sequence[Entry], set_name: str) -> Table:
    """Every trainer's means with their intervals."""
    cells = [f"{entry.mean:.4f} ({entry.low:.4f} to {entry.high:.4f})" for entry in entries]
    lines = np.array(cells, object).reshape(len(gathered.rows), -1).tolist()
    rows = [[row_name(plan, row), *line] for row, line in zip(gathered.rows, lines, strict=True)]
    note = f"Means and their 95 % bootstrap intervals over {_units_of(plan)}, seeds averaged."
    return Table(_title(set_name, "means with intervals"), ["trainer", *plan.measures], rows, note)


def difference_table(plan: Plan, sets: Mapping[str, Gathered]) -> Table:
    """The reference minus every other trainer, with intervals; the queries of several data sets are pooled."""
    common = [row for row in next(iter(sets.values())).rows if all(row in each.rows for each in sets.values())]
    wanted = plan.reference or next(iter(plan.trainers))
    references = [row for row in common if row[0] == wanted][:1]
    rows = [_ahead(plan, sets, reference, row) for reference in references for row in common if row != reference]
    where = " and ".join(filter(None, sets))
    note = f"{wanted} less each other: means and their 95 % paired bootstrap intervals over {_units_of(plan)}"
    note += f" of {where} together." if len(sets) > 1 else "."
    return Table(_title(where, f"{wanted} less each other"), ["trainer", *plan.measures], rows, note)


def varied_tables(plan: Plan, sets: Mapping[str, Gathered]) -> dict[str, Table]:
    """Test means by the varied option, for each measure: a row per data set and trainer with the option, a column per value."""
    if plan.vary is None:
        return {}
    header, found = ["set", "trainer", *map(str, plan.vary.values)], {}
    for measure in plan.measures:
        rows = []
        for name, gathered in sets.items():
            for trainer in plan.trainers:
                places = [(trainer, value) for value in plan.vary.values]
                if all(place in gathered.rows for place in places):
                    rows.append([name, trainer, *(f"{gathered.mean(place, measure).mean:.4f}" for place in places)])
        title = f"{measure} by {plan.vary.option}"
        found[title] = Table(title, header, rows, f"Test means along {plan.vary.option}.")
    return found


def _ahead(plan: Plan, sets: Mapping[str, Gathered], reference: Row, other: Row) -> list[str]:
    """A line of `difference_table`."""
    line = [row_name(plan, other)]
    for measure in plan.measures:
        ahead = np.concatenate([each.units(reference, measure) - each.units(other, measure) for each in sets.values()])
        low, high = bootstrap_interval(ahead, resamples=2000)
        line.append(f"{ahead.mean():+.4f} ({low:+.4f} to {high:+.4f})")
    return line


def _units_of(plan: Plan) -> str:
    return "queries" if plan.pairs == "query" else "folds"


def time_table(plan: Plan, gathered: Gathered, set_name: str) -> Table:
    """Seconds of training with all settings and validation, over all folds; the selected settings by fold, first seed."""
    rows = []
    for row in gathered.rows:
        cpu = gathered.cpu_seconds[row]
        shown = [f"{gathered.seconds[row]:.1f}", "-" if np.isnan(cpu) else f"{cpu:.1f}"]
        rows.append([row_name(plan, row), *shown, "; ".join(gathered.choices[row])])
    header = ["trainer", "seconds, all folds", "CPU seconds", "chosen by fold"]
    return Table(_title(set_name, "training"), header, rows)


def curve_table(plan: Plan, gathered: Gathered, set_name: str) -> Table:
    """NDCG at each cut-off."""
    rows = [[row_name(plan, row), *(f"{gathered.mean(row, m).mean:.4f}" for m in plan.curve)] for row in gathered.rows]
    return Table(_title(set_name, "nDCG by cut-off"), ["trainer", *plan.curve], rows)


def what_came_out(plan: Plan, gathered: Gathered, entries: Sequence[Entry], set_name: str) -> str:
    """A sentence: the best trainer by the first measure, and whether it differs significantly from the best baseline."""
    where = f"{set_name}: " if set_name else ""
    if not gathered.rows:
        return f"{where}no trainer has all its cells yet."
    measure = plan.select if plan.select in plan.measures else plan.measures[0]
    ranked = sorted((entry for entry in entries if entry.measure == measure), key=lambda entry: -entry.mean)

    def told(entry: Entry) -> str:
        return f"{row_name(plan, (entry.trainer, entry.value))} ({entry.mean:.4f})"

    def verdict(entry: Entry) -> str:
        sure = "significantly" if entry.p_holm < 0.05 else "not significantly"
        p = "p < 0.001" if entry.p_holm < 0.001 else f"p = {entry.p_holm:.3f}"
        side = "better" if entry.difference > 0 else "worse"
        return f"{sure} {side} than the best baseline, {entry.baseline} ({p}, {plan.test} test, Holm's correction)"

    first, tested = ranked[0], [entry for entry in ranked if entry.baseline]
    best = f"{where}{told(first)} is best by test {measure}"
    if first in tested:
        return f"{best}, {verdict(first)}."
    if tested:
        return f"{best} and a baseline; the best other trainer, {told(tested[0])}, is {verdict(tested[0])}."
    after = f", before {told(ranked[1])}" if len(ranked) > 1 else ""
    return f"{best}{after}; nothing was tested against a baseline."


def draw_heat(plan: Plan, gathered: Gathered, entries: Sequence[Entry], title: str) -> Figure:
    """The table of measures as a figure: each column from its worst (light) to its best value, without random trainers."""
    means = np.array([f.mean for f in entries]).reshape(len(gathered.rows), len(plan.measures))
    marks = np.array([f.mark for f in entries]).reshape(means.shape)
    scale = means[np.logical_not(by_chance(plan, gathered.rows))]
    low, span = scale.min(0), np.ptp(scale, axis=0)
    shade = np.clip((means - low) / np.where(span > 0, span, 1.0), 0, 1)
    colours = matplotlib.colormaps["Blues"](0.6 * shade)  # light enough for black text
    names = [row_name(plan, row) for row in gathered.rows]
    width = 0.5 + 0.085 * max(map(len, names)) + 0.9 * len(plan.measures)
    figure = Figure(figsize=(width, 1.0 + 0.3 * len(gathered.rows)), layout="constrained")
    axis = figure.subplots()
    axis.imshow(colours, aspect="auto")
    axis.set_xticks(range(len(plan.measures)), plan.measures)
    axis.set_yticks(range(len(gathered.rows)), names)
    axis.set(title=title, xlabel="tested by")
    for (i, j), mean in np.ndenumerate(means):
        text = f"{mean:.3f} {marks[i, j]}".rstrip()
        weight = "bold" if mean == means[:, j].max() else "normal"
        axis.text(j, i, text, ha="center", va="center", fontsize=9, weight=weight)
    return figure


def draw_curves(plan: Plan, gathered: Gathered, title: str) -> Figure:
    """nDCG@k by k, one line per trainer."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axis = figure.subplots()
    for number, row in enumerate(_drawn(plan, gathered)):
        heights = [gathered.mean(row, m).mean for m in plan.curve]
        style: dict[str, Any] = {"marker": "o", "ms": 3, "linestyle": ("-", "--", ":")[number // 10 % 3]}
        axis.plot(range(1, plan.cutoffs + 1), heights, label=row_name(plan, row), **style)
    axis.set(title=title, xlabel="k", ylabel="nDCG@k")
    axis.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


def draw_varied(plan: Plan, gathered: Gathered, title: str) -> Figure:
    """Each measure by the varied option, one line per trainer; a trainer without the option is a horizontal line."""
    assert plan.vary is not None
    values, drawn = plan.vary.values, _drawn(plan, gathered)
    figure, axes = panels(len(plan.measures), min(3, len(plan.measures)), 3.0)
    for axis, measure in zip(axes, plan.measures, strict=True):
        for name in plan.trainers:
            heights = [gathered.mean((name, v), measure).mean for v in values if (name, v) in drawn]
            if len(heights) == len(values):
                axis.plot(range(len(values)), heights, marker="o", ms=3, label=name)
            elif (name, None) in drawn:
                level = gathered.mean((name, None), measure).mean
                axis.plot(range(len(values)), [level] * len(values), "--", label=name)
        axis.set_xticks(range(len(values)), [str(v) for v in values])
        axis.set(title=measure, xlabel=plan.vary.option)
        axis.grid(alpha=0.3)
    figure.suptitle(title)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure


def draw_times(plan: Plan, gathered: Gathered, title: str) -> Figure:
    """Seconds of training, one bar per trainer (KDD 2008, figure 10)."""
    figure = Figure(figsize=(6, 1.0 + 0.28 * len(gathered.rows)), layout="constrained")
    axis = figure.subplots()
    axis.barh([row_name(plan, row) for row in gathered.rows], [max(gathered.seconds[r], 1e-3) for r in gathered.rows])
    axis.set(xscale="log", title=title, xlabel="seconds of training, all folds, validation included")
    axis.invert_yaxis()
    return figure


def split_table(plan: Plan, every: Mapping[str, Gathered]) -> Table:
    """Shares of the training time in the argmax and in the quadratic program, by data set."""
    rows = []
    for set_name, gathered in every.items():
        for row in gathered.paths:
            split = gathered.split(row)
            total = max(sum(split.values()), 1e-9)
            shares = [f"{part / total:.0%}" for part in split.values()]
            rows.append([set_name or "-", row_name(plan, row), f"{total:.2f}", *shares])
    note = "Solvers alone, over all C and folds; without validation."
    return Table("Time by part", ["set", "trainer", "seconds", "argmax", "QP", "other"], rows, note)


def draw_split(plan: Plan, every: Mapping[str, Gathered]) -> Figure:
    """Shares of the training time in the argmax and in the QP, one panel per data set (KDD 2008, figure 8)."""
    names = list(dict.fromkeys(row for gathered in every.values() for row in gathered.paths))
    figure = Figure(figsize=(2.5 + 3.5 * len(every), 1.2 + 0.28 * len(names)), layout="constrained")
    axes = figure.subplots(1, len(every), squeeze=False, sharey=True)[0]
    for axis, (set_name, gathered) in zip(axes, every.items(), strict=True):
        left = np.zeros(len(names))
        splits = [gathered.split(row) if row in gathered.paths else {} for row in names]
        for part in ("argmax", "QP", "other"):
            shares = np.array([split.get(part, 0.0) / max(sum(split.values()), 1e-9) for split in splits])
            axis.barh([row_name(plan, row) for row in names], shares, left=left, label=part)
            left += shares
        axis.set(title=set_name, xlabel="share of the time", xlim=(0, 1))
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8)
    return figure


def write_report(
    plan: Plan, records: Mapping[tuple, Mapping[str, Any]], output: str | Path, title: str, command: Sequence[str] = ()
) -> str:
    """Write `tables/`, `figures/`, `figures.csv`, `tables.json` and `report.html` into a folder.

    Args:
        plan: the experiment.
        records: its finished cells, see `read_results`; trainers with missing cells are left out.
        output: the folder.
        title: the title of the page.
        command: the command line, for `tables.json`.

    Returns:
        The tables of measures as plain text, and the main result.
    """
    folder = Path(output)
    sections: list[Section] = []
    printed: list[str] = []
    found: list[str] = []
    every: list[Entry] = []
    whole: dict[str, Gathered] = {}
    kept: dict[str, Table] = {}
    for set_name in plan.data.sets or ("",):
        gathered = Gathered(plan, records, set_name)
        entries = measure_entries(plan, gathered, set_name)
        found.append(what_came_out(plan, gathered, entries, set_name))
        if not gathered.rows:
            continue
        every += entries
        tables, drawings = _of_set(plan, gathered, entries, set_name, title)
        whole[set_name] = gathered
        kept |= {f"{set_name} {name}".strip(): table for name, table in tables.items()}
        sections += _write(folder, set_name, tables, drawings)
        measured = tables["measures"]
        printed.append(f"\n{measured.title}\n{format_table(measured.header, measured.rows)}\n{measured.note}")
    together = {"differences": difference_table(plan, whole)} if len(whole) > 1 else {}
    together |= varied_tables(plan, whole)
    kept |= together
    if together:
        sections += _write(folder, "", together, {})
    if paths := {name: gathered for name, gathered in whole.items() if gathered.paths}:
        shares = Drawing(draw_split(plan, paths), "Share of the training time that the solvers spend in each part.")
        sections += _write(folder, "", {"split": split_table(plan, paths)}, {"split": shares})
    with whole_file(folder / "figures.csv") as file:
        rows = [map(_plain, astuple(each)) for each in every]
        csv.writer(file, lineterminator="\n").writerows([Entry.__dataclass_fields__, *rows])
    shown = {name: (table.header, table.rows) for name, table in kept.items()}
    notes = {name: table.note for name, table in kept.items() if table.note}
    seconds = sum(record["seconds"] for record in records.values())
    write_result(folder / "tables.json", command, shown, notes=notes, seconds=seconds)
    config = yaml.safe_dump(json.loads(json.dumps(asdict(plan))), sort_keys=False, width=130, default_flow_style=None)
    sections.append(Section("plan", "", "The plan", f"<pre>{html.escape(config)}</pre>"))
    made = ", ".join(f"{name} {number}" for name, number in versions().items())
    write_text(folder / "report.html", page(title, found, sections, f"{date.today()}; {made}"))
    return "\n".join([*printed, "", *found])


class Drawing(NamedTuple):
    """A figure and its caption."""

    figure: Figure
    caption: str


_TITLES = {
    "measures": "Trained by row, tested by column",
    "varied": "Along the option that varies",
    "curves": "nDCG by cut-off",
    "intervals": "Means with intervals",
    "wins": "Wins and losses",
    "differences": "The reference less each other",
    "times": "Training time and choices",
    "paths": "Along C",
    "split": "Time by part",
}


def _of_set(
    plan: Plan, gathered: Gathered, entries: Sequence[Entry], set_name: str, title: str
) -> tuple[dict[str, Table], dict[str, Drawing]]:
    """The tables and plots of one data set."""
    title = set_name or title
    chance = " Scores by chance do not count for the scale." if any(by_chance(plan, gathered.rows)) else ""
    without = " Scores by chance are left out." if chance else ""
    heat = f"Test means; the darker, the nearer to the best of the column, which is bold.{chance}"
    tables = {"measures": measure_table(plan, gathered, entries, set_name)}
    drawings = {"measures": Drawing(draw_heat(plan, gathered, entries, title), heat)}
    if plan.vary is not None:
        told = f"Test means along {plan.vary.option}; a trainer without that option is a level line.{without}"
        drawings["varied"] = Drawing(draw_varied(plan, gathered, title), told)
    if plan.cutoffs:
        tables["curves"] = curve_table(plan, gathered, set_name)
        told = f"Mean nDCG of the first k documents.{without}"
        drawings["curves"] = Drawing(draw_curves(plan, gathered, title), told)
    tables["intervals"] = interval_table(plan, gathered, entries, set_name)
    tables["wins"] = win_table(plan, gathered, set_name)
    tables["differences"] = difference_table(plan, {set_name: gathered})
    tables["times"] = time_table(plan, gathered, set_name)
    drawings["times"] = Drawing(draw_times(plan, gathered, title), "Seconds of training, logarithmic.")
    lines = {row_name(plan, row): cells for row, cells in gathered.paths.items()}
    if any(len(cell["path"]) > 1 for cells in lines.values() for cell in cells):
        told = "What the max-margin trainers went through along C: means over folds, first seed."
        drawings["paths"] = Drawing(draw_paths(lines), told)
    return tables, drawings


def _write(folder: Path, set_name: str, tables: Mapping[str, Table], drawings: Mapping[str, Drawing]) -> list[Section]:
    """Write tables and plots; returns their sections of the page."""
    prefix = _in_file_name(f"{set_name}-") if set_name else ""
    for name, table in tables.items():
        for suffix, text in ((".md", table.markdown()), (".csv", table.csv()), (".tex", table.latex())):
            write_text(folder / "tables" / f"{prefix}{_in_file_name(name)}{suffix}", text)
    for name, drawing in drawings.items():
        for suffix in ("svg", "png"):
            with whole_file(folder / "figures" / f"{prefix}{name}.{suffix}", "wb") as file:
                drawing.figure.savefig(file, format=suffix, dpi=110)
    sections = []
    for name in (name for name in _TITLES if name in tables or name in drawings):
        parts = [figure(*drawings[name], f"{prefix}{name}")] if name in drawings else []
        parts += [tables[name].html()] if name in tables else []
        sections.append(Section(f"{prefix}{name}", set_name, _TITLES[name], "\n".join(parts)))
    return sections


def _in_file_name(text: str) -> str:
    return re.sub(r"[^\w.@-]", "-", text)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "" if np.isnan(value) else repr(value)
    return value if isinstance(value, str | int) else "" if value is None else json.dumps(value)
