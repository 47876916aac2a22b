"""Scores where tables are: a fitted model as a function of Ray Data, of Spark, and of shards.

Columns of features are found by name, as those of training, in any order and next to others; missing cells and categories that
training did not have are what they are to the model. A model whose scores depend on the other documents of a list gets whole
lists, one at a time from Ray and Spark. The engines divide, shuffle, retry and store; nothing here does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from rankstruct.columns import as_arrow, find_column, named_columns, numbers
from rankstruct.messages import did_you_mean, import_extra

__all__: list[str] = []


@dataclass(frozen=True)
class TableScorer:
    """A fitted model that scores tables; it can be pickled if the model can.

    Args:
        score: maps an Arrow table of the features, and the list of each document or None, to scores `[documents]`.
        features: the columns of features, in the order of training.
        by_list: whether scores depend on the other documents of the list.
        qid: the column of lists, which only `by_list` needs; None to find it by its usual names.
        output: the new column.
    """

    score: Callable[[Any, np.ndarray | None], np.ndarray]
    features: tuple[str, ...]
    by_list: bool = False
    qid: str | None = None
    output: str = "score"
    last: list[Any] = field(default_factory=list, repr=False)  # the list that `of_one_list` saw last

    def list_column(self, names: Sequence[str]) -> str | None:
        """The column of lists, if it is needed; raises ValueError if a column is not there, or `output` is."""
        there = ", ".join(map(repr, names))[:200]
        if lacking := [name for name in self.features if name not in names]:
            hint = did_you_mean(lacking[0], names) or f"; there are {there}"
            raise ValueError(
                f"the table must have the columns of training; missing: {', '.join(map(repr, lacking))[:200]}{hint}"
            )
        if self.output in names:
            raise ValueError(f"output must be a new column, got {self.output!r}, which the table has; name another one")
        if not self.by_list:
            return None
        found = find_column(names, "qid", self.qid)
        if found is None:
            raise ValueError(
                f"qid must be the column of lists, since the scores depend on the whole list; got {self.qid!r}, and there are "
                f"{there}"
            )
        return found

    def scores(self, table: Any) -> np.ndarray:
        """Scores `[documents]`, float64, of a data frame, an Arrow table or a mapping of names to columns."""
        columns = named_columns(table)
        qid = self.list_column(list(columns))
        ids = None if qid is None else as_arrow(qid, columns[qid], where="")
        if ids is not None and ids.null_count:
            raise ValueError(f"{qid!r} must name the list of each document; it is missing in {ids.null_count} rows")
        pa = import_module("pyarrow")
        features = pa.table({name: as_arrow(name, columns[name], where="") for name in self.features})
        if not len(features):
            return np.zeros(0)
        found = self.score(features, None if ids is None else ids.to_numpy(zero_copy_only=False))
        return np.asarray(found, np.float64)

    def add(self, table: Any) -> Any:
        """A table, of the same kind, with the scores as another column."""
        scores = self.scores(table)
        if hasattr(table, "iloc"):
            return table.assign(**{self.output: scores})
        if not hasattr(table, "append_column"):
            return {**table, self.output: scores}
        return table.append_column(self.output, import_module("pyarrow").array(scores))

    def of_one_list(self, table: Any) -> Any:
        """`add` for a batch of Ray, which for a model of lists must be one whole list.

        Raises:
            ValueError: a batch of several lists, or one that goes on with the list of the batch before.
        """
        columns = named_columns(table)
        if (qid := self.list_column(list(columns))) is not None:
            lists = as_arrow(qid, columns[qid], where="").unique().to_pylist()
            if len(lists) > 1 or (lists and lists == self.last):
                raise ValueError(
                    f"the scores depend on the whole list, and batches divide lists: use dataset.groupby({qid!r})"
                    ".map_groups(...) in place of dataset.map_batches(...)"
                )
            self.last[:] = lists
        return self.add(table)

    def batches(self, tables: Iterator[Any]) -> Iterator[Any]:
        """`add` for each of several tables."""
        return map(self.add, tables)


class ScoresTables:
    """Base of fitted models that score tables."""

    def _table_scorer(self, qid: str | None, features: Sequence[str] | None, output: str) -> TableScorer:
        raise NotImplementedError

    def for_ray(
        self, qid: str | None = None, *, features: Sequence[str] | None = None, output: str = "score"
    ) -> type[Any]:
        """A class for `ray.data.Dataset.map_batches`, which adds a column of scores to batches of any format.

        A model whose scores depend on the whole list, such as an ensemble, or one with a step `query-zscore`, needs
        `groupby(qid).map_groups` in its place, and refuses batches of several lists.

        Args:
            qid: the column of lists, if the scores depend on them; None to find it by its usual names.
            features: the columns of features in the order of training, if it had no names.
            output: the new column, float64.

        Raises:
            ImportError: Ray is not installed.
            ValueError: no names of features; in the workers, columns that are missing, lists that are divided.

        >>> import rankstruct as rs
        >>> ranker = rs.BoostedRanker().fit(frame)                                          # doctest: +SKIP
        >>> scored = ray.data.read_parquet("new").map_batches(ranker.for_ray())             # doctest: +SKIP
        >>> ensemble = rs.AutoRanker().fit(frame).for_ray("qid")                            # doctest: +SKIP
        >>> scored = ray.data.read_parquet("new").groupby("qid").map_groups(ensemble)       # doctest: +SKIP
        """
        import_extra("ray", "ray")
        scorer = self._table_scorer(qid, features, output)

        class Scored:
            """Adds scores to a batch."""

            def __call__(self, batch: Any) -> Any:
                return scorer.of_one_list(batch)

        return Scored

    def for_spark(
        self, qid: str | None = None, *, features: Sequence[str] | None = None, output: str = "score"
    ) -> Callable[[Any], Any]:
        """A function for `pyspark.sql.DataFrame.transform`, which adds a column of scores.

        Spark runs the model by `mapInArrow`; one whose scores depend on the whole list, by `groupBy(qid).applyInArrow`, so that
        each list is whole, whatever the partitions. Arguments are those of `for_ray`.

        Raises:
            ImportError: PySpark is not installed.
            ValueError: no names of features; at `transform`, columns that are missing.

        >>> import rankstruct as rs
        >>> scorer = rs.load_scorer("scorer.pt")                                            # doctest: +SKIP
        >>> spark.read.parquet("new").transform(scorer.for_spark())                         # doctest: +SKIP
        """
        types = import_extra("pyspark.sql.types", "spark")
        scorer = self._table_scorer(qid, features, output)

        def scored(frame: Any) -> Any:
            lists = scorer.list_column(frame.columns)
            schema = types.StructType([*frame.schema.fields, types.StructField(output, types.DoubleType())])
            if lists is None:
                return frame.mapInArrow(scorer.batches, schema)
            # Spark counts the arguments of what it is given, and those of a method one too many.
            return frame.groupBy(lists).applyInArrow(lambda table: scorer.add(table), schema)

        return scored


def matrix(table: Any) -> np.ndarray:
    """An Arrow table of numbers as a matrix `[documents, d]`, float64; what is missing is NaN."""
    columns = named_columns(table)
    return np.stack([numbers("", name, as_arrow(name, each)).astype(np.float64) for name, each in columns.items()], 1)


def feature_columns(known: Sequence[str] | None, given: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of features: those of training, or if it had no names, those given."""
    if isinstance(given, str):
        raise ValueError(f"features must be a list of names, got {given!r}")
    if known is None and given is None:
        raise ValueError("features must name the columns in the order of training, which had no names; got None")
    if known is not None and given is not None and list(known) != list(given):
        raise ValueError(f"features must be those of training, or omitted; training had {', '.join(known)[:200]}")
    chosen = known if given is None else given
    return () if chosen is None else tuple(chosen)
