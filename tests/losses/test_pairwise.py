"""Pairwise losses against loops over all pairs."""

import math

import numpy as np
import pytest
import torch
from brute_force import ranksvm_by_loop
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import rankstruct as rs


def pairs(labels):
    return [(i, j) for i in range(len(labels)) for j in range(len(labels)) if labels[i] > labels[j]]


def logistic(x):
    return math.log1p(math.exp(-x)) if x > 0 else -x + math.log1p(math.exp(x))


@settings(deadline=None, max_examples=300)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1, 2, 3, 5, 17, 31, 32, 33, 60]),
    grades=st.sampled_from([1, 2, 3, 6, 100]),
    scale=st.sampled_from([2.0**-17, 1.0, 2.0**13]),
    step=st.sampled_from([1.0, 0.125, 2.0**-40]),  # powers of 2, so that differences are exact
    margin=st.sampled_from([0.25, 1.0, 3.0]),
)
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_ranksvm_equals_the_loop_over_pairs(seed, size, grades, scale, step, margin):
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=(3, size)) / step) * step * scale
    labels = rng.integers(0, grades, size=(3, size)) + rng.choice([0.0, 0.5])
    where = rng.random((3, size)) < rng.choice([0.7, 1.0])
    given, lists = torch.tensor(scores, requires_grad=True), {"where": torch.tensor(where)}
    found = rs.RankSVMLoss(margin, reduction="none")(given, torch.tensor(labels), **lists)
    found.sum().backward()
    assert (found >= 0).all()
    for row in range(3):
        real, its = where[row], given.grad[row].numpy()
        expected, gradient = ranksvm_by_loop(scores[row, real], labels[row, real], margin)
        assert found[row].item() == pytest.approx(expected, abs=1e-9 * max(1, scale), rel=1e-9)
        np.testing.assert_allclose(its[real], gradient, atol=1e-12)
        assert (its[~real] == 0).all()


def test_ranksvm_is_half_of_the_structured_hinge_of_auc():
    torch.manual_seed(0)
    scores, labels = torch.randn(5, 200, dtype=torch.float64), torch.randint(0, 2, (5, 200))
    found = 2 * rs.RankSVMLoss(margin=0.5)(scores, labels)
    torch.testing.assert_close(found, rs.StructuredHingeLoss("AUC")(scores, labels))


def test_ranksvm_does_not_depend_on_threads():
    torch.manual_seed(0)
    scores, labels = torch.randn(40, 2000), torch.randint(0, 5, (40, 2000))
    before, loss = torch.get_num_threads(), rs.RankSVMLoss(reduction="none")
    try:
        torch.set_num_threads(1)
        one = loss(scores, labels)
        torch.set_num_threads(3)
        assert torch.equal(loss(scores, labels), one)
    finally:
        torch.set_num_threads(before)


def test_ranksvm_operator_passes_torch_own_checks():
    scores, labels = torch.randn(3, 7), torch.randint(0, 3, (3, 7)).float()
    where = torch.rand(3, 7) < 0.8
    for item_weights in (None, torch.rand(3, 7).double() + 0.1):
        lists = scores, labels, where, None, None, None, item_weights
        torch.library.opcheck(torch.ops.rankstruct.pairwise_hinge.default, (*lists, 0.0, 1.0))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_ranknet_equals_its_definition(sigma):
    torch.manual_seed(0)
    scores, labels = torch.randn(4, 9, dtype=torch.float64), torch.randint(0, 4, (4, 9))
    found = rs.RankNetLoss(sigma, reduction="none")(scores, labels)
    for row in range(4):
        s, y = scores[row].tolist(), labels[row].tolist()
        each = [logistic(sigma * (s[i] - s[j])) for i, j in pairs(y)]
        assert found[row].item() == pytest.approx(sum(each) / len(each), rel=1e-12)


def lambda_by_loop(s, y, scheme, sigma, mu, cutoff):
    def plain(rank):
        return 1 / math.log2(1 + rank)

    def discount(rank):
        return plain(rank) if cutoff is None or rank <= cutoff else 0.0

    n = len(s)
    best = sum((2**label - 1) * discount(r + 1) for r, label in enumerate(sorted(y, reverse=True)))
    gain = [(2**label - 1) / best for label in y]
    rank = [1 + sum(other > own for other in s) for own in s]
    total = 0.0
    for i in range(n):
        for j in range(n):
            cost = logistic(sigma * (s[i] - s[j])) / math.log(2)
            if scheme == "ndcg1":
                total += (i != j) * gain[i] * discount(rank[i]) * cost
                continue
            if y[i] <= y[j]:
                continue
            rho = abs(discount(rank[i]) - discount(rank[j]))
            apart = abs(rank[i] - rank[j])
            delta = plain(apart) - plain(apart + 1)
            if cutoff is not None and min(rank[i], rank[j]) > cutoff:
                delta = 0.0
            swap = {"lambdarank": rho, "ndcg2": delta, "ndcg2++": rho + mu * delta}[scheme]
            total += (gain[i] - gain[j]) * swap * cost
    return total


@pytest.mark.parametrize("scheme", ["ndcg1", "ndcg2", "ndcg2++", "lambdarank"])
@pytest.mark.parametrize("cutoff", [None, 1, 3])
def test_lambda_loss_equals_its_definition(scheme, cutoff):
    torch.manual_seed(1)
    scores, labels = torch.randn(6, 8, dtype=torch.float64), torch.randint(0, 4, (6, 8))
    loss = rs.LambdaLoss(rs.nDCG(cutoff), scheme=scheme, sigma=1.5, mu=4.0, reduction="none")
    found = loss(scores, labels)
    for row in range(6):
        expected = lambda_by_loop(scores[row].tolist(), labels[row].tolist(), scheme, 1.5, 4.0, cutoff)
        assert found[row].item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("scheme", ["ndcg1", "ndcg2"])
def test_lambda_loss_bounds_ndcg(scheme):
    torch.manual_seed(2)
    scores, labels = torch.randn(300, 7, dtype=torch.float64), torch.randint(0, 3, (300, 7))
    labels[:, 0] = 2
    found = rs.LambdaLoss(scheme=scheme, sigma=4.0, reduction="none")(scores, labels)
    assert (found >= 1 - rs.evaluate(scores, labels, ["nDCG"])["nDCG"] - 1e-12)[(labels != 2).any(-1)].all()


def test_lambda_loss_ranks_equal_scores_in_input_order():
    labels, loss = torch.tensor([0, 2, 1, 0]), rs.LambdaLoss(scheme="lambdarank")
    tied = loss(torch.zeros(4, dtype=torch.float64), labels)
    apart = loss(torch.tensor([3, 2, 1, 0], dtype=torch.float64) * 1e-9, labels)
    assert tied.item() == pytest.approx(apart.item(), rel=1e-6)


def test_options_are_checked():
    with pytest.raises(ValueError, match="margin must be a finite number above 0, got 0"):
        rs.RankSVMLoss(margin=0)
    with pytest.raises(ValueError, match="sigma must be a finite number, got nan"):
        rs.RankNetLoss(sigma=math.nan)
    with pytest.raises(ValueError, match=r"scheme must be one of 'ndcg1', 'ndcg2', .* got 'ndcg3'"):
        rs.LambdaLoss(scheme="ndcg3")
    with pytest.raises(ValueError, match="LambdaLoss requires nDCG or another normalised discounted gain, got AP"):
        rs.LambdaLoss("AP")
    with pytest.raises(ValueError, match=r"labels must be 0 or more .*; that of document 1 is -1"):
        rs.LambdaLoss()(torch.zeros(2), torch.tensor([1, -1]))


@pytest.mark.parametrize("scheme", ["uniform", "ndcg1", "ndcg2", "ndcg2++", "lambdarank"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_compiled_loops_have_the_value_and_the_gradients_of_all_pairs(scheme, dtype):
    """Lists of any length, padded and flat, scores that tie or are far apart, labels with fractions, a second derivative."""
    for size, spread, cutoff in (
        (1, 1.0, None),
        (2, 1.0, 1),
        (9, 0.0, 3),
        (30, 3.0, None),
        (70, 100.0, 10),
        (300, 1000.0, None),
    ):
        scores = (torch.randn(6, size) * spread).round(decimals=1).to(dtype).requires_grad_()
        labels = torch.randint(0, 7, (6, size)) / 2
        labels[0] = 1.5
        where = torch.rand(6, size) < 0.8
        where[1] = False
        if scheme == "uniform":
            loss = rs.RankNetLoss(sigma=0.7, reduction="none")
        else:
            loss = rs.LambdaLoss(rs.nDCG(cutoff), scheme, sigma=0.7, mu=3.0, reduction="none")
        weights = torch.rand(6, dtype=dtype)
        found = loss(scores, labels, where=where)
        (slope,) = torch.autograd.grad(found, scores, weights, create_graph=True)
        (plain,) = torch.autograd.grad(loss(scores, labels, where=where), scores, weights)
        # vmap goes through all pairs.
        dense = torch.vmap(lambda s, y, w, loss=loss: loss(s, y, where=w))(scores, labels, where)
        (expected,) = torch.autograd.grad(dense, scores, weights, create_graph=True)
        tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-8, "atol": 1e-9}
        for got, wanted in ((found, dense), (plain, expected), (slope, expected)):
            torch.testing.assert_close(got, wanted, **tolerance)
        if size > 1 and dtype == torch.float64:
            bends = [torch.autograd.grad(each, scores, scores.detach().cos())[0] for each in (slope, expected)]
            torch.testing.assert_close(*bends, **tolerance)

        offsets = torch.cat([torch.zeros(1, dtype=torch.long), where.sum(-1).cumsum(0)])
        flat = scores.detach()[where].requires_grad_()
        from_flat = loss(flat, labels[where], offsets=offsets)
        torch.testing.assert_close(from_flat, found, **tolerance)
        torch.testing.assert_close(torch.autograd.grad(from_flat, flat, weights)[0], plain[where], **tolerance)


def by_definition_of_pairs(scores, labels, cost, weight=lambda high, low: 1.0):
    """The mean over the pairs of one list, with loops."""
    n, total, count = len(scores), 0.0, 0
    for i in range(n):
        for j in range(n):
            if labels[i] > labels[j]:
                total += weight(labels[i], labels[j]) * cost(scores[i] - scores[j])
                count += 1
    return total / max(count, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_fidelity_and_weighted_grades_equal_their_definitions(dtype):
    pairs = {(2.5, 0.0): 0.7, (1.0, 0.0): 0.2, (2.5, 1.0): 0.0}

    def fidelity(difference):
        chance = 1 / (1 + math.exp(-0.6 * difference))
        return 1 - math.sqrt(1.0 * chance) - math.sqrt((1 - 1.0) * (1 - chance))

    generator = torch.Generator().manual_seed(2)
    weighted = rs.RankSVMLoss(0.8, [(*grades, weight) for grades, weight in pairs.items()], reduction="none")
    for n in (1, 2, 5, 9):
        scores = 2 * torch.randn(5, n, generator=generator, dtype=dtype)
        scores[1] = scores[1].round()
        labels = torch.tensor([0.0, 1.0, 2.5, 4.0])[torch.randint(0, 4, (5, n), generator=generator)]
        for loss, cost, weight in (
            (rs.FidelityLoss(0.6, reduction="none"), fidelity, lambda high, low: 1.0),
            (weighted, lambda difference: max(0.0, 0.8 - difference), lambda high, low: pairs.get((high, low), 0.0)),
        ):
            found = loss(scores, labels)
            for row in range(5):
                expected = by_definition_of_pairs(scores[row].tolist(), labels[row].tolist(), cost, weight)
                assert found[row].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("item_weights", [False, True])
def test_ordered_pairs_that_are_looked_up_cost_what_all_pairs_do(dtype, item_weights):
    """Under torch.func nothing is looked up: all n x n are taken."""
    scores = torch.randn(3, 9, dtype=dtype)
    labels = torch.tensor([[2, 0, 1.5, 0, 1.5, 2, 0, 0.5, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1], [0, 2, 2, 1, 0, 1, 2, 0, 1]])
    where = torch.ones_like(labels, dtype=torch.bool)
    where[0, 6:] = False
    more = {"item_weights": torch.rand(3, 9) + 0.1} if item_weights else {}
    for loss in (
        rs.FidelityLoss(0.6, reduction="none"),
        rs.RankSVMLoss(pair_weights=[(2, 0, 1.0), (1.5, 0, 0.3)], reduction="none"),
        rs.LambdaLoss(scheme="uniform", surrogate="zero-one", reduction="none"),
    ):

        def total(scores, loss=loss):
            values = loss(scores, labels, where=where, **more)
            return values.sum(), values

        slow, expected = torch.func.grad(total, has_aux=True)(scores)
        leaf = scores.clone().requires_grad_()
        value, values = total(leaf)
        assert values.dtype == dtype
        torch.testing.assert_close(values, expected)
        torch.testing.assert_close(torch.autograd.grad(value, leaf)[0], slow)


def test_equal_weights_of_all_grades_are_ranksvm():
    scores, labels = torch.randn(4, 12, dtype=torch.float64), torch.randint(0, 3, (4, 12))
    same = rs.RankSVMLoss(pair_weights=[(2, 0, 1), (2, 1, 1), (1, 0, 1)])
    torch.testing.assert_close(same(scores, labels), rs.RankSVMLoss()(scores, labels))


def test_weights_of_grades_are_what_swaps_of_a_perfect_ranking_lose():
    labels, offsets = torch.tensor([2, 0, 1, 0, 1, 0, 3, 1, 1, 0, 0]), torch.tensor([0, 6, 9, 11])
    for measure in ("nDCG", "nDCG@3"):
        lost = {}
        for first, last in offsets.unfold(0, 2, 1).tolist():
            ranked = labels[first:last].sort(descending=True).values
            scores = -torch.arange(len(ranked), dtype=torch.float64)
            best = rs.evaluate(scores, ranked, [measure])[rs.parse_measure(measure).name]
            each = {}
            for i in range(len(ranked)):
                for j in range(i + 1, len(ranked)):
                    if ranked[i] > ranked[j]:
                        swapped = scores.clone()
                        swapped[[i, j]] = scores[[j, i]]
                        value = rs.evaluate(swapped, ranked, [measure])[rs.parse_measure(measure).name]
                        each.setdefault((float(ranked[i]), float(ranked[j])), []).append(float(best - value))
            for pair, values in each.items():
                lost.setdefault(pair, []).append(sum(values) / len(values))
        found = rs.losses.grade_pair_weights(labels, offsets, measure)
        assert [each[:2] for each in found] == sorted(lost)
        for high, low, weight in found:
            assert weight == pytest.approx(sum(lost[high, low]) / len(lost[high, low]), abs=1e-6)


def test_svm_ir_by_the_bundle_method_is_the_optimum_of_its_quadratic_program():
    """min |w|^2 / 2 + C sum_p c_p xi_p over pairs p: its dual is a box-constrained quadratic program, solved by L-BFGS-B."""
    generator = np.random.default_rng(0)
    X, y, qid = generator.normal(size=(18, 3)), np.array([0, 1, 2, 0, 1, 0] * 3), np.repeat([0, 1, 2], 6)
    pairs, C = [(2.0, 0.0, 1.0), (2.0, 1.0, 0.4), (1.0, 0.0, 0.2)], 5.0
    loss = rs.RankSVMLoss(pair_weights=pairs)
    ranker = rs.LinearRanker(loss=loss, C=C, tolerance=1e-6, prepare=()).fit(X, y, qid)
    weights, rows, costs = {each[:2]: each[2] for each in pairs}, [], []
    for query in range(3):
        own = [(i, j) for i in range(18) for j in range(18) if qid[i] == qid[j] == query and y[i] > y[j]]
        rows += [X[i] - X[j] for i, j in own]
        costs += [C / 3 * weights[float(y[i]), float(y[j])] / len(own) for i, j in own]
    D, bounds = np.array(rows), [(0.0, cost) for cost in costs]

    def dual(a):
        w = D.T @ a
        return w @ w / 2 - a.sum(), D @ w - 1

    best = minimize(dual, np.zeros(len(D)), jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15})
    assert ranker.solution_.objective * C == pytest.approx(-best.fun, rel=1e-4)


@pytest.mark.parametrize(
    "pairs", [[(0, 1, 1.0)], [(1, 0, -1.0)], [(1, 0)], [(1, 0, 1.0), (1, 0, 2.0)], [(1, 0, math.inf)]]
)
def test_weights_of_grades_are_checked(pairs):
    with pytest.raises(ValueError, match="pair_weights must"):
        rs.RankSVMLoss(pair_weights=pairs)
