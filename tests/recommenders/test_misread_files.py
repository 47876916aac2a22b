"""Files that split into fields, but are not what a permissive format takes them for; times are kept exactly."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from rankstruct.data import DataError
from rankstruct.recommenders import (
    InteractionsSource,
    Ratings,
    hold_out,
    interactions,
    read_interactions,
    split_by_time,
)

rng = np.random.default_rng(0)
USERS = [f"u{user}" for user in range(20) for _ in range(6)]
ITEMS = [int(item) for item in rng.integers(1000, size=120)]


def lines(*columns):
    return "".join(" ".join(map(str, row)) + "\n" for row in zip(*columns, strict=True))


#: The last field of lines `user item x` that is not an item.
VALUES = {
    "stars": rng.integers(1, 6, 120),
    "half stars": rng.integers(1, 11, 120) / 2,
    "0 to 100": rng.integers(0, 101, 120),
    "one half": [0.5] * 120,
    "ones": [1] * 120,
    "minus one": rng.choice([-1, 1], 120),
    "fractions": rng.normal(size=120).round(3),
    "one fraction": [*range(10_000, 10_119), 0.5],
    "counts": rng.choice([1, 2, 3, 5, 250, 3000, 70_000], 120),
    "floats": rng.choice(["1.0", "4.0", "5.0"], 120),
    "dates": rng.choice(["2024-01-31", "2023-05-06"], 120),
    "moments": rng.choice(["2024-01-31T10:00:00", "2023-05-06T10:00:00Z"], 120),
}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("number", [3, 120])
def test_a_rating_is_not_an_item(tmp_path, values, number):
    if number == 3 and values in ("counts", "one fraction"):
        pytest.skip("three of these could be items")
    path = tmp_path / "x.txt"
    path.write_text(lines(USERS[:number], ITEMS[:number], VALUES[values][:number]))
    said = r"x\.txt: expected lines user item item ..., but .* (like a rating|like a time|like a date), such as .*; .*"
    with pytest.raises(DataError, match=said + "or set times=False if they are items") as found:
        read_interactions(path)
    assert "\n" not in str(found.value)
    with pytest.raises(DataError, match="like a"):
        InteractionsSource(path=str(path)).read()
    assert read_interactions(path, times=False).num_ratings > number  # as told


def test_ratings_with_dates_are_not_items(tmp_path):
    path = tmp_path / "x.txt"
    for more in (["2024-01-31"] * 120, ["2024-01-31"] * 120, ["978300760"] * 120):
        path.write_text(lines(USERS, ITEMS, VALUES["stars"], more))
        with pytest.raises(DataError, match=r"x\.txt: expected .*, .*ratings"):
            read_interactions(path)
    path.write_text(lines(USERS, ITEMS, ["2024-01-31"] * 120, ["10:00:00"] * 120))
    with pytest.raises(DataError, match="like a date"):
        read_interactions(path)


@pytest.mark.parametrize(
    "text",
    [
        lines(USERS, ITEMS, ITEMS[::-1]),  # two items each
        lines(USERS, ITEMS),
        lines(USERS, ITEMS, [f"i{value}" for value in VALUES["stars"]]),
        lines(USERS, ITEMS, VALUES["stars"]) + "u0 7\n",  # another number of fields
        lines(USERS, ITEMS, VALUES["stars"], VALUES["stars"]),
        "a x y\nb x y\n",
        "a 1001 1002\nb 1003 1002\n",
    ],
)
def test_lists_of_items_are_read(tmp_path, text):
    (tmp_path / "x.txt").write_text(text)
    found = read_interactions(tmp_path / "x.txt")
    fields = [line.split() for line in text.splitlines()]
    assert found.num_ratings == len({(user, item) for user, *which in fields for item in which})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps({"user": "a", "item": 1}) + "\n", r"line 1: expected user item item ..., got what looks like JSON"),
        ("a x y\n" + json.dumps({"user": "a", "item": 1}) + "\n", "line 2: expected .* looks like JSON"),
        ('{"user":1, "item":2}\n', "looks like JSON"),
        ("[1, 2, 3]\n", "looks like JSON"),
        ("  [\n  {\n", "looks like JSON"),
        ("1, 2, 3\n4, 5\n", "every field but the last ends with ','; name the file .csv"),
        ("1, 2\n1, 3\n", "every field but the last ends with ','; name the file .csv"),
        ("a; b\nc; d\n", "every field but the last ends with ';'"),
        ("a | x\nb | y\n", r"every second field is '\|'"),
        ("a , x\nb , y\n", "every second field is ','"),
        ('ann "New York" x\n', r"line 1: .*'\"New' begins with a quotation mark that is not closed"),
        ("u1 7:5 9:3\nu2 7:1\n", "every item has the form item:number, such as '7:5'"),
        ("u1 7:0.5\nu2 9:1\n", "every item has the form item:number"),
    ],
)
def test_lines_of_other_formats_are_errors(tmp_path, text, message):
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(DataError, match=rf"x\.txt.*{message}") as found:
        read_interactions(tmp_path / "x.txt")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "text",
    ["{3F2504E0-4F89} x\n", "[deleted] x y\n", "a, x\nb y\n", "a x:1 y\n", "a urn:1 urn:2\na urn:3\nb urn:1000\n"],
)
def test_names_with_marks_are_names(tmp_path, text):
    (tmp_path / "x.txt").write_text(text)
    found = read_interactions(tmp_path / "x.txt", times=False)
    assert set(found.user_names) | set(found.item_names) == set(text.split())


# What counts


def rated(half=True):
    return pd.DataFrame(
        {"user": USERS[:6], "item": ITEMS[:6], "rating": [0.5 if half else 1, 5, 3, 4, 4.5 if half else 4, 2]}
    )


def of_csv(tmp_path, table, **options):
    table.to_csv(tmp_path / "ratings.csv", index=False)
    return read_interactions(tmp_path / "ratings.csv", **options)


def of_inter(tmp_path, table, **options):
    typed = table.rename(columns={"user": "user_id:token", "item": "item_id:token", "rating": "rating:float"})
    typed.to_csv(tmp_path / "x.inter", sep="\t", index=False)
    return read_interactions(tmp_path / "x.inter", **options)


def of_parquet(tmp_path, table, **options):
    table.to_parquet(tmp_path / "x.parquet")
    return read_interactions(tmp_path / "x.parquet", **options)


def of_source(tmp_path, table, **options):
    table.to_csv(tmp_path / "ratings.csv", index=False)
    parts = InteractionsSource(path=str(tmp_path / "ratings.csv"), test_share=0.4, validation=0.4, **options).read()
    return parts.train


def of_frame(tmp_path, table, **options):
    return interactions(table, **options)


@pytest.mark.parametrize("of", [of_csv, of_inter, of_parquet, of_source, of_frame])
def test_what_counts_as_an_interaction_is_said(tmp_path, of):
    said = r"'rating', from 0.5 to 5: all 6 rows count as interactions, whatever their rating; .*min_rating="
    with pytest.warns(UserWarning, match=said):
        of(tmp_path, rated())
    with pytest.warns(UserWarning, match=r"'rating', from 1 to 5"):
        of(tmp_path, rated(half=False))
    of(tmp_path, rated().assign(rating=1))  # says nothing
    of(tmp_path, rated().assign(rating=1).drop(columns="rating"))
    if of is not of_source:
        with pytest.warns(
            UserWarning, match=r"3 of the 6 rows of .* have a rating of at least 4 and count as interactions"
        ):
            assert of(tmp_path, rated(), min_rating=4).num_ratings == 3
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert of(tmp_path, rated(), min_rating=0.5).num_ratings == 6
        with pytest.raises(DataError, match=r"none of the 6 rows of .* has a rating of at least 6"):
            of(tmp_path, rated(), min_rating=6)
        with pytest.raises(DataError, match="min_rating is set, but there is no column of ratings"):
            of(tmp_path, rated().drop(columns="rating"), min_rating=4)
        with pytest.raises(ValueError, match="min_rating must be a finite number, or None, got 'a'"):
            of(tmp_path, rated(), min_rating="a")


# Times

NANOSECONDS = [1_700_000_000_000_000_000 + n for n in (3, 1, 2, 0)]
DATES = np.array(NANOSECONDS, "M8[ns]")


def made(times):
    return interactions(["a"] * 4, [0, 1, 2, 3], times=times)


def of_file(suffix):
    def make(times):
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory() as folder:
            table = pd.DataFrame({"user": ["a"] * 4, "item": range(4), "time": times})
            path = Path(folder) / f"x.{suffix}"
            table.to_parquet(path) if suffix == "parquet" else table.to_csv(
                path, index=False, header=suffix == "csv", sep="," if suffix == "csv" else " "
            )
            return read_interactions(path, times=True)

    return make


MAKERS = {
    "arrays": made,
    "frame": lambda times: interactions(pd.DataFrame({"user": ["a"] * 4, "item": range(4), "time": times})),
    "ratings": lambda times: Ratings.from_arrays(["a"] * 4, range(4), [1] * 4, scale="binary", time=times),
    **{suffix: of_file(suffix) for suffix in ("csv", "parquet", "txt")},
}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", ["integers", "dates", "text", "stamps", "zone"])
def test_times_that_differ_by_a_nanosecond_differ(make, kind):
    times = {
        "integers": NANOSECONDS,
        "dates": pd.Series(DATES),
        "text": [str(each) for each in DATES],
        "stamps": pd.Series([pd.Timestamp(each) for each in DATES], dtype=object),
        "zone": pd.Series(DATES).dt.tz_localize("UTC"),
    }[kind]
    if make == "txt" and kind != "integers":
        pytest.skip("lines have numbers")
    if (make, kind) == ("parquet", "stamps"):
        pytest.skip("pandas and pyarrow write such objects in microseconds")
    found = MAKERS[make](times)
    assert [int(item) for item in found.item_names[found.item][np.argsort(found.time)]] == [3, 1, 2, 0]
    assert hold_out(found, 1, latest=True)[1].item.tolist() == [0]
    assert hold_out(found, 2, latest=True)[1].item.tolist() == [0, 2]
    assert split_by_time(found, 0.25)[1].item.tolist() == [0]
    assert split_by_time(found, 0.5)[1].item.tolist() == [0, 2]


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_are_kept_exactly(sign):
    times = [sign * (2**62 + n) for n in (3, 1, 2, 0)]
    assert made(times).time.tolist() == made(np.array(times)).time.tolist() == times
    latest = made([2**63 - 1, -(2**63), 0, 5])
    assert hold_out(latest, 1, latest=True)[1].item.tolist() == [0]
    assert hold_out(latest, 3, latest=True)[0].item.tolist() == [1]


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"])
def test_dates_are_seconds_in_any_unit(unit):
    dates = np.array(["1970-01-01", "2024-01-01", "1960-01-01", "2262-01-01"], f"M8[{unit}]")
    found = made(dates).time
    assert found.tolist() == dates.astype("M8[s]").astype(np.int64).tolist()


def test_years_that_seconds_cannot_hold_are_an_error():
    with pytest.raises(
        DataError, match="times must be dates whose seconds from 1970 are 64-bit integers, got 300000001970"
    ):
        made(np.array([0, 1, 2, 300_000_000_000], "M8[Y]"))
    assert made(np.array([0, 1, 2, 300_000], "M8[Y]")).time.argmax() == 3  # 300,000 years wrap in microseconds
