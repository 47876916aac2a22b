"""Click logs: what they hold, from arrays and files, and what is refused by name."""

import numpy as np
import pandas as pd
import pytest

from rankstruct.clicks import ClickLog
from rankstruct.data import DataError

ROWS = {
    "query": ["b", "b", "a", "a", "b", "b"],
    "document": ["x", "y", "x", "z", "y", "x"],
    "position": [1, 2, 2, 1, 1, 3],
    "click": [0, 1, 1, 0, 0, 1],
    "session": [7, 7, 9, 9, 8, 8],
}


def test_rows_in_any_order_are_sorted_by_session_and_position():
    order = np.random.default_rng(0).permutation(6)
    for rows in (ROWS, {name: [values[i] for i in order] for name, values in ROWS.items()}):
        log = ClickLog.from_arrays(**rows)
        assert log.session.tolist() == [0, 0, 1, 1, 2, 2]
        assert log.queries[log.query].tolist() == ["b", "b", "b", "b", "a", "a"]
        assert log.documents[log.document].tolist() == ["x", "y", "y", "x", "z", "x"]
        assert log.position.tolist() == [1, 2, 1, 3, 1, 2]
        assert log.click.tolist() == [False, True, False, True, False, True]
        assert len(log.documents) == 4  # x of a and x of b are two
        assert log.document[0] == log.document[3] != log.document[5]
        assert log.queries[log.query_of_document].tolist() == ["a", "a", "b", "b"]
        assert log.sessions_of_queries().tolist() == [1, 2]
        np.testing.assert_array_equal(log.click_rates(), [0, 1, 1])
    assert repr(log) == "ClickLog(sessions=3, queries=2, rows=6, clicks=3, longest=3)"


def test_a_session_for_each_query_without_sessions():
    rows = {name: values[:4] for name, values in ROWS.items() if name != "session"}
    assert ClickLog.from_arrays(**rows).sessions == 2


@pytest.mark.parametrize("clicks", [0, 1])
def test_all_clicks_or_none_are_legal(clicks):
    log = ClickLog.from_arrays([1, 1, 2], [1, 2, 3], [1, 2, 1], [clicks] * 3)
    assert log.click.mean() == clicks


def test_an_empty_log_is_legal():
    log = ClickLog.from_arrays([], [], [], [])
    assert (len(log), log.sessions, log.click_rates().tolist()) == (0, 0, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": [1, 2, 2, 1, 1]}, "the columns of a log must have one value per row"),
        ({"position": [1, np.nan, 2, 1, 1, 3]}, "row 1 has a click and no position: only documents that were shown"),
        ({"position": [np.nan, 2, 2, 1, 1, 3]}, "position must not be missing, that of row 0 is"),
        ({"position": [1, 2, 2, 1, 0, 3]}, "position must be 1 or more, since the first is 1; that of row 4 is 0"),
        ({"position": [1, 2, 2, 1, 1.5, 3]}, "position must be a whole number, that of row 4 is 1.5"),
        ({"longest": 2}, "position must be at most 2, the longest ranking; that of row 5 is 3"),
        ({"position": [1, 1, 2, 1, 1, 3]}, "a session must have one document at a position; rows 0 and 1 differ$"),
        ({"session": [7, 7, 7, 9, 8, 8]}, "a session must have one query; rows 1 and 2 differ"),
        ({"session": None}, "rows . and . .*; pass session= if queries were shown several times"),
        (
            {"document": ["x", "x", "x", "z", "y", "x"]},
            "a session must show a document once; rows 0 and 1 have the same",
        ),
        ({"click": [0, 1, 2, 0, 0, 1]}, "click must be 0 or 1, that of row 2 is 2"),
        ({"click": [0, 1, np.nan, 0, 0, 1]}, "click must be 0 or 1, that of row 2 is nan"),
        ({"query": ["b", None, "a", "a", "b", "b"]}, "query must not be missing; that of row 1 is"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        ClickLog.from_arrays(**{**ROWS, **change})


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files(suffix, tmp_path):
    pa = pytest.importorskip("pyarrow")
    path, columns = tmp_path / f"log.{suffix}", {**ROWS, "unused": [0.5] * 6}

    def write(columns):
        if suffix == "parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(pa.table(columns), path)
        else:
            lines = zip(*columns.values(), strict=True)
            cells = [",".join("" if cell is None else str(cell) for cell in line) for line in lines]
            path.write_text("\n".join([",".join(columns), *cells]) + "\n")

    write(columns)
    found, expected = ClickLog.read(path), ClickLog.from_arrays(**ROWS)
    for name in ("session", "position", "click"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    for ids, numbers in (("queries", "query"), ("documents", "document")):
        for log in (found, expected):
            assert (
                getattr(log, ids)[getattr(log, numbers)].tolist()
                == getattr(expected, ids)[getattr(expected, numbers)].tolist()
            )
    write({"place" if name == "position" else name: values for name, values in columns.items()})
    with pytest.raises(DataError, match="there is no column 'position'; there are 'query, document, place"):
        ClickLog.read(path)
    with pytest.raises(DataError, match="there is no column 'rank'; there are"):
        ClickLog.read(path, position="rank")
    assert len(ClickLog.read(path, position="place")) == 6
    usual = {"query": "qid", "document": "Doc_ID", "position": "rank", "click": "clicked", "session": "session_id"}
    write({usual.get(name, name): values for name, values in columns.items()})
    np.testing.assert_array_equal(ClickLog.read(path).document, expected.document)
    write({**columns, "position": [1, 2, 2, 1, 0, 3]})
    with pytest.raises(DataError, match=rf"log.{suffix}: position must be 1 or more"):
        ClickLog.read(path)
    write({**columns, "position": [1, 2, 2, 1, None, 3]})
    with pytest.raises(DataError, match="position must not be missing, that of row 4 is"):
        ClickLog.read(path)
    write({**columns, "query": ["b", "b", None, "a", "b", "b"]})
    with pytest.raises(DataError, match="row 3: expected an id in column 'query', got none"):
        ClickLog.read(path)
    with pytest.raises(DataError, match="No such file"):
        ClickLog.read(tmp_path / "other.csv")


def features_of(path, **change):
    table = {**ROWS, "weight": [1.5, 2.0, 1.0, 0.0, 2.0, 1.5], "age": [3, 4, 5, 6, 4, 3]} | change
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_features_are_those_of_the_documents_by_number(tmp_path):
    path = features_of(tmp_path / "log.csv")
    log = ClickLog.read(path)
    names, features = log.read_features(path)
    assert names == ["weight", "age"]
    found = {
        (str(log.queries[query]), str(name)): row.tolist()
        for query, name, row in zip(log.query_of_document, log.documents, features, strict=True)
    }
    assert found == {("b", "x"): [1.5, 3], ("b", "y"): [2, 4], ("a", "x"): [1, 5], ("a", "z"): [0, 6]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"age": [3, 4, 5, 6, 4, 7]},
            r"feature 'age' of document x of query b is 3 in row 0 and 7 in row 5; features belong to documents",
        ),
        ({"age": list("abcdef")}, "features must be numbers, remove other columns"),
        ({"document": list("xyxzyw")}, "is not the file of the log: it has other documents"),
    ],
)
def test_what_is_no_feature_of_a_document_is_refused(tmp_path, change, message):
    log = ClickLog.read(features_of(tmp_path / "log.csv"))
    with pytest.raises(DataError, match=message):
        log.read_features(features_of(tmp_path / "other.csv", **change))


def test_dates_are_no_features(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    days = pa.array([0] * 6, pa.timestamp("s"))
    parquet.write_table(pa.table({**ROWS, "day": days}), tmp_path / "log.parquet")
    log = ClickLog.read(tmp_path / "log.parquet")
    with pytest.raises(DataError, match="expected numbers in column 'day', got timestamp"):
        log.read_features(tmp_path / "log.parquet")
    parquet.write_table(pa.table({**ROWS, "position": days}), tmp_path / "log.parquet")
    with pytest.raises(DataError, match="expected numbers in column 'position', got timestamp"):
        ClickLog.read(tmp_path / "log.parquet")


def test_documents_are_numbered_as_in_a_table():
    log = ClickLog.from_arrays(**ROWS)
    with pytest.warns(
        UserWarning, match="1 of the 5 documents of the table .20.0%. are not in the log, such as 'document w of"
    ):
        other = log.with_documents(list("aabbb"), list("zxwyx"))
    assert other.documents.tolist() == list("zxwyx")
    assert other.documents[other.document].tolist() == log.documents[log.document].tolist()
    assert other.query_of_document.tolist() == [0, 0, -1, 1, 1]
    np.testing.assert_array_equal(other.query, log.query)
    again = other.with_documents(list("aabb"), list("zxyx"))  # without the one that was never shown
    assert again.documents[again.document].tolist() == log.documents[log.document].tolist()
    with pytest.raises(
        ValueError,
        match="1 of 4 documents of the log are missing, such as document z of query a; add",
    ):
        log.with_documents(list("abb"), list("xyx"))
    with pytest.raises(ValueError, match="document x of query b occurs twice in the table, in rows 4 and 5"):
        log.with_documents(list("aabbbb"), list("zxwyxx"))
    with pytest.raises(
        DataError, match="none of the 4 documents of the log is in the table, such as 'document x of query a'"
    ):
        log.with_documents(list("cd"), list("xy"))
    with pytest.raises(ValueError, match="pass both query= and document="):
        log.with_documents(list("aabb"))
    assert log.with_documents().of_table
    assert not log.of_table


def test_documents_that_a_table_lacks_are_dropped_if_asked_and_counted():
    log = ClickLog.from_arrays(**ROWS)
    with pytest.warns(
        UserWarning, match="1 of the 4 documents of the log .* not in the table.*: their 2 rows with 1 clicks"
    ):
        found = log.with_documents(list("aab"), list("zxy"), missing="drop")
    assert found.documents[found.document].tolist() == ["y", "y", "z", "x"]
    assert found.position.tolist() == [2, 1, 1, 2]  # as shown
    assert found.session.tolist() == [0, 1, 2, 2]
    assert found.sessions_of_queries().tolist() == [1, 2]
    with pytest.raises(ValueError, match="missing must be one of 'error', 'drop', got 'keep'"):
        log.with_documents(list("aab"), list("zxy"), missing="keep")


def as_frame(kind, columns):
    if kind == "pandas":
        return pd.DataFrame(columns)
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(columns, strict=False)
    return pytest.importorskip("pyarrow").table(columns)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_a_data_frame_is_read_like_a_file(kind):
    usual = {"query": "qid", "document": "Doc_ID", "position": "rank", "click": "clicked", "session": "session_id"}
    columns = {usual[name]: values for name, values in ROWS.items()} | {"age": [3.0, 4, 5, 6, 4, 3]}
    frame, expected = as_frame(kind, columns), ClickLog.from_arrays(**ROWS)
    log = ClickLog.read(frame)
    for name in ("session", "query", "document", "position", "click"):
        np.testing.assert_array_equal(getattr(log, name), getattr(expected, name))
    names, features = log.read_features(frame)
    assert (names, features[:, 0].tolist()) == (["age"], [5, 6, 3, 4])
    with pytest.raises(DataError, match="the data frame: there is no column 'place'; there are 'qid, Doc_ID"):
        ClickLog.read(frame, position="place")
    with pytest.raises(
        TypeError, match=r"ClickLog has no constructor for a .*: ClickLog.read takes files and data frames"
    ):
        ClickLog(frame)
    wrong = as_frame(kind, columns | {"age": [3.0, 4, 5, 6, 4, 7]})
    with pytest.raises(
        DataError, match="the data frame: feature 'age' of document x of query b is 3 in row 0 and 7 in row 5"
    ):
        log.read_features(wrong)
    words = as_frame(kind, columns | {"age": list("abcdef")})
    with pytest.raises(DataError, match=r"age.*; features must be numbers, remove other columns"):
        log.read_features(words)
    for name, values, message in (
        ("rank", [1, 2, 2, 1, 0, 3], "position must be 1 or more, since the first is 1; that of row 4 is 0"),
        ("rank", [1.0, 2.0, 2.0, 1.0, 1.5, 3.0], "position must be a whole number, that of row 4 is 1.5"),
        ("clicked", [0.0, 1.0, 0.5, 0.0, 0.0, 1.0], "click must be 0 or 1, that of row 2 is 0.5"),
        ("qid", [1.0, 1.0, np.nan, 2.0, 1.0, 1.0], "row 3: expected an id in column 'qid', got none"),
        ("Doc_ID", ["x", "y", "x", None, "y", "x"], "row 4: expected an id in column 'Doc_ID', got none"),
        ("session_id", [7.0, 7.0, 9.0, 9.0, np.nan, 8.0], "row 5: expected an id in column 'session_id', got none"),
    ):
        with pytest.raises(ValueError, match=message):
            ClickLog.read(as_frame(kind, columns | {name: values}))


def test_sessions_in_nanoseconds_are_not_merged():
    start = 1_700_000_000_000_000_001  # float64 has no such number
    times = start + np.array([0, 0, 2, 2, 1, 1])
    for session in (times, times.tolist(), pd.Series(pd.to_datetime(times))):
        assert ClickLog.from_arrays(**{**ROWS, "session": session}).session.tolist() == [0, 0, 1, 1, 2, 2]
