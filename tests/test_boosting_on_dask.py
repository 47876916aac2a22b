"""BoostedRanker on Dask collections: whole lists on one worker, and about the ranker of a single machine."""

import numpy as np
import pandas as pd
import pytest

import rankstruct as rs
from rankstruct.estimators import boosting_on_dask

dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
FEATURES = ["a", "b", "c"]


def draw(seed=0, lists=100):
    rng = np.random.default_rng(seed)
    qid = np.repeat([f"q{at}" for at in range(lists)], rng.integers(5, 25, lists))
    frame = pd.DataFrame(rng.normal(size=(len(qid), 3)), columns=FEATURES).assign(qid=qid)
    frame["label"] = (frame.a * frame.b + frame.c > 1).astype(int) + (frame.a * frame.b > 1.5)
    frame.loc[rng.random(len(qid)) < 0.1, "c"] = np.nan
    return frame


@pytest.fixture
def threads(monkeypatch):
    """Dask without a cluster, for what is done before training."""

    class Client:
        def persist(self, parts):
            return list(dd.dask.persist(*parts, scheduler="synchronous"))

    monkeypatch.setattr(boosting_on_dask, "client", Client)
    with dd.dask.config.set(scheduler="synchronous"):
        yield


def rows_of(lists):
    return pd.concat(dd.dask.compute(*lists.parts))


def test_rows_of_a_list_come_together(threads):
    frame = draw(lists=20)
    want = frame.groupby("qid")["a"].apply(sorted).to_dict()
    for given in (frame, frame.sample(frac=1, random_state=0)):
        lists = boosting_on_dask.whole_lists(dd.from_pandas(given, npartitions=5, sort=False), None, None, "Xyq", False)
        assert (lists.num_documents, lists.num_lists) == (len(frame), 20)
        rows = rows_of(lists)
        assert rows.groupby("__list__")["a"].apply(sorted).to_dict() == want
        assert (np.diff(pd.factorize(rows["__list__"])[0]) != 0).sum() == 19
        numbers = lists.frame()[2].compute().to_numpy()
        assert (np.diff(numbers) >= 0).all()
        assert np.bincount(numbers).tolist() == np.concatenate(lists.sizes).tolist()
        assert lists.features == FEATURES
        assert lists.roles == {"label": "label", "qid": "qid"}


def test_arrays_and_columns_are_the_same_lists(threads):
    numbered = draw(lists=20).assign(qid=lambda frame: frame.qid.str[1:].astype(int))
    frame = dd.from_pandas(numbered, npartitions=4)
    X = frame[FEATURES].to_dask_array(lengths=True)
    ways = [
        (frame, "label", "qid"),
        (frame, frame.label, frame.qid),
        (X, frame.label.to_dask_array(lengths=True), frame.qid),
    ]
    first, *others = [boosting_on_dask.whole_lists(*way, "Xyq", True) for way in ways]
    for other in others:
        # A shuffle keeps no order within lists.
        both = [rows_of(each).set_axis([*FEATURES, "label", "qid"], axis=1) for each in (first, other)]
        one, two = (rows.sort_values(["qid", "a"]).to_numpy() for rows in both)
        np.testing.assert_array_equal(one, two)
    assert first.num_lists == (draw(lists=20).groupby("qid").label.nunique() > 1).sum()
    assert others[1].named is False


def test_what_dask_does_not_do_is_refused_in_one_line(threads):
    pytest.importorskip("lightgbm")
    pytest.importorskip("xgboost")
    pytest.importorskip("catboost")
    frame = dd.from_pandas(draw(lists=5), npartitions=2)
    for ranker, given, said in (
        (rs.BoostedRanker(), {"y": "labels"}, r"y is missing, and X has no such column; there are 'a', 'b', 'c'"),
        (
            rs.BoostedRanker(),
            {"sample_weight": frame.a},
            "sample_weight is not possible on Dask collections, whose fit takes",
        ),
        (rs.BoostedRanker(prepare=["log"]), {}, "prepare is not possible on Dask collections; omit it"),
        (rs.BoostedRanker(library="catboost"), {}, "CatBoost does not train on Dask; use library='lightgbm'"),
        (
            rs.BoostedRanker(),
            {"X_valid": frame},
            "LightGBM does not stop early on Dask: omit X_valid and choose n_estimators",
        ),
        (rs.BoostedRanker(library="xgboost", patience=3), {}, "patience=3 needs X_valid, y_valid and qid_valid"),
        (
            rs.BoostedRanker("nDCG", library="xgboost"),
            {"X_valid": frame.assign(label=frame.label * 2000)},
            "y_valid: labels must have finite gains >= 0 under nDCG",
        ),
        (rs.BoostedRanker(), {"X": frame.assign(d="x")}, "X must have numbers on Dask, got column 'd'"),
        (rs.BoostedRanker(), {"X": frame.assign(label=-1)}, "y must be finite and at least 0, got"),
    ):
        with pytest.raises(ValueError, match=said):
            ranker.fit(**{"X": frame, **given})
    with pytest.raises(TypeError, match=r"X is a Dask collection, which only BoostedRanker takes: pass X.compute\(\)"):
        rs.LinearRanker().fit(frame)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_workers_rank_as_well_as_one_machine():
    pytest.importorskip("lightgbm")
    pytest.importorskip("xgboost")
    frame, new = draw(lists=200), draw(1)
    data = dd.from_pandas(frame.sample(frac=1, random_state=0), npartitions=6, sort=False)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        for library in ("lightgbm", "xgboost"):
            options = {"library": library, "n_estimators": 30, "random_state": 0}
            own, alone = rs.BoostedRanker(**options).fit(data), rs.BoostedRanker(**options).fit(frame)
            assert own.score(new) == pytest.approx(alone.score(new), abs=0.04)  # which lists a worker gets is not fixed
            assert own.lists_ <= alone.lists_
            assert own.feature_names_in_.tolist() == FEATURES
            assert np.corrcoef(own.predict(new), alone.predict(new))[0, 1] > 0.95
            scores = own.to_scorer()._table_scorer(None, None, "score").scores(new)
            assert scores == pytest.approx(own.predict(new), abs=1e-5)
        stopped = rs.BoostedRanker(library="xgboost", patience=3, n_estimators=200, random_state=0)
        stopped.fit(data, X_valid=dd.from_pandas(new, npartitions=1))
        (history,) = stopped.history_
        assert len(history) < 200
        assert stopped.best_iterations_ == [int(np.argmax(history)) + 1]
        assert stopped.score(new) == pytest.approx(max(history), abs=1e-6)
