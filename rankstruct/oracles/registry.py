"""Which (measure, feature map) pairs have an oracle, and which map and reference a measure takes where none are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from rankstruct.feature_maps import FeatureMap, parse_feature_map
from rankstruct.kernels.dispatch import Prepared
from rankstruct.lists import check_groups, refuse_groups_of_lists, refuse_negative
from rankstruct.measures import Measure, parse_measure

__all__ = ["Explanation", "MostViolated", "Oracle", "explain_oracle", "register_oracle", "set_default_bound"]

Reference = Literal["ideal", "ideal-tied", "predicted", "below-window"]
REFERENCES = get_args(Reference)[:3]  # the last one is of partial ROC areas alone
_WAY_OUT = "a measure that is discount times gain has one as a DiscountedGain, any other can be watched while another is trained"


_MOST_PREPARED = 64  # sizes of lists of one loss


class MostViolated(NamedTuple):
    """The most violated ranking r^ of each list, against the reference ranking r*.

    Attributes:
        task_loss: `[...]`, the measure of the best ranking less that of r^.
        value: `[...]`, task_loss + F(r^) - F(r*), the structured hinge; never negative.
        direction: `[..., list_size]`, psi(r^) - psi(r*), the gradient of `value` with respect to the scores; among documents of
            one label and one score the mean over their orders, but for a fixed ideal ranking and diverse ones.
    """

    task_loss: Tensor
    value: Tensor
    direction: Tensor


@dataclass(frozen=True)
class Oracle:
    """An exact argmax for one kind of measure and one kind of feature map.

    Attributes:
        solve: `(scores, labels, where, offsets, measure, feature_map, reference)`, the latter by name, to `(task_loss, value,
            direction)`; input was checked for types and shapes, and `scores` has no gradient. Beside these it gets `groups=`
            if the measure takes groups, and `reference_scores=` if there are any.
        explain: `(measure, feature_map, list_size, grades)` to something with a `name` and a `cost`, in words.
        references: those of `ideal`, `ideal-tied`, `predicted` and `below-window` that `solve` knows.
        takes_reference_scores: whether it knows `reference_scores=`, which choose the reference instead of the scores.
        refuses_negative: whether it looks itself for labels below 0, which measures give no meaning.
        prepare: `(measure, feature_map, reference, longest)` to a call of a compiled loop, for eager lists of the CPU of at most
            so many documents; and with the two of `solve_grades` for its sum. None where there is more to do than that.
        solve_grades: `solve`, with `thresholds=` of the labels, float64 and ascending, and `weights=` of them too, to what it
            finds where labels from a threshold on are relevant, summed over them; None, also beside a `solve` of one's own:
            they are solved one by one.
    """

    solve: Callable[..., tuple[Tensor, Tensor, Tensor]]
    explain: Callable[..., Any]
    references: tuple[str, ...] = ("ideal",)
    takes_reference_scores: bool = False
    refuses_negative: bool = False
    prepare: Callable[..., Prepared | None] | None = None
    solve_grades: Callable[..., tuple[Tensor, Tensor, Tensor]] | None = None


@dataclass(frozen=True)
class Resolved:
    """A measure and a feature map that go together, with the oracle of the pair; `signed` says whether labels may be below 0."""

    measure: Measure
    feature_map: FeatureMap
    oracle: Oracle
    signed: bool = field(init=False, repr=False, compare=False)
    _prepared: dict[tuple[str, int, int], Prepared | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "signed", self.measure.takes_negative_labels)  # once, and not at every step
        object.__setattr__(self, "_prepared", {})

    def __reduce__(self) -> tuple[Callable[..., Resolved], tuple[Measure, FeatureMap]]:
        # What an oracle is made of does not pickle; who loads it finds it in the registry.
        return resolve, (self.measure, self.feature_map)

    def prepared(self, reference: str, longest: int, grades: int = 0) -> Prepared | None:
        """`Oracle.prepare`, or for the sum over the first so many whole grades, kept for the sizes of lists that came last."""
        key = reference, longest, grades
        if key in self._prepared:
            return self._prepared[key]
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

    def reference(self, named: str | None) -> str:
        """The reference that was named, or else the measure's own; raises ValueError unless the oracle knows it."""
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

    def solve(
        self,
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        reference: str,
        reference_scores: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> MostViolated:
        """`most_violated` for lists that were checked; measures that take no groups ignore those of several lists."""
        more: dict[str, Tensor] = {}
        if self.measure.takes_groups:
            if groups is None:
                raise ValueError(
                    f"{self.measure.name} needs groups=, one whole number a document, such as its host or topic"
                )
            check_groups(groups, scores)
            more["groups"] = groups
        elif offsets is None:
            refuse_groups_of_lists(groups, scores.shape[:-1])
        if reference_scores is not None:
            more["reference_scores"] = self.checked_reference_scores(reference_scores, scores, reference)
        labels = labels.detach()
        if not (self.signed or self.oracle.refuses_negative):
            labels = refuse_negative(labels, where)
        lists = (scores.detach(), labels, where, offsets)
        return MostViolated(*self.oracle.solve(*lists, self.measure, self.feature_map, reference, **more))

    def checked_reference_scores(self, reference_scores: Tensor, scores: Tensor, reference: str) -> Tensor:
        """Them without their gradient; raises TypeError, ValueError where they do not go with the scores or the reference."""
        if not isinstance(reference_scores, Tensor):
            raise TypeError(f"reference_scores must be a torch.Tensor, got {type(reference_scores).__name__}")
        if reference == "ideal":
            raise ValueError(
                "reference 'ideal' does not depend on scores; reference_scores go with 'predicted' or 'ideal-tied'"
            )
        if not self.oracle.takes_reference_scores:
            raise ValueError(
                f"the oracle of {self.measure.name} with the {self.feature_map.name} feature map takes no reference_scores; "
                "see Oracle"
            )
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
    """Register the oracle of a kind of measure and a kind of feature map, in place of an earlier one.

    Args:
        measure: a measure class; its subclasses are served too unless they have an oracle of their own.
        feature_map: a feature map class.
        oracle: what solves it.
        default: a reference; this map (which must need no arguments) and that reference are then taken for the measure where
            none are named.
    """
    _ORACLES[measure, feature_map] = oracle
    if default is not None:
        set_default_bound(measure, feature_map(), default)


def set_default_bound(measure: type[Measure], feature_map: FeatureMap, reference: str) -> None:
    """Take this feature map and this reference for a kind of measure, and its subclasses, where none are named.

    What the oracle of the pair does not know is refused where the bound is made. For those that are there:

    >>> import rankstruct as rs
    >>> set_default_bound(rs.AP, rs.Pairwise(), "ideal")
    """
    _DEFAULTS[measure] = feature_map, reference


def _default(measure: Measure) -> tuple[FeatureMap, str]:
    for kind in type(measure).__mro__:
        if kind in _DEFAULTS:
            return _DEFAULTS[kind]
    raise ValueError(f"{measure.name} has no oracle; there are: {_listing()}; {_WAY_OUT}")


def find_oracle(measure: Measure, feature_map: FeatureMap) -> Oracle:
    """The oracle of a pair; raises ValueError with a list of what exists if there is none.

    >>> import rankstruct as rs
    >>> find_oracle(rs.AP(), rs.Pairwise()).references
    ('ideal', 'ideal-tied', 'predicted')
    """
    for kind in type(measure).__mro__:
        oracle = _ORACLES.get((kind, type(feature_map)))
        if oracle is not None:
            return oracle
    raise ValueError(
        f"{measure.name} with the {feature_map.name} feature map has no oracle; there are: {_listing()}; {_WAY_OUT}"
    )


def _listing() -> str:
    return ", ".join(sorted(f"{measure.__name__} with {kind.__name__}" for measure, kind in _ORACLES))


def resolve(measure: str | Measure, feature_map: str | FeatureMap | None = None) -> Resolved:
    """Measure, feature map and oracle from what a user wrote; raises ValueError where they do not go together."""
    measure = parse_measure(measure)
    feature_map = _default(measure)[0] if feature_map is None else parse_feature_map(feature_map)
    return Resolved(measure, feature_map, find_oracle(measure, feature_map))


class Explanation(NamedTuple):
    """Which method an oracle takes, and what it costs, in words; n documents, p relevant, m not, L grades, cut-off k."""

    method: str
    cost: str


def explain_oracle(
    measure: str | Measure, feature_map: str | FeatureMap | None = None, *, list_size: int = 1000, grades: int = 2
) -> Explanation:
    """How the most violated ranking of lists of `list_size` documents with so many grades is found, and at what cost.

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
