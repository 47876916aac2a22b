"""Tables to predict: matched to the features of training by name, whatever their labels, order and further columns."""

import logging

import numpy as np
import pytest

from rankstruct.data import DataError
from rankstruct.data.predictions import read_for_model

pa = pytest.importorskip("pyarrow")

NAMES = ["f1", "f2", "y"]  # a feature with a usual name of labels
X = np.arange(18.0).reshape(6, 3)
COLUMNS = {"qid": [1, 1, 1, 2, 2, 2], "label": [0, 1, 0, 2, 0, 1], **dict(zip(NAMES, X.T.tolist(), strict=True))}


def without(*names):
    return {name: values for name, values in COLUMNS.items() if name not in names}


SAME = {
    "as in training": COLUMNS,
    "without labels": without("label"),
    "lists with another usual name": {"query_id": COLUMNS["qid"], **without("qid", "label")},
    "missing labels": COLUMNS | {"label": [None, 1, None, 0, 1, 2]},
    "labels that are NaN": COLUMNS | {"label": [float("nan")] * 6},
    "labels that are empty": COLUMNS | {"label": [None] * 6},
    "negative labels": COLUMNS | {"label": [-1.5] * 6},
    "another order": dict(reversed(COLUMNS.items())),
    "another order, without labels": dict(reversed(without("label").items())),
}
MORE = {
    "a column of numbers": ({"price": [1.5] * 6}, "price"),
    "a column of text": ({"title": ["a, b", "c", "d", "e", "f", "g"]}, "title"),
    "several": ({"day": ["2024-01-01"] * 6, "flag": [True] * 6}, "day, flag"),
}


def written(columns, path):
    table = pa.table(columns)
    if path.suffix == ".csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path)
    else:
        import pyarrow.feather

        pyarrow.feather.write_feather(table, str(path))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize("what", SAME)
def test_features_are_matched_by_name_and_labels_are_ignored(what, suffix, tmp_path):
    data = read_for_model(written(SAME[what], tmp_path / f"new{suffix}"), NAMES, 3)
    np.testing.assert_array_equal(data.features, X)
    assert data.qids.tolist() == ["1", "2"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("what", MORE)
def test_further_columns_are_left_out_and_named(what, labels, suffix, tmp_path, caplog):
    more, names = MORE[what]
    path = written({**more, **(COLUMNS if labels else without("label"))}, tmp_path / f"new{suffix}")
    with caplog.at_level(logging.WARNING):
        data = read_for_model(path, NAMES, 3)
    np.testing.assert_array_equal(data.features, X)
    assert f"{path}: columns that are no features of training are left out: {names}" in caplog.text


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize("labels", [True, False])
def test_missing_features_are_named(labels, suffix, tmp_path):
    columns = without("f2", "y") if labels else without("f2", "y", "label")
    path = written({**columns, "F2": [0.5] * 6}, tmp_path / f"new{suffix}")
    with pytest.raises(DataError, match=r"expected the features 'f1, f2, y', .*; missing: 'f2', 'y'; unknown: 'F2'$"):
        read_for_model(path, NAMES, 3)


def test_lists_without_labels_are_only_read_for_a_model(tmp_path):
    (tmp_path / "new.txt").write_text("qid:1 1:0.5\n")
    with pytest.raises(DataError, match=r"new\.txt:1: expected .* label, got 'qid:1'; add one in front, such as 0"):
        read_for_model(tmp_path / "new.txt", None, 1)
