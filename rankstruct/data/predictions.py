"""What `predict` reads and leaves: lists with the features of a model; a file of scores, and a TREC run where names allow one."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import DataError, shortened
from rankstruct.data.formats import feature_names, options_for_model, read_lists
from rankstruct.data.runs import write_run, write_scores

__all__: list[str] = []

_log = logging.getLogger(__name__)


def read_for_model(path: str | Path, names: list[str] | None, num_features: int, **options: Any) -> RankingData:
    """Lists with the features that a model was trained on, by their names if both have some; labels may be any numbers.

    Args:
        path: the file.
        names: of the features in training, None where they had numbers alone.
        num_features: how many they were.
        options: others of `read_lists`.

    Raises:
        DataError: the file breaks its format, or has other features.
    """
    data = read_lists(path, labels="real", **options_for_model(path, names, num_features), **options)
    if data.num_features != num_features:
        raise DataError(f"{path}: expected {num_features} features, as many as in training, got {data.num_features}")
    _tell_order(path, names, num_features)
    return data


def _tell_order(path: str | Path, names: list[str] | None, num_features: int) -> None:
    """Say that features are taken by their order where either side has no names, so that a wrong order is noticed."""
    there = feature_names(path)
    if (there is None) != (names is None) and len(known := there or names or []) == num_features:
        where = "in training" if there is None else "there, which training had not"
        _log.warning("%s: features are taken in their order, by the names %s: %s", path, where, ", ".join(known)[:200])


def write_predictions(folder: Path, data: RankingData, scores: ArrayLike) -> list[str]:
    """Write `scores.txt`, `[documents]` in the order of the data, and `run.txt`; returns what to tell the user.

    Where names cannot be told apart in a run there is none, not even an earlier one, and the user is told why.
    """
    run = folder / "run.txt"
    run.unlink(missing_ok=True)  # of other lists
    write_scores(folder / "scores.txt", scores)
    told = [f"scores of {data.num_documents} documents: {folder / 'scores.txt'}"]
    try:
        _check_documents(data)
        write_run(run, data, scores, tag="rankstruct")
    except ValueError as error:
        return [*told, f"no TREC run: {error}"]
    return [*told, f"TREC run of {data.num_lists} lists: {run}"]


def _check_documents(data: RankingData) -> None:
    """Raise DataError where a document is in a list twice, which no run may have."""
    if data.docids is None:
        return
    for qid, (first, last) in zip(data.qids.tolist(), pairwise(data.offsets.tolist()), strict=True):
        seen: set[str] = set()
        for name in filter(None, data.docids[first:last].tolist()):
            if name in seen:
                raise DataError(f"document {shortened(name)} is in query {shortened(qid)} more than once")
            seen.add(name)
