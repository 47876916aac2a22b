"""What the losses share. Every loss is a function and a module with the same options; this is what all of them keep.

**The list contract.** A loss is called with

    scores      `[..., list_size]`: any real numbers, from any scorer; the last dimension is the list, all others are batch
    labels      graded relevance, 0 or more, the shape of `scores`; only `SquaredLoss` on the labels themselves is a regression,
                whose targets may be any numbers, and a measure with `min_relevant=0` or less says what labels below 0 mean
    where       bool, the shape of `scores`, True for a real document; all are if None. Padding may hold anything, even NaN, and
                has zero gradient
    offsets     int64 `[lists + 1]` or a list, instead of `where`: scores and labels are flat, `[documents]`, and list i is
                `[offsets[i], offsets[i + 1])`
    weights     `[...]`, one weight a list, >= 0; 1 each if None
    item_weights  the shape of `scores`, >= 0: what each document counts, such as one over the chance that it was seen; 1 each if
                None. See below
    reduction   `"mean"`, `sum(w l) / sum(w)` over the lists that are not all padding; `"sum"`; or `"none"`

and gives a scalar, or `[...]`, one value a list, with reduction `"none"`, of the dtype and device of `scores`; under autocast
in float32 where `scores` are of half precision, as torch's own losses are. A list that is all padding costs 0 and has zero
gradient; so does, but for pointwise losses, one that no ranking can get wrong (a single document, equal labels). Types, shapes
and options that do not fit are a TypeError or ValueError. On the CPU so are a score or label that is not finite, a label or gain
below 0, offsets out of order and weights below 0; on other devices, where reading them back would stall every step, the loss of
such a list is NaN. Scores may be as large as their dtype can hold; a loss that it cannot hold, such as the square of 1e38, is a
ValueError on the CPU and inf elsewhere.

**Item weights.** A document of weight 0 is left out, as `where` would. Otherwise means over documents or pairs become weighted
means, a pair weighing the product of its two; what a softmax is to predict is multiplied by the weights, and so are gains, those
of the best ranking too. Losses that an oracle solves and surrogates of the top know no documents of different weights, and
refuse `item_weights` with a TypeError.

A loss of your own is one function of padded lists; `list_loss` gives it the contract, and `RankingLoss` makes it a module:

>>> import torch
>>> from rankstruct.losses import RankingLoss, list_loss
>>> def spread_loss(scores, labels, *, margin=1.0, **lists):  # where=, offsets=, weights=, reduction=
...     def per_list(scores, labels, where):  # [..., list_size] each, 0 in the padding
...         relevant = where & (labels > 0)
...         return torch.where(relevant, torch.relu(margin - scores), 0.0).sum(-1)
...     return list_loss(per_list, scores, labels, **lists)
>>> class SpreadLoss(RankingLoss):
...     function = staticmethod(spread_loss)
...     def __init__(self, margin: float = 1.0, *, reduction: str = "mean"):
...         super().__init__(reduction, margin=margin)
>>> loss = SpreadLoss(margin=2.0)
>>> loss
SpreadLoss(margin=2.0, reduction=mean)
>>> loss(torch.tensor([0.5, 3.0, 1.0]), torch.tensor([1, 0, 1]), offsets=torch.tensor([0, 2, 3]))
tensor(1.2500)
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from types import FunctionType
from typing import Any, ClassVar, Literal, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypedDict, Unpack

from rankstruct.feature_maps import FeatureMap
from rankstruct.kernels import dispatch
from rankstruct.kernels.call import longest_list
from rankstruct.kernels.dispatch import mean_value
from rankstruct.lists import (
    NOT_NEGATIVE,
    are_single_documents,
    as_offsets,
    batch_first,
    check_lists,
    check_offsets,
    check_tensor,
    is_eager,
    is_plain,
    is_under_autocast,
    knows_cutoffs,
    length_buckets,
    refuse,
    refuse_inexact,
    refuse_negative,
    refuse_other_names,
    warn_of_single_documents,
)
from rankstruct.measures import DiscountedGain, Measure, nDCG, parse_measure
from rankstruct.oracles.registry import Reference, Resolved, resolve

__all__ = [
    "HingeLoss",
    "RankingLoss",
    "is_convex",
    "list_loss",
    "second_derivatives",
    "takes_groups",
    "takes_reference_scores",
]

_HALVES = (torch.float16, torch.bfloat16)
_PADDING = -100  # torch's ignore_index
_MOST_GRADES = 16  # for which a sum over grades is prepared
_PAIRS = 2**18  # of documents of one list, in the lists that are looked at together: what caches hold
_NO_ITEM_WEIGHTS = (
    "this loss takes no item_weights: all documents of a list count alike in it; leave documents out with where=, weigh lists "
    "with weights=, or take a pairwise, listwise or pointwise loss"
)

Reduction = Literal["mean", "sum", "none"]
Target = Literal["grade", "gain"]
REDUCTIONS = get_args(Reduction)
TARGETS = get_args(Target)

#: `(scores, labels, where)`, and `weights` where documents have any, to one value a list.
PerList = Callable[..., Tensor]
#: `(scores, labels, where, offsets, item_weights)`, padded or flat, to one value a list and the gradient by each score.
Solve = Callable[[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None], tuple[Tensor, Tensor]]


class LayoutOptions(TypedDict, total=False):
    """What every loss takes beside scores and labels."""

    where: Tensor | None
    offsets: Tensor | None
    weights: Tensor | None
    reduction: Reduction


class ListOptions(LayoutOptions, total=False):
    """The list contract: what every loss takes that knows documents of different weights."""

    item_weights: Tensor | None


class HingeOptions(LayoutOptions, total=False):
    """What every loss that an oracle solves takes, as `most_violated` does."""

    reference_scores: Tensor | None
    groups: Tensor | None


class AllOptions(HingeOptions, ListOptions, total=False):
    """What some loss takes."""


Loss = TypeVar("Loss", bound=Callable[..., Tensor])


def opened(loss: Loss) -> Loss:
    """What every loss is at its door: offsets may be a list, what it does not take is refused by name, and autocast is left."""
    takes = signature(loss).parameters
    passes_on = any(each.kind == each.VAR_KEYWORD for each in takes.values())
    taken = [name for name in AllOptions.__annotations__ if name in takes]
    known = {*takes, "item_weights"}

    @wraps(loss)
    def call(*given: Any, **lists: Any) -> Tensor:
        if not lists.keys() <= known:
            unknown = [name for name in lists if name not in known]
            refuse_other_names(unknown)
            if not passes_on:
                raise TypeError(
                    f"unexpected keyword argument {unknown[0]!r}; beside the lists this loss takes {', '.join(taken)}"
                )
        if "item_weights" in lists:
            if lists["item_weights"] is None:
                del lists["item_weights"]
            elif not (passes_on or "item_weights" in takes):
                raise TypeError(_NO_ITEM_WEIGHTS)
        if "offsets" in lists:
            lists["offsets"] = as_offsets(lists["offsets"])
        at = 0
        while at < len(given) and not isinstance(given[at], Tensor):
            at += 1
        if at == len(given) or not is_under_autocast(given[at]):
            return loss(*given, **lists)
        scores = given[at].float() if given[at].dtype in _HALVES else given[at]
        with torch.autocast(scores.device.type, enabled=False):  # it would multiply matrices in half precision
            return loss(*given[:at], scores, *given[at + 1 :], **lists)

    return call  # type: ignore[return-value]


@opened
def list_loss(
    per_list: PerList,
    scores: Tensor,
    labels: Tensor,
    *,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
    item_weights: Tensor | None = None,
    reduction: Reduction = "mean",
    signed: bool = False,
) -> Tensor:
    """Apply a loss of padded lists to what a user gave, and reduce it; see the module for the contract and an example.

    Args:
        per_list: `(scores, labels, where)` to one value a list `[...]`; all `[..., list_size]`, scores and labels float32 or
            float64 and 0 in the padding, `where` bool. With a fourth argument, `weights=None`, it takes item weights: of the
            dtype of the scores, above 0, and 0 in the padding. Documents of weight 0 are padding to it.
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract.
        signed: whether labels below 0 mean something; they are refused otherwise.
    """
    check_reduction(reduction)
    check_lists(scores, labels, where, offsets)
    dtype = scores.dtype
    real = check_values(scores.detach(), labels.detach(), where, offsets, signed)
    scores = scores.float() if dtype in _HALVES else scores
    if not signed:
        refuse_inexact(labels, where, scores.dtype)
    labels = labels.detach().to(scores.dtype)
    each = None if item_weights is None else checked_item_weights(item_weights, scores, real, per_list)
    if offsets is not None:
        real, (scores, labels, each) = _padded(offsets, scores, labels, each)
    on_cpu = scores.device.type == "cpu"  # elsewhere nothing is read back, and a list with a wrong number costs NaN
    broken = None if on_cpu else (real & _wrong(scores, labels, each, signed)).any(-1)
    if each is not None:
        real = real & (each > 0)
        each = torch.where(real, each, 0.0)
    if offsets is None and scores.shape[-1] == 0:
        values = scores.sum(-1)
    else:
        given = (torch.where(real, scores, 0.0), torch.where(real, labels, 0.0), real)
        values = per_list(*given) if each is None else per_list(*given, each)
    values = values if broken is None else torch.where(broken, torch.nan, values)
    return reduce_lists(values, where=real, offsets=None, weights=weights, reduction=reduction, dtype=dtype)


def takes_loops(scores: Tensor) -> bool:
    """Whether compiled loops may take them, of which torch sees neither values nor derivatives."""
    return is_plain(scores) and dispatch.has_loops(scores.device)


@opened
def compiled_loss(
    per_list: PerList,
    solve: Solve,
    scores: Tensor,
    labels: Tensor,
    *,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
    item_weights: Tensor | None = None,
    reduction: Reduction = "mean",
    signed: bool = False,
) -> Tensor:
    """`list_loss` of which compiled loops know value and gradient: they keep nothing of n x n, and flat lists are not padded.

    Args:
        per_list: the same in torch: for other devices, `torch.compile` and torch.func, and derivatives of higher order.
        solve: by compiled loops. Documents of weight 0 are left out by `where`, of flat lists too; it refuses numbers that are
            not finite.
        scores, labels, where, offsets, weights, item_weights, reduction, signed: as in `list_loss`.
    """
    lists: dict[str, Any] = {"where": where, "offsets": offsets, "item_weights": item_weights, "signed": signed}
    if not takes_loops(scores):
        return list_loss(per_list, scores, labels, **lists, weights=weights, reduction=reduction)
    check_reduction(reduction)
    check_lists(scores, labels, where, offsets)
    wide, known, each, real = scores.float() if scores.dtype in _HALVES else scores, labels.detach(), None, where
    if signed or item_weights is not None:
        real = check_values(scores.detach(), known, where, offsets, signed)
    else:
        known = refuse_negative(known, where)
    if item_weights is not None:
        assert real is not None
        each = checked_item_weights(item_weights, wide, real, per_list)
        real = real & (each > 0)
    value, direction = solve(wide.detach(), known, real, offsets, each)
    values = with_curvature(
        wide, value, direction, offsets, lambda wide: list_loss(per_list, wide, labels, **lists, reduction="none")
    )
    if real is not None and offsets is not None:  # the lists of which a document is left
        before = torch.nn.functional.pad(real.cumsum(0), (1, 0))
        real, offsets = (before[offsets[1:]] > before[offsets[:-1]]).unsqueeze(-1), None
    layout: dict[str, Any] = {"where": real, "offsets": offsets, "weights": weights}
    return reduce_lists(values, **layout, reduction=reduction, dtype=scores.dtype)


def longest_of(scores: Tensor, offsets: Tensor | None) -> int:
    """The size of the longest list, 1 at least; raises ValueError where offsets are not in order."""
    return max(scores.shape[-1] if offsets is None else longest_list(offsets, scores.shape[0]), 1)


def _padded(offsets: Tensor, *flat: Any) -> tuple[Tensor, list[Any]]:
    """Which places of `[lists, longest list]` are documents, and what is flat, or None, laid out there."""
    documents = flat[0].shape[0]
    positions = _positions(offsets, documents).to(
        flat[0].device
    )  # offsets on the CPU are read without waiting for a device
    real, source = positions >= 0, positions.clamp(min=0)
    return real, [
        None if value is None else value[source] if documents else value.sum().expand(real.shape) for value in flat
    ]


def _wrong(scores: Tensor, labels: Tensor, item_weights: Tensor | None, signed: bool) -> Tensor:
    right = scores.isfinite() & labels.isfinite()
    right = right if signed else right & (labels >= 0)
    return ~(right if item_weights is None else right & ~item_weights.isnan())


def checked_item_weights(item_weights: Tensor, scores: Tensor, real: Tensor, per_list: PerList) -> Tensor:
    """One weight a document, of the dtype of the scores; what is below 0 or not finite is refused, NaN on other devices.

    Raises:
        TypeError: not a tensor, or `per_list` takes no weights.
        ValueError: another shape or device than that of `scores`.
    """
    check_tensor("item_weights", item_weights)
    if _takes_no_weights(per_list):
        raise TypeError(_NO_ITEM_WEIGHTS)
    if item_weights.shape != scores.shape or item_weights.device != scores.device:
        raise ValueError(
            f"item_weights must be one a document, shape {tuple(scores.shape)} on {scores.device}; got "
            f"{tuple(item_weights.shape)} on {item_weights.device}"
        )
    each = item_weights.detach().to(scores.dtype)
    wrong = real & ~((each >= 0) & each.isfinite())
    return refuse(each, wrong, "item_weights must be finite and >= 0")


def _takes_no_weights(per_list: PerList) -> bool:
    code = getattr(per_list, "__code__", None)
    return code is not None and code.co_argcount < 4


def document_values(
    per_list: PerList, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
) -> Tensor:
    """What a function of padded lists says of each document, `[documents]`, of flat lists on the CPU, some at a time.

    Args:
        per_list: as `list_loss` takes it, but to `[lists, longest list]`.
        scores, labels, offsets, item_weights: the list contract.
    """
    found = torch.zeros_like(scores)
    weights = torch.ones_like(scores) if item_weights is None else item_weights.to(scores.dtype)
    lengths, labels = offsets.diff(), labels.to(scores.dtype)
    for bucket in length_buckets(offsets):
        longest = int(lengths[bucket].max())
        for lists in bucket.split(max(1, _PAIRS // longest**2)) if longest else ():
            columns = torch.arange(longest)
            where = columns < lengths[lists].unsqueeze(1)
            places = (offsets[lists].unsqueeze(1) + columns)[where]
            padded = torch.zeros((3, *where.shape), dtype=scores.dtype)
            padded[:, where] = torch.stack([scores[places], labels[places], weights[places]])
            real = padded[2] > 0
            each = torch.where(real, padded[:2], 0.0).unbind() + (
                (real,) if item_weights is None else (real, padded[2])
            )
            found[places] = torch.where(real, per_list(*each), 0.0)[where]
    return found


class RankingLoss(torch.nn.Module):
    """A loss function and its options as a module: the base of every loss; see the module for the list contract.

    A subclass sets `function` and gives its constructor typed arguments, which configuration files read; it hands them on by
    name, and they become attributes.

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.
        options: what else the function takes.
    """

    __call__: Callable[..., Tensor]  # forward, as torch's modules are called; for type checkers
    #: `(scores, labels, *, where, offsets, weights, reduction, ...)`
    function: ClassVar[Callable[..., Tensor]]
    #: Whether the loss of a list is a convex function of its scores.
    convex: bool = False
    #: Whether it is called with `groups=`, one whole number a document.
    takes_groups: bool = False
    #: Whether it has a reference that `reference_scores=` can freeze: a bound that is not convex.
    takes_reference_scores: bool = False

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor | None:
        """Of the loss of each list, twice by the score of the same document, `[documents]`: the diagonal of its Hessian.

        Of flat lists; below 0 where a loss is not convex. None, as here, where it is made of linear pieces, or nobody has
        worked them out.
        """
        return None

    def __init__(self, reduction: Reduction = "mean", **options: Any) -> None:
        super().__init__()
        check_reduction(reduction)
        self.reduction = reduction
        self._names: tuple[str, ...] = ()
        self.set_options(**options)

    def set_options(self, **options: Any) -> None:
        """Keep more of what the function is called with beside lists and reduction, as attributes."""
        self._names += tuple(options)
        for name, value in options.items():
            check_size(name, value)
            setattr(self, name, value)

    @property
    def options(self) -> dict[str, Any]:
        """What the function is called with beside lists and reduction."""
        return {name: getattr(self, name) for name in self._names}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        takes = signature(cls.__init__).parameters
        if (
            "__init__" in vars(cls)
            and "measure" in takes
            and all(each.kind != each.VAR_KEYWORD for each in takes.values())
        ):
            cls.__init__ = knows_cutoffs(cls.__init__)  # type: ignore[method-assign]
        if "forward" not in vars(cls):
            # torch.compile counts the versions of a function by its code, and gives up after eight: each loss has its own.
            own: Any = cls.forward
            copied = FunctionType(
                own.__code__.replace(), own.__globals__, own.__name__, own.__defaults__, own.__closure__
            )
            copied.__doc__, copied.__annotations__ = own.__doc__, own.__annotations__
            cls.forward = copied  # type: ignore[method-assign]

    def forward(self, scores: Tensor, labels: Tensor, **lists: Unpack[AllOptions]) -> Tensor:
        """The loss, by the function with its options; a scalar, or one value a list with reduction `"none"`."""
        lists.setdefault("reduction", self.reduction)
        if not isinstance(scores, Tensor) and type(labels).__module__.partition(".")[0] in ("lightgbm", "xgboost"):
            raise TypeError(
                "LightGBM and XGBoost take a loss as their objective by rankstruct.boosting_objective(loss)"
            )
        value = type(self).function(scores, labels, **self.options, **lists)
        if lists.get("groups") is not None and not self.takes_groups and not torch.compiler.is_compiling():
            warnings.warn(
                f"{self!r} does not look at groups=; measures behind diverse_ do, such as in DiverseHingeLoss('nDCG@10')",
                stacklevel=2,
            )
        if are_single_documents(scores) and (scores.dim() > 2 or (is_plain(value) and not value.detach().any())):
            warn_of_single_documents(scores)  # lists [lists, 1] may be meant so, by a pointwise loss
        return value

    def extra_repr(self) -> str:
        """The measure, the options that are set and the reduction."""
        return self._shown(self.options)

    def _shown(self, options: dict[str, Any]) -> str:
        shown = {**options, "reduction": self.reduction}
        texts = {name: _text(value) for name, value in shown.items() if value is not None}
        return ", ".join(text if name == "measure" else f"{name}={text}" for name, text in texts.items())


def _text(value: Any) -> str:
    return f"{float(value):g}" if isinstance(value, Tensor) else str(getattr(value, "name", value))


class HingeLoss(RankingLoss):
    """Base of the losses that an oracle solves: measure, feature map and reference, resolved once, at construction.

    Its `function` takes the resolved pair, the reference and `HingeOptions`: measures of diverse rankings need `groups`, others
    ignore them; `reference_scores` choose the reference instead of `scores`.

    Args:
        measure: a measure or its name.
        feature_map: how a ranking scores; the measure's own default if None.
        reference: the ranking r* that the bound is relative to: `"ideal"`, `"ideal-tied"` or `"predicted"`, or
            `"below-window"` for a partial ROC area; the measure's own default if None.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: measure, feature map and reference do not go together.
    """

    resolved: Resolved
    reference: str

    def __init__(
        self,
        measure: str | Measure = "AP",
        *,
        feature_map: str | FeatureMap | None = None,
        reference: Reference | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        resolved = resolve(measure, feature_map)
        super().__init__(reduction, resolved=resolved, reference=resolved.reference(reference))

    @property
    def measure(self) -> Measure:
        """What it bounds the loss of."""
        return self.resolved.measure

    @property
    def feature_map(self) -> FeatureMap:
        """How a ranking scores."""
        return self.resolved.feature_map

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether the loss is a convex function of the scores."""
        return self.reference == "ideal"

    @property
    def takes_groups(self) -> bool:  # type: ignore[override]
        """Whether the measure is one of diverse rankings."""
        return self.measure.takes_groups

    @property
    def takes_reference_scores(self) -> bool:  # type: ignore[override]
        """Whether scores choose the reference."""
        return self.reference != "ideal"

    def extra_repr(self) -> str:
        """Measure, options, feature map, reference and reduction."""
        options = self.options
        resolved, reference = options.pop("resolved"), options.pop("reference")
        pair = {"feature_map": resolved.feature_map, "reference": reference}
        return self._shown({"measure": resolved.measure, **options, **pair})


@opened
def hinge(
    scores: Tensor,
    labels: Tensor,
    resolved: Resolved,
    *,
    reference: str,
    reference_scores: Tensor | None = None,
    groups: Tensor | None = None,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """The structured hinge loss of what `resolve` returned; see `structured_hinge_loss`."""
    check_lists(scores, labels, where, offsets)
    found = resolved.solve(scores, labels, where, offsets, reference, reference_scores, groups)
    return reduced_hinge(scores, found, where=where, offsets=offsets, weights=weights, reduction=reduction)


def quick_hinge(
    loss: HingeLoss, scores: Tensor, labels: Tensor, where: Tensor | None = None, *, graded: bool = False, **more: Any
) -> Tensor | None:
    """The mean hinge of padded lists by the shortest way: one call of a compiled loop and one autograd node.

    None where there is more to do than that, or something to be refused; the usual way then says what. If `graded`, the sum over
    the whole grades up to the highest label.
    """
    if more or loss.reduction != "mean" or type(labels) is not Tensor or not is_eager(scores):
        return None
    shape = scores.shape
    if labels.shape != shape or not labels.is_cpu or len(shape) == 0 or (len(shape) > 1 and shape[-1] == 1):
        return None
    if where is not None and (type(where) is not Tensor or where.dtype != torch.bool or where.shape != shape):
        return None
    grades = 0
    if graded and labels.numel():
        if labels.dtype == torch.bfloat16:  # which NumPy does not know
            return None
        highest = labels.detach().numpy().max(initial=0, where=True if where is None else where.numpy())
        if not 1 <= highest <= _MOST_GRADES:
            return None
        grades = int(highest)
    prepared = loss.resolved.prepared(loss.reference, shape[-1], grades)
    found = None if prepared is None else mean_value(prepared, scores, labels, where)
    return None if found is None else MeanHinge.apply(scores, *found)


def reduced_hinge(
    scores: Tensor,
    found: tuple[Tensor, Tensor, Tensor],
    *,
    where: Tensor | None,
    offsets: Tensor | None,
    weights: Tensor | None,
    reduction: Reduction,
) -> Tensor:
    """The hinge as a function of the scores, `reduce_lists`, of the task loss, value and direction that an oracle found."""
    _, value, direction = found
    if reduction == "mean" and weights is None and is_eager(value) and value.dtype not in _HALVES and value.numel():
        return MeanHinge.apply(scores, *_mean(value, where, offsets), direction)
    values = with_gradient(scores, value, direction, offsets)
    return reduce_lists(values, where=where, offsets=offsets, weights=weights, reduction=reduction)


def _mean(value: Tensor, where: Tensor | None, offsets: Tensor | None) -> tuple[float, int]:
    """The mean over the lists that are not all padding, which costs 0, and how many there are: `reduce_lists` by NumPy."""
    values = value.numpy()
    count = values.size
    if where is not None:
        count = max(int(np.count_nonzero(where.numpy().any(-1))), 1)
    elif offsets is not None:
        count = max(int(np.count_nonzero(np.diff(offsets.numpy()))), 1)
    # In the order of the compiled loops, so that `mean_value` has the same to the last bit.
    mean = float(np.add.accumulate(values.ravel(), dtype=np.float64)[-1]) / count
    if not abs(mean) <= torch.finfo(value.dtype).max:
        _refuse_overflow(value.new_tensor(mean), value)
    return mean, count


def is_convex(loss: torch.nn.Module) -> bool:
    """Whether a loss says that it is a convex function of the scores of each list."""
    return bool(getattr(loss, "convex", False))


def takes_groups(loss: torch.nn.Module) -> bool:
    """Whether a loss is called with `groups=`, one whole number a document."""
    return bool(getattr(loss, "takes_groups", False))


def takes_reference_scores(loss: torch.nn.Module) -> bool:
    """Whether a loss has a reference that `reference_scores` can freeze: a bound that is not convex."""
    return bool(getattr(loss, "takes_reference_scores", False))


def second_derivatives(
    loss: torch.nn.Module, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
) -> Tensor | None:
    """What a loss says its second derivatives are, `[documents]`, of flat lists; None where it says nothing.

    Item weights go to losses of one's own only if there are any.

    >>> import rankstruct as rs
    >>> second_derivatives(rs.ListNetLoss(), torch.zeros(4), torch.tensor([1, 0, 0, 0]), torch.tensor([0, 4]))
    tensor([0.1875, 0.1875, 0.1875, 0.1875])
    """
    given = () if item_weights is None else (item_weights,)
    return getattr(loss, "second_derivatives", lambda *_: None)(scores, labels, offsets, *given)


class _Piecewise(torch.autograd.Function):
    """A value and its direction, both found before: the gradient of a list is its direction times what comes back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, value: Tensor, direction: Tensor, offsets: Tensor | None) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        _, _, direction, offsets = inputs
        ctx.save_for_backward(direction, offsets)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        direction, offsets = ctx.saved_tensors
        return _spread(grads[0], direction, offsets) * direction, None, None, None


# Found at every call else, which takes as long as a list's sort.
_Piecewise.forward.__signature__ = inspect.signature(_Piecewise.forward)  # type: ignore[attr-defined]


def _spread(values: Tensor, documents: Tensor, offsets: Tensor | None) -> Tensor:
    """One value a list, as one a document."""
    if offsets is None:
        return values.unsqueeze(-1)
    return values.repeat_interleave(offsets.diff().to(documents.device), output_size=documents.shape[0])


def with_gradient(scores: Tensor, value: Tensor, direction: Tensor, offsets: Tensor | None = None) -> Tensor:
    """`value`, one a list, as a function of `scores` `[..., list_size]`, or flat with `offsets`, with gradient `direction`."""
    function = _Plain if is_eager(scores) else _Piecewise
    return function.apply(scores, value, direction, offsets)


class _Plain(torch.autograd.Function):
    """`_Piecewise` outside torch.func and `torch.compile`, in half the time: no arguments are bound, no context is set up."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, direction: Tensor, offsets: Tensor | None) -> Tensor:
        ctx.save_for_backward(direction, offsets)
        return value.clone()

    backward = _Piecewise.backward


class MeanHinge(torch.autograd.Function):
    """`_Plain` and the mean in one step, of so many lists: an autograd node takes as long as the sort of some lists."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mean: float, count: int, direction: Tensor) -> Tensor:
        ctx.save_for_backward(direction)
        ctx.count = count
        return torch.scalar_tensor(mean, dtype=direction.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.saved_tensors[0] * (grads[0] / ctx.count), None, None, None


class _Smooth(torch.autograd.Function):
    """`_Piecewise` of a smooth function: derivatives of higher order are those of `again(scores)`, which has the same values."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        value: Tensor,
        direction: Tensor,
        offsets: Tensor | None,
        again: Callable[[Tensor], Tensor],
    ) -> Tensor:
        ctx.save_for_backward(scores, direction, offsets)
        ctx.again = again
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        scores, direction, offsets = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return *torch.autograd.grad(ctx.again(scores), scores, grads[0], create_graph=True), None, None, None, None
        return _spread(grads[0], direction, offsets) * direction, None, None, None, None


def with_curvature(
    scores: Tensor, value: Tensor, direction: Tensor, offsets: Tensor | None, again: Callable[[Tensor], Tensor]
) -> Tensor:
    """`with_gradient` of a smooth function, `again`, of which value and direction were found in another way."""
    return _Smooth.apply(scores, value, direction, offsets, again)


def check_reduction(reduction: str) -> None:
    """Raise ValueError unless `reduction` is one that `reduce_lists` knows."""
    check_choice("reduction", reduction, REDUCTIONS)


def reduce_lists(
    values: Tensor,
    *,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Weighted mean or sum over the lists that are not all padding, or the weighted values themselves.

    Args:
        values: `[...]`, one a list.
        where: `[..., list_size]` or None, as given to the loss.
        offsets: `[lists + 1]` or None, as given to the loss.
        weights: `[...]` or what broadcasts to it, one a list, or None for 1 each.
        reduction: `mean` is `sum(w l) / sum(w)`, and 0 where no list is left or all weights are 0.
        dtype: of the result; that of the values if None.

    Raises:
        ValueError: unknown reduction, weights of another shape, or (on the CPU; elsewhere the loss is NaN) below 0 or not finite;
            a loss that the dtype cannot hold (on the CPU, outside `torch.compile` and torch.func; elsewhere it is inf or NaN).
    """
    check_reduction(reduction)
    dtype = values.dtype if dtype is None else dtype
    if values.dtype in _HALVES:  # half precision cannot count to 70,000
        values = values.float()
    reduced = _reduced(values, where, offsets, weights, reduction).to(dtype)
    if is_plain(reduced) and not (reduced.dim() == 0 and math.isfinite(reduced.item())):
        _refuse_overflow(reduced.detach(), values.detach())
    return reduced


def _refuse_overflow(reduced: Tensor, values: Tensor) -> None:
    if reduced.dim() and bool(reduced.isfinite().all()):
        return
    broken = (~(values.to(reduced.dtype) if reduced.dim() == 0 else reduced).isfinite()).nonzero()
    at = broken[0].tolist() if len(broken) else []
    place = f" of list {at[0] if len(at) == 1 else at} is" if at else " of all lists together is"
    found = float(values[tuple(at)]) if at else math.inf
    raise ValueError(
        f"the loss{place} {found:g}: scores, labels or weights are too large for {reduced.dtype}. "
        "Is the learning rate too high? Scale them down, or use float64"
    )


def _reduced(
    values: Tensor, where: Tensor | None, offsets: Tensor | None, weights: Tensor | None, reduction: str
) -> Tensor:
    if weights is not None:
        check_tensor("weights", weights)
        try:
            weights = weights.to(values).expand(values.shape)
        except RuntimeError:
            raise ValueError(
                f"weights must be one a list, shape {tuple(values.shape)}; got {tuple(weights.shape)} (those of documents are "
                "item_weights)"
            ) from None
        weights = refuse(weights, ~((weights >= 0) & weights.isfinite()), "weights must be finite and >= 0", "list")
    if reduction != "mean":
        weighted = values if weights is None else values * weights
        return weighted.sum() if reduction == "sum" else weighted
    if where is None and offsets is None and weights is None:
        return values.mean() if values.numel() else values.sum()
    counted = torch.ones_like(values) if weights is None else weights
    if where is not None:
        counted = counted * where.any(-1)
    elif offsets is not None:
        counted = counted * (offsets.diff() > 0).to(values.device)
    total = counted.sum()
    return (values * counted).sum() / torch.where(total == 0, 1.0, total)


def differs(values: Tensor, where: Tensor) -> Tensor:
    """`[...]` bool: whether two real documents of the list have different values."""
    highest = torch.where(where, values, -torch.inf).amax(-1)
    return highest > torch.where(where, values, torch.inf).amin(-1)


def normalized_measure(measure: str | Measure, loss: str) -> DiscountedGain:
    """The measure, which must be a discounted gain divided by that of the best ranking.

    Raises:
        ValueError: it is another one.
    """
    measure = parse_measure(measure)
    if not isinstance(measure, DiscountedGain) or not measure.normalized:
        raise ValueError(f"{loss} takes nDCG or another normalised discounted gain, got {measure.name}")
    return measure


def document_gains(measure: DiscountedGain, labels: Tensor, where: Tensor) -> Tensor:
    """Gains of the documents, `[..., list_size]` float64, 0 in the padding.

    Raises:
        ValueError: on the CPU, a gain is negative or not finite; on other devices it is NaN.
    """
    gains = torch.where(where, measure.document_gains(labels), 0.0)
    if _are_usual(gains, 0.0):
        return gains
    rule = f"labels must have finite gains >= 0 under {measure.name}"
    wrong = ~((gains >= 0) & (gains < math.inf))
    return refuse(gains, wrong, f"{rule} (shift them, or choose another gain= or min_relevant=)")


def checked_gains(
    measure: DiscountedGain, labels: Tensor, where: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`document_gains`; the value of the best ranking; which lists a ranking can get wrong.

    Gains are multiplied by the item weights, `[..., list_size]`, if there are any.

    Returns:
        `[..., list_size]`, `[...]` and bool `[...]`.
    """
    gains = document_gains(measure, labels, where)
    gains = gains if weights is None else gains * weights
    discounts = measure.unchecked_weights(labels.shape[-1], labels.device)
    kept = labels.shape[-1] if measure.cutoff is None else min(measure.cutoff, labels.shape[-1])
    best = _highest(gains, kept) @ discounts[:kept]
    last = (where.sum(-1, keepdim=True) - 1).clamp(min=0)
    falls = discounts.expand(where.shape).gather(-1, last).squeeze(-1) < discounts[0]
    return gains, best, differs(gains, where) & (best > 0) & falls


def _highest(gains: Tensor, count: int) -> Tensor:
    """The `count` highest, highest first; of plain values by NumPy, in a quarter of the time."""
    if not is_plain(gains):
        return gains.topk(count, dim=-1).values
    return torch.from_numpy(np.sort(gains.numpy(), axis=-1)).flip(-1)[..., :count]


def normalized_gains(
    measure: DiscountedGain, labels: Tensor, where: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`checked_gains` over the value of the best ranking, `[..., list_size]`, and which lists a ranking can get wrong."""
    gains, best, can_err = checked_gains(measure, labels, where, weights)
    return gains / torch.where(best > 0, best, 1.0).unsqueeze(-1), can_err


def weighted_mean(each: Tensor, chosen: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over the chosen documents of a list, by their item weights if there are any; 0 if none are chosen."""
    if weights is None:
        return torch.where(chosen, each, 0.0).sum(-1) / chosen.sum(-1).clamp(min=1)
    weights = torch.where(chosen, weights, 0.0)
    total = weights.sum(-1)
    return torch.where(chosen, weights * each, 0.0).sum(-1) / torch.where(total > 0, total, 1.0)


def relative(weights: Tensor) -> Tensor:
    """Weights over the largest of the list, so that no product of two is too large, or too small to be told from 0."""
    return weights / weights.amax(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def target_of(labels: Tensor, target: str) -> Tensor:
    """What a regression on labels predicts: `"grade"`, the labels; `"gain"`, 2^label - 1, in float64."""
    return nDCG().document_gains(labels) if target == "gain" else labels


def check_size(name: str, value: Any) -> None:
    """Raise ValueError for a finite number that float32, or a whole one that float64, cannot hold."""
    if isinstance(value, int) and abs(value) > 2**53:
        raise ValueError(f"{name} must be at most 2^53 in size, got one of {value.bit_length()} bits")
    if isinstance(value, float) and torch.finfo(torch.float32).max < abs(value) < math.inf:
        raise ValueError(f"{name} must be at most {torch.finfo(torch.float32).max:.3g} in size, got {value:g}")


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of `known`."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless `value` is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    check_size(name, value)


def check_values(scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, signed: bool) -> Tensor:
    """Which documents are real; on the CPU, where that costs nothing, their numbers are checked.

    Labels below 0 are refused unless they are `signed`.
    """
    lists = (scores, labels, where, offsets)
    # An operator, so that `torch.compile` does not look at the values; its wrappers take as long as a list's sort.
    plain = all(each is None or is_plain(each) for each in lists)
    return _check_plain(*lists, signed) if plain else _checked_lists(*lists, signed)


@torch.library.custom_op("rankstruct::checked_lists", mutates_args=())
def _checked_lists(
    scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, signed: bool
) -> Tensor:
    return _check_plain(scores, labels, where, offsets, signed)


def _check_plain(scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, signed: bool) -> Tensor:
    real = torch.ones(scores.shape, dtype=torch.bool, device=scores.device) if where is None else where.clone()
    if scores.device.type == "cpu":
        _check_numbers("score", scores, real, -math.inf)
        _check_numbers("label", labels, real, -math.inf if signed else 0.0)
        if signed:
            _warn_of_padding(labels, real)
    if offsets is not None:
        check_offsets(offsets, scores.shape[0])
    return real


def _are_usual(values: Tensor, least: float) -> bool:
    """Whether all numbers, padding too, are finite and `least` or more, seen in one pass; False where none may be looked at."""
    if not is_plain(values):
        return False
    if values.numel() == 0:
        return True
    lowest, highest = (each.item() for each in values.aminmax())  # NaN if there is one
    return least <= lowest > -math.inf and highest < math.inf


def _check_numbers(name: str, values: Tensor, real: Tensor, least: float) -> None:
    if not values.dtype.is_signed or _are_usual(values, least):
        return
    finite = f"{name}s must be finite"
    for rule, wrong in ((finite, ~values.isfinite()), (NOT_NEGATIVE, values < least)):
        broken = (real & wrong).nonzero()
        if len(broken):
            at = broken[0].tolist()
            place, value = f"document {at[0] if len(at) == 1 else at}", float(values[tuple(at)])
            if rule == finite:
                raise ValueError(f"{rule}; {place} is {value}. Padding belongs in where")
            raise ValueError(f"{rule}; that of {place} is {value:g}")


def _warn_of_padding(labels: Tensor, real: Tensor) -> None:
    """Where labels may be any numbers: -100 among numbers from 0 up is what torch and others pad with."""
    if labels.dtype.is_signed and labels.numel() and labels.amin() <= _PADDING:
        below = labels[real & (labels < 0)]
        if len(below) and bool((below == _PADDING).all()):
            warnings.warn(
                f"{len(below)} labels are {_PADDING} and no other is below 0: this loss takes them for targets. If they are "
                "padding, leave it out with where=labels >= 0",
                stacklevel=2,
            )


@_checked_lists.register_fake
def _(scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, signed: bool) -> Tensor:
    return scores.new_empty(scores.shape, dtype=torch.bool)


@_checked_lists.register_vmap
def _(
    info: Any,
    in_dims: Any,
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    signed: bool,
) -> Any:
    front = partial(batch_first, size=info.batch_size)
    if offsets is not None:
        offsets = offsets if in_dims[3] is None else offsets.movedim(in_dims[3], 0)[0]
        flat = front(scores, in_dims[0]), front(labels, in_dims[1])
        return torch.stack([check_values(s, y, None, offsets, signed) for s, y in zip(*flat, strict=True)]), 0
    where = None if where is None else front(where, in_dims[2])
    return check_values(front(scores, in_dims[0]), front(labels, in_dims[1]), where, None, signed), 0


@torch.library.custom_op("rankstruct::list_positions", mutates_args=())
def _positions(offsets: Tensor, documents: int) -> Tensor:
    """`[lists, longest list]` the flat position of each document, -1 for padding; never without a column."""
    lengths = offsets.diff()
    columns = torch.arange(max(int(lengths.max()), 1) if lengths.numel() else 1, device=offsets.device)
    positions = offsets[:-1].unsqueeze(1) + columns
    return torch.where(columns < lengths.unsqueeze(1), positions, -1).long()


@_positions.register_fake
def _(offsets: Tensor, documents: int) -> Tensor:
    longest = torch.library.get_ctx().new_dynamic_size(min=1)
    return offsets.new_empty((offsets.shape[0] - 1, longest), dtype=torch.int64)
