"""F and accuracy of what scores above 0, from their definitions; the others are among all measures in enumeration.py."""

import numpy as np
import pytest
import torch

import rankstruct as rs


def slow(kind, scores, good, beta=1.0):
    positive = scores > 0
    if kind == "Accuracy":
        return (positive == good).mean()
    hits = (positive & good).sum()
    return (1 + beta**2) * hits / (positive.sum() + beta**2 * good.sum())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lists", [1, 2, 7, 300])
def test_equals_the_definition(lists, dtype):
    rng = np.random.default_rng(lists)
    measures = {
        rs.measures.F(): 1.0,
        rs.measures.F(beta=2): 2.0,
        rs.measures.F(beta=0.5, min_relevant=0.7): 0.5,
        rs.measures.Accuracy(): None,
    }
    for _ in range(20):
        size = int(rng.integers(1, 12))
        scores = np.round(rng.normal(size=(lists, size)) * rng.choice([1, 3, 100]))
        labels = rng.choice([0, 0.5, 0.7, 2], size=(lists, size))
        where = rng.random((lists, size)) < 0.8
        given = torch.tensor(np.where(where, scores, np.nan), dtype=dtype)
        for measure, beta in measures.items():
            wanted = np.full(lists, np.nan)
            for row, real in enumerate(where):
                good = labels[row, real] > 0 if measure.min_relevant is None else labels[row, real] >= 0.7
                if real.any() and (beta is None or good.any()):
                    wanted[row] = slow(type(measure).__name__, scores[row, real], good, beta)
            for ties in ("expected", "input", "worst"):
                found = measure(given, torch.tensor(labels), torch.tensor(where), ties=ties, empty="skip").numpy()
                np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_flat_lists_and_best_values():
    scores, labels, offsets = torch.tensor([1.0, -1.0, 2.0, 0.5]), torch.tensor([0, 1, 2, 0]), torch.tensor([0, 2, 4])
    values = rs.evaluate(scores, labels, ["F1", "Accuracy", "F(beta=2)"], offsets=offsets)
    assert values["F1"].tolist() == pytest.approx([0, 2 / 3])
    assert values["Accuracy"].tolist() == [0, 0.5]
    for measure in (
        rs.measures.F(),
        rs.measures.Accuracy(),
        rs.measures.F(1),
        rs.measures.F(min_relevant=2),
        rs.measures.Accuracy(min_relevant=2),
    ):
        every = [
            measure(torch.tensor([a, b]), labels[2:]).item()
            for a, b in [(1.0, 1.5), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.5)]
        ]
        assert measure.best_value(labels[2:]).item() == max(every)


def test_relevant_documents_that_were_not_retrieved():
    scores, labels = torch.tensor([3.0, 2.0, -1.0]), torch.tensor([1, 0, 1])
    values = rs.evaluate(scores, labels, ["R@2", "F1", "Success@2"], num_relevant=torch.tensor(4))
    assert values["R@2"].item() == 0.25
    assert values["F1"].item() == pytest.approx(2 * 1 / (2 + 4))
    assert values["Success@2"].item() == 1
