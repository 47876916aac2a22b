"""Everyday calls of a `Recommender`: those of other libraries' quick starts, wrong options, new rows, and fits that fail."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import rankstruct as rs
from rankstruct.data import DataError
from rankstruct.recommenders import (
    MatrixFactorization,
    NeighbourFactorization,
    Recommender,
    interactions,
    read_interactions,
)
from rankstruct.recommenders import base as base_module
from rankstruct.recommenders import estimator as estimator_module


def plays(users=40, items=25, share=0.3, seed=0):
    rng = np.random.default_rng(seed)
    groups = np.arange(users)[:, None] % 3 == np.arange(items) % 3
    return sp.csr_matrix((rng.random((users, items)) < np.where(groups, 2 * share, share / 3)).astype(np.float32))


MATRIX = plays()
TABLE = pd.DataFrame(np.argwhere(MATRIX.toarray() > 0), columns=["user", "item"])
NAMED = pd.DataFrame({"user": "u" + TABLE["user"].astype(str), "item": "i" + TABLE["item"].astype(str)})


@pytest.fixture(scope="module")
def by_index():
    return Recommender(rank=8, max_epochs=10).fit(MATRIX)


@pytest.fixture(scope="module")
def by_name():
    return Recommender(rank=8, max_epochs=10).fit(NAMED)


#: Calls that the documentation of implicit shows, and a part of the message that names ours; None if the call works.
CALLS = {
    "AlternatingLeastSquares(factors=64)": (lambda _: Recommender(factors=64), "pass rank="),
    "... (iterations=15)": (lambda _: Recommender(iterations=15), "pass max_epochs="),
    "... (regularization=0.05)": (lambda _: Recommender(regularization=0.05), "pass weight_decay="),
    "... (alpha=2.0)": (lambda _: Recommender(alpha=2.0), "there is no alpha="),
    "... (use_gpu=True)": (lambda _: Recommender(use_gpu=True), "pass device="),
    "... (num_threads=2)": (lambda _: Recommender(num_threads=2), "torch.set_num_threads"),
    "pairs, once an argument": (
        lambda _: Recommender(pairs=True),
        r"pass negatives=Negatives\('uniform', pairs=True\)",
    ),
    "fit(user_plays)": (lambda _: Recommender(rank=2, max_epochs=1).fit(MATRIX), None),
    "fit(2 * user_plays)": (lambda _: Recommender(rank=2, max_epochs=1).fit(2 * MATRIX), None),
    "fit(..., show_progress=False)": (lambda m: m.fit(MATRIX, show_progress=False), "verbose"),
    "recommend(0)": (lambda m: m.recommend(0), None),
    "recommend(0, user_plays[0])": (lambda m: m.recommend(0, MATRIX[0]), "fit keeps what users know.*recommend_new"),
    "recommend(ids, user_plays[ids])": (lambda m: m.recommend(range(3), MATRIX[:3]), "fit keeps what users know"),
    "recommend(0, N=10)": (lambda m: m.recommend(0, N=10), "there is no N=; pass k="),
    "... (filter_already_liked_items=False)": (
        lambda m: m.recommend(0, filter_already_liked_items=False),
        "pass exclude_known=",
    ),
    "... (filter_items=[1])": (lambda m: m.recommend(0, filter_items=[1]), "pass exclude="),
    "... (items=[1, 2])": (lambda m: m.recommend(0, items=[1, 2]), None),
    "... (recalculate_user=True)": (lambda m: m.recommend(0, recalculate_user=True), "use recommend_new"),
    "... (user_items=...)": (lambda m: m.recommend(0, user_items=MATRIX[0]), "fit keeps what users know"),
    "... (userid=0)": (lambda m: m.recommend(userid=0), "the first argument is one user or several"),
    "similar_items(3)": (lambda m: m.similar_items(3), None),
    "similar_items([3, 4])": (lambda m: m.similar_items([3, 4]), None),
    "similar_items(3, N=5)": (lambda m: m.similar_items(3, N=5), "pass k="),
    "similar_items(3, filter_items=[1])": (lambda m: m.similar_items(3, filter_items=[1]), "pass exclude="),
    "similar_items(3, items=[1, 2])": (lambda m: m.similar_items(3, items=[1, 2]), None),
    "similar_items(itemid=3)": (lambda m: m.similar_items(itemid=3), "the first argument is one item"),
    "similar_users(3)": (lambda m: m.similar_users(3), None),
    "similar_users([3, 4])": (lambda m: m.similar_users([3, 4]), None),
    "similar_users(3, N=5)": (lambda m: m.similar_users(3, N=5), "pass k="),
    "similar_users(3, users=[1, 2])": (lambda m: m.similar_users(3, users=[1, 2]), None),
    "similar_users(3, filter_users=[1])": (lambda m: m.similar_users(3, filter_users=[1]), "pass exclude="),
    "partial_fit_users": (lambda m: m.partial_fit_users([40], MATRIX[:1]), "use partial_fit"),
    "partial_fit_items": (lambda m: m.partial_fit_items([25], MATRIX[:, 1].T), "use partial_fit"),
    "user_factors": (lambda m: m.user_factors, r"scorer_\.vectors\(\)"),
    "item_factors": (lambda m: m.item_factors, r"scorer_\.vectors\(\)"),
    "recommend_all": (lambda m: m.recommend_all(MATRIX), "use recommend with all users"),
    "rank_items": (lambda m: m.rank_items(0, MATRIX[0], [1, 2]), "use recommend with items="),
    "explain": (lambda m: m.explain(0, MATRIX, 3), "there is no explain"),
    "save": (lambda m: m.save("model.npz"), "joblib"),
    "precision_at_k(model, train, test, K=10)": (
        lambda m: m.evaluate(plays(seed=1) > MATRIX, "P@10"),
        None,
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls_of_implicit_work_or_name_ours(by_index, call):
    make, message = CALLS[call]
    model = pickle.loads(pickle.dumps(by_index))
    if message is None:
        make(model)
        return
    with pytest.raises((TypeError, ValueError, AttributeError), match=message) as found:
        make(model)
    assert "\n" not in str(found.value)


def test_other_names_do_not_hide_what_an_estimator_has():
    model = Recommender(rank=3)
    assert model.get_params()["rank"] == clone(model).rank == 3
    assert not hasattr(model, "user_factors")
    with pytest.raises(AttributeError, match="'Recommender' object has no attribute 'nothing'"):
        model.nothing  # noqa: B018


def test_recommendations_are_among_some_items_or_without_some(by_index, by_name):
    every = by_index.recommend(4, 25)[0]
    order = [item for item in every.tolist() if item >= 0]
    kept, excluded = sorted(order)[::2], order[:2]
    assert by_index.recommend(4, 25, items=kept)[0].tolist() == [item for item in order if item in kept] + [-1] * 0
    assert by_index.recommend(4, 5, exclude=excluded)[0].tolist() == order[2:7]
    both = by_index.recommend([4, 5], 3, items=kept, exclude=kept[:1])[0]
    assert both.shape == (2, 3)
    assert not np.isin(both, kept[:1]).any()
    known = MATRIX[4].indices.tolist()
    assert set(by_index.recommend(4, 3, items=known)[0]) == {-1}
    assert set(by_index.recommend(4, 25, items=known, exclude_known=False)[0]) == set(known)
    named, its = by_name.recommend("u4", 2, items=["i3", "i6", "i9"], exclude_known=False)
    assert set(named) < {"i3", "i6", "i9"}
    assert its[0] >= its[1]
    for argument in ("items", "exclude"):
        with pytest.raises(DataError, match=r"none of the 1 .* is in the items of fit, such as 'x'"):
            by_name.recommend("u4", **{argument: ["x"]})
    with pytest.raises(ValueError, match="items has none"):
        by_index.recommend(4, items=[])


def test_more_items_than_there_are_shorten_the_lists(by_index, by_name):
    for k in (25, 26, 10**6):
        assert by_index.recommend([0, 1], k)[0].shape == (2, 25)
        assert by_index.recommend(0, k)[1].shape == (25,)
        assert by_index.recommend_new(MATRIX[:2], k)[0].shape == (2, 25)
        assert by_name.recommend("u0", k, items=["i1", "i2"])[0].shape == (2,)
        assert by_index.similar_items([0, 1], k)[0].shape == (2, 24)
        assert by_index.similar_users(0, k if k > 40 else 40)[0].shape == (39,)


def test_similar_rows_have_the_highest_cosines(by_index, by_name):
    users, items = (
        by_index.scorer_.user_factors.weight.numpy(force=True),
        by_index.scorer_.item_factors.weight.numpy(force=True),
    )
    for find, table, among in (
        (by_index.similar_users, users, "users"),
        (by_index.similar_items, items, "items"),
    ):
        unit = table / np.linalg.norm(table, axis=1, keepdims=True)
        cosines = unit[[2, 7]] @ unit.T
        cosines[[0, 1], [2, 7]] = -np.inf
        found, values = find([2, 7], 4)
        np.testing.assert_array_equal(found, np.argsort(-cosines, 1)[:, :4])
        np.testing.assert_allclose(values, -np.sort(-cosines, 1)[:, :4], rtol=1e-5)
        one, its = find(7, 4)
        np.testing.assert_array_equal(one, found[1])
        np.testing.assert_allclose(its, values[1], rtol=1e-5)
        rest = find(7, 3, exclude=[int(one[0])])[0]
        np.testing.assert_array_equal(rest, one[1:])
        assert set(find(7, 3, **{among: [1, 7, 5]})[0]) == {1, 5}
    names = by_name.similar_items(["i3", "i4"], 5)[0]
    assert names.shape == (2, 5)
    assert all(name.startswith("i") for name in names.ravel())
    assert by_name.similar_users("u3", 5)[0][0].startswith("u")
    with pytest.raises(ValueError, match="items must be those of fit, with interactions, got 'x'"):
        by_name.similar_items("x")
    with pytest.raises(ValueError, match="users must be those of fit, with interactions, got 'x'"):
        by_name.similar_users(["u1", "x"])
    groups = by_index.similar_items(range(25), 3)[0] % 3 == np.arange(25)[:, None] % 3
    assert groups.mean() > 0.6  # by chance 0.3


def test_new_users_are_tables_matrices_lists_or_lists_of_lists(by_index, by_name):
    rows = [MATRIX[user].indices.tolist() for user in (0, 5)]
    matrix, its = by_index.recommend_new(MATRIX[[0, 5]], 4)
    lists, also = by_index.recommend_new(rows, 4)
    np.testing.assert_array_equal(matrix, lists)
    np.testing.assert_allclose(its, also)
    for one in (rows[0], np.array(rows[0]), tuple(rows[0]), sp.coo_array(MATRIX[0].toarray()[0])):
        np.testing.assert_array_equal(by_index.recommend_new(one, 4)[0], matrix[0])
    names = [[f"i{item}" for item in row] for row in rows]
    assert by_name.recommend_new(names[0], 4)[0].shape == (4,)
    np.testing.assert_array_equal(by_name.recommend_new(names, 4)[0][0], by_name.recommend_new(names[0], 4)[0])
    table = pd.DataFrame({"user": ["a"] * len(names[0]), "item": names[0]})
    np.testing.assert_array_equal(by_name.recommend_new(table, 4)[0][0], by_name.recommend_new(names[0], 4)[0])
    assert by_name.recommend_new([names[0], []], 4)[0].shape == (2, 4)
    assert by_name.recommend_new([[], []], 4)[0].shape == (2, 4)
    with pytest.raises(ValueError, match=r"X must have items, .*, got none; \[\[\]\] is a user who knows nothing"):
        by_name.recommend_new([])
    for wrong, message in (
        ("i3", "X must be interactions, a list of items, or of lists of items, got 'i3'"),
        ({"i3": 1}, "X must be interactions, a list of items"),
        (["i3", ["i4"]], "got both, such as"),
    ):
        with pytest.raises(ValueError, match=message):
            by_name.recommend_new(wrong)
    sets = by_name.recommend_new([set(names[0]), frozenset(names[1])], 4)
    np.testing.assert_array_equal(sets[0], by_name.recommend_new(names, 4)[0])
    for wrong in ([26], [-1], [["i3"]], [1.5], [[True]]):
        with pytest.raises(
            DataError, match=r"items must be .* strings or integers, got 1\.5|none of the 1 items of X is in"
        ):
            by_index.recommend_new(wrong)


def test_columns_are_two_arrays_or_have_any_names(by_name):
    two = Recommender(rank=8, max_epochs=10).fit(NAMED["user"], NAMED["item"])
    other = NAMED.rename(columns={"user": "buyer", "item": "sku"}).assign(user=1, when=range(len(NAMED)))
    named = Recommender(rank=8, max_epochs=10).fit(other, user="buyer", item="sku", time="when")
    assert named.known_.time.max() == len(NAMED) - 1
    for model in (two, named):
        np.testing.assert_array_equal(model.recommend(["u1", "u2"])[0], by_name.recommend(["u1", "u2"])[0])
    held = pd.DataFrame({"buyer": ["u1"], "sku": ["i2"]})
    assert named.evaluate(held) == named.evaluate(held.rename(columns={"buyer": "user", "sku": "item"}))
    with pytest.raises(DataError, match="the data frame: there is no column 'who'; there are 'user, item'"):
        Recommender().fit(NAMED, user="who", item="item")
    with pytest.raises(DataError, match=r"there is no column .user.; .*; user= names another column"):
        Recommender().fit(NAMED.rename(columns={"user": "buyer"}))
    for given in (MATRIX, [1, 2]):
        with pytest.raises(DataError, match="user is for rows and columns of a table"):
            Recommender().fit(given, user="user")
    with pytest.raises(DataError, match="items is for arrays of users, not for a matrix"):
        Recommender().fit(MATRIX, [1, 2])


def test_unknown_users_get_popular_items_if_told(by_index, by_name):
    counts = np.asarray(MATRIX.sum(0)).ravel()
    with pytest.raises(
        ValueError, match=r"users must be those of fit, got 'new'; .*recommend_new, or pass unknown='popular'"
    ):
        by_name.recommend(["u1", "new"])
    items, scores = by_name.recommend("new", 5, unknown="popular")
    expected = [f"i{item}" for item in np.lexsort((np.arange(25), -counts))[:5]]
    assert sorted(items, key=lambda name: -counts[int(name[1:])]) == items.tolist()
    assert counts[[int(name[1:]) for name in items]].tolist() == np.sort(counts)[::-1][:5].tolist()
    assert len(expected) == 5
    with pytest.warns(UserWarning, match="1 of the 3 users.*are not in the users of fit, such as 'new': .*popular"):
        both, its = by_name.recommend(["u1", "new", "u2"], 5, unknown="popular")
    np.testing.assert_array_equal(both[[0, 2]], by_name.recommend(["u1", "u2"], 5)[0])
    np.testing.assert_array_equal(both[1], items)
    np.testing.assert_allclose(its[1], scores)
    assert by_index.recommend(99, 3, unknown="popular", exclude=[0])[0].tolist() != [0, 0, 0]
    with pytest.raises(ValueError, match="unknown must be one of 'error', 'popular', got 'skip'"):
        by_name.recommend("u1", unknown="skip")


def test_new_rows_get_factors_and_the_others_keep_theirs(by_name):
    model = pickle.loads(pickle.dumps(by_name))
    old = model.scorer_.item_factors.weight.detach().clone(), model.scorer_.user_factors.weight.detach().clone()
    before = model.recommend(["u7", "u8"], 25)
    more = pd.DataFrame(
        {
            "user": ["v0"] * 4 + ["v1"] * 3 + ["u0", "u3", "u6"],
            "item": ["i0", "i3", "i6", "n0"] + ["i1", "i4", "i7"] + ["n0"] * 3,
        }
    )
    assert model.partial_fit(more) is model
    at = {name: place for place, name in enumerate(model.known_.item_names)}
    for name, row in zip(by_name.known_.item_names, old[0], strict=True):
        assert torch.equal(model.scorer_.item_factors.weight[at[name]], row)
    users = {name: place for place, name in enumerate(model.known_.user_names)}
    for name, row in zip(by_name.known_.user_names, old[1], strict=True):
        if name not in ("u0", "u3", "u6"):
            assert torch.equal(model.scorer_.user_factors.weight[users[name]], row)
    assert model.known_.num_ratings == by_name.known_.num_ratings + 10
    kept = model.recommend(["u7", "u8"], 25, items=[f"i{n}" for n in range(25)])
    np.testing.assert_array_equal(kept[0], before[0])
    np.testing.assert_allclose(kept[1], before[1], rtol=1e-5)
    assert "n0" not in model.recommend("v0", 30)[0]
    group = [int(name[1:]) % 3 for name in model.recommend("v0", 4, exclude=["n0"])[0]]
    assert group.count(0) >= 3
    assert {int(name[1:]) % 3 for name in model.similar_items("n0", 3)[0]} == {0}
    assert model.recommend_new([["n0"]], 3)[0].shape == (1, 3)
    again = pickle.loads(pickle.dumps(by_name)).partial_fit(more)
    np.testing.assert_array_equal(again.recommend("v0")[1], model.recommend("v0")[1])


def test_new_users_of_new_items_alone_get_popular_items(by_name):
    model = pickle.loads(pickle.dumps(by_name)).partial_fit(["lonely"], ["only"])
    expected = by_name.recommend_new([[]], 25)
    found = model.recommend("lonely", 25, items=[f"i{n}" for n in range(25)])
    assert sorted(found[0]) == sorted(expected[0][0])
    np.testing.assert_allclose(found[1], expected[1][0], rtol=1e-5)  # numbers of users, of which some are equal


def test_rows_are_added_to_a_matrix(by_index):
    model = pickle.loads(pickle.dumps(by_index))
    wide = sp.csr_array(sp.hstack([MATRIX[:3], sp.csr_array((3, 1))]))
    wide = sp.vstack([sp.csr_array((40, 26)), sp.csr_array(wide)]).tolil()
    wide[40, 25] = 1
    model.partial_fit(wide.tocsr())
    assert (model.known_.num_users, model.known_.num_items) == (43, 26)
    assert model.recommend(42, 26)[0].shape == (26,)
    np.testing.assert_array_equal(
        model.recommend(range(30), 20, items=range(25))[0], by_index.recommend(range(30), 20)[0]
    )
    with pytest.raises(DataError, match="at least 43 users and 26 items"):
        model.partial_fit(MATRIX)


def test_adding_rows_needs_a_fit_of_a_plain_factorisation(by_name):
    with pytest.raises(NotFittedError):
        Recommender().partial_fit(NAMED)
    with pytest.raises(ValueError, match="partial_fit requires a plain factorisation, layers=0"):
        Recommender(rank=2, layers=1, max_epochs=1).fit(NAMED).partial_fit(NAMED)
    model = pickle.loads(pickle.dumps(by_name)).partial_fit(NAMED[:5])  # nothing new
    assert model.known_.num_ratings == by_name.known_.num_ratings


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 2.5}, "rank must be an integer from 1, or None, got 2.5"),
        ({"rank": True}, "rank must be an integer from 1, or None, got True"),
        ({"rank": "8"}, "rank must be an integer from 1, or None, got '8'"),
        ({"layers": 1.5}, "layers must be an integer from 0, got 1.5"),
        ({"lists_per_batch": 2.5}, "lists_per_batch must be an integer from 1, or None, got 2.5"),
        ({"max_epochs": 2.0}, "max_epochs must be an integer from 1, or None, got 2.0"),
        ({"patience": "3"}, "patience must be an integer from 1, or None, got '3'"),
        ({"temperature": "a"}, "temperature must be a finite number above 0, or None, got 'a'"),
        ({"temperature": 0}, "temperature must be a finite number above 0, or None, got 0"),
        ({"dropout": "a"}, "dropout must be a finite number of at least 0 and below 1, got 'a'"),
        ({"dropout": 1}, "dropout must be a finite number of at least 0 and below 1, got 1"),
        ({"learning_rate": "a"}, "learning_rate must be a finite number above 0, or None, got 'a'"),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0, or None, got 0"),
        ({"weight_decay": -1}, "weight_decay must be a finite number of at least 0, got -1"),
        ({"weight_decay": None}, "weight_decay must be a finite number of at least 0, got None"),
        ({"neighbours": True, "temperature": 0.1}, "neighbours=True needs the linear start without temperature"),
        ({"neighbours": 2}, "neighbours must be"),
        ({"device": "gpu"}, "device must be a PyTorch device, such as 'cpu' or 'cuda:0', got 'gpu'"),
        ({"device": 1.5}, "device must be a PyTorch device, such as 'cpu' or 'cuda:0', got 1.5"),
    ],
)
def test_wrong_options_are_errors_in_one_line(options, message):
    with pytest.raises(ValueError, match=f"^{message}") as found:
        Recommender(**{"max_epochs": 1} | options).fit(MATRIX)
    assert "\n" not in str(found.value)


def test_validation_users_for_whom_every_ranking_is_equally_good_are_refused_or_warned_of():
    known = np.eye(8) + np.roll(np.eye(8), 1, axis=1)
    options = {"rank": 2, "max_epochs": 1, "start": "random"}

    def fit(validation):
        return Recommender(**options).fit(sp.csr_matrix(known), validation=sp.csr_matrix(validation))

    some = 1 - known
    with pytest.raises(DataError, match=r"^validation: for each user every ranking is equally good, since"):
        fit(some)
    some[[0, 1], [5, 5]] = 0
    with pytest.warns(UserWarning, match=r"^for 6 of 8 validation users every ranking is equally good"):
        fit(some)
    some[:, 0] = 0
    fit(some)
    everything = sp.csr_matrix(np.ones((6, 3)))
    with pytest.warns(UserWarning, match=r"^for each user with held-out interactions every ranking is equally good"):
        model = Recommender(**options).fit(everything)
    without = Recommender(**options, validation_share=0).fit(everything)
    assert model.history_ == without.history_


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="device='cuda' was requested, but PyTorch finds no GPU; omit device"):
        Recommender(device="cuda").fit(MATRIX)


@pytest.mark.parametrize("rank", [2.5, True, "3"])
def test_sizes_of_a_factorisation_are_integers(rank):
    for sizes in ((3, 4, rank), (rank, 4, 3), (3, rank, 3)):
        with pytest.raises(ValueError, match="must be an integer from 1"):
            MatrixFactorization(*sizes)


def test_odd_matrices():
    for make in (interactions, Recommender().fit):
        with pytest.raises(DataError, match=r"expected a matrix \[users, items\], got one dimension.*recommend_new"):
            make(sp.coo_array(np.array([1.0, 0, 1])))
        with pytest.raises(DataError, match="counts of interactions must be real numbers, got complex128"):
            make(sp.csr_array([[1j, 0]]))


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "bool", "int64", "float32"])
@pytest.mark.parametrize("times", [2, 256, 65536])
def test_interactions_that_repeat_in_a_matrix_add_up_in_any_type(kind, times):
    zeros = np.zeros(times, np.int64)
    found = interactions(sp.coo_array((np.ones(times, kind), (zeros, zeros)), shape=(2, 2)))
    assert found.to_csr().toarray().tolist() == [[1, 0], [0, 0]]


def test_a_catalogue_of_one_item_is_recommended():
    model = Recommender(rank=2, max_epochs=2).fit(sp.csr_array([[1.0], [1.0], [0.0]]))
    assert model.recommend([0, 2], 3)[0].tolist() == [[-1], [0]]
    assert model.evaluate(sp.csr_array([[0.0], [0], [1]]), "R@1") == {"R@1": 1}
    assert model.recommend_new([[0]])[0].tolist() == [[-1]]
    table = pd.DataFrame({"user": ["a", "b"], "item": ["x", "x"]})
    assert Recommender(rank=2, max_epochs=1).fit(table).similar_items("x")[0].shape == (0,)


@pytest.mark.parametrize(
    "options",
    [{"max_epochs": 3}, {"loss": "SoftmaxLoss"}, {"weight_decay": 0.1}, {"dropout": 0.1}, {"negatives": "uniform"}],
)
def test_neighbours_refuse_options_of_training(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"^neighbours=True trains nothing, so {name} would have no effect"):
        Recommender(neighbours=True, start="linear", temperature=None, **options).fit([0, 0, 1, 1], [0, 1, 1, 2])


def test_neighbours_serve_known_new_and_added_users_alike():
    rng = np.random.default_rng(1)
    groups = np.arange(120)[:, None] % 20 == np.arange(60) % 20  # more groups than the factors tell apart
    matrix = sp.csr_matrix((rng.random(groups.shape) < np.where(groups, 0.7, 0.02)).astype(np.float32))
    model = Recommender(rank=3).fit(matrix)
    assert isinstance(model.scorer_, NeighbourFactorization)
    assert model.best_epoch_ == 0
    assert model.regularization_ > 0
    plain = Recommender(rank=3, neighbours=False).fit(matrix)
    assert plain.scorer_.vectors()[0].shape == (120, 3)
    assert (model.recommend(range(120), 1)[0][:, 0] % 20 == np.arange(120) % 20).mean() > 0.4  # by chance 0.05
    items, scores = model.recommend(range(9), 5)
    for users in (9, 4):  # folded in as closely as the singular vectors are computed
        found = model.recommend_new(matrix[:users], 5)
        np.testing.assert_array_equal(found[0][:, 0], items[:users, 0])
        np.testing.assert_allclose(found[1], scores[:users], atol=3e-3)
    again = pickle.loads(pickle.dumps(model)).partial_fit(sp.vstack([matrix, matrix[:2]]).tocsr())
    np.testing.assert_allclose(again.recommend([3, 120, 121], 5)[1], scores[[3, 0, 1]], atol=3e-3)
    wider = sp.csr_matrix((np.ones(2, np.float32), ([5, 120], [60, 60])), (121, 61))
    again = pickle.loads(pickle.dumps(model)).partial_fit(wider)
    np.testing.assert_allclose(again.recommend(3, 5, exclude=[60])[1], scores[3], atol=3e-3)
    assert set(again.recommend(120, 5)[0]) <= set(model.recommend_new([[]], 60)[0][0].tolist())


@pytest.mark.needs("skops")
def test_a_recommender_goes_through_skops(by_name, tmp_path):
    import skops.io

    skops.io.dump(by_name, tmp_path / "model.skops")
    unknown = skops.io.get_untrusted_types(file=tmp_path / "model.skops")
    assert all(kind.startswith(("rankstruct.", "torch.")) for kind in unknown)
    again = skops.io.load(tmp_path / "model.skops", trusted=unknown)
    for use in (lambda m: m.recommend(["u1", "u2"]), lambda m: m.recommend_new([["i1", "i2"]])):
        for mine, its in zip(use(again), use(by_name), strict=True):
            np.testing.assert_array_equal(mine, its)
    assert again.evaluate(NAMED[:3].assign(user="u9")) == by_name.evaluate(NAMED[:3].assign(user="u9"))


# A fit that fails


class Failure(Exception):
    """Raised in the middle of training."""


def failing(monkeypatch, name, at=1):
    """Let a function of the estimator, or of its base, fail in its call number `at`."""
    module = estimator_module if hasattr(estimator_module, name) else base_module
    calls, function = [], getattr(module, name)

    def call(*given, **named):
        calls.append(None)
        if len(calls) >= at:
            raise Failure(name)
        return function(*given, **named)

    monkeypatch.setattr(module, name, call)


OTHER = pd.DataFrame({"user": ["u1", "p", "p", "q", "q"], "item": ["i1", "a", "b", "b", "c"]})
FAILURES = {
    "training lists": lambda model, patch: (failing(patch, "TrainingLists"), model.fit(OTHER)),
    "first validation": lambda model, patch: (failing(patch, "evaluate_catalogue"), model.fit(OTHER)),
    "second validation": lambda model, patch: (failing(patch, "evaluate_catalogue", 2), model.fit(OTHER)),
    "second epoch": lambda model, patch: (failing(patch, "update_averages"), model.set_params(patience=3).fit(OTHER)),
    "held out": lambda model, patch: (failing(patch, "hold_out"), model.fit(OTHER)),
    "validation of other names": lambda model, patch: model.fit(OTHER, validation=NAMED.assign(user="z")),
    "validation that is a matrix": lambda model, patch: model.fit(OTHER, validation=MATRIX),
    "validation in training": lambda model, patch: model.fit(OTHER, validation=OTHER),
    "data": lambda model, patch: model.fit(OTHER.assign(item=None)),
    "another form": lambda model, patch: model.fit(sp.csr_array((3, 3))),
    "loss": lambda model, patch: model.set_params(loss="NoLoss").fit(OTHER),
    "rank": lambda model, patch: model.set_params(rank=2.5).fit(OTHER),
    "measure": lambda model, patch: model.set_params(measure="AP").fit(OTHER),
    "device": lambda model, patch: model.set_params(device="nowhere").fit(OTHER),
    "partial fit, users": lambda model, patch: (failing(patch, "folded"), model.partial_fit(OTHER)),
    "partial fit, data": lambda model, patch: model.partial_fit(OTHER.assign(item=None)),
}


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:.* interactions of X are in fit too")
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("was_fitted", [True, False])
def test_a_fit_that_fails_leaves_the_model_as_it_was(by_name, monkeypatch, failure, was_fitted):
    model = pickle.loads(pickle.dumps(by_name)) if was_fitted else Recommender(rank=2, max_epochs=3)
    before = {name for name in vars(model) if name.endswith("_") or name.startswith("_")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((Failure, ValueError, TypeError)):
            FAILURES[failure](model, monkeypatch)
    monkeypatch.undo()
    assert {name for name in vars(model) if name.endswith("_") or name.startswith("_")} == before
    if not was_fitted:
        with pytest.raises(NotFittedError):
            model.recommend("u1")
        return
    model.set_params(**by_name.get_params())
    for use in (
        lambda m: m.recommend(["u1", "u2"]),
        lambda m: m.recommend_new([["i1", "i2"]]),
        lambda m: m.similar_items("i1"),
    ):
        for mine, its in zip(use(model), use(by_name), strict=True):
            np.testing.assert_array_equal(mine, its)
    assert model.history_ == by_name.history_
    assert model.best_epoch_ == by_name.best_epoch_
    assert model.evaluate(NAMED[:9].assign(user="u9")) == by_name.evaluate(NAMED[:9].assign(user="u9"))


def test_a_fit_uses_the_seed_it_was_given():
    assert rs.Recommender is Recommender
    one, other = (Recommender(rank=2, max_epochs=1, random_state=seed).fit(NAMED) for seed in (1, 2))
    assert not np.array_equal(one.recommend("u1")[1], other.recommend("u1")[1])


# Input of another form than that of fit


@pytest.mark.parametrize("kind", ["float32", "float64", "bool", "int64", "uint8"])
def test_a_dense_matrix_is_no_table_of_ids(by_index, kind):
    dense = MATRIX[:3].toarray().astype(kind)
    with pytest.raises(
        DataError, match=r"got a dense matrix of shape \(3, 25\); pass scipy\.sparse\.csr_array"
    ) as found:
        by_index.recommend_new(dense)
    assert "\n" not in str(found.value)
    ids = np.array([[0, 3], [1, 4]])
    np.testing.assert_array_equal(by_index.recommend_new(ids)[0], by_index.recommend_new(ids.tolist())[0])


def test_min_rating_needs_ratings_in_later_calls_too():
    rated = NAMED.assign(rating=np.arange(len(NAMED)) % 5 + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Recommender(rank=2, max_epochs=1).fit(rated, min_rating=3)
        assert model.evaluate(rated.assign(item=np.roll(rated["item"], 1))) is not None
        for call in (
            model.evaluate,
            model.partial_fit,
            model.recommend_new,
            lambda X: model.fit(rated, validation=X, min_rating=3),
        ):
            with pytest.raises(DataError, match="min_rating is set, but there is no column of ratings"):
                call(NAMED)


def test_interactions_of_fit_are_not_evaluated_as_misses_in_silence():
    model = Recommender(rank=2, max_epochs=1).fit(NAMED)
    new = pd.DataFrame(
        {
            "user": ["u1", "u2"],
            "item": [
                next(iter(set(NAMED.item) - its))
                for its in (set(NAMED.item[NAMED.user == user]) for user in ("u1", "u2"))
            ],
        }
    )
    said = r"^3 of the 5 interactions of X are in fit too, which are not recommended: they are left out"
    with pytest.warns(UserWarning, match=said):
        assert model.evaluate(pd.concat([new, NAMED[:3]])) == model.evaluate(new)
    with pytest.raises(
        DataError, match=rf"all {len(NAMED)} interactions of X are in fit too, which are not recommended"
    ):
        model.evaluate(NAMED)


def test_one_new_user_in_a_list_gets_popular_items():
    model = Recommender(rank=2, max_epochs=1, validation_share=0).fit(["a", "a", "b", "b"], ["x", "y", "x", "z"])
    (one, counts), (several, same) = (model.recommend(given, k=2, unknown="popular") for given in ("new", ["new"]))
    assert several.tolist() == [one.tolist()]
    assert same.tolist() == [counts.tolist()]


@pytest.mark.parametrize(
    "change", [list, np.array, lambda row: np.array(row, np.float32), lambda row: np.array(row, bool)]
)
def test_a_row_of_a_dense_matrix_is_no_list_of_items(change):
    dense = (np.random.default_rng(0).random((20, 12)) < 0.3).astype(int)
    model = Recommender(rank=2, max_epochs=1).fit(sp.csr_array(dense))
    with pytest.raises(
        DataError, match=r"got a dense matrix of shape \(12,\); pass scipy\.sparse\.csr_array\(D\[None\]\)"
    ):
        model.recommend_new(change(dense[0].tolist()))
    with pytest.raises(DataError, match=r"got a dense matrix of shape \(2, 9\)"):
        model.recommend_new(np.asarray(change(dense[0].tolist()))[None, :9].repeat(2, 0))
    for items in ([0, 1], [1], list(range(11)), [[0, 1], [1, 0]]):
        np.testing.assert_array_equal(model.recommend_new(items)[0], model.recommend_new(np.array(items))[0])
    small = Recommender(rank=1, max_epochs=1, validation_share=0).fit(sp.csr_array(np.array([[1, 0], [1, 1]])))
    assert small.recommend_new([0, 1], k=1)[0].tolist() == [-1]


def test_ratings_that_are_text_are_named():
    frame = pd.DataFrame({"user": ["a"], "item": ["x"], "rating": ["good"]})
    with pytest.raises(DataError, match="expected numbers in column 'rating'"):
        interactions(frame, min_rating=4)


def test_a_list_of_paths_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"paths must be one or several paths, read_interactions\(train, test\)"):
        read_interactions([tmp_path / "a", tmp_path / "b"])
