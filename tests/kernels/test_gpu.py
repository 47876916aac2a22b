"""The kernels of devices answer as the core does: in NumPy that checks barriers, in Triton's interpreter, on a device."""

import lanes
import numpy as np
import pytest
import torch
from device_problems import in_the_interpreter, interpreted, some_or_all

import rankstruct as rs
from rankstruct.kernels import dispatch

MEASURES = [
    (name, None) for name in ("AP", "AP@3", "AUC", "pAUC(high=0.5)", "R@2", "F1", "Accuracy", "Rprec", "Success@2")
]
MEASURES += [
    *((name, "pairwise") for name in ("RR@3", "RR", "nDCG(min_relevant=0.5)@4", "nDCG(min_relevant=0.5)")),
    *((name, "pairwise") for name in ("DCG(min_relevant=0.5)@30", "pAUC(low=0.2,high=0.7)")),
    ("P@3", "predicted-positive"),
    ("RR@2", "first-relevant"),
    ("pAUC(low=0.2,high=0.7,min_tpr=0.3)", "partial-pairwise"),
    *((name, "positional") for name in ("nDCG@3", "nDCG", "P@2", "RR@2", "RR", "mWTA(discount='letor')")),
    ("DCG@30", "positional(discount)"),
]


@pytest.fixture
def on_device(monkeypatch):
    """Tensors of the CPU go where those of devices go, a few documents to a block, so that short lists have several."""
    lanes.use(monkeypatch)
    monkeypatch.setattr(lanes.kernels().DeviceBatch, "block", 4)


def batches(measure, feature_map, seed=0, size=13):
    """Arguments of `most_violated`: padded and flat, ties, empty lists, frozen references, bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    references = ("ideal", "ideal-tied", "predicted", *(["below-window"] if feature_map == "partial-pairwise" else []))
    for turn, reference in enumerate(references):
        its = {"measure": measure, "reference": reference} | ({"feature_map": feature_map} if feature_map else {})
        scores = torch.randn(4, size, generator=generator, dtype=torch.float64) * 10.0 ** (turn % 3 - 1)
        scores = scores.round(decimals=1)
        labels = (torch.rand(4, size, generator=generator) < torch.tensor([[0.1], [0.5], [0.4], [0.9]])).double()
        where = torch.rand(4, size, generator=generator) < torch.tensor([[0.9], [0.0], [0.5], [1.0]])
        chosen = torch.randn(4, size, generator=generator, dtype=torch.float64).round(decimals=1)
        frozen = {"reference_scores": chosen} if reference in ("predicted", "below-window") else {}
        masked = torch.where(where, scores, torch.nan), torch.where(where, labels, torch.nan)
        yield its | dict(zip(("scores", "labels"), masked, strict=True)) | {"where": where} | frozen
        yield its | {"scores": masked[0].bfloat16().mT, "labels": labels.mT > 0, "where": where.mT}
        offsets = torch.tensor([0, 1, 1, 9, 4 * size])
        yield its | {"scores": scores.flatten(), "labels": labels.flatten().long(), "offsets": offsets}


def assert_same(found, expected, given):
    """The same values; where several rankings are as good as each other, any of their directions."""
    scores = given["scores"].double().nan_to_num()
    near = (1e-12 if found.value.dtype == torch.float64 else 1e-2) * max(1.0, float(scores.abs().max()))
    torch.testing.assert_close(found.value, expected.value, rtol=0, atol=near)
    products = (found.direction.double() - expected.direction.double()) * scores
    lists = products.split(given["offsets"].diff().tolist()) if "offsets" in given else products
    products = torch.stack([each.sum() for each in lists]) + found.task_loss.double() - expected.task_loss.double()
    torch.testing.assert_close(products, torch.zeros_like(products), rtol=0, atol=20 * near)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "known", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["offsets here", "offsets there"]
)
@pytest.mark.parametrize(("measure", "feature_map"), MEASURES)
def test_answers_are_those_of_the_core(measure, feature_map, known, monkeypatch):
    given = [each for each in batches(measure, feature_map) if known or "offsets" in each]
    expected = [rs.most_violated(**each) for each in given]
    lanes.use(monkeypatch)
    monkeypatch.setattr(lanes.kernels().DeviceBatch, "block", 4)
    monkeypatch.setattr(lanes.kernels(), "is_known", lambda offsets: known)
    for each, there in zip(given, expected, strict=True):
        assert_same(rs.most_violated(**each), there, each)


@pytest.mark.parametrize("make", [rs.GradedLoss, rs.StructuredHingeLoss])
def test_grades_and_item_weights(make, monkeypatch):
    """All thresholds of graded labels by one launch; item weights, some of them 0; gradients in the dtype of the scores."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 9, generator=generator).requires_grad_()
    labels = torch.randint(0, 4, (3, 9), generator=generator)
    each = torch.randint(0, 4, (3, 9), generator=generator) / 2
    options = [{"reference": r} for r in ("ideal", "predicted")]
    losses = [(make("AUC", **o), {"item_weights": each}) for o in options] + [(make("AUC"), {})]
    if make is rs.GradedLoss:
        losses += [(make("AP@2", **o), {}) for o in options]

    def gradients():
        for loss, more in losses:
            value = loss(scores, labels, **more)
            yield value.detach(), torch.autograd.grad(value, scores)[0]

    expected = list(gradients())
    lanes.use(monkeypatch)
    torch.testing.assert_close(list(gradients()), expected, rtol=1e-6, atol=1e-6)


def test_what_is_wrong_costs_its_list_alone(on_device, monkeypatch):
    monkeypatch.setattr(lanes.kernels(), "is_known", lambda offsets: False)
    scores = torch.tensor(
        [[0.0, 1.0, 2.0], [0.0, torch.nan, 1.0], [torch.inf, 0.0, 1.0], [0.0, 1e308, -1e308]]
    ).double()
    labels = torch.tensor([[0.0, 1, 0]] * 4)
    for measure in ("AP", "AUC", "R@1", "F1", "nDCG@2", "RR"):
        found = rs.most_violated(scores, labels, measure)
        assert found.value.isnan().tolist() == found.task_loss.isnan().tolist() == [False, True, True, True]
        labelled = torch.tensor([[0.0, 1, 0], [0, torch.nan, 1], [0, torch.inf, 1], [1, -1, 0]])
        broken = torch.tensor([[0.0, 1, 0]] * 3 + [[0.0, torch.nan, 0]]).double()
        whole = scores[:1].expand(4, -1)
        assert rs.most_violated(whole, labelled, measure).value.isnan().tolist()[:3] == [False, True, True]
        frozen = rs.most_violated(whole, labels, measure, reference="predicted", reference_scores=broken)
        assert frozen.value.isnan().tolist() == [False, False, False, True]
        for offsets in ([0, 3, 11], [1, 3, 12], [0, 5, 3, 12]):
            flat = rs.most_violated(whole.flatten(), labels.flatten(), measure, offsets=torch.tensor(offsets))
            assert flat.value.isnan().all()
    inexact = torch.tensor([[0, 1, 2**53], [0, 1, 2**53 + 1], [0, 1, 2**63 - 1]])  # the last two are rounded
    assert rs.most_violated(scores[:1].expand(3, -1), inexact, "AP").value.isnan().tolist() == [False, True, True]
    grades = rs.most_violated(scores[:1], torch.tensor([[0.0, 1, 2]]), "nDCG", feature_map="pairwise")
    assert grades.value.isnan().all()
    for shape in ((0, 5), (2, 0), (0,)):
        assert rs.most_violated(torch.zeros(shape), torch.zeros(shape), "AP").value.shape == shape[:-1]


def test_what_has_no_kernel_goes_to_the_cpu(monkeypatch):
    scores, labels = torch.randn(2, 6), torch.randint(0, 3, (2, 6))
    losses = [rs.RankSVMLoss(), rs.StructuredHingeLoss("AP"), rs.StructuredHingeLoss("nDCG@3")]
    expected = [loss(scores, labels) for loss in losses]
    lanes.use(monkeypatch)
    assert losses[0](scores, labels) == expected[0]
    monkeypatch.setattr(dispatch, "kernels_of", lambda device: None)  # a device without Triton
    assert [loss(scores, labels) for loss in losses] == expected
    broken = scores.index_put([torch.tensor(0), torch.tensor(2)], torch.tensor(torch.inf))
    for measure in ("nDCG@3", "AP"):
        wanted = rs.most_violated(scores, labels, measure).value
        flat = (broken.flatten(), labels.flatten(), measure)
        for found in (
            rs.most_violated(broken, labels, measure),
            rs.most_violated(*flat, offsets=torch.tensor([0, 6, 12])),
        ):
            assert (found.value[0].isnan(), found.task_loss[0].isnan(), found.value[1]) == (True, True, wanted[1])
    inexact = torch.stack([labels[0], labels[0] + 2**53 + 1])
    assert rs.most_violated(scores, inexact, "AP").value.isnan().tolist() == [False, True]


def test_a_missing_barrier_is_noticed():
    numbers = torch.zeros(8, dtype=torch.float64)

    def shift(values):
        lanes.store(values + np.arange(8), np.arange(8.0))
        return lanes.load(values + np.arange(8)[::-1])

    with pytest.raises(AssertionError, match="without a barrier"):
        lanes.Kernel(shift)[(1,)](numbers)
    with pytest.raises(AssertionError, match="out of bounds"):
        lanes.Kernel(lambda values: lanes.load(values + 8))[(1,)](numbers)


@pytest.mark.needs("triton")
@some_or_all
def test_tritons_interpreter_answers_the_same(marks):
    passed = in_the_interpreter(__file__, marks)
    assert passed == len(MEASURES) if marks != "not soak" else 2 < passed < len(MEASURES)


@interpreted
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("measure", "feature_map"), MEASURES)
def test_it_answers_in_the_interpreter(measure, feature_map, monkeypatch):
    given = next(iter(batches(measure, feature_map, size=5)))
    expected = rs.most_violated(**given)
    with lanes.use_triton(monkeypatch):
        assert_same(rs.most_violated(**given), expected, given)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("measure", "feature_map"), MEASURES)
@pytest.mark.parametrize("size", [13, 300, 3000])
def test_a_device_answers_the_same(measure, feature_map, size):
    for given in batches(measure, feature_map, size=size):
        there = {name: each.cuda() if isinstance(each, torch.Tensor) else each for name, each in given.items()}
        found = rs.most_violated(**there)
        assert_same(type(found)(*(each.cpu() for each in found)), rs.most_violated(**given), given)


@pytest.mark.needs("triton")
@pytest.mark.parametrize(
    ("measure", "feature_map", "target"),
    [
        *(
            pytest.param(*MEASURES[0], target, marks=pytest.mark.slow)
            for target in (lanes.SM_80, lanes.SM_90, lanes.GFX942)
        ),
        *(pytest.param(*each, lanes.SM_90, marks=pytest.mark.soak) for each in MEASURES[1:]),
        *(
            pytest.param(*MEASURES[at], target, marks=pytest.mark.soak)
            for at in (5, -7)
            for target in (lanes.SM_80, lanes.GFX942)
        ),
    ],
)
def test_kernels_compile_ahead_of_time(measure, feature_map, target, monkeypatch, capfd):
    """With the arguments of a launch, for lists of 1024 documents; nothing is spilled."""
    scores, labels = torch.randn(2, 1024), torch.rand(2, 1024) < 0.1
    map_ = {"feature_map": feature_map} if feature_map else {}
    with lanes.compiled_ahead(target, monkeypatch, capfd) as used:
        for reference in ("predicted", "ideal")[: 2 if measure == "F1" else 1]:  # which splits the list twice
            rs.most_violated(scores, labels, measure, reference=reference, **map_)
    print(f"{measure} on {target[1]}: registers and spilled {used}")
    assert used
    assert max(spilled for _, spilled in used) == 0


@pytest.mark.slow
@pytest.mark.needs("triton")
def test_one_program_serves_all_sizes(monkeypatch):
    """Triton compiles more for sizes of 1 and multiples of 16, and for tensors that begin elsewhere, unless told not to."""
    made = [rs.StructuredHingeLoss(name) for name in ("AP", "F1", "nDCG@3")]
    made += [rs.RankNetLoss(), rs.SoftRankLoss("nDCG@3"), rs.ListMLELoss()]
    with lanes.programs(monkeypatch) as found:
        for lists, size in ((1, 600), (2, 1000), (16, 1024), (5, 4096)):
            for begin in (0, 1):
                scores = torch.randn(begin + lists * size)[begin:].view(lists, size)
                for loss in made:
                    loss(scores, torch.arange(scores.numel()).view_as(scores) % 2)
    each = {name: len(programs) for name, programs in found.items()}
    assert each.pop("solve_binary") == 2  # AP and F1
    assert each.pop("prepare") == 2  # pairs and SoftRank
    assert each == dict.fromkeys(("solve_positional", "sum_pairs", "finish", "soften", "scan_rows"), 1)
