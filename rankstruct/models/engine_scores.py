"""The scores that an engine computes from a file of `export_scorer`, in its own arithmetic, for `rankstruct export --check`.

Written from the engines' parsers, and apart from the writers: nothing is shared but the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from rankstruct.messages import import_extra

_F = np.float32


def engine_scores(path: str | Path, engine: str, features: np.ndarray, names: list[str]) -> np.ndarray:
    """Scores `[documents]` of raw features `[documents, d]` with these names, by a file for an engine."""
    path, rows = Path(path), features.astype(_F)
    if path.suffix == ".onnx":
        return _onnx(path, rows, flat=engine == "vespa")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".xml":
        return _ranklib_xml(text, rows)
    if path.suffix == ".txt":
        return _ranklib_text(text, rows)
    content = json.loads(text)
    if engine == "solr":
        return _solr(content, rows, names)
    if engine == "vespa":
        return _xgboost(content, rows, names)
    model = content["model"]["model"]
    definition, norms = json.loads(model["definition"]), model.get("feature_normalizers", {})
    if model["type"] == "model/xgboost+json":
        return _xgboost(definition, rows, names)
    found = np.zeros(len(rows), _F)
    for name, values in zip(names, rows.T, strict=True):
        norm = norms.get(name, {}).get("standard")
        values = values if norm is None else (values - _F(norm["mean"])) / _F(norm["standard_deviation"])
        found += _F(definition.get(name, 0)) * values
    return found


def _xgboost(trees: list[Any], rows: np.ndarray, names: list[str]) -> np.ndarray:
    def score(node: dict[str, Any], at: np.ndarray) -> None:
        if "leaf" in node:
            found[at] += _F(node["leaf"])
            return
        values = rows[at, names.index(node["split"])]
        yes = np.where(np.isnan(values), node["missing"] == node["yes"], values < _F(node["split_condition"]))
        for child in node["children"]:
            score(child, at[yes == (child["nodeid"] == node["yes"])])

    found = np.zeros(len(rows), _F)
    for tree in trees:
        score(tree, np.arange(len(rows)))
    return found


def _ranklib_xml(text: str, rows: np.ndarray) -> np.ndarray:
    def score(node: Any, at: np.ndarray) -> None:
        if node.find("output") is not None:
            found[at] += weight * _F(node.find("output").text)
            return
        values = np.nan_to_num(rows[at, int(node.find("feature").text) - 1])
        left = values <= _F(node.find("threshold").text)
        for child in node.findall("split"):
            score(child, at[left == (child.get("pos") == "left")])

    found = np.zeros(len(rows), _F)
    for tree in ElementTree.fromstring(text[text.index("<ensemble>") :]):
        weight = _F(tree.get("weight"))
        score(tree.find("split"), np.arange(len(rows)))
    return found


def _ranklib_text(text: str, rows: np.ndarray) -> np.ndarray:
    (line,) = (line for line in text.splitlines() if line and not line.startswith("##"))
    weights = {int(at): float(value) for at, value in (pair.split(":") for pair in line.split())}
    wide = np.nan_to_num(rows).astype(np.float64)
    constant = weights.pop(0, 0.0)
    return constant + wide[:, np.array([*weights], np.int64) - 1] @ np.array([*weights.values()])


def _solr(model: dict[str, Any], rows: np.ndarray, names: list[str]) -> np.ndarray:
    params, order = model["params"], [each["name"] for each in model["features"]]
    rows = rows[:, [names.index(name) for name in order]].copy()
    for at, each in enumerate(model["features"]):
        if norm := each.get("norm"):
            rows[:, at] = (rows[:, at] - _F(norm["params"]["avg"])) / _F(norm["params"]["std"])
    kind = model["class"].rpartition(".")[2]
    if kind == "LinearModel":
        weights = np.array([params["weights"][name] for name in order], _F)
        return sum((rows[:, at] * weights[at] for at in range(len(order))), np.zeros(len(rows), _F))
    if kind == "NeuralNetworkModel":
        for layer in params["layers"]:
            rows = rows @ np.array(layer["matrix"], _F).T + np.array(layer["bias"], _F)
            rows = rows if layer["activation"] == "identity" else rows.clip(min=0)
        return rows[:, 0]
    zeros = params.get("isNullSameAsZero", True)
    if not isinstance(zeros, bool):
        raise ValueError(f"isNullSameAsZero must be true or false, which Solr's setter takes, got {zeros!r}")
    rows = np.nan_to_num(rows) if zeros else rows

    def score(node: dict[str, Any], at: np.ndarray) -> None:
        if "value" in node:
            found[at] += _F(node["value"]) * weight
            return
        values = rows[at, order.index(node["feature"])]
        left = values <= _F(_F(node["threshold"]) + _F(1e-6))
        left = np.where(np.isnan(values), node.get("missing") == "left", left)
        score(node["left"], at[left])
        score(node["right"], at[~left])

    found = np.zeros(len(rows), _F)
    for tree in params["trees"]:
        weight = _F(tree["weight"])
        score(tree["root"], np.arange(len(rows)))
    return found


def _onnx(path: Path, rows: np.ndarray, *, flat: bool) -> np.ndarray:
    (found,) = (
        import_extra("onnxruntime", "serving")
        .InferenceSession(path)
        .run(["scores"], {"features": rows if flat else rows[None]})
    )
    return np.asarray(found).ravel()
