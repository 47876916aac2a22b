"""Measures under rules: against every ranking, and what has no best ranking."""

import numpy as np
import pytest
import torch

import rankstruct as rs

from .test_ranking import PAIRS, TRIANGLE, feasible

MEASURES = ["nDCG", "nDCG@3", "DCG@2", "P@2", "AP", "RR", "R@2", "Success@1"]


def values(rankings, labels):
    """The measures of the documents shown `[rankings]` by name, where the best ranking is that of all documents."""
    scores = np.broadcast_to(-np.arange(rankings.shape[1], dtype=float), rankings.shape)
    ideal = np.broadcast_to(labels.astype(float), (len(rankings), len(labels)))
    return rs.evaluate(scores, labels[rankings], MEASURES, ideal_labels=ideal)


@pytest.mark.filterwarnings("ignore:no document has")
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_values_are_relative_to_the_best_ranking_that_keeps_the_rules():
    rng = np.random.default_rng(1)
    caps, quota = rs.Constraints("host <= 1 @ 2", "host=1 <= 1 @ 4"), rs.Constraints("host <= 2 @ 3", "host=1 >= 1 @ 3")
    for trial in range(10):
        scores, labels, host = rng.permutation(5.0 + np.arange(5)), rng.integers(0, 3, 5), rng.integers(0, 3, 5)
        constraints = quota if trial % 2 and (host == 1).any() else caps
        found = rs.constraints.evaluate_under([scores], [labels], MEASURES, constraints, {"host": [host]})
        ranks = rs.rank_under(scores, constraints, {"host": host}).numpy()
        shown = np.argsort(np.where(ranks > 0, ranks, 99))[: (ranks > 0).sum()]
        rankings = feasible({"host": host}, constraints.rules, np.zeros(5, int), 5)
        every, of_shown = values(rankings, labels), values(shown[None], labels)
        for name in MEASURES:
            best = every[name].max().item()
            expected = of_shown[name].item() / best if best else 0.0
            assert found[name].item() == pytest.approx(expected), (name, scores, labels, host)


def test_ties_never_help():
    rules = rs.Constraints("host <= 1 @ 2")
    low = rs.constraints.evaluate_under([1, 1, 0], [0, 2, 1], "nDCG@2", rules, {"host": [0, 0, 1]})["nDCG@2"]
    assert torch.equal(
        low, rs.constraints.evaluate_under([1, 1, 0], [2, 0, 1], "nDCG@2", rules, {"host": [0, 0, 1]})["nDCG@2"]
    )
    assert low < 1


def test_one_document_of_each_group_is_the_diverse_measure():
    rng = np.random.default_rng(2)
    scores, labels, hosts = rng.normal(size=(30, 8)), rng.integers(0, 3, (30, 8)), rng.integers(0, 4, (30, 8))
    expected = rs.evaluate(scores, labels, "diverse_nDCG@3", diversity_groups=hosts)["diverse_nDCG@3"]
    found = rs.constraints.evaluate_under(
        scores, labels, "nDCG@3", rs.Constraints("host <= 1 @ 3"), {"host": hosts}, k=3
    )["nDCG@3"]
    torch.testing.assert_close(found, expected)


def test_what_is_refused():
    columns = {"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]}
    overlapping = rs.Constraints("a <= 1 @ 2", "b=1 >= 1 @ 2")
    with pytest.raises(ValueError, match="AUC has no best ranking under rules"):
        rs.constraints.evaluate_under([4, 3, 2, 1], [0, 1, 0, 1], "AUC", overlapping, columns)
    with pytest.raises(ValueError, match="depends on the discount, which AP has not"):
        rs.constraints.evaluate_under([4, 3, 2, 1], [0, 1, 0, 1], "AP", overlapping, columns)
    assert rs.constraints.evaluate_under([4, 3, 2, 1], [0, 1, 0, 1], "nDCG", overlapping, columns)["nDCG"].item() < 1
    with pytest.raises(ValueError, match="labels must be 0 or more"):
        rs.constraints.evaluate_under([1, 2], [-1, 0], "AP", rs.Constraints("a <= 1"), {"a": [0, 1]})


def test_rules_broken_before_and_after():
    rng = np.random.default_rng(4)
    scores, labels, host = rng.normal(size=(20, 6)), rng.integers(0, 3, (20, 6)), rng.integers(0, 3, (20, 6))
    rules = rs.Constraints("host <= 1 @ 2", "host <= 2 @ 4")
    found = rs.constraints.report_under(scores, labels, "nDCG@4", rules, {"host": host}, k=3)
    ranks = (-scores).argsort().argsort() + 1
    assert found.before == rs.constraints.violations(np.where(ranks <= 3, ranks, 0), rules, {"host": host})
    assert 0 < found.before["host <= 2 @ 4"] < found.before["host <= 1 @ 2"] < 20
    assert found.after == dict.fromkeys(found.before, 0)
    expected = rs.constraints.evaluate_under(scores, labels, "nDCG@4", rules, {"host": host}, k=3)
    assert torch.equal(found.values["nDCG@4"], expected["nDCG@4"])


def test_pages_that_may_not_be_the_best_are_told():
    given = [3.0, 3.0, 3.0, 1.0, 1.0, 0.0], [2, 2, 2, 1, 1, 0], "nDCG@3", PAIRS, TRIANGLE
    with pytest.warns(UserWarning, match="1 of 1 rankings may not be the best"):
        rs.constraints.evaluate_under(*given, time_limit=0)


def test_the_value_of_lists_without_relevant_documents_is_a_number():
    given = [1.0, 0.0], [0, 0], "P@1", rs.Constraints("a <= 1"), {"a": [0, 1]}
    assert rs.constraints.evaluate_under(*given, empty=1)["P@1"].item() == 1
    with pytest.raises(TypeError, match="empty must be a number, got 'skip'"):
        rs.constraints.evaluate_under(*given, empty="skip")
