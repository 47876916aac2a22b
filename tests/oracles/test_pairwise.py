"""AUC and AP with the pairwise map: exact against all rankings, and against a dynamic program on longer lists."""

import lanes
import numpy as np
import pytest
import torch
from brute_force import hinge_by_program, hinges_of_lists
from hypothesis import given, settings
from hypothesis import strategies as st

import rankstruct as rs

MEASURES = ["AUC", "AP"]


def device_path(*arguments, **options):
    """The kernels of devices, called for CPU tensors."""
    with pytest.MonkeyPatch.context() as patch:
        lanes.use(patch)
        return rs.most_violated(*arguments, **options)


def random_scores(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Scores of scales 1e-3 to 1e3, a third of the lists with ties, a third with margins of exactly 1/2."""
    scale = 10.0 ** rng.integers(-3, 4, size=(shape[0], 1))
    scores = rng.normal(size=shape) * scale
    kind = rng.integers(0, 3, size=(shape[0], 1))
    tied = np.round(scores / scale) * scale
    return np.where(kind == 0, scores, np.where(kind == 1, tied, np.round(scores * 2) / 2))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("p", range(5))
@pytest.mark.parametrize("m", range(5))
def test_equals_enumeration_of_all_rankings(measure, p, m):
    rng = np.random.default_rng([p, m])
    lists = 440  # times 25 shapes: 11,000 lists a measure
    scores = random_scores(rng, (lists, p + m))
    shuffle = rng.permuted(np.tile(np.arange(p + m), (lists, 1)), axis=1)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        rounded = torch.tensor(scores, dtype=dtype)
        expected = hinges_of_lists(rs.parse_measure(measure), rs.Pairwise(), p, rounded.double().numpy())
        allowed = tolerance * np.maximum(1, np.abs(scores).max(1, initial=0))
        mixed = rounded.gather(1, torch.tensor(shuffle))
        labels = torch.tensor((shuffle < p).astype(int))
        found = rs.most_violated(mixed, labels, measure)
        assert found.value.dtype == dtype
        assert (np.abs(found.value.double().numpy() - expected) <= allowed).all()
        by_direction = found.task_loss + (found.direction * mixed).sum(1)
        assert (np.abs(by_direction.double().numpy() - expected) <= allowed).all()
        value = device_path(mixed[:2], labels[:2], measure).value.double().numpy()
        assert (np.abs(value - expected[:2]) <= allowed[:2]).all()


@pytest.mark.parametrize("measure", MEASURES)
def test_task_loss_is_that_of_the_ranking_it_describes(measure):
    """The direction determines the ranking: (bads above good i) = -direction p m / 2; its task loss must be as stated."""
    rng = np.random.default_rng(5)
    for p, m in [(1, 1), (3, 4), (7, 2), (20, 30)]:
        scores = torch.tensor(random_scores(rng, (50, p + m)))
        apart = (scores.sort(1).values.diff(dim=1) > 0).all(1)  # documents of one score share their directions
        scores = scores[apart]
        assert len(scores) > 10
        labels = (torch.arange(p + m) < p).long().expand(len(scores), -1)
        found = rs.most_violated(scores, labels, measure)
        above = -found.direction[:, :p] * p * m / 2
        above = above.sort(1).values.round()
        i = torch.arange(1, p + 1)
        loss = above.sum(1) / (p * m) if measure == "AUC" else 1 - (i / (i + above)).mean(1)
        torch.testing.assert_close(found.task_loss, loss.double(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_equals_the_program_on_lists_of_200(measure, share):
    rng = np.random.default_rng(7)
    scores = random_scores(rng, (40, 200))
    relevant = rng.random((40, 200)) < share
    expected = [hinge_by_program(s, r, rs.parse_measure(measure)) for s, r in zip(scores, relevant, strict=True)]
    found = rs.most_violated(torch.tensor(scores), torch.tensor(relevant), measure).value.numpy()
    allowed = 1e-9 * np.maximum(1, np.abs(scores).max(1))
    assert (np.abs(found - expected) <= allowed).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("arrangement", ["random", "sorted well", "sorted badly", "all tied"])
def test_device_path_agrees_on_long_lists(measure, arrangement):
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 3000, generator=generator)
    labels = (torch.rand(3, 3000, generator=generator) < torch.tensor([[0.001], [0.2], [0.97]])).long()
    if arrangement == "sorted well":
        scores = scores + 10 * labels
    elif arrangement == "sorted badly":
        scores = scores - 10 * labels
    elif arrangement == "all tied":
        scores = torch.zeros_like(scores)
    where = torch.rand(3, 3000, generator=generator) < 0.9
    scores = scores.double()
    found = rs.most_violated(scores, labels, measure, where=where)
    task_loss, value, direction = device_path(scores, labels, measure, where=where)
    torch.testing.assert_close(found.value, value, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(found.task_loss, task_loss, atol=1e-10, rtol=0)
    torch.testing.assert_close((direction * scores).sum(1) + task_loss, value, atol=1e-9, rtol=1e-10)


@pytest.mark.parametrize("measure", MEASURES)
def test_device_path_marks_lists_with_scores_that_are_not_finite(measure):
    scores = torch.tensor([[1.0, float("nan"), 0.0], [1.0, float("nan"), 0.0], [float("inf"), 1.0, 0.0]])
    where = torch.tensor([[True, True, True], [True, False, True], [True, True, True]])
    labels = torch.tensor([[1, 0, 0]] * 3)
    task_loss, value, direction = device_path(scores, labels, measure, where=where)
    assert value.isnan().tolist() == [True, False, True]
    assert task_loss.isnan().tolist() == [True, False, True]
    assert direction.isfinite().all()


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e4])
def test_large_and_small_scores_in_long_lists(measure, scale):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=150) * scale + 100 * scale
    relevant = rng.random(150) < 0.2
    expected = hinge_by_program(scores - scores.mean(), relevant, rs.parse_measure(measure))
    found = rs.most_violated(torch.tensor(scores), torch.tensor(relevant), measure).value.item()
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_large_common_offset_costs_no_digits(measure):
    rng = np.random.default_rng(4)
    scores = np.round(rng.normal(size=(20, 40)), 3)
    labels = torch.tensor(rng.random((20, 40)) < 0.3)
    near = rs.most_violated(torch.tensor(scores), labels, measure).value
    for far in (rs.most_violated, device_path):
        torch.testing.assert_close(far(torch.tensor(scores + 2.0**20), labels, measure).value, near, atol=1e-9, rtol=0)


@pytest.mark.parametrize("measure", MEASURES)
def test_directions_have_no_negative_zeros(measure):
    scores, labels = torch.tensor([3.0, 2.0, -3.0, -4.0]), torch.tensor([1, 1, 0, 0])
    for solve in (rs.most_violated, device_path):
        direction = solve(scores, labels, measure).direction
        assert not torch.signbit(direction).any()


@pytest.mark.parametrize("measure", MEASURES)
def test_labels_that_are_not_finite_on_the_device_path(measure):
    scores = torch.randn(3, 4)
    labels = torch.tensor([[0.0, 1, float("nan"), 0]] * 3)
    where = torch.tensor([[True] * 4, [True, True, False, True], [True] * 4])
    assert device_path(scores, labels, measure, where=where).value.isnan().tolist() == [True, False, True]
    offsets = torch.tensor([0, 4, 4, 12])
    flat = device_path(scores.flatten(), labels.nan_to_num().flatten(), measure, offsets=offsets)
    again = rs.most_violated(scores.flatten(), labels.nan_to_num().flatten(), measure, offsets=offsets)
    torch.testing.assert_close(flat.value, again.value)
    torch.testing.assert_close(flat.direction, again.direction)


@settings(deadline=None)
@given(data=st.data())
def test_padded_flat_and_single_lists_agree(data):
    lengths = data.draw(st.lists(st.integers(0, 6), max_size=5), label="lengths")
    values = st.floats(-1e3, 1e3, width=32)
    lists = [
        (
            data.draw(st.lists(values, min_size=n, max_size=n)),
            data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)),
        )
        for n in lengths
    ]
    measure = data.draw(st.sampled_from(MEASURES))
    scores = torch.tensor([s for each, _ in lists for s in each], dtype=torch.float64)
    labels = torch.tensor([y for _, each in lists for y in each], dtype=torch.int64)
    offsets = torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int64)
    flat = rs.most_violated(scores, labels, measure, offsets=offsets)
    size = max(lengths, default=0) + data.draw(st.integers(0, 3))
    padded = torch.full((len(lengths), size), float("nan"), dtype=torch.float64)
    padded_labels = torch.full((len(lengths), size), float("nan"), dtype=torch.float64)
    where = torch.zeros(len(lengths), size, dtype=torch.bool)
    for row, (each, its_labels) in enumerate(lists):
        places = sorted(data.draw(st.permutations(range(size)))[: len(each)])
        padded[row, places] = torch.tensor(each, dtype=torch.float64)
        padded_labels[row, places] = torch.tensor(its_labels, dtype=torch.float64)
        where[row, places] = True
    whole = rs.most_violated(padded, padded_labels, measure, where=where)
    assert torch.equal(flat.value, whole.value)
    assert torch.equal(flat.task_loss, whole.task_loss)
    assert torch.equal(flat.direction, whole.direction[where])
    assert (whole.direction[~where] == 0).all()
    for row, (each, its_labels) in enumerate(lists):
        alone = rs.most_violated(torch.tensor(each, dtype=torch.float64), torch.tensor(its_labels), measure)
        assert alone.value.item() == flat.value[row].item()


@pytest.mark.parametrize("measure", MEASURES)
def test_min_relevant_cuts_grades(measure):
    scores = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(9).expand(6, -1) % 4
    kind = {"AP": rs.AP, "AUC": rs.AUC}[measure]
    graded = rs.most_violated(scores, labels, kind(min_relevant=2))
    binary = rs.most_violated(scores, labels >= 2, measure)
    assert torch.equal(graded.value, binary.value)
    assert not torch.equal(graded.value, rs.most_violated(scores, labels, measure).value)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 2, 1], [1], [0], []])
def test_lists_that_no_ranking_can_get_wrong(measure, labels):
    scores = torch.randn(len(labels))
    found = rs.most_violated(scores, torch.tensor(labels, dtype=torch.long), measure)
    assert found.value == 0
    assert found.task_loss == 0
    assert torch.equal(found.direction, torch.zeros(len(labels)))


def test_leading_dimensions_and_dtypes_are_kept():
    scores = torch.randn(2, 3, 5, dtype=torch.bfloat16)
    labels = torch.randint(0, 2, (2, 3, 5))
    found = rs.most_violated(scores, labels, "AP")
    assert found.value.shape == found.task_loss.shape == (2, 3)
    assert found.direction.shape == (2, 3, 5)
    assert {t.dtype for t in found} == {torch.bfloat16}
    again = rs.most_violated(scores.float(), labels, "AP")
    assert torch.equal(found.value, again.value.bfloat16())
    scores.requires_grad_()
    assert not rs.most_violated(scores.float(), labels, "AP").value.requires_grad


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"scores": torch.tensor([0.0, float("nan"), 1.0])},
            ValueError,
            r"scores must be finite; document 1 is nan",
        ),
        ({"scores": torch.tensor([0.0, 1.0, float("-inf")])}, ValueError, r"document 2 is -inf"),
        ({"labels": torch.tensor([0.0, float("nan"), 1.0])}, ValueError, r"labels must be finite; document 1"),
        ({"labels": torch.tensor([0, 1])}, ValueError, r"labels must have the shape of scores.*\(2,\).*\(3,\)"),
        ({"labels": [0, 1, 0]}, TypeError, "labels must be a torch.Tensor, got list"),
        ({"scores": torch.tensor([1, 2, 3])}, TypeError, "scores must be floating point, got torch.int64"),
        ({"scores": torch.tensor(1.0), "labels": torch.tensor(1)}, ValueError, "at least one dimension"),
        ({"where": torch.tensor([1, 1, 0])}, TypeError, "where must be boolean"),
        ({"where": torch.tensor([True, False])}, ValueError, "where must have the shape of scores"),
        (
            {"offsets": torch.tensor([0, 2])},
            ValueError,
            "offsets must start at 0 and end at the number of documents, 3",
        ),
        ({"offsets": torch.tensor([0, 2, 1, 3])}, ValueError, r"offsets must not decrease; offsets\[1\] = 2"),
        ({"offsets": torch.tensor([0.0, 3.0])}, TypeError, "offsets must be int64"),
        (
            {"offsets": torch.tensor([0, 3]), "where": torch.tensor([True] * 3)},
            ValueError,
            "where .padded lists. or offsets",
        ),
        ({"measure": "APX"}, ValueError, "APX"),
        ({"measure": "MeanNDCG"}, ValueError, "MeanNDCG has no oracle; available: .*AUC with Pairwise"),
        (
            {"feature_map": "triplet"},
            ValueError,
            "unknown feature map 'triplet'; available: first-relevant, pairwise, partial-pairwise, pos",
        ),
        ({"feature_map": 3}, TypeError, "feature_map must be a name or a FeatureMap"),
        ({"reference": "best"}, ValueError, "reference must be one of 'ideal', 'ideal-tied'"),
    ],
)
def test_bad_input_is_named(change, error, message):
    arguments = {"scores": torch.tensor([0.5, 0.0, 1.0]), "labels": torch.tensor([1, 0, 0]), "measure": "AP"} | change
    with pytest.raises(error, match=message):
        rs.most_violated(**arguments)


def test_flat_position_in_the_message_names_the_list():
    scores = torch.tensor([0.0, 1.0, 2.0, float("nan")])
    with pytest.raises(ValueError, match=r"document 3 \(list 1\) is nan"):
        rs.most_violated(scores, torch.tensor([0, 1, 0, 1]), "AUC", offsets=torch.tensor([0, 2, 4]))


def test_input_is_left_alone():
    scores, labels = torch.randn(4, 8), torch.randint(0, 2, (4, 8))
    where = torch.rand(4, 8) < 0.7
    before = [t.clone() for t in (scores, labels, where)]
    for measure in MEASURES:
        rs.most_violated(scores, labels, measure, where=where)
    assert all(torch.equal(a, b) for a, b in zip(before, (scores, labels, where), strict=True))
