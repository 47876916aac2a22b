"""The structured hinge loss: the maximum over rankings of task loss plus score difference, by any oracle.

hinge(s) = Delta(y, r^) + <s, psi(r^) - psi(r*)>,   r^ = argmax_r Delta(y, r) + F(r)
gradient = psi(r^) - psi(r*)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from typing import Any, cast

from torch import Tensor
from typing_extensions import Self

from rankstruct.constraints import Constraints
from rankstruct.constraints.pages import Packed, PageRules
from rankstruct.feature_maps import FeatureMap, Positional
from rankstruct.kernels.dispatch import ArrayOracle, Prepared, solve_at_once
from rankstruct.lists import Lists, check_groups, check_tensor, is_eager, longest_list
from rankstruct.losses.autograd import (
    eager_with_gradient,
    mean_with_gradient,
    weighted_mean_with_gradient,
    with_gradient,
)
from rankstruct.losses.base import HingeOptions, PageOptions, RankingLoss
from rankstruct.losses.page_bound import bounded_hinges
from rankstruct.losses.reduction import HALVES, Reduction, mean_of_values, reduce_lists, shares_of_lists
from rankstruct.measures import RR, WTA, DiscountedGain, Measure
from rankstruct.oracles.pages import NoFlow, paged
from rankstruct.oracles.registry import MostViolated, Reference, Resolved, resolve

__all__ = ["HingeLoss", "StructuredHingeLoss"]


class HingeLoss(RankingLoss):
    """Base class of the losses that use an oracle: measure, feature map and reference are resolved once, at construction.

    Diversity measures require `diversity_groups=`. `reference_scores=` determine the reference instead of `scores`, and have no
    gradient. `item_weights=` are those of the measure; they raise TypeError if there is no exact oracle.

    Args:
        measure: a measure or its name.
        feature_map: how a ranking scores; the measure's own default if None.
        reference: the ranking r* that the bound is relative to: `"ideal"`, `"ideal-tied"` or `"predicted"`, or
            `"below-window"` for a partial ROC area; the measure's own default if None.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: measure, feature map and reference are incompatible.

    >>> from rankstruct.losses import GradedLoss, StructuredHingeLoss
    >>> [isinstance(loss, HingeLoss) for loss in (StructuredHingeLoss("AP"), GradedLoss("AUC"))]
    [True, True]
    >>> StructuredHingeLoss("nDCG@10").reference
    'ideal-tied'
    """

    call_options = HingeOptions

    measure: str | Measure = "AP"
    _: KW_ONLY
    feature_map: str | FeatureMap | None = None
    reference: Reference | None = None

    def setup(self) -> None:
        """Resolve measure, feature map and reference, and look up the oracle."""
        self._by_default = {name: None for name in ("feature_map", "reference") if getattr(self, name) is None}
        self.resolved = resolve(self.measure, self.feature_map)
        self.measure, self.feature_map = self.resolved.measure, self.resolved.feature_map
        self.reference = cast(Reference, self.resolved.reference(self.reference))

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether the loss is a convex function of the scores."""
        return self.reference == "ideal"

    @property
    def takes_groups(self) -> bool:  # type: ignore[override]
        """Whether the measure is a diversity measure."""
        return self.resolved.measure.takes_groups

    @property
    def takes_reference_scores(self) -> bool:  # type: ignore[override]
        """Whether the reference depends on scores."""
        return self.reference != "ideal"

    @property
    def takes_item_weights(self) -> bool:  # type: ignore[override]
        """Whether documents may have weights, because the measure has a value with them and the oracle is exact."""
        return self.resolved.takes_item_weights

    def with_options(self, **changes: Any) -> Self:
        """As in `RankingLoss`; the defaults of another measure are its own."""
        return super().with_options(**(self._by_default | changes if "measure" in changes else changes))

    def refuse_item_weights(self) -> None:
        """Raise the TypeError that says why, and which measure is nearest."""
        self.resolved.refuse_item_weights()

    def prepared(self, lists: Lists, longest: int) -> Prepared | None:
        """The call of a loop that finds the hinges of eager CPU lists of at most `longest` documents, if there is one."""
        assert self.reference is not None
        return self.resolved.prepared(self.reference, longest)

    def by_loop(self, scores: Tensor, lists: Lists, reduction: Reduction, grades: int = 0) -> Tensor | None:
        """The reduced hinge by one call of a loop, as in `Resolved.by_loop`."""
        assert self.reference is not None
        found = self.resolved.by_loop(scores, lists, self.reference, grades)
        if found is None:
            return None
        value, direction = found.value, found.direction
        if scores.dtype in HALVES:
            value, direction = value.to(scores.dtype), direction.to(scores.dtype)
        elif reduction == "mean":
            if lists.weights is None and (mean := found.mean()):
                return mean_with_gradient(scores, *mean, direction)
            if lists.weights is not None and (shares := shares_of_lists(value, lists)):
                return weighted_mean_with_gradient(scores, *shares, direction, lists.offsets)
        return reduce_lists(eager_with_gradient(scores, value, direction, lists.offsets), lists, reduction)

    def at_once(self, lists: Lists, otherwise: ArrayOracle) -> ArrayOracle:
        """The values and gradients of flat lists as a function of the scores, all float64 arrays, by one call of a loop.

        Everything else is done once, here. `otherwise` does the same where there is no such loop, or it refuses something.
        """
        assert lists.offsets is not None
        if (lists.diversity_groups is not None) != self.resolved.measure.takes_groups:
            return otherwise
        prepared = self.prepared(lists, max(longest_list(lists.offsets, lists.labels.shape[0]), 1))
        return otherwise if prepared is None else solve_at_once(prepared, lists, otherwise)

    def extra_repr(self) -> str:
        """Measure, options, feature map, reference and reduction."""
        last = {name: getattr(self, name) for name in ("feature_map", "reference", "reduction")}
        return self._shown({name: value for name, value in self.options.items() if name not in last} | last)


class StructuredHingeLoss(HingeLoss):
    """Structured hinge loss of a ranking measure: an upper bound of `best measure - measure` per list, never negative.

    With measure `AP` this is the loss of SVMmap, with `AUC` that of SVMauc. The bound is convex with reference `"ideal"`;
    `"ideal-tied"` is tighter, `"predicted"` the tightest (a ramp loss), and neither is convex; nor is `"below-window"`, the mean
    hinge over the pairs in the window of a partial ROC area. With `reference_scores` fixed, these are convex upper bounds of
    their nonconvex versions: each iteration of DC programming minimises one.

    A measure with a cut-off k depends on no more than k relevant documents. In lists of thousands with more than k relevant
    documents, such as the catalogue of a recommender, the loss learns some k of them, whatever the start, and neglects the
    others, so the first call warns. Use AP with reference `"predicted"` for such lists. For binary labels, a cut-off above the
    number of relevant documents with the pairwise map also works, such as
    `StructuredHingeLoss("nDCG@300", feature_map="pairwise")`.

    With a diversity measure, such as `"diverse_nDCG@5"`, the loss bounds the regret of `rerank_diverse`, which goes down the
    ranking and keeps the first document of every group until there are k. Pass `diversity_groups=`, whole numbers in the shape
    of the scores: documents of a list with the same number are in one group (host, topic).

    With `constraints`, the loss bounds the regret of the page that `rank_under` shows under these rules, caps and quotas of
    groups: the measure of the best page that keeps them minus that of the page shown. A normalised measure is divided by the
    value of the best page, as by `evaluate_under`. Pass `columns=`, for each column of the rules the groups of the documents, in
    the shape of the scores: names or whole numbers, None or NaN for none. The measure is a discounted gain (nDCG, DCG, P, ERU,
    RBP) or reciprocal rank with a cut-off k, and a page has as many positions as the longest prefix of the rules, at least k.
    With groups that are nested or disjoint and rules about one prefix, the search takes about as long as a sort. Otherwise it is
    a linear programme, tens of milliseconds a list, and the page shown is the one with the largest scores weighted by the decay
    of the feature map: that of `rank_under` for `Positional("1/log2(i+1)")`, if k is the longest prefix. With `"ideal-tied"`,
    ties of the reference are then broken by score among documents that neither rules nor labels tell apart.

    Args:
        measure: a measure or its name, such as `"AP"`.
        feature_map: how a ranking scores; the measure's own default if None.
        reference: the ranking r* that the bound is relative to: `"ideal"`, `"ideal-tied"` or `"predicted"`, or
            `"below-window"` for a partial ROC area; the measure's own default if None.
        constraints: the rules that a page has to keep: `Constraints`, a text, or a list of texts; None for no rules.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        TypeError, ValueError: as `most_violated`; an unknown reduction, or weights of the wrong shape; a measure or rules without
            an exact search, with the reason; a list of which no page keeps the rules, with its number and the rules in conflict.

    Warns:
        UserWarning: groups overlap or rules are about several prefixes, and the most violated page of a list was not found in
            1000 nodes of a search; the loss is then an upper bound.

    Source: Yue, Finley, Radlinski, Joachims, SIGIR 2007 (AP); Joachims, ICML 2005 (AUC); Le, Smola,
    Chapelle, Teo, "Optimization of Ranking Measures", equations 20 to 22 (the references), section 7.1 (diverse rankings).

    >>> import torch
    >>> loss = StructuredHingeLoss("AP")                                            # SVMmap
    >>> loss
    StructuredHingeLoss(AP, feature_map=pairwise, reference=ideal, reduction=mean)
    >>> scores = torch.tensor([2.0, 0.5, 0.0], requires_grad=True)
    >>> value = loss(scores, torch.tensor([0, 1, 0]))
    >>> value.backward()
    >>> value.item(), scores.grad
    (2.0, tensor([ 1., -1.,  0.]))
    >>> loss = StructuredHingeLoss("diverse_nDCG@5")                                # at most one document of a group
    >>> loss(torch.tensor([[0.2, 0.1]]), torch.tensor([[0, 1]]), diversity_groups=torch.tensor([[3, 3]]))
    tensor(1.1000)
    >>> loss = StructuredHingeLoss("nDCG@3", constraints=["seller <= 2 @ 3", "new=1 >= 1 @ 3"])  # two of a seller, one new
    >>> columns = {"seller": ["ann", "ann", "ann", "bob"], "new": [0, 0, 0, 1]}
    >>> loss(torch.tensor([3.0, 2.0, 1.0, 0.0]), torch.tensor([0, 0, 2, 0]), columns=columns)
    tensor(2.2929)
    """

    call_options = PageOptions

    measure: str | Measure = "AP"
    _: KW_ONLY
    constraints: Constraints | str | Sequence[str] | None = None

    def setup(self) -> None:
        """Resolve the measure, and the search for pages."""
        super().setup()
        self.page_rules: PageRules | None = None
        if self.constraints is None:
            return
        self.constraints = Constraints.of(self.constraints)
        measure, feature_map = self.resolved.measure, self.resolved.feature_map
        if not isinstance(measure, DiscountedGain | RR) or not isinstance(feature_map, Positional):
            raise ValueError(
                f"{measure.name} with the {feature_map.name} feature map has no search for the most violated page under rules, "
                "since it is not a sum over the positions of a page; use a discounted gain or reciprocal rank with a cut-off and "
                "the positional map, such as nDCG@10, DCG@10, P@10 or RR@10"
            )
        k = 1 if isinstance(measure, WTA) else measure.cutoff
        if k is None:
            raise ValueError(
                f"{measure.name} needs a cut-off under rules: the positions of a page, as in {measure.name}@10"
            )
        self._without_rules = self.resolved
        self._use(PageRules.of(self.constraints, k, measure.name))

    def _use(self, rules: PageRules) -> None:
        """Search for pages of these rules."""
        self.page_rules = rules
        self.resolved = paged(self._without_rules, rules.length, rules.rules, rules.attributes)

    def _number_with(self, others: Sequence[PageRules]) -> None:
        """Number groups for the rules of others too, so that one number for each document serves all."""
        assert self.page_rules is not None
        together = tuple(dict.fromkeys(rule for each in others for rule in each.constraints.rules))
        self._use(replace(self.page_rules, together=together))

    @property
    def takes_groups(self) -> bool:  # type: ignore[override]
        """Whether the measure is a diversity measure."""
        return self.constraints is None and super().takes_groups

    @property
    def takes_columns(self) -> bool:  # type: ignore[override]
        """Whether there are rules."""
        return self.constraints is not None

    def _checked(self, scores: Tensor, labels: Tensor, options: dict[str, Any]) -> Tensor:
        if self.page_rules is None:
            return super()._checked(scores, labels, options)
        columns = options.pop("columns", None)
        if columns is None or options.get("diversity_groups") is not None:
            names = ", ".join(map(repr, self.page_rules.columns))
            raise TypeError(
                f"this loss is under rules about {names}; pass columns=, a mapping with the groups of each document"
            )
        check_tensor("scores", scores)
        # packed by an estimator, once for all steps
        groups = columns.numbers if isinstance(columns, Packed) else self.page_rules.pack(columns, scores)
        check_groups(groups, scores)
        return super()._checked(scores, labels, {**options, "diversity_groups": groups})

    def prepared(self, lists: Lists, longest: int) -> Prepared | None:
        """The call of a loop, if rules are about one prefix."""
        return None if self.is_bounded else super().prepared(lists, longest)

    @property
    def is_bounded(self) -> bool:
        """Whether no list has an exact search, since rules are about several prefixes."""
        return self.page_rules is not None and not self.page_rules.one_prefix

    def of_lists(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor:
        """The reduced hinge, by the oracle."""
        assert self.reference is not None
        if lists.item_weights is not None:
            lists = self.resolved.weighted(scores, lists)
        value = None if self.is_bounded else self.by_loop(scores, lists, reduction)
        if value is not None:
            return value
        return reduced_hinge(scores, self._solve(scores, lists), lists, reduction)

    def _solve(self, scores: Tensor, lists: Lists) -> MostViolated:
        """By the oracle, or the bound of `bounded_hinges`."""
        assert self.reference is not None
        if not self.is_bounded:
            try:
                return self.resolved.solve(scores, lists, self.reference)
            except NoFlow:
                if not is_eager(scores):
                    raise
        assert self.page_rules is not None
        return bounded_hinges(self.resolved, self.page_rules, self.reference, scores, lists)


def hinge(scores: Tensor, lists: Lists, resolved: Resolved, reference: str) -> Tensor:
    """The structured hinge of each list, for what `resolve` returned."""
    return reduced_hinge(scores, resolved.solve(scores, lists, reference), lists._replace(weights=None), "none")


def reduced_hinge(scores: Tensor, found: tuple[Tensor, Tensor, Tensor], lists: Lists, reduction: Reduction) -> Tensor:
    """The reduced hinge as a function of the scores, from the task loss, value and direction that an oracle returned."""
    _, value, direction = found
    mean = reduction == "mean" and lists.weights is None
    if mean and is_eager(value) and value.dtype not in HALVES and value.numel():
        return mean_with_gradient(scores, *mean_of_values(value, lists), direction)
    return reduce_lists(with_gradient(scores, value, direction, lists.offsets), lists, reduction)
