"""SoftRank against coins and Gaussians that are drawn, its limit, its distribution and its gradient."""

import math
from functools import partial

import pytest
import torch

import rankstruct as rs
from rankstruct.kernels.soft_rank import soft_rank as soft_rank_loop
from rankstruct.lists import Lists
from rankstruct.losses import soft_rank

MEASURES = ["nDCG", "nDCG@3", "DCG@2", "P@2", "WTA", "ERU(d=0,half_life=2)"]
MODELS = ["binomial", "normal", "joint"]
DRAWS = [pytest.param(20_000, id="few"), pytest.param(300_000, id="many", marks=pytest.mark.soak)]


def draw(n=7, lists=4, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, n, generator=generator, dtype=dtype)
    labels = torch.randint(0, 7, (lists, n), generator=generator) / 2
    return scores, labels, torch.rand(lists, n, generator=generator) < 0.8


def coins(scores, sigma, count, generator):
    """Ranks from 0, `[count, n]`: each document meets each other one, the noise of both drawn anew."""
    n = len(scores)
    ranks = torch.zeros(count, n, dtype=torch.int64)
    for j in range(n):
        for i in range(n):
            noise = sigma * torch.randn(2, count, generator=generator, dtype=torch.float64)
            ranks[:, j] += (scores[i] + noise[0] > scores[j] + noise[1]) if i != j else 0
    return ranks


def gaussians(scores, sigma, count, generator):
    """Ranks from 0, `[count, n]`, of scores with noise."""
    noisy = scores + sigma * torch.randn(count, len(scores), generator=generator, dtype=torch.float64)
    return (-noisy).argsort(-1).argsort(-1)


@pytest.mark.parametrize("count", DRAWS)
@pytest.mark.parametrize(("model", "drawn"), [("binomial", coins), ("joint", gaussians)])
def test_value_and_gradient_are_those_of_what_is_drawn(model, drawn, count):
    """The gradient from the differences of two scores a step apart, drawn with the same noise."""
    for n, sigma in ((2, 0.5), (5, 1.0), (8, 0.3)):
        scores, labels, _ = draw(n, lists=1, seed=n)
        scores, gains = scores[0], 2 ** labels[0] - 1
        discounts = 1 / torch.log2(2 + torch.arange(n, dtype=torch.float64))
        best = (gains.sort(descending=True).values * discounts).sum()

        def regrets(scores, gains=gains, discounts=discounts, best=best, sigma=sigma):
            ranks = drawn(scores, sigma, count, torch.Generator().manual_seed(3))
            return 1 - (discounts[ranks] * gains).sum(-1) / best

        each = regrets(scores)
        leaf = scores.clone().requires_grad_()
        loss = rs.SoftRankLoss("nDCG", sigma=sigma, ranks=model)
        value = loss(leaf, labels[0])
        value.backward()
        assert abs(value.item() - each.mean().item()) < 5 * each.std().item() / math.sqrt(count)
        for i in range(min(n, 3)):
            step = torch.zeros(n, dtype=torch.float64)
            step[i] = 0.3 * sigma
            apart = regrets(scores + step) - regrets(scores - step)
            high, low = (loss(scores + sign * step, labels[0]) for sign in (1, -1))
            assert abs((high - low).item() - apart.mean().item()) < 5 * apart.std().item() / math.sqrt(count)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_ranks_of_a_document_add_up_to_1(model, dtype):
    scores, _, where = draw(9, dtype=dtype)
    for given, sigma in ((scores, 0.5), (scores.round(), 1e-3), (scores, 50.0)):
        found = rs.losses.rank_distribution(given, where, sigma=sigma, ranks=model)
        assert found.dtype == dtype
        assert (found > -1e-6).all()
        torch.testing.assert_close(found.sum(-1), where.to(dtype))
        beyond = torch.arange(9) >= where.sum(-1, keepdim=True)
        assert (found[beyond.unsqueeze(-2).expand(found.shape)] == 0).all()
        torch.testing.assert_close(
            rs.losses.rank_distribution(given, where, sigma=sigma, ranks=model, k=4), found[..., :4]
        )
        if model == "joint":  # some document is at each rank
            torch.testing.assert_close(found.sum(-2), (~beyond).to(dtype), atol=1e-3, rtol=0)


def test_long_lists_are_nearly_normal():
    scores, labels, _ = draw(300, seed=5)
    binomial, normal = (rs.SoftRankLoss(ranks=each)(scores, labels) for each in ("binomial", "normal"))
    assert abs(binomial - normal) < 0.01 * binomial


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("model", MODELS)
def test_tends_to_the_measure(measure, model):
    scores, labels, where = draw(12, lists=20)
    labels = labels.floor()
    if model == "joint":
        scores[10:] = (2 * scores[10:]).round() / 2  # ties: expected values
    parsed = rs.parse_measure(measure)
    regret = parsed.best_value(labels, where) - rs.evaluate(scores, labels, [measure], where=where)[parsed.name]
    wide, narrow = (
        (rs.SoftRankLoss(measure, sigma=s, ranks=model, reduction="none")(scores, labels, where=where) - regret)
        .abs()
        .max()
        for s in (1.0, 1e-5)
    )
    assert narrow < 1e-3 < 1e-2 < wide
    assert model == "joint" or narrow < 1e-9


@pytest.mark.parametrize("measure", MEASURES)
def test_gradient_and_second_derivative(measure):
    scores, labels, where = draw(6, lists=3)
    scores.requires_grad_()
    for model in MODELS:
        loss = partial(rs.SoftRankLoss(measure, sigma=0.7, ranks=model, reduction="none"), labels=labels, where=where)
        assert torch.autograd.gradcheck(loss, scores)
        assert model == "joint" or torch.autograd.gradgradcheck(loss, scores)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 20])
def test_products_and_the_operator_are_one(k):
    scores, _, where = draw(11, seed=k)
    above, below = soft_rank._chances(scores, where, soft_rank._all_rows(scores), "binomial")
    weights = torch.randn(k, dtype=torch.float64)
    found = []
    for way in (soft_rank._counts, lambda a, b, k: soft_rank._up(a, b, k)[-1].squeeze(-2)):
        leaves = above.clone().requires_grad_(), below.clone().requires_grad_()
        value = way(*leaves, k) @ weights
        found.append((value, *torch.autograd.grad(value.sum(), leaves)))
    torch.testing.assert_close(*found)


def dense(scores, gains, where, discounts, k, model):
    """sum_j b_j sum_r p_j(r) a_r and its gradient, by tensors `[..., n, n]`."""
    leaf = scores.double().requires_grad_()
    chances = soft_rank._distribution(leaf, where, soft_rank._all_rows(leaf), k, model)
    value = (chances @ discounts[:k] * gains).sum(-1)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("model", MODELS)
def test_the_loop_is_what_dense_tensors_say(model, dtype):
    """Of lists of many lengths, near and far scores, ties, gains that are few and far apart, padding that holds anything."""
    generator = torch.Generator().manual_seed(5)
    for n, scale in ((1, 1.0), (2, 0.1), (9, 100.0), (17, 2.0), (60, 0.5), (60, 5.0), (150, 30.0)):
        if model == "joint" and n > 60:
            continue
        scores = scale * torch.randn(5, n, generator=generator, dtype=dtype)
        scores[3] = scores[3].round()
        where = torch.rand(5, n, generator=generator) < 0.8
        where[0], where[1] = True, False
        gains = torch.randint(0, 3, (5, n), generator=generator).double()
        gains[2] *= torch.rand(n, generator=generator) < 0.1
        gains = torch.where(where, gains, 0.0)
        discounts = torch.rand(n, generator=generator, dtype=torch.float64).sort(descending=True).values
        for k in sorted({1, min(3, n), n}):
            best = (gains.sort(-1, descending=True).values[:, :k] * discounts[:k]).sum(-1)
            held = torch.where(where, scores, torch.nan), Lists(torch.where(where, gains, torch.nan), where)
            value, direction = soft_rank_loop(*held, 0.0, discounts, k, False, 1.0, model)[1:]
            expected, gradient = dense(torch.where(where, scores, 0.0), gains, where, discounts, k, model)
            # Where no ranking can be wrong all have the same value.
            can_err = value != 0
            wide = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.0, "atol": 1e-11}
            torch.testing.assert_close(value.double(), torch.where(can_err, best - expected, 0.0), **wide)
            torch.testing.assert_close(direction.double(), torch.where(can_err[:, None], -gradient, 0.0), **wide)
            assert ((best - expected)[~can_err].abs() < 1e-9).all()


@pytest.mark.parametrize("model", [pytest.param("binomial", marks=pytest.mark.soak), "normal"])
def test_a_long_list_and_documents_far_apart(model):
    """More ranks between the documents of a group than the loop supports, and probabilities that are neglected."""
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(1, 700, generator=generator, dtype=torch.float64)
    gains = torch.zeros(1, 700, dtype=torch.float64)
    gains[0, scores[0].argsort()[::90]] = 1 + torch.rand(8, generator=generator, dtype=torch.float64)
    where, discounts = torch.ones(1, 700) > 0, 1 / torch.arange(2, 702, dtype=torch.float64).log2()
    for k in (10, 700):
        given = scores, Lists(gains, where), 0.0, discounts, k, False, 1.0, model
        value, direction = soft_rank_loop(*given)[1:]
        expected, gradient = dense(scores, gains, where, discounts, k, model)
        best = (gains.sort(-1, descending=True).values[:, :k] * discounts[:k]).sum(-1)
        torch.testing.assert_close(value, best - expected, atol=1e-11, rtol=0)
        torch.testing.assert_close(direction, -gradient, atol=1e-11, rtol=0)


@pytest.mark.parametrize("model", MODELS)
def test_flat_and_weighted_lists_are_as_padded_ones(model):
    scores, labels, where = draw(30)
    weights = torch.rand(4, 30, generator=torch.Generator().manual_seed(2), dtype=torch.float64).round(decimals=1)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), where.sum(-1).cumsum(0)])
    loss = rs.SoftRankLoss("nDCG@5", ranks=model, reduction="none")
    for item_weights in (None, weights):
        padded, flat = scores.clone().requires_grad_(), scores[where].clone().requires_grad_()
        more = {} if item_weights is None else {"item_weights": item_weights}
        value = loss(padded, labels, where=where, **more)
        again = loss(flat, labels[where], offsets=offsets, **{key: each[where] for key, each in more.items()})
        torch.testing.assert_close(again, value)
        (slope,) = torch.autograd.grad(value.sum(), padded)
        (flat_slope,) = torch.autograd.grad(again.sum(), flat)
        torch.testing.assert_close(flat_slope, slope[where])


def test_blocks_have_the_same_gradient(monkeypatch):
    scores, labels, where = draw(20)
    scores.requires_grad_()
    for model in MODELS:
        loss = rs.SoftRankLoss("nDCG", ranks=model)
        (whole,) = torch.autograd.grad(loss(scores, labels, where=where), scores)
        for block in (soft_rank._BLOCK, 200):
            with monkeypatch.context() as patch:
                patch.setattr(soft_rank, "_BLOCK", block)
                (blocks,) = torch.autograd.grad(loss(scores, labels, where=where), scores, create_graph=True)
            torch.testing.assert_close(blocks.detach(), whole)


@pytest.mark.parametrize("ranks", ["binomial", "normal", "joint"])
@pytest.mark.parametrize("sigma", [1e-9, 1e-16, 1e-18, 1e-30])
def test_a_tiny_sigma_leaves_the_measure(ranks, sigma):
    scores, labels = torch.tensor([[4.0, 3, 2, 1, 0]]), torch.tensor([[0, 1, 0, 2, 0]])
    loss = rs.SoftRankLoss("nDCG", sigma=sigma, ranks=ranks)(scores.double(), labels)
    assert abs(loss - (1 - float(rs.evaluate(scores, labels, "nDCG")["nDCG"]))) < (0.03 if ranks == "normal" else 1e-6)


def test_where_all_scores_tie_the_gradient_goes_up_with_the_label():
    scores = torch.full((1, 5), 3.0, requires_grad=True)
    rs.SoftRankLoss("nDCG")(scores, torch.tensor([[0, 1, 2, 0, 0]])).backward()
    assert scores.grad[0, 2] < scores.grad[0, 1] < 0 < scores.grad[0, 0]


def test_one_document_and_nothing_relevant_cost_nothing():
    for model in MODELS:
        loss = rs.SoftRankLoss("nDCG@2", ranks=model)
        assert loss(torch.tensor([[0.3]]), torch.tensor([[2]])) == 0
        assert loss(torch.tensor([[0.3, 0.1, 2.0]]), torch.tensor([[0, 0, 0]])) == 0


def test_sigma_is_saved_and_what_is_refused():
    loss, other = rs.SoftRankLoss(sigma=0.25), rs.SoftRankLoss("nDCG@10")
    other.load_state_dict(loss.state_dict())
    assert other.sigma == 0.25
    assert repr(rs.SoftRankLoss("P@3", ranks="normal").with_sigma(0.5)) == (
        "SoftRankLoss(P@3, sigma=0.5, ranks=normal, reduction=mean)"
    )
    with pytest.raises(ValueError, match="AP is not a discounted gain"):
        rs.SoftRankLoss("AP")
    with pytest.raises(ValueError, match="sigma must be a finite number above 0, got 0"):
        rs.SoftRankLoss(sigma=0)
    with pytest.raises(ValueError, match="ranks must be one of 'binomial', 'normal', 'joint', got 'gauss'"):
        rs.SoftRankLoss(ranks="gauss")


def test_linear_ranker_anneals_it():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(300, 4, generator=generator, dtype=torch.float64).numpy()
    y, qid = (X[:, 0] > 1).astype(int), torch.arange(300).numpy() // 15
    ranker = rs.LinearRanker("nDCG@5", loss=rs.SoftRankLoss("nDCG@5"), C=10.0).fit(X, y, qid)
    assert ranker.score(X, y, qid) > 0.94  # a list has nothing relevant
    assert ranker.objective(ranker.coef_, X, y, qid) == pytest.approx(ranker.solution_.objective)
