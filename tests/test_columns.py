"""Tables with categories and missing cells: the same codes from every source, one-hot, estimators, files, bad input."""

import json
import math
import pickle
import subprocess
import sys
import warnings
from dataclasses import replace
from datetime import date
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV, GroupKFold
from torch.export import Dim

import rankstruct as rs
from rankstruct import columns as module
from rankstruct.cli import main
from rankstruct.clicks import ClickLog
from rankstruct.columns import Columns, EncodedTable
from rankstruct.data import DataError, RankingData, concatenate, convert_lists, read_lists, read_scores
from rankstruct.data.folds import read_alike
from rankstruct.models.saving import describe_scorer
from rankstruct.recommenders import interactions
from rankstruct.training import RankingDataModule

pd = pytest.importorskip("pandas")
GRADED = "GradedLoss('AUC')"
SMALL = {
    "linear": lambda: rs.LinearRanker(loss=GRADED, prepare=["standardize"]),
    "kernel": lambda: rs.KernelRanker(loss=GRADED, C=10.0, prepare=["standardize"]),
    "mlp": lambda: rs.MLPRanker(max_epochs=2, hidden=(4,), device="cpu"),
    "lightgbm": lambda: rs.BoostedRanker(n_estimators=5, min_child_samples=2, n_jobs=1),
    "xgboost": lambda: rs.BoostedRanker(library="xgboost", n_estimators=5, min_child_samples=2, n_jobs=1),
    "boosted, encoded": lambda: rs.BoostedRanker(n_estimators=5, min_child_samples=2, n_jobs=1, prepare=["encode"]),
    "ensemble": lambda: rs.EnsembleRanker([SMALL["linear"](), SMALL["mlp"]()]),
    "parts": lambda: rs.EnsembleRanker([SMALL["linear"](), SMALL["lightgbm"]()], folds=2),
    "auto": lambda: rs.AutoRanker(time_budget=0, device="cpu"),
}


def marked(names):
    """Parameters, those that need a library outside the test extra marked."""
    return [
        pytest.param(name, marks=pytest.mark.needs(library))
        if (library := name.partition(" ")[0]) in ("polars", "xgboost")
        else name
        for name in names
    ]


def draw(lists=30, size=8, seed=0):
    """A frame with three categorical columns, 5 % missing cells and scales from 1e-6 to 1e6; labels and lists."""
    rng = np.random.default_rng(seed)
    number = lists * size
    x, brand = rng.normal(size=(number, 3)), rng.integers(0, 5, number)
    frame = pd.DataFrame({"small": 1e-6 * x[:, 0], "large": 1e6 * x[:, 1], "x": x[:, 2]})
    frame["brand"] = np.array(["acme", "bee", "cat", "dog", "Éclair"], object)[brand]
    frame["size"] = np.array(["L", "M", "S"], object)[rng.integers(0, 3, number)]
    frame["shop"] = np.array(["1", "2"], object)[rng.integers(0, 2, number)]
    y = np.digitize(x[:, 0] + (brand == 2) + 0.3 * rng.normal(size=number), [0.5, 1.5])
    return frame.mask(rng.random(frame.shape) < 0.05), y, np.repeat(np.arange(lists), size)


def without_text(frame):
    """The codes of a frame by hand: the rank of each category in sorted order, NaN if missing."""
    columns = []
    for name in frame:
        values = frame[name].tolist()
        if name in ("brand", "size", "shop"):
            known = sorted({each for each in values if isinstance(each, str)})
            values = [known.index(each) if isinstance(each, str) else math.nan for each in values]
        columns.append(values)
    return np.array(columns, float).T


def sources():
    """A name, and a function of the frame."""
    found = {
        "objects": lambda frame: frame,
        "categories": lambda frame: frame.astype({"brand": "category", "size": "category"}),
        "strings": lambda frame: frame.astype({"brand": "string", "x": "Float64"}),
        "array": lambda frame: frame.astype(object).to_numpy(),
        "lists": lambda frame: frame.astype(object).to_numpy().tolist(),
        "mapping": lambda frame: frame.to_dict("list"),
    }

    def arrow(frame):
        return pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)

    def polars(frame):
        return pytest.importorskip("polars").DataFrame(frame.astype(object).where(frame.notna(), None).to_dict("list"))

    def with_dictionary(frame):
        table = arrow(frame)
        at = table.column_names.index("brand")
        return table.set_column(at, "brand", table.column(at).dictionary_encode())

    def with_categories(frame):
        pl = pytest.importorskip("polars")
        return polars(frame).with_columns(
            pl.col("brand").cast(pl.Categorical), pl.col("shop").cast(pl.Enum(["2", "1"]))
        )

    return found | {
        "arrow": arrow,
        "dictionary": with_dictionary,
        "polars": polars,
        "polars categories": with_categories,
    }


@pytest.fixture(autouse=True)
def said_anew():
    module.say_once.cache_clear()


@pytest.mark.parametrize("source", marked(sources()))
def test_every_source_has_the_same_codes(source):
    frame, *_ = draw()
    table = sources()[source](frame)
    found = Columns.find(table)
    assert list(found.categories.values()) == list(Columns.find(frame).categories.values())
    assert found.categorical == [3, 4, 5]
    for columns in (found, Columns.find(frame)):
        np.testing.assert_array_equal(columns.encode(table), without_text(frame))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", marked(name for name in sources() if name != "mapping"))
def test_rankers_take_every_source(source):
    frame, y, qid = draw()
    table, linear = sources()[source](frame), SMALL["linear"]
    ranker = linear().fit(table, y, qid, X_valid=table, y_valid=y, qid_valid=qid)
    np.testing.assert_array_equal(ranker.predict(table), linear().fit(frame, y, qid).predict(frame))
    assert hasattr(ranker, "feature_names_in_") == (source not in ("array", "lists"))


def test_searches_take_tables():
    frame, y, qid = draw()
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(SMALL["linear"](), {"C": [0.1, 10.0]}, cv=GroupKFold(3)).fit(
            frame, y, qid=qid, groups=qid
        )
    assert search.best_score_ > 0.4
    assert search.best_estimator_.preparation_.columns.names == list(frame)


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "feather", "rankdata"])
@pytest.mark.parametrize("kind", ["object", "category"])
def test_files_have_the_codes_of_frames(tmp_path, suffix, kind, caplog):
    frame, y, qid = draw()
    path = write(tmp_path / f"a.{suffix}", frame.astype({"brand": kind}).assign(shop="shop " + frame["shop"]), y, qid)
    data = read_lists(path, cache=tmp_path / "cache")
    np.testing.assert_array_equal(data.features, without_text(frame).astype(np.float32))
    categories = {
        "brand": ("acme", "bee", "cat", "dog", "Éclair"),
        "size": ("L", "M", "S"),
        "shop": ("shop 1", "shop 2"),
    }
    assert data.columns.categories == {"small": None, "large": None, "x": None} | categories
    assert data.missing.sum() == frame.isna().to_numpy().sum()
    told = [each.message for each in caplog.records if "categorical columns" in each.message]
    assert told[0].endswith("'brand' (5, such as 'acme'), 'size' (3, such as 'L'), 'shop' (2, such as 'shop 1')")
    assert isinstance(data.table, EncodedTable)
    again = read_lists(path, cache=tmp_path / "cache")  # mapped
    assert again.columns.categories == data.columns.categories
    np.testing.assert_array_equal(again.features, data.features)


def write(path, frame, y, qid, names=("label", "qid")):
    table = pd.DataFrame({names[0]: y, names[1]: qid}).join(frame)
    if ".csv" in path.suffixes:
        table.to_csv(path, index=False)
    elif path.suffix == ".rankdata":
        return convert_lists(write(path.with_suffix(".parquet"), frame, y, qid, names)).path
    else:
        getattr(table, f"to_{path.suffix[1:]}")(path)
    return path


words = st.one_of(st.none(), st.just(""), st.text(max_size=3), st.just(math.nan))
cells = st.one_of(words, st.integers(-3, 3), st.booleans())
categories = st.lists(words, min_size=1, max_size=12).filter(lambda each: any(isinstance(e, str) and e for e in each))


@given(st.lists(categories, min_size=1, max_size=3), st.data())
@settings(max_examples=60, deadline=None)
def test_categories_survive_the_round_trip_to_codes_and_indicators(given_columns, data):
    length = max(map(len, given_columns))
    table = {f"c{at}": [*each, *[None] * (length - len(each))] for at, each in enumerate(given_columns)}
    columns = Columns.find({name: np.array(each, object) for name, each in table.items()})
    codes = columns.encode(table)
    preparation = rs.Preparation.fit(["encode"], codes, after=rs.Preparation(columns=columns))
    other = {name: [data.draw(cells) for _ in range(3)] for name in table}
    for rows, prepared in (
        (table, preparation.transform(codes)),
        (other, preparation.transform(columns.encode(other))),
    ):
        names = {name: [_named(each) for each in values] for name, values in rows.items()}
        wanted = [
            *([each == known for each in names[name]] for name in table for known in columns.categories[name]),
            *([each is None for each in names[name]] for name in table if None in map(_named, table[name])),
        ]
        np.testing.assert_array_equal(prepared, np.array(wanted, float).T)
    for name, known in columns.categories.items():
        assert list(known) == sorted({_named(each) for each in table[name]} - {None})


def _named(value):
    """The name of a cell's category; None if missing."""
    return None if value is None or value != value or value == "" else str(value)


def test_encoding_is_what_it_is_by_hand():
    X = np.array([[1.0, 0, np.nan], [np.nan, 1, 5], [4, np.nan, np.nan], [10, 1, np.nan]])
    columns = Columns({"a": None, "b": ["x", "y", "never"], "c": None})
    preparation = rs.Preparation.fit(["encode", "standardize"], X, after=rs.Preparation(columns=columns))
    assert preparation.names == ("encode", "standardize")
    found = preparation.transform(np.array([[np.nan, -1, 7], [5.0, 1, np.nan]]))
    filled = np.array([[1, 5], [4, 5], [4, 5], [10, 5]])  # medians: of 1, 4, 10 and of 5
    a = (np.array([4, 5]) - filled[:, 0].mean()) / filled[:, 0].std()
    # Numbers, of which the second is constant; indicators of x, y and of missing a, b, c, which are not standardised.
    np.testing.assert_allclose(found, [[a[0], 0, 0, 0, 1, 0, 0], [a[1], 0, 0, 1, 0, 0, 1]])
    np.testing.assert_array_equal(
        preparation(torch.tensor([[np.nan, -1, 7], [5.0, 1, np.nan]])).double(), found.astype(np.float32)
    )


@pytest.mark.parametrize(
    "names", [["log"], ["append-quantile", "standardize"], ["bins:3"], ["query-minmax", "append-log"]]
)
def test_indicators_pass_the_other_steps(names):
    frame, *_ = draw()
    columns, offsets = Columns.find(frame), np.arange(0, 241, 8)
    raw, X = rs.Preparation(columns=columns), columns.encode(frame)
    encoded = rs.Preparation.fit(["encode"], X, after=raw).transform(X)
    rest = rs.Preparation.fit(names, encoded[:, :3], offsets).transform(encoded[:, :3], offsets)
    whole = rs.Preparation.fit(["encode", *names], X, offsets, raw)
    found = whole.transform(X, offsets)
    np.testing.assert_array_equal(dense(found), np.hstack([dense(rest), encoded[:, 3:]]))
    again = rs.Preparation(whole.names, whole.num_features, whole.fitted, whole.columns)
    assert again.equals(whole)
    np.testing.assert_array_equal(dense(again.transform(X, offsets)), dense(found))
    tensor = whole(torch.tensor(X), offsets=torch.tensor(offsets))
    np.testing.assert_allclose(tensor, dense(found), atol=1e-6)


def dense(X):
    return X.toarray() if sp.issparse(X) else X


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", marked(SMALL))
def test_every_ranker_trains_on_a_table(name, tmp_path):
    frame, y, qid = draw()
    new, _, of_new = draw(seed=1)
    new.loc[3, "brand"] = "never seen"
    ranker = SMALL[name]().fit(frame, y, qid)
    scores = ranker.predict(new, of_new)
    assert ranker.feature_names_in_.tolist() == list(frame)
    assert ranker.preparation_.columns.categories["size"] == ("L", "M", "S")
    categories = frame.astype({"brand": "category"})
    same = SMALL[name]().fit(categories, y, qid, X_valid=new, y_valid=y, qid_valid=qid)
    assert np.isfinite(same.predict(new, of_new)).all()
    again = pickle.loads(pickle.dumps(ranker))
    np.testing.assert_array_equal(again.predict(new, of_new), scores)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        coded = ranker.predict(ranker.preparation_.columns.encode(new), of_new)
    np.testing.assert_array_equal(coded, scores)
    if name == "xgboost":  # whose categorical splits have no scorer
        return
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer = rs.load_scorer(tmp_path / "scorer.pt")
    features = torch.tensor(scorer.preparation.columns.encode(new), dtype=torch.float32)
    with torch.inference_mode():
        found = scorer(features, offsets=torch.arange(0, 241, 8))
    np.testing.assert_allclose(found, scores, atol=2e-5)


@pytest.mark.needs("onnxscript", "onnxruntime")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "names",
    [["mlp"], pytest.param([name for name in SMALL if name not in ("mlp", "xgboost")], marks=pytest.mark.soak)],
    ids=["mlp", "others"],
)
def test_a_new_process_scores_the_same_from_every_file(names, tmp_path):
    table = whole("pandas")[0]
    table = table.astype(dict.fromkeys(["small", "large", "x"], np.float32))  # as the scorer's features are
    table.to_pickle(tmp_path / "frame.pkl")
    example, sizes = torch.zeros(2, 8, 6), ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
    named = {"input_names": ["features"], "output_names": ["scores"], "dynamo": True, "verbose": False}
    wanted = {}
    for name in names:
        (folder := tmp_path / name).mkdir()
        ranker = SMALL[name]().fit(table)
        wanted[name] = ranker.predict(table)
        rs.save_scorer(ranker.to_scorer(), folder / "scorer.pt")
        scorer = rs.load_scorer(folder / "scorer.pt")
        (folder / "ranker.pkl").write_bytes(pickle.dumps(ranker))
        program = torch.onnx.export(scorer, (example,), dynamic_shapes=sizes, **named)
        program.model.metadata_props["columns"] = json.dumps(scorer.preparation.columns.categories)
        program.save(folder / "scorer.onnx")
    code = """
import json, pickle, sys, numpy as np, onnxruntime, pandas as pd, torch, rankstruct as rs
from rankstruct.columns import Columns
table = pd.read_pickle(f"{sys.argv[1]}/frame.pkl")
found = {}
for name in sys.argv[2:]:
    folder = f"{sys.argv[1]}/{name}"
    scorer = rs.load_scorer(f"{folder}/scorer.pt")
    frame = table[scorer.preparation.columns.names]
    rows = scorer.preparation.columns.encode(frame).astype(np.float32).reshape(30, 8, 6)
    session = onnxruntime.InferenceSession(f"{folder}/scorer.onnx")
    columns = Columns(json.loads(session.get_modelmeta().custom_metadata_map["columns"]))
    np.testing.assert_array_equal(columns.encode(frame).astype(np.float32).reshape(rows.shape), rows)
    with torch.inference_mode():
        scores = [scorer(torch.tensor(rows)).flatten().tolist()]
    scores.append(session.run(None, {"features": rows})[0].flatten().tolist())
    found[name] = [*scores, pickle.load(open(f"{folder}/ranker.pkl", "rb")).predict(table).tolist()]
print(json.dumps(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *names], capture_output=True, text=True, check=True
    )
    for name, scores in json.loads(done.stdout).items():
        for each in scores:
            np.testing.assert_allclose(each, wanted[name], atol=2e-5, err_msg=name)


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("name", marked(SMALL))
def test_one_line_trains_every_ranker_from_every_source(name, tmp_path):
    table, frame, _, qid = whole("pandas")
    table = table.assign(shop="shop " + table["shop"])  # digits in a CSV file are numbers
    made = {"pandas": SMALL[name]().fit(table)}
    for suffix in ("csv", "parquet"):
        path = tmp_path / f"a.{suffix}"
        table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
        data = read_lists(path, cache=False)
        made[suffix] = SMALL[name]().fit(data.table, data.labels, data.list_numbers)
    if find_spec("polars"):
        made["polars"] = SMALL[name]().fit(sources()["polars"](table))
    features = frame.assign(shop=table["shop"])
    scores = {source: ranker.predict(features, qid) for source, ranker in made.items()}
    for source, each in made.items():
        assert each.preparation_.columns.categories == made["pandas"].preparation_.columns.categories
        assert np.abs(scores[source] - scores["pandas"]).mean() < 0.01, source  # the numbers of files are float32
    assert made["pandas"].score(table) > 0.5


@pytest.mark.parametrize("library", marked(["lightgbm", "xgboost"]))
def test_trees_split_by_categories(library):
    rng = np.random.default_rng(0)
    kind, qid = rng.integers(0, 16, 4000), np.repeat(np.arange(200), 20)
    y = np.isin(kind, [1, 4, 7, 10, 13, 15]).astype(int)  # not a range of codes
    frame = pd.DataFrame({"kind": [f"kind {each:02}" for each in kind], "noise": rng.normal(size=4000)})
    options = {"max_cat_to_onehot": 1, "min_data_per_group": 1} if library == "lightgbm" else {"max_cat_to_onehot": 1}
    ranker = rs.BoostedRanker(
        library=library, n_estimators=1, num_leaves=2, subsample=1.0, colsample_bytree=1.0, options=options
    )
    assert ranker.fit(frame, y, qid).score(frame, y, qid) == 1  # by a single split
    few = frame[:3].assign(kind=["kind 01", "kind 00", "never seen"])
    relevant, other, unseen = ranker.predict(few)
    assert relevant > other
    assert unseen in (relevant, other)  # the side of the categories that the split does not name
    if library == "xgboost":
        with pytest.raises(ValueError, match=r"categorical splits have no scorer.*prepare=\['encode'\]"):
            ranker.to_scorer()
        return
    scorer = ranker.to_scorer()
    found = scorer(torch.tensor(scorer.preparation.columns.encode(few)))
    np.testing.assert_array_equal(found.numpy(), ranker.predict(few))


def test_a_start_and_its_trees_have_the_same_columns():
    pytest.importorskip("lightgbm")
    frame, y, qid = draw()
    linear = rs.LinearRanker(loss=GRADED, prepare=["standardize"])
    ranker = rs.BoostedRanker(n_estimators=3, n_jobs=1, start=linear, prepare=["encode"]).fit(frame, y, qid)
    assert ranker.start_.preparation_.columns.categories == ranker.preparation_.columns.categories
    scorer = ranker.to_scorer()
    features = torch.tensor(scorer.preparation.columns.encode(frame), dtype=torch.float32)
    np.testing.assert_allclose(scorer(features).detach(), ranker.predict(frame), atol=1e-5)


def test_what_is_found_is_said_once(caplog):
    frame, y, qid = draw()
    for _ in range(2):
        rs.EnsembleRanker([SMALL["linear"](), SMALL["linear"]()]).fit(frame, y, qid)
    assert [each.message.partition(":")[0] for each in caplog.records] == [
        "categorical columns, with the number of categories",
        "missing values in 6 of 6 columns",
    ]
    assert "each gets an indicator, and numbers are replaced by the median" in caplog.text


def test_a_column_may_begin_with_missing_cells():
    for none in (None, math.nan, "", pd.NA):
        table = pd.DataFrame(
            {"a": pd.Series([none, none, "x", "y"], dtype=object), "b": pd.Series([none, 1, 2, 3], dtype=object)}
        )
        table["b"] = table["b"].replace("", None)
        columns = Columns.find(table)
        assert columns.categories == {"a": ("x", "y"), "b": None}
        np.testing.assert_array_equal(columns.encode(table), [[np.nan, np.nan], [np.nan, 1], [0, 2], [1, 3]])
    assert Columns.find(pd.DataFrame({"a": [None, None]}, dtype=object)) is None


def test_a_table_of_numbers_is_taken_as_before():
    frame, y, qid = draw()
    numbers = frame[["small", "large", "x"]].fillna(0.0)
    ranker = SMALL["linear"]().fit(numbers, y, qid)
    assert (ranker.preparation_.columns, ranker.preparation_.names) == (None, ("standardize",))
    for same in (numbers.astype("Float64"), numbers.to_numpy().astype(object), numbers.astype(np.float32)):
        found = SMALL["linear"]().fit(same, y, qid)
        np.testing.assert_allclose(found.coef_, ranker.coef_, rtol=1e-4, atol=1e-6)
    assert Columns.find(pd.DataFrame(np.zeros((2, 2)), columns=["a", "a"])) is None


@pytest.mark.parametrize("make", [SMALL["linear"], SMALL["lightgbm"]])
def test_tables_that_are_not_those_of_training(make):
    pytest.importorskip("lightgbm")
    frame, y, qid = draw()
    ranker, arrays = make().fit(frame, y, qid), frame.astype(object).to_numpy()
    with pytest.raises(
        ValueError, match=r"column 'brand' had text such as 'acme' in training, got numbers such as 0\.5"
    ):
        ranker.predict(frame.assign(brand=0.5))
    with pytest.raises(ValueError, match="column 'x' had numbers in training, got text such as 'a'"):
        ranker.predict(frame.assign(x="a"))
    for other, difference in (
        (frame.drop(columns="size"), "missing: 'size'"),
        (frame.assign(new=1.0), "unknown: 'new'"),
    ):
        with pytest.raises(ValueError, match=f"^X must have the columns of training; {difference}$"):
            ranker.predict(other)
    np.testing.assert_array_equal(ranker.predict(frame[frame.columns[::-1]]), ranker.predict(frame))
    with pytest.raises(ValueError, match="6 features"):
        make().fit(arrays, y, qid).predict(arrays[:, :5])
    with pytest.raises(ValueError, match=r"X must have the columns of training; missing: 'size'; unknown: 'new'"):
        ranker.preparation_.columns.encode(frame.rename(columns={"size": "new"}))
    # Numbers are values of a column whose categories are numbers, known or not; all cells may be missing.
    np.testing.assert_array_equal(ranker.predict(frame.assign(shop=1)), ranker.predict(frame.assign(shop="1")))
    np.testing.assert_array_equal(ranker.predict(frame.assign(shop=3)), ranker.predict(frame.assign(shop="new")))
    np.testing.assert_array_equal(ranker.predict(frame.assign(brand=np.nan)), ranker.predict(frame.assign(brand="")))
    of_numbers = make().fit(frame[["small", "large", "x"]], y, qid)
    with pytest.raises(ValueError, match="column 'x' had numbers in training, got strings"):
        of_numbers.predict(frame[["small", "large", "x"]].assign(x="a"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"brand": [f"name {at}" for at in range(1001)]}, "column 'brand' has more than 1000 categories, as text"),
        ({"when": [date(2024, 1, 1)] * 1001}, "column 'when' has date32.*; convert it to numbers"),
        ({"when": np.full(1001, "2024-01-01", "M8[s]")}, r"column 'when' has timestamp\[s\]; convert it to numbers"),
        ({"x": [1.0, "a", *["c"] * 999]}, r"column 'x' has strings and numbers; make it one of them, .*astype\(str\)"),
        ({"cell": ["a", {"b": 1}, *["c"] * 999]}, "column 'cell' must have numbers, or strings for categories, got"),
    ],
)
def test_columns_that_are_refused(change, message):
    frame = pd.DataFrame({"brand": ["a"] * 1001}).assign(**change)
    with pytest.raises(ValueError, match=message):
        rs.LinearRanker().fit(frame, np.arange(1001) % 2, np.arange(1001) // 10)


def test_numbers_that_are_names_are_matched_as_names():
    """They are positions only where the names of training are others."""
    table = {"0": np.array([10.0]), "1": np.array([20.0])}
    assert Columns({"1": None, "0": None}).encode(table).tolist() == [[20.0, 10.0]]
    assert Columns({"b": None, "a": None}).encode(table).tolist() == [[10.0, 20.0]]


def test_more_that_is_refused():
    frame, y, qid = draw()
    repeated = frame.set_axis(["a", "b", "c", "brand", "e", "e"], axis=1)
    with pytest.raises(ValueError, match="unique column names, 'e' is repeated"):
        rs.LinearRanker().fit(repeated, y, qid)
    with pytest.raises(ValueError, match=r"encode must be the first preparation step, got it after log:0\.001"):
        rs.LinearRanker(prepare=["log", "encode"]).fit(frame, y, qid)
    with pytest.raises(ValueError, match="encode needs dense features"):
        rs.LinearRanker().fit(sp.csr_array(np.where(np.eye(len(y), 3) > 0, np.nan, 0)), y, qid)
    with pytest.raises(ValueError, match="with distributed=True, prepare the documents first, also missing values"):
        rs.LinearRanker(distributed=True).fit(frame, y, qid)
    clean = SMALL["linear"]().fit(frame[["x"]].fillna(0.0), y, qid)
    with pytest.raises(ValueError, match="the training documents had none; put the step 'encode' in front"):
        clean.predict(frame[["x"]])
    prepared = rs.LinearRanker(loss=GRADED, prepare=["encode", "standardize"]).fit(frame[["x"]].fillna(0.0), y, qid)
    assert np.isfinite(prepared.predict(frame[["x"]])).all()
    with pytest.raises(DataError, match="columns must describe the 1 features, got 2"):
        replace(RankingData.from_arrays([[1.0]], [1], [1]), columns=Columns({"a": None, "b": None}))


def test_files_with_other_categories_are_recoded(tmp_path):
    frame, y, qid = draw()
    frame["shop"] = "shop " + frame["shop"]  # numbers in a CSV file are numbers
    train = frame.assign(brand=frame["brand"].replace("cat", "dog"))
    paths = [
        write(tmp_path / "train.csv", train, y, qid),
        write(tmp_path / "test.parquet", frame[frame.columns[::-1]], y, qid),
    ]
    first, second = read_alike(paths, cache=False)
    assert second.columns.categories == first.columns.categories == Columns.find(train).categories
    np.testing.assert_array_equal(second.features, Columns.find(train).encode(frame).astype(np.float32))
    assert (second.features[(frame["brand"] == "cat").to_numpy(), 3] == -1).all()
    mapped = [convert_lists(path).path for path in paths]
    for one, other in zip(read_alike(mapped), (first, second), strict=True):
        np.testing.assert_array_equal(one.features, other.features)
    text = write(tmp_path / "text.csv", frame.assign(x="a"), y, qid)
    with pytest.raises(DataError, match=r"text.csv: column 'x' had numbers in training, got text such as 'a'"):
        read_alike([paths[0], text], cache=False)
    with pytest.raises(DataError, match=r"text.csv: column 'x' had numbers in training, got text such as 'a'"):
        read_alike(
            [write(tmp_path / "a.csv", frame[["x"]].fillna(0), y, qid), write(text, frame[["x"]].assign(x="a"), y, qid)]
        )
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("1 qid:1 1:2 2:1 3:1 4:1 5:1 6:1\n")
    with pytest.raises(DataError, match=r"numbers.txt: expected a table with the columns 'small', .*got numbers"):
        read_alike([paths[0], numbers], cache=False)


def test_numbers_are_categories_where_an_option_says_so(tmp_path):
    frame = pd.DataFrame({"shop": [10, 2, 10, 7], "x": [1.0, 2.0, np.nan, 4.0]})
    for suffix in ("csv", "parquet"):
        path = write(tmp_path / f"a.{suffix}", frame, [0, 1, 0, 1], [1, 1, 2, 2])
        assert read_lists(path, cache=False).columns.categories == {"shop": None, "x": None}
        data = read_lists(path, categorical=["shop"], cache=False)
        assert data.columns.categories == {"shop": ("10", "2", "7"), "x": None}
        np.testing.assert_array_equal(data.features, [[0, 1], [1, 2], [0, np.nan], [2, 4]])
        with pytest.raises(DataError, match=r"categorical must name feature columns, got 'label'; there are 'shop, x'"):
            read_lists(path, categorical=["label"], cache=False)
    (tmp_path / "a.txt").write_text("1 qid:1 1:2\n")
    with pytest.raises(
        DataError, match=r"options of tables, categorical, need a CSV, Parquet or Arrow file, got a .txt file"
    ):
        read_lists(tmp_path / "a.txt", categorical=["shop"])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "rankdata"])
def test_lists_of_numbers_keep_the_names_of_their_features(tmp_path, suffix):
    frame, y, qid = draw()
    frame = frame[["large", "small"]]
    data = read_lists(write(tmp_path / f"a.{suffix}", frame, y, qid), cache=tmp_path / "cache")
    assert data.columns.names == ["large", "small"]
    again = read_lists(tmp_path / f"a.{suffix}", cache=tmp_path / "cache")
    assert (
        again.columns.names
        == again.select([1, 0]).columns.names
        == concatenate([data]).columns.names
        == ["large", "small"]
    )
    turned = read_lists(write(tmp_path / f"b.{suffix}", frame[["small", "large"]], y, qid), cache=False)
    ranker = SMALL["linear"]().fit(data)
    assert ranker.feature_names_in_.tolist() == ["large", "small"]
    np.testing.assert_array_equal(ranker.predict(turned), ranker.predict(data))
    np.testing.assert_array_equal(ranker.predict(frame.astype(np.float32)), ranker.predict(data))
    np.testing.assert_array_equal(data.recoded(turned.columns).features, turned.features)
    other = read_lists(write(tmp_path / f"c.{suffix}", frame.set_axis(["large", "x"], axis=1), y, qid), cache=False)
    for join in (lambda: ranker.predict(other), lambda: concatenate([data, other])):
        with pytest.raises(ValueError, match="must have the columns of training; missing: 'small'; unknown: 'x'"):
            join()


@pytest.mark.parametrize("library", ["pandas", "arrow"])  # polars has no such frames
@pytest.mark.parametrize("again", ["small", "label", "qid", "other"])
def test_column_names_are_unique(library, again):
    pa = pytest.importorskip("pyarrow")
    frame, y, qid = draw()
    names = ["label", "qid", "small", "large", "other"]
    table = pd.DataFrame(dict(zip(names, (y, qid, frame["small"].fillna(0), frame["large"].fillna(0), y), strict=True)))
    ranker = SMALL["linear"]().fit(table)
    columns = [table[name] for name in (*names, again)]
    if library == "pandas":
        repeated = pd.concat(columns, axis=1)
    else:
        repeated = pa.Table.from_arrays([pa.array(each) for each in columns], names=[*names, again])
    for call in (
        lambda: SMALL["linear"]().fit(repeated),
        lambda: SMALL["linear"]().fit(repeated, y, qid),
        lambda: ranker.predict(repeated),
        lambda: ranker.score(repeated, y, qid),
        lambda: Columns.find(
            repeated.assign(x="a") if library == "pandas" else repeated.append_column("x", [["a"] * 240])
        ),
        lambda: ClickLog.read(repeated, query="qid", document="small", position="label", click="label"),
        lambda: interactions(repeated, user="qid", item="small"),
    ):
        with pytest.raises(ValueError, match=f"expected a table with unique column names, '{again}' is repeated"):
            call()


def test_categories_in_csv_are_found_in_the_first_rows(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    for cell in ("2024-01-01", "0,5", "1", "true"):  # neither numbers nor categories in silence
        path.write_text(f'qid;label;x\n1;1;{cell}\n1;0;"a"\n')
        with pytest.raises(DataError, match=rf"row [12]: expected a number in column 'x', got '({cell}|a)'"):
            read_lists(path, cache=False)
    path.write_text("qid,label,x,y\n1,1,a,NA\n1,0,,b\n1,2,n/a,\n1,2,b,b\n")
    data = read_lists(path, cache=False)
    np.testing.assert_array_equal(data.features, [[0, np.nan], [np.nan, 0], [np.nan, np.nan], [1, 0]])
    path.write_text("qid,label,x\n1,1,1\n1,1,2\n1,0,a\n")
    with monkeypatch.context() as patch:
        patch.setattr("rankstruct.data.tables._HEAD", 20)
        with pytest.raises(
            DataError, match=r"row 3: expected a number in column 'x', got 'a'; .*: categorical=\['x'\]"
        ):
            read_lists(path, cache=False)
    assert read_lists(path, categorical=["x"], cache=False).columns.categories == {"x": ("1", "2", "a")}
    many = pd.DataFrame({"title": [f"title {at}" for at in range(1001)]})
    with pytest.raises(
        DataError, match=r"a.csv: column 'title' has more than 1000 categories, as text and identifiers have"
    ):
        read_lists(write(path, many, np.zeros(1001, int), np.arange(1001)), cache=False)


@pytest.mark.parametrize(
    ("label", "qid"), [("relevance", "query_id"), ("rel", "query"), ("target", "group"), ("Y", "QID")]
)
def test_columns_are_found_by_their_usual_names(tmp_path, caplog, label, qid):
    for suffix in ("csv", "parquet"):
        path = write(tmp_path / f"a.{suffix}", pd.DataFrame({"x": [1.0, 2.0]}), [1, 0], [1, 1], (label, qid))
        caplog.clear()
        data = read_lists(path, cache=False)
        assert (data.features.tolist(), data.labels.tolist()) == ([[1], [2]], [1, 0])
        wanted = [f"{path}: column {label!r} is used as 'label'", f"{path}: column {qid!r} is used as 'qid'"]
        assert [each.message for each in caplog.records] == wanted
        both = pd.DataFrame({"x": [1.0, 2.0], "clicks": [0, 3], "session": [7, 8]})
        path = write(path, both, [1, 0], [1, 1], (label, qid))
        found = read_lists(path, label="clicks", qid="session", cache=False)
        assert (found.labels.tolist(), found.qids.tolist(), found.num_features) == ([0, 3], ["7", "8"], 3)
    two = write(path, pd.DataFrame({"target": [1.0, 2.0], "y": [3.0, 4.0]}), [1, 0], [1, 1], ("rel", "qid"))
    with pytest.raises(
        DataError, match=r"columns 'rel' and 'target' have usual names of 'label'; .*, such as label='rel'"
    ):
        read_lists(two, cache=False)
    assert read_lists(two, label="rel", cache=False).features.tolist() == [[1, 3], [2, 4]]
    assert read_lists(two, label="Target", cache=False).features.tolist() == [[1, 3], [0, 4]]
    path = tmp_path / "classes.csv"
    path.write_text("group,x,kind\n1,2,good\n")  # without labels
    with pytest.raises(DataError, match=r"expected lists, got a .csv file .*; qid= and label= name them"):
        read_lists(path)


FRAMES = ["pandas", "arrow", "polars"]


def whole(library, label="rel", qid="query"):
    """A frame with labels, lists and names of documents, its features, labels and lists."""
    frame, y, lists = draw()
    made = (
        pd.DataFrame({qid: [f"q{each:02}" for each in lists], "doc_id": range(len(y))}).join(frame).assign(**{label: y})
    )
    return made if library == "pandas" else sources()[library](made), frame, y, lists


@pytest.mark.sampled(2)
@pytest.mark.parametrize("library", marked(FRAMES))
@pytest.mark.parametrize("given", [(), ("rel",), ("rel", "query"), (None, "query")])
def test_labels_and_lists_are_columns_of_a_frame(library, given, caplog):
    table, frame, y, qid = whole(library)
    ranker = SMALL["linear"]().fit(table, *given, X_valid=table)
    same = SMALL["linear"]().fit(frame, y, qid, X_valid=frame, y_valid=y, qid_valid=qid)
    assert ranker.roles_ == {"label": "rel", "qid": "query", "docid": "doc_id"}
    assert ranker.feature_names_in_.tolist() == list(frame)
    assert [each.message for each in caplog.records if "not features" in each.message] == [
        "columns that are not features: 'rel' (labels), 'query' (lists), 'doc_id' (names of documents)"
    ]
    for features in (table, frame):
        np.testing.assert_array_equal(ranker.predict(features), same.predict(frame))
    for more in ((), ("rel",), ("rel", "query"), (y, qid)):
        assert ranker.score(table, *more) == same.score(frame, y, qid)
    assert ranker.score(frame, y, qid) == ranker.score(table, y, group=[8] * 30) == same.score(frame, y, qid)
    again = pickle.loads(pickle.dumps(ranker))
    np.testing.assert_array_equal(again.predict(table), ranker.predict(frame))


@pytest.mark.parametrize("library", marked(FRAMES))
def test_a_feature_that_tells_the_labels_is_a_warning(library):
    table, _, y, qid = whole(library)
    for lists in ("query", qid):
        with pytest.warns(UserWarning, match="the column 'rel', which is a feature, tells the labels: .* y='rel'"):
            ranker = SMALL["linear"]().fit(table, np.minimum(y, 1), lists)
        assert "rel" in ranker.feature_names_in_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SMALL["linear"]().fit(table, np.random.default_rng(0).permutation(y), "query")


def test_the_lists_of_a_frame_are_those_of_an_ensemble():
    table, frame, _, qid = whole("pandas")
    ranker = SMALL["ensemble"]().fit(table)
    np.testing.assert_array_equal(ranker.predict(table), ranker.predict(frame, qid))
    with pytest.warns(UserWarning, match="qid is missing"):
        assert np.ptp(ranker.predict(table) - ranker.predict(frame)) > 0.01


@pytest.mark.parametrize("library", marked(FRAMES))
def test_validation_lists_are_columns(library):
    table, frame, y, qid = whole(library)
    wanted = SMALL["linear"]().fit(frame, y, qid, X_valid=frame, y_valid=y, qid_valid=qid).predict(frame)
    for valid in (
        {"X_valid": table},
        {"X_valid": table, "y_valid": "rel", "qid_valid": "query"},
        {"X_valid": table, "y_valid": y},
    ):
        np.testing.assert_array_equal(SMALL["linear"]().fit(table, **valid).predict(frame), wanted)
    by_sizes = SMALL["linear"]().fit(table, "rel", group=[8] * 30, X_valid=frame, y_valid=y, qid_valid=qid)
    np.testing.assert_array_equal(by_sizes.predict(table), wanted)
    assert by_sizes.feature_names_in_.tolist() == list(frame)


def test_scikit_learn_splits_frames_with_their_columns():
    table, _, y, qid = whole("pandas")
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(SMALL["linear"](), {"C": [0.1, 10.0]}, cv=GroupKFold(3))
        search.fit(table, table["rel"], qid=table["query"], groups=qid)
        assert search.score(table, y, qid=qid) == search.best_estimator_.score(table)
    assert search.best_estimator_.roles_ == {"label": "rel", "qid": "query", "docid": "doc_id"}


def test_features_with_usual_names_are_features_where_labels_and_lists_are_given():
    frame, y, qid = draw()
    named = frame.rename(columns={"small": "y", "brand": "group", "x": "target"})
    wanted = SMALL["linear"]().fit(frame, y, qid)
    for more in ({"qid": qid}, {"group": [8] * 30}):
        ranker = SMALL["linear"]().fit(named, y, **more)
        assert ranker.roles_ == {}
        np.testing.assert_array_equal(ranker.predict(named, qid), wanted.predict(frame))
    arrays = named[["y", "target"]].fillna(0.0)
    ranker = SMALL["linear"]().fit(arrays.to_numpy(), y, qid)  # columns without names
    with pytest.warns(UserWarning, match="X has feature names"):
        np.testing.assert_array_equal(ranker.predict(arrays), ranker.predict(arrays.to_numpy()))


@pytest.mark.parametrize("library", marked(FRAMES))
def test_columns_that_cannot_be_found(library):
    table, frame, y, qid = whole(library, "label", "qid")
    if library == "pandas":
        both = table.assign(target=y)
        with pytest.raises(
            ValueError, match=r"'label' and 'target' have usual names of 'label'; .*, such as y='label'"
        ):
            rs.LinearRanker().fit(both)
        assert "target" in SMALL["linear"]().fit(both, "label").feature_names_in_
        with pytest.raises(ValueError, match="unique column names, 'label' is repeated"):
            rs.LinearRanker().fit(both.rename(columns={"target": "label"}), "label")
    with pytest.raises(ValueError, match=r"y: X has no column 'labell'; did you mean label\?"):
        rs.LinearRanker().fit(table, "labell")
    with pytest.raises(ValueError, match="qid: X has no column 'zzz'; there are 'qid', 'doc_id', 'small'"):
        rs.LinearRanker().fit(table, qid="zzz")
    ranker = SMALL["linear"]().fit(table)
    with pytest.raises(ValueError, match="y is missing, and X has no column with a usual name of labels, label, "):
        rs.LinearRanker().fit(frame if library == "pandas" else sources()[library](frame), qid=qid)
    with pytest.raises(ValueError, match="y is 'label', the name of a column, but X has no named columns"):
        rs.LinearRanker().fit(frame.to_numpy(), "label")
    with pytest.raises(ValueError, match="y is missing: pass the labels"):
        ranker.score(frame, qid=qid)
    with pytest.raises(ValueError, match="pass X_valid, y_valid and qid_valid together"):
        rs.LinearRanker().fit(table, X_valid=frame)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for number, (part, suffix) in enumerate({"train": "csv", "vali": "parquet", "test": "csv"}.items()):
        frame, y, qid = draw(seed=number)
        write(folder / f"{part}.{suffix}", frame.assign(shop="shop " + frame["shop"]), y, qid, ("relevance", "query"))
    return folder


def test_rank_and_predict_take_tables(tables, tmp_path, capsys):
    output = str(tmp_path / "out")
    assert main(["rank", str(tables), "--time-budget", "0", "--output", output]) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    frame, y, qid = draw(seed=2)
    frame["shop"] = "shop " + frame["shop"]
    scores = []
    for path in (tables / "test.csv", write(tmp_path / "test.parquet", frame[frame.columns[::-1]], y, qid)):
        assert main(["predict", "--run", output, "--data.predict_path", str(path)]) == 0
        scores.append(read_scores(tmp_path / "out" / "scores.txt"))
    np.testing.assert_array_equal(*scores)
    found = rs.evaluate(scores[0], y, ["nDCG@10"], qid=qid)["nDCG@10"].mean()
    assert float(found) == pytest.approx(result["test"]["nDCG@10"]["mean"], abs=1e-5)
    with open(tmp_path / "out" / "ranker.pkl", "rb") as file:
        ranker = pickle.load(file)
    np.testing.assert_allclose(ranker.predict(frame, qid), scores[0], atol=1e-4)


def test_lightning_takes_tables(tables):
    data = RankingDataModule(str(tables), prepare=["standardize"], cache=False)
    preparation, frame = data.preparation, draw(seed=0)[0]
    assert preparation.names == ("encode", "standardize")
    assert preparation.columns.categories["size"] == ("L", "M", "S")
    assert np.isfinite(data.splits.test.features).all()
    columns = preparation.columns
    raw = columns.encode(frame.assign(shop="shop " + frame["shop"])).astype(np.float32)
    np.testing.assert_allclose(data.splits.train.features, preparation.transform(raw), atol=1e-6)
    again = RankingDataModule(str(tables), prepare=["standardize"], cache=False)
    other = Columns(columns.categories | {"size": ("S", "M", "L")})  # of a model whose training data were others
    fitted = rs.Preparation(preparation.names, preparation.num_features, preparation.fitted, other)
    again.restore(describe_scorer(rs.LinearScorer(data.num_features), fitted))
    is_large, turned = (each.splits.train.features[:, 8:11] for each in (data, again))
    np.testing.assert_array_equal(turned[:, 2], (frame["size"] == "L"))
    np.testing.assert_array_equal(is_large, turned[:, ::-1])
