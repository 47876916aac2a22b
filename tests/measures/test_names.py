"""Names and measures: each is found from the other."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measures.enumeration import MEASURES

import rankstruct as rs
from rankstruct.measures import (
    AP,
    AUC,
    DCG,
    ERU,
    RR,
    WTA,
    Accuracy,
    DiscountedGain,
    F,
    MeanNDCG,
    Measure,
    P,
    R,
    Success,
    evaluate,
    mWTA,
    nDCG,
    nERU,
    parse_measure,
    parse_measures,
    pAUC,
    register_measure,
)
from rankstruct.measures.base import _REGISTRY


@pytest.mark.parametrize("name", MEASURES)
def test_canonical_names_stay_as_they_are(name):
    assert parse_measure(name).name == name


cutoffs = st.none() | st.integers(1, 1000)
grades = st.none() | st.integers(-2, 5) | st.floats(-10, 10)
numbers = st.integers(-5, 5) | st.floats(-1e6, 1e6)
graded = st.fixed_dictionaries(
    {
        "min_relevant": grades,
        "discount": st.sampled_from(["log2", "letor"]),
        "gain": st.sampled_from(["exponential", "linear"]),
    }
)
any_measure = st.one_of(
    st.builds(AP, cutoffs, min_relevant=grades),
    st.builds(RR, cutoffs, min_relevant=grades),
    st.builds(AUC, min_relevant=grades),
    st.builds(WTA, min_relevant=grades),
    st.builds(
        pAUC,
        min_relevant=grades,
        low=st.floats(0, 0.4),
        high=st.floats(0.5, 1) | st.just(1),
        min_tpr=st.floats(0, 0.9),
    ),
    st.builds(P, st.integers(1, 1000), min_relevant=grades),
    st.builds(R, st.integers(1, 1000), min_relevant=grades),
    st.builds(Success, st.integers(1, 1000), min_relevant=grades),
    st.builds(F, cutoffs, min_relevant=grades, beta=st.floats(0.01, 100) | st.just(1)),
    st.builds(Accuracy, min_relevant=grades),
    st.builds(lambda k, options: nDCG(k, **options), cutoffs, graded),
    st.builds(lambda k, options: DCG(k, **options), cutoffs, graded),
    st.builds(lambda options: MeanNDCG(**options), graded),
    st.builds(lambda options: mWTA(**options), graded),
    st.builds(ERU, cutoffs, d=numbers, half_life=st.floats(1.01, 1e9)),
    st.builds(nERU, cutoffs, d=numbers, half_life=st.integers(2, 100)),
)


@given(any_measure)
def test_a_name_gives_back_an_equal_measure(measure):
    for name in (measure.name, measure.name.replace("nDCG", "NDCG"), f"  {measure.name} ".replace(",", ", ")):
        found = parse_measure(name)
        assert found == measure
        assert hash(found) == hash(measure)
        assert found.name == measure.name
    assert pickle.loads(pickle.dumps(measure)) == measure


@pytest.mark.parametrize(
    ("written", "measure"),
    [
        ("ap", AP()),
        ("MAP@5", AP(5)),
        ("mrr@10", RR(10)),
        ("ndcg_cut_10", nDCG(10, gain="linear")),
        ("P_5", P(5)),
        ("HR@10", Success(10)),
        ("Recall@20", R(20)),
        ("precision@5", P(5)),
        ("Hit@5", Success(5)),
        ("HitRate@5", Success(5)),
        ("hit_rate@3", Success(3)),
        ("NDCG_at_10", nDCG(10, gain="linear")),
        ("ndcg_10", nDCG(10)),
        ("mrr_at_10", RR(10)),
        (" Recall_at_20 ", R(20)),
        ("ROC-AUC", AUC()),
        ("roc_auc", AUC()),
        ("average_precision", AP()),
        ("reciprocal_rank@10", RR(10)),
        ("NDCG@10", nDCG(10)),
        ("ndcg(cutoff=10)", nDCG(10)),
        ("P(rel=2)@5", P(5, min_relevant=2)),
        ("NDCG(GAIN='linear', rel=1)@3", nDCG(3, gain="linear", min_relevant=1)),
        ("eru(half_life=5, d=-2.5)", ERU(d=-2.5, half_life=5)),
        ("f1", F()),
        ("F1(rel=2)@5", F(5, min_relevant=2)),
        ("F(beta=1)", F()),
        ("success@5", Success(5)),
        ("r@20", R(20)),
        ("pauc(high=0.1)", pAUC(high=0.1)),
        ("pAUC(low=0, high=1, min_tpr=0.5)", pAUC(high=1, min_tpr=0.5)),
        ("AP()", AP()),
        ("MWTA(gain='linear')", mWTA(gain="linear")),
        (AP(3), AP(3)),
    ],
)
def test_what_is_understood(written, measure):
    assert parse_measure(written) == measure


def test_measures_differ_by_class_and_parameters():
    different = [
        nDCG(),
        nDCG(10),
        DCG(),
        DCG(10),
        AP(),
        AP(10),
        RR(10),
        P(10),
        nDCG(10, gain="linear"),
        AP(min_relevant=2),
    ]
    assert len(set(different)) == len(different)
    with pytest.raises(AttributeError):
        AP().cutoff = 3


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("nDCX@10", r"unknown measure 'nDCX' \(did you mean nDCG\?\); available: Accuracy, alpha_DCG, "),
        ("hello", "unknown measure 'hello'; available: Accuracy, alpha_DCG, "),
        ("AUC@10", "AUC does not support a cut-off"),
        ("R", r"R needs a cut-off; write R\(10\) or 'R@10'"),
        ("Success", r"Success needs a cut-off"),
        ("F(beta=0)", "beta of F must be a finite number above 0"),
        ("Accuracy@3", "Accuracy does not support a cut-off"),
        ("pAUC(high=0.1)@3", "pAUC does not support a cut-off"),
        ("pAUC", r"pAUC needs high; write pAUC\(high=...\)"),
        ("pAUC(low=0.1,high=0.1)", "pAUC needs 0 <= low < high <= 1, got low=0.1 and high=0.1"),
        ("pAUC(high=1.1)", "pAUC needs 0 <= low < high <= 1, got low=0.0 and high=1.1"),
        ("pAUC(low=-0.1,high=1)", "pAUC needs 0 <= low < high <= 1"),
        ("pAUC(high='a')", "high of pAUC must be a finite number"),
        ("pAUC(high=0.5,min_tpr=1)", "min_tpr of pAUC must be at least 0 and below 1, got 1"),
        ("WTA@1", "WTA does not support a cut-off"),
        ("mWTA@3", "mWTA does not support a cut-off"),
        ("mWTA(gain='square')", "gain of nDCG must be"),
        ("MeanNDCG(cutoff=3)", "MeanNDCG does not support a cut-off"),
        ("AP(gain='linear')", "AP has no parameter 'gain'; available: cutoff, min_relevant"),
        ("nDCG(gian='linear')", r"no parameter 'gian' \(did you mean gain\?\)"),
        ("ERU(d=3,half_life=5,min_relevant=2)", "ERU has no parameter 'min_relevant'"),
        ("ERU(d=3)", "ERU needs half_life"),
        ("ERU", r"ERU needs d, half_life; write ERU\(d=..., half_life=...\)"),
        ("P", "P needs a cut-off"),
        ("nDCG@0", "cut-off of nDCG must be an integer from 1 to \\d+, got 0"),
        ("nDCG@-1", "cannot read the measure 'nDCG@-1'"),
        ("nDCG@1.5", "cannot read the measure"),
        ("", "cannot read the measure ''"),
        ("nDCG(10)", "cannot read the options .* write them as name=value"),
        ("nDCG(gain=linear)", "cannot read the options .* quoted"),
        ("AP(min_relevant=__import__('os'))", "cannot read the options"),
        ("AP(**{'cutoff': 3})", "cannot read the options"),
        ("AP(cutoff=3)@3", "has two cut-offs"),
        ("AP(rel=1,min_relevant=1)", "an option occurs twice"),
        ("AP(cutoff=2.5)", "must be an integer from 1 to \\d+, got 2.5"),
        ("AP(cutoff=True)", "must be an integer from 1"),
        ("AP(min_relevant='high')", "min_relevant of AP must be a finite number, got 'high'"),
        ("AP(min_relevant=1e999)", "must be a finite number, got inf"),
        ("nDCG(gain='square')", "gain of nDCG must be 'exponential' or 'linear' or a function, got 'square'"),
        ("DCG(discount='log')", "discount of DCG must be 'log2' or 'letor' or a function"),
        ("MeanNDCG(gain=[1])", "gain of nDCG must be"),
        ("ERU(d=3,half_life=1)", "half_life of ERU must be a finite number above 1, got 1"),
    ],
)
def test_what_is_not_understood(written, message):
    with pytest.raises(ValueError, match=message):
        parse_measure(written)


def test_neither_name_nor_measure():
    with pytest.raises(TypeError, match=r"a measure must be a name such as 'AP' or an object such as AP\(\), got 10"):
        parse_measure(10)
    with pytest.raises(TypeError, match=r"got <class .*AP'>"):
        parse_measure(AP)


def test_several_measures_each_once():
    assert parse_measures(["map", AP(), "RR"]) == [AP(), RR()]
    assert parse_measures("AP") == parse_measures(AP()) == [AP()]
    functions = nDCG(gain=lambda labels: labels), nDCG(gain=lambda labels: 2 * labels)
    with pytest.raises(ValueError, match="two different measures are named"):
        parse_measures(functions)


def test_functions_as_options():
    def square(labels):
        return labels**2

    def reciprocal(ranks):
        return 1 / ranks

    measure = nDCG(2, gain=square, discount=reciprocal)
    assert measure.name == "nDCG(discount=reciprocal,gain=square)@2"
    assert measure([2.0, 1.0], [1, 3]).item() == pytest.approx((1 + 9 / 2) / (9 + 1 / 2))
    # A gain that is not monotone in the label: the best ranking goes by gain.
    odd = nDCG(gain=lambda labels: (labels == 1).double())
    assert odd([2.0, 1.0], [3, 1]).item() == pytest.approx(1 / torch.tensor(3.0).log2().item())
    assert odd.best_value(torch.tensor([3.0, 1.0, 2.0])).item() == 1
    with pytest.raises(ValueError, match=r"discounts of .* must be finite and never increase"):
        nDCG(discount=lambda ranks: ranks)([2.0, 1.0], [1, 0])


@pytest.fixture
def registry():
    before = dict(_REGISTRY)
    yield
    _REGISTRY.clear()
    _REGISTRY.update(before)


def test_a_measure_of_ones_own(registry):
    """Two functions, and everything else follows."""

    @register_measure
    @dataclass(frozen=True)
    class Geometric(DiscountedGain):
        """Half the weight at each next rank."""

        ratio: float = 0.5
        normalized = True

        def discounts(self, ranks):
            return self.ratio ** (ranks - 1)

        def gains(self, labels):
            return labels

    measure = parse_measure("geometric(ratio=0.25)@2")
    assert measure == Geometric(2, ratio=0.25)
    assert measure.name == "Geometric(ratio=0.25)@2"
    values = evaluate([3.0, 2.0, 2.0, 1.0], [1, 0, 2, 9], [measure, "AP"])
    assert values[measure.name].item() == pytest.approx((1 + 0.25 * 1) / (9 + 0.25 * 2))
    assert measure.best_value(torch.tensor([1.0, 5.0])).item() == 1
    assert parse_measure("Geometric(rel=2)")([2.0, 1.0], [1, 2]).item() == 0.5
    assert measure.position_weights(4).tolist() == [1, 0.25, 0, 0]


def test_a_name_is_given_once(registry):
    with pytest.raises(ValueError, match="a measure named 'ap' is already registered"):

        @register_measure
        class ap(AP):
            pass

    with pytest.raises(ValueError, match="a measure named 'MAP' is already registered"):
        register_measure(type("MAP", (AP,), {}))
    with pytest.raises(TypeError, match="a measure must be a subclass of Measure"):
        register_measure(int)
    again = type("AP", (Measure,), {"__module__": AP.__module__, "compute": AP.compute})
    assert register_measure(again) is again


def test_what_a_new_measure_is_given():
    """Documents in rank order, real ones first, clean padding, tie groups where there are any."""
    seen = []

    class Recorder(Measure):
        under_ties = "closed form"

        def compute(self, lists):
            seen.append(lists)
            return lists.ranks.new_zeros(len(lists.labels)), lists.where.any(-1)

    nan = float("nan")
    scores = torch.tensor([[nan, 1.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0]])
    labels = torch.tensor([[nan, 5.0, 6.0, 7.0], [0.0, 1.0, 2.0, 3.0]])
    where = ~scores.isnan()
    Recorder()(scores, labels, where)
    (lists,) = seen
    assert lists.labels.tolist() == [[6, 5, 7, 0], [0, 1, 2, 3]]
    assert lists.where.tolist() == [[True, True, True, False], [True] * 4]
    assert lists.order.tolist() == [[2, 1, 3, 0], [0, 1, 2, 3]]
    assert lists.first.tolist() == [[0, 1, 1, 3], [0, 1, 2, 3]]
    assert lists.last.tolist() == [[0, 2, 2, 3], [0, 1, 2, 3]]
    assert lists.over_ties(lists.labels).tolist() == [[6, 6, 6, 0], [0, 1, 2, 3]]
    # Padding does not tie with itself.
    Recorder()(scores[1:].repeat(1, 2), labels[1:].repeat(1, 2), torch.tensor([[True] * 4 + [False] * 4]))
    assert seen[1].first is None


@pytest.mark.parametrize(
    "name",
    [
        "diverse_" * 100_000 + "RR@2",
        "nDCG(gain=" + "[" * 100_000 + ")",
        "nDCG(gain=" + "-" * 100_000 + "1)",
        "A" * 10**6,
        "AP@" + "9" * 5000,
        "AP@１０",
        "ERU(d=" + "9" * 150 + ")",
        "AP(min_relevant=" + "9" * 180 + ")",
    ],
    ids=lambda name: name[:12],
)
def test_names_that_would_exhaust_the_parser_are_refused_in_one_line(name):
    with pytest.raises(ValueError) as found:
        parse_measure(name)
    assert len(str(found.value)) < 500
    assert "\n" not in str(found.value)


def test_values_are_found_by_the_name_that_was_given():
    scores, labels = torch.tensor([[0.3, 0.2, 0.1]]), torch.tensor([[0, 1, 1]])
    given = ["MAP", "ndcg@10", "MRR", "Recall@2", "pAUC(low=0,high=0.5)"]
    found = rs.evaluate(scores, labels, given)
    assert list(found) == [rs.parse_measure(name).name for name in given]
    for name, value in zip(given, found.values(), strict=True):
        assert found[name] is value
        assert name in found
        assert found.get(name) is value
    for name in ("AUC", "nDCG@5", "no measure", 3):
        assert name not in found
        assert found.get(name, 2) == 2
        with pytest.raises(KeyError):
            found[name]
    metric = rs.RankingMetric(given)
    metric.update(scores, labels)
    assert metric.compute()["MRR"] == metric.compute()["RR"] == 0.5
    assert pickle.loads(pickle.dumps(found))["MAP"] == found["AP"]


def test_groups_and_other_libraries_names_are_answered():
    scores, labels, qid = torch.tensor([0.3, 0.2, 0.1, 0.0]), torch.tensor([0, 1, 1, 0]), torch.tensor([1, 1, 2, 2])
    with pytest.raises(ValueError, match=r"diversity_groups= are hosts or topics.* pass qid="):
        rs.evaluate(scores, labels, "AP", diversity_groups=qid)
    assert rs.evaluate(scores, labels, ["AP", "diverse_nDCG@2"], diversity_groups=qid)["AP"].shape == ()
    assert rs.evaluate(scores, labels, "AP", diversity_groups=qid, offsets=[0, 2, 4])["AP"].shape == (2,)
    with pytest.raises(TypeError, match=r"hosts or topics are diversity_groups=, sizes of lists group=, .* qid="):
        rs.evaluate(scores, labels, "AP", groups=qid)
    with pytest.raises(TypeError, match="there is no indexes=; pass qid=, the list of each document"):
        rs.evaluate(scores, labels, "AP", indexes=qid)
    metric = rs.RankingMetric("AP")
    for call in (
        rs.evaluate,
        rs.most_violated,
        lambda scores, labels, measure, **more: metric.update(scores, labels, **more),
    ):
        with pytest.raises(
            TypeError, match=r"no sample_weight=; pass item_weights=, one per document; to weight lists, average"
        ):
            call(scores, labels, "AP", sample_weight=[1.0])
    with pytest.raises(TypeError, match="no sample_weight=; pass weights=, one per list, or item_weights="):
        rs.ListNetLoss()(scores, labels, sample_weight=[1.0])


def test_lists_are_told_by_ids_in_any_order_or_by_sizes():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9, 12)
    offsets, n = np.concatenate([[0], sizes.cumsum()]), int(sizes.sum())
    scores, labels, diversity_groups = rng.normal(size=n).round(1), rng.integers(0, 3, n), rng.integers(0, 4, n)
    more = {
        "docids": np.array([f"d{i}" for i in range(n)]),
        "judged": rng.random(n) < 0.9,
        "diversity_groups": diversity_groups,
    }
    measures = ["AP", "nDCG@3", "diverse_nDCG@2", "Bpref"]
    expected = rs.evaluate(scores, labels, measures, offsets=offsets, ties="docid", **more)
    found = rs.evaluate(scores, labels, measures, group=sizes, ties="docid", **more)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    names = np.array([f"q{i}" for i in rng.permutation(12)])
    rows = rng.permutation(n)
    qid = np.repeat(names, sizes)[rows]
    shuffled = {name: each[rows] for name, each in more.items()}
    kinds = (np.asarray, torch.tensor, list)
    for kind in kinds:
        found = rs.evaluate(
            kind(scores[rows]), kind(labels[rows]), measures, qid=qid.tolist(), ties="docid", **shuffled
        )
        by_name = dict(zip(names, range(12), strict=True))
        order = [by_name[name] for name in dict.fromkeys(qid)]  # lists come by first appearance
        assert all(torch.equal(found[name], expected[name][order]) for name in expected)


def test_ids_of_lists_that_fit_nothing_are_refused():
    scores, labels = torch.tensor([0.3, 0.2, 0.1]), torch.tensor([0, 1, 1])
    for wrong, said in (
        ({"qid": [1, 2]}, r"one entry per document, with scores \[documents\]; got \(2,\) and \(3,\)"),
        ({"qid": [1, 1, float("nan")]}, "qid must not be missing; that of document 2 is"),
        ({"group": [2, 2]}, "add up to 3 documents; got 2 of sum 4"),
        ({"group": [2**62, 2**62, 2**62, 2**62 + 3]}, "add up to 3 documents; got 4 of sum 1.8"),
        ({"group": ["2", "1"]}, "add up to 3 documents; got 2, such as"),
        ({"qid": [1, 1, 2], "group": [2, 1]}, "not both"),
        (
            {"qid": [1, 2, 1], "diversity_groups": ["a", float("nan"), "b"]},
            "diversity_groups must not be missing; that of document 1 is",
        ),
        ({"qid": [1, 2, 1], "docids": ["a", "b"]}, r"docids must be one per document, shape \(3,\); got \(2,\)"),
        ({"qid": [1, 1, 2], "offsets": [0, 2, 3]}, "pass only one of qid or group, where, and offsets"),
    ):
        with pytest.raises(ValueError, match=said):
            rs.evaluate(scores, labels, "AP", **wrong)
    for wrong in ([0, 1], [0, 1, 1, 1], 0, [[0, 1, 1]]):
        with pytest.raises(ValueError, match="labels must be one per document"):
            rs.evaluate(scores, wrong, "AP", qid=[1, 2, 1])
    with pytest.raises(ValueError, match="one entry per document"):
        rs.evaluate(scores[None], labels[None], "AP", qid=[1])
    assert rs.evaluate(scores, labels, "AP", qid=[1, "1", 1])["AP"].tolist() == [0.5, 1.0]
    assert rs.evaluate(scores, labels, "AP", group=[2, 0, 1])["AP"].tolist() == [0.5, 0.0, 1.0]


CUT = [kind for kind in _REGISTRY.values() if kind._looks_at_cutoff and kind is not WTA]  # which has cut-off 1
NEEDS = {"ERU": {"d": 3, "half_life": 5}, "nERU": {"d": 3, "half_life": 5}, "pAUC": {"high": 0.5}}


@pytest.mark.parametrize("kind", CUT, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_greatest_cut_off_is_none_and_a_greater_one_is_refused_by_name(kind, dtype):
    """Of each measure that has one, and of P what it divides by."""
    more, name = NEEDS.get(kind.__name__, {}), kind.__name__
    scores, labels = torch.randn(3, 6, dtype=dtype), torch.tensor([[1, 0, 2, 0, 1, 0]] * 3)
    given = {"diversity_groups": torch.tensor([[0, 1, 2, 0, 1, 2]] * 3)} if kind.takes_groups else {}
    greatest, whole = (kind(cutoff=cutoff, **more)(scores, labels, **given) for cutoff in (2**31 - 1, 6))
    torch.testing.assert_close(greatest * ((2**31 - 1) / 6 if name == "P" else 1), whole, rtol=1e-12, atol=0)
    for cutoff in (2**31, 2**53, 2**63, 10**20, 10**5000):
        with pytest.raises(ValueError, match=rf"the cut-off of {name} must be an integer from 1 to 2147483647, got "):
            kind(cutoff=cutoff, **more)
    if not more:
        with pytest.raises(
            ValueError,
            match=rf"the cut-off of {name} must be an integer from 1 to 2147483647, got 9{{20}}",
        ):
            parse_measure(f"{name}@{'9' * 20}")
        with pytest.raises(ValueError, match=rf"the cut-off of {name} must be an integer from 1 to 2147483647"):
            rs.StructuredHingeLoss(f"{name}@{'9' * 20}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ERR(max_grade=1e300)", "max_grade of ERR must be a finite number above 0 and at most 1023"),
        ("F(beta=1e300)", r"beta of F must be a finite number above 0 and at most 9007199254740992"),
        (f"RBP(p={10**20})", r"patience of RBP must be at most 2\^53 in size, got 1(0{20})"),
        (f"AP(rel={-(10**20)})", r"min_relevant of AP must be at most 2\^53 in size"),
    ],
)
def test_numbers_that_nothing_can_be_reckoned_with_are_refused(name, said):
    with pytest.raises(ValueError, match=said):
        parse_measure(name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rs.LambdaLoss("nDCG@10", sigma=10**20),
        lambda: rs.SmoothLoss("nDCG@10", sigma=10**20),
        lambda: rs.CircleLoss(gamma=10**400),
        lambda: rs.ClassificationLoss(relevant_weight=1e300),
        lambda: rs.ClassificationLoss(min_relevant=10**20),
        lambda: rs.OrdinalLoss(grades=10**20),
        lambda: rs.ExposureLoss(samples=10**20),
        lambda: rs.Positional("i^-1/0"),
        lambda: rs.Positional("i^-1", cutoff=10**20),
        lambda: rs.Positional((10**400,)),
        lambda: rs.StructuredHingeLoss("nDCG@10", feature_map="positional@" + "9" * 20),
        lambda: rs.LinearRanker(C=10**400).fit([[1.0], [0.0]], [1, 0], [0, 0]),
        lambda: rs.MLPRanker(learning_rate=10**400).fit([[1.0], [0.0]], [1, 0], [0, 0]),
        lambda: rs.MLPScorer(3, hidden=-1),
    ],
)
def test_numbers_of_losses_maps_and_rankers_too(make):
    with pytest.raises(ValueError, match=r"must be|divides by 0"):
        make()
