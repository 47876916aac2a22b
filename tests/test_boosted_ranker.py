"""BoostedRanker: what it learns, early stopping, averages of models, any loss, files, what is refused."""

import pickle
import sys

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold
from test_mlp_ranker import held_out, make

import rankstruct as rs

OTHERS = ["xgboost", "catboost"]
QUICK = {"n_estimators": 8, "learning_rate": 0.3, "min_child_samples": 5, "n_jobs": 1}


@pytest.fixture(params=["lightgbm", pytest.param("xgboost", marks=pytest.mark.needs("xgboost"))])
def library(request):
    """A library that takes any loss."""
    return request.param


@pytest.fixture(params=["lightgbm", *(pytest.param(name, marks=pytest.mark.needs(name)) for name in OTHERS)])
def any_library(request):
    return request.param


def test_learns_what_no_linear_ranker_does(any_library):
    lists, test = make(lists=120), make(seed=5)
    options = {
        "library": any_library,
        "min_child_samples": 5,
        "n_jobs": 1,
        "colsample_bytree": 1.0,
        "learning_rate": 0.2,
    }
    ranker = rs.BoostedRanker(n_estimators=60, **options).fit(*lists, **held_out())
    assert ranker.score(*test) > 0.8
    assert (
        ranker.score(*test)
        > rs.LinearRanker(loss=rs.GradedLoss("AUC"), prepare=["append-log"]).fit(*lists).score(*test) + 0.05
    )


def test_the_best_number_of_trees_is_kept_and_patience_ends_the_training(any_library):
    valid = held_out()
    options = {**QUICK, "library": any_library, "n_estimators": 200, "patience": 5}
    ranker = rs.BoostedRanker("nDCG@5", **options).fit(*make(), **valid)
    (history,), (best,) = ranker.history_, ranker.best_iterations_
    assert history.index(max(history)) == best - 1
    assert len(history) == best + 5 < 200
    assert ranker.score(*valid.values()) == pytest.approx(max(history), abs=1e-6)
    again = rs.BoostedRanker("nDCG@5", **{**options, "n_estimators": best}).fit(*make(), **valid)
    np.testing.assert_array_equal(again.predict(make()[0]), ranker.predict(make()[0]))
    everything = rs.BoostedRanker(validation_share=0, library=any_library, **QUICK).fit(*make())
    assert everything.history_ == [[]]
    assert everything.best_iterations_ == [8]


def test_several_models_are_averaged_and_a_run_can_be_repeated(any_library):
    X, y, qid = make()
    options = {**QUICK, "library": any_library}
    both = rs.BoostedRanker(seeds=2, random_state=4, **options).fit(X, y, qid, **held_out())
    alone = [rs.BoostedRanker(random_state=seed, **options).fit(X, y, qid, **held_out()) for seed in (4, 5)]
    first, second = (ranker.predict(X) for ranker in alone)
    assert not np.allclose(first, second)
    assert both.predict(X).dtype == np.float64
    np.testing.assert_allclose(both.predict(X), (first + second) / 2, atol=1e-6)


def test_leaves_are_found_once_more_all_together(library, tmp_path):
    """The same as a linear ranker on the library's leaf indices."""
    X, y, qid = make(lists=60)
    linear = rs.LinearRanker("AP", loss="GradedLoss('AUC')", C=10.0, tolerance=1e-7)
    options = {**QUICK, "library": library, "seeds": 2}
    ranker = rs.BoostedRanker(leaf_ranker=linear, **options).fit(X, y, qid, **held_out())
    plain = rs.BoostedRanker(**options).fit(X, y, qid, **held_out())

    def features(X):
        data = X if library == "lightgbm" else __import__("xgboost").DMatrix(X)
        found = [plain.predict(X)[:, None] * 100]
        for model in plain.models_:
            leaves = model.predict(data, pred_leaf=True).reshape(len(X), -1)
            found += [leaves[:, [tree]] == np.arange(64) for tree in range(leaves.shape[1])]
        return np.concatenate(found, axis=1).astype(float)

    alone = clone(linear).set_params(prepare=()).fit(features(X), y, qid)
    new = make(seed=5)[0]
    np.testing.assert_allclose(
        ranker.predict(new), alone.predict(features(new)), atol=1e-3 * np.std(alone.predict(features(new)))
    )
    assert np.corrcoef(ranker.predict(new), plain.predict(new))[0, 1] < 0.9999
    as_grown = ranker.leaf_ranker_.coef_[0] * 100 * plain.predict(X)
    offsets = torch.arange(0, len(y) + 1, len(y) // 60)
    losses = [
        rs.GradedLoss("AUC")(torch.tensor(each), torch.tensor(y), offsets=offsets)
        for each in (ranker.predict(X), as_grown)
    ]
    assert losses[0] < losses[1]
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scores = rs.load_scorer(tmp_path / "scorer.pt")(torch.tensor(new)).numpy()
    np.testing.assert_allclose(scores, ranker.predict(new), atol=1e-5)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict(new), ranker.predict(new))


def test_constant_features_are_named():
    pytest.importorskip("lightgbm")
    X, y, qid = make()
    with pytest.raises(ValueError, match="no feature can be split"):
        rs.BoostedRanker(**QUICK).fit(np.ones_like(X), y, qid)


@pytest.mark.parametrize("prepare", [(), ("bins:3",)])
def test_zeros_are_the_same_in_sparse_and_dense_features_and_in_the_scorer(any_library, prepare):
    """XGBoost takes what sparse features do not store as missing."""
    rng = np.random.default_rng(0)
    X, qid = np.round(rng.normal(size=(240, 3)), 2).astype(np.float32), np.repeat(np.arange(30), 8)
    X[rng.random(X.shape) < 0.5] = 0
    y = (X[:, 0] - X[:, 1] + (X[:, 2] == 0) > 0.5).astype(int)
    options = {"library": any_library, "n_estimators": 10, "min_child_samples": 5, "n_jobs": 1}
    ranker = rs.BoostedRanker(**options, prepare=prepare).fit(sp.csr_array(X), y, qid)
    expected = ranker.predict(sp.csr_array(X))
    assert np.ptp(expected) > 0.1
    stored = sp.csr_array(X)
    stored.data[::3] = 0
    assert ranker.predict(stored) == pytest.approx(ranker.predict(stored.toarray()), abs=1e-6)
    assert ranker.predict(X) == pytest.approx(expected, abs=1e-6)
    scorer = ranker.to_scorer()
    assert scorer(torch.from_numpy(X)).numpy() == pytest.approx(expected, abs=1e-6)
    trees = scorer.scorer if prepare else scorer
    prepared = torch.as_tensor(ranker.preparation_(torch.from_numpy(X)))
    assert trees._sums(prepared).numpy() == pytest.approx(expected, abs=1e-6)


def test_rows_in_any_order_sparse_or_missing(any_library):
    X, y, qid = make()
    options = {**QUICK, "library": any_library, "subsample": 1.0}
    ranker = rs.BoostedRanker(**options).fit(X, y, qid)
    # Lists by first appearance, and their documents in order: the same data.
    shuffle = np.argsort(np.tile(np.arange(8), 30), kind="stable")
    again = rs.BoostedRanker(**options).fit(X[shuffle], y[shuffle], qid[shuffle])
    np.testing.assert_array_equal(again.predict(X), ranker.predict(X))
    halves = rs.BoostedRanker(**options).fit(X.astype(np.float16), y, qid)
    assert halves.predict(X.astype(np.float16)).shape == y.shape
    sparse = rs.BoostedRanker(**options).fit(sp.csr_matrix(X), y, qid).predict(sp.csr_matrix(X))
    assert rs.evaluate(sparse.reshape(30, 8), y.reshape(30, 8), ["AP"])["AP"].mean() > 0.5
    X[::3, 0] = np.nan
    assert np.isfinite(rs.BoostedRanker(**options).fit(X, y, qid).predict(X)).all()
    for more in ({"prepare": ["append-log"]}, {"start": rs.LinearRanker()}):
        found = rs.BoostedRanker(**options, **more).fit(X, y, qid)
        assert np.isfinite(found.predict(X)).all()
        assert found.preparation_.names == (("encode", "append-log:0.001") if "prepare" in more else ())


@pytest.mark.parametrize(
    "loss", [None, rs.StructuredHingeLoss("nDCG@3"), "LambdaLoss('nDCG@10')", "ListNetLoss", "SquaredLoss"]
)
def test_any_loss(loss, library):
    X, y, qid = make(lists=60)
    ranker = rs.BoostedRanker("nDCG@5", loss=loss, library=library, **QUICK).fit(X, y, qid, **held_out())
    assert ranker.score(X, y, qid) > rs.evaluate(np.zeros((60, 8)), y.reshape(60, 8), ["nDCG@5"])["nDCG@5"].mean() + 0.1


def test_a_policy_is_learned_by_newton_steps(library):
    X, y, qid = make(lists=60)
    loss = rs.PLRankLoss("nDCG@5", samples=16)
    ranker = rs.BoostedRanker("nDCG@5", loss=loss, noise=0.0, library=library, **QUICK).fit(X, y, qid, **held_out())
    assert ranker.score(X, y, qid) > rs.evaluate(np.zeros((60, 8)), y.reshape(60, 8), ["nDCG@5"])["nDCG@5"].mean() + 0.1


def test_diverse_losses_take_groups(library):
    X, y, qid = make()
    hosts, valid = np.resize(["a", "b", "c"], len(y)), held_out()
    loss = rs.StructuredHingeLoss("diverse_nDCG@3", reference="ideal-tied")
    ranker = rs.BoostedRanker(loss=loss, library=library, **QUICK)
    assert (
        ranker.fit(X, y, qid, diversity_groups=hosts, **valid, diversity_groups_valid=hosts).score(
            X, y, qid, diversity_groups=hosts
        )
        > 0.3
    )
    with pytest.raises(ValueError, match="StructuredHingeLoss needs diversity_groups="):
        rs.BoostedRanker("AP", loss=loss, library=library).fit(X, y, qid)


def test_preparation_and_start_travel_with_the_model(any_library, tmp_path):
    X, y, qid = make()
    start = rs.LinearRanker(loss=rs.GradedLoss("AUC"), C=[0.1, 1.0], prepare=["log"])
    prepare = ["append-query-zscore"]
    ranker = rs.BoostedRanker(start=start, prepare=prepare, library=any_library, **QUICK).fit(X, y, qid, **held_out())
    assert not hasattr(start, "coef_")
    trees = rs.BoostedRanker(prepare=prepare, library=any_library, **QUICK).fit(X, y, qid, **held_out())
    assert not np.allclose(trees.predict(X, qid), ranker.predict(X, qid))
    zeros = np.zeros_like(X)  # in all of which the trees say the same
    shift = ranker.predict(zeros, qid) - ranker.start_.predict(zeros)
    np.testing.assert_allclose(shift, shift[0], atol=1e-6)
    joblib.dump(ranker, tmp_path / "ranker.joblib")
    for again in (joblib.load(tmp_path / "ranker.joblib"), pickle.loads(pickle.dumps(ranker))):
        np.testing.assert_allclose(again.predict(X, qid), ranker.predict(X, qid), atol=1e-6)
        assert again.score(X, y, qid) == pytest.approx(ranker.score(X, y, qid))


def test_scikit_learn(any_library):
    X, y, qid = make()
    ranker = clone(rs.BoostedRanker(library=any_library, **QUICK))
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(ranker, {"num_leaves": [2, 6]}, cv=GroupKFold(2)).fit(X, y, qid=qid, groups=qid)
    assert search.best_score_ > 0.4
    with pytest.raises(ValueError, match="4 features"):
        search.best_estimator_.predict(X[:, :3])


def test_noise_is_that_of_the_seed_and_can_be_left_out(library):
    X, y, qid = make()
    options = {**QUICK, "library": library, "subsample": 1.0, "colsample_bytree": 1.0}
    state = torch.get_rng_state()
    first, again, other, none = (
        rs.BoostedRanker(random_state=seed, noise=noise, **options).fit(X, y, qid, **held_out()).predict(X)
        for seed, noise in ((0, 0.5), (0, 0.5), (1, 0.5), (0, 0.0))
    )
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    assert not np.allclose(first, none)
    plain = rs.BoostedRanker(random_state=1, noise=0.0, **options).fit(X, y, qid, **held_out()).predict(X)
    np.testing.assert_array_equal(plain, none)


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("max_depth", r"options=, such as options=\{'max_depth': 4\}, and the arguments are measure, "),
        ("C", "options=, .*, and the arguments are measure, "),
        ("label_gain", "gains are those of the measure"),
        ("early_stopping_rounds", "use patience="),
        ("objective", "loss= is the training objective"),
        ("eval_metric", "measure= selects the number of trees"),
    ],
)
def test_the_librarys_names_are_refused_with_the_way_out(name, way_out):
    with pytest.raises(TypeError, match=f"there is no {name}=; .*{way_out}"):
        rs.BoostedRanker(**{name: 1})


@pytest.mark.parametrize(
    ("name", "way_out"), [("eval_at", r"BoostedRanker\('nDCG@10'\)"), ("callbacks", "patience="), ("verbose", "of fit")]
)
def test_what_fit_takes_elsewhere_is_refused_with_the_way_out(name, way_out):
    X, y, qid = make()
    with pytest.raises(TypeError, match=f"there is no {name}=.*{way_out}|there is no {name}= {way_out}"):
        rs.BoostedRanker().fit(X, y, qid, **{name: 1})


def test_options_of_the_library(library):
    X, y, qid = make()
    few = rs.BoostedRanker(library=library, **QUICK, options={"max_depth": 1}).fit(X, y, qid).predict(X)
    many = rs.BoostedRanker(library=library, **QUICK).fit(X, y, qid).predict(X)
    assert len(np.unique(few)) < len(np.unique(many))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"library": "sklearn"},
            "library must be one of 'lightgbm', 'xgboost', 'catboost', got 'sklearn'",
        ),
        (
            {"library": "catboost", "loss": "GradedLoss('AUC')"},
            "loss must be one of 'QueryRMSE', 'YetiRank', 'QuerySoftMax' with library='catboost'",
        ),
        ({"options": {"num_leaves": 3}}, "options must not have 'num_leaves'; pass num_leaves= to BoostedRanker"),
        ({"options": ["max_depth"]}, r"options must be a dictionary, such as .*, got \['max_depth'\]"),
        ({"options": {1: 2}}, "options must be a dictionary"),
        (
            {"options": {"label_gain": [0, 1]}},
            r"'label_gain', which LightGBM does not use .*; gains are .*loss=LambdaLoss\(",
        ),
        ({"options": {"boosting": "rf"}}, "options={'boosting': 'rf'} is not possible; it must be one of 'gbdt', "),
        (
            {"options": {"max_dept": 1}},
            r"options has 'max_dept', which LightGBM does not use; did you mean max_depth\?",
        ),
        ({"options": {"eta": 0.3}}, "options must not have 'eta'; pass learning_rate= to BoostedRanker"),
        (
            {"options": {"shrinkage_rate": 0.3}},
            "options must not have 'shrinkage_rate'; pass learning_rate= to BoostedRanker",
        ),
        (
            {"options": {"iterations": 3}, "library": "catboost"},
            "options must not have 'iterations'; pass n_estimators=",
        ),
        ({"min_child_samples": -1}, "min_child_samples must be a finite number of at least 0, or None, got -1"),
        ({"min_child_samples": "few"}, "min_child_samples must be a finite number of at least 0, or None, got 'few'"),
        ({"n_estimators": 0}, "n_estimators must be an integer from 1 to 2147483647, or None, got 0"),
        ({"n_estimators": 10**20}, "n_estimators must be an integer from 1 to 2147483647"),
        ({"n_estimators": 2.5}, "n_estimators must be an integer"),
        ({"num_leaves": 1}, "num_leaves must be an integer from 2"),
        ({"learning_rate": 0}, "learning_rate must be a finite number of at least 1e-06, got 0"),
        ({"learning_rate": float("inf")}, "learning_rate must be a finite number"),
        ({"seeds": 0}, "seeds must be an integer from 1"),
        ({"patience": 0}, "patience must be an integer from 1"),
        ({"leaf_ranker": rs.MLPRanker()}, "leaf_ranker must be a LinearRanker"),
        ({"leaf_ranker": rs.LinearRanker(prepare=["log"])}, "leaf_ranker must not prepare features, which are leaves"),
        (
            {"leaf_ranker": rs.LinearRanker(), "start": rs.LinearRanker()},
            "leaf_ranker must be a LinearRanker, without start",
        ),
        ({"validation_share": 1.0}, r"validation_share must be a finite number of at least 0 and below 1"),
        ({"validation_share": 0.001}, "of 30 lists is 0 lists"),
        ({"noise": -1.0}, "noise must be a finite number of at least 0, or None, got -1"),
        ({"noise": "half"}, "noise must be a finite number of at least 0, or None, got 'half'"),
        ({"start": "zero"}, r"start must be an unfitted ranker, such as LinearRanker\(\), got 'zero'"),
        ({"start": rs.LinearRanker}, "start must be an unfitted ranker"),
        ({"loss": "NoLoss"}, "loss must be a loss module"),
    ],
)
def test_wrong_options_are_named(options, message):
    pytest.importorskip("lightgbm")
    with pytest.raises(ValueError, match=message):
        rs.BoostedRanker(**options).fit(*make())


def test_no_alias_of_an_argument_is_an_option_of_lightgbm():
    aliases = pytest.importorskip("lightgbm").basic._ConfigAliases
    names = (
        "num_iterations",
        "learning_rate",
        "num_leaves",
        "min_data_in_leaf",
        "bagging_fraction",
        "feature_fraction",
    )
    for name in set().union(*map(aliases.get, (*names, "num_threads", "seed", "objective", "metric"))):
        with pytest.raises(ValueError, match=f"options must not have '{name}'; pass "):
            rs.BoostedRanker(options={name: 1}).fit(*make())


def test_all_options_of_lightgbms_objectives_are_refused():
    """As LightGBM's documentation lists them, with their aliases."""
    aliases = pytest.importorskip("lightgbm").basic._ConfigAliases
    names = (
        "label_gain",
        "lambdarank_truncation_level",
        "lambdarank_norm",
        "sigmoid",
        "is_unbalance",
        "scale_pos_weight",
    )
    more = "pos_bagging_fraction", "neg_bagging_fraction", "num_class", "objective_seed", "alpha", "boost_from_average"
    for name in set().union(*map(aliases.get, (*names, *more, "lambdarank_position_bias_regularization"))):
        with pytest.raises(ValueError, match=f"options must not have '{name}', which LightGBM does not use"):
            rs.BoostedRanker(options={name: 1}).fit(*make())


def test_lightgbm_without_a_list_of_parameters_takes_any(monkeypatch):
    monkeypatch.delattr(pytest.importorskip("lightgbm").basic._ConfigAliases, "_get_all_param_aliases")
    rs.BoostedRanker(**QUICK, options={"max_dept": 1}).fit(*make())


@pytest.mark.needs("xgboost")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_dept": 1}, r"options has 'max_dept', which XGBoost does not use; did you mean max_depth\?"),
        (
            {"lambdarank_pair_method": "topk"},
            "'lambdarank_pair_method', which XGBoost does not use .*; weights of pairs",
        ),
        ({"rate_drop": 0.1}, "options has 'rate_drop', which XGBoost does not use"),  # only of dart
        (
            {"booster": "gblinear"},
            "options={'booster': 'gblinear'} is not possible; it must be one of 'gbtree', 'dart'",
        ),
    ],
)
def test_what_xgboost_would_ignore_is_refused(options, message):
    xgboost = pytest.importorskip("xgboost")
    before = xgboost.get_config()
    with pytest.raises(ValueError, match=message):
        rs.BoostedRanker(library="xgboost", options=options).fit(*make())
    assert xgboost.get_config() == before
    dart = {"booster": "dart", "rate_drop": 0.5, "alpha": 0.1, "monotone_constraints": "(1,0,0,0)"}
    assert rs.BoostedRanker(library="xgboost", **QUICK, options=dart).fit(*make()).score(*make()) > 0.5


def test_dart_is_not_stopped_early(library):
    """It scales earlier trees, so the first ones of the last model are not the model that was best."""
    given = {"boosting_type": "dart"} if library == "lightgbm" else {"booster": "dart", "rate_drop": 0.5}
    ranker, (X, y, qid) = rs.BoostedRanker(library=library, options=given, **QUICK), make()
    message = "'dart'} changes earlier trees.*: omit X_valid.*choose n_estimators"
    for more, valid in (({}, held_out()), ({"validation_share": 0.2}, {})):
        with pytest.raises(ValueError, match=message):
            clone(ranker).set_params(**more).fit(X, y, qid, **valid)
    with pytest.raises(ValueError, match=message):  # from clicks, lists are held out
        clone(ranker).fit(X, y, qid, position=np.tile(np.arange(1, 11), len(y))[: len(y)], propensity=np.ones(10))
    assert ranker.fit(X, y, qid).score(X, y, qid) > 0.5


@pytest.mark.needs("catboost")
@pytest.mark.parametrize("loss", [None, "YetiRank", "QueryRMSE", "QuerySoftMax"])
def test_losses_of_catboost_need_no_measure(loss):
    X, y, qid = make()
    ranker = rs.BoostedRanker(library="catboost", loss=loss, n_estimators=5, n_jobs=1).fit(X, y, qid)
    assert (ranker.measure_, ranker.score(X, y, qid) > 0.5) == ("nDCG@10" if y.max() > 1 else "AP", True)


def test_names_of_catboost_replace_arguments():
    pytest.importorskip("catboost")
    X, y, qid = make()
    given = {"library": "catboost", "n_estimators": 3, "n_jobs": 1}
    renamed = rs.BoostedRanker(**given, options={"eta": 0.5, "max_depth": 2, "random_state": 1}).fit(X, y, qid)
    same = rs.BoostedRanker(**given, learning_rate=0.5, num_leaves=4, random_state=1).fit(X, y, qid)
    assert renamed.num_leaves_ == same.num_leaves_ == 4
    np.testing.assert_array_equal(renamed.predict(X), same.predict(X))


def test_a_missing_library_is_named_in_a_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ImportError, match=r"^lightgbm is not installed: pip install 'rankstruct\[boosting\]'$"):
        rs.BoostedRanker().fit(*make())


def test_lists_without_a_difference_are_refused(any_library):
    X, y, qid = make()
    with pytest.raises(ValueError, match="no list can be learned from"):
        rs.BoostedRanker(library=any_library).fit(X, np.zeros_like(y), qid)


def test_nothing_is_held_out_unless_asked_and_the_rate_gives_the_number_of_trees():
    X, y, qid = make()
    ranker = rs.BoostedRanker(n_jobs=1).fit(X, y, qid)
    assert (ranker.history_, ranker.best_iterations_) == ([[]], [100])
    assert (ranker.noise_, ranker.num_leaves_) == (0.5, 10)
    assert rs.BoostedRanker(learning_rate=0.5, n_jobs=1).fit(X, y, qid).best_iterations_ == [20]
    assert rs.BoostedRanker(learning_rate=30.0, n_jobs=1).fit(X, y, qid).best_iterations_ == [1]
    stopped = rs.BoostedRanker(learning_rate=1.0, validation_share=0.2, patience=1000, n_jobs=1).fit(X, y, qid)
    assert len(stopped.history_[0]) == 100  # ten times as many
    with pytest.raises(
        ValueError, match=r"patience=9 needs validation lists: pass X_valid.*validation_share=0.2; or omit"
    ):
        rs.BoostedRanker(patience=9).fit(X, y, qid)


def test_many_lists_and_labels_that_are_no_grades_get_twice_as_many_trees(monkeypatch):
    X, y, qid = make()
    ranker = rs.BoostedRanker(learning_rate=1.0, n_jobs=1)
    assert ranker.fit(X, y, qid).best_iterations_ == [10]
    assert ranker.fit(X, y / 4, qid).best_iterations_ == [20]
    monkeypatch.setattr("rankstruct.estimators.boosting._MANY_LISTS", len(np.unique(qid)))
    assert ranker.fit(X, y, qid).best_iterations_ == [20]
    assert ranker.set_params(n_estimators=7).fit(X, y / 4, qid).best_iterations_ == [7]


def test_noise_follows_from_the_number_of_documents(monkeypatch):
    X, y, qid = make()
    monkeypatch.setattr("rankstruct.estimators.boosting._MANY", len(y))
    ranker = rs.BoostedRanker(n_estimators=2, n_jobs=1)
    assert (ranker.fit(X, y, qid).noise_, ranker.num_leaves_) == (0.1, 10)
    assert (ranker.set_params(noise=0, num_leaves=3).fit(X, y, qid).noise_, ranker.num_leaves_) == (0, 3)


def test_few_documents_have_smaller_leaves_and_trees_without_a_split_are_not_silent(library):
    X, y, qid = make(lists=2)
    ranker = rs.BoostedRanker(library=library, n_jobs=1).fit(X, y, qid)
    assert ranker.min_child_samples_ == round(len(y) / 10) < 20
    assert ranker.feature_importances_.sum() == pytest.approx(1)
    assert ranker.fit(*make(lists=40)).min_child_samples_ == 20
    with pytest.warns(
        UserWarning, match=f"no tree has a split.*same score.*min_child_samples=1000 is too much for {len(y)} "
    ):
        ranker.set_params(min_child_samples=1000).fit(X, y, qid)


@pytest.mark.needs("catboost")
def test_what_catboost_used_is_stated():
    ranker = rs.BoostedRanker(library="catboost", options={"depth": 2}, n_estimators=2, n_jobs=1).fit(*make())
    assert (ranker.noise_, ranker.num_leaves_) == (0, 4)


def test_held_out_lists_do_not_decide_on_few_lists():
    """Where labels are noisy, early stopping on a few of few lists keeps any number of trees; the seed hardly matters now."""
    X, y, qid = make(lists=20)
    y = np.where(np.random.default_rng(0).random(len(y)) < 0.3, 1, y)
    test = make(lists=60, seed=5)

    def spread(**options):
        rankers = [rs.BoostedRanker("nDCG@10", random_state=seed, n_jobs=1, **options) for seed in range(4)]
        return np.std([ranker.fit(X, y, qid).score(*test) for ranker in rankers])

    assert spread() < spread(validation_share=0.2)
