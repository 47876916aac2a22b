"""Trees and combined losses under rules: by the bare losses on the same scores, and documents that stay with their columns."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankstruct as rs
from rankstruct.estimators import boosting

RULES = ["seller <= 1 @ 3", "kind=1 >= 1 @ 3"]
SIZES = np.array([6, 4, 7, 8])


def problem(seed=0):
    """Labels, lists, and columns of which sellers are within kinds."""
    rng = np.random.default_rng(seed)
    seller = np.concatenate([rng.permutation(np.arange(size) % 4) for size in SIZES])
    names = np.array(["ann", "bob", "cy", "dan"])
    labels, starts = rng.integers(0, 3, SIZES.sum()), SIZES.cumsum() - SIZES
    labels[starts], labels[starts + 1] = 0, 2  # so that rankers keep all lists
    return labels, np.repeat(np.arange(4), SIZES), {"seller": names[seller], "kind": seller % 2}


def hinge(**options):
    return rs.StructuredHingeLoss("nDCG@3", constraints=RULES, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_objective_has_the_gradient_of_its_loss(dtype):
    labels, qid, columns = problem()
    scores = np.random.default_rng(1).normal(size=len(labels)).astype(dtype)
    leaf = torch.tensor(scores, requires_grad=True)
    offsets = torch.tensor(np.append(0, SIZES.cumsum()))
    (hinge()(leaf, torch.tensor(labels), columns=columns, offsets=offsets) * len(labels)).backward()
    for given_columns in (columns, pd.DataFrame({**columns, "other": qid})):
        gradient, hessian = rs.boosting_objective(hinge(), columns=given_columns)(labels, scores, None, SIZES)
        np.testing.assert_allclose(gradient, leaf.grad.numpy(), atol=1e-6)
        assert (hessian >= np.abs(gradient) - 1e-6).all()
    metric = rs.boosting_metric("nDCG@3", constraints=RULES, columns=columns)
    value = rs.constraints.evaluate_under(scores, labels, "nDCG@3", RULES, columns, qid=qid)["nDCG@3"].mean()
    assert metric(labels, scores, None, SIZES) == ("nDCG@3", pytest.approx(value.item()), True)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (None, "under rules about 'seller', 'kind'; pass columns="),
        ({"seller": [0] * 25}, "the rules are about 'kind', which is not in columns"),
    ],
)
def test_a_missing_column_is_told_before_training(columns, told):
    labels, qid, _ = problem()
    X = np.random.default_rng(0).normal(size=(25, 2))
    with pytest.raises(ValueError, match=told):
        rs.boosting_objective(hinge(), columns=columns)
    with pytest.raises(ValueError, match=told):
        rs.BoostedRanker(loss=hinge()).fit(X, labels, qid, columns=columns)


@pytest.mark.parametrize("option", ["start", "leaf_ranker"])
def test_columns_are_no_groups_of_another_ranker(option):
    labels, qid, columns = problem()
    features = np.random.default_rng(0).normal(size=(len(labels), 2))
    within = rs.LinearRanker(measure="diverse_nDCG@3", C=1.0)
    ranker = rs.BoostedRanker(loss=hinge(), n_estimators=1, **{option: within})
    with pytest.raises(ValueError, match="diversity_groups"):
        ranker.fit(features, labels, qid, columns=columns)


def test_bad_columns_are_refused():
    labels, qid, columns = problem()
    X, scores = np.random.default_rng(0).normal(size=(25, 2)), np.zeros(25)
    short = {**columns, "kind": columns["kind"][1:]}
    for call in (
        lambda: rs.boosting_objective(hinge(), columns=short)(labels, scores, None, SIZES),
        lambda: rs.BoostedRanker(loss=hinge()).fit(X, labels, qid, columns=short),
        lambda: rs.boosting_metric("nDCG@3", constraints=RULES, columns=short)(labels, scores, None, SIZES),
    ):
        with pytest.raises(ValueError, match=r"'kind' must have one entry per document, shape \(25,\), got \(24,\)"):
            call()
    none = {**columns, "kind": np.where(qid == 2, 0, columns["kind"])}
    for call in (
        lambda: rs.boosting_objective(hinge(), columns=none)(labels, scores, None, SIZES),
        lambda: rs.BoostedRanker(loss=hinge()).fit(X, labels, qid, columns=none),
    ):
        with pytest.raises(ValueError, match="no ranking of list 2 keeps 'kind=1 >= 1 @ 3'"):
            call()
    for name in ("start", "leaf_ranker"):
        ranker = rs.BoostedRanker(loss=hinge(), **{name: rs.LinearRanker(loss=hinge())})
        with pytest.raises(ValueError, match="start and leaf_ranker get no columns"):
            ranker.fit(X, labels, qid, columns=columns)
    with pytest.raises(TypeError, match="pass a loss with constraints=, or omit them"):
        rs.boosting_objective("AP", columns=columns)
    with pytest.raises(ValueError, match="belong together"):
        rs.boosting_metric("nDCG@3", constraints=RULES)


@pytest.mark.parametrize(
    "library", [pytest.param(each, marks=pytest.mark.needs(each)) for each in ("lightgbm", "xgboost")]
)
def test_trees_learn_from_columns_in_any_order(library, monkeypatch):
    rng = np.random.default_rng(0)
    X, qid, labels = rng.normal(size=(160, 2)), np.repeat(np.arange(16), 10), rng.permutation(160)
    labels[qid == 3] = 7  # skipped
    seller, seen = labels // 3, []
    order, keep = rng.permutation(160), boosting._given_to
    monkeypatch.setattr(
        boosting, "_given_to", lambda loss, lists: seen.append((lists, keep(loss, lists))) or seen[-1][1]
    )
    ranker = rs.BoostedRanker(
        "ARP",
        loss="StructuredHingeLoss('DCG(gain=\\'linear\\')@2', constraints='seller <= 1 @ 2')",
        library=library,
        n_estimators=3,
        n_jobs=1,
        validation_share=0.2,
    )
    ranker.fit(X[order], labels[order], qid[order], columns={"seller": seller[order]})
    ((lists, found),) = seen
    assert 100 < lists.num_documents < 150
    packed = found["columns"].numbers.numpy()
    np.testing.assert_array_equal(packed - packed.min(), (lists.labels // 3) - (lists.labels // 3).min())
    assert np.isfinite(ranker.predict(X)).all()


@pytest.mark.needs("lightgbm")
@pytest.mark.filterwarnings("ignore:The argument 'eval_set'")
def test_lightgbm_takes_objective_and_metric():
    import lightgbm

    rng = np.random.default_rng(0)
    X, sizes = rng.normal(size=(300, 3)), np.full(30, 10)
    y, columns = (np.abs(X[:, 0]) < 0.5).astype(int), {"seller": rng.choice(["a", "b", "c"], 300)}
    loss = rs.StructuredHingeLoss("nDCG@3", constraints="seller <= 1 @ 3")
    metric = rs.boosting_metric("nDCG@3", constraints="seller <= 1 @ 3", columns=columns)
    ranker = lightgbm.LGBMRanker(
        objective=rs.boosting_objective(loss, columns=columns), n_estimators=10, n_jobs=1, verbosity=-1
    )
    ranker.fit(X, y, group=sizes, eval_set=[(X, y)], eval_group=[sizes], eval_metric=metric)
    ((_, found),) = ranker.evals_result_.items()
    values = found["nDCG@3"]
    final = rs.constraints.evaluate_under(ranker.predict(X), y, "nDCG@3", "seller <= 1 @ 3", columns, group=sizes)
    assert values[-1] == pytest.approx(final["nDCG@3"].mean().item())
    assert values[-1] > values[0]


def combined():
    other = rs.StructuredHingeLoss("DCG@2", constraints=["kind <= 1 @ 2", "seller=ann <= 1 @ 2"], reference="predicted")
    return [hinge(reference="ideal"), other, rs.ListNetLoss(), rs.StructuredHingeLoss("AP")]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([torch.float32, torch.float64]), st.sampled_from(["separate", "shared"]))
def test_a_combination_is_the_sum_of_its_losses(seed, dtype, slack):
    labels, _, columns = problem(seed)
    scores = torch.tensor(np.random.default_rng(seed).normal(size=len(labels)), dtype=dtype)
    weights = [0.5, 1.0, 2.0, 0.1]
    flat = {"offsets": torch.tensor(np.append(0, SIZES.cumsum())), "reduction": "none"}
    values = [
        weight * loss(scores, torch.tensor(labels), **flat, **({"columns": columns} if loss.takes_columns else {}))
        for weight, loss in zip(weights, combined(), strict=True)
    ]
    loss = rs.CombinedLoss(combined(), weights, slack=slack)
    expected = torch.stack(values).sum(0) if slack == "separate" else torch.stack(values).amax(0)
    torch.testing.assert_close(loss(scores, torch.tensor(labels), columns=columns, **flat), expected)
    where = torch.tensor(np.arange(SIZES.max()) < SIZES[:, None])
    wide = torch.zeros(where.shape, dtype=dtype).masked_scatter(where, scores)
    grades = torch.zeros(where.shape, dtype=torch.int64).masked_scatter(where, torch.tensor(labels))
    masked = {name: np.full(where.shape, None, object) for name in columns}
    for name, each in masked.items():
        each[where.numpy()] = columns[name]
    torch.testing.assert_close(loss(wide, grades, columns=masked, where=where, reduction="none"), expected)
    noisy = rs.PerturbedLoss(rs.CombinedLoss(combined(), weights, slack=slack, reduction="none"), sigma=0.0)
    torch.testing.assert_close(noisy(scores, torch.tensor(labels), columns=columns, offsets=flat["offsets"]), expected)


def test_rankers_take_combinations():
    labels, qid, columns = problem()
    X = np.random.default_rng(0).normal(size=(25, 3))
    loss = rs.CombinedLoss([each for each in combined() if each.convex])
    assert loss.takes_columns
    order = np.random.default_rng(1).permutation(25)
    mixed = {name: each[order] for name, each in columns.items()}
    ranker = rs.LinearRanker(loss=loss, C=1.0).fit(X[order], labels[order], qid[order], columns=mixed)
    scores, offsets = torch.tensor(ranker.predict(X)), torch.tensor(np.append(0, SIZES.cumsum()))
    expected = loss(scores, torch.tensor(labels), columns=columns, offsets=offsets).item()
    assert ranker.mean_loss(ranker.coef_, X, labels, qid, columns=columns) == pytest.approx(expected, abs=1e-6)
    network = rs.MLPRanker(loss=rs.CombinedLoss(combined()), max_epochs=1, validation_share=0.0, device="cpu")
    assert np.isfinite(network.fit(X, labels, qid, columns=columns).predict(X)).all()
    with pytest.raises(ValueError, match="the rules are about 'kind', which is not in columns"):
        ranker.fit(X, labels, qid, columns={"seller": columns["seller"]})
    with pytest.raises(TypeError, match="this loss has none: pass constraints= to it"):
        rs.CombinedLoss([rs.ListNetLoss()])(scores, torch.tensor(labels), columns=columns, offsets=offsets)
    with pytest.raises(TypeError, match="pass columns="):
        loss(scores, torch.tensor(labels), offsets=offsets)
