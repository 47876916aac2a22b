"""The oracle of the positional map: SciPy's value, kept tables, gains that are known by grade, refusals."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

import rankstruct as rs
from rankstruct.kernels.dispatch import discount_table
from rankstruct.oracles import gains, positional


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["random", "by gain", "against gain", "few scores", "few gains", "grades", "tied"])
@pytest.mark.parametrize(
    "measure", ["nDCG(gain='linear')", "nDCG@1", "nDCG@5", "DCG(discount='letor')@20", "ERU(d=0,half_life=5)"]
)
def test_real_valued_targets_have_scipys_value(measure, kind):
    """As many gains as documents: most lists are solved by prices, those with a cut-off by the sweep of what is left of them.

    With grades, of which the lowest is the most frequent, the documents that a cut-off can reach are few.
    """
    rng = np.random.default_rng(5)
    parsed, decay = rs.parse_measure(measure), rs.Positional("i^-1/3")
    for n in (17, 18, 40, 90, 200):
        labels = rng.random((5, n)) * rng.choice([0.3, 3.0], size=(5, 1))
        labels = np.round(labels * 20) / 20 if kind == "few gains" else labels
        if kind == "grades":
            labels = np.maximum(np.floor(rng.random((5, n)) * [[3], [4], [5], [6], [9]]) - 1, 0)
            labels[:, 2:4] = [0, 1]  # no list of one grade, of which no ranking is wrong
        noise = rng.normal(size=(5, n))
        scores = {
            "random": noise,
            "few gains": noise,
            "grades": 0.3 * noise,
            "by gain": labels + 0.2 * noise,
            "against gain": -labels + 0.2 * noise,
            "few scores": np.round(2 * noise) / 2,
            "tied": np.zeros((5, n)),
        }[kind]
        given = torch.tensor(scores), torch.tensor(labels)
        found = rs.most_violated(*given, parsed, feature_map=decay, reference="ideal")
        c, a = decay.weights(n).numpy(), parsed.position_weights(n).numpy()
        for i in range(5):
            gains = parsed.document_gains(given[1][i]).numpy()
            best = np.sort(gains)[::-1] @ a
            unit = best if parsed.normalized else 1.0
            cost = np.outer(scores[i], c) - np.outer(gains, a) / unit
            expected = cost[linear_sum_assignment(cost, maximize=True)].sum() + best / unit
            expected -= scores[i][np.argsort(-labels[i], kind="stable")] @ c
            assert found.value[i].item() == pytest.approx(expected, abs=1e-9), (n, i)


@pytest.mark.parametrize("scale", [0.0, 0.01, 0.2, 3.0])
@pytest.mark.parametrize("measure", ["RR", "RR@10", "RR@1"])
def test_reciprocal_rank_of_longer_lists_has_scipys_value(measure, scale):
    """The best ranking of those whose first r documents are irrelevant, for every r."""
    rng = np.random.default_rng(7)
    k = rs.parse_measure(measure).cutoff or 10**6
    for n in (12, 40):
        c = rs.Positional("i^-0.5").weights(n).numpy()
        labels = (rng.random((4, n)) < [[0.05], [0.2], [0.5], [0.9]]).astype(float)
        labels[:, 3] = 1.0
        scores = scale * rng.normal(size=(4, n))
        given = torch.tensor(scores), torch.tensor(labels)
        found = rs.most_violated(*given, measure, feature_map=rs.Positional("i^-0.5"), reference="predicted").value
        for i in range(4):
            best = -np.inf
            for r in range(min(int((labels[i] == 0).sum()), k) + 1):
                cost = np.outer(scores[i], c) - 1e6 * np.outer(labels[i], np.arange(n) < r)
                worth = 1.0 - (1.0 / (1 + r) if r < k else 0.0)
                best = max(best, worth + cost[linear_sum_assignment(cost, maximize=True)].sum())
            order = np.lexsort((np.arange(n), -labels[i], -scores[i]))
            assert found[i].item() == pytest.approx(best - scores[i][order] @ c, abs=1e-9), (n, i)


def answer(measure, size, decay="i^-0.5"):
    generator = torch.Generator().manual_seed(size)
    scores = torch.randn(3, size, generator=generator, requires_grad=True)
    labels = torch.randint(0, 3, (3, size), generator=generator)
    return rs.StructuredHingeLoss(measure, feature_map=rs.Positional(decay))(scores, labels).item()


def test_kept_tables_are_those_of_the_measure_the_map_and_the_size():
    cases = [
        (m, n, d)
        for m in ("nDCG", "nDCG@3", "DCG(discount='letor')", "RR", "RR@3")
        for n in (5, 9)
        for d in ("i^-1", "i^-2")
    ]
    found = []
    for _ in range(2):
        found.append([answer(*case) for case in cases])
        assert len(positional._TABLES) <= positional._MOST_TABLES
    positional._TABLES.clear()
    fresh = []
    for case in cases:
        fresh.append(answer(*case))
        positional._TABLES.clear()
    assert found == [fresh, fresh]


def test_tables_that_would_not_last_are_not_kept():
    from torch._subclasses.fake_tensor import FakeTensorMode

    positional._TABLES.clear()
    with torch.inference_mode():
        inside = answer("nDCG", 7)
    assert not positional._TABLES
    with FakeTensorMode():
        assert rs.most_violated(torch.zeros(7), torch.zeros(7), "nDCG", feature_map="positional").value.shape == ()
    assert not positional._TABLES
    labels = torch.tensor([0, 2, 1])
    torch.func.grad(lambda s: rs.StructuredHingeLoss("nDCG", feature_map="positional")(s, labels))(torch.zeros(3))
    assert not positional._TABLES
    assert answer("nDCG", 7) == inside
    assert len(positional._TABLES) == 1


def test_threads_and_calls_share_nothing_but_tables():
    cases = [(measure, size) for measure in ("nDCG@3", "nDCG", "RR", "mWTA") for size in (200, 3, 60, 7)]
    expected = []
    for case in cases:
        positional._TABLES.clear()
        expected.append(answer(*case))
    assert [answer(*case) for case in cases] == expected
    positional._TABLES.clear()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda case: answer(*case), cases * 20))
    assert found == expected * 20


@pytest.mark.parametrize("name", ["nDCG", "P@2", "RR", "DCG(gain='linear')@3", "mWTA", "nDCG(min_relevant=2)"])
def test_gains_of_grades_that_are_known_are_those_of_the_measure(name, monkeypatch):
    measure = rs.parse_measure(name)
    scores, padding = torch.randn(5, 8), torch.rand(5, 8) < 0.2
    gains._table.cache_clear()
    table = gains.known_gains(measure)
    for labels in (
        torch.randint(0, 2, (5, 8)),
        torch.randint(0, 5, (5, 8)),  # grades that were not seen before
        torch.randint(0, 5, (5, 8)).float(),
        torch.randint(0, 5, (5, 8)) + 0.5 * torch.rand(5, 8).round(),
        torch.randint(0, 5, (5, 8)).double(),
        torch.randint(0, 5, (5, 8)).to(torch.uint8),
        torch.randint(0, 400, (5, 8)).clamp(max=300),
    ):
        padded = labels.double().masked_fill(padding, torch.nan)
        for given, where in ((labels, None), (labels, ~padding), (padded, ~padding)):
            found = rs.most_violated(scores, given, measure, feature_map="positional", where=where)
            with pytest.MonkeyPatch.context() as patch:
                for module in (gains, positional):
                    patch.setattr(module, "known_gains", lambda measure: None)
                expected = rs.most_violated(scores, given, measure, feature_map="positional", where=where)
            assert all(map(torch.equal, found, expected))
            known = np.flatnonzero(~np.isnan(table))
            assert set(known) >= {*labels[~padding & (labels < 256) & (labels % 1 == 0)].tolist()}
            of_known = positional.gains_of(measure, torch.tensor(known, dtype=torch.float64))
            assert np.array_equal(table[known], of_known.numpy())


@pytest.mark.parametrize("bad", [-1.0, torch.nan, torch.inf, -torch.inf])
def test_labels_are_refused_whether_the_others_are_known_or_not(bad):
    scores, good = torch.randn(2, 3), torch.tensor([[0.0, 1, 2], [2, 1, 0]])
    wrong = good.clone()
    wrong[1, 1] = bad
    where = torch.tensor([[True] * 3, [True, False, True]])
    gains._table.cache_clear()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"labels must be .*document \[1, 1\]"):
            rs.most_violated(scores, wrong, "nDCG")
        expected = rs.most_violated(scores, good, "nDCG", where=where)
        found = rs.most_violated(scores, wrong, "nDCG", where=where)
        assert all(map(torch.equal, found, expected))
        rs.most_violated(scores, good, "nDCG")


def test_gains_of_a_users_function_or_measure_are_asked_for_at_each_call():
    class Power(rs.DCG):  # whose option no comparison sees
        def __init__(self, power):
            super().__init__()
            object.__setattr__(self, "power", power)

        def document_gains(self, labels):
            return labels.double() ** self.power

    state, scores, labels = {"power": 1.0}, torch.randn(3, 6), torch.randint(0, 4, (3, 6))
    kept = rs.StructuredHingeLoss(rs.DCG(gain=lambda labels: labels ** state["power"]))
    for power in (1.0, 3.0):
        state["power"] = power
        expected = rs.most_violated(scores, labels, rs.DCG(gain=lambda labels, power=power: labels**power)).value
        torch.testing.assert_close(kept(scores, labels, reduction="none"), expected)
        torch.testing.assert_close(rs.most_violated(scores, labels, Power(power)).value, expected)


def test_discounts_need_not_reach_further_than_the_longest_list():
    scores, labels, offsets = torch.randn(300), torch.randint(0, 3, (300,)), list(range(0, 301, 10))
    falls = {"discount": lambda ranks: 1 - 0.01 * ranks}
    found = rs.most_violated(scores, labels, rs.nDCG(**falls), offsets=offsets)
    expected = rs.most_violated(scores.view(30, 10), labels.view(30, 10), rs.nDCG(**falls))
    torch.testing.assert_close(found.value, expected.value)
    with pytest.raises(ValueError, match="labels must be 0 or more"):
        rs.most_violated(scores, labels - 1, rs.nDCG(**falls), offsets=offsets)


def test_a_decay_that_is_changed_later_does_no_harm():
    decays = torch.arange(12, 0, -1).double()
    loss = rs.StructuredHingeLoss("nDCG", feature_map=rs.Positional(lambda ranks: decays[: len(ranks)]))
    scores, labels = torch.randn(4, 12), torch.randint(0, 4, (4, 12))
    before = loss(scores, labels)
    decays[3] = 100.0
    assert loss(scores, labels) == before


def test_of_wrong_labels_the_first_one_is_named():
    scores = torch.tensor([3.0, 1.0, 2.0, 0.0])
    with pytest.raises(ValueError, match="labels must be finite; document 0 is inf"):
        rs.most_violated(scores, torch.tensor([torch.inf, 0.0, torch.nan, 1.0]), "nDCG")
    with pytest.raises(ValueError, match="document 1 has gain -1"):
        rs.most_violated(scores, torch.tensor([0.0, 1.0, 1.0, 0.0]), rs.DCG(gain=lambda labels: -labels))


def test_a_measure_that_cannot_be_a_key_is_served():
    class Unhashable(rs.DCG):
        __hash__ = None

    positional._TABLES.clear()
    assert answer(Unhashable(), 7) == answer("DCG", 7)
    assert len(positional._TABLES) == 1


def test_a_cut_off_of_its_own_decides_under_a_constant_discount():
    measure = rs.measures.mWTA(discount=torch.ones_like)
    found = rs.most_violated(torch.zeros(4), torch.tensor([0, 0, 0, 1]), measure, reference="predicted")
    assert (found.task_loss.item(), found.value.item()) == (1.0, 1.0)
    same = rs.most_violated(torch.zeros(3), torch.tensor([0, 0, 1]), measure, reference="predicted")
    assert same.value.item() == 0.0


@pytest.mark.parametrize(
    "numbers",
    [[1, 2, 1], [1, 0.5, 0.6], [1, np.nan, 0.5], [np.nan], [np.nan, 0], [np.inf, 1], [1, -1], [-1], [1, 0, -1]],
)
def test_what_is_no_discount(numbers):
    with pytest.raises(ValueError, match="discounts must be finite, >= 0 and never increase"):
        discount_table(torch.tensor(numbers, dtype=torch.float64), len(numbers))


def test_what_is_a_discount():
    for numbers in ([1.0, 1.0, 0.5, 0.0], [0.0]):
        assert discount_table(torch.tensor(numbers), len(numbers)).tolist() == numbers
    beyond_the_longest_list = discount_table(torch.tensor([2.0, 1.0, 7.0]), 2)
    assert beyond_the_longest_list.tolist() == [2.0, 1.0]


def test_a_decay_that_is_a_multiple_of_the_discount():
    """Four times the decay is four times the scores; a power of two, so that the decay is proportional to the last bit."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 30, generator=generator, dtype=torch.float64) * 0.2
    labels = torch.randint(0, 4, (20, 30), generator=generator)
    fourfold = rs.Positional(lambda i: 4 / torch.log2(1 + i))
    found = rs.most_violated(scores, labels, "nDCG", feature_map=fourfold, reference="predicted")
    same = rs.most_violated(4 * scores, labels, "nDCG", feature_map=rs.Positional("discount"), reference="predicted")
    torch.testing.assert_close(found.value, same.value)
    assert "sort" in rs.explain_oracle("nDCG", fourfold, grades=4).method


def test_tables_of_the_sweep_are_those_of_its_own_lists():
    """A list with many gains and a long one with few: the first uses prices; one table for both would be too large."""
    generator = torch.Generator().manual_seed(0)
    many, few = torch.rand(40_000, dtype=torch.float64, generator=generator), 100_000
    scores = torch.cat([many, torch.randn(few, dtype=torch.float64, generator=generator)])
    labels = torch.cat([many, torch.randint(0, 5, (few,), generator=generator).double()])
    offsets = torch.tensor([0, len(many), len(scores)])
    found = rs.most_violated(scores, labels, "nDCG", offsets=offsets, feature_map="positional")
    alone = rs.most_violated(scores[len(many) :], labels[len(many) :], "nDCG", feature_map="positional")
    assert found.value[1] == alone.value
