"""What a newcomer types in the first hour, which once was refused, misled or silently wrong."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import rankstruct as rs


@pytest.mark.parametrize("loss", ["GradedLoss()", "StructuredHingeLoss('AP')", "LambdaLoss()", "ListNetLoss()"])
def test_a_forgotten_squeeze_of_flat_scores_is_announced(loss):
    scores, labels = torch.randn(8, 1), torch.randint(0, 2, (8, 1))
    with pytest.warns(UserWarning, match=r"lists of one document, which have no order: .* scores.squeeze\(-1\)"):
        assert eval(f"rs.{loss}")(scores, labels) == 0
    with pytest.warns(UserWarning, match="lists of one document"):
        rs.evaluate(scores, labels, "AP")
    with pytest.warns(UserWarning, match="lists of one document"):
        rs.RankingMetric("AP").update(scores, labels)


def test_lists_of_one_document_that_a_pointwise_loss_learns_from_are_not():
    assert rs.SquaredLoss()(torch.zeros(8, 1), torch.ones(8, 1)) > 0


@pytest.mark.parametrize(
    "loss",
    [
        rs.StructuredHingeLoss("nDCG@10"),
        rs.GradedLoss("AP"),
        rs.losses.AdditiveRankLoss(),
        rs.CombinedLoss([rs.StructuredHingeLoss("AP")]),
    ],
)
def test_groups_that_a_loss_does_not_look_at_are_announced(loss):
    scores, labels, diversity_groups = torch.randn(2, 5), torch.randint(0, 3, (2, 5)), torch.randint(0, 2, (2, 5))
    with pytest.warns(UserWarning, match="ignores diversity_groups=; use a diversity measure"):
        assert torch.equal(loss(scores, labels, diversity_groups=diversity_groups), loss(scores, labels))


def test_a_metric_is_told_lists_as_evaluate_is():
    scores, labels = torch.tensor([0.2, 0.9, 0.7, 0.1, 0.3]), torch.tensor([1, 0, 0, 1, 0])
    for lists in ({"qid": ["b", "a", "b", "a", "b"]}, {"group": [2, 3]}, {"group": pd.Series([2, 3])}):
        metric = rs.RankingMetric(["AP", "nDCG@2"])
        metric.update(scores, labels, **lists)
        expected = rs.evaluate(scores, labels, ["AP", "nDCG@2"], **lists)
        for name, value in metric.compute().items():
            assert value.item() == pytest.approx(expected[name].mean().item())
    with pytest.raises(
        TypeError, match="only scores and labels may be given by position"
    ):  # torchmetrics' third is indexes
        metric(scores, labels, torch.tensor([0, 0, 0, 1, 1]))


def test_a_scorer_takes_offsets_as_losses_do():
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(30, 4)).astype(np.float32), rng.integers(0, 2, 30), np.repeat([0, 1, 2], 10)
    scorer = rs.LinearRanker(prepare=["query-zscore"]).fit(X, y, qid).to_scorer()
    expected = scorer(torch.tensor(X), offsets=torch.tensor([0, 10, 20, 30]))
    for offsets in (np.array([0, 10, 20, 30]), [0, 10, 20, 30]):
        assert torch.equal(scorer(torch.tensor(X), offsets=offsets), expected)


def test_boosting_takes_losses_by_name_and_is_named_where_a_loss_is_given():
    lightgbm = pytest.importorskip("lightgbm")
    y, sizes, scores = np.array([0.0, 2.0, 1.0, 0.0]), np.array([4]), np.array([0.5, 0.0, 0.1, 0.2])
    for name, loss in (("GradedLoss('AUC')", rs.GradedLoss("AUC")), ("ListNetLoss", rs.ListNetLoss())):
        found = rs.boosting_objective(name)(y, scores, None, sizes)
        np.testing.assert_array_equal(found, rs.boosting_objective(loss)(y, scores, None, sizes))
    data = lightgbm.Dataset(np.zeros((4, 1)), y, group=sizes)
    with pytest.raises(TypeError, match=r"pass rankstruct.boosting_objective\(loss\)"):
        rs.GradedLoss("AUC")(scores, data)


def messages():
    rng = np.random.default_rng(0)
    X, qid, scores = rng.normal(size=(8, 2)), np.repeat([0, 1], 4), torch.randn(2, 4)
    words, signs = np.array(["yes", "no"] * 4, dtype=object), np.array([-1, 1] * 4)
    nested = torch.nested.nested_tensor([torch.randn(2), torch.randn(3)], layout=torch.jagged)
    return {
        "labels must be numbers": lambda: rs.LinearRanker("AP").fit(X, words, qid),
        "if -1 means irrelevant, pass labels > 0": lambda: rs.LinearRanker("AP").fit(X, signs, qid),
        "gain='linear'": lambda: rs.StructuredHingeLoss("nDCG@2")(scores, torch.tensor([[0, 2000, 1, 0]] * 2)),
        "nested tensors are not supported": lambda: rs.StructuredHingeLoss("AP")(nested, nested),
        "pass a loss as loss=": lambda: rs.LinearRanker(rs.GradedLoss("AUC")).fit(X, signs > 0, qid),
        "different lengths flat, concatenated": lambda: rs.evaluate([[0.1, 0.2], [0.3]], [[0, 1], [1]], "AP"),
    }


@pytest.mark.parametrize("message", messages())
def test_the_message_says_what_to_do(message):
    with pytest.raises((TypeError, ValueError), match=message):
        messages()[message]()


def test_a_reader_that_stops_reading_ends_a_command_quietly():
    pipe = f"{sys.executable} -m rankstruct configs | true"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {pipe}"], capture_output=True, text=True, check=False)
    assert "Broken pipe" not in done.stderr
