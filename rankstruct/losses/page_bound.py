"""The hinge of `rankstruct.constraints.page_bound` for the lists of a loss."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rankstruct.constraints.page_bound import NoPage, PageBound, PageWorth
from rankstruct.constraints.pages import PageRules
from rankstruct.feature_maps import Positional
from rankstruct.kernels.dispatch import discount_table
from rankstruct.lists import Lists, is_eager, longest_list, real_documents
from rankstruct.losses.checks import check_values
from rankstruct.measures import RR, Measure
from rankstruct.messages import warn_caller
from rankstruct.oracles.pages import OnPage
from rankstruct.oracles.positional import gains_of, rank_tables
from rankstruct.oracles.registry import MostViolated, Resolved

_WIDEST = 1e301  # as `widest` in page_hinge.hpp


@torch.no_grad()
def bounded_hinges(resolved: Resolved, rules: PageRules, reference: str, scores: Tensor, lists: Lists) -> MostViolated:
    """The hinge of each list under rules about several prefixes, or groups that overlap, or an upper bound, with a warning.

    Args:
        resolved: what `paged` returned.
        rules: of the loss.
        reference: `"ideal"`, `"ideal-tied"` or `"predicted"`.
        scores, lists: checked; `lists.diversity_groups` are packed groups.

    Raises:
        ValueError: a list of which no page keeps the rules, with its number and the rules in conflict; scores
            that torch traces.
    """
    kind, feature_map = resolved.measure, resolved.feature_map
    assert isinstance(kind, OnPage)
    assert isinstance(feature_map, Positional)
    measure = kind.plain
    if not is_eager(scores):
        raise ValueError("rules about several prefixes have no loss in torch.compile and torch.func; call it eagerly")
    lists = resolved.checked(scores, lists, reference)
    check_values(scores, lists, measure.takes_negative_labels)
    gains = gains_of(measure, lists.labels).cpu().numpy().reshape(-1)
    longest = scores.shape[-1] if lists.offsets is None else longest_list(lists.offsets, scores.shape[0])
    bound = _bound(measure, feature_map, longest, rules.length, reference)
    known = scores.detach().double().cpu().numpy().reshape(-1)
    chosen = known if lists.reference_scores is None else lists.reference_scores.double().cpu().numpy().reshape(-1)
    assert lists.diversity_groups is not None
    groups = lists.diversity_groups.long().cpu().numpy().reshape(-1)
    rows, offsets = real_documents(scores, lists)
    places, many = rows.numpy(), len(offsets) - 1
    numbers, direction = np.zeros((3, many)), np.zeros(len(known))
    for index in np.flatnonzero(np.diff(offsets)):
        here = places[offsets[index] : offsets[index + 1]]
        with np.errstate(over="ignore"):
            if not np.ptp(known[here]) * max(bound.worth.decay.max(initial=1.0), 1.0) < _WIDEST:
                raise ValueError(f"scores of list {index} are too far apart. Scale them down")
        try:
            found = bound.of_list(known[here], gains[here], chosen[here], rules.of_list(groups[here]))
        except NoPage as error:
            raise ValueError(f"no ranking of list {index} keeps {error}") from None
        numbers[:, index] = found.task_loss, found.value, found.gap
        direction[here] = found.direction
    _warn_of_bounds(numbers[2])
    task_loss, value = (torch.from_numpy(each).to(scores).reshape(lists.shape()) for each in numbers[:2])
    return MostViolated(task_loss, value, torch.from_numpy(direction).to(scores).reshape(scores.shape))


def _warn_of_bounds(gaps: np.ndarray) -> None:
    if unsure := int((gaps > 0).sum()):
        warn_caller(
            f"the loss of {unsure} of {len(gaps)} lists is an upper bound, by at most {gaps.max():.3g} above the hinge: its most "
            "violated page was not found"
        )


def _bound(measure: Measure, feature_map: Positional, longest: int, length: int, reference: str) -> PageBound:
    size = max(min(longest, length), 1)
    decay, discount = (discount_table(each, size) for each in rank_tables(measure, feature_map, torch.empty(size)))
    ranks = int(np.count_nonzero(discount))
    kind = bool(getattr(measure, "normalized", False)), isinstance(measure, RR)
    return PageBound(length, PageWorth(decay[:ranks], discount[:ranks], *kind), reference)
