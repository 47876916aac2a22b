"""Rankers fitted to a click log: rows of features are found by the names of documents, or by an order that was stated."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankstruct as rs
from papers.click_models import PositionModel, simulate_clicks
from rankstruct.clicks import ClickLog
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


def test_features_without_names_need_a_stated_order(clicked, right):
    X, rows = clicked
    log = ClickLog.read(rows)
    with pytest.raises(
        ValueError, match=r"X does not say which row is which document of the log: pass qid= and docid="
    ):
        ranker().fit(X, log, propensity=PROPENSITIES)
    with pytest.raises(ValueError, match="X does not say which row is which"):
        ranker().fit(pd.DataFrame(X, columns=list("abc")).assign(qid=QUERY), log, propensity=PROPENSITIES)
    with pytest.raises(ValueError, match="docid needs qid"):
        ranker().fit(X, log, docid=NAMES, propensity=PROPENSITIES)
    with pytest.raises(ValueError, match="X, qid and docid must have one row per document; got"):
        ranker().fit(X, log, QUERY[:-1], docid=NAMES, propensity=PROPENSITIES)
    with pytest.raises(ValueError, match="docid= finds the documents of a click log, and y is none"):
        ranker().fit(X, np.ones(len(X)), QUERY, docid=NAMES)
    with pytest.raises(ValueError, match="docid: X has no column 'page'"):
        ranker().fit(as_frame(X, slice(None)), log, docid="page", propensity=PROPENSITIES)
    own = pd.Series(range(len(X)), pd.MultiIndex.from_arrays([QUERY, NAMES]))
    order = own[pd.MultiIndex.from_arrays([log.queries[log.query_of_document], log.documents])].to_numpy()
    found = ranker().fit(X[order], log.with_documents(), propensity=PROPENSITIES)
    np.testing.assert_allclose(found.coef_, right, atol=1e-4)


def test_features_of_the_log_itself_are_in_its_order(clicked, right):
    X, rows = clicked
    log = ClickLog.read(rows)
    place = ClickLog.read(rows).with_documents(QUERY, NAMES).document
    frame = rows.sort_values("session", kind="stable").reset_index(drop=True)
    frame = pd.concat([frame, pd.DataFrame(X[place], columns=list("abc"))], axis=1)
    names, features = log.read_features(frame)
    assert names == list("abc")
    found = ranker().fit(features, log.with_documents(), propensity=PROPENSITIES)
    np.testing.assert_allclose(found.coef_, right, atol=1e-3)


MEASURED = rs.clicks.evaluate_from_clicks


def em(log, features):
    return rs.clicks.propensities_by_em(log, features, max_iterations=2).values


ESTIMATES = {  # by an argument of which each entry belongs to a document
    "features": lambda log, values: em(log, np.stack([values, values**2], 1)),
    "prediction": lambda log, values: rs.clicks.estimate_relevance(log, PROPENSITIES, clip=0.5, prediction=values),
    "exposure": lambda log, values: rs.clicks.estimate_relevance(log, PROPENSITIES, exposure=0.1 + 0.8 * values),
    "scores": lambda log, values: MEASURED(log, values, "DCG@3", PROPENSITIES).value,
    "exposure of candidates": lambda log, values: (
        MEASURED(log, values, "DCG@3", PROPENSITIES, query=QUERY, document=NAMES, exposure=0.1 + 0.8 * values).value
    ),
}


@pytest.mark.parametrize("argument", ESTIMATES)
def test_what_estimates_take_by_document_needs_a_stated_order(clicked, argument):
    X, rows = clicked
    log, values, order = ClickLog.read(rows), 1 / (1 + np.exp(-X[:, 0])), np.random.default_rng(2).permutation(len(X))
    with pytest.raises(
        ValueError, match=f"{argument.split()[0]} does not say which entry is which document of the log"
    ):
        ESTIMATES[argument](log, values)
    if "candidates" in argument:
        return
    found = ESTIMATES[argument](log.with_documents(QUERY, NAMES), values)
    other = ESTIMATES[argument](log.with_documents(QUERY[order], NAMES[order]), values[order])
    np.testing.assert_allclose(other, found[order] if np.shape(found) == (len(X),) else found, rtol=1e-9)


def test_features_of_regression_em_are_found_by_name(clicked):
    X, rows = clicked
    log, order = ClickLog.read(rows), np.random.default_rng(3).permutation(len(X))
    right = em(log.with_documents(QUERY, NAMES), X.astype(np.float32))
    frame = as_frame(X, order).assign(label=np.arange(len(X)))  # which is no feature
    np.testing.assert_allclose(em(log, frame), right, rtol=1e-6)
    with pytest.raises(
        ValueError, match="features have no column 'document', without which their documents are not known"
    ):
        em(log.with_documents(), frame.drop(columns="docid"))


def test_contexts_of_queries_are_found_by_name(clicked):
    _, rows = clicked
    log, ids = ClickLog.read(rows), np.array([f"q{i}" for i in range(LISTS)])
    context, order = np.arange(LISTS)[:, None] % 2, np.random.default_rng(4).permutation(LISTS)
    by = rs.clicks.propensities_by_context
    right, found = by(log, context, ids), by(log, context[order], ids[order])
    np.testing.assert_allclose(found.coefficients, right.coefficients, rtol=1e-9)
    with pytest.raises(ValueError, match="one row for each query of the log, and there is none for q7"):
        by(log, context[ids != "q7"], ids[ids != "q7"])


def test_documents_that_were_never_shown_are_named_and_left_out(clicked, right):
    X, rows = clicked
    more = pd.DataFrame(np.full((2, 3), 50.0), columns=list("abc")).assign(qid=["q0", "other"], docid=["new", "d1"])
    with pytest.warns(
        UserWarning, match="2 of the 74 documents of the table .* not in the log, such as 'document new of query q0'"
    ):
        found = ranker().fit(pd.concat([more, as_frame(X, slice(None))]), ClickLog.read(rows), propensity=PROPENSITIES)
    np.testing.assert_allclose(found.coef_, right, atol=1e-4)


def test_documents_of_the_log_without_features_are_named(clicked):
    X, rows = clicked
    log, frame = ClickLog.read(rows), as_frame(X, slice(3, None))
    with pytest.raises(
        ValueError, match="3 of 72 documents of the log are missing, such as document d0 of query q0; add them"
    ):
        ranker().fit(frame, log, propensity=PROPENSITIES)
    with pytest.warns(UserWarning, match="3 of the 72 documents of the log"):
        less = log.with_documents(frame["qid"], frame["docid"], missing="drop")
    ranker().fit(frame, less, propensity=PROPENSITIES)
    with pytest.raises(DataError, match="none of the 72 documents of the log is in the table"):
        ranker().fit(frame.assign(docid=frame["docid"] + " "), log, propensity=PROPENSITIES)


def test_validation_logs_are_matched_by_name_too(clicked):
    X, rows = clicked
    log, order = ClickLog.read(rows), np.random.default_rng(1).permutation(len(X))
    make = lambda: rs.LinearRanker(loss="AdditiveRankLoss('linear')", C=[1e-4, 0.1])  # noqa: E731
    train = {"propensity": PROPENSITIES, "docid": NAMES}
    stated = log.with_documents(QUERY, NAMES)
    one = make().fit(X, log, QUERY, **train, X_valid=X, y_valid=stated, qid_valid=QUERY)
    frame = as_frame(X, order)
    other = make().fit(as_frame(X, slice(None)), log, propensity=PROPENSITIES, X_valid=frame, y_valid=log)
    assert other.validation_ == pytest.approx(one.validation_)
    with pytest.raises(ValueError, match="X_valid does not say which row is which document of the log"):
        make().fit(X, log, QUERY, **train, X_valid=X, y_valid=log, qid_valid=QUERY)


def test_numbers_and_strings_are_equal_if_they_are_written_alike(clicked, right):
    X, rows = clicked
    numbers = {name: number for number, name in enumerate(np.unique(QUERY))}
    log = ClickLog.read(rows.assign(qid=rows["qid"].map(numbers).astype(float)))
    query = pd.Series(QUERY).map(numbers).astype(str)
    found = ranker().fit(X, log, query, docid=NAMES, propensity=PROPENSITIES)
    np.testing.assert_allclose(found.coef_, right, atol=1e-4)


def test_lists_of_the_logs_names_in_another_order_are_refused(clicked):
    X, rows = clicked
    log = ClickLog.read(rows).with_documents(QUERY, NAMES)
    with pytest.raises(ValueError, match=r"qid must be the queries of the log, .* or check the order of X"):
        ranker().fit(X[::-1], log, QUERY[::-1], propensity=PROPENSITIES)
    same = ranker().fit(X, log, QUERY, propensity=PROPENSITIES).coef_
    numbers = ranker().fit(X, log, np.repeat(np.arange(100, 100 + LISTS), SIZE), propensity=PROPENSITIES).coef_
    np.testing.assert_array_equal(same, numbers)
