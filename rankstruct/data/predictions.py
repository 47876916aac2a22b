"""Input and output of `predict`: lists with the features of a model; a file of scores, and a TREC run if names allow one."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from rankstruct.calibration import Calibration
from rankstruct.columns import Columns
from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import DataError
from rankstruct.data.folds import chosen_categories, recoded
from rankstruct.data.formats import feature_names, options_for_model, read_lists
from rankstruct.data.runs import write_run, write_scores

__all__: list[str] = []

_log = logging.getLogger(__name__)


def read_for_model(
    path: str | Path,
    names: list[str] | None,
    num_features: int,
    columns: Columns | None = None,
    *,
    labels: str = "optional",
    **options: Any,
) -> RankingData:
    """Read lists with the features that a model was trained on, matched by name if both have names.

    Labels may be any numbers, and tables may lack them, which are then 0. Further columns of a table are left out, which is
    logged as a warning.

    Args:
        path: the file.
        names: the feature names in training, None if features had only numbers.
        num_features: the number of features in training.
        columns: the columns in training, if some are categorical.
        labels: as for `read_lists`.
        options: further options of `read_lists`.

    Raises:
        DataError: the file is malformed, or has other features.
    """
    names = columns.names if names is None and columns is not None else names
    wanted = options_for_model(path, names, num_features, **options)
    if "features" in wanted:
        options |= chosen_categories(columns)
    data = recoded(read_lists(path, labels=labels, **wanted, **options), columns, path)
    if data.num_features != num_features:
        raise DataError(f"{path}: expected {num_features} features, as in training, got {data.num_features}")
    _tell_order(path, names, feature_names(path, **options), num_features)
    return data


def _tell_order(path: str | Path, names: list[str] | None, there: list[str] | None, num_features: int) -> None:
    """Warn if features are matched by order because one side has no names, so that a wrong order is noticed."""
    if (there is None) != (names is None) and len(known := there or names or []) == num_features:
        where = "in training, and the file has none" if there is None else "in the file, and the model has none"
        _log.warning("%s: features are matched by order; they have names %s: %s", path, where, ", ".join(known)[:200])


def write_predictions(
    folder: Path, data: RankingData, scores: ArrayLike, calibration: Calibration | None = None
) -> list[str]:
    """Write `scores.txt`, `[documents]` in the order of the data, and `run.txt`; returns messages for the user.

    With a calibration also `probabilities.txt`. If names are ambiguous in a run, none is written, an earlier one is removed, and
    a message explains why.
    """
    run, probabilities = folder / "run.txt", folder / "probabilities.txt"
    for file in (run, probabilities):
        file.unlink(missing_ok=True)  # of other lists
    write_scores(folder / "scores.txt", scores)
    messages = [f"scores of {data.num_documents} documents: {folder / 'scores.txt'}"]
    if calibration is not None:
        write_scores(probabilities, calibration.predict(scores).numpy())
        messages.append(f"probabilities of relevance of these documents: {probabilities}")
    try:
        write_run(run, data, scores, tag="rankstruct")
    except ValueError as error:
        return [*messages, f"no TREC run: {error}"]
    return [*messages, f"TREC run of {data.num_lists} lists: {run}"]
