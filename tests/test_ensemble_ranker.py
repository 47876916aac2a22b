"""EnsembleRanker: the mean of z-scores by numpy, weights, fitted members, files, what is refused."""

import itertools
import pickle

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import rankstruct as rs
from rankstruct.estimators.ensemble import deal_lists, is_frozen
from rankstruct.estimators.training_data import gather

RAW = ["append-quantile", "standardize"]
LENGTHS = (1, 9, 4, 12, 7, 2, 8, 10, 6, 11)


def make(seed=0, dtype=np.float32):
    """Lists of several lengths, one document among them, values over orders of magnitude."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(LENGTHS), 4))
    y = np.clip(np.floor(X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.3 * rng.normal(size=len(X))), 0, 2)
    X[:, 2] = np.exp(3 * X[:, 2])
    X[:, 3] = 0.1
    return X.astype(dtype), y, np.repeat([f"q{i}" for i in range(len(LENGTHS))], LENGTHS)


def held_out(seed=1):
    return dict(zip(("X_valid", "y_valid", "qid_valid"), make(seed), strict=True))


def members():
    mlp = rs.MLPRanker(max_epochs=3, hidden=(8,), device="cpu", seeds=2, prepare=RAW)
    return [rs.LinearRanker("AP", C=1.0, prepare=RAW), mlp, rs.LinearRanker("AUC", prepare=["query-center"])]


def by_numpy(scores, weights, qid):
    """Member by member and list by list; a list of one document scores 0."""
    found = np.zeros(len(qid))
    for name in np.unique(qid):
        rows = qid == name
        for member, weight in zip(scores, weights, strict=True):
            if np.ptp(member[rows]):
                found[rows] += weight * scipy.stats.zscore(member[rows])
    return found


@pytest.fixture(scope="module")
def fitted():
    return rs.EnsembleRanker(members(), weights=[1, 2, 1]).fit(*make(), **held_out())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_the_mean_of_z_scores(fitted, dtype):
    X, _, qid = make(5, dtype)
    scores = [ranker.predict(X, qid) for ranker in fitted.rankers_]
    assert fitted.weights_ == (0.25, 0.5, 0.25)
    np.testing.assert_allclose(fitted.predict(X, qid), by_numpy(scores, fitted.weights_, qid), atol=1e-12)
    shuffled = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(fitted.predict(X[shuffled], qid[shuffled]), fitted.predict(X, qid)[shuffled], atol=1e-6)
    one = X[qid == "q3"]
    np.testing.assert_allclose(fitted.predict(one), fitted.predict(X, qid)[qid == "q3"], atol=1e-5)


def test_more_documents_than_any_training_list_are_no_list_without_a_word(fitted):
    X, y, qid = make()
    auto = rs.AutoRanker(time_budget=0, prepare=()).fit(X, y, qid)
    for ranker in (fitted, auto):
        assert ranker.longest_list_ == max(LENGTHS)
        one = ranker.predict(X, group=[len(X)])
        with pytest.warns(UserWarning, match=r"qid is missing, so all 70 documents .* than 12; .*group=\[70\]") as told:
            np.testing.assert_array_equal(ranker.predict(X), one)
        assert [each.filename for each in told] == [__file__]
        np.testing.assert_array_equal(ranker.predict(X[:12]), ranker.predict(X[:12], group=[12]))
    auto.ranker_.rankers_[0].estimator.predict(X)  # each document by itself
    earlier = pickle.loads(pickle.dumps(fitted))
    del earlier.longest_list_
    np.testing.assert_array_equal(earlier.predict(X), fitted.predict(X, group=[len(X)]))


def test_members_are_trained_as_if_alone(fitted):
    X, y, qid = make()
    assert not hasattr(fitted.rankers[0], "coef_")
    for ranker, alone in zip(fitted.rankers_, members(), strict=True):
        np.testing.assert_array_equal(ranker.predict(X, qid), alone.fit(X, y, qid, **held_out()).predict(X, qid))


def test_a_member_that_ties_all_adds_nothing():
    X, y, qid = make()
    linear = rs.LinearRanker().fit(X, y, qid)
    nothing = clone(linear).fit(X, y, qid)
    nothing.coef_ = np.zeros_like(linear.coef_)
    ensemble = rs.EnsembleRanker([FrozenEstimator(linear), FrozenEstimator(nothing)]).fit(X, y, qid)
    assert ensemble.rankers_[0].coef_ is linear.coef_  # a fitted one stays
    np.testing.assert_allclose(ensemble.predict(X, qid), by_numpy([linear.predict(X)], [0.5], qid), atol=1e-12)


def test_weights_are_the_best_on_validation():
    X, y, qid = make()
    valid = held_out()
    ranker = rs.EnsembleRanker(members(), weights="validation", measure="nDCG@5").fit(X, y, qid, **valid)
    grid = [w for w in itertools.product(range(5), repeat=3) if sum(w) == 4]
    values = {}
    for weights in [(1, 1, 1), *grid]:
        scores = [each.predict(valid["X_valid"], valid["qid_valid"]) for each in ranker.rankers_]
        mean = by_numpy(scores, np.array(weights) / sum(weights), valid["qid_valid"])
        offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
        values[weights] = rs.evaluate(mean, valid["y_valid"], ["nDCG@5"], offsets=offsets)["nDCG@5"].mean().item()
    assert len(grid) == 15
    assert ranker.validation_ == pytest.approx(max(values.values()), abs=1e-9)
    assert ranker.score(*valid.values()) == pytest.approx(ranker.validation_, abs=1e-9)
    assert max(values.values()) > min(values.values())


def test_each_part_validates_the_copy_that_it_does_not_train():
    """Lists of one set are not those of the other, though their ids are the same."""
    train, valid = make(), tuple(held_out().values())
    rankers = [rs.LinearRanker("AP", C=[0.1, 10.0]), rs.MLPRanker(max_epochs=3, hidden=(8,), device="cpu", prepare=())]
    ensemble = rs.EnsembleRanker(rankers, prepare=RAW, folds=3, weights="validation", measure="AP", random_state=4)
    ensemble.fit(*train, **held_out())
    X = ensemble.preparation_.transform(np.concatenate([train[0], valid[0]]))
    y, lists = np.concatenate([train[1], valid[1]]), np.repeat(np.arange(20), 2 * LENGTHS)
    parts = deal_lists(gather(X, y, lists), 3, 4)
    unseen = np.full((2, len(y)), np.nan)
    for number, copy in enumerate(ensemble.rankers_):
        which, part = divmod(number, 3)
        held, alone = parts == part, clone(rankers[which])
        validation = {"X_valid": X[held], "y_valid": y[held], "qid_valid": lists[held]}
        if which == 1:  # the folds together select the epoch
            alone.set_params(random_state=part, max_epochs=copy.best_epochs_[0], validation_share=0)
            validation = {}
        alone.fit(X[~held], y[~held], lists[~held], **validation)
        unseen[which, held] = alone.predict(X[held], lists[held])
        shift = copy.predict(X, lists) - alone.predict(X, lists)  # no loss sees what all scores have in common
        np.testing.assert_allclose(shift, which * shift.mean(), atol=1e-6)
    histories = [copy.history_[0] for copy in ensemble.rankers_[3:]]
    found = [[epoch["validation"] for epoch in history] for history in histories]
    assert found[0] == found[1] == found[2]
    sizes = np.concatenate([[0], np.cumsum(2 * LENGTHS)])
    measure = ensemble.rankers_[3].measure_
    together = rs.evaluate(unseen[1], y, [measure], offsets=sizes)[measure].mean().item()
    assert max(found[0]) == pytest.approx(together, abs=1e-9)
    assert {np.argmax(each) + 1 for each in found} == {copy.best_epochs_[0] for copy in ensemble.rankers_[3:]}
    weights = ensemble.weights_[::3]
    assert ensemble.weights_ == tuple(np.repeat(weights, 3))
    mean = by_numpy(unseen, 3 * np.array(weights), lists)
    value = rs.evaluate(mean, y, ["AP"], offsets=np.concatenate([[0], np.cumsum(2 * LENGTHS)]))["AP"].mean().item()
    assert ensemble.validation_ == pytest.approx(value, abs=1e-9)
    scorer = ensemble.to_scorer()
    found = scorer(torch.tensor(train[0]), offsets=torch.tensor([0, *np.cumsum(LENGTHS)])).detach().numpy()
    np.testing.assert_allclose(found, ensemble.predict(train[0], train[2]), atol=1e-6)


def with_frozen():
    """Rankers of which a part is fitted already, to lists of `make`."""
    X, y, qid = make()
    frozen = FrozenEstimator(
        rs.MLPRanker(max_epochs=1, validation_share=0, hidden=(), device="cpu", prepare=()).fit(X, y, qid)
    )
    yield frozen
    yield rs.EnsembleRanker([rs.LinearRanker(), frozen])
    yield rs.BoostedRanker(start=frozen)
    yield Pipeline([("scale", FrozenEstimator(StandardScaler().fit(X))), ("rank", rs.LinearRanker())])


@pytest.mark.parametrize("number", range(4))
def test_what_is_fitted_already_chooses_nothing_by_parts_that_it_may_know(number):
    X, y, qid = make()
    frozen = list(with_frozen())[number]
    with pytest.raises(
        ValueError, match=r"rankers\[1\] is frozen and may have been fitted to them: pass weights as numbers"
    ):
        rs.EnsembleRanker([rs.LinearRanker(), frozen], folds=2, weights="validation").fit(X, y, qid)
    assert not is_frozen(
        [rs.LinearRanker(loss="ListNetLoss"), rs.EnsembleRanker([rs.LinearRanker()]), rs.BoostedRanker()]
    )


@pytest.mark.soak
def test_labels_by_chance_are_not_known_by_those_that_were_not_fitted_to_them():
    """One that knows them by heart was .75 of the whole, and said to have an AP of 1."""
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(300, 40)), rng.integers(0, 2, 300), np.repeat(np.arange(30), 10)
    knows, valid = (
        rs.LinearRanker(C=1e6).fit(X, y, qid),
        {"X_valid": X[:100], "y_valid": 1 - y[:100], "qid_valid": qid[:100]},
    )
    pair = [rs.LinearRanker(C=0.1), FrozenEstimator(knows)]
    for weights in ("equal", [1, 3]):
        ensemble = rs.EnsembleRanker(pair, folds=3, weights=weights).fit(X, y, qid)
        assert ensemble.validation_ is None
        assert ensemble.weights_ == pytest.approx(np.repeat([0.5, 0.5] if weights == "equal" else [0.25, 0.75], 3) / 3)
    assert rs.EnsembleRanker(pair, weights="validation").fit(X[100:], y[100:], qid[100:], **valid).validation_ < 0.8
    assert (
        rs.EnsembleRanker(pair[:1], folds=3, weights="validation").fit(X, y, qid).validation_
        < 0.7
        < knows.score(X, y, qid)
    )


@given(
    labels=st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=4), min_size=2, max_size=12),
    folds=st.integers(2, 5),
    seed=st.integers(0, 99),
)
def test_lists_are_dealt_evenly_and_whole(labels, folds, seed):
    y, qid = np.concatenate(labels), np.repeat(np.arange(len(labels)), [len(each) for each in labels])
    varied = np.array([len(set(each)) > 1 for each in labels])
    if varied.sum() < 2:
        with pytest.raises(ValueError, match="can be learned from"):
            deal_lists(gather(y[:, None], y, qid), folds, seed)
        return
    parts = deal_lists(gather(y[:, None], y, qid), folds, seed)
    of_list = [set(parts[qid == each]) for each in range(len(labels))]
    assert all(len(each) == 1 for each in of_list)
    of_list = np.array([each.pop() for each in of_list])
    for chosen in (varied, np.ones_like(varied)):
        counts = np.bincount(of_list[chosen], minlength=min(folds, varied.sum()))
        assert len(counts) == min(folds, varied.sum())
        assert counts.min() >= 1
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("prepare", [[], ["quantile"], ["query-zscore"]])
def test_every_way_to_keep_it_gives_the_same_scores_of_raw_features(prepare, tmp_path):
    X, y, qid = make()
    ranker = rs.EnsembleRanker(members(), prepare=prepare, weights=[3, 1, 0]).fit(X, y, qid, **held_out())
    X, _, qid = make(7)
    expected = ranker.predict(X, qid)
    assert np.std(expected) > 0.5
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict(X, qid), expected)
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer = rs.load_scorer(tmp_path / "scorer.pt")
    offsets = torch.tensor([0, *np.cumsum(LENGTHS)])
    flat = scorer(torch.tensor(X), offsets=offsets).detach().numpy()
    np.testing.assert_allclose(flat, expected, atol=1e-6)
    where = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    padded = torch.full((*where.shape, 4), torch.nan)
    padded[where] = torch.tensor(X)
    found = scorer(padded, where=where).detach()
    np.testing.assert_allclose(found[where].numpy(), expected, atol=1e-6)
    assert (found[~where] == 0).all()
    alone = scorer(torch.tensor(X[qid == "q3"])).detach().numpy()  # the last dimension but one is the list
    np.testing.assert_allclose(alone, expected[qid == "q3"], atol=1e-6)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_feature_that_is_not_finite_is_not_scored_zero(broken):
    torch.manual_seed(0)
    scorer = rs.models.EnsembleScorer([rs.MLPScorer(3), rs.MLPScorer(3)])
    features = torch.randn(2, 4, 3)
    whole = scorer(features)
    features[1, 2, 0] = broken
    found = scorer(features)
    assert torch.equal(found[0], whole[0])
    assert found[1].isnan().all()
    flat = scorer(features.flatten(0, 1), offsets=torch.tensor([0, 4, 8]))
    assert torch.equal(flat.isnan(), found.isnan().flatten())


def test_a_scorer_lets_gradients_through():
    scorer = rs.models.EnsembleScorer([rs.MLPScorer(3), rs.MLPScorer(3)]).double()
    features = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(scorer, features)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weights": "best"}, "'equal', 'validation' or 3 numbers, got 'best'"),
        ({"weights": [1, 2]}, "weights must be 3 nonnegative numbers"),
        ({"weights": [0, 0, 0]}, "not all 0"),
        ({"weights": "validation"}, "needs X_valid"),
        ({"rankers": []}, "rankers must not be empty"),
        ({"folds": 0}, "folds must be an integer from 1, got 0"),
        ({"folds": 2.5}, "folds must be an integer"),
        ({"rankers": [rs.LinearRanker()] * 7, "weights": "validation"}, "at most 6 rankers, got 7"),
    ],
)
def test_what_is_refused(options, said):
    validation = held_out() if len(options) > 1 else {}
    with pytest.raises(ValueError, match=said):
        rs.EnsembleRanker(**{"rankers": members(), **options}).fit(*make(), **validation)


def test_labels_that_the_measure_refuses_are_refused_before_the_folds_are_trained(monkeypatch):
    monkeypatch.setattr("rankstruct.estimators.ensemble.fit_by_parts", None)
    X, y, qid = make()
    with pytest.raises(ValueError, match=r"^y: labels must have finite gains >= 0 under nDCG; .* has label 2000"):
        rs.EnsembleRanker(members(), measure="nDCG", folds=2).fit(X, 1000 * y, qid)


def test_a_member_that_is_no_scorer_is_named():
    X, y, qid = make()
    kernel = rs.EnsembleRanker([rs.KernelRanker("AP", kernel="precomputed")]).fit(X @ X.T, y, qid)
    with pytest.raises(ValueError, match="a precomputed kernel is not a function of features"):
        kernel.to_scorer()


def test_copies_of_an_mlp_are_weighted_and_encode_categories():
    """Copies of folds are trained together where that is the same."""
    X, y, qid = make()
    options = {"max_epochs": 3, "hidden": (8,), "device": "cpu", "prepare": ()}
    ensemble = rs.EnsembleRanker([rs.MLPRanker("AP", **options)], folds=2, measure="AP")
    plain = ensemble.fit(X, y, qid).predict(X, qid)
    lists = len(np.unique(qid))
    same = clone(ensemble).fit(X, y, qid, sample_weight=np.full(lists, 3.0)).predict(X, qid)
    np.testing.assert_allclose(same, plain, atol=1e-3)
    weighted = clone(ensemble).fit(X, y, qid, sample_weight=np.arange(1.0, lists + 1)).predict(X, qid)
    assert not np.allclose(weighted, plain, atol=1e-3)
    learned = rs.EnsembleRanker([rs.MLPRanker("AP", loss="OrdinalLoss(2)", **options)], folds=2, measure="AP")
    assert np.ptp(learned.fit(X, np.minimum(y, 1), qid).predict(X, qid)) > 0
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"host": np.array(["a.org", "b.org", "c.org"])[np.arange(len(y)) % 3], "x": X[:, 0]})
    tabled = clone(ensemble).fit(frame, y, qid)
    assert all(copy.preparation_.encodes for copy in tabled.rankers_)


def test_networks_of_all_folds_share_encodings_that_leave_indicators_as_they_are():
    X, y, qid = make()
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    network = rs.MLPRanker(prepare=["append-piecewise:2"], max_epochs=2, hidden=4, device="cpu")
    ranker = rs.EnsembleRanker([network], folds=3, prepare=["encode", "standardize"]).fit(X, y, qid)
    steps = [each.preparation_.steps[0] for each in ranker.rankers_]
    assert all(each.untouched == X.shape[1] for each in steps)
    assert all(torch.equal(each.step.step.low, steps[0].step.step.low) for each in steps)
    found = ranker.to_scorer()(torch.tensor(X), offsets=torch.tensor([0, *np.cumsum(LENGTHS)]))
    np.testing.assert_allclose(found.detach(), ranker.predict(X, qid), atol=1e-4)


@pytest.mark.parametrize("wrong", [Ridge(), FrozenEstimator(Ridge()), make_pipeline(Ridge()), rs.LinearRanker])
def test_members_that_take_no_lists_are_refused(wrong):
    X, y, qid = np.eye(4), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"^rankers must be .* with fit\(X, y, qid\) and predict\(X, qid\), .* got "):
        rs.EnsembleRanker([rs.LinearRanker(), wrong]).fit(X, y, qid)
    with pytest.raises(ValueError, match=r"^start must be an unfitted ranker"):
        rs.BoostedRanker(start=wrong).fit(X, y, qid)
