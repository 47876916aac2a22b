"""The structured hinge under rules: against every page of short lists, linear programming on long ones, and what is refused."""

import copy
import itertools
import pickle
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn
import torch
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold

import rankstruct as rs
from rankstruct.constraints import page_bound

REFERENCES = ["ideal", "ideal-tied", "predicted"]
RULES = rs.Constraints("seller <= 1 @ 3", "kind=1 >= 1 @ 3")
COLUMNS = {"seller": torch.tensor([0, 0, 1, 1, 2]), "kind": torch.tensor([0, 0, 1, 1, 0])}
SCORES, LABELS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.2]), torch.tensor([0, 1, 0, 2, 1])


@cache
def orders(n, m):
    return np.array([*itertools.permutations(range(n), m)], int).reshape(-1 if m else 1, m)


def pages(columns, rules, length, n):
    """The longest pages that keep all rules, `[pages, documents]`, from the definition; None if there is none."""
    for m in range(min(n, length), -1, -1):
        found = orders(n, m)
        keep = np.ones(len(found), bool)
        for rule in rules:
            groups = columns[rule.column]
            for group in [int(rule.value)] if rule.value is not None else np.unique(groups[groups >= 0]):
                count = (groups[found[:, : rule.prefix]] == group).sum(1)
                keep &= (count >= rule.lower) & (count <= (n if rule.upper is None else rule.upper))
        if keep.any():
            return found[keep]
    return None


def draw_hard(rng):
    """A list whose groups overlap, and rules about several prefixes."""
    n = int(rng.choice([3, 4, 5], p=[0.2, 0.5, 0.3]))
    columns = {name: rng.integers(-1, 3, n) for name in "abc"}
    k = int(rng.integers(2, 5))
    rules = []
    for prefix in [k, *rng.integers(1, k + 1, int(rng.integers(1, 4)))]:
        relation, value = rng.choice(["<=", "<=", ">=", "=="]), f"={rng.integers(0, 2)}"
        value = "" if relation == "<=" and rng.random() < 0.7 else value
        rules.append(f"{rng.choice(list('abc'))}{value} {relation} {min(prefix, rng.choice([0, 1, 1, 2]))} @ {prefix}")
    grades = rng.integers(0, 5 if rng.random() < 0.5 else 2, n) / rng.choice([1, 2])
    return columns, k, k, rules, grades, np.round(rng.normal(size=n) * rng.choice([0.3, 2]), int(rng.choice([0, 9])))


def draw(rng):
    n = int(rng.choice([1, 3, 4, 5, 6], p=[0.02, 0.13, 0.3, 0.3, 0.25]))
    fine = rng.integers(-1, 5, n)
    columns = {"fine": fine, "coarse": np.where(fine < 0, -1, fine // 2), "top": np.where(fine < 0, -1, fine // 4)}
    k = int(rng.integers(1, 6))
    length = k if rng.random() < 0.7 else k + 1
    rules = []
    for _ in range(int(rng.integers(1, 4))):
        column, relation = rng.choice(["fine", "fine", "coarse", "top"]), rng.choice(["<=", "<=", ">=", "=="])
        value = f"={rng.integers(0, 3)}" if relation != "<=" or rng.random() < 0.3 else ""
        rules.append(f"{column}{value} {relation} {min(length, rng.choice([0, 1, 1, 2]))} @ {length}")
    grades = rng.integers(0, 5 if rng.random() < 0.5 else 2, n)
    scores = rng.normal(size=n) * rng.choice([0.05, 0.3, 1, 5])
    return columns, k, length, rules, grades, np.round(scores * 2) / 2 if rng.random() < 0.35 else scores


def values(measure, found, grades, k):
    """The measure of pages."""
    m = min(found.shape[1], k)
    if isinstance(measure, rs.RR):
        hit = grades[found[:, :m]] > 0
        return np.where(hit.any(1), 1 / (1 + hit.argmax(1)), 0.0) if m else np.zeros(len(found))
    gains = measure.document_gains(torch.tensor(grades)).double().numpy()
    return gains[found[:, :m]] @ measure.unchecked_weights(max(m, 1)).numpy()[:m]


def first_by_gain(measure, found, grades):
    """The index of the page that takes documents by gain, equal ones in input order."""
    gains = (grades > 0) * 1.0 if isinstance(measure, rs.RR) else measure.document_gains(torch.tensor(grades)).numpy()
    sets, page = [frozenset(each) for each in found], []
    for document in np.argsort(-gains, kind="stable"):
        if any({*page, document} <= each for each in sets):
            page.append(document)
    return np.flatnonzero((found == np.array(page, int)).all(1))


def check(rng, reference, draw=draw):
    """Compare one list with all its pages; returns whether it has several."""
    columns, k, length, texts, grades, scores = draw(rng)
    try:
        rules = rs.Constraints(*texts)
    except ValueError:  # they contradict each other
        return False
    name = rng.choice([f"nDCG@{k}", f"DCG@{k}", f"P@{k}", f"RR@{k}", f"RBP@{k}", f"ERU(d=1,half_life=2)@{k}"])
    measure, dtype = rs.parse_measure(str(name)), [torch.float32, torch.float64][rng.integers(2)]
    leaf = torch.tensor(scores, dtype=dtype, requires_grad=True)
    scores = leaf.detach().double().numpy()
    given = {name: np.where(groups < 0, np.nan, groups) for name, groups in columns.items()}
    loss = rs.StructuredHingeLoss(measure, constraints=rules, reference=reference)
    found = pages(columns, rules.rules, length, len(scores))
    if found is None:
        with pytest.raises(ValueError, match="no ranking of list 0 keeps"):
            loss(leaf, torch.tensor(grades), columns=given)
        return False
    value = loss(leaf, torch.tensor(grades), columns=given)
    value.backward()
    m = min(found.shape[1], k)
    measured, c = values(measure, found, grades, k), np.arange(1, m + 1) ** -0.5
    best = measured.max()
    regret = (best - measured) / (best if name.startswith("nDCG") and best > 0 else 1)
    if regret.max() < 1e-12:
        assert value == 0
        assert not leaf.grad.any()
        return False
    by_score = scores[found[:, :m]] @ c
    psi = np.zeros((len(found), len(scores)))
    for i in range(m):
        psi[np.arange(len(found)), found[:, i]] += c[i]
    bests = np.flatnonzero(regret <= 1e-12)
    any_best = draw is draw_hard and reference != "predicted"  # whichever the loss chose
    references = {
        "ideal": bests if any_best else first_by_gain(measure, found, grades),
        "ideal-tied": bests if any_best else bests[by_score[bests] >= by_score[bests].max() - 1e-12],
        "predicted": np.flatnonzero(by_score >= by_score.max() - 1e-12),
    }[reference]
    tolerance = (1e-9 if dtype == torch.float64 else 1e-5) * max(1, np.abs(scores).max())
    total = regret + by_score
    expected = total.max() - by_score[references]
    assert np.abs(value.item() - (expected if any_best else expected[:1])).min() <= tolerance
    maximisers = psi[total >= total.max() - 1e-9 * max(1, np.abs(scores).max())]
    differences = maximisers[:, None] - psi[references]
    assert (np.abs(differences - leaf.grad.double().numpy()).max(-1) < 1e-6).any()
    if draw is draw_hard:
        return True
    ranks = rs.rank_under(scores, rules, given, k=length).numpy()
    shown = np.argsort(np.where(ranks > 0, ranks, 99), kind="stable")[: found.shape[1]]
    assert value.item() >= regret[(found == shown).all(1)][0] - tolerance
    return True


@pytest.mark.filterwarnings("ignore:no document has")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_no_page_is_more_violated(seed):
    rng = np.random.default_rng(seed)
    assert sum(check(rng, REFERENCES[i % 3]) for i in range(300)) > 60


@pytest.mark.filterwarnings("ignore:no document has")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_no_page_is_more_violated_where_groups_overlap(seed):
    rng = np.random.default_rng(seed)
    assert sum(check(rng, REFERENCES[i % 3], draw_hard) for i in range(60)) > 10


def test_a_page_is_found_where_a_mixture_is_better(monkeypatch):
    scores, labels = torch.tensor([0.5, 0, 1, 1.5, 0.5, 1.5, 0.5]), torch.tensor([1, 0, 0, 0, 0, 1, 1])
    kinds = {"a": [0, 3, 3, 1, 1, 2, 2], "b": [1, 0, 3, 2, 0, 3, 2], "c": [0, 2, 2, 0, 3, 2, 1]}
    columns = {name: np.array(groups) for name, groups in kinds.items()}
    rules = rs.Constraints(*(f"{name} <= 1 @ 3" for name in kinds))
    loss = rs.StructuredHingeLoss("DCG@3", constraints=rules, reference="predicted")
    every = pages(columns, rules.rules, 3, 7)
    gained = labels.numpy()[every] @ (1 / np.log2([2, 3, 4]))
    by_score = scores.numpy()[every] @ np.arange(1, 4) ** -0.5
    hinge = gained.max() + (by_score - gained).max() - by_score.max()
    assert loss(scores, labels, columns=columns).item() == pytest.approx(hinge, abs=1e-6)
    monkeypatch.setattr(page_bound, "_NODES", 0)
    with pytest.warns(UserWarning, match="the loss of 1 of 1 lists is an upper bound, by at most"):
        assert loss(scores, labels, columns=columns).item() > hinge + 1e-3


def flow_by_program(worth, rules, columns):
    """The largest sum of `worth` `[documents, ranks]` over pages, by linear programming."""
    n, ranks = worth.shape
    variables = np.arange(n * ranks)
    once = csr_array((np.ones(n * ranks), (variables // ranks, variables)))
    filled = csr_array((np.ones(n * ranks), (variables % ranks, variables)))
    rows, bounds = [once], [np.ones(n)]
    for rule in rules:
        groups = columns[rule.column]
        for group in [int(rule.value)] if rule.value is not None else np.unique(groups):
            members = csr_array(np.repeat(groups == group, ranks)[None].astype(float))
            rows += [-members] + ([] if rule.upper is None else [members])
            bounds += [[-rule.lower]] + ([] if rule.upper is None else [[rule.upper]])
    found = linprog(
        -worth.ravel(), vstack(rows), np.concatenate(bounds), filled, np.ones(ranks), (0, 1), method="highs"
    )
    return -found.fun


@pytest.mark.parametrize("name", ["nDCG@10", "DCG@5", "P@8"])
def test_long_lists_have_the_value_of_a_linear_programme(name):
    rng, measure = np.random.default_rng(len(name)), rs.parse_measure(name)
    k = measure.cutoff
    for n in (60, 120, 200):
        seller = rng.integers(0, 20, n)
        columns = {"seller": seller, "kind": seller % 4}
        rules = rs.Constraints(f"seller <= 2 @ {k}", f"kind=1 >= 2 @ {k}", f"kind <= {k // 2} @ {k}")
        labels, scores = rng.choice(5, n, p=[0.6, 0.2, 0.1, 0.06, 0.04]), rng.normal(size=n) * 0.2
        loss = rs.StructuredHingeLoss(name, constraints=rules, reference="predicted")
        found = loss(torch.tensor(scores), torch.tensor(labels), columns=columns).item()
        c, a = np.arange(1, k + 1) ** -0.5, measure.unchecked_weights(k).numpy()
        gains = np.outer(measure.document_gains(torch.tensor(labels)).double().numpy(), a)
        best = flow_by_program(gains, rules.rules, columns)
        unit = best if name.startswith("nDCG") else 1
        most = flow_by_program(np.outer(scores, c) - gains / unit, rules.rules, columns)
        by_score = flow_by_program(np.outer(scores, c), rules.rules, columns)
        assert found == pytest.approx(best / unit + most - by_score, abs=1e-7)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("name", ["nDCG@3", "RR@3"])
def test_one_cap_is_the_diverse_loss(name, reference):
    rng = np.random.default_rng(0)
    scores, labels = torch.tensor(rng.normal(size=(60, 25))), torch.tensor(rng.integers(0, 3, (60, 25)))
    groups, where = torch.tensor(rng.integers(0, 8, (60, 25))), torch.tensor(rng.random((60, 25)) < 0.8)
    options = {"reference": reference, "reduction": "none"}
    found = rs.StructuredHingeLoss(name, constraints=rs.Constraints("host <= 1 @ 3"), **options)
    expected = rs.StructuredHingeLoss(f"diverse_{name}", **options)
    torch.testing.assert_close(
        found(scores, labels, where=where, columns={"host": groups}),
        expected(scores, labels, where=where, diversity_groups=groups),
    )


@pytest.mark.parametrize("reference", REFERENCES)
def test_padded_flat_and_named_groups_are_alike(reference):
    rng = np.random.default_rng(1)
    scores, labels = torch.tensor(rng.normal(size=(4, 9))), torch.tensor(rng.integers(0, 3, (4, 9)))
    where = torch.arange(9) < torch.tensor([[9], [0], [6], [7]])
    seller = rng.integers(0, 3, (4, 9))
    loss = rs.StructuredHingeLoss(
        "nDCG@4", constraints=rs.Constraints("seller <= 2 @ 4"), reference=reference, reduction="none"
    )
    padded = loss(scores.masked_fill(~where, torch.nan), labels, where=where, columns={"seller": seller})
    assert padded[1] == 0
    flat = loss(
        scores[where], labels[where], offsets=[0, 9, 9, 15, 22], columns={"seller": torch.tensor(seller)[where]}
    )
    torch.testing.assert_close(flat, padded)
    names = np.array(["ann", "bob", ""])[seller]  # the last is no group, and has no cap
    spread = np.where(seller == 2, np.nan, seller * 2.0**50)
    torch.testing.assert_close(
        loss(scores, labels, columns={"seller": names}), loss(scores, labels, columns={"seller": spread})
    )
    assert loss(scores[:0], labels[:0], columns={"seller": seller[:0]}).shape == (0,)


def test_the_gradient_is_that_of_the_value():
    leaf = SCORES.double().requires_grad_()
    for name in ("nDCG@3", "RR@3"):
        for reference in REFERENCES:
            loss = rs.StructuredHingeLoss(name, constraints=RULES, reference=reference)
            assert torch.autograd.gradcheck(lambda scores, its=loss: its(scores, LABELS, columns=COLUMNS), leaf)


def test_fixed_reference_scores_give_a_bound_that_is_at_least_as_high():
    loss = rs.StructuredHingeLoss("nDCG@3", constraints=RULES, reference="predicted")
    own = loss(SCORES, LABELS, columns=COLUMNS)
    torch.testing.assert_close(loss(SCORES, LABELS, columns=COLUMNS, reference_scores=SCORES), own)
    assert loss(SCORES, LABELS, columns=COLUMNS, reference_scores=LABELS.float()) > own


def test_a_loss_under_rules_can_be_copied_stored_and_combined():
    loss = rs.StructuredHingeLoss("nDCG@3", constraints=RULES)
    value = loss(SCORES, LABELS, columns=COLUMNS)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), loss.with_options(reduction="sum")):
        assert torch.equal(other(SCORES, LABELS, columns=COLUMNS), value)
    assert "constraints=Constraints('seller <= 1 @ 3', 'kind=1 >= 1 @ 3')" in repr(loss)


@pytest.mark.parametrize("scale", [1e-3, 1e8, 1e200])
def test_scores_of_any_size_have_a_loss(scale):
    """Differences of scores that decide by themselves leave the regret of the page by score."""
    loss = rs.StructuredHingeLoss("nDCG@3", constraints=RULES, reference="predicted")
    value = loss(SCORES.double() * scale, LABELS, columns=COLUMNS).item()
    shown = rs.constraints.evaluate_under(SCORES, LABELS, "nDCG@3", RULES, COLUMNS)["nDCG@3"].item()
    assert value >= 1 - shown - 1e-9
    if scale > 1:
        assert value == pytest.approx(1 - shown, abs=1e-6)
    far = torch.cat([SCORES.double(), torch.tensor([-1e13])])
    columns = {name: torch.cat([groups, torch.tensor([9])]) for name, groups in COLUMNS.items()}
    with_far = loss(far, torch.cat([LABELS, torch.tensor([0])]), columns=columns).item()
    assert with_far == pytest.approx(loss(SCORES.double(), LABELS, columns=COLUMNS).item(), abs=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": "AP"}, "AP with the pairwise feature map has no search .* not a sum over the positions"),
        ({"measure": "R@3"}, "has no search .* such as nDCG@10"),
        ({"measure": "mWTA"}, "has no search"),
        ({"measure": "nDCG@3", "feature_map": "pairwise"}, "nDCG@3 with the pairwise feature map has no search"),
        ({"measure": "nDCG"}, "nDCG needs a cut-off under rules.*nDCG@10"),
        (
            {"constraints": rs.Constraints("seller <= 2")},
            "'seller <= 2' is about the whole ranking.*write 'seller <= 2 @ 3'",
        ),
        ({"constraints": rs.Constraints("seller <= 2 @ 2")}, "fewer positions than nDCG@3 measures, 3.*cut-off of 2"),
        ({"constraints": 3}, "constraints must be rules, such as"),
        ({"constraints": "seller is 2"}, "not a rule: 'seller is 2'"),
    ],
)
def test_what_has_no_search_is_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        rs.StructuredHingeLoss(**{"measure": "nDCG@3", "constraints": RULES, **options})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": None}, "under rules about 'seller', 'kind'; pass columns="),
        ({"columns": {"seller": [0] * 5}}, "rules are about 'kind', which is not in columns"),
        ({"columns": {**COLUMNS, "kind": [0] * 4}}, "'kind' must have one entry per document"),
        (
            {"columns": {**COLUMNS, "kind": [0] * 5}},
            "no ranking of list 0 keeps 'kind=1 >= 1 @ 3': the list has 0 such",
        ),
        ({"scores": SCORES.clone().fill_(torch.nan)}, "scores must be finite"),
        ({"labels": -LABELS}, "labels must be 0 or more"),
        ({"scores": SCORES.double() * 1e305}, "too far apart"),
        ({"scores": SCORES.double() * 1e305, "columns": {**COLUMNS, "kind": [0, 1, 0, 1, 0]}}, "too far apart"),
        ({"item_weights": torch.ones(5)}, "item_weights"),
        ({"diversity_groups": COLUMNS["seller"]}, "pass columns="),
    ],
)
def test_bad_input_is_refused(change, message):
    given = {"scores": SCORES, "labels": LABELS, "columns": COLUMNS, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        rs.StructuredHingeLoss("nDCG@3", constraints=RULES)(**given)


def test_rules_that_differ_only_in_their_bounds_have_pages_of_their_own():
    columns = {"a": torch.tensor([0, 0, 1]), "b": torch.tensor([1, 0, 1])}
    found = []
    for relation in (">= 0", "<= 0", ">= 1", "<= 1"):
        loss = rs.StructuredHingeLoss("DCG@1", constraints=[f"b=0 {relation} @ 1", "a <= 1 @ 2"], reference="ideal")
        found.append(loss(torch.zeros(3), torch.tensor([0, 1, 0]), columns=columns).item())
    assert found == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("rules", ["seller <= 1 @ 3", ["seller <= 1 @ 2", "kind <= 1 @ 3"]])
def test_a_tensor_is_no_mapping_of_columns(rules):
    loss = rs.StructuredHingeLoss("nDCG@2", constraints=rules)
    with pytest.raises(TypeError, match=r"columns must be a mapping from names to groups, .*, got Tensor"):
        loss(SCORES, LABELS, columns=COLUMNS["seller"])
    with pytest.raises(TypeError, match="columns must be a mapping"):
        rs.boosting_objective(loss, columns=COLUMNS["seller"])


def test_torch_func_says_where_overlapping_groups_have_a_loss():
    loss = rs.StructuredHingeLoss("nDCG@3", constraints=["seller <= 1 @ 3", "kind <= 2 @ 3"])
    columns = {"seller": [0, 0, 1, 1, 2], "kind": [0, 1, 1, 0, 0]}
    loss(SCORES, LABELS, columns=columns)
    with pytest.raises(ValueError, match=r"call the loss eagerly, not in torch\.compile or torch\.func"):
        torch.func.grad(lambda scores: loss(scores, LABELS, columns=columns))(SCORES)


def test_columns_without_rules_are_refused():
    with pytest.raises(TypeError, match="rules are about; this loss has none"):
        rs.StructuredHingeLoss("nDCG@3")(SCORES, LABELS, columns=COLUMNS)


def test_torch_func_differentiates_it():
    loss = rs.StructuredHingeLoss("nDCG@3", constraints=RULES)
    leaf = SCORES.clone().requires_grad_()
    loss(leaf, LABELS, columns=COLUMNS).backward()
    assert torch.equal(torch.func.grad(lambda scores: loss(scores, LABELS, columns=COLUMNS))(SCORES), leaf.grad)


def test_a_linear_ranker_trains_under_rules():
    rng = np.random.default_rng(0)
    X, qid, kind = rng.normal(size=(120, 2)), np.repeat(np.arange(12), 10), rng.integers(0, 3, 120)
    y = (X[:, 0] > 0.7).astype(int)
    loss = rs.StructuredHingeLoss("nDCG@3", reference="ideal", constraints=rs.Constraints("kind <= 1 @ 3"))
    order = rng.permutation(120)  # documents of a list need not be neighbours
    ranker = rs.LinearRanker(loss=loss, C=1.0).fit(X[order], y[order], qid[order], columns={"kind": kind[order]})
    assert ranker.coef_[0] > 5 * abs(ranker.coef_[1])
    with pytest.raises(ValueError, match="under rules about 'kind'; pass columns="):
        rs.LinearRanker(loss=loss).fit(X, y, qid)
    two = rs.StructuredHingeLoss(
        "nDCG@3", reference="ideal", constraints=rs.Constraints("kind <= 1 @ 2", "odd=1 >= 1 @ 3")
    )
    some = {"kind": kind[:20], "odd": np.arange(20) % 2}  # lists of which the core knows no search
    assert rs.LinearRanker(loss=two, C=1.0).fit(X[:20], y[:20], qid[:20], columns=some).coef_[0] > 0
    needy = rs.StructuredHingeLoss("nDCG@3", constraints=rs.Constraints("kind=7 >= 1 @ 3"))
    with pytest.raises(ValueError, match="no ranking of list 0 keeps 'kind=7 >= 1 @ 3'"):
        rs.LinearRanker(loss=needy).fit(X, y, qid, columns={"kind": kind})
    for other in (rs.LinearRanker("nDCG@3"), rs.MLPRanker()):
        with pytest.raises(TypeError, match="columns="):
            other.fit(X, y, qid, columns={"kind": kind})
    with pytest.raises(TypeError, match="EnsembleRanker does not train under rules"):
        rs.EnsembleRanker([rs.LinearRanker(), rs.LinearRanker(C=1.0)]).fit(X, y, qid, columns={"kind": kind})
    with pytest.raises(ValueError, match="omit one of them"):
        ranker.fit(X, y, qid, columns={"kind": kind}, diversity_groups=kind)
    given = {"X": X[order], "y": y[order], "qid": qid[order], "columns": {"kind": kind[order]}}
    assert ranker.objective(ranker.coef_, **given) == pytest.approx(ranker.solution_.objective)
    assert ranker.risk(**given)(ranker.coef_)[0] == pytest.approx(ranker.mean_loss(ranker.coef_, **given))


@pytest.mark.parametrize("ranker", [rs.LinearRanker(C=1.0), rs.BoostedRanker(n_estimators=2, random_state=0)])
def test_rankers_take_the_columns_of_ranking_data(ranker):
    rng = np.random.default_rng(0)
    lists = rs.data.RankingData.from_arrays(
        rng.normal(size=(40, 3)), rng.integers(0, 3, 40), np.repeat(np.arange(5), 8)
    )
    columns = {"seller": rng.integers(0, 3, 40), "kind": rng.integers(0, 3, 40)}
    ranker = clone(ranker).set_params(
        loss=rs.StructuredHingeLoss("nDCG@2", constraints=["seller <= 1 @ 2", "kind <= 2 @ 3"])
    )
    expected = clone(ranker).fit(lists, columns=columns).predict(lists.features)
    assert np.array_equal(clone(ranker).fit(lists.with_columns(columns)).predict(lists.features), expected)
    for data, told in ((lists, "pass columns="), (lists.with_columns({"kind": columns["kind"]}), "'seller'")):
        with pytest.raises(ValueError, match=told):
            clone(ranker).fit(data)


def test_a_search_splits_the_columns_of_a_frame():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 2)), np.repeat(np.arange(6), 10)
    y, frame = (X[:, 0] > 0.5).astype(int), pd.DataFrame({"kind": rng.integers(0, 3, 60)})
    ranker = rs.LinearRanker(loss=rs.StructuredHingeLoss("nDCG@3", constraints=rs.Constraints("kind <= 1 @ 3")))
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(ranker, {"C": [0.1]}, cv=GroupKFold(2)).fit(X, y, qid=qid, groups=qid, columns=frame)
    whole = ranker.set_params(C=0.1).fit(X, y, qid, columns=frame)
    np.testing.assert_array_equal(search.best_estimator_.coef_, whole.coef_)


@pytest.mark.parametrize("context", [None, "mean"])
def test_a_network_trains_under_rules(context, tmp_path):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(160, 2)).astype(np.float32), np.repeat(np.arange(16), 10)
    y, columns = (X[:, 0] > 0.5).astype(int), {"kind": np.where(X[:, 0] > 0.5, 1, rng.integers(2, 5, 160))}
    loss = rs.StructuredHingeLoss("nDCG@3", constraints=rs.Constraints("kind <= 1 @ 3"))
    ranker = rs.MLPRanker(loss=loss, context=context, dropout=0.0, max_epochs=2, random_state=0, device="cpu")
    order = rng.permutation(160)
    ranker.fit(X[order], y[order], qid[order], columns={"kind": columns["kind"][order]})
    first = ranker.history_[0][0]["loss"]
    other = clone(ranker).set_params(loss="StructuredHingeLoss('nDCG@3')").fit(X[order], y[order], qid[order])
    assert np.isfinite(first)
    assert first != pytest.approx(other.history_[0][0]["loss"], rel=1e-3)
    lists = rs.data.RankingData.from_arrays(X, y, qid)
    pq.write_table(pa.table({"qid": qid, "label": y, "a": X[:, 0], "b": X[:, 1]}), tmp_path / "part-0.parquet")
    shards = rs.data.read_lists(tmp_path)
    assert clone(ranker).fit(shards, columns=columns).history_ == clone(ranker).fit(lists, columns=columns).history_
    with pytest.raises(ValueError, match="under rules about 'kind'; pass columns="):
        ranker.fit(shards)
    with pytest.raises(TypeError, match="columns= are groups that rules are about"):
        rs.MLPRanker().fit(shards, columns=columns)
    with pytest.raises(ValueError, match="pass another than diverse_nDCG@3"):
        clone(ranker).set_params(measure="diverse_nDCG@3").fit(X, y, qid, columns=columns)
