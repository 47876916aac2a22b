"""Interactions that were misread or accepted without a word: ids, times, files, shares, parts."""

import datetime
import logging
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import rankstruct as rs
from rankstruct.clicks import ClickLog
from rankstruct.data import DataError, RankingData
from rankstruct.recommenders import (
    InteractionsSource,
    Ratings,
    RatingsSource,
    hold_out,
    implicit,
    interactions,
    k_core,
    read_interactions,
    read_ratings,
    split_by_time,
    strong_split,
    synthetic_ratings,
    weak_split,
)
from rankstruct.recommenders.training import InteractionsDataModule

JANUARY = datetime.datetime(2024, 1, 2, 10, tzinfo=datetime.timezone.utc)
SECONDS = JANUARY.timestamp()


def pairs(ratings):
    return set(zip(ratings.user_names[ratings.user], ratings.item_names[ratings.item], strict=True))


# Ids

WITHOUT_MISSING = [
    pd.array([2, 10, 2], dtype="Int64"),
    pd.Series([2, 10, 2], dtype="Int32"),
    np.array([2.0, 10.0, 2.0]),
    np.array([2, 10, 2], np.float32),
    [2.0, 10.0, 2.0],
    pd.Series([2.0, 10.0, 2.0], dtype=object),
    pd.Series(["2", "10", "2"]),
    torch.tensor([2, 10, 2]),
    torch.tensor([2.0, 10.0, 2.0]),
    [np.float32(2.0), "10", np.float64(2.0)],
    [Decimal("2.0"), np.float16(10), "2"],
    np.array([np.float32(2.0), Decimal("10"), 2], object),
]
MISSING = [
    pd.array([2, None, 2], dtype="Int64"),
    pd.Series([2, None, 2], dtype="Int32"),
    pd.Series([2, None, 2], dtype="Float64"),
    pd.Series(["2", None, "2"], dtype="string"),
    pd.Series([2, None, 2], dtype="category"),
    np.array([2.0, np.nan, 2.0]),
    [2, pd.NA, 2],
    ["2", None, "2"],
    ["2", float("nan"), "2"],
    ["2", np.float32("inf"), "2"],
    [2, Decimal("nan"), 2],
    [2, Decimal("snan"), "2"],
    [2, Decimal("-inf"), 2],
]


@pytest.mark.parametrize("ids", WITHOUT_MISSING)
def test_integers_have_the_same_names_in_any_type(ids):
    others = ["x", "x", "y"]
    for found in (
        interactions(ids, others),
        interactions(pd.DataFrame({"user": ids if isinstance(ids, list) else np.asarray(ids), "item": others})),
        Ratings.from_arrays(ids, others, [1, 1, 1], scale="binary"),
    ):
        assert found.user_names.tolist() == ["2", "10"]
        assert pairs(found) == {("2", "x"), ("10", "x"), ("2", "y")}
    assert interactions(others, ids, item_names=ids[:2]).item_names.tolist() == ["2", "10"]
    assert interactions([0, 1, 0], [0, 0, 1], user_names=range(2), item_names=range(2)).num_ratings == 3
    matrix = sp.csr_array([[1.0, 0.0]])
    assert interactions(matrix, item_names=ids[:2]).item_names.tolist() == ["2", "10"]
    lists = RankingData.from_arrays(np.zeros((2, 1)), [0, 1], ids[:2], docids=ids[:2])
    assert lists.qids.tolist() == lists.docids.tolist() == ["2", "10"]


@pytest.mark.parametrize("ids", MISSING)
def test_missing_ids_are_errors_everywhere(ids):
    others, labels = ["x", "x", "y"], [1, 0, 1]
    for make in (
        lambda: interactions(ids, others),
        lambda: interactions(others, ids),
        lambda: interactions(pd.DataFrame({"user": ids, "item": others})),
        lambda: interactions(others, others, user_names=ids),
        lambda: interactions(sp.csr_array(np.ones((3, 1))), user_names=ids),
        lambda: Ratings.from_arrays(ids, others, labels, scale="binary"),
        lambda: RankingData.from_arrays(np.zeros((3, 1)), labels, ids),
        lambda: RankingData.from_arrays(np.zeros((3, 1)), labels, [1, 1, 1], docids=ids),
        lambda: ClickLog.from_arrays(ids, others, [1, 1, 2], labels),
        lambda: ClickLog.from_arrays(others, ids, [1, 1, 2], labels),
        lambda: rs.evaluate([0.0, 1.0, 2.0], labels, "AP", qid=ids),
    ):
        with pytest.raises(ValueError, match=r"must not be missing; that of .* 1 is|row 2: expected an id .* got none"):
            make()


def test_clicks_have_integer_ids_in_any_type():
    log = ClickLog.from_arrays(np.array([5.0, 5.0]), pd.array([7, 8], dtype="Int64"), [1, 2], [0, 1])
    assert (log.queries.tolist(), log.documents.tolist()) == ([5], [7, 8])
    assert log.queries.dtype.kind == log.documents.dtype.kind == "i"


@pytest.mark.parametrize("ids", MISSING)
@pytest.mark.parametrize("role", ["query", "document", "session"])
def test_missing_ids_of_clicks_are_errors(ids, role):
    given = {"query": ["q"] * 3, "document": [1, 2, 3], "session": [1] * 3, role: ids}
    with pytest.raises(ValueError, match=rf"{role} must not be missing; that of .* 1 is"):
        ClickLog.from_arrays(**given, position=[1, 2, 3], click=[1, 0, 0])


@pytest.mark.parametrize("ids", WITHOUT_MISSING)
def test_clicks_number_ids_alike_in_any_type(ids):
    log = ClickLog.from_arrays(["q"] * 3, ids, [1, 2, 1], [1, 0, 0], session=[1, 1, 2])
    assert sorted(map(str, log.documents)) == ["10", "2"]
    assert log.documents[log.document].astype(str).tolist() == ["2", "10", "2"]


def test_clicks_on_numbers_among_strings_are_on_strings():
    log = ClickLog.from_arrays(["q"] * 4, [1, 1.0, "1", "x"], [1, 1, 1, 2], [1, 0, 0, 1], session=[1, 2, 3, 3])
    assert (log.documents.tolist(), log.document.tolist()) == (["1", "x"], [0, 0, 0, 1])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_index_of_a_frame_is_another_column(tmp_path, suffix):
    table = pd.DataFrame({"user": list("abcd"), "item": 1, "position": 1, "click": 0}).query("user != 'b'")
    getattr(table, f"to_{suffix}")(tmp_path / f"x.{suffix}")
    assert pairs(read_interactions(tmp_path / f"x.{suffix}")) == {(user, "1") for user in "acd"}
    log = ClickLog.read(tmp_path / f"x.{suffix}", query="user", document="item")
    assert log.queries.tolist() == ["a", "c", "d"]
    with pytest.raises(DataError, match=r"the row number .* is not a feature"):
        log.read_features(tmp_path / f"x.{suffix}", query="user", document="item")


def test_a_repeated_column_of_ids_is_an_error(tmp_path):
    (tmp_path / "x.csv").write_text("q,item,q,position,click\na,b,c,1,1\n")
    with pytest.raises(DataError, match="expected one column 'q', got several"):
        ClickLog.read(tmp_path / "x.csv", query="q", document="item")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_frames_and_their_files_have_the_same_names(tmp_path, suffix):
    table = pd.DataFrame({"user": [1.0, 2.0], "item": pd.array([3, 4], dtype="Int64")})
    write = {"csv": lambda path: table.astype(int).to_csv(path, index=False), "parquet": table.to_parquet}[suffix]
    write(tmp_path / f"x.{suffix}")
    assert pairs(interactions(table)) == pairs(read_interactions(tmp_path / f"x.{suffix}")) == {("1", "3"), ("2", "4")}


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "inter"])
@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["1.0", "10.0", "0.0", "-2.0"], ["1", "10", "0", "-2"]),
        (["1.0", "1.1", "2.0", "1"], None),
        (["1.0", "1"], None),
        (["1.0", "x"], None),
        (["1.00", "2.00"], None),
        (["01.0", "2.0"], None),
    ],
)
def test_a_column_of_whole_floats_in_text_has_integers(tmp_path, suffix, cells, names):
    path, sep = tmp_path / f"x.{suffix}", "," if "csv" in suffix else "\t"
    pd.DataFrame({"user": cells, "item": "z", "position": range(1, len(cells) + 1), "click": 1}).to_csv(
        path, sep=sep, index=False
    )
    assert set(read_interactions(path).user_names) == set(names or cells)
    if suffix != "inter":
        assert set(ClickLog.read(path, query="item", document="user").documents) == set(names or cells)


@pytest.mark.parametrize("judged", [("test",), ("valid", "test")])
def test_a_folder_without_common_users_is_an_error(tmp_path, judged):
    write(tmp_path, train={"u": ["a", "b"]}, **{part: {"v": ["c"], "w": ["a"]} for part in judged})
    with pytest.raises(
        DataError,
        match=rf"none of the \d users of .*{judged[0]}\.txt is in .*train\.txt, such as '[vw]': are they written",
    ):
        InteractionsSource(path=str(tmp_path)).read()


def test_integers_in_one_file_and_floats_in_another_are_the_same(tmp_path):
    (tmp_path / "train.csv").write_text("user,item\n1,10\n1,11\n2,13\n2,14\n")
    (tmp_path / "valid.csv").write_text("user,item\n1.0,13.0\n")
    (tmp_path / "test.csv").write_text("user,item\n1.0,14\n")
    parts = InteractionsSource(path=str(tmp_path)).read()
    assert (parts.train.num_users, pairs(parts.vali), pairs(parts.test)) == (2, {("1", "13")}, {("1", "14")})


@pytest.mark.parametrize("ids", [[1.0, 0.5], [1.0, 1e300], np.array([[1, 2]]), torch.tensor([[1], [2]])])
def test_other_ids_are_errors(ids):
    with pytest.raises(DataError, match="users must be one-dimensional strings or integers, got"):
        interactions(ids, [1, 2])


def test_an_arrow_table_is_a_table():
    pa = pytest.importorskip("pyarrow")
    found = interactions(pa.table({"user_id": [1, 2], "item_id": ["x", "y"], "datetime": [JANUARY, JANUARY]}))
    assert pairs(found) == {("1", "x"), ("2", "y")}
    assert found.time.tolist() == [SECONDS, SECONDS]
    with pytest.raises(DataError, match="the data frame, row 2: expected an id in column 'user_id', got none"):
        interactions(pa.table({"user_id": [1, None], "item_id": ["x", "y"]}))


# Times


@pytest.mark.parametrize(
    "time",
    [
        SECONDS,
        int(SECONDS),
        str(int(SECONDS)),
        np.datetime64("2024-01-02T10:00:00", "ns"),
        pd.Timestamp("2024-01-02 10:00:00.000000001"),
        JANUARY,
        JANUARY.replace(tzinfo=None),
        "2024-01-02T10:00:00",
        "2024-01-02 10:00:00",
        "2024-01-02T10:00:00Z",
        "2024-01-02T12:00:00+02:00",
    ],
)
def test_times_are_numbers_or_dates_in_frames_lists_and_files(tmp_path, time):
    table = pd.DataFrame({"user": ["a", "b"], "item": [1, 2]}).assign(datetime=[time, time])
    table.to_csv(tmp_path / "x.csv", index=False)
    table.to_parquet(tmp_path / "x.parquet")
    for found in (
        interactions(table),
        interactions(table["user"], table["item"], times=[time, time]),
        Ratings.from_arrays(["a", "b"], [1, 2], [1, 1], scale="binary", time=[time, time]),
        read_interactions(tmp_path / "x.csv"),
        read_interactions(tmp_path / "x.parquet"),
    ):
        assert found.time.tolist() == pytest.approx([SECONDS, SECONDS], abs=1e-5)


def test_dates_of_two_kinds_in_a_column_are_an_error(tmp_path):
    (tmp_path / "x.csv").write_text("user,item,time\na,x,2024-01-02T10:00:00Z\nb,y,2024-01-02T10:00:00\n")
    with pytest.raises(DataError, match=r"numbers in column 'time', got string; write dates as 2024-01-31 or"):
        read_interactions(tmp_path / "x.csv")


def test_dates_without_hours_and_tensors_are_times():
    for times in (["2024-01-02"], [datetime.date(2024, 1, 2)], torch.tensor([1704153600])):
        assert interactions(["a"], ["x"], times=times).time.tolist() == [1704153600]


@pytest.mark.parametrize(
    "times",
    [
        pd.Series(pd.to_datetime(["2024-01-02", None])),
        pd.Series(pd.to_datetime(["2024-01-02T00:00:00Z", None])),
        [1.0, np.nan],
        pd.array([1, None], dtype="Int64"),
        ["2024-01-02", None],
        [JANUARY, None],
        [pd.Timestamp("2024-01-02"), pd.NaT],
    ],
)
def test_missing_times_are_errors(tmp_path, times):
    table = pd.DataFrame({"user": ["a", "b"], "item": [1, 2], "timestamp": times})
    table.to_parquet(tmp_path / "x.parquet")
    for make in (
        lambda: interactions(table),
        lambda: interactions(["a", "b"], [1, 2], times=times),
        lambda: Ratings.from_arrays(["a", "b"], [1, 2], [1, 1], scale="binary", time=times),
    ):
        with pytest.raises(
            DataError, match=r"must not be missing; that of interaction 1 is|row 2: expected a time, got none"
        ):
            make()
    with pytest.raises(DataError, match="row 2: expected a time, got none"):
        read_interactions(tmp_path / "x.parquet")


@pytest.mark.parametrize("times", [["soon", "later"], [5, "2024-01-01"], [object(), object()], np.ones(2, "m8[s]")])
def test_other_times_are_errors(times):
    with pytest.raises(DataError, match=r"times must be (real )?numbers"):
        interactions(["a", "b"], [1, 2], times=times)


@pytest.mark.parametrize("number", [1, 3])
def test_there_is_a_time_for_each(number):
    for make in (
        lambda: interactions(["a", "b"], [1, 2], times=range(number)),
        lambda: Ratings.from_arrays(["a", "b"], [1, 2], [1, 1], scale="binary", time=range(number)),
    ):
        with pytest.raises(DataError, match="must have one entry per interaction, 2, got"):
            make()


# Arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"items": [1]}, "items is for arrays of users, not for a matrix"),
        ({"items": [1], "times": [1]}, "items, times are for arrays of users, not for a matrix"),
    ],
)
def test_a_matrix_has_its_own_sizes(arguments, message):
    with pytest.raises(DataError, match=message):
        interactions(sp.csr_array([[1.0, 0.0]]), **arguments)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("items", [1]),
        ("times", [1]),
        ("user_names", ["a"]),
        ("item_names", ["a"]),
        ("user", "u"),
        ("item", "i"),
        ("time", "t"),
        ("min_rating", 4),
    ],
)
def test_interactions_take_no_arguments_that_would_not_count(option, value):
    with pytest.raises(
        DataError, match=f"^{option} is for (arrays of users, not for interactions|rows and columns of a table)"
    ):
        interactions(interactions([1], [2]), **{option: value})


# Files


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.tsv", "user_id\titem_id\ttimestamp\na\tx\t3\nb\ty\t5\n"),
        ("s.inter", "user_id:token\titem_id:token\trating:float\ttimestamp:float\na\tx\t1\t3\nb\ty\t1\t5\n"),
        ("s.txt", "user_id\titem_id\ttimestamp\na\tx\t3\nb\ty\t5\n"),
        ("s.dat", "item,User,rating,time\nx,a,1,3\ny,b,1,5\n"),
    ],
)
def test_files_with_column_names_are_tables(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    found = read_interactions(tmp_path / name)
    assert pairs(found) == {("a", "x"), ("b", "y")}
    assert found.time.tolist() == [3, 5]


@pytest.mark.parametrize("number", [1, 1000, 300_000])
@pytest.mark.parametrize("text", ['a\t"cd\tno', 'a\tcd\t"no', '"a\tcd\tno'])
@pytest.mark.parametrize("first", [True, False])
def test_a_quotation_mark_that_is_not_closed_is_an_error(tmp_path, number, text, first):
    rows = ['u\t"x"\ty', *(f"u{row}\tx{row}\tz" for row in range(number))]
    rows.insert(1 if first else number + 1, text)
    (tmp_path / "x.tsv").write_text("\n".join(["user\titem\ttitle", *rows, ""]))
    line = 3 if first else number + 3
    with pytest.raises(DataError, match=rf"x\.tsv, line {line}: .* quotation mark that is not closed"):
        read_interactions(tmp_path / "x.tsv")


def test_quotation_marks_are_characters_in_inter_files_and_within_cells(tmp_path):
    (tmp_path / "x.inter").write_text('user_id:token\titem_id:token\na\t"cd\nb\t"cd"\n')
    assert pairs(read_interactions(tmp_path / "x.inter")) == {("a", '"cd'), ("b", '"cd"')}
    (tmp_path / "x.csv").write_text('user,item\na,5" disk\nb,"x ""y"", z"\n')
    assert pairs(read_interactions(tmp_path / "x.csv")) == {("a", '5" disk'), ("b", 'x "y", z')}


def test_comments_are_ignored(tmp_path):
    (tmp_path / "x.txt").write_text("# hello you\n#\nann x y\n#1 x\n# end\n")
    assert pairs(read_interactions(tmp_path / "x.txt")) == {("ann", "x"), ("ann", "y"), ("#1", "x")}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "x.txt",
            "user item time\na x 3\n",
            "x.txt, line 1: expected user item item ..., got column names, 'user item",
        ),
        ("x.txt", "# mine\nUserId MovieId\na x\n", "x.txt, line 2: expected user item item ..., got column names"),
        ("u.data", "1\t2\t5\t3\n", "u.data: expected interactions, got ratings; set min_rating=4 if"),
        ("u1.base", "1\t2\t5\t3\n", "u1.base: expected interactions, got ratings"),
        ("ratings.dat", "1::2::5::3\n", "ratings.dat: expected interactions, got ratings"),
        ("mine", "1::2::5::3\n", "mine: expected interactions, got ratings"),
        ("mine", "1\t2\t5\t874724710\n3\t2\t4\t881250949\n", "mine: expected interactions, got ratings"),
        (
            "x.txt",
            "a 1 978300760\nb 7 978300761\n",
            "looks like a time, such as 978300761; set times=True if it is one",
        ),
        ("x.txt", "a 1 1704153600000.0\n", "looks like a time, such as 1704153600000.0"),
    ],
)
def test_misread_files_are_errors(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_interactions(tmp_path / name)


RATED = "1\t7\t5\t30\n1\t8\t3\t10\n2\t9\t4\t20\n"


@pytest.mark.parametrize(
    ("name", "separator"), [("u.data", "\t"), ("u1.base", "\t"), ("ratings.dat", "::"), ("mine", " ")]
)
def test_ratings_of_text_files_count_from_a_number_of_stars(name, separator, tmp_path):
    (tmp_path / name).write_text(RATED.replace("\t", separator))
    with pytest.warns(UserWarning, match=r"2 of the 3 rows of .* have a rating of at least 4 and count") as told:
        found = read_interactions(tmp_path / name, min_rating=4)
    assert told[0].filename == __file__
    assert pairs(found) == {("1", "7"), ("2", "9")}
    assert found.time.tolist() == [30, 20]
    known = implicit(read_ratings(tmp_path / name, scale="stars"), 4)
    assert pairs(known.select(known.rating == 1)) == pairs(found)


def test_ratings_without_times_and_what_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("ann x 5\nbob y 4.5\n")
    assert read_interactions(tmp_path / "mine.txt", min_rating=4).time is None
    refused = {
        "none of the 2 rows of .* has a rating of at least 6": {"min_rating": 6},
        "times is set, but there is no column of times": {"min_rating": 4, "times": True},
        "times='order' is for text files of lines user item item": {"min_rating": 4, "times": "order"},
        "min_rating must be a finite number, or None, got '4'": {"min_rating": "4"},
    }
    for said, options in refused.items():
        with pytest.raises((DataError, ValueError), match=said):
            read_interactions(tmp_path / "mine.txt", **options)
    (tmp_path / "mine.txt").write_text("ann x 5\nbob y z\n")
    with pytest.raises(DataError, match=r"mine.txt, line 2: expected a number as rating, got 'z'"):
        read_interactions(tmp_path / "mine.txt", min_rating=4)


@pytest.mark.parametrize(
    "text",
    [
        "a 1 978300760\nb 7 8\n",
        "a 978300761 978300760\n",
        "a 978300760\n",
        "a 1 2 3 978300760\n",
        "a 1 978300760\nb 2\n",
    ],
)
def test_large_items_are_items(tmp_path, text):
    (tmp_path / "x.txt").write_text(text)
    assert "978300760" in read_interactions(tmp_path / "x.txt").item_names.tolist()


def test_times_of_lines_are_read_if_asked_for(tmp_path):
    (tmp_path / "x.txt").write_text("a 1 978300760\nb 7 978300761\n")
    assert read_interactions(tmp_path / "x.txt", times=True).time.tolist() == [978300760, 978300761]
    assert read_interactions(tmp_path / "x.txt", times=False).num_ratings == 4  # those are items
    for time in ("nan", "inf", "1e400"):
        (tmp_path / "x.txt").write_text(f"b y 5\na x {time}\n")
        with pytest.raises(DataError, match=rf"x\.txt, line 2: expected a number as time, got '{time}'"):
            read_interactions(tmp_path / "x.txt", times=True)


# Splits


def test_a_share_is_exact_in_expectation_for_short_histories():
    users = np.repeat(np.arange(2000), [6] * 1000 + [1] * 500 + [10] * 500)
    ratings = interactions(users, np.concatenate([np.arange(each) for each in np.bincount(users)]))
    train, held = hold_out(ratings, 0.1, seed=3)
    assert pairs(train) | pairs(held) == pairs(ratings)
    counts = np.diff(held.offsets)
    assert counts[:1000].mean() == pytest.approx(0.6, abs=0.05)  # three standard deviations
    assert set(counts[:1000].tolist()) == {0, 1}
    assert not counts[1000:1500].any()
    assert set(counts[1500:].tolist()) == {1}
    assert pairs(hold_out(ratings, 0.1, seed=3)[1]) == pairs(held) != pairs(hold_out(ratings, 0.1, seed=4)[1])


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("latest", [False, True])
def test_no_user_loses_all(share, latest):
    ratings = interactions(np.repeat(np.arange(50), 2), np.tile([0, 1], 50), times=np.arange(100))
    assert np.diff(hold_out(ratings, share, latest=latest)[0].offsets).min() == 1


@pytest.mark.parametrize("share", [1, np.int64(1), np.int32(1)])
def test_a_number_held_out_may_be_of_numpy(share):
    assert hold_out(interactions([0, 0, 1], [0, 1, 0]), share)[1].num_ratings == 1


TABLE = pd.DataFrame({"user": np.repeat(np.arange(8), 5), "item": np.tile(np.arange(5), 8), "time": np.arange(40)})


@pytest.mark.parametrize("given", [TABLE, sp.coo_array(np.ones((8, 5)))])
@pytest.mark.parametrize(
    "split",
    [
        lambda given: hold_out(given, 0.4),
        lambda given: (k_core(given, 5),),
        lambda given: weak_split(given, 3, min_test=1)[::2],
        lambda given: strong_split(given, 3, min_test=1)[:3],
    ],
)
def test_splits_take_matrices_and_tables(given, split):
    assert [pairs(part) for part in split(given)] == [pairs(part) for part in split(interactions(given))]


def test_a_split_by_time_takes_a_table():
    assert [len(pairs(part)) for part in split_by_time(TABLE, 0.25)] == [30, 10]
    with pytest.raises(ValueError, match="requires times"):
        split_by_time(sp.csr_array(np.ones((8, 5))), 0.25)


def test_an_empty_core_is_an_error():
    with pytest.raises(DataError, match="no users with 9 and items with 30 ratings are left; use a smaller core"):
        k_core(TABLE, 30, user_k=9)
    with pytest.raises(DataError, match=r"data\.core"):
        InteractionsSource(builtin="synthetic", core=1000).read()


def test_a_random_leave_one_out_is_logged(caplog):
    source = InteractionsSource(builtin="synthetic", split="leave-one-out")
    with caplog.at_level(logging.WARNING):
        source.divide(TABLE)
        assert not caplog.messages
        source.divide(TABLE.drop(columns="time"))
    assert caplog.messages == ["the interactions have no times: leave-one-out holds out random ones, not the last"]


def write(folder, **parts):
    for name, rows in parts.items():
        (folder / f"{name}.txt").write_text("".join(f"{user} {' '.join(items)}\n" for user, items in rows.items()))


@pytest.mark.parametrize("size", [4, 6])
def test_few_interactions_of_each_user_are_enough_to_validate(tmp_path, size):
    rng = np.random.default_rng(0)
    rows = {f"u{user}": [f"i{item}" for item in rng.permutation(20)[:size]] for user in range(30)}
    rows["other"] = ["new", "newer"]
    write(tmp_path, train=rows, test={user: ["new"] for user in rows if user != "other"})
    for path, everything in ((tmp_path / "train.txt", 30 * size + 2), (tmp_path, 30 * size + 32)):
        parts = InteractionsSource(path=str(path)).read()
        assert min(parts.train.num_ratings, parts.vali.num_ratings, parts.test.num_ratings) > 0
        assert parts.train.num_ratings + parts.vali.num_ratings + parts.test.num_ratings == everything


def test_an_empty_part_is_an_error(tmp_path):
    write(tmp_path, train={f"u{user}": ["i" if user else "j"] for user in range(9)}, test={"u1": ["j"]})
    with pytest.raises(DataError, match="nothing is left for validation: 9 for training, 0 for validation, 1 for test"):
        InteractionsSource(path=str(tmp_path)).read()
    with pytest.raises(DataError, match="one of each user is always for training"):
        InteractionsSource(path=str(tmp_path / "train.txt")).read()
    with pytest.raises(DataError, match="nothing is left for validation"):
        RatingsSource(num_train=1).divide(synthetic_ratings(users=5, rated=20))
    constant = TABLE.assign(time=0)
    with pytest.raises(DataError, match="nothing is left for validation"):
        InteractionsSource(builtin="synthetic", split="time").divide(constant)


def test_interactions_count_in_the_first_file_that_has_them(tmp_path, caplog):
    train = {"u1": ["i1", "i8"], "u2": ["i1"], "u3": ["i3", "i5", "i9"]}
    valid = {"u1": ["i8", "i9"], "u2": ["i3"]}
    write(tmp_path, train=train, valid=valid, test={"u1": ["i1", "i9", "i5"]})
    with caplog.at_level(logging.WARNING):
        parts = InteractionsSource(path=str(tmp_path)).read()
    assert pairs(parts.train) == {("u1", "i1"), ("u1", "i8"), ("u2", "i1"), *(("u3", f"i{item}") for item in (3, 5, 9))}
    assert pairs(parts.vali) == {("u1", "i9"), ("u2", "i3")}
    assert pairs(parts.test) == {("u1", "i5")}
    assert caplog.messages == [
        f"{tmp_path / 'valid.txt'}: 1 interactions that are in train.txt too are left out",
        f"{tmp_path / 'test.txt'}: 2 interactions that are in train.txt or valid.txt too are left out",
    ]
    InteractionsDataModule(path=str(tmp_path), exclude_validation=True)


@pytest.mark.parametrize("suffix", [".tsv", ".inter"])
def test_a_folder_has_tables_of_any_separator(tmp_path, suffix):
    for name, item in (("train", 1), ("valid", 2), ("test", 3)):
        others = "8\t2\n8\t3\n" if name == "train" else ""
        (tmp_path / f"{name}{suffix}").write_text(f"user_id\titem_id\n7\t{item}\n{others}")
    parts = InteractionsSource(path=str(tmp_path)).read()
    assert pairs(parts.train) == {("7", "1"), ("8", "2"), ("8", "3")}
    assert [pairs(part) for part in (parts.vali, parts.test)] == [{("7", "2")}, {("7", "3")}]
    (tmp_path / f"vali{suffix}").write_text("user_id\titem_id\n7\t4\n")
    with pytest.raises(DataError, match=rf"has two files for validation, valid{suffix} and vali{suffix}; remove one"):
        InteractionsSource(path=str(tmp_path)).check()
    (tmp_path / f"test{suffix}").unlink()
    with pytest.raises(
        DataError, match=r"has no train\.txt and test\.txt \(or both \.csv, \.tsv, \.inter, \.parquet\)"
    ):
        InteractionsSource(path=str(tmp_path)).check()


@pytest.mark.parametrize("option", [{"core": 2}, {"split": "time"}, {"split": "leave-one-out"}, {"test_share": 0.3}])
def test_a_folder_is_not_split(tmp_path, option):
    write(tmp_path, train={"u": ["a", "b", "c"]}, test={"u": ["d"]})
    with pytest.raises(ValueError, match=rf"data\.{next(iter(option))} is for one file, not for a folder, got"):
        InteractionsSource(path=str(tmp_path), **option).check()
    InteractionsSource(path=str(tmp_path), core=1, split="ratio", test_share=0.2).check()


def test_a_test_file_equal_to_training_is_an_error(tmp_path):
    write(tmp_path, train={"u": ["a", "b", "c"]}, test={"u": ["c", "a", "b"]})
    with pytest.raises(DataError, match=r"test\.txt: all 3 interactions are in train\.txt too, and would be left out"):
        InteractionsSource(path=str(tmp_path)).read()


@pytest.mark.parametrize("name", ["x.csv", "x.txt"])
def test_a_split_by_time_of_a_file_without_times_names_it(tmp_path, name):
    (tmp_path / name).write_text("user,item\na,x\na,y\n" if name == "x.csv" else "a x y\n")
    with pytest.raises(DataError, match=rf"{name}: the split 'time' requires times"):
        InteractionsSource(path=str(tmp_path / name), split="time").read()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_times_of_tables_are_in_a_column_and_finite(tmp_path, suffix):
    path, table = tmp_path / f"x.{suffix}", pd.DataFrame({"user": [1, 1], "item": [2, 3]})
    save = {"csv": lambda table: table.to_csv(path, index=False), "parquet": lambda table: table.to_parquet(path)}[
        suffix
    ]
    save(table)
    with pytest.raises(DataError, match=rf"x\.{suffix}: times is set, but there is no column of times"):
        read_interactions(path, times=True)
    for time, got in ((np.inf, "inf"), (-np.inf, "-inf"), (np.nan, "none")):
        save(table.assign(time=[1.0, time]))
        with pytest.raises(DataError, match=rf"x\.{suffix}, row 2: expected a time, got {got}$"):
            read_interactions(path)


@pytest.mark.parametrize("text", ["a,b\nc,d\n", "a|b|c\n", "a\nb\n"])
def test_lines_of_one_field_are_an_error(tmp_path, text):
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(
        DataError, match=r"x\.txt has no interactions: every line has one field, such as '\w.*name the file \.csv"
    ):
        read_interactions(tmp_path / "x.txt")


@pytest.mark.parametrize("share", ["0.5", None, True, False, 0, 1.0, -1, float("nan"), [0.5]])
@pytest.mark.parametrize("split", [hold_out, split_by_time])
def test_a_share_is_a_number(split, share):
    with pytest.raises(ValueError, match=r"share must be (a finite number above 0 and below 1|an integer from 1), got"):
        split(TABLE, share)


@pytest.mark.parametrize("number", [2.0, True, 0, "2"])
@pytest.mark.parametrize("name", ["k", "user_k"])
def test_a_core_is_an_integer(name, number):
    with pytest.raises(ValueError, match=f"^{name} must be an integer from 1, got {number!r}"):
        k_core(TABLE, **{"k": 1, name: number})
