"""Every loss under the transforms of torch.func, and through batched and repeated differentiation."""

from functools import partial

import pytest
import torch
from losses.test_all_losses import GROUPS, LOSSES, both_ways, draw, item_weights_of

import rankstruct as rs
from rankstruct import losses

# torch's own rules for forward mode (torch 2.13)
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
every_loss = pytest.mark.parametrize("its", [its for _, its in LOSSES], ids=[name for name, _ in LOSSES])
LAYOUTS = {"plain": "mean", "where": "none", "offsets": "none", "weights": "mean", "item weights": "mean"}
each_layout = pytest.mark.parametrize(("layout", "reduction"), LAYOUTS.items(), ids=LAYOUTS)
func = torch.func


def function_of_scores(its, layout, reduction, dtype=torch.float64):
    """A loss of fixed lists as a function of the scores, and the scores; labels are whole numbers and float for some layouts."""
    scores, labels, where = draw(3, 12, dtype=dtype)
    given = its.groups(GROUPS[:3])
    if layout == "where":
        given, labels = given | {"where": where}, labels.to(dtype)
    elif layout == "weights":
        given |= {"weights": torch.tensor([0.5, 2.0, 1.0])}
    elif layout == "item weights":
        given |= {"item_weights": item_weights_of(scores)}
    elif layout == "offsets":
        scores, labels = scores.flatten(), labels.flatten()
        given = {name: each.flatten() for name, each in given.items()} | {"offsets": torch.tensor([0, 5, 12, 36])}
    module = its.make(reduction=reduction).requires_grad_(False)
    return (lambda leaf: module(leaf, labels, **given)), scores


@pytest.mark.sampled(5)
@every_loss
@each_layout
@pytest.mark.filterwarnings("ignore:torch.searchsorted.* non-contiguous")  # which vmap makes of what it does not map
def test_grad_jacrev_and_jvp_are_what_backward_finds(its, layout, reduction):
    if layout == "item weights" and not its.item_weights:
        pytest.skip("it takes no item weights")
    loss, scores = function_of_scores(its, layout, reduction)
    leaf = scores.clone().requires_grad_()
    value = loss(leaf)
    wanted = torch.stack([torch.autograd.grad(each, leaf, retain_graph=True)[0] for each in value.reshape(-1)])
    close = partial(torch.testing.assert_close, rtol=1e-6, atol=1e-8)
    close(func.jacrev(loss)(scores).reshape(wanted.shape), wanted)
    close(func.grad(lambda leaf: loss(leaf).sum())(scores), wanted.sum(0))
    mapped = func.vmap(func.grad(lambda leaf: loss(leaf).sum()))(torch.stack([scores, scores]))
    close(mapped, wanted.sum(0).expand(2, *scores.shape))
    along = scores.cos()
    found, tangent = func.jvp(loss, (scores,), (along,))
    close(found, value.detach())
    close(tangent.reshape(-1), (wanted * along).flatten(1).sum(-1))


@pytest.mark.sampled(2)
@every_loss
def test_hessian_is_the_second_derivative_of_backward(its):
    if its.input_order == "scores":
        pytest.skip("its weights follow the ranks")
    loss, scores = function_of_scores(its, "where", "mean")
    leaf = scores.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    rows = [
        torch.autograd.grad(each, leaf, retain_graph=True)[0] if slope.requires_grad else torch.zeros_like(leaf)
        for each in slope.flatten()
    ]
    wanted = torch.stack(rows).view(*scores.shape, *scores.shape)
    for found in (func.hessian(loss)(scores), func.jacrev(func.grad(loss))(scores)):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.sampled(2)
@every_loss
def test_gradients_of_several_lists_at_once(its):
    for layout in ("where", "offsets"):
        loss, scores = function_of_scores(its, layout, "none")
        leaf = scores.clone().requires_grad_()
        value = loss(leaf)
        upstream = torch.eye(3, dtype=scores.dtype)
        wanted = torch.stack([torch.autograd.grad(value, leaf, each, retain_graph=True)[0] for each in upstream])
        (found,) = torch.autograd.grad(value, leaf, upstream, is_grads_batched=True)
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.sampled(2)
@every_loss
def test_whatever_is_mapped_the_rest_may_be_plain(its):
    scores, labels, where = draw(3, 12)
    module = its.make(reduction="none").requires_grad_(False)
    mapped = {"labels": labels, "where": where}
    if its.item_weights:
        mapped["item_weights"] = item_weights_of(scores)
    for name, values in mapped.items():

        def loss(each, name=name):
            return module(scores[0], **({"labels": labels[0], **its.groups(GROUPS[0])} | {name: each}))

        wanted = torch.stack([loss(each) for each in values])
        torch.testing.assert_close(func.vmap(loss)(values), wanted)
    weights = torch.tensor([[0.5, 2.0, 1.0], [0.0, 1.0, 3.0]], dtype=torch.float64)
    mean = its.make().requires_grad_(False)

    def of_weights(each):
        return mean(scores, labels, weights=each, **its.groups(GROUPS[:3]))

    torch.testing.assert_close(func.vmap(of_weights)(weights), torch.stack([of_weights(each) for each in weights]))
    values = module(scores, labels, **its.groups(GROUPS[:3]))
    slope = (values - values @ weights[0] / weights[0].sum()) / weights[0].sum()
    torch.testing.assert_close(func.grad(of_weights)(weights[0]), slope)


@every_loss
def test_a_transform_of_something_else_changes_nothing(its):
    loss, scores = function_of_scores(its, "where", "mean")
    value = loss(scores)
    torch.testing.assert_close(func.vmap(lambda x: x * loss(scores))(torch.ones(2).double()), value.expand(2))
    torch.testing.assert_close(func.grad(lambda x: x * loss(scores))(torch.ones(()).double()), value)


@pytest.mark.parametrize(
    "make", [rs.PLRankLoss, losses.ExposureLoss, lambda: rs.PerturbedLoss(rs.StructuredHingeLoss("AP"))]
)
def test_losses_that_sample_have_gradients_too(make):
    scores, labels, _ = draw(3, 6)
    module = make()
    torch.manual_seed(0)
    found = func.grad(lambda leaf: module(leaf, labels))(scores)
    assert found.isfinite().all()
    assert found.any()
    with pytest.raises(RuntimeError, match="randomness"):
        func.vmap(lambda leaf: module(leaf, labels[0]))(scores)


@pytest.mark.sampled(2)
@every_loss
def test_strides_do_not_matter(its):
    """Batches of three dimensions whose lists are not adjacent in memory, as after `transpose` or `expand`."""
    scores, labels, where = draw(6, 12)
    shape = (2, 3, 12)
    wanted, slope = both_ways(
        its.make(reduction="none"),
        scores.view(shape),
        labels.view(shape),
        where=where.view(shape),
        **its.groups(GROUPS.view(shape)),
    )
    for turn in (
        lambda each: each.view(shape).permute(2, 0, 1).contiguous().permute(1, 2, 0),
        lambda each: each.view(shape).transpose(0, 1).contiguous().transpose(0, 1),
    ):
        leaf = turn(scores).detach().requires_grad_()
        assert not leaf.is_contiguous()
        value = its.make(reduction="none")(
            leaf, turn(labels), where=turn(where), **{name: turn(each) for name, each in its.groups().items()}
        )
        value.sum().backward()
        torch.testing.assert_close(value.detach(), wanted)
        torch.testing.assert_close(leaf.grad, slope)
    wide = scores[:1].expand(4, 12)
    options = {name: each[:1].expand(4, 12) for name, each in its.groups().items()}
    torch.testing.assert_close(
        its.make(reduction="none")(wide, labels[:1].expand(4, 12), **options),
        its.make(reduction="none")(wide.clone(), labels[:1].repeat(4, 1), **options),
    )
