"""How far is a run of SGD from the optimum? Its objective beside a certified lower bound; and whether a loss learns at all."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import nn

from rankstruct.data import RankingData, Source
from rankstruct.estimators import LinearRanker
from rankstruct.files import whole_file
from rankstruct.losses import is_convex
from rankstruct.models import LinearScorer, load_scorer
from rankstruct.solvers import Solution
from rankstruct.tables import format_table


@dataclass(frozen=True)
class Certificate:
    """What is known about a linear scorer's objective.

    Attributes:
        objective: of the scorer, over all training lists.
        lower_bound: no linear scorer has a lower one.
        optimum: the lowest that was found.
        gap: `(objective - lower_bound) / |objective|`.
        distance: ||w - w*|| / ||w*||, to the best weights that were found.
    """

    objective: float
    lower_bound: float
    optimum: float
    gap: float
    distance: float


def certify(
    scorer: nn.Module, loss: nn.Module, data: RankingData, regularization: float, *, tolerance: float = 1e-3
) -> tuple[Certificate, Solution]:
    """Compare a linear scorer with the optimum of `regularization / 2 ||w||^2 + mean loss`.

    Args:
        scorer: trained by whatever means.
        loss: a convex loss.
        data: the training lists, with groups for a loss over diverse rankings; those with equal labels alone do not count, as
            in training.
        regularization: lambda, above 0.
        tolerance: relative gap of the optimum.

    Returns:
        The certificate and the solution that it rests on.

    Raises:
        ValueError: the scorer is not linear, the loss not convex, or lambda not above 0.
    """
    if not isinstance(scorer, LinearScorer):
        raise ValueError(f"only a LinearScorer has a certified optimum, got {type(scorer).__name__}")
    if not is_convex(loss):
        raise ValueError(f"a lower bound needs a convex loss; {type(loss).__name__} with these options is not")
    if not regularization > 0:
        raise ValueError(f"a certified optimum needs regularization > 0, got {regularization}")
    qid = data.list_numbers
    w = scorer.linear.weight.detach().double().numpy()[0]
    ranker = LinearRanker(loss=loss, C=1 / regularization, tolerance=tolerance)
    ranker.fit(data.features, data.labels, qid, groups=data.groups)
    best = ranker.solution_
    objective = ranker.objective(w, data.features, data.labels, qid, groups=data.groups)
    bound = min(best.lower_bound, objective)
    norm = float(np.linalg.norm(best.w))
    return Certificate(
        objective,
        bound,
        min(best.objective, objective),
        (objective - bound) / abs(objective) if objective else 0.0,
        float(np.linalg.norm(w - best.w)) / norm if norm else float(np.linalg.norm(w)),
    ), best


def health_check(ranker: LinearRanker, X: Any, y: Any, qid: Any, *, groups: Any = None) -> str:
    """Whether a fitted ranker's (measure, feature map) pair learns from these data, in a sentence or two with advice.

    A convex bound can be lowest at or near w = 0, where all documents tie: the objective is then that of w = 0, whatever C,
    and raising C does not help. Reciprocal rank with the first-relevant map and the positional map's convex bound are known for
    it.

    Args:
        ranker: fitted on these documents.
        X: `[documents, d]`, as in `fit`.
        y: `[documents]`.
        qid: `[documents]`.
        groups: `[documents]`, where the ranker was fitted with some.

    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(100, 2)), np.repeat(np.arange(10), 10)
    >>> y = (X[:, 0] > 1).astype(int)
    >>> health_check(LinearRanker("AP").fit(X, y, qid), X, y, qid)
    'learning: the objective is 11 % of that at w = 0'
    """
    at_zero = ranker.mean_loss(np.zeros(len(ranker.coef_)), X, y, qid, groups=groups)
    share = ranker.solution_.objective / at_zero if at_zero else 1.0
    if share < 0.99:
        return f"learning: the objective is {share:.0%} of that at w = 0".replace("%", " %")
    advice = "another feature map (pairwise), reference='predicted' with its regression start, or a CombinedLoss with AP or AUC"
    if share < 1 - 1e-6:
        return (
            f"barely learning: the objective is {share:.2%} of that at w = 0 with C = {ranker.C_:g}; try a larger C, or {advice}"
        ).replace("%", " %")
    return f"stuck at w = 0, where the objective is lowest for C = {ranker.C_:g}; a larger C may not help; try {advice}"


def certify_run(run: str | Path, *, tolerance: float = 1e-3) -> Certificate:
    """`certify` for the best checkpoint of a training run's folder.

    Raises:
        ValueError: the folder holds no run, or one that has no certified optimum.
    """
    folder = Path(run)
    if not (folder / "config.yaml").is_file():
        raise ValueError(f"{folder} holds no run: there is no config.yaml")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    model, data = config["model"], config["data"]
    if data.get("max_list_size") is not None:
        raise ValueError("the run sampled its training lists (data.max_list_size), so its objective is another one")
    if model.get("regularize_towards", "zero") != "zero":
        raise ValueError("the run is regularised towards its start; a certificate is for w0 = 0")
    names = {entry.name for entry in fields(Source)} - {"seed"}
    given = {name: data[name] for name in names if name in data}
    train = Source(**given, seed=int(config["seed_everything"])).read().train  # the seeds are linked
    loss = _build_loss(model["loss"])
    return certify(load_scorer(folder), loss, train, model["regularization"], tolerance=tolerance)[0]


def _build_loss(spec: dict[str, Any] | None) -> nn.Module:
    import jsonargparse

    from rankstruct.losses import StructuredHingeLoss

    if spec is None:
        return StructuredHingeLoss("AP")
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(nn.Module, "loss")
    found = parser.instantiate_classes(parser.parse_object({"loss": spec}))
    loss: nn.Module = found.loss
    return loss


def main(args: Sequence[str]) -> int:
    """`rankstruct certify`: print the table, write `certificate.json` into the run's folder."""
    parser = argparse.ArgumentParser(
        prog="rankstruct certify",
        description="Compare a run's linear scorer with the optimum of its convex objective, found to a certified gap.",
    )
    parser.add_argument("--run", required=True, help="folder of a training run")
    parser.add_argument(
        "--tolerance", type=float, default=1e-3, help="relative gap of the optimum (default: %(default)s)"
    )
    options = parser.parse_args(args)
    torch.set_num_threads(1)
    try:
        found = certify_run(options.run, tolerance=options.tolerance)
    except (ValueError, OSError) as error:
        print(f"rankstruct certify: {error}", file=sys.stderr)
        return 1
    rows: list[list[object]] = [
        ["objective of the run", found.objective],
        ["lowest objective found", found.optimum],
        ["certified lower bound", found.lower_bound],
        ["gap of the run", f"{found.gap:.2%}"],
        ["||w - w*|| / ||w*||", found.distance],
    ]
    print(format_table(["", "value"], rows))
    target = Path(options.run) / "certificate.json"
    with whole_file(target) as file:
        json.dump(found.__dict__, file, indent=2)
    print(f"written: {target}")
    return 0
