"""Boosted trees on Dask collections, by the distributed training of LightGBM and XGBoost, which take our losses as objective.

Each worker computes the gradient of its own lists, so lists are whole: if rows of one are in two partitions, Dask's shuffle moves
them together. Trees are grown from the sums over all workers. Their thresholds are those of bins that each worker finds in its
own rows (LightGBM) or of merged sketches (XGBoost), so that the trees are about those of a single machine, not the same.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch

from rankstruct.columns import find_column
from rankstruct.measures import Measure, evaluate
from rankstruct.messages import import_extra

__all__: list[str] = []

_log = logging.getLogger(__name__)
_LABEL, _LIST = "__label__", "__list__"  # columns of prepared partitions


class DaskLists(NamedTuple):
    """Whole lists in the memory of the workers.

    Attributes:
        parts: partitions with rows, pandas frames in which the rows of a list are together.
        sizes: of each partition, the sizes of its lists.
        grades: the different labels.
        features: the columns of features.
        roles: the columns that are not features, by role, if they were found in a frame.
        named: whether features have names.
    """

    parts: list[Any]
    sizes: list[np.ndarray]
    grades: np.ndarray
    features: list[str]
    roles: dict[str, str]
    named: bool

    @property
    def num_lists(self) -> int:
        """The number of lists."""
        return sum(map(len, self.sizes))

    @property
    def num_documents(self) -> int:
        """The number of documents."""
        return int(sum(each.sum() for each in self.sizes))

    def frame(self) -> tuple[Any, Any, Any]:
        """Features, labels and ascending numbers of lists, with these partitions."""
        dask, frames = import_module("dask"), import_module("dask.dataframe")
        firsts = np.cumsum([0, *map(len, self.sizes)])
        parts = [dask.delayed(_numbered)(part, int(at)) for part, at in zip(self.parts, firsts, strict=False)]
        whole = frames.from_delayed(parts, verify_meta=False)
        return whole[self.features], whole[_LABEL], whole[_LIST]

    def arrays(self) -> tuple[Any, Any, Any]:
        """The same as arrays, without names, which a worker without lists could not have."""
        dask, arrays = import_module("dask"), import_module("dask.array")
        firsts = np.cumsum([0, *map(len, self.sizes)])
        found: list[list[Any]] = [[], [], []]
        for part, sizes, at in zip(self.parts, self.sizes, firsts, strict=False):
            rows, width = int(sizes.sum()), len(self.features)
            made = dask.delayed(_split, nout=3)(part, self.features, int(at))
            for parts, each, shape, kind in zip(
                found, made, ((rows, width), (rows,), (rows,)), ("f8", "f4", "i8"), strict=True
            ):
                parts.append(arrays.from_delayed(each, shape, np.dtype(kind)))
        X, y, numbers = (arrays.concatenate(parts) for parts in found)
        return X, y, numbers

    def groups(self) -> Any:
        """The sizes of the lists, with these partitions."""
        pandas = import_module("pandas")
        parts = [import_module("dask").delayed(pandas.Series)(each, dtype="int64") for each in self.sizes]
        return import_module("dask.dataframe").from_delayed(parts, meta=pandas.Series([], dtype="int64"))


def client() -> Any:
    """The client of Dask; raises ImportError or ValueError if there is none."""
    distributed = import_extra("distributed", "dask")
    try:
        return distributed.default_client()
    except ValueError as error:
        raise ValueError(
            "X is a Dask collection, and there is no cluster; start one, such as dask.distributed.Client('10.0.0.1:8786')"
        ) from error


def whole_lists(X: Any, y: Any, qid: Any, names: Sequence[Any], drop_empty: bool) -> DaskLists:
    """Lists of Dask collections, each whole on one worker.

    Args:
        X: a Dask data frame or array.
        y: labels, or the name of their column; None to find it.
        qid: the same for lists.
        names: how messages call these three.
        drop_empty: whether lists whose labels are all equal are left out.

    Raises:
        ValueError: columns that are not found or are not numbers, labels below 0 or missing, no lists.
    """
    dask, workers = import_module("dask"), client()
    frame, features, roles = _one_frame(X, y, qid, names)
    marks = dask.compute(*(dask.delayed(_marks)(part) for part in frame.to_delayed()))
    if len(np.unique(np.concatenate(marks))) < sum(map(len, marks)):
        _log.info("rows of the same list are in several partitions: Dask moves them together")
        frame = frame.shuffle(on=_LIST)
    parts = workers.persist([dask.delayed(_grouped)(part, features, drop_empty) for part in frame.to_delayed()])
    found = dask.compute(*(dask.delayed(_summary)(part) for part in parts))
    grades = np.unique(np.concatenate([grades for _, grades, _ in found]))
    if len(grades) and not (np.isfinite(grades).all() and grades[0] >= 0):
        raise ValueError(f"{names[1]} must be finite and at least 0, got {grades[[0, -1]].tolist()}")
    if missing := sum(number for *_, number in found):
        raise ValueError(f"{names[2]} must name the list of each document; it is missing in {missing} rows")
    kept = [at for at, (sizes, *_) in enumerate(found) if len(sizes)]
    if not kept:
        raise ValueError(f"{names[0]}: no list can be learned from: there is none, or in each all labels are equal")
    named = hasattr(X, "columns")
    return DaskLists([parts[at] for at in kept], [found[at][0] for at in kept], grades, features, roles, named)


def _one_frame(X: Any, y: Any, qid: Any, names: Sequence[Any]) -> tuple[Any, list[str], dict[str, str]]:
    """A frame with features, labels and lists; the features, and the columns of roles."""
    dask, frames = import_module("dask"), import_module("dask.dataframe")
    if hasattr(X, "columns"):
        columns, roles, given = list(map(str, X.columns)), {}, {}
        for role, name, value, column in (("label", names[1], y, _LABEL), ("qid", names[2], qid, _LIST)):
            if value is None or isinstance(value, str):
                found = find_column(columns, role, value, name)
                if found is None:
                    there = ", ".join(map(repr, columns))[:200]
                    raise ValueError(f"{name} is missing, and {names[0]} has no such column; there are {there}")
                roles[role], value = found, X[found]
            elif not hasattr(value, "__dask_graph__"):
                raise ValueError(
                    f"{name} must be a Dask collection as {names[0]} is, or the name of a column; got {type(value)}"
                )
            elif getattr(value, "name", None) in columns and hasattr(value, "to_frame"):
                roles[role] = value.name
            given[column] = value
        features = [name for name in columns if name not in roles.values()]
        words = [name for name in features if getattr(X[name].dtype, "kind", "O") not in "biuf"]
        if words:
            raise ValueError(
                f"{names[0]} must have numbers on Dask, got column {words[0]!r} of {X[words[0]].dtype}; encode categories, "
                "such as by ddf.categorize() and cat.codes"
            )
        return X[features].assign(**given), features, roles
    for name, value in zip(names[1:], (y, qid), strict=True):
        if not hasattr(value, "__dask_graph__"):
            raise ValueError(f"{name} must be a Dask collection as {names[0]} is, got {type(value).__name__}")
    X = X.rechunk({1: -1})
    if np.isnan(X.shape[0]):
        X = X.compute_chunk_sizes()
    y, qid = (each.to_dask_array(lengths=True) if hasattr(each, "to_dask_array") else each for each in (y, qid))
    for name, value in zip(names[1:], (y, qid), strict=True):
        if value.shape != X.shape[:1]:
            raise ValueError(f"{name} must have one entry per document, shape {X.shape[:1]}, got {value.shape}")
    blocks = [X.to_delayed()[:, 0], *(each.rechunk(X.chunks[:1]).to_delayed() for each in (y, qid))]
    features = [f"f{at}" for at in range(X.shape[1])]
    parts = [dask.delayed(_assembled)(*each, features) for each in zip(*blocks, strict=True)]
    return frames.from_delayed(parts, verify_meta=False), features, {}


def _assembled(X: Any, y: Any, qid: Any, features: list[str]) -> Any:
    return import_module("pandas").DataFrame(X, columns=features).assign(**{_LABEL: y, _LIST: qid})


def _marks(part: Any) -> np.ndarray:
    """A hash of each list of a partition."""
    return np.unique(import_module("pandas").util.hash_pandas_object(part[_LIST], index=False).to_numpy())


def _grouped(part: Any, features: list[str], drop_empty: bool) -> Any:
    """The rows of a partition by list, with features in one type, without lists of one label."""
    part = part[[*features, _LABEL, _LIST]].sort_values(_LIST, kind="stable", ignore_index=True)
    kinds = {name: "float32" if part[name].dtype == "float32" else "float64" for name in features}
    part = part.astype({**kinds, _LABEL: "float32"})
    if drop_empty:
        labels = part.groupby(_LIST, sort=False, dropna=False)[_LABEL]
        different = labels.transform("min") < labels.transform("max")
        # Wrong labels and rows without a list stay, to be told.
        part = part[different | part[_LABEL].isna() | (part[_LABEL] < 0) | part[_LIST].isna()].reset_index(drop=True)
    return part


def _summary(part: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """The sizes of the lists of a partition, its labels, and the number of rows without a list."""
    sizes = part.groupby(_LIST, sort=False).size().to_numpy(np.int64)
    return sizes, np.unique(part[_LABEL].to_numpy()), int(part[_LIST].isna().sum())


def _numbered(part: Any, first: int) -> Any:
    return part.assign(**{_LIST: first + part.groupby(_LIST, sort=False).ngroup().to_numpy()})


def _split(part: Any, features: list[str], first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    part = _numbered(part, first)
    return part[features].to_numpy(np.float64), part[_LABEL].to_numpy(), part[_LIST].to_numpy()


class Seeded:
    """An objective with noise of its own on each worker and in each round, which is the same in each run."""

    def __init__(self, objective: Callable[..., Any], seed: int) -> None:
        self.objective, self.seed, self.rounds = objective, seed, 0

    def __call__(self, first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return gradient and second derivatives of a worker's lists."""
        labels = np.ascontiguousarray(second.get_label() if hasattr(second, "get_label") else first)
        self.rounds += 1
        with torch.random.fork_rng([]):
            torch.manual_seed(zlib.crc32(labels.tobytes(), self.seed) + self.rounds)
            gradient, hessian = self.objective(first, second, weight, group)
        return gradient, hessian


class SummedMetric:
    """The mean of a measure over the lists of all workers, as XGBoost's evaluation function."""

    def __init__(self, measure: Measure) -> None:
        self.measure = measure

    def __call__(self, scores: np.ndarray, data: Any) -> tuple[str, float]:
        """Return its name and the mean; each worker is asked at once."""
        collective, sums = import_module("xgboost.collective"), np.zeros(2)
        if data.num_row():
            offsets = np.concatenate([[0], np.cumsum(data.get_group())]).astype(np.int64)
            values = evaluate(scores, data.get_label(), [self.measure], offsets=offsets)[self.measure.name].numpy()
            sums[:] = values.sum(), len(values)
        total = collective.allreduce(sums, collective.Op.SUM)
        return self.measure.name, float(total[0] / total[1])


def grow_lightgbm(lists: DaskLists, objective: Any, options: dict[str, Any], trees: int) -> str:
    """Trees of LightGBM, as its text."""
    X, y, _ = lists.frame()
    kind = import_module("lightgbm").DaskLGBMRanker
    options = {**options, "objective": objective}
    del options["num_threads"]  # those of the workers
    model = kind(client=client(), n_estimators=trees, **options)
    return model.fit(X, y, group=lists.groups()).booster_.model_to_string()


def grow_xgboost(
    lists: DaskLists,
    valid: DaskLists | None,
    objective: Any,
    measure: Measure,
    options: dict[str, Any],
    trees: int,
    patience: int,
) -> tuple[Any, list[float]]:
    """Trees of XGBoost, and the measure of the validation lists after each."""
    xgboost, on_dask, workers = import_module("xgboost"), import_module("xgboost.dask"), client()

    def matrix(some: DaskLists) -> Any:
        X, y, numbers = some.arrays()
        return on_dask.DaskDMatrix(workers, X, y, qid=numbers)

    given: dict[str, Any] = {}
    if valid is not None:
        stop = xgboost.callback.EarlyStopping(patience, metric_name=measure.name, data_name="valid", maximize=True)
        given = {"evals": [(matrix(valid), "valid")], "custom_metric": SummedMetric(measure), "callbacks": [stop]}
        options = {**options, "disable_default_eval_metric": True}
    options = {name: value for name, value in options.items() if name != "nthread"}  # those of the workers
    found = on_dask.train(workers, options, matrix(lists), trees, obj=objective, verbose_eval=False, **given)
    return found["booster"], list(found["history"].get("valid", {}).get(measure.name, []))
