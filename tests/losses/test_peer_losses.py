"""Losses that other toolkits have, against their published formulas in plain Python, list by list; with item weights too."""

import itertools
import math
import random

import pytest
import torch

import rankstruct as rs

LISTS = 320


def draw(seed, signed=False):
    """`(scores, labels, item weights)` of each list, of 1 to 8 documents; grades are whole or have fractions, or any numbers."""
    rng = random.Random(seed)
    for number in range(LISTS):
        size = rng.randint(1, 8)
        grades = ((0, 1), (0, 1, 2, 3, 4), (0, 0.5, 1.75, 3.2), (0, 0, 0, 1), (2,))[number % 5]
        labels = [rng.gauss(0, 2) if signed else float(rng.choice(grades)) for _ in range(size)]
        if signed and number % 4 == 0:
            labels = [float(round(label)) for label in labels]
        scores = [rng.gauss(0, (0.3, 1, 3)[number % 3]) for _ in range(size)]
        yield scores, labels, [rng.choice((0.25, 1.0, 1.0, 2.5)) for _ in range(size)]


def softmax(values):
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    return [power / sum(powers) for power in powers]


def can_err(labels):
    return len(set(labels)) > 1


def entropy_of(target, s, temperature=1.0):
    return -sum(t * math.log(q) for t, q in zip(target, softmax([x / temperature for x in s]), strict=True) if t)


def raw_softmax(s, y, w):
    return entropy_of([a * b for a, b in zip(y, w, strict=True)], s) if can_err(y) else 0.0


def shares(values):
    return [value / sum(values) for value in values]


def info_nce(s, y, w):
    return entropy_of(shares([a * b for a, b in zip(y, w, strict=True)]), s, 0.3) if can_err(y) else 0.0


def poly1(s, y, w):
    if not can_err(y):
        return 0.0
    p = shares([a * b for a, b in zip(y, w, strict=True)])
    return entropy_of(p, s) + 1.5 * (1 - sum(a * b for a, b in zip(p, softmax(s), strict=True)))


def unique_softmax(s, y, w):
    if not can_err(y):
        return 0.0
    total = 0.0
    for i in range(len(s)):
        below = sum(math.exp(s[j]) for j in range(len(s)) if y[j] < y[i])
        total -= w[i] * (2 ** y[i] - 1) * math.log(math.exp(s[i]) / (math.exp(s[i]) + below))
    return total


def teacher_divergence(s, y, w):
    p = shares([a * b for a, b in zip(softmax([x / 2 for x in y]), w, strict=True)])
    q = softmax([x / 2 for x in s])
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def over_pairs(cost):
    def formula(s, y, w):
        pairs = [(i, j) for i in range(len(s)) for j in range(len(s)) if y[i] > y[j]]
        weight = sum(w[i] * w[j] for i, j in pairs)
        return sum(w[i] * w[j] * cost(s[i] - s[j]) for i, j in pairs) / weight if pairs else 0.0

    return formula


def lambda_rank_hinge(s, y, w):
    """LambdaRank's weights, |gain difference| x |discount difference| over the best DCG, on a hinge."""
    gains = [(2**label - 1) * weight for label, weight in zip(y, w, strict=True)]
    if len(set(gains)) < 2:
        return 0.0
    best = sum(gain / math.log2(2 + i) for i, gain in enumerate(sorted(gains, reverse=True)))
    ranks = [1 + sum(other > own for other in s) for own in s]
    total = 0.0
    for i, j in itertools.permutations(range(len(s)), 2):
        if gains[i] > gains[j]:
            swap = abs(1 / math.log2(1 + ranks[i]) - 1 / math.log2(1 + ranks[j]))
            total += (gains[i] - gains[j]) / best * swap * max(0, 1 - 2 * (s[i] - s[j]))
    return total


def circle(s, y, w):
    gamma, m = 2.0, 0.25
    total = 0.0
    for i, j in itertools.permutations(range(len(s)), 2):
        if y[i] > y[j]:
            pull, push = max(0, 1 + m - s[i]), max(0, s[j] + m)
            total += w[i] * w[j] * math.exp(gamma * (push * (s[j] - m) - pull * (s[i] - 1 + m)))
    return math.log1p(total)


def smooth_ranks(s, temperature):
    return [
        1 + sum(1 / (1 + math.exp((s[i] - s[j]) / temperature)) for j in range(len(s)) if j != i) for i in range(len(s))
    ]


def approx_mrr(s, y, w):
    relevant = [weight if label > 0 else 0.0 for label, weight in zip(y, w, strict=True)]
    if len({label > 0 for label in y}) < 2:
        return 0.0
    return 1 - sum(r / rank for r, rank in zip(relevant, smooth_ranks(s, 0.4), strict=True)) / sum(relevant)


def smooth_ap(lowest):
    def formula(s, y, w):
        relevant = [label >= lowest if lowest else label > 0 for label in y]
        if len(set(relevant)) < 2:
            return 0.0
        total = 0.0
        for i in (i for i in range(len(s)) if relevant[i]):
            ahead = {j: 1 / (1 + math.exp((s[i] - s[j]) / 0.3)) for j in range(len(s)) if j != i}
            total += w[i] * (1 + sum(x for j, x in ahead.items() if relevant[j])) / (1 + sum(ahead.values()))
        return 1 - total / sum(each for each, counts in zip(w, relevant, strict=True) if counts)

    return formula


def dcg_hinge(s, y, w):
    gains = [(2**label - 1) * weight for label, weight in zip(y, w, strict=True)]
    if len(set(gains)) < 2:
        return 0.0
    best = sum(gain / math.log2(2 + i) for i, gain in enumerate(sorted(gains, reverse=True)))
    bounds = [1 + sum(max(0, 1 - (s[i] - s[j])) for j in range(len(s)) if j != i) for i in range(len(s))]
    return 1 - sum(gain / math.log2(1 + bound) for gain, bound in zip(gains, bounds, strict=True)) / best


def sorted_softly(s, temperature):
    n = len(s)
    apart = [sum(abs(a - b) for b in s) for a in s]
    return [softmax([((n + 1 - 2 * i) * s[j] - apart[j]) / temperature for j in range(n)]) for i in range(1, n + 1)]


def neural_sort(s, y, w):
    if not can_err(y):
        return 0.0
    wanted, found = sorted_softly(y, 0.8), sorted_softly(s, 0.8)
    cells = list(itertools.product(range(len(s)), repeat=2))
    total = sum(w[j] * wanted[i][j] for i, j in cells)
    return -sum(w[j] * wanted[i][j] * math.log(found[i][j]) for i, j in cells) / total


def neural_ndcg(k, scalings):
    def formula(s, y, w):
        gains = [(2**label - 1) * weight for label, weight in zip(y, w, strict=True)]
        n = len(s)
        discounts = [1 / math.log2(2 + i) if i < k else 0.0 for i in range(n)]
        if len(set(gains)) < 2:
            return 0.0
        best = sum(d * gain for d, gain in zip(discounts, sorted(gains, reverse=True), strict=True))
        placed = sorted_softly(s, 1.3)
        for _ in range(scalings):
            columns = [sum(placed[i][j] for i in range(n)) for j in range(n)]
            placed = [[placed[i][j] / columns[j] for j in range(n)] for i in range(n)]
            placed = [[cell / sum(row) for cell in row] for row in placed]
        value = sum(discounts[i] * placed[i][j] * gains[j] for i, j in itertools.product(range(n), repeat=2))
        return 1 - value / best

    return formula


def margin_mse(s, y, w):
    pairs = list(itertools.combinations(range(len(s)), 2))
    weight = sum(w[i] * w[j] for i, j in pairs)
    return sum(w[i] * w[j] * ((s[i] - s[j]) - (y[i] - y[j])) ** 2 for i, j in pairs) / weight if pairs else 0.0


def margin_mse_of_the_first(s, y, w):
    each = [(w[j], ((s[0] - s[j]) - (y[0] - y[j])) ** 2) for j in range(1, len(s))]
    return sum(a * b for a, b in each) / sum(a for a, _ in each) if each else 0.0


def discounted_rank_mse(s, y, w):
    ranks = [sum(b > a for b in y) + (sum(b == a for b in y) + 1) / 2 for a in y]
    each = [(r - soft) ** 2 / math.log2(1 + r) for r, soft in zip(ranks, smooth_ranks(s, 1.0), strict=True)]
    return sum(a * b for a, b in zip(w, each, strict=True)) / sum(w)


def first_ranks_of_the_teacher(s, y, w):
    order = sorted(range(len(s)), key=lambda i: (-y[i], -s[i]))
    return sum(
        w[at] * (math.log(sum(math.exp(s[j]) for j in order[i:])) - s[at]) for i, at in enumerate(order) if i < 3
    )


FORMULAS = {
    "softmax on raw labels": (rs.SoftmaxLoss(), raw_softmax, False),
    "InfoNCE with soft targets": (rs.SoftmaxLoss("share", temperature=0.3), info_nce, False),
    "poly-1 softmax": (rs.SoftmaxLoss("share", epsilon=1.5), poly1, False),
    "unique softmax": (rs.SoftmaxLoss("gain", against="lower"), unique_softmax, False),
    "Kullback-Leibler": (rs.SoftmaxLoss("teacher", temperature=2.0, divergence=True), teacher_divergence, True),
    "soft zero-one": (
        rs.LambdaLoss(scheme="uniform", surrogate="zero-one"),
        over_pairs(lambda x: 1 - 1 / (1 + math.exp(-x))),
        False,
    ),
    "RankSVM": (rs.RankSVMLoss(margin=0.7), over_pairs(lambda x: max(0, 0.7 - x)), False),
    "RankNet": (rs.RankNetLoss(sigma=1.5), over_pairs(lambda x: math.log1p(math.exp(-1.5 * x))), False),
    "lambda weights on a hinge": (
        rs.LambdaLoss(scheme="lambdarank", surrogate="hinge", sigma=2.0),
        lambda_rank_hinge,
        False,
    ),
    "circle": (rs.CircleLoss(gamma=2.0), circle, False),
    "ApproxMRR": (rs.ApproxNDCGLoss("RR", temperature=0.4), approx_mrr, False),
    "Smooth-AP": (rs.SmoothAPLoss(0.3), smooth_ap(None), False),
    "Smooth-AP of grades from 1.5": (rs.SmoothAPLoss(0.3, min_relevant=1.5), smooth_ap(1.5), False),
    "DCG hinge": (rs.ApproxNDCGLoss(temperature=1.0, ranks="hinge"), dcg_hinge, False),
    "NeuralSort": (rs.NeuralSortLoss(0.8), neural_sort, False),
    "NeuralNDCG": (rs.NeuralNDCGLoss("nDCG", 1.3), neural_ndcg(9, 0), False),
    "NeuralNDCG@2, scaled": (rs.NeuralNDCGLoss("nDCG@2", 1.3, scalings=4), neural_ndcg(2, 4), False),
    "MarginMSE": (rs.MarginMSELoss(), margin_mse, True),
    "MarginMSE of the first": (rs.MarginMSELoss("first"), margin_mse_of_the_first, True),
    "ADR-MSE": (rs.DiscountedRankMSELoss(), discounted_rank_mse, True),
    "RankDistil, likeliest": (rs.RankDistilLoss(k=3, samples=None), first_ranks_of_the_teacher, True),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FORMULAS)
def test_a_loss_equals_its_published_formula(name, dtype):
    loss, formula, signed = FORMULAS[name]
    loss.reduction = "none"
    lists = list(draw(name, signed))
    offsets = torch.tensor([0, *itertools.accumulate(len(scores) for scores, _, _ in lists)])
    scores, labels, weights = (
        torch.tensor([value for each in lists for value in each[part]], dtype=torch.float64) for part in range(3)
    )
    close = {"rtol": 1e-9, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 2e-5}
    plain = loss(scores.to(dtype), labels, offsets=offsets)
    weighted = loss(scores.to(dtype), labels, offsets=offsets, item_weights=weights)
    assert plain.dtype == dtype
    for found, chosen in ((plain, [[1.0] * len(s) for s, _, _ in lists]), (weighted, [w for _, _, w in lists])):
        expected = [formula(s, y, w) for (s, y, _), w in zip(lists, chosen, strict=True)]
        torch.testing.assert_close(found.double(), torch.tensor(expected, dtype=torch.float64), **close)


def test_the_hinge_bound_of_dcg_is_one():
    loss = rs.ApproxNDCGLoss(temperature=1.0, ranks="hinge")
    for scores, labels, _ in draw("bound"):
        given = torch.tensor(scores, dtype=torch.float64), torch.tensor(labels)
        regret = 1 - rs.nDCG()(*given, empty=1)
        assert loss(*given) >= regret - 1e-12 or not can_err(labels)


def test_smooth_ap_tends_to_the_measure():
    torch.manual_seed(0)
    scores, labels = torch.randn(40, 9, dtype=torch.float64), torch.randint(0, 4, (40, 9))
    labels[:, 0], labels[:, 1] = 2, 0
    for measure, lowest in (("AP", None), ("AP(min_relevant=2)", 2)):
        exact = 1 - next(iter(rs.evaluate(scores, labels, measure).values()))
        gaps = []
        for temperature in (0.1, 0.01, 1e-5):
            loss = rs.SmoothAPLoss(temperature, min_relevant=lowest, reduction="none")
            gaps.append((loss(scores, labels) - exact).abs().max())
        assert gaps[0] > gaps[1] > gaps[2]
        assert gaps[2] < 1e-9


def test_neural_ndcg_tends_to_the_measure_and_approx_mrr_too():
    torch.manual_seed(0)
    scores, labels = torch.randn(40, 7, dtype=torch.float64), torch.randint(0, 4, (40, 7))
    labels[:, 0], labels[:, 1] = 2, 0
    for measure in ("nDCG", "nDCG@3"):
        exact = 1 - rs.evaluate(scores, labels, measure)[measure]
        found = rs.NeuralNDCGLoss(measure, temperature=1e-5, reduction="none")(scores, labels)
        torch.testing.assert_close(found, exact)
    one = torch.nn.functional.one_hot(torch.randint(0, 7, (40,)), 7)
    found = rs.ApproxNDCGLoss("RR", temperature=1e-5, reduction="none")(scores, one)
    torch.testing.assert_close(found, 1 - rs.evaluate(scores, one, "RR")["RR"])


def test_rank_distil_draws_rankings_of_the_teacher():
    """The mean over many samples is the sum over all rankings, weighted by the teacher's Plackett-Luce probabilities."""
    scores, labels = [0.3, -1.0, 0.8, 0.1], [1.0, 0.5, -0.5, 0.2]

    def probability(order, values):
        value = 1.0
        for i in range(len(order)):
            value *= math.exp(values[order[i]]) / sum(math.exp(values[j]) for j in order[i:])
        return value

    def cost(order):
        return sum(math.log(sum(math.exp(scores[j]) for j in order[i:])) - scores[order[i]] for i in range(2))

    teacher = [label / 1.5 for label in labels]
    expected = sum(probability(order, teacher) * cost(order) for order in itertools.permutations(range(4)))
    torch.manual_seed(0)
    given = torch.tensor(scores, dtype=torch.float64), torch.tensor(labels, dtype=torch.float64)
    found = rs.RankDistilLoss(k=2, samples=40_000, temperature=1.5)(*given)
    assert found.item() == pytest.approx(expected, abs=0.02)


def test_the_gradient_of_the_circle_loss_holds_its_weights_fixed():
    scores = torch.tensor([0.2, 0.6, -0.1, 0.9], dtype=torch.float64)
    labels, gamma, m = [1, 0, 0, 2], 3.0, 0.25
    pull, push = (1 + m - scores).relu(), (scores + m).relu()

    def value(s):
        pairs = [(i, j) for i in range(4) for j in range(4) if labels[i] > labels[j]]
        return math.log1p(sum(math.exp(gamma * (push[j] * (s[j] - m) - pull[i] * (s[i] - 1 + m))) for i, j in pairs))

    leaf = scores.clone().requires_grad_()
    rs.CircleLoss(gamma, m)(leaf, torch.tensor(labels)).backward()
    for i in range(4):
        step = torch.zeros(4, dtype=torch.float64)
        step[i] = 1e-6
        assert leaf.grad[i].item() == pytest.approx((value(scores + step) - value(scores - step)) / 2e-6, rel=1e-5)


def test_options_are_checked():
    for make, message in (
        (lambda: rs.SoftmaxLoss("grade"), "target must be one of 'label', 'share', 'gain', 'teacher', got 'grade'"),
        (lambda: rs.SoftmaxLoss(against="below"), "against must be one of 'all', 'lower', got 'below'"),
        (lambda: rs.SoftmaxLoss(epsilon=-1), "epsilon must be a finite number above 0, got -1"),
        (lambda: rs.ApproxNDCGLoss("nDCG@5", ranks="hinge"), "ranks='hinge' requires a measure without a cut-off"),
        (
            lambda: rs.LambdaLoss(surrogate="ramp"),
            "surrogate must be one of 'logistic', 'hinge', 'zero-one', got 'ramp'",
        ),
        (lambda: rs.CircleLoss(margin=math.nan), "margin must be a finite number, got nan"),
        (lambda: rs.NeuralNDCGLoss("AP"), "NeuralNDCGLoss requires nDCG or another normalised discounted gain, got AP"),
        (lambda: rs.NeuralNDCGLoss(scalings=-1), "scalings must be an integer from 0, got -1"),
        (lambda: rs.RankDistilLoss(k=0), "k must be an integer from 1, or None, got 0"),
        (lambda: rs.MarginMSELoss("last"), "pairs must be one of 'all', 'first', got 'last'"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
