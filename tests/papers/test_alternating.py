"""Alternating exact training of factorisations of ratings."""

import numpy as np
import pytest
import torch

import rankstruct as rs
from papers.alternating import alternate
from rankstruct.recommenders import item_means, solve_users, strong_split, synthetic_ratings, weak_split


def small(**options):
    return synthetic_ratings(users=40, items=30, rank=2, rated=15, **options)


def objective(scorer, ratings, loss, regularization):
    """Written out: one user after the other."""
    lists = ratings.to_lists()
    total = 0.0
    for number in range(lists.num_lists):
        rows = slice(*lists.offsets[number : number + 2])
        scores = scorer(torch.from_numpy(lists.features[rows])).detach()
        total += float(loss(scores, torch.from_numpy(lists.labels[rows])))
    weights = [p.detach().double().square().sum() for p in scorer.parameters()]
    return total + 0.5 * regularization * float(sum(weights))


@pytest.mark.parametrize(
    "loss",
    [
        rs.StructuredHingeLoss("AUC"),
        rs.StructuredHingeLoss("nDCG@5", reference="ideal"),
        rs.SquaredLoss(),
        rs.ListOrdinalLoss(grades=5),
    ],
    ids=["AUC", "nDCG@5", "squared", "MMMF"],
)
def test_alternating_never_raises_the_objective(loss):
    ratings = small()
    scorer = rs.MatrixFactorization(40, 30, rank=3, scale=0.3)
    found = alternate(scorer, ratings, loss, regularization=0.2, rounds=3)
    assert (np.diff(found.objectives) <= 0).all()
    assert found.objectives[-1] < 0.9 * found.objectives[0]
    assert found.objectives[-1] == pytest.approx(objective(scorer, ratings, loss, 0.2), rel=1e-4)
    assert max(found.user_gaps) < 0.05


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_alternating_never_raises_the_objective_however_long_it_runs(seed):
    """Where little is left to gain, factors that were rounded to float32 would raise it in the last digits."""
    ratings = synthetic_ratings(users=12, items=10, rank=2, rated=8, seed=seed)
    scorer = rs.MatrixFactorization(12, 10, rank=2, scale=1.0, seed=seed)
    found = alternate(
        scorer, ratings, rs.SquaredLoss(), regularization=0.3, rounds=30, tolerance=1e-8, max_iterations=60
    )
    assert (np.diff(found.objectives) <= 0).all()
    assert found.objectives[-1] == pytest.approx(objective(scorer.double(), ratings, rs.SquaredLoss(), 0.3), rel=1e-6)


def test_strong_generalisation_beats_item_means_on_synthetic_ratings():
    ratings = synthetic_ratings(users=200, items=60, rank=2, rated=50, noise=0.2)
    split = strong_split(ratings, 20, test_users=0.2)
    loss = rs.StructuredHingeLoss("AUC")
    scorer = rs.MatrixFactorization(200, 60, rank=2, scale=0.3)
    alternate(scorer, split.train, loss, regularization=0.1, rounds=4)
    given, test = split.given.to_lists(), split.test.to_lists()
    solved = solve_users(scorer, given, loss, regularization=0.1)
    with torch.no_grad():
        scorer.user_factors.weight[torch.from_numpy(given.features[given.offsets[:-1], 0]).long()] = torch.from_numpy(
            solved.w
        ).float()

    def value(model):
        with torch.no_grad():
            scores = model(torch.from_numpy(test.features))
        return float(
            rs.evaluate(scores, torch.from_numpy(test.labels), "nDCG@10", offsets=torch.from_numpy(test.offsets))[
                "nDCG@10"
            ].mean()
        )

    assert value(scorer) > value(item_means(split.train)) + 0.05


@pytest.mark.parametrize(
    ("scorer", "options", "message"),
    [
        (rs.MatrixFactorization(40, 30), {"loss": rs.SmoothLoss("nDCG@10")}, "requires a loss that is convex"),
        (rs.MatrixFactorization(40, 30, user_bias=True), {}, "does not support user biases"),
        (rs.MatrixFactorization(40, 31), {}, "40 users and 31 items, the ratings 40 and 30"),
        (rs.MatrixFactorization(40, 30), {"regularization": 0.0}, "regularization must be above 0"),
        (rs.MatrixFactorization(40, 30), {"rounds": 0}, "rounds must be"),
    ],
)
def test_errors(scorer, options, message):
    with pytest.raises(ValueError, match=message):
        alternate(scorer, small(), **{"loss": rs.SquaredLoss(), **options})


def test_users_without_ratings_get_a_factor_of_zero():
    split = weak_split(small(), 5, min_test=5)
    train = split.train.select(split.train.user > 4)
    scorer = rs.MatrixFactorization(40, 30, rank=3)
    alternate(scorer, train, rs.StructuredHingeLoss("AUC"), rounds=1)
    assert not scorer.user_factors.weight[:5].any()
