"""Files for search engines: scores as `predict`'s by each format's evaluator, golden files, errors that leave no file."""

import json

import numpy as np
import pytest
import torch

import rankstruct as rs
from rankstruct import cli
from rankstruct.models.engine_scores import engine_scores
from rankstruct.models.engines import ENGINES, _before_slack, export_scorer
from rankstruct.models.scorers import LinearScorer, MLPScorer, TreeScorer

NAMES = ["bm25", "price", "clicks"]
FORMATS = [(engine, suffix) for engine in ("elasticsearch", "solr", "vespa") for suffix in ENGINES[engine]]
MISSING = {"missing": True}


def draw(missing=False, documents=10_000, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(documents, 3)).astype(np.float32)
    X[:, 1] = np.exp(3 * X[:, 1]) + 1000
    X[:, 2] = rng.integers(0, 4, documents)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X


def fitted(make, missing=False):
    X = draw(missing, 600, 0)
    signal = np.nan_to_num(X[:, 0]) + (np.nan_to_num(X[:, 2]) > 1) + np.isnan(X[:, 1])
    return make().fit(X, np.digitize(signal, [0.0, 1.5]), np.repeat(np.arange(30), 20))


def boosted(library="lightgbm", **more):
    options = {"n_estimators": 12, "num_leaves": 6, "min_child_samples": 5, "n_jobs": 1, "library": library}
    return rs.BoostedRanker(**(options | more))


def linear(prepare=()):
    return rs.LinearRanker("AP", loss="GradedLoss('AUC')", prepare=prepare)


def mlp(**more):
    return rs.MLPRanker(max_epochs=1, hidden=(5, 4), device="cpu", seeds=2, **more)


STEPS = [
    (),
    ("log",),
    ("quantile",),
    ("bins:4",),
    ("piecewise:4",),
    ("append-quantile", "standardize"),
    ("log", "append-standardize"),
]
CASES = {
    "linear": (linear, {}),
    "linear standardised": (lambda: linear(["standardize"]), {}),
    "linear standardised twice": (lambda: linear(["append-standardize", "standardize"]), {}),
    "mlp": (lambda: mlp(prepare=["standardize"]), {}),
    "mlp standardised twice": (lambda: mlp(prepare=["append-standardize"]), {}),
    **{f"lightgbm {'+'.join(steps)}": (lambda steps=steps: boosted(prepare=steps), {}) for steps in STEPS},
    "lightgbm missing": (boosted, MISSING),
    "lightgbm missing, log": (lambda: boosted(prepare=["log"]), MISSING),
    "lightgbm missing, encode": (lambda: boosted(prepare=["encode", "standardize"]), MISSING),
    "xgboost missing": (lambda: boosted("xgboost"), MISSING),
    "xgboost missing, piecewise": (lambda: boosted("xgboost", prepare=["piecewise:4"]), MISSING),
    "xgboost quantile": (lambda: boosted("xgboost", prepare=["quantile"]), {}),
    "catboost missing": (lambda: boosted("catboost"), MISSING),
    "catboost log": (lambda: boosted("catboost", prepare=["log"]), {}),
}
#: What a format has no words for, and what the message says.
REFUSED = {
    ".txt": (("mlp", "lightgbm", "xgboost", "catboost"), "expected a linear model"),
    ".xml": (("linear", "mlp"), "has trees, got"),
    ".json": (("mlp",), "an MLP, for which the plugins have no format"),
    "vespa": (("linear", "mlp"), "write .onnx"),
}


#: Each library with each step, trained and scored with missing cells.
MORE = {
    f"{library} missing {'+'.join(steps)}": (
        lambda library=library, steps=steps: boosted(library, prepare=steps),
        MISSING,
    )
    for library in ("lightgbm", "xgboost", "catboost")
    for steps in (*STEPS, ("encode", "append-quantile", "standardize"), ("append-log",), ("append-piecewise:4",))
    if (library, *steps) != ("xgboost", "bins:4")
}


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.soak) for case in MORE)])
@pytest.mark.filterwarnings("ignore")
def test_an_exported_file_scores_as_predict(case, tmp_path):
    make, data = (CASES | MORE)[case]
    for library in ("lightgbm", "xgboost", "catboost"):
        if case.startswith(library):
            pytest.importorskip(library)
    ranker = fitted(make, **data)
    X = draw(**data)
    expected = ranker.predict(X)
    for engine, suffix in FORMATS:
        path = tmp_path / f"{engine}{suffix}"
        if suffix == ".onnx":
            continue
        kinds, said = REFUSED.get(engine if engine == "vespa" else suffix if engine != "solr" else "", ((), ""))
        trees_have_missing = suffix == ".xml" and (data or case.startswith(("xgboost", "catboost")))
        if case.startswith(kinds) or trees_have_missing:
            with pytest.raises(ValueError, match=said if case.startswith(kinds) else "missing cells"):
                ranker.export(path, engine, feature_names=NAMES)
            assert not list(tmp_path.glob(f"{engine}*{suffix}")), path
            continue
        ranker.export(path, engine, feature_names=NAMES)
        found = engine_scores(path, engine, X, NAMES)
        assert np.abs(found - expected).max() <= 1e-5 * np.ptp(expected), (engine, suffix)
        in_order = expected[np.argsort(-found, kind="stable")]
        assert (np.diff(in_order) <= 1e-5 * np.ptp(expected)).all(), (engine, suffix)  # but for ties within that


@pytest.mark.needs("onnx", "onnxscript", "onnxruntime")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["onnx", "vespa"])
def test_trees_are_one_node_of_onnx(engine, tmp_path):
    import onnx

    pytest.importorskip("lightgbm")
    ranker = fitted(lambda: boosted(prepare=["append-log"]), missing=True)
    ranker.export(tmp_path / "ranker.onnx", engine)
    kinds = [node.op_type for node in onnx.load(tmp_path / "ranker.onnx").graph.node]
    assert kinds.count("TreeEnsembleRegressor") == 1
    X = draw(missing=True)
    expected = ranker.predict(X)
    found = engine_scores(tmp_path / "ranker.onnx", engine, X, NAMES)
    assert np.abs(found - expected).max() <= 1e-5 * np.ptp(expected)
    assert (tmp_path / "ranker.profile").exists() == (engine == "vespa")


def golden_trees(largest=2.0):
    scorer = TreeScorer(2, num_trees=2, num_nodes=4, num_columns=1, depth=1)
    scorer.threshold[:] = torch.tensor([0.5, -1.0, largest, 0.25], dtype=torch.float64)
    scorer.branch[0], scorer.root[:], scorer.feature[:] = torch.tensor([0, 1]), torch.tensor([0, 3]), 1
    return scorer


def golden_linear():
    scorer = LinearScorer(2)
    scorer.linear.weight.data = torch.tensor([[2.0, -1.0]])
    train = np.array([[0.0, 1.0], [2.0, 5.0]])
    return rs.models.PreparedScorer(scorer, rs.Preparation.fit(["standardize"], train))


def golden_mlp():
    scorer = MLPScorer(2, hidden=1)
    for values in scorer.parameters():
        torch.nn.init.constant_(values, 0.5)
    return scorer


XGBOOST = (
    '[{"nodeid": 0, "depth": 0, "split": "b", "split_condition": 0.5000000596046448, "yes": 1, "no": 2, "missing": 1, '
    '"children": [{"nodeid": 1, "leaf": -1.0}, {"nodeid": 2, "leaf": 2.0}]}, {"nodeid": 0, "leaf": 0.25}]'
)
SOLR = '{"class": "org.apache.solr.ltr.model.%s", "store": "m", "name": "m", "features": [%s], "params": %s}'
PLAIN = '{"name": "a\\""}, {"name": "b"}'
GOLDEN = {
    ("vespa", ".json", golden_trees): XGBOOST,
    (
        "elasticsearch",
        ".json",
        golden_linear,
    ): '{"model": {"name": "m", "model": {"type": "model/linear", "definition": '
    '"{\\"a\\\\\\"\\": 2.0, \\"b\\": -1.0}", "feature_normalizers": {"a\\"": {"standard": {"mean": 1.0, '
    '"standard_deviation": 1.0}}, "b": {"standard": {"mean": 3.0, "standard_deviation": 2.0}}}}}}',
    ("opensearch", ".txt", golden_linear): "## Linear Regression\n## Lambda = 0.0\n0:-0.5 1:2.0 2:-0.5\n",
    ("opensearch", ".xml", golden_trees): "## LambdaMART\n## No. of trees = 2\n\n<ensemble>\n"
    '<tree id="1" weight="1.0"><split><feature>2</feature><threshold>0.5</threshold><split pos="left"><output>-1.0</output>'
    '</split><split pos="right"><output>2.0</output></split></split></tree>\n'
    '<tree id="2" weight="1.0"><split><output>0.25</output></split></tree>\n</ensemble>\n',
    ("solr", ".json", golden_linear): SOLR
    % (
        "LinearModel",
        '{"name": "a\\"", "norm": {"class": "org.apache.solr.ltr.norm.StandardNormalizer", "params": {"avg": "1.0", "std": '
        '"1.0"}}}, {"name": "b", "norm": {"class": "org.apache.solr.ltr.norm.StandardNormalizer", "params": {"avg": "3.0", '
        '"std": "2.0"}}}',
        '{"weights": {"a\\"": 2.0, "b": -1.0}}',
    ),
    ("solr", ".json", golden_trees): SOLR
    % (
        "MultipleAdditiveTreesModel",
        PLAIN,
        '{"trees": [{"weight": "1.0", "root": {"feature": "b", "threshold": "0.49999902", "left": {"value": "-1.0"}, "right": '
        '{"value": "2.0"}}}, {"weight": "1.0", "root": {"value": "0.25"}}]}',
    ),
    ("solr", ".json", golden_mlp): SOLR
    % (
        "NeuralNetworkModel",
        PLAIN,
        '{"layers": [{"matrix": [[0.5, 0.5]], "bias": [0.5], "activation": "relu"}, {"matrix": [[0.5]], "bias": [0.5], '
        '"activation": "identity"}]}',
    ),
}


@pytest.mark.parametrize(("engine", "suffix", "make"), GOLDEN)
def test_files_are_as_the_engines_read_them(engine, suffix, make, tmp_path):
    names = ["a", "b"] if engine == "vespa" else ['a"', "b"]
    file, features = export_scorer(make(), tmp_path / f"m{suffix}", engine, feature_names=names)
    assert file.read_text() == GOLDEN[engine, suffix, make]
    if engine != "vespa":
        content = json.loads(features.read_text())
        listed = content if engine == "solr" else content["featureset"]["features"]
        assert [each["name"] for each in listed] == names


@pytest.mark.parametrize(
    ("value", "exact"),
    [(0.5, True), (0.0, True), (-3.7, True), (1e9, True), (1e-45, False), (-1e-45, False), (3e-14, False)],
)
def test_solr_adds_its_slack_to_thresholds(value, exact):
    threshold = np.float32(value)
    found = np.float32(_before_slack(threshold) + np.float32(1e-6))
    assert found <= threshold
    assert float(threshold) - float(found) <= (0.0 if exact else 2e-13)


def deep_tree(levels):
    """A chain: each level splits one side off."""
    scorer = TreeScorer(2, num_trees=1, num_nodes=2 * levels + 1, num_columns=1, depth=levels)
    inner = torch.arange(0, 2 * levels, 2)
    scorer.branch[inner] = torch.stack([torch.zeros(levels, dtype=torch.int64), inner + 1], -1).int()
    scorer.threshold[:] = torch.arange(2 * levels + 1)
    return scorer


def test_trees_as_deep_as_parsers_read_are_written(tmp_path):
    X = np.stack([np.zeros(50), np.linspace(0, 600, 50)], 1).astype(np.float32)
    expected = deep_tree(300)(torch.from_numpy(X)).numpy()
    for engine, suffix in (("solr", ".json"), ("vespa", ".json"), ("elasticsearch", ".json"), ("opensearch", ".xml")):
        export_scorer(deep_tree(300), path := tmp_path / f"m{suffix}", engine)
        assert engine_scores(path, engine, X, ["feature_1", "feature_2"]) == pytest.approx(expected)


def weights(value):
    scorer = LinearScorer(2)
    scorer.linear.weight.data[:] = value
    return scorer


@pytest.mark.parametrize(
    ("make", "path", "engine", "names", "said"),
    [
        (golden_linear, "m.json", "sorl", None, "engine must be one of .* got 'sorl'; did you mean solr"),
        (golden_linear, "m.xml", "solr", None, "path must end with .json for solr"),
        (golden_linear, "m.json", "solr", ["a"], "feature_names must be 2 different names"),
        (golden_linear, "m.json", "solr", ["a", "a"], "feature_names must be 2 different names"),
        (golden_linear, "m.json", "solr", "ab", "feature_names must be a list of names, got the text 'ab'"),
        (golden_trees, "m.json", "vespa", ["a", 'b"'], "functions or rank features of Vespa"),
        (lambda: weights(float("nan")), "m.json", "solr", None, "NaN or infinite in float32, so nothing is written"),
        (lambda: weights(3.0).double(), "m 2.onnx", "vespa", None, "path must have a name of letters, digits"),
        (golden_trees, "m.json", "vespa", ["a", "pr\u00e9cis"], "functions or rank features of Vespa"),
        (
            lambda: golden_trees(1e300),
            "m.xml",
            "elasticsearch",
            None,
            "NaN or infinite in float32, so nothing is written",
        ),
        (lambda: golden_trees(1e300), "m.json", "solr", None, "NaN or infinite in float32, so nothing is written"),
        (lambda: weights(0.0), "m.json", "solr", None, "all weights of the scorer are 0"),
        (lambda: TreeScorer(2, 0, 0, 0, 0), "m.json", "solr", None, "0 trees, so nothing is written"),
        (lambda: deep_tree(1200), "m.json", "elasticsearch", None, "a tree has 1200 levels.*max_depth"),
        (lambda: golden_linear(), "m.json", "elasticsearch", ["a", " "], "none of them empty"),
        (lambda: rs.ContextScorer(2), "m.json", "solr", None, "depend on the other documents of the list"),
        (lambda: rs.ContextScorer(2), "m.onnx", "vespa", None, "depend on the other documents of the list"),
        (lambda: rs.models.KernelScorer(2, 3), "m.json", "solr", None, "a KernelScorer is neither linear"),
        (lambda: MLPScorer(2, normalize=True), "m.json", "solr", None, "layer norm"),
    ],
)
def test_what_a_format_cannot_say_leaves_no_file(make, path, engine, names, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        export_scorer(make(), tmp_path / path, engine, feature_names=names)
    assert not list(tmp_path.iterdir())


def test_cells_that_are_missing_only_at_serving_are_told_of(tmp_path):
    """Trees of LightGBM take one as 0 after the preparation, and Solr and RankLib before it."""
    pytest.importorskip("lightgbm")
    ranker = fitted(lambda: boosted(prepare=["quantile"]))
    for engine, suffix in (("solr", ".json"), ("opensearch", ".xml")):
        with pytest.warns(UserWarning, match="training had no missing cells: .* takes 0 for one in m"):
            ranker.export(tmp_path / f"m{suffix}", engine)
    X = draw(True, 300)
    ranker.export(path := tmp_path / "v.json", "vespa", feature_names=NAMES)  # has a side for them
    assert engine_scores(path, "vespa", X, NAMES) == pytest.approx(ranker.predict(X), abs=1e-5)
    fitted(boosted).export(tmp_path / "m.json", "solr")


def test_what_a_preparation_makes_impossible_says_what_to_train(tmp_path):
    pytest.importorskip("xgboost")
    for make, data, said in (
        (lambda: linear(["quantile"]), {}, "after the step 'quantile' have no normaliser.*BoostedRanker"),
        (lambda: boosted("xgboost", prepare=["bins:4"]), {}, "0 for a missing cell"),
        (lambda: linear(["standardize"]), MISSING, "missing cells become medians with an indicator.*BoostedRanker"),
    ):
        with pytest.raises(ValueError, match=said):
            fitted(make, **data).export(tmp_path / "m.json", "solr")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_and_checks(tmp_path, capsys):
    scorer = golden_linear()
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    (tmp_path / "a.txt").write_text("1 qid:1 1:0.5 2:3\n0 qid:1 1:-2 2:7\n")
    given = [str(tmp_path / "scorer.pt"), "--engine", "solr", "--output", str(tmp_path / "m.json")]
    assert cli.main(["export", *given, "--check", str(tmp_path / "a.txt"), "--feature-names", "bm25,age"]) == 0
    said = capsys.readouterr().out
    assert f"written: {tmp_path / 'm.features.json'}" in said
    assert "largest difference of 2 scores: " in said
    content = torch.load(tmp_path / "scorer.pt", weights_only=True)
    content["state_dict"]["scorer.of_another_version"] = torch.zeros(2)
    torch.save(content, tmp_path / "other.pt")
    assert (
        cli.main(["export", str(tmp_path / "other.pt"), "--engine", "solr", "--output", str(tmp_path / "o.json")]) == 1
    )
    assert "that cannot be built: Error(s) in loading state_dict" in capsys.readouterr().err
    assert not list(tmp_path.glob("o.*"))
    assert cli.main(["export", *given, "--feature-names", "bm25"]) == 1
    assert "feature_names must be 2 different names" in capsys.readouterr().err.replace(
        "--feature-names", "feature_names"
    )
