"""What holds of every ranker: a fit that fails changes nothing, names are kept, what is not asked for is refused."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

import rankstruct as rs
from rankstruct.estimators.base import Ranker

#: Quick settings of every ranker.
MAKE = {
    "linear": lambda: rs.LinearRanker(C=[0.1, 1.0]),
    "linear, not convex": lambda: rs.LinearRanker("nDCG@3"),
    "kernel": lambda: rs.KernelRanker(),
    "mlp": lambda: rs.MLPRanker(max_epochs=2, hidden=(4,), device="cpu"),
    "mlp, attention": lambda: rs.MLPRanker(max_epochs=2, hidden=(4,), device="cpu", context="attention", seeds=2),
    "boosted": lambda: rs.BoostedRanker(n_estimators=3, min_child_samples=2),
    "boosted, start": lambda: rs.BoostedRanker(n_estimators=3, min_child_samples=2, start=rs.LinearRanker()),
    "boosted, leaves": lambda: rs.BoostedRanker(
        n_estimators=3, min_child_samples=2, leaf_ranker=rs.LinearRanker(prepare=())
    ),
    "ensemble": lambda: rs.EnsembleRanker([rs.LinearRanker(), rs.LinearRanker("AP")]),
    "auto": lambda: rs.AutoRanker(time_budget=0, folds=2),
}
every_ranker = pytest.mark.parametrize("name", MAKE)


def ranker_of(name):
    if "boosted" in name:
        pytest.importorskip("lightgbm")
    return MAKE[name]()


def frame_of(seed=0, columns="abc", lists=8, size=6, grades=3):
    """A frame with its labels and lists, whose first column ranks; the scales of the columns depend on the seed."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(lists * size, len(columns))), columns=list(columns))
    y = np.clip(np.round(X.iloc[:, 0] + 0.3 * rng.normal(size=len(X)) + 0.5), 0, grades - 1)
    X = X * 10.0**seed + seed
    return X.assign(label=y, qid=np.repeat([f"q{at}" for at in range(lists)], size))


def valid_of(frame):
    return {"X_valid": frame}


def fit(ranker, seed, columns):
    return ranker.fit(frame_of(seed, columns), **valid_of(frame_of(seed + 10, columns)))


def state_of(ranker, frame):
    """What a user sees of a fitted ranker."""
    return {
        "scores": ranker.predict(frame).tolist(),
        "score": ranker.score(frame),
        "names": ranker.feature_names_in_.tolist(),
        "measure": str(ranker.measure_),
        "lists": (ranker.lists_, ranker.longest_list_),
    }


class FailedError(Exception):
    """Raised in the middle of a fit."""


def fail_at(monkeypatch, ranker, number, error):
    """Let the `number`-th attribute that a fit sets on the ranker fail; returns the names set so far."""
    seen = []

    def set_attribute(self, name, value):
        if self is ranker:
            seen.append(name)
            if len(seen) == number:
                raise error
        object.__setattr__(self, name, value)

    monkeypatch.setattr(Ranker, "__setattr__", set_attribute, raising=False)
    return seen


def test_every_public_ranker_is_tested():
    kinds = {type(make()) for make in MAKE.values()}
    assert {
        each for each in vars(rs.estimators).values() if isinstance(each, type) and issubclass(each, Ranker)
    } <= kinds
    assert {getattr(rs, each) for each in dir(rs) if each.endswith("Ranker")} == kinds


@every_ranker
@pytest.mark.parametrize("error", [FailedError, KeyboardInterrupt], ids=lambda each: each.__name__)
def test_a_fit_that_fails_anywhere_leaves_the_old_model_or_none(name, error, monkeypatch):
    old = frame_of(0, "abc")
    with monkeypatch.context() as patch:
        ranker = ranker_of(name)
        seen = fail_at(patch, ranker, -1, error)
        fit(ranker, 1, "xyzw")
        steps = len(seen)
    assert steps > 4
    fitted = fit(ranker_of(name), 0, "abc")
    before = state_of(fitted, old)
    for number in sorted({1, 2, 3, 4, steps // 2, steps - 1, steps}):
        for ranker in (fitted, ranker_of(name)):
            with monkeypatch.context() as patch:
                fail_at(patch, ranker, number, error)
                with pytest.raises(error):
                    fit(ranker, 1, "xyzw")
        assert state_of(fitted, old) == before, f"failed at attribute {number} of {steps}"
        with pytest.raises(sklearn.exceptions.NotFittedError):
            check_is_fitted(ranker)
    assert fit(fitted, 1, "xyzw").feature_names_in_.tolist() == list("xyzw")
