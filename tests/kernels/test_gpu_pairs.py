"""The kernels of losses over pairs answer as the core does: in NumPy that checks barriers, in Triton's interpreter, there."""

from functools import partial

import lanes
import numpy as np
import pytest
import torch
from device_problems import arguments, assert_same, both_ways, draw, in_the_interpreter, interpreted, some_or_all

import rankstruct as rs
from rankstruct.kernels.pair_loss import pair_loss
from rankstruct.kernels.pair_sums import neural_entropy, neural_gain, smoothed_ranks
from rankstruct.kernels.pairwise_hinge import pairwise_hinge
from rankstruct.lists import Lists

GRADES = [(1.5, 0.0, 0.7), (1.0, 0.0, 0.2), (1.5, 1.0, 0.1)]
SCHEMES = ("uniform", "ndcg1", "ndcg2", "ndcg2++", "lambdarank")
COSTS = ("logistic", "curvature", "hinge", "zero-one", "fidelity")
LOSSES = {
    "RankNet": partial(rs.RankNetLoss, 0.7),
    "FRank": partial(rs.FidelityLoss, 0.7),
    "RankSVM": partial(rs.RankSVMLoss, 0.8),
    "RankSVM-IR": partial(rs.RankSVMLoss, 0.8, GRADES),
    **{f"Lambda-{each}": partial(rs.LambdaLoss, "nDCG", each, 0.7, 3.0) for each in SCHEMES},
    **{f"Lambda-{each}@3": partial(rs.LambdaLoss, "nDCG@3", each, 0.7, 3.0, "zero-one") for each in SCHEMES[1:]},
    "Lambda-hinge": partial(rs.LambdaLoss, "nDCG@2", surrogate="hinge"),
    "ApproxNDCG": partial(rs.ApproxNDCGLoss, temperature=0.5),
    "ApproxMRR": partial(rs.ApproxNDCGLoss, "RR(min_relevant=2)", temperature=0.5),
    "DCG-hinge": partial(rs.ApproxNDCGLoss, temperature=0.7, ranks="hinge"),
    "SmoothAP": partial(rs.SmoothAPLoss, 0.5),
    "ADR-MSE": partial(rs.DiscountedRankMSELoss, temperature=0.5),
    "NeuralSort": partial(rs.NeuralSortLoss, temperature=2.0),
    "NeuralNDCG": partial(rs.NeuralNDCGLoss, temperature=2.0),
    "NeuralNDCG@3": partial(rs.NeuralNDCGLoss, "nDCG@3"),
}
every_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)


@pytest.mark.sampled(2)
@every_loss
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_losses_are_those_of_the_core(make, monkeypatch):
    rng, loss = np.random.default_rng(0), make(reduction="none")
    given = [each for size in (1, 9) for each in arguments(rng, loss, 5, size)][3:]
    expected = [both_ways(loss, *each) for each in given]
    lanes.use(monkeypatch)
    monkeypatch.setattr(lanes.kernels().DeviceBatch, "block", 4)
    for known in (True, False):
        monkeypatch.setattr(lanes.kernels(), "is_known", lambda offsets, known=known: known)
        for each, there in zip(given, expected, strict=True):
            if known or "offsets" in each[2]:
                assert_same(both_ways(loss, *each), there, each[0])


def operators(size):
    """Every cost, scheme and cut-off: from scores and `Lists` to the operator's answer."""
    measure = rs.nDCG()
    steps = torch.cat([torch.zeros(1), -measure.discounts(torch.arange(1.0, size + 2)).diff()]).double()
    for cut in (size, 3):
        tables = torch.where(torch.arange(size) < cut, measure.unchecked_weights(size), 0.0), steps, min(cut, size)
        for scheme in SCHEMES:
            mean = (torch.empty(0), torch.empty(0), 0) if scheme == "uniform" else tables
            for cost in COSTS:
                options = (0.0, *mean, scheme, cost, 0.7, 3.0, None, None)
                yield f"{scheme} {cost} {cut}", lambda scores, lists, own=options: pair_loss(scores, lists, *own)
        yield f"gain {cut}", lambda scores, lists, own=tables: neural_gain(scores, lists, 0.0, own[0], own[2], 0.5)
    yield "entropy", lambda scores, lists: neural_entropy(scores, lists, 0.0, 0.5)
    yield "RankSVM", lambda scores, lists: pairwise_hinge(scores, lists, 0.0, 0.8)
    for hinge in (False, True):
        for upstream in (None, 1.0):

            def ranks(scores, lists, hinge=hinge, upstream=upstream):
                upstream = None if upstream is None else lists.labels * (lists.labels - 0.7)
                asked = lists._replace(labels=(lists.labels > 0).double(), item_weights=None, reference_scores=upstream)
                answer = smoothed_ranks(scores, asked, 0.0, 0.5, hinge, upstream is not None)
                return *answer[:2], answer[2] * (asked.labels if upstream is None else 1)

            yield f"ranks {hinge} {upstream}", ranks


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_random_lists(seed, monkeypatch):
    """4000 lists a seed, over the borders of tiles."""
    rng, done = np.random.default_rng(seed), 0
    while done < 4000:
        count, size, block = (int(rng.integers(*ends)) for ends in ((1, 17), (1, 24), (4, 33)))
        for name, call in operators(size):
            scores, labels, where, weights = draw(rng, count, size)
            lists = Lists(labels, where & (weights > 0), item_weights=weights if rng.random() < 0.5 else None)
            expected = call(scores, lists)
            with monkeypatch.context() as patch:
                lanes.use(patch)
                patch.setattr(lanes.kernels().DeviceBatch, "block", block)
                patch.setattr(lanes.Lanes, "checks", rng.random() < 0.05)
                try:
                    assert_same(call(scores, lists)[1:], expected[1:], scores)
                except AssertionError as error:
                    raise AssertionError(
                        f"{name}, {block} documents a tile: {scores} {labels} {where} {weights}"
                    ) from error
            done += count


def test_what_is_wrong_costs_its_list_alone(monkeypatch):
    lanes.use(monkeypatch)
    scores = torch.tensor([[0.0, 1, 2], [0, torch.nan, 1], [torch.inf, 0, 1], [0, -torch.inf, 1]]).double()
    labels, broken = (
        torch.tensor([[0.0, 1, 2]] * 4),
        torch.tensor([[0.0, 2, 1], [0, torch.nan, 1], [torch.inf, 0, 1], [-1, 2, 0]]),
    )
    whole = scores[:1].expand(4, -1)
    for name, call in dict(operators(3)).items():
        if any(cost in name for cost in COSTS[1:]):
            continue
        for given in (
            (scores, Lists(labels)),
            (whole, Lists(broken)),
            (whole, Lists(labels, item_weights=broken.double() + 0.5)),
        ):
            if "ranks" in name and given[0] is whole:
                continue
            answer = call(*given)
            assert answer[1].isnan().tolist() == answer[0].isnan().tolist() == [False, True, True, True], name
            assert not answer[2].isnan().any()
    monkeypatch.setattr(lanes.kernels(), "is_known", lambda offsets: False)
    for offsets in ([0, 3, 11], [1, 3, 12], [0, 5, 3, 12]):
        lists = Lists(labels.flatten(), None, torch.tensor(offsets))
        for call in dict(operators(12)).values():
            assert call(whole.flatten(), lists)[1].isnan().all()


@pytest.mark.parametrize("far", [1e4, 1e38, 1e200])
def test_scores_far_apart(far, monkeypatch):
    """Nothing overflows before it must. (Of scores that tie, the core rounds margins off.)"""
    scores, labels = far * torch.tensor([[2.0, 1.0, -1.0, 0.0, 0.0]]).double(), torch.tensor([[0, 1, 2, 0, 1]])
    losses = [
        rs.RankNetLoss(),
        rs.FidelityLoss(),
        rs.LambdaLoss(),
        rs.NeuralNDCGLoss(),
        rs.SmoothAPLoss(),
    ]
    expected = [both_ways(loss.with_options(reduction="none"), scores, labels, {}) for loss in losses]
    lanes.use(monkeypatch)
    for loss, there in zip(losses, expected, strict=True):
        assert_same(both_ways(loss.with_options(reduction="none"), scores, labels, {}), there, scores)


def test_tiles_of_one_grade_meet_those_that_begin_with_it(monkeypatch):
    scores, labels = torch.linspace(-1, 1, 12).double()[None], torch.tensor([[1] * 6 + [0] * 6])
    expected = both_ways(rs.RankNetLoss(reduction="none"), scores, labels, {})
    lanes.use(monkeypatch)
    monkeypatch.setattr(lanes.kernels().DeviceBatch, "block", 4)
    assert_same(both_ways(rs.RankNetLoss(reduction="none"), scores, labels, {}), expected, scores)


def test_second_derivatives(monkeypatch):
    rng = np.random.default_rng(0)
    scores, labels, _, weights = (each.flatten() for each in draw(rng, 3, 7))
    losses, given = (
        [rs.RankNetLoss(), rs.LambdaLoss("nDCG@3", "ndcg1")],
        (scores, labels, torch.tensor([0, 5, 5, 21]), weights),
    )
    expected = [loss.second_derivatives(*given) for loss in losses]
    lanes.use(monkeypatch)
    torch.testing.assert_close([loss.second_derivatives(*given) for loss in losses], expected, rtol=1e-12, atol=1e-12)


def test_no_tensor_has_a_number_for_each_pair(monkeypatch):
    """Nor does a step read a number back: on devices the losses are these kernels, not torch's operations on all pairs."""
    lanes.use(monkeypatch)
    used = []
    monkeypatch.setattr(
        lanes.Kernel, "__getitem__", lambda kernel, grid: lambda *given, **fixed: used.append(kernel.__name__)
    )
    for make in LOSSES.values():
        used.clear()
        scores = torch.zeros(2, 5, dtype=torch.float64, requires_grad=True)
        make()(scores, torch.tensor([[0.0, 1, 2, 0, 1]] * 2)).backward()
        assert "sum_pairs" in used


@pytest.mark.needs("triton")
@some_or_all
def test_tritons_interpreter_answers_the_same(marks):
    passed = in_the_interpreter(__file__, marks)
    assert passed == len(LOSSES) if marks != "not soak" else 2 < passed < len(LOSSES)


@interpreted
@pytest.mark.sampled(3)
@every_loss
def test_it_answers_in_the_interpreter(make, monkeypatch):
    loss = make(reduction="none")
    given = list(arguments(np.random.default_rng(3), loss, 2, 4))[1]
    expected = both_ways(loss, *given)
    with lanes.use_triton(monkeypatch):
        assert_same(both_ways(loss, *given), expected, given[0])


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_loss
@pytest.mark.parametrize("size", [13, 300, 3000])
@pytest.mark.filterwarnings("ignore:most lists have more relevant documents")
def test_a_device_answers_the_same(make, size):
    loss = make(reduction="none")
    for scores, labels, lists in arguments(np.random.default_rng(0), loss, 4, size):
        there = {name: each.cuda() for name, each in lists.items()}
        found = both_ways(make(reduction="none").cuda(), scores.cuda(), labels.cuda(), there)
        assert_same([each.cpu() for each in found], both_ways(loss, scores, labels, lists), scores)


@pytest.mark.needs("triton")
@pytest.mark.parametrize(
    ("name", "target"),
    [
        *(pytest.param("Lambda-ndcg2++", target, marks=pytest.mark.slow) for target in (lanes.SM_90, lanes.GFX942)),
        *(pytest.param(name, lanes.SM_90, marks=pytest.mark.soak) for name in LOSSES),
        *(
            pytest.param(name, target, marks=pytest.mark.soak)
            for name in ("RankNet", "NeuralSort", "SmoothAP")
            for target in (lanes.SM_80, lanes.GFX942)
        ),
    ],
)
def test_kernels_compile_ahead_of_time(name, target, monkeypatch, capfd):
    """With the arguments of a launch, for lists of 1024 documents; nothing is spilled."""
    scores, labels = torch.randn(2, 1024, requires_grad=True), torch.randint(0, 4, (2, 1024))
    with lanes.compiled_ahead(target, monkeypatch, capfd) as used:
        LOSSES[name]()(scores, labels).backward()
    print(f"{name} on {target[1]}: registers and spilled {used}")
    assert len(used) >= 3
    assert max(spilled for _, spilled in used) == 0
