"""Rankings under rules: against every ranking of short lists, against the programme on long ones, and what is refused."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankstruct as rs
from rankstruct.constraints import Rule, relaxation
from rankstruct.constraints.documents import Documents
from rankstruct.constraints.program import _gains, _Program
from rankstruct.constraints.ranking import PageRanker

RANKINGS = {
    n: [np.array([*itertools.permutations(range(n), m)], int).reshape(-1 if m else 1, m) for m in range(n + 1)]
    for n in range(6)
}
GREEDY, INFEASIBLE, PROGRAM = 0, 1, 2


def feasible(columns, rules, positions, length):
    """The longest rankings that keep all rules, `[rankings, documents]`, from the definition; None if there is none."""
    n = len(positions)
    for m in range(min(n, length), -1, -1):
        rankings = RANKINGS[n][m]
        keep = np.ones(len(rankings), bool)
        for rule in rules:
            groups = columns[rule.column]
            for group in [int(rule.value)] if rule.value is not None else np.unique(groups[groups >= 0]):
                count = (groups[rankings[:, : rule.prefix]] == group).sum(1)
                keep &= (count >= rule.lower) & (count <= (n if rule.upper is None else rule.upper))
        for document in np.flatnonzero(positions):
            at = positions[document]
            keep &= (rankings[:, at - 1] == document) if at <= m else False
        if keep.any():
            return rankings[keep]
    return None


@st.composite
def problems(draw):
    n = draw(st.integers(1, 5))
    groups = st.lists(st.integers(-1, 3), min_size=n, max_size=n)
    fine = np.array(draw(groups))
    coarse = np.where(fine < 0, -1, fine // 2) if draw(st.booleans()) else np.array(draw(groups))
    prefix = draw(st.none() | st.integers(1, n + 1))
    kinds = draw(st.sampled_from(["<=", ">=", "both"]))
    rules = []
    for _ in range(draw(st.integers(1, 3))):
        within = prefix if draw(st.booleans()) else draw(st.integers(1, n + 1))
        at = "" if within is None else f" @ {within}"
        kind = draw(st.sampled_from(["<=", ">="])) if kinds == "both" else kinds
        column = draw(st.sampled_from(["fine", "fine", "coarse"]))
        value = f"={draw(st.integers(0, 3))}" if kind == ">=" or draw(st.booleans()) else ""
        count = draw(st.integers(0, 2 if within is None else min(2, within)))
        rules.append(f"{column}{value} {kind} {count}{at}")
    positions = np.zeros(n, int)
    for document in draw(st.sets(st.integers(0, n - 1), max_size=2)):
        positions[document] = draw(st.integers(1, n))
    scores = draw(st.lists(st.sampled_from([-1e3, -0.5, 0.0, 0.25, 1.0, 3.0]), min_size=n, max_size=n))
    return np.array(scores), {"fine": fine, "coarse": coarse}, rules, positions, draw(st.integers(1, n + 1))


def contradict(lower, upper):
    alike = lower.column == upper.column and upper.value in (None, lower.value) and upper.upper is not None
    return alike and (upper.prefix or 99) >= (lower.prefix or 99) and upper.upper < lower.lower


def by_programme(scores, rules, weights):
    """The ranks of the programme alone, with all documents and no relaxation."""
    whole = _Program(scores, rules, None, len(weights))
    gains = np.outer(_gains(scores[whole.kept]), weights[: whole.end])
    found = whole.solve(gains, 60.0, np.ones(gains.shape, bool))
    return whole.ranked(whole.page(found.x))


def known(groups):
    return np.where(groups < 0, np.nan, groups)


@pytest.mark.filterwarnings("ignore:no document has")
@settings(max_examples=100, deadline=None)
@given(problems())
def test_no_ranking_that_keeps_the_rules_is_better(problem):
    scores, columns, texts, positions, length = problem
    parsed = [Rule.parse(text) for text in texts]
    if any(contradict(*pair) for pair in itertools.permutations(parsed, 2)):
        with pytest.raises(ValueError, match="contradict"):
            rs.Constraints(*texts)
        return
    constraints = rs.Constraints(*texts)
    given_columns = {name: known(groups) for name, groups in columns.items()}
    documents = Documents.of(scores, constraints, given_columns, {})
    outcome = int(PageRanker(documents, positions, length).greedy(scores)[1][0])
    rankings = feasible(columns, constraints.rules, positions, length)

    def rank():
        return rs.rank_under(scores, constraints, given_columns, k=length, positions=positions).numpy()

    if rankings is None:
        with pytest.raises(ValueError, match="no ranking of list 0 keeps"):
            rank()
        return
    assert outcome != INFEASIBLE
    ranks = rank()
    order = np.argsort(np.where(ranks > 0, ranks, 99), kind="stable")[: (ranks > 0).sum()]
    assert (rankings == order).all(1).any()
    m = rankings.shape[1]
    log2, uneven = 1 / np.log2(2 + np.arange(m)), np.linspace(2, 1, m) ** 3
    ends = [min(m, rule.prefix or m) for rule in constraints.rules]
    for weights in (
        [log2, uneven, np.ones(m)] if outcome == GREEDY else [log2 * (np.arange(m) < max([*ends, *positions]))]
    ):
        best = (scores[rankings] * weights).sum(1).max()
        assert (scores[order] * weights).sum() == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(
    "texts",
    [
        ["seller <= 2 @ 12", "seller=3 >= 1 @ 12", "category=1 <= 6 @ 12", "category=0 >= 5 @ 12"],
        ["seller <= 1 @ 6", "seller <= 3 @ 12"],
        ["category=1 >= 1 @ 3", "category=1 >= 4 @ 8", "category=0 >= 3 @ 12"],
    ],
)
def test_long_lists_equal_the_programme(texts):
    rng = np.random.default_rng(len(texts))
    seller = rng.integers(0, 12, (6, 40))
    columns = {"seller": seller, "category": seller // 6}
    constraints, scores = rs.Constraints(*texts), rng.normal(size=(6, 40))
    ranks = rs.rank_under(scores, constraints, columns, k=12).numpy()
    assert (
        PageRanker(Documents.of(scores, constraints, columns, {}), None, 12).greedy(scores.ravel())[1] == GREEDY
    ).all()
    weights = 1 / np.log2(2 + np.arange(12))
    documents = Documents.of(scores, constraints, columns, {})
    for index in range(6):
        rules = documents.rules_of(slice(40 * index, 40 * index + 40))
        best = by_programme(scores[index], rules, weights)
        worth = [scores[index][each > 0] @ weights[each[each > 0] - 1] for each in (ranks[index], best)]
        assert worth[0] == pytest.approx(worth[1], abs=1e-7)
    assert not any(rs.constraints.violations(ranks, constraints, columns).values())


def test_padded_flat_and_grouped_lists_are_ranked_alike():
    rng = np.random.default_rng(0)
    scores, seller = torch.from_numpy(rng.normal(size=(3, 8))), torch.from_numpy(rng.integers(0, 3, (3, 8)))
    where = torch.arange(8) < torch.tensor([[8], [0], [5]])
    rules = rs.Constraints("seller <= 1 @ 3")
    padded = rs.rank_under(scores.masked_fill(~where, torch.nan), rules, {"seller": seller}, where=where)
    assert (padded[~where] == 0).all()
    flat = rs.rank_under(scores[where], rules, {"seller": seller[where]}, offsets=[0, 8, 8, 13])
    assert torch.equal(flat, padded[where])
    shuffled = torch.from_numpy(rng.permutation(13))
    qid = torch.tensor([7] * 8 + [5] * 5)[shuffled]
    by_id = rs.rank_under(scores[where][shuffled], rules, {"seller": seller[where][shuffled]}, qid=qid)
    assert torch.equal(by_id, flat[shuffled])
    assert torch.equal(
        rs.rank_under(scores[where].float(), rules, {"seller": seller[where]}, group=[8, 5]).double(), flat.double()
    )


def test_names_and_missing_groups():
    rules = rs.Constraints("host <= 1 @ 3")
    named = rs.rank_under([5, 4, 3, 2], rules, {"host": ["a", "a", None, ""]})
    assert named.tolist() == [1, 4, 2, 3]  # documents without a host are not counted
    assert rs.rank_under([5, 4, 3, 2], rules, {"host": [1.0, 1.0, float("nan"), float("nan")]}).tolist() == [1, 4, 2, 3]
    flag = rs.rank_under([5, 4, 3], rs.Constraints("new=true >= 1 @ 1"), {"new": [False, False, True]})
    assert flag.tolist() == [2, 3, 1]


@pytest.mark.parametrize(
    "new", [[True, None, False], [1.0, None, 0.0], np.array([1, None, 0], object), [b"1", b"", b"0"]]
)
@pytest.mark.parametrize("value", ["1", "true"])
def test_numbers_and_flags_next_to_missing_cells_are_found(new, value):
    if value == "true" and isinstance(new[0], bytes):
        return  # a name
    ranks = rs.rank_under([5, 4, 3], rs.Constraints(f"new={value} <= 0 @ 2"), {"new": new})
    assert ranks.tolist() == [3, 1, 2]


def test_groups_beyond_64_bits_are_groups():
    for host in (np.array([2**63, 2**63, 1], np.uint64), np.array([-(2**63), -(2**63), 1])):
        assert rs.rank_under([5, 4, 3], rs.Constraints("host <= 1 @ 2"), {"host": host}).tolist() == [1, 3, 2]
    with pytest.raises(ValueError, match="names or whole numbers, got inf"):
        rs.rank_under([5, 4, 3], rs.Constraints("host <= 1 @ 2"), {"host": np.array([np.inf, np.inf, 1])})


def test_numbers_of_rules_may_be_larger_than_any_list():
    columns = {"a": [1, 1, 2]}
    for many in (2**32 + 1, 10**30):
        with pytest.raises(ValueError, match="the list has 2 such documents"):
            rs.rank_under([5, 4, 3], rs.Constraints(f"a=1 >= {many}"), columns)
        assert rs.rank_under([5, 4, 3], rs.Constraints(f"a <= {many} @ 2"), columns).tolist() == [1, 2, 3]
        assert rs.rank_under([5, 4, 3], rs.Constraints(f"a <= 1 @ {many}"), columns, k=many).tolist() == [1, 0, 2]
    assert rs.rank_under([5, 4, 3], rs.Constraints("a <= 1 @ 2"), columns, k=np.int64(2)).tolist() == [1, 0, 2]


@pytest.mark.parametrize("outlier", [1e9, -1e9, 1.7e308, -1.7e308, np.inf, -np.inf])
def test_outliers_leave_the_order_of_the_others(outlier):
    rules = rs.Constraints("g <= 1 @ 2", "h=1 >= 1 @ 1", "g <= 3 @ 4")
    ranks = rs.rank_under([outlier, 1.0, 2.0, 3.0], rules, {"g": [1, 2, 3, 4], "h": [0, 1, 1, 1]})
    assert ranks.tolist() == ([2, 4, 3, 1] if outlier > 0 else [4, 3, 2, 1])


def test_infinite_scores_are_ordered():
    ranks = rs.rank_under([-np.inf, np.inf, 0.0], rs.Constraints("a <= 1 @ 2"), {"a": [0, 1, 1]})
    assert ranks.tolist() == [2, 1, 3]


def test_a_ranking_ends_where_caps_leave_no_document():
    assert rs.rank_under([3, 2, 1], rs.Constraints("a <= 1"), {"a": [0, 0, 0]}).tolist() == [1, 0, 0]
    assert rs.rank_under([], rs.Constraints("a <= 1"), {"a": []}).tolist() == []


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["new=1 >= 2 @ 3"], "'new=1 >= 2 @ 3': the list has 1 such document"),
        (["seller <= 1 @ 3", "new=1 >= 1 @ 1", "kind=5 >= 1 @ 1"], "'new=1 >= 1 @ 1' and 'kind=5 >= 1 @ 1' together"),
        (["seller <= 1 @ 3", "kind=5 >= 3 @ 4", "kind=6 >= 1 @ 1"], "'seller <= 1 @ 3' and 'kind=5 >= 3 @ 4' together"),
    ],
)
def test_infeasible_rules_are_named(texts, told):
    columns = {"new": [0, 0, 0, 1], "kind": [5, 5, 5, 6], "seller": [1, 1, 1, 2]}
    with pytest.raises(ValueError) as error:
        rs.rank_under([4, 3, 2, 1], rs.Constraints(*texts), columns)
    assert str(error.value) == f"no ranking of list 0 keeps {told}"


def test_given_positions_in_conflict_are_named():
    with pytest.raises(ValueError, match="keeps 'a <= 1 @ 2' and the given positions together"):
        rs.rank_under([3, 2, 1], rs.Constraints("a <= 1 @ 2"), {"a": [0, 0, 1]}, positions=[1, 2, 0])


@pytest.mark.parametrize(
    "texts",
    [
        ["seller <= 2 @ 8", "genre <= 3 @ 8", "new=1 >= 2 @ 8"],
        ["seller <= 1 @ 3", "genre <= 2 @ 5", "genre=1 >= 1 @ 3", "new=1 >= 3 @ 9", "new=1 <= 1 @ 4"],
        ["seller <= 1 @ 4", "seller <= 2 @ 8", "seller=1 >= 1 @ 2", "seller=2 >= 2 @ 8"],  # an assignment problem
    ],
)
def test_relaxation_and_assignment_equal_the_programme(texts):
    weights, constraints = 1 / np.log2(2 + np.arange(10)), rs.Constraints(*texts)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        scores = rng.normal(size=60).round(2)
        columns = {name: rng.integers(0, many, 60) for name, many in (("seller", 15), ("genre", 4), ("new", 2))}
        certified = rs.constraints.rank_certified(scores, constraints, columns, k=10, time_limit=0)
        ranks = rs.rank_under(scores, constraints, columns, k=10).numpy()
        rules = Documents.of(scores, constraints, columns, {}).rules_of(slice(0, 60))
        best = by_programme(scores, rules, weights)
        within = max(rule.prefix for rule in constraints.rules)
        values = []
        for each in (best, ranks, certified.ranks.numpy()):
            assert not any(rs.constraints.violations(each, constraints, columns).values())
            shown = (each > 0) & (each <= within)
            values.append((scores[shown] - scores.min()) @ weights[each[shown] - 1])
        gap = certified.gaps.item()
        assert values[1] == pytest.approx(values[0], abs=1e-6)
        assert values[0] * (1 - gap) - 1e-6 <= values[2] <= values[0] + 1e-6
        assert gap < 0.02


#: Of three documents each two exclude each other: half of each would be worth more than one.
TRIANGLE = {"a": [1, 1, 0, 0, 0, 0], "b": [0, 1, 1, 0, 0, 0], "c": [1, 0, 1, 0, 0, 0]}
PAIRS = rs.Constraints("a=1 <= 1 @ 3", "b=1 <= 1 @ 3", "c=1 <= 1 @ 3")


def test_time_that_ends_is_told():
    scores = [3.0, 3.0, 3.0, 1.0, 1.0, 0.0]
    assert rs.rank_under(scores, PAIRS, TRIANGLE).tolist() == [1, 4, 5, 2, 3, 6]
    assert rs.constraints.rank_certified(scores, PAIRS, TRIANGLE).gaps.item() == 0
    ranks, gaps = rs.constraints.rank_certified(scores, PAIRS, TRIANGLE, time_limit=0)
    assert ranks.tolist() == [1, 4, 5, 2, 3, 6]
    assert 0.1 < gaps.item() < 0.3
    with pytest.warns(
        UserWarning, match=r"1 of 1 rankings may not be the best: .* within \d+\.\d\d% of the optimum after"
    ):
        rs.rank_under(scores, PAIRS, TRIANGLE, time_limit=0)


def test_a_gap_of_rounding_is_none():
    scores = [
        -0.6400329264598891,
        0.24274311908777374,
        0.5661686719439202,
        0.8421669832699119,
        -1.0094169004081426,
        1.6625542589125273,
    ]
    columns = {"a": ["c", None, "a", "c", "a", "b"], "b": ["b", "a", "b", "b", "c", "a"]}
    rules = rs.Constraints("a <= 1 @ 5", "b=b >= 1 @ 1", "b=a >= 0 @ 7")
    ranks, gaps = rs.constraints.rank_certified(scores, rules, columns, k=3, time_limit=0)  # 7e-10 before rounding
    assert ranks.tolist() == [0, 0, 3, 1, 0, 2]
    assert gaps.item() == 0


def test_without_a_repaired_page_a_programme_finds_one(monkeypatch):
    monkeypatch.setattr(relaxation.Relaxation, "repaired", lambda *given: None)
    assert rs.rank_under([3.0, 2.9, 2.8, 1.5, 1.0, 0.0], PAIRS, TRIANGLE).tolist() == [1, 4, 5, 2, 3, 6]


def test_short_pages_and_infeasible_rules_of_long_lists():
    rng = np.random.default_rng(0)
    scores, columns = rng.normal(size=1000), {"seller": rng.integers(0, 4, 1000), "topic": np.arange(1000) % 3}
    caps = rs.Constraints("seller <= 1 @ 20", "topic <= 2 @ 20")
    ranks, gaps = rs.constraints.rank_certified(scores, caps, columns, k=20, time_limit=0)
    best = [scores[columns["seller"] == each].max() for each in range(4)]
    assert ranks.max() == 4
    assert gaps.item() < 0.01
    assert scores[np.argsort(ranks.numpy())[-4:]].sum() <= sum(best) + 1e-9
    with pytest.raises(ValueError, match="keeps 'seller <= 1 @ 20' and 'topic=1 >= 5 @ 20' together"):
        rs.rank_under(scores, rs.Constraints("seller <= 1 @ 20", "topic=1 >= 5 @ 20"), columns, k=20)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"columns": {"sellers": [0, 1]}},
            "the rules are about 'seller', which is not in columns; did you mean sellers",
        ),
        ({"columns": {"seller": [0]}}, "'seller' must have one entry per document"),
        ({"columns": {"seller": [0.5, 1]}}, "names or whole numbers"),
        ({"columns": [0, 1]}, "columns must be a mapping"),
        ({"scores": [1.0, float("nan")]}, "scores must not be NaN; that of document 1 is"),
        ({"constraints": {"seller": 1}}, 'constraints must be rules, such as "seller <= 2 @ 10" or a list of these'),
        (
            {"constraints": rs.Constraints("seller=red <= 1")},
            "whole numbers, and the rule 'seller=red <= 1' names 'red'",
        ),
        ({"k": 0}, "k must be an integer from 1"),
        ({"time_limit": -1}, "time_limit must be a number of at least 0, got -1"),
        ({"positions": [0]}, "positions must have one entry per document"),
        ({"positions": [-1, 0]}, "positions must be whole numbers >= 0"),
        ({"positions": [1, 1]}, "no ranking of list 0 keeps the given positions"),
        ({"sizes": [2]}, "unexpected keyword argument 'sizes'"),
    ],
)
def test_bad_input_is_refused(change, told):
    call = {"scores": [2.0, 1.0], "constraints": rs.Constraints("seller <= 1"), "columns": {"seller": [0, 1]}} | change
    with pytest.raises((TypeError, ValueError), match=told):
        rs.rank_under(call.pop("scores"), call.pop("constraints"), call.pop("columns"), **call)


def test_rules_are_texts_wherever_they_are_taken():
    scores, columns, text = [3.0, 2.0, 1.0], {"seller": ["a", "a", "b"]}, "seller <= 1 @ 2"
    module = rs.constraints
    calls = {
        "rank_under": lambda given: rs.rank_under(scores, given, columns),
        "rank_certified": lambda given: module.rank_certified(scores, given, columns).ranks,
        "evaluate_under": lambda given: module.evaluate_under(scores, [1, 2, 1], "DCG@2", given, columns)["DCG@2"],
        "violations": lambda given: torch.tensor([*module.violations([1, 2, 3], given, columns).values()]),
    }
    for name, call in calls.items():
        expected = call(rs.Constraints(text))
        for rules in (text, [text], (text, "seller=b <= 1 @ 2"), Rule.parse(text)):
            assert torch.equal(call(rules)[:1], expected[:1]), (name, rules)
    with pytest.raises(TypeError, match="constraints must be rules, such as"):
        module.violations([1, 2, 3], None, columns)


def test_warnings_point_at_the_line_of_the_caller():
    columns, module = {"seller": [1, 2]}, rs.constraints
    for call in (
        lambda: rs.rank_under([2.0, 1.0], "seller=3 <= 1", columns),
        lambda: module.evaluate_under([2.0, 1.0], [1, 0], "P@2", "seller=3 <= 1", columns),
        lambda: module.violations([2, 1], "seller=3 <= 1", columns),
        lambda: module.passes_fair_test([2, 1], ["a", "b"], "c", share=0.5),
    ):
        with pytest.warns(UserWarning, match="no document has") as told:
            call()
        assert (told[0].filename, told[0].lineno) == (__file__, call.__code__.co_firstlineno)


def test_a_cap_on_a_group_that_no_document_has_is_told():
    with pytest.warns(
        UserWarning, match="no document has seller=anne, as in the rule 'seller=anne <= 1'; did you mean ann"
    ):
        rs.rank_under([2.0, 1.0], rs.Constraints("seller=anne <= 1"), {"seller": ["ann", "bob"]})
    with pytest.warns(UserWarning, match="no document has seller=3"):
        rs.constraints.violations([1, 2], rs.Constraints("seller=3 <= 1", "seller=1 <= 1"), {"seller": [1, 2]})


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_a_data_frame(library):
    frame = pytest.importorskip(library).DataFrame({"seller": ["a", "a", None], "new": [0, 0, 1]})
    rules = rs.Constraints("seller <= 1 @ 2", "new=1 <= 1")
    assert rs.rank_under([3.0, 2.0, 1.0], rules, frame).tolist() == [1, 3, 2]
    with pytest.raises(ValueError, match="'sellers', which is not in columns; did you mean seller"):
        rs.rank_under([3.0, 2.0, 1.0], rs.Constraints("sellers <= 1"), frame)


def test_ranking_within_compiled_code():
    scores, groups = torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1, 1, 2, 3])

    def ranks(scores):
        under = rs.rank_under(2 * scores, rs.Constraints("host <= 1 @ 2"), {"host": groups}, k=2)
        return under + 10 * rs.rerank_diverse(2 * scores, groups, 2)

    assert torch.compile(ranks, backend="eager")(scores).tolist() == ranks(scores).tolist() == [11, 0, 22, 0]
