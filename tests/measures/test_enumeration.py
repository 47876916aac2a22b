"""Every measure against its definition, averaged over all orders of the tied documents."""

import math
import random

import pytest
import torch
from measures.enumeration import (
    LETOR,
    MEASURES,
    at_least,
    best,
    binary_preference,
    discounted,
    inferred_precision,
    log2_discount,
    mean,
    rankings,
)

from rankstruct.measures import evaluate, parse_measure

LISTS = 800
SIZE = 6


def random_lists(kind):
    """`(scores, labels)` of each list, from no document to SIZE; scores tie often, rarely or never."""
    draw = random.Random(kind)
    lists = []
    for number in range(LISTS):
        size = draw.choice((0, 1, 2, 3, 4, 5, 5, SIZE, SIZE))
        levels = (1, 2, 3, 1000)[number % 4]
        scale = 10.0 ** draw.randint(-3, 3)
        grades = draw.choice(
            ((0, 1), (0, 1, 2), (0, 1, 2, 3, 4), (0,), (1,), (2,), (0, 0, 0, 2), (0, 0.5), (0.5, 1.5, 2.33))
        )
        scores = [(draw.randrange(levels) - levels // 2) * scale for _ in range(size)]
        lists.append((scores, [float(draw.choice(grades)) for _ in range(size)]))
    return lists


def padded(lists, dtype=torch.float64):
    """The lists as tensors with NaN in the padding, which may be anywhere."""
    draw = random.Random(1)
    scores = torch.full((len(lists), SIZE), math.nan, dtype=dtype)
    labels = torch.full((len(lists), SIZE), math.nan, dtype=torch.float64)
    where = torch.zeros(len(lists), SIZE, dtype=torch.bool)
    for row, (list_scores, list_labels) in enumerate(lists):
        columns = sorted(draw.sample(range(SIZE), len(list_scores)))
        scores[row, columns] = torch.tensor(list_scores, dtype=dtype)
        labels[row, columns] = torch.tensor(list_labels, dtype=torch.float64)
        where[row, columns] = True
    return scores, labels, where


def assert_values(found, wanted, name, lists):
    """One a list, None where there is none."""
    wanted = torch.tensor([math.nan if each is None else each for each in wanted], dtype=torch.float64)
    wrong = ~torch.isclose(found, wanted, rtol=0, atol=1e-12, equal_nan=True)
    at = wrong.nonzero().flatten().tolist()
    assert not at, (name, lists[at[0]], found[at[0]].item(), wanted[at[0]].item())


def least(slow, counted):
    """The lowest value over counted rankings; None where the measure is undefined."""
    values = list(map(slow, counted))
    return None if None in values else min(values)


def test_expected_and_worst_equal_the_mean_and_the_least_over_tie_orders():
    lists = random_lists("ties")
    scores, labels, where = padded(lists)
    expected = evaluate(scores, labels, MEASURES, where=where, empty="skip")
    worst = evaluate(scores, labels, MEASURES, where=where, ties="worst", empty="skip")
    assert list(expected) == list(worst) == list(MEASURES)
    counted = [rankings(*each) for each in lists]
    for name, slow in MEASURES.items():
        assert_values(expected[name], [mean(slow, each) for each in counted], name, lists)
        assert_values(worst[name], [least(slow, each) for each in counted], name, lists)


@pytest.mark.parametrize("kind", ["input", "docid"])
def test_equals_the_one_order(kind):
    lists = random_lists(kind)[: LISTS // 2]
    scores, labels, where = padded(lists)
    ids = torch.randint(5, scores.shape, generator=torch.Generator().manual_seed(0))  # equal ids: the input order
    results = evaluate(scores, labels, MEASURES, where=where, ties=kind, docids=ids, empty="skip")
    ordered = []
    for row, (list_scores, list_labels) in enumerate(lists):
        row_ids = ids[row][where[row]].tolist()
        order = sorted(
            range(len(list_scores)), key=lambda i: (-list_scores[i], -row_ids[i] if kind == "docid" else 0, i)
        )
        ordered.append([list_labels[i] for i in order])
    for name, slow in MEASURES.items():
        assert_values(results[name], list(map(slow, ordered)), name, lists)


def test_letor_convention():
    lists = random_lists("letor")[: LISTS // 2]
    scores, labels, where = padded(lists, torch.float32)
    results = evaluate(scores, labels, LETOR, where=where, convention="letor")
    orders = [sorted(range(len(list_scores)), key=lambda i, s=list_scores: (-s[i], i)) for list_scores, _ in lists]
    ordered = [[list_labels[i] for i in order] for order, (_, list_labels) in zip(orders, lists, strict=True)]
    for name, slow in LETOR.items():
        assert_values(results[name], [slow(each) or 0.0 for each in ordered], name, lists)


def test_best_value_is_the_best_over_all_rankings():
    lists = random_lists("best")[:400]
    _, labels, where = padded(lists)
    flat = torch.cat([torch.tensor(list_labels, dtype=torch.float64) for _, list_labels in lists])
    offsets = torch.tensor([0, *(len(list_labels) for _, list_labels in lists)]).cumsum(0)
    for name, slow in MEASURES.items():
        measure = parse_measure(name)
        wanted = torch.tensor([best(slow, list_labels) for _, list_labels in lists], dtype=torch.float64)
        assert torch.allclose(measure.best_value(labels, where), wanted, atol=1e-12), name
        assert torch.allclose(measure.best_value(flat, offsets=offsets), wanted, atol=1e-12), name


def lists_with_missing_documents(seed):
    """`(scores, labels, labels of everything judged)`."""
    draw = random.Random(seed)
    for _ in range(200):
        scores = [float(draw.randrange(3)) for _ in range(draw.randint(1, 4))]
        labels = [float(draw.randrange(4)) for _ in scores]
        missing = [float(draw.randrange(4)) for _ in range(draw.randint(0, 4))]
        yield scores, labels, draw.sample([*labels, *missing], len(labels) + len(missing))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "unnormalised"),
    [
        ("nDCG", MEASURES["DCG"]),
        ("nDCG@2", MEASURES["DCG@2"]),
        ("nDCG(min_relevant=2)@3", discounted(log2_discount, at_least(2), 3)),
        ("nERU(d=1,half_life=3)", MEASURES["ERU(d=1,half_life=3)"]),
    ],
)
def test_ideal_labels_make_the_best_ranking(name, unnormalised):
    for scores, labels, judged in lists_with_missing_documents(name):
        top = best(unnormalised, judged)
        wanted = (mean(unnormalised, rankings(scores, labels)) or 0.0) / top if top else 0.0
        got = evaluate(scores, labels, name, ideal_labels=[*judged, math.nan])[name].item()
        assert got == pytest.approx(wanted, abs=1e-12)


def test_mean_ndcg_with_ideal_labels():
    for scores, labels, judged in lists_with_missing_documents("mean"):
        each = [f"nDCG@{k}" for k in range(1, len(labels) + 1)]
        values = evaluate(scores, labels, ["MeanNDCG", *each], ideal_labels=judged)
        assert values["MeanNDCG"].item() == pytest.approx(sum(values[name].item() for name in each) / len(each))


def test_relevant_documents_that_were_not_retrieved():
    names = ["AP", "AP@3", "RR", "P@3"]
    for scores, labels, judged in lists_with_missing_documents("AP"):
        total = sum(label > 0 for label in judged)
        from_labels = evaluate(scores, labels, names, ideal_labels=judged, empty="skip")
        from_number = evaluate(scores, labels, names, num_relevant=total, empty="skip")
        for name in names:
            here = mean(MEASURES[name], rankings(scores, labels)) or 0.0
            wanted = here * sum(label > 0 for label in labels) / total if name.startswith("AP") and total else here
            assert from_labels[name].item() == pytest.approx(wanted if total else math.nan, abs=1e-12, nan_ok=True)
            assert from_number[name].item() == pytest.approx(wanted if total else math.nan, abs=1e-12, nan_ok=True)


def test_incomplete_judgements():
    """Label -1 for what is in the pool and was not judged, -2 for what is outside; what `labels` hold there does not count."""
    draw = random.Random("incomplete")
    lists = []
    for scores, labels in random_lists("incomplete"):
        lists.append((scores, [draw.choice((label, label, label, -1.0, -2.0)) for label in labels]))
    scores, labels, where = padded(lists)
    judged, pooled = ~(labels < 0), ~(labels < -1)
    found = {
        **evaluate(scores, labels, ["Bpref", "infAP"], where=where, judged=judged, pooled=pooled, empty="skip"),
        **evaluate(scores, labels, "Bpref(min_relevant=2)", where=where, judged=judged, empty="skip"),
    }
    slow = {
        "Bpref": binary_preference(),
        "infAP": inferred_precision,
        "Bpref(min_relevant=2)": binary_preference(2),
    }
    for row, each in enumerate(lists):
        counted = rankings(*each)
        for name, measure in slow.items():
            wanted = mean(measure, counted)
            got = found[name][row].item()
            assert got == pytest.approx(math.nan if wanted is None else wanted, abs=1e-12, nan_ok=True), (name, each)


def test_not_retrieved_documents_of_the_newer_measures():
    for scores, labels, judged in lists_with_missing_documents("newer"):
        names = ["Rprec", "Bpref", "infAP"]
        found = evaluate(scores, labels, names, ideal_labels=judged, empty="skip")
        hits, misses = sum(label > 0 for label in judged), sum(label == 0 for label in judged)
        orders = rankings(scores, labels)

        def preference(ranking, hits=hits, misses=misses):
            above, value = 0, 0.0
            for label in ranking:
                value += (label > 0) * (1 - min(above, hits) / min(misses, hits) if above else 1)
                above += label == 0
            return value / hits

        if not hits:
            assert all(value.isnan() for value in found.values())
            continue
        wanted = {
            "Rprec": mean(lambda ranking, hits=hits: sum(label > 0 for label in ranking[:hits]) / hits, orders),
            "Bpref": mean(preference, orders),
            "infAP": (mean(inferred_precision, orders) or 0.0) * sum(label > 0 for label in labels) / hits,
        }
        for name, value in wanted.items():
            assert found[name].item() == pytest.approx(value, abs=1e-12), (name, scores, labels, judged)
