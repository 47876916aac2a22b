"""Every trainer by name: better than chance, the protocol of LinearRanker, repeatable; and each against its definition."""

import functools
import itertools
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import rankstruct as rs
from papers.baselines import (
    TRAINERS,
    AllPairsLoss,
    HeldOut,
    LinearClassifier,
    MulticlassRisk,
    MulticlassSVM,
    RankBoost,
    Regression,
    Selected,
    best_stage,
    choice_of,
    is_stochastic,
    make_trainer,
    mean_measure,
    path_of,
)
from rankstruct.data import synthetic
from rankstruct.estimators import auto

SMALL = {
    "mcrank": {"rounds": 10, "leaves": 4},
    "lambdamart": {"rounds": 20, "leaves": [2, 4], "least_documents": 5},
    "xgboost": {"rounds": 20, "leaves": [2, 4], "learning_rate": 0.3},
    "catboost": {"rounds": 12, "depth": 2, "learning_rate": 0.3},
    "boosted": {"n_estimators": 10, "min_child_samples": 5, "learning_rate": 0.2},
    "ensemble": {
        "members": [{"trainer": "regression", "alpha": [0.1, 1.0]}, {"trainer": "mlp", "max_epochs": 5, "hidden": [8]}]
    },
    "rankboost": {"rounds": 60},
    "lambdarank": {"steps": 40},
    "smoothgrad": {"C": 10.0, "stages": 2, "max_iterations": 20},
    "mlp": {"max_epochs": 10, "hidden": (8,)},
    "combination": {"C": [1.0, 100.0], "weights": [[1, 1, 0.1], [1, 0.1, 0.1]]},
}

LIBRARIES = {
    "lambdamart": "lightgbm",
    "xgboost": "xgboost",
    "boosted": "lightgbm",
    "catboost": "catboost",
}  # that may be absent


@pytest.fixture(autouse=True)
def quick_models(monkeypatch):
    """A short training in place of AutoRanker's."""

    def mlp(options, _):
        return rs.MLPRanker(
            options.measure, prepare=(), hidden=(8,), max_epochs=10, device="cpu", random_state=options.random_state
        )

    monkeypatch.setattr(auto, "MEMBERS", {"MLP": mlp})


def arrays(data):
    return data.features, data.labels, np.repeat(np.arange(data.num_lists), data.lengths)


@pytest.fixture(scope="module")
def parts():
    train, weights = synthetic(lists=25, features=6, grades=3, seed=0)
    return tuple(
        arrays(part)
        for part in (train, *(synthetic(lists=25, features=6, grades=3, seed=s, weights=weights)[0] for s in (1, 2)))
    )


def fit(name, parts, **options):
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    (X, y, qid), (X_valid, y_valid, qid_valid), _ = parts
    trainer = make_trainer(name, **{**SMALL.get(name, {}), **options})
    return trainer.fit(X, y, qid, X_valid=X_valid, y_valid=y_valid, qid_valid=qid_valid)


@pytest.fixture(scope="module")
def fitted(parts):
    """A trainer by its name, fitted once."""
    return functools.cache(lambda name: fit(name, parts))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", TRAINERS)
def test_learns_to_rank_and_is_repeatable(name, parts, fitted):
    X, y, qid = parts[2]
    trainer = fitted(name)
    scores = trainer.predict(X, qid)
    assert scores.shape == y.shape
    assert scores.dtype == np.float64
    value, chance = mean_measure(scores, y, qid, "nDCG"), mean_measure(np.zeros(len(y)), y, qid, "nDCG")
    assert value < chance + 0.05 if name == "random" else value > chance + 0.03
    np.testing.assert_array_equal(fit(name, parts).predict(X, qid), scores)
    assert isinstance(choice_of(trainer), dict)
    if is_stochastic(name):
        assert (fit(name, parts, random_state=1).predict(X, qid) != scores).any()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in TRAINERS if name not in (*LIBRARIES, "random")])
def test_rows_of_a_list_need_not_be_neighbours(name, parts, fitted):
    (X, y, qid), held_out, test = parts
    order = np.random.default_rng(0).permutation(len(y))
    expected = fitted(name).predict(test[0], test[2])
    found = fit(name, ((X[order], y[order], qid[order]), held_out, test)).predict(test[0], test[2])
    assert np.corrcoef(expected, found)[0, 1] > 0.99


def test_an_ensemble_averages_standardised_scores_of_every_member_and_seed(parts, fitted):
    trainer, (X, y, qid) = fitted("ensemble"), parts[2]
    assert [type(ranker).__name__ for ranker in trainer.rankers_] == ["Selected", *["MLPRanker"] * 3]
    seeds = [ranker.random_state for ranker in trainer.rankers_[1:]]
    assert seeds == [0, 1, 2]
    wanted = np.zeros(len(y))
    for ranker in trainer.rankers_:
        scores = ranker.predict(X, qid)
        for rows in (qid == each for each in np.unique(qid)):
            wanted[rows] += (scores[rows] - scores[rows].mean()) / scores[rows].std() / 4
    np.testing.assert_allclose(trainer.predict(X, qid), wanted, atol=1e-6)
    assert choice_of(trainer) == {"alpha": [trainer.rankers_[0].choice_["alpha"]]}
    for wrong in ({"members": []}, {"members": [{"alpha": 1.0}]}, {"members": [{"trainer": "mlp"}], "seeds": 0}):
        with pytest.raises(ValueError, match=r"^(an ensemble needs a member and a seed|members: give `trainer`)"):
            make_trainer("ensemble", **wrong)


@pytest.mark.parametrize("loss", ["QueryRMSE", "YetiRank"])
def test_catboost_scores_by_the_rounds_that_validation_chose(loss, parts):
    trainer = fit("catboost", parts, loss=loss, every=5)
    stages = dict(trainer._stages(parts[2][0]))
    assert list(stages) == [5, 10, 12]
    np.testing.assert_allclose(trainer.predict(parts[2][0]), stages[trainer.choice_["rounds"]])


def test_without_catboost_it_is_said_what_to_install(parts, monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(ImportError, match=r"^CatBoost is not installed: pip install catboost$"):
        make_trainer("catboost").fit(*parts[0])


def test_all_pairs_loss_counts_every_pair():
    scores, labels = torch.tensor([0.3, 1.0, -0.2, 0.0, 2.0]), torch.tensor([2, 1, 0, 0, 1])
    wanted = [
        sum(
            max(0.0, 1 - float(scores[i] - scores[j]))
            for i, j in itertools.permutations(rows, 2)
            if labels[i] > labels[j]
        )
        for rows in ([0, 1, 2], [3, 4])
    ]
    offsets = torch.tensor([0, 3, 5])
    assert AllPairsLoss(reduction="none")(scores, labels, offsets=offsets).tolist() == pytest.approx(wanted)
    assert AllPairsLoss()(scores, labels, offsets=offsets).item() == pytest.approx(np.mean(wanted))
    padded = torch.tensor([[0.3, 1.0, -0.2], [0.0, 2.0, 9.0]]), torch.tensor([[2, 1, 0], [0, 1, 5]])
    where = torch.tensor([[True, True, True], [True, True, False]])
    assert AllPairsLoss(reduction="sum")(*padded, where=where).item() == pytest.approx(sum(wanted))


def test_pairwise_regression_is_least_squares_over_the_pairs(parts):
    X, y, qid = parts[0]
    X = X.astype(float)
    model = make_trainer("pairwise-regression", alpha=0.01).fit(X, y, qid)
    rows, targets, weights = [], [], []
    for each in np.unique(qid):
        good, bad = X[(qid == each) & (y > 0)], X[(qid == each) & (y == 0)]
        pairs = (good[:, None] - bad[None]).reshape(-1, X.shape[1])
        rows.append(pairs / np.sqrt(max(len(pairs), 1)))
        targets.append(np.full(len(pairs), 1 / np.sqrt(max(len(pairs), 1))))
        weights.append(len(pairs) > 0)
    A, b = np.concatenate(rows) / np.sqrt(sum(weights)), np.concatenate(targets) / np.sqrt(sum(weights))
    wanted = np.linalg.solve(A.T @ A + 0.01 * np.eye(X.shape[1]), A.T @ b)
    np.testing.assert_allclose(model.predict(X), X @ wanted, atol=1e-9)
    with pytest.raises(ValueError, match="no list with a relevant and an irrelevant document"):
        make_trainer("pairwise-regression", alpha=1.0).fit([[1.0], [2.0]], [0, 1], [1, 2])


def test_ridge_regression_solves_the_normal_equations(parts):
    X, y, qid = parts[0]
    found = Regression(alpha=3.0, target="gain").fit(X, y, qid).predict(X)
    centred, gains = X - X.mean(0, dtype=float), 2.0**y - 1
    w = np.linalg.solve(centred.T @ centred + 3.0 * np.eye(X.shape[1]), centred.T @ (gains - gains.mean()))
    np.testing.assert_allclose(found, centred @ w + gains.mean(), atol=1e-5)


def test_rankboost_lowers_its_bound_and_votes_as_it_says(parts):
    X, y, qid = parts[0]
    ranker = RankBoost(rounds=30, thresholds=10).fit(X, y, qid)
    bounds = []
    for rounds in (1, 10, 30):
        ranker.choice_ = {"rounds": rounds}
        scores = ranker.predict(X)
        pairs = (qid[:, None] == qid) & (y[:, None] > y)
        bounds.append(np.exp(-(scores[:, None] - scores))[pairs].mean())
    assert bounds[0] > bounds[1] > bounds[2]
    feature, threshold, alpha = ranker.votes_[0]
    h = (X[:, feature] > threshold).astype(float)
    r = (h[:, None] - h)[pairs].mean()
    assert alpha == pytest.approx(0.5 * np.log((1 + r) / (1 - r)))


def test_the_balanced_classifier_weighs_kinds_alike_and_ignores_its_threshold(parts):
    (X, y, qid), _, _ = parts
    labels = (y > 1).astype(float)
    plain, balanced = (LinearClassifier(C=100.0, balanced=b, select="AP").fit(X, labels, qid) for b in (False, True))
    share = [np.mean(r.predict(X) + r.bias * r.ranker_.coef_[-1] > 0) for r in (plain, balanced)]
    assert share[0] < labels.mean() < share[1]


def hinge_of_classes(W, X, classes):
    scores = X @ W.T
    return np.mean([max(s[k] - s[c] + (k != c) for k in range(len(W))) for s, c in zip(scores, classes, strict=True)])


def test_the_multiclass_risk_is_the_mean_hinge_and_its_planes_lie_below():
    rng = np.random.default_rng(0)
    X, classes = rng.normal(size=(30, 4)), rng.integers(0, 3, 30)
    dense, sparse = MulticlassRisk(X, classes, 3), MulticlassRisk(sp.csr_array(X), classes, 3)
    for _ in range(20):
        w, v = rng.normal(size=(2, 12))
        value, gradient = dense(w)
        assert value == pytest.approx(hinge_of_classes(w.reshape(3, 4), X, classes))
        assert dense(v)[0] >= value + gradient @ (v - w) - 1e-12
        assert sparse(w)[0] == pytest.approx(value)
        np.testing.assert_allclose(sparse(w)[1], gradient)
        values, gradients = dense.term_planes(w, np.arange(30))
        assert values.mean() == pytest.approx(value)
        np.testing.assert_allclose(gradients.mean(0), gradient)


def test_the_multiclass_svm_is_optimal_and_with_two_grades_ranks_as_svmacc(parts):
    X, y, qid = parts[0]
    ranker = MulticlassSVM(C=5.0).fit(X, y, qid)
    assert [row["status"] for row in path_of(ranker)] == ["converged"]
    extended = np.hstack([X, np.full((len(X), 1), 10.0)])

    def objective(w):
        return hinge_of_classes(w.reshape(3, -1), extended, y.astype(int)) + w @ w / 10

    reached = ranker.path_[0]
    assert objective(reached.w) == pytest.approx(reached.objective)
    rng = np.random.default_rng(1)
    assert all(objective(reached.w + s * rng.normal(size=len(reached.w))) > reached.lower_bound for s in (1e-3, 0.1, 1))
    binary = (y > 1).astype(float)
    # Weights v and -v score a pair of classes 2 v apart; with u = 2 v the regulariser is ||u||^2 / (4 C).
    several, one = (kind.fit(X, binary, qid).predict(X) for kind in (MulticlassSVM(C=2.5), LinearClassifier(C=5.0)))
    assert np.corrcoef(several, one)[0, 1] > 0.999
    assert np.std(several) == pytest.approx(np.std(one) / 2, rel=0.03)


def test_the_multiclass_svm_refuses_one_grade_and_several_C_without_validation(parts):
    X, y, qid = parts[0]
    with pytest.raises(ValueError, match="two different labels"):
        MulticlassSVM(C=1.0).fit(X, np.ones_like(y), qid)
    with pytest.raises(ValueError, match="C has 5 values"):
        MulticlassSVM().fit(X, y, qid)


def test_selected_takes_the_best_on_validation(parts):
    train, valid, _ = parts
    candidates = [({"alpha": a}, Regression(alpha=a)) for a in (1e9, 1.0, 1e8)]
    chosen = Selected(candidates).fit(*train, X_valid=valid[0], y_valid=valid[1], qid_valid=valid[2])
    values = [mean_measure(t.fit(*train).predict(valid[0]), *valid[1:], "nDCG@10") for _, t in candidates]
    assert chosen.validation_ == pytest.approx(values)
    assert chosen.choice_ == candidates[int(np.argmax(values))][0]


def test_the_given_measure_chooses(parts):
    assert make_trainer("hinge", measure="AP", select="RR@10").measure == "RR@10"
    assert make_trainer("hinge", measure="AUC").measure == "AUC"
    assert isinstance(make_trainer("hinge", measure="nDCG@10", decay="i^-0.5").loss, rs.StructuredHingeLoss)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_trainer("svm"), "unknown trainer 'svm'; there are hinge"),
        (lambda: make_trainer("ranksvm", pairs="some"), "pairs must be"),
        (lambda: make_trainer("regression", alpha=[]), "no value"),
        (lambda: make_trainer("regression", target="rank", alpha=1.0).fit([[1.0], [2.0]], [0, 1], [1, 1]), "target"),
        (lambda: make_trainer("feature", feature=3).fit([[1.0], [2.0]], [0, 1], [1, 1]), "from 0 to 0"),
        (lambda: make_trainer("regression").fit([[1.0], [2.0]], [0, 1], [1, 1]), "X_valid"),
        (lambda: make_trainer("rankboost").fit([[1.0], [2.0]], [0, 1]), "qid"),
        (lambda: make_trainer("svmacc").fit([[1.0], [2.0]], [0, 0], [1, 1]), "0 of 2 relevant"),
    ],
)
def test_wrong_requests_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_agrees_with_published_svmrank(data_root):
    from rankstruct.data import read_folds, read_scores

    folder = data_root / "letor"
    ours, published = [], []
    for fold in range(1, 6):
        splits = read_folds(folder / "OHSUMED", fold)
        train, valid, test = map(arrays, splits)
        ranker = make_trainer("ranksvm", pairs="all", C=[0.01, 0.1, 1.0], select="nDCG")
        ranker.fit(*train, X_valid=valid[0], y_valid=valid[1], qid_valid=valid[2])
        theirs = read_scores(folder / "baseline_scores" / "OHSUMED" / "svm_rank" / f"Fold{fold}" / "test_score")
        for scores, kept in ((ranker.predict(test[0]), ours), (theirs, published)):
            kept.append([mean_measure(scores, *test[1:], measure) for measure in ("AP", "nDCG@10")])
    np.testing.assert_allclose(np.mean(ours, 0), np.mean(published, 0), atol=0.01)


def test_svm_ir_weighs_pairs_by_the_training_lists(parts, fitted):
    trainer, (_, y, qid) = fitted("svm-ir"), parts[0]
    offsets = torch.tensor(np.concatenate([[0], np.bincount(qid).cumsum()]))
    assert trainer.pair_weights_ == rs.grade_pair_weights(torch.tensor(y), offsets, "nDCG@10")
    assert trainer.choice_ == {"C": trainer.ranker_.C_}
    assert all(row["status"] == "converged" for row in path_of(trainer))


def test_the_last_stage_is_asked_too(parts):
    _, valid, _ = parts
    held_out = HeldOut(*valid)
    good, bad = (sign * valid[1].astype(float) for sign in (1, -1))
    stages = [(number, good if number == 13 else bad) for number in range(1, 14)]
    assert best_stage(stages, held_out, "AP", every=5) == 13
    assert best_stage([(n, good if n == 10 else bad) for n in range(1, 14)], held_out, "AP", every=5) == 10
    assert best_stage([(n, good) for n in range(1, 14)], held_out, "AP", every=5) == 5  # the first of equals
    assert best_stage([(n, None) for n in range(1, 14)], None, "AP", every=5) == 13
    assert best_stage([], held_out, "AP") == 0


@pytest.mark.parametrize("name", ["mcrank", "lambdamart", "xgboost", "rankboost", "lambdarank"])
def test_few_rounds_that_are_no_multiple_are_all_taken(name, parts):
    option = "steps" if name == "lambdarank" else "rounds"
    extra = {"leaves": 4} if name in ("mcrank", "lambdamart", "xgboost") else {}
    trainer = fit(name, parts, **{option: 3}, **extra)
    assert choice_of(trainer)[option] == 3


def test_a_classifier_that_learns_nothing_says_so(parts):
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(400, 3)), (rng.random(400) < 0.1).astype(float), np.repeat(np.arange(20), 20)
    for kind in (LinearClassifier, MulticlassSVM):
        with pytest.warns(UserWarning, match=f"{kind.__name__}: the classifier is nearly constant"):
            kind(C=1.0, tolerance=1e-3).fit(X, y, qid)
    assert make_trainer("svmacc", tolerance=1e-4).tolerance == 1e-4
    for name in ("hinge", "combination", "ranksvm"):
        assert make_trainer(name, tolerance=1e-4, C=1.0).tolerance == 1e-4
    (X, y, qid), _, _ = parts
    for kind in (LinearClassifier, MulticlassSVM):
        assert all(row["gap"] <= 1e-6 for row in path_of(kind(C=5.0).fit(X, y, qid)))  # and no warning
