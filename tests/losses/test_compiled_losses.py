"""Losses that compiled loops take, against the same in torch with all pairs of a list, which stays for other devices."""

from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import rankstruct as rs
from rankstruct.kernels import dispatch
from rankstruct.losses.listwise import approximate_ranks

GRADES = [(2.5, 0.0, 0.7), (1.0, 0.0, 0.2), (2.5, 1.0, 0.1)]
SCHEMES = ("uniform", "ndcg1", "ndcg2", "ndcg2++", "lambdarank")
WEIGHTED = [(scheme, *how) for scheme in SCHEMES for how in (("logistic", None), ("hinge", None), ("zero-one", 3))]
LOSSES = {
    "RankNet": partial(rs.RankNetLoss, 0.7),
    "FRank": partial(rs.FidelityLoss, 0.7),
    "RankSVM-IR": partial(rs.RankSVMLoss, 0.8, GRADES),
    "Circle": partial(rs.CircleLoss, gamma=4.0),
    "ApproxNDCG": partial(rs.ApproxNDCGLoss, temperature=0.5),
    "ApproxNDCG@3": partial(rs.ApproxNDCGLoss, "nDCG@3", temperature=0.5),
    "ApproxMRR": partial(rs.ApproxNDCGLoss, "RR(min_relevant=2)", temperature=0.5),
    "DCG-hinge": partial(rs.ApproxNDCGLoss, temperature=0.7, ranks="hinge"),
    "SmoothAP": partial(rs.SmoothAPLoss, 0.5),
    "SmoothAP-2": partial(rs.SmoothAPLoss, 0.5, min_relevant=2),
    "ADR-MSE": partial(rs.DiscountedRankMSELoss, temperature=0.5),
    "NeuralSort": partial(rs.NeuralSortLoss, temperature=2.0),
    "NeuralNDCG": partial(rs.NeuralNDCGLoss, temperature=2.0),
    "NeuralNDCG@3": partial(rs.NeuralNDCGLoss, "nDCG@3"),
    "Smooth": partial(rs.SmoothLoss, "nDCG", sigma=0.5),
    "Smooth-DCG@3": partial(rs.SmoothLoss, "DCG@3", sigma=0.5),
    **{
        f"Lambda-{scheme}-{cost}": partial(rs.LambdaLoss, rs.nDCG(cutoff), scheme, 0.7, 3.0, cost)
        for scheme, cost, cutoff in WEIGHTED
    },
}
#: Their kernels are cheap where few documents are relevant, or by nature.
CHEAP = [name for name in LOSSES if name not in ("Smooth", "NeuralSort", "ADR-MSE") and "ndcg1" not in name]
every_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)


@pytest.fixture
def in_torch(monkeypatch):
    """`in_torch(function, ...)`: what it returns where there are no compiled loops."""

    def call(function, *given, **lists):
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, "has_loops", lambda device: False)
            return function(*given, **lists)

    return call


def draw(size, dtype, *, ties=False, seed=0):
    """Lists of any labels; without a difference; all padding; with many documents of weight 0; with few relevant ones."""
    generator = torch.Generator().manual_seed(seed + size)
    scores = 2 * torch.randn(6, size, generator=generator, dtype=torch.float64)
    scores = scores.round() if ties else scores
    labels = torch.tensor([0.0, 1.0, 2.5, 4.0])[torch.randint(0, 4, (6, size), generator=generator)]
    labels[1], labels[5] = 1.0, 0.0
    labels[5, 0] = 2.5
    where = torch.rand(6, size, generator=generator) < 0.8
    where[2] = False
    item_weights = torch.rand(6, size, generator=generator) + 0.1
    item_weights[3, size // 2 :] = 0.0
    return scores.to(dtype), labels, where, item_weights


def derivatives(loss, scores, labels, **lists):
    """Values, slopes, and slopes again of the latter."""
    scores = scores.clone().requires_grad_()
    values = loss(scores, labels, **lists)
    upstream = torch.linspace(0.5, 2.0, len(values), dtype=values.dtype)
    (plain,) = torch.autograd.grad(values, scores, upstream)
    (slope,) = torch.autograd.grad(loss(scores, labels, **lists), scores, upstream, create_graph=True)
    (bend,) = torch.autograd.grad(slope, scores, scores.detach().cos()) if slope.requires_grad else (None,)
    return values.detach(), plain, slope.detach(), bend


@pytest.mark.sampled(4)
@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "item weights"])
@pytest.mark.parametrize("ties", [False, True], ids=["", "ties"])
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_values_and_derivatives_are_those_of_all_pairs(make, dtype, weighted, ties, in_torch):
    loss = make(reduction="none")
    if ties and isinstance(loss, rs.SmoothLoss):
        pytest.skip("the order in which a sort puts equal scores decides")
    near = {"rtol": 1e-4, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 1e-7, "atol": 1e-8}
    for size in (1, 2, 7, 40):
        scores, labels, where, item_weights = draw(size, dtype, ties=ties)
        padded = {"where": where, **({"item_weights": item_weights} if weighted else {})}
        flat = {"offsets": torch.cat([torch.zeros(1, dtype=torch.long), where.sum(-1).cumsum(0)])}
        flat |= {"item_weights": item_weights[where]} if weighted else {}
        found = derivatives(loss, scores, labels, **padded)
        expected = in_torch(derivatives, loss, scores, labels, **padded)
        torch.testing.assert_close(found, expected, **near)
        of_flat = derivatives(loss, scores[where], labels[where], **flat)
        torch.testing.assert_close(of_flat[:2], (found[0], found[1][where]), **near)


@pytest.mark.sampled(2)
@every_loss
@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_reductions_with_item_weights_count_the_lists_that_are_left(make, layout, in_torch):
    scores, labels, where, item_weights = draw(9, torch.float64)
    item_weights[0] = 0.0
    lists = {"where": where, "item_weights": item_weights}
    if layout == "flat":
        lists = {"offsets": torch.arange(0, 55, 9), "item_weights": item_weights.flatten()}
        scores, labels = scores.flatten(), labels.flatten()
    for more in ({}, {"weights": torch.arange(6.0)}, {"weights": torch.zeros(6)}):
        for reduction in ("mean", "sum"):
            loss = make(reduction=reduction)
            found, expected = (call(scores, labels, **lists, **more) for call in (loss, partial(in_torch, loss)))
            torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.sampled(2)
@every_loss
def test_slopes_with_item_weights_are_those_of_finite_differences(make):
    loss = make()
    if isinstance(loss, rs.CircleLoss):
        pytest.skip("its gradient holds something fixed")
    scores, labels, where, item_weights = draw(8, torch.float64, seed=3)
    weights = {"where": where, "item_weights": item_weights}
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda scores: loss(scores, labels, **weights), scores, atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [rs.RankNetLoss, rs.LambdaLoss])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "item weights"])
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_second_derivatives_are_the_diagonal_of_the_hessian(kind, scheme, weighted):
    loss = kind(sigma=0.7) if kind is rs.RankNetLoss else kind("nDCG@5", scheme, sigma=0.7, mu=3.0)
    scores, labels, _, item_weights = (each.flatten() for each in draw(8, torch.float64, ties=True))
    offsets = torch.tensor([0, 1, 1, 9, 30, 48])
    weights = (item_weights,) if weighted else ()
    found = loss.second_derivatives(scores, labels, offsets, *weights)
    lists = {"offsets": offsets, "reduction": "sum", **({"item_weights": item_weights} if weighted else {})}
    hessian = torch.autograd.functional.hessian(lambda scores: loss(scores, labels, **lists), scores)
    torch.testing.assert_close(found, hessian.diagonal(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ranks", ["sigmoid", "hinge"])
@pytest.mark.parametrize("share", [0.02, 0.4, 0.8, 1.0])
@pytest.mark.parametrize("spread", [0.01, 1.0, 1e3, 1e8])
def test_smoothed_ranks_that_are_asked_for_are_those_of_all_pairs(ranks, share, spread, in_torch):
    """However few, and however far the scores are apart."""
    generator = torch.Generator().manual_seed(1)
    scores = (spread * torch.randn(4, 90, generator=generator, dtype=torch.float64)).requires_grad_()
    where = torch.rand(4, 90, generator=generator) < 0.9
    asked = where & (torch.rand(4, 90, generator=generator) < share)
    upstream = torch.where(asked, torch.randn(4, 90, generator=generator, dtype=torch.float64), 0.0)

    def found():
        ranks_of = torch.where(asked, approximate_ranks(scores, where, 0.7, asked, ranks=ranks), 0.0)
        return ranks_of.detach(), torch.autograd.grad(ranks_of, scores, upstream)[0]

    torch.testing.assert_close(found(), in_torch(found), rtol=1e-10, atol=1e-10)


def test_a_gradient_that_is_not_finite_goes_through_smoothed_ranks():
    scores = torch.tensor([1.0, 2.0, 0.0], requires_grad=True)
    value = rs.ApproxNDCGLoss()(scores, torch.tensor([0, 2, 1]), where=torch.tensor([True, True, False]))
    value.mul(torch.inf).backward()
    assert scores.grad.tolist()[2] == 0
    assert not scores.grad[:2].isfinite().any()


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that anything returns."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else [found]:
            if isinstance(each, torch.Tensor):
                self.numbers = max(self.numbers, each.untyped_storage().nbytes() // each.element_size())
        return found


@pytest.mark.sampled(2)
@every_loss
@pytest.mark.parametrize("weighted", [False, True], ids=["", "item weights"])
@pytest.mark.filterwarnings("ignore:most lists have more relevant documents")
def test_no_tensor_has_a_number_for_each_pair(make, weighted):
    size = 3000
    scores, labels = torch.randn(size, requires_grad=True), torch.randint(0, 5, (size,))
    more = {"item_weights": torch.rand(size) + 0.1} if weighted else {}
    with Largest() as largest:
        make()(scores, labels, **more).backward()
    assert size <= largest.numbers <= 4 * size
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("name", CHEAP)
@pytest.mark.filterwarnings("ignore:most lists have more relevant documents")
def test_a_list_of_sixty_thousand_documents_has_a_gradient(name):
    """All pairs of it would take 29 GB."""
    scores, labels = torch.randn(60_000, requires_grad=True), torch.zeros(60_000)
    labels[torch.arange(10) * 5000] = 2.5
    loss = rs.SmoothLoss("DCG@3", sigma=0.01) if name == "Smooth-DCG@3" else LOSSES[name]()
    loss(scores, labels).backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(
    "name", ["pair_loss", "smoothed_ranks", "circle", "smooth_grad", "neural_gain", "neural_entropy"]
)
def test_operators_pass_torch_own_checks(name):
    scores, labels, where, item_weights = draw(7, torch.float32)
    discounts = rs.nDCG().unchecked_weights(7)
    tables = discounts, torch.cat([torch.zeros(1), -discounts.diff(), torch.zeros(1)]), 7
    lists = scores, labels, where, None, scores, None
    options = {
        "pair_loss": (item_weights + 1, 0.0, *tables, "ndcg2", "hinge", 1.0, 1.0, None, None),
        "smoothed_ranks": (0.0, 1.0, False, False),
        "circle": (item_weights + 1, 0.0, 4.0, 0.25),
        "smooth_grad": (item_weights + 1, 0.0, discounts, 3, True, 0.5),
        "neural_gain": (item_weights + 1, 0.0, discounts, 3, 0.5),
        "neural_entropy": (item_weights + 1, 0.0, 0.5),
    }
    torch.library.opcheck(getattr(torch.ops.rankstruct, name).default, (*lists, *options[name]))
