"""Registry of the oracles of (measure, feature map) pairs, and of each measure's default map and reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from rankstruct.argument_names import refuse_groups_of_lists
from rankstruct.feature_maps import FeatureMap, parse_feature_map
from rankstruct.kernels import dispatch
from rankstruct.kernels.dispatch import CpuLists, Prepared
from rankstruct.lists import (
    Lists,
    check_groups,
    check_tensor,
    is_eager,
    longest_list,
    refuse_negative,
    without_weight_zero,
)
from rankstruct.measures import AP, RR, DiscountedGain, Diverse, Measure, Success, parse_measure, pAUC
from rankstruct.messages import needs_groups

__all__ = ["Explanation", "MostViolated", "Oracle", "explain_oracle", "register_oracle", "set_default_bound"]

Reference = Literal["ideal", "ideal-tied", "predicted", "below-window"]
REFERENCES = get_args(Reference)[:3]  # the last one is for partial ROC areas only
_WAY_OUT = (
    "subclass DiscountedGain for a measure that is discount times gain; otherwise train on another and monitor this one"
)


_MOST_PREPARED = 64  # list sizes cached per loss


class MostViolated(NamedTuple):
    """The most violated ranking r^ of each list, against the reference ranking r*.

    Attributes:
        task_loss: `[...]`, the measure of the best ranking minus that of r^.
        value: `[...]`, task_loss + F(r^) - F(r*), the structured hinge; never negative.
        direction: `[..., list_size]`, psi(r^) - psi(r*), the gradient of `value` with respect to the scores; for documents of
            equal label and score the mean over their orders, except for a fixed ideal ranking and diverse ones.

    >>> from rankstruct.oracles import most_violated
    >>> found = most_violated(torch.tensor([2.0, 0.5, 0.0]), torch.tensor([0, 1, 0]), "AP")
    >>> found.task_loss, found.value, found.direction
    (tensor(0.5000), tensor(2.), tensor([ 1., -1.,  0.]))
    """

    task_loss: Tensor
    value: Tensor
    direction: Tensor


@dataclass(frozen=True)
class Oracle:
    """An exact argmax for one kind of measure and one kind of feature map.

    Attributes:
        solve: `(scores, lists, measure, feature_map, reference)`, with the name of the reference, to
            `(task_loss, value, direction)`. `lists` has `labels`, `where` and `offsets`, `reference_scores` if given and
            `diversity_groups` if the measure requires them, otherwise None. Types and shapes have been checked, and `scores` is
            detached.
        explain: `(measure, feature_map, list_size, grades)` to an object with `name` and `cost`, in words.
        references: the references that `solve` supports: `ideal`, `ideal-tied`, `predicted`, `below-window`.
        takes_reference_scores: whether `solve` lets `lists.reference_scores` determine the reference instead of the scores.
        takes_item_weights: whether `solve` uses `lists.item_weights`, finite numbers above 0, for the measures that have
            a value with item weights; `lists` may then have both `where` and `offsets`.
        refuses_negative: whether `solve` itself rejects negative labels if the measure does not support them.
        prepare: `(measure, feature_map, reference, longest)` to a call of a compiled loop, for eager CPU lists of at most
            `longest` documents; with thresholds and weights too, for the sum of `solve_grades`. None if there is no such call.
        solve_grades: like `solve`, then thresholds of the labels, float64 and ascending, and their weights: the results
            with labels from each threshold on as relevant, summed. If None, as for a custom `solve`, thresholds are solved one
            by one, as they are with item weights unless `loops_take_item_weights`.
        loops_take_item_weights: whether the calls of `prepare`, and `solve_grades`, use item weights, if `solve` does.

    >>> from types import SimpleNamespace
    >>> def no_ranking(scores, lists, measure, feature_map, reference):  # a placeholder: returns the reference
    ...     return scores.new_zeros(len(scores)), scores.new_zeros(len(scores)), torch.zeros_like(scores)
    >>> oracle = Oracle(no_ranking, lambda *arguments: SimpleNamespace(name="none", cost="O(1)"))
    >>> oracle.references
    ('ideal',)
    """

    solve: Callable[..., tuple[Tensor, Tensor, Tensor]]
    explain: Callable[..., Any]
    references: tuple[str, ...] = ("ideal",)
    takes_reference_scores: bool = False
    takes_item_weights: bool = False
    refuses_negative: bool = False
    prepare: Callable[..., Prepared | None] | None = None
    solve_grades: Callable[..., tuple[Tensor, Tensor, Tensor]] | None = None
    loops_take_item_weights: bool = False


@dataclass(frozen=True)
class Resolved:
    """A measure, a compatible feature map and the oracle of the pair; `signed` is whether labels may be negative."""

    measure: Measure
    feature_map: FeatureMap
    oracle: Oracle
    signed: bool = field(init=False, repr=False, compare=False)
    _prepared: dict[tuple[str, int, int], Prepared | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "signed", self.measure.takes_negative_labels)  # once, and not at every step
        object.__setattr__(self, "_prepared", {})

    def __reduce__(self) -> tuple[Callable[..., Resolved], tuple[Measure, FeatureMap]]:
        # Oracles cannot be pickled; they are looked up in the registry when loaded.
        return resolve, (self.measure, self.feature_map)

    def prepared(self, reference: str, longest: int, grades: int = 0) -> Prepared | None:
        """`Oracle.prepare`, or for the sum over the whole grades up to `grades`; cached for recent list sizes."""
        key = reference, longest, grades
        if len(self._prepared) >= _MOST_PREPARED:
            self._prepared.clear()
        prepare, found = self.oracle.prepare, None
        if prepare is not None and not grades:
            found = prepare(self.measure, self.feature_map, reference, longest)
        elif prepare is not None and self.oracle.solve_grades is not None:
            thresholds = torch.arange(1, grades + 1, dtype=torch.float64)
            found = prepare(self.measure, self.feature_map, reference, longest, thresholds, torch.ones_like(thresholds))
        self._prepared[key] = found
        return found

    def by_loop(self, scores: Tensor, lists: Lists, reference: str, grades: int = 0) -> CpuLists | None:
        """`solve`, or the sum over the whole grades up to `grades`, by one call of a prepared loop, for eager lists on the CPU.

        None if there is no such loop or it refuses a number; `solve` then computes the result or raises the error.
        """
        if lists.reference_scores is not None or (lists.diversity_groups is not None) != self.measure.takes_groups:
            return None
        if lists.diversity_groups is not None:
            check_groups(lists.diversity_groups, scores)
        if lists.item_weights is not None and not self.oracle.loops_take_item_weights:
            return None
        if not (is_eager(scores) and dispatch.has_loops(scores.device) and scores.numel()):
            return None
        longest = scores.shape[-1] if lists.offsets is None else longest_list(lists.offsets, scores.shape[0])
        key = reference, longest, grades
        prepared = self._prepared[key] if key in self._prepared else self.prepared(*key)
        if prepared is None:
            return None
        batch = CpuLists(scores, lists, prepared.least_label, prepared.gains, longest)
        return batch if batch.run(prepared.call) == -1 else None

    @property
    def takes_item_weights(self) -> bool:
        """Whether documents may have weights: the measure has a value with them, and the oracle is exact."""
        return self.oracle.takes_item_weights and self.measure.takes_item_weights

    def refuse_item_weights(self) -> None:
        """Raise TypeError, with the reason and the nearest measure, unless documents may have weights."""
        if not self.takes_item_weights:
            pair = f"{self.measure.name} with the {self.feature_map.name} feature map"
            raise TypeError(f"this loss does not support item_weights: {pair} {_reason(self.measure)}")

    def weighted(self, scores: Tensor, lists: Lists) -> Lists:
        """`without_weight_zero`, if documents may have weights."""
        self.refuse_item_weights()
        return without_weight_zero(scores, lists)

    def reference(self, named: str | None) -> str:
        """The reference `named`, or the measure's default; raises ValueError unless the oracle supports it."""
        reference = _default(self.measure)[1] if named is None else named
        if named is None and reference not in self.oracle.references:
            return self.oracle.references[0]
        if reference not in self.oracle.references:
            known = ", ".join(map(repr, self.oracle.references))
            raise ValueError(
                f"reference must be one of {known} for {self.measure.name} with the {self.feature_map.name} feature map, "
                f"got {reference!r}"
            )
        return reference

    def solve(self, scores: Tensor, lists: Lists, reference: str) -> MostViolated:
        """`most_violated` for checked lists; measures that do not use groups ignore those of several lists."""
        lists = self.checked(scores, lists, reference)
        if not (self.signed or self.oracle.refuses_negative):
            lists = lists._replace(labels=refuse_negative(lists.labels, lists.where))
        return MostViolated(*self.oracle.solve(scores.detach(), lists, self.measure, self.feature_map, reference))

    def checked(self, scores: Tensor, lists: Lists, reference: str) -> Lists:
        """The lists as the oracle takes them, detached; raises TypeError or ValueError for wrong groups or reference scores."""
        labels, where, offsets, reference_scores, groups, item_weights, *_ = lists
        if self.measure.takes_groups:
            if groups is None:
                raise needs_groups(self.measure.name, "whole number per document, such as its host or topic")
            check_groups(groups, scores)
        elif groups is not None:
            if offsets is None:
                refuse_groups_of_lists(groups, scores.shape[:-1])
            groups = None
        if reference_scores is not None:
            reference_scores = self._checked_reference_scores(reference_scores, scores, reference)
        return Lists(labels.detach(), where, offsets, reference_scores, groups, item_weights)

    def _checked_reference_scores(self, reference_scores: Tensor, scores: Tensor, reference: str) -> Tensor:
        """`checked_reference_scores`, unless the reference or the oracle does not use them."""
        if reference == "ideal":
            raise ValueError(
                "reference 'ideal' does not depend on scores; use reference_scores with 'predicted' or 'ideal-tied'"
            )
        if not self.oracle.takes_reference_scores:
            raise ValueError(
                f"the oracle of {self.measure.name} with the {self.feature_map.name} feature map does not support "
                "reference_scores; see Oracle"
            )
        return checked_reference_scores(reference_scores, scores)


def checked_reference_scores(reference_scores: Tensor, scores: Tensor) -> Tensor:
    """Detach the reference scores; raises TypeError or ValueError if they do not match the scores."""
    check_tensor("reference_scores", reference_scores)
    if not reference_scores.dtype.is_floating_point:
        raise TypeError(f"reference_scores must be floating point, got {reference_scores.dtype}")
    if reference_scores.shape != scores.shape or reference_scores.device != scores.device:
        raise ValueError(
            f"reference_scores must have the shape and device of scores; got {tuple(reference_scores.shape)} on "
            f"{reference_scores.device} and {tuple(scores.shape)} on {scores.device}"
        )
    return reference_scores.detach()


_ORACLES: dict[tuple[type[Measure], type[FeatureMap]], Oracle] = {}
_DEFAULTS: dict[type[Measure], tuple[FeatureMap, str]] = {}


def register_oracle(
    measure: type[Measure], feature_map: type[FeatureMap], oracle: Oracle, *, default: str | None = None
) -> None:
    """Register the oracle of a measure class and a feature map class, replacing an earlier one.

    Args:
        measure: a measure class; also used for its subclasses unless they have their own oracle.
        feature_map: a feature map class.
        oracle: the oracle of the pair.
        default: a reference; it and this map (which must not require arguments) become the defaults of the measure.
    """
    _ORACLES[measure, feature_map] = oracle
    if default is not None:
        set_default_bound(measure, feature_map(), default)


def set_default_bound(measure: type[Measure], feature_map: FeatureMap, reference: str) -> None:
    """Set the default feature map and reference of a measure class and its subclasses.

    A reference that the oracle does not support raises an error when the bound is created.

    >>> import rankstruct as rs
    >>> set_default_bound(rs.AP, rs.Pairwise(), "ideal")
    """
    _DEFAULTS[measure] = feature_map, reference


def _default(measure: Measure) -> tuple[FeatureMap, str]:
    for kind in type(measure).__mro__:
        if kind in _DEFAULTS:
            return _DEFAULTS[kind]
    raise ValueError(f"{measure.name} has no oracle; available: {_listing()}; {_WAY_OUT}")


def _reason(measure: Measure) -> str:
    """Why an oracle does not support the item weights of documents, and what does, for errors."""
    if isinstance(measure, AP):
        return (
            "compares relevant documents with one another, and its oracle requires that they are interchangeable; the nearest "
            "are 'AUC', nDCG and DCG"
        )
    if isinstance(measure, RR | Success):
        return "depends on a single relevant document, so weights cannot add up; the nearest are 'DCG@1' and 'DCG@10'"
    if isinstance(measure, Diverse):
        return f"ranks one document of each group; the nearest is {measure.plain.name!r}, without groups"
    if isinstance(measure, DiscountedGain):
        return "requires that all relevant documents have one gain; use the positional map, feature_map='positional'"
    if isinstance(measure, pAUC):
        return "counts irrelevant documents to find its window; the nearest is 'AUC'"
    return "is not a sum over the relevant documents; the nearest are 'R@10', 'P@10' and 'DCG@10'"


def find_oracle(measure: Measure, feature_map: FeatureMap) -> Oracle:
    """The oracle of a pair; if there is none, raises ValueError with a list of the available ones.

    >>> import rankstruct as rs
    >>> find_oracle(rs.AP(), rs.Pairwise()).references
    ('ideal', 'ideal-tied', 'predicted')
    """
    for kind in type(measure).__mro__:
        oracle = _ORACLES.get((kind, type(feature_map)))
        if oracle is not None:
            return oracle
    raise ValueError(
        f"{measure.name} with the {feature_map.name} feature map has no oracle; available: {_listing()}; {_WAY_OUT}"
    )


def _listing() -> str:
    return ", ".join(sorted(f"{measure.__name__} with {kind.__name__}" for measure, kind in _ORACLES))


def resolve(measure: str | Measure, feature_map: str | FeatureMap | None = None) -> Resolved:
    """Resolve measure, feature map and oracle from user input; raises ValueError if they are incompatible."""
    measure = parse_measure(measure)
    feature_map = _default(measure)[0] if feature_map is None else parse_feature_map(feature_map)
    return Resolved(measure, feature_map, find_oracle(measure, feature_map))


class Explanation(NamedTuple):
    """Method and cost of an oracle, in words; n documents, p relevant and m irrelevant, L grades, cut-off k.

    >>> explain_oracle("AP").cost
    'O(n log n)'
    """

    method: str
    cost: str


def explain_oracle(
    measure: str | Measure, feature_map: str | FeatureMap | None = None, *, list_size: int = 1000, grades: int = 2
) -> Explanation:
    """Explain the method and the cost of finding the most violated ranking of `list_size` documents with `grades` grades.

    Raises:
        ValueError: the pair has no oracle.

    >>> explain_oracle("nDCG@10", "pairwise").cost
    'O(n log n + min(k, p) min(k, m))'
    >>> explain_oracle("nDCG@10", "positional", grades=5).method
    'residual sweep of the first k ranks'
    >>> explain_oracle("diverse_nDCG@5").method
    'assignment of ranks to groups by exchanges'
    """
    resolved = resolve(measure, feature_map)
    method = resolved.oracle.explain(resolved.measure, resolved.feature_map, list_size, grades)
    return Explanation(method.name, method.cost)
