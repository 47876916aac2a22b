"""What the losses share: the arguments that all of them are called with, and the class that handles these.

**The list contract.** A loss is a module with its options as typed fields. It is called with

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
    reduction   `"mean"`, `sum(w l) / sum(w)` over the lists that are not all padding; `"sum"`; or `"none"`; that of the module
                if it is not given

and returns a scalar, or `[...]`, one value a list, with reduction `"none"`, of the dtype and device of `scores`; under autocast
in float32 where `scores` are of half precision, as torch's own losses are. A list that is all padding costs 0 and has zero
gradient; so does, but for pointwise losses, one that no ranking can get wrong (a single document, equal labels). Types, shapes
and options that do not fit are a TypeError or ValueError. On the CPU so are a score or label that is not finite, a label or gain
below 0, offsets out of order and weights below 0; on other devices, where reading them back would stall every step, the loss of
such a list is NaN. Scores may be as large as their dtype can hold; a loss that it cannot hold, such as the square of 1e38, is a
ValueError on the CPU and inf elsewhere.

**Item weights.** A document of weight 0 is left out, as `where` would. Otherwise means over documents or pairs become weighted
means, where a pair has the product of its two weights; the targets of a softmax are multiplied by the weights, and so are gains,
those of the best ranking too. Losses that an oracle solves and surrogates of the top have no document weights, and refuse
`item_weights` with a TypeError.

A loss of your own is a subclass with one method, `per_list`, on padded lists; masks, flat lists, weights and reductions come with
the base class:

>>> import torch
>>> from rankstruct.losses import RankingLoss
>>> class SpreadLoss(RankingLoss):
...     margin: float = 1.0
...
...     def per_list(self, scores, labels, where):  # [..., list_size] each, 0 in the padding
...         relevant = where & (labels > 0)
...         return torch.where(relevant, torch.relu(self.margin - scores), 0.0).sum(-1)
>>> loss = SpreadLoss(margin=2.0)
>>> loss
SpreadLoss(margin=2.0, reduction=mean)
>>> loss(torch.tensor([0.5, 3.0, 1.0]), torch.tensor([1, 0, 1]), offsets=torch.tensor([0, 2, 3]))
tensor(1.2500)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self, TypedDict, Unpack

from rankstruct.kernels import dispatch
from rankstruct.kernels.call import longest_list
from rankstruct.lists import (
    are_single_documents,
    as_offsets,
    check_lists,
    check_tensor,
    is_plain,
    is_under_autocast,
    length_buckets,
    refuse,
    refuse_inexact,
    refuse_negative,
    refuse_other_names,
    warn_of_single_documents,
)
from rankstruct.losses.autograd import with_curvature
from rankstruct.losses.checks import check_values
from rankstruct.losses.options import WithFields, fields_of
from rankstruct.losses.reduction import HALVES, Reduction, check_reduction, reduce_lists

__all__ = ["RankingLoss", "is_convex", "second_derivatives", "takes_groups", "takes_reference_scores"]

_PAIRS = 2**18  # pairs of documents that are looked at together: what caches hold
_NO_ITEM_WEIGHTS = (
    "this loss takes no item_weights: all documents of a list count alike in it; leave documents out with where=, weigh lists "
    "with weights=, or take a pairwise, listwise or pointwise loss"
)


class LayoutOptions(TypedDict, total=False):
    """What every loss takes beside scores and labels."""

    where: Tensor | None
    offsets: Tensor | None
    weights: Tensor | None
    reduction: Reduction


class ListOptions(LayoutOptions, total=False):
    """What a loss takes that weighs documents."""

    item_weights: Tensor | None


class HingeOptions(LayoutOptions, total=False):
    """What a loss takes that an oracle solves, as `most_violated` does."""

    reference_scores: Tensor | None
    groups: Tensor | None


class AllOptions(HingeOptions, ListOptions, total=False):
    """What any loss may take."""


class RankingLoss(WithFields):
    """Base of every loss: typed fields are its options, `per_list` is its mathematics; see the module for an example.

    Fields without `KW_ONLY` before them are positional arguments of the constructor, in their order; `reduction` goes by name. A
    field of type `Literal` takes these values alone. `setup` runs when the fields are set, and checks the others.

    A subclass may also define `solve(scores, labels, where, offsets, item_weights)`, which returns value and gradient from
    compiled loops, of padded or flat lists; `per_list` then serves other devices, torch.func, `torch.compile` and derivatives of
    higher order. `torch.compile` counts the versions of each `forward`, and gives up after eight: who compiles many losses in one
    process defines one in each class.

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    # For type checkers: what a loss takes is its own.
    __call__: ClassVar[Callable[..., Tensor]]  # type: ignore[misc]
    forward: ClassVar[Callable[..., Tensor]]  # type: ignore[misc]
    #: Whether the loss of a list is a convex function of its scores.
    convex: ClassVar[bool] = False
    #: Whether `per_list` has a fourth argument, `weights=None`: `[..., list_size]`, above 0, and 0 in the padding.
    takes_item_weights: ClassVar[bool] = False
    #: Whether it is called with `groups=`, one whole number a document.
    takes_groups: ClassVar[bool] = False
    #: Whether it has a reference that `reference_scores=` can freeze: a bound that is not convex.
    takes_reference_scores: ClassVar[bool] = False
    #: Whether labels below 0 have a meaning; they are refused otherwise.
    takes_negative_labels: ClassVar[bool] = False
    #: The keyword arguments that `of_lists` knows.
    call_options: ClassVar[type] = ListOptions
    #: Value and gradient by compiled loops, where there are any.
    solve: ClassVar[Callable[..., tuple[Tensor, Tensor]] | None] = None
    #: As `per_list`, to the second derivatives `[..., list_size]`, where somebody has worked them out.
    curvature: ClassVar[Callable[..., Tensor] | None] = None

    _: KW_ONLY
    reduction: Reduction = "mean"

    def setup(self) -> None:
        """Check the fields, and make what else the object needs; called once, by the constructor."""

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the constructor, by name."""
        return {name: getattr(self, name) for name in fields_of(type(self))}

    def with_options(self, **changes: Any) -> Self:
        """Another loss with the same options but for these.

        >>> import rankstruct as rs
        >>> rs.ListNetLoss("gain").with_options(reduction="sum")
        ListNetLoss(target=gain, reduction=sum)
        """
        return type(self)(**{**self.options, **changes})

    def forward(  # type: ignore[no-redef]
        self, scores: Tensor, labels: Tensor, **lists: Unpack[AllOptions]
    ) -> Tensor:
        """The loss: a scalar, or one value a list with reduction `"none"`."""
        return self.evaluate(scores, labels, lists)

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
        """One value a list, `[...]`.

        Args:
            scores, labels: `[..., list_size]`, float32 or float64, 0 in the padding.
            where: bool, True for a real document; those of item weight 0 are padding here.
        """
        raise NotImplementedError(f"{type(self).__name__} must define per_list")

    def evaluate(self, scores: Tensor, labels: Tensor, lists: AllOptions) -> Tensor:
        """What `forward` returns: that of `call`, and lists of one document are warned of."""
        value = self.call(scores, labels, {**lists})
        if are_single_documents(scores) and (scores.dim() > 2 or (is_plain(value) and not value.detach().any())):
            warn_of_single_documents(scores)  # lists [lists, 1] may be meant so, by a pointwise loss
        return value

    def call(self, scores: Tensor, labels: Any, lists: dict[str, Any]) -> Tensor:
        """What `of_lists` returns, after names were checked and autocast is left."""
        given = {"reduction": self.reduction, **lists}
        self._check_names(scores, labels, given)
        if not (isinstance(scores, Tensor) and is_under_autocast(scores)):
            return self.of_lists(scores, labels, **given)
        wide = scores.float() if scores.dtype in HALVES else scores
        with torch.autocast(scores.device.type, enabled=False):  # it would multiply matrices in half precision
            return self.of_lists(wide, labels, **given)

    def _check_names(self, scores: Any, labels: Any, lists: dict[str, Any]) -> None:
        """Refuse what the loss is not called with, by name."""
        known = self.call_options.__annotations__
        if unknown := [name for name in lists if name not in known and name != "item_weights"]:
            refuse_other_names(unknown)
            taken = [name for name in known if name != "item_weights" or self.takes_item_weights]
            raise TypeError(
                f"unexpected keyword argument {unknown[0]!r}; beside the lists this loss takes {', '.join(taken)}"
            )
        if lists.get("item_weights") is None:
            lists.pop("item_weights", None)
        elif not self.takes_item_weights:
            raise TypeError(_NO_ITEM_WEIGHTS)
        if "offsets" in lists:
            lists["offsets"] = as_offsets(lists["offsets"])
        if not isinstance(scores, Tensor) and type(labels).__module__.partition(".")[0] in ("lightgbm", "xgboost"):
            raise TypeError(
                "LightGBM and XGBoost take a loss as their objective by rankstruct.boosting_objective(loss)"
            )

    def of_lists(
        self,
        scores: Tensor,
        labels: Tensor,
        *,
        where: Tensor | None = None,
        offsets: Tensor | None = None,
        weights: Tensor | None = None,
        item_weights: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """The reduced loss, by `solve` where there is one and compiled loops may look at the scores, else by `per_list`."""
        check_reduction(reduction)
        check_lists(scores, labels, where, offsets)
        if self.solve is None or not takes_loops(scores):
            return self._by_torch(scores, labels, where, offsets, weights, item_weights, reduction)
        wide, known, each, real = scores.float() if scores.dtype in HALVES else scores, labels.detach(), None, where
        if self.takes_negative_labels or item_weights is not None:
            real = check_values(scores.detach(), known, where, offsets, self.takes_negative_labels)
        else:
            known = refuse_negative(known, where)
        if item_weights is not None:
            assert real is not None
            each = checked_item_weights(item_weights, wide, real)
            real = real & (each > 0)
        value, direction = self.solve(wide.detach(), known, real, offsets, each)
        given: dict[str, Any] = {"where": where, "offsets": offsets, "item_weights": item_weights}
        again = partial(self._by_torch, labels=labels, **given, weights=None, reduction="none")
        values = with_curvature(wide, value, direction, offsets, again)
        if real is not None and offsets is not None:  # the lists of which a document is left
            before = torch.nn.functional.pad(real.cumsum(0), (1, 0))
            real, offsets = (before[offsets[1:]] > before[offsets[:-1]]).unsqueeze(-1), None
        return reduce_lists(
            values, where=real, offsets=offsets, weights=weights, reduction=reduction, dtype=scores.dtype
        )

    def _by_torch(
        self,
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        weights: Tensor | None,
        item_weights: Tensor | None,
        reduction: Reduction,
    ) -> Tensor:
        dtype, signed = scores.dtype, self.takes_negative_labels
        real = check_values(scores.detach(), labels.detach(), where, offsets, signed)
        scores = scores.float() if dtype in HALVES else scores
        if not signed:
            refuse_inexact(labels, where, scores.dtype)
        labels = labels.detach().to(scores.dtype)
        each = None if item_weights is None else checked_item_weights(item_weights, scores, real)
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
            more = () if each is None else (each,)
            values = self.per_list(torch.where(real, scores, 0.0), torch.where(real, labels, 0.0), real, *more)
        values = values if broken is None else torch.where(broken, torch.nan, values)
        return reduce_lists(values, where=real, weights=weights, reduction=reduction, dtype=dtype)

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor | None:
        """Of the loss of each list, twice by the score of the same document, `[documents]`: the diagonal of its Hessian.

        Of flat lists, by `curvature`; below 0 where a loss is not convex. None where the loss is made of linear pieces, or has
        no `curvature`.
        """
        if self.curvature is None:
            return None
        return document_values(self.curvature, scores, labels, offsets, item_weights)

    def extra_repr(self) -> str:
        """The measure, the options that are set and the reduction."""
        return self._shown(self.options)

    def _shown(self, options: dict[str, Any]) -> str:
        texts = {name: _text(value) for name, value in options.items() if value is not None}
        return ", ".join(text if name == "measure" else f"{name}={text}" for name, text in texts.items())


def _text(value: Any) -> str:
    return f"{float(value.detach()):g}" if isinstance(value, Tensor) else str(getattr(value, "name", value))


def takes_loops(scores: Tensor) -> bool:
    """Whether compiled loops may take them, of which torch sees neither values nor derivatives."""
    return is_plain(scores) and dispatch.has_loops(scores.device)


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


def checked_item_weights(item_weights: Tensor, scores: Tensor, real: Tensor) -> Tensor:
    """One weight a document, of the dtype of the scores; what is below 0 or not finite is refused, NaN on other devices.

    Raises:
        TypeError: not a tensor.
        ValueError: another shape or device than that of `scores`.
    """
    check_tensor("item_weights", item_weights)
    if item_weights.shape != scores.shape or item_weights.device != scores.device:
        raise ValueError(
            f"item_weights must be one a document, shape {tuple(scores.shape)} on {scores.device}; got "
            f"{tuple(item_weights.shape)} on {item_weights.device}"
        )
    each = item_weights.detach().to(scores.dtype)
    wrong = real & ~((each >= 0) & each.isfinite())
    return refuse(each, wrong, "item_weights must be finite and >= 0")


def document_values(
    per_list: Callable[..., Tensor], scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
) -> Tensor:
    """What a function of padded lists says of each document, `[documents]`, of flat lists on the CPU, some at a time.

    Args:
        per_list: as `RankingLoss.per_list`, but to `[lists, longest list]`.
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
