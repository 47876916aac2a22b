"""Ray Data, Spark and plain `predict` give the same scores; missing cells and unseen categories are drawn."""

import pickle
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rankstruct as rs

pytestmark = pytest.mark.filterwarnings("ignore")  # engines' own, such as of files they leave open


def draw(seed, brands):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"docid": [f"d{at}" for at in range(300)], "qid": np.repeat([f"q{at}" for at in range(30)], 10)}
    )
    frame["price"] = np.where(rng.random(300) < 0.2, np.nan, rng.normal(size=300))
    frame["brand"] = rng.choice([*brands, None], 300)
    frame["age"] = rng.integers(0, 9, 300).astype(float)
    return frame.assign(label=rng.integers(0, 3, 300))


NEW = draw(1, ["ant", "bee", "wasp"]).drop(columns="label")[["age", "docid", "brand", "qid", "price"]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """By name, a model and the scores of `predict`: with and without the list as unit, rankers and loaded scorers."""
    pytest.importorskip("lightgbm")
    train = draw(0, ["ant", "bee"]).drop(columns="docid")
    path = tmp_path_factory.mktemp("scorers") / "scorer.pt"
    found = {}
    for name, ranker in (
        ("documents", rs.BoostedRanker(n_estimators=5)),
        ("lists", rs.LinearRanker(prepare=["encode", "query-zscore"])),
    ):
        scores = ranker.fit(train).predict(NEW.drop(columns="docid"))
        rs.save_scorer(ranker.to_scorer(), path)
        found |= {f"ranker of {name}": (ranker, scores), f"scorer of {name}": (rs.load_scorer(path), scores)}
    return found


def check(frame, scores):
    """Each document of a frame of results has its score, and all columns are there."""
    frame = frame.set_index("docid").loc[NEW.docid]
    assert frame.columns.tolist() == ["age", "brand", "qid", "price", "score"]
    assert frame.score.to_numpy() == pytest.approx(scores, abs=1e-6)
    assert frame.qid.tolist() == NEW.qid.tolist()


def test_tables_of_any_kind_are_scored_as_by_predict(models):
    mapping = {name: NEW[name].to_numpy() for name in NEW}
    for name, (model, scores) in models.items():
        scorer = pickle.loads(pickle.dumps(model))._table_scorer(None, None, "score")
        assert scorer.by_list == ("lists" in name)
        check(scorer.add(NEW), scores)
        check(scorer.add(NEW.sample(frac=1, random_state=0)), scores)
        check(scorer.add(pa.table(NEW)).to_pandas(), scores)
        check(pd.DataFrame(scorer.add(mapping)), scores)
        assert len(scorer.scores(NEW[:0])) == 0


def test_what_a_table_lacks_is_named(models):
    ranker, scorer = models["ranker of documents"][0], models["scorer of lists"][0]
    table = ranker._table_scorer(None, None, "score")
    with pytest.raises(ValueError, match="the columns of training; missing: 'brand'; did you mean brands"):
        table.add(NEW.rename(columns={"brand": "brands"}))
    with pytest.raises(ValueError, match="output must be a new column, got 'age', which the table has"):
        ranker._table_scorer(None, None, "age").add(NEW)
    with pytest.raises(ValueError, match="qid must be the column of lists, since the scores depend on the whole list"):
        scorer._table_scorer("list", None, "score").add(NEW)
    with pytest.raises(ValueError, match="'qid' must name the list of each document; it is missing in 30 rows"):
        scorer._table_scorer(None, None, "score").add(
            NEW.assign(qid=NEW.qid.replace({f"q{at}": None for at in range(3)}))
        )
    with pytest.raises(
        ValueError, match="features must be those of training, or omitted; training had price, brand, age"
    ):
        ranker._table_scorer(None, ["age"], "score")
    with pytest.raises(ValueError, match="batches divide lists: use dataset"):
        scorer._table_scorer(None, None, "score").of_one_list(NEW)
    divided = scorer._table_scorer(None, None, "score")
    divided.of_one_list(NEW[:5])
    with pytest.raises(ValueError, match="batches divide lists"):
        divided.of_one_list(NEW[5:10])


def test_features_without_names_are_named():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
    ranker = rs.LinearRanker("AP", prepare=()).fit(X, y, np.repeat(np.arange(6), 10))
    with pytest.raises(ValueError, match="features must name the columns in the order of training, which had no names"):
        ranker._table_scorer(None, None, "score")
    for model in (ranker, ranker.to_scorer()):
        scores = model._table_scorer(None, ["b", "a"], "score").scores({"a": X[:, 1], "b": X[:, 0]})
        assert scores == pytest.approx(ranker.predict(X), abs=1e-6)


def test_an_engine_that_is_not_installed_names_its_extra(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql.types", None)
    ranker = models["ranker of documents"][0]
    with pytest.raises(ImportError, match=r"ray is not installed: pip install 'rankstruct\[ray\]'"):
        ranker.for_ray()
    with pytest.raises(ImportError, match=r"pyspark is not installed: pip install 'rankstruct\[spark\]'"):
        ranker.for_spark()


@pytest.mark.slow
def test_ray_data_scores_as_predict(models):
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        data = ray.data.from_pandas(NEW).repartition(4)
        for name, kind in (
            ("ranker of documents", "numpy"),
            ("scorer of documents", "pandas"),
            ("scorer of lists", "pyarrow"),
        ):
            model, scores = models[name]
            call = data.groupby("qid").map_groups if "lists" in name else data.map_batches
            rows = call(model.for_ray(), batch_format=kind, compute=ray.data.ActorPoolStrategy(size=1)).take_all()
            check(pd.DataFrame(rows)[[*NEW, "score"]], scores)
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_spark_scores_as_predict(models, monkeypatch):
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    try:
        rows = [tuple(None if pd.isna(cell) else cell for cell in row) for row in NEW.itertuples(index=False)]
        frame = spark.createDataFrame(rows, "age double, docid string, brand string, qid string, price double")
        frame = frame.repartition(2, "docid")  # which divides lists
        for name in ("scorer of documents", "ranker of lists"):
            model, scores = models[name]
            check(pd.DataFrame(frame.transform(model.for_spark()).collect(), columns=[*NEW, "score"]), scores)
        with pytest.raises(ValueError, match="the columns of training; missing: 'brand'"):
            frame.drop("brand").transform(model.for_spark())
    finally:
        spark.stop()
