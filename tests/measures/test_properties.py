"""What holds for every measure on any lists: layouts, masks, ties, sizes, dtypes."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measures.enumeration import LETOR, MEASURES

import rankstruct as rs
from rankstruct.measures import AP, evaluate, parse_measure
from rankstruct.metric import RankingMetric

NAMES = list(MEASURES)
TIES = ("expected", "input", "worst")
few = settings(max_examples=8, deadline=None)


@st.composite
def ragged(draw, max_size=7):
    """Lists of (score, label) pairs, scores tied or not, of either sign."""
    pair = st.tuples(st.integers(-3, 3) | st.floats(-1e6, 1e6, width=32), st.integers(0, 4))
    return draw(st.lists(st.lists(pair, max_size=max_size), min_size=1, max_size=4))


def one(values):
    return torch.tensor([float(score) for score, _ in values]), torch.tensor([label for _, label in values]).long()


def pad_rows(lists, size, padding=math.nan):
    scores = torch.full((len(lists), size), padding)
    labels = torch.full((len(lists), size), padding)
    where = torch.zeros(len(lists), size, dtype=torch.bool)
    for row, values in enumerate(lists):
        scores[row, : len(values)], labels[row, : len(values)] = one(values)
        where[row, : len(values)] = True
    return scores, labels, where


def same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=0, atol=1e-12, equal_nan=True, msg=name)


@few
@given(ragged(), st.sampled_from(TIES), st.sampled_from([math.nan, math.inf, -math.inf, 1e30, 0.0]))
def test_mask_equals_truncation_whatever_the_padding_holds(lists, ties, padding):
    scores, labels, where = pad_rows(lists, 9, padding)
    together = evaluate(scores, labels, NAMES, where=where, ties=ties)
    for row, values in enumerate(lists):
        same({name: value[row] for name, value in together.items()}, evaluate(*one(values), NAMES, ties=ties))


@few
@given(ragged(max_size=12), st.sampled_from(TIES))
def test_flat_equals_padded(lists, ties):
    scores, labels, where = pad_rows(lists, 12)
    offsets = torch.tensor([0, *map(len, lists)]).cumsum(0)
    kwargs = {"ties": ties, "empty": "skip"}
    same(
        evaluate(scores[where], labels[where], NAMES, offsets=offsets, **kwargs),
        evaluate(scores, labels, NAMES, where=where, **kwargs),
    )


@few
@given(ragged(), st.randoms(use_true_random=False))
def test_the_order_of_documents_does_not_matter(lists, random):
    shuffled = [random.sample(values, len(values)) for values in lists]
    (scores, labels, where), (other_scores, other_labels, _) = (pad_rows(each, 7) for each in (lists, shuffled))
    for ties in ("expected", "worst"):
        found = evaluate(other_scores, other_labels, NAMES, where=where, ties=ties)
        same(found, evaluate(scores, labels, NAMES, where=where, ties=ties))


@few
@given(ragged(), st.sampled_from(TIES))
def test_only_the_order_of_scores_matters(lists, ties):
    scores, labels, where = pad_rows(lists, 7)
    expected = evaluate(scores, labels, NAMES, where=where, ties=ties)
    ranks = torch.zeros(scores.shape, dtype=torch.int64)
    for row, real in enumerate(where):
        ranks[row, real] = torch.unique(scores[row, real], return_inverse=True)[1]
    for monotone in (ranks.float(), ranks.double() ** 3 - 1e5, ranks.to(torch.bfloat16) / 8 - 2):
        same(evaluate(monotone, labels, NAMES, where=where, ties=ties), expected)


@few
@given(ragged())
def test_worst_is_never_above_expected_nor_expected_above_best(lists):
    scores, labels, where = pad_rows(lists, 7)
    worst, expected = (evaluate(scores, labels, NAMES, where=where, ties=ties) for ties in ("worst", "expected"))
    for name in NAMES:
        best = parse_measure(name).best_value(labels, where)
        assert (worst[name] <= expected[name] + 1e-12).all(), name
        assert (expected[name] <= best + 1e-12).all(), name
        # Sorting by label is the best ranking.
        assert torch.allclose(evaluate(labels.nan_to_num(), labels, name, where=where)[name], best, atol=1e-12), name


@few
@given(ragged())
def test_perfect_and_inverted_rankings(lists):
    for values in lists:
        _, labels = one(values)
        if 0 < (labels > 0).sum() < len(labels):
            assert AP()(labels.float(), labels).item() == 1
            assert parse_measure("AUC")(-(labels > 0).float(), labels).item() == 0


def test_leading_dimensions():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(4, (2, 3, 5, 6), generator=generator).float()
    labels = torch.randint(4, (2, 3, 5, 6), generator=generator)
    where = torch.rand(2, 3, 5, 6, generator=generator) < 0.8
    missing = torch.randint(4, (2, 3, 5, 2), generator=generator).float()
    ideal = torch.cat([labels.masked_fill(~where, 0), missing], -1).double()
    number = (labels.where(where, 0) > 0).sum(-1) + 1
    nested = evaluate(scores, labels, NAMES, where=where, ideal_labels=ideal)
    flat = [value.flatten(0, 2) for value in (scores, labels, where, ideal)]
    plain = evaluate(flat[0], flat[1], NAMES, where=flat[2], ideal_labels=flat[3])
    assert all(value.shape == (2, 3, 5) for value in nested.values())
    same({name: value.flatten() for name, value in nested.items()}, plain)
    counted = evaluate(scores, labels, "AP", where=where, num_relevant=number)["AP"]
    assert torch.equal(
        counted[1, 2, 3],
        evaluate(scores[1, 2, 3], labels[1, 2, 3], "AP", where=where[1, 2, 3], num_relevant=number[1, 2, 3])["AP"],
    )


def test_flat_lists_take_what_the_padded_ones_take():
    scores, labels, offsets = [1.0, 1.0, 3.0, 2.0, 2.0], [0, 1, 0, 0, 2], [0, 2, 2, 5]
    ids = ["a", "b", "z", "d", "c"]
    values = evaluate(
        scores, labels, ["AP", "nDCG"], offsets=offsets, ties="docid", docids=ids,
        ideal_labels=[[1, math.nan, math.nan], [1, math.nan, math.nan], [0, 2, 1]],
    )  # fmt: skip
    assert values["AP"].tolist() == pytest.approx([1, 0, 1 / 6])
    assert values["nDCG"].tolist() == pytest.approx([1, 0, 3 / 2 / (3 + 1 / math.log2(3))])
    assert AP()(scores, labels, offsets=offsets, num_relevant=[1, 0, 4], ties="worst").tolist() == pytest.approx(
        [1 / 2, 0, 1 / 12]
    )


@few
@given(ragged(), st.randoms(use_true_random=False))
def test_flat_ideal_labels_are_those_with_padding(lists, random):
    scores, labels, where = pad_rows(lists, 7)
    offsets = torch.tensor([0, *map(len, lists)]).cumsum(0)
    more = [[random.randrange(4) for _ in range(random.choice((0, 1, 3, 40)))] for _ in lists]
    judged = [row[real].tolist() + each for row, real, each in zip(labels, where, more, strict=True)]
    padded = [each + [math.nan] * (47 - len(each)) for each in judged]
    flat = {
        "ideal_labels": [float(label) for each in judged for label in each],
        "ideal_offsets": [0, *itertools.accumulate(map(len, judged))],
    }
    found = evaluate(scores[where], labels[where], NAMES, offsets=offsets, **flat)
    same(found, evaluate(scores[where], labels[where], NAMES, offsets=offsets, ideal_labels=padded))


@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (0,), (2, 0, 4), (1,), (2, 1)])
def test_sizes_zero_and_one(shape):
    for convention in (None, "letor"):
        values = evaluate(torch.zeros(shape), torch.ones(shape), NAMES, convention=convention)
        assert all(value.shape == shape[:-1] for value in values.values())
        if shape[-1] == 1:
            assert (values["AP"] == 1).all()
            assert (values["AUC"] == 0).all()
        else:
            assert all((value == 0).all() for value in values.values())
    assert all(parse_measure(name).best_value(torch.ones(shape)).shape == shape[:-1] for name in NAMES)


def test_no_flat_lists():
    empty = torch.zeros(0)
    assert all(v.shape == (0,) for v in evaluate(empty, empty, NAMES, offsets=torch.tensor([0])).values())
    assert all(v.tolist() == [0, 0] for v in evaluate(empty, empty, NAMES, offsets=torch.tensor([0, 0, 0])).values())


def test_relevant_documents_with_negative_scores_count():
    assert AP()([-1.0, -2.0, -3.0], [1, 0, 1]).item() == pytest.approx((1 + 2 / 3) / 2)


def test_a_threshold_from_0_down_says_what_labels_below_0_are():
    assert parse_measure("AUC(min_relevant=-1)")([3.0, 2.0, 1.0], [-1, 1, -2]).item() == 1
    assert parse_measure("nERU(d=-5,half_life=2)")([2.0, 1.0], [-1, -6]).item() == 1
    both_sides = torch.tensor([-6.5, 3.0, 0.0])  # as ratings from -10 to 10 about a neutral vote of 0
    assert parse_measure("ERU(d=0,half_life=2)")([2.0, 1.0, 0.0], both_sides).item() == pytest.approx(3 / 2)
    assert rs.StructuredHingeLoss("ERU(d=0,half_life=2)")(torch.tensor([2.0, 1.0, 0.0]), both_sides) > 0


@pytest.mark.parametrize("ties", TIES)
def test_padding_of_a_measure_below_zero_is_no_relevant_document(ties):
    where = torch.tensor([True, True, False])
    for name in ("AP(min_relevant=-1)", "RR(min_relevant=0)", "nDCG(min_relevant=0)", "P(min_relevant=0)@3"):
        full = evaluate([2.0, 1.0], [-2.0, 0.0], name, ties=ties)
        same(
            evaluate(torch.tensor([2.0, 1.0, 9.0]), torch.tensor([-2.0, 0.0, 0.0]), name, where=where, ties=ties), full
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_values_are_float64_and_without_gradient(dtype):
    scores = torch.tensor([[2.0, 1.0, 0.5]], dtype=dtype, requires_grad=True)
    labels = torch.tensor([[0, 1, 1]])
    before = scores.detach().clone()
    value = AP()(scores, labels)
    assert value.dtype == torch.float64
    assert not value.requires_grad
    assert value.item() == pytest.approx(7 / 12)
    assert torch.equal(scores, before)


def test_arrays_and_lists_are_taken():
    lists = [[3, 2, 1], [1, 1, 0]], [[0, 1, 1], [0, 1, 0]]
    arrays = [np.array(value) for value in lists]
    tensors = [torch.tensor(value).float() for value in lists]
    same(evaluate(*lists, NAMES), evaluate(*tensors, NAMES))
    same(evaluate(*arrays, NAMES), evaluate(*tensors, NAMES))
    bools = evaluate(tensors[0], tensors[1].bool(), "AP", where=np.ones((2, 3), dtype=bool))
    same(bools, evaluate(*tensors, "AP"))


def test_large_lists_all_tied():
    """Closed forms stay finite and right: with one group of n, AP and RR are sums over n ranks, not over orders."""
    n, relevant = 100_000, 30_000
    scores, labels = torch.zeros(2, n), torch.zeros(2, n)
    labels[0, :relevant] = 1
    labels[1, 5] = 1
    values = evaluate(scores, labels, [name for name in NAMES if "ERR" not in name])  # which takes seconds here
    assert all(value.isfinite().all() for value in values.values())
    ranks = np.arange(1, n + 1)
    harmonic = (1 / ranks).sum()
    assert values["RR"][1].item() == pytest.approx(harmonic / n, rel=1e-9)
    share = relevant / n
    wanted = (share * (1 + (ranks - 1) * (relevant - 1) / (n - 1)) / ranks).sum() / relevant
    assert values["AP"][0].item() == pytest.approx(wanted, rel=1e-9)
    first = share * sum((1 - share) ** i / (i + 1) for i in range(300))  # almost drawing with replacement
    assert values["RR"][0].item() == pytest.approx(first, rel=1e-4)
    assert values["AUC"].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("name", ["AP", "AUC", "nDCG@10", "DCG", "P@3", "ERU(d=2,half_life=3)"])
def test_empty_policies(name):
    scores, labels = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [0.0, 0.0, 0.0]]), torch.zeros(3, 3)
    labels[0, 0] = 3
    where = torch.tensor([[True, True, True], [True, True, True], [False, False, False]])
    measure = parse_measure(name)
    value = measure(scores[0], labels[0]).item()
    assert measure(scores, labels, where).tolist() == [value, 0, 0]
    assert measure(scores, labels, where, empty=1).tolist() == [value, 1, 1]
    assert measure(scores, labels, where, empty="skip").isnan().tolist() == [False, True, True]
    with pytest.raises(ValueError, match=r"of list 1 is undefined.*pass empty=0"):
        measure(scores, labels, where, empty="error")
    # Only padding is no error.
    assert measure(scores[[0, 2]], labels[[0, 2]], where[[0, 2]], empty="error").tolist() == [value, 0]


def test_an_all_relevant_list_has_no_roc_area():
    assert parse_measure("AUC")([2.0, 1.0], [1, 1], empty="skip").isnan()
    with pytest.raises(ValueError, match="list 0 is undefined: all of it is relevant"):
        parse_measure("AUC")([2.0, 1.0], [1, 1], empty="error")


def test_letor_rules_one_by_one():
    scores, labels = [[1.0, 1.0, 1.0]], [[0, 2, 1]]
    values = evaluate(scores, labels, ["AP", "nDCG@3", "nDCG@4", "DCG@4", "nDCG", "P@4"], convention="letor")
    ideal = 3 + 1
    assert values["AP"].tolist() == pytest.approx([(1 / 2 + 2 / 3) / 2])
    assert values["nDCG@3"].tolist() == pytest.approx([(3 + 1 / math.log2(3)) / ideal])
    assert values["nDCG"].tolist() == values["nDCG@3"].tolist()
    assert values["nDCG@4"].tolist() == [0]
    assert values["DCG@4"].tolist() == pytest.approx([3 + 1 / math.log2(3)])
    assert values["P@4"].tolist() == [0.5]
    chosen = {"nDCG(discount='letor')": values["nDCG"]}
    same(evaluate(scores, labels, list(chosen), ties="input"), chosen)


def test_metric_counts_as_evaluate_does():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randint(3, (40, 6), generator=generator).float()
    labels = torch.randint(2, (40, 6), generator=generator)
    where = torch.rand(40, 6, generator=generator) < 0.5
    for convention, names in ((None, NAMES), ("letor", list(LETOR))):
        metric = RankingMetric(names, convention=convention)
        metric.update(scores, labels, where=where)
        values = evaluate(scores, labels, names, where=where, convention=convention)
        same(metric.compute(), {name: value[where.any(-1)].mean() for name, value in values.items()})


WEIGHTED = ["nDCG", "DCG@2", "P@3", "R@3", "RBP", "ERU(d=0.5,half_life=2)", "AP", "AP@2", "AUC", "OPA", "ARP", "WTA"]


def with_item_weights(lists=300, size=6):
    draw = torch.Generator().manual_seed(0)
    scores = torch.randint(4, (lists, size), generator=draw).double()
    labels = torch.randint(4, (lists, size), generator=draw).double() / 2
    weights = torch.randint(4, (lists, size), generator=draw).double() / 2
    return scores, labels, weights


@pytest.mark.parametrize("name", WEIGHTED)
def test_item_weights_of_1_change_nothing_and_0_leaves_a_document_out(name):
    scores, labels, weights = with_item_weights()
    for ties in TIES:
        plain = evaluate(scores, labels, name, ties=ties, empty="skip")
        same(evaluate(scores, labels, name, ties=ties, empty="skip", item_weights=torch.ones_like(scores)), plain)
        kept = weights > 0
        left = evaluate(scores, labels, name, where=kept, ties=ties, empty="skip")
        same(evaluate(scores, labels, name, ties=ties, empty="skip", item_weights=kept.double()), left)
        offsets = torch.arange(0, scores.numel() + 1, scores.shape[-1])
        whole = evaluate(scores, labels, name, item_weights=weights, ties=ties, empty="skip")
        if ties != "input":
            metric = RankingMetric(name, ties=ties, empty="skip")
            metric.update(scores, labels, item_weights=weights)
            assert metric.compute()[name].item() == pytest.approx(whole[name].nanmean().item())
        given = (scores.flatten(), labels.flatten(), name)
        same(evaluate(*given, item_weights=weights.flatten(), offsets=offsets, ties=ties, empty="skip"), whole)


def weighted_by_definition(name, labels, weights):
    """A measure of one ranking, `labels` and `weights` in its order, 0 left out."""
    ranked = [(y, w) for y, w in zip(labels, weights, strict=True) if w > 0]
    hits = [(y > 0) * w for y, w in ranked]
    gains = sorted(((2**y - 1) * w for y, w in ranked), reverse=True)
    pairs = [(a, b) for a in range(len(ranked)) for b in range(len(ranked)) if ranked[a][0] > ranked[b][0]]
    if name in ("AUC",):
        pairs = [(a, b) for a, b in pairs if ranked[b][0] == 0]
    counts = {"nDCG": gains and gains[0] > 0, "AUC": pairs, "OPA": pairs}
    if not counts.get(name, sum(hits) > 0):
        return math.nan
    if name == "nDCG":
        best = sum(gain / math.log2(2 + i) for i, gain in enumerate(gains))
        return sum((2**y - 1) * w / math.log2(2 + i) for i, (y, w) in enumerate(ranked)) / best
    if name == "P@3":
        return sum(hits[:3]) / 3
    if name == "R@3":
        return sum(hits[:3]) / sum(hits)
    if name == "AP":
        precisions = [sum(y > 0 for y, _ in ranked[: i + 1]) / (i + 1) for i in range(len(ranked))]
        return sum(hit * precision for hit, precision in zip(hits, precisions, strict=True)) / sum(hits)
    if name == "ARP":
        return -sum(y * w * (i + 1) for i, (y, w) in enumerate(ranked)) / sum(y * w for y, w in ranked)
    products = {pair: ranked[pair[0]][1] * ranked[pair[1]][1] for pair in pairs}
    return sum(product * (a < b) for (a, b), product in products.items()) / sum(products.values())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["nDCG", "P@3", "R@3", "AP", "ARP", "AUC", "OPA"])
def test_item_weights_by_definition_and_over_tie_orders(name):
    scores, labels, weights = with_item_weights(size=5)
    found = evaluate(scores, labels, name, item_weights=weights, empty="skip")[name]
    for row in range(len(scores)):
        orders = [
            order
            for order in itertools.permutations(range(5))
            if all(scores[row, a] >= scores[row, b] for a, b in itertools.pairwise(order))
        ]
        y, w = labels[row].tolist(), weights[row].tolist()
        each = [weighted_by_definition(name, [y[i] for i in order], [w[i] for i in order]) for order in orders]
        assert found[row].item() == pytest.approx(math.fsum(each) / len(each), abs=1e-12, nan_ok=True)


def test_item_weights_are_checked():
    scores, labels = torch.tensor([[2.0, 1.0]]), torch.tensor([[1, 0]])
    with pytest.raises(
        ValueError, match=r"RR does not support item_weights, since .*; AP, .*, nDCG, .*, P, R, RBP, .* support"
    ):
        evaluate(scores, labels, "RR", item_weights=torch.ones(1, 2))
    with pytest.raises(ValueError, match="item_weights must be finite and >= 0; list 0, document 1 has -1"):
        evaluate(scores, labels, "AP", item_weights=[[1.0, -1.0]])
    with pytest.raises(ValueError, match="item_weights must have the shape of scores"):
        evaluate(scores, labels, "AP", item_weights=[1.0, 1.0])
    for name in ("AP", "nDCG"):
        with pytest.raises(ValueError, match="item_weights"):
            evaluate(scores, labels, name, item_weights=torch.ones(1, 2), ideal_labels=[[1, 0]])
    with pytest.raises(TypeError, match="judged must be boolean"):
        evaluate(scores, labels, "AP", judged=[[1, 0]])
    with pytest.raises(ValueError, match="pooled must have the shape of scores"):
        evaluate(scores, labels, "AP", pooled=[True])


def test_unjudged_labels_may_hold_anything():
    judged = [True, False, True]
    for name in ("AP", "nDCG", "Bpref"):
        zero = evaluate([3.0, 2.0, 1.0], [1.0, 0.0, 1.0], name, judged=judged)
        same(evaluate([3.0, 2.0, 1.0], [1.0, math.nan, 1.0], name, judged=judged), zero)
        same(evaluate([3.0, 2.0, 1.0], [1, -1, 1], name, judged=judged), zero)
