"""Recommendations under rules: those of `rank_under` on all scores, for names, matrices, known items and new users."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import rankstruct as rs
from rankstruct.recommenders import Recommender, base

GENRES = {f"i{at}": ["war", "love", None][at % 3] for at in range(12)}


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 8, 60), rng.integers(0, 12, 60)
    named = Recommender(rank=3, max_epochs=2, validation_share=0, random_state=0)
    named.fit([f"u{at}" for at in users], [f"i{at}" for at in items])
    matrix = sp.csr_array((np.ones(60), (users, items)), shape=(8, 12))
    return named, Recommender(rank=3, max_epochs=2, validation_share=0, random_state=0).fit(matrix), matrix


def test_the_items_are_those_of_rank_under(fitted):
    model = fitted[0]
    rules, users = rs.Constraints("genre <= 1 @ 4", "genre=love >= 1 @ 4"), ["u1", "u5", "u0"]
    everything, scores = model.recommend(users, k=12)
    found, values = model.recommend(users, k=4, constraints=rules, columns={"genre": GENRES})
    assert found.shape == (3, 4)
    for row in range(3):
        real = [item for item in everything[row] if item is not None]
        own = scores[row][: len(real)]
        ranks = rs.rank_under(own, rules, {"genre": [GENRES[item] for item in real]}, k=4).numpy()
        expected = [real[at] for at in np.argsort(np.where(ranks > 0, ranks, 99), kind="stable")[: (ranks > 0).sum()]]
        assert [item for item in found[row] if item is not None] == expected
        assert values[row][: len(expected)] == pytest.approx([own[real.index(item)] for item in expected])
        assert (values[row][len(expected) :] == -np.inf).all()
    one = model.recommend("u1", k=4, constraints=rules, columns={"genre": pd.Series(GENRES)})[0]
    assert one.tolist() == found[0].tolist()
    frame = pd.DataFrame({"genre": pd.Series(GENRES)})
    assert model.recommend("u1", k=4, constraints=rules, columns=frame)[0].tolist() == one.tolist()


@pytest.mark.filterwarnings("ignore:1 of the 2 users")
def test_arrays_for_a_matrix_and_strangers(fitted):
    model, matrix = fitted[1:]
    groups = np.arange(12) % 2
    rules = rs.Constraints("half=1 >= 2 @ 3")
    found, _ = model.recommend([0, 3], k=3, constraints=rules, columns={"half": groups})
    assert (groups[found].sum(1) >= 2).all()
    assert not any(matrix[[user], [item]][0] for user, row in zip([0, 3], found, strict=True) for item in row)
    named = fitted[0]
    popular = named.recommend(["u1", "nobody"], k=3, unknown="popular")[0][1]
    same = named.recommend(
        ["u1", "nobody"], k=3, unknown="popular", constraints=rs.Constraints("genre <= 3"), columns={"genre": {"i0": 1}}
    )[0][1]
    assert same.tolist() == popular.tolist()


def test_what_is_refused(fitted):
    named, by_index, _ = fitted
    rules = rs.Constraints("genre <= 1 @ 2")
    with pytest.raises(ValueError, match="which is not in columns"):
        named.recommend("u1", constraints=rules)
    with pytest.raises(ValueError, match="columns must map items to groups"):
        named.recommend("u1", constraints=rules, columns={"genre": [1] * 12})
    with pytest.raises(ValueError, match="a group for each of the 12 items"):
        by_index.recommend(0, constraints=rules, columns={"genre": [1] * 3})
    with pytest.raises(ValueError, match="omit index"):
        named.recommend("u1", constraints=rules, columns={"genre": GENRES}, index=object())
    with pytest.raises(
        ValueError, match="no item has genre=lover, as in the rule 'genre=lover <= 1'; did you mean love"
    ):
        named.recommend("u1", constraints=rs.Constraints("genre=lover <= 1"), columns={"genre": GENRES})


@pytest.mark.parametrize("block", [1, 12, 10**6])
def test_a_user_without_such_items_is_named(fitted, block, monkeypatch):
    monkeypatch.setattr(base, "_LISTED", block)
    named, by_index, matrix = fitted
    left = 4 - matrix.toarray()[:, ::3].astype(bool).sum(1)  # of genre war
    most = int(left.max())
    user = int((left < most).argmax())
    rules, groups = rs.Constraints(f"genre=war >= {most}"), ["war", "love", None] * 4
    users = [int((left == most).argmax()), *range(8)]
    with pytest.raises(ValueError, match=rf"no ranking of user '{user}' keeps 'genre=war >= {most}'"):
        by_index.recommend(users, k=12, constraints=rules, columns={"genre": groups})
    with pytest.raises(ValueError, match=rf"no ranking of user 'u{user}' keeps 'genre=war >= {most}'"):
        named.recommend([f"u{at}" for at in users], k=12, constraints=rules, columns={"genre": GENRES})
    with pytest.raises(ValueError, match=r"no ranking of user 'u1' keeps"):
        named.recommend("u1", k=3, constraints=rs.Constraints("genre=war >= 9"), columns={"genre": GENRES})
