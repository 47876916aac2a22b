"""`rankstruct evaluate`: evaluate scores or runs against labels or qrels; compare two."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankstruct.commands._arguments import as_typed
from rankstruct.commands._options import column_options, parser_of
from rankstruct.commands.page_rules import DocumentRules, rule_table, rules_of
from rankstruct.constraints import UnderRules
from rankstruct.data import DataError, join_run, read_lists, read_qrels, read_run, read_scores
from rankstruct.data.errors import check_matched
from rankstruct.data.runs import JoinedRun
from rankstruct.files import whole_file, write_result
from rankstruct.measures import evaluate
from rankstruct.statistics import Test, compare_paired
from rankstruct.text_tables import format_table


@dataclass(frozen=True)
class Evaluated:
    """Measures of one system, query by query.

    Attributes:
        name: the name of the system in reports.
        qids: `[queries]` strings.
        values: `{measure: [queries]}` float64; NaN for empty lists that are skipped.
        notes: caveats for the reader, such as documents without judgements.
        under: what rules for a page do; None without.
    """

    name: str
    qids: list[str]
    values: dict[str, np.ndarray]
    notes: tuple[str, ...] = ()
    under: UnderRules | None = None

    def under_rules(self) -> Evaluated:
        """The measures under rules, as of a system of its own."""
        assert self.under is not None
        return replace(
            self, name=f"{self.name} under rules", values={n: v.numpy() for n, v in self.under.values.items()}
        )

    def means(self) -> dict[str, float]:
        """The mean of each measure over the queries that count; NaN if there are none."""
        return {name: float(np.nanmean(v)) if (~np.isnan(v)).any() else np.nan for name, v in self.values.items()}

    def counts(self) -> dict[str, int]:
        """The number of queries in each mean."""
        return {name: int((~np.isnan(v)).sum()) for name, v in self.values.items()}


def evaluate_scores(
    scores: str | Path,
    labels: str | Path,
    measures: Sequence[str],
    *,
    reading: Mapping[str, Any] | None = None,
    **options: object,
) -> Evaluated:
    """Evaluate a file of scores against the labels of a file of lists, one score per document in the same order.

    Args:
        scores: a file with a score at the end of each line.
        labels: the file with labels and queries.
        measures: names of measures.
        reading: options of `read_lists` for that file.
        options: `ties`, `empty`, `convention` of `rankstruct.evaluate`; `rules`, DocumentRules.

    Raises:
        DataError: a file is malformed, or the number of scores differs from the number of documents.
    """
    data = read_lists(labels, **reading or {})
    values = read_scores(scores)
    if len(values) != data.num_documents:
        raise DataError(
            f"{scores}: expected {data.num_documents} scores, one per document of {labels}; got {len(values)}"
        )
    lists = {"scores": values, "labels": data.labels, "offsets": data.offsets}
    return _evaluated(str(scores), lists, data.qids, data.docids, measures, options)


def _evaluated(
    name: str,
    lists: dict[str, Any],
    qids: Any,
    docids: Any,
    measures: Sequence[str],
    options: dict[str, Any],
    notes: Sequence[str] = (),
) -> Evaluated:
    if options.get("ties") == "docid":
        if docids is None:
            raise DataError(
                f"{name}: --ties docid breaks ties by document id, and the documents of --labels have no ids"
            )
        options["docids"] = docids
    rules: DocumentRules | None = options.pop("rules", None)
    found = evaluate(measures=list(measures), **lists, **options)
    under = None
    if rules is not None:
        empty = options.get("empty", 0)
        given = lists["scores"], lists["labels"], measures, lists["offsets"], qids, docids
        under = rules.report(*given, name, empty=float(empty) if empty in (0, 1) else np.nan)
    return Evaluated(name, [str(q) for q in qids], {n: v.numpy() for n, v in found.items()}, tuple(notes), under)


def evaluate_run(run: str | Path, qrels: str | Path, measures: Sequence[str], **options: object) -> Evaluated:
    """Evaluate a TREC run against qrels; judged documents that were not retrieved count, as in trec_eval.

    Args:
        run: lines `query Q0 docid rank score tag`.
        qrels: lines `query iteration docid label`.
        measures: names of measures.
        options: `ties`, `empty`, `convention` of `rankstruct.evaluate`; `rules`, DocumentRules.

    Raises:
        DataError: a file is malformed, or the two have no query, or none of the retrieved documents, in common.
    """
    return evaluate_joined(str(run), join_run(read_run(run), read_qrels(qrels)), measures, **options)


def evaluate_joined(name: str, joined: JoinedRun, measures: Sequence[str], **options: object) -> Evaluated:
    """Evaluate a run with its judgements, as `evaluate_run` does."""
    judged, notes = joined.arguments["judged"], []
    if not judged.all():
        notes.append(f"{int((~judged).sum())} of {len(judged)} documents are not judged and count as label 0")
    return _evaluated(name, joined.arguments, joined.qids, joined.docids, measures, options, notes)


def compare_systems(
    first: Evaluated, second: Evaluated, test: Test = "randomization"
) -> list[dict[str, float | str | int]]:
    """Compare two systems over the queries for which both have a value, one row per measure.

    Queries of only one of the two are left out, which is reported as a warning with their share.

    Returns:
        Rows of measure, means of `first` and `second`, difference, number of queries, wins and losses of the first, and p-value.

    Raises:
        DataError: the systems have no query in common.
    """
    for one, by in ((first, second), (second, first)):
        matched = np.isin(one.qids, by.qids)
        check_matched(matched, one.qids, what=f"queries of {one.name}", source=by.name, advice="they are left out")
    place = {qid: at for at, qid in enumerate(second.qids)}
    common = [(at, place[qid]) for at, qid in enumerate(first.qids) if qid in place]
    mine, other = (np.array(column) for column in zip(*common, strict=True))
    rows: list[dict[str, float | str | int]] = []
    for measure in first.values:
        a, b = first.values[measure][mine], second.values[measure][other]
        counted = ~(np.isnan(a) | np.isnan(b))
        a, b = a[counted], b[counted]
        found = compare_paired(a, b, test)
        means = (a.mean(), b.mean(), found.difference) if len(a) else (np.nan,) * 3
        row = dict(zip(("first", "second", "difference"), map(float, means), strict=True))
        counts = {"queries": len(a), "wins": found.wins, "losses": found.losses}
        rows.append({"measure": measure, **row, **counts, "p": found.p})
    return rows


def main(args: Sequence[str]) -> None:
    """Print a table; write CSV and JSON on request."""
    parser = parser_of("evaluate")
    options = parser.parse_args(args[1:])
    if len(options.files) > 2:
        parser.error(f"expected one or two files, got {len(options.files)}")
    empty = int(options.empty) if options.empty in "01" else options.empty
    policy: dict[str, Any] = {"empty": empty, "convention": options.convention}
    if options.ties:
        policy["ties"] = options.ties
    if options.lists:
        policy["reading"] = {"labels": options.labels, "zero_based": options.zero_based, **column_options(options)}
    judge, truth = (evaluate_scores, options.lists) if options.lists else (evaluate_run, options.qrels)
    rules = rules_of(options)
    systems = [judge(file, truth, options.measures, rules=rules, **policy) for file in options.files]
    rows = _compared(systems, options.test)
    _print(systems, rows, options.test)
    broken = {}
    if rules is not None:
        ruled = [system.under_rules() for system in systems]
        _print_rules(ruled, _compared(ruled, options.test))
        broken = {
            "violations": {s.name: {"before": s.under.before, "after": s.under.after} for s in systems if s.under}
        }
        systems += ruled
    if options.csv:
        _write_csv(options.csv, systems)
    if options.json:
        found = {what: {system.name: getattr(system, what)() for system in systems} for what in ("means", "counts")}
        report = _without_nan({"means": found["means"], "queries": found["counts"], "comparison": rows})
        means = [[name, *its.values()] for name, its in report["means"].items()]
        write_result(options.json, as_typed(args), {"means": (["file", *systems[0].values], means)}, **report, **broken)


def _compared(systems: Sequence[Evaluated], test: Test) -> list[dict[str, float | str | int]]:
    """The comparison of two; nothing of one."""
    return compare_systems(systems[0], systems[1], test) if len(systems) == 2 else []


def _print_rules(systems: Sequence[Evaluated], rows: Sequence[dict[str, float | str | int]]) -> None:
    """Print measures under rules, and the lists that break these."""
    print(
        "\nunder rules, relative to the best page of the retrieved documents that keeps them, whatever the convention:"
    )
    print(_table(systems[0], rows, "under rules"))
    for system in systems:
        assert system.under is not None
        print(f"\nof {len(system.qids)} lists of {system.name.removesuffix(' under rules')}:")
        print(format_table(*rule_table(system.under.before, system.under.after)))


def _print(systems: Sequence[Evaluated], rows: Sequence[dict[str, float | str | int]], test: Test) -> None:
    for system in systems:
        for note in system.notes:
            print(f"{system.name}: {note}")
    if rows:
        print(f"first: {systems[0].name}\nsecond: {systems[1].name}")
    print(_table(systems[0], rows, "mean"))
    if rows:
        print(f"p: two-sided paired {test} test over these queries, not corrected for multiple measures")


def _table(system: Evaluated, rows: Sequence[dict[str, float | str | int]], means: str) -> str:
    """The comparison, or the means of one system."""
    if rows:
        return format_table(list(rows[0]), [list(row.values()) for row in rows])
    counts = system.counts()
    return format_table(["measure", means, "queries"], [[n, mean, counts[n]] for n, mean in system.means().items()])


def _without_nan(value: Any) -> Any:
    """Replace NaN by None, since JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def _write_csv(path: Path, systems: Sequence[Evaluated]) -> None:
    with whole_file(path) as file:
        writer = csv.writer(file)
        writer.writerow(["system", "query", *systems[0].values])
        for system in systems:
            for at, qid in enumerate(system.qids):
                writer.writerow([system.name, qid, *(float(values[at]) for values in system.values.values())])
