"""One form of each user and item in every reader, and every join by name says what it did not match."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from rankstruct.data import DataError
from rankstruct.recommenders import (
    InteractionsSource,
    Ratings,
    RatingsSource,
    Recommender,
    evaluate_catalogue,
    interactions,
    popularity,
    read_interactions,
    read_ratings,
)

PLAIN = {"user": ["1", "2", "1", "10"], "item": ["7", "7", "30", "8"]}
WAYS = {
    "plain": str,
    "float": lambda name: f"{name}.0",
    "blanks": lambda name: f" {name}\t" if name == "1" else f"{name} ",
    "quotes": lambda name: f'"{name}"',
    "blanks in front": lambda name: f" {name}",
}


def names_of(ratings):
    return set(zip(ratings.user_names[ratings.user], ratings.item_names[ratings.item], strict=True))


def joined(rows, separator):
    return "".join(separator.join(row) + "\n" for row in rows)


def lines(columns, *more):
    return list(zip(columns["user"], columns["item"], *(each * len(columns["user"]) for each in more), strict=True))


def file_of(read, name, separator, *more, header=()):
    def write(tmp_path, columns):
        path = tmp_path / name
        path.write_text(joined(([*header], *lines(columns, *more))[not header :], separator))
        return read(path)

    return write


def parquet(tmp_path, columns):
    pd.DataFrame(columns).to_parquet(tmp_path / "x.parquet")
    return read_interactions(tmp_path / "x.parquet")


def rated(**options):
    return lambda path: read_ratings(path, scale="stars", **options)


#: By name: a reader of columns of ids as they are written, and the ways that it cannot have, since they separate fields.
READERS = {
    "csv": (file_of(read_interactions, "x.csv", ",", header=("user", "item")), ()),
    "semicolons": (file_of(read_interactions, "x.csv", ";", header=("user", "item")), ()),
    "bars": (file_of(read_interactions, "x.csv", "|", header=("user", "item")), ()),
    "tsv": (file_of(read_interactions, "x.tsv", "\t", header=("user", "item")), ("blanks",)),
    "inter": (file_of(read_interactions, "x.inter", "\t", header=("user:token", "item:token")), ("blanks", "quotes")),
    "lines": (file_of(read_interactions, "x.txt", " "), ()),
    "tabs": (file_of(read_interactions, "x.txt", "\t"), ()),
    "ratings, csv": (file_of(rated(), "r.csv", ",", ["5"], header=("user", "item", "rating")), ()),
    "ratings, no header": (file_of(rated(), "r.csv", ",", ["5"]), ()),
    "ratings, text": (file_of(rated(format="text"), "r.txt", " ", ["5"]), ()),
    "ratings, u.data": (file_of(rated(), "u.data", "\t", ["5"], ["9"]), ("blanks",)),
    "ratings, dat": (file_of(rated(), "ratings.dat", "::", ["5"], ["9"]), ()),
    "parquet": (parquet, ("quotes",)),
    "frame": (lambda _, columns: interactions(pd.DataFrame(columns)), ("quotes",)),
    "lists": (lambda _, columns: interactions(columns["user"], columns["item"]), ("quotes",)),
    "ratings, lists": (
        lambda _, columns: Ratings.from_arrays(columns["user"], columns["item"], [1] * 4, scale="binary"),
        ("quotes",),
    ),
}
EXPECTED = {("1", "7"), ("2", "7"), ("1", "30"), ("10", "8")}


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:.*blanks around")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reader", READERS)
def test_an_id_has_one_name_however_it_is_written(tmp_path, reader, way):
    read, others = READERS[reader]
    if way in others:
        pytest.skip("the format has no such fields")
    written = {role: [WAYS[way](name) for name in column] for role, column in PLAIN.items()}
    found = read(tmp_path, written)
    assert names_of(found) == EXPECTED
    assert (found.user_names.tolist(), found.item_names.tolist()) == (["1", "2", "10"], ["7", "8", "30"])


TYPES = {
    "int": np.int64,
    "uint8": np.uint8,
    "float": np.float64,
    "str": str,
    "bytes": bytes,
    "object": object,
    "Int64": "Int64",
    "string": "string",
    "category": "category",
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("of", [interactions, Recommender().fit])
def test_an_id_has_one_name_in_any_type(kind, of):
    table = pd.DataFrame({role: list(map(int, column)) for role, column in PLAIN.items()})
    table = table.map(lambda each: str(each).encode()) if kind == "bytes" else table.astype(TYPES[kind])
    found = of(table)
    assert names_of(getattr(found, "known_", found)) == EXPECTED


@pytest.mark.parametrize("written", [1, 1.0, "1", " 1", "1.0", np.int8(1), np.float32(1), b"1", np.str_("1")])
@pytest.mark.parametrize("fitted", [int, float, str, lambda name: f"{name}.0"])
def test_a_user_is_found_however_it_is_written(fitted, written):
    table = pd.DataFrame({role: list(map(fitted, column)) for role, column in PLAIN.items()})
    model = Recommender(rank=2, max_epochs=1, validation_share=0).fit(table)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*blanks around")
        items = [str(item) for item in model.recommend(written, 2)[0] if item is not None]
    assert items == ["8"]


def test_names_with_points_are_not_numbers():
    table = {"user": ["1.0", "1.1", "1"], "item": ["2.0", "2.1", "2"]}
    found = interactions(pd.DataFrame(table))
    assert found.user_names.tolist() == ["1", "1.0", "1.1"]
    model = Recommender(rank=2, max_epochs=1, validation_share=0).fit(pd.DataFrame(table))
    assert set(model.recommend("1.0", 3)[0]) == {"2.1", "2", None}
    assert set(model.recommend("1", 3)[0]) == {"2.1", "2.0", None}


def test_blanks_around_names_in_memory_are_named():
    with pytest.warns(UserWarning, match="users has names with blanks around them, such as ' ann', which are removed"):
        assert interactions([" ann", "bob"], ["x", "y"]).user_names.tolist() == ["ann", "bob"]


@pytest.mark.parametrize(
    "make",
    [
        lambda ids: interactions(ids, ["x", "y"]),
        lambda ids: interactions(["x", "y"], ids),
        lambda ids: interactions(pd.DataFrame({"user": ids, "item": ["x", "y"]})),
        lambda ids: Ratings.from_arrays(ids, ["x", "y"], [1, 1], scale="binary"),
        lambda ids: interactions(sp.csr_array(np.ones((2, 1))), user_names=ids),
        lambda ids: Recommender().fit(["x", "y"], ids),
    ],
)
@pytest.mark.parametrize("empty", ["", " ", b"", "\t"])
def test_an_empty_id_is_an_error(make, empty):
    with pytest.raises(DataError, match=r"must not be empty; that of \w+ 1 is|row 2: expected an id .*, got none"):
        make([type(empty)() + (b"a" if isinstance(empty, bytes) else "a"), empty])


DATES = ["2024-01-02", "2024-03-04"]
MOMENTS = ["2024-01-02 10:00:00", "2024-03-04 11:30:00.5"]


@pytest.mark.parametrize("texts", [DATES, MOMENTS])
def test_dates_are_ids_in_one_form(tmp_path, texts):
    stamps = pd.to_datetime(texts, format="ISO8601")
    frames = [pd.Series(stamps), pd.Series(stamps.astype("datetime64[us]")), pd.Series(list(stamps), dtype=object)]
    frames += [pd.Series([each.to_pydatetime() for each in stamps], dtype=object)]
    if texts is DATES:
        frames.append(pd.Series([each.date() for each in stamps], dtype=object))
    for items in frames:
        table = pd.DataFrame({"user": ["a", "b"], "item": items})
        assert interactions(table).item_names.tolist() == texts
        table.to_parquet(tmp_path / "x.parquet")
        assert read_interactions(tmp_path / "x.parquet").item_names.tolist() == texts
        model = Recommender(rank=2, max_epochs=1).fit(table.rename(columns={"user": "item", "item": "user"}))
        for user in (stamps[0], stamps[0].to_pydatetime(), np.datetime64(texts[0]), texts[0]):
            assert model.recommend(user, 2)[0].tolist() == ["b", None]
    assert model.recommend(datetime.datetime.fromisoformat(texts[0]), 1)[0].tolist() == ["b"]


# Joins


def table(users, items):
    return pd.DataFrame({"user": users, "item": items})


def fitted(**options):
    rng = np.random.default_rng(0)
    data = table([f"u{u}" for u in rng.integers(8, size=60)], [f"i{i}" for i in rng.integers(9, size=60)])
    return Recommender(rank=2, max_epochs=1, **options).fit(data), data


def ids_of(kind, case):
    """Three names of which none, one or all are unknown."""
    known = [f"{kind}1", f"{kind}2", f"{kind}3"]
    return {"all known": known, "one unknown": [*known[:2], f"{kind}x"], "none known": [f" {n}." for n in "abc"]}[case]


def folder_of(tmp_path, part, role, case):
    parts = {
        "train": [(f"u{n}", f"i{(n + m) % 6}") for n in range(6) for m in range(3)],
        "valid": [("u1", "i0"), ("u2", "i1"), ("u3", "i2")],
        "test": [("u1", "i5"), ("u2", "i0"), ("u3", "i1")],
    }
    new = {"one unknown": f"{role}x", "none known": "d"}.get(case)
    rows = [list(row) for row in parts[part]]
    for row, name in zip(rows, ids_of(role, case), strict=True):
        row[role == "i"] = row[role == "i"] if name.startswith(role) and name != new else name.strip()
    for name, its in (parts | {part: rows}).items():
        (tmp_path / f"{name}.csv").write_text("user,item\n" + joined(its, ","))
    return tmp_path


def of_folder(part, role):
    def join(tmp_path, case):
        InteractionsSource(path=str(folder_of(tmp_path, part, role, case)), validation=0.3).read()

    return join


def of_fold(role):
    def join(tmp_path, case):
        rows = [(f"u{u}", f"i{i}") for u in range(1, 4) for i in range(1, 8)]
        (tmp_path / "u1.base").write_text("".join(f"{u}\t{i}\t{1 + len(i + u) % 5}\t0\n" for u, i in rows))
        known = {"u": ["u1", "u2", "u3"], "i": ["i1", "i2", "i3"], role: ids_of(role, case)}
        pairs = zip(known["u"], known["i"], strict=True)
        (tmp_path / "u1.test").write_text("".join(f"{u.strip()}\t{i.strip()}\t5\t0\n" for u, i in pairs))
        RatingsSource(path=str(tmp_path), split="fold", fold=1).read()

    return join


def of_model(use, **options):
    def join(tmp_path, case):
        model, data = fitted(**options)
        users = [f"u{n}" for n in (1, 2, 3)]
        use(model, case, users, data)

    return join


def evaluated(role):
    def use(model, case, users, data):
        held = {"u": users, "i": ["i1", "i2", "i3"], role: ids_of(role, case)}
        model.evaluate(table(held["u"], held["i"]))

    return use


def validated(role):
    def use(model, case, users, data):
        held = {"u": [*users, "u4"], "i": ["i1", "i2", "i3", "i4"]}
        held[role] = [*ids_of(role, case), f"{role}4" if case != "none known" else "d"]
        seen = data[~data["item"].isin(["i1", "i2", "i3", "i4"]) | ~data["user"].isin(["u1", "u2", "u3", "u4"])]
        model.fit(
            pd.concat([seen, table(["u7"] * 4, ["i1", "i2", "i3", "i4"])]), validation=table(held["u"], held["i"])
        )

    return use


JOINS = {
    **{f"{part} {role}": of_folder(part, role) for part in ("valid", "test") for role in "ui"},
    "fold, users": of_fold("u"),
    "fold, items": of_fold("i"),
    "evaluate, users": of_model(evaluated("u")),
    "evaluate, items": of_model(evaluated("i")),
    "validation, users": of_model(validated("u")),
    "validation, items": of_model(validated("i")),
    "recommend_new": of_model(lambda model, case, *_: model.recommend_new(table(["new"] * 3, ids_of("i", case)))),
    "recommend_new, lists": of_model(lambda model, case, *_: model.recommend_new([ids_of("i", case), ["i2"][:0]])),
    "recommend, popular": of_model(lambda model, case, *_: model.recommend(ids_of("u", case), unknown="popular")),
    "recommend, items": of_model(lambda model, case, users, _: model.recommend(users, items=ids_of("i", case))),
    "recommend, exclude": of_model(lambda model, case, users, _: model.recommend(users, exclude=ids_of("i", case))),
    "evaluate, drop": of_model(
        lambda model, case, users, _: model.evaluate(table(users, ids_of("i", case)), unknown_items="drop")
    ),
}


@pytest.mark.filterwarnings("ignore:.*blanks around", "ignore:.* interactions of X are in fit too")
@pytest.mark.parametrize("join", JOINS)
def test_a_join_says_what_it_did_not_match(tmp_path, join):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    JOINS[join](tmp_path / "a", "all known")
    with pytest.warns(UserWarning, match=r"1 of the [34] .*\(\d\d\.\d%\) are not in .*, such as '[ui]x'"):
        JOINS[join](tmp_path / "b", "one unknown")
    with pytest.raises(DataError, match=r"none of the [34] .* is in .*, such as '[abc]\.': are they written alike\?"):
        JOINS[join](tmp_path / "c", "none known")


def test_unknown_items_are_misses_or_dropped():
    model = Recommender(rank=2, max_epochs=1, validation_share=0).fit(table(["a", "a", "b", "b"], ["x", "y", "x", "z"]))
    held = table(["a", "a", "b"], ["z", "new", "y"])
    with pytest.warns(UserWarning, match=r"1 of the 3 items .* \(33.3%\) are not in the items of fit.*count as misses"):
        assert model.evaluate(held, "R@1") == {"R@1": 0.75}
    with pytest.warns(UserWarning, match="1 of the 3 items.*left out"):
        assert model.evaluate(held, "R@1", unknown_items="drop") == {"R@1": 1.0}
    with pytest.warns(UserWarning, match=r"1 of the 2 users .* are not in the users of fit.*left out"):
        assert model.evaluate(table(["a", "c"], ["z", "y"]), "R@1") == {"R@1": 1.0}
    with pytest.raises(ValueError, match="unknown_items must be one of 'miss', 'drop', got 'skip'"):
        model.evaluate(held, unknown_items="skip")
    with pytest.warns(UserWarning, match="1 of the 2 users"), pytest.raises(DataError, match="none of the 1 items"):
        model.evaluate(table(["a", "c"], ["new", "new"]))


def test_interactions_of_other_names_do_not_share_indices():
    one, other = interactions(["a", "b"], ["x", "y"]), interactions(["a", "c"], ["x", "z"])
    with pytest.raises(DataError, match="test and exclude must have the same users and items"):
        evaluate_catalogue(popularity(one), other, exclude=one)
    assert len(evaluate_catalogue(popularity(one), one, exclude=sp.csr_array((2, 2)))["R@10"]) == 2
