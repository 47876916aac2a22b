"""Preparation of features: every step against loops by hand, padded against flat, saved against fitted."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
import torch

import rankstruct as rs
from rankstruct import preparation as module
from rankstruct.preparation import KNOWN, Preparation, full_name

PLAIN = [name for name in KNOWN if not name.startswith("append-") and name != "encode"]
BY_LIST = [name for name in PLAIN if name.startswith("query-")]


def draw(seed=3, dtype=np.float32):
    """Lists of 1 to some documents; ties, a constant feature that is not exact in binary, one constant in the first list."""
    rng = np.random.default_rng(seed)
    lengths = np.concatenate([[1], rng.integers(1, 9, 11)])
    offsets = np.concatenate([[0], lengths.cumsum()])
    X = (rng.normal(size=(offsets[-1], 5)) * 10.0 ** rng.integers(-3, 4, (offsets[-1], 5))).astype(dtype)
    X[:, 2] = 0.1
    X[: offsets[2], 1] = -3
    X[:, 4] = rng.integers(0, 3, len(X))
    return X, offsets


def by_hand(name, train, X, offsets):
    """What a step is to give for one feature of float64, list by list and number by number."""
    lists = [X[a:b] for a, b in itertools.pairwise(offsets)]

    def lists_by(change):
        return np.concatenate([np.zeros(len(x)) if len(set(x.tolist())) == 1 else change(x) for x in lists])

    if name == "query-minmax":
        return lists_by(lambda x: (x - x.min()) / (x.max() - x.min()))
    if name == "query-zscore":
        return lists_by(lambda x: (x - x.mean()) / x.std())
    if name == "query-center":
        return lists_by(lambda x: x - x.mean())
    if name == "query-percentile":
        return np.concatenate([[(np.sum(x < v) + 0.5 * np.sum(x == v)) / len(x) for v in x] for x in lists])
    if name == "log":
        return np.array([np.sign(v) * (np.log(abs(v) + 0.001) - np.log(0.001)) for v in X])
    if name == "standardize":
        return (X - train.mean()) / train.std() if train.min() < train.max() else np.zeros(len(X))
    if name == "quantile":
        places = np.unique(train)
        shares = [(np.sum(train < v) + 0.5 * np.sum(train == v)) / len(train) for v in places]
        return np.interp(X, places, scipy.stats.norm.ppf(shares))
    if name == "piecewise":
        ordered = sorted(train)
        bounds = sorted({ordered[max(-(-k * len(ordered) // 8) - 1, 0)] for k in range(9)})
        filled = [[min(max((v - a) / (b - a), 0), 1) for v in X] for a, b in itertools.pairwise(bounds)]
        return np.array(filled).reshape(-1, len(X)).T
    assert name == "bins"
    step = (train.max() - train.min()) / 51
    return np.array([[float(v >= train.min() + step * k) for k in range(1, 51)] for v in X])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PLAIN)
def test_every_step_is_what_it_is_by_hand(name, dtype):
    (train, of_train), (X, offsets) = draw(1, dtype), draw(2, dtype)
    kept = X.copy()
    found = rs.Preparation.fit([name], train, of_train).transform(X, offsets)
    assert found.dtype == dtype or name == "bins"
    columns = [by_hand(name, train[:, f].astype(float), X[:, f].astype(float), offsets) for f in range(5)]
    wanted = np.hstack(columns) if name in ("bins", "piecewise") else np.stack(columns, 1)
    found = found.toarray() if name == "bins" else found
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    if name in ("query-minmax", "query-zscore", "query-center", "standardize", "quantile"):
        assert (found[:, 2] == 0).all()
    appended = rs.Preparation.fit([f"append-{name}"], train, of_train).transform(X, offsets)
    appended = appended.toarray() if name == "bins" else appended
    np.testing.assert_array_equal(appended, np.hstack([X, found]))
    assert (kept == X).all()


@pytest.mark.parametrize("name", PLAIN)
def test_documents_of_double_precision_are_prepared_in_it(name):
    """Everything fitted, and what is made of it, is right to the last digits, not to those of float32."""
    (train, of_train), (X, offsets) = draw(1, np.float64), draw(2, np.float64)
    found = rs.Preparation.fit([name], train, of_train).transform(X, offsets)
    columns = [by_hand(name, train[:, f], X[:, f], offsets) for f in range(5)]
    wanted = np.hstack(columns) if name in ("bins", "piecewise") else np.stack(columns, 1)
    np.testing.assert_allclose(found.toarray() if name == "bins" else found, wanted, rtol=1e-11, atol=1e-11)


def test_medians_of_double_precision_replace_missing_numbers():
    train = np.array([[0.1, 1 / 3], [0.1, np.nan], [np.nan, 1 / 3]])
    preparation = rs.Preparation.fit(["encode"], train)
    assert preparation.transform(np.full((1, 2), np.nan))[0, :2].tolist() == [0.1, 1 / 3]


def test_quantiles_of_many_values_are_normal_and_keep_their_order():
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(5000, 1)).astype(np.float32)
    preparation = rs.Preparation.fit(["quantile"], X)
    found = preparation.transform(X).ravel()
    assert preparation.fitted[0]["values"].shape[1] <= 1000
    exact = scipy.stats.norm.ppf((scipy.stats.rankdata(X) - 0.5) / len(X))
    inside = np.abs(exact) < 2
    assert np.abs(found - exact)[inside].max() < 0.01
    assert (np.diff(found[np.argsort(X.ravel())]) >= 0).all()
    ends = preparation.transform(np.array([[-1e9], [1e9]], np.float32)).ravel()
    assert ends[0] == found.min()
    assert ends[1] == found.max()


def test_a_constant_feature_of_many_documents_is_0():
    rng = np.random.default_rng(0)
    row = (rng.standard_normal(50) * 10.0 ** rng.integers(-8, 9, 50)).astype(np.float32)
    for dtype in (np.float32, np.float64):
        X, offsets = np.tile(row.astype(dtype), (9999, 1)), np.array([0, 9999])
        for name in ("query-minmax", "query-zscore", "query-center", "standardize", "quantile"):
            assert (rs.Preparation.fit([name], X, offsets).transform(X, offsets) == 0).all()


@pytest.mark.parametrize("name", KNOWN)
def test_padded_and_flat_tensors_give_what_arrays_do(name):
    (train, of_train), (X, offsets) = draw(1), draw(2)
    preparation = rs.Preparation.fit([name], train, of_train)
    wanted = preparation.transform(X, offsets)
    wanted = torch.as_tensor(wanted.toarray() if sp.issparse(wanted) else wanted)
    flat = preparation(torch.tensor(X), offsets=torch.tensor(offsets))
    assert torch.equal(flat, wanted)
    lengths = np.diff(offsets)
    where = torch.arange(lengths.max() + 2) < torch.tensor(lengths)[:, None]
    padded = torch.full((*where.shape, 5), np.nan)
    padded[where] = torch.tensor(X)
    kept = padded.clone()
    found = preparation(padded.unflatten(0, (2, -1)), where=where.unflatten(0, (2, -1))).flatten(0, 1)
    assert torch.equal(found[where], wanted)
    assert torch.equal(padded.nan_to_num(7), kept.nan_to_num(7))
    first = X[: offsets[1] + lengths[1]][offsets[1] :]  # without `where` all are documents of their list
    assert torch.equal(preparation(torch.tensor(first)), wanted[offsets[1] : offsets[2]])
    assert preparation(torch.tensor(first).double()).dtype == torch.float64
    assert preparation(torch.tensor(X[:0]), offsets=torch.zeros(1, dtype=torch.int64)).shape == (0, wanted.shape[1])


def test_empty_lists_do_not_take_their_neighbours_values():
    X, offsets = np.array([[1.0], [3.0], [5.0]], np.float32), np.array([0, 0, 2, 2, 3, 3])
    for name, wanted in (
        ("query-minmax", [0, 1, 0]),
        ("query-zscore", [-1, 1, 0]),
        ("query-percentile", [0.25, 0.75, 0.5]),
    ):
        assert rs.Preparation.fit([name], X, offsets).transform(X, offsets).ravel().tolist() == wanted


def test_piecewise_encodings_fill_one_bin_after_the_other_and_missing_numbers_stay_missing():
    X = np.float32([[0], [0], [0], [1], [3], [7], [np.nan]])
    preparation = rs.Preparation.fit(["piecewise:2"], X)
    np.testing.assert_array_equal(
        preparation.transform(np.float32([[-1], [1.75], [9], [np.nan]])), [[0], [0.25], [1], [np.nan]]
    )
    assert preparation.width == 1  # the median is the minimum


def test_a_missing_number_stays_missing_in_bins_sparse_or_not():
    X, y, qid = np.float32([[0, 1], [4, 3], [2, 0], [3, 2]]), [0, 1, 0, 1], [0, 0, 1, 1]
    missing, steps = np.float32([[np.nan, 3]]), ["bins:3"]
    wanted = [[np.nan, np.nan, np.nan, 1, 1, 1]]
    preparation = rs.Preparation.fit(steps, X)
    for given in (missing, sp.csr_array(missing)):
        np.testing.assert_array_equal(preparation.transform(given).toarray(), wanted)
    np.testing.assert_array_equal(preparation(torch.from_numpy(missing)), wanted)
    scorer = rs.LinearRanker("AP", prepare=steps).fit(X, y, qid).to_scorer()
    assert scorer(torch.from_numpy(np.concatenate([missing, X]))).isnan().tolist() == [True, False, False, False, False]


def test_a_feature_in_the_order_of_an_earlier_one_has_no_bins_of_its_own():
    X = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    again = np.hstack([X, np.exp(X[:, :1]), -X[:, 1:]])
    step = rs.Preparation.fit(["append-quantile", "piecewise:4"], again).steps[1]
    np.testing.assert_array_equal(step.column, np.repeat([0, 1, 3], 4))


def test_steps_are_fitted_to_what_those_before_make():
    (train, of_train), (X, offsets) = draw(1), draw(2)
    names = ["append-log:0.1", "standardize", "query-center", "bins:3"]
    whole = rs.Preparation.fit(names, train, of_train)
    assert whole.names == ("append-log:0.1", "standardize", "query-center", "bins:3")
    for name in names:
        step = rs.Preparation.fit([name], train, of_train)
        train, X = step.transform(train, of_train), step.transform(X, offsets)
    raw = draw(2)[0]
    assert (whole.transform(raw, offsets) != X).nnz == 0
    assert torch.equal(whole(torch.tensor(raw), offsets=torch.tensor(offsets)), torch.tensor(X.toarray()))
    nothing = rs.Preparation.fit([], raw)
    assert nothing.transform(raw) is raw
    assert nothing(kept := torch.tensor(raw)) is kept


def test_sparse_features_stay_so_or_are_refused():
    X, offsets = draw()
    X[X < 0.5] = 0
    sparse = sp.csr_array(X)
    for name in ("log", "append-log", "bins:4", "append-bins"):
        preparation = rs.Preparation.fit([name], sparse, offsets)
        found, dense = preparation.transform(sparse), preparation.transform(X)
        assert sp.issparse(found)
        np.testing.assert_array_equal(found.toarray(), dense.toarray() if sp.issparse(dense) else dense)
    assert (sparse.toarray() == X).all()
    for name in ("standardize", "quantile", *BY_LIST):
        with pytest.raises(ValueError, match=rf"{name} needs dense features.*sparse=False"):
            rs.Preparation.fit([name], sparse, offsets)


def test_half_precision_and_mapped_features_are_widened(tmp_path):
    X, offsets = draw()
    np.save(tmp_path / "x.npy", X.astype(np.float16))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rs.Preparation.fit_transform(["append-query-zscore", "standardize"], mapped, offsets)[1]
    assert found.dtype == np.float32
    wide = rs.Preparation.fit_transform(["append-query-zscore", "standardize"], mapped.astype(np.float32), offsets)[1]
    np.testing.assert_array_equal(found, wide)


def test_steps_without_lists_are_exported():
    X, offsets = draw()
    scorer = rs.models.PreparedScorer(
        rs.MLPScorer(20, hidden=(4,)),
        rs.Preparation.fit(["append-log", "quantile", "append-standardize"], X, offsets),
    ).eval()
    documents = torch.export.Dim("documents", min=2, max=1000)
    program = torch.export.export(scorer, (torch.tensor(X),), dynamic_shapes=({0: documents},))
    again = program.module()(torch.tensor(X[:7]))
    torch.testing.assert_close(again, scorer(torch.tensor(X[:7])), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", KNOWN)
def test_pickled_and_moved_it_is_the_same(name):
    X, offsets = draw()
    preparation = rs.Preparation.fit([name], X, offsets)
    again = pickle.loads(pickle.dumps(preparation))
    assert again.equals(preparation)
    assert not rs.Preparation.fit([name, "standardize"] if "bins" not in name else ["log"], X, offsets).equals(
        preparation
    )
    given = torch.tensor(X), torch.tensor(offsets)
    assert torch.equal(again(given[0], offsets=given[1]), preparation(given[0], offsets=given[1]))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["logs"], "unknown preparation step 'logs'; known are query-minmax, .*append-log"),
        ("log", r"a list of names, got the string 'log'; write \['log'\]"),
        (["standardize:3"], "standardize takes no number"),
        (["log:x"], "expected a number after the colon, got 'log:x'"),
        (["bins:2.5"], "expected a number"),
        (["log:0"], "expected a number above 0"),
        (["log:inf"], "expected a number above 0"),
        (["binarize:1"], "unknown preparation step 'binarize:1'"),
    ],
)
def test_names_that_are_none(names, message):
    with pytest.raises(ValueError, match=message):
        rs.Preparation.fit(names, draw()[0])


def test_full_names():
    names = ["log", "append-log:0.5", "bins", "query-center", "log:1e-5", "log:1"]
    assert [*map(full_name, names)] == ["log:0.001", "append-log:0.5", "bins:50", "query-center", "log:1e-05", "log:1"]
    assert full_name(full_name("log:0.1234567890123")) == "log:0.1234567890123"


def test_shapes_that_do_not_fit():
    X, offsets = draw()
    fitted = {name: rs.Preparation.fit([name], X, offsets) for name in ("standardize", "query-center")}
    for preparation in fitted.values():
        with pytest.raises(ValueError, match=r"fitted to 5 features, got 4"):
            preparation.transform(X[:, :4], offsets)
        with pytest.raises(ValueError, match=r"raw, of shape \[..., list_size, 5\].*got \(2, 3\)"):
            preparation(torch.zeros(2, 3))
    by_list = fitted["query-center"]
    with pytest.raises(ValueError, match="needs complete lists, which are missing: pass qid="):
        by_list.transform(X)
    features = torch.tensor(X)
    for given, lists in (
        (features[0], {}),
        (features[None], {"offsets": torch.tensor(offsets)}),
        (features, {"where": torch.ones(3, dtype=torch.bool)}),
        (features, {"offsets": torch.tensor([0, 3])}),
    ):
        with pytest.raises(ValueError, match=r"complete lists|with offsets|offsets must"):
            by_list(given, **lists)
    for name in ("standardize", "quantile", "bins", "piecewise"):
        with pytest.raises(ValueError, match="at least one document to fit, got none"):
            rs.Preparation.fit([name], X[:0])


@pytest.mark.parametrize(
    "names",
    [
        ["append-quantile", "standardize"],
        ["standardize", "quantile"],
        ["bins:3"],
        ["standardize", "append-piecewise:4"],
    ],
)
def test_blocks_are_those_of_all_and_the_given_documents_stay(names, monkeypatch):
    """Later steps work in place, on documents of their own."""
    X = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    before = X.copy()
    whole, found = Preparation.fit_transform(names, X)
    monkeypatch.setattr(module, "_CHUNK", 7)
    monkeypatch.setattr(module, "_COLUMNS", 4)
    parts, again = Preparation.fit_transform(names, X)
    np.testing.assert_array_equal(X, before)
    assert parts.equals(whole)
    for each in (again, whole.transform(X)):
        np.testing.assert_array_equal(*(x.toarray() if sp.issparse(x) else x for x in (each, found)))
