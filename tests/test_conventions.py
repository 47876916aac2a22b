"""scikit-learn's habits, which all rankers share: its checks, sizes, weights, validation lists, NaN, files, parameters."""

import pickle
import re
import warnings
from functools import partial

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

import rankstruct as rs
from rankstruct.estimators import auto

GRADED = "GradedLoss('AUC')"
SMALL = {
    "linear": lambda **more: rs.LinearRanker(**({"loss": GRADED} | more)),
    "kernel": lambda **more: rs.KernelRanker(**({"loss": GRADED, "C": 10.0} | more)),
    "mlp": lambda **more: rs.MLPRanker(**({"max_epochs": 2, "hidden": (4,), "device": "cpu"} | more)),
    "boosted": lambda **more: rs.BoostedRanker(**({"n_estimators": 3, "min_child_samples": 2, "n_jobs": 1} | more)),
    "ensemble": lambda **more: rs.EnsembleRanker([rs.LinearRanker(loss=GRADED, prepare=())], **more),
    "auto": lambda **more: rs.AutoRanker(**({"time_budget": 0, "device": "cpu"} | more)),
}
OF_DOCUMENTS = "a weight is of a list; this check weighs the documents of one list"
WEIGHTS = {
    "check_sample_weights_not_overwritten": OF_DOCUMENTS,
    "check_sample_weight_equivalence_on_dense_data": OF_DOCUMENTS,
    "check_sample_weight_equivalence_on_sparse_data": OF_DOCUMENTS,
}
OF_LISTS = {
    "check_methods_subset_invariance": "scores are standardised within the list, which is another one in each batch"
}


@pytest.fixture(params=SMALL)
def make(request):
    if request.param == "boosted":
        pytest.importorskip("lightgbm")
    return SMALL[request.param]


def draw(lists=12, size=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(lists * size, 3))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=lists * size), [0.0, 1.0])
    return X, y, np.repeat(np.arange(lists), size)


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings(
    "ignore:qid is missing",
    "ignore:there is only one list",
    "ignore:.*no better than w = 0",
    "ignore:no label is 0",  # theirs are whole numbers of any kind
    "ignore::sklearn.exceptions.SkipTestWarning",
)
def test_the_checks_of_scikit_learn_pass(make, monkeypatch):
    monkeypatch.setattr(auto, "MEMBERS", {"linear": lambda options, _: rs.LinearRanker(options.measure, loss=GRADED)})
    ranker = make()
    expected = WEIGHTS | (OF_LISTS if isinstance(ranker, rs.EnsembleRanker | rs.AutoRanker) else {})
    results = check_estimator(ranker, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = {each["check_name"]: each["exception"] for each in results if each["status"] == "failed"}
    assert not failed
    assert sum(each["status"] == "passed" for each in results) > 35


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:.*no better than w = 0")
def test_seeds_are_integers_or_drawn(make, monkeypatch):
    monkeypatch.setattr(auto, "MEMBERS", {"mlp": lambda options, _: SMALL["mlp"]()})
    if "random_state" not in make().get_params():
        pytest.skip("nothing is random")
    X, y, qid = draw()
    make = partial(make, folds=2) if isinstance(make(), rs.EnsembleRanker) else make
    scores = [
        make(random_state=seed).fit(X, y, qid).predict(X, qid)
        for seed in (7, np.int64(7), np.random.RandomState(1), np.random.RandomState(1), None, np.random.default_rng(1))
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[2], scores[3])
    for wrong in (-1, 0.5, "x"):
        with pytest.raises(ValueError, match=f"random_state must be an integer from 0, None or .*, got {wrong!r}"):
            make(random_state=wrong).fit(X, y, qid)


def test_the_training_labels_choose_the_measure_where_none_is_given(make):
    X, y, qid = draw()
    for labels, expected in ((y, "nDCG@10"), (y.clip(0, 1), "AP"), (y.clip(0, 1) + 1, "nDCG@10"), (2 * (y > 1), "AP")):
        ranker = make().fit(X, labels, qid)
        assert ranker.measure is None
        assert ranker.measure_ == expected
        found = rs.evaluate(ranker.predict(X, qid), y, [expected], qid=qid)[expected].mean().item()
        assert ranker.score(X, y, qid) == pytest.approx(found, abs=1e-12)  # also of other labels
    assert make(measure="RR").fit(X, y, qid).measure_ == "RR"


def test_the_labels_choose_the_loss_as_well_as_the_measure():
    X, y, qid = draw()
    graded = {"nDCG@10": rs.GradedLoss("AP"), "AP": None}
    ranker, known = rs.LinearRanker(), rs.LinearRanker("nDCG@10", loss=graded["nDCG@10"]).fit(X, y, qid)
    np.testing.assert_array_equal(ranker.fit(X, y, qid).coef_, known.coef_)
    w, fresh = np.ones(len(known.coef_)), rs.LinearRanker()
    for labels, name in ((y, "nDCG@10"), (y.clip(0, 1), "AP")):
        same = rs.LinearRanker(name, loss=graded[name])
        assert fresh.mean_loss(w, X, labels, qid) == same.mean_loss(w, X, labels, qid)
        assert fresh.objective(w, X, labels, qid) == same.objective(w, X, labels, qid)
    scorer = rs.LinearScorer(X.shape[1])
    chance = rs.evaluate(np.zeros(len(y)), y, ["nDCG@10"], qid=qid)["nDCG@10"].mean().item()
    scorer.linear.weight.data.zero_()
    assert rs.LinearRanker.from_scorer(scorer).score(X, y, qid) == pytest.approx(chance, abs=1e-12)


def test_sizes_of_lists_are_as_good_as_ids(make):
    X, y, qid = draw()
    sizes = np.bincount(qid)
    ranker, other = make().fit(X, y, qid), make().fit(X, y, group=sizes)
    assert ranker.lists_ == other.lists_ == 12
    np.testing.assert_array_equal(other.predict(X, group=sizes), ranker.predict(X, qid))
    assert other.score(X, y, group=sizes) == ranker.score(X, y, qid)
    with pytest.raises(
        ValueError, match=r"group must be the sizes of consecutive lists, .* add up to 96 documents; got 11 of sum 88"
    ):
        make().fit(X, y, group=sizes[1:])
    with pytest.raises(ValueError, match="pass qid, one id per document, or group"):
        make().fit(X, y, qid, group=sizes)


@pytest.mark.filterwarnings("ignore:there is only one list")
def test_without_lists_all_documents_are_one_which_is_warned_of(make):
    X, y, qid = draw(lists=4, size=20)
    with pytest.warns(UserWarning, match="qid is missing, so all 80 documents are one list: .*enable_metadata_routing"):
        ranker = make().fit(X, y)
    same = make().fit(X, y, np.zeros(80))
    assert ranker.lists_ == 1
    np.testing.assert_array_equal(same.predict(X), ranker.predict(X))
    assert ranker.score(X, y) == same.score(X, y, np.zeros(80))
    with pytest.raises(
        ValueError,
        match=r"qid is missing, but the ranker was fitted to 4 lists: pass qid=.*enable_metadata_routing=True",
    ):
        make().fit(X, y, qid).score(X, y)


def test_cross_validation_without_routing_says_why_there_are_no_scores():
    X, y, qid = draw()
    given = {"cv": GroupKFold(3), "groups": qid, "params": {"qid": qid}}
    with pytest.raises(ValueError, match=r"qid is missing.*sklearn.set_config\(enable_metadata_routing=True\)"):
        cross_val_score(rs.LinearRanker(), X, y, error_score="raise", **given)
    with pytest.warns(UserWarning, match=r"(?s)Scoring failed.*qid is missing.*enable_metadata_routing=True"):
        assert np.isnan(cross_val_score(rs.LinearRanker(), X, y, **given)).all()
    with sklearn.config_context(enable_metadata_routing=True):
        ranker = rs.LinearRanker().set_fit_request(qid=True, sample_weight=True).set_score_request(qid=True)
        params = {"qid": qid, "groups": qid, "sample_weight": 1.0 + qid}
        assert (cross_val_score(ranker, X, y, cv=GroupKFold(3), params=params) > 0.5).all()


def test_a_list_of_weight_2_is_two_lists(make):
    if make in (SMALL["mlp"], SMALL["boosted"], SMALL["auto"]):
        pytest.skip("random batches and what is held out differ")
    X, y, qid = draw()
    weights = np.array([1.0, 2.0, 0.0] * 4)
    twice = np.concatenate([np.flatnonzero(qid == q) for q in range(12) for _ in range(int(weights[q]))])
    ids = np.repeat(np.arange(12), 8)
    exact = {"tolerance": 1e-7, "prepare": ()} if make in (SMALL["linear"], SMALL["kernel"]) else {}
    repeated = make(**exact).fit(X[twice], y[twice], ids)
    for given in (weights, 5 * weights, weights[qid]):
        found = make(**exact).fit(X, y, qid, sample_weight=given)
        np.testing.assert_allclose(found.predict(X, qid), repeated.predict(X, qid), atol=2e-3)
    plain = make(**exact).fit(X, y, qid)
    assert not np.allclose(plain.predict(X, qid), repeated.predict(X, qid), atol=2e-3)
    assert found.score(X, y, qid, sample_weight=weights) == pytest.approx(found.score(X[twice], y[twice], ids))


@pytest.mark.parametrize("kind", ["mlp", "boosted"])
def test_lists_of_weight_0_are_not_learned_from(kind):
    if kind == "boosted":
        pytest.importorskip("lightgbm")
    X, y, qid = draw(lists=40)
    good = qid < 20
    y = np.where(good, y, 2 - y)  # the others say the opposite
    more = {"max_epochs": 30, "dropout": 0.0, "learning_rate": 1e-2} if kind == "mlp" else {"n_estimators": 30}
    scores = []
    for weights in (good, ~good, None):
        given = None if weights is None else weights[::8].astype(float)
        ranker = SMALL[kind](validation_share=0, **more).fit(X, y, qid, sample_weight=given)
        scores.append(ranker.score(X[good], y[good], qid[good]))
    assert scores[0] > scores[2] > scores[1]
    assert scores[0] > scores[1] + 0.3


@pytest.mark.parametrize("kind", ["SmoothLoss('nDCG@5')", "StructuredHingeLoss('nDCG@5')"])
def test_weights_reach_every_start_of_a_linear_ranker(kind):
    X, y, qid = draw()
    weights = np.array([1.0, 2.0, 0.0] * 4)
    twice = np.concatenate([np.flatnonzero(qid == q) for q in range(12) for _ in range(int(weights[q]))])
    options = {"loss": kind, "start": "regression", "regularize_towards": "start"}
    found = rs.LinearRanker(**options, prepare=()).fit(X, y, qid, sample_weight=weights)
    repeated = rs.LinearRanker(**options, prepare=()).fit(X[twice], y[twice], np.repeat(np.arange(12), 8))
    np.testing.assert_allclose(found.w0_, repeated.w0_)
    assert found.solution_.objective == pytest.approx(repeated.solution_.objective, rel=1e-3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            np.ones(11),
            r"sample_weight must have one weight per list, shape \(12,\), or one per document, .*; got shape \(11,\)",
        ),
        (np.arange(96.0), "equal within each list"),
        (np.ones((12, 1)), r"got shape \(12, 1\)"),
        (np.full(12, np.nan), "sample_weight must be finite numbers, 0 or more"),
        (-np.ones(12), "sample_weight must be finite numbers, 0 or more"),
        (np.zeros(12), "sample_weight must not be zero for all lists"),
    ],
)
def test_wrong_weights_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        rs.LinearRanker().fit(*draw(), sample_weight=weights)
    X, y, qid = draw()
    y[qid > 0] = 1
    only_empty = (qid > 0)[::8].astype(float)
    with pytest.raises(ValueError, match="sample_weight must not be zero for all lists that have different labels"):
        rs.LinearRanker().fit(X, y, qid, sample_weight=only_empty)


@pytest.mark.sampled(2)
def test_item_weights_of_1_change_nothing_and_of_0_leave_documents_out(make):
    """Bit for bit, under every loss; a list of which nothing is left is gone."""
    X, y, qid = draw(lists=20)
    kept = (np.arange(len(y)) % 5 > 0) & (qid != 3)
    plain, fewer = make().fit(X, y, qid), make().fit(X[kept], y[kept], qid[kept])
    assert not np.array_equal(plain.predict(X, qid), fewer.predict(X, qid))
    for weights, expected in ((np.ones(len(y)), plain), (kept, fewer)):
        found = make().fit(X, y, qid, item_weights=weights)
        np.testing.assert_array_equal(found.predict(X, qid), expected.predict(X, qid))
        assert found.lists_ == expected.lists_
    assert fewer.score(X, y, qid, item_weights=kept) == pytest.approx(
        make().fit(X[kept], y[kept], qid[kept]).score(X[kept], y[kept], qid[kept]) * 19 / 20
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["linear", "kernel", "mlp", "boosted"])
def test_rankers_learn_from_documents_by_their_weights(kind):
    """Labels of documents that weigh little say the opposite."""
    if kind == "boosted":
        pytest.importorskip("lightgbm")
    X, y, qid = draw(lists=40)
    good = np.arange(len(y)) % 2 == 0
    told = np.where(good, y, 2 - y)
    more = {"mlp": {"max_epochs": 30, "dropout": 0.0, "learning_rate": 1e-2}, "boosted": {"n_estimators": 30}}.get(
        kind, {}
    )
    more |= {"validation_share": 0} if kind in ("mlp", "boosted") else {}
    for loss in ("RankNetLoss", "ListNetLoss"):
        scores = []
        for weights in (np.where(good, 4.0, 0.2), np.where(good, 0.2, 4.0)):
            order = np.random.default_rng(0).permutation(len(y))  # rows in any order
            ranker = SMALL[kind](loss=loss, **more).fit(X[order], told[order], qid[order], item_weights=weights[order])
            scores.append(ranker.score(X, y, qid))
        assert scores[0] > scores[1] + 0.2


def test_a_document_of_weight_2_is_two_documents_of_a_regression():
    X, y, qid = draw()
    weights = np.resize([1.0, 2.0, 0.0], len(y))
    twice = np.repeat(np.arange(len(y)), weights.astype(int))
    options = {"loss": "SquaredLoss", "tolerance": 1e-7}
    found = rs.LinearRanker(**options, prepare=()).fit(X, y, qid, item_weights=weights)
    repeated = rs.LinearRanker(**options, prepare=()).fit(X[twice], y[twice], qid[twice])
    np.testing.assert_allclose(found.coef_, repeated.coef_, atol=1e-3)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (np.ones(12), ValueError, r"item_weights must have one weight per document, shape \(96,\); got \(12,\)"),
        (np.full(96, np.inf), ValueError, "item_weights must be finite numbers, 0 or more"),
        (np.zeros(96), ValueError, "item_weights must not be zero for all documents"),
    ],
)
def test_wrong_item_weights_are_named(make, weights, error, message):
    with pytest.raises(error, match=message):
        make().fit(*draw(), item_weights=weights)


@pytest.mark.parametrize("ranker", [rs.LinearRanker("AP"), rs.MLPRanker(loss="StructuredHingeLoss('AP')")], ids=type)
def test_rankers_whose_loss_knows_no_item_weights_refuse_them(ranker):
    with pytest.raises(TypeError, match="does not support item_weights"):
        ranker.fit(*draw(), item_weights=np.arange(96.0))


def test_a_precomputed_kernel_has_no_documents_to_leave_out():
    X, y, qid = draw()
    with pytest.raises(ValueError, match="remove documents of item weight 0 from the rows and columns of X"):
        rs.KernelRanker(kernel="precomputed", loss=GRADED).fit(X @ X.T, y, qid, item_weights=np.arange(96) > 0)


def test_missing_features_are_taken_where_the_tag_says_so(make):
    X, y, qid = draw()
    clean = make().fit(X, y, qid)
    X[::7, 1] = np.nan
    ranker = make()
    assert get_tags(ranker).input_tags.allow_nan
    assert np.isfinite(ranker.fit(X, y, qid).predict(X, qid)).all()
    assert np.isfinite(make(prepare=["log"]).fit(X, y, qid).predict(X, qid)).all()
    if isinstance(ranker, rs.BoostedRanker):  # which has a side for them
        assert np.isfinite(clean.predict(X, qid)).all()
        return
    with pytest.raises(ValueError, match=r"training documents had none; put the step 'encode' in front of prepare="):
        clean.predict(X, qid)
    assert not get_tags(rs.KernelRanker(kernel="precomputed")).input_tags.allow_nan


def test_the_sparse_tag_depends_on_the_preparation(make):
    X, y, qid = draw()
    X = sp.csr_array(np.where(X > 0, X, 0))
    for prepare in (("log",), ("standardize",), ("bins:3",)):
        ranker = make(prepare=prepare)
        if get_tags(ranker).input_tags.sparse:
            ranker.fit(X, y, qid).predict(X, qid)
        else:
            with pytest.raises(ValueError, match="needs dense features"):
                ranker.fit(X, y, qid)
        assert get_tags(ranker).input_tags.sparse == (prepare != ("standardize",) or isinstance(ranker, rs.AutoRanker))


def test_labels_below_0_are_refused(make):
    X, y, qid = draw()
    assert get_tags(make()).target_tags.positive_only
    y[5] = -1
    with pytest.raises(ValueError, match="labels must be 0 or more"):
        make().fit(X, y, qid)


def test_names_of_features_come_from_a_frame(make):
    pandas = pytest.importorskip("pandas")
    X, y, qid = draw()
    frame = pandas.DataFrame(X, columns=["bm25", "length", "clicks"])
    ranker = make().fit(frame, y, qid)
    assert ranker.feature_names_in_.tolist() == ["bm25", "length", "clicks"]
    np.testing.assert_array_equal(ranker.predict(frame[["length", "bm25", "clicks"]], qid), ranker.predict(frame, qid))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranker.predict(frame, qid)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mapped", [None, "r"])
def test_files_are_read_again_as_they_are_also_mapped(make, mapped, tmp_path):
    X, y, qid = draw()
    for prepare in ((), ["append-standardize"]):
        ranker = make(prepare=prepare).fit(X, y, qid)
        joblib.dump(ranker, tmp_path / "ranker")
        again = joblib.load(tmp_path / "ranker", mmap_mode=mapped)
        np.testing.assert_allclose(again.predict(X, qid), ranker.predict(X, qid), atol=1e-12)
        assert again.score(X, y, qid) == pytest.approx(ranker.score(X, y, qid), abs=1e-12)


def test_parameters_of_nested_rankers():
    ensemble = rs.EnsembleRanker([rs.LinearRanker(C=1.0), rs.BoostedRanker(start=rs.LinearRanker(C=2.0))])
    assert ensemble.get_params()["rankers__0__C"] == 1.0
    assert ensemble.get_params()["rankers__1__start__C"] == 2.0
    copy = clone(ensemble).set_params(rankers__1__start__C=3.0, rankers__0__measure="RR", weights=[1, 2])
    assert (copy.rankers[1].start.C, copy.rankers[0].measure, copy.weights) == (3.0, "RR", [1, 2])
    assert ensemble.rankers[1].start.C == 2.0
    assert rs.EnsembleRanker([FrozenEstimator(rs.LinearRanker())]).get_params()["rankers__0__estimator"].C is None
    with pytest.raises(ValueError, match="invalid parameter 'rankers__0__D'; valid are"):
        copy.set_params(rankers__0__D=1)


def test_a_kernel_ranker_is_as_large_in_a_file_as_its_rows(tmp_path):
    X, y, qid = draw(lists=100)
    options = {"C": [1.0, 100.0], "loss": GRADED, "X_valid": X, "y_valid": y, "qid_valid": qid}
    fitted = {name: options.pop(name) for name in ("X_valid", "y_valid", "qid_valid")}
    ranker = rs.KernelRanker(gamma=0.5, **options).fit(X, y, qid, **fitted)
    text = pickle.dumps(ranker)
    assert len(text) < ranker.map_.projection.nbytes / 5
    again = pickle.loads(text)
    np.testing.assert_array_equal(again.predict(X), ranker.predict(X))
    for number in (0, 1):
        np.testing.assert_array_equal(again.use_path(number).predict(X), ranker.use_path(number).predict(X))
        np.testing.assert_array_equal(ranker.dual_coef_, ranker.map_.representer(ranker.coef_))
    with pytest.raises(ValueError, match="this kernel map was loaded from a file"):
        again.objective(again.coef_, X, y, qid)
    old = ranker.__dict__ | {"dual_coef_": None, "_duals": None}  # of an earlier version, with its projection
    del old["dual_coef_"], old["_duals"]
    former = rs.KernelRanker.__new__(rs.KernelRanker)
    former.__setstate__(old)
    np.testing.assert_array_equal(former.predict(X), ranker.predict(X))


@pytest.mark.parametrize(
    "options",
    [{"kernel": "rbf", "gamma": 0.7}, {"kernel": "polynomial", "degree": 2, "offset": 0.5}, {"kernel": "linear"}],
)
@pytest.mark.parametrize("prepare", [(), ["append-standardize"]])
def test_kernels_as_scorers(options, prepare, tmp_path):
    X, y, qid = draw()
    ranker = rs.KernelRanker(loss=GRADED, C=100.0, prepare=prepare, **options).fit(X, y, qid)
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer = rs.load_scorer(tmp_path / "scorer.pt")
    lists = torch.tensor(X).view(12, 8, 3)
    np.testing.assert_allclose(scorer(lists).flatten().numpy(), ranker.predict(X), rtol=1e-9, atol=1e-9)
    assert scorer(lists.float()).dtype == torch.float32
    np.testing.assert_allclose(scorer(lists.float()).flatten().numpy(), ranker.predict(X), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=re.escape("[..., list_size, 3]")):
        scorer(lists[..., :2])
    given = rs.KernelRanker(kernel="precomputed").fit(X @ X.T, y, qid)
    with pytest.raises(ValueError, match="a precomputed kernel is not a function of features"):
        given.to_scorer()


@pytest.mark.parametrize("discount", ["log2", "linear"])
def test_linear_rankers_learn_from_weighted_clicks(discount):
    """Clicks at ranks that few examine weigh more; the naive loss learns the order that was shown."""
    rng = np.random.default_rng(0)
    lists, size = 400, 8
    X = rng.normal(size=(lists * size, 2))
    qid, rank = np.repeat(np.arange(lists), size), np.tile(np.arange(1, size + 1), lists)
    shown = np.lexsort((-X[:, 1], qid))  # by a feature that has nothing to do with relevance
    X = X[shown]
    relevant, propensity = X[:, 0] > 0.5, 1 / rank**1.5
    y = relevant & (rng.random(len(X)) < propensity)
    loss = rs.losses.AdditiveRankLoss(discount)
    given = {"loss": loss, "prepare": (), "measure": "nDCG"}
    naive = rs.LinearRanker(**given).fit(X, y, qid)
    weighted = rs.LinearRanker(**given).fit(X, y, qid, item_weights=np.where(y, 1 / propensity, 1.0))
    slopes = [abs(ranker.coef_[1] / ranker.coef_[0]) for ranker in (naive, weighted)]
    assert slopes[1] < 0.4 * slopes[0]
    assert weighted.score(X, relevant, qid) > naive.score(X, relevant, qid) + 0.02
