"""Rankers fitted to clicks: what their labels and weights are, that they correct for positions, and what is refused."""

import numpy as np
import pandas as pd
import pytest

import rankstruct as rs
from papers.click_models import PositionModel, simulate_clicks
from rankstruct.clicks import ClickLog, Propensities, estimate_relevance, harvest_propensities
from rankstruct.estimators.base import as_seed
from rankstruct.estimators.ensemble import deal_lists
from rankstruct.estimators.from_clicks import CLICK_COSTS, lists_of_log, weigh_clicks
from rankstruct.estimators.linear import _best_of
from rankstruct.estimators.training_data import gather
from rankstruct.losses import AdditiveRankLoss, RankNetLoss

LISTS, SIZE = 60, 10
MODEL = PositionModel(eta=1.5, irrelevant=0.05)
PROPENSITIES = MODEL.propensities(SIZE)
OFFSETS = np.arange(0, LISTS * SIZE + 1, SIZE)
QID = np.repeat(np.arange(LISTS), SIZE)
SMALL = {
    "linear": lambda **more: rs.LinearRanker(C=0.3, **more),
    "mlp": lambda **more: rs.MLPRanker(max_epochs=30, device="cpu", **more),
    "boosted": lambda **more: rs.BoostedRanker(n_estimators=30, n_jobs=1, **more),
}


def draw(seed):
    """Features, labels and the scores of a production ranker that knows only the third feature, which does not matter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(LISTS * SIZE, 3))
    return X, (X[:, 0] + X[:, 1] > 1).astype(float), X[:, 2] + 0.3 * X[:, 0]


@pytest.fixture(scope="module")
def logged():
    X, y, production = draw(0)
    rankers = np.stack([production, production + np.random.default_rng(1).normal(size=len(X))])
    return X, simulate_clicks(MODEL, rankers, y, OFFSETS, sessions=4000, seed=0)


def by_session(log, X):
    """A log as arrays of documents, one list per session, in random order."""
    order = np.random.default_rng(0).permutation(len(log))
    return X[log.document[order]], log.click[order].astype(int), log.session[order], log.position[order]


@pytest.fixture(params=SMALL)
def make(request):
    if request.param == "boosted":
        pytest.importorskip("lightgbm")
    return SMALL[request.param]


@pytest.mark.sampled(3)
def test_propensities_correct_for_positions(make, logged):
    X, log = logged
    X_test, y_test, _ = draw(1)
    naive = make().fit(X, log, propensity=np.ones(SIZE))
    known = make().fit(X, log, propensity=PROPENSITIES)
    assert known.measure_ == "DCG@10"
    best = make(loss=AdditiveRankLoss(), measure="DCG@10").fit(X, draw(0)[1], QID)
    scores = [each.score(X_test, y_test, QID) for each in (naive, known, best)]
    assert scores[1] > 0.97 * scores[2]
    assert scores[0] < scores[1] - 0.01 * scores[2]


def test_sessions_as_lists_are_the_log(logged):
    X, _ = logged
    options = {"loss": AdditiveRankLoss("linear"), "prepare": (), "tolerance": 1e-7, "drop_empty": False}
    whole = simulate_clicks(MODEL, -X[:, 2], draw(0)[1], OFFSETS, sessions=150, seed=3)
    features, clicks, session, position = by_session(whole, X)
    together = rs.LinearRanker(C=0.1, **options).fit(X, whole, QID, propensity=PROPENSITIES)
    apart = rs.LinearRanker(C=0.1, **options).fit(features, clicks, session, position=position, propensity=PROPENSITIES)
    assert together.coef_ == pytest.approx(apart.coef_, rel=1e-3, abs=1e-4)


def test_a_log_is_its_relevance_as_weights(logged):
    X, log = logged
    relevance = estimate_relevance(log, PROPENSITIES, clip=0.2)
    sessions = np.bincount(log.query[np.flatnonzero(np.diff(log.session, prepend=-1))], minlength=LISTS)[QID]
    options = {"loss": AdditiveRankLoss("linear"), "C": 0.01}
    found = rs.LinearRanker(**options).fit(X, log, propensity=PROPENSITIES, clip=0.2)
    weights = np.where(relevance > 0, relevance, 1)
    by_hand = rs.LinearRanker(**options).fit(X, relevance > 0, QID, item_weights=weights, sample_weight=sessions)
    np.testing.assert_allclose(found.coef_, by_hand.coef_)
    np.testing.assert_array_equal(found.propensities_, np.maximum(PROPENSITIES, 0.2))
    again = found.fit(X, draw(0)[1], QID)  # to labels
    assert again.propensities_ is None
    assert again.measure_ == "AP"


def test_clicks_weigh_their_inverse_propensity():
    clicks, position = np.array([0, 1, 1.0, 0, 0]), [1, 2, 1, 2, np.nan]
    labels, weights, used = weigh_clicks(clicks, np.array([7, 7, 8, 8, 8]), position, [1, 0.5, 0.25], 0.3)
    assert labels.tolist() == [0, 1, 1, 0, 0]
    assert weights.tolist() == [1, 2, 1, 1, 1]
    assert used.tolist() == [1, 0.5, 0.3]
    labels, weights, _ = weigh_clicks(clicks, np.zeros(5), None, [0.1, 0.2, 0.5, 1, 1], None)
    assert labels.tolist() == [0, 1, 1, 0, 0]
    assert weights.tolist() == [1, 5, 2, 1, 1]


def test_without_propensities_those_of_the_log_are_harvested(logged):
    X, log = logged
    found = rs.LinearRanker(C=0.3).fit(X, log)
    np.testing.assert_array_equal(found.propensities_, np.minimum(harvest_propensities(log).values, 1))
    given = rs.LinearRanker(C=0.3).fit(X, log, propensity=harvest_propensities(log))
    np.testing.assert_array_equal(found.coef_, given.coef_)


def test_a_log_that_tells_nothing_of_propensities_is_refused(logged):
    X, _ = logged
    log = simulate_clicks(MODEL, X[:, 2], draw(0)[1], OFFSETS, sessions=500)
    with pytest.raises(
        ValueError, match="propensity is missing, and cannot be harvested from the log: rank 2 cannot be"
    ):
        rs.LinearRanker().fit(X, log)


def test_documents_that_were_never_shown_are_left_out(logged):
    X, _ = logged
    log = simulate_clicks(MODEL, X[:, 2], draw(0)[1], OFFSETS, sessions=500, cutoff=5)
    options = {"loss": AdditiveRankLoss("linear"), "C": 0.01, "prepare": ()}
    shown = log.query_of_document >= 0
    found = rs.LinearRanker(**options).fit(X, log, propensity=PROPENSITIES)
    moved = X.copy()
    moved[~shown] = 100.0
    same = rs.LinearRanker(**options).fit(moved, log, propensity=PROPENSITIES)
    np.testing.assert_array_equal(found.coef_, same.coef_)
    with_lists = rs.LinearRanker(**options).fit(X, log, QID, propensity=PROPENSITIES)
    np.testing.assert_array_equal(found.coef_, with_lists.coef_)
    with pytest.raises(ValueError, match="qid must be the queries of the log, which its documents have already"):
        rs.LinearRanker(**options).fit(X, log, QID[::-1] // 2, propensity=PROPENSITIES)


def test_columns_of_a_frame(logged):
    X, log = logged
    features, clicks, session, position = by_session(log, X)
    frame = pd.DataFrame(features, columns=["a", "b", "c"]).assign(session=session, rank=position, click=clicks)
    found = rs.LinearRanker(C=0.3).fit(frame, "click", "session", position="rank", propensity=PROPENSITIES)
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    assert found.roles_ == {"label": "click", "qid": "session", "position": "rank"}
    by_arrays = rs.LinearRanker(C=0.3).fit(features, clicks, session, position=position, propensity=PROPENSITIES)
    np.testing.assert_array_equal(found.coef_, by_arrays.coef_)
    np.testing.assert_array_equal(found.predict(frame), found.predict(frame[["a", "b", "c"]]))
    with pytest.raises(ValueError, match="position: X has no column 'rnak'"):
        rs.LinearRanker().fit(frame, "click", "session", position="rnak", propensity=PROPENSITIES)


def test_sizes_of_sessions_as_in_lightgbm(logged):
    X, log = logged
    sizes = np.bincount(log.session)
    options = {"position": log.position, "propensity": PROPENSITIES}
    found = rs.LinearRanker(C=0.3).fit(X[log.document], log.click, group=sizes, **options)
    same = rs.LinearRanker(C=0.3).fit(X[log.document], log.click, log.session, **options)
    np.testing.assert_array_equal(found.coef_, same.coef_)
    for name, right in (("positions", "position"), ("propensities", "propensity")):
        with pytest.raises(TypeError, match=f"there is no {name}=; pass {right}="):
            rs.LinearRanker().fit(X, log, **{name: PROPENSITIES})


def test_validation_by_clicks_chooses(logged):
    X, log = logged
    X_valid, y_valid, production = draw(2)
    valid = simulate_clicks(MODEL, production, y_valid, OFFSETS, sessions=4000, seed=5)
    options = {"C": [1e-6, 0.3]}
    found = rs.LinearRanker(**options).fit(
        X, log, propensity=PROPENSITIES, X_valid=X_valid, y_valid=valid, qid_valid=QID
    )
    relevance = estimate_relevance(valid, PROPENSITIES)
    by_hand = rs.evaluate(
        found.use_path(1).predict(X_valid),
        relevance > 0,
        ["DCG@10"],
        qid=QID,
        item_weights=np.where(relevance > 0, relevance, 1),
    )
    assert found.validation_[1] == pytest.approx(float(by_hand["DCG@10"].mean()))
    given = {"y_valid": relevance > 0, "item_weights_valid": np.where(relevance > 0, relevance, 1)}
    same = rs.LinearRanker(**options).fit(X, log, propensity=PROPENSITIES, X_valid=X_valid, qid_valid=QID, **given)
    assert same.validation_ == pytest.approx(found.validation_)


@pytest.mark.parametrize("kind", ["mlp", "boosted"])
def test_held_out_lists_are_judged_by_weighted_clicks(kind, logged, monkeypatch):
    if kind == "boosted":
        pytest.importorskip("lightgbm")
    X, log = logged
    ranker = SMALL[kind](validation_share=0.5)
    ranker.fit(X, log, propensity=PROPENSITIES)
    relevance = estimate_relevance(log, PROPENSITIES)
    lists, numbers = np.unique(QID, return_inverse=True)
    drawn = np.random.default_rng(as_seed(ranker.random_state)).permutation(len(lists))[: round(0.5 * len(lists))]
    held = np.isin(numbers, drawn)
    scores = ranker.predict(X)
    found = rs.evaluate(
        scores[held],
        relevance[held] > 0,
        ["DCG@10"],
        qid=QID[held],
        item_weights=np.where(relevance > 0, relevance, 1)[held],
    )
    seen = [each["validation"] for each in ranker.history_[0]] if kind == "mlp" else ranker.history_[0]
    assert max(seen) == pytest.approx(float(found["DCG@10"].mean()), rel=1e-4)


def test_a_list_of_which_everything_was_clicked_is_kept():
    X = np.array([[0.0], [1.0], [2.0], [0.0], [1.0]])
    log = {"qid": [0, 0, 0, 1, 1], "position": [1, 2, 3, 1, 2], "propensity": [1, 0.5, 0.1]}
    found = rs.LinearRanker(prepare=(), C=100.0).fit(X, [1, 1, 1, 0, 0], **log)
    assert found.left_out_ == 1
    assert found.coef_[0] > 0.1  # the last has the greatest weight


def test_auto_ranker_learns_from_clicks(logged):
    X, log = logged
    X_test, y_test, _ = draw(1)
    found = rs.AutoRanker(mode="fast", device="cpu").fit(X, log, propensity=PROPENSITIES)
    naive = rs.AutoRanker(mode="fast", device="cpu").fit(X, log, propensity=np.ones(SIZE))
    assert [row["model"] for row in found.results_[:2]] == ["linear, PropRank", "MLP, PropDCG"]
    assert found.measure_ == "DCG@10"
    assert found.score(X_test, y_test, QID) > naive.score(X_test, y_test, QID) + 0.03
    with pytest.raises(
        ValueError, match="AutoRanker adds validation lists to the training lists, which are clicks here"
    ):
        rs.AutoRanker().fit(X, log, propensity=PROPENSITIES, X_valid=X, y_valid=y_test, qid_valid=QID)


def test_an_ensemble_is_refused(logged):
    X, log = logged
    with pytest.raises(ValueError, match="EnsembleRanker cannot be fitted to clicks"):
        rs.EnsembleRanker([rs.LinearRanker()]).fit(X, log, propensity=PROPENSITIES)


def test_other_losses_take_the_weights(logged):
    X, log = logged
    found = rs.LinearRanker(loss=RankNetLoss(), C=0.3).fit(X, log, propensity=PROPENSITIES)
    assert found.score(draw(1)[0], draw(1)[1], QID) > 0.8
    with pytest.raises(TypeError, match="this loss does not support item_weights"):
        rs.LinearRanker(loss=rs.StructuredHingeLoss("AP")).fit(X, log, propensity=PROPENSITIES)


def test_a_measure_that_knows_no_weights_cannot_select_on_clicks(logged):
    X, log = logged
    with pytest.raises(ValueError, match="the measure that selects on clicks: RR@10 does not support item_weights"):
        rs.MLPRanker("RR@10", device="cpu").fit(X, log, propensity=PROPENSITIES)


GOOD = {"position": [1, 2, 3, 1, 2], "propensity": [1, 0.5, 0.1]}


@pytest.mark.parametrize(
    ("clicks", "changed", "message"),
    [
        ([0, 0, 0, 0, 0], {}, "y has no clicks"),
        ([0, 1, 0, 0, 1], {"position": [1, 2, 3, 1, np.nan]}, "document 4 has a click and no position"),
        ([0, 1, 0, 0, 1], {"position": [0, 1, 2, 0, 1]}, "position must be 1 or more, .* that of document 0 is 0"),
        (
            [0, 1, 0, 0, 1],
            {"position": [1, 2, 2.5, 1, 2]},
            "position must be a whole number, that of document 2 is 2.5",
        ),
        (
            [0, 1, 0, 0, 1],
            {"position": [1, 2, 4, 1, 2]},
            "position must be at most 3, the number of propensities; that of docu",
        ),
        (
            [0, 1, 0, 0, 1],
            {"position": [1, 2, 2, 1, 2]},
            "a list must show one document at a position; documents 1 and 2",
        ),
        (
            [0, 1, 0, 0, 1],
            {"position": [1, 2, 3]},
            r"position must have one rank per document, shape \(5,\); got \(3,\)",
        ),
        (
            [0, 1, 0, 0, 1],
            {"propensity": [1, 0, 0.1]},
            "propensity must be one number above 0 and at most 1 .* at 1 is 0",
        ),
        (
            [0, 1, 0, 0, 1],
            {"propensity": [1.5, 1, 0.1]},
            "propensity must be one number above 0 and at most 1 .* 0 is 1.5",
        ),
        ([0, 1, 0, 0, 1], {"propensity": [1, np.nan, 0.1]}, "propensity must be one number above 0 .* at 1 is nan"),
        ([0, 1, 0, 0, 1], {"propensity": [[1, 0.5, 0.1]]}, r"propensity must be one number .* got shape \(1, 3\)"),
        ([0, 1, 0, 0, 1], {"propensity": None}, "propensity is missing, .*: estimate them with rankstruct.clicks"),
        ([0, 1, 0, 0, 1], {"position": None}, r"propensity must have one value per document, shape \(5,\)"),
        ([0, 1, 0, 0, 1], {"clip": 0}, "clip must be a finite number above 0 and at most 1, got 0"),
        ([0, 1, 0, 0, 1], {"clip": [0.1]}, "clip must be a finite number above 0 and at most 1"),
        ([0, 1, 0, 0, 1], {"item_weights": np.ones(5)}, "item_weights follow from clicks and propensity"),
        ([0, -1, 0, 0, 1], {}, "y must be clicks, 0 or 1 or their number; that of document 1 is -1"),
    ],
)
def test_wrong_clicks_are_named(clicks, changed, message):
    X = np.arange(10.0).reshape(5, 2)
    with pytest.raises(ValueError, match=message):
        rs.LinearRanker().fit(X, clicks, [0, 0, 0, 1, 1], **{**GOOD, **changed})


def test_all_clicks_are_legal():
    X = np.arange(10.0).reshape(5, 2)
    found = rs.LinearRanker().fit(X, np.ones(5), [0, 0, 0, 1, 1], **GOOD)
    assert found.left_out_ == 0


def test_wrong_logs_are_named(logged):
    X, log = logged
    silent = ClickLog.from_arrays([0, 0], [0, 1], [1, 2], [0, 0])
    with pytest.raises(ValueError, match="the log has no clicks"):
        rs.LinearRanker().fit(X[:2], silent.with_documents(), propensity=PROPENSITIES)
    with pytest.raises(ValueError, match=r"propensities must be .*ranks 1 to 10"):
        rs.LinearRanker().fit(X, log, propensity=PROPENSITIES[:4])
    with pytest.raises(ValueError, match="y is a log, which has positions and lists: omit position and group"):
        rs.LinearRanker().fit(X, log, propensity=PROPENSITIES, position=np.ones(len(X)))
    with pytest.raises(ValueError, match=r"y_valid is a log, .* so y must be one too"):
        rs.LinearRanker().fit(X, draw(0)[1], QID, X_valid=X, y_valid=log, qid_valid=QID)
    with pytest.raises(ValueError, match="item_weights_valid needs X_valid"):
        rs.LinearRanker().fit(X, draw(0)[1], QID, item_weights_valid=np.ones(len(X)))
    with pytest.raises(ValueError, match=r"item_weights_valid must have one weight per document, shape \(600,\)"):
        rs.LinearRanker().fit(
            X, draw(0)[1], QID, X_valid=X, y_valid=draw(0)[1], qid_valid=QID, item_weights_valid=[1.0]
        )
    with pytest.raises(
        ValueError, match="X must have a row for each of the 600 documents that the log is numbered by, got 599"
    ):
        rs.LinearRanker().fit(X[:-1], log, propensity=PROPENSITIES)


def test_rankers_in_boosted_ones_have_the_loss_for_clicks(logged):
    pytest.importorskip("lightgbm")
    X, log = logged
    for options in ({"start": rs.LinearRanker()}, {"leaf_ranker": rs.LinearRanker()}):
        found = SMALL["boosted"](**options).fit(X, log, propensity=PROPENSITIES)
        inner = found.leaf_ranker_ if found.start_ is None else found.start_
        assert isinstance(inner.loss, AdditiveRankLoss)
        assert found.score(draw(1)[0], draw(1)[1], QID) > 1.6
        assert isinstance(next(iter(options.values())), rs.LinearRanker)
        assert next(iter(options.values())).loss is None
    own = rs.BoostedRanker(start=rs.LinearRanker(loss=RankNetLoss()), n_estimators=5, n_jobs=1)
    assert isinstance(own.fit(X, log, propensity=PROPENSITIES).start_.loss, RankNetLoss)


def test_propensities_may_differ_by_query(logged):
    X, log = logged
    same = np.repeat(PROPENSITIES[None], LISTS, 0)
    by_query = Propensities(same, same, same, 0.95, queries=log.queries)
    found = rs.LinearRanker(C=0.3).fit(X, log, propensity=by_query)
    np.testing.assert_array_equal(found.coef_, rs.LinearRanker(C=0.3).fit(X, log, propensity=PROPENSITIES).coef_)
    assert found.propensities_.shape == (LISTS, SIZE)


def test_catboost_is_refused(logged):
    pytest.importorskip("catboost")
    X, log = logged
    with pytest.raises(ValueError, match="CatBoost has no loss for clicks; use library='lightgbm' or 'xgboost'"):
        rs.BoostedRanker(library="catboost").fit(X, log, propensity=PROPENSITIES)


def test_loss_and_C_are_chosen_by_held_out_clicks(logged):
    X, log = logged
    found = rs.LinearRanker().fit(X, log, propensity=PROPENSITIES)
    assert (found.loss_, found.C_) == ("AdditiveRankLoss('linear')", 0.1)  # nothing is clearly better
    assert isinstance(found.ranking_loss(), AdditiveRankLoss)
    assert len(found.validation_) == len(found.path_) == 1
    again = rs.LinearRanker(loss=found.loss_, C=found.C_).fit(X, log, propensity=PROPENSITIES)
    np.testing.assert_array_equal(found.coef_, again.coef_)
    assert again.validation_ is None
    order = np.random.default_rng(0).permutation(len(X))
    table = log.with_documents(QID[order], order)
    np.testing.assert_allclose(
        rs.LinearRanker().fit(X[order], table, propensity=PROPENSITIES).coef_, found.coef_, atol=1e-4
    )
    best = rs.LinearRanker(loss=AdditiveRankLoss("linear"), C=[1e-9, 0.1]).fit(X, log, propensity=PROPENSITIES)
    assert best.C_ == 0.1  # 1e-9 ties all documents
    labels = rs.LinearRanker().fit(X, draw(0)[1], QID)
    assert (labels.C_, labels.loss_) == (10.0, None)


def test_a_clearly_better_C_replaces_the_middle_one(logged, monkeypatch):
    X, log = logged
    monkeypatch.setitem(CLICK_COSTS, "linear", (1e-9, 1e-8, 1.0))  # the middle one ties all documents
    monkeypatch.setitem(CLICK_COSTS, "log2", (1e-9,))
    found = rs.LinearRanker().fit(X, log, propensity=PROPENSITIES)
    assert found.C_ == 1.0
    judged = {"X_valid": X, "y_valid": draw(0)[1], "qid_valid": QID}
    found = rs.LinearRanker().fit(X, log, propensity=PROPENSITIES, **judged)
    assert found.C_ == 1.0
    assert found.validation_ == [pytest.approx(found.score(X, judged["y_valid"], QID), abs=0.01)]  # of rough training


def test_the_best_is_chosen_only_if_it_is_clearly_better():
    rng = np.random.default_rng(0)
    base = rng.normal(size=100)
    near, far = base + rng.normal(0.05, 1, 100), base + rng.normal(0.5, 1, 100)
    assert _best_of([base, near], 0) == 0
    assert _best_of([base, near], None) == int(near.mean() > base.mean())
    assert _best_of([base, near, far], 0) == 2


def test_one_list_with_clicks_is_learned_from_though_none_can_be_held_out():
    X = np.array([[0.0], [1.0], [2.0]])
    log = ClickLog.from_arrays([1] * 3, list("abc"), [1, 2, 3], [0, 0, 1]).with_documents()
    found = rs.LinearRanker(prepare=()).fit(X, log, propensity=[1, 0.5, 0.1])
    assert (found.C_, found.coef_[0] > 0) == (0.1, True)
    with pytest.raises(ValueError, match="C has 2 values, and only one list has clicks"):
        rs.LinearRanker(C=[1, 2]).fit(X, log, propensity=[1, 0.5, 0.1])


def test_a_ranker_that_hides_documents_does_not_make_them_less_relevant():
    X, y, _ = draw(3)
    rng = np.random.default_rng(4)
    log = simulate_clicks(MODEL, rng.normal(size=(2, len(X))), y, OFFSETS, sessions=30_000, cutoff=4)
    shown = log.query_of_document >= 0
    found = lists_of_log(log, MODEL.propensities(4), None)
    relevance = np.where(found.labels > 0, found.item_weights, 0)
    truth = MODEL.attraction(y)
    assert relevance[shown].sum() == pytest.approx(truth[shown].sum(), rel=0.05)
    assert not found.item_weights[~shown].any()


def test_lists_of_which_everything_was_clicked_can_be_dealt():
    lists = gather(np.zeros((6, 1)), np.ones(6), np.repeat([0, 1, 2], 2))
    assert sorted(set(deal_lists(lists, 3, 0, from_clicks=True))) == [0, 1, 2]
    with pytest.raises(ValueError, match="no list can be learned from"):
        deal_lists(lists, 3, 0)
