"""Plackett-Luce policies against the enumeration of all rankings."""

import copy
import itertools
import math
import pickle
from functools import partial

import pytest
import torch
from brute_force import probability

import rankstruct as rs
from rankstruct.losses import plackett_luce


def enumerated(scores, worth, rewards):
    """E sum_i a_i b_y(i) over all rankings of the first len(worth) ranks."""
    orders = itertools.permutations(range(len(scores)), len(worth))
    return sum(
        probability(order, scores) * sum(a * rewards[d] for a, d in zip(worth, order, strict=True)) for order in orders
    )


def slope(scores, worth, rewards):
    """The gradient of `enumerated`."""
    leaf = scores.clone().requires_grad_()
    return torch.autograd.grad(enumerated(leaf, worth, rewards), leaf)[0]


CASES = [
    pytest.param(size, k, scale, marks=pytest.mark.soak if size == 5 else ())
    for size in (1, 2, 3, 4, 5)
    for k in range(1, size + 1)
    for scale in (0.3, 2.0, 20.0)
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("size", "k", "scale"), CASES)
def test_the_estimate_equals_the_gradient_in_expectation(size, k, scale, monkeypatch):
    """The mean over all rankings, by their probabilities; rewards of both signs, padding that holds anything."""
    generator = torch.Generator().manual_seed(100 * size + k)
    scores = scale * torch.randn(size, generator=generator, dtype=torch.float64)
    rewards = torch.randn(size, generator=generator, dtype=torch.float64)
    worth = torch.tensor([1 / math.log2(2 + i) for i in range(k)], dtype=torch.float64)
    leaf = scores.clone().requires_grad_()
    value = enumerated(leaf, worth.tolist(), rewards.tolist())
    (exact,) = torch.autograd.grad(value, leaf, create_graph=True)
    curvature = torch.stack([torch.autograd.grad(exact[d], leaf, retain_graph=True)[0][d] for d in range(size)])
    for document in range(size):
        step = torch.zeros(size, dtype=torch.float64)
        step[document] = 1e-6
        ends = [enumerated(scores + sign * step, worth.tolist(), rewards.tolist()) for sign in (1, -1)]
        assert exact[document].item() == pytest.approx((ends[0] - ends[1]).item() / 2e-6, abs=1e-8)
        ends = [slope(scores + 100 * sign * step, worth.tolist(), rewards.tolist())[document] for sign in (1, -1)]
        assert curvature[document].item() == pytest.approx((ends[0] - ends[1]).item() / 2e-4, abs=1e-7)

    orders = torch.tensor(list(itertools.permutations(range(size), k)))
    chances = torch.stack([probability(order, scores) for order in orders.tolist()])
    padded = torch.cat([torch.tensor([math.nan], dtype=torch.float64), scores])
    where = torch.arange(size + 1) > 0
    given = worth, torch.cat([torch.zeros(1, dtype=torch.float64), rewards])
    for name, wanted in (("gradient", exact.detach()), ("curvature", curvature)):
        estimate = getattr(plackett_luce, f"pl_rank_{name}")
        loops = (
            getattr(plackett_luce, f"policy_{name}"),
            lambda *given: None,
        )  # the compiled sums, and those in logarithms
        for loop in loops:
            monkeypatch.setattr(plackett_luce, f"policy_{name}", loop)
            each = torch.stack([estimate(padded, where, order.unsqueeze(0) + 1, *given) for order in orders])
            assert (each[:, 0] == 0).all()
            torch.testing.assert_close((chances.unsqueeze(-1) * each[:, 1:]).sum(0), wanted)
            torch.testing.assert_close(estimate(padded, where, orders + 1, *given), each.mean(0))


def test_scores_far_apart_do_not_overflow():
    scores = torch.tensor([1e4, -1e4, 0.0, 3e38, -1e300], dtype=torch.float64)
    for order in itertools.permutations(range(5), 4):
        drawn = torch.ones(5) > 0, torch.tensor([order]), torch.ones(4), torch.tensor([1.0, -2.0, 3.0, 0.0, 1.0])
        for estimate in (plackett_luce.pl_rank_gradient, plackett_luce.pl_rank_curvature):
            assert estimate(scores, *drawn).isfinite().all()
            # In float64 both the loops and the sums in logarithms hold what is near enough.
            assert estimate(scores.clamp(-90, 90), *drawn).isfinite().all()


@pytest.mark.parametrize("k", [1, 3, 32, 40, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_drawn_ranking_is_that_of_the_noise(k, dtype, monkeypatch):
    """The compiled loop and the sort of noisy scores, of padded lists, of ties, of several threads."""
    monkeypatch.setattr(plackett_luce, "_FEW", 0)
    generator = torch.Generator().manual_seed(k)
    scores = torch.randn(3, 7, 50, generator=generator, dtype=dtype).round(decimals=1)
    where = torch.rand(3, 7, 50, generator=generator) < 0.8
    where[0, 0], where[0, 1, 1:] = False, False
    scores = torch.where(where, scores, torch.nan)
    given = {"samples": 400, "k": k}
    torch.manual_seed(1)
    found = rs.losses.sample_rankings(scores, where, **given)
    monkeypatch.setattr(plackett_luce, "draw_rankings", lambda *given: None)
    torch.manual_seed(1)
    sorted_ = rs.losses.sample_rankings(scores, where, **given)
    real = where.expand(400, -1, -1, -1)
    listed = real.gather(-1, sorted_)
    assert torch.equal(real.gather(-1, found), listed)
    assert torch.equal(found[listed], sorted_[listed])
    assert torch.equal(found.sort(-1).values.diff(dim=-1) > 0, torch.ones_like(found[..., 1:]) > 0)  # each once


@pytest.mark.parametrize("name", ["gradient", "curvature"])
def test_the_compiled_derivatives_are_those_in_logarithms(name, monkeypatch):
    estimate = getattr(plackett_luce, f"pl_rank_{name}")
    generator = torch.Generator().manual_seed(0)
    for size, k, samples in ((1, 1, 3), (9, 4, 2), (60, 60, 5), (300, 10, 40)):
        scores = 3 * torch.randn(8, size, generator=generator)
        where = torch.rand(8, size, generator=generator) < 0.7
        where[0], where[1, 1:] = False, False
        scores, rewards = torch.where(where, scores, torch.nan), torch.randn(8, size, generator=generator)
        rewards = torch.where(where, rewards, 0.0)
        placed = rs.losses.sample_rankings(scores, where, samples=samples, k=k)
        worth = torch.where(torch.arange(k) < where.sum(-1, keepdim=True), 1 / torch.arange(2, k + 2).log2(), 0.0)
        given = scores, where, placed, worth, rewards
        compiled = estimate(*given)
        assert (compiled[~where] == 0).all()
        with monkeypatch.context() as patched:
            patched.setattr(plackett_luce, f"policy_{name}", lambda *given: None)
            torch.testing.assert_close(compiled, estimate(*given))


@pytest.mark.parametrize(("size", "k"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (7, 1), (9, 1)])
def test_few_ranks_are_drawn_by_their_chances(size, k):
    """Of numbers spread evenly each ranking gets its share; padding in other places, NaN there, takes none."""
    generator = torch.Generator().manual_seed(size)
    scores, points = 2 * torch.randn(size, generator=generator, dtype=torch.float64), 20_000 if k == 1 else 400
    grid = torch.cartesian_prod(*[(torch.arange(points, dtype=torch.float64) + 0.5) / points] * k).view(-1, k)
    places = torch.arange(size) * 2 + 1
    padded = torch.full((2 * size + 2,), torch.nan, dtype=torch.float64).scatter(0, places, scores)
    drawn = plackett_luce.draw_few_ranks(padded, ~padded.isnan(), grid)
    for order in itertools.permutations(range(size), k):
        share = (drawn == places[list(order)]).all(-1).double().mean().item()
        assert share == pytest.approx(probability(order, scores).item(), abs=3 * k / points)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 5, 25, 50])
def test_a_ranking_of_few_ranks_has_each_document_once_and_padding_last(k, dtype):
    generator = torch.Generator().manual_seed(k)
    scores = 30 * torch.randn(3, 7, 100, generator=generator, dtype=dtype)
    where = torch.rand(3, 7, 100, generator=generator) < 0.3
    where[0, 0], where[0, 1, 1:], where[0, 2] = False, False, True
    found = rs.losses.sample_rankings(torch.where(where, scores, torch.nan), where, samples=50, k=k)
    assert found.shape == (50, 3, 7, k)
    assert (found.sort(-1).values.diff(dim=-1) > 0).all()
    listed = where.expand(50, -1, -1, -1).gather(-1, found)
    assert (listed.sum(-1) == where.sum(-1).clamp(max=k)).all()
    assert (listed[..., 1:] <= listed[..., :-1]).all()
    most = torch.full((50, 3, 7, k), 1 - 2**-53, dtype=torch.float64)  # sums of which are rounded up
    ends = plackett_luce.draw_few_ranks(torch.where(where, scores / 30, torch.nan), where, most)
    assert (where.expand(50, -1, -1, -1).gather(-1, ends).sum(-1) == where.sum(-1).clamp(max=k)).all()
    assert (ends.sort(-1).values.diff(dim=-1) > 0).all()
    far = torch.linspace(0, 590, 100, dtype=torch.float64)  # as far apart as the loop goes: by score, all but surely
    assert (rs.losses.sample_rankings(far, samples=20, k=k) // 10 >= 9 - (torch.arange(k) + 5) // 10).all()


def test_rankings_are_drawn_as_often_as_the_policy_says():
    torch.manual_seed(0)
    scores = torch.tensor([0.5, -0.3, 1.0, 9.0])
    where = torch.tensor([True, True, True, False])
    drawn = rs.losses.sample_rankings(scores, where, samples=20_000)
    assert drawn.shape == (20_000, 4)
    assert (drawn[:, 3] == 3).all()
    for order in itertools.permutations(range(3)):
        share = (drawn[:, :3] == torch.tensor(order)).all(-1).double().mean()
        assert share.item() == pytest.approx(probability(order, scores[:3].double()).item(), abs=0.02)
    for k in (1, 2):
        firsts = rs.losses.sample_rankings(scores, where, samples=20_000, k=k)
        for order in itertools.permutations(range(3), k):
            share = (firsts == torch.tensor(order)).all(-1).double().mean()
            assert share.item() == pytest.approx(probability(order, scores[:3].double()).item(), abs=0.02)
    batch = rs.losses.sample_rankings(torch.randn(2, 3, 7), samples=5, k=4)
    assert batch.shape == (5, 2, 3, 4)
    assert rs.losses.sample_rankings(torch.zeros(2, 0), samples=3).shape == (3, 2, 0)


@pytest.mark.parametrize("measure", ["nDCG", "nDCG@2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradient_of_many_samples(measure, dtype):
    torch.manual_seed(0)
    scores, labels = torch.tensor([0.4, -0.2, 0.9, 0.1]), torch.tensor([2.0, 0.5, 0.0, 1.0])
    weights = torch.tensor([1.0, 2.0, 1.0, 0.5])
    leaf = scores.double().requires_grad_()
    worth = [1 / math.log2(2 + i) for i in range(4 if measure == "nDCG" else 2)]
    for item_weights in (None, weights):
        gains = (2**labels - 1) * (1 if item_weights is None else item_weights)
        best = sum(a * b for a, b in zip(worth, sorted(gains.tolist(), reverse=True), strict=False))
        exact = 1 - enumerated(leaf, worth, (gains.double() / best).tolist())
        (slope,) = torch.autograd.grad(exact, leaf)
        student = scores.clone().to(dtype).requires_grad_()
        value = rs.PLRankLoss(measure, samples=20_000)(student, labels, item_weights=item_weights)
        value.backward()
        assert value.dtype == student.grad.dtype == dtype
        assert value.item() == pytest.approx(exact.item(), abs=0.01)
        torch.testing.assert_close(student.grad.double(), slope, atol=0.01, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("measure", ["nDCG", "nDCG@2"])
def test_second_derivatives_of_many_samples(measure, dtype):
    """Lists of many lengths with fractional grades; one with a document, one without a difference."""
    torch.manual_seed(1)
    scores = torch.tensor([0.4, -0.2, 0.9, 0.1, 1.0, 0.3, 0.5, 0.0, 0.0, 2.0], dtype=dtype)
    labels = torch.tensor([2, 0.5, 0, 1, 1, 1, 1, 0, 1, 0], dtype=dtype)
    offsets = torch.tensor([0, 4, 5, 7, 10])
    found = rs.PLRankLoss(measure, samples=20_000).second_derivatives(scores, labels, offsets)
    assert found.dtype == dtype
    exact = torch.zeros(10, dtype=torch.float64)
    for first, last in ((0, 4), (7, 10)):
        worth = [1 / math.log2(2 + i) for i in range(last - first if measure == "nDCG" else 2)]
        gains = [2 ** float(y) - 1 for y in labels[first:last]]
        best = sum(a * b for a, b in zip(worth, sorted(gains, reverse=True), strict=False))

        def value(s, worth=worth, gains=gains, best=best):
            return 1 - enumerated(s, worth, [gain / best for gain in gains])

        exact[first:last] = torch.autograd.functional.hessian(value, scores[first:last].double()).diagonal()
    assert (exact < 0).any()
    torch.testing.assert_close(found.double(), exact, atol=0.01, rtol=0)
    assert (found[4:7] == 0).all()
    assert rs.losses.second_derivatives(rs.PLRankLoss(), scores[:0], labels[:0], offsets[:1]).shape == (0,)


def test_expected_exposure_of_padded_lists():
    torch.manual_seed(0)
    scores = torch.tensor([[0.4, 0.2, 0.9, math.nan], [0.0, math.nan, math.nan, math.nan]], dtype=torch.float64)
    where = ~scores.isnan()
    found = rs.losses.expected_exposure(scores, where, samples=20_000)
    worth = [1 / math.log2(2 + i) for i in range(3)]
    for document in range(3):
        exact = enumerated(scores[0, :3], worth, [float(d == document) for d in range(3)])
        assert found[0, document].item() == pytest.approx(exact.item(), abs=0.01)
    assert found[1].tolist() == [1, 0, 0, 0]
    assert found[0, 3] == 0
    leaf = scores.nan_to_num().requires_grad_()
    rs.losses.expected_exposure(leaf, where).square().sum().backward()
    assert (leaf.grad[~where] == 0).all()
    assert leaf.grad.isfinite().all()


def test_target_exposure_is_the_mean_over_the_best_rankings():
    labels = [2.0, 0.0, 1.0, 1.0, 0.0]
    best = [o for o in itertools.permutations(range(5)) if [labels[d] for d in o] == sorted(labels, reverse=True)]
    for measure, k in (("nDCG", 5), ("nDCG@3", 3)):
        found = rs.losses.target_exposure(torch.tensor(labels), measure=measure)
        for document in range(5):
            worth = [1 / math.log2(2 + o.index(document)) if o.index(document) < k else 0 for o in best]
            assert found[document].item() == pytest.approx(sum(worth) / len(worth))
    padded = rs.losses.target_exposure(torch.tensor([9.0, 1.0, 0.0]), torch.tensor([False, True, True]))
    assert padded.tolist() == pytest.approx([0, 1, 1 / math.log2(3)])


def test_exposure_loss_is_unbiased():
    torch.manual_seed(0)
    scores, labels = torch.tensor([0.4, -0.2, 0.9], dtype=torch.float64), torch.tensor([1, 0, 0])
    leaf = scores.clone().requires_grad_()
    worth = [1 / math.log2(2 + i) for i in range(3)]
    each = torch.stack([enumerated(leaf, worth, [float(d == at) for d in range(3)]) for at in range(3)])
    for disparity in (1.0, 0.5):
        target = rs.losses.target_exposure(labels)
        exact = (disparity * each.square() - 2 * each * target + target.square()).sum()
        (slope,) = torch.autograd.grad(exact, leaf, retain_graph=True)
        many = scores.expand(20_000, 3).clone().requires_grad_()
        found = rs.ExposureLoss(samples=2, disparity=disparity)(many, labels.expand(20_000, 3))
        found.backward()
        assert found.item() == pytest.approx(exact.item(), abs=0.01)
        torch.testing.assert_close(many.grad.sum(0), slope, atol=0.02, rtol=0)


@pytest.mark.parametrize("target", ["merit", "equal"])
@pytest.mark.parametrize("groups", [None, [7, 5, 7]])
def test_exposure_loss_of_other_targets_is_unbiased(target, groups):
    torch.manual_seed(0)
    scores, labels = torch.tensor([0.4, -0.2, 0.9], dtype=torch.float64), torch.tensor([2, 1, 0])
    leaf = scores.clone().requires_grad_()
    worth = [1 / math.log2(2 + i) for i in range(2)]
    each = torch.stack([enumerated(leaf, worth, [float(d == at) for d in range(3)]) for at in range(3)])
    gap = each - sum(worth) * torch.tensor({"merit": [3 / 4, 1 / 4, 0], "equal": [1 / 3] * 3}[target])
    exact = gap.square().sum() if groups is None else (gap[0] + gap[2]).square() / 2 + gap[1].square()
    (slope,) = torch.autograd.grad(exact, leaf)
    many = scores.expand(20_000, 3).clone().requires_grad_()
    given = {} if groups is None else {"diversity_groups": torch.tensor(groups).expand(20_000, 3)}
    loss = rs.ExposureLoss("nDCG@2", samples=2, target=target, groups=groups is not None)
    found = loss(many, labels.expand(20_000, 3), **given)
    found.backward()
    assert found.item() == pytest.approx(exact.item(), abs=0.01)
    torch.testing.assert_close(many.grad.sum(0), slope, atol=0.02, rtol=0)


def test_exposure_of_groups_in_flat_and_masked_lists():
    loss = rs.CombinedLoss([rs.ExposureLoss(target="equal", groups=True)], weights=[0.5])
    scores, labels = torch.tensor([50.0, 0.0, -50.0, 9.0, 9.0]), torch.tensor([2, 1, 0, 0, 0])
    groups = torch.tensor([4, 4, 3, 1, 1])
    worth = torch.tensor([1 / math.log2(2 + i) for i in range(3)])
    expected = 0.25 * ((worth[:2].mean() - worth.mean()) ** 2 * 2 + (worth[2] - worth.mean()) ** 2)  # of two lists
    flat = loss(scores, labels, diversity_groups=groups, offsets=torch.tensor([0, 3, 5]))
    where = torch.tensor([[True, True, True], [True, True, False]])
    wide = torch.zeros(2, 3).masked_scatter(where, scores)
    grouped = torch.full((2, 3), 1).masked_scatter(where, groups)
    masked = loss(wide, torch.zeros(2, 3), diversity_groups=grouped, where=where)
    torch.testing.assert_close(flat, expected)
    torch.testing.assert_close(masked, expected)
    with pytest.raises(ValueError, match="requires diversity_groups="):
        rs.ExposureLoss(groups=True)(scores, labels)
    with pytest.raises(ValueError, match="diversity_groups must have the shape"):
        rs.ExposureLoss(groups=True)(scores, labels, diversity_groups=groups[:3])
    with pytest.warns(UserWarning, match=r"ignores diversity_groups=; pass ExposureLoss\(groups=True\)"):
        rs.ExposureLoss()(scores, labels, diversity_groups=groups)
    with pytest.raises(TypeError, match="pass diversity_groups= in the call"):
        rs.ExposureLoss(groups=[1, 2])


@pytest.mark.parametrize("loss", [rs.PLRankLoss("nDCG@3", samples=4), rs.ExposureLoss(samples=4)])
def test_what_every_loss_keeps(loss):
    torch.manual_seed(0)
    scores, labels = torch.randn(6, 12), torch.randint(0, 3, (6, 12))
    where = torch.rand(6, 12) < 0.7
    where[2] = False
    loss = copy.deepcopy(pickle.loads(pickle.dumps(loss)))
    junk = torch.where(where, scores, torch.nan).requires_grad_()
    torch.manual_seed(1)
    value = loss(junk, torch.where(where, labels, -5), where=where)
    value.backward()
    assert junk.grad[where].isfinite().all()
    assert (junk.grad[~where] == 0).all()
    torch.manual_seed(1)
    kept = loss(scores, labels, item_weights=where.float())
    torch.testing.assert_close(kept, value)
    assert loss(torch.zeros(3, 4), torch.ones(3, 4)) == 0
    for shape in ((0, 5), (3, 0), (0,)):
        assert loss(torch.zeros(shape), torch.zeros(shape)) == 0
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), where.sum(-1).cumsum(0)])
    assert loss(scores[where], labels[where], offsets=offsets).isfinite()
    assert loss(scores.bfloat16(), labels).dtype == torch.bfloat16
    for extreme in (scores * 1e4, scores * 1e30):
        leaf = extreme.requires_grad_()
        loss(leaf, labels).backward()
        assert leaf.grad.isfinite().all()
    for tied in (torch.zeros(6, 12), torch.full((6, 12), 3e38)):
        assert loss(tied, labels).isfinite()
    each = torch.func.vmap(torch.func.grad(loss), randomness="different")(scores, labels)
    assert each.isfinite().all()
    assert not torch.equal(
        *torch.func.vmap(loss, randomness="different")(scores[:1].expand(2, -1), labels[:1].expand(2, -1))
    )


def both_ways(monkeypatch, scores, labels, loss, **lists):
    """Value, gradient and the next number of the generator, in one pass and by way of the exposures."""
    found = []
    for patch in (False, True):
        with monkeypatch.context() as patched:
            if patch:
                patched.setattr(rs.PLRankLoss, "_fused", lambda *given, **lists: None)
            leaf = scores.clone().requires_grad_()
            torch.manual_seed(7)
            value = loss(leaf, labels, **lists)
            ahead = torch.rand(1)
            (slope,) = torch.autograd.grad(value.sum(), leaf)
            found.append((value.detach(), slope, ahead))
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("measure", ["nDCG", "nDCG@3", "nDCG(gain='linear')@10", "nERU(d=0,half_life=2)"])
@pytest.mark.parametrize("kind", [torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_one_pass_is_as_two(measure, kind, dtype, monkeypatch):
    """Padding that holds anything, lists that no ranking can get wrong, all reductions, list weights, flat lists."""
    generator = torch.Generator().manual_seed(3)
    for size in (1, 7, 90):
        scores = torch.randn(2, 6, size, generator=generator, dtype=dtype)
        labels = torch.randint(0, 2 if kind == torch.bool else 5, (2, 6, size), generator=generator).to(kind)
        where = torch.rand(2, 6, size, generator=generator) < 0.7
        where[0, 1], where[0, 2, 1:], labels[0, 3], labels[0, 4] = False, False, 1, 0
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), where.sum(-1).flatten().cumsum(0)])
        junk = torch.where(where, scores, torch.nan)
        listed, kept = scores[where], labels[where]
        layouts = ((scores, labels, {}), (junk, labels, {"where": where}), (listed, kept, {"offsets": offsets}))
        for given, marked, layout in layouts:
            weights = torch.rand((12,) if "offsets" in layout else (2, 6), generator=generator)
            for reduction, each in (("mean", None), ("mean", weights), ("sum", None), ("none", None)):
                loss = partial(rs.PLRankLoss(measure, samples=3, reduction=reduction), weights=each)
                torch.testing.assert_close(*both_ways(monkeypatch, given, marked, loss, **layout))


@pytest.mark.filterwarnings("ignore:labels go up to 36")
def test_one_pass_knows_all_labels(monkeypatch):
    """Fractional and large grades, those whose meaning a user's function says, and labels below 0 that mean something."""
    scores = torch.randn(5, 20, generator=torch.Generator().manual_seed(0))
    grades = torch.randint(0, 5, (5, 20), generator=torch.Generator().manual_seed(1))
    squared = rs.nDCG(gain=lambda labels: labels.square())
    cases = ((grades / 2, "nDCG"), (grades * 9, "nDCG"), (grades, squared), (grades - 2, rs.nDCG(min_relevant=0)))
    for labels, measure in cases:
        loss = rs.PLRankLoss(measure, samples=2)
        one, two = both_ways(monkeypatch, scores, labels, loss)
        torch.testing.assert_close(one, two)


def test_one_pass_refuses_what_two_do(monkeypatch):
    scores, labels = torch.randn(3, 4), torch.tensor([[0, 1, 0, 2]]).expand(3, 4)
    broken = scores.clone()
    broken[1, 2] = torch.nan
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for given, marked, lists, message in (
        (broken, labels, {}, r"scores must be finite; document \[1, 2\] is nan"),
        (scores, labels - 1, {}, r"labels must be 0 or more .*; that of document \[0, 0\] is -1"),
        (scores, labels * 2000.0, {}, "labels must have finite gains >= 0 under nDCG"),
        (scores, labels[:2], {}, "labels must have the shape of scores"),
        (scores[0], labels[0], {"offsets": torch.tensor([0, 3])}, "offsets"),
        (scores, labels, {"reduction": "max"}, "reduction must be one of"),
        (scores, labels, {"weights": torch.tensor([1.0, -1.0, 1.0])}, "weights must be finite and >= 0"),
    ):
        torch.set_rng_state(before)
        with pytest.raises(ValueError, match=message):
            rs.PLRankLoss()(given, marked, **lists)
    # Scores that are too far apart for the loop go the other way, with its numbers.
    apart = scores.double() * 1e4
    torch.testing.assert_close(*both_ways(monkeypatch, apart, labels, rs.PLRankLoss("nDCG@2", samples=3)))
    leaf = scores.clone().requires_grad_()
    (slope,) = torch.autograd.grad(rs.PLRankLoss()(leaf, labels), leaf, create_graph=True)
    with pytest.raises(RuntimeError):
        slope.sum().backward()


def test_one_pass_by_several_threads(monkeypatch):
    scores, labels = torch.randn(64, 300), torch.randint(0, 5, (64, 300))
    before = torch.get_num_threads()
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(both_ways(monkeypatch, scores, labels, rs.PLRankLoss(samples=4))[0])
    torch.set_num_threads(before)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("loss", [rs.PLRankLoss("nDCG@10"), rs.ExposureLoss()])
def test_a_linear_scorer_learns(loss):
    torch.manual_seed(0)
    features = torch.randn(100, 20, 6)
    labels = (features[..., 0] + 0.7 * torch.randn(100, 20) > 1.2).long()
    scorer = rs.LinearScorer(6)
    optimizer = torch.optim.Adam(scorer.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        loss(scorer(features), labels).backward()
        optimizer.step()
    assert rs.evaluate(scorer(features), labels, "AP")["AP"].mean() > 0.6


def test_options_are_checked():
    scores, labels = torch.zeros(2), torch.tensor([1, 0])
    with pytest.raises(ValueError, match="samples must be an integer from 1, got 0"):
        rs.PLRankLoss(samples=0)
    with pytest.raises(ValueError, match="samples must be an integer from 2"):
        rs.ExposureLoss(samples=1)(scores, labels)
    with pytest.raises(ValueError, match="disparity must be a finite number of at least 0, got -1"):
        rs.ExposureLoss(disparity=-1)
    with pytest.raises(
        ValueError, match="a Plackett-Luce policy requires nDCG or another normalised discounted gain, got AP"
    ):
        rs.PLRankLoss("AP")
    with pytest.raises(ValueError, match="k must be an integer from 1, or None, got 0"):
        rs.losses.sample_rankings(scores, k=0)
    with pytest.raises(TypeError, match="scores must be floating point"):
        rs.losses.expected_exposure(labels)
