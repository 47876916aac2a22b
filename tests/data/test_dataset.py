"""Flat data with offsets: checks, selection, statistics."""

import numpy as np
import pytest
import scipy.sparse as sp

from rankstruct.data import DataError, RankingData, concatenate

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 2, 1, 0, 0, 1], dtype=np.float32)
QID = ["a", "a", "a", "b", "b", "c"]


@pytest.fixture(params=["dense", "sparse"])
def data(request):
    features = X if request.param == "dense" else sp.coo_array(X)
    return RankingData.from_arrays(features, Y, QID, docids=[f"d{i}" for i in range(6)])


def dense(data):
    return data.features.toarray() if data.is_sparse else data.features


def test_from_arrays(data):
    assert (data.num_lists, data.num_documents, data.num_features) == (3, 6, 2)
    assert data.lengths.tolist() == [3, 2, 1]
    assert data.qids.tolist() == ["a", "b", "c"]
    assert (dense(data) == X).all()
    assert [data.list_of(row) for row in range(6)] == [0, 0, 0, 1, 1, 2]
    assert RankingData.from_arrays(np.zeros((0, 3)), [], []).num_lists == 0


@pytest.mark.parametrize(
    ("lists", "rows", "offsets"),
    [
        ([2, 0], [5, 0, 1, 2], [0, 1, 4]),
        ([True, False, True], [0, 1, 2, 5], [0, 3, 4]),
        ([], [], [0]),
    ],
)
def test_select(data, lists, rows, offsets):
    part = data.select(lists)
    assert part.offsets.tolist() == offsets
    assert (dense(part) == X[rows]).all()
    assert (part.labels == Y[rows]).all()
    assert part.docids.tolist() == [f"d{row}" for row in rows]


def test_concatenate_is_the_inverse_of_select(data):
    whole = concatenate([data.select([0]), data.select([1, 2])])
    assert (dense(whole) == X).all()
    assert whole.offsets.tolist() == data.offsets.tolist()
    assert whole.qids.tolist() == data.qids.tolist()
    assert whole.docids.tolist() == data.docids.tolist()


def test_concatenate_refuses(data):
    with pytest.raises(DataError, match="at least one part"):
        concatenate([])
    with pytest.raises(DataError, match=r"same number of features, got \[2, 1\].*num_features="):
        concatenate([data, RankingData.from_arrays([[1.0]], [0], ["z"])])
    with pytest.raises(DataError, match="'a' is repeated at list 3"):
        concatenate([data, data])


def test_same_labels_against_a_loop():
    rng = np.random.default_rng(0)
    qid = np.sort(rng.integers(0, 60, 150))
    data = RankingData.from_arrays(np.zeros((150, 1)), rng.integers(0, 2, 150), qid)
    expected = [
        len(set(data.labels[a:b].tolist())) <= 1 for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)
    ]
    assert data.same_labels().tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_empty_lists_are_legal():
    data = RankingData(X[:2], Y[:2], np.array([0, 0, 2, 2]), np.array(["a", "b", "c"]))
    assert data.same_labels().tolist() == [True, False, True]
    assert data.summary().nothing_relevant == 2
    assert data.select([2, 1]).offsets.tolist() == [0, 0, 2]


def test_summary(data):
    summary = data.summary()
    assert (summary.lists, summary.documents, summary.features) == (3, 6, 2)
    assert (summary.shortest, summary.median, summary.longest) == (1, 2, 3)
    assert summary.labels == {0: 3, 1: 2, 2: 1}
    assert summary.nothing_relevant == 1
    assert summary.density == (11 / 12 if data.is_sparse else 1)
    assert "labels                    0: 3, 1: 2, 2: 1" in str(summary)
    assert "0 to 0, median 0" in str(data.select([]).summary())


def test_many_labels_are_not_all_printed():
    data = RankingData.from_arrays(np.zeros((20, 1)), np.linspace(0, 1, 20), [0] * 20)
    assert "20 values, 0 to 1" in str(data.summary())


def test_comment_values():
    comments = np.array([b"url = http://a/?b=c host = a.org query = two words", b"host=b.org", b""])
    data = RankingData(X[:3], Y[:3], np.array([0, 3]), np.array(["q"]), comments=comments)
    assert data.comment_values("host").tolist() == ["a.org", "b.org", ""]
    assert data.comment_values("url").tolist() == ["http://a/?b=c", "", ""]
    assert data.comment_values("query").tolist() == ["two words", "", ""]
    with pytest.raises(DataError, match="no comment has 'site'"):
        data.comment_values("site")
    with pytest.raises(DataError, match="no document has a comment"):
        RankingData.from_arrays(X, Y, QID).comment_values("host")


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_features_that_are_not_finite(kind, value):
    features = X.copy()
    features[4, 1] = value
    with pytest.raises(
        DataError, match=rf"features must be finite numbers or NaN; got {value} at features\[4, 1\] \(list 'b'\)"
    ):
        RankingData.from_arrays(features if kind == "dense" else sp.csr_array(features), Y, QID)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_missing_features_are_kept(kind):
    for rows in ([4], range(len(X))):
        features = X.copy()
        features[rows, 1] = np.nan
        data = RankingData.from_arrays(features if kind == "dense" else sp.csr_array(features), Y, QID)
        found = data.features.toarray() if kind == "sparse" else data.features
        np.testing.assert_array_equal(found, features)


def test_labels_that_are_not_finite():
    with pytest.raises(DataError, match=r"labels must be finite numbers; got nan at labels\[5\] \(list 'c'\)"):
        RankingData.from_arrays(X, [0, 0, 0, 0, 0, np.nan], QID)


OFFSETS = np.array([0, 3, 5, 6])
NAMES = np.array(["a", "b", "c"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((X.astype(np.float64), Y, OFFSETS, NAMES), "features must be a float32 array .*float64.*from_arrays"),
        ((X[:, 0], Y, OFFSETS, NAMES), r"features must be a float32 array \[documents, d\].*shape \(6,\)"),
        ((X.tolist(), Y, OFFSETS, NAMES), "features must be .* got a list"),
        ((sp.coo_array(X), Y, OFFSETS, NAMES), "features must be float32 in CSR form, got float32 in COO form"),
        ((X, Y.astype(int), OFFSETS, NAMES), "labels must be a float32 array"),
        ((X, Y, OFFSETS.astype(np.float32), NAMES), "offsets must be an int64 array"),
        ((X, Y[:5], OFFSETS, NAMES), "got 5 labels, 6 rows"),
        (
            (X, Y, np.array([0, 3, 2, 6]), NAMES),
            r"offsets must increase from 0 to the number of documents, 6; got \[0 3 2 6",
        ),
        ((X, Y, np.array([0, 3, 5]), NAMES[:2]), "offsets must increase from 0"),
        ((X, Y, OFFSETS, NAMES[:2]), r"qids must have shape \[lists\] = \(3,\), got \(2,\)"),
        ((X, Y, OFFSETS, np.array(["a", "b", "a"])), "qids must be unique; 'a' is repeated at list 2"),
        ((X, Y, OFFSETS, NAMES, NAMES), r"docids must have shape \[documents\] = \(6,\), got \(3,\)"),
    ],
)
def test_refused(args, message):
    with pytest.raises(DataError, match=message):
        RankingData(*args)


def test_from_arrays_refuses():
    with pytest.raises(DataError, match="'a' is repeated at list 2; sort by qid"):
        RankingData.from_arrays(X, Y, ["a", "a", "b", "b", "a", "a"])
    with pytest.raises(DataError, match=r"y and qid must have shape \[documents\].*\(6,\) and \(5,\)"):
        RankingData.from_arrays(X, Y, QID[:5])
