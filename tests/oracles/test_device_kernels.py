"""The compiled loops as CUDA devices run them: emulated they answer as the CPU does, and NVRTC compiles them."""

import re

import numpy as np
import pytest
import torch
from brute_force import random_problem
from combinations import references_of_pairs
from emulated_device import COMPILER, LOOPS, build, emulate

import rankstruct as rs
from rankstruct import kernels
from rankstruct.kernels import cuda, dispatch
from rankstruct.kernels.pair_loss import COSTS
from rankstruct.lists import Lists
from rankstruct.oracles.registry import REFERENCES

emulated = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("emulation"), "-DRANKSTRUCT_CHECKED")


@pytest.fixture
def on_device(library, monkeypatch):
    """Until the test ends, tensors of the CPU go where those of CUDA devices go: the names of the loops that are called."""
    return emulate(library, monkeypatch.setattr)


BINARY = [
    (name, None)
    for name in ("AP", "AP@3", "AUC", "pAUC(high=0.5)", "P@3", "R@2", "F1", "Accuracy", "Rprec", "Success@2")
]
BINARY += [
    (name, "pairwise")
    for name in ("RR@3", "nDCG(min_relevant=0.5)@4", "nDCG(min_relevant=0.5)", "DCG(min_relevant=0.5)@30")
]
BINARY += [
    ("RR@2", "first-relevant"),
    ("pAUC(low=0.2,high=0.7)", "partial-pairwise"),
    ("pAUC(low=0.2,high=0.7)", "pairwise"),
]
GRADED = ("nDCG@5", "nDCG", "P@3", "RR", "RR@2", "mWTA", "DCG@40", "nERU(d=0,half_life=3)")
DIVERSE = ("diverse_nDCG@5", "diverse_RR@3", "diverse_mWTA", "diverse_DCG@40")


def batches():
    """Arguments of `most_violated`: padded and flat, few and many grades, ties, empty lists, frozen references, bfloat16."""
    generator = torch.Generator().manual_seed(0)
    offsets = torch.tensor([0, 1, 1, 9, 30, 32, 40, 66, 72])
    positional = [(measure, "positional") for measure in GRADED + DIVERSE]
    for turn, (measure, feature_map) in enumerate(BINARY + positional):
        graded = feature_map == "positional"
        for grades in (2, 12, 90) if graded else (2,):
            scores = torch.randn(4, 18, generator=generator, dtype=torch.float64) * 10.0 ** (turn % 3)
            scores, labels = scores.round(decimals=1), torch.randint(0, grades, (4, 18), generator=generator) / 2
            where = torch.rand(4, 18, generator=generator) < torch.tensor([[0.9], [0.0], [0.3], [1.0]])
            chosen = torch.randn(4, 18, generator=generator, dtype=torch.float64)
            diversity_groups = torch.randint(
                -3, 9, (4, 18), generator=generator
            )  # measures that are not diverse take no notice
            scores, labels = torch.where(where, scores, torch.nan), torch.where(where, labels, torch.nan)
            for reference in {None, *(REFERENCES if graded else ("predicted",))}:
                its = {"measure": measure, "feature_map": feature_map, "reference": reference}
                frozen = {"reference_scores": chosen} if reference == "predicted" else {}
                yield {
                    "scores": scores,
                    "labels": labels,
                    "where": where,
                    "diversity_groups": diversity_groups,
                    **its,
                    **frozen,
                }
                turned = {"labels": labels.mT, "where": where.mT, "diversity_groups": diversity_groups.mT}
                yield {"scores": scores.bfloat16().mT, **turned, **its}
                flat = {"scores": chosen.flatten(), "labels": labels.nan_to_num().flatten(), "offsets": offsets}
                yield {**flat, "diversity_groups": diversity_groups.flatten(), **its}


def answers(move=lambda tensor: tensor):
    return [rs.most_violated(**{name: move(each) for name, each in batch.items()}) for batch in batches()]


def assert_same(found, expected):
    for batch, here, there in zip(batches(), found, expected, strict=True):
        near = {"rtol": 1e-9, "atol": 1e-9} if here.value.dtype == torch.float64 else {"rtol": 2e-2, "atol": 2e-2}
        torch.testing.assert_close(here.value, there.value, **near)
        if here.value.dtype == torch.float64:  # any most violated ranking will do
            products = lists_of(here.direction * batch["scores"].nan_to_num(), batch.get("offsets"))
            torch.testing.assert_close(products + here.task_loss, there.value, rtol=1e-8, atol=1e-8)


def lists_of(products, offsets):
    if offsets is None:
        return products.sum(-1)
    return torch.stack([each.sum() for each in products.split(offsets.diff().tolist())])


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False], ids=["offsets here", "offsets there"])
def test_answers_are_those_of_the_cpu(known, library, monkeypatch):
    """Whether offsets are read or not: to the last bit, but for the sweep's room, and where the longest known list decides the
    method.
    """
    expected = answers()
    called = emulate(library, monkeypatch.setattr)
    monkeypatch.setattr(cuda, "is_known", lambda offsets: known)
    found = answers()
    assert_same(found, expected)
    assert {loop.name for loop in LOOPS} - set(called) <= {"pairwise_hinge", "top_surrogate", *OF_PAIRS}
    for batch, here, there in zip(batches(), found, expected, strict=True):
        if batch["feature_map"] != "positional" and (known or "offsets" not in batch):
            assert all(map(torch.equal, here, there))
        elif batch["feature_map"] != "positional":
            torch.testing.assert_close(here, there, rtol=1e-12, atol=1e-12)


@emulated
@pytest.mark.slow
def test_random_lists_equal_enumeration(on_device):
    rng = np.random.default_rng(0)
    for (measure, feature_map, diverse), references in list(references_of_pairs().items())[::3]:
        scores, labels, diversity_groups, expected, size = random_problem(rng, measure, feature_map, diverse, 5)
        judged, of = (
            rs.Diverse(measure) if diverse else measure,
            {"diversity_groups": torch.tensor(diversity_groups)} if diverse else {},
        )
        given = torch.tensor(scores), torch.tensor(labels)
        for reference in references:
            found = rs.most_violated(*given, judged, feature_map=feature_map, reference=reference, **of)
            own = float(found.task_loss + found.direction @ given[0])
            for value in (found.value.item(), own):
                assert value == pytest.approx(expected[reference], abs=4e-9 * size), (judged.name, feature_map.name)


@emulated
@pytest.mark.slow
def test_losses_equal_those_of_the_cpu(library, monkeypatch):
    """The loops that no oracle calls; thresholds of graded labels; lists longer than those that determine the scratch; and item
    weights, some of them 0.
    """
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 300, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 4, (3, 300), generator=generator)
    losses = [rs.RankSVMLoss(), rs.TopSurrogateLoss("P@5"), rs.StructuredHingeLoss("nDCG@10")]
    losses += [rs.GradedLoss("AUC"), rs.GradedLoss("AP@5"), rs.StructuredHingeLoss("R@5")]
    losses += [rs.StructuredHingeLoss("AUC", reference=r) for r in ("ideal", "predicted")]
    each = torch.randint(0, 4, (3, 300), generator=generator) / 2
    flat = {"offsets": torch.tensor([0, 7, 400, 401, 900])}

    def gradients():
        for loss in losses:
            for given, lists in (((scores, labels), {}), ((scores.flatten(), labels.flatten()), flat)):
                given = given[0], (given[1] > 1).long() if isinstance(loss, rs.TopSurrogateLoss) else given[1]
                weights = [{}, {"item_weights": each.view(given[0].shape)}] if loss.takes_item_weights else [{}]
                for weighted in weights:
                    value = loss(*given, **lists, **weighted)
                    yield value.detach(), torch.autograd.grad(value, scores)[0]

    expected = list(gradients())
    called = emulate(library, monkeypatch.setattr)
    torch.testing.assert_close(list(gradients()), expected, rtol=1e-12, atol=1e-12)
    assert {"pairwise_hinge", "top_surrogate", "pairwise_auc", "positional"} <= set(called)


#: Loops of losses that sum up pairs of documents, which devices take in torch, all pairs at once.
OF_PAIRS = {
    *(loop.name for loop in COSTS.values()),
    *("smoothed_ranks", "circle", "smooth_grad", "neural_gain", "neural_entropy", "soft_rank"),
}


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_sums_over_pairs_equal_those_of_the_cpu(layout, library, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    scores, chosen = torch.randn(2, 4, 30, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (4, 30), generator=generator).double()
    where, item_weights = torch.rand(2, 4, 30, generator=generator) > 0.1, torch.rand(4, 30, generator=generator) + 0.1
    given = [scores, labels, where[0], chosen, item_weights]
    if layout == "flat":
        given = [each.flatten() for each in given]
    scores, labels, real, chosen, item_weights = given
    offsets = torch.tensor([0, 1, 50, 50, 120]) if layout == "flat" else None
    lists = Lists(labels, real, offsets, chosen)
    discounts = rs.nDCG(5).unchecked_weights(120)
    steps = torch.cat([discounts.new_zeros(1), -discounts.diff(), discounts.new_zeros(1)])
    calls = [(kernels.smoothed_ranks, lists, (0.7, *how)) for how in ((False, False), (False, True), (True, True))]
    for weights in (None, item_weights):
        weighted = lists._replace(item_weights=weights)
        calls += [(kernels.circle, weighted, (4.0, 0.25)), (kernels.neural_entropy, weighted, (0.7,))]
        calls += [(kernels.smooth_grad, weighted, (discounts, 5, True, 0.7))]
        calls += [(kernels.neural_gain, weighted, (discounts, 5, 0.7))]
        for cost in COSTS:
            for scheme in ("uniform", "ndcg1", "ndcg2++"):
                options = (discounts, steps, 5, scheme, cost, 0.7, 3.0, None, None)
                calls.append((kernels.pair_loss, weighted, options))
    expected = [kernel(scores, given, 0.0, *options) for kernel, given, options in calls]
    called = emulate(library, monkeypatch.setattr)
    found = [kernel(scores, given, 0.0, *options) for kernel, given, options in calls]
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    assert set(called) == OF_PAIRS - {"soft_rank"}


@emulated
@pytest.mark.slow
def test_lists_take_turns_with_little_scratch(on_device, monkeypatch):
    scores, labels = torch.randn(9, 12, dtype=torch.float64), torch.randint(0, 3, (9, 12))
    expected = rs.most_violated(scores, labels, "nDCG@5", feature_map="positional")
    blocks = []
    monkeypatch.setattr(cuda, "_FEWEST_BLOCKS", 1)
    monkeypatch.setattr(cuda, "_MOST_SCRATCH", 40_000)
    start = cuda.start
    monkeypatch.setattr(
        cuda, "start", lambda device, count, *given: blocks.append(count) or start(device, count, *given)
    )
    for found, there in zip(
        rs.most_violated(scores, labels, "nDCG@5", feature_map="positional"), expected, strict=True
    ):
        torch.testing.assert_close(found, there, rtol=0, atol=0)
    assert 1 <= blocks[0] < 9


@emulated
@pytest.mark.slow
def test_without_scratch_lists_go_where_those_of_other_devices_go(on_device, monkeypatch):
    monkeypatch.setattr(cuda, "_MOST_SCRATCH", 100)
    scores, labels = torch.randn(2, 30, dtype=torch.float64), torch.randint(0, 2, (2, 30))
    for measure in ("AP@5", "mWTA"):  # in torch, and by a round trip
        found = rs.most_violated(scores, labels, measure)
        monkeypatch.setattr(dispatch, "has_loops", lambda device: True)
        torch.testing.assert_close(found.value, rs.most_violated(scores, labels, measure).value)
        monkeypatch.setattr(dispatch, "has_loops", lambda device: False)
    assert on_device == []


@emulated
@pytest.mark.slow
def test_long_lists_are_solved_in_torch_where_it_can(on_device):
    scores, labels = torch.randn(2, 5000, dtype=torch.float64), torch.randint(0, 2, (2, 5000))
    for size, measure, loops in (
        (5000, "AUC", []),
        (100, "AUC", ["pairwise_auc"]),
        (5000, "AP@5", ["pairwise_precision_at_cutoff"]),
        (5000, "nDCG@10", ["positional"]),
    ):
        on_device.clear()
        rs.most_violated(scores[:, :size], labels[:, :size], measure)
        assert on_device == loops


@emulated
@pytest.mark.slow
def test_what_is_wrong_costs_its_list_alone(on_device, monkeypatch):
    monkeypatch.setattr(cuda, "is_known", lambda offsets: False)
    scores = torch.tensor(
        [[0.0, 1.0, 2.0], [0.0, torch.nan, 1.0], [torch.inf, 0.0, 1.0], [0.0, 1e308, -1e308]]
    ).double()
    labels = torch.tensor([[0.0, 1, 0]] * 4)
    for measure in ("nDCG", "RR", "DCG@1", "diverse_nDCG@2"):
        diversity_groups = torch.tensor([0, 1, 2]).expand(4, -1)
        options = {"measure": measure, "feature_map": "positional"}
        hosts = (lambda each: {"diversity_groups": each}) if measure.startswith("diverse") else lambda each: {}
        right = rs.most_violated(scores[0], labels[0], **options, **hosts(diversity_groups[0])).value
        found = rs.most_violated(scores, labels, **options, **hosts(diversity_groups))
        assert found.value.isnan().tolist() == found.task_loss.isnan().tolist() == [False, True, True, True]
        assert found.value[0] == right
        labelled = torch.tensor([[0.0, 1, 0], [0, torch.nan, 1], [0, torch.inf, 1], [1, 1, 0]])
        chosen = torch.tensor([[0.0, 1, 0]] * 3 + [[0.0, torch.nan, 0]], dtype=torch.float64)
        given = (scores[:1].expand(4, -1), labelled)
        found = rs.most_violated(
            *given, reference="predicted", reference_scores=chosen, **options, **hosts(diversity_groups)
        )
        assert found.value.isnan().tolist() == [False, True, True, True]
        for offsets in ([0, 3, 11], [1, 3, 12], [0, 5, 3, 12]):
            flat = (scores[:1].expand(4, -1).flatten(), labels.flatten())
            of = options | hosts(diversity_groups.flatten())
            assert rs.most_violated(*flat, **of, offsets=torch.tensor(offsets)).value.isnan().all()
    negative = rs.most_violated(scores[:1], labels[:1], rs.DCG(gain=lambda y: y - 0.5), feature_map="positional")
    assert negative.value.isnan().all()
    grades = rs.most_violated(scores[:1], torch.tensor([[0.0, 1, 2]]), "nDCG", feature_map="pairwise")
    assert grades.value.isnan().all()


@emulated
@pytest.mark.slow
def test_hinges_train_through_the_kernels(on_device):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 7, generator=generator, requires_grad=True)
    labels = torch.randint(0, 3, (3, 7), generator=generator)
    for measure in ("nDCG@3", "RR", "DCG"):
        loss = rs.StructuredHingeLoss(measure, feature_map="positional")(scores, labels)
        flat = rs.StructuredHingeLoss(measure, feature_map="positional")(
            scores.flatten(), labels.flatten(), offsets=torch.tensor([0, 7, 14, 21])
        )
        torch.testing.assert_close(loss, flat)
        torch.testing.assert_close(*(torch.autograd.grad(each, scores)[0] for each in (loss, flat)))
    for shape in ((0, 5), (2, 0), (0,)):
        assert rs.most_violated(torch.zeros(shape), torch.zeros(shape), "nDCG").value.shape == shape[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("single", [True, False], ids=["float32", "float64"])
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
def test_the_loop_compiles_for_a_device(loop, single):
    """By NVRTC, which takes no GPU: `pip install rankstruct[cuda]`."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-core and NVRTC")
    pytest.importorskip("cuda.core", reason="needs cuda-core")
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        pytest.skip(f"no NVRTC: {error}")
    assert re.search(rb"\bsolve\b", cuda.compile_loop(loop, single, "sm_80").code)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_answers_of_a_device_are_those_of_the_cpu():
    assert cuda.reaches(torch.device("cuda", 0)), "the loops do not run there; logging at level DEBUG says why"
    found = answers(lambda each: each.cuda() if isinstance(each, torch.Tensor) else each)
    assert_same([type(each)(*(part.cpu() for part in each)) for each in found], answers())
