"""Every legal (measure, feature map, discount, cut-off, decay, reference): exact against all rankings of short lists."""

import lanes
import numpy as np
import pytest
import torch
from brute_force import hinge_by_program, hinges, list_cutoff, random_list
from combinations import legal_combinations
from scipy.optimize import linear_sum_assignment

import rankstruct as rs

COMBINATIONS: dict = {}
for _measure, _map, _reference in legal_combinations():
    COMBINATIONS.setdefault((_measure, _map), []).append(_reference)


def check(measure, feature_map, references, lists, tolerance=1e-9, dtype=torch.float64):
    """Compare lists, flat if they are several, with enumeration, under every reference."""
    lengths, sizes = [len(scores) for scores, _, _ in lists], np.array([size for _, _, size in lists])
    given = torch.tensor(np.concatenate([scores for scores, _, _ in lists]), dtype=dtype)
    labels = torch.tensor(np.concatenate([labels for _, labels, _ in lists]))
    rounded = given.double().split(lengths)
    every = [hinges(measure, feature_map, y, s.numpy()) for (_, y, _), s in zip(lists, rounded, strict=True)]
    layout = {"offsets": torch.tensor([0, *np.cumsum(lengths)])} if len(lists) > 1 else {}
    for reference in references:
        found = rs.most_violated(given, labels, measure, feature_map=feature_map, reference=reference, **layout)
        expected = np.array([each[reference] for each in every])
        products = torch.stack([each.sum() for each in (found.direction * given).split(lengths)])
        by_direction = found.task_loss.reshape(-1) + products
        for value, allowed in ((found.value.reshape(-1), tolerance), (by_direction, 4 * tolerance)):
            wrong = np.flatnonzero(~(np.abs(value.double().numpy() - expected) <= allowed * sizes))
            assert not len(wrong), (measure.name, feature_map.name, reference, lists[wrong[0]])


def test_every_combination_equals_enumeration():
    rng = np.random.default_rng(0)
    for (measure, feature_map), references in COMBINATIONS.items():
        graded = isinstance(feature_map, rs.Positional)
        check(measure, feature_map, references, [random_list(rng, graded, 5) for _ in range(8)])
        check(measure, feature_map, references, [random_list(rng, graded, 5)], 1e-5, torch.float32)


@pytest.mark.soak
def test_kernels_of_devices_equal_enumeration(monkeypatch):
    lanes.use(monkeypatch)
    rng = np.random.default_rng(1)
    for (measure, feature_map), references in COMBINATIONS.items():
        if not isinstance(feature_map, rs.Positional):
            check(measure, feature_map, references, [random_list(rng, False, 6) for _ in range(20)])


BINARY = [(m, f) for m, f in COMBINATIONS if isinstance(f, rs.Pairwise | rs.PartialPairwise)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("measure", "feature_map"), BINARY, ids=lambda each: each.name)
def test_pairwise_equals_the_program_on_long_lists(measure, feature_map, monkeypatch):
    rng = np.random.default_rng(2)
    for n in (50, 120, 300):
        scale = 10.0 ** rng.integers(-3, 4)
        scores = np.round(rng.normal(size=n) * scale, 2) if n == 120 else rng.normal(size=n) * scale
        labels = (rng.random(n) < rng.choice([0.03, 0.3, 0.9])).astype(float)
        expected = hinge_by_program(scores, labels > 0, measure, isinstance(feature_map, rs.PartialPairwise))
        size = max(1.0, np.abs(scores).max())
        arguments = (torch.tensor(scores), torch.tensor(labels), measure)
        found = rs.most_violated(*arguments, feature_map=feature_map, reference="ideal")
        assert abs(found.value.item() - expected) <= 1e-9 * size
        with monkeypatch.context() as patch:
            lanes.use(patch)
            again = rs.most_violated(*arguments, feature_map=feature_map, reference="ideal")
        assert abs(again.value.item() - expected) <= 1e-9 * size
        torch.testing.assert_close(
            again.task_loss + again.direction @ arguments[0], again.value, atol=1e-9 * size, rtol=0
        )


POSITIONAL = [
    (m, f)
    for m, f in COMBINATIONS
    if isinstance(f, rs.Positional) and isinstance(m, rs.DiscountedGain | rs.measures.mWTA)
]


@pytest.mark.parametrize("kind", ["random", "sorted", "anti-sorted", "tied", "two grades", "many grades"])
def test_positional_equals_scipys_assignment_by_value(kind):
    rng = np.random.default_rng(3)
    for measure, feature_map in POSITIONAL[::7]:
        n = int(rng.integers(50, 130))
        labels = rng.choice(6, p=[0.5, 0.2, 0.1, 0.1, 0.05, 0.05], size=n).astype(float)
        if kind == "two grades":
            labels = (labels > 1).astype(float)
        if kind == "many grades":  # more distinct gains than the sweep takes
            labels = rng.random(n) * 3
        scores = rng.normal(size=n)
        scores = {"sorted": labels + 0.1 * scores, "anti-sorted": -labels + 0.1 * scores}.get(kind, scores)
        scores = np.round(scores) if kind == "tied" else scores
        a = measure.unchecked_weights(n).numpy()
        c = feature_map.weights(n, torch.tensor(a), measure.cutoff).numpy()
        if isinstance(measure, rs.measures.mWTA):
            a = np.where(np.arange(n) < list_cutoff(labels), a, 0)
        gains = measure.document_gains(torch.tensor(labels)).numpy()
        best = a @ np.sort(gains)[::-1]
        unit = 1 / best if measure.normalized else 1.0
        value = np.outer(scores, c) - np.outer(gains * unit, a)
        rows, columns = linear_sum_assignment(value, maximize=True)
        reference = np.sort(scores)[::-1] @ c
        expected = best * unit + value[rows, columns].sum() - reference
        if a[0] == a[-1]:
            expected = 0.0
        found = rs.most_violated(
            torch.tensor(scores), torch.tensor(labels), measure, feature_map=feature_map, reference="predicted"
        )
        assert found.value.item() == pytest.approx(expected, abs=1e-9 * max(1, best)), (measure.name, feature_map.name)


def test_grades_need_a_cut_under_the_pairwise_map():
    scores, labels = torch.randn(5), torch.tensor([0, 1, 2, 0, 1])
    with pytest.raises(ValueError, match=r"more than one grade above zero.*min_relevant=.*positional"):
        rs.most_violated(scores, labels, "nDCG@10", feature_map="pairwise")
    cut = rs.most_violated(scores, labels, rs.nDCG(10, min_relevant=2), feature_map="pairwise")
    assert torch.equal(cut.value, rs.most_violated(scores, labels >= 2, "nDCG@10", feature_map="pairwise").value)
    for measure in ("AP", "AUC", "RR", "P@2", "WTA"):
        assert rs.most_violated(scores, labels, measure).value >= 0
        assert rs.most_violated(scores, labels, measure, feature_map="pairwise").value >= 0


def test_grades_under_the_pairwise_map_poison_the_list_on_a_device(monkeypatch):
    lanes.use(monkeypatch)
    scores, labels = torch.randn(2, 5), torch.tensor([[0, 1, 2, 0, 1], [0, 1, 1, 0, 1]])
    assert rs.most_violated(scores, labels, "nDCG@10", feature_map="pairwise").value.isnan().tolist() == [True, False]


def test_default_bounds():
    """Whole-list measures of relevance take the convex bound, all that discount ranks one that learns."""
    convex = ("pairwise", "ideal")
    expected = dict.fromkeys(("AP", "AP@10", "AUC"), convex) | {"pAUC(high=0.1)": ("partial-pairwise", "predicted")}
    expected |= dict.fromkeys(("R@3", "Success@3"), ("predicted-positive", "ideal-tied"))
    expected |= dict.fromkeys(("F1", "Accuracy"), ("predicted-positive", "ideal"))
    for measure in (
        "nDCG@10",
        "nDCG",
        "P@5",
        "RR",
        "RR@10",
        "WTA",
        "mWTA",
        "DCG",
        "ERU(d=0,half_life=5)",
        "diverse_RR@5",
    ):
        expected[measure] = ("positional(i^-0.5)", "ideal-tied")
    for measure, bound in expected.items():
        loss = rs.StructuredHingeLoss(measure)
        assert (loss.feature_map.name, loss.reference) == bound
        scores, labels = torch.randn(3, 6), torch.tensor([[2, 0, 1, 0, 2, 0]] * 3)
        diversity_groups = {"diversity_groups": torch.arange(6).expand(3, 6)} if loss.takes_groups else {}
        named = {"feature_map": bound[0].split("(")[0], "reference": bound[1]}
        found, its = (
            rs.most_violated(scores, labels, measure, **diversity_groups, **more).value for more in ({}, named)
        )
        assert torch.equal(found, its)
        value = loss(scores, labels, **diversity_groups)
        assert torch.equal(rs.StructuredHingeLoss(measure, **named)(scores, labels, **diversity_groups), value)
        torch.testing.assert_close(found.mean(), value)


def test_pairs_without_an_oracle_are_refused_with_a_list():
    pairs = (("AP", "positional"), ("AUC", "first-relevant"), ("MeanNDCG", "pairwise"), ("mWTA", "pairwise"))
    for measure, feature_map in pairs:
        with pytest.raises(
            ValueError, match=r"has no oracle; available: .*AUC with Pairwise, .*DiscountedGain with Positional"
        ):
            rs.most_violated(torch.zeros(2), torch.tensor([0, 1]), measure, feature_map=feature_map)


@pytest.mark.parametrize(
    ("decay", "message"),
    [
        ("i^2", "unknown decay"),
        ("i^-x", "unknown decay"),
        ((1.0, 2.0), "never increase"),
        ((1.0, -1.0), "never increase"),
    ],
)
def test_bad_decays(decay, message):
    with pytest.raises(ValueError, match=message):
        rs.most_violated(torch.zeros(2), torch.tensor([0, 1]), "DCG", feature_map=rs.Positional(decay))


def test_decays_as_numbers_and_functions():
    scores, labels = torch.randn(6, dtype=torch.float64), torch.tensor([0, 2, 1, 0, 1, 3])
    named = rs.most_violated(scores, labels, "DCG", feature_map=rs.Positional("i^-2"))
    for decay in (lambda i: i**-2.0, [i**-2.0 for i in range(1, 7)], torch.arange(1, 7, dtype=torch.float64) ** -2):
        found = rs.most_violated(scores, labels, "DCG", feature_map=rs.Positional(decay))
        assert found.value.item() == pytest.approx(named.value.item(), abs=1e-12)


def test_negative_labels_and_gains_are_refused():
    scores, labels = torch.zeros(2), torch.tensor([1.0, -1.0])
    for measure in ("DCG", "AP", "nDCG(min_relevant=1)"):
        with pytest.raises(
            ValueError, match=r"labels must be 0 or more .* where=labels >= 0; .*; that of document 1 is -1"
        ):
            rs.most_violated(scores, labels, measure)
    with pytest.raises(ValueError, match=r"gains must be >= 0; document 1 has gain -0.5"):
        rs.most_violated(scores, labels, rs.DCG(gain=lambda y: torch.exp2(y) - 1))


def test_explain_oracle():
    assert "sort by" in rs.explain_oracle("DCG", rs.Positional("discount")).method
    assert "sweep" in rs.explain_oracle("nDCG@10", "positional", grades=5).method
    assert "sweep" in rs.explain_oracle("nDCG", "positional", grades=5).method
    assert "sweep" in rs.explain_oracle("nDCG@10", "positional", grades=2).method
    assert "sweep" in rs.explain_oracle("nDCG", "positional", grades=2).method
    assert "prices" in rs.explain_oracle("nDCG", "positional", grades=100).method
    assert "divide and conquer" in rs.explain_oracle("nDCG", "pairwise").method
    assert "running-maximum program" in rs.explain_oracle("nDCG(discount='letor')", "pairwise").method


def test_users_own_measure_has_every_oracle():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Cascade(rs.DiscountedGain):
        def discounts(self, ranks):
            return 0.6 ** (ranks - 1)

        def gains(self, labels):
            return labels * 1.0

    scores, labels = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64), torch.tensor([0, 0, 1])
    # One relevant document last: moving it from rank 3 to 1 costs 1 - 0.36 and the pairs' scores.
    pairwise = rs.most_violated(scores, labels, Cascade(), feature_map="pairwise")
    assert pairwise.value.item() == pytest.approx(1 - 0.36 + 2.0 + 1.0)
    positional = rs.most_violated(scores, labels, Cascade(), feature_map=rs.Positional("i^-1"), reference="predicted")
    assert positional.value.item() == pytest.approx(1 - 0.36)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_oracles_and_measures_agree_on_fractional_thresholds(dtype):
    labels, scores = torch.tensor([0.7, 0.3, 0.1], dtype=dtype), torch.tensor([0.0, 0.1, 0.2])
    for threshold in (0.7, 0.3, 0.1):
        measure = rs.measures.P(1, min_relevant=threshold)
        count = sum(float(rs.evaluate(-(torch.arange(3.0) - i).abs(), labels, measure)[measure.name]) for i in range(3))
        assert count == {0.7: 1, 0.3: 2, 0.1: 3}[threshold]
        wrong = rs.most_violated(1000 * scores, labels, measure)  # the ranking by score
        expected = 0.0 if count == 3 else 1.0
        assert float(wrong.task_loss) == expected
