"""What subclasses of losses may do: fix options, keep state, define `forward` or `__init__`."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import rankstruct as rs
from rankstruct.estimators import training_data
from rankstruct.losses import RankingLoss

SCORES, LABELS = torch.tensor([[0.3, -0.2, 0.9], [1.0, 2.0, -1.0]]), torch.tensor([[1, 0, 0], [0, 0, 1]])


def test_a_class_attribute_fixes_an_option():
    class Fixed(rs.StructuredHingeLoss):
        measure = "nDCG"
        reference = "predicted"

    expected = rs.StructuredHingeLoss("nDCG", reference="predicted")
    assert Fixed()(SCORES, LABELS) == expected(SCORES, LABELS)

    class Sum(rs.RankNetLoss):
        reduction = property(lambda self: "sum")

    assert Sum()(SCORES, LABELS) == rs.RankNetLoss(reduction="sum")(SCORES, LABELS)


def test_private_annotations_are_no_options():
    class Counting(rs.RankNetLoss):
        _calls: int = 0
        _seen: dict[str, Any] = {}  # noqa: RUF012  # as a user may write it
        _scale: Tensor

    assert Counting().options == rs.RankNetLoss().options


def test_a_buffer_may_have_an_annotated_name():
    class Weighted(RankingLoss):
        weight: Tensor

        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.full((1,), 2.0))

        def per_list(self, scores, labels, where):
            return scores.sum(-1) * self.weight

    assert Weighted()(SCORES, LABELS) == pytest.approx(float(2 * SCORES.sum(-1).mean()))


def test_an_own_forward_runs_once_under_autocast():
    class Double(rs.RankNetLoss):
        def forward(self, scores, labels, **options):
            return 2 * rs.RankNetLoss.forward(self, scores, labels, **options)

    loss = Double()
    with torch.autocast("cpu"):
        found = loss(SCORES, LABELS)
    assert found == loss(SCORES, LABELS) == 2 * rs.RankNetLoss()(SCORES, LABELS)


@pytest.mark.parametrize("value", [lambda x: x.sum(), lambda x: x, lambda x: x.sum(-1, keepdim=True), lambda x: 1.0])
def test_per_list_returns_one_value_per_list(value):
    class Own(rs.RankingLoss):
        def per_list(self, scores, labels, where):
            return value(scores * labels)

    for reduction in ("mean", "none"):
        with pytest.raises(TypeError, match=r"per_list of Own must return one value per list, \(3,\); got"):
            Own(reduction=reduction)(torch.ones(3, 4), torch.ones(3, 4))


def test_options_beside_an_own_constructor_are_refused():
    with pytest.raises(TypeError, match=r"More adds options .* takes loss, sigma, samples; define __init__ too"):

        class More(rs.PerturbedLoss):
            extra: float = 1.0


def test_a_risk_leaves_the_loss_as_it_is():
    inner = rs.StructuredHingeLoss("AP")
    data = rs.data.RankingData.from_arrays([[0.0], [1.0], [2.0]], [0, 0, 1], ["a", "a", "a"])
    rs.estimators.linear.ranking_risk(rs.PerturbedLoss(inner), data)
    assert inner.reduction == "mean"


def test_validation_lists_that_are_not_copied(monkeypatch):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(120, 3)), rng.integers(0, 12, 120)
    y = (X[:, 0] > 0).astype(int)
    given = {"X_valid": X, "y_valid": y, "qid_valid": qid}
    expected = rs.LinearRanker("AP", C=[0.1, 1], prepare=()).fit(X, y, qid, **given)
    monkeypatch.setattr(training_data, "_COPIED", 0)
    found = rs.LinearRanker("AP", C=[0.1, 1], prepare=()).fit(X, y, qid, **given)
    np.testing.assert_allclose(found.coef_, expected.coef_)
