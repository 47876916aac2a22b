"""Partial ROC areas compared with another library, and tied groups that are too large to enumerate their orders."""

import itertools

import numpy as np
import pytest
import torch
from measures.enumeration import partial_roc_area
from sklearn.metrics import roc_auc_score

import rankstruct as rs


@pytest.mark.parametrize("high", [0.05, 0.1, 0.33, 1])
def test_equals_what_scikit_learn_standardises(high):
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores, labels = rng.normal(size=60), rng.random(60) < 0.3
        least = high**2 / 2
        area = rs.pAUC(high=high)(scores, labels).item() * high
        wanted = 0.5 * (1 + (area - least) / (high - least)) if high < 1 else area
        assert roc_auc_score(labels, scores, max_fpr=high) == pytest.approx(wanted, abs=1e-12)


def test_windows_side_by_side_add_up():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(6, (40, 30), generator=generator).float()
    labels = torch.randint(2, (40, 30), generator=generator)
    ends = (0.0, 0.1, 0.15, 0.7, 1.0)
    for min_tpr in (0.0, 0.35):
        parts = [(b - a) * rs.pAUC(low=a, high=b, min_tpr=min_tpr)(scores, labels) for a, b in itertools.pairwise(ends)]
        torch.testing.assert_close(sum(parts), rs.pAUC(high=1, min_tpr=min_tpr)(scores, labels), atol=1e-12, rtol=0)
    torch.testing.assert_close(rs.pAUC(high=1)(scores, labels), rs.AUC()(scores, labels), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("r", "q"), [(1, 9), (7, 7), (9, 3), (4, 8)])
def test_a_large_group_of_tied_documents_among_others(r, q):
    """The mean over which places of the group are relevant."""
    for low, high, min_tpr in ((0, 0.3, 0), (0.1, 0.55, 0.4), (0.3, 1, 0.65), (0, 1, 0.5)):
        slow = partial_roc_area(low, high, min_tpr)
        values = []
        for places in itertools.combinations(range(r + q), r):
            group = [float(place in places) for place in range(r + q)]
            values.append(slow([1.0, 0.0, *group, 0.0, 1.0, 0.0]))
        scores = [9.0, 8.0, *([5.0] * (r + q)), 3.0, 2.0, 1.0]
        labels = [1.0, 0.0, *([1.0] * r), *([0.0] * q), 0.0, 1.0, 0.0]
        measure = rs.pAUC(low=low, high=high, min_tpr=min_tpr)
        assert measure(scores, labels).item() == pytest.approx(np.mean(values), abs=1e-12)
        assert measure(scores, labels, ties="worst").item() == pytest.approx(min(values), abs=1e-12)
