"""Steps that remove, shuffle and relabel documents; readers of multi-class data."""

import logging
from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.sparse as sp

from rankstruct.columns import Columns
from rankstruct.data import (
    DataError,
    RankingData,
    RemoveNearDuplicates,
    RemoveZeroRows,
    concatenate,
    keep_documents,
    read_arff,
    read_csv,
    sample_queries,
    shuffle_documents,
)


def draw(lists=6, d=4, seed=0):
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(lists), rng.integers(1, 9, lists))
    X = rng.integers(0, 3, (len(qid), d)).astype(np.float32)
    return RankingData.from_arrays(X, rng.integers(0, 3, len(qid)), qid, docids=np.arange(len(qid)))


@pytest.mark.parametrize("sparse", [False, True])
def test_zero_rows_go_and_lists_without_documents_with_them(sparse, caplog):
    X = np.array([[0, 0], [1, 0], [0, 0], [0, 2]], np.float32)
    data = RankingData.from_arrays(sp.csr_array(X) if sparse else X, [1, 0, 2, 1], ["a", "a", "b", "c"])
    with caplog.at_level(logging.INFO):
        found = RemoveZeroRows()(data)
    assert found.labels.tolist() == [0, 1]
    assert found.qids.tolist() == ["a", "c"]
    assert "removed 2 of 4 documents" in caplog.text


def every_field():
    """Data in which each field that has one entry a document tells which document it is of."""
    number = np.arange(1, 9)
    values = {
        "features": np.stack([number, number % 3], axis=1).astype(np.float32),
        "labels": number.astype(np.float32),
        "docids": number.astype(str),
        "comments": number.astype(str).astype(np.bytes_),
        "missing": number.astype(np.int32),
        "diversity_groups": number.astype(np.int64),
    }
    known = {*values, "offsets", "qids", "columns"}
    assert {f.name for f in fields(RankingData)} == known, "say here what a new field holds"
    columns = Columns({"x": None, "y": ["a", "b", "c"]})
    return RankingData(**values, offsets=np.array([0, 3, 3, 8]), qids=np.array(["a", "empty", "b"]), columns=columns)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: data.select([2, 0]), [4, 5, 6, 7, 8, 1, 2, 3]),
        (lambda data: data.select_documents([3, 7], [0, 1, 2], np.array(["c", "d"])), [4, 8]),
        (lambda data: keep_documents(data, data.labels != 5), [1, 2, 3, 4, 6, 7, 8]),
        (lambda data: shuffle_documents(data, seed=1), [3, 1, 2, 5, 8, 6, 7, 4]),
        (
            lambda data: RemoveZeroRows()(replace(data, features=data.features * (data.labels[:, None] != 2))),
            [1, 3, 4, 5, 6, 7, 8],
        ),
        (lambda data: RemoveNearDuplicates(0.999999, min_relevant=7)(data), [1, 2, 3, 5, 6, 7]),
        (lambda data: concatenate([data.select([2]), data.select([0])]), [4, 5, 6, 7, 8, 1, 2, 3]),
    ],
    ids=["select", "select_documents", "keep", "shuffle", "zero-rows", "near-duplicates", "concatenate"],
)
def test_rows_keep_everything_that_is_known_of_a_document(change, expected):
    found = change(every_field())
    assert found.labels.tolist() == expected
    for name, values in vars(found).items():
        if name == "columns":
            assert values.categories == {"x": None, "y": ("a", "b", "c")}
        elif name not in ("offsets", "qids"):
            told = values[:, 0] if name == "features" else values
            assert told.astype(np.float32).tolist() == found.labels.tolist(), name


@pytest.mark.parametrize("threshold", [0.9, 0.99])
def test_near_duplicates_are_those_of_the_definition(threshold, caplog):
    data = draw(seed=3)
    gone = set()
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        for i in range(start, stop):
            for j in range(start, stop):
                a, b = data.features[i].astype(float), data.features[j].astype(float)
                norm = np.linalg.norm(a) * np.linalg.norm(b)
                if data.labels[i] > 0 == data.labels[j] and norm > 0 and a @ b / norm > threshold:
                    gone |= {i, j}
    with caplog.at_level(logging.INFO):
        found = RemoveNearDuplicates(threshold)(data)
    assert gone
    assert {int(docid) for docid in found.docids} == set(range(data.num_documents)) - gone
    assert f"removed {len(gone)} of {data.num_documents} documents" in caplog.text


def test_shuffling_keeps_lists_and_rows_together():
    data = draw(lists=40)
    found = shuffle_documents(data, seed=1)
    np.testing.assert_array_equal(found.offsets, data.offsets)
    rows = found.docids.astype(int)
    assert (rows != np.arange(data.num_documents)).any()
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        assert sorted(rows[start:stop]) == list(range(start, stop))
    np.testing.assert_array_equal(found.features, data.features[rows])
    np.testing.assert_array_equal(found.labels, data.labels[rows])


def test_kept_documents_have_a_mask():
    with pytest.raises(DataError, match="shape"):
        keep_documents(draw(), [True])


ARFF = """% a comment
@relation shapes
@ATTRIBUTE 'side length' numeric
@attribute area REAL
@attribute kind {'round',square}
@data
1.5, 2, square
% another
3,4e1,'round'
"""


def test_reads_arff_and_csv(tmp_path):
    (tmp_path / "a.arff").write_text(ARFF)
    (tmp_path / "a.csv").write_text("kind;side;area\nsquare;1.5;2\nround;3;40\n")
    for table in (read_arff(tmp_path / "a.arff"), read_csv(tmp_path / "a.csv", "kind", delimiter=";")):
        assert table.features.tolist() == [[1.5, 2.0], [3.0, 40.0]]
        assert table.classes.tolist() == ["square", "round"]
    assert read_arff(tmp_path / "a.arff").names == ["side length", "area"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", list(",;\t|"))
def test_the_form_of_a_csv_file_of_classes_is_found(tmp_path, separator, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes("side,big,kind\n1.5,True,square\n3,FALSE,é\n".replace(",", separator).encode(encoding))
    table = read_csv(path)
    assert (table.names, table.features.tolist()) == (["side", "big"], [[1.5, 1], [3, 0]])
    assert table.classes.tolist() == ["square", "é"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,x,a", "line 3: expected numbers, got 'x' in column 'area'"),
        ("1,,a", "line 3: expected numbers, got '' in column 'area'; fill it in, or remove the row"),
        ("1e39,1,a", "line 3: expected finite numbers .* got '1e39' in column 'side'"),
        ("1,2", "line 3: expected 3 values, got 2"),
    ],
)
def test_wrong_cells_are_named_by_their_column(tmp_path, row, message):
    path = tmp_path / "a.csv"
    path.write_text(f"side,area,kind\n1,2,a\n{row}\n")
    with pytest.raises(DataError, match=f"a.csv, {message}"):
        read_csv(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("3,4e1", "3,?"), "line 9: expected numbers, got '\\?'"),
        (("3,4e1", "3"), "line 9: expected 3 values, got 2"),
        (("3,4e1", "3,inf"), "line 9: expected finite numbers .*, got 'inf' in column 'area'"),
        (("@data", "data"), "expected a line @data"),
        (("@attribute area REAL", "@attribute"), "line 4: expected @attribute NAME TYPE"),
    ],
)
def test_wrong_lines_are_named(change, message, tmp_path):
    (tmp_path / "a.arff").write_text(ARFF.replace(*change))
    with pytest.raises(DataError, match=message):
        read_arff(tmp_path / "a.arff")


def test_queries_are_samples_without_replacement(tmp_path):
    (tmp_path / "a.csv").write_text("x,kind\n" + "".join(f"{i},{'abc'[i % 3]}\n" for i in range(30)))
    table = read_csv(tmp_path / "a.csv")
    data = sample_queries(table, "b", queries=5, documents=12, rows=np.arange(15), seed=1)
    assert data.lengths.tolist() == [12] * 5
    for start in data.offsets[:-1]:
        rows = data.features[start : start + 12, 0].astype(int)
        assert len(set(rows)) == 12
        assert rows.max() < 15
        assert data.labels[start : start + 12].tolist() == [float(row % 3 == 1) for row in rows]
    with pytest.raises(DataError, match="one of the classes a, b, c"):
        sample_queries(table, "d")
    drawn = sample_queries(table, queries=20, documents=30)
    assert len({tuple(drawn.labels[s : s + 30] * drawn.features[s : s + 30, 0]) for s in drawn.offsets[:-1]}) > 1


@pytest.mark.parametrize(
    ("name", "rows", "classes"),
    [("optdigits", 5620, 10), ("letter", 20000, 26), ("segment", 2310, 7), ("spambase", 4601, 2)],
)
def test_reads_the_uci_sets(data_root, name, rows, classes):
    table = read_arff(data_root / "uci" / f"{name}.arff")
    assert (len(table.features), len(set(table.classes))) == (rows, classes)
