"""Mixtures of rankings: targets met, projections and fronts by their optimality conditions, groups by another programme."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, nnls

import rankstruct as rs
from rankstruct.constraints import ExposurePolicy, exposure_front, fair_exposure, fair_exposures


def discounts(n, k=None):
    return np.where(np.arange(n) < (n if k is None else k), 1 / np.log2(2 + np.arange(n)), 0.0)


def mean_exposure(policy, worth):
    found = np.zeros(len(worth))
    for ranking, weight in zip(policy.rankings.numpy(), policy.weights.numpy(), strict=True):
        assert len(set(ranking)) == len(ranking)
        found[ranking] += weight * worth[: len(ranking)]
    return found


def best_value(direction, worth):
    """The largest inner product with an exposure that rankings can give."""
    return np.sort(direction)[::-1] @ worth


def targets(kind, merits, worth, rng):
    n = len(merits)
    return {
        "merit": lambda: worth.sum() * merits / merits.sum() if merits.any() else np.full(n, worth.mean()),
        "equal": lambda: np.full(n, worth.mean()),
        "vertex": lambda: rng.permutation(worth),
        "face": lambda: 0.5 * rng.permutation(worth) + 0.5 * rng.permutation(worth),
        "outside": lambda: rng.normal(size=n) * 3,
        "ties": lambda: rng.integers(0, 3, n) / 2.0,
    }[kind]()


KINDS = ["merit", "equal", "vertex", "face", "outside", "ties"]


@st.composite
def problems(draw, largest=12):
    n = draw(st.integers(1, largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    merits = rng.integers(0, 3, n).astype(float) if draw(st.booleans()) else rng.random(n) ** 2
    return merits, draw(st.none() | st.integers(1, n + 1)), draw(st.sampled_from(KINDS)), rng


@settings(max_examples=80, deadline=None)
@given(problems())
def test_exposures_are_the_closest_and_come_from_at_most_n_rankings(problem):
    merits, k, kind, rng = problem
    worth = discounts(len(merits), k)
    target = targets(kind, merits, worth, rng)
    policy = fair_exposure(merits, target=kind if kind in ("merit", "equal") else target, k=k)
    exposure = policy.exposure.numpy()
    assert len(policy.rankings) <= len(merits)
    assert (policy.weights > 0).all()
    assert policy.weights.sum().item() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(mean_exposure(policy, worth), exposure, atol=1e-12)
    np.testing.assert_allclose(policy.target.numpy(), target, atol=1e-12)
    away = target - exposure  # the closest point of a convex set
    assert best_value(away, worth) <= away @ exposure + 1e-9 * (1 + np.abs(away).max())
    assert policy.unfairness == pytest.approx(away @ away, abs=1e-12)
    assert policy.utility == pytest.approx(merits @ exposure)
    if kind in ("equal", "vertex", "face"):
        np.testing.assert_allclose(exposure, target, atol=1e-9)
        assert policy.unfairness == 0


@pytest.mark.parametrize("merits", [np.random.default_rng(0).random(300) * 0.3 + 1, np.repeat([1.0, 0.8], 150)])
@pytest.mark.parametrize("k", [None, 40])
def test_long_lists_meet_their_targets(merits, k):
    policy, worth = fair_exposure(merits, k=k), discounts(300, k)
    wanted = worth.sum() * merits / merits.sum()
    assert len(policy.rankings) <= 300
    np.testing.assert_allclose(mean_exposure(policy, worth), wanted, atol=1e-9, rtol=0)
    assert policy.unfairness == 0


def test_a_merit_too_large_is_told():
    policy = fair_exposure([8.0, 1.0, 1.0])
    total = discounts(3).sum()
    gap = torch.tensor([0.8 * total - 1, *[0.1 * total - (total - 1) / 2] * 2], dtype=torch.float64)
    assert policy.exposure.tolist() == pytest.approx([1, (total - 1) / 2, (total - 1) / 2])
    assert policy.unfairness == pytest.approx(gap.square().sum().item())


@settings(max_examples=30, deadline=None)
@given(problems(largest=9))
def test_no_mixture_beats_the_front(problem):
    merits, k, kind, rng = problem
    worth = discounts(len(merits), k)
    target = targets(kind, merits, worth, rng)
    front = exposure_front(merits, target=target, k=k)
    points, utility, unfairness = front.exposure.numpy(), front.utility.numpy(), front.unfairness.numpy()
    np.testing.assert_allclose(utility, points @ merits, atol=1e-9)
    np.testing.assert_allclose(unfairness, ((points - target) ** 2).sum(1), atol=1e-9)
    np.testing.assert_allclose(points[0], fair_exposure(merits, target=target, k=k).exposure, atol=1e-9)
    assert utility[-1] == pytest.approx(best_value(merits, worth))
    for start, end in itertools.pairwise(
        points
    ):  # a minimum of distance / 2 - price x utility, whatever its sign elsewhere
        step = end - start
        for share in (0.25, 0.75):
            here = start + share * step
            price = (here - target) @ step / (merits @ step)
            assert price > -1e-6
            uphill = target + price * merits - here
            assert best_value(uphill, worth) <= uphill @ here + 1e-6 * (1 + np.abs(uphill).max())


def test_fronts_equal_a_quadratic_programme_over_all_rankings():
    rng = np.random.default_rng(4)
    orders = np.array([*itertools.permutations(range(4))])
    for kind in KINDS:
        merits, worth = rng.random(4), discounts(4)
        rankings = np.empty((len(orders), 4))
        np.put_along_axis(rankings, orders, np.broadcast_to(worth, rankings.shape), 1)
        target = targets(kind, merits, worth, rng)
        front = exposure_front(merits, target=target)
        for wanted in np.linspace(*front.utility[[0, -1]].tolist(), 34):  # 204 points in all
            heavy = 1e4 * np.vstack([np.ones(len(orders)), rankings @ merits])
            weights, _ = nnls(np.vstack([rankings.T, heavy]), [*target, 1e4, 1e4 * wanted], maxiter=10_000)
            mixed = weights @ rankings / weights.sum()
            utility = min(max(mixed @ merits, front.utility[0].item()), front.utility[-1].item())
            policy = front.policy(utility=utility)
            assert policy.unfairness == pytest.approx(((mixed - target) ** 2).sum(), abs=1e-6)


def test_points_of_a_front_are_found_by_utility_and_by_unfairness():
    front = exposure_front([0.9, 0.6, 0.5, 0.1], target="equal")
    assert (front.utility.diff() > 0).all()
    assert (front.unfairness.diff() > 0).all()
    for share in (0, 0.3, 0.8, 1):
        unfairness = (share * front.unfairness[-1]).item()
        policy = front.policy(unfairness=unfairness)
        assert isinstance(policy, ExposurePolicy)
        assert policy.unfairness == pytest.approx(unfairness, abs=1e-12)
        assert front.policy(utility=policy.utility).unfairness == pytest.approx(unfairness, abs=1e-9)
    assert front.policy(unfairness=99).utility == pytest.approx(front.utility[-1].item())
    assert front.policy(utility=front.utility[1]).exposure.tolist() == pytest.approx(front.exposure[1].tolist())
    with pytest.raises(ValueError, match="give utility= or unfairness="):
        front.policy()
    with pytest.raises(ValueError, match=r"no mixture has a utility above 1\.\d+, got 9"):
        front.policy(utility=9)
    with pytest.raises(ValueError, match="no mixture has an unfairness below 0, got nan"):
        front.policy(unfairness=float("nan"))


def assigned(merits, group, aims, worth):
    """The highest utility at the groups' exposures, over doubly stochastic matrices."""
    n = len(merits)
    rows = [*np.eye(n).repeat(n, 1), *np.tile(np.eye(n), n)]
    rows += [np.outer(group == each, worth).ravel() for each in range(len(aims))]
    found = linprog(-np.outer(merits, worth).ravel(), A_eq=np.array(rows), b_eq=[1.0] * 2 * n + list(aims))
    assert found.status == 0
    return -found.fun


def test_groups_meet_their_targets_with_the_highest_utility():
    rng = np.random.default_rng(5)
    for trial in range(16):
        n = int(rng.integers(1, 9))
        merits = rng.random(n) if trial % 2 else rng.integers(0, 3, n).astype(float)
        group = np.unique(rng.integers(0, 3, n), return_inverse=True)[1]
        k = None if trial % 3 else max(n // 2, 1)
        worth = discounts(n, k)
        policy = fair_exposure(merits, target="equal", groups=group, k=k)
        aims = np.bincount(group) * worth.mean()
        np.testing.assert_allclose(np.bincount(group, mean_exposure(policy, worth)), aims, atol=1e-9)
        assert policy.unfairness == 0
        assert len(policy.rankings) <= len(aims)
        assert policy.utility == pytest.approx(assigned(merits, group, aims, worth), abs=1e-8)


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("many", [2, 3, 4])
def test_fronts_of_groups_equal_a_programme_at_each_exposure(many, k):
    rng = np.random.default_rng(6)
    for trial in range(6):
        n = int(rng.integers(many, 8))
        merits = rng.random(n) if trial % 2 else rng.integers(0, 3, n).astype(float)
        group, worth = rng.permutation(np.arange(n) % many), discounts(n, k)
        target = ["equal", "merit", rng.random(n)][trial % 3]
        front = exposure_front(merits, target=target, groups=group, k=k)
        assert front.utility[-1].item() == pytest.approx(best_value(merits, worth))
        fairest = fair_exposure(merits, target=target, groups=group, k=k)
        assert front.unfairness[0].item() == pytest.approx(fairest.unfairness, abs=1e-9)
        assert front.utility[0].item() == pytest.approx(fairest.utility, abs=1e-8)
        for wanted in np.linspace(*front.unfairness[[0, -1]].tolist(), 4):
            policy = front.policy(unfairness=wanted)
            assert policy.unfairness == pytest.approx(wanted, abs=1e-9)
            assert len(policy.rankings) <= n
            sums = np.bincount(group, policy.exposure)
            assert policy.utility == pytest.approx(assigned(merits, group, sums, worth), abs=1e-7)
        for start, end in itertools.pairwise(front.exposure.numpy()):  # as for documents
            here, step = (start + end) / 2, end - start
            prices = (np.bincount(group, here - front.target.numpy()) / np.bincount(group))[group]
            price = prices @ step / (merits @ step)
            assert price > -1e-6
            uphill = price * merits - prices
            assert best_value(uphill, worth) <= uphill @ here + 1e-7 * (1 + np.abs(uphill).max())
    assert len(exposure_front([1.0, 0.5], groups=["a", "a"]).utility) == 1


def test_the_front_of_a_longer_list_is_convex():
    rng = np.random.default_rng(0)
    merits, group = rng.random(40), rng.integers(0, 4, 40)
    front = exposure_front(merits, target="equal", groups=group)
    slopes = (front.unfairness.diff() / front.utility.diff()).numpy()
    assert len(slopes) > 30
    assert (np.diff(slopes) > -1e-6).all()  # convex
    policy = front.policy(unfairness=front.unfairness[0].item())
    np.testing.assert_allclose(np.bincount(group, policy.exposure - policy.target), 0, atol=1e-9)


def test_groups_that_deserve_too_much_come_as_close_as_they_can():
    policy = fair_exposure([9.0, 8.0, 0.1, 0.1], groups=["a", "a", None, ""])
    worth = discounts(4)
    assert policy.exposure.tolist() == pytest.approx(worth.tolist())
    gap = worth[:2].sum() - 17 / 17.2 * worth.sum()
    assert policy.unfairness == pytest.approx(gap**2 / 2 + gap**2 / 2)


def test_samples_are_drawn_by_weight():
    policy = fair_exposure([0.5, 0.4, 0.3, 0.3], k=3)
    drawn = policy.sample(20_000, seed=0)
    assert torch.equal(drawn, policy.sample(20_000, seed=0))
    assert drawn.shape == (20_000, 3)
    for ranking, weight in zip(policy.rankings, policy.weights, strict=True):
        share = (drawn == ranking).all(1).double().mean().item()
        assert abs(share - weight) < 4 * (weight * (1 - weight) / 20_000) ** 0.5
    generator = np.random.default_rng(1)
    assert {tuple(policy.sample(seed=generator).tolist()) for _ in range(50)} <= {*map(tuple, policy.rankings.tolist())}


def test_layouts_have_the_same_policies():
    merits = torch.tensor([[3.0, 2.0, 1.0], [1.0, 0.5, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float32)
    where = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])
    groups = torch.tensor([[1, 2, 2], [1, 2, 0], [0, 0, 0]])
    padded = fair_exposures(merits.masked_fill(~where, torch.nan), where=where, groups=groups, k=2)
    assert padded.exposure.shape == merits.shape
    assert (padded.exposure[~where] == 0).all()
    flat = fair_exposures(merits[where], offsets=[0, 3, 5, 5], groups=groups[where], k=2)
    assert torch.equal(flat.exposure, padded.exposure[where])
    assert len(flat) == 3
    assert flat.utility.tolist() == [each.utility for each in padded]
    named = fair_exposures(merits[where], qid=["b"] * 3 + ["a"] * 2, groups=[*"xyyxy"], k=2)
    torch.testing.assert_close(named.exposure, flat.exposure)
    one = fair_exposure(merits[0], groups=groups[0], k=2)
    assert torch.equal(one.exposure, padded[0].exposure)
    ranks = padded.sample(seed=3)
    assert ranks.sort(dim=-1).values.tolist() == [[0, 1, 2], [0, 1, 2], [0, 0, 0]]
    assert not ranks[~where].any()
    wanted = fair_exposures(merits[where], offsets=[0, 3, 5, 5], target=[0.7, 0.7, 0.7, 1, 0.6])
    assert wanted.exposure[:3].tolist() == pytest.approx([discounts(3).mean()] * 3)


@pytest.mark.parametrize(
    "merits", [[], [2.0], [0, 0, 0], [True, False], [1e308, 1e307], [5e-324, 0], np.float16([0.2, 0.1])]
)
@pytest.mark.parametrize("more", [{}, {"k": 1}, {"groups": True}, {"discount": "letor"}])
def test_unusual_lists_have_policies(merits, more):
    more = {"groups": [1] * len(merits)} if "groups" in more else more
    policy = fair_exposure(merits, **more)
    assert policy.exposure.isfinite().all()
    assert policy.weights.sum().item() == pytest.approx(1)
    assert policy.sample().shape == (min(len(merits), more.get("k", 9)),)
    assert len(exposure_front(merits).utility) >= 1
    if not np.any(merits):
        assert np.ptp([0.0, *fair_exposure(merits).exposure.diff()]) < 1e-12


def test_differences_that_rounding_hides_do_not_slow_a_front_down():
    merits = np.exp(np.random.default_rng(0).normal(size=40) * 5)  # of a range of 1e9
    front = exposure_front(merits, target="equal", discount=torch.ones_like)
    assert front.utility.tolist() == pytest.approx([merits.sum()])
    front = exposure_front(merits, target="equal")
    assert len(front.utility) <= 40
    assert front.utility[-1].item() == pytest.approx(best_value(merits, discounts(40)))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"merits": [1, float("nan")]}, "merits must not be NaN; that of document 1"),
        ({"merits": [1, float("inf")]}, "merits must be finite"),
        ({"merits": [1, -1]}, "merits must be >= 0 for exposures proportional to them, got -1"),
        ({"merits": [[1, 2]]}, "fair_exposures takes several lists"),
        ({"target": "merits"}, "did you mean merit"),
        ({"target": [1.0]}, "target must have an exposure per document"),
        ({"target": [1.0, float("nan")]}, "target must be finite"),
        ({"groups": [1]}, "groups must be one per document"),
        ({"k": 0}, "k must be an integer from 1"),
        ({"discount": lambda ranks: ranks}, "never increase"),
        ({"discount": lambda ranks: -ranks}, "discounts must be >= 0"),
    ],
)
def test_what_is_refused(given, told):
    with pytest.raises(ValueError, match=told):
        fair_exposure(**({"merits": [2, 1]} | given))


def test_texts():
    with pytest.raises(TypeError, match="merits must be numbers"):
        fair_exposure(["a", "b"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'ids'"):
        fair_exposures([1.0], ids=[1])
    with pytest.raises(ValueError, match="size must be an integer from 0"):
        fair_exposure([1.0]).sample(-1)
    assert repr(exposure_front([1.0, 0.9])).startswith("ExposureFront(2 points, utility")
    assert repr(rs.constraints.fair_exposures([1.0], group=[1])) == "ExposurePolicies(1 lists)"
