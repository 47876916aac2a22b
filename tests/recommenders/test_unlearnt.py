"""What a `Recommender` has not learnt: items and users without interactions, ids that are not exactly those of fit, options."""

import inspect
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from rankstruct.data import DataError
from rankstruct.recommenders import Negatives, Recommender, interactions

EMPTY = [3, 11, 24]  # columns
NOBODY = [0, 5, 39]  # rows


def plays(users=40, items=25, seed=0):
    rng = np.random.default_rng(seed)
    groups = np.arange(users)[:, None] % 3 == np.arange(items) % 3
    drawn = (rng.random((users, items)) < np.where(groups, 0.6, 0.1)).astype(np.float32)
    drawn[:, EMPTY], drawn[NOBODY] = 0, 0
    return drawn


DENSE = plays()
MATRIX = sp.csr_array(DENSE)
COUNTS = DENSE.sum(0)
#: Models that give items without interactions good places: no biases, and random factors.
OPTIONS = [
    {},
    {"item_bias": False},
    {"item_bias": False, "start": "random", "temperature": None},
    {"item_bias": False, "layers": 1},
    {"negatives": Negatives("uniform", number=3), "item_bias": False},
]


@pytest.fixture(scope="module", params=OPTIONS, ids=str)
def model(request):
    return Recommender(rank=4, max_epochs=2, **request.param).fit(MATRIX)


# Items without interactions


def test_items_without_interactions_are_not_recommended(model):
    for items, scores in (
        model.recommend(range(40), 25),
        model.recommend(range(40), 25, exclude_known=False),
        model.recommend(99, 25, unknown="popular"),
        model.recommend_new(MATRIX, 25),
        model.recommend_new([[], [1, 4]], 25),
        model.similar_items([1, 2], 25),
    ):
        assert not np.isin(items, EMPTY).any()
        assert np.isneginf(scores[items < 0]).all()
    assert model.recommend(1, 25, exclude_known=False)[0].shape == (22,)
    assert set(model.recommend(1, 25, exclude_known=False)[0]) == set(range(25)) - set(EMPTY)


def test_items_without_interactions_are_misses_as_unknown_ones_are(model):
    held = np.zeros_like(DENSE)
    held[1:4, EMPTY] = 1
    with pytest.raises(DataError, match="none of the 3 items of X is in the items of fit"):
        model.evaluate(sp.csr_array(held))
    held[1:4, 1] = 1
    said = "3 of the 4 items of X .* are not in the items of fit, such as '3'"
    with pytest.warns(UserWarning, match=f"{said}: they count as misses"):
        values = model.evaluate(sp.csr_array(held), ["Success@22", "R@22"])
    hits = DENSE[1:4, 1] == 0
    assert values["R@22"] == pytest.approx(hits.mean() / 4)
    with pytest.warns(UserWarning, match=f"{said}: they are left out"):
        assert model.evaluate(sp.csr_array(held), "R@22", unknown_items="drop")["R@22"] == pytest.approx(hits.mean())


def test_an_empty_column_and_an_unknown_id_are_the_same():
    rows, columns = MATRIX.nonzero()
    by_name = Recommender(rank=4, max_epochs=2, item_bias=False).fit([f"u{row}" for row in rows], columns)
    held = pd.DataFrame({"user": ["u1", "u1", "u2", "u2"], "item": [EMPTY[0], 4, EMPTY[1], EMPTY[2]]})
    names = {"user_names": [f"u{row}" for row in range(40) if row not in NOBODY], "item_names": range(25)}
    padded = Recommender(rank=4, max_epochs=2, item_bias=False)
    padded.fit(interactions([f"u{row}" for row in rows], columns, **names))
    for each in (by_name, padded):
        with pytest.warns(UserWarning, match="3 of the 4 items"):
            found = each.evaluate(held, ["R@25"])
        assert found["R@25"] == pytest.approx((DENSE[1, 4] == 0) / 4)


def test_the_validation_of_a_fit_counts_them_as_misses():
    held = np.zeros_like(DENSE)
    held[1:9, EMPTY[0]] = 1
    held[1:9, 1:9] = 1 - DENSE[1:9, 1:9]
    held[:, EMPTY[1:]] = 0
    with pytest.warns(UserWarning, match=r"1 of the \d items of validation .* count as misses"):
        model = Recommender(rank=4, max_epochs=1, item_bias=False, measure="R@25").fit(
            MATRIX, validation=sp.csr_array(held)
        )
    least = held[1:9][:, [at for at in range(25) if at not in EMPTY]].sum(1) / held[1:9].sum(1)
    assert model.history_[0]["validation"] == pytest.approx(least.mean())


# Users without interactions


def test_users_of_whom_nothing_is_known_get_the_popular_items(model):
    best = np.sort(COUNTS)[::-1][:5]
    for items, scores in (
        model.recommend(NOBODY, 5),
        model.recommend(NOBODY, 5, exclude_known=False),
        model.recommend([0, 1, 39], 5),
        model.recommend_new([[], [1], []], 5),
        model.recommend_new(sp.csr_array((3, 25)), 5),
    ):
        for row in (0, 2):
            if model.item_bias:  # a popularity that is learnt
                assert COUNTS[items[row]].mean() > best.mean() - 2
            else:
                np.testing.assert_array_equal(COUNTS[items[row]], best)
                np.testing.assert_array_equal(scores[row], best)
    with pytest.warns(UserWarning, match="3 of the 5 items to rank .* left out"):
        items, scores = model.recommend(0, 4, items=[1, 2, *EMPTY])
    assert sorted(items) == [1, 2]
    np.testing.assert_allclose(model.recommend([1, 2], 5)[1], model.recommend([0, 1, 2], 5)[1][1:], rtol=1e-6)


def test_new_users_of_new_items_alone_get_the_popular_items():
    model = Recommender(rank=4, max_epochs=2, item_bias=False).fit(*map(list, MATRIX.nonzero()))
    model.partial_fit([99], [99])
    scores = model.recommend(99, 5)[1]
    np.testing.assert_array_equal(scores, np.sort(COUNTS)[::-1][:5])
    assert 99 not in model.recommend(99, 30)[0]


def test_users_of_whom_nothing_is_known_are_judged_by_the_popular_items(model):
    held = np.zeros_like(DENSE)
    held[0, int(COUNTS.argmax())] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = int((COUNTS.max() == COUNTS).sum()) + 5 * bool(model.item_bias)
        assert model.evaluate(sp.csr_array(held), f"R@{first}") == {f"R@{first}": 1}
        held[1:4, [1, 2, 4]] = 1 - DENSE[1:4][:, [1, 2, 4]]
        values = model.evaluate(sp.csr_array(held), f"R@{first}")
    known = sum(
        model.evaluate(sp.csr_array(np.where(np.arange(40)[:, None] == row, held, 0)), f"R@{first}")[f"R@{first}"]
        for row in (1, 2, 3)
        if held[row].any()
    )
    rows = 1 + int(held[1:4].any(1).sum())
    assert values[f"R@{first}"] == pytest.approx((1 + known) / rows)


# Ids


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["007", "05", "\u0663", "-0", "+7", "7 0", "x", "1e1", "00"])
@pytest.mark.parametrize("role", ["user", "item"])
def test_only_an_integer_is_an_integer_id(name, role):
    table = pd.DataFrame({"user": [7, 7, 3, 3, 5], "item": [7, 5, 3, 0, 3]})
    model = Recommender(rank=2, max_epochs=1, validation_share=0).fit(table)
    before = pickle.dumps(model)
    odd = pd.DataFrame({"user": ["7", "3"], "item": ["0", "7"]})
    odd.loc[1, role] = name
    with pytest.raises(DataError, match=f"{role}s must be integers, as in fit, got '"):
        model.partial_fit(odd)
    assert pickle.dumps(model) == before
    with pytest.warns(UserWarning, match=rf"1 of the 2 {role}s of X \(50.0%\) are not in the {role}s of fit, such as"):
        model.evaluate(odd)
    if role == "user":
        with pytest.raises(ValueError, match="users must be those of fit, got"):
            model.recommend(["7", name])
        return
    for call in (
        lambda: model.recommend_new([["5", name]]),
        lambda: model.recommend_new(odd),
        lambda: model.recommend(7, items=["5", name]),
        lambda: model.recommend(7, exclude=["5", name]),
    ):
        with pytest.warns(UserWarning, match=r"1 of the 2 items .* are not in the items of fit"):
            call()
    with pytest.raises(ValueError, match="items must be those of fit"):
        model.similar_items(name)


def test_integers_as_text_are_those_integers():
    table = pd.DataFrame({"user": [7, 7, 3, 3, 5], "item": [7, 5, 3, 0, 3]})
    model = Recommender(rank=2, max_epochs=1, validation_share=0).fit(table)
    model.partial_fit(["7", "9"], ["3", "-12"])
    assert (model.known_.num_users, model.known_.num_items) == (4, 5)
    items = model.recommend("9", 9)[0]
    assert items.dtype.kind == "O"  # padded
    assert set(items) == {7, 5, 3, 0, None}


FRAME = pd.DataFrame({"user": [1, 2], "item": [4, 7]})


@pytest.mark.parametrize("given", [FRAME, FRAME.astype(str), interactions([1, 2], [4, 7])])
def test_a_model_of_a_matrix_takes_no_ids(model, given):
    names = ["partial_fit", "evaluate", "recommend_new", "score", "fit"]
    calls = {name: getattr(model, name) for name in names} | {
        "fit": lambda held: Recommender(rank=2, max_epochs=1).fit(MATRIX, validation=held)
    }
    if model.layers:
        del calls["partial_fit"]
    for call in calls.values():
        with pytest.raises(DataError, match=r"expected a matrix \[users, items\], as in fit, got"):
            call(given)


def test_a_model_of_a_matrix_takes_indices_alone(model):
    for wrong in ("3", b"3", "3.0", True, "x"):
        several = np.array([4, wrong], object)
        with pytest.raises(ValueError, match="users must be those of fit"):
            model.recommend(several)
        with pytest.raises(ValueError, match="items must be those of fit"):
            model.similar_items(wrong)
        with pytest.warns(UserWarning, match="1 of the 2 items"):
            model.recommend(1, items=several)
    with pytest.raises(DataError, match="none of the 1 items of X is in the items of fit, such as '4'"):
        model.recommend_new([["4"]])
    if not model.layers:
        with pytest.raises(DataError, match=r"expected a matrix \[users, items\], as in fit"):
            pickle.loads(pickle.dumps(model)).partial_fit([1], [4])
    for right in (4, 4.0, np.int8(4), np.float32(4)):
        np.testing.assert_array_equal(model.recommend(right)[0], model.recommend(4)[0])
    dense = MATRIX.toarray()
    new = sp.csr_array(((dense == 0) & dense.any(0)).astype(float))
    assert model.evaluate(interactions(new)) == model.evaluate(new)


# Options

#: Values that an option may not have.
WRONG = ["no", "1", 1.5, 2, -1, True, None, [1], float("nan"), float("inf"), 3 + 4j, object(), np.ones(2), {}]
#: By option, which of them it may have after all.
RIGHT = {
    "loss": [None],
    "rank": [2, None],
    "temperature": [1.5, 2, None],
    "dropout": [],
    "item_bias": [True, None],
    "layers": [2],
    "start": [None],
    "neighbours": [True, None],
    "negatives": [],
    "lists_per_batch": [2, None],
    "learning_rate": [1.5, 2, None],
    "weight_decay": [1.5, 2],
    "max_epochs": [2, None],
    "patience": [2, None],
    "measure": [],
    "validation_share": [],
    "shards": [None],
    "device": [None],
    "random_state": [2, None],
    "verbose": [True],
}


def test_every_option_is_in_the_table():
    assert list(RIGHT) == list(inspect.signature(Recommender).parameters)


@pytest.mark.parametrize("option", RIGHT)
def test_an_option_of_another_type_is_an_error(option):
    for value in WRONG:
        if any(value is right for right in RIGHT[option]):
            continue
        with pytest.raises((ValueError, TypeError)) as found:
            Recommender(**{"rank": 2, "max_epochs": 1, option: value}).fit(MATRIX)
        assert option in str(found.value), (value, str(found.value))
        assert "\n" not in str(found.value)


def test_flags_may_be_integers_or_of_numpy():
    for yes in (1, np.bool_(True)):
        model = Recommender(rank=2, max_epochs=1, item_bias=yes, negatives=Negatives("uniform", pairs=yes)).fit(MATRIX)
        assert model.scorer_.item_offsets is not None
