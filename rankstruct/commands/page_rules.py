"""Rules for a page in commands: `--constraints` about groups of documents, which the table of `--columns` has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankstruct.constraints import Constraints, UnderRules, rank_under, report_under
from rankstruct.constraints.rules import NO_GROUP, Groups, group_ids, unknown_groups
from rankstruct.data import DataError, RankingData
from rankstruct.data.errors import check_matched, naming_lists
from rankstruct.data.source import digest_of
from rankstruct.data.tables import TableReader, as_names, missing_column
from rankstruct.text_tables import format_table


@dataclass(frozen=True)
class DocumentRules:
    """Rules, and the groups of documents.

    Attributes:
        constraints: the rules.
        path: the table.
        places: the row of each document.
        columns: the groups of the rows, by column.
    """

    constraints: Constraints
    path: Path
    places: Mapping[str, int]
    columns: Mapping[str, Groups]

    @classmethod
    def read(cls, rules: Sequence[str], path: str | Path) -> DocumentRules:
        """Read a CSV, Parquet or Arrow file with a column of document ids, `docid`, and one for each that the rules are about.

        Raises:
            ValueError: a text is no rule.
            DataError: the file is malformed, lacks a column, has a document twice, or none of a group that a rule names.
        """
        constraints = Constraints(*rules)
        table = TableReader(path, {"docid": None}, argument="")
        for name in constraints.columns:
            if name not in table.names:
                raise missing_column(table, name, name, table.names)
        docid, names = table.columns["docid"], list(constraints.columns)
        ids: list[str] = []
        cells: dict[str, list[Any]] = {name: [] for name in names}
        read = list(dict.fromkeys([docid, *names]))
        for batch in table.batches(read, read):
            ids += as_names(table.ids(docid, batch.column(docid), len(ids))).tolist()
            for name in names:
                cells[name] += batch.column(name).to_pylist()
        places = {name: row for row, name in enumerate(ids)}
        if len(places) < len(ids):
            again = next(name for row, name in enumerate(ids) if places[name] != row)
            raise DataError(f"{path}: expected each document once, got {again!r} several times")
        try:
            columns = {name: group_ids(name, cells[name]) for name in names}
            told = unknown_groups(constraints, columns, quotas=True)
        except ValueError as error:
            raise DataError(f"{path}: {error}") from None
        for said in told:  # of all documents, so it is a mistake
            raise DataError(f"{path}: {said}")
        return cls(constraints, Path(path), places, columns)

    def described(self) -> dict[str, Any]:
        """All that they are, for a request."""
        return {"rules": [str(rule) for rule in self.constraints.rules], "columns": digest_of(str(self.path))}

    def groups(self, docids: Any, source: object) -> dict[str, Groups]:
        """The groups of documents by id, by column.

        Raises:
            DataError: documents of `source` have no ids, or none of them is in the table.
        """
        if docids is None:
            raise DataError(
                f"{source}: expected documents with ids, by which {self.path} has their groups; it has none"
            )
        rows = np.array([self.places.get(each, -1) for each in docids], np.int64)
        check_matched(
            rows >= 0, docids, what=f"documents of {source}", source=str(self.path), advice="they have no groups"
        )
        return {
            name: Groups(np.where(rows >= 0, ids[rows], NO_GROUP) if len(ids) else ids, names)
            for name, (ids, names) in self.columns.items()
        }

    def report(
        self,
        scores: Any,
        labels: Any,
        measures: Sequence[str],
        offsets: Any,
        qids: Any,
        docids: Any,
        source: object,
        **options: Any,
    ) -> UnderRules:
        """As `report_under`, for documents by id; messages name the query.

        Raises:
            DataError: as `groups`; or no ranking of a query keeps the rules.
        """
        groups = self.groups(docids, source)
        try:
            return report_under(scores, labels, list(measures), self.constraints, groups, offsets=offsets, **options)
        except ValueError as error:
            raise DataError(f"{source}: {naming_lists(str(error), 'query', qids)}") from None

    def ranks(self, data: RankingData, scores: np.ndarray, source: Path) -> np.ndarray:
        """The rank of each document under the rules, 0 for those not shown.

        Raises:
            DataError: as `report`.
        """
        groups = self.groups(data.docids, source)
        try:
            return rank_under(scores, self.constraints, groups, offsets=data.offsets).numpy()
        except ValueError as error:
            raise DataError(f"{source}: {naming_lists(str(error), 'query', data.qids)}") from None


def rule_table(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of the lists that break each rule."""
    return ["lists that break", "by score", "under rules"], [[rule, before[rule], after[rule]] for rule in before]


def rules_of(given: Any) -> DocumentRules | None:
    """Those of the parsed options of a command, None without; raises ValueError without a table."""
    if given.constraints is None:
        return None
    if given.columns is None:
        raise ValueError("--constraints needs --columns FILE, a table with the groups of documents by docid")
    return DocumentRules.read(given.constraints, given.columns)


def rule_section(result: Mapping[str, Any]) -> str:
    """The part of a model card on the rules for a page; nothing without."""
    if (known := result.get("constraints")) is None:
        return ""
    text = "## Rules for a page\n\n" + "\n".join(f"- `{rule}`" for rule in known["rules"])
    if "values" in known:
        values = [[name, each["mean"], *each["interval"]] for name, each in known["values"].items()]
        text += f"""

{format_table(["under rules", "test mean", "95 % from", "to"], values, "github")}

{format_table(*rule_table(known["before"], known["after"]), "github")}

Relative to the best page of each test list that keeps the rules, and the number of test lists whose ranking breaks each rule."""
    return (
        f"{text}\n\nNothing was learned from them; `rankstruct predict --columns FILE` ranks new lists under them.\n\n"
    )
