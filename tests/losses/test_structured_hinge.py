"""The structured hinge loss: bound, gradient, padding, weights, reductions, transforms, compilation."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankstruct as rs

# Each with its own feature map: pairwise, first-relevant for RR, positional for WTA and DCG.
MEASURES = [
    "AUC",
    "pAUC(low=0.1,high=0.6,min_tpr=0.2)",
    "R@4",
    "Success@3",
    "F(beta=2)@4",
    "AP",
    "AP@4",
    "nDCG(min_relevant=1)",
    "nDCG(min_relevant=1)@3",
    "P@3",
    "RR@3",
    "WTA",
    "mWTA",
    "DCG",
    "DCG@3",
]


def make(lists=6, size=12, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, size, generator=generator, dtype=dtype)
    labels = torch.randint(0, 3, (lists, size), generator=generator)
    where = torch.rand(lists, size, generator=generator) < 0.8
    return scores, labels, where


@pytest.mark.sampled(3)
@pytest.mark.parametrize("measure", MEASURES)
def test_gradcheck(measure):
    scores, labels, where = make()
    scores.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda s: rs.StructuredHingeLoss(measure, reduction="none")(s, labels, where=where), scores
    )
    weights = torch.rand(6, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda s: rs.StructuredHingeLoss(measure)(s, labels, weights=weights), scores)
    offsets = torch.tensor([0, 12, 12, 40, 72])
    assert torch.autograd.gradcheck(
        lambda s: rs.StructuredHingeLoss(measure, reduction="none")(s, labels.flatten(), offsets=offsets),
        scores.detach().flatten().requires_grad_(),
    )


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-5, 1.0, 1e4]), measure=st.sampled_from(MEASURES))
def test_bounds_the_task_loss_of_the_ranking_by_score_and_is_convex(seed, scale, measure):
    scores, labels, where = make(seed=seed)
    scores = scores * scale

    def hinge(s):
        return rs.StructuredHingeLoss(measure, reference="ideal", reduction="none")(s, labels, where=where)

    found = hinge(scores)
    name = rs.parse_measure(measure).name
    best = rs.parse_measure(measure).best_value(labels, where)
    regret = best - rs.evaluate(scores, labels, [measure], where=where, ties="worst")[name]
    assert (found >= regret - 1e-9 * max(1, scale)).all()
    assert (found >= 0).all()
    other, _, _ = make(seed=seed + 1)
    middle = hinge((scores + other) / 2)
    assert (middle <= (found + hinge(other)) / 2 + 1e-9 * max(1, scale)).all()
    shifted = hinge(scores + 17.0)
    torch.testing.assert_close(shifted, found, atol=1e-9 * max(1, scale), rtol=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_padding_changes_nothing_even_nan(measure):
    scores, labels, where = make(dtype=torch.float32)
    poisoned = torch.where(where, scores, torch.nan).requires_grad_()
    loss = rs.StructuredHingeLoss(measure, reduction="none")(
        poisoned, torch.where(where, labels.float(), torch.nan), where=where
    )
    loss.sum().backward()
    for row in range(len(scores)):
        alone = scores[row, where[row]].clone().requires_grad_()
        value = rs.StructuredHingeLoss(measure)(alone, labels[row, where[row]])
        value.backward()
        assert value.item() == loss[row].item()
        assert torch.equal(poisoned.grad[row, where[row]], alone.grad)
        assert (poisoned.grad[row, ~where[row]] == 0).all()


@pytest.mark.parametrize("measure", MEASURES)
def test_a_list_all_padding_is_not_counted_and_stays_in_the_graph(measure):
    scores, labels, where = make()
    where[2] = False
    scores = torch.where(where, scores, torch.nan).requires_grad_()
    each = rs.StructuredHingeLoss(measure, reduction="none")(scores, labels, where=where)
    mean = rs.StructuredHingeLoss(measure)(scores, labels, where=where)
    torch.testing.assert_close(mean, each[[0, 1, 3, 4, 5]].mean())
    mean.backward()
    assert scores.grad.isfinite().all()
    nothing = torch.zeros(2, 3, requires_grad=True)
    loss = rs.StructuredHingeLoss(measure)(nothing, torch.zeros(2, 3), where=torch.zeros(2, 3, dtype=torch.bool))
    loss.backward()
    assert loss == 0
    assert torch.equal(nothing.grad, torch.zeros(2, 3))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (0,), (1,), (2, 1)])
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_empty_shapes(shape, measure, reduction):
    scores = torch.zeros(shape, requires_grad=True)
    loss = rs.StructuredHingeLoss(measure, reduction=reduction)(scores, torch.zeros(shape))
    loss.sum().backward()
    assert loss.shape == (shape[:-1] if reduction == "none" else ())
    assert (loss == 0).all()
    assert torch.equal(scores.grad, torch.zeros(shape))


def test_weights_and_reductions():
    scores, labels, where = make()
    each = rs.StructuredHingeLoss("AP", reduction="none")(scores, labels, where=where)
    weights = torch.arange(6, dtype=torch.float64)
    keep = {"where": where, "weights": weights}
    loss = rs.StructuredHingeLoss("AP")
    torch.testing.assert_close(loss(scores, labels, **keep), each @ weights / weights.sum())
    torch.testing.assert_close(loss(scores, labels, **keep, reduction="sum"), each @ weights)
    torch.testing.assert_close(loss(scores, labels, **keep, reduction="none"), each * weights)
    zero = rs.StructuredHingeLoss("AP")(scores, labels, weights=torch.zeros(6))
    assert zero == 0
    with pytest.raises(ValueError, match=r"weights must be one per list, shape \(6,\); got \(5,\)"):
        rs.StructuredHingeLoss("AP")(scores, labels, weights=torch.ones(5))
    with pytest.raises(ValueError, match="reduction must be one of 'mean', 'sum', 'none', got 'avg'"):
        rs.StructuredHingeLoss("AP", reduction="avg")


def test_flat_and_padded_agree_with_an_empty_list():
    scores, labels, _ = make()
    offsets = torch.tensor([0, 12, 12, 36, 72])
    flat = scores.flatten().clone().requires_grad_()
    loss = rs.StructuredHingeLoss("AP")(flat, labels.flatten(), offsets=offsets)
    loss.backward()
    parts = [scores.flatten()[a:b] for a, b in ((0, 12), (12, 36), (36, 72))]
    its = [labels.flatten()[a:b] for a, b in ((0, 12), (12, 36), (36, 72))]
    expected = sum(rs.StructuredHingeLoss("AP")(s, y) for s, y in zip(parts, its, strict=True)) / 3
    torch.testing.assert_close(loss.detach(), expected)
    padded = rs.StructuredHingeLoss("AP", reduction="none")(scores, labels)
    torch.testing.assert_close(
        padded,
        rs.StructuredHingeLoss("AP", reduction="none")(
            scores.flatten(), labels.flatten(), offsets=torch.arange(7) * 12
        ),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    scores, labels, where = make(dtype=dtype)
    scores.requires_grad_()
    loss = rs.StructuredHingeLoss("AP")(scores, labels, where=where)
    loss.backward()
    assert loss.dtype == scores.grad.dtype == dtype
    exact = rs.StructuredHingeLoss("AP")(scores.detach().float(), labels, where=where)
    assert loss.item() == pytest.approx(exact.item(), rel=0.02)


def test_autocast():
    linear, (scores, labels, _) = torch.nn.Linear(4, 1), make(dtype=torch.float32)
    features = torch.randn(*scores.shape, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear(features).squeeze(-1)
        assert found.dtype == torch.bfloat16
        loss = rs.StructuredHingeLoss("AP")(found, labels)
    loss.backward()
    assert linear.weight.grad.isfinite().all()
    assert linear.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_extreme_scores_have_finite_gradients(measure, scale):
    scores, labels, where = make(dtype=torch.float32)
    scores = (scores * scale).requires_grad_()
    loss = rs.StructuredHingeLoss(measure)(scores, labels, where=where)
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()


def test_double_backward_is_zero():
    scores, labels, _ = make()
    scores.requires_grad_()
    (gradient,) = torch.autograd.grad(rs.StructuredHingeLoss("AP")(scores, labels), scores, create_graph=True)
    assert not gradient.requires_grad or torch.autograd.grad(gradient.sum(), scores, allow_unused=True)[0] is None


@pytest.mark.parametrize("measure", MEASURES)
def test_vmap_and_grad_transforms(measure):
    scores, labels, where = make()

    def loss(s, y, w):
        return rs.StructuredHingeLoss(measure, reduction="none")(s, y, where=w)

    expected = loss(scores, labels, where)
    torch.testing.assert_close(torch.func.vmap(loss)(scores, labels, where), expected)
    stacked = torch.stack([scores, scores * 2], dim=1)
    both = torch.func.vmap(loss, in_dims=(1, None, None), out_dims=1)(stacked, labels, where)
    torch.testing.assert_close(both, torch.stack([expected, loss(scores * 2, labels, where)], dim=1))
    gradient = torch.func.vmap(torch.func.grad(loss))(scores, labels, where)
    leaf = scores.clone().requires_grad_()
    loss(leaf, labels, where).sum().backward()
    torch.testing.assert_close(gradient, leaf.grad)

    offsets = torch.tensor([0, 5, 12])

    def flat(s, y):
        return rs.StructuredHingeLoss(measure, reduction="none")(s, y, offsets=offsets)

    each = torch.stack([flat(s, y) for s, y in zip(scores, labels, strict=True)])
    torch.testing.assert_close(torch.func.vmap(flat)(scores, labels), each)


OPERATORS = {
    "pairwise_auc": (None, None, None, True),
    "pairwise_average_precision": (2.0, None, None, 3, False),
    "pairwise_reciprocal_rank": (None, torch.tensor([1.0, 2.0]).double(), torch.tensor([1.0, 0.5]).double(), 3, True),
    "first_relevant_reciprocal_rank": (None, None, None, 100, True),
    "pairwise_discounted": (None, None, None, torch.tensor([1.0, 0.5, 0.2] + [0.0] * 69, dtype=torch.float64), True, True),
    "contingency": (None, None, None, 3, 0, 2.0, 2),
    "partial_area": (None, None, None, True, 0.1, 0.6, 0.2, False, True),
    "positional": (
        torch.arange(72, 0, -1, dtype=torch.float64), torch.arange(72, 0, -1, dtype=torch.float64),
        0, True, False, "predicted",
    ),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OPERATORS)
def test_operator_passes_torch_own_checks(name):
    operator = getattr(torch.ops.rankstruct, name).default
    scores, labels, where = make()
    labels = labels.clamp(max=1)
    offsets = torch.tensor([0, 30, 72])
    chosen = scores.cos()
    weighted = any(argument.name == "item_weights" for argument in operator._schema.arguments)
    for each in ((None,), (torch.rand(scores.shape) + 0.1,)) if weighted else ((),):
        torch.library.opcheck(operator, (scores, labels, where, None, None, None, *each, 0.0, *OPERATORS[name]))
        of_flat = tuple(None if weights is None else weights.flatten() for weights in each)
        flat = (scores.flatten(), labels.flatten(), None, offsets, chosen.flatten(), None, *of_flat, 0.0)
        torch.library.opcheck(operator, (*flat, *OPERATORS[name]))


@pytest.mark.soak
@pytest.mark.parametrize("measure", MEASURES)
def test_compiles_as_one_graph(measure):
    torch.manual_seed(0)
    scores, labels, where = make(dtype=torch.float32)
    features = torch.randn(*scores.shape, 5)
    model, loss = rs.MLPScorer(5, hidden=(7,)), rs.StructuredHingeLoss(measure)
    other = rs.StructuredHingeLoss(rs.parse_measure(measure), reduction="sum")

    def step(x, y, w):
        return loss(model(x), y, where=w) + other(model(x), y, where=w)

    eager = step(features, labels, where)
    expected = torch.autograd.grad(eager, list(model.parameters()))
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    value = compiled(features, labels, where)
    found = torch.autograd.grad(value, list(model.parameters()))
    torch.testing.assert_close(value, eager)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_means_of_many_lists(dtype):
    """The number of lists is beyond what half precision can count."""
    scores, labels = torch.zeros(70_000, 2, dtype=dtype), torch.tensor([1, 0]).expand(70_000, 2)
    loss = rs.StructuredHingeLoss("AP")
    plain = loss(scores, labels)
    assert plain == 0.5
    for extra in ({"where": torch.ones(70_000, 2, dtype=torch.bool)}, {"weights": torch.full((70_000,), 1e4)}):
        assert loss(scores, labels, **extra) == plain


def test_labels_may_require_gradients():
    scores = torch.tensor([0.2, 0.1, 0.3], requires_grad=True)
    labels = torch.tensor([0.0, 1.0, 0.0], requires_grad=True)
    assert not rs.most_violated(scores, labels, "AP").value.requires_grad
    rs.StructuredHingeLoss("AP")(scores, labels).backward()
    assert scores.grad.abs().sum() > 0
    assert labels.grad is None


def test_weights_must_be_a_tensor():
    with pytest.raises(TypeError, match=r"weights must be a torch\.Tensor, got list"):
        rs.StructuredHingeLoss("AP")(torch.zeros(1, 2), torch.zeros(1, 2), weights=[1.0])


def test_vmap_over_where_alone_and_over_offsets():
    scores, labels, where = make()
    masks = torch.stack([where, ~where, torch.ones_like(where)], dim=1)
    found = torch.func.vmap(lambda w: rs.StructuredHingeLoss("AP")(scores, labels, where=w), in_dims=1)(masks)
    each = [rs.StructuredHingeLoss("AP")(scores, labels, where=masks[:, i]) for i in range(3)]
    torch.testing.assert_close(found, torch.stack(each))

    def flat(offsets):
        return rs.StructuredHingeLoss("AP", reduction="none")(scores[0], labels[0], offsets=offsets)

    several = torch.tensor([[0, 5, 12], [0, 1, 12]])
    torch.testing.assert_close(torch.func.vmap(flat)(several), torch.stack([flat(o) for o in several]))
    with pytest.raises(ValueError, match="for every example of vmap"):
        torch.func.vmap(flat)(torch.tensor([[0, 5, 12], [0, 1, 11]]))


def test_it_pickles(tmp_path):
    scores, labels, where = make()
    loss = rs.StructuredHingeLoss(rs.AP(min_relevant=2), reduction="sum")
    expected = loss(scores, labels, where=where)
    torch.save(loss, tmp_path / "loss.pt")
    again = torch.load(tmp_path / "loss.pt", weights_only=False)
    assert torch.equal(again(scores, labels, where=where), expected)
    assert repr(again) == repr(loss)


def test_without_a_measure():
    assert repr(rs.StructuredHingeLoss()) == repr(rs.StructuredHingeLoss("AP"))
    assert repr(rs.DirectLoss()) == repr(rs.DirectLoss("AP"))
    assert repr(rs.GradedLoss()) == repr(rs.GradedLoss("AUC"))
    with pytest.raises(TypeError, match=r"TopSurrogateLoss.*missing .*'measure'"):
        rs.TopSurrogateLoss()  # which has none that is usual


@pytest.mark.parametrize("name", ["AP", "nDCG@3", "diverse_nDCG@3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layout", ["full", "where", "flat", "no lists"])
def test_the_mean_and_its_gradient_are_those_of_the_lists(name, dtype, layout):
    scores, labels = torch.randn(6, 5, dtype=dtype), torch.randint(0, 2, (6, 5))
    more = {"diversity_groups": torch.randint(0, 3, (6, 5))} if name.startswith("diverse") else {}
    if layout == "where":
        where = torch.rand(6, 5) < 0.7
        where[2] = False  # a list that is all padding counts for nothing
        more |= {"where": where}
    elif layout == "flat":
        scores, labels, more = scores.flatten(), labels.flatten(), {k: v.flatten() for k, v in more.items()}
        more |= {"offsets": torch.tensor([0, 4, 4, 11, 12, 30])}
    elif layout == "no lists":
        scores, labels, more = scores[:0], labels[:0], {k: v[:0] for k, v in more.items()}
    loss, one = rs.StructuredHingeLoss(name), scores.clone().requires_grad_()
    other = scores.clone().requires_grad_()
    mean, values = loss(one, labels, **more), loss(other, labels, **more, reduction="none")
    counted = torch.ones(len(values), dtype=torch.bool)
    if "where" in more:
        counted = more["where"].any(-1)
    elif "offsets" in more:
        counted = more["offsets"].diff() > 0
    expected = values[counted].sum() / counted.sum().clamp(min=1)
    assert (mean.dtype, mean.shape) == (dtype, ())
    torch.testing.assert_close(mean, expected)
    (7 * mean).backward()
    (7 * expected).backward()
    torch.testing.assert_close(one.grad, other.grad)


def test_the_mean_has_zero_second_derivatives_and_refuses_what_it_cannot_hold():
    loss, labels = rs.StructuredHingeLoss("nDCG@3"), torch.tensor([[2, 0, 1], [1, 0, 0]])
    scores = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    factor = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(factor * loss(scores, labels), scores, create_graph=True)
    (by_factor,) = torch.autograd.grad(gradient.sum() + gradient[0, 0], factor, allow_unused=True)
    torch.testing.assert_close(by_factor, (gradient.sum() + gradient[0, 0]).detach() / 3)
    huge = torch.tensor([[-3e38, 3e38, 3e38], [0.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match=r"the loss of list 0 is inf: .*too large for torch.float32"):
        rs.StructuredHingeLoss("AP")(huge, labels.clamp(max=1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["AP", "nDCG", "RR@3"])
def test_a_traced_loss_looks_at_its_input(name):
    scores, labels = torch.randn(3, 6), torch.randint(0, 2, (3, 6))
    loss = rs.StructuredHingeLoss(name, reduction="sum")
    traced = torch.jit.trace(lambda scores: loss(scores, labels), scores, check_trace=False)
    torch.testing.assert_close(traced(scores.flip(1)), loss(scores.flip(1), labels))
    traced = torch.jit.trace(
        lambda scores: rs.most_violated(scores, labels[0], name, offsets=[0, 2, 6]).value, scores[0]
    )
    expected = rs.most_violated(scores[1], labels[0], name, offsets=[0, 2, 6]).value
    torch.testing.assert_close(traced(scores[1]), expected)


def catalogue(relevant, size=2000):
    """Two lists of a catalogue's size with this many relevant documents each."""
    labels = torch.zeros(2, size, dtype=torch.int64)
    labels[:, :relevant] = 1
    return torch.randn(2, size, generator=torch.Generator().manual_seed(0)), labels


@pytest.mark.parametrize(
    "make",
    [
        lambda: rs.StructuredHingeLoss("nDCG@20"),
        lambda: rs.StructuredHingeLoss("P@20", reduction="none"),
        lambda: rs.LambdaLoss("nDCG@20"),
        lambda: rs.GradedLoss("nDCG@20"),
    ],
)
def test_a_cutoff_that_neglects_most_relevant_documents_of_long_lists_warns_once(make):
    scores, labels = catalogue(21)
    offsets = torch.tensor([0, 2000, 4000])
    for lists in ((scores, labels, {}), (scores.flatten(), labels.flatten(), {"offsets": offsets})):
        loss = make()
        with pytest.warns(
            UserWarning, match="relevant documents than (nDCG|P)@20 depends on, among thousands: .*'nDCG@300'"
        ):
            loss(*lists[:2], **lists[2])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss(*lists[:2], **lists[2])


def test_lists_for_which_a_cutoff_is_right_do_not_warn():
    scores, labels = catalogue(21)
    where = torch.arange(2000).expand(2, 2000) < 1999
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rs.StructuredHingeLoss("nDCG@21")(scores, labels)
        rs.StructuredHingeLoss("nDCG(min_relevant=2)@20")(scores, labels)
        rs.StructuredHingeLoss("AP")(scores, labels)
        rs.StructuredHingeLoss("nDCG@20")(scores, labels, where=where)
        rs.StructuredHingeLoss("nDCG@20")(scores[:, :1999], labels[:, :1999])


@pytest.mark.parametrize(
    ("measure", "options", "reaches_all"),
    [
        ("nDCG@20", {}, False),
        ("nDCG@20", {"reference": "predicted"}, False),
        ("nDCG@300", {"feature_map": "pairwise"}, True),
        ("AP", {"reference": "predicted"}, True),
    ],
)
@pytest.mark.filterwarnings("ignore:most lists have more relevant documents")
def test_the_advised_losses_reach_all_relevant_documents_of_a_long_list(measure, options, reaches_all):
    scores, labels = catalogue(100)
    scores.requires_grad_()
    rs.StructuredHingeLoss(measure, **options)(scores, labels).backward()
    pulled = float((scores.grad[:, :100] < 0).double().mean())
    assert pulled > 0.95 if reaches_all else pulled < 0.6


def test_another_measure_has_its_own_defaults():
    loss = rs.StructuredHingeLoss("nDCG@10", reduction="sum").with_options(measure="AP")
    assert repr(loss) == repr(rs.StructuredHingeLoss("AP", reduction="sum"))
    ramp = rs.StructuredHingeLoss("nDCG@10", reference="predicted").with_options(measure="AP")
    assert repr(ramp) == repr(rs.StructuredHingeLoss("AP", reference="predicted"))
