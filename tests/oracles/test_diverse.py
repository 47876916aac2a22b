"""The oracle of diverse rankings: all diverse rankings of short lists, SciPy's assignment on longer ones."""

import numpy as np
import pytest
import torch
from brute_force import decay, diverse_cutoff, diverse_decay, diverse_hinges
from diverse_problems import draw_grouped, draw_reciprocal, reciprocal_hinges
from scipy.optimize import linear_sum_assignment

import rankstruct as rs

REFERENCES = ("ideal", "ideal-tied", "predicted")
MEASURES = [
    *(f"{kind}@{k}" for kind in ("nDCG", "DCG(discount='letor')", "P") for k in (1, 2, 3, 10)),
    "DCG@3",
    "nDCG(discount='letor')@4",
    "ERU(d=1,half_life=3)@3",
    "nERU(d=0,half_life=2)@2",
    *(f"RR@{k}" for k in (1, 2, 3, 4, 10)),
    "WTA",
    "mWTA",
    "mWTA(discount='letor')",
]
DECAYS = ("i^-1/2", "i^-2", "k+1-i", "discount", "1/log2(log2(i+1)+1)")


def most_violated_diverse(scores, labels, measure, **options):
    """`most_violated` of a measure with the prefix `diverse_`."""
    return rs.most_violated(scores, labels, rs.Diverse(measure), **options)


def test_reciprocal_rank_of_longer_lists_has_scipys_value():
    rng = np.random.default_rng(7)
    for _ in range(400):
        scores, labels, diversity_groups, k = draw_reciprocal(rng)
        given = torch.tensor(scores), torch.tensor(labels), rs.RR(k)
        for reference, expected in reciprocal_hinges(scores, labels, diversity_groups, k).items():
            found = most_violated_diverse(*given, diversity_groups=torch.tensor(diversity_groups), reference=reference)
            assert found.value.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MEASURES)
def test_every_reference_equals_enumeration(name):
    measure = rs.parse_measure(name)
    decays = [name for name in DECAYS if measure.cutoff is not None or name != "k+1-i"]
    rng = np.random.default_rng(0)
    for trial in range(60):
        scores, labels, diversity_groups, size = draw_grouped(rng)
        name = decays[trial % len(decays)]
        c = diverse_decay(measure, name, len(scores) + 1)
        dtype, tolerance = (torch.float32, 1e-5) if trial % 6 == 0 else (torch.float64, 1e-9)
        given = torch.tensor(scores, dtype=dtype)
        expected = diverse_hinges(measure, c, labels, diversity_groups, given.double().numpy())
        for reference in REFERENCES:
            found = most_violated_diverse(
                given,
                torch.tensor(labels),
                measure,
                diversity_groups=torch.tensor(diversity_groups),
                feature_map=rs.Positional(name),
                reference=reference,
            )
            by_direction = found.task_loss + (found.direction * given).sum()
            context = (reference, scores.tolist(), labels.tolist(), diversity_groups.tolist())
            scale = tolerance * size * max(1.0, c[0]) * max(1.0, expected["best"])
            assert found.value.item() == pytest.approx(expected[reference], abs=scale), context
            assert by_direction.item() == pytest.approx(expected[reference], abs=4 * scale), context
            shown = (
                min(diverse_cutoff(measure, labels, diversity_groups), len(set(diversity_groups))) if len(labels) else 0
            )
            assert (found.direction != 0).sum() <= 2 * shown


def test_references_that_other_scores_choose_equal_enumeration():
    rng = np.random.default_rng(1)
    for _ in range(100):
        scores, labels, diversity_groups, size = draw_grouped(rng)
        other = rng.permutation(len(scores)).astype(float)
        measure = [rs.nDCG, rs.RR][int(rng.integers(2))](int(rng.integers(1, 4)))
        expected = diverse_hinges(measure, decay("i^-1/2", None, 9, []), labels, diversity_groups, scores, other)
        for reference in ("ideal-tied", "predicted"):
            found = most_violated_diverse(
                torch.tensor(scores),
                torch.tensor(labels),
                measure,
                diversity_groups=torch.tensor(diversity_groups),
                reference=reference,
                reference_scores=torch.tensor(other),
            )
            # A fixed reference may be so bad that the hinge below is that of a better ranking; never below 0.
            assert found.value.item() == pytest.approx(max(expected[reference], 0), abs=1e-9 * size)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("kind", ["random", "tied", "many grades", "all one group"])
def test_long_lists_equal_scipys_assignment_by_value(kind, reference):
    rng = np.random.default_rng(2)
    for measure in (rs.nDCG(10), rs.DCG(40), rs.measures.P(7), rs.ERU(12, d=0, half_life=4), rs.measures.WTA()):
        n = int(rng.integers(50, 200))
        labels = (
            rng.random(n) * 3 if kind == "many grades" else rng.choice(5, size=n, p=[0.5, 0.2, 0.1, 0.1, 0.1]) * 1.0
        )
        scores = rng.normal(size=n) if kind != "tied" else np.round(rng.normal(size=n))
        diversity_groups = rng.integers(0, 1 if kind == "all one group" else n // 3, size=n)
        gains = measure.document_gains(torch.tensor(labels)).numpy()
        names = np.unique(diversity_groups)
        m = min(measure.cutoff or 1, len(names))
        a, c = measure.unchecked_weights(n).numpy()[:m], np.arange(1, m + 1) ** -0.5
        top = np.array([gains[diversity_groups == g].max() for g in names])
        best = np.sort(top)[::-1][:m] @ a
        unit = 1 / best if measure.normalized else 1.0
        table = np.array(
            [(np.outer(c, scores) - unit * np.outer(a, gains))[:, diversity_groups == g].max(1) for g in names]
        ).T
        rows, columns = linear_sum_assignment(table, maximize=True)
        found = most_violated_diverse(
            torch.tensor(scores),
            torch.tensor(labels),
            measure,
            diversity_groups=torch.tensor(diversity_groups),
            reference=reference,
        )
        # Relative to the ranking by score; from there to the other references by what they score.
        ranks = rs.rerank_diverse(torch.tensor(scores), torch.tensor(diversity_groups), m).numpy()
        by_score = scores[np.argsort(np.where(ranks > 0, ranks, n + 1))[:m]] @ c
        whole = best * unit + table[rows, columns].sum()
        if reference == "predicted":
            assert found.value.item() == pytest.approx(whole - by_score, abs=1e-9)
        assert found.value.item() >= whole - by_score - 1e-9
        assert (found.task_loss + (found.direction * torch.tensor(scores)).sum()).item() == pytest.approx(
            found.value.item(), abs=1e-9
        )


@pytest.mark.parametrize("kind", ["random", "tied", "all one group", "mixed groups"])
def test_reciprocal_rank_of_long_lists_equals_scipys_assignments(kind):
    rng = np.random.default_rng(4)
    for k in (1, 3, 10, 10, 10, 25, 25, 60):
        n = int(rng.integers(50, 150))
        labels = (rng.random(n) < rng.choice([0.1, 0.3, 0.7])) * 1.0
        scores = np.round(rng.normal(size=n)) if kind == "tied" else rng.normal(size=n)
        scores += labels * 0.5
        diversity_groups = rng.integers(0, {"all one group": 1, "mixed groups": 15}.get(kind, n // 2), size=n)
        for reference, value in reciprocal_hinges(scores, labels, diversity_groups, k).items():
            found = most_violated_diverse(
                torch.tensor(scores),
                torch.tensor(labels),
                rs.RR(k),
                diversity_groups=torch.tensor(diversity_groups),
                reference=reference,
            )
            assert found.value.item() == pytest.approx(value, abs=1e-9)
            by_direction = found.task_loss + found.direction @ torch.tensor(scores)
            assert by_direction.item() == pytest.approx(value, abs=1e-9)


def test_reciprocal_rank_of_lists_where_many_numbers_of_leaders_are_tried():
    """Some leave the ranking for fewer as it is, between others that do not: one list in 500."""
    rng = np.random.default_rng(7)
    number, n, k = 3000, 12, 8
    scores, labels = rng.normal(size=(number, n)) * 0.5, (rng.random((number, n)) < 0.4) * 1.0
    labels[:, :2] = 0, 1
    diversity_groups = rng.integers(0, 9, size=(number, n))
    expected = [reciprocal_hinges(*each, k)["predicted"] for each in zip(scores, labels, diversity_groups, strict=True)]
    given = (torch.tensor(each) for each in (scores, labels))
    found = most_violated_diverse(
        *given, rs.RR(k), diversity_groups=torch.tensor(diversity_groups), reference="predicted"
    )
    np.testing.assert_allclose(found.value.numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-3, 0.3, 1.0, 30.0, 1e7])
def test_reciprocal_rank_has_scipys_value_at_any_scale(scale):
    rng = np.random.default_rng(12)
    for _ in range(60):
        n, k = int(rng.integers(2, 80)), int(rng.integers(1, 25))
        scores = rng.normal(size=n) * scale
        scores = np.round(scores / scale, 1) * scale if rng.random() < 0.3 else scores
        labels, diversity_groups = (
            1.0 * (rng.random(n) < rng.choice([0.1, 0.3, 0.6])),
            rng.integers(0, rng.integers(1, 40), n),
        )
        labels[:2] = 0, 1
        given = torch.tensor(scores), torch.tensor(labels), rs.RR(k)
        for reference, value in reciprocal_hinges(scores, labels, diversity_groups, k).items():
            found = most_violated_diverse(*given, diversity_groups=torch.tensor(diversity_groups), reference=reference)
            assert found.value.item() == pytest.approx(value, abs=1e-9 * max(1.0, scale))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("reference", ["ideal", "ideal-tied", "predicted"])
@pytest.mark.parametrize("name", ["nDCG@10", "RR@10", "P@4"])
@pytest.mark.parametrize("low", [-1e13, -1e20, -3e38])
def test_documents_masked_by_a_low_score_hide_nothing_of_the_others(low, name, reference):
    rng = np.random.default_rng(4)
    for masked in (1, 3):
        scores, labels = rng.normal(size=(150, 5)) * 0.3, rng.integers(0, 3, (150, 5))
        labels[:, :2] = 0, 1  # of lists of one label alone no ranking is wrong
        c, measure = np.arange(1, 11) ** -0.5, rs.parse_measure(name)
        expected = [
            diverse_hinges(measure, c, labels[i], np.arange(5), scores[i])[reference] for i in range(150)
        ]  # they rank last in every ranking compared, and change nothing
        given = np.concatenate([scores, np.full((150, masked), low)], 1)
        found = most_violated_diverse(
            torch.tensor(given),
            torch.tensor(np.concatenate([labels, np.zeros((150, masked), np.int64)], 1)),
            measure,
            diversity_groups=torch.arange(5 + masked).expand(150, -1),
            reference=reference,
        )
        np.testing.assert_allclose(found.value.numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("reference", ["ideal", "ideal-tied", "predicted"])
def test_where_all_scores_tie_every_reference_is_an_ideal_ranking(reference):
    rng = np.random.default_rng(6)
    for _ in range(50):
        grades, diversity_groups = np.zeros(40, np.int64), rng.permutation(np.repeat(np.arange(10), 4))
        for grade in range(1, 5):  # of groups 0 to 3, among others of grade 0
            grades[rng.choice(np.flatnonzero(diversity_groups == grade - 1))] = grade
        found = most_violated_diverse(
            torch.zeros(40, dtype=torch.float64),
            torch.tensor(grades),
            rs.nDCG(4),
            diversity_groups=torch.tensor(diversity_groups),
            reference=reference,
        )
        c = -found.direction[torch.tensor([np.argmax(grades == grade) for grade in (4, 3, 2, 1)])]
        assert (c[:-1] > c[1:]).all()
        assert c[-1] > 0
        assert (found.direction[torch.tensor(grades == 0)] >= 0).all()


def test_extremes_that_leave_nothing_to_choose_from():
    nothing = rs.DCG(3, discount=lambda ranks: 0.0 * ranks)
    scores, labels, own = torch.randn(40, 20), torch.arange(20).expand(40, -1) % 2, torch.arange(20).expand(40, -1)
    assert not most_violated_diverse(scores, labels, nothing, diversity_groups=own).value.any()
    # A best value whose inverse is infinite.
    given = torch.tensor([3.0, 2.0, 1.0, 0.0], dtype=torch.float64), own[0, :4]
    values = [
        most_violated_diverse(
            given[0],
            torch.tensor([0, 0, gain, 0], dtype=torch.float64),
            rs.measures.nERU(3, d=0, half_life=3),
            diversity_groups=given[1],
        ).value
        for gain in (1e-310, 1.0)
    ]
    torch.testing.assert_close(*values)
    # Scores apart whose multiples by the decay are infinite.
    with pytest.raises(ValueError, match="too far apart for their dtype; document 1"):
        most_violated_diverse(
            torch.tensor([0, -9e300, -9e300, -9e300], dtype=torch.float64),
            torch.tensor([0, 1, 2, 0]),
            rs.nDCG(10**9),
            diversity_groups=given[1],
            feature_map=rs.Positional("k+1-i"),
        )
    chosen = torch.tensor([1.7e308, -1.7e308, 0, 0], dtype=torch.float64)
    found = most_violated_diverse(
        given[0], torch.tensor([0, 1, 0, 0]), "RR@3", diversity_groups=given[1], reference_scores=chosen
    )
    assert found.direction.sum().abs() < 1e-9


@pytest.mark.parametrize("packed", [lambda g: g * 2**32, lambda g: g | g << 32, lambda g: -1 - g, lambda g: g << 56])
def test_numbers_of_groups_mean_nothing(packed):
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(20, 30, generator=generator), torch.randint(0, 3, (20, 30), generator=generator)
    diversity_groups = torch.randint(0, 12, (20, 30), generator=generator)
    for name in ("nDCG@5", "RR@5"):
        expected = most_violated_diverse(scores, labels, name, diversity_groups=diversity_groups)
        found = most_violated_diverse(scores, labels, name, diversity_groups=packed(diversity_groups))
        for here, there in zip(found, expected, strict=True):
            assert torch.equal(here, there)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("name", ["nDCG@1", "nDCG@3", "DCG@5", "P@4", "nDCG@100", "RR@1", "RR@4", "RR@100", "WTA"])
def test_groups_of_one_document_give_the_ordinary_oracle(name, reference):
    generator = torch.Generator().manual_seed(0)
    for dtype, tied in ((torch.float64, False), (torch.float32, False), (torch.float64, True)):
        scores = torch.randn(40, 12, generator=generator, dtype=dtype)
        scores = scores.mul(2).round() if tied else scores
        labels = torch.randint(0, 4, (40, 12), generator=generator)
        where = torch.rand(40, 12, generator=generator) < 0.8
        diversity_groups = torch.stack([torch.randperm(12, generator=generator) for _ in range(40)]) - 5
        measure = rs.parse_measure(name)
        ordinary = rs.most_violated(
            scores,
            labels,
            measure,
            feature_map=rs.Positional("i^-0.5", cutoff=measure.cutoff or 1),
            reference=reference,
            where=where,
        )
        diverse = most_violated_diverse(
            scores, labels, measure, diversity_groups=diversity_groups, reference=reference, where=where
        )
        torch.testing.assert_close(
            diverse.value, ordinary.value, atol=1e-6 if dtype == torch.float32 else 1e-12, rtol=0
        )
        if not tied:  # where scores tie there are several most violated rankings
            torch.testing.assert_close(diverse.task_loss, ordinary.task_loss)
            torch.testing.assert_close(diverse.direction, ordinary.direction)


def test_every_document_in_one_group():
    scores, labels = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 2])
    diversity_groups = torch.zeros(3, dtype=torch.int64)
    found = most_violated_diverse(scores, labels, "nDCG@5", diversity_groups=diversity_groups)
    # One document is shown: the first has loss 1 and 2 more score than the best.
    assert (found.task_loss.item(), found.value.item(), found.direction.tolist()) == (1.0, 3.0, [1.0, 0.0, -1.0])
    same = most_violated_diverse(scores, torch.ones(3), "nDCG@5", diversity_groups=diversity_groups)
    assert (same.value.item(), same.direction.tolist()) == (0.0, [0.0, 0.0, 0.0])


def test_lists_that_no_diverse_ranking_gets_wrong_cost_nothing():
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0])
    for labels, diversity_groups, measure, wrong in (
        ([1, 1, 0, 0], [1, 1, 2, 2], "P@2", False),  # both groups are shown, and each is of one label
        ([1, 0, 0, 0], [1, 1, 2, 2], "P@2", True),  # which document of the first is shown matters
        ([1, 1, 0, 0], [1, 1, 2, 2], "nDCG@2", True),  # the order of the two groups matters
        ([1, 1, 0, 0], [1, 1, 2, 3], "P@2", True),  # which groups are shown matters
        ([0, 0, 0, 0], [1, 1, 2, 3], "nDCG@2", False),
    ):
        found = most_violated_diverse(
            scores, torch.tensor(labels), measure, diversity_groups=torch.tensor(diversity_groups)
        )
        assert (found.value.item() > 0) == wrong
        assert bool((found.direction != 0).any()) == wrong


def test_a_discount_that_ends_before_the_cut_off_ends_the_diverse_ranks():
    steep = rs.nDCG(5, discount=lambda ranks: (3 - ranks).clamp(min=0.0))
    expected = rs.nDCG(2, discount=lambda ranks: (3 - ranks).clamp(min=0.0))
    generator = torch.Generator().manual_seed(0)
    lists = torch.randn(20, 9, generator=generator), torch.randint(0, 3, (20, 9), generator=generator)
    diversity_groups = torch.randint(0, 4, (20, 9), generator=generator)
    for reference in REFERENCES:
        found = most_violated_diverse(*lists, steep, diversity_groups=diversity_groups, reference=reference)
        torch.testing.assert_close(
            found.value,
            most_violated_diverse(*lists, expected, diversity_groups=diversity_groups, reference=reference).value,
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"diversity_groups": torch.zeros(3)}, r"diversity_groups must be whole numbers.*diversity_groups\.long\(\)"),
        (
            {"diversity_groups": torch.zeros(2, dtype=torch.int64)},
            r"diversity_groups must have the shape of scores.*\(2,\).*\(3,\)",
        ),
        ({"diversity_groups": [0, 1, 2]}, "diversity_groups must be a torch.Tensor, got list"),
        ({"measure": "nDCG"}, r"with a cut-off k, such as nDCG@10.*got nDCG"),
        ({"measure": "RR"}, r"with a cut-off k, such as nDCG@10.*got RR"),
        ({"measure": "AP@5"}, "discounted gain.*got AP@5"),
        (
            {"feature_map": "pairwise"},
            "diverse_nDCG@2 with the pairwise feature map has no oracle; .*Diverse with Positional",
        ),
        ({"diversity_groups": None}, "diverse_nDCG@2 needs diversity_groups=, one whole number per document"),
        ({"reference": "best"}, "reference must be one of 'ideal', 'ideal-tied', 'predicted' for .*, got 'best'"),
        ({"scores": torch.tensor([0.0, torch.nan, 1.0])}, r"scores must be finite; document 1 is nan"),
        ({"labels": torch.tensor([0.0, 1.0, -1.0])}, r"labels must be 0 or more .*; that of document 2 is -1"),
        ({"reference": "ideal", "reference_scores": torch.zeros(3)}, "'ideal' does not depend on scores"),
        (
            {"reference": "predicted", "reference_scores": torch.tensor([0.0, torch.inf, 0.0])},
            "reference_scores must be finite",
        ),
    ],
)
def test_refusals(change, message):
    arguments = {
        "scores": torch.zeros(3),
        "labels": torch.tensor([0, 1, 2]),
        "measure": "nDCG@2",
        "diversity_groups": torch.tensor([0, 1, 1]),
        **change,
    }
    with pytest.raises((TypeError, ValueError), match=message):
        most_violated_diverse(**arguments)
