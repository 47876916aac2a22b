"""AutoRanker: takes what validation says, keeps to its time, tells why, goes through files; what is refused."""

import pickle
import time
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator, clone

import rankstruct as rs
from rankstruct.estimators import auto, ensemble
from rankstruct.estimators.ensemble import bagged_weights, deal_lists
from rankstruct.estimators.training_data import gather

TREES = {
    "trees, LambdaLoss nDCG@30": "lightgbm",
    "CatBoost, QueryRMSE": "catboost",
    "CatBoost, YetiRank": "catboost",
}
LEFT_OUT = [name for name, library in TREES.items() if find_spec(library) is None]


def make(lists=40, size=8, seed=0, dtype=np.float32):
    """Grades from the first feature; values over orders of magnitude, one feature constant."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(lists * size, 4))
    y = np.clip(np.floor(X[:, 0] + 0.5 * rng.normal(size=len(X)) + 0.5), 0, 2)
    X[:, 2] = np.exp(X[:, 2] * 3)
    X[:, 3] = 0.1
    return X.astype(dtype), y, np.repeat([f"q{i}" for i in range(lists)], size)


def held_out(seed=1):
    return dict(zip(("X_valid", "y_valid", "qid_valid"), make(seed=seed), strict=True))


def all_lists():
    """Training and validation lists: 80 of 8 documents."""
    (X, y, _), valid = make(), held_out()
    return np.concatenate([X, valid["X_valid"]]), np.concatenate([y, valid["y_valid"]])


class Column(BaseEstimator):
    """Scores by one column of the prepared features, plus noise."""

    def __init__(self, column=0, noise=0.0, sign=1):
        self.column, self.noise, self.sign = column, noise, sign

    def fit(self, X, y, qid, **valid):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X, qid=None):
        noise = np.sin(1e4 * X[:, 1].astype(float))  # the same for a document whatever stands beside it
        return self.sign * (X[:, self.column].astype(float) + self.noise * noise)


class Heart(BaseEstimator):
    """Knows the labels that it was trained on, by the first feature."""

    def fit(self, X, y, qid, **valid):
        self.n_features_in_, self.known_ = X.shape[1], dict(zip(X[:, 0].tolist(), y.tolist(), strict=True))
        return self

    def predict(self, X, qid=None):
        return np.array([self.known_.get(x, np.sin(1e4 * x)) for x in X[:, 0].tolist()])


@pytest.fixture
def members(monkeypatch):
    """Makes the models be others."""
    return lambda **made: monkeypatch.setattr(auto, "MEMBERS", {n: lambda *_, r=r: clone(r) for n, r in made.items()})


def values(scores, name):
    """Of each of all lists."""
    return rs.evaluate(scores.reshape(80, 8), all_lists()[1].reshape(80, 8), [name])[name].numpy()


@pytest.fixture(scope="module")
def fitted():
    return rs.AutoRanker("AP", device="cpu").fit(*make(), **held_out())


def test_every_model_is_measured_on_validation(fitted):
    names = [row["model"] for row in fitted.results_]
    assert names == [*auto.MEMBERS, auto.ENSEMBLE]
    rows = [row for row in fitted.results_ if row["model"] not in LEFT_OUT]
    assert all(0 < row["validation"]["AP"] <= 1 and not row["note"] for row in rows)
    found = {row["model"]: row["validation"] for row in fitted.results_}
    assert fitted.validation_lists_ == 80
    assert fitted.selected_ in fitted.reason_
    selection = found[fitted.selected_]["AP"]
    assert (
        f"its selection AP is {selection:.4f} (the same lists selected C, epoch and number of trees)" in fitted.reason_
    )
    assert fitted.score(*make(seed=5)) > 0.75
    assert list(fitted.weights_) == [row["model"] for row in rows if row["model"] != auto.ENSEMBLE]
    assert sum(fitted.weights_.values()) == pytest.approx(1)
    assert len(fitted.ranker_.rankers_) == 3 * sum(weight > 0 for weight in fitted.weights_.values())


def test_a_model_that_is_clearly_better_is_taken(members):
    members(good=Column(), bad=Column(0, sign=-1), worse=Column(1))
    ranker = rs.AutoRanker(prepare=()).fit(*make(), **held_out())
    assert ranker.selected_ == "good"
    assert ranker.weights_ == {"good": 1.0, "bad": 0.0, "worse": 0.0}
    assert ranker.reason_.endswith("; the weights are 'good' 1.00")
    assert "selected 'good': the ensemble's selection" in ranker.reason_
    assert len(ranker.ranker_.rankers_) == 3
    found = {row["model"]: row["validation"] for row in ranker.results_}
    assert found["good"] == pytest.approx(found[auto.ENSEMBLE], abs=0.01)


@pytest.mark.parametrize(
    ("number", "size", "batch", "rate"),
    [(63, 152, 8, 1e-3), (470, 19, 15, 1e-3 * (15 / 8) ** 0.5), (100, 2, 16, 1.414e-3)],
)
def test_steps_have_some_hundred_documents(number, size, batch, rate):
    lists = gather(np.zeros((number * size, 1)), np.zeros(number * size), np.repeat(np.arange(number), size))
    mlp = auto.MEMBERS["MLP, graded AUC"](rs.AutoRanker(), lists)
    assert mlp.lists_per_batch == batch
    assert mlp.learning_rate == pytest.approx(rate, rel=1e-3)


def test_every_list_is_judged_by_what_did_not_see_it(members):
    """A model that knows its training labels by heart, and scores others at random, looks as bad as it is."""
    members(heart=Heart())
    ranker = rs.AutoRanker("AP", prepare=(), folds=4).fit(*make(), **held_out())
    X, _ = all_lists()
    assert len(ranker.ranker_.rankers_) == 4
    heard = [len(each.estimator.known_) for each in ranker.ranker_.rankers_]
    assert heard == [60 * 8] * 4
    seen = np.stack([np.isin(X[:, 0], list(each.estimator.known_)) for each in ranker.ranker_.rankers_])
    assert (seen.sum(0) == 3).all()  # every document trained three of four
    assert (seen.reshape(4, 80, 8).all(2) | ~seen.reshape(4, 80, 8).any(2)).all()  # lists are whole
    copies = [each.estimator for each in ranker.ranker_.rankers_]
    unseen = np.choose(seen.argmin(0), [copy.predict(X) for copy in copies])
    assert ranker.results_[0]["validation"]["AP"] == pytest.approx(values(unseen, "AP").mean(), abs=1e-9)
    assert values(unseen, "AP").mean() < 0.8 < values(ranker.predict(X, np.repeat(np.arange(80), 8)), "AP").mean()


def test_a_single_list_is_said_to_be_divided_by_its_documents():
    X, y, _ = make(lists=1, size=60)
    with pytest.warns(
        UserWarning, match="one list, which is split by its documents, so .* do not estimate performance on new lists"
    ) as told:
        ranker = rs.AutoRanker(time_budget=0).fit(X, y, np.zeros(60, int))
    assert told[0].filename == __file__
    assert "the only list was split by its documents, so this does not estimate" in ranker.reason_
    assert ranker.validation_lists_ == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*no better than w = 0")
def test_a_selection_score_is_somewhat_above_chance_where_there_is_nothing_to_learn():
    """As the docstring says of the linear model: several C are tried."""
    ahead, qid = [], np.repeat(np.arange(60), 20)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(1200, 10)), rng.integers(0, 2, 1200)
        ranker = rs.AutoRanker(time_budget=0, random_state=seed).fit(X, y, qid)
        chance = rs.evaluate(np.zeros(1200), y, ["AP"], qid=qid)["AP"].mean().item()
        ahead.append(ranker.results_[0]["validation"]["AP"] - chance)
    assert np.mean(ahead) == pytest.approx(0.007, abs=0.005)


def test_models_that_are_as_good_have_weights_alike(members):
    members(first=Column(noise=0.7), second=Column(noise=0.7 + 1e-3), third=Column(1))
    ranker = rs.AutoRanker("nDCG", prepare=()).fit(*make(), **held_out())
    assert ranker.selected_ == auto.ENSEMBLE
    first, second, third = ranker.weights_.values()
    assert abs(first - second) < 0.7
    assert third < 0.2
    assert first + second + third == pytest.approx(1)


def test_weights_are_the_mean_of_the_best_of_samples_and_judge_lists_that_are_not_in_them():
    """Against a loop over the samples, with the lists in another order than their ids."""
    rng = np.random.default_rng(3)
    lists = gather(np.zeros((60, 1)), rng.integers(0, 2, 60).astype(float), np.repeat(rng.permutation(12), 5))
    scores, measure = rng.normal(size=(60, 2)), rs.parse_measure("nDCG@10")
    scores[:, 0] += lists.labels
    weights, unseen = bagged_weights(scores, lists, measure, 5)
    each = scores.reshape(12, 5, 2)
    each = (each - each.mean(1, keepdims=True)) / each.std(1, keepdims=True)
    candidates = [(0.5, 0.5), (0, 1), (1, 0), (0.25, 0.75), (0.75, 0.25)]
    labels = lists.labels.reshape(12, 5)
    values = [rs.evaluate(each @ c, labels, [measure])["nDCG@10"].numpy() for c in candidates]
    chosen, without = [], [[] for _ in range(12)]
    for drawn in np.random.default_rng(5).multinomial(12, [1 / 12] * 12, ensemble._SAMPLES):
        counts = drawn[lists.places]
        chosen.append(candidates[np.argmax([counts @ value for value in values])])
        for at in np.flatnonzero(counts == 0):
            without[at].append(chosen[-1])
    np.testing.assert_allclose(weights, np.mean(chosen, 0), atol=1e-12)
    expected = [each[at] @ np.mean(without[at], 0) for at in range(12)]
    np.testing.assert_allclose(unseen, np.concatenate(expected), atol=1e-12)


@pytest.mark.parametrize(("lists", "equal"), [(1, True), (9, True), (10, False)])
def test_few_lists_choose_no_weights(lists, equal):
    data = gather(np.zeros((5 * lists, 1)), np.tile([1.0, 0, 1, 0, 0], lists), np.repeat(np.arange(lists), 5))
    scores = np.stack([data.labels, -data.labels], axis=1)
    weights, _ = bagged_weights(scores, data, rs.parse_measure("nDCG@10"), 0)
    np.testing.assert_allclose(weights, [0.5, 0.5] if equal else [1, 0])


def test_the_fast_mode_is_the_linear_ranker_and_one_mlp():
    ranker = rs.AutoRanker("AP", mode="fast", device="cpu").fit(*make(), **held_out())
    names = [row["model"] for row in ranker.results_]
    assert names == ["linear, graded AUC", "MLP, LambdaLoss nDCG", auto.ENSEMBLE]
    assert ranker.score(*make(seed=5)) > 0.75
    assert "left out" not in ranker.reason_


def test_each_copy_of_each_model_has_a_seed_of_its_own(monkeypatch):
    seeds = []

    class Seeded(Column):
        def __init__(self, column=0, noise=0.0, sign=1, random_state=0):
            super().__init__(column, noise, sign)
            self.random_state = random_state

        def fit(self, X, y, qid, **valid):
            seeds.append(self.random_state)
            return super().fit(X, y, qid, **valid)

    made = {name: lambda *_, noise=noise: Seeded(noise=noise) for name, noise in (("a", 0.1), ("b", 0.5))}
    monkeypatch.setattr(auto, "MEMBERS", made)
    rs.AutoRanker(prepare=(), random_state=7).fit(*make())
    assert seeds == [7, 8, 9, 10, 11, 12]


def test_a_model_that_ranks_as_another_does_is_dropped(members):
    members(one=Column(), same=Column(), other=Column(noise=0.5))
    ranker = rs.AutoRanker("AP", prepare=()).fit(*make())
    assert [row["note"] for row in ranker.results_[:3]] == ["", "ranks every list as 'one' does", ""]
    assert ranker.reason_.startswith("left out: 'same' (ranks every list as 'one' does); selected ")
    members(one=Column(), other=Column(noise=0.5))
    again = rs.AutoRanker("AP", prepare=()).fit(*make())
    np.testing.assert_array_equal(again.predict(*make()[::2]), ranker.predict(*make()[::2]))


def test_without_lightgbm_and_catboost_there_are_no_trees(monkeypatch):
    monkeypatch.setattr(auto, "MEMBERS", {name: auto.MEMBERS[name] for name in ("linear, graded AUC", *TREES)})
    monkeypatch.setattr(auto, "find_spec", lambda name: None)
    ranker = rs.AutoRanker().fit(*make())
    assert ranker.reason_.startswith(
        "left out: 'trees, LambdaLoss nDCG@30' (LightGBM is not installed), 'CatBoost, QueryRMSE' (CatBoost is not "
        "installed), 'CatBoost, YetiRank' (CatBoost is not installed); selected 'linear"
    )
    assert ranker.reason_.count("LightGBM") == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "member", ["linear, graded AUC", "MLP, LambdaLoss nDCG", "MLP, graded AUC", "trees, LambdaLoss nDCG@30"]
)
def test_item_weights_reach_every_member(member, monkeypatch):
    """Documents of weight near 0 do not count, whatever their labels."""
    if member in LEFT_OUT:
        pytest.skip("needs LightGBM")
    monkeypatch.setattr(auto, "MEMBERS", {member: auto.MEMBERS[member]})
    X, y, qid = make(lists=80)
    wrong = np.random.default_rng(4).random(len(y)) < 0.45
    spoilt, weights = np.where(wrong, 2 - y, y), np.where(wrong, 1e-6, 1.0)
    weighted = rs.AutoRanker("AP", device="cpu").fit(X, spoilt, qid, item_weights=weights)
    plain = rs.AutoRanker("AP", device="cpu").fit(X, spoilt, qid)
    assert weighted.score(*make(seed=5)) > plain.score(*make(seed=5)) + 0.02


@pytest.mark.needs("catboost")
def test_yetirank_is_left_out_with_item_weights(monkeypatch):
    monkeypatch.setattr(auto, "MEMBERS", {name: auto.MEMBERS[name] for name in TREES if "Cat" in name})
    X, y, qid = make()
    ranker = rs.AutoRanker().fit(X, y, qid, item_weights=np.linspace(0.5, 1, len(y)))
    assert [row["note"] for row in ranker.results_] == ["", "YetiRank does not take item_weights"]


@pytest.mark.needs("catboost")
def test_catboost_goes_through_files_and_leaves_out_repeated_features(tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "MEMBERS", {name: auto.MEMBERS[name] for name in TREES if "Cat" in name})
    X, y, qid = make()
    X[::7, 1] = np.nan
    ranker = rs.AutoRanker().fit(X, y, qid)
    assert ranker.preparation_.names == ("encode", "append-quantile", "standardize")
    copies = [each.estimator for each in ranker.ranker_.rankers_]
    assert all((each.feature_importances_[4:8] == 0).all() and each.feature_importances_[0] > 0 for each in copies)
    expected = ranker.predict(X, qid)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict(X, qid), expected)
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer = rs.load_scorer(tmp_path / "scorer.pt")
    found = scorer(torch.tensor(X), offsets=torch.arange(0, 321, 8)).detach()
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.needs("lightgbm")
def test_trees_go_through_files_with_categories(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(auto, "MEMBERS", {name: auto.MEMBERS[name] for name in list(auto.MEMBERS)[:3:2]})
    X, y, qid = make()
    hosts = np.random.default_rng(3).choice(["a.org", "b.org", "c.org"], len(y))
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(host=hosts)
    frame.loc[::7, "b"] = np.nan
    y = np.where(hosts == "b.org", np.clip(y + 1, 0, 2), y)
    ranker = rs.AutoRanker().fit(frame, y, qid)
    assert [type(each.estimator).__name__ for each in ranker.ranker_.rankers_][-1] == "BoostedRanker"
    expected = ranker.predict(frame, qid)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict(frame, qid), expected)
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer = rs.load_scorer(tmp_path / "scorer.pt")
    codes = torch.tensor(ranker.preparation_.columns.encode(frame), dtype=torch.float32)
    np.testing.assert_allclose(scorer(codes, offsets=torch.arange(0, 321, 8)).detach(), expected, atol=1e-5)


def test_what_does_not_fit_into_the_budget_is_left_out(monkeypatch):
    """By the size of the data, whatever the clock says: a busy machine gives the same model."""
    lists = gather(*make())
    members = {name: make for name, make in auto.MEMBERS.items() if name not in TREES}
    monkeypatch.setattr(auto, "MEMBERS", members)
    linear, mlp, other = (auto.estimated_seconds(each(rs.AutoRanker(), lists), lists, 3) for each in members.values())
    budget = linear + 1.5 * mlp
    ranker = rs.AutoRanker(time_budget=budget, prepare=(), device="cpu").fit(*make())
    notes = {row["model"]: row["note"] for row in ranker.results_}
    assert [name for name, note in notes.items() if note] == list(members)[2:]
    told = f"(estimated {other:.3g} s, {0.5 * mlp:.3g} s left)"
    assert ranker.reason_.startswith(f"left out by the time budget of {budget:g} s: 'MLP, graded AUC' {told}; ")
    assert ranker.results_[2]["validation"] == {}

    began, real = time.perf_counter(), time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: began + 1000 * (real() - began))
    busy = rs.AutoRanker(time_budget=budget, prepare=(), device="cpu").fit(*make())
    assert busy.reason_ == ranker.reason_
    X, _, qid = make(seed=2)
    np.testing.assert_array_equal(busy.predict(X, qid), ranker.predict(X, qid))


def test_estimates_grow_with_the_work():
    def seconds(member=1, folds=3, **size):
        lists = gather(*make(**size))
        return auto.estimated_seconds(list(auto.MEMBERS.values())[member](rs.AutoRanker(), lists), lists, folds)

    assert seconds(member=0, lists=400) == pytest.approx(10 * seconds(member=0, lists=40))
    assert seconds(member=0, folds=5) == 2 * seconds(member=0, folds=3)
    assert seconds(folds=3) < seconds(folds=5) < 2 * seconds(folds=3)  # copies are trained together
    assert seconds(member=2, lists=400) > seconds(member=2) > 0
    assert seconds(lists=400) > seconds(lists=40)
    assert seconds(size=80) > seconds() > seconds(member=0) > 0


def test_without_time_there_is_still_the_linear_one():
    ranker = rs.AutoRanker(time_budget=0).fit(*make(), **held_out())
    assert ranker.selected_ == next(iter(auto.MEMBERS))
    assert [row["model"] for row in ranker.results_] == list(auto.MEMBERS)
    assert ranker.reason_.count(" s, 0 s left)") == len(auto.MEMBERS) - 1 - len(LEFT_OUT)
    assert ranker.reason_.startswith("left out by the time budget of 0 s: 'MLP")
    given = {"loss": "GradedLoss('AUC')", "C": [0.001, 0.01, 0.1, 1.0, 10.0], "tolerance": 1e-2}
    linear = rs.EnsembleRanker([rs.LinearRanker(prepare=(), **given)], prepare=ranker.prepare, folds=3)
    X, _, qid = make(seed=2)
    expected = linear.fit(*make(), **held_out()).predict(X, qid)
    np.testing.assert_allclose(ranker.predict(X, qid), expected, atol=0.02)  # another order of the lists


def test_the_order_of_the_documents_does_not_matter(members):
    members(one=Column(noise=1.0))
    ranker = rs.AutoRanker(prepare=()).fit(*make())
    assert ranker.validation_lists_ == 40
    X, y, qid = make()
    order = np.random.default_rng(0).permutation(len(y))
    again = rs.AutoRanker(prepare=()).fit(X[order], y[order], qid[order])
    assert again.results_[0]["validation"] == pytest.approx(ranker.results_[0]["validation"], abs=1e-9)


def test_every_way_to_keep_it_gives_the_same_scores_of_raw_features(fitted, tmp_path):
    X, _, qid = make(seed=9)
    expected = fitted.predict(X, qid)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X, qid), expected)
    rs.save_scorer(fitted.to_scorer(), tmp_path / "scorer.pt")
    scorer = rs.load_scorer(tmp_path / "scorer.pt")
    np.testing.assert_allclose(scorer(torch.tensor(X).view(40, 8, 4)).detach().flatten(), expected, atol=1e-6)
    np.testing.assert_allclose(fitted.predict(sp.csr_array(X), qid), expected, atol=1e-6)


@pytest.mark.needs("skops")
def test_goes_through_skops(fitted, tmp_path):
    import skops.io

    skops.io.dump(fitted, tmp_path / "ranker.skops")
    unknown = skops.io.get_untrusted_types(file=tmp_path / "ranker.skops")
    again, (X, _, qid) = skops.io.load(tmp_path / "ranker.skops", trusted=unknown), make(seed=9)
    assert all(kind.startswith(("rankstruct.", "sklearn.frozen.")) for kind in unknown)
    np.testing.assert_array_equal(again.predict(X, qid), fitted.predict(X, qid))


@pytest.mark.parametrize(
    ("options", "change", "said"),
    [
        ({"time_budget": -1}, None, "time_budget must be a number of at least 0"),
        ({"time_budget": "10"}, None, "time_budget must be a number of at least 0, or None, got '10'"),
        ({"mode": "slow"}, None, "mode must be one of 'full', 'fast', got 'slow'"),
        ({"folds": 1}, None, "folds must be an integer from 2, got 1"),
        ({"folds": 2.5}, None, "folds must be an integer"),
        ({"measure": "alpha_nDCG@5"}, None, "measure must be one without groups"),
        ({"measure": "quality"}, None, "quality"),
        ({"prepare": ["logarithm"]}, None, "unknown preparation step"),
        ({}, lambda X, y, qid: (np.where(X > 2, np.inf, X), y, qid), "infinity"),
        ({}, lambda X, y, qid: (X, 1000 * y, qid), "^y: labels must have finite gains >= 0 under nDCG@10"),
        ({"measure": "ERR"}, lambda X, y, qid: (X, 5 * y, qid), "^y: labels must be at most max_grade, 4, for ERR"),
        ({}, lambda X, y, qid: (X, 0 * y, qid), "no list can be learned from"),
        ({}, lambda X, y, qid: (X, y * (qid == "q3"), qid), "only one list can be learned from"),
    ],
)
def test_what_is_refused(options, change, said):
    data = make() if change is None else change(*make())
    with pytest.raises(ValueError, match=said):
        rs.AutoRanker(**{"time_budget": 0, **options}).fit(*data)


@pytest.mark.filterwarnings("ignore:there is only one list")
@pytest.mark.parametrize("seed", range(4))
def test_a_single_list_is_split_so_that_each_part_has_different_labels(seed):
    """Thirteen documents: dealt at random, some part had one label, and nothing could be selected."""
    X, y = np.random.default_rng(0).normal(size=(13, 2)), np.array([0, 0, 1, 2, 0, 0, 2, 1, 2, 0, 0, 1, 1])
    parts = deal_lists(gather(X, y, np.zeros(13, np.int64)), 3, seed)
    assert all(set(y[parts == part]) == {0, 1, 2} for part in range(3))
    X[:, 0] += 3 * y
    assert rs.AutoRanker(time_budget=0, random_state=seed).fit(X, y, group=[13]).validation_lists_ == 1


@pytest.mark.filterwarnings("ignore:there is only one list")
def test_parts_of_which_every_ranking_is_equally_good_are_named():
    X, y = np.random.default_rng(0).normal(size=(13, 2)), (np.arange(13) == 3).astype(int)
    message = (
        "fold . of {0} of the training lists: .* the only list was split by its documents into folds={0}.*: pass more "
    )
    for make, folds in ((rs.AutoRanker, 3), (lambda: rs.EnsembleRanker([rs.LinearRanker()], folds=2), 2)):
        with pytest.raises(ValueError, match=message.format(folds)):
            make().fit(X, y, group=[13])
    rs.EnsembleRanker([Column()], folds=2).fit(X, y, group=[13])  # needs no validation
