"""Measures of contingency tables: exact against all labellings, and against all tables of longer lists."""

import lanes
import numpy as np
import pytest
import torch
from brute_force import labelling_hinges, labelling_values

import rankstruct as rs

MEASURES = ["F1", "F(beta=0.3)", "F(beta=4)", "F1@2", "Accuracy", "R@2", "P@3", "Success@2", "Success@3", "Rprec"]
REFERENCES = ("ideal", "ideal-tied", "predicted")


def all_tables(measure, good, scores) -> float:
    """The hinge, reference `predicted`, by trying every table."""
    first, second = np.sort(scores[good])[::-1], np.sort(scores[~good])[::-1]
    p, m, k = len(first), len(second), measure.cutoff
    k = p if isinstance(measure, rs.measures.Rprec) else k
    best_value, most, liked = -np.inf, -np.inf, -np.inf
    for a in range(p + 1):
        for b in range(m + 1):
            if k is not None and a + b != min(k, p + m):
                continue
            positive = np.concatenate([np.arange(p) < a, np.arange(m) < b])[None]
            value = labelling_values(measure, np.arange(p + m) < p, positive)[0]
            by = first[:a].sum() + second[:b].sum()
            best_value, most, liked = max(best_value, value), max(most, by - value), max(liked, by)
    return best_value + most - liked


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MEASURES)
def test_equals_enumeration_of_all_labellings(name, monkeypatch):
    rng = np.random.default_rng(MEASURES.index(name))
    measure = rs.parse_measure(name)
    for lists in (1, 64):
        for size in range(1, 7):
            scores = rng.normal(size=(lists, size)) * 10.0 ** rng.integers(-2, 2, size=(lists, 1))
            scores = np.where(rng.random((lists, 1)) < 0.4, np.round(scores * 2) / 2, scores)
            labels = rng.choice([0, 0, 0.5, 2.5], size=(lists, size))
            chosen = rng.normal(size=(lists, size))
            for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
                given = torch.tensor(scores, dtype=dtype)
                allowed = tolerance * np.maximum(1, np.abs(scores).max(1))
                for frozen in (None, chosen):
                    rows = zip(
                        labels, given.double().numpy(), [None] * lists if frozen is None else frozen, strict=True
                    )
                    hinges = [labelling_hinges(measure, *row) for row in rows]
                    for reference in REFERENCES if frozen is None else REFERENCES[1:]:
                        expected = [each[reference] for each in hinges]
                        check_both_paths(monkeypatch, measure, given, labels, reference, frozen, expected, allowed)


def check_both_paths(monkeypatch, measure, scores, labels, reference, frozen, expected, allowed):
    """The compiled loops and the kernels of devices, called for CPU tensors."""
    for path in ("loops", "kernels") if len(scores) == 1 else ("loops",):
        with monkeypatch.context() as patch:
            if path == "kernels":
                lanes.use(patch)
            found = rs.most_violated(
                *(scores, torch.tensor(labels), measure),
                feature_map="predicted-positive",
                reference=reference,
                reference_scores=None if frozen is None else torch.tensor(frozen),
            )
        by_direction = found.task_loss + (found.direction * scores).sum(1)
        for value in (found.value, by_direction):
            assert (np.abs(value.double().numpy() - expected) <= allowed).all(), (path, reference, frozen is None)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", ["F1", "F(beta=0.2)", "F(beta=3)@25", "Accuracy", "R@20", "P@20", "Success@30", "Rprec"]
)
def test_equals_all_tables_of_long_lists(name, monkeypatch):
    rng = np.random.default_rng(1)
    measure = rs.parse_measure(name)
    for share in (0.03, 0.4, 0.95):
        for scale in (0.01, 0.3, 10):
            scores, good = rng.normal(size=60) * scale, rng.random(60) < share
            good[:2] = True, False
            expected = all_tables(measure, good, scores)
            given = (torch.tensor(scores), torch.tensor(good), measure)
            options = {"feature_map": "predicted-positive", "reference": "predicted"}
            assert rs.most_violated(*given, **options).value.item() == pytest.approx(expected, abs=1e-9)
            with monkeypatch.context() as patch:
                lanes.use(patch)
                assert rs.most_violated(*given, **options).value.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["F1", "F(beta=3)@250", "Accuracy", "R@200", "P@20", "Success@3"])
def test_device_path_agrees_on_long_lists(name, monkeypatch):
    generator = torch.Generator().manual_seed(2)
    scores = 0.1 * torch.randn(3, 3000, generator=generator, dtype=torch.float64)
    labels = (torch.rand(3, 3000, generator=generator) < torch.tensor([[0.001], [0.2], [0.97]])).long()
    where = torch.rand(3, 3000, generator=generator) < 0.9
    for reference in REFERENCES:
        options = {"feature_map": "predicted-positive", "reference": reference, "where": where}
        found = rs.most_violated(scores, labels, name, **options)
        with monkeypatch.context() as patch:
            lanes.use(patch)
            again = rs.most_violated(scores, labels, name, **options)
        torch.testing.assert_close(found.value, again.value, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close((again.direction * scores).sum(1) + again.task_loss, again.value, atol=1e-9, rtol=0)
        assert (found.direction[~where] == 0).all()


def test_accuracy_is_the_hinge_of_a_classifier():
    """Each document decides by itself: max(0, 1/n - t s), which is the mean of max(0, 1 - n t s)."""
    scores, labels = torch.randn(4, 7, dtype=torch.float64), torch.randint(2, (4, 7))
    wanted = rs.ClassificationLoss(reduction="none")(7 * scores, labels)
    torch.testing.assert_close(rs.StructuredHingeLoss("Accuracy", reduction="none")(scores, labels), wanted)


def test_cut_offs_keep_their_shift_invariance():
    scores, labels = torch.randn(5, 30, dtype=torch.float64), torch.randint(2, (5, 30))
    for name in ("R@4", "P@4", "Success@4", "F1@4"):
        options = {"feature_map": "predicted-positive", "reference": "ideal-tied"}
        here, there = (rs.most_violated(s, labels, name, **options) for s in (scores, scores + 2.0**20))
        torch.testing.assert_close(here.value, there.value, atol=1e-8, rtol=0)
        torch.testing.assert_close(here.direction, there.direction)


@pytest.mark.parametrize("name", ["R@10", "F1"])
def test_a_linear_ranker_learns_it(name):
    rng = np.random.default_rng(3)
    X, qid = np.column_stack([rng.normal(size=(600, 4)), np.ones(600)]), np.repeat(np.arange(6), 100)
    y = (X[:, :4] @ [1.0, -1.0, 0.5, 0.0] + 0.5 * rng.normal(size=600) > 1.5).astype(int)
    ranker = rs.LinearRanker(name, C=100.0).fit(X, y, qid)
    reached = ranker.score(X, y, qid)
    assert reached > rs.evaluate(X[:, 0] - 1, y, name, offsets=torch.arange(0, 601, 100))[name].mean() + 0.1
