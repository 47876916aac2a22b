"""The one reader of tables: the same columns from every file and frame, by role."""

import numpy as np
import pytest

import rankstruct as rs
from rankstruct.clicks import ClickLog
from rankstruct.columns import as_table
from rankstruct.data import DataError
from rankstruct.data.tables import TableReader

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")

COLUMNS = {
    "user": ["b", "a", "b", "00"],
    "item": [2**53 + 1, 7, 7, 2**53],
    "timestamp": ["2024-01-02", "2024-01-03", "2024-01-02", "2024-01-04"],
    "rating": [0.5, None, 2.0, 1.0],
}


class Relation:
    """What has Arrow's C stream protocol, such as a DuckDB relation."""

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.table(COLUMNS).__arrow_c_stream__(requested_schema)


def source(kind, folder):
    table = pa.table(COLUMNS)
    if kind == "csv":
        table.to_pandas().astype({"item": str}).to_csv(folder / "x.csv", index=False)
        return folder / "x.csv"
    if kind == "parquet":
        parquet.write_table(table, folder / "x.parquet", row_group_size=2)
        return folder / "x.parquet"
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(COLUMNS)
    return {"arrow": table, "batch": table.to_batches()[0], "relation": Relation()}[kind]


KINDS = [
    "csv",
    "parquet",
    "pandas",
    pytest.param("polars", marks=pytest.mark.needs("polars")),
    "arrow",
    "batch",
    "relation",
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_has_the_same_columns(kind, tmp_path):
    given = source(kind, tmp_path)
    table = TableReader(
        given, {"user": None, "item": None, "time": None, "rating": None, "click": None}, optional=("click",)
    )
    assert table.names == list(COLUMNS)
    assert table.columns == {"user": "user", "item": "item", "time": "timestamp", "rating": "rating"}
    found = table.read(["rating"])
    assert found["user"].rows.tolist() == COLUMNS["user"]
    assert list(map(int, found["item"].rows)) == COLUMNS["item"]
    np.testing.assert_array_equal(found["rating"], [0.5, np.nan, 2, 1])
    assert found["time"].tolist() == [1704153600, 1704240000, 1704153600, 1704326400]
    with pytest.raises(DataError, match="there is no column 'who'; there are 'user, item, timestamp, rating'"):
        TableReader(given, {"user": "who"})


def test_frames_with_the_protocol_are_tables():
    assert as_table("X", Relation()).column_names == list(COLUMNS)
    log = pa.table({"query": [1, 1], "document": ["a", "b"], "position": [1, 2], "click": [0, 1]})
    for given in (log, log.to_pandas(), log.to_batches()[0]):
        assert ClickLog.read(given).documents.tolist() == ["a", "b"]


def test_tables_with_tabs_may_be_named_so(tmp_path):
    text = "qid\tlabel\tx\n1\t0\t0.5\n1\t1\t2\n"
    (tmp_path / "train.tsv").write_text(text)
    (tmp_path / "train.csv").write_text(text)
    found, expected = (rs.data.read_lists(tmp_path / f"train.{suffix}") for suffix in ("tsv", "csv"))
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.features, expected.features)
    (tmp_path / "test.tsv").write_text("x\ty\n1\t2\n")
    with pytest.raises(DataError, match=r"got a \.tsv file without a column 'qid'"):
        rs.data.read_lists(tmp_path / "test.tsv")
