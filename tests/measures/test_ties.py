"""Expected values over tied documents: every registered measure is held to the mean over all orders, one by one."""

import itertools
import math
import random
from dataclasses import MISSING, dataclass, fields
from typing import ClassVar

import pytest
import torch

import rankstruct as rs
from rankstruct.measures import base, parse_measure

EXAMPLES = {
    "ERU": "ERU(d=0.5,half_life=3)",
    "nERU": "nERU(d=0.5,half_life=3)",
    "P": "P@3",
    "R": "R@3",
    "StRecall": "StRecall@2",
    "Success": "Success@2",
    "pAUC": "pAUC(low=0.1,high=0.7,min_tpr=0.4)",
}
"""Of registered measures that need arguments."""


def example(kind):
    """A measure of the class, so that a new one need not be written down here."""
    needed = [each.name for each in fields(kind) if each.init and each.default is MISSING]
    assert not needed or kind.__name__ in EXAMPLES, f"write an example of {kind.__name__} into EXAMPLES"
    return parse_measure(EXAMPLES.get(kind.__name__, kind.__name__))


def tied_lists(count, seed=0):
    draw = random.Random(seed)
    for _ in range(count):
        size = draw.randint(1, 6)
        grades = draw.choice([(0, 1), (0, 1, 2, 4), (0, 0.5), (0.3, 1.5, 2.75)])
        yield (
            [float(draw.randrange(3)) for _ in range(size)],
            [float(draw.choice(grades)) for _ in range(size)],
            [draw.randrange(3) for _ in range(size)],
        )


def values_of_orders(measure, scores, labels, diversity_groups):
    """The measure under each order of the tied documents, by scores that no longer tie; as many as before are above 0."""
    orders = [
        order
        for order in itertools.permutations(range(len(scores)))
        if all(scores[i] >= scores[j] for i, j in itertools.pairwise(order))
    ]
    by_rank = [[values[i] for i in order] for values in (labels, diversity_groups) for order in orders]
    above = sum(score > 0 for score in scores)
    falling = torch.arange(above, above - len(scores), -1.0).expand(len(orders), -1)
    ranked, hosts = by_rank[: len(orders)], by_rank[len(orders) :]
    return measure(falling, ranked, diversity_groups=hosts, empty="skip").tolist()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", base._REGISTRY.values(), ids=lambda kind: kind.__name__)
def test_every_registered_measure_equals_the_mean_over_tie_orders(kind):
    measure = example(kind)
    assert measure.under_ties in ("closed form", "orders", "worst")
    for scores, labels, diversity_groups in tied_lists(60):
        found = measure(scores, labels, diversity_groups=diversity_groups, empty="skip").item()
        if measure.under_ties == "worst":
            wanted = measure(scores, labels, diversity_groups=diversity_groups, empty="skip", ties="worst").item()
        else:
            each = values_of_orders(measure, scores, labels, diversity_groups)
            wanted = math.fsum(each) / len(each)
        assert found == pytest.approx(wanted, abs=1e-12, nan_ok=True), (scores, labels)


@dataclass(frozen=True)
class ERR(rs.Measure):
    """Expected reciprocal rank as the README has it: documents in rank order, no word on ties."""

    def compute(self, lists):
        stop = (torch.exp2(lists.labels) - 1) / 16
        seen = (1 - stop).cumprod(-1).roll(1, -1)
        seen[:, :1] = 1
        return (seen * stop / lists.ranks).sum(-1), (lists.labels > 0).any(-1)


def test_a_measure_that_knows_no_ties_is_averaged_over_their_orders():
    scores, labels = [1.0, 1.0, 1.0], [0, 4, 1]
    orders = [ERR()([3.0, 2.0, 1.0], order).item() for order in itertools.permutations(labels)]
    assert len({round(value, 6) for value in orders}) > 1
    assert ERR()(scores, labels).item() == pytest.approx(sum(orders) / 6)
    assert ERR()(scores, labels, ties="worst").item() == min(orders)
    assert ERR()(scores, labels, ties="input").item() == orders[0]
    for scores, labels, diversity_groups in tied_lists(60, seed=1):
        each = values_of_orders(ERR(), scores, labels, diversity_groups)
        assert ERR()(scores, labels, empty="skip").item() == pytest.approx(sum(each) / len(each), nan_ok=True)


def test_padded_flat_and_metric_agree_on_a_measure_averaged_over_orders():
    lists = list(tied_lists(20, seed=2))
    alone = torch.stack([ERR()(scores, labels) for scores, labels, _ in lists])
    scores, labels = (torch.tensor([x for each in lists for x in each[part]], dtype=torch.float64) for part in (0, 1))
    offsets = torch.tensor([0, *itertools.accumulate(len(each[0]) for each in lists)])
    torch.testing.assert_close(ERR()(scores, labels, offsets=offsets), alone)
    metric = rs.RankingMetric(ERR())
    metric.update(scores, labels, offsets=offsets)
    assert metric.compute()["ERR"].item() == pytest.approx(alone.mean().item())


def test_documents_that_are_alike_are_not_permuted():
    labels = torch.zeros(200)
    labels[7] = 1  # 200 orders, not 200!
    assert ERR()(torch.zeros(200), labels).item() == pytest.approx(sum(1 / rank for rank in range(1, 201)) / 200 / 16)


def test_too_many_orders_are_refused_with_the_ways_out():
    scores, labels = torch.zeros(2, 12), torch.arange(12.0).remainder(5).expand(2, 12)
    scores[0] = torch.arange(12.0)
    message = r"ERR has no closed form for tied scores, .* list 1 have [\d,]+ different orders.*choose ties='input'.*under_ties"
    with pytest.raises(ValueError, match=message):
        ERR()(scores, labels)
    assert ERR()(scores, labels, ties="input").shape == (2,)


def test_a_compute_of_its_own_says_anew_what_it_does_about_ties():
    class Squared(rs.AP):
        def compute(self, lists):
            values, defined = super().compute(lists)
            return values**2, defined

    class Same(rs.AP):
        pass

    class Told(Squared):
        under_ties: ClassVar[str] = "worst"

    assert (Squared.under_ties, Same.under_ties, Told.under_ties) == ("orders", "closed form", "worst")
    # The mean of the squares, not the square of the mean.
    assert Squared()([1.0, 1.0], [1, 0]).item() == pytest.approx((1 + 1 / 4) / 2)
    assert Told()([1.0, 1.0], [1, 0]).item() == 1 / 4


def test_docid_ties_are_those_of_single_precision():
    scores, labels = [[1.0, 1.00000001], [16777216.0, 16777217.0]], [[1, 0], [1, 0]]
    ids = [["b", "a"], ["b", "a"]]
    assert rs.AP()(torch.tensor(scores, dtype=torch.float64), labels, ties="docid", docids=ids).tolist() == [1, 1]
    assert rs.AP()(torch.tensor(scores, dtype=torch.float64), labels, ties="input").tolist() == [0.5, 0.5]
    # Beyond single precision; padding comes last.
    where = torch.tensor([[False, True, True]])
    huge = torch.tensor([[0.0, -1e300, -1e200]], dtype=torch.float64)
    assert rs.AP()(huge, [[1, 1, 0]], where, ties="docid", docids=[[9, 2, 1]]).tolist() == [1]


def expected_err_of_one_tie(labels, cutoff=None):
    """Sum over m of (A_m - A_(m+1)) / (m + 1), A_m being the mean over all sets of m documents of the chance to pass them."""
    means = [1.0] + [0.0] * len(labels)
    for t, label in enumerate(labels, 1):
        passes = 1 - (2.0**label - 1) / 16
        means[1:] = [
            ((t - m) * means[m] + m * passes * means[m - 1]) / t if m <= t else 0.0 for m in range(1, len(means))
        ]
    return sum((means[m] - means[m + 1]) / (m + 1) for m in range(len(labels))[:cutoff])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("relevant", [0.02, 0.4, 1.0])
@pytest.mark.parametrize("grades", [[1], [1, 2, 4], [0.5, 2.25, 3], "any"])
def test_err_of_large_ties(relevant, grades):
    draw = random.Random(1)
    for size, cutoff in itertools.product((64, 65, 66, 300), (None, 1, 7, 100)):
        several = [4 * draw.random() for _ in range(size)] if grades == "any" else grades
        labels = [draw.choice(several) if draw.random() < relevant else 0 for _ in range(size)]
        value = rs.ERR(cutoff)(torch.zeros(size), labels).item()
        assert value == pytest.approx(expected_err_of_one_tie(labels, cutoff), rel=1e-10, abs=1e-14)


def test_err_of_a_large_tie_goes_by_grades(monkeypatch):
    """Not document by document, each of which takes as long as the cut-off."""
    labels = torch.randint(5, (2, 100_000), generator=torch.Generator().manual_seed(0))
    calls = []
    monkeypatch.setattr(torch.nn.functional, "pad", lambda *given: calls.append(given))
    assert (rs.ERR(10)(torch.zeros(2, 100_000), labels) > 0.5).all()
    assert not calls
