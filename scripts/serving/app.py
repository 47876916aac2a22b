"""A ranking service, as an example to start from: `POST /rank` takes the documents of one query and returns them ranked.

With `constraints`, such as `["seller <= 2 @ 10"]`, the ranking keeps these rules about the `groups` of the documents.

`POST /explain` takes them with the `ids` of two, and returns what each feature contributes to the difference of their scores.

SCORER=FOLDER uvicorn --app-dir scripts/serving --factory app:create_app

SCORER is a file of `rs.save_scorer`, or a folder of `rankstruct rank` or `rankstruct fit`. Features are in the order of training,
or named: then FEATURES lists the names in that order, separated by commas; a folder of `rankstruct rank` has them, and so has a
scorer trained on a table with categories. For such a scorer, a category is a string and a missing cell is null.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Discriminator, Field, FiniteFloat, Tag

import rankstruct as rs
from rankstruct.models import explain_scorer

Cell = FiniteFloat | str | None
Row = Annotated[list[Cell], Tag("row")]
Named = Annotated[dict[str, Cell], Tag("named")]
Features = Annotated[Row | Named, Discriminator(lambda given: "named" if isinstance(given, dict) else "row")]


class Document(BaseModel):
    """A document of the query, with its groups that rules are about, such as `{"seller": "ann"}`."""

    id: str
    features: Features
    groups: dict[str, str | int | None] = {}


class Documents(BaseModel):
    """The documents of a query, all in one request: a scorer may compare them with each other."""

    documents: Annotated[list[Document], Field(min_length=1, max_length=10_000)]


class Query(Documents):
    """The documents to rank, and rules that the ranking must keep."""

    constraints: Annotated[list[str], Field(max_length=100)] = []


class Pair(Documents):
    """The documents of the query, and two of them to compare."""

    ids: tuple[str, str]


class Contribution(BaseModel):
    """What a feature contributes to the score of the first document less that of the second; they sum to the difference."""

    feature: str
    values: tuple[Cell, Cell]
    contribution: float


class Ranked(BaseModel):
    """A document with its score; higher is better, and only comparable within the query."""

    id: str
    score: float


def create_app(scorer: str | Path | None = None, features: Sequence[str] | None = None) -> FastAPI:
    """Create the application; scorer and names of features are SCORER and FEATURES of the environment if None."""
    path = Path(os.environ["SCORER"] if scorer is None else scorer)
    model = rs.load_scorer(path)
    preparation = getattr(model, "preparation", None)
    columns = getattr(preparation, "columns", None)  # of a table with categories
    takes_missing = "encode" in getattr(preparation, "names", ())
    names = _names(path) if features is None else list(features)
    if columns is not None:
        names = columns.names
    app = FastAPI(title="Ranking")

    def numbers(query: Documents) -> np.ndarray:
        rows = [_row(document, names) for document in query.documents]
        if len({len(row) for row in rows}) > 1:
            raise HTTPException(422, "all documents need the same number of features")
        return _numbers(rows, takes_missing) if columns is None else _encoded(rows, columns)

    @app.post("/rank")
    def rank(query: Query) -> list[Ranked]:  # without `async`: runs in a thread, and others are answered meanwhile
        try:
            features = torch.tensor(numbers(query), dtype=torch.float32)
            with torch.inference_mode():
                scores = model(features)
            if not scores.isfinite().all():
                raise ValueError("features are far outside the range of the training data: scores are not finite")
            order = (
                _under(query, scores) if query.constraints else scores.argsort(descending=True, stable=True).tolist()
            )
        except ValueError as error:  # such as another number of features than in training, or rules in conflict
            raise HTTPException(422, str(error)) from error
        return [Ranked(id=query.documents[at].id, score=float(scores[at])) for at in order]

    @app.post("/explain")
    def explain(pair: Pair) -> list[Contribution]:
        ids = [document.id for document in pair.documents]
        if unknown := [each for each in pair.ids if ids.count(each) != 1]:
            raise HTTPException(
                422, f"ids must name two of the documents, got {unknown[0]!r} {ids.count(unknown[0])} times"
            )
        chosen = ids.index(pair.ids[0]), ids.index(pair.ids[1])
        try:
            features = numbers(pair).astype(np.float32)
            (why,) = explain_scorer(model, features, [chosen], feature_names=names)
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        found = zip(why.names, why.values, why.contributions.tolist(), strict=True)
        return [Contribution(feature=name, values=values, contribution=each) for name, values, each in found]

    @app.get("/health")
    def health() -> dict[str, Any]:
        return {"scorer": type(model).__name__, "features": names}

    return app


def _under(query: Query, scores: torch.Tensor) -> list[int]:
    """The documents shown, in order; raises ValueError if no ranking keeps the rules."""
    rules = rs.Constraints(query.constraints)
    if unknown := [name for name in rules.columns if not any(name in each.groups for each in query.documents)]:
        raise ValueError(f"the rules are about {unknown[0]!r}, and no document has such a group")
    columns = {name: [document.groups.get(name) for document in query.documents] for name in rules.columns}
    ranks = rs.rank_under(scores, rules, columns, time_limit=1.0)  # a good page in time, rather than the best one late
    return ranks.argsort(stable=True)[(ranks == 0).sum() :].tolist()


def _names(path: Path) -> list[str] | None:
    """The names of the features: those of the environment, or of the folder of `rankstruct rank`."""
    if given := os.environ.get("FEATURES"):
        return given.split(",")
    result = (path if path.is_dir() else path.parent) / "result.json"
    return json.loads(result.read_text(encoding="utf-8")).get("feature_names") if result.is_file() else None


def _encoded(rows: Sequence[Sequence[Cell]], columns: Any) -> np.ndarray:
    """The features for a scorer with categories; raises ValueError for cells of another kind than in training."""
    if len(rows[0]) != len(columns.names):
        raise ValueError(f"expected {len(columns.names)} features, got {len(rows[0])}")
    table = {}
    for name, cells in zip(columns.names, zip(*rows, strict=True), strict=True):
        table[name] = np.array(cells, object if any(isinstance(each, str) for each in cells) else np.float64)
    return columns.encode(table)


def _numbers(rows: Sequence[Sequence[Cell]], takes_missing: bool) -> np.ndarray:
    """The features for a scorer without categories; raises ValueError for strings and, unless it takes them, missing cells."""
    for cell in (each for row in rows for each in row):
        if isinstance(cell, str) or (cell is None and not takes_missing):
            raise ValueError(f"a feature should be a valid number, got {json.dumps(cell)[:50]}")
    return np.array(rows, np.float64)


def _row(document: Document, names: list[str] | None) -> list[Cell]:
    """The features of a document in the order of training."""
    given = document.features
    if isinstance(given, list):
        return given
    if names is None:
        raise HTTPException(422, "this scorer has no feature names; give features as a list, or set FEATURES")
    for what, wrong in (("lacks", set(names) - set(given)), ("has unknown", set(given) - set(names))):
        if wrong:
            raise HTTPException(422, f"document {document.id!r} {what} features: {', '.join(sorted(wrong))}")
    return [given[name] for name in names]
