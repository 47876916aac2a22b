"""Preparation steps against loops over lists and features."""

import numpy as np
import pytest
import scipy.sparse as sp

from rankstruct.data import (
    Append,
    Compose,
    DataError,
    LogMagnitude,
    QueryMinMax,
    QueryZScore,
    RankingData,
    Standardize,
    parse_preparation,
)


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    qid = np.sort(rng.integers(0, 12, 60))
    features = (rng.standard_normal((60, 4)) * 10.0 ** rng.integers(-3, 4, (60, 4))).astype(np.float32)
    features[:, 2] = 0.1  # constant, and not exact in binary
    features[qid == qid[0], 1] = -3
    data = RankingData.from_arrays(features, rng.integers(0, 3, 60), qid)
    assert 1 in data.lengths
    return data


def by_list(data, change):
    expected = np.zeros(data.features.shape)
    for first, last in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        for column in range(data.num_features):
            x = data.features[first:last, column].astype(np.float64)
            expected[first:last, column] = 0 if len(set(x.tolist())) == 1 else change(x)
    return expected


@pytest.mark.parametrize(
    ("step", "change"),
    [
        (QueryMinMax(), lambda x: (x - x.min()) / (x.max() - x.min())),
        (QueryZScore(), lambda x: (x - x.mean()) / x.std()),
    ],
    ids=["minmax", "zscore"],
)
def test_query_steps(data, step, change):
    before = data.features.copy()
    prepared = step(data)
    np.testing.assert_allclose(prepared.features, by_list(data, change), rtol=1e-5, atol=1e-6)
    assert (prepared.features[:, 2] == 0).all()
    assert prepared.features.dtype == np.float32
    assert (data.features == before).all()
    assert prepared.labels is data.labels


def test_empty_lists_do_not_take_their_neighbours_values():
    features = np.array([[1.0], [3.0], [5.0]], dtype=np.float32)
    data = RankingData(features, np.zeros(3, np.float32), np.array([0, 0, 2, 2, 3, 3]), np.array(list("abcde")))
    assert QueryMinMax()(data).features.ravel().tolist() == [0, 1, 0]
    assert QueryZScore()(data).features.ravel().tolist() == [-1, 1, 0]


def test_a_constant_feature_of_a_long_list_is_0():
    rng = np.random.default_rng(0)
    features = np.tile((rng.standard_normal(50) * 10.0 ** rng.integers(-8, 9, 50)).astype(np.float32), (9999, 1))
    data = RankingData.from_arrays(features, np.zeros(9999), np.zeros(9999))
    for step in (QueryMinMax(), QueryZScore(), Standardize.fit(data)):
        assert (step(data).features == 0).all()


def test_log_magnitude(data):
    expected = [[np.sign(x) * np.log1p(abs(x)) for x in row] for row in data.features.astype(np.float64).tolist()]
    np.testing.assert_allclose(LogMagnitude()(data).features, expected, rtol=1e-6)
    sparse = data.with_features(sp.csr_array(data.features))
    np.testing.assert_allclose(LogMagnitude()(sparse).features.toarray(), expected, rtol=1e-6)
    assert (sparse.features.toarray() == data.features).all()


def test_append_keeps_the_raw_features(data):
    for before in (data, data.with_features(sp.csr_array(data.features))):
        prepared = Append(LogMagnitude())(before)
        features = prepared.features.toarray() if prepared.is_sparse else prepared.features
        assert (features[:, :4] == data.features).all()
        assert (features[:, 4:] == LogMagnitude()(data).features).all()
        assert features.dtype == np.float32


def test_standardize_is_fitted_once(data):
    train, test = data.select(range(6)), data.select(range(6, data.num_lists))
    step = Standardize.fit(train)
    np.testing.assert_allclose(step(train).features[:, [0, 3]].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(step(train).features[:, [0, 3]].std(axis=0), 1, rtol=1e-5)
    mean, deviation = train.features.astype(float).mean(axis=0), train.features.astype(float).std(axis=0)
    np.testing.assert_allclose(step(test).features[:, 0], (test.features[:, 0] - mean[0]) / deviation[0], rtol=1e-5)
    assert (step(test).features[:, 2] == 0).all()
    with pytest.raises(DataError, match="fitted to 4 features, got 8"):
        step(Append(LogMagnitude())(test))


def test_steps_that_move_zeros_refuse_sparse_features(data):
    sparse = data.with_features(sp.csr_array(data.features))
    for step in (QueryMinMax(), QueryZScore(), Standardize.fit(data)):
        with pytest.raises(DataError, match=r"needs dense features.*sparse=False"):
            step(sparse)


def test_names():
    assert parse_preparation([]) == Compose(())
    assert parse_preparation(["log", "append-query-zscore"]) == Compose((LogMagnitude(), Append(QueryZScore())))
    with pytest.raises(ValueError, match=r"unknown preparation step 'minmax'; known are query-minmax, .*append-log"):
        parse_preparation(["minmax"])
    with pytest.raises(ValueError, match=r"write \['log'\]"):
        parse_preparation("log")


def test_steps_go_one_after_another(data):
    prepared = parse_preparation(["log", "query-minmax"])(data)
    np.testing.assert_array_equal(prepared.features, QueryMinMax()(LogMagnitude()(data)).features)
    assert parse_preparation([])(data) is data
