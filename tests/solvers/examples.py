"""Small risks, and the same problems from the definitions: every ranking a constraint."""

import itertools
from types import SimpleNamespace

import brute_force
import numpy as np
import torch
from scipy.optimize import minimize

import rankstruct as rs
from rankstruct.solvers import LinearRisk


class MaxOfPlanes:
    """A risk given by its planes: term q is the maximum of those with groups == q."""

    def __init__(self, gradients, intercepts, groups):
        self.gradients, self.intercepts, self.groups = gradients, intercepts, groups
        self.terms, self.dimension = int(groups.max()) + 1, gradients.shape[1]
        self.calls = 0

    def term_planes(self, w, indices):
        values = self.intercepts + self.gradients @ w
        best = [np.flatnonzero(self.groups == q)[np.argmax(values[self.groups == q])] for q in indices]
        return values[best], self.gradients[best]

    def __call__(self, w):
        self.calls += 1
        values, gradients = self.term_planes(w, np.arange(self.terms))
        return values.mean(), gradients.mean(0)


def random_planes(rng, terms=3, planes=12, dimension=4, scale=1.0):
    groups = np.concatenate([np.arange(terms), rng.integers(0, terms, planes - terms)])
    return MaxOfPlanes(rng.normal(size=(planes, dimension)) * scale, rng.random(planes), groups)


def random_data(rng, dimension=3, lists=3, longest=4, grades=1):
    lengths = rng.integers(3, longest + 1, lists)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    X = rng.normal(size=(offsets[-1], dimension))
    y = rng.integers(0, grades + 1, offsets[-1]).astype(float)
    y[offsets[:-1]] = grades  # each list has something relevant and something that is not
    y[offsets[:-1] + 1] = 0
    return X, y, offsets


def flat_lists(X, offsets):
    """Lists as `LinearRisk` takes them."""
    return SimpleNamespace(features=X, offsets=np.asarray(offsets))


def linear_risk(X, y, offsets, measure, feature_map=None, reference="ideal", weights=None, by_term=False):
    """The library's risk of a structured hinge."""

    def ask(scores, labels, bounds):
        found = rs.most_violated(
            torch.from_numpy(scores),
            torch.from_numpy(labels),
            measure,
            feature_map=feature_map,
            reference=reference,
            offsets=torch.from_numpy(bounds),
        )
        return found.value.numpy(), found.direction.numpy()

    def some(scores, indices):
        lengths = np.diff(offsets)[indices]
        labels = np.concatenate([y[offsets[i] : offsets[i + 1]] for i in indices])
        return ask(scores, labels, np.concatenate([[0], np.cumsum(lengths)]))

    lists, terms = flat_lists(X, offsets), some if by_term else None
    return LinearRisk(lists, lambda scores: ask(scores, y, offsets), weights, term_oracle=terms)


def all_rankings(X, y, offsets, measure, feature_map):
    """One plane a ranking of each list: a `MaxOfPlanes`, reference `ideal`, by enumeration."""
    gradients, intercepts, groups = [], [], []
    for q, (a, b) in enumerate(itertools.pairwise(offsets)):
        labels, ranks = y[a:b], brute_force.all_ranks(b - a)
        values = brute_force.measure_values(measure, labels, ranks)
        psi = brute_force.psi(feature_map, measure, labels, ranks)
        ideal = np.empty(b - a, int)
        ideal[np.argsort(-labels, kind="stable")] = np.arange(1, b - a + 1)
        psi = psi - psi[(ranks == ideal).all(1)]
        rows = np.unique(np.round(np.column_stack([psi @ X[a:b], values.max() - values]), 12), axis=0)
        gradients.append(rows[:, :-1])
        intercepts.append(rows[:, -1])
        groups.append(np.full(len(rows), q))
    return MaxOfPlanes(np.concatenate(gradients), np.concatenate(intercepts), np.concatenate(groups))


def optimum_by_slsqp(planes, C, w0):
    """The optimal value with all planes as constraints on one slack a term, by SciPy's SLSQP; polished from several starts."""
    d, terms = planes.dimension, planes.terms
    rows = np.zeros((len(planes.groups), d + terms))
    rows[:, :d] = -planes.gradients
    rows[np.arange(len(rows)), d + planes.groups] = 1

    def objective(x):
        away = x[:d] - w0
        return away @ away / (2 * C) + x[d:].mean(), np.concatenate([away / C, np.full(terms, 1 / terms)])

    values = []
    for start in (w0, w0 + 0.1):
        slack = np.full(terms, (planes.intercepts + planes.gradients @ start).max())
        result = minimize(
            objective,
            np.concatenate([start, slack]),
            jac=True,
            method="SLSQP",
            constraints={"type": "ineq", "fun": lambda x: rows @ x - planes.intercepts, "jac": lambda x: rows},
            options={"maxiter": 500, "ftol": 1e-12},
        )
        values.append(objective_of(planes, result.x[:d], C, w0))  # a value of the true objective, whatever came out
    return min(values)


def objective_of(risk, w, C, w0=0.0):
    return (w - w0) @ (w - w0) / (2 * C) + risk(w)[0]
