"""The kernels of surrogates of the top, SoftRank and Plackett-Luce sums answer as the CPU does."""

from functools import partial

import lanes
import numpy as np
import pytest
import torch
from device_problems import arguments, assert_same, both_ways, draw, in_the_interpreter, interpreted, some_or_all
from torch.autograd import forward_ad

import rankstruct as rs
from rankstruct import losses
from rankstruct.kernels.plackett_luce import log_sums
from rankstruct.kernels.soft_rank import soft_rank
from rankstruct.kernels.top_surrogate import swap_surrogate
from rankstruct.lists import Lists
from rankstruct.losses.listwise import cumulative_logsumexp

BINARY = "nDCG(min_relevant=1)"
LOSSES = {
    **{
        f"Top-{m}-{kind}": partial(rs.TopSurrogateLoss, m, kind) for m in ("P@3", BINARY) for kind in ("average", "max")
    },
    **{f"Top-slack-{kind}": partial(rs.TopSurrogateLoss, "P@2", kind, "slack") for kind in ("average", "max")},
    "Top-DCG": partial(rs.TopSurrogateLoss, "DCG(min_relevant=1)@3"),
    **{f"SoftRank-{m}": partial(rs.SoftRankLoss, m, sigma=0.7) for m in ("nDCG", "nDCG@3", "DCG@2", "P@1")},
    **{f"SoftRank-{ranks}": partial(rs.SoftRankLoss, "nDCG@5", ranks=ranks) for ranks in ("normal", "joint")},
    "SoftRank-normal-all": partial(rs.SoftRankLoss, "nDCG", sigma=2.0, ranks="normal"),
    "ListMLE": rs.ListMLELoss,
    "RankDistil": partial(losses.RankDistilLoss, k=3, samples=None),
    "Softmax-unique": partial(rs.SoftmaxLoss, "gain", against="lower"),
}
every_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
pytestmark = pytest.mark.filterwarnings("ignore:scores .* are lists of one document")


def use_small_blocks(patch, block, tile):
    """The kernels in NumPy, so few documents at a time that short lists have several blocks."""
    lanes.use(patch)
    made = lanes.kernels()
    patch.setattr(made.DeviceBatch, "block", block)
    patch.setattr(made.plackett_luce, "_BLOCKS", (block, block))
    patch.setattr(made.soft_rank, "_LANES", tile)
    return made


@every_loss
def test_losses_are_those_of_the_cpu(make, monkeypatch):
    rng, loss = np.random.default_rng(0), make(reduction="none")
    given = [each for size in (1, 7) for each in arguments(rng, loss, 3, size)][3:]
    expected = [both_ways(loss, *each) for each in given]
    made = use_small_blocks(monkeypatch, 4, 256 if "joint" in str(loss) else 16)
    for known in (True, False):
        monkeypatch.setattr(made, "is_known", lambda offsets, known=known: known)
        for each, there in zip(given, expected, strict=True):
            if known or "offsets" in each[2]:
                assert_same(both_ways(loss, *each), there, each[0])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_random_lists(seed, monkeypatch):
    """3000 lists a seed, over the borders of blocks."""
    rng, done = np.random.default_rng(seed), 0
    while done < 3000:
        for name, make in LOSSES.items():
            loss = make(reduction="none")
            soft = "SoftRank" in name
            count, size = int(rng.integers(1, 5 if soft else 13)), int(rng.integers(0, 9 if soft else 24))
            scores, labels, where, weights = draw(rng, count, size)
            given = {"where": where}
            if loss.takes_item_weights and rng.random() < 0.4:
                given["item_weights"] = weights
            expected = both_ways(loss, scores, labels, given)
            with monkeypatch.context() as patch:
                use_small_blocks(
                    patch, int(rng.integers(3, 17)), 256 if "joint" in name else int(rng.choice([8, 32, 128]))
                )
                patch.setattr(lanes.Lanes, "checks", rng.random() < 0.1)
                try:
                    assert_same(both_ways(loss, scores, labels, given), expected, scores)
                except AssertionError as error:
                    raise AssertionError(f"{name}: {scores} {labels} {given}") from error
            done += count


def test_what_is_wrong_costs_its_list_alone(monkeypatch):
    """Scores, gains and item weights; with any of them wrong a list has value NaN, and the others theirs."""
    use_small_blocks(monkeypatch, 4, 16)
    scores, labels = torch.tensor([[0.0, 1.0, 2.0]] * 4).double(), torch.tensor([[0.0, 1, 0]] * 4).double()
    broken, wrong, weights = scores.clone(), labels.clone(), torch.ones_like(scores)
    broken[1:, 0] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    wrong[1:, 0] = torch.tensor([torch.nan, torch.inf, -1.0])
    weights[1:, 0] = torch.tensor([torch.nan, torch.inf, -1.0])
    table = rs.nDCG().unchecked_weights(3)

    def swaps(scores, lists):
        return swap_surrogate(scores, lists, 0.0, table, True, True, False)

    def softened(scores, lists, ranks="binomial"):
        return soft_rank(scores, lists, 0.0, table, 2, True, 1.0, ranks)

    given = [(broken, Lists(labels)), (scores, Lists(wrong)), (scores, Lists(labels, item_weights=weights))]
    for call, number in ((swaps, 2), (softened, 3), (partial(softened, ranks="normal"), 3)):
        for each in given[:number]:
            assert call(*each)[1].isnan().tolist() == [False, True, True, True]
    far = torch.tensor([[1e308, -1e308, 0.0]]).double()
    assert softened(far, Lists(labels[:1]))[1].isnan().all()
    two_gains = swaps(scores[:1], Lists(torch.tensor([[0.0, 1.0, 2.0]])))
    assert two_gains[1].isnan().all()
    assert log_sums(broken).isnan().any(-1)[1]


def test_a_sigma_on_a_device_is_not_read(monkeypatch):
    rng = np.random.default_rng(0)
    scores, labels, where, _ = draw(rng, 4, 7)
    loss = rs.SoftRankLoss("nDCG@3", sigma=0.3, reduction="none")
    expected = both_ways(loss, scores, labels, {"where": where})
    use_small_blocks(monkeypatch, 4, 16)
    monkeypatch.setattr("rankstruct.losses.soft_rank.is_plain", lambda values: False)
    assert loss.solve == loss._on_device
    assert_same(both_ways(loss, scores, labels, {"where": where}), expected, scores)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_forward_mode_is_that_of_the_cpu(monkeypatch):
    def along(values, by):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(cumulative_logsumexp(forward_ad.make_dual(values, by))).tangent

    given = torch.randn(2, 2, 7, dtype=torch.float64)
    expected = along(*given)
    lanes.use(monkeypatch)
    torch.testing.assert_close(along(*given), expected, rtol=0, atol=0)


def test_higher_derivatives_are_those_of_the_cpu(monkeypatch):
    scores = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0, 1, 2, 0, 1, 0]] * 2)
    made = [rs.ListMLELoss(), rs.SoftRankLoss("nDCG@3")]

    def second():
        for loss in made:
            (slope,) = torch.autograd.grad(loss(scores, labels), scores, create_graph=True)
            yield torch.autograd.grad(slope.square().sum(), scores)[0]

    expected = list(second())
    lanes.use(monkeypatch)
    torch.testing.assert_close(list(second()), expected, rtol=1e-10, atol=1e-10)


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
    given = next(arguments(np.random.default_rng(3), loss, 2, 4))
    expected = both_ways(loss, *given)
    with lanes.use_triton(monkeypatch):
        assert_same(both_ways(loss, *given), expected, given[0])


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_loss
@pytest.mark.parametrize("size", [13, 300, 1500])
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
        *(pytest.param("SoftRank-nDCG@3", target, marks=pytest.mark.slow) for target in (lanes.SM_90, lanes.GFX942)),
        *(
            pytest.param(name, target, marks=pytest.mark.soak)
            for name in LOSSES
            for target in (lanes.SM_80, lanes.SM_90, lanes.GFX942)
        ),
    ],
)
def test_kernels_compile_ahead_of_time(name, target, monkeypatch, capfd):
    """With the arguments of a launch, for lists of 1024 documents; nothing is spilled."""
    scores, labels = torch.randn(2, 1024, requires_grad=True), torch.randint(0, 2, (2, 1024))
    with lanes.compiled_ahead(target, monkeypatch, capfd) as used:
        LOSSES[name]()(scores, labels).backward()
    print(f"{name} on {target[1]}: registers and spilled {used}")
    assert used
    assert max(spilled for _, spilled in used) == 0
