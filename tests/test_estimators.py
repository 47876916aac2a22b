"""LinearRanker and KernelRanker: optimum, conventions of scikit-learn, grouping, paths of C, what is refused."""

import inspect
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rankstruct as rs
from rankstruct.data.clean import keep_documents
from rankstruct.estimators.linear import ranking_risk
from rankstruct.estimators.training_data import TrainingData, gather
from rankstruct.ids import group_documents
from rankstruct.solvers import DC, Bundle, RowsOf, Status, group_regression


def make(lists=15, size=8, d=4, seed=0, grades=2, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(lists * size, d)).astype(dtype)
    raw = X @ rng.normal(size=d) + rng.normal(size=lists * size)
    y = np.clip(np.floor(raw), 0, grades - 1)
    return X, y, np.repeat(np.arange(lists), size)


def objective(ranker, X, y, qid, w):
    """By hand: 1/(2C) w'w + mean over the lists that can be wrong."""
    values = []
    for q in np.unique(qid):
        labels = torch.tensor(y[qid == q])
        if labels.min() < labels.max():
            scores = torch.tensor(X[qid == q] @ w)
            options = {"feature_map": ranker.feature_map, "reference": ranker.reference}
            values.append(rs.StructuredHingeLoss(ranker.measure, **options)(scores, labels).item())
    return w @ w / (2 * ranker.C) + np.mean(values)


SOLVERS = ["bundle", "cutting-plane", pytest.param("frank-wolfe", marks=pytest.mark.slow)]


@pytest.mark.parametrize("measure", ["AP", "AUC", "nDCG@3", "RR@5"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_reaches_the_optimum_with_every_solver(measure, solver):
    X, y, qid = make()
    bound = {"feature_map": "first-relevant" if measure == "RR@5" else "pairwise", "reference": "ideal"}
    ranker = rs.LinearRanker(measure, C=5.0, solver=solver, tolerance=1e-3, **bound, prepare=()).fit(X, y, qid)
    solution = ranker.solution_
    assert solution.status is Status.CONVERGED
    assert solution.lower_bound <= solution.objective
    assert solution.objective == pytest.approx(objective(ranker, X, y, qid, ranker.coef_), rel=1e-9)
    assert ranker.objective(ranker.coef_, X, y, qid) == pytest.approx(solution.objective, rel=1e-9)
    exact = rs.LinearRanker(measure, C=5.0, tolerance=1e-7, **bound, prepare=()).fit(X, y, qid).solution_
    assert exact.lower_bound - 1e-9 <= solution.objective <= exact.objective * (1 + 1.1e-3)


def test_rows_in_any_order_float32_sparse_and_frames_give_the_same_weights():
    X, y, qid = make()
    expected = rs.LinearRanker("AP", C=10.0, tolerance=1e-6, prepare=()).fit(X, y, qid).coef_
    shuffle = np.random.default_rng(1).permutation(len(y))
    names = np.array([f"query {q}" for q in qid])
    for given in (
        (X[shuffle], y[shuffle], qid[shuffle]),
        (sp.csr_matrix(X), y, qid),
        (sp.coo_matrix(X), y, names),
        (X.astype(np.float32), y, qid),
    ):
        found = rs.LinearRanker("AP", C=10.0, tolerance=1e-6, prepare=()).fit(*given)
        np.testing.assert_allclose(found.coef_, expected, atol=2e-3)
        np.testing.assert_allclose(found.predict(given[0]), np.asarray(given[0] @ found.coef_).ravel(), rtol=1e-6)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    ranker = rs.LinearRanker("AP", C=10.0, tolerance=1e-6, prepare=()).fit(
        frame, pandas.Series(y), pandas.Series(names)
    )
    np.testing.assert_allclose(ranker.coef_, expected, atol=2e-3)
    assert list(ranker.feature_names_in_) == list("abcd")


def test_float32_is_not_copied():
    X, y, qid = make(dtype=np.float32)
    ranker = rs.LinearRanker("AP", drop_empty=False)
    lists = ranker._training_lists(gather(ranker._check(X, y, reset=True)[0], y, qid))
    assert np.shares_memory(lists.features, X)


def test_group_documents():
    order, offsets = group_documents(np.array([3, 3, 1, 2, 2, 2]))
    assert order is None
    assert offsets.tolist() == [0, 2, 3, 6]
    order, offsets = group_documents(np.array([3, 1, 3, 2, 1]))
    assert order.tolist() == [0, 2, 1, 4, 3]
    assert offsets.tolist() == [0, 2, 4, 5]


def test_ctrl_c_ends_the_fit_with_the_best_weights_so_far():
    X, y, qid = make()
    seen = []

    def press(record, w):
        seen.append(w)
        if len(seen) == 3:
            raise KeyboardInterrupt

    ranker = rs.LinearRanker("AP", C=[0.1, 1.0], solver=Bundle(tolerance=1e-6, callback=press))
    with pytest.raises(KeyboardInterrupt, match=r"stopped at C = 0.1; coef_ has the best weights"):
        ranker.fit(X, y, qid, X_valid=X, y_valid=y, qid_valid=qid)
    assert [solution.status for solution in ranker.path_] == [Status.INTERRUPTED]
    assert np.linalg.norm(ranker.coef_) > 0


def test_a_path_of_C_is_chosen_on_validation_lists():
    X, y, qid = make()
    valid = make(seed=7)
    names = dict(zip(("X_valid", "y_valid", "qid_valid"), valid, strict=True))
    ranker = rs.LinearRanker("AP", C=[10.0, 0.01, 1.0]).fit(X, y, qid, **names)
    scores = []
    for C, solution in zip([0.01, 1.0, 10.0], ranker.path_, strict=True):
        alone = rs.LinearRanker("AP", C=C).fit(X, y, qid)
        assert solution.objective == pytest.approx(alone.solution_.objective, rel=2e-3)
        alone.coef_ = solution.w
        scores.append(alone.score(*valid))
    np.testing.assert_allclose(ranker.validation_, scores)
    assert [0.01, 1.0, 10.0][int(np.argmax(scores))] == ranker.C_
    assert ranker.score(*valid) == max(scores)
    single = rs.LinearRanker("AP", C=1.0).fit(X, y, qid, **names)
    assert single.validation_ == [single.score(*valid)]
    with pytest.raises(ValueError, match="C has 3 values; pass X_valid"):
        rs.LinearRanker("AP", C=[1, 2, 3]).fit(X, y, qid)


@pytest.mark.parametrize("reference", ["ideal-tied", "predicted"])
def test_bounds_that_are_not_convex_go_down_from_regression(reference):
    X, y, qid = make(grades=3)
    options = {"feature_map": "positional", "reference": reference, "C": 50.0, "start": "regression"}
    drawn = rs.LinearRanker("nDCG@5", **{**options, "C": 1e-6}, prepare=()).fit(X, y, qid)
    options["regularize_towards"] = "zero"
    ranker = rs.LinearRanker("nDCG@5", **options, prepare=()).fit(X, y, qid)
    start = group_regression(X, 2**y - 1, np.arange(0, len(y) + 1, 8))
    assert ranker.solution_.history[0].objective == pytest.approx(objective(ranker, X, y, qid, start), rel=1e-6)
    assert ranker.solution_.objective == pytest.approx(objective(ranker, X, y, qid, ranker.coef_), rel=1e-6)
    assert ranker.solution_.objective < ranker.solution_.history[0].objective
    objectives = [record.objective for record in ranker.solution_.history]
    assert objectives == sorted(objectives, reverse=True)
    assert ranker.solution_.lower_bound == -np.inf
    np.testing.assert_allclose(drawn.coef_, start, atol=1e-3)


def test_other_losses():
    X, y, qid = make(grades=3)
    combo = rs.CombinedLoss([rs.StructuredHingeLoss("AP"), rs.StructuredHingeLoss("RR", reference="predicted")])
    for loss in (
        rs.CombinedLoss([rs.StructuredHingeLoss("AP"), rs.StructuredHingeLoss("RR", reference="ideal")], [1.0, 0.1]),
        rs.RankSVMLoss(),
    ):
        assert rs.LinearRanker(loss=loss).fit(X, y, qid).solution_.gap <= 1e-3
    for loss in (combo, rs.SmoothLoss("nDCG@5"), rs.GradedLoss("AUC", reference="predicted")):
        ranker = rs.LinearRanker("nDCG@5", loss=loss).fit(X, y, qid)
        assert ranker.solution_.objective <= ranker.solution_.history[0].objective
        assert ranker.score(X, y, qid) > 0.6
    with pytest.raises(ValueError, match="neither convex"):
        rs.LinearRanker(loss=rs.ApproxNDCGLoss()).fit(X, y, qid)
    with pytest.raises(ValueError, match="OrdinalLoss has learnable parameters"):
        rs.LinearRanker(loss=rs.OrdinalLoss(2)).fit(X, y, qid)
    shared = rs.CombinedLoss([rs.StructuredHingeLoss("AP", reference="predicted")], slack="shared")
    with pytest.raises(ValueError, match="slack='separate'"):
        rs.LinearRanker(loss=shared).fit(X, y, qid)


def test_risk_of_terms_is_that_of_the_whole():
    X, y, _ = make()
    offsets = np.arange(0, len(y) + 1, 8)
    w = np.random.default_rng(0).normal(size=4)
    risk = ranking_risk(rs.StructuredHingeLoss("AP"), TrainingData(X, y, offsets, np.arange(15)))
    values, gradients = risk.term_planes(w, np.array([3, 0, 9]))
    every, slopes = risk.term_planes(w, np.arange(15))
    np.testing.assert_allclose(values, every[[3, 0, 9]])
    np.testing.assert_allclose(gradients, slopes[[3, 0, 9]])
    assert risk(w)[0] == pytest.approx(every.mean())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "loss",
    [
        rs.StructuredHingeLoss("AP"),
        rs.StructuredHingeLoss("AUC", reference="predicted"),
        rs.StructuredHingeLoss("nDCG@3"),
        rs.StructuredHingeLoss("RR@5"),
        rs.GradedLoss("AUC"),
        rs.GradedLoss("AP", grades=[0.5, 2], grade_weights=[1, 0.25]),
    ],
    ids=str,
)
def test_a_risk_that_resolves_its_loss_once_has_its_values(loss, weighted, monkeypatch):
    X, y, _ = make()
    y = y + (y > 0) * (X[:, 1] > 0) if "nDCG" in str(loss) or isinstance(loss, rs.GradedLoss) else y
    offsets, rng = np.r_[0, 0, 5:121:5], np.random.default_rng(0)
    offsets[-1] = len(y)
    weights = rng.random(len(offsets) - 1) if weighted else None
    risk = ranking_risk(loss, TrainingData(X, y, offsets, np.arange(len(offsets) - 1), weights=weights))
    risk(np.ones(4))  # gains are known from the second call on
    found, points = [], rng.normal(size=(3, 4))
    with monkeypatch.context() as patch:
        patch.setattr(type(loss), "of_lists", None)
        found = [risk(w) for w in points]
    bare = loss.with_options(reduction="none")
    for w, (value, gradient) in zip(points, found, strict=True):
        leaf = torch.tensor(w, requires_grad=True)
        each = bare(torch.tensor(X) @ leaf, torch.tensor(y), offsets=torch.tensor(offsets))
        mean = (each * (1 if weights is None else torch.tensor(weights))).mean()
        mean.backward()
        assert value == pytest.approx(mean.item(), rel=1e-12)
        np.testing.assert_allclose(gradient, leaf.grad.numpy(), atol=1e-12)
    kept = found[0][1].copy()
    risk(points[1])
    np.testing.assert_array_equal(found[0][1], kept)
    with pytest.raises(ValueError, match="score"):
        risk(np.full(4, np.nan))


def test_scikit_learn_conventions():
    X, y, qid = make()
    ranker = rs.LinearRanker("AP", C=3.0, solver=Bundle(tolerance=1e-2))
    copy = clone(ranker)
    assert copy.get_params()["C"] == 3.0
    assert repr(copy).startswith("LinearRanker(")
    fitted = ranker.fit(X, y, qid)
    assert fitted is ranker
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    with pytest.raises(sklearn.exceptions.NotFittedError):
        copy.predict(X)
    with pytest.raises(ValueError, match="X has 3 features, but LinearRanker is expecting 4"):
        fitted.predict(X[:, :3])
    assert fitted.score(X, y, qid) == pytest.approx(
        rs.evaluate(torch.tensor(fitted.predict(X)).view(15, 8), torch.tensor(y).view(15, 8), ["AP"])["AP"]
        .mean()
        .item()
    )


def test_grid_search_and_pipelines_route_qid():
    X, y, qid = make()
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(rs.LinearRanker("AP"), {"C": [0.01, 10.0]}, cv=GroupKFold(3))
        search.fit(X, y, qid=qid, groups=qid)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        routed = make_pipeline(StandardScaler(), rs.LinearRanker("AP")).fit(X, y, qid=qid)
        assert routed.score(X, y, qid=qid) == routed[-1].score(routed[:-1].transform(X), y, qid)
    named = make_pipeline(StandardScaler(), rs.LinearRanker("AP")).fit(X, y, linearranker__qid=qid)
    np.testing.assert_array_equal(routed.predict(X), named.predict(X))
    with pytest.warns(UserWarning, match=r"qid is missing.*enable_metadata_routing=True"):
        GridSearchCV(rs.LinearRanker("AP"), {"C": [1.0]}, cv=2, error_score="raise").fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0.0}, "C must be one or more positive numbers"),
        ({"C": "big"}, "C must be one or more positive numbers, got 'big'"),
        ({"C": []}, "C must be one or more positive numbers"),
        ({"start": "one"}, "start must be one of"),
        ({"regularize_towards": "start "}, "regularize_towards must be one of"),
        ({"solver": "simplex"}, "solver must be one of 'bundle'"),
        ({"measure": "AP@"}, "AP@"),
    ],
)
def test_options_that_are_refused(options, message):
    X, y, qid = make()
    with pytest.raises(ValueError, match=message):
        rs.LinearRanker(**options).fit(X, y, qid)


def test_data_that_is_refused():
    X, y, qid = make()
    for given, message in (
        ((X, y, qid[:-1]), r"qid must have one entry per document, shape \(120,\).*pass sizes of lists as group="),
        ((np.where(X > 2, np.inf, X), y, qid), "infinity"),
        ((X, y[:-1], qid), "inconsistent numbers of samples"),
        ((X, np.ones_like(y), qid), "no list can be learned from"),
        ((X, y, np.where(qid > 3, np.nan, qid)), "qid must not be missing"),
    ):
        with pytest.raises(ValueError, match=message):
            rs.LinearRanker().fit(*given)


class Untrained:
    """Fails when it is trained."""

    def _fit(self, *documents):
        raise AssertionError("trained before the labels were checked")


@pytest.mark.parametrize(
    "ranker",
    [
        rs.LinearRanker("nDCG@10"),
        rs.KernelRanker("nDCG@10"),
        rs.MLPRanker("nDCG@10"),
        rs.BoostedRanker("nDCG@10"),
        rs.EnsembleRanker([rs.LinearRanker("AP")], measure="nDCG@10"),
        rs.AutoRanker("nDCG@10"),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
def test_validation_labels_that_the_measure_refuses_are_refused_before_training(ranker):
    if isinstance(ranker, rs.BoostedRanker):
        pytest.importorskip("lightgbm")
    kind = type(ranker)
    ranker = type(kind.__name__, (Untrained, kind), {"__init__": kind.__init__})(**ranker.get_params(deep=False))
    X, y, qid = make()
    with pytest.raises(
        ValueError, match=r"^y_valid: labels must have finite gains >= 0 under nDCG@10; .* has label 2000"
    ):
        ranker.fit(X, y, qid, X_valid=X, y_valid=np.where(y > 0, 2000, 0), qid_valid=qid)
    with pytest.raises(ValueError, match=r"y_valid must have one label per document, shape \(120,\), got \(119,\)"):
        ranker.fit(X, y, qid, X_valid=X, y_valid=y[:-1], qid_valid=qid)


def test_scorer_there_and_back():
    X, y, qid = make()
    ranker = rs.LinearRanker("AP").fit(X, y, qid)
    scores = ranker.to_scorer()(torch.tensor(X, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(scores, ranker.predict(X), rtol=1e-4, atol=1e-4)
    back = rs.LinearRanker.from_scorer(ranker.to_scorer(), measure="AP")
    np.testing.assert_allclose(back.predict(X), ranker.predict(X), rtol=1e-4, atol=1e-4)
    assert back.score(X, y, qid) == pytest.approx(ranker.score(X, y, qid))
    assert back.objective(back.coef_, X, y, qid, C=ranker.C_) == pytest.approx(ranker.solution_.objective, rel=1e-4)
    with pytest.raises(ValueError, match="no kernel"):
        rs.KernelRanker.from_scorer(ranker.to_scorer())


def test_kernels():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(160, 2)), np.repeat(np.arange(16), 10)
    y = (np.square(X).sum(1) < 0.6).astype(int)
    shuffle = rng.permutation(160)
    for kernel, options in (("rbf", {"gamma": 1.0}), ("polynomial", {"degree": 2})):
        ranker = rs.KernelRanker("AP", kernel=kernel, C=1e3, **options, prepare=()).fit(X, y, qid)
        assert ranker.score(X, y, qid) > 0.85
        gram = ranker.map_.kernel(X, X)
        np.testing.assert_allclose(ranker.predict(X), gram @ ranker.dual_coef_, atol=1e-6)
        given = rs.KernelRanker("AP", kernel="precomputed", C=1e3, prepare=()).fit(gram, y, qid)
        np.testing.assert_allclose(given.solution_.objective, ranker.solution_.objective, rtol=2e-3)
        mixed = rs.KernelRanker("AP", kernel=kernel, C=1e3, **options, prepare=()).fit(
            X[shuffle], y[shuffle], qid[shuffle]
        )
        np.testing.assert_allclose(mixed.solution_.objective, ranker.solution_.objective, rtol=2e-3)
    linear = rs.LinearRanker("AP", C=10.0, tolerance=1e-6, prepare=()).fit(X, y, qid)
    same = rs.KernelRanker("AP", kernel="linear", C=10.0, tolerance=1e-6, prepare=()).fit(X, y, qid)
    assert same.solution_.objective == pytest.approx(linear.solution_.objective, rel=1e-5)
    rough = rs.KernelRanker("AP", gamma=1.0, C=1e3, exact_up_to=10, landmarks=60, prepare=()).fit(X, y, qid)
    assert not rough.map_.exact
    assert rough.score(X, y, qid) > 0.8


def test_dc_and_its_options():
    X, y, qid = make(grades=3)
    ranker = rs.LinearRanker(
        "nDCG", feature_map="positional", reference="predicted", C=50.0, solver=DC(max_rounds=1, solver=Bundle())
    )
    assert ranker.fit(X, y, qid).solution_.iterations == 1


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3, 1e6])
def test_odd_data_converge_for_every_C(C):
    """Duplicate rows, constant and empty features, all-zero rows, lists with nothing relevant or of one document."""
    X, y, qid = make(lists=20)
    X = np.hstack([X, np.ones((len(X), 1)), np.zeros((len(X), 1)), X[:, :1]])
    X[8:12] = X[0]
    X[30:35] = 0
    y[qid == 5] = 0
    y[qid == 6] = 1
    qid[-1] = 99
    for options in ({}, {"feature_map": "positional", "measure": "nDCG@5"}, {"measure": "RR"}):
        ranker = rs.LinearRanker(C=C, **options).fit(X, y, qid)
        assert ranker.solution_.status is Status.CONVERGED
        assert ranker.solution_.lower_bound <= ranker.solution_.objective
        assert np.isfinite(ranker.predict(X)).all()


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:features have very different scales")
@pytest.mark.filterwarnings("ignore:.*no better than w = 0")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("scale", "C"), [(1e12, 1.0), (1e10, 1.0), (1.0, 1e20), ("column", 100.0), ("column", 1e4)])
def test_rounding_never_makes_a_false_certificate(scale, C, solver):
    """The differences of large numbers that a bound is made of may be wrong by more than the objective."""
    X, y, qid = make(lists=12, size=10, d=3, grades=3)
    reference = rs.LinearRanker("AP", C=1e8, tolerance=1e-4, prepare=()).fit(X, y, qid).coef_
    sizes = np.array([1.0, 1.0, 1e9]) if scale == "column" else np.full(3, scale)
    Z = X * sizes + (np.array([0.0, 0.0, 1.7e9]) if scale == "column" else 0.0)
    ranker = rs.LinearRanker("AP", C=C, solver=solver, max_iterations=100, prepare=()).fit(Z, y, qid)
    known = ranker.objective(reference / sizes, Z, y, qid)
    assert ranker.solution_.lower_bound <= known * (1 + 1e-9)


def test_a_fitted_kernel_ranker_is_left_alone_by_its_objective():
    X, y, qid = make()
    ranker = rs.KernelRanker("AP", C=10.0).fit(X, y, qid)
    before = ranker.predict(X[:5])
    assert ranker.objective(ranker.coef_, X, y, qid) == pytest.approx(ranker.solution_.objective, rel=1e-6)
    half = ranker.objective(np.zeros_like(ranker.coef_), X[64:], y[64:], qid[64:])
    assert np.isfinite(half)
    np.testing.assert_array_equal(ranker.predict(X[:5]), before)


def test_objective_of_a_smooth_loss_is_that_of_the_last_sigma():
    X, y, qid = make(grades=3)
    ranker = rs.LinearRanker("nDCG@5", loss=rs.SmoothLoss("nDCG@5", sigma=1.0), C=20.0).fit(X, y, qid)
    assert ranker.objective(ranker.coef_, X, y, qid) == pytest.approx(ranker.solution_.objective, rel=1e-6)


def test_what_is_not_used_or_not_fitted_is_said():
    X, y, qid = make()
    with pytest.raises(ValueError, match="together, all three or none"):
        rs.LinearRanker("AP").fit(X, y, qid, X_valid=X)
    with pytest.raises(ValueError, match="loss must be a loss module"):
        rs.LinearRanker(loss="AP").fit(X, y, qid)
    with pytest.raises(ValueError, match="solver must be one of"):
        rs.LinearRanker(loss=rs.SmoothLoss("nDCG"), solver="typo").fit(X, y, qid)
    with pytest.raises(ValueError, match="qid must not be missing; that of document 1 is"):
        rs.LinearRanker().fit(X, y, ["a", None, *map(str, qid[2:])])
    ranker = rs.LinearRanker("AP")
    ranker.risk(X, y, qid)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        ranker.predict(X)


@pytest.mark.parametrize(
    "loss", [rs.SmoothLoss("nDCG@5"), rs.StructuredHingeLoss("nDCG@5", feature_map="positional", reference="predicted")]
)
def test_a_small_C_does_not_spoil_the_larger_ones_of_a_path_that_is_not_convex(loss):
    X, y, qid = make(seed=3)
    options = {"loss": loss, "regularize_towards": "zero"}
    valid = {"X_valid": X, "y_valid": y, "qid_valid": qid}
    path = rs.LinearRanker("nDCG@5", C=[1e-6, 1000.0], **options, prepare=()).fit(X, y, qid, **valid)
    alone = rs.LinearRanker("nDCG@5", C=1000.0, **options, prepare=()).fit(X, y, qid, **valid)
    assert path.path_[0].w == pytest.approx(np.zeros(X.shape[1]), abs=1e-3)
    assert path.path_[1].objective <= alone.solution_.objective * 1.02


def test_a_smooth_loss_does_not_start_where_all_scores_tie():
    X, y, qid = make()
    with pytest.raises(ValueError, match="start must not be 'zero' for a SmoothLoss"):
        rs.LinearRanker(loss=rs.SmoothLoss("nDCG@5"), start="zero").fit(X, y, qid)


@pytest.mark.parametrize("kind", ["float32", "float16", "float64"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_large_features_are_not_copied(monkeypatch, kind, solver):
    """Rows out of order and lists that are left out are gathered in blocks; the fit is that of a copy."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)).astype(kind)
    y = (X[:, 0] + rng.normal(size=400) > 0.5).astype(float)
    qid = np.repeat(np.arange(40), 10)
    y[qid % 4 == 0] = 1
    order = rng.permutation(400)
    X, y, qid = X[order], y[order], qid[order]
    copied = rs.LinearRanker("AP", C=1.0, solver=solver, start="regression", prepare=()).fit(X, y, qid)
    monkeypatch.setattr("rankstruct.estimators.training_data._COPIED", 0)
    taken = []
    make_rows = RowsOf.__init__
    monkeypatch.setattr(RowsOf, "__init__", lambda rows, *given: taken.append(rows) or make_rows(rows, *given))
    gathered = rs.LinearRanker("AP", C=1.0, solver=solver, start="regression", prepare=()).fit(X, y, qid)
    assert taken
    assert all(np.shares_memory(rows.X, X) for rows in taken)
    assert gathered.left_out_ == copied.left_out_ == 10
    np.testing.assert_allclose(gathered.solution_.objective, copied.solution_.objective, rtol=2e-3)
    np.testing.assert_allclose(gathered.predict(X), X.astype(np.float64) @ gathered.coef_)


@pytest.mark.parametrize("kind", [rs.LinearRanker, partial(rs.KernelRanker, kernel="linear")])
def test_a_bound_that_is_lowest_at_zero_says_so(kind):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(300, 3)), np.repeat(np.arange(10), 30)
    y = rng.integers(0, 3, size=300)  # noise
    with pytest.warns(
        UserWarning, match=r"C = 10: no better than w = 0, where all documents tie: use reference='ideal-tied'"
    ):
        stuck = kind("RR@10", feature_map="first-relevant", reference="ideal", C=10.0).fit(X, y, qid)
    assert stuck.solution_.status is Status.NO_BETTER_THAN_ZERO
    with pytest.warns(UserWarning, match="no better than w = 0"):
        kind("AP", C=1.0).fit(np.ones((300, 2)), y, qid)  # nothing tells documents apart


@pytest.mark.parametrize(("noise", "ranks"), [(1.5, True), (3.0, False)])
def test_a_loose_bound_is_judged_by_the_ranking_that_is_left(noise, ranks):
    """Its rounds leave the best AUC for weights of nearly no length, which may still rank as that did, or not."""
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(2000, 5)), np.repeat(np.arange(40), 50)
    y = np.digitize(X[:, 0] + noise * rng.normal(size=2000), [noise, 2 * noise])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ranker = rs.LinearRanker("nDCG@10", prepare=()).fit(X, y, qid)
    at_zero = ranker.objective(np.zeros(5), X, y, qid)
    assert ranker.solution_.objective > at_zero * (1 - 1e-6)
    assert [each for each in said if "no better than w = 0" in str(each.message)] == ([] if ranks else said)
    assert (ranker.solution_.status is Status.CONVERGED) == ranks
    start = rs.LinearRanker("nDCG@10", loss=rs.GradedLoss("AUC"), prepare=()).fit(X, y, qid).score(X, y, qid)
    assert (ranker.score(X, y, qid) > start - 0.05) == ranks
    with pytest.warns(UserWarning, match="no better than w = 0"):  # a measure of groups needs groups
        rs.LinearRanker("diverse_nDCG@10", loss=rs.StructuredHingeLoss("nDCG@10"), prepare=()).fit(X, y, qid)


@pytest.mark.parametrize("measure", ["nDCG@10", "P@10", "RR@10", "nDCG", "AP", "AUC", "ERU(d=0,half_life=5)", "WTA"])
def test_the_measures_name_alone_learns_from_noisy_grades(measure):
    """Where the optimum of the convex bound is w = 0, or nearly; one relevant feature in five, most labels noise."""
    rng = np.random.default_rng(1)
    X, qid = rng.normal(size=(2000, 5)), np.repeat(np.arange(40), 50)
    y = np.digitize(X[:, 0] + 1.5 * rng.normal(size=2000), [1.5, 3.0])
    ranker = rs.LinearRanker(measure, C=1.0).fit(X, y, qid)
    best = rs.LinearRanker.from_scorer(rs.LinearScorer(5), measure=measure)
    best.coef_ = np.eye(5)[0]
    tied = rs.LinearRanker.from_scorer(rs.LinearScorer(5), measure=measure).score(X, y, qid)
    assert ranker.score(X, y, qid) - tied > 0.8 * (best.score(X, y, qid) - tied)
    assert ranker.solution_.status is Status.CONVERGED


def test_validation_lists_select_the_c_of_the_start():
    """Many noise features and few lists: the graded AUC hinge overfits with the C that is used without validation lists."""
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(1240, 40)), np.repeat(np.arange(62), 20)
    y = np.digitize(X[:, 0] + 2 * rng.normal(size=len(X)), [1.5, 3.0])
    train, valid = qid < 12, qid >= 12
    lists = X[train], y[train], qid[train]
    held_out = {"X_valid": X[valid], "y_valid": y[valid], "qid_valid": qid[valid]}
    options = {"prepare": (), "tolerance": 1e-2}
    auc = rs.LinearRanker("nDCG@10", loss=rs.GradedLoss("AUC"), C=[0.01, 0.1, 1.0, 10.0], **options).fit(
        *lists, **held_out
    )
    assert auc.C_ < 10
    ranker = rs.LinearRanker("nDCG@10", C=[1e-9, 1.0], **options).fit(*lists, **held_out)
    assert ranker.validation_[0] == pytest.approx(max(auc.validation_), abs=0.01)
    assert ranker.validation_[0] > auc.validation_[-1] + 0.02
    objective = ranker.objective(ranker.w0_, *lists, C=1.0)
    assert objective == pytest.approx(ranker.mean_loss(ranker.w0_, *lists))  # what pulls to the start is 0 there


def test_the_best_auc_is_the_start_of_bounds_that_are_not_convex():
    X, y, qid = make(grades=3)
    ranker = rs.LinearRanker("nDCG@5", C=1e-9).fit(X, y, qid)
    np.testing.assert_allclose(ranker.coef_, ranker.w0_, atol=1e-6)
    auc = rs.LinearRanker("AUC", loss=rs.GradedLoss("AUC"), C=10.0, tolerance=1e-2)
    assert auc.objective(ranker.w0_, X, y, qid) <= 1.011 * auc.fit(X, y, qid).solution_.objective
    utility = X @ np.arange(X.shape[1])
    target = (utility - utility.min()) / np.ptp(utility)  # as many grades as documents
    assert rs.LinearRanker("nDCG@5", C=1.0).fit(X, target, qid).score(X, target, qid) > 0.9


def test_measures_of_signs_learn_with_a_column_of_ones():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(300, 4)), np.repeat(np.arange(25), 12)
    y = (X[:, 0] + 0.5 * X[:, 1] > 1.5).astype(int)
    with pytest.warns(UserWarning, match="add a column of ones to X"):
        assert rs.LinearRanker("F1", prepare=()).fit(X, y, qid).score(X, y, qid) == 0
    X = np.column_stack([X, np.ones(300)])
    for measure in ("F1", "Accuracy"):
        ranker = rs.LinearRanker(measure, C=100.0, prepare=()).fit(X, y, qid)
        some = np.add.reduceat(y, np.arange(0, 300, 12)) > 0
        assert ranker.score(X, y, qid) > 0.95 * (some.mean() if measure == "F1" else 1)


def test_columns_of_the_frame_that_are_passed_as_labels_or_lists_are_no_features():
    pd = pytest.importorskip("pandas")
    X, y, qid = make()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(label=y, query=[f"q{each}" for each in qid], number=qid)
    ranker = rs.LinearRanker("AP")
    wanted = ranker.fit(X, y, qid).predict(X)
    for left, lists in (("query", "number"), ("number", "query")):
        whole = frame.drop(columns=left)
        np.testing.assert_array_equal(ranker.fit(whole, frame["label"], frame[lists]).predict(whole), wanted)
        assert ranker.feature_names_in_.tolist() == list("abcd")
        assert ranker.roles_ == {"label": "label", "qid": lists}
    with pytest.warns(UserWarning, match="the column 'label', which is a feature, tells the labels"):
        relevant = ranker.fit(
            frame.assign(label=2 * y), frame["label"], frame["number"]
        )  # other values than the column's
    assert "label" in relevant.feature_names_in_
    assert ranker.fit(frame[list("abcd")], frame["label"], frame["query"]).n_features_in_ == 4


def test_groups_that_are_meant_as_lists_are_refused():
    X, y, qid = make()
    with pytest.raises(ValueError, match="the list of each document as qid="):
        rs.LinearRanker("AP").fit(X, y, diversity_groups=qid)
    ranker = rs.LinearRanker("AP").fit(X, y, qid)
    for call in (ranker.fit, ranker.score):
        with pytest.raises(TypeError, match=r"hosts or topics are diversity_groups=, sizes of lists group=, .* qid="):
            call(X, y, qid, groups=qid)
    with pytest.raises(TypeError, match="diversity_groups_valid="):
        ranker.fit(X, y, qid, groups_valid=qid)


@pytest.mark.parametrize("ranker", [rs.MLPRanker("AP", max_epochs=2), rs.LinearRanker("RR")])
def test_a_measure_by_which_all_documents_are_equally_good_is_warned_of(ranker):
    X, y, qid = make(grades=3)
    with pytest.warns(UserWarning, match="no label is 0, so .* has the same value for every ranking"):
        clone(ranker).fit(X, y + 1, qid)
    clone(ranker).set_params(measure="nDCG@5").fit(X, y + 1, qid)
    clone(ranker).set_params(measure=rs.AP(min_relevant=2)).fit(X, y + 1, qid)


def test_features_of_very_different_scales_are_warned_of():
    X, y, qid = make()
    scales = np.array([1e-3, 1e3, 1.0, 0.0])
    with pytest.warns(UserWarning, match=r"feature 1 has range .*, feature 0 has .* prepare=\['standardize'\]"):
        rs.LinearRanker("AP", prepare=()).fit(X * scales, y, qid)
    rs.LinearRanker("AP", prepare=["standardize"]).fit(X * scales, y, qid)
    rs.LinearRanker("AP", prepare=()).fit(X * np.array([1e-3, 1.0, 10.0, 0.0]), y, qid)
    with pytest.warns(UserWarning, match=r"feature 1 has range .* use prepare=\['log'\], or dense features"):
        rs.LinearRanker("AP").fit(sp.csr_array(X * scales), y, qid)
    rs.LinearRanker("AP", prepare=["log"]).fit(sp.csr_array(X * scales), y, qid)


@pytest.mark.parametrize("ranker", [rs.LinearRanker("AP"), rs.KernelRanker("AP")])
def test_units_and_heavy_tails_do_not_matter_by_default(ranker):
    X, y, qid = make()
    expected = clone(ranker).fit(X, y, qid)
    assert expected.preparation_.names == ("append-quantile", "standardize")
    scales = 10.0 ** np.array([-6, 6, 3, -3])
    found = clone(ranker).fit(X * scales, y, qid)
    np.testing.assert_allclose(found.predict(X * scales), expected.predict(X), atol=0.02)
    tails = clone(ranker).fit(scales * np.exp(3 * X), y, qid)
    raw = clone(ranker).set_params(prepare=["standardize"]).fit(scales * np.exp(3 * X), y, qid)
    assert tails.score(scales * np.exp(3 * X), y, qid) > raw.score(scales * np.exp(3 * X), y, qid) + 0.02


def test_what_the_default_preparation_cannot_take_is_left_as_it_is():
    X, y, qid = make()
    sparse = rs.LinearRanker("AP").fit(sp.csr_array(X), y, qid)
    np.testing.assert_allclose(sparse.coef_, rs.LinearRanker("AP", prepare=()).fit(X, y, qid).coef_, atol=1e-3)
    assert sparse.preparation_.names == ()
    gram = rs.KernelRanker("AP", kernel="precomputed").fit(X @ X.T, y, qid)
    assert gram.preparation_.names == ()
    with pytest.raises(ValueError, match=r"prepare the documents first.* pass prepare=\(\)"):
        rs.LinearRanker("AP", distributed=True).fit(X, y, qid)


@pytest.mark.parametrize(
    ("ranker", "said"),
    [
        (rs.EnsembleRanker([("a", rs.LinearRanker())]), "rankers must be a list of unnamed rankers"),
        (rs.KernelRanker(gamma="scale"), "gamma must be a finite number above 0, or None, got 'scale'"),
        pytest.param(
            rs.MLPRanker(device="cuda"),
            "device='cuda' was requested, but PyTorch finds no GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_what_users_of_other_libraries_type_is_answered(ranker, said):
    with pytest.raises(ValueError, match=said):
        ranker.fit(*make())


def test_labels_that_are_text_are_refused():
    X, y, qid = make()
    with pytest.raises(ValueError, match="labels must be numbers, graded relevance from 0; got '"):
        rs.LinearRanker("AP").fit(X, y.astype(str), qid)


def test_neighbouring_documents_are_selected_without_a_copy():
    X, y, qid = np.arange(12.0).reshape(6, 2), np.arange(6), np.array([3, 3, 1, 1, 2, 2])
    lists = gather(X, y, qid)
    for chosen, shared in (([1, 1, 0, 0, 0, 0], True), ([0, 0, 1, 1, 1, 1], True), ([1, 1, 0, 0, 1, 1], False)):
        mask = np.array(chosen, bool)
        part = keep_documents(lists, mask)
        assert np.shares_memory(part.features, X) == shared
        for found, expected in ((part.features, X), (part.labels, y), (part.ids, lists.ids)):
            np.testing.assert_array_equal(found, expected[mask])
    assert keep_documents(lists, np.zeros(6, bool)).num_documents == 0


def test_a_subclass_may_have_annotations_for_type_checkers_alone():
    class Mine(rs.MLPRanker):
        def __init__(self, measure: "OnlyForTypeCheckers" = None, *, mine: int = 1, **options):  # noqa: F821
            super().__init__(measure, **options)
            self.mine = mine

    names = list(inspect.signature(Mine).parameters)
    assert names[:2] == ["measure", "mine"]
    assert {"hidden", "patience", "random_state"} <= set(names)
    assert clone(Mine(mine=3, hidden=[4])).get_params()["mine"] == 3
