"""Implicit feedback: interactions, files, splits, full-catalogue evaluation, training lists, models and the estimator."""

import math
import pickle
import uuid
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

import rankstruct as rs
from rankstruct.data import DataError
from rankstruct.recommenders import (
    InteractionsSource,
    ItemSimilarity,
    LightGCN,
    LinearFactors,
    MatrixFactorization,
    Negatives,
    Ratings,
    Recommender,
    TrainingLists,
    UserSimilarity,
    coverage,
    ease,
    evaluate_catalogue,
    fold_in,
    hold_out,
    implicit,
    interactions,
    item_means,
    k_core,
    novelty,
    popularity,
    read_interactions,
    recommend,
    split_by_time,
)
from rankstruct.recommenders import catalogue as catalogue_module
from rankstruct.recommenders import recommendation as recommendation_module


def drawn(users=30, items=25, share=0.3, seed=0):
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.random((users, items)) < share).astype(np.float32))


def pairs(ratings):
    names = ratings.user_names.tolist(), ratings.item_names.tolist()
    return [(names[0][u], names[1][i]) for u, i in zip(ratings.user, ratings.item, strict=True)]


# Interactions


def test_interactions_are_the_same_from_a_matrix_a_table_and_arrays():
    table = pd.DataFrame({"user": ["b", "a", "b", "a"], "item": ["y", "x", "y", "z"]})  # one repeated
    expected = [("a", "x"), ("a", "z"), ("b", "y")]
    assert pairs(interactions(table)) == pairs(interactions(table["user"], table["item"])) == expected
    matrix = sp.coo_array(([2.0, 1.0, 3.0, 0.0], ([0, 1, 0, 1], [1, 0, 1, 1])), shape=(3, 2))
    found = interactions(matrix)
    assert pairs(found) == [("0", "1"), ("1", "0")]
    assert (found.num_users, found.num_items, matrix.nnz) == (3, 2, 4)
    assert found.to_csr().toarray().tolist() == [[0, 1], [1, 0], [0, 0]]
    assert pairs(interactions(matrix, user_names=["p", "q", "r"], item_names=["i", "j"])) == [("p", "j"), ("q", "i")]
    assert interactions(found).num_ratings == 2


def test_ids_may_be_numbers_in_any_order_or_indices():
    found = interactions(np.array([10, 9, 10]), np.array([7, 7, 100]))
    assert found.user_names.tolist() == ["9", "10"]
    assert pairs(found) == [("9", "7"), ("10", "7"), ("10", "100")]
    found = interactions(np.array([1]), np.array([2]), user_names=range(4), item_names=range(3))
    assert (found.num_users, found.num_items, found.user[0], found.item[0]) == (4, 3, 1, 2)


def test_the_last_time_of_a_repeated_interaction_is_kept():
    found = interactions(["a", "a", "b"], ["x", "x", "x"], times=[5, 9, 1])
    assert found.time.tolist() == [9, 1]
    assert found.select(np.array([False, True])).time.tolist() == [1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: interactions(sp.csr_array([[1.0, -1.0]])), "counts of interactions must be numbers >= 0, got -1"),
        (lambda: interactions(sp.csr_array([[1.0, np.nan]])), "must be numbers >= 0, got nan"),
        (lambda: interactions(sp.csr_array([[1.0]]), item_names=["x", "y"]), "item_names must have 1 names"),
        (lambda: interactions([1, 2], [1]), "must have one entry per interaction, got 2, 1"),
        (lambda: interactions([[1, 2]]), "a table with columns user and item; got list"),
        (lambda: interactions(pd.DataFrame({"who": [1]})), "there is no column 'user'; there are 'who'"),
        (
            lambda: interactions([3], [0], user_names=range(3), item_names=range(1)),
            "users has the name '3', which is not among those given",
        ),
        (lambda: interactions(["a"], ["x"], item_names=["y"]), "items has the name 'x', which is not among those"),
        (lambda: interactions(rs.recommenders.synthetic_ratings(users=3, rated=5)), "use implicit"),
        (lambda: interactions(["a", None], ["x", "y"]), "users must not be missing; that of interaction 1 is"),
        (lambda: interactions(["a", "b"], [np.nan, 2.0]), "items must not be missing; that of interaction 0 is"),
    ],
)
def test_bad_interactions_are_errors(make, message):
    with pytest.raises(DataError, match=message):
        make()


def test_a_core_is_that_of_repeated_deletion():
    ratings = interactions(drawn(40, 30, 0.1))
    matrix = ratings.to_csr().toarray() > 0
    users, items = np.arange(40), np.arange(30)
    while True:
        kept = matrix[np.ix_(users, items)]
        enough = kept.sum(1) >= 2, kept.sum(0) >= 3
        if enough[0].all() and enough[1].all():
            break
        users, items = users[enough[0]], items[enough[1]]
    core = k_core(ratings, 3, user_k=2)
    assert len(users)
    assert core.user_names.tolist() == [str(u) for u in users]
    assert core.item_names.tolist() == [str(i) for i in items]
    np.testing.assert_array_equal(core.to_csr().toarray() > 0, matrix[np.ix_(users, items)])


def test_leave_one_out_holds_the_last_or_a_random_one():
    ratings = interactions([0, 0, 0, 1, 2, 2], [0, 1, 2, 0, 1, 2], times=[3, 9, 5, 1, 2, 1])
    train, test = hold_out(ratings, 1, latest=True)
    assert pairs(test) == [("0", "1"), ("2", "1")]  # user 1 has only one
    assert train.num_ratings == 4
    drawn_items = {tuple(hold_out(ratings, 1, seed=seed)[1].item) for seed in range(20)}
    assert len(drawn_items) > 3
    with pytest.raises(ValueError, match="requires times"):
        hold_out(interactions([0], [0]), 1, latest=True)
    with pytest.raises(ValueError, match="share must be an integer from 1"):
        hold_out(ratings, 0)


def test_a_split_by_time_has_one_moment():
    rng = np.random.default_rng(0)
    ratings = interactions(rng.integers(9, size=80), rng.integers(50, size=80), times=rng.random(80))
    train, test = split_by_time(ratings, 0.25)
    assert train.time.max() < test.time.min()
    assert test.num_ratings == pytest.approx(0.25 * ratings.num_ratings, abs=1)


# Files


def test_files_have_common_indices(tmp_path):
    (tmp_path / "train.txt").write_text("7 10 9 10\n\n8\n12 9\n7 11\n")
    (tmp_path / "valid.txt").write_text("12 11\n")
    (tmp_path / "test.txt").write_text("13 50\n8 9\n12 10\n")
    train, valid, test = read_interactions(*(tmp_path / f"{name}.txt" for name in ("train", "valid", "test")))
    assert train.user_names.tolist() == ["7", "8", "12", "13"] == test.user_names.tolist()
    assert train.item_names.tolist() == ["9", "10", "11", "50"]
    assert pairs(train) == [("7", "9"), ("7", "10"), ("7", "11"), ("12", "9")]
    assert (pairs(valid), pairs(test)) == ([("12", "11")], [("8", "9"), ("12", "10"), ("13", "50")])
    with pytest.warns(UserWarning, match="are not in") as warned:
        parts = InteractionsSource(path=str(tmp_path)).read()
    said = [str(each.message).replace(f"{tmp_path}/", "") for each in warned]
    advice = "nothing is learnt about them, and they count in the measures"
    assert said == [
        f"2 of the 3 users of test.txt (66.7%) are not in train.txt, such as '8': {advice}",
        f"1 of the 3 items of test.txt (33.3%) are not in train.txt, such as '50': {advice}",
    ]
    assert [pairs(part) for part in (parts.train, parts.vali, parts.test)] == [*map(pairs, (train, valid, test))]


def test_tables_and_lines_with_times_are_read_alike(tmp_path):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"time": [3.0, 1.0, 2.0], "user": ["a", "b", "a"], "item": [5, 5, 7]})
    table.to_csv(tmp_path / "x.csv", index=False)
    table.to_parquet(tmp_path / "x.parquet")
    (tmp_path / "x.txt").write_text("a 5 3\nb 5 1\na 7 2\n")
    for found in (read_interactions(tmp_path / f"x.{suffix}", times=True) for suffix in ("csv", "parquet", "txt")):
        assert pairs(found) == [("a", "5"), ("a", "7"), ("b", "5")]
        assert found.time.tolist() == [3, 2, 1]
    table.assign(time=pd.to_datetime(table["time"], unit="s")).to_parquet(tmp_path / "dates.parquet")
    assert read_interactions(tmp_path / "dates.parquet").time.tolist() == [3, 2, 1]
    movielens = {"user": "userId", "item": "movieId", "time": "timestamp"}
    table.rename(columns=movielens).assign(rating=4.5).to_csv(tmp_path / "ratings.csv.gz", sep=";", index=False)
    found = read_interactions(tmp_path / "ratings.csv.gz")
    assert (pairs(found), found.time.tolist()) == ([("a", "5"), ("a", "7"), ("b", "5")], [3, 2, 1])
    (tmp_path / "days.csv").write_text(
        "user,item,time\na,5,1970-01-01 00:00:03\na,7,1970-01-01T00:00:02\nb,5,1970-01-02\n"
    )
    assert read_interactions(tmp_path / "days.csv").time.tolist() == [3, 2, 86400]
    found = interactions(table.rename(columns=movielens))
    assert (pairs(found), found.time.tolist()) == ([("a", "5"), ("a", "7"), ("b", "5")], [3, 2, 1])


@pytest.mark.parametrize(
    ("users", "names"),
    [
        (["b", "a", "b"], ["a", "b"]),
        ([b"b", b"a", b"b"], ["a", "b"]),
        ([10, 9, 10], ["9", "10"]),
        ([10.0, 9.0, 10.0], ["9", "10"]),
        ([uuid.UUID(int=2), uuid.UUID(int=1), uuid.UUID(int=2)], [str(uuid.UUID(int=1)), str(uuid.UUID(int=2))]),
        ([1.0, math.nan], "row 2: expected an id in column 'user', got none"),
        ([1.0, 0.5], "row 2: expected an id .a string or an integer. in column 'user', got 0.5"),
        (["a", ""], "row 2: expected an id"),
        ([None, None], "row 1: expected an id"),
        ([b"\xff"], "got binary"),
        ([[1], [2]], "got list<"),
    ],
)
def test_ids_of_any_type(tmp_path, users, names):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    if isinstance(users[0], uuid.UUID):
        if not hasattr(pa, "uuid"):
            pytest.skip("needs pyarrow 18")
        given = pa.array([each.bytes for each in users], pa.uuid())
    else:
        given = pa.array(users)
    for column in (given, given.dictionary_encode()) if isinstance(users[0], str) else (given,):
        parquet.write_table(pa.table({"user": column, "item": range(len(users))}), tmp_path / "x.parquet")
        if isinstance(names, str):
            with pytest.raises(DataError, match=names):
                read_interactions(tmp_path / "x.parquet")
        else:
            found = read_interactions(tmp_path / "x.parquet")
            assert found.user_names.tolist() == names
            assert dict(zip(found.item.tolist(), found.user.tolist(), strict=True)) == {0: 1, 1: 0, 2: 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", "", "x.txt has no interactions"),
        ("x.txt", "ann\nbob\n", "x.txt has no interactions"),
        ("x.csv", "who,item\na,b\n", "there is no column 'user'; there are 'who, item'"),
        (
            "x.csv",
            "user,item\na,b\nc\n",
            "x.csv, row 2: expected 2 cells separated by commas, one for each of 'user, item', got 1: 'c'",
        ),
        ("x.csv", "user,item\na,b\nc,\n", "x.csv, row 2: expected an id in column 'item', got none"),
        ("x.csv", "user,item,time\na,b,soon\n", "x.csv, row 1: expected a number in column 'time', got 'soon'"),
        ("x.csv", "user,item,time\na,b,\n", "x.csv, row 1: expected a time, got none"),
        ("x.csv", "user,item,time\na,b,2024-01-01\na,c,soon\n", "expected a number in column 'time', got '2024-01-01'"),
        (
            "x.csv",
            "user,item,item_id\na,b,c\n",
            "columns 'item' and 'item_id' have usual names of 'item'; name the right one, such as item='item'",
        ),
        ("x.csv", "", "expected column names in the first line, got an empty file"),
    ],
)
def test_bad_files_are_errors_with_their_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_interactions(tmp_path / name)


def test_bad_lines_with_times_and_missing_files_are_errors(tmp_path):
    (tmp_path / "x.txt").write_text("a b 3\na b c 3\n")
    with pytest.raises(DataError, match="line 2: expected user item time"):
        read_interactions(tmp_path / "x.txt", times=True)
    with pytest.raises(DataError, match="no such file"):
        read_interactions(tmp_path / "y.txt")
    with pytest.raises(DataError, match=r"has no train\.txt and test\.txt"):
        InteractionsSource(path=str(tmp_path)).check()
    for options in (
        {},
        {"path": "a", "builtin": "synthetic"},
        {"builtin": "real"},
        {"builtin": "synthetic", "split": "x"},
    ):
        with pytest.raises(ValueError, match="data"):
            InteractionsSource(**options).check()


@pytest.mark.parametrize("split", ["ratio", "leave-one-out", "time"])
def test_splits_of_a_file_divide_it(tmp_path, split):
    rng = np.random.default_rng(0)
    lines = {(u, i): f"{u} {i} {rng.integers(1000)}\n" for u, i in product(range(20), range(30)) if rng.random() < 0.5}
    (tmp_path / "x.txt").write_text("".join(lines.values()))
    parts = InteractionsSource(path=str(tmp_path / "x.txt"), times=True, split=split).read()
    found = [pair for part in (parts.train, parts.vali, parts.test) for pair in pairs(part)]
    assert sorted(found) == sorted((str(u), str(i)) for u, i in lines)
    assert parts.test.num_ratings >= 20
    assert parts.vali.num_ratings


# Evaluation


def plain_measures(scores, seen, relevant, k):
    """The measures of one user by a loop."""
    order = [i for i in sorted(range(len(scores)), key=lambda i: -scores[i]) if i not in seen][:k]
    hits = [i in relevant for i in order]
    dcg = sum(hit / np.log2(rank + 2) for rank, hit in enumerate(hits))
    found = {f"DCG@{k}": dcg, f"nDCG@{k}": dcg / sum(1 / np.log2(r + 2) for r in range(min(k, len(relevant))))}
    found[f"R@{k}"] = sum(hits) / len(relevant)
    found[f"P@{k}"] = sum(hits) / k
    found[f"Success@{k}"] = float(any(hits))
    found[f"RR@{k}"] = next((1 / (rank + 1) for rank, hit in enumerate(hits) if hit), 0.0)
    precisions = [sum(hits[: rank + 1]) / (rank + 1) for rank, hit in enumerate(hits) if hit]
    return found | {f"AP@{k}": sum(precisions) / len(relevant)}


@pytest.mark.parametrize("block", [1, 2**24])
def test_measures_equal_a_plain_loop(monkeypatch, block):
    monkeypatch.setattr(recommendation_module, "_BLOCK", block)
    both = interactions(drawn(40, 30, 0.4))
    train, test = hold_out(both, 0.5)
    train = rs.recommenders.merge([train, test.select(test.user == 3)])  # user 3 has seen all that is relevant
    everything = interactions([5] * 30, range(30), user_names=range(40), item_names=range(30))
    train = rs.recommenders.merge([train.select(train.user != 5), everything])
    scorer = MatrixFactorization(40, 30, rank=4)
    scores = scorer.item_scores(torch.arange(40)).detach().numpy()
    for k in (1, 5, 40):
        names = [f"{name}@{k}" for name in ("DCG", "nDCG", "R", "P", "Success", "RR", "AP")]
        found = evaluate_catalogue(scorer, test, names, exclude=train)
        users = np.unique(test.user)
        for at, user in enumerate(users):
            seen, relevant = (set(part.item[part.user == user].tolist()) for part in (train, test))
            for name, value in plain_measures(scores[user], seen, relevant, k).items():
                assert float(found[name][at]) == pytest.approx(value, abs=1e-12), (name, user)
        assert {len(value) for value in found.values()} == {len(users)}


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ("u0", "users must be indices.*got 'u0'.*takes names"),
        (["u0", "u1"], "users must be indices"),
        (1.5, "users must be indices.*got '1.5'"),
        (True, "users must be indices"),
        (-1, "users must be from 0 to 29, those of the model"),
        ([3, 30], "users must be from 0 to 29, those of the model"),
    ],
)
def test_recommendations_for_what_is_no_user_are_errors(users, message):
    with pytest.raises(ValueError, match=message):
        recommend(MatrixFactorization(30, 25), users)
    assert recommend(MatrixFactorization(30, 25), np.array([2, 29], np.uint8), 3)[0].shape == (2, 3)
    assert recommend(MatrixFactorization(30, 25), [], 3)[0].shape == (0, 3)


def test_models_and_interactions_that_do_not_fit_each_other_are_errors():
    known, other = interactions(drawn()), interactions(drawn(items=24))
    with pytest.raises(TypeError, match=r"model must have item_scores.*, got Recommender"):
        recommend(Recommender(), 0)
    with pytest.raises(ValueError, match="exclude must have the 25 items of the model, got 24"):
        recommend(MatrixFactorization(30, 25), 0, exclude=other)
    with pytest.raises(ValueError, match="test must have the 24 items of the model, got 25"):
        evaluate_catalogue(MatrixFactorization(30, 24), known)
    with pytest.raises(ValueError, match=r"users must be from 0 to 28, those of the model"):
        evaluate_catalogue(MatrixFactorization(29, 25), known)
    for fit in (LightGCN(30, 24, layers=1).set_graph, MatrixFactorization(31, 25).start_from_interactions):
        with pytest.raises(
            ValueError, match=r"known must have the 3\d users and 2\d items of the factorisation, got 30 and 25"
        ):
            fit(known)
    with pytest.raises(ValueError, match=r"test and exclude must have the same.*got \(30, 25\) and \(30, 24\)"):
        evaluate_catalogue(MatrixFactorization(30, 25), known, exclude=other)


class Table:
    """A model with given scores."""

    def __init__(self, scores):
        self.scores = scores

    def item_scores(self, users):
        return self.scores[users.tolist()]


def test_ratings_of_0_are_no_interactions():
    rated = implicit(Ratings.from_arrays([0, 0, 1, 2, 2], [0, 1, 1, 0, 1], [5, 1, 2, 4, 4], scale="stars"), 4)
    loved = interactions([0, 2, 2], [0, 0, 1], user_names=range(3), item_names=range(2))
    for ratings in (rated, loved):
        assert popularity(ratings).scores.tolist() == [2, 1]
        assert evaluate_catalogue(Table(torch.zeros(3, 2)), ratings, "P@2")["P@2"].tolist() == [0.5, 1]
        assert novelty(torch.tensor([[1]]), ratings) == pytest.approx(np.log2(3))
        assert torch.equal(ease(ratings).similarity, ease(loved).similarity)
        graph = LightGCN(3, 2, rank=2, layers=1)
        graph.set_graph(ratings)
        assert graph.graph.tolist() == [[0, 2, 2], [0, 0, 1]]
        assert TrainingLists(ratings, "popularity").probability.tolist() == pytest.approx([2 / 3, 1 / 3])
    with pytest.raises(DataError, match="expected interactions, got ratings on the scale 'stars'"):
        evaluate_catalogue(Table(torch.zeros(1, 1)), Ratings.from_arrays([0], [0], [1], scale="stars"))


def test_matrices_and_tables_are_interactions_everywhere():
    matrix, test = drawn(), drawn(seed=1)
    alike, table = interactions(matrix), pd.DataFrame({"user": [0, 1], "item": [1, 0]})
    assert torch.equal(popularity(matrix).scores, popularity(alike).scores)
    assert popularity(table).scores.tolist() == [1, 1]
    model = ease(matrix)
    assert torch.equal(model.similarity, ease(alike).similarity)
    assert torch.equal(recommend(model, [0, 3], exclude=matrix)[0], recommend(model, [0, 3], exclude=alike)[0])
    values = evaluate_catalogue(model, test, "nDCG@10", exclude=matrix)
    assert torch.equal(values["nDCG@10"], evaluate_catalogue(model, interactions(test), exclude=alike)["nDCG@10"])
    items = recommend(model, range(30), exclude=matrix)[0]
    assert novelty(items.numpy(), matrix) == novelty(items, alike)
    assert coverage(items.numpy(), 25) == coverage(items, 25)
    with pytest.raises(ValueError, match="items must be indices, as recommend returns them, got"):
        coverage(np.array([["x", "y"]]), 2)
    for measured in (lambda: coverage([[0, 25]], 25), lambda: novelty([[0, 25]], matrix)):
        with pytest.raises(ValueError, match="items must be from 0 to 24, got 25"):
            measured()
    assert coverage([[-1]], 25) == 0
    assert math.isnan(novelty([[-1]], matrix))
    with pytest.raises(ValueError, match="users must be from 0, got"):
        recommend(popularity(matrix), [-1])
    scorer = MatrixFactorization(30, 25, rank=3)
    assert torch.equal(fold_in(scorer, matrix, rs.SoftmaxLoss()), fold_in(scorer, alike, rs.SoftmaxLoss()))


def test_scores_may_be_integers_or_arrays_but_not_nan():
    known = interactions([0, 1], [2, 0], item_names=range(3))
    for scores in (torch.tensor([[1, 2, 9], [9, 5, 4]]), np.array([[1.0, 2, 9], [9, 5, 4]])):
        assert recommend(Table(scores), [0, 1], 2, exclude=known)[0].tolist() == [[1, 0], [1, 2]]
    large = torch.tensor([[2**25, 2**25 + 1, 2**25 - 1]])
    assert recommend(Table(large), [0], 3)[0].tolist() == [[1, 0, 2]]
    for measured in (lambda model: recommend(model, 0, 1), lambda model: evaluate_catalogue(model, known)):
        with pytest.raises(ValueError, match="scores of the model must be numbers, got NaN"):
            measured(Table(torch.tensor([[1.0, np.nan, 2], [1, 2, 3]])))


@pytest.mark.parametrize("k", [0, -1, 2.5, "5", None, True])
def test_k_is_an_integer_from_1(k):
    with pytest.raises(ValueError, match=f"k must be an integer from 1, got {k!r}"):
        recommend(MatrixFactorization(3, 4), 0, k)
    assert len(recommend(MatrixFactorization(3, 4), 0, np.int64(2))[0]) == 2


def test_dropout_does_not_affect_recommendations():
    scorer = MatrixFactorization(4, 20, rank=8, dropout=0.5).train()
    first, again = recommend(scorer, range(4), 20)[1], recommend(scorer, range(4), 20)[1]
    assert torch.equal(first, again)
    assert scorer.training


def test_an_empty_test_has_no_values_and_measures_need_a_cut_off():
    train = interactions(drawn())
    nothing = train.select(np.zeros(train.num_ratings, bool))
    assert len(evaluate_catalogue(popularity(train), nothing)["nDCG@10"]) == 0
    with pytest.raises(ValueError, match="need a cut-off, such as nDCG@10 or R@20; AP has none"):
        evaluate_catalogue(popularity(train), train, ["AP"])
    with pytest.raises(ValueError, match="expected at least one measure, got none"):
        evaluate_catalogue(popularity(train), train, [])


def test_coverage_and_novelty_are_those_of_a_loop():
    known = interactions(drawn(20, 15, 0.3))
    items, _ = recommend(MatrixFactorization(20, 15), range(20), 4, exclude=known)
    listed = [i for i in items.reshape(-1).tolist() if i >= 0]
    assert coverage(items, 15) == len(set(listed)) / 15
    counts = np.bincount(known.item, minlength=15)
    assert novelty(items, known) == pytest.approx(np.mean([-np.log2(max(counts[i], 1) / 20) for i in listed]))


# Models


def test_cosine_scores_and_vectors():
    scorer = MatrixFactorization(4, 6, rank=3, temperature=0.5, dropout=0.5).eval()
    torch.nn.init.normal_(scorer.item_offsets.weight)
    u, v = scorer.user_factors.weight.detach(), scorer.item_factors.weight.detach()
    bias = scorer.item_offsets.weight.detach().squeeze(1)
    cosine = (u / u.norm(dim=1, keepdim=True)) @ (v / v.norm(dim=1, keepdim=True)).T / 0.5 + bias
    users, items = scorer.vectors()
    for found in (scorer.item_scores(torch.arange(4)), users @ items.T):
        torch.testing.assert_close(found, cosine)
    torch.testing.assert_close(
        scorer(torch.tensor([[[1, 2], [3, 0]]])), torch.stack([cosine[1, 2], cosine[3, 0]])[None]
    )
    scorer.train()
    assert not torch.equal(scorer.vectors()[0], users)  # dropout
    for options in ({"temperature": 0.0}, {"dropout": 1.0}):
        with pytest.raises(ValueError, match="must be"):
            MatrixFactorization(4, 6, **options)


def test_lightgcn_is_the_mean_of_powers_of_the_normalised_graph(tmp_path):
    known = interactions(drawn(7, 5, 0.5))
    scorer = LightGCN(7, 5, rank=3, layers=2).double()
    scorer.set_graph(known)
    graph = np.zeros((12, 12))
    graph[:7, 7:] = known.to_csr().toarray()
    graph += graph.T
    degree = np.maximum(graph.sum(1), 1)
    matrix = torch.from_numpy(graph / np.sqrt(degree[:, None] * degree))
    start = torch.cat([scorer.user_factors.weight, scorer.item_factors.weight])
    expected = ((torch.eye(12) + matrix + matrix @ matrix) / 3) @ start
    scores = scorer.item_scores(torch.arange(7))
    torch.testing.assert_close(scores, expected[:7] @ expected[7:].T)
    torch.testing.assert_close(scorer(torch.tensor([[2, 1], [0, 4]])), scores[[2, 0], [1, 4]])
    weights = torch.randn(7, 5, dtype=torch.float64)
    given = scorer.user_factors.weight, scorer.item_factors.weight
    found = torch.autograd.grad((scores * weights).sum(), given)
    for mine, its in zip(
        found, torch.autograd.grad((expected[:7] @ expected[7:].T * weights).sum(), given), strict=True
    ):
        torch.testing.assert_close(mine, its)
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    loaded = rs.load_scorer(tmp_path / "scorer.pt").double()
    torch.testing.assert_close(loaded.item_scores(torch.arange(7)), scores, atol=1e-5, rtol=1e-5)


def test_ease_minimises_its_objective():
    known = interactions(drawn(30, 8, 0.4))
    weights = ease(known, regularization=3.0).similarity.double()
    matrix = torch.from_numpy(known.to_csr().toarray()).double()
    gradient = matrix.T @ (matrix @ weights - matrix) + 3.0 * weights
    gradient.fill_diagonal_(0.0)
    assert float(weights.diagonal().abs().max()) == 0
    assert float(gradient.abs().max()) < 1e-4
    torch.testing.assert_close(
        ease(known, regularization=3.0).item_scores(torch.tensor([4]))[0].double(), matrix[4] @ weights
    )
    for wrong in (0, np.nan, np.inf):
        with pytest.raises(ValueError, match="regularization must be a finite number above 0"):
            ease(known, regularization=wrong)
        if wrong:
            with pytest.raises(ValueError, match="prior must be a finite number of at least 0"):
                item_means(known, prior=wrong)
    with pytest.raises(ValueError, match="threshold must be a finite number, got nan"):
        implicit(known, np.nan)


@pytest.mark.parametrize(("users", "strength"), [(30, 0.1), (30, 3.0), (30, 500.0), (1100, 20.0)])
def test_ease_by_users_has_the_scores_of_ease_by_items(users, strength):
    known = drawn(users, users + 11, 9 / users).tolil()
    known[:, 7] = 0  # an item without interactions
    known[4] = 0  # a user who knows nothing
    known[6] = known[5]
    nobody = sp.csr_array((12, users + 11), dtype=np.float32)  # more users than items, none of whom adds anything
    by_users = ease(known.tocsr(), regularization=strength)
    by_items = ease(sp.vstack([known, nobody], format="csr"), regularization=strength)
    assert isinstance(by_users, UserSimilarity)
    assert isinstance(by_items, ItemSimilarity)
    rows = torch.tensor([3, 4, users - 1])
    torch.testing.assert_close(by_users.item_scores(rows), by_items.item_scores(rows), atol=2e-6, rtol=1e-5)


# Training lists


def batch_of(known, users):
    lists = known.to_lists()
    items = [torch.from_numpy(known.item[known.user == user]) for user in users]
    padded = torch.nn.utils.rnn.pad_sequence(items, batch_first=True)
    assert lists.num_lists <= known.num_users
    return torch.tensor(users), padded, torch.arange(padded.shape[1]) < torch.tensor([[len(each)] for each in items])


def test_lists_of_the_catalogue_are_all_items_with_labels():
    known = interactions(drawn())
    users, items, real = batch_of(known, [4, 0, 7])
    scorer = MatrixFactorization(30, 25, rank=3)
    scores, labels, where = TrainingLists(known)(scorer, users, items, real)
    assert where is None
    torch.testing.assert_close(scores, scorer.item_scores(users))
    np.testing.assert_array_equal(labels, known.to_csr().toarray()[users])


def test_losses_over_the_catalogue_are_computed_in_blocks(monkeypatch):
    monkeypatch.setattr(catalogue_module, "_BLOCK", 60)  # 2 users
    known = interactions(drawn())
    lists = TrainingLists(known)
    given = batch_of(known, [4, 0, 7, 9, 11])
    scorer = MatrixFactorization(30, 25, rank=3, temperature=0.2).double()
    seen = []

    class Observed(rs.StructuredHingeLoss):
        def forward(self, scores, labels, **lists):
            seen.append(len(scores))
            return super().forward(scores, labels, **lists)

    def gradients(value):
        return [value, *torch.autograd.grad(3 * value, [*scorer.parameters()])]

    for loss in (Observed("AP", reference="predicted"), rs.SoftmaxLoss(), rs.RankNetLoss()):
        found = gradients(lists.mean_loss(scorer, loss, *given))
        scores, labels, where = lists(scorer, *given)
        for each, expected in zip(found, gradients(loss(scores, labels, where=where)), strict=True):
            torch.testing.assert_close(each, expected, rtol=1e-12, atol=1e-14)
    assert seen == [2, 2, 1, 5]
    with torch.no_grad():
        torch.testing.assert_close(lists.mean_loss(scorer, rs.RankNetLoss(), *given), found[0].detach())


def test_other_devices_have_blocks_and_never_wait_for_a_value(monkeypatch):
    """Tensors without values stand for those of a GPU: to look at one raises."""
    monkeypatch.setattr(catalogue_module, "_DEVICE_BLOCK", 60)  # 2 users
    known, seen = interactions(drawn()), []

    class Observed(rs.SoftmaxLoss):
        def forward(self, scores, labels, **lists):
            seen.append((len(scores), scores.device.type))
            return (scores - labels).square().mean()

    scorer = MatrixFactorization(30, 25, rank=3).to("meta")
    given = [each.to("meta") for each in batch_of(known, [4, 0, 7, 9, 11])]
    TrainingLists(known).mean_loss(scorer, Observed(), *given).backward()
    assert seen == [(2, "meta"), (2, "meta"), (1, "meta")]
    assert all(each.grad.shape == each.shape for each in scorer.parameters())


@pytest.mark.parametrize("name", ["AP", "softmax"])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_is_that_of_float32_in_blocks(name, kind, monkeypatch):
    monkeypatch.setattr(catalogue_module, "_BLOCK", 60)
    known = interactions(drawn())
    given = batch_of(known, [4, 0, 7, 9, 11])
    loss = {"AP": rs.StructuredHingeLoss("AP"), "softmax": rs.SoftmaxLoss()}[name]
    scorer = MatrixFactorization(30, 25, rank=3)
    wanted = TrainingLists(known).mean_loss(scorer, loss, *given)
    with torch.autocast("cpu", kind):
        found = TrainingLists(known).mean_loss(scorer, loss, *given)
    assert found.dtype == torch.float32
    gradients = [torch.autograd.grad(each, [*scorer.parameters()]) for each in (found, wanted)]
    torch.testing.assert_close([found, *gradients[0]], [wanted, *gradients[1]])

    low = MatrixFactorization(30, 25, rank=3).to(kind)
    TrainingLists(known).mean_loss(low, loss, *given).backward()
    whole = low.to(torch.float32)  # of the same rounded weights
    expected = torch.autograd.grad(TrainingLists(known).mean_loss(whole, loss, *given), [*whole.parameters()])
    for each, there in zip(whole.parameters(), expected, strict=True):
        torch.testing.assert_close(each.grad.float(), there, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    "loss", [rs.SoftmaxLoss(reduction="sum"), rs.CombinedLoss([rs.RankNetLoss(), rs.SoftmaxLoss()]), torch.nn.MSELoss()]
)
def test_losses_that_are_no_plain_mean_over_users_get_them_at_once(monkeypatch, loss):
    monkeypatch.setattr(catalogue_module, "_BLOCK", 60)
    known, seen = interactions(drawn()), []
    scorer, given = MatrixFactorization(30, 25, rank=3), batch_of(interactions(drawn()), [4, 0, 7])
    call = loss.forward
    monkeypatch.setattr(
        loss, "forward", lambda scores, labels, where=None: seen.append(scores.shape) or call(scores, labels)
    )
    TrainingLists(known).mean_loss(scorer, loss, *given)
    assert seen == [(3, 25)]


@pytest.mark.parametrize("negatives", ["uniform", "popularity"])
def test_sampled_items_have_the_right_labels_mask_and_correction(negatives):
    known = interactions(drawn(share=0.4))
    matrix, counts = known.to_csr().toarray(), np.bincount(known.item, minlength=25)
    users, items, real = batch_of(known, [4, 0])
    scorer = MatrixFactorization(30, 25, rank=3)
    lists = TrainingLists(known, Negatives(negatives, number=3000))
    torch.manual_seed(0)
    scores, labels, where = lists(scorer, users, items, real)
    width, every = items.shape[1], scorer.item_scores(users)
    assert labels[:, width:].sum() == 0
    torch.testing.assert_close(scores[:, :width][real], every.gather(1, items)[real])
    for row, user in enumerate(users):
        sampled = scores[row, width:][where[row, width:]].unique()
        unknown = every[row][torch.from_numpy(matrix[user] == 0)]
        torch.testing.assert_close(sampled.sort().values, unknown.unique())
    expected = np.full(25, 1 / 25) if negatives == "uniform" else counts / counts.sum()
    assert float((~where[0, width:]).float().mean()) == pytest.approx(expected[matrix[4] > 0].sum(), abs=0.03)
    # with the correction, the sum of exponentials estimates that over all unknown items
    torch.manual_seed(0)
    corrected = TrainingLists(known, Negatives(negatives, number=3000, correct=True))(scorer, users, items, real)[0]
    total = torch.where(where[:, width:], corrected[:, width:].exp(), 0.0).sum(1)
    exact = torch.where(torch.from_numpy(matrix[users]) == 0, every.exp(), 0.0).sum(1)
    torch.testing.assert_close(total, exact, rtol=0.05, atol=0.0)


def test_in_batch_negatives_are_the_known_items_of_others():
    known = interactions([0, 0, 1, 2], [0, 1, 2, 1], user_names=range(3), item_names=range(4))
    users, items = torch.tensor([0, 1, 2]), torch.tensor([[0], [2], [1]])
    scorer = MatrixFactorization(3, 4, rank=2)
    scores, labels, where = TrainingLists(known, "in-batch")(scorer, users, items)
    torch.testing.assert_close(scores, scorer.item_scores(users)[:, items[:, 0]])
    assert torch.equal(labels, torch.eye(3))
    assert where.tolist() == [[True, True, False], [True, True, True], [True, True, True]]  # user 0 knows item 1
    corrected = TrainingLists(known, Negatives("in-batch", correct=True))(scorer, users, items)[0]
    torch.testing.assert_close(scores - corrected, torch.tensor([0.25, 0.25, 0.5]).log().expand(3, 3))


def test_bad_options_of_lists_are_errors():
    for given, message in (
        ({"kind": "none"}, "negatives must be .*'none'"),
        ({"number": 0}, "number must be an integer from 1, got 0"),
        ({"kind": "uniform", "number": 1.5}, "number must be an integer from 1, got 1.5"),
        ({"number": 5}, "number is for negatives 'uniform' and 'popularity'; got 5 with 'all'"),
        ({"kind": "in-batch", "number": 5}, "got 5 with 'in-batch'"),
        ({"correct": True}, "correct is for sampled negatives"),
        ({"kind": "uniform", "correct": 2}, "correct must be True or False, got 2"),
        ({"pairs": True}, "pairs requires sampled negatives"),
    ):
        with pytest.raises(ValueError, match=message):
            Negatives(**given)


def test_new_users_are_folded_in_to_a_minimum_with_the_items_fixed():
    scorer = MatrixFactorization(2, 30, rank=4, temperature=0.2, dropout=0.5)
    known, loss = interactions(drawn(5, 30, 0.1)), rs.SoftmaxLoss(reduction="none")
    known = known.select(known.user != 2)
    before = scorer.item_factors.weight.clone()
    few, many = (fold_in(scorer, known, loss.with_options(reduction="mean"), steps=steps) for steps in (50, 2000))
    assert torch.equal(scorer.item_factors.weight, before)
    assert scorer.training
    labels, scorer = torch.from_numpy(known.to_csr().toarray()), scorer.eval()
    values, least = (loss(scorer.factor_scores(factors), labels) for factors in (few, many))
    assert (values <= 1.1 * least + 0.2).all()
    assert not few[2].any()  # knows nothing
    random = loss(scorer.factor_scores(torch.randn(100, 5, 4)), labels.expand(100, 5, 30))
    assert (values[[0, 1, 3, 4]] < random[:, [0, 1, 3, 4]].amin(0) + 0.2).all()
    with pytest.raises(ValueError, match="known must have the 30 items"):
        fold_in(scorer, interactions(drawn(3, 4)), rs.SoftmaxLoss())


# The estimator


@pytest.fixture(scope="module")
def parts():
    return InteractionsSource(builtin="synthetic").read()


def test_the_first_call_learns():
    rng = np.random.default_rng(0)
    groups = np.arange(300) % 6
    matrix = np.array([rng.random(200) < np.where(np.arange(200) % 6 == group, 0.4, 0.03) for group in groups])
    test = matrix & (rng.random(matrix.shape) < 0.3)
    model = Recommender().fit(sp.csr_array((matrix & ~test).astype(float)))
    alike = interactions(sp.csr_array((matrix & ~test).astype(float)))
    base = evaluate_catalogue(popularity(alike), interactions(sp.csr_array(test.astype(float))), exclude=alike)[
        "nDCG@10"
    ]
    assert model.score(sp.csr_array(test.astype(float))) > 2 * float(base.mean())
    of_ease = evaluate_catalogue(ease(alike), interactions(sp.csr_array(test.astype(float))), exclude=alike)["nDCG@10"]
    assert model.score(sp.csr_array(test.astype(float))) > 0.98 * float(of_ease.mean())
    assert len(model.history_) == model.best_epoch_ + 1 < 20


@pytest.mark.parametrize("shape", [(30, 22), (22, 30)])
@pytest.mark.parametrize("strength", [2.0, 100.0])
def test_linear_factors_of_full_rank_have_the_scores_of_ease(shape, strength):
    known = drawn(*shape)
    users, items = LinearFactors(known, 22).factors(regularization=strength)
    scores = torch.from_numpy(users @ items.T).float()
    torch.testing.assert_close(
        scores, ease(known, regularization=strength).item_scores(torch.arange(shape[0])), atol=1e-4, rtol=1e-3
    )
    scorer = MatrixFactorization(*shape, rank=22, item_bias=False)
    scorer.start_from_interactions(known, "linear", regularization=strength)
    torch.testing.assert_close(scorer.item_scores(torch.arange(shape[0])), 30 * scores, atol=1e-3, rtol=1e-3)


def test_linear_factors_of_low_rank_rank_about_as_well_as_ease():
    rng = np.random.default_rng(0)
    groups = np.arange(300) % 6
    matrix = rng.random((300, 200)) < np.where(np.arange(200) % 6 == groups[:, None], 0.4, 0.03)
    held = sp.csr_array(matrix & (rng.random(matrix.shape) < 0.3))
    known = sp.csr_array((matrix & ~held.toarray()).astype(np.float32))
    held = held.astype(np.float32)
    users, items = map(torch.from_numpy, LinearFactors(known, 40).factors(regularization=50.0))
    values = [
        float(evaluate_catalogue(model, held, "nDCG@10", exclude=known)["nDCG@10"].mean())
        for model in (Table(users @ items.T), ease(known, regularization=50.0), popularity(known))
    ]
    assert values[0] > 0.95 * values[1] > values[2]


def test_new_users_with_what_users_know_get_about_what_these_get():
    rng = np.random.default_rng(0)
    groups = np.arange(300) % 6
    matrix = sp.csr_array((rng.random((300, 200)) < np.where(np.arange(200) % 6 == groups[:, None], 0.4, 0.03)) * 1.0)
    model = Recommender().fit(matrix)
    found, again = model.recommend(range(300), 10)[0], model.recommend_new(matrix, 10)[0]
    shared = np.mean([len(np.intersect1d(*each)) for each in zip(found, again, strict=True)])
    assert shared > 8


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options",
    [
        {"loss": rs.StructuredHingeLoss("AP", reference="predicted"), "temperature": 0.1},
        {"loss": "RankNetLoss", "negatives": Negatives("uniform", pairs=True), "lists_per_batch": 512},
        {"negatives": Negatives("in-batch", pairs=True, correct=True), "lists_per_batch": 128},
        {"negatives": Negatives("popularity", number=20, correct=True)},
        {"layers": 1},
        {"temperature": None, "item_bias": True},
        {"start": "random"},
        {"loss": "StructuredHingeLoss('P@5')", "max_epochs": 10},
    ],
)
def test_other_losses_lists_and_models_learn(parts, options):
    model = Recommender(rank=16, **{"max_epochs": 30} | options).fit(parts.train, validation=parts.vali)
    chance = MatrixFactorization(parts.train.num_users, parts.train.num_items)
    random = evaluate_catalogue(chance, parts.test, ["nDCG@10"], exclude=parts.train)["nDCG@10"]
    assert model.score(parts.test) > 2 * float(random.mean())


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [{}, {"layers": 2}, {"loss": rs.StructuredHingeLoss("AP", reference="predicted")}])
def test_training_on_a_device_is_that_of_the_cpu(parts, options):
    here, there = (
        Recommender(rank=16, max_epochs=5, device=device, **options).fit(parts.train, validation=parts.vali)
        for device in ("cpu", "cuda")
    )
    for mine, its in zip(here.history_, there.history_, strict=True):
        assert mine == pytest.approx(its, rel=2e-2)
    assert here.score(parts.test) == pytest.approx(there.score(parts.test), rel=2e-2)
    items, _ = recommend(there.scorer_, torch.arange(5), 10)
    assert items.is_cuda
    assert novelty(items, parts.train) == novelty(items.cpu(), parts.train)
    assert there.recommend_new(parts.test, k=3)[0].shape[1] == 3


def test_matrices_give_indices_and_tables_names(parts):
    options = {"rank": 4, "max_epochs": 2}
    matrix = parts.train.to_csr()
    by_index = Recommender(**options).fit(matrix)
    items, scores = by_index.recommend([3, 0], k=5)
    assert items.dtype == np.int64
    assert items.shape == scores.shape == (2, 5)
    assert not matrix.toarray()[3, items[0]].any()
    assert matrix.toarray()[3, by_index.recommend(3, 150, exclude_known=False)[0]].any()
    names = [f"u{n}" for n in parts.train.user_names], [f"i{n}" for n in parts.train.item_names]
    table = pd.DataFrame({"user": np.array(names[0])[parts.train.user], "item": np.array(names[1])[parts.train.item]})
    by_name = Recommender(**options).fit(table)
    named = by_name.recommend("u3", k=5)[0]
    assert all(name.startswith("i") for name in named)
    known = set(table["item"][table["user"] == "u3"])
    assert not known & set(named)
    everything = by_name.recommend("u3", k=10**3)[0]
    assert everything[-1] is None
    assert len([name for name in everything if name]) == table["item"].nunique() - len(known)


def test_a_fit_is_repeatable_and_pickled_and_cloned(parts):
    model = Recommender(rank=4, max_epochs=3, dropout=0.2, random_state=3)
    before = torch.get_rng_state()
    first = model.fit(parts.train).recommend([parts.train.user_names[0]])
    again = clone(model).fit(parts.train)
    assert torch.equal(torch.get_rng_state(), before)
    for found in (again, pickle.loads(pickle.dumps(again))):
        for mine, its in zip(first, found.recommend([parts.train.user_names[0]]), strict=True):
            np.testing.assert_array_equal(mine, its)


def test_new_users_get_recommendations(parts):
    matrix = parts.train.to_csr()
    model = Recommender(rank=16, max_epochs=40).fit(matrix[:300])
    new = sp.csr_array(matrix[300:].toarray())
    with pytest.warns(UserWarning, match="1 of the 147 items of X .* are not in the items of fit"):  # an empty column
        items, _ = model.recommend_new(new, 10)
    assert not np.take_along_axis(new.toarray(), items, 1).any()
    relevant = parts.test.to_csr().toarray()[300:]
    guessed = np.random.default_rng(0).integers(matrix.shape[1], size=items.shape)
    hits, chance = (np.take_along_axis(relevant, each, 1).mean() for each in (items, guessed))
    assert hits > 2 * chance


@pytest.mark.filterwarnings("ignore:for each user with held-out interactions every ranking is equally good")
def test_users_with_nothing_or_everything_and_repeated_interactions_are_legal():
    matrix = drawn(users=6, items=5, share=0.5).toarray()
    matrix[0], matrix[1] = 1, 0
    for loss in (None, "StructuredHingeLoss('AP')"):
        model = Recommender(loss, rank=3, max_epochs=2, lists_per_batch=2).fit(sp.csr_array(matrix))
        items, scores = model.recommend([0, 1], 2)
        assert items[0].tolist() == [-1, -1]
        assert np.isneginf(scores[0]).all()
        assert (items[1] >= 0).all()
        assert model.recommend_new(sp.csr_array((2, 5)), 2)[0].shape == (2, 2)  # of whom nothing is known
    table = pd.DataFrame({"user": ["a", "a", "b"], "item": ["x", "y", "x"]})
    once, twice = (Recommender(rank=3, max_epochs=2).fit(each) for each in (table, pd.concat([table, table])))
    np.testing.assert_array_equal(once.recommend(["a", "b"])[1], twice.recommend(["a", "b"])[1])
    for unknown, message in (
        ({"user": ["c"]}, "none of the 1 users of X is in the users of fit, such as 'c'"),
        ({"item": ["z"]}, "none of the 1 items of X is in the items of fit, such as 'z'"),
    ):
        with pytest.raises(DataError, match=message):
            once.evaluate(pd.DataFrame({"user": ["a"], "item": ["x"]} | unknown))
    assert once.evaluate(pd.DataFrame({"user": ["b"], "item": ["y"]}))["R@10"] == 1  # which b has not seen


@pytest.mark.filterwarnings("ignore:for .* with held-out interactions every ranking is equally good")
def test_bad_input_of_the_estimator_is_an_error():
    with pytest.raises(DataError, match="expected interactions to learn from, got none"):
        Recommender().fit(sp.csr_array((3, 4)))
    with pytest.raises(DataError, match="must be numbers >= 0"):
        Recommender().fit(sp.csr_array([[1.0, -2.0]]))
    model = Recommender(rank=2, max_epochs=1).fit(sp.csr_array([[1.0, 0, 1], [1, 1, 1], [0, 0, 0]]))
    assert model.recommend([1])[0].tolist() == [[-1] * 3]  # has seen everything
    assert (model.recommend([2], 3)[0] >= 0).all()  # knows nothing
    with pytest.raises(ValueError, match="users must be those of fit, got '3'"):
        model.recommend([0, 3])
    for wrong in (sp.csr_array((3, 4)), sp.csr_array((2, 3))):
        with pytest.raises(DataError, match="expected 3 users and 3 items, as in fit"):
            model.evaluate(wrong)
    with pytest.raises(DataError, match="expected interactions to evaluate on, got none"):
        model.evaluate(sp.csr_array((3, 3)))
    with pytest.raises(ValueError, match="users must not be missing; that of user 0 is"):
        model.recommend(None)
    with pytest.raises(ValueError, match="max_epochs"):
        Recommender(max_epochs=0).fit(sp.csr_array([[1.0]]))
    with pytest.raises(ValueError, match="start must be one of 'linear', 'spectral', 'random', got 'svd'"):
        Recommender(start="svd").fit(sp.csr_array([[1.0]]))
    for validation in (sp.csr_array([[1.0, 0]]), sp.csr_array((1, 2))):
        with pytest.raises(DataError, match="validation has no interactions that are not in X too"):
            Recommender().fit(sp.csr_array([[1.0, 0]]), validation=validation)
    for options, message in (
        ({"validation_share": 1}, "validation_share must be a finite number of at least 0 and below 1, got 1"),
        ({"validation_share": "a"}, "validation_share must be a finite number .*, got 'a'"),
        ({"layers": -1}, "layers must be an integer from 0, got -1"),
        ({"negatives": "none"}, "negatives must be one of .*, got 'none'"),
        ({"loss": "softmax"}, r"loss must be a loss module .*, got 'softmax'"),
        ({"loss": "StructuredHingeLoss('XX@5')"}, r"loss must be .*XX@5"),
    ):
        with pytest.raises(ValueError, match=message):
            Recommender(max_epochs=1, **options).fit(drawn())


def test_names_are_those_of_fit():
    matrix = drawn()
    rows, columns = matrix.nonzero()
    table = pd.DataFrame({"user": [f"u{row}" for row in rows], "item": [f"i{column}" for column in columns]})
    by_index, by_name = (Recommender(rank=2, max_epochs=1).fit(each) for each in (matrix, table))
    for model, other in ((by_index, table), (by_name, matrix)):
        refit = partial(Recommender().fit, model.known_ if other is matrix else matrix)
        for use in (model.evaluate, model.recommend_new, lambda each, refit=refit: refit(validation=each)):
            with pytest.raises(DataError, match=r"as in fit|of fit"):
                use(other)
    dense = matrix.toarray()
    new = sp.csr_array(((dense == 0) & dense.any(0) & dense.any(1)[:, None]).astype(float))
    rows, columns = new.nonzero()
    others = pd.DataFrame({"user": [f"u{row}" for row in rows], "item": [f"i{column}" for column in columns]})
    assert by_index.evaluate(interactions(new)) == by_index.evaluate(new)
    assert by_name.evaluate(interactions(others)) == by_name.evaluate(others)
    swapped = interactions(others, item_names=sorted(set(others["item"]), reverse=True))
    assert by_name.evaluate(swapped) == by_name.evaluate(others)  # names count, not indices


@pytest.mark.parametrize("dtype", ["int64", "uint8", "Int64", "int64[pyarrow]", "float64", object])
def test_integer_items_come_back_as_integers(dtype):
    table = pd.DataFrame({"user": [7, 7, 8, 8], "item": [30, 5, 5, 100]}).astype({"item": dtype})
    table["user"] = table["user"].astype(object)
    model = Recommender(rank=2, max_epochs=1, validation_share=0).fit(table)
    items = model.recommend([7, 8], 1)[0]
    assert items.dtype == np.int64
    assert items.tolist() == [[100], [30]]
    assert model.recommend(7, 2)[0].tolist() == model.recommend(7.0, 2)[0].tolist() == [100, None]
    assert Recommender(rank=2, max_epochs=1).fit(table.astype({"item": "int64"}).astype({"item": str})).recommend(7, 1)[
        0
    ].tolist() == ["100"]


def test_large_integers_come_back():
    table = pd.DataFrame({"user": [7, 7, 8, 8], "item": np.array([2**63, 5, 5, 2**63 + 1], np.uint64)})
    model = Recommender(rank=2, max_epochs=1, validation_share=0).fit(table)
    assert model.recommend([7, 8], 1)[0].tolist() == [[2**63 + 1], [2**63]]


def test_users_without_interactions_get_the_popular_items():
    matrix = drawn(60, 40, 0.1).toarray()
    matrix[50:] = 0
    for start in ("spectral", "random"):
        for layers in (0, 1):
            model = Recommender(rank=4, max_epochs=5, start=start, layers=layers).fit(sp.csr_array(matrix))
            items = model.recommend(range(50, 60), 5)[0]
            np.testing.assert_array_equal(items, model.recommend_new(sp.csr_array((10, 40)), 5)[0])
            assert matrix.sum(0)[items[0]].mean() > matrix.sum(0).mean()


@pytest.mark.parametrize("number", [1, 100])
@pytest.mark.parametrize("negatives", ["all", "uniform", "in-batch"])
def test_user_biases_are_in_all_training_lists(negatives, number):
    scorer = MatrixFactorization(30, 25, user_bias=True)
    torch.nn.init.constant_(scorer.user_offsets.weight, 5.0)
    users, items = torch.tensor([0, 3]), torch.tensor([[1], [2]])
    lists = TrainingLists(drawn(), Negatives(negatives, number if negatives == "uniform" else 1))
    scores, labels, _ = lists(scorer, users, items)
    torch.testing.assert_close(scores[labels > 0], scorer.item_scores(users)[torch.arange(2), items[:, 0]])
    lists.mean_loss(scorer, rs.SquaredLoss(), users, items).backward()
    assert (scorer.user_offsets.weight.grad[[0, 3]] != 0).all()
    of_users, of_items = scorer.vectors()
    torch.testing.assert_close(of_users @ of_items.T, scorer.item_scores(torch.arange(30)))


def test_a_seed_may_be_drawn():
    fits = [Recommender(rank=3, max_epochs=1, random_state=seed) for seed in (np.random.RandomState(5), 2**40, None)]
    scores = [model.fit(drawn()).recommend([0])[1] for model in fits]
    assert not np.array_equal(scores[0], scores[2])
    again = clone(fits[0]).set_params(random_state=np.random.RandomState(5)).fit(drawn())
    np.testing.assert_array_equal(again.recommend([0])[1], scores[0])
