"""Ratings on which the papers' comparators are tested."""

from collections.abc import Callable

import numpy as np
import torch

from rankstruct.measures import evaluate
from rankstruct.recommenders import Ratings, synthetic_ratings, weak_split


def tiny() -> Ratings:
    """Three users of which the last rated nothing, four items of which the last was never rated."""
    return Ratings.from_arrays(
        ["a", "a", "a", "b", "b"], ["w", "x", "y", "y", "x"], [5, 1, 3, 4, 2], scale="stars",
        user_names=np.array(["a", "b", "c"]), item_names=np.array(["w", "x", "y", "z"]),
    )  # fmt: skip


def planted() -> tuple[Ratings, Callable[[torch.nn.Module], float]]:
    """The training part of planted ratings, and a function from a scorer to its nDCG@10 on the rest."""
    split = weak_split(synthetic_ratings(users=200, items=60, rank=2, rated=40), 20)
    lists = split.test.to_lists()

    def value(scorer: torch.nn.Module) -> float:
        scores = scorer(torch.from_numpy(lists.features))
        labels, offsets = torch.from_numpy(lists.labels), torch.from_numpy(lists.offsets)
        return float(evaluate(scores, labels, "nDCG@10", offsets=offsets)["nDCG@10"].mean())

    return split.train, value
