"""Which (measure, feature map) pairs have an oracle, and the one call that serves them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankstruct.feature_maps import FeatureMap, parse_feature_map
from rankstruct.lists import check_lists
from rankstruct.measures import Measure, parse_measure

REFERENCES = ("ideal", "ideal-tied", "predicted")


class MostViolated(NamedTuple):
    """The most violated ranking r^ of each list, against the reference ranking r*.

    Attributes:
        task_loss: `[...]`, the measure of the best ranking less that of r^.
        value: `[...]`, task_loss + F(r^) - F(r*), the structured hinge; never negative.
        direction: `[..., list_size]`, psi(r^) - psi(r*), the gradient of `value` with respect to the scores.
    """

    task_loss: Tensor
    value: Tensor
    direction: Tensor


@dataclass(frozen=True)
class Oracle:
    """An exact argmax for one kind of measure and one kind of feature map.

    Attributes:
        solve: `(scores, labels, where, offsets, measure, feature_map, reference) -> (task_loss, value, direction)`; input
            was checked for types and shapes, and `scores` has no gradient.
        explain: `(measure, feature_map, list_size, grades)` to something with a `name` and a `cost`, in words.
        references: the references `solve` knows, of `ideal`, `ideal-tied`, `predicted`.
        prefer: `(reference_scores, labels, where, offsets, measure, feature_map, reference) -> direction`: psi of the
            reference ranking that these float64 scores choose, less psi of the `ideal` one; 0 for lists that no ranking can get
            wrong. With it every reference is known, and `reference_scores` is too.
    """

    solve: Callable[..., tuple[Tensor, Tensor, Tensor]]
    explain: Callable[..., Any]
    references: tuple[str, ...] = ("ideal",)
    prefer: Callable[..., Tensor] | None = None

    @property
    def known_references(self) -> tuple[str, ...]:
        """The references that `most_violated` takes."""
        return self.references if self.prefer is None else REFERENCES


_ORACLES: dict[tuple[type[Measure], type[FeatureMap]], Oracle] = {}
_DEFAULT_FEATURE_MAP: dict[type[Measure], FeatureMap] = {}


def register_oracle(
    measure: type[Measure], feature_map: type[FeatureMap], oracle: Oracle, *, default: bool = False
) -> None:
    """Register the oracle of a kind of measure and a kind of feature map, in place of an earlier one.

    Args:
        measure: a measure class; its subclasses are served too unless they have an oracle of their own.
        feature_map: a feature map class.
        oracle: what solves it.
        default: whether this feature map is taken for the measure where none is named (it must need no arguments).
    """
    _ORACLES[measure, feature_map] = oracle
    if default:
        set_default_feature_map(measure, feature_map())


def set_default_feature_map(measure: type[Measure], feature_map: FeatureMap) -> None:
    """Take `feature_map` for a kind of measure, and its subclasses, where none is named."""
    _DEFAULT_FEATURE_MAP[measure] = feature_map


def default_feature_map(measure: Measure) -> FeatureMap:
    """The feature map that is taken for a measure where none is named; raises ValueError if it has none."""
    for kind in type(measure).__mro__:
        if kind in _DEFAULT_FEATURE_MAP:
            return _DEFAULT_FEATURE_MAP[kind]
    raise ValueError(f"{measure.name} has no oracle; there are: {_listing()}")


def find_oracle(measure: Measure, feature_map: FeatureMap) -> Oracle:
    """The oracle of a pair; raises ValueError with a list of what exists if there is none.

    >>> import rankstruct as rs
    >>> find_oracle(rs.AP(), rs.Pairwise()).known_references
    ('ideal', 'ideal-tied', 'predicted')
    """
    for kind in type(measure).__mro__:
        oracle = _ORACLES.get((kind, type(feature_map)))
        if oracle is not None:
            return oracle
    raise ValueError(f"{measure.name} with the {feature_map.name} feature map has no oracle; there are: {_listing()}")


def _listing() -> str:
    return ", ".join(f"{measure.__name__} with {kind.__name__}" for measure, kind in _ORACLES)


def resolve(
    measure: str | Measure, feature_map: str | FeatureMap | None, reference: str
) -> tuple[Measure, FeatureMap, Oracle]:
    """Measure, feature map and oracle from what a user wrote; raises ValueError where they do not go together."""
    measure = parse_measure(measure)
    feature_map = default_feature_map(measure) if feature_map is None else parse_feature_map(feature_map)
    oracle = find_oracle(measure, feature_map)
    if reference not in oracle.known_references:
        known = ", ".join(map(repr, oracle.known_references))
        raise ValueError(
            f"reference must be one of {known} for {measure.name} with the {feature_map.name} feature map, "
            f"got {reference!r}"
        )
    return measure, feature_map, oracle


class Explanation(NamedTuple):
    """Which method an oracle takes, and what it costs, in words; n documents, p relevant, m not, L grades, cut-off k."""

    method: str
    cost: str


def explain_oracle(
    measure: str | Measure,
    feature_map: str | FeatureMap | None = None,
    *,
    list_size: int = 1000,
    grades: int = 2,
) -> Explanation:
    """How the most violated ranking of lists of `list_size` documents with so many grades is found, and at what cost.

    Raises:
        ValueError: the pair has no oracle.

    >>> explain_oracle("nDCG@10", "pairwise").cost
    'O(n log n + min(k, p) min(k, m))'
    >>> explain_oracle("nDCG@10", "positional", grades=5).method
    'residual sweep of the first k ranks'
    >>> explain_oracle("AP").method
    'monotone divide and conquer over the irrelevant documents'
    """
    measure, feature_map, oracle = resolve(measure, feature_map, "ideal")
    method = oracle.explain(measure, feature_map, list_size, grades)
    return Explanation(method.name, method.cost)


def most_violated(
    scores: Tensor,
    labels: Tensor,
    measure: str | Measure,
    *,
    feature_map: str | FeatureMap | None = None,
    reference: str = "ideal",
    reference_scores: Tensor | None = None,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
) -> MostViolated:
    """The ranking with the highest task loss plus score, for each list: exact, by combinatorial search.

    Args:
        scores: `[..., list_size]`, or `[documents]` with `offsets`; any real numbers.
        labels: graded relevance, the shape of `scores`.
        measure: a measure or its name; its regret is the task loss.
        feature_map: how a ranking scores; the measure's own default if None.
        reference: the ranking r* that `value` and `direction` are relative to: `"ideal"`, by label and input order;
            `"ideal-tied"`, of the best ones the one that F prefers; `"predicted"`, the one that F prefers of all. Where F prefers
            several, the one with the best documents first.
        reference_scores: scores that choose r* instead of `scores`, the shape of `scores`, for the last two references: r* is
            then fixed, as a round of DC programming wants it.
        where: bool, the shape of `scores`, True for a real document; all are if None. Padding may hold anything.
        offsets: int64 `[lists + 1]`, for flat input: list i is `[offsets[i], offsets[i + 1])`.

    Returns:
        `MostViolated(task_loss, value, direction)` with the dtype and device of `scores`. A list that no ranking can get
        wrong (one document, nothing relevant or nothing irrelevant, only padding) has zeros everywhere.

    Raises:
        TypeError, ValueError: types or shapes do not fit; the pair has no oracle; on the CPU, a score or label that
            is not finite (on other devices the list's loss and value are NaN, since reading it back would stall).

    Source: Tsochantaridis, Joachims, Hofmann, Altun, "Large Margin Methods for Structured and Interdependent Output
    Variables", JMLR 2005; each oracle names its own.

    >>> import torch
    >>> r = most_violated(torch.tensor([2.0, 0.5, 0.0]), torch.tensor([0, 1, 0]), "AP")
    >>> r.task_loss, r.value, r.direction
    (tensor(0.5000), tensor(2.), tensor([ 1., -1.,  0.]))
    """
    check_lists(scores, labels, where, offsets)
    measure, feature_map, oracle = resolve(measure, feature_map, reference)
    return solve_lists(oracle, scores, labels, where, offsets, measure, feature_map, reference, reference_scores)


def solve_lists(
    oracle: Oracle,
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    measure: Measure,
    feature_map: FeatureMap,
    reference: str,
    reference_scores: Tensor | None,
) -> MostViolated:
    """`most_violated` with what `resolve` returns, for lists that were checked.

    max_r (Delta + F(r)) - F(r*), from the answer relative to the ideal ranking r0 and psi(r*) - psi(r0), in float64: the two
    differences may be large where their sum is not.
    """
    scores, labels = scores.detach(), labels.detach()
    if reference_scores is None and reference in oracle.references:
        return MostViolated(*oracle.solve(scores, labels, where, offsets, measure, feature_map, reference))
    if reference_scores is not None:
        if oracle.prefer is None and reference != "ideal":
            raise ValueError("this oracle has no `prefer`, which reference_scores need; see register_oracle")
        check_reference_scores(reference_scores, scores, reference)
    chosen_by = scores if reference_scores is None else reference_scores.detach()
    assert oracle.prefer is not None  # `resolve` and the check above saw to it
    precise = scores.double()
    task_loss, _, direction = oracle.solve(precise, labels, where, offsets, measure, feature_map, "ideal")
    try:
        preferred = oracle.prefer(chosen_by.double(), labels, where, offsets, measure, feature_map, reference)
    except ValueError as error:
        if reference_scores is None:
            raise
        raise ValueError(f"reference_scores: {error}") from error
    direction = direction - preferred
    difference = _score_difference(precise, direction, offsets)
    value = (task_loss + difference).clamp(min=0.0)
    return MostViolated(task_loss.to(scores.dtype), value.to(scores.dtype), direction.to(scores.dtype))


def _score_difference(scores: Tensor, direction: Tensor, offsets: Tensor | None) -> Tensor:
    """<s, direction> of each list; relative to the highest score that takes part, which keeps the terms small."""
    unused = direction == 0  # padding may be NaN
    masked = scores.masked_fill(unused, -torch.inf)
    if offsets is None:
        top = masked.amax(-1, keepdim=True) if scores.shape[-1] else masked
        return torch.where(unused, 0.0, (scores - top) * direction).sum(-1)
    lists = torch.arange(offsets.shape[0] - 1, device=scores.device)
    each = torch.repeat_interleave(lists, offsets.diff().to(scores.device), output_size=scores.shape[0])
    top = scores.new_full(lists.shape, -torch.inf).scatter_reduce(0, each, masked, "amax")
    terms = torch.where(unused, 0.0, (scores - top[each]) * direction)
    return scores.new_zeros(lists.shape).index_add(0, each, terms)


def check_reference_scores(reference_scores: Tensor, scores: Tensor, reference: str) -> None:
    """Check types and shapes; raises TypeError or ValueError where the scores cannot choose this reference."""
    if not isinstance(reference_scores, Tensor):
        raise TypeError(f"reference_scores must be a torch.Tensor, got {type(reference_scores).__name__}")
    if reference == "ideal":
        raise ValueError(
            "reference 'ideal' does not depend on scores; reference_scores go with 'predicted' or 'ideal-tied'"
        )
    if not reference_scores.dtype.is_floating_point:
        raise TypeError(f"reference_scores must be floating point, got {reference_scores.dtype}")
    if reference_scores.shape != scores.shape or reference_scores.device != scores.device:
        raise ValueError(
            f"reference_scores must have the shape and device of scores; got {tuple(reference_scores.shape)} on "
            f"{reference_scores.device} and {tuple(scores.shape)} on {scores.device}"
        )
