"""What a user writes, for type checkers: each line is checked by pyright (strict) and mypy, none is run."""

# What `mypy --strict` is for a user's file; the library's names are held to be exported in pyproject.toml.
# mypy: disallow-any-generics, disallow-subclassing-any, disallow-untyped-calls, disallow-untyped-defs
# mypy: disallow-untyped-decorators, warn-return-any, strict-equality, extra-checks

import numpy as np
import torch
from torch import Tensor
from typing_extensions import assert_type

import rankstruct as rs


class Margin(rs.RankingLoss):
    """A loss of one's own."""

    margin: float = 1.0

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
        return torch.where(where & (labels > 0), torch.relu(self.margin - scores), 0.0).sum(-1)


def train(features: Tensor, labels: Tensor) -> rs.LinearScorer:
    scorer = rs.LinearScorer(features.shape[-1])
    loss = rs.CombinedLoss([rs.StructuredHingeLoss("AP"), rs.SmoothLoss("nDCG@10", sigma=0.5)], weights=[1.0, 0.1])
    optimizer = torch.optim.Adam(scorer.parameters(), lr=0.1)
    value = assert_type(loss(assert_type(scorer(features), Tensor), labels), Tensor)
    value = value + assert_type(Margin(margin=2.0, reduction="sum")(scorer(features), labels), Tensor)
    value.backward()  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]  # torch's own
    optimizer.step()  # pyright: ignore[reportUnknownMemberType]
    found = assert_type(rs.evaluate(scorer(features), labels, ["AP", rs.nDCG(10)], ties="worst"), dict[str, Tensor])
    print(found["AP"].mean().item(), assert_type(rs.nDCG(10)(scorer(features), labels), Tensor))
    metric = rs.RankingMetric(["AP"], empty="skip")
    metric.update(scorer(features), labels)
    assert_type(metric.compute(), dict[str, Tensor])
    return scorer


def estimate(X: np.ndarray, y: np.ndarray, qid: np.ndarray) -> float:
    linear = assert_type(rs.LinearRanker("AP", C=[1.0, 10.0], reference="predicted").fit(X, y, qid), rs.LinearRanker)
    network = assert_type(rs.MLPRanker("AP").fit(X, y, qid), rs.MLPRanker)
    trees = assert_type(rs.BoostedRanker("AP", library="xgboost").fit(X, y, qid), rs.BoostedRanker)
    kernel = assert_type(rs.KernelRanker("AP").fit(X, y, qid), rs.KernelRanker)
    both = assert_type(rs.EnsembleRanker([linear, network, trees, kernel]).fit(X, y, qid), rs.EnsembleRanker)
    best = assert_type(rs.AutoRanker(time_budget=600).fit(X, y, qid), rs.AutoRanker)
    assert_type(best.score(X, y, qid), float)
    return both.score(X, y, qid) + float(linear.predict(X)[0]) + assert_type(linear.solution_.gap, float)


def look(scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
    worst = rs.most_violated(scores, labels, "nDCG@10", where=where, reference="ideal-tied")
    data = assert_type(rs.data.read_lists("train.txt"), rs.data.RankingData)
    print(worst.task_loss, data.features.shape, rs.load_scorer("runs/quickstart"))
    return rs.StructuredHingeLoss("RR@10", reduction="none")(scores, labels, where=where)


def mistaken() -> None:
    rs.StructuredHingeLoss("AP", reduction="median")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
