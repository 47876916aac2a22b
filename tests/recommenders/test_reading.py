"""From what a config says to ratings: files found, splits of users, errors."""

import csv
import os
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from rankstruct.data import DataError
from rankstruct.recommenders import (
    Ratings,
    RatingsFormat,
    RatingsSource,
    hold_out,
    implicit,
    merge,
    read_ratings,
    reading,
    register_ratings_format,
    standardised,
    synthetic_ratings,
)
from rankstruct.recommenders.reading import find_ratings


def pairs(ratings):
    return set(zip(ratings.user.tolist(), ratings.item.tolist(), strict=True))


def test_weak_parts_are_the_users_ratings_once():
    ratings = synthetic_ratings(users=30, items=50, rated=40)
    parts = RatingsSource(num_train=20, validation=0.25).divide(ratings)
    assert np.diff(parts.train.offsets).tolist() == [15] * 30
    assert np.diff(parts.vali.offsets).tolist() == [5] * 30
    assert np.diff(parts.test.offsets).tolist() == [20] * 30
    assert not parts.vali_given.num_ratings
    assert not parts.test_given.num_ratings
    assert pairs(merge([parts.train, parts.vali, parts.test])) == pairs(ratings)


def test_strong_parts_have_users_of_their_own():
    ratings = synthetic_ratings(users=50, items=50, rated=40)
    parts = RatingsSource(split="strong", num_train=10, new_users=0.2).divide(ratings)
    users = [set(part.user.tolist()) for part in (parts.train, parts.vali, parts.test)]
    assert [len(each) for each in users] == [30, 10, 10]
    assert len(set.union(*users)) == 50
    for given, judged in ((parts.vali_given, parts.vali), (parts.test_given, parts.test)):
        assert set(given.user.tolist()) == set(judged.user.tolist())
        assert np.diff(given.offsets).max() == 10
    assert pairs(merge(parts[:5])) == pairs(ratings)
    with pytest.raises(ValueError, match=r"new_users must be a finite number above 0 and below 0\.5"):
        RatingsSource(split="strong", new_users=0.5).divide(ratings)


def test_merge_refuses_what_does_not_belong_together():
    ratings = synthetic_ratings(users=5, rated=10)
    train, held = hold_out(ratings, 0.3)
    assert pairs(merge([held, train])) == pairs(ratings)
    with pytest.raises(DataError, match="the same user and item names"):
        merge([ratings, synthetic_ratings(users=6, rated=10)])
    with pytest.raises(DataError, match="twice"):
        merge([ratings, held])


def test_standardised_takes_mean_and_deviation_from_its_ratings_alone():
    ratings = Ratings.from_arrays(["a", "b", "c"], ["x", "y", "x"], [1, 5, 5], scale="stars")
    labels = standardised(ratings.select(np.array([True, True, False])))
    np.testing.assert_allclose(ratings.labels(labels), [-1, 1, 1])
    with pytest.raises(DataError, match="to standardise, got 1"):
        standardised(ratings.select(np.array([True, False, False])))


def test_formats_are_told_by_names(tmp_path):
    for name, format in (("u.data", "movielens100k"), ("ratings.dat", "movielens1m"), ("mine.csv", "csv")):
        folder = tmp_path / format
        folder.mkdir()
        (folder / name).touch()
        assert find_ratings(folder / name) == (folder / name, format)
    assert find_ratings(tmp_path / "movielens100k") == (tmp_path / "movielens100k" / "u.data", "movielens100k")
    (tmp_path / "ratings.txt").touch()
    assert find_ratings(tmp_path, "jester") == (tmp_path / "ratings.txt", "jester")
    with pytest.raises(DataError, match=r"cannot infer the format from the file name; set data\.format"):
        find_ratings(tmp_path)
    with pytest.raises(DataError, match=r"has none of u\.data, ratings\.dat"):
        find_ratings(tmp_path / "csv")


def test_a_csv_file_and_a_fold_are_read(tmp_path):
    ratings = synthetic_ratings(users=20, items=40, rated=30)
    rows = list(zip(ratings.user, ratings.item, ratings.rating.astype(int), strict=True))
    (tmp_path / "r.csv").write_text("user,item,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in rows))
    assert RatingsSource(str(tmp_path / "r.csv"), scale="stars", num_train=15).read().test.num_ratings == 20 * 15
    for name, part in (("base", [row for at, row in enumerate(rows) if at % 6]), ("test", rows[::6])):
        (tmp_path / f"u1.{name}").write_text("".join(f"{u}\t{i}\t{r}\t0\n" for u, i, r in part))
    parts = RatingsSource(str(tmp_path), split="fold", fold=1, validation=0.1).read()
    assert (parts.train.num_ratings + parts.vali.num_ratings, parts.test.num_ratings) == (500, 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either data.path"),
        ({"path": "x", "builtin": "synthetic"}, "give either data.path"),
        ({"builtin": "movielens"}, "data.builtin must be one of None, 'synthetic', got 'movielens'"),
        ({"builtin": "synthetic", "split": "random"}, "data.split must be one of 'weak', 'strong', 'fold'"),
        ({"builtin": "synthetic", "fold": 1}, "data.fold is for data.split fold only"),
        ({"builtin": "synthetic", "split": "fold"}, "data.fold is for data.split fold only"),
        ({"builtin": "synthetic", "split": "fold", "fold": 1}, "requires data.path"),
        ({"builtin": "synthetic", "num_train": 0}, "data.num_train must be an integer from 1, got 0"),
        (
            {"builtin": "synthetic", "validation": 2},
            "data.validation must be a finite number above 0 and below 1, got 2",
        ),
        ({"builtin": "synthetic", "split": "strong", "new_users": 0.5}, "data.new_users must be .* below 0.5, got 0.5"),
        ({"builtin": "synthetic", "num_train": 100}, "expected users with 100 \\+ 10 ratings"),
        ({"path": "/nowhere/u.data"}, "/nowhere/u.data: no such file"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        RatingsSource(**options).read()


def test_a_broken_line_is_named(tmp_path):
    (tmp_path / "u.data").write_text("1\t1\t5\t0\n1\t2\tfive\t0\n")
    with pytest.raises(DataError, match=r"u.data, line 2: expected a number as rating, got 'five'"):
        RatingsSource(str(tmp_path)).read()
    (tmp_path / "r.csv").write_text("1,1,5\n")
    with pytest.raises(ValueError, match="scale must be one of"):
        RatingsSource(str(tmp_path / "r.csv")).read()


def test_a_format_of_ones_own_serves_files_and_configs(tmp_path, monkeypatch):
    from rankstruct.recommenders.training import SplitRatingsDataModule

    def rows(path):  # `user item item ...`
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            user, *items = line.split()
            yield from ((number, user, item, "1") for item in items)

    monkeypatch.setattr(reading, "FORMATS", dict(reading.FORMATS))
    register_ratings_format("pairs", RatingsFormat(rows, "binary", ("clicks.txt",)))
    (tmp_path / "clicks.txt").write_text("".join(f"u{u} {' '.join(map(str, range(u, u + 6)))}\n" for u in range(5)))
    assert read_ratings(tmp_path).num_ratings == read_ratings(tmp_path / "clicks.txt", "pairs").num_ratings == 30
    data = SplitRatingsDataModule(path=str(tmp_path), num_train=4, min_test=2)
    assert data.splits.test.num_documents == 10
    with pytest.raises(ValueError, match="which are in use; got 'pairs'"):
        register_ratings_format("pairs", RatingsFormat(rows))


def test_registered_formats_come_before_built_in_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "FORMATS", dict(reading.FORMATS))
    form = RatingsFormat(lambda path: iter([(1, "mine", "x", "5")]), "stars", ("*.tsv", "mine.dat"))
    register_ratings_format("mine", form)
    for name in ("k.tsv", "mine.dat", "u.data"):
        (tmp_path / name).write_text("user\titem\trating\nann\tx\t5\n")
    for path in (tmp_path / "k.tsv", tmp_path):
        assert read_ratings(path).user_names.tolist() == ["mine"]
    assert read_ratings(tmp_path / "k.tsv", "csv", scale="stars").user_names.tolist() == ["ann"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_true_and_false_are_binary_ratings_only(tmp_path, suffix):
    path = tmp_path / f"r.{suffix}"
    table = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "rating": [True, True]})
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    assert read_ratings(path, scale="binary").rating.tolist() == [1, 1]
    with pytest.raises(DataError, match=r"expected numbers in column 'rating', got True and False; set scale='binary'"):
        read_ratings(path, scale="stars")


@pytest.mark.parametrize("text", ["a;x;4,5\n", "1,2,4,9,9\n", "a,x,four\n"])
def test_what_a_file_without_column_names_has_is_said(tmp_path, text):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(DataError, match=r"no column 'user'; .*; without column names, there are 3 or 4 columns: user"):
        read_ratings(tmp_path / "r.csv", scale="stars")
    (tmp_path / "r.csv").write_text("user,item\na,x\n")
    with pytest.raises(DataError, match=r"there is no column 'rating'; there are 'user, item'$"):
        read_ratings(tmp_path / "r.csv", scale="stars")


def test_a_text_file_needs_its_scale_alone(tmp_path):
    (tmp_path / "mine").write_text("a x 5\na y 1\n")
    assert read_ratings(tmp_path / "mine", scale="stars").num_ratings == 2
    with pytest.raises(DataError, match="cannot infer the format"):
        read_ratings(tmp_path / "mine")


@pytest.mark.parametrize("rating", ["1_0", "３", "٣", "five" * 10_000])
def test_ratings_are_numbers_in_ascii_digits(tmp_path, rating):
    (tmp_path / "r.txt").write_text(f"a x 3\nb x {rating}\n")
    with pytest.raises(DataError, match=r"r.txt, line 2: expected a number as rating, got") as found:
        read_ratings(tmp_path / "r.txt", scale="centred")
    assert len(str(found.value)) < 300


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_files_have_any_separator_and_encoding(tmp_path, separator, encoding):
    path = tmp_path / "r.csv"
    for names, rows in (
        (["Rating", "User", "Item"], [["5", "ann", "x;y"], ["2.0", "bob", "a, b"]]),
        (None, [["ann", "x;y", "5"], ["bob", "a, b", "2.0"]]),
    ):
        with open(path, "w", encoding=encoding, newline="") as file:
            csv.writer(file, delimiter=separator).writerows([names, *rows] if names else rows)
        found = read_ratings(path, scale="stars")
        assert (found.user_names.tolist(), found.item_names.tolist()) == (["ann", "bob"], ["a, b", "x;y"])
        assert found.rating.tolist() == [5.0, 2.0]


@pytest.mark.parametrize("names", ["", "user,item,rating\n"])
def test_blank_lines_before_ratings_are_skipped(tmp_path, names):
    path = tmp_path / "x.csv"
    path.write_text(f"\n\n{names}a,x,4\n\nb,y,3\n")
    ratings = read_ratings(path, scale="stars")
    assert (ratings.num_users, ratings.num_items, ratings.rating.tolist()) == (2, 2, [4, 3])
    path.write_text(f"\n\n{names}a,x,4\nb,y,?\n")
    with pytest.raises(DataError, match=r"row 2: expected a number in column 'rating', got '\?'"):
        read_ratings(path, scale="stars")


def test_hostile_files_of_ratings(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("a,x,3\nb,x," + "3" * 200_000 + "\n")
    with pytest.raises(DataError, match=r"r.csv, row 2: expected a rating from 1 to 5 .*, got inf"):
        read_ratings(path, scale="stars")
    path.write_text("a,x\n" * 2 + "z" * 100_000)
    with pytest.raises(DataError, match="there is no column 'user'; there are 'a, x'"):
        read_ratings(path, scale="stars")
    path.write_text("z" * 100_000)
    with pytest.raises(DataError, match="there is no column 'user'; there are 'zzz") as found:
        read_ratings(path, scale="stars")
    assert len(str(found.value)) < 500
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="got: a pipe; write its content to a file first"):
        read_ratings(path, scale="stars")


def test_one_long_name_costs_its_length_alone():
    """A user of 50 kB among 20,000 took 4 GB, or a MemoryError."""
    users = [f"u{i}" for i in range(20_000)] + ["u" * 50_000]
    items = [f"i{i % 50}" for i in range(20_000)] + ["i" * 50_000]
    tracemalloc.start()
    try:
        ratings = Ratings.from_arrays(users, items, np.ones(20_001), scale="stars")
        lists = ratings.to_lists()
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    assert ratings.user_names[ratings.num_users - 1] == "u" * 50_000
    assert lists.docids[20_000] == "i" * 50_000
    both = Ratings.from_arrays(["a", "a\0"], ["x", "x"], [1, 5], scale="stars")
    assert both.user_names.tolist() == ["a", "a\0"]


@pytest.mark.parametrize(
    ("name", "text", "times"),
    [
        ("u.data", "1\t5\t4\t30\n1\t2\t3\t10\n", [30, 10]),
        ("ratings.dat", "1::5::4::30\n1::2::3::10\n", [30, 10]),
        ("x.txt", "1 5 4 1.5\n1 2 3 -2\n", [1.5, -2]),
        ("x.txt", "1 5 4 today\n1 2 3 10\n", None),
        ("x.txt", "1 5 4\n1 2 3\n", None),
        ("x.csv", "movieId,userId,timestamp,rating\n5,1,30,4\n2,1,10,3\n", [30, 10]),
        ("x.csv", "1,5,4,30\n1,2,3,10\n", [30, 10]),
        ("x.csv", "user,item,rating,time\n1,5,4,1970-01-02\n1,2,3,1970-01-01\n", [86400, 0]),
        ("x.csv", "user,item,rating,time\n1,5,4,30\n1,2,3,\n", None),
        ("x.csv", "user,item,rating,time\n1,5,4,30\n1,2,3,soon\n", None),
        ("x.csv", "user,item,rating,time,datetime\n1,5,4,30,1\n1,2,3,10,2\n", None),
    ],
)
def test_ratings_have_the_times_of_their_file_if_all_of_them_are(tmp_path, name, text, times):
    (tmp_path / name).write_text(text)
    ratings = read_ratings(tmp_path / name, scale="stars")
    assert ratings.item_names[ratings.item].tolist() == ["5", "2"]
    if times is None:
        assert ratings.time is None
        return
    assert ratings.time.tolist() == times
    kept, last = hold_out(implicit(ratings, 3), 1, latest=True)
    assert (kept.item_names[kept.item].tolist(), last.item_names[last.item].tolist()) == (["2"], ["5"])
