"""`rankstruct export`: write a trained scorer for a search engine, with the features that it expects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from rankstruct.commands._options import parser_of
from rankstruct.data.dataset import RankingData
from rankstruct.data.predictions import read_for_model
from rankstruct.estimators.training_data import dense
from rankstruct.models import export_scorer, load_scorer
from rankstruct.models.engine_scores import engine_scores
from rankstruct.models.engines import features_of
from rankstruct.models.scorers import scores_of, split_preparation, trained_names


def main(args: Sequence[str]) -> None:
    """Write the files, and with `--check` compare their scores with those of the scorer."""
    given = parser_of("export").parse_args(args[1:])
    scorer = load_scorer(given.run)
    names = None if given.feature_names is None else given.feature_names.split(",")
    data = None
    if given.check is not None:  # before anything is written
        data = read_for_scorer(scorer, given.check)
    for path in export_scorer(scorer, given.output, given.engine, feature_names=names):
        print(f"written: {path}")
    if data is None:
        return
    X = dense(data.features).astype(np.float32)
    if given.output.suffix == ".onnx" and getattr(scorer, "by_list", False):
        raise ValueError("--check needs a scorer of single documents; this one depends on the list")
    with torch.inference_mode():
        expected = scores_of(scorer, torch.from_numpy(X)).double().numpy()
    if len(unknown := np.flatnonzero(np.isnan(expected))):
        raise ValueError(
            f"{given.check}: {len(unknown)} documents have no score, such as that of row {unknown[0]}: they have missing cells, "
            "and training had none; fill them, as the engine does with 0, or train with missing cells"
        )
    found = engine_scores(given.output, given.engine, X, features_of(scorer, given.engine, names))
    spread = float(np.ptp(expected)) or 1.0
    difference = float(np.abs(found - expected).max())
    print(
        f"largest difference of {len(X)} scores: {difference:.2g}, {difference / spread:.2g} of their range, computed as the "
        "engine does from the file"
    )
    if not difference <= 1e-4 * spread:
        raise ValueError(
            f"{given.output}: scores differ by {difference / spread:.2g} of their range; missing cells that training did not "
            "have are 0 in engines, and very large features lose digits in float32"
        )


def read_for_scorer(scorer: nn.Module, path: Path, **options: Any) -> RankingData:
    """Read lists with the features of a scorer; `options` are those of `read_lists`."""
    names = features_of(scorer, "onnx", None)
    named = names if trained_names(scorer) else None
    return read_for_model(path, named, len(names), split_preparation(scorer)[1].columns, **options)
