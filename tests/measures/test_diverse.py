"""Greedy re-ranking and the measures of diversity, against enumeration and their definitions written out."""

import itertools
import math

import numpy as np
import pytest
import torch
from brute_force import diverse_rankings, diverse_values

import rankstruct as rs


def draw(rng, most=7):
    n = int(rng.integers(1, most + 1))
    return rng.permutation(n) * 1.0, rng.integers(0, 3, size=n), rng.integers(0, rng.integers(1, 5), size=n)


def dcg(gains):
    return sum(gain / math.log2(2 + i) for i, gain in enumerate(gains))


def test_greedy_re_ranking_is_the_diverse_ranking_that_a_decay_prefers():
    rng = np.random.default_rng(0)
    for _ in range(200):
        scores, _, diversity_groups = draw(rng)
        k = int(rng.integers(1, 6))
        best = max(
            diverse_rankings(diversity_groups, k),
            key=lambda shown: sum(scores[j] / (i + 1) for i, j in enumerate(shown)),
        )
        ranks = rs.rerank_diverse(torch.tensor(scores), torch.tensor(diversity_groups), k)
        assert {int(r): j for j, r in enumerate(ranks) if r} == {i + 1: j for i, j in enumerate(best)}


def test_re_ranking_of_padded_flat_and_deep_lists():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 9, generator=generator).mul(2).round()  # ties keep the input order
    diversity_groups = torch.randint(-1, 4, (6, 9), generator=generator)
    where = torch.rand(6, 9, generator=generator) < 0.7
    where[1] = False
    scores[0, where[0]] = -torch.inf
    poisoned = torch.where(where, scores, torch.nan)
    ranks = rs.rerank_diverse(poisoned, diversity_groups, 3, where)
    assert (ranks[~where] == 0).all()
    for row in range(6):
        here = where[row]
        assert torch.equal(ranks[row, here], rs.rerank_diverse(scores[row, here], diversity_groups[row, here], 3))
        assert ranks[row].max() == min(3, len(diversity_groups[row, here].unique()))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), where.sum(-1).cumsum(0)])
    assert torch.equal(rs.rerank_diverse(scores[where], diversity_groups[where], 3, offsets=offsets), ranks[where])
    deep = rs.rerank_diverse(poisoned.view(2, 3, 9), diversity_groups.view(2, 3, 9), 3, where.view(2, 3, 9))
    assert torch.equal(deep, ranks.view(2, 3, 9))
    assert rs.rerank_diverse(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.int64), 3).shape == (2, 0)
    assert rs.rerank_diverse(torch.zeros(3), torch.tensor([1, 1, 2]), 5).tolist() == [1, 0, 2]
    for each, group in (
        ([3.0, 2.0, 1.0], ["a", "a", "b"]),
        (np.float32([3, 2, 1]), np.array([1, 1, 2])),
        ([3, 2, 1], [1, 1, 2]),
    ):
        assert rs.rerank_diverse(each, group, 2).tolist() == [1, 0, 2]
        assert rs.rerank_diverse([*each, 9], [*group, group[0]], 2, [True, True, True, False]).tolist() == [1, 0, 2, 0]


def test_re_ranking_refuses():
    diversity_groups = torch.tensor([0, 1])
    with pytest.raises(ValueError, match="k must be an integer from 1, got 0"):
        rs.rerank_diverse(torch.zeros(2), diversity_groups, 0)
    with pytest.raises(ValueError, match="scores must not be NaN"):
        rs.rerank_diverse(torch.tensor([0.0, torch.nan]), diversity_groups, 1)
    with pytest.raises(TypeError, match="diversity_groups must be whole numbers"):
        rs.rerank_diverse(torch.zeros(2), torch.zeros(2), 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    [
        *(f"{kind}@{k}" for kind in ("nDCG", "DCG", "P", "RR", "ERU(d=1,half_life=3)") for k in (1, 2, 3, 5)),
        "nERU(d=0,half_life=2)@2",
        "nDCG(discount='letor')@3",
        "WTA",
        "mWTA",
    ],
)
def test_diverse_measures_equal_enumeration(name):
    plain, measure = rs.parse_measure(name), rs.parse_measure(f"diverse_{name}")
    assert measure.name == f"diverse_{plain.name}"
    assert rs.parse_measure(measure.name) == measure == rs.Diverse(name)
    rng = np.random.default_rng(1)
    for _ in range(60):
        scores, labels, diversity_groups = draw(rng)
        rankings, values = diverse_values(plain, labels, diversity_groups)
        chosen = (scores[rankings] @ 2.0 ** -np.arange(rankings.shape[1])).argmax()
        assert measure(scores, labels, diversity_groups=diversity_groups).item() == pytest.approx(values[chosen])
        best = measure.best_value(torch.tensor(labels), diversity_groups=torch.tensor(diversity_groups)).item()
        assert best == pytest.approx(values.max())


@pytest.mark.parametrize(
    "name", ["nDCG@5", "P@3", "RR@4", "WTA", "mWTA", "ERU(d=1,half_life=3)@6", "RR(min_relevant=2)@3"]
)
def test_groups_of_one_document_give_the_measure_itself(name):
    rng = np.random.default_rng(2)
    scores, labels = rng.permutation(200).reshape(10, 20) * 1.0, rng.integers(0, 4, (10, 20))
    labels[0], labels[1, 3:] = 0, labels[1, 0]
    diversity_groups = np.argsort(rng.random((10, 20)))
    for empty in (0, 1):
        plain = rs.parse_measure(name)(scores, labels, empty=empty)
        torch.testing.assert_close(
            rs.Diverse(name)(scores, labels, diversity_groups=diversity_groups, empty=empty), plain
        )


def test_the_cut_off_of_diverse_mwta_is_that_of_the_best_documents_of_the_groups():
    # Of the groups' best, 2 2 2 2 1, the fifth is the first lower one; of all documents it would be the seventh.
    labels, diversity_groups = [2, 2, 2, 2, 2, 2, 1, 0], [0, 0, 0, 1, 2, 3, 4, 0]
    scores = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    assert rs.Diverse("mWTA")(scores, labels, diversity_groups=diversity_groups).item() == pytest.approx(1.0)
    swapped = rs.Diverse("mWTA")([*scores[:5], 2.0, 3.0, 1.0], labels, diversity_groups=diversity_groups).item()
    assert swapped == pytest.approx(dcg([3, 3, 3, 1, 3]) / dcg([3, 3, 3, 3, 1]))


def alpha_gains(relevant, diversity_groups, order, alpha):
    seen, gains = {}, []
    for j in order:
        gains.append((1 - alpha) ** seen.get(diversity_groups[j], 0) if relevant[j] else 0.0)
        seen[diversity_groups[j]] = seen.get(diversity_groups[j], 0) + bool(relevant[j])
    return gains


@pytest.mark.parametrize("alpha", [0, 0.5, 0.9, 1])
def test_alpha_ndcg_equals_its_definition_and_its_best_is_that_of_all_orders(alpha):
    rng = np.random.default_rng(3)
    for _ in range(40):
        scores, labels, diversity_groups = draw(rng, 6)
        k = int(rng.integers(1, 6))
        relevant = labels > 0
        by_score = np.argsort(-scores)
        best = max(
            dcg(alpha_gains(relevant, diversity_groups, order, alpha)[:k])
            for order in itertools.permutations(range(len(scores)))
        )
        expected = dcg(alpha_gains(relevant, diversity_groups, by_score, alpha)[:k]) / best if best else 0.0
        measure = rs.measures.alpha_nDCG(k, alpha=alpha)
        assert measure(scores, labels, diversity_groups=diversity_groups).item() == pytest.approx(expected)


def test_alpha_dcg_equals_its_definition():
    rng = np.random.default_rng(7)
    for _ in range(2500):
        scores, labels, diversity_groups = draw(rng)
        alpha, k = float(rng.choice([0.0, 0.3, 0.5, 1.0])), int(rng.integers(1, 6))
        order = np.argsort(-scores)
        expected = dcg(alpha_gains(labels > 0, diversity_groups, order, alpha)[:k])
        found = rs.measures.alpha_DCG(k, alpha=alpha)(scores, labels, diversity_groups=diversity_groups)
        assert found.item() == pytest.approx(expected if (labels > 0).any() else 0.0)


def test_subtopic_recall_equals_its_definition():
    rng = np.random.default_rng(4)
    for _ in range(100):
        scores, labels, diversity_groups = draw(rng)
        k = int(rng.integers(1, 6))
        wanted = set(diversity_groups[labels > 0].tolist())
        top = [j for j in np.argsort(-scores)[:k] if labels[j] > 0]
        expected = len({diversity_groups[j] for j in top}) / len(wanted) if wanted else 0.0
        found = rs.evaluate(scores, labels, [f"StRecall@{k}"], diversity_groups=diversity_groups)[f"StRecall@{k}"]
        assert found.item() == pytest.approx(expected)


NAMES = [
    *("diverse_nDCG@3", "alpha_nDCG@3", "alpha_nDCG(alpha=0.9)", "StRecall@2", "diverse_nDCG(gain='linear')@2"),
    *("diverse_RR@3", "diverse_mWTA", "diverse_WTA", "diverse_P@2"),
]


def test_padding_flat_lists_batches_and_names_of_groups_agree():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 9, generator=generator)
    labels = torch.randint(0, 3, (6, 9), generator=generator)
    diversity_groups = torch.randint(0, 4, (6, 9), generator=generator)
    where = torch.rand(6, 9, generator=generator) < 0.7
    where[1] = False
    poisoned = torch.where(where, scores, torch.nan)
    padded = rs.evaluate(poisoned, labels, NAMES, where=where, diversity_groups=torch.where(where, diversity_groups, 1))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), where.sum(-1).cumsum(0)])
    names = np.array(["a.org", "b.org", "c.org", "d.org"])[diversity_groups[where].numpy()]
    flat = rs.evaluate(scores[where], labels[where], NAMES, offsets=offsets, diversity_groups=names)
    metric = rs.RankingMetric(NAMES)
    for rows in (slice(0, 4), slice(4, 6)):
        metric.update(poisoned[rows], labels[rows], where=where[rows], diversity_groups=diversity_groups[rows])
    for name, value in metric.compute().items():
        torch.testing.assert_close(flat[name], padded[name])
        torch.testing.assert_close(value, padded[name][[0, 2, 3, 4, 5]].mean())
        assert (padded[name] >= 0).all()
        assert (padded[name] <= 1 + 1e-12).all()
        assert rs.parse_measure(name).name == name


def test_ties_never_flatter_unless_input_order_is_asked_for():
    scores, labels, diversity_groups = [1.0, 1.0, 1.0], [2, 0, 1], [0, 0, 1]
    for name in ("diverse_nDCG@2", "alpha_nDCG@1", "StRecall@1"):
        found = {
            ties: rs.evaluate(scores, labels, [name], diversity_groups=diversity_groups, ties=ties)[name].item()
            for ties in ("expected", "worst", "input")
        }
        assert found["expected"] == found["worst"] < found["input"]
    order = rs.evaluate([3.0, 1.0, 1.0, 0.0], [1, 2, 0, 0], ["StRecall@2"], diversity_groups=[0, 1, 2, 3])["StRecall@2"]
    assert order.item() == 0.5


@pytest.mark.parametrize("name", NAMES)
def test_refusals(name):
    lists = ([2.0, 1.0], [1, 0], [name])
    with pytest.raises(ValueError, match=r"needs diversity_groups=, one id per document"):
        rs.evaluate(*lists)
    with pytest.raises(ValueError, match="LETOR tool has no"):
        rs.evaluate(*lists, diversity_groups=[0, 1], convention="letor")
    with pytest.raises(ValueError, match="cannot be combined with num_relevant or ideal_labels"):
        rs.evaluate(*lists, diversity_groups=[0, 1], ideal_labels=[1, 0])
    with pytest.raises(ValueError, match="diversity_groups must have the shape of scores"):
        rs.evaluate(*lists, diversity_groups=[0, 1, 2])


def test_options_that_are_refused():
    with pytest.raises(ValueError, match="StRecall needs a cut-off"):
        rs.measures.StRecall()
    for name in ("nDCG", "RR", "AP@5", "AUC", "MeanNDCG", "diverse_nDCG@3"):
        with pytest.raises(ValueError, match=r"diverse rankings require .* with a cut-off k, such as nDCG@10"):
            rs.Diverse(name)
    with pytest.raises(ValueError, match=r"diverse rankings require .*; got nDCG$"):
        rs.measures.diverse_nDCG()
    with pytest.raises(ValueError, match=r"unknown measure 'foo'.*, and any of them after diverse_$"):
        rs.parse_measure("diverse_foo@3")
    with pytest.raises(
        ValueError, match=r"labels must have finite gains >= 0 under DCG.*@1; list 0, document 1 has label -1"
    ):
        rs.Diverse(rs.DCG(1, gain=lambda y: y))([2.0, 1.0], [1, -1], diversity_groups=[0, 0])
    with pytest.raises(ValueError, match=r"labels must be 0 or more .*; list 0, document 1 has -1"):
        rs.Diverse("DCG@1")([2.0, 1.0], [1, -1], diversity_groups=[0, 0])
    with pytest.raises(ValueError, match="alpha of alpha_nDCG must be a finite number of at least 0 and at most 1"):
        rs.measures.alpha_nDCG(alpha=1.5)


@pytest.mark.parametrize(
    "diversity_groups",
    [["a", float("nan")], np.array(["a", None], object), [1.0, float("nan")], np.array(["a", float("nan")], object)],
)
def test_missing_groups_are_refused(diversity_groups):
    with pytest.raises(ValueError, match="diversity_groups must not be missing; that of document 1 is"):
        rs.evaluate([1.0, 2.0], [1, 0], "diverse_nDCG@2", diversity_groups=diversity_groups)
    with pytest.raises(ValueError, match="diversity_groups must not be missing; that of document 1 is"):
        rs.LinearRanker("diverse_nDCG@2").fit(np.eye(2), [0, 1], [1, 1], diversity_groups=diversity_groups)
