"""Parquet and Arrow files: the same lists as from text, in parts, and errors with the row."""

import gzip
import sys

import numpy as np
import pytest

import rankstruct.data.arrow as arrow
import rankstruct.data.assembly as assembly
from rankstruct.data import DataError, convert_lists, read_folds, read_lists

pa = pytest.importorskip("pyarrow")
pacsv = pytest.importorskip("pyarrow.csv")
feather, parquet = pytest.importorskip("pyarrow.feather"), pytest.importorskip("pyarrow.parquet")

ROWS = 500
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 3)).astype(np.float32)
Y = RNG.integers(0, 4, ROWS)
COLUMNS = {
    "qid": np.repeat(np.arange(ROWS // 5), 5),
    "x": X[:, 0],
    "label": Y,
    "y": X[:, 1].astype(np.float64),
    "z": X[:, 2],
}


def write(path, columns):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    if ".csv" in path.suffixes:
        with pa.output_stream(path) as stream:  # which packs what ends in .gz
            pacsv.write_csv(table, stream)
    elif path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=77)
    elif path.suffix == ".feather":
        feather.write_feather(table, path, chunksize=77)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=77)
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.arrow"])
def test_lists_of_every_form(tmp_path, monkeypatch, name):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 3)
    tables = [
        COLUMNS,
        {
            "features": lists,
            "label": Y.astype(float),
            "qid": [f"q{i}" for i in COLUMNS["qid"]],
            "docid": list(map(str, range(ROWS))),
        },
        {"label": Y, "qid": COLUMNS["qid"], "features": X.tolist()},
    ]
    for number, columns in enumerate(tables):
        path = write(tmp_path / f"{number}{name}", columns)
        monkeypatch.setattr(arrow, "_CELLS", 90)
        found = [read_lists(path, cache=False), read_lists(convert_lists(path).path)]
        monkeypatch.setattr(assembly, "_STREAMED_FROM", 0)
        found += [read_lists(path, cache=tmp_path / "cache") for _ in range(2)]
        for data in found:
            np.testing.assert_array_equal(data.features, X)
            np.testing.assert_array_equal(data.labels, Y)
            assert data.lengths.tolist() == [5] * (ROWS // 5)
            assert data.qids[99] == ("q99" if number == 1 else "99")
            assert (data.docids is None) == (number != 1)
    assert read_lists(path, num_features=5, cache=False).features[:, 3:].any() == 0
    with pytest.raises(DataError, match="expected one column 'grade'"):
        read_lists(path, label="grade", cache=False)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_csv_table_of_lists(tmp_path, monkeypatch, name):
    mixed = {**COLUMNS, "y": [str(i) for i in range(ROWS - 1)] + ["0.5"]}  # whole numbers for a while
    for columns in (mixed, mixed | {"qid": [f"q, {i}" for i in COLUMNS["qid"]], "docid": list(map(str, range(ROWS)))}):
        path = write(tmp_path / name, columns)
        text = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
        assert b"qid" in text
        for data in (read_lists(path, cache=False), read_lists(convert_lists(path).path)):
            np.testing.assert_allclose(data.features[:, [0, 2]], X[:, [0, 2]], rtol=1e-6)
            assert data.features[-2:, 1].tolist() == [498, 0.5]
            np.testing.assert_array_equal(data.labels, Y)
            assert data.lengths.tolist() == [5] * (ROWS // 5)
            assert data.qids[99] == ("q, 99" if "docid" in columns else "99")
    named = write(
        tmp_path / "named.csv", {("query" if name == "qid" else name): each for name, each in COLUMNS.items()}
    )
    assert read_lists(named, qid="query", cache=False).num_lists == ROWS // 5
    assert convert_lists(named, qid="query").lists == ROWS // 5
    for part in ("train", "vali", "test"):
        path.with_name(f"{part}.csv").write_bytes(write(tmp_path / "b.csv", COLUMNS).read_bytes())
    assert read_folds(tmp_path).test.num_documents == ROWS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x,y,kind\n1,2,good\n",
            "file without a column 'qid' has rows with a class each; .* has columns qid, label and",
        ),
        ("", "file without a column 'qid'"),
        ("qid,x\n1,2\n", "expected one column 'label', got 'qid, x'"),
        ("qid,label,x\n", "expected documents, one a row, got none"),
        ("qid,label,x\n1,0,a\n", "expected a CSV file, got: .*invalid value 'a'"),
        ("qid,label,x\n1,0,1\n1,0\n", "expected a CSV file, got: .*Expected 3 columns, got 2"),
        ("qid,label,x\n1,-1,1\n", "row 1: expected a grade, an integer from 0 in column 'label'"),
        ("qid,label,x\n1,0,1\n2,0,1\n1,0,1\n", "row 3: expected the documents of a query to be neighbours"),
        ("qid,label,x\n,0,1\n", "row 1: expected a name in column 'qid'"),
        (",qid,label,x\n0,1,0,1\n", "got '' for number 1; a row's number .* is no feature"),
        ("qid,label,x,x\n1,0,1,2\n", "got 'x' for number 4"),
    ],
)
def test_csv_tables_that_are_refused(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text)
    for read in (lambda: read_lists(path, cache=False), lambda: convert_lists(path)):
        with pytest.raises(DataError, match=rf"a.csv.*{message}"):
            read()
    assert not (tmp_path / "a.rankdata").exists()


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_missing_values_are_counted(tmp_path, name):
    path = write(tmp_path / name, {"label": [1, 0], "qid": [1, 1], "x": pa.array([None, 2.0]), "y": [3, 4]})
    data = read_lists(path, cache=False)
    assert data.features.tolist() == [[0, 3], [2, 4]]
    assert data.missing.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None}, "expected one column 'label', got 'qid, x"),
        ({"label": [*[1] * 499, 0.5]}, r"row 500: expected a grade, an integer from 0 in column 'label'"),
        ({"label": [*[1] * 80, None, *[1] * 419]}, r"row 81: expected a number in column 'label'"),
        ({"qid": [*range(499), 7]}, r"row 500: expected the documents of a query to be neighbours, got qid:7 again, .* row 8"),
        ({"qid": [*range(499), None]}, r"row 500: expected a name in column 'qid'"),
        ({"x": [*[0.0] * 300, float("nan"), *[0.0] * 199]}, r"row 301: expected finite numbers .* in 'x'"),
        ({"x": [*[0.0] * 300, 1e39, *[0.0] * 199]}, r"row 301: expected finite numbers"),
        ({"x": ["a"] * 500}, "expected numbers in column 'x', got string"),
        ({"x": [[1.0], *[[1.0, 2.0]] * 499]}, "expected numbers in column 'x', got list"),
        ({"x": [[1.0], *[[1.0, 2.0]] * 499], "y": None, "z": None}, "lists of one length in column 'x'"),
        ({"x": None, "y": None, "z": None}, "expected columns of features beside label, qid, docid, got none"),
        ({name: [] for name in COLUMNS}, "expected"),
    ],
)  # fmt: skip
def test_errors(tmp_path, change, message):
    columns = {name: value for name, value in (COLUMNS | change).items() if value is not None}
    path = write(tmp_path / "a.parquet", columns)
    with pytest.raises(DataError, match=rf"a.parquet.*{message}") as found:
        read_lists(path, cache=False)
    assert "\n" not in str(found.value)


def test_no_such_files_and_no_pyarrow(tmp_path, monkeypatch):
    good = write(tmp_path / "a.parquet", COLUMNS).read_bytes()
    for content in (b"", b"PAR1", b"nothing", good[:-9], good[:500] + bytes(500) + good[1000:], b"ARROW1" + bytes(100)):
        (tmp_path / "b.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"b.parquet: expected a Parquet or Arrow file") as found:
            read_lists(tmp_path / "b.parquet", cache=False)
        assert len(str(found.value)) < 400
    with pytest.raises(DataError, match="No such file"):
        read_lists(tmp_path / "absent.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        DataError,
        match=r"a.parquet: Parquet, Arrow and CSV files of lists are read by pyarrow, which is not installed; pip",
    ):
        read_lists(tmp_path / "a.parquet", cache=False)
