"""Files of scorers for search engines: Elasticsearch, OpenSearch, Solr, Vespa, and ONNX.

The engine and the suffix of the file choose the format. `rankstruct.models.portable` folds the preparation in, so a format is a
short writer here, and a short reader in `rankstruct.models.engine_scores`, with which files are checked.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from rankstruct.checks import check_choice
from rankstruct.files import whole_file, write_text
from rankstruct.messages import import_extra
from rankstruct.models.portable import Layers, Trees, portable
from rankstruct.models.scorers import ONNX_TREES, PreparedScorer, ProbabilityScorer, names_of_features

__all__ = ["ENGINES", "export_scorer"]

#: The suffixes of files for each engine; "onnx" is any program that runs ONNX.
ENGINES: dict[str, tuple[str, ...]] = {
    "elasticsearch": (".json", ".xml", ".txt"),
    "opensearch": (".json", ".xml", ".txt"),
    "solr": (".json",),
    "vespa": (".json", ".onnx"),
    "onnx": (".onnx",),
}
_SLACK = np.float32(1e-6)  # which Solr adds to thresholds
_FUNCTION = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_RANK_FEATURE = re.compile(r"[A-Za-z_]\w*\([\w.,]*\)(\.\w+)*", re.ASCII)


def export_scorer(
    scorer: nn.Module, path: str | Path, engine: str = "onnx", *, feature_names: Sequence[str] | None = None
) -> list[Path]:
    """Write a scorer for a search engine, and the features that it expects; returns the files.

    Engines compute features in float32, and so are the scores of the file those of float32 features.

        elasticsearch, opensearch   `.json` is the request that creates the model: `model/linear`, with normalisers, or, of trees,
                                    `model/xgboost+json`. `.xml` and `.txt` are RankLib's files, of trees and of linear models
        solr                        `.json`: LinearModel, MultipleAdditiveTreesModel or NeuralNetworkModel, with normalisers
        vespa                       `.json`: trees as XGBoost writes them; `.onnx`: any scorer that does not depend on the list
        onnx                        `.onnx`: features `[lists, documents, d]` to scores; trees are one node

    The features are in `NAME.features.json`, a feature set or a feature store, or in `NAME.profile`, a rank profile of Vespa;
    NAME, of the file, names the model. They are templates: say there how the engine finds each feature.

    Args:
        scorer: of raw features, as from `ranker.to_scorer()` or `load_scorer`.
        path: the file, with one of the suffixes of the engine.
        engine: one of `ENGINES`.
        feature_names: the names of the features in the engine, in order; those of training if None, or `feature_1` and so on.

    Raises:
        ValueError: an unknown engine or suffix; names that are not unique, or not names in the engine; NaN weights, or no trees;
            or a scorer that the format cannot say, with the reason and the nearest model that it can. No file is written.
        ImportError: ONNX is not installed.

    >>> import tempfile
    >>> from rankstruct.models import LinearScorer
    >>> scorer = LinearScorer(2)
    >>> _ = nn.init.ones_(scorer.linear.weight)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file.name for file in export_scorer(scorer, f"{folder}/ranker.json", "solr", feature_names=["bm25", "age"])]
    ['ranker.json', 'ranker.features.json']
    """
    path = Path(path)
    _check_target(path, engine)
    if not isinstance(scorer, nn.Module):
        raise TypeError(f"scorer must be a torch module, such as ranker.to_scorer(), got {type(scorer).__name__}")
    names = features_of(scorer, engine, feature_names)
    if path.suffix == ".onnx":
        if engine == "vespa" and getattr(scorer, "by_list", False):
            portable(scorer)  # raises the error
        with whole_file(path, "wb") as file:
            file.write(_onnx(scorer, len(names), flat=engine == "vespa"))
        return [path] if engine == "onnx" else [path, _write_features(path, engine, names, False)]
    model = portable(scorer)
    text = _WRITERS[path.suffix if engine in ("elasticsearch", "opensearch") else engine](model, path.stem, names)
    aware = isinstance(model, Trees) and _tells_missing(model, path, engine)
    features = _write_features(path, engine, names, aware)
    write_text(path, text)
    return [path, features]


def _tells_missing(trees: Trees, path: Path, engine: str) -> bool:
    """Whether the engine must tell missing cells from 0; warns if they are the same to it, and not to the trees."""
    aware = not trees.missing_is_zero()
    has_side = aware or (engine != "solr" and path.suffix == ".json")
    if not has_side and not trees.sends_missing_as_zero():
        warnings.warn(
            f"training had no missing cells: {engine} takes 0 for one in {path.name}, before the preparation, and predict after "
            "it; so scores of documents with missing cells differ, unless the engine fills them",
            stacklevel=4,
        )
    return aware


def _check_target(path: Path, engine: str) -> None:
    check_choice("engine", engine, ENGINES)
    if path.suffix not in ENGINES[engine]:
        raise ValueError(
            f"path must end with {' or '.join(ENGINES[engine])} for {engine}, which chooses the format, got {str(path)!r}"
        )
    if engine == "vespa" and not re.fullmatch(r"[\w.-]+", path.name, re.ASCII):
        raise ValueError(f"path must have a name of letters, digits, '_', '.' and '-' for vespa, got {path.name!r}")


def features_of(scorer: nn.Module, engine: str, given: Sequence[str] | None) -> list[str]:
    """The names of the features in an engine: `given` ones, those of training, or numbers; raises ValueError for wrong ones."""
    scorer = scorer.scorer if isinstance(scorer, ProbabilityScorer) else scorer
    inner: Any = scorer
    d: int | None = None
    while d is None:
        of = inner.preparation if isinstance(inner, PreparedScorer) else inner
        d = getattr(of, "num_features", None)
        inner = inner.scorer if isinstance(inner, PreparedScorer) else inner.scorers[0] if d is None else inner
    found = names_of_features(scorer, d, given)
    if engine == "vespa":
        for name in found:
            if not (_FUNCTION.fullmatch(name) or _RANK_FEATURE.fullmatch(name)):
                raise ValueError(
                    f"feature_names must be functions or rank features of Vespa, such as price or bm25(title), got {name!r}; "
                    "pass others"
                )
    return found


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _single(value: Any) -> float:
    """A number whose shortest decimal form is read as the same float32 number."""
    return float(str(np.float32(value)))


def _next(value: np.float32) -> np.float32:
    """The next float32 number above, or the largest finite one."""
    return value if value == np.finfo(np.float32).max else np.nextafter(value, np.float32(np.inf))


def _children(
    trees: Trees, node: int, leaf: Callable[[int, float], Any], split: Callable[..., Any], depth: int = 0
) -> Any:
    """A tree of dictionaries or text, of `leaf(node, value)` and `split(node, depth, left, right)`."""
    if trees.feature[node] < 0:
        return leaf(node, _single(trees.value[node]))
    below = (_children(trees, trees.left[node] + side, leaf, split, depth + 1) for side in (0, 1))
    return split(node, depth, *below)


def _xgboost(trees: Trees, names: Sequence[str]) -> str:
    """XGBoost's dump: a document goes to "yes" if its feature is less than the condition."""

    def tree(root: int) -> dict[str, Any]:
        def split(node: int, depth: int, yes: dict[str, Any], no: dict[str, Any]) -> dict[str, Any]:
            condition = _next(trees.threshold[node])
            return {
                "nodeid": int(node - root),
                "depth": depth,
                "split": names[trees.feature[node]],
                "split_condition": float(condition),  # exact, since Vespa may compare in float64
                "yes": yes["nodeid"],
                "no": no["nodeid"],
                "missing": (yes if trees.missing_left[node] else no)["nodeid"],
                "children": [yes, no],
            }

        found: dict[str, Any] = _children(
            trees, root, lambda node, value: {"nodeid": int(node - root), "leaf": value}, split
        )
        return found

    return _json([tree(root) for root in trees.roots])


def _ranklib_xml(model: Layers | Trees, name: str, names: Sequence[str]) -> str:
    """RankLib's ensemble; features are numbers from 1, and a missing one is 0."""
    if not isinstance(model, Trees):
        raise ValueError("a file .xml of RankLib has trees, got a linear model or an MLP; write .txt or .json")
    if not model.missing_is_zero():
        raise ValueError(
            "the trees send missing cells to a side of their own, and RankLib takes 0 for them; write .json, XGBoost's format, "
            "which has that side, or fill missing cells with 0 before training"
        )

    def split(node: int, depth: int, left: str, right: str) -> str:
        number, threshold = model.feature[node] + 1, _single(model.threshold[node])
        return (
            f"<feature>{number}</feature><threshold>{threshold}</threshold>"
            f'<split pos="left">{left}</split><split pos="right">{right}</split>'
        )

    trees = [_children(model, root, lambda _, value: f"<output>{value}</output>", split) for root in model.roots]
    lines = [f'<tree id="{at + 1}" weight="1.0"><split>{tree}</split></tree>' for at, tree in enumerate(trees)]
    return "\n".join(["## LambdaMART", f"## No. of trees = {len(trees)}", "", "<ensemble>", *lines, "</ensemble>", ""])


def _linear(model: Layers | Trees) -> tuple[np.ndarray, float]:
    """Weights of standardised features and a constant."""
    if isinstance(model, Trees) or len(model.layers) > 1:
        way_out = "an MLP, for which the plugins have no format; train LinearRanker() or BoostedRanker(), or use Solr"
        way_out = "trees; write .json or .xml" if isinstance(model, Trees) else way_out
        raise ValueError(f"expected a linear model for this file, got {way_out}")
    (weights, bias), *_ = model.layers
    return weights[0], float(bias[0])


def _ranklib_text(model: Layers | Trees, name: str, names: Sequence[str]) -> str:
    """RankLib's linear regression, in float64; feature 0 is the constant."""
    weights, constant = _linear(model)
    assert isinstance(model, Layers)
    raw = weights / model.deviation
    pairs = [(0, constant - float(raw @ model.mean)), *enumerate(raw.tolist(), 1)]
    return "## Linear Regression\n## Lambda = 0.0\n" + " ".join(f"{at}:{float(value)!r}" for at, value in pairs) + "\n"


def _plugin_json(model: Layers | Trees, name: str, names: Sequence[str]) -> str:
    """The request that creates a model in the plugins of Elasticsearch and OpenSearch."""
    if isinstance(model, Trees):
        made: dict[str, Any] = {"type": "model/xgboost+json", "definition": _xgboost(model, names)}
    else:
        weights, constant = _linear(model)
        mean, at = model.mean.copy(), int(np.abs(weights).argmax())
        mean[at] -= constant * model.deviation[at] / weights[at]  # the format has no constant
        norms = zip(names, mean, model.deviation, strict=True)
        made = {
            "type": "model/linear",
            "definition": _json(dict(zip(names, map(_single, weights), strict=True))),
            "feature_normalizers": {
                name: {"standard": {"mean": _single(m), "standard_deviation": _single(s)}} for name, m, s in norms
            },
        }
        if not mean.any() and (model.deviation == 1).all():
            del made["feature_normalizers"]
    return _json({"model": {"name": name, "model": made}})


def _solr(model: Layers | Trees, name: str, names: Sequence[str]) -> str:
    """A model of Solr's module for learning to rank; a linear one with a constant is a network of one layer."""
    features: list[dict[str, Any]] = [{"name": each} for each in names]
    params: dict[str, Any]
    if isinstance(model, Trees):
        aware = not model.missing_is_zero()

        def split(node: int, depth: int, left: Any, right: Any) -> dict[str, Any]:
            side = {"missing": "left" if model.missing_left[node] else "right"} if aware else {}
            threshold = str(_before_slack(model.threshold[node]))
            return {"feature": names[model.feature[node]], "threshold": threshold, **side, "left": left, "right": right}

        trees = [_children(model, root, lambda _, value: {"value": str(value)}, split) for root in model.roots]
        kind, params = "MultipleAdditiveTreesModel", {"trees": [{"weight": "1.0", "root": tree} for tree in trees]}
        params |= {"isNullSameAsZero": False} if aware else {}  # whose setter takes no text
    else:
        for each, m, s in zip(features, model.mean, model.deviation, strict=True):
            if m or s != 1:
                norm = {"avg": str(np.float32(m)), "std": str(np.float32(s))}
                each["norm"] = {"class": "org.apache.solr.ltr.norm.StandardNormalizer", "params": norm}
        first, bias = model.layers[0]
        if len(model.layers) == 1 and not bias[0]:
            kind, params = "LinearModel", {"weights": dict(zip(names, map(_single, first[0]), strict=True))}
        else:
            last = len(model.layers) - 1
            layers = [
                {
                    "matrix": [list(map(_single, row)) for row in weights],
                    "bias": list(map(_single, biases)),
                    "activation": "identity" if at == last else "relu",
                }
                for at, (weights, biases) in enumerate(model.layers)
            ]
            kind, params = "NeuralNetworkModel", {"layers": layers}
    made = {"class": f"org.apache.solr.ltr.model.{kind}", "store": name, "name": name}
    return _json(made | {"features": features, "params": params})


def _before_slack(threshold: np.float32) -> np.float32:
    """The number from which Solr makes a threshold, by adding its slack in float32: the threshold itself, or the next below."""
    found = np.float32(threshold - _SLACK)
    while np.float32(found + _SLACK) > threshold:
        found = np.nextafter(found, np.float32(-np.inf))
    while found < (above := _next(found)) and np.float32(above + _SLACK) <= threshold:
        found = above
    return found


def _vespa(model: Layers | Trees, name: str, names: Sequence[str]) -> str:
    if not isinstance(model, Trees):
        raise ValueError("a file .json for Vespa has trees, got a linear model or an MLP; write .onnx")
    return _xgboost(model, names)


_WRITERS: dict[str, Callable[[Layers | Trees, str, Sequence[str]], str]] = {
    ".json": _plugin_json,
    ".xml": _ranklib_xml,
    ".txt": _ranklib_text,
    "solr": _solr,
    "vespa": _vespa,
}


def _write_features(path: Path, engine: str, names: Sequence[str], missing: bool) -> Path:
    """Write the features that the model expects, as templates; `missing` ones are not 0."""
    found = path.with_suffix(".profile" if engine == "vespa" else ".features.json")
    if engine == "vespa":
        text = _rank_profile(path, names)
    elif engine == "solr":
        unknown = {"defaultValue": "NaN"} if missing else {}
        kind = "org.apache.solr.ltr.feature.FieldValueFeature"
        text = _json([{"store": path.stem, "name": n, "class": kind, "params": {"field": n, **unknown}} for n in names])
    else:
        language = {"params": ["keywords"], "template_language": "mustache"}
        features = [{"name": name, **language, "template": {"match": {name: "{{keywords}}"}}} for name in names]
        text = _json({"featureset": {"name": path.stem, "features": features}})
    write_text(found, text)
    return found


def _rank_profile(path: Path, names: Sequence[str]) -> str:
    name = re.sub(r"\W", "_", path.stem)
    functions = [
        f"    function {each}() {{ expression: attribute({each}) }}" for each in names if _FUNCTION.fullmatch(each)
    ]
    if path.suffix == ".onnx":
        listed = ", ".join(names)
        functions += [
            f"    function model_features() {{ expression: tensor<float>(d0[1],d1[{len(names)}]):[[{listed}]] }}",
            f"    onnx-model {name} {{\n        file: models/{path.name}\n        input features: model_features",
            "        output scores: scores\n    }",
        ]
        score = f"sum(onnx({name}).scores)"
    else:
        score = f'xgboost("{path.name}")'
    lines = [f"rank-profile {name} inherits default {{", *functions]
    return "\n".join([*lines, f"    second-phase {{ expression: {score} }}", "}", ""])


def _onnx(scorer: nn.Module, d: int, *, flat: bool) -> bytes:
    """A program of ONNX, of features `[documents, d]` if `flat`, and `[lists, documents, d]` otherwise."""
    _, onnxscript = (import_extra(name, "serving") for name in ("onnx", "onnxscript"))
    if not hasattr(torch.onnx, "ops"):
        raise ImportError(
            "export_scorer writes ONNX with PyTorch 2.8 or later; upgrade torch, or call torch.onnx.export"
        )
    sizes = {0: torch.export.Dim.DYNAMIC} if flat else {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    example = torch.zeros(3, d) if flat else torch.zeros(2, 3, d)
    trees: list[Any] = []
    token = ONNX_TREES.set(trees)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's own deprecations
            made: Any = torch.onnx.export(
                scorer,
                (example,),
                dynamic_shapes=(sizes,),
                dynamo=True,
                verbose=False,
                input_names=["features"],
                output_names=["scores"],
            )
    finally:
        ONNX_TREES.reset(token)
    for node in made.model.graph:
        if node.op_type == "TreeEnsembleRegressor":
            (number,) = node.attributes["nodes_treeids"].as_ints()
            for name, values in trees[number].onnx_attributes().items():
                node.attributes[name] = onnxscript.ir.convenience.convert_attribute(name, values)
    content: bytes = made.model_proto.SerializeToString()
    return content
