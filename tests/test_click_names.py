"""Rankers fitted to a click log: rows of features are found by the names of documents, or by an order that was stated."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankstruct as rs
from rankstruct.clicks import ClickLog, PositionModel, simulate_clicks
from rankstruct.data import DataError

LISTS, SIZE = 12, 6
QUERY = np.repeat([f"q{i}" for i in range(LISTS)], SIZE)
NAMES = np.array([f"d{i % 9}" for i in range(LISTS * SIZE)])  # equal names in several lists
OFFSETS = np.arange(0, LISTS * SIZE + 1, SIZE)
PROPENSITIES = PositionModel().propensities(SIZE)


def ranker():
    return rs.LinearRanker(loss="AdditiveRankLoss('linear')", C=0.1)


@pytest.fixture(scope="module")
def clicked():
    """Features, and the rows of a log as a frame."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(LISTS * SIZE, 3))
    y = (X[:, 0] > 0.3).astype(int)
    log = simulate_clicks(PositionModel(), rng.normal(size=(2, len(X))), y, OFFSETS, sessions=300)
    rows = {"session": log.session, "position": log.position, "click": log.click * 1}
    return X, pd.DataFrame({"qid": QUERY[log.document], "docid": NAMES[log.document], **rows})


@pytest.fixture(scope="module")
def right(clicked):
    X, rows = clicked
    return ranker().fit(X, ClickLog.read(rows).with_documents(QUERY, NAMES), propensity=PROPENSITIES).coef_


def as_frame(X, order):
    return pd.DataFrame(X[order], columns=list("abc")).assign(qid=QUERY[order], docid=NAMES[order])


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**20))
@pytest.mark.parametrize("how", ["frame", "frame with labels", "columns by name", "arrays", "polars"])
def test_any_order_of_rows_is_the_same_model_where_there_are_names(how, clicked, right, seed):
    X, rows = clicked
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    log = ClickLog.read(rows.iloc[rng.permutation(len(rows))])
    frame, options = as_frame(X, order), {"propensity": PROPENSITIES}
    if how == "frame":
        found = ranker().fit(frame, log, **options)
    elif how == "frame with labels":  # which are no features
        found = ranker().fit(frame.assign(label=rng.integers(0, 3, len(X))), log, **options)
        assert found.roles_["label"] == "label"
    elif how == "columns by name":
        renamed = frame.rename(columns={"qid": "search", "docid": "page"})
        found = ranker().fit(renamed, log, "search", docid="page", **options)
    elif how == "arrays":
        found = ranker().fit(X[order], log, QUERY[order], docid=NAMES[order], **options)
    else:
        polars = pytest.importorskip("polars")
        found = ranker().fit(polars.DataFrame(frame.to_dict("list")), log, **options)
    assert found.n_features_in_ == 3
    np.testing.assert_allclose(found.coef_, right, atol=1e-4)
