"""Recommenders in files of rows, which any number of processes load, and indexes of their items for approximate search."""

from __future__ import annotations

import json
import os
import secrets
from inspect import signature
from pathlib import Path
from typing import Any, Literal, get_args

import joblib
import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from rankstruct.checks import check_choice, check_integers
from rankstruct.data import DataError
from rankstruct.files import whole_file, write_text
from rankstruct.messages import import_extra
from rankstruct.processes import Team, find_team
from rankstruct.recommenders.estimator import Recommender
from rankstruct.recommenders.factorization import MatrixFactorization, SplitFactorization
from rankstruct.recommenders.tables import check_enough

__all__ = ["item_index", "load_shards", "save_shards"]

_INDEX = "recommender.json"


def save_shards(model: Recommender, folder: str | os.PathLike[str]) -> None:
    """Save a fitted recommender, one safetensors file of rows a process, which all call this with the same folder.

    The folder is replaced at once, at the end: if a process is killed, an earlier model in it is still whole. Requires
    `pip install 'rankstruct[serving]'`.

    Args:
        model: the recommender, of one process or split over processes.
        folder: the folder, created if needed, which all processes see.

    Raises:
        ValueError: a model with `layers` or neighbours, which is not only tables.

    >>> import tempfile
    >>> model = Recommender(rank=2, max_epochs=1, neighbours=False).fit(["ann", "ann", "bob", "bob"], ["x", "y", "y", "z"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_shards(model, folder)
    ...     again = load_shards(folder)
    >>> bool((again.recommend("ann", k=1)[0] == model.recommend("ann", k=1)[0]).all())
    True
    """
    check_is_fitted(model)
    scorer, folder = model.scorer_, Path(folder)
    if type(scorer) not in (MatrixFactorization, SplitFactorization):
        raise ValueError(f"save_shards takes tables of factors alone, got a {type(scorer).__name__}; save it by joblib")
    team = scorer.item_factors.team
    token = team.hand_out(secrets.token_hex(4))
    files = [f"rows-{token}-{part + 1:05}-of-{team.world_size:05}.safetensors" for part in range(team.world_size)]
    weights = {name: values.cpu().contiguous() for name, values in scorer.state_dict().items()}
    with whole_file(folder / files[team.rank], "wb") as file:
        file.write(import_extra("safetensors.torch", "serving").save(weights))
    team.gathered(None)  # all files are there
    if team.rank == 0:
        kept = {name: value for name, value in vars(model).items() if name != "scorer_"}
        rest = f"rest-{token}.joblib"
        with whole_file(folder / rest, "wb") as file:
            joblib.dump((type(model), kept), file)
        options = {name: getattr(scorer, name) for name in signature(MatrixFactorization).parameters}
        write_text(folder / _INDEX, json.dumps({"options": options, "files": files, "rest": rest}, indent=2))
        for old in {*folder.glob("rows-*.safetensors"), *folder.glob("rest-*.joblib")} - {
            folder / name for name in (*files, rest)
        }:
            old.unlink()
    team.gathered(None)


def load_shards(folder: str | os.PathLike[str]) -> Recommender:
    """Load a recommender of `save_shards`, split over the processes of `torch.distributed` if there are several.

    All processes call this; each reads its rows alone, of however many files. In one process it is an ordinary recommender. Like
    joblib and pickle, this executes what is in the files: load only those you trust.

    Raises:
        DataError: no such model, or a file is missing or has other rows.
        ValueError: fewer users or items than processes.
    """
    folder, team = Path(folder), find_team()
    if not (folder / _INDEX).is_file():
        raise DataError(f"{folder}: expected a recommender of save_shards, got no {_INDEX}")
    index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    if missing := [name for name in (*index["files"], index["rest"]) if not (folder / name).is_file()]:
        raise DataError(
            f"{folder}: expected {len(index['files'])} files of rows, got none of the name {missing[0]}; copy all files of the "
            "folder, or save the model again"
        )
    options = index["options"]
    check_enough(team, options["num_users"], options["num_items"])
    scorer = MatrixFactorization(**options) if team.world_size == 1 else SplitFactorization(team, **options)
    for name, values in scorer.state_dict().items():
        _read_rows(folder, index["files"], name, values, getattr(scorer, name.partition(".")[0]))
    kind, kept = joblib.load(folder / index["rest"])
    model = kind()
    vars(model).update(kept)
    model.scorer_ = scorer.eval()
    return model


def _read_rows(folder: Path, files: list[str], name: str, values: torch.Tensor, table: Any) -> None:
    """Set the own rows of a table to those of files."""
    own, safe_open = table.own, import_extra("safetensors", "serving").safe_open
    for part, file_name in enumerate(files):
        theirs = Team(part, len(files)).share(table.total)
        first, last = max(own.start, theirs.start), min(own.stop, theirs.stop)
        if first >= last:
            continue
        with safe_open(folder / file_name, "pt") as file:
            rows = file.get_slice(name)
            if rows.get_shape() != [theirs.stop - theirs.start, values.shape[1]]:
                raise DataError(
                    f"{folder / file_name}: expected {name} of shape {[theirs.stop - theirs.start, values.shape[1]]}, got "
                    f"{rows.get_shape()}; save the model again"
                )
            values[first - own.start : last - own.start] = rows[first - theirs.start : last - theirs.start]


def item_index(
    model: Recommender, kind: Literal["flat", "hnsw"] = "flat", *, links: int = 32, search: int = 256, build: int = 200
) -> Any:
    """An index of faiss of the item vectors by their inner products, for `Recommender.recommend(index=...)`.

    Its ids are the indices of the items with interactions. Requires `pip install 'rankstruct[faiss]'`; save it by
    `faiss.write_index`. After another fit, build another one.

    Args:
        model: a fitted recommender with vectors, in one process.
        kind: `"flat"`, exact, or `"hnsw"`, approximate: a graph of near vectors.
        links: of an item in the graph.
        search: candidates of a search in the graph; more find more of the best items, in more time.
        build: candidates in building the graph.

    Raises:
        ImportError: faiss is not installed.
        ValueError: a model without vectors, or split over processes.

    Source: Malkov and Yashunin, "Efficient and Robust Approximate Nearest Neighbor Search Using Hierarchical Navigable Small
    World Graphs", IEEE Transactions on Pattern Analysis and Machine Intelligence 2020.
    """
    check_choice("kind", kind, get_args(Literal["flat", "hnsw"]))
    check_integers(1, links=links, search=search, build=build)
    check_is_fitted(model)
    faiss, items = import_extra("faiss", "faiss"), model.vectors_to_index()
    if kind == "flat":
        index = faiss.IndexFlatIP(items[1].shape[1])
    else:
        index = faiss.IndexHNSWFlat(items[1].shape[1], links, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = build, search
    found = faiss.IndexIDMap(index)
    found.add_with_ids(np.ascontiguousarray(items[1], np.float32), items[0])
    return found
