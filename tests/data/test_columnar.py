"""Parquet and Arrow files: the same lists as from text, in parts, and errors with the row."""

import bz2
import datetime
import gzip
import lzma
import math
import uuid
from decimal import Decimal

import numpy as np
import pytest

import rankstruct.data.cache as cache
import rankstruct.data.tables as tables
from rankstruct.data import DataError, convert_lists, read_folds, read_lists
from rankstruct.data.folds import read_alike
from rankstruct.data.formats import feature_names

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
        monkeypatch.setattr("rankstruct.data.tables._CELLS", 90)
        found = [read_lists(path, cache=False), read_lists(convert_lists(path).path)]
        monkeypatch.setattr(cache, "_STREAMED_FROM", 0)
        found += [read_lists(path, cache=tmp_path / "cache") for _ in range(2)]
        for data in found:
            np.testing.assert_array_equal(data.features, X)
            np.testing.assert_array_equal(data.labels, Y)
            assert data.lengths.tolist() == [5] * (ROWS // 5)
            assert data.qids[99] == ("q99" if number == 1 else "99")
            assert (data.docids is None) == (number != 1)
    assert read_lists(path, num_features=5, cache=False).features[:, 3:].any() == 0
    with pytest.raises(DataError, match="there is no column 'grade'"):
        read_lists(path, label="grade", cache=False)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_optional_columns_may_be_absent_where_they_are_named(tmp_path, name):
    path = write(tmp_path / name, {"qid": [1, 1], "x": [0.5, 2.0]})
    data = read_lists(path, labels="optional", label="Grade", docid="shop", features=["x"], cache=False)
    assert (data.labels.tolist(), data.docids, data.features.ravel().tolist()) == ([0, 0], None, [0.5, 2])
    with pytest.raises(DataError, match="there is no column 'Grade'; there are 'qid, x'"):
        read_lists(path, label="Grade", cache=False)
    with pytest.raises(DataError, match="there is no column 'session'"):
        read_lists(path, labels="optional", qid="session", cache=False)


@pytest.mark.parametrize("cache", [False, True])
def test_features_are_named_by_arrays(tmp_path, cache):
    path = write(tmp_path / "a.csv", COLUMNS)
    names = read_lists(path, features=np.array(["z", "x", "y"]), categorical=np.array(["x"]), cache=cache).columns.names
    assert names == ["z", "x", "y"]
    assert {type(name) for name in names} == {str}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("blank", ["\n", "\r\n \r\n\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_blank_lines_before_the_names_are_skipped(tmp_path, mark, blank, encoding):
    path = tmp_path / "a.csv"
    text = (mark if encoding == "utf-8" else "") + blank + "qid,label,x\n1,0,0.5\n\n1,1,2\n"
    path.write_bytes(text.encode(encoding))
    data = read_lists(path, cache=False)
    assert (data.columns.names, data.features.ravel().tolist(), data.labels.tolist()) == (["x"], [0.5, 2], [0, 1])
    path.write_bytes((text + "1,1,?\n").encode(encoding))
    with pytest.raises(DataError, match=r"row 3: expected a number in column 'x', got '\?'"):
        read_lists(path, cache=False)


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
            "expected lists, got a .csv file without a column 'qid'.* has columns qid, label and",
        ),
        ("", "expected column names in the first line, got an empty file"),
        (
            "qid,x\n1,2\n",
            "there is no column 'label'; there are 'qid, x'; label= names another column, or use 0 for unknown labels",
        ),
        ("qid,label,x\n", "expected documents, one per row, got none"),
        ("a;b;kind\n1;2;good\n", "columns qid, label and features; this one has 'a, b, kind'"),
        (
            "QID,Qid,label,x\n1,1,0,1\n",
            "columns 'QID' and 'Qid' have usual names of 'qid'; name the right one, such as qid='QID'",
        ),
        ("qid,LABEL,Label,x\n1,1,0,1\n", "columns 'LABEL' and 'Label' have usual names of 'label'"),
        (
            "qid,label,x\n1,0,a\n1,0,2\n",
            r"row 1: expected a number in column 'x', got 'a'; .*name it: categorical=\['x'\]",
        ),
        (
            "qid,label,when\n1,0,2024-01-01\n",
            "row 1: expected a number in column 'when', got '2024-01-01'; convert dates to numbers",
        ),
        ("qid;label;x\n1;0;1\n1;0;0,5\n", "row 2: expected a number in column 'x', got '0,5'; .* decimal point"),
        (
            "qid,label,x\n1,0,1\n1,0,true\n",
            "row 2: expected a number in column 'x', got 'true'; a column of True and F",
        ),
        (
            "qid,label,x\n1,0,true\n1,0,2\n",
            "row 1: expected a number in column 'x', got 'true'; a column of True and F",
        ),
        (
            "qid,label,x\n1,0,1\n1,0\n",
            "row 2: expected 3 cells separated by commas, one for each of 'qid, .*, got 2: '1,0'",
        ),
        ("qid;label;x\n1;0;1;7\n", "row 1: expected 3 cells separated by semicolons, .*, got 4: '1;0;1;7'"),
        ("qid,label,x\n1,,1\n", "row 1: expected a number in column 'label', got none; use 0 for unknown labels"),
        ("qid,docid,label,x\n1,,1,2\n", "row 1: expected an id in column 'docid', got none"),
        (
            "qid,label,x\n1,16777217,1\n",
            "row 1: expected a grade that is exact in float32, up to 16777216, .*got 16777217",
        ),
        ("qid,label,x\n1,1,1e39\n", "row 1: expected finite numbers .*range of float32.* in 'x'"),
        ("Unnamed: 0,qid,label,x\n0,1,1,2\n", "got 'Unnamed: 0' for column 1; the row number .* is not a feature"),
        ("q\0i\0d\0", "expected text in UTF-8, got UTF-16 or UTF-32, by its first bytes .*; save"),
        ("qid,label,x\n1,-1,1\n", "row 1: expected a grade, an integer from 0 in column 'label'"),
        ("qid,label,x\n1,0,1\n2,0,1\n1,0,1\n", "row 3: expected contiguous documents of each query"),
        ("qid,label,x\n,0,1\n", "row 1: expected an id in column 'qid'"),
        (",qid,label,x\n0,1,0,1\n", "got '' for column 1; the row number .* is not a feature"),
        ("qid,label,x,x\n1,0,1,2\n", "got 'x' for column 4"),
        ("qid,label,label,x\n1,0,0,1\n", "expected columns with unique names, got 'label' several times$"),
        ("qid,y,y,x\n1,0,0,1\n", "expected columns with unique names, got 'y' several times$"),
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
    np.testing.assert_array_equal(data.features, [[np.nan, 3], [2, 4]])
    assert data.missing.tolist() == [1, 0]


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.feather"])
def test_missing_values_are_told_once_a_reading_by_column(tmp_path, monkeypatch, caplog, name):
    none = [None, *[1.0] * 199]
    columns = {
        "label": [1] * 200,
        "qid": [1] * 200,
        "x": pa.array(none),
        "y": pa.array(none * 2)[100:300],
        "full": [2] * 200,
    }
    columns |= {f"all{at}": pa.array([None] * 200, pa.float64()) for at in range(5)}
    path = write(tmp_path / name, columns)
    told = f"{path}: 1002 missing values (empty, null or NaN): 200 in column 'all0', "
    for folder, streamed in (("cache", 2**26), ("cache", 2**26), ("streamed", 0), ("streamed", 0), (None, 0)):
        monkeypatch.setattr(cache, "_STREAMED_FROM", streamed)
        caplog.clear()
        data = read_lists(path, cache=False if folder is None else tmp_path / folder)
        assert data.missing.sum() == 1002
        assert [each.message.startswith(told) for each in caplog.records] == [True]
        assert caplog.records[0].message.endswith("200 in column 'all4' and 2 more columns")
    caplog.clear()
    made = convert_lists(path).path
    read_lists(made)
    assert [each.message[: len(str(made)) + 22] for each in caplog.records] == [f"{made}: 1002 missing values "] * 2
    one = write(tmp_path / f"one-{name}", {"label": [1, 0], "qid": [1, 1], "x": pa.array([None, 2.0]), "y": [3, 4]})
    caplog.clear()
    read_lists(one, cache=False)
    assert [each.message for each in caplog.records] == [
        f"{one}: 1 missing value (empty, null or NaN): 1 in column 'x'"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None, "y": None}, "there is no column 'label'; there are 'qid, x"),
        ({"label": [*[1] * 499, 0.5]}, r"row 500: expected a grade, an integer from 0 in column 'label'"),
        ({"label": [*[1] * 80, None, *[1] * 419]}, r"row 81: expected a number in column 'label'"),
        ({"qid": [*range(499), 7]}, r"row 500: expected contiguous documents of each query, got qid:7 again, .* row 8"),
        ({"qid": [*range(499), None]}, r"row 500: expected an id in column 'qid'"),
        ({"x": [*[0.0] * 300, float("inf"), *[0.0] * 199]}, r"row 301: expected finite numbers .* in 'x'"),
        ({"x": [*[0.0] * 300, 1e39, *[0.0] * 199]}, r"row 301: expected finite numbers"),
        ({"x": [[1.0], *[[1.0, 2.0]] * 499]}, "expected numbers in column 'x', got list"),
        ({"x": [*[[1.0, 2.0]] * 499, [1.0]], "y": None, "z": None}, "row 500: .* length, 2 as in row 1, in column 'x', got 1"),
        ({"x": [*[[1.0, 2.0]] * 80, *[[1.0]] * 420], "y": None, "z": None}, "row 81: .* length, 2 as in row 1, in column 'x'"),
        ({"x": [*[[1.0, 2.0]] * 499, None], "y": None, "z": None}, "row 500: expected a list of numbers in column 'x', got none"),
        ({"x": [[]] * 500, "y": None, "z": None}, "expected lists of numbers in column 'x', got empty ones"),
        ({"__index_level_0__": list(range(500))}, "got '__index_level_0__' for column 6; the row number .* is not a feature"),
        ({"x": None, "y": None, "z": None}, "expected feature columns in addition to label, qid, docid, got none"),
        ({name: [] for name in COLUMNS}, "expected"),
    ],
)  # fmt: skip
def test_errors(tmp_path, change, message):
    columns = {name: value for name, value in (COLUMNS | change).items() if value is not None}
    path = write(tmp_path / "a.parquet", columns)
    with pytest.raises(DataError, match=rf"a.parquet.*{message}") as found:
        read_lists(path, cache=False)
    assert "\n" not in str(found.value)


def test_no_such_files(tmp_path):
    good = write(tmp_path / "a.parquet", COLUMNS).read_bytes()
    for content in (b"", b"PAR1", b"nothing", good[:-9], good[:500] + bytes(500) + good[1000:], b"ARROW1" + bytes(100)):
        (tmp_path / "b.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"b.parquet: expected a Parquet or Arrow file") as found:
            read_lists(tmp_path / "b.parquet", cache=False)
        assert len(str(found.value)) < 400
    with pytest.raises(DataError, match="No such file"):
        read_lists(tmp_path / "absent.parquet")


TEXT = "qid,label,x,y,z\nq 1,1,0.5,True,2\nq 1,0,1.5,FALSE,3\nNA,2.0,2.5,,4\n"
PACKINGS = {"": lambda data: data, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("cut", [-1, 5])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_csv_whose_bytes_are_not_of_the_encoding_of_its_mark(tmp_path, encoding, cut):
    content = TEXT.encode(encoding)
    (tmp_path / "a.csv").write_bytes(content[:-1] if cut < 0 else content + b"\xff" * cut)
    with pytest.raises(DataError, match=rf"a.csv: expected {encoding.upper()} text, by its byte order mark, got: "):
        read_lists(tmp_path / "a.csv", cache=False)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("packed", PACKINGS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("separator", list(",;\t|"))
def test_csv_of_every_form(tmp_path, caplog, separator, encoding, packed):
    for ends, names in (("\n", "qid,label"), ("\r\n", "QID,Label")):
        text = TEXT.replace("qid,label", names).replace(",", separator).replace("\n", ends)
        path = tmp_path / f"a.csv{packed}"
        path.write_bytes(PACKINGS[packed](text.encode(encoding)))
        caplog.clear()
        data = read_lists(path, cache=False)
        np.testing.assert_array_equal(data.features, [[0.5, 1, 2], [1.5, 0, 3], [2.5, np.nan, 4]])
        assert (data.labels.tolist(), data.qids.tolist()) == ([1, 0, 2], ["q 1", "NA"])
        said = [each.message for each in caplog.records]
        capitals = [f"{path}: column 'Label' is used as 'label'", f"{path}: column 'QID' is used as 'qid'"]
        assert said[1:] == (capitals if names != "qid,label" else [])
        assert said[0] == f"{path}: 1 missing value (empty, null or NaN): 1 in column 'y'"
        assert feature_names(path) == ["x", "y", "z"]
        assert read_alike([path, path], cache=False)[1].num_features == 3
        assert convert_lists(path).documents == 3


def test_true_and_false_hold_for_the_column(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_HEAD", 22)  # the first row, which decides
    path = tmp_path / "a.csv"
    path.write_text("qid,label,x\n1,0,true\n1,0,2\n")
    with pytest.raises(
        DataError, match=r"a.csv, row 2: expected True or False, as in the rows before, in column 'x', got '2'"
    ):
        read_lists(path, cache=False)
    path.write_text("qid,label,x\n1,0,true\n1,0,0\n1,1,False\n1,0,\n")
    data = read_lists(path, cache=False)
    np.testing.assert_array_equal(data.features.ravel(), [1, 0, 0, np.nan])
    assert data.missing.tolist() == [0, 0, 0, 1]


def of(kind, values, *options):
    """An array of a type by its name, which an earlier pyarrow may not have."""
    return pa.array(values, getattr(pa, kind)(*options)) if hasattr(pa, kind) else None


def extended(kind, values):
    return pa.ExtensionArray.from_storage(getattr(pa, kind)(), values) if hasattr(pa, kind) else None


D, DAY, WHOLE = Decimal, datetime.date(2024, 1, 1), [1, 1, 2]
DAYS, NAMES = [DAY, DAY, datetime.date(2024, 1, 2)], ["1", "1", "2"]
NOON = [datetime.datetime(2024, 1, 1, 12)] * 3
IDS = [uuid.UUID(int=1).bytes] * 2 + [uuid.UUID(int=2).bytes]
LISTS = [[1, 1], [1, 2], [3, 4]]
# Array, as labels, as names, as features; what is refused has a part of the message.
TYPES = {
    **{
        kind: (of(kind, WHOLE), WHOLE, NAMES, WHOLE)
        for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
    },
    "float16": (pa.array(np.array(WHOLE, np.float16)), WHOLE, NAMES, WHOLE),
    "fractions": (of("float64", [0.5, 0.5, 2]), "row 1: expected a grade", "row 1: .*, got 0.5", [0.5, 0.5, 2]),
    "large": (
        of("int64", [1, 2**24 + 1, 2**53 + 1]),
        "row 2: .*, got 16777217",
        ["1", "16777217", f"{2**53 + 1}"],
        [1, 2**24, 2**53],
    ),
    "large floats": (
        of("float64", [1, 2.0**53 + 2, 1]),
        "row 2: .*got 9007199254740994",
        "row 2: .*got 9007",
        [1, 2**53, 1],
    ),
    "infinite": (of("float64", [1, math.inf, 2]), "row 2: .*got inf", "row 2: .*, got inf", "row 2: .*finite numbers"),
    "NaN": (
        of("float64", [1, math.nan, 2]),
        "row 2: .*got none",
        "row 2: .*, got none",
        [1, math.nan, 2],
    ),
    "nulls": (of("float64", [1, None, 2]), "row 2: .*, got none", "row 2: .*, got none", [1, math.nan, 2]),
    "nulls, float16": (
        of("float16", [np.float16(1), None, np.float16(2)]),
        "row 2: .*none",
        "row 2: .*none",
        [1, math.nan, 2],
    ),
    "nothing but nulls": (pa.nulls(3), "row 1: .*, got none", "row 1: .*, got none", [math.nan] * 3),
    "bool": (of("bool_", [True, True, False]), [1, 1, 0], ["True", "True", "False"], [1, 1, 0]),
    "bool, nulls": (of("bool_", [True, None, False]), "row 2: .*none", "row 2: .*none", [1, math.nan, 0]),
    **{
        kind: (of(kind, [D("1.0"), D("1.0"), D("2.0")], 9, 1), WHOLE, "got decimal", WHOLE)
        for kind in ("decimal32", "decimal64", "decimal128", "decimal256")
    },
    "decimal fractions": (
        of("decimal128", [D("0.5")] * 3, 9, 1),
        "row 1: .*got 0.5",
        "got decimal",
        [0.5] * 3,
    ),
    **{
        kind: (of(kind, ["1.0", "1", "2"]), WHOLE, ["1.0", "1", "2"], [1, 0, 2])
        for kind in ("string", "large_string", "string_view")
    },
    "names": (
        of("string", ["a", "a", "b"]),
        "row 1: expected a number in column 'c', got 'a'",
        ["a", "a", "b"],
        [0, 0, 1],
    ),
    "no name": (of("string", ["1", "", "2"]), "row 2: .*, got ''", "row 2: expected an id", [0, math.nan, 1]),
    **{
        kind: (of(kind, [b"a", b"a", b"b"]), f"got {kind}", ["a", "a", "b"], [0, 0, 1])
        for kind in ("binary", "large_binary", "binary_view")
    },
    "fixed bytes": (
        of("binary", [b"a", b"a", b"b"], 1),
        "got fixed_size_binary",
        ["a", "a", "b"],
        "got fixed_size_binary",
    ),
    "other bytes": (
        of("binary", [b"a", b"\xff", b"b"]),
        "got binary",
        "got binary",
        "got bin",
    ),
    **{
        kind: (
            of(kind, DAYS),
            "got date",
            [str(day) for day in DAYS],
            "got date.*; convert it to numbers, such as days",
        )
        for kind in ("date32", "date64")
    },
    **{
        f"timestamp, {unit}": (
            of("timestamp", NOON, unit),
            "got timestamp",
            ["2024-01-01 12:00:00"] * 3,
            "got timestamp.*; convert",
        )
        for unit in ("ms", "us", "ns")
    },
    "time zone": (
        of("timestamp", NOON, "ms", "UTC"),
        "got timestamp",
        ["2024-01-01 12:00:00"] * 3,
        "got timestamp.*; convert",
    ),
    "time32": (
        of("time32", [datetime.time(1)] * 3, "ms"),
        "got time32",
        "got time32",
        "got time32.*; convert it to numbers",
    ),
    "time64": (
        of("time64", [datetime.time(1)] * 3, "us"),
        "got time64",
        "got time64",
        "got time64.*; convert it to numbers",
    ),
    "duration": (
        of("duration", [datetime.timedelta(1)] * 3, "s"),
        "got duration",
        "got duration",
        "got duration.*; convert it to numbers",
    ),
    "interval": (
        of("month_day_nano_interval", [(1, 1, 1)] * 3),
        "got month_day",
        "got month_day",
        "got month_day.*; convert",
    ),
    "dictionary": (pa.array(WHOLE).dictionary_encode(), WHOLE, NAMES, [0, 0, 1]),
    "dictionary, nulls": (
        pa.array([1, None, 2]).dictionary_encode(),
        "row 2: .*none",
        "row 2: .*none",
        [0, math.nan, 1],
    ),
    **{
        f"dictionary of {kind}": (
            pa.array(["a", "a", "b"], getattr(pa, kind)()).dictionary_encode(),
            "expected a number|got dictionary",
            ["a", "a", "b"],
            [0, 0, 1],
        )
        for kind in ("string_view", "binary_view")
        if hasattr(pa, kind)
    },
    "dictionary of strings": (
        pa.array(NAMES).dictionary_encode(),
        WHOLE,
        NAMES,
        [0, 0, 1],
    ),
    "runs": (pa.RunEndEncodedArray.from_arrays([2, 3], [1, 2]), "got run_end", "got run_end", "got run_end.*; remove"),
    "list": (of("list_", LISTS, pa.int64()), "got list", "got list", LISTS),
    "large list": (of("large_list", LISTS, pa.float32()), "got large_list", "got large_list", LISTS),
    "fixed lists": (of("list_", LISTS, pa.float32(), 2), "got fixed_size_list", "got fixed_size_list", LISTS),
    "list view": (
        of("list_view", LISTS, pa.int64()) if hasattr(pa, "list_view") else None,
        "got list_view",
        "got list_view",
        LISTS,
    ),
    "list of decimals": (of("list_", [[D("0.5")]] * 3, pa.decimal128(5, 1)), "got list", "got list", [[0.5]] * 3),
    "list of bools": (of("list_", [[True], [False], [True]], pa.bool_()), "got list", "got list", [[1], [0], [1]]),
    "list of nulls": (
        of("list_", [[1, None], [1, 2], [3, 4]], pa.int64()),
        "got list",
        "got list",
        [[1, math.nan], [1, 2], [3, 4]],
    ),
    "list of strings": (
        of("list_", [["a"]] * 3, pa.string()),
        "got list",
        "got list",
        "got string; remove the column",
    ),
    "list of lists": (of("list_", [[[1]]] * 3, pa.list_(pa.int64())), "got list", "got list", "got list"),
    "ragged": (
        of("list_", [[1, 1], [1], [1]], pa.int64()),
        "got list",
        "got list",
        "row 2: .*lists of the same length, 2 as in row 1",
    ),
    "no list": (
        of("list_", [[1, 1], None, [1, 1]], pa.int64()),
        "got list",
        "(got list|row 2)",
        "row 2: expected a list of numbers",
    ),
    "struct": (
        of("struct", [{"a": 1}] * 3, [("a", pa.int64())]),
        "got struct",
        "got struct",
        "got struct.*; remove the column",
    ),
    "map": (
        of("map_", [[("a", 1)]] * 3, pa.string(), pa.int64()),
        "got map",
        "got map",
        "got map.*; remove the column",
    ),
    "union": (
        pa.UnionArray.from_sparse(pa.array([0] * 3, pa.int8()), [pa.array(WHOLE)]),
        "got sparse",
        "got sparse",
        "got sparse",
    ),
    "uuid": (
        extended("uuid", of("binary", IDS, 16)),
        "got extension",
        [str(uuid.UUID(bytes=each)) for each in IDS],
        "got extension",
    ),
    "uuid, nulls": (
        extended("uuid", of("binary", [IDS[0], None, IDS[2]], 16)),
        "extension",
        "row 2: .*none",
        "extension",
    ),
    "large decimals": (
        of("decimal128", [D(12345678901234567890)] * 3, 20, 0),
        "row 1: expected a grade that is exact in float32",
        ["12345678901234567890"] * 3,
        [12345678901234567890] * 3,
    ),
    "bool8": (extended("bool8", of("int8", [1, 1, 0])), [1, 1, 0], ["1", "1", "0"], [1, 1, 0]),
    "tensor": (
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.array(LISTS, float)),
        "got extension",
        "got extension",
        LISTS,
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("role", ["label", "qid", "docid", "feature"])
@pytest.mark.parametrize("name", TYPES)
def test_every_type_in_every_role(tmp_path, name, role):
    column, *found = TYPES[name]
    if column is None:
        pytest.skip("this pyarrow has no such type")
    expected = found[{"label": 0, "qid": 1, "docid": 1, "feature": 2}[role]]
    columns = {"label": [1, 0, 1], "qid": [1, 1, 2], "x": [0.5, 1.5, 2.5]}
    columns = {each: columns[each] for each in ("label", "qid")} if role == "feature" else columns
    named = {"c": column} | {each: values for each, values in columns.items() if each != role}
    options = {} if role == "feature" else {role: "c"}
    for suffix in ("arrow", "parquet"):
        path = tmp_path / f"a.{suffix}"
        try:
            write(path, named)
        except pa.ArrowNotImplementedError:  # which Parquet does not have
            assert suffix == "parquet"
            continue
        if isinstance(expected, str):
            with pytest.raises(DataError, match=expected) as error:
                read_lists(path, cache=False, **options)
            assert str(error.value).startswith(str(path))
            assert "'c'" in str(error.value)
            continue
        data = read_lists(path, cache=False, **options)
        if role == "feature":
            # Parquet keeps dictionaries of strings only.
            plain = {"dictionary": WHOLE, "dictionary, nulls": [1, math.nan, 2]} if suffix == "parquet" else {}
            np.testing.assert_array_equal(data.features, np.array(plain.get(name, expected), np.float32).reshape(3, -1))
        elif role == "label":
            assert data.labels.tolist() == expected
        elif role == "docid":
            assert data.docids.tolist() == expected
        else:
            assert data.qids.tolist() == list(dict.fromkeys(expected))
        assert (data.missing is None) == (not np.isnan(data.features).any())


@pytest.mark.parametrize("name", ["a.arrow", "a.feather"])
def test_a_damaged_file_whose_offsets_point_elsewhere_is_an_error(name, tmp_path):
    path = tmp_path / name
    table = pa.table({"qid": [1, 1, 2], "label": [0, 1, 0], "x": ["u", "v", "w"]})
    if name == "a.feather":
        feather.write_feather(table, path, compression="uncompressed")
    else:
        write(path, table)
    before = np.arange(4, dtype=np.int32).tobytes()
    assert before in path.read_bytes()
    damaged = np.array([0, 1, 2, 2**30], np.int32).tobytes()
    path.write_bytes(path.read_bytes().replace(before, damaged))
    with pytest.raises(DataError, match=r"expected a Parquet or Arrow file, got: "):
        read_lists(path)
