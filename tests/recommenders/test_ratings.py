"""Ratings: files, grades, splits, lists."""

import numpy as np
import pytest

from rankstruct.data import DataError
from rankstruct.recommenders import (
    Ratings,
    align,
    hold_out,
    implicit,
    read_movielens_fold,
    read_ratings,
    strong_split,
    synthetic_ratings,
    weak_split,
)


def triples(ratings):
    return sorted(
        zip(
            ratings.user_names[ratings.user].tolist(),
            ratings.item_names[ratings.item].tolist(),
            ratings.rating.tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize(
    ("format", "scale", "text"),
    [
        ("movielens100k", None, "10\t7\t5\t881250949\n2\t7\t1\t8\n\n2\t30\t4\t9\n"),
        ("movielens1m", None, "10::7::5::881250949\n2::7::1::8\r\n2::30::4::9"),
        ("text", "stars", "# user item rating\n10 7 5\n2  7\t1\n2 30 4\n"),
        ("csv", "stars", "10,7,5\n2,7,1\n2,30,4\n"),
        ("csv", "stars", '\ufeffRating,when,Item,User\n5,"1,5",7,10\n1,x,7,2\n4,x,30,2\n'),
    ],
)
def test_formats(tmp_path, format, scale, text):
    path = tmp_path / "ratings"
    path.write_text(text)
    ratings = read_ratings(path, format, scale=scale)
    assert triples(ratings) == [("10", "7", 5.0), ("2", "30", 4.0), ("2", "7", 1.0)]
    assert ratings.user_names.tolist() == ["2", "10"]  # numbers by size
    assert ratings.offsets.tolist() == [0, 2, 3]
    assert ratings.grades().tolist() == [0.0, 3.0, 4.0]
    assert ratings.neutral == 3


def test_half_stars_of_movielens(tmp_path):
    (tmp_path / "ratings.csv").write_text(
        "userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n1,1029,3.0,7\n2,31,0.5,9\n"
    )
    ratings = read_ratings(tmp_path / "ratings.csv", scale="half-stars")
    assert triples(ratings) == [("1", "1029", 3.0), ("1", "31", 2.5), ("2", "31", 0.5)]
    assert (ratings.grades().tolist(), ratings.num_grades, ratings.neutral) == ([2, 2, 0], 5, 3)
    with pytest.raises(DataError, match=r"row 3: expected a rating from 1 to 5 .scale 'stars'., got 0\.5"):
        read_ratings(tmp_path / "ratings.csv", scale="stars")
    with pytest.raises(DataError, match=r"multiples of 1, got 2\.5; use the scale 'half-stars'"):
        Ratings.from_arrays(["1"], ["a"], [2.5], scale="stars")
    with pytest.raises(DataError, match=r"multiples of 0\.5, got 2\.3; round them"):
        Ratings.from_arrays(["1"], ["a"], [2.3], scale="half-stars")


def test_centred_grades(tmp_path):
    path = tmp_path / "ratings"
    path.write_text("0 0 -9.5\n0 1 0\n0 2 0.1\n0 3 2.5\n0 4 2.6\n0 5 10\n")
    ratings = read_ratings(path, "jester")
    assert ratings.grades().tolist() == [0, 0, 1, 1, 2, 4]
    assert ratings.neutral == 0
    np.testing.assert_array_equal(ratings.labels("rating"), ratings.rating)
    np.testing.assert_array_equal(ratings.labels(np.abs), np.abs(ratings.rating))
    with pytest.raises(ValueError, match="labels must be 'grade'"):
        ratings.labels("stars")


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        (
            "movielens100k",
            "1\t2\t5\t0\n1 3 4 0\n",
            r":2: expected 4 columns, user item rating time, separated by tabs, as on line 1; got 1, '1 3 4 0'",
        ),
        ("movielens1m", "1::2::5\n", ":1: expected 4 columns, user item rating time, separated by '::'; got 3"),
        (
            "jester",
            "#1 a 2\n#2 b\n",
            ":2: expected 3 columns, user item rating, .*, or put a blank after the # of a comment",
        ),
        ("movielens100k", "1\t2\tgood\t0\n", "line 1: expected a number as rating, got 'good'"),
        ("movielens100k", "1\t2\t6\t0\n", "line 1: expected a rating from 1 to 5"),
        ("movielens100k", "1\t2\tnan\t0\n", "line 1: expected a rating from 1 to 5"),
        ("movielens100k", "1\t2\t2.5\t0\n", "must be multiples of 1, got 2.5; use the scale 'half-stars'"),
        ("jester", "1 2 -11\n", "line 1: expected a rating from -10 to 10"),
        ("jester", "1 2 3\n2 2 3\n\n1 2 4\n", "line 4: user '1' rates item '2' more than once"),
        ("jester", "# nothing\n", "has no ratings"),
        ("jester", "\xff", "is not UTF-8"),
    ],
)
def test_broken_files_are_named_with_their_line(tmp_path, format, text, message):
    path = tmp_path / "ratings"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=f"ratings.*{message}"):
        read_ratings(path, format)


def test_what_a_reader_needs(tmp_path):
    with pytest.raises(DataError, match=r"absent: no such file"):
        read_ratings(tmp_path / "absent", "jester")
    with pytest.raises(
        ValueError, match="scale must be one of stars, half-stars, centred, binary for the format 'csv', got None"
    ):
        read_ratings(tmp_path / "absent", "csv")
    with pytest.raises(ValueError, match="format must be one of"):
        read_ratings(tmp_path / "absent", "netflix")


@pytest.mark.parametrize(
    ("values", "scale", "message"),
    [
        ([7, 1], "stars", "from 1 to 5; user 'a' gave item 'x' 7"),
        ([0.5, 1], "binary", "must be 0 or 1"),
        ([1, 1], "thumbs", "scale must be one of"),
        ([1], "stars", "one entry per rating"),
    ],
)
def test_arrays_that_are_no_ratings(values, scale, message):
    with pytest.raises(DataError, match=message):
        Ratings.from_arrays(["a", "b"], ["x", "x"], values, scale=scale)


def test_an_item_is_rated_once():
    with pytest.raises(DataError, match="user 'a' rated 'x' twice"):
        Ratings.from_arrays(["a", "b", "a"], ["x", "x", "x"], [1, 1, 2], scale="stars")
    with pytest.raises(DataError, match="'c', which is not among"):
        Ratings.from_arrays(["c"], ["x"], [1], scale="stars", user_names=np.array(["a", "b"]))


def test_lists_are_users_with_ratings():
    ratings = Ratings.from_arrays(
        ["c", "a", "c"], ["x", "y", "y"], [5, 1, 3], scale="stars", user_names=np.array(["a", "b", "c"])
    )
    lists = ratings.to_lists()
    assert lists.qids.tolist() == ["a", "c"]
    assert lists.docids.tolist() == ["y", "x", "y"]
    assert lists.offsets.tolist() == [0, 1, 3]
    assert lists.features.tolist() == [[0, 1], [2, 0], [2, 1]]
    assert lists.labels.tolist() == [0, 4, 2]


def test_implicit_ratings():
    ratings = implicit(synthetic_ratings(users=8, items=30, rated=20), 4)
    assert set(ratings.rating.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("number", [10, 20])
def test_weak_split(number):
    ratings = synthetic_ratings(users=30, rated=35)
    few = ratings.select(~((ratings.user < 4) & (np.arange(ratings.num_ratings) % 5 > 1)))  # four users with 14
    split = weak_split(few, number, seed=3)
    assert split.left_out == 4
    assert split.given is split.train
    assert np.diff(split.train.offsets).tolist() == [0] * 4 + [number] * 26
    assert sorted(triples(split.train) + triples(split.test)) == triples(few.select(few.user >= 4))
    assert triples(split.test) == triples(weak_split(few, number, seed=3).test)
    assert triples(split.test) != triples(weak_split(few, number, seed=4).test)
    with pytest.raises(ValueError, match=r"expected users with 50 \+ 10"):
        weak_split(few, 50)


def test_strong_split():
    ratings = synthetic_ratings(users=40, rated=35)
    split = strong_split(ratings, 20, test_users=0.25, seed=1)
    new = np.unique(split.test.user)
    assert len(new) == 10
    assert set(np.diff(split.given.offsets)[new].tolist()) == {20}
    assert not np.isin(split.train.user, new).any()
    assert sorted(triples(split.train) + triples(split.given) + triples(split.test)) == triples(ratings)
    assert not np.array_equal(new, np.unique(strong_split(ratings, 20, test_users=0.25, seed=2).test.user))


def test_hold_out():
    ratings = synthetic_ratings(users=20, rated=35)
    train, vali = hold_out(ratings, 0.2, seed=1)
    assert set(np.diff(vali.offsets).tolist()) == {7}
    assert sorted(triples(train) + triples(vali)) == triples(ratings)


def test_align():
    one = Ratings.from_arrays(["2"], ["5"], [1], scale="stars")
    two = Ratings.from_arrays(["10"], ["1"], [2], scale="stars")
    first, second = align([one, two])
    assert first.user_names.tolist() == second.user_names.tolist() == ["2", "10"]
    assert (first.item.tolist(), second.item.tolist()) == ([1], [0])
    with pytest.raises(DataError, match="on the same scale"):
        align([one, implicit(two, 2)])


def folder_of(data_root, name):
    folder = data_root / "ratings" / name
    if not folder.is_dir():
        pytest.skip(f"no ratings at {folder}")
    return folder


@pytest.mark.filterwarnings("ignore:.* are not in .*nothing is learnt about them")
def test_movielens(data_root):
    folder = folder_of(data_root, "movielens100k")
    everything = read_ratings(folder / "u.data", "movielens100k")
    assert (everything.num_users, everything.num_items, everything.num_ratings) == (943, 1682, 100_000)
    base, test = read_movielens_fold(folder, 2)
    assert (base.num_ratings, test.num_ratings) == (80_000, 20_000)
    assert base.item_names.tolist() == test.item_names.tolist() == everything.item_names.tolist()
    assert triples(everything) == sorted(triples(base) + triples(test))


def test_jester(data_root):
    ratings = read_ratings(folder_of(data_root, "jester5k") / "ratings.txt", "jester")
    assert (ratings.num_users, ratings.num_items, ratings.num_ratings) == (5000, 100, 363_209)
    assert set(ratings.grades().tolist()) == {0, 1, 2, 3, 4}
