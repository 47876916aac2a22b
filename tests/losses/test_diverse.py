"""The hinge over diverse rankings: its own properties, in addition to those of every loss."""

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankstruct as rs

REFERENCES = ["ideal", "ideal-tied", "predicted"]


def make(lists=6, size=12, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, size, generator=generator, dtype=dtype)
    labels = torch.randint(0, 3, (lists, size), generator=generator)
    diversity_groups = torch.randint(0, 5, (lists, size), generator=generator)
    where = torch.rand(lists, size, generator=generator) < 0.8
    return scores, labels, diversity_groups, where


def test_gradcheck():
    scores, labels, diversity_groups, where = make()
    scores.requires_grad_()
    weights = torch.rand(6, dtype=torch.float64)
    for options in ({"where": where, "reduction": "none"}, {"weights": weights}):
        loss = rs.StructuredHingeLoss("diverse_nDCG@3", reduction=options.pop("reduction", "mean"))
        assert torch.autograd.gradcheck(
            lambda s, loss=loss, options=options: loss(s, labels, diversity_groups=diversity_groups, **options), scores
        )
    offsets = torch.tensor([0, 12, 12, 40, 72])
    flat, loss = scores.detach().flatten().requires_grad_(), rs.StructuredHingeLoss("diverse_DCG@2", reduction="none")
    assert torch.autograd.gradcheck(
        lambda s: loss(s, labels.flatten(), diversity_groups=diversity_groups.flatten(), offsets=offsets), flat
    )


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([1e-5, 1.0, 1e4]),
    measure=st.sampled_from(["nDCG@1", "nDCG@3", "DCG@20", "P@2", "RR@3", "RR@20", "WTA", "mWTA"]),
    reference=st.sampled_from(REFERENCES),
)
def test_bounds_what_the_diverse_ranking_loses(seed, scale, measure, reference):
    scores, labels, diversity_groups, where = make(seed=seed)
    scores = scores * scale

    def hinge(s, reference=reference):
        loss = rs.StructuredHingeLoss(rs.Diverse(measure), reference=reference, reduction="none")
        return loss(s, labels, diversity_groups=diversity_groups, where=where)

    shown = rs.Diverse(measure)
    regret = shown.best_value(labels, where, diversity_groups=diversity_groups) - shown(
        scores, labels, where, diversity_groups=diversity_groups
    )
    found, tolerance = hinge(scores), 1e-9 * max(1, scale)
    assert (found >= regret - tolerance).all()
    assert (found >= 0).all()
    torch.testing.assert_close(hinge(scores + 17.0), found, atol=tolerance, rtol=1e-9)
    assert (hinge(scores, "predicted") <= hinge(scores, "ideal-tied") + tolerance).all()
    assert (hinge(scores, "ideal-tied") <= hinge(scores, "ideal") + tolerance).all()
    other = make(seed=seed + 1)[0]
    middle = hinge((scores + other) / 2, "ideal")
    assert (middle <= (hinge(scores, "ideal") + hinge(other, "ideal")) / 2 + tolerance).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtype_follows_scores_and_numbers_name_the_groups(dtype):
    scores, labels, diversity_groups, _ = make(dtype=torch.float32)
    scores = scores.to(dtype)
    loss = rs.StructuredHingeLoss("diverse_nDCG@3", reduction="none")
    found = loss(scores, labels, diversity_groups=diversity_groups)
    assert found.dtype == dtype
    exact = loss(scores.double(), labels, diversity_groups=(diversity_groups - 3) * 10**15)
    torch.testing.assert_close(found.double(), exact, atol=1e-6 if dtype == torch.float32 else 0.05, rtol=0)
    small = loss(scores, labels, diversity_groups=diversity_groups.to(torch.int8))
    assert torch.equal(small, found)


def test_vmap_over_lists_groups_and_reference_scores():
    scores, labels, diversity_groups, where = make()
    other = scores.flip(-1).contiguous()

    loss = rs.StructuredHingeLoss("diverse_nDCG@3", reference="predicted", reduction="none")

    def one(s, y, g, w, r):
        return loss(s, y, diversity_groups=g, where=w, reference_scores=r)

    found = torch.func.vmap(one)(scores, labels, diversity_groups, where, other)
    expected = one(scores, labels, diversity_groups, where, other)
    torch.testing.assert_close(found, expected)
    offsets = torch.tensor([0, 5, 12])
    loss = rs.StructuredHingeLoss("diverse_nDCG@3", reduction="none")
    flat = torch.func.vmap(lambda s: loss(s, labels[0], diversity_groups=diversity_groups[0], offsets=offsets))(scores)
    for row in range(6):
        alone = loss(scores[row], labels[0], diversity_groups=diversity_groups[0], offsets=offsets)
        torch.testing.assert_close(flat[row], alone)


def test_a_combination_gives_groups_to_those_that_take_them():
    scores, labels, diversity_groups, where = make()
    parts = [rs.StructuredHingeLoss("AP"), rs.StructuredHingeLoss("diverse_nDCG@3", reference="predicted")]
    loss = rs.CombinedLoss(parts, weights=[1.0, 2.0])
    found = loss(scores, labels, diversity_groups=diversity_groups, where=where)
    expected = parts[0](scores, labels, where=where) + 2 * parts[1](
        scores, labels, diversity_groups=diversity_groups, where=where
    )
    torch.testing.assert_close(found, expected)


def test_it_can_be_pickled():
    scores, labels, diversity_groups, _ = make()
    loss = pickle.loads(
        pickle.dumps(rs.StructuredHingeLoss("diverse_DCG@2", feature_map="positional", reference="ideal-tied"))
    )
    assert torch.equal(
        loss(scores, labels, diversity_groups=diversity_groups),
        rs.StructuredHingeLoss("diverse_DCG@2", reference="ideal-tied")(
            scores, labels, diversity_groups=diversity_groups
        ),
    )
    assert not loss.convex
    with pytest.raises(ValueError, match="reduction must be one of"):
        rs.StructuredHingeLoss("diverse_DCG@2", reduction="avg")


@pytest.mark.parametrize("reference", ["ideal", "ideal-tied", "predicted"])
def test_a_diverse_measure_goes_by_its_name_wherever_a_measure_does(reference):
    scores, labels, diversity_groups = torch.randn(4, 9), torch.randint(0, 3, (4, 9)), torch.randint(0, 4, (4, 9))
    expected = rs.StructuredHingeLoss("diverse_nDCG@5", reference=reference)(
        scores, labels, diversity_groups=diversity_groups
    )
    options = {"reference": reference, "diversity_groups": diversity_groups}
    torch.testing.assert_close(rs.most_violated(scores, labels, "diverse_nDCG@5", **options).value.mean(), expected)
    loss = rs.StructuredHingeLoss(rs.Diverse("nDCG@5"), reference=reference)
    assert torch.equal(loss(scores, labels, diversity_groups=diversity_groups), expected)
    assert loss.takes_groups
    assert loss.measure == rs.parse_measure("diverse_nDCG@5")
    assert "assignment of ranks to groups" in rs.explain_oracle("diverse_nDCG@5").method


@pytest.mark.parametrize("measure", ["diverse_nDCG@3", "diverse_P@2"])
def test_groups_of_another_kind_are_refused(measure):
    loss, scores, labels = rs.StructuredHingeLoss(measure), torch.zeros(4), torch.tensor([1, 0, 0, 1])
    groups = torch.tensor([0, 0, 1, 1])
    for wrong, error, told in (
        (groups.tolist(), TypeError, "must be a torch.Tensor, got list"),
        (groups.numpy(), TypeError, "must be a torch.Tensor, got ndarray"),
        (groups.float(), TypeError, "must be whole numbers"),
        (groups[:3], ValueError, "must have the shape of scores"),
    ):
        with pytest.raises(error, match=f"diversity_groups {told}"):
            loss(scores, labels, diversity_groups=wrong)


def test_missing_groups_are_asked_for():
    scores, labels = torch.randn(4, 9), torch.randint(0, 2, (4, 9))
    message = "diverse_nDCG@5 needs diversity_groups=, one whole number per document"
    with pytest.raises(ValueError, match=message):
        rs.most_violated(scores, labels, "diverse_nDCG@5")
    with pytest.raises(ValueError, match=message):
        rs.StructuredHingeLoss("diverse_nDCG@5")(scores, labels)


def test_direct_and_graded_losses_of_diverse_measures():
    scores, labels = torch.randn(4, 9, dtype=torch.float64), torch.randint(0, 2, (4, 9))
    diversity_groups = torch.randint(0, 4, (4, 9))
    predicted = rs.StructuredHingeLoss("diverse_RR@5", reference="predicted")(
        scores, labels, diversity_groups=diversity_groups
    )
    torch.testing.assert_close(
        rs.DirectLoss("diverse_RR@5")(scores, labels, diversity_groups=diversity_groups), predicted
    )
    graded = rs.GradedLoss("diverse_RR@5", grades=[1], reference="predicted")
    torch.testing.assert_close(graded(scores, labels, diversity_groups=diversity_groups), predicted)
    offsets, flat = torch.tensor([0, 9, 18, 27, 36]), (scores.flatten(), labels.flatten())
    torch.testing.assert_close(graded(*flat, diversity_groups=diversity_groups.flatten(), offsets=offsets), predicted)
    with pytest.raises(TypeError, match="does not accept reference_scores"):
        rs.DirectLoss("AP")(scores, labels, reference_scores=scores)


@pytest.mark.parametrize("group", [7, 0, -1, -(2**63), 2**63 - 1])
def test_any_whole_number_is_a_group(group):
    scores, labels = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 2])
    values = [
        rs.StructuredHingeLoss("diverse_nDCG@2")(scores, labels, diversity_groups=torch.tensor([each, each, 8]))
        for each in (group, 5)
    ]
    assert values[0] == values[1] > 0
