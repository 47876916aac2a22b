"""What losses and measures warn of: one long list that nothing separates, and labels whose exponential gains are huge."""

import warnings

import pytest
import torch

import rankstruct as rs

SCORES, LABELS = torch.linspace(0, 1, 1200), torch.arange(1200) % 3


@pytest.mark.parametrize("loss", [rs.StructuredHingeLoss("AP"), rs.ListNetLoss()], ids=str)
def test_losses_take_one_long_list_as_it_is(loss):
    assert torch.equal(loss(SCORES, LABELS), loss(SCORES[None], LABELS[None]))


def test_a_long_list_warns_in_evaluation():
    metric = rs.RankingMetric("AP")
    for call in (
        lambda **given: rs.evaluate(SCORES, LABELS, ["AP"], **given),
        lambda **given: rs.evaluate(SCORES.tolist(), LABELS.numpy(), ["AP", "nDCG@10"], **given),
        lambda **given: metric.update(SCORES, LABELS, **given),
    ):
        with pytest.warns(UserWarning, match=r"one list of 1200 documents: .* pass qid=, .* pass group=\[1200\]$"):
            call()
        for given in ({"group": [1200]}, {"qid": [7] * 1200}, {"offsets": [0, 1200]}):
            call(**given)
    with pytest.warns(UserWarning, match="one list of 1200 documents"):
        rs.AP()(SCORES, LABELS)
    rs.evaluate(SCORES[None], LABELS[None], ["AP"])
    rs.evaluate(SCORES[:1000], LABELS[:1000], ["AP"])


def test_labels_that_are_no_grades_warn_that_their_gains_are_huge():
    scores, labels = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0, 100, 50]])
    for make in (
        lambda **option: rs.StructuredHingeLoss(rs.nDCG(10, **option)),
        lambda **option: rs.StructuredHingeLoss(rs.DCG(**option), feature_map="positional"),
        lambda **option: rs.LambdaLoss(rs.nDCG(**option)),
        lambda **option: rs.ApproxNDCGLoss(rs.nDCG(**option)),
        lambda **option: rs.SmoothLoss(rs.nDCG(**option)),
        lambda **option: rs.PLRankLoss(rs.nDCG(**option)),
        lambda **option: lambda *lists: rs.evaluate(*lists, rs.nDCG(10, **option)),
        lambda **option: lambda *lists: rs.RankingMetric(rs.DCG(**option)).update(*lists),
    ):
        with pytest.warns(UserWarning, match=r"labels go up to 100, .* gain='linear', such as n?DCG\(gain='linear'\)"):
            make()(scores, labels)
        for option in ({"gain": "linear"}, {"min_relevant": 60}):
            make(**option)(scores, labels)
        make()(scores, labels * 30 / 100)  # as many as LightGBM knows
    for loss in (rs.ListNetLoss("gain"), rs.SoftmaxLoss("gain"), rs.SquaredLoss("gain")):
        with pytest.warns(UserWarning, match="labels go up to 100, .* use another target="):
            loss(scores.double(), labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rs.StructuredHingeLoss("nDCG@10")(scores, labels, where=labels < 50)
        rs.StructuredHingeLoss("AP")(scores, labels)
        rs.ListNetLoss()(scores, labels)
