"""The most violated ranking of each list, for every measure and feature map with an oracle."""

from __future__ import annotations

from torch import Tensor

from rankstruct.argument_names import knows_offsets
from rankstruct.feature_maps import FeatureMap
from rankstruct.lists import Lists, as_offsets, check_lists
from rankstruct.measures import Measure
from rankstruct.oracles.registry import MostViolated, Reference, resolve

__all__ = ["most_violated"]


@knows_offsets
def most_violated(
    scores: Tensor,
    labels: Tensor,
    measure: str | Measure,
    *,
    feature_map: str | FeatureMap | None = None,
    reference: Reference | None = None,
    reference_scores: Tensor | None = None,
    diversity_groups: Tensor | None = None,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
    item_weights: Tensor | None = None,
) -> MostViolated:
    """Find the ranking with the highest task loss plus score for each list: exact, by combinatorial search.

    Args:
        scores: `[..., list_size]`, or `[documents]` with `offsets`; any real numbers.
        labels: graded relevance, 0 or more, the shape of `scores`; negative only if the measure's `min_relevant` is 0 or less.
        measure: a measure or its name; its regret is the task loss.
        feature_map: defines the score F of a ranking; the measure's default if None.
        reference: the ranking r* that `value` and `direction` are relative to: `"ideal"`, by label and input order;
            `"ideal-tied"`, the best ranking with the highest F; `"predicted"`, the ranking with the highest F. Ties of F are
            resolved with the best documents first. `"below-window"`, for pAUC with the partial pairwise map: the most violated
            ranking of the area from 0 to `low`; the result is that of the area from 0 to `high` minus that one, each weighted by
            its width (see `rankstruct.oracles.partial_auc`).
        reference_scores: scores that determine r* instead of `scores`, the shape of `scores`, for all references except
            `"ideal"`: r* is then fixed, as in an iteration of DC programming.
        diversity_groups: integers, the shape of `scores`, for diversity measures such as `"diverse_nDCG@5"`: documents of a list
            with the same number are in one group. All rankings are then diverse. Ignored by other measures.
        where: bool, the shape of `scores`, True for a real document; all are real if None. Padding may have any value.
        offsets: int64 `[lists + 1]` or a list, for flat input: list i is `[offsets[i], offsets[i + 1])`.
        item_weights: the shape of `scores`, >= 0, the weight of each document in the measure; 0 leaves it out. With `AUC` the
            weight of a pair, in the measure and in the score of a ranking, is the product of its two weights; of discounted
            gains with the positional map and of R@k the gain of a document is multiplied. Other pairs raise TypeError.

    Returns:
        `MostViolated(task_loss, value, direction)` with the dtype and device of `scores`. A list whose rankings are all equally
        good (one document, nothing relevant or nothing irrelevant, only padding) has zeros everywhere.

    Raises:
        TypeError, ValueError: wrong types or shapes; the pair has no oracle, or requires groups; on the CPU, a score or label
            that is not finite, or a negative label (on other devices the list's loss and value are NaN, since reading them back
            would stall).

    Source: Tsochantaridis, Joachims, Hofmann, Altun, "Large Margin Methods for Structured and Interdependent Output
    Variables", JMLR 2005; each oracle names its own.

    >>> import torch
    >>> r = most_violated(torch.tensor([2.0, 0.5, 0.0]), torch.tensor([0, 1, 0]), "AP")
    >>> r.task_loss, r.value, r.direction
    (tensor(0.5000), tensor(2.), tensor([ 1., -1.,  0.]))
    """
    offsets = as_offsets(offsets)
    check_lists(scores, labels, where, offsets)
    resolved = resolve(measure, feature_map)
    lists = Lists(labels, where, offsets, reference_scores, diversity_groups, item_weights)
    lists = lists if item_weights is None else resolved.weighted(scores, lists)
    return resolved.solve(scores, lists, resolved.reference(reference))
