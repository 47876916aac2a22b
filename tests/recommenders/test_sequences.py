"""Recommenders that count, compared with plain loops, and what they share with `Recommender`."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from rankstruct import Constraints, Recommender
from rankstruct.data import DataError
from rankstruct.recommenders import (
    BlendRecommender,
    Ratings,
    SessionKNN,
    TransitionRecommender,
    evaluate_catalogue,
    hold_out,
    interactions,
    read_interactions,
)
from rankstruct.recommenders import sequences as sequences_module

SEQUENCES = {"ann": "abcd", "bob": "bca", "eve": "cadb", "kim": "dbe", "zoe": "e"}
USERS = [user for user, items in SEQUENCES.items() for _ in items]
ITEMS = [item for items in SEQUENCES.values() for item in items]
MODELS = {
    "transitions": TransitionRecommender(decay=0.5, normalise="root"),
    "kNN": SessionKNN(decay=0.5, neighbours=2),
    "blend": BlendRecommender(
        TransitionRecommender(decay=0.5, normalise="sum"), SessionKNN(decay=1.0, neighbours=3), weight=0.3
    ),
}
each_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(params=MODELS)
def model(request):
    return clone(MODELS[request.param]).fit(USERS, ITEMS)


def last_ones(sequence):
    """The distinct items in the order of their last places."""
    return [item for at, item in enumerate(sequence) if item not in sequence[at + 1 :]]


def by_popularity(scores, sequences):
    """Scores with the small share of popularity, as a factor of those above 0, and below the least of these for others."""
    counts = np.array([sum(item in items for items in sequences) for item in range(len(scores))])
    share = 1e-10 * counts / max(counts.max(), 1)
    return np.where(scores > 0, scores * (1 + share), share * min(scores[scores > 0], default=1))


def transition_scores(sequences, own, num_items, decay, window, power):
    weights = np.zeros((num_items, num_items))
    for items in sequences:
        for at, item in enumerate(items):
            for gap in range(1, window + 1):
                if at + gap < len(items):
                    weights[item, items[at + gap]] += decay ** (gap - 1)
    scores = np.zeros(num_items)
    for gap, item in enumerate(own[::-1], 1):
        if gap <= window and weights[item].any():
            scores += decay ** (gap - 1) * weights[item] / weights[item].sum() ** power
    return by_popularity(scores, sequences)


def vector(items, num_items, decay):
    found = np.zeros(num_items)
    for age, item in enumerate(items[::-1]):
        found[item] = decay**age
    return found / (np.linalg.norm(found) or 1)


def neighbour_scores(sequences, own, num_items, decay, neighbours, left_out=None):
    cosines = np.array([vector(own, num_items, decay) @ vector(each, num_items, decay) for each in sequences])
    if left_out is not None:
        cosines[left_out] = 0
    scores = np.zeros(num_items)
    for at in np.argsort(-cosines, kind="stable")[:neighbours]:
        scores[sequences[at]] += cosines[at]
    return by_popularity(scores, sequences)


some_sequences = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=1, max_size=5)


def fitted(model, sequences):
    users = [user for user, items in enumerate(sequences) for _ in items]
    names = {"user_names": range(len(sequences)), "item_names": range(5)}
    chosen = [item for items in sequences for item in items]
    return model.fit(interactions(users, chosen, times=range(len(users)), **names))


def scores_of(model, num_users):
    return model.catalogue_model().item_scores(torch.arange(num_users)).numpy()


@settings(max_examples=25, deadline=None)
@given(some_sequences, st.sampled_from([0.3, 1.0]), st.integers(1, 4), st.sampled_from(["none", "root", "sum"]))
def test_transitions_are_those_of_a_loop(given_sequences, decay, window, normalise):
    model = fitted(TransitionRecommender(decay=decay, window=window, normalise=normalise), given_sequences)
    sequences = [last_ones(each) for each in given_sequences]
    power = {"none": 0, "root": 0.5, "sum": 1}[normalise]
    wanted = [transition_scores(sequences, own, 5, decay, window, power) for own in sequences]
    np.testing.assert_allclose(scores_of(model, len(sequences)), wanted, rtol=1e-5, atol=1e-7)


@settings(max_examples=25, deadline=None)
@given(some_sequences, st.sampled_from([0.3, 1.0]))
def test_neighbours_are_those_of_a_loop(given_sequences, decay):
    sequences = [last_ones(each) for each in given_sequences]
    model = fitted(SessionKNN(decay=decay, neighbours=5), given_sequences)
    wanted = [neighbour_scores(sequences, own, 5, decay, 5, user) for user, own in enumerate(sequences)]
    np.testing.assert_allclose(scores_of(model, len(sequences)), wanted, rtol=1e-5, atol=1e-7)


def test_popularity_decides_among_equal_scores_and_no_others():
    followers = "abcdefghijk"
    sequences = ["x" + each for each in followers] + [each for at, each in enumerate(followers, 8) for _ in range(at)]
    users = [user for user, items in enumerate(sequences) for _ in items]
    model = TransitionRecommender(decay=0.5, normalise="none").fit(users, list("".join(sequences)))
    assert "".join(model.recommend_new(["x"], k=11)[0]) == followers[::-1]  # counts of 8 to 18
    rare = ["x" + "abcdefgh"[:length] for length in (8, 8)] + ["z"] * 20
    users = [user for user, items in enumerate(rare) for _ in items]
    for members in (TransitionRecommender(decay=0.1, normalise="sum"), SessionKNN(decay=0.01, neighbours=9)):
        model = clone(members).fit(users, list("".join(rare)))
        assert list(model.recommend_new(["x"], k=9)[0])[-1] == "z"  # nothing leads to the most popular one


def test_blocks_of_users_have_the_neighbours_of_all(monkeypatch):
    model = clone(MODELS["kNN"]).fit(USERS, ITEMS)
    wanted = scores_of(model, 5)
    monkeypatch.setattr(sequences_module, "_BLOCK", 10)
    np.testing.assert_array_equal(scores_of(model, 5), wanted)


def test_only_the_nearest_neighbours_count():
    sequences = [[0, 1], [0, 2], [3, 0], [4, 1]]
    model = fitted(SessionKNN(decay=0.5, neighbours=1), sequences)
    own = [0]
    wanted = neighbour_scores(sequences, own, 5, 0.5, 1)
    found = dict(zip(*model.recommend_new([0], k=5), strict=True))
    assert found == pytest.approx({str(item): wanted[item] for item in (1, 2, 3, 4)} | {None: -np.inf})


def test_a_blend_is_the_weighted_mean_of_scores_from_0_to_1():
    first, second = TransitionRecommender(decay=0.5, normalise="none"), SessionKNN(decay=1.0, neighbours=3)
    parts = [scores_of(each.fit(USERS, ITEMS), 5) for each in (first, second)]
    scaled = [(each - each.min(1, keepdims=True)) / np.ptp(each, axis=1, keepdims=True) for each in parts]
    scaled[0][4] = 0  # whose last item nothing followed
    found = scores_of(BlendRecommender(first, second, weight=0.25).fit(USERS, ITEMS), 5)
    np.testing.assert_allclose(found, 0.25 * scaled[0] + 0.75 * scaled[1], rtol=1e-5, atol=1e-6)


def test_scores_that_differ_by_rounding_alone_are_not_spread():
    like = torch.tensor([[0.1 + 0.2, 0.3, 0.3]], dtype=torch.float64)
    assert sequences_module._scaled(like).max() < 1e-12
    assert sequences_module._scaled(1e-12 * torch.tensor([[1.0, 2.0, 3.0]])).tolist() == [[0, pytest.approx(0.5), 1]]


# Order


def test_the_order_is_that_of_rows_or_of_times(tmp_path):
    (tmp_path / "sequences.txt").write_text("".join(f"{user} {' '.join(items)}\n" for user, items in SEQUENCES.items()))
    frame = pd.DataFrame({"user": USERS, "item": ITEMS})
    timed = frame.assign(time=range(len(frame))).sample(frac=1, random_state=0)
    wanted = clone(MODELS["transitions"]).fit(USERS, ITEMS).transitions_.toarray()
    for X in (frame, timed, read_interactions(tmp_path / "sequences.txt", times="order")):
        np.testing.assert_array_equal(clone(MODELS["transitions"]).fit(X).transitions_.toarray(), wanted)
    turned = clone(MODELS["transitions"]).fit(frame[::-1]).transitions_.toarray()
    assert not np.array_equal(turned, wanted)


def test_the_last_of_each_user_is_held_out_of_a_file_in_order(tmp_path):
    path = tmp_path / "sequences.txt"
    path.write_text("ann x y z\nbob z\nann w\n")
    found = read_interactions(path, times="order")
    train, held = hold_out(found, 1, latest=True)
    assert (found.item_names[held.item].tolist(), found.item_names[train.item].tolist()) == (
        ["w"],
        ["x", "y", "z", "z"],
    )
    assert read_interactions(path).time is None
    with pytest.raises(ValueError, match="times must be one of True, False, None, 'order', got 'rows'"):
        read_interactions(path, times="rows")
    table = tmp_path / "sequences.csv"
    table.write_text("user,item\nann,x\n")
    with pytest.raises(DataError, match="times='order' is for text files"):
        read_interactions(table, times="order")


@pytest.mark.parametrize("name", ["date", "created_at", "seen"])
def test_dates_under_another_name_than_usual_are_a_warning(name):
    frame = pd.DataFrame({"user": USERS, "item": ITEMS, name: pd.date_range("2026-01-01", periods=len(USERS))})
    wanted = clone(MODELS["transitions"]).fit(USERS, ITEMS).transitions_.toarray()
    with pytest.warns(UserWarning, match=f"for the order of '{name}' pass time='{name}'") as told:
        turned = clone(MODELS["transitions"]).fit(frame[::-1])
    assert told[0].filename == __file__
    assert not np.array_equal(turned.transitions_.toarray(), wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(turned.fit(frame[::-1], time=name).transitions_.toarray(), wanted)
        turned.recommend_new(frame.iloc[:2])
    with pytest.raises(TypeError, match="table with a column of times, or interactions"):
        turned.fit(USERS, ITEMS, times=range(len(USERS)))
    with pytest.raises(DataError, match=r"times of arrays are for interactions\(users, items, times=...\)"):
        turned.fit(USERS, ITEMS, time=range(len(USERS)))
    with pytest.raises(TypeError, match="got records: pass pandas"):
        turned.fit(frame.to_records())


@each_model
def test_interactions_without_an_order_are_refused(name):
    for X in (sp.csr_array([[1, 1]]), interactions(USERS, ITEMS)):
        with pytest.raises(DataError, match=r"order of time.*times='order'"):
            clone(MODELS[name]).fit(X)
    fitted_one = clone(MODELS[name]).fit(USERS, ITEMS)
    with pytest.raises(DataError, match="order of time"):
        fitted_one.recommend_new(interactions(USERS, ITEMS))


# What they share with Recommender


def test_unknown_users_and_items_and_users_without_followers(model):
    with pytest.raises(ValueError, match="users must be those of fit"):
        model.recommend("nobody")
    counts = pd.Series(ITEMS).value_counts()
    popular = model.recommend("nobody", k=5, unknown="popular")[0]
    assert list(counts[popular]) == sorted(counts, reverse=True)
    assert set(model.recommend("zoe", k=9)[0]) == set("abcd") | {None}
    with pytest.warns(UserWarning, match="items of X"):
        found = model.recommend_new([["a", "?"]], k=2)[0]
    np.testing.assert_array_equal(found, model.recommend_new([["a"]], k=2)[0])


def test_new_users_with_the_items_of_known_ones(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.recommend_new(pd.DataFrame({"user": ["new"] * 4, "item": list("abcd")}))
        again = model.recommend_new(["a", "b", "c", "d"])
    np.testing.assert_array_equal(found[0][0], again[0])
    if isinstance(model, TransitionRecommender):  # kNN leaves a known user out of the neighbours, not a new one
        np.testing.assert_allclose(again[1], model.recommend("ann")[1], rtol=1e-6)


def test_rules_exclusions_and_measures(model):
    groups = {item: "vowel" if item in "ae" else "consonant" for item in "abcde"}
    found = model.recommend("kim", k=3, constraints=Constraints("kind <= 1 @ 3"), columns={"kind": groups})[0]
    assert sorted(groups[item] for item in found if item is not None) in (
        ["consonant", "vowel"],
        ["consonant"],
        ["vowel"],
    )
    assert "c" not in model.recommend("kim", k=3, exclude=["c"])[0]
    test = interactions(["kim", "zoe"], ["c", "d"])
    values = model.evaluate(test, ["nDCG@3", "Success@1"])
    wanted = [model.recommend(user, k=1)[0][0] == item for user, item in (("kim", "c"), ("zoe", "d"))]
    assert values["Success@1"] == np.mean(wanted)
    known = model.known_
    held = interactions(["kim", "zoe"], ["c", "d"], user_names=known.user_names, item_names=known.item_names)
    per_user = evaluate_catalogue(model.catalogue_model(), held, ["nDCG@3"], exclude=known)
    assert float(per_user["nDCG@3"].mean()) == pytest.approx(values["nDCG@3"])
    with pytest.raises(ValueError, match="no vectors of items to index"):
        model.recommend("kim", index=object())


def test_serialised_cloned_and_failed_fits(model):
    again = pickle.loads(pickle.dumps(model))
    for mine, its in zip(model.recommend(list(SEQUENCES)), again.recommend(list(SEQUENCES)), strict=True):
        np.testing.assert_array_equal(mine, its)
    with pytest.raises(NotFittedError):
        clone(model).recommend("ann")
    before = vars(again).copy()
    with pytest.raises(DataError):
        again.fit(sp.csr_array([[1]]))
    assert vars(again) == before


def test_one_item_and_one_interaction():
    for name in MODELS:
        found = clone(MODELS[name]).fit(["ann"], ["x"])
        assert found.recommend("ann")[0].tolist() == [None]
        assert found.recommend("ann", exclude_known=False)[0].tolist() == ["x"]
    with pytest.warns(UserWarning, match="no setting is selected"):
        model = TransitionRecommender().fit(["ann", "ann"], ["x", "y"])
    assert model.settings_ == {"decay": 0.6, "normalise": "root"}


# Settings


def test_settings_are_the_best_of_the_held_out_items():
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(40), 6)
    items = np.concatenate([(rng.integers(12) + np.arange(6) * rng.choice([1, 5])) % 12 for _ in range(40)])
    X = interactions(users, items, times=np.arange(len(users)))
    train, held = hold_out(X, 1, latest=True)
    chosen = TransitionRecommender(normalise="sum").fit(X).settings_
    tried = {
        decay: TransitionRecommender(decay=decay, normalise="sum").fit(train).evaluate(held)["nDCG@10"]
        for decay in (0.6, 0.3, 0.8, 1.0)
    }
    assert chosen == {"decay": max(tried, key=tried.get), "normalise": "sum"}
    assert TransitionRecommender(normalise="sum").fit(train, validation=held).settings_ == chosen


def test_a_blend_takes_members_that_are_fitted_and_chooses_their_weight():
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(30), 5)
    items = np.concatenate([(rng.integers(10) + np.arange(5)) % 10 for _ in range(30)])
    X = interactions(users, items, times=np.arange(len(users)))
    train, held = hold_out(X, 1, latest=True)
    counter = TransitionRecommender(decay=0.5, normalise="sum").fit(train)
    trained = Recommender(rank=2, max_epochs=1, validation_share=0, neighbours=False).fit(train)
    blend = BlendRecommender(counter, trained, prefit=True).fit(train, validation=held)
    assert blend.members_ == [counter, trained]
    values = [
        BlendRecommender(counter, trained, prefit=True, weight=weight / 4).fit(train).evaluate(held)["nDCG@10"]
        for weight in range(5)
    ]
    assert blend.evaluate(held)["nDCG@10"] == max(values)
    with pytest.raises(ValueError, match="fitted on X"):
        BlendRecommender(counter, trained, prefit=True, weight=0.5).fit(X)
    with pytest.raises(ValueError, match="validation="):
        BlendRecommender(counter, trained, prefit=True).fit(train)
    with pytest.raises(NotFittedError):
        BlendRecommender(clone(counter), trained, prefit=True, weight=0.5).fit(train)
    again = BlendRecommender(counter, clone(trained)).fit(X)
    assert [np.array_equal(each.known_.keys(), X.keys()) for each in again.members_] == [True, True]
    assert counter.known_ is train  # fit has fitted copies


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TransitionRecommender(decay=0), "decay must be a finite number above 0 and at most 1, or None, got 0"),
        (lambda: TransitionRecommender(decay="1"), "decay must be a finite number"),
        (lambda: TransitionRecommender(window=0), "window"),
        (lambda: TransitionRecommender(normalise="rows"), "normalise must be"),
        (lambda: TransitionRecommender(measure="AP"), "cut-off"),
        (lambda: SessionKNN(neighbours=0), "neighbours"),
        (lambda: SessionKNN(decay=1.5), "decay"),
        (
            lambda: BlendRecommender(MODELS["kNN"], MODELS["kNN"], weight=2),
            "weight must be a finite number of at least 0 and at most 1",
        ),
        (lambda: BlendRecommender(MODELS["kNN"], 3), "second must be a recommender"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make().fit(USERS, ITEMS)


def test_nothing_to_count_is_refused():
    empty = Ratings.from_arrays([], [], [], scale="binary", time=[])
    with pytest.raises(DataError, match="expected interactions to count, got none"):
        TransitionRecommender().fit(empty)


def test_items_at_the_same_time_are_in_their_order_in_any_ratings():
    data = [
        Ratings.from_arrays(["a"] * 3, items, [1] * 3, scale="binary", time=[1] * 3) for items in ([2, 0, 1], [0, 1, 2])
    ]
    found = [TransitionRecommender(decay=0.5, normalise="none").fit(each).transitions_.toarray() for each in data]
    assert np.array_equal(*found)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TransitionRecommender(normalize="sum"), "pass normalise="),
        (lambda: SessionKNN(k=3), "there is no k=; pass neighbours="),
        (lambda: SessionKNN(n_neighbors=3), "pass neighbours="),
        (lambda: BlendRecommender(SessionKNN(), SessionKNN(), weights=[1, 2]), "pass weight=, that of the first"),
        (lambda: SessionKNN().fit("ratings/u.data"), "got a path, 'ratings/u.data': pass .*read_interactions"),
        (
            lambda: evaluate_catalogue(SessionKNN(), interactions([0], [1])),
            r"catalogue_model\(\) of a fitted recommender",
        ),
    ],
)
def test_what_others_call_differently_names_the_way_out(make, said):
    with pytest.raises(TypeError, match=said):
        make()


def test_a_counter_without_scores_for_a_user_leaves_a_blend_to_the_other_member():
    users, items = [*USERS, "new"], [*ITEMS, "alone"]
    other = SessionKNN(decay=1.0, neighbours=5).fit([*users, "near", "near"], [*items, "alone", "rare"])
    blend = BlendRecommender(TransitionRecommender(decay=0.5, normalise="none"), other, weight=0.9)
    blend.fit([*users, "near", "near"], [*items, "rare", "alone"])
    assert blend.recommend("new", k=1)[0].tolist() == ["rare"]


def test_members_that_need_no_order_blend_without_one():
    matrix = sp.random_array((40, 12), density=0.4, rng=np.random.default_rng(0), format="csr")
    matrix.data[:] = 1
    members = [Recommender(rank=2, max_epochs=1, random_state=each) for each in (0, 1)]
    assert BlendRecommender(*members).fit(matrix).recommend(0, k=2)[0].shape == (2,)
    with pytest.raises(DataError, match="order of time"):
        BlendRecommender(members[0], TransitionRecommender()).fit(matrix)


def test_seconds_of_any_name_are_told_apart_from_ids():
    frame = pd.DataFrame(
        {"user": list("aabb"), "item": list("xyxz"), "ts": [1700000002, 1700000001, 1700000001, 1700000002]}
    )
    for scale in (1, 1000):
        with pytest.warns(UserWarning, match="for the order of 'ts' pass time='ts'"):
            TransitionRecommender(decay=1.0, normalise="none").fit(frame.assign(ts=frame.ts * scale))
    ids = frame.assign(item=frame.ts, ts=[1, 2, 3, 4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TransitionRecommender(decay=1.0, normalise="none").fit(ids)
