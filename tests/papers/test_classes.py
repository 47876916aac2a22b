"""Readers of classification data, and queries sampled from it."""

import numpy as np
import pytest

from papers.classes import read_arff, read_csv, sample_queries
from rankstruct.data import DataError

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
