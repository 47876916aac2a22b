"""The most violated ranking of each list: one call for every measure and feature map that have an oracle."""

from __future__ import annotations

from torch import Tensor

from rankstruct.feature_maps import FeatureMap
from rankstruct.lists import as_offsets, check_lists
from rankstruct.measures import Measure
from rankstruct.oracles.registry import MostViolated, Reference, resolve

__all__ = ["most_violated"]


def most_violated(
    scores: Tensor,
    labels: Tensor,
    measure: str | Measure,
    *,
    feature_map: str | FeatureMap | None = None,
    reference: Reference | None = None,
    reference_scores: Tensor | None = None,
    groups: Tensor | None = None,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
) -> MostViolated:
    """The ranking with the highest task loss plus score, for each list: exact, by combinatorial search.

    Args:
        scores: `[..., list_size]`, or `[documents]` with `offsets`; any real numbers.
        labels: graded relevance, 0 or more, the shape of `scores`; below 0 where the measure's `min_relevant` says what that is.
        measure: a measure or its name; its regret is the task loss.
        feature_map: how a ranking scores; the measure's own default if None.
        reference: the ranking r* that `value` and `direction` are relative to: `"ideal"`, by label and input order;
            `"ideal-tied"`, of the best ones the one that F prefers; `"predicted"`, the one that F prefers of all. Where F prefers
            several, the one with the best documents first. `"below-window"`, for pAUC under the partial pairwise map: the most
            violated ranking of the area from 0 to `low`, and the result is that of the area from 0 to `high` less that, by the
            width of each (see `rankstruct.oracles.partial_auc`).
        reference_scores: scores that choose r* instead of `scores`, the shape of `scores`, for all references but the first: r*
            is then fixed, as a round of DC programming wants it.
        groups: integers, the shape of `scores`, for measures of diverse rankings such as `"diverse_nDCG@5"`: documents of a list
            with the same number are of one group. All rankings are then diverse ones. Other measures ignore it.
        where: bool, the shape of `scores`, True for a real document; all are if None. Padding may hold anything.
        offsets: int64 `[lists + 1]` or a list, for flat input: list i is `[offsets[i], offsets[i + 1])`.

    Returns:
        `MostViolated(task_loss, value, direction)` with the dtype and device of `scores`. A list that no ranking can get
        wrong (one document, nothing relevant or nothing irrelevant, only padding) has zeros everywhere.

    Raises:
        TypeError, ValueError: types or shapes do not fit; the pair has no oracle, or needs groups; on the CPU, a score or label
            that is not finite, or a label below 0 (on other devices the list's loss and value are NaN, since reading it back
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
    return resolved.solve(scores, labels, where, offsets, resolved.reference(reference), reference_scores, groups)
