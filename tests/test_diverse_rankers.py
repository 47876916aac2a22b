"""LinearRanker and KernelRanker with groups: losses over diverse rankings, and their measures."""

import numpy as np
import pytest
import sklearn
import torch
from sklearn.model_selection import GridSearchCV, GroupKFold

import rankstruct as rs
from rankstruct.solvers import Status


def make(lists=15, size=9, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(lists * size, d))
    raw = X @ rng.normal(size=d) + rng.normal(size=lists * size)
    y = np.clip(np.floor(raw), 0, 2)
    hosts = np.array(["a.org", "b.org", "c.org", "d.org"])[rng.integers(0, 4, size=lists * size)]
    return X, y, np.repeat(np.arange(lists), size), hosts


def objective(loss, X, y, qid, hosts, w, C, w0=0.0):
    """By hand: 1/(2C) ||w - w0||^2 + mean over the lists that can be wrong."""
    values = []
    for q in np.unique(qid):
        here = qid == q
        if y[here].min() < y[here].max():
            numbers = torch.tensor([sorted(set(hosts)).index(host) for host in hosts[here]])
            values.append(loss(torch.tensor(X[here] @ w), torch.tensor(y[here]), diversity_groups=numbers).item())
    away = w - w0
    return away @ away / (2 * C) + np.mean(values)


@pytest.mark.parametrize("solver", ["bundle", "cutting-plane"])
@pytest.mark.parametrize("measure", ["nDCG@3", "P@2", "RR@3", "WTA", "mWTA"])
def test_the_ideal_bound_reaches_its_optimum(measure, solver):
    X, y, qid, hosts = make()
    mixed = np.argsort(np.arange(len(y)) % 9, kind="stable")  # equal gains stay in input order within a list
    loss = rs.StructuredHingeLoss(rs.Diverse(measure), reference="ideal")
    ranker = rs.LinearRanker(loss=loss, C=5.0, solver=solver, prepare=())
    ranker.fit(X[mixed], y[mixed], qid[mixed], diversity_groups=hosts[mixed])
    solution = ranker.solution_
    assert solution.status is Status.CONVERGED
    assert solution.gap <= 1e-3
    assert solution.objective == pytest.approx(objective(loss, X, y, qid, hosts, ranker.coef_, 5.0), rel=1e-9)
    assert ranker.objective(ranker.coef_, X, y, qid, diversity_groups=hosts) == pytest.approx(
        solution.objective, rel=1e-9
    )
    rng = np.random.default_rng(2)
    for scale in (0.01, 0.1, 1.0):
        other = ranker.coef_ + scale * rng.normal(size=4)
        assert objective(loss, X, y, qid, hosts, other, 5.0) >= solution.lower_bound


@pytest.mark.parametrize("reference", ["ideal-tied", "predicted"])
@pytest.mark.parametrize("measure", ["nDCG@3", "RR@3", "mWTA"])
def test_the_other_bounds_go_down_by_rounds_of_dc(measure, reference):
    X, y, qid, hosts = make()
    loss = rs.StructuredHingeLoss(rs.Diverse(measure), reference=reference)
    ranker = rs.LinearRanker(loss=loss, C=5.0, regularize_towards="start", prepare=()).fit(
        X, y, qid, diversity_groups=hosts
    )
    rounds = [record.objective for record in ranker.solution_.history]
    assert rounds == sorted(rounds, reverse=True)
    found = objective(loss, X, y, qid, hosts, ranker.coef_, 5.0, ranker.w0_)
    assert ranker.solution_.objective == pytest.approx(found, rel=1e-9)
    assert found < objective(loss, X, y, qid, hosts, ranker.w0_, 5.0, ranker.w0_)
    assert ranker.w0_.any()


@pytest.mark.parametrize("reference", ["ideal", "predicted"])
def test_a_diverse_measure_is_optimised_by_the_diverse_hinge(reference):
    X, y, qid, hosts = make()
    options = {"feature_map": rs.Positional("i^-1"), "reference": reference}
    by_measure = rs.LinearRanker("diverse_nDCG@3", C=5.0, **options).fit(X, y, qid, diversity_groups=hosts)
    loss = rs.StructuredHingeLoss("diverse_nDCG@3", **options)
    by_loss = rs.LinearRanker(loss=loss, C=5.0).fit(X, y, qid, diversity_groups=hosts)
    np.testing.assert_array_equal(by_measure.coef_, by_loss.coef_)
    assert by_measure.score(X, y, qid, diversity_groups=hosts) == by_loss.score(X, y, qid, diversity_groups=hosts)


def test_validation_is_by_the_measure_of_the_list_re_ranked_diversely():
    X, y, qid, hosts = make(lists=30)
    train, held = qid < 15, qid >= 15
    names = {"X_valid": X[held], "y_valid": y[held], "qid_valid": qid[held], "diversity_groups_valid": hosts[held]}
    ranker = rs.LinearRanker(loss=rs.StructuredHingeLoss("diverse_DCG@2"), C=[0.01, 1.0, 100.0], prepare=())
    ranker.fit(X[train], y[train], qid[train], diversity_groups=hosts[train], **names)
    for solution, found in zip(ranker.path_, ranker.validation_, strict=True):
        values = []
        for q in range(15, 30):
            here = qid == q
            ranks = rs.rerank_diverse(
                torch.tensor(X[here] @ solution.w), torch.tensor([ord(h[0]) for h in hosts[here]]), 2
            )
            gains = 2.0 ** y[here] - 1
            values.append(sum(gains[j] / np.log2(1 + rank) for j, rank in enumerate(ranks.tolist()) if rank))
        assert found == pytest.approx(np.mean(values))
    assert ranker.score(X[held], y[held], qid[held], diversity_groups=hosts[held]) == max(ranker.validation_)
    asked = rs.LinearRanker("nDCG@2", loss=rs.StructuredHingeLoss("diverse_nDCG@2"), prepare=()).fit(
        X, y, qid, diversity_groups=hosts
    )
    plain = rs.evaluate(asked.predict(X).reshape(30, 9), y.reshape(30, 9), ["nDCG@2"])["nDCG@2"].mean().item()
    assert asked.score(X, y, qid) == pytest.approx(plain)


def test_groups_of_one_document_give_the_ranker_without_groups():
    X, y, qid, _ = make()
    alone = rs.LinearRanker("diverse_nDCG@3", C=5.0, tolerance=1e-6).fit(X, y, qid, diversity_groups=np.arange(len(y)))
    plain = rs.LinearRanker("nDCG@3", feature_map=rs.Positional("i^-0.5", cutoff=3), C=5.0, tolerance=1e-6)
    assert alone.solution_.objective == pytest.approx(plain.fit(X, y, qid).solution_.objective, rel=1e-5)


def test_kernels_and_combinations_take_groups():
    X, y, qid, hosts = make()
    convex = {"reference": "ideal", "C": 5.0, "tolerance": 1e-6}
    linear = rs.LinearRanker("diverse_nDCG@3", **convex).fit(X, y, qid, diversity_groups=hosts)
    kernel = rs.KernelRanker("diverse_nDCG@3", kernel="linear", **convex).fit(X, y, qid, diversity_groups=hosts)
    assert kernel.solution_.objective == pytest.approx(linear.solution_.objective, rel=1e-5)
    assert kernel.score(X, y, qid, diversity_groups=hosts) == pytest.approx(
        linear.score(X, y, qid, diversity_groups=hosts), abs=0.02
    )
    both = rs.CombinedLoss([rs.StructuredHingeLoss("diverse_nDCG@3", reference="ideal"), rs.StructuredHingeLoss("AP")])
    ranker = rs.LinearRanker("diverse_nDCG@3", loss=both, C=5.0).fit(X, y, qid, diversity_groups=hosts)
    assert ranker.solution_.gap <= 1e-3
    assert ranker.score(X, y, qid, diversity_groups=hosts) > 0.5


def test_grid_search_routes_hosts_and_the_splitters_groups():
    X, y, qid, hosts = make()
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            rs.LinearRanker("diverse_nDCG@3"), {"C": [0.1, 10.0]}, cv=GroupKFold(3), error_score="raise"
        )
        search.fit(X, y, qid=qid, groups=qid, diversity_groups=hosts)
        split = GroupKFold(3).split(X, y, qid)
        expected = []
        for train, held in split:
            ranker = rs.LinearRanker("diverse_nDCG@3", C=10.0)
            ranker.fit(X[train], y[train], qid[train], diversity_groups=hosts[train])
            expected.append(ranker.score(X[held], y[held], qid[held], diversity_groups=hosts[held]))
        assert search.cv_results_["mean_test_score"][1] == pytest.approx(np.mean(expected))
        with pytest.raises(ValueError, match="needs diversity_groups="):
            search.fit(X, y, qid=qid, groups=qid)


def test_what_is_refused():
    X, y, qid, hosts = make()
    diverse = rs.LinearRanker(loss=rs.StructuredHingeLoss("diverse_nDCG@3"))
    held = {"X_valid": X, "y_valid": y, "qid_valid": qid}
    for options, message in (
        ({}, "StructuredHingeLoss needs diversity_groups=, one id per document"),
        (
            {"diversity_groups": hosts[:-1]},
            r"diversity_groups must have one entry per document, shape \(135,\); got \(134,\)",
        ),
        ({"diversity_groups": [None, *hosts[1:]]}, "diversity_groups must not be missing; that of document 0 is"),
        ({"diversity_groups": hosts, **held}, "diverse_nDCG@3 needs diversity_groups_valid="),
        (
            {"diversity_groups": hosts, "diversity_groups_valid": hosts},
            "diversity_groups_valid needs X_valid, y_valid and qid_valid",
        ),
        (
            {"diversity_groups": hosts, "diversity_groups_valid": hosts[1:], **held},
            r"diversity_groups must have one entry per document.*\(134,\)",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            diverse.fit(X, y, qid, **options)
    diverse.fit(X, y, qid, diversity_groups=hosts)
    with pytest.raises(ValueError, match="diverse_nDCG@3 needs diversity_groups="):
        diverse.score(X, y, qid)
    with pytest.raises(ValueError, match="StructuredHingeLoss needs diversity_groups="):
        diverse.mean_loss(diverse.coef_, X, y, qid)
    with pytest.raises(ValueError, match="diverse rankings require"):
        rs.LinearRanker("diverse_AP@3").fit(X, y, qid, diversity_groups=hosts)
