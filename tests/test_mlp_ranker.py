"""MLPRanker: what it learns, early stopping, averages of networks, any loss, files, what is refused."""

import pickle
from functools import partial

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, GroupKFold

import rankstruct as rs
from rankstruct.estimators.base import named_loss

QUICK = {"max_epochs": 3, "hidden": (8,), "device": "cpu"}


def make(lists=30, size=8, seed=0, grades=3, dtype=np.float32):
    """Relevant is what is near a circle, which no linear ranker sees; values over orders of magnitude, one feature constant."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(lists * size, 4))
    y = np.clip(np.floor(3 - 4 * np.abs(np.hypot(X[:, 0], X[:, 1]) - 1)), 0, grades - 1)
    X[:, 2] = np.exp(X[:, 2] * 3)
    X[:, 3] = 0.1
    return X.astype(dtype), y, np.repeat([f"q{i}" for i in range(lists)], size)


def held_out(seed=1):
    return dict(zip(("X_valid", "y_valid", "qid_valid"), make(seed=seed), strict=True))


def test_learns_what_no_linear_ranker_does():
    lists, test = make(lists=60), make(seed=5)
    ranker = rs.MLPRanker(max_epochs=25, device="cpu", dropout=0.0, learning_rate=0.02).fit(*lists, **held_out())
    linear = rs.LinearRanker(loss=rs.GradedLoss("AUC"), prepare=["append-log", "standardize"]).fit(*lists)
    assert ranker.score(*test) > 0.85 > 0.75 > linear.score(*test)


def test_the_best_epoch_is_kept_and_patience_ends_the_training():
    valid = held_out()
    options = {**QUICK, "max_epochs": 60, "patience": 4, "learning_rate": 0.05}
    ranker = rs.MLPRanker("nDCG@5", **options).fit(*make(), **valid)
    (history,), (best,) = ranker.history_, ranker.best_epochs_
    values = [each["validation"] for each in history]
    assert values[best - 1] == max(values)
    assert values.index(max(values)) == best - 1
    assert len(history) == min(best + 4, 60) < 60
    assert [each["epoch"] for each in history] == list(range(1, len(history) + 1))
    assert ranker.score(*valid.values()) == pytest.approx(max(values), abs=1e-9)
    again = rs.MLPRanker("nDCG@5", **{**options, "max_epochs": best}).fit(*make(), **valid)
    np.testing.assert_array_equal(again.predict(make()[0]), ranker.predict(make()[0]))


def test_weights_are_averaged_over_the_steps():
    """With one step an epoch and no validation lists, the average of t weights has the shares of `AverageWeights`."""
    X, y, qid = make()
    options = {**QUICK, "validation_share": 0, "lists_per_batch": 30, "dropout": 0.0}
    rankers = [rs.MLPRanker(**{**options, "max_epochs": n}).fit(X, y, qid) for n in (1, 2, 3)]
    assert [ranker.best_epochs_ for ranker in rankers] == [[1], [2], [3]]
    means = [dict(ranker.scorer_.named_parameters()) for ranker in rankers]
    for name in means[0]:
        first, second, third = (mean[name].detach() for mean in means)
        steps = [first, first + (second - first) * 5 / 4, second + (third - second) * 6 / 4]
        whole = steps[0]
        for t, weights in enumerate(steps[1:], 2):
            whole = whole + (weights - whole) * 4 / (t + 3)
        torch.testing.assert_close(whole, third)
        assert name == "layers.0.bias" or not torch.equal(first, second)


def test_several_networks_are_averaged_and_a_run_can_be_repeated():
    X, y, qid = make()
    before = torch.get_rng_state()
    both = rs.MLPRanker(seeds=2, random_state=4, **QUICK).fit(X, y, qid, **held_out())
    assert torch.equal(torch.get_rng_state(), before)
    alone = [rs.MLPRanker(random_state=seed, **QUICK).fit(X, y, qid, **held_out()) for seed in (4, 5)]
    first, second = (ranker.predict(X) for ranker in alone)
    assert not np.allclose(first, second)
    np.testing.assert_allclose(both.predict(X), (first + second) / 2, atol=1e-6)
    assert len(both.history_) == len(both.best_epochs_) == 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_in_any_order_and_any_type(dtype):
    X, y, qid = make(dtype=dtype)
    ranker = rs.MLPRanker(**QUICK).fit(X, y, qid)
    shuffle = np.random.default_rng(1).permutation(len(y))
    found = ranker.predict(X[shuffle])
    np.testing.assert_allclose(found, ranker.predict(X)[shuffle], atol=1e-6)
    assert found.dtype == np.float64
    assert ranker.score(X[shuffle], y[shuffle], qid[shuffle]) == pytest.approx(ranker.score(X, y, qid))
    # Lists by first appearance, documents in another order: the same problem up to rounding.
    within = np.concatenate([np.random.default_rng(i).permutation(8) + 8 * i for i in range(30)])
    again = rs.MLPRanker(**{**QUICK, "dropout": 0.0}).fit(X[within], y[within], qid[within])
    plain = rs.MLPRanker(**{**QUICK, "dropout": 0.0}).fit(X, y, qid)
    shift = again.predict(X) - plain.predict(X)  # no loss sees what all scores have in common
    np.testing.assert_allclose(shift, shift.mean(), atol=1e-3)
    sparse = rs.MLPRanker(prepare=["append-log"], **QUICK).fit(sp.csr_matrix(X), y, qid)
    dense = rs.MLPRanker(prepare=["append-log"], **QUICK).fit(X, y, qid)
    np.testing.assert_allclose(sparse.predict(sp.csr_matrix(X)), dense.predict(X), atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "loss",
    [
        None,
        rs.StructuredHingeLoss("AP"),
        "StructuredHingeLoss('nDCG@3')",
        "SmoothLoss('nDCG@3', sigma=1.0)",
        "DirectLoss('AP', epsilon=0.1)",
        "SquaredLoss",
        "ClassificationLoss()",
        "OrdinalLoss(3)",
        "RankSVMLoss",
        "RankNetLoss",
        "LambdaLoss('nDCG@10', scheme='ndcg2')",
        "ListNetLoss",
        "ListMLELoss",
        "ApproxNDCGLoss('nDCG@10')",
        "StructuredHingeLoss('diverse_nDCG@3')",
    ],
    ids=str,
)
def test_any_loss_by_object_or_name(loss):
    X, y, qid = make()
    diversity_groups = {"diversity_groups": np.arange(len(y)) % 3} if "diverse" in str(loss) else {}
    options = {"dropout": 0.0, "learning_rate": 0.01, "max_epochs": 12, "hidden": (8,), "device": "cpu"}
    ranker = rs.MLPRanker(loss=loss, **options).fit(X, y, qid, **diversity_groups)
    assert np.ptp(ranker.predict(X)) > 0
    losses = [each["loss"] for each in ranker.history_[0]]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("context", [None, "mean"])
def test_encodings_are_made_in_each_step_as_if_all_documents_had_been_encoded(context):
    (X, y, qid), valid, options = make(), held_out(), {**QUICK, "context": context, "noise": 0.1}
    ranker = rs.MLPRanker(prepare=["standardize", "append-piecewise:3"], **options).fit(X, y, qid, **valid)
    assert ranker.preparation_.names == ("standardize", "append-piecewise:3")
    preparation = rs.Preparation.fit(ranker.preparation_.names, X)
    assert ranker.preparation_.equals(preparation)
    valid["X_valid"], new = (preparation.transform(each) for each in (valid["X_valid"], make(seed=2)[0]))
    other = rs.MLPRanker(prepare=(), **options).fit(preparation.transform(X), y, qid, **valid)
    np.testing.assert_allclose(ranker.predict(make(seed=2)[0], qid), other.predict(new, qid), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "prepare", [["append-log", "standardize"], ["query-center", "append-piecewise"], ["bins:4"], []]
)
def test_saved_it_takes_raw_features(prepare, tmp_path):
    X, y, qid = make()
    ranker = rs.MLPRanker(prepare=prepare, seeds=2, loss=rs.GradedLoss("AUC"), **QUICK).fit(X, y, qid)
    wanted = ranker.predict(X, qid)
    joblib.dump(ranker, tmp_path / "ranker.joblib")
    for again in (joblib.load(tmp_path / "ranker.joblib"), pickle.loads(pickle.dumps(ranker))):
        np.testing.assert_allclose(again.predict(X, qid), wanted, rtol=0, atol=1e-7)
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer, features = rs.load_scorer(tmp_path / "scorer.pt"), torch.tensor(X)
    with torch.no_grad():
        np.testing.assert_allclose(scorer(features.view(30, 8, 4)).flatten().numpy(), wanted, rtol=1e-5, atol=1e-6)
        flat = {"offsets": torch.arange(0, 241, 8)} if prepare else {}
        np.testing.assert_allclose(scorer(features, **flat).numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.needs("skops")
def test_goes_through_skops(tmp_path):
    import skops.io

    X, y, qid = make()
    ranker = rs.MLPRanker(loss="LambdaLoss('nDCG@10')", seeds=2, **QUICK).fit(X, y, qid)
    skops.io.dump(ranker, tmp_path / "ranker.skops")
    unknown = skops.io.get_untrusted_types(file=tmp_path / "ranker.skops")
    assert all(kind.startswith("rankstruct.") for kind in unknown)
    np.testing.assert_array_equal(
        skops.io.load(tmp_path / "ranker.skops", trusted=unknown).predict(X), ranker.predict(X)
    )


def test_conventions_of_scikit_learn():
    X, y, qid = make()
    ranker = rs.MLPRanker("AP", loss=rs.GradedLoss("AUC"), **QUICK)
    copied = clone(ranker).fit(X, y, qid)
    assert not hasattr(ranker, "scorer_")
    assert copied.n_features_in_ == 4
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(ranker, {"hidden": [(4,), (8,)]}, cv=GroupKFold(3)).fit(X, y, qid=qid, groups=qid)
    assert search.best_score_ > 0.3
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    framed = rs.MLPRanker(**QUICK).fit(frame, pandas.Series(y), pandas.Series(qid))
    np.testing.assert_allclose(framed.predict(frame), rs.MLPRanker(**QUICK).fit(X, y, qid).predict(X), atol=1e-5)
    with pytest.raises(ValueError, match="X must have the columns of training; missing: 'a'; unknown: 'z'"):
        framed.predict(frame.rename(columns={"a": "z"}))


def test_odd_lists():
    """One document, nothing relevant, fractional grades; all of it in one query."""
    X, y, qid = make(lists=6)
    y = y / 2
    y[:8] = 0
    qid = qid.copy()
    qid[8:16] = [f"single {i}" for i in range(8)]
    ranker = rs.MLPRanker(loss="ListNetLoss", validation_share=0, **QUICK).fit(X, y, qid)
    assert np.isfinite(ranker.predict(X)).all()
    assert ranker.history_[0][0]["validation"] is None
    assert len(ranker.predict(X[:1])) == 1
    one = rs.MLPRanker(loss="ListNetLoss", validation_share=0, **QUICK).fit(X[16:24], y[16:24], qid[16:24])
    assert np.isfinite(one.predict(X)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "seeds must be an integer from 1 to 2147483647, got 0"),
        ({"patience": 0}, "patience must be an integer from 1 to 2147483647"),
        ({"max_epochs": "3"}, "max_epochs must be an integer from 1 to 2147483647, got '3'"),
        ({"seeds": 1.5}, "seeds must be an integer from 1 to 2147483647, got 1.5"),
        ({"learning_rate": float("inf")}, "learning_rate must be a finite number above 0, got inf"),
        ({"dropout": None}, r"dropout must be a finite number of at least 0 and below 1, got None"),
        ({"learning_rate": "fast"}, "learning_rate must be a finite number above 0, got 'fast'"),
        ({"dropout": 1.0}, r"dropout must be a finite number of at least 0 and below 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0"),
        (
            {"validation_share": 0.001},
            r"validation_share 0.001 of 30 lists is 0 lists; pass X_valid.*validation_share=0",
        ),
        ({"loss": "NoLoss"}, "loss must be a loss module.*got 'NoLoss'"),
        ({"loss": "ListNet"}, "got 'ListNet'; did you mean ListNetLoss\\?$"),
        ({"loss": "LambdaLos('nDCG@10')"}, "did you mean LambdaLoss\\?$"),
        ({"loss": "lambdarank"}, "did you mean LambdaLoss\\?$"),
        ({"loss": rs.LambdaLoss}, r"create an instance: LambdaLoss\(\)$"),
        ({"loss": "LambdaLoss('nDC')"}, "got .*LambdaLoss.*; unknown measure 'nDC'.*did you mean nDCG"),
        ({"loss": "is_convex(3)"}, "must be the name of a rankstruct loss"),
        ({"loss": 3}, "loss must be a loss module"),
        ({"loss": "LambdaLoss(print('x'))"}, "loss must be a loss module"),
        ({"loss": "StructuredHingeLoss('diverse_nDCG@3')"}, "needs diversity_groups="),
        ({"context": "max"}, "context must be None, 'attention', 'mean' or a callable, got 'max'"),
        ({"context": ["mean"]}, r"context must be None, .*got \['mean'\]"),
        ({"noise": -1}, "noise must be a finite number of at least 0, got -1"),
        ({"noise": None}, "noise must be a finite number of at least 0, got None"),
        ({"prepare": ["binarize:1"]}, "unknown preparation step 'binarize:1'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        rs.MLPRanker(**{**QUICK, **options}).fit(*make())


def test_wrong_data():
    X, y, qid = make()
    ranker = rs.MLPRanker(**QUICK).fit(X, y, qid)
    for given, message in (
        ((X, np.zeros(len(y)), qid), "no list can be learned from"),
        ((X, y, qid[:-1]), "one entry per document"),
    ):
        with pytest.raises(ValueError, match=message):
            rs.MLPRanker(**QUICK).fit(*given)
    broken = X.copy()
    broken[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        rs.MLPRanker(**QUICK).fit(broken, y, qid)
    with pytest.raises(ValueError, match="infinity"):
        ranker.predict(broken)
    with pytest.raises(ValueError, match="4 features"):
        ranker.predict(X[:, :3])
    with pytest.raises(ValueError, match="together, all three or none"):
        rs.MLPRanker(**QUICK).fit(X, y, qid, X_valid=X)
    by_list = rs.MLPRanker(prepare=["query-zscore"], **QUICK).fit(X, y, qid)
    with pytest.raises(ValueError, match=r"query-zscore needs complete lists.*pass qid="):
        by_list.predict(X)


def relative(lists, seed, size=12):
    """Relevant is what is near the mean of its list, which is different in each."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(lists, size, 1))
    X = (z + 5 * rng.normal(size=(lists, 1, 1))).reshape(-1, 1)
    return X, (np.abs(z - z.mean(1, keepdims=True)) < 0.4).astype(int).ravel(), np.repeat(np.arange(lists), size)


@pytest.mark.parametrize(
    ("context", "low", "high"),
    [
        pytest.param(None, 0, 0.7, marks=pytest.mark.soak),
        ("mean", 0.85, 1),
        pytest.param("attention", 0.85, 1, marks=pytest.mark.soak),
        pytest.param(partial(rs.ContextScorer, blocks=2), 0.85, 1, marks=pytest.mark.soak),
    ],
)
def test_context_learns_what_no_network_of_single_documents_does(context, low, high):
    options = {"dropout": 0.0, "learning_rate": 0.01, "max_epochs": 40, "prepare": ["standardize"], "device": "cpu"}
    train, valid = relative(200, 0), dict(zip(("X_valid", "y_valid", "qid_valid"), relative(50, 1), strict=True))
    ranker = rs.MLPRanker("AP", **options, **({"context": context} if context else {})).fit(*train, **valid)
    assert low < ranker.score(*relative(100, 2)) < high


@pytest.mark.parametrize("context", ["mean", "attention"])
def test_with_context_lists_are_scored_as_lists_everywhere(context, tmp_path, monkeypatch):
    X, y, qid = make()
    ranker = rs.MLPRanker("AP", context=context, seeds=2, noise=0.1, **QUICK).fit(X, y, qid, **held_out())
    alone = np.concatenate([ranker.predict(X[qid == name]) for name in dict.fromkeys(qid)])
    wanted = ranker.predict(X, qid)
    np.testing.assert_allclose(wanted, alone, rtol=0, atol=1e-12)
    assert not np.allclose(wanted[:4], ranker.predict(X[:4]))
    mixed = np.random.default_rng(1).permutation(len(y))
    np.testing.assert_allclose(ranker.predict(X[mixed], qid[mixed]), wanted[mixed], rtol=0, atol=1e-12)
    np.testing.assert_allclose(ranker.predict(X, group=[8] * 30), wanted, rtol=0, atol=1e-12)
    monkeypatch.setattr("rankstruct.models.context._DOCUMENTS", 20)
    monkeypatch.setattr("rankstruct.models.context._TOGETHER", 0)
    np.testing.assert_allclose(ranker.predict(X, qid), wanted, rtol=0, atol=1e-12)
    assert ranker.score(X, y, qid) == pytest.approx(float(rs.evaluate(wanted, y, ["AP"], qid=qid)["AP"].mean()))
    assert max(each["validation"] for each in ranker.history_[0]) > 0
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict(X, qid), ranker.predict(X, qid))
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer = rs.load_scorer(tmp_path / "scorer.pt")
    assert scorer.by_list
    with torch.no_grad():
        found = scorer(torch.tensor(X), offsets=torch.arange(0, 241, 8)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    both = rs.EnsembleRanker([FrozenEstimator(ranker), rs.LinearRanker("AP")]).fit(X, y, qid)
    np.testing.assert_allclose(
        both.to_scorer()(torch.tensor(X), offsets=torch.arange(0, 241, 8)).detach(), both.predict(X, qid), atol=1e-4
    )


def test_with_context_a_missing_qid_is_an_error():
    X, y, qid = make()
    ranker = rs.MLPRanker("AP", context="mean", **QUICK).fit(X, y, qid)
    message = "qid is missing: with context='mean' .*240 documents are not one, since no training list has more than 8; pass qid="
    with pytest.raises(ValueError, match=message):
        ranker.predict(X)
    assert ranker.predict(X[:8]).shape == (8,)


def test_context_is_an_option_like_any_other():
    X, y, qid = make()
    given = [None, "mean", partial(rs.ContextScorer, width=4)]
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(rs.MLPRanker("AP", **QUICK), {"context": given, "noise": [0.0, 0.1]}, cv=GroupKFold(3))
        search.fit(X, y, qid=qid, groups=qid)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert repr(clone(search.best_estimator_).context) in map(repr, given)


def test_names_of_losses():
    assert named_loss(None) is None
    assert named_loss(loss := rs.RankSVMLoss()) is loss
    assert type(named_loss("LambdaLoss('nDCG@5', scheme='ndcg1')")) is rs.LambdaLoss
    ranker = rs.LinearRanker(loss="GradedLoss('AUC')", C=1.0).fit(*make())
    np.testing.assert_array_equal(ranker.coef_, rs.LinearRanker(loss=rs.GradedLoss("AUC"), C=1.0).fit(*make()).coef_)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu():
    X, y, qid = make()
    ranker = rs.MLPRanker(seeds=2, hidden=(8,), max_epochs=10).fit(X, y, qid, **held_out())
    assert next(ranker.scorer_.parameters()).device.type == "cpu"
    same = rs.MLPRanker(seeds=2, hidden=(8,), max_epochs=10, dropout=0.0, device="cpu").fit(X, y, qid, **held_out())
    other = rs.MLPRanker(seeds=2, hidden=(8,), max_epochs=10, dropout=0.0, device="cuda").fit(X, y, qid, **held_out())
    np.testing.assert_allclose(same.predict(X), other.predict(X), atol=1e-3)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dropout": 0.0},
        {"noise": 0.1},
        {"context": "mean"},
        {"context": "attention"},
        {"context": "attention", "dropout": 0.0, "noise": 0.1},
        {"context": "mean", "noise": 0.1, "lists_per_batch": 30},
        {"context": partial(rs.ContextScorer, width=4), "lists_per_batch": 1},
        {"loss": rs.PerturbedLoss(rs.GradedLoss("AUC"), sigma=0.5, samples=1)},
        {"loss": rs.PerturbedLoss(rs.OrdinalLoss(3), sigma=0.5, samples=1), "context": "mean"},
        {"loss": rs.PLRankLoss("nDCG@3", samples=2)},
        {"loss": rs.OrdinalLoss(3), "lists_per_batch": 1, "hidden": ()},
    ],
    ids=str,
)
@pytest.mark.parametrize("has_validation", [True, False])
def test_a_network_of_several_is_the_one_of_its_seed_alone(options, has_validation):
    X, y, qid = make(lists=12)
    given = held_out() if has_validation else {}
    options = {**QUICK, "patience": 1, "validation_share": 0, **options}
    several = rs.MLPRanker(seeds=3, random_state=4, **options).fit(X, y, qid, **given)
    for number, scorer in enumerate(several.scorer_.scorers):
        alone = rs.MLPRanker(random_state=4 + number, **options).fit(X, y, qid, **given)
        assert several.best_epochs_[number] == alone.best_epochs_[0]
        for mine, other in zip(scorer.parameters(), alone.scorer_.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_a_loss_declares_whether_it_draws():
    """Its calls are not watched: one that draws only later still has numbers of its own for each network."""
    calls = []

    class Late(rs.losses.RankingLoss):
        draws = True

        def per_list(self, scores, labels, where):
            calls.append(len(scores))
            noise = torch.randn_like(scores) if len(calls) > 1 else 0.0
            return torch.where(where, (scores - labels + noise).square(), 0.0).sum(-1)

    X, y, qid = make(lists=12)
    rs.MLPRanker(loss=Late(), seeds=2, validation_share=0, **{**QUICK, "max_epochs": 1}, lists_per_batch=12).fit(
        X, y, qid
    )
    assert calls == [12, 12]  # one call of each network's
    declared = [rs.PerturbedLoss(rs.GradedLoss("AUC")), rs.PLRankLoss(), rs.ExposureLoss(), rs.RankDistilLoss(), Late()]
    assert all(map(rs.losses.draws, declared))
    assert not any(map(rs.losses.draws, [rs.GradedLoss("AUC"), rs.RankDistilLoss(samples=None), rs.ListNetLoss()]))
    assert rs.losses.draws(rs.CombinedLoss([rs.GradedLoss("AUC"), rs.PLRankLoss()]))
    assert rs.losses.draws(torch.nn.MSELoss())  # which declares nothing
