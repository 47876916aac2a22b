"""Numbers, integers, flags and choices that an option may have, wherever it is."""

import inspect
import math
import warnings

import numpy as np
import pytest
import torch

import rankstruct as rs
from rankstruct.checks import check_choice, check_flags, check_integers, check_numbers
from rankstruct.estimators.base import Ranker
from rankstruct.messages import ArgumentError
from rankstruct.recommenders import interactions


@pytest.mark.parametrize("value", [1, 9, np.int64(5), np.uint8(2)])
def test_integers_of_any_type(value):
    check_integers(1, 9, folds=value)
    check_integers(1, folds=value)


@pytest.mark.parametrize(
    "value", [0, 10, 2.0, "2", True, np.True_, None, math.nan, math.inf, 10**400, [2], torch.tensor(2)]
)
def test_what_is_no_integer_within_the_bounds(value):
    with pytest.raises(ArgumentError, match=r"^folds must be an integer from 1 to 9, got ") as raised:
        check_integers(1, 9, folds=value)
    assert raised.value.argument == "folds"
    assert len(str(raised.value)) < 100


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        ("", (-1e300, 0, np.float32(2)), (math.nan, math.inf, -math.inf, True, "1", None, 2**53 + 2)),
        ("> 0", (1e-300, 1, np.int64(3)), (0, -0.0, -1, math.inf, math.nan, 10**400)),
        (">= 0 and < 1", (0, 0.999, np.float64(0.5)), (1, -1e-9, 1.0, math.nan)),
        ("> 0 and <= inf", (math.inf, 1e300, 1), (0, math.nan, -math.inf, None)),
    ],
)
def test_numbers_within_bounds(rule, right, wrong):
    for value in right:
        check_numbers(rule, margin=value)
    for value in wrong:
        with pytest.raises(ArgumentError, match=r"^margin must be "):
            check_numbers(rule, margin=value)


def test_the_first_wrong_one_of_several_is_named():
    with pytest.raises(ValueError, match=r"^alpha must be a finite number above 0 and below 1, got 1$"):
        check_numbers("> 0 and < 1", share=0.5, alpha=1, level=2)


def test_none_only_where_it_is_allowed():
    check_integers(1, optional=True, k=None)
    check_numbers("> 0", optional=True, gamma=None)
    check_flags(optional=True, item_bias=None)
    check_choice("normalise", None, ("cosine", None))
    for call in (
        lambda: check_integers(1, k=None),
        lambda: check_numbers("> 0", gamma=None),
        lambda: check_flags(item_bias=None),
        lambda: check_choice("normalise", None, ("cosine",)),
    ):
        with pytest.raises(ArgumentError, match="got None"):
            call()
    with pytest.raises(ArgumentError, match=r"^k must be an integer from 1, or None, got 0$"):
        check_integers(1, optional=True, k=0)


def test_flags_and_choices():
    check_flags(verbose=True, prefit=0, other=np.True_)
    for value in (2, "yes", 0.5, math.nan):
        with pytest.raises(ArgumentError, match=r"^verbose must be True or False, got "):
            check_flags(verbose=value)
    for value in ("slow", 1, ["fast"]):
        with pytest.raises(ArgumentError, match=r"^mode must be one of 'full', 'fast', got "):
            check_choice("mode", value, ("full", "fast"))


RATINGS = interactions(np.repeat(np.arange(8), 3), (np.repeat(np.arange(8), 3) + np.tile([0, 1, 3], 8)) % 9)
NEEDED = {
    "CombinedLoss": {"losses": [rs.SoftmaxLoss()]},
    "ContextScorer": {"num_features": 3},
    "MLPScorer": {"num_features": 3},
    "EnsembleRanker": {"rankers": [rs.LinearRanker()]},
    "ERU": {"d": 3, "half_life": 5},
    "pAUC": {"high": 0.5},
    "MatrixFactorization": {"num_users": 2, "num_items": 3},
    "PerturbedLoss": {"loss": rs.SoftmaxLoss()},
    "CutOff": {"recall": 0.9},
}


def options_that_are_numbers():
    """Each public class that has such options, with their names."""
    for name in sorted(dir(rs)):
        made = getattr(rs, name)
        if not inspect.isclass(made) or inspect.isabstract(made) or name in ("RankingMetric", "Preparation"):
            continue
        for option in inspect.signature(made).parameters.values():
            types = {word.strip() for word in str(option.annotation).split("|")} - {"None"}
            if option.default is not option.empty and types and types <= {"int", "float"}:
                yield pytest.param(made, option.name, id=f"{name}-{option.name}")


def use(made, options):
    """Make an object with these options, and fit it if it can be fitted, since rankers check them there."""
    its = made(**options)
    if isinstance(its, Ranker):
        its.fit(np.eye(6)[:, :4], [0, 1, 2, 0, 1, 0], [0, 0, 0, 1, 1, 1])
    elif hasattr(its, "fit"):
        its.fit(RATINGS)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(("made", "option"), [*options_that_are_numbers()])
def test_no_option_is_taken_that_is_not_a_number(made, option, value):
    if value == math.inf and option == "time_budget":
        pytest.skip("no limit")
    warnings.simplefilter("ignore")
    with pytest.raises((ValueError, TypeError), match=option.replace("cutoff", "cut-?off")):
        use(made, NEEDED.get(made.__name__, {}) | {option: value})
