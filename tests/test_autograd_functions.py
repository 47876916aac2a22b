"""Every autograd Function of the package: second derivatives are right, or refused, and never those of another function."""

import re
from pathlib import Path

import lanes
import pytest
import torch

import rankstruct as rs
from rankstruct.losses import autograd, listwise, plackett_luce
from rankstruct.recommenders import interactions
from rankstruct.recommenders.catalogue import TrainingLists
from rankstruct.recommenders.factorization import LightGCN, MatrixFactorization, _UnitRows
from rankstruct.recommenders.tables import _Sum
from rankstruct.scoring import sliced_scores

KNOWN = interactions([0, 0, 1, 1, 2], [0, 1, 1, 2, 3], user_names=range(3), item_names=range(4))
LABELS = torch.tensor([[2, 0, 1, 0], [0, 1, 0, 2], [1, 0, 0, 0]])


def with_factors(scorer, compute):
    """`compute(scorer)` as a function of the user factors."""

    def function(factors):
        return torch.func.functional_call(scorer, {"user_factors.weight": factors}, (compute,))

    scorer.forward = lambda compute: compute(scorer)
    return function


def factorization(kind, **options):
    scorer = kind(3, 4, rank=4, seed=1, **options).double()
    if kind is LightGCN:
        scorer.set_graph(KNOWN)
    return scorer


def mean_loss(scorer):
    users, items = torch.tensor([0, 1, 2]), torch.tensor([[0, 1], [1, 2], [3, 3]])
    real = torch.tensor([[True, True], [True, True], [True, False]])
    return TrainingLists(KNOWN).mean_loss(scorer, rs.SoftmaxLoss(), users, items, real)


def slices(scores):
    return sliced_scores(lambda rows: rows @ scores.mean(0), torch.ones(4, 4, dtype=scores.dtype), 2, [scores])


#: Functions of scores `[3, 4]` that are twice differentiable.
RIGHT = {
    "_GivenGradient": lambda scores: rs.RankSVMLoss(reduction="none")(scores, LABELS),
    "_GivenGradientEager": lambda scores: rs.RankSVMLoss(reduction="none")(scores, LABELS),
    "_MeanGivenGradient": lambda scores: rs.StructuredHingeLoss("AP")(scores, LABELS),
    "_WeightedMeanGivenGradient": lambda scores: rs.StructuredHingeLoss("AP")(
        scores, LABELS, weights=torch.tensor([1.0, 0.5, 0.0])
    ),
    "_SmoothGradient": lambda scores: rs.RankNetLoss(reduction="none")(scores, LABELS),
    "_SmoothedRanks": lambda scores: rs.ApproxNDCGLoss(temperature=1.0, reduction="none")(scores, LABELS),
    "_LogSums": lambda scores: listwise.cumulative_logsumexp(scores),
    "_UnitRows": lambda scores: _UnitRows.apply(scores)[0],
    "_Sum": lambda scores: _Sum.apply(scores).square(),
    "_Symmetric": with_factors(
        factorization(LightGCN, temperature=0.5), lambda scorer: scorer.item_scores(torch.arange(3))
    ),
    "_MeanOfBlocks": with_factors(factorization(MatrixFactorization, temperature=0.5), mean_loss),
}
#: Functions that refuse second derivatives.
REFUSED = {
    "_Exposure": lambda scores: plackett_luce.expected_exposure(scores),
    "_Estimate": lambda scores: rs.PLRankLoss()(scores, LABELS),
    "_Sliced": slices,
}


def test_every_function_is_known():
    package = Path(rs.__file__).parent
    kinds = (
        re.findall(r"^class (\w+)\(torch\.autograd\.Function\)", path.read_text(), re.M)
        for path in package.rglob("*.py")
    )
    refusing = {"_Once"}  # for all of REFUSED
    assert {name for names in kinds for name in names} == RIGHT.keys() | REFUSED.keys() | refusing


def scores():
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("name", RIGHT)
def test_second_derivatives_are_right(name, monkeypatch):
    if name == "_GivenGradient":
        monkeypatch.setattr(autograd, "is_eager", lambda values: False)
    if name == "_LogSums":
        lanes.use(monkeypatch)
    assert torch.autograd.gradcheck(RIGHT[name], scores())
    assert torch.autograd.gradgradcheck(RIGHT[name], scores())


def by_grad(total, leaf):
    (slope,) = torch.autograd.grad(total(leaf), leaf, create_graph=True)
    torch.autograd.grad(slope.sum(), leaf)


def by_backward(total, leaf):
    total(leaf).backward(create_graph=True)
    leaf.grad.sum().backward()


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize("derive", [by_grad, by_backward, torch.autograd.functional.hessian])
@pytest.mark.parametrize("beside", [None, torch.exp], ids=["alone", "in a sum"])
@pytest.mark.parametrize("name", REFUSED)
def test_second_derivatives_are_refused(name, beside, derive):
    """Also in a sum with a function that has them, whose own would otherwise pass for those of the sum."""

    def total(leaf):
        value = REFUSED[name](leaf).square().sum()
        return value if beside is None else value + beside(leaf).sum()

    with pytest.raises(RuntimeError, match="differentiable once"):
        derive(total, scores())


@pytest.mark.parametrize("name", REFUSED)
def test_first_derivatives_of_what_is_differentiable_once_may_have_a_graph(name):
    leaf, torch_state = scores(), torch.get_rng_state()
    (wanted,) = torch.autograd.grad(REFUSED[name](leaf).square().sum(), leaf)
    torch.set_rng_state(torch_state)
    (slope,) = torch.autograd.grad(REFUSED[name](leaf).square().sum(), leaf, create_graph=True)
    assert torch.equal(slope, wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_graph_follows_the_dtype_of_the_factors(dtype):
    scorer = factorization(LightGCN)
    wanted = scorer.float().item_scores(torch.arange(3)).double()
    found = scorer.to(dtype).item_scores(torch.arange(3))
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
