"""Base class of the losses, and the arguments they share.

**The list contract.** A loss is a module with its options as typed fields. It is called with

    scores      `[..., list_size]`: any real numbers, from any scorer; the last dimension is the list, all others are batch
    labels      graded relevance, 0 or more, the shape of `scores`. Only regression targets, such as for `SquaredLoss`, and labels
                of a measure with `min_relevant=0` or less may be negative
    where       bool, the shape of `scores`, True for a real document; all are real if None. Padding may have any value, even NaN,
                and has zero gradient
    offsets     int64 `[lists + 1]` or a list, instead of `where`: scores and labels are flat, `[documents]`, and list i is
                `[offsets[i], offsets[i + 1])`
    weights     `[...]`, one weight per list, >= 0; all 1 if None
    item_weights  the shape of `scores`, >= 0: the weight of each document, such as its inverse propensity; all 1 if None. See
                below
    reduction   `"mean"`, `sum(w l) / sum(w)` over the lists that are not all padding; `"sum"`; or `"none"`; defaults to the
                module's own

and returns a scalar or, with reduction `"none"`, one value per list, `[...]`, with the dtype and device of `scores`; under
autocast the loss of half-precision `scores` is float32, as with torch's own losses. A list that is all padding has loss 0 and
zero gradient, and so has, except for pointwise losses, one whose rankings are all equally good (a single document, equal labels).
Wrong types, shapes and options raise TypeError or ValueError. So do, on the CPU, a score or label that is not finite, a negative
label, gain or weight, and offsets out of order; on other devices, where reading values back would stall every step, the loss of
such a list is NaN. Scores may be as large as their dtype allows; a loss that overflows, such as the square of 1e38, is a
ValueError on the CPU and inf elsewhere.

**Item weights.** A document of weight 0 is left out, as with `where`. Otherwise means over documents or pairs become weighted
means, with the product of both weights for a pair; the targets of a softmax are multiplied by the weights, and so are gains,
including those of the best ranking. A structured hinge then bounds the regret of its measure with these weights, as `evaluate`
computes it, and is still exact: for AUC, for discounted gains with the positional map and for P@k and R@k. Other structured
hinges and surrogates of the top raise TypeError.

To learn from clicks, a clicked document has the inverse of its propensity as weight, and other documents 1: they compete with it
whatever their own propensity. The expected value over clicks is the loss of the true labels for `AdditiveRankLoss`, which is
linear in the labels, and for `SoftmaxLoss` if a list has a document that cannot be clicked. For all others the weights only
multiply the gains or pairs of clicked documents: these losses divide by the number of clicked documents, by their gains or by
those of the best ranking, or take a maximum, whose expected value is larger.

To write a custom loss, subclass `RankingLoss` and define `per_list` on padded lists; the base class handles masks, flat lists,
weights and reductions:

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

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import partial
from inspect import Parameter, Signature, signature
from types import FunctionType
from typing import Any, ClassVar, Literal, get_args, get_origin

import torch
from torch import Tensor
from typing_extensions import Self, TypedDict, Unpack, dataclass_transform

from rankstruct.argument_names import MASK, OF_LISTS, knows_cutoffs
from rankstruct.checks import check_choice
from rankstruct.kernels import dispatch
from rankstruct.lists import (
    Lists,
    are_single_documents,
    as_offsets,
    at_positions,
    check_lists,
    checked_item_weights,
    copied_to,
    is_concrete,
    is_plain,
    is_under_autocast,
    length_buckets,
    longest_list,
    positions,
    refuse_inexact,
    refuse_negative,
    warn_of_single_documents,
)
from rankstruct.losses.autograd import with_curvature
from rankstruct.losses.checks import check_size, check_values, warn_of_cutoff
from rankstruct.losses.reduction import HALVES, REDUCTIONS, Reduction, reduce_lists
from rankstruct.measures import Measure, nDCG
from rankstruct.measures.discounted_gain import warn_of_large_gains
from rankstruct.messages import explaining, refuse_positions, warn_caller

__all__ = [
    "RankingLoss",
    "draws",
    "is_convex",
    "rules_of",
    "second_derivatives",
    "takes_columns",
    "takes_groups",
    "takes_reference_scores",
]

_PAIRS = 2**18  # pairs of documents per block: what fits in the caches
_LOOKED_UP = ("measure", "feature_map")
_NO_ITEM_WEIGHTS = (
    "this loss does not support item_weights; mask documents with where=, weight lists with weights=, or use another loss, such "
    "as StructuredHingeLoss('DCG@10') or a pairwise, listwise or pointwise one"
)


class LayoutOptions(TypedDict, total=False):
    """Keyword arguments of every loss."""

    where: Tensor | None
    offsets: Tensor | None
    weights: Tensor | None
    reduction: Reduction


class ListOptions(LayoutOptions, total=False):
    """Keyword arguments of a loss that supports document weights."""

    item_weights: Tensor | None


class HingeOptions(ListOptions, total=False):
    """Keyword arguments of a loss that uses an oracle, as in `most_violated`."""

    reference_scores: Tensor | None
    diversity_groups: Tensor | None


class PageOptions(HingeOptions, total=False):
    """Keyword arguments of a loss that may have rules for a page."""

    columns: Mapping[str, Any] | None


class AllOptions(PageOptions, total=False):
    """Keyword arguments of any loss."""


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class _DataclassModule(torch.nn.Module):
    """A torch module whose subclasses are dataclasses, unless they have an `__init__` of their own; `setup()` is called last."""

    _by_hand: ClassVar[bool] = False

    def __new__(cls, *given: Any, **named: Any) -> Self:
        self = super().__new__(cls)
        torch.nn.Module.__init__(self)  # before the dataclass sets its fields, which may be modules
        return self

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Types written as text are evaluated.
        annotations = vars(cls).get("__annotations__", {})
        scope = {**vars(sys.modules.get(cls.__module__, sys)), **vars(cls)}
        for name, hint in annotations.items():
            if isinstance(hint, str):
                with suppress(Exception):  # a name that is not defined yet; the text suffices for a signature
                    annotations[name] = eval(hint, scope)
        private = [name for name, hint in annotations.items() if name.startswith("_") and hint is not KW_ONLY]
        inherited = {*getattr(cls, "__dataclass_fields__", ())}
        fixed = [
            name for name in vars(cls) if name in inherited and name not in annotations
        ]  # options that are none here
        own = {name for name, hint in annotations.items() if name not in private and get_origin(hint) is not ClassVar}
        by_hand = [name for name in signature(cls.__init__).parameters if name not in {"self", *inherited}]
        if own and cls._by_hand and "__init__" not in vars(cls) and by_hand:
            raise TypeError(
                f"{cls.__name__} adds options to a loss with an __init__ of its own, which takes {', '.join(by_hand)}; define "
                "__init__ too"
            )
        cls.__annotations__ = annotations | dict.fromkeys([*private, *fixed], ClassVar[Any])
        cls._by_hand = "__init__" in vars(cls) or (cls._by_hand and not own)
        dataclass(eq=False, repr=False, init=not cls._by_hand)(cls)
        for option in fields(cls):  # type: ignore[arg-type]
            if option.init and option.name in vars(cls) and not isinstance(vars(cls)[option.name], property):
                delattr(cls, option.name)  # so that a buffer can have this name
        takes = signature(cls.__init__).parameters
        kinds = {each.kind for each in takes.values()}
        if "measure" in takes and "__init__" in vars(cls) and Parameter.VAR_KEYWORD not in kinds:
            cls.__init__ = knows_cutoffs(cls.__init__)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        for option in fields(self):  # type: ignore[arg-type]
            if option.init and hasattr(self, option.name):  # an __init__ of the class's own may set it later
                value = getattr(self, option.name)
                if get_origin(option.type) is Literal:
                    check_choice(option.name, value, get_args(option.type))
                check_size(option.name, value)
        self.setup()

    def setup(self) -> None:
        """Validate the fields and create any other state; called once, by the constructor."""


class RankingLoss(_DataclassModule):
    """Base class of all losses: a dataclass whose fields are the options; `per_list` computes the loss.

    Fields before `KW_ONLY` are positional arguments of the constructor, in order; `reduction` is keyword-only. A field of type
    `Literal` accepts only these values. `setup` runs after the fields are set, and validates the others.

    A subclass may also define `solve(scores, lists)`, which returns value and gradient from compiled loops, for padded or flat
    lists: `lists` has labels, where, offsets and item weights. `per_list` is then used for devices without kernels, torch.func,
    `torch.compile` and higher-order derivatives.

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.

    >>> class Margin(RankingLoss):
    ...     margin: float = 1.0
    ...     def per_list(self, scores, labels, where):  # 0 in the padding
    ...         return (self.margin - scores).clamp(min=0).mul((labels > 0) & where).sum(-1)
    >>> Margin(2.0)(torch.tensor([0.5, 3.0, 1.0]), torch.tensor([1, 1, 0]))
    tensor(1.5000)
    """

    # For type checkers: each loss has its own signature.
    __call__: ClassVar[Callable[..., Tensor]]  # type: ignore[misc]
    forward: ClassVar[Callable[..., Tensor]]  # type: ignore[misc]
    #: Whether the loss of a list is a convex function of its scores.
    convex: ClassVar[bool] = False
    #: Whether `per_list` has a fourth argument, `weights=None`: `[..., list_size]`, above 0, and 0 in the padding.
    takes_item_weights: ClassVar[bool] = False
    #: Whether it accepts `diversity_groups=`, one whole number per document; `per_list` gets them by this name.
    takes_groups: ClassVar[bool] = False
    #: What to do so that it accepts them, if it does not.
    groups_need: ClassVar[str] = "use a diversity measure, such as StructuredHingeLoss('diverse_nDCG@10')"
    #: Whether it needs `columns=`, for each column of its rules the groups of the documents.
    takes_columns: ClassVar[bool] = False
    #: Whether `reference_scores=` can fix its reference, as for bounds that are not convex; `per_list` gets them by this name.
    takes_reference_scores: ClassVar[bool] = False
    #: Whether a call draws random numbers from torch's global generator.
    draws: ClassVar[bool] = False
    #: Whether labels may be negative; otherwise they raise an error.
    takes_negative_labels: ClassVar[bool] = False
    #: The keyword arguments of `of_lists`.
    call_options: ClassVar[type] = ListOptions
    #: Value and gradient by compiled loops, if there are any.
    solve: ClassVar[Callable[..., tuple[Tensor, Tensor]] | None] = None
    #: Whether these have kernels for CUDA and ROCm devices.
    on_devices: ClassVar[bool] = False
    #: Like `per_list`, but returns the second derivatives `[..., list_size]`; None if not implemented.
    curvature: ClassVar[Callable[..., Tensor] | None] = None

    _looked = False
    _: KW_ONLY
    reduction: Reduction = "mean"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "forward" in vars(cls):
            cls.forward = explaining({}, instead=MASK)(cls.forward)
        elif getattr(cls.forward, "of_lists", False):
            cls.forward = _forward_of(cls)

    @property
    def options(self) -> dict[str, Any]:
        """The constructor's arguments, by name."""
        own = sorted(
            (each for each in fields(self) if each.init), key=lambda each: (each.kw_only, each.name == "reduction")
        )
        return {each.name: getattr(self, each.name) for each in own}

    def with_options(self, **changes: Any) -> Self:
        """A copy of the loss with these options changed; what the loss has learned is copied, if it fits.

        >>> import rankstruct as rs
        >>> rs.ListNetLoss("gain").with_options(reduction="sum")
        ListNetLoss(target=gain, reduction=sum)
        """
        changed = type(self)(**{**self.options, **changes})
        learned = {name: each for name, each in self.named_parameters() if name.partition(".")[0] not in changes}
        news = dict(changed.named_parameters())
        if all(name in news and news[name].shape == each.shape for name, each in learned.items()):
            with torch.no_grad():
                for name, each in learned.items():
                    news[name].copy_(each)
        return changed

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, but not the measure or feature map of a loss that has looked them up."""
        if name in _LOOKED_UP:
            known = vars(self).get(name)
            if not (known is None or isinstance(known, str) or known is value or known == value):
                raise AttributeError(
                    f"{name} was looked up when the loss was made: call with_options({name}=...) for another loss"
                )
        super().__setattr__(name, value)

    def forward(self, scores: Tensor, labels: Tensor, *others: Any, **options: Any) -> Tensor:  # type: ignore[no-redef]
        """The loss: a scalar, or one value per list with reduction `"none"`."""
        # Here the arguments are checked and become `Lists`, outside autocast.
        if others:
            refuse_positions(("scores", "labels"), 2 + len(others), MASK)
        if isinstance(scores, Tensor) and (
            torch.is_autocast_enabled("cpu") if scores.is_cpu else is_under_autocast(scores)
        ):
            scores = scores.float() if scores.dtype in HALVES else scores
            with torch.autocast(scores.device.type, enabled=False):  # it would multiply matrices in half precision
                return self._checked(scores, labels, options)
        return self._checked(scores, labels, options)

    def _checked(self, scores: Tensor, labels: Tensor, options: dict[str, Any]) -> Tensor:
        reduction, lists = self.reduction, Lists(labels)
        if options or not isinstance(scores, Tensor):
            options = self.checked_options(scores, labels, options)
            reduction, lists = options.pop("reduction"), Lists(labels, **options)
        check_lists(scores, labels, lists.where, lists.offsets)
        value = self.of_lists(scores, lists, reduction)
        if are_single_documents(scores) and (scores.dim() > 2 or (is_plain(value) and not value.detach().any())):
            warn_of_single_documents(scores)  # [lists, 1] may be intended with a pointwise loss
        ignores = lists.diversity_groups is not None and not (self.takes_groups or self.takes_columns)
        if ignores and not torch.compiler.is_compiling():
            warn_caller(f"{self!r} ignores diversity_groups=; {self.groups_need}")
        if not self._looked:
            self.look_once(lists)
        return value

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
        """One value per list, `[...]`.

        Args:
            scores, labels: `[..., list_size]`, float32 or float64, 0 in the padding.
            where: bool, True for a real document; documents of item weight 0 count as padding.
        """
        raise NotImplementedError(f"{type(self).__name__} must define per_list")

    def look_once(self, lists: Lists) -> None:
        """At the first call on the CPU, warn of labels whose gains are huge, and of a cut-off of the measure that neglects most
        relevant documents of long lists.
        """
        labels, where, measure = lists.labels.detach(), lists.where, getattr(self, "measure", None)
        if torch.compiler.is_compiling() or not is_plain(labels):
            return
        self._looked = True
        real = labels if where is None else labels[where]
        if getattr(self, "target", None) == "gain":
            warn_of_large_gains(nDCG(), real, "another target=")
        elif isinstance(measure, Measure):
            warn_of_large_gains(measure, real)
            warn_of_cutoff(measure, labels, where, lists.offsets)

    def checked_options(self, scores: Any, labels: Any, options: dict[str, Any]) -> dict[str, Any]:
        """The arguments beyond scores and labels; raises TypeError or ValueError for those that the loss does not accept."""
        known = self.call_options.__annotations__
        if unknown := [name for name in options if name not in known and name != "item_weights"]:
            taken = [name for name in known if name != "item_weights" or self.takes_item_weights]
            other_names = [OF_LISTS[name] for name in unknown if name in OF_LISTS]
            raise TypeError(
                (
                    *other_names,
                    f"unexpected keyword argument {unknown[0]!r}; in addition to scores and labels, this loss accepts "
                    f"{', '.join(taken)}",
                )[0]
            )
        if options.get("item_weights") is not None and not self.takes_item_weights:
            self.refuse_item_weights()
        if options.get("columns") is not None and not self.takes_columns:
            raise TypeError("columns= are the groups that rules are about; this loss has none: pass constraints= to it")
        if "offsets" in options and not isinstance(options["offsets"], Tensor):
            options["offsets"] = as_offsets(options["offsets"])
        if not isinstance(scores, Tensor) and type(labels).__module__.partition(".")[0] in ("lightgbm", "xgboost"):
            raise TypeError(
                "to use a loss as the objective of LightGBM or XGBoost, pass rankstruct.boosting_objective(loss)"
            )
        if options.setdefault("reduction", self.reduction) not in REDUCTIONS:
            check_choice("reduction", options["reduction"], REDUCTIONS)
        return options

    def refuse_item_weights(self) -> None:
        """Raise the TypeError of a loss that does not support item weights."""
        raise TypeError(_NO_ITEM_WEIGHTS)

    def of_lists(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor:
        """The reduced loss: by `solve` if there are loops or kernels for the scores' device, otherwise by `per_list`."""
        plain = takes_loops(scores)
        if self.solve is None or not (plain or (self.on_devices and takes_kernels(scores))):
            return self._by_torch(scores, lists, reduction)
        wide, labels, each = scores.float() if scores.dtype in HALVES else scores, lists.labels.detach(), None
        real, offsets, known = lists.where, lists.offsets, wide.detach()
        if not plain:  # nothing is read back
            if lists.item_weights is not None:
                real = torch.ones_like(scores, dtype=torch.bool) if real is None else real
        elif self.takes_negative_labels or lists.item_weights is not None:
            real = check_values(scores, lists, self.takes_negative_labels)
        else:
            labels = refuse_negative(labels, real)
        if lists.item_weights is not None:
            assert real is not None
            each = checked_item_weights(lists.item_weights, wide, real)
            real = real & (each != 0)  # NaN stays
        if not plain:  # a list with an invalid number has loss NaN
            known = torch.where(_wrong(known, labels, each, self.takes_negative_labels), torch.nan, known)
        value, direction = self.solve(known, Lists(labels, real, offsets, item_weights=each))
        again = partial(self._by_torch, lists=lists._replace(weights=None), reduction="none")
        values = with_curvature(wide, value, direction, offsets, again)
        return reduce_lists(values, lists._replace(where=real), reduction, scores.dtype)

    def _by_torch(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor:
        dtype, signed, offsets = scores.dtype, self.takes_negative_labels, lists.offsets
        real = check_values(scores, lists, signed)
        scores = scores.float() if dtype in HALVES else scores
        if not signed:
            refuse_inexact(lists.labels, lists.where, scores.dtype)
        labels = lists.labels.detach().to(scores.dtype)
        each = None if lists.item_weights is None else checked_item_weights(lists.item_weights, scores, real)
        fixed, groups = lists.reference_scores, lists.diversity_groups if self.takes_groups else None
        if offsets is not None:
            real, (scores, labels, each, fixed, groups) = padded(offsets, scores, labels, each, fixed, groups)
        on_cpu = scores.device.type == "cpu"  # elsewhere nothing is read back; a list with invalid numbers has loss NaN
        broken = None if on_cpu else (real & _wrong(scores, labels, each, signed)).any(-1)
        if each is not None:
            real = real & (each > 0)
            each = torch.where(real, each, 0.0)
        if offsets is None and scores.shape[-1] == 0:
            values = scores.sum(-1)
        else:
            more = () if each is None else (each,)
            known = {} if fixed is None else {"reference_scores": torch.where(real, fixed, 0.0).to(scores.dtype)}
            known |= {} if groups is None else {"diversity_groups": groups}
            if lists.where is not None or offsets is not None or each is not None:
                scores, labels = torch.where(real, scores, 0.0), torch.where(real, labels, 0.0)
            values = self.per_list(scores, labels, real, *more, **known)
            if not isinstance(values, Tensor) or values.shape != scores.shape[:-1]:
                found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
                raise TypeError(
                    f"per_list of {type(self).__name__} must return one value per list, {tuple(scores.shape[:-1])}; got {found}"
                )
        values = values if broken is None else torch.where(broken, torch.nan, values)
        return reduce_lists(values, Lists(labels, real, weights=lists.weights), reduction, dtype)

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor | None:
        """The diagonal of the Hessian of each list's loss, `[documents]`, for flat lists.

        May be negative if the loss is not convex. None if the loss is piecewise linear or has no `curvature`.
        """
        if self.curvature is None:
            return None
        return document_values(self.curvature, scores, labels, offsets, item_weights)

    def extra_repr(self) -> str:
        """The measure, the options that are not None, and the reduction."""
        return self._shown(self.options)

    def _shown(self, options: dict[str, Any]) -> str:
        texts = {name: _text(value) for name, value in options.items() if value is not None}
        return ", ".join(text if name == "measure" else f"{name}={text}" for name, text in texts.items())


def _forward_of(kind: type[RankingLoss]) -> Callable[..., Tensor]:
    """The `forward` of `RankingLoss` for another class: with its signature, and with code of its own.

    torch.compile recompiles each code a few times only.
    """
    base: Any = vars(RankingLoss)["forward"]
    code = base.__code__.replace(co_name=f"forward_of_{kind.__name__}")
    own: Any = FunctionType(code, base.__globals__, base.__name__, base.__defaults__, base.__closure__)
    own.__doc__, own.__module__, own.__qualname__, own.of_lists = base.__doc__, base.__module__, base.__qualname__, True
    first = list(signature(base).parameters.values())[:3]
    lists = Parameter("lists", Parameter.VAR_KEYWORD, annotation=Unpack[kind.call_options])
    own.__signature__ = Signature([*first, lists], return_annotation=Tensor)
    return own


RankingLoss.forward.of_lists = True  # type: ignore[attr-defined]


def _text(value: Any) -> str:
    return f"{float(value.detach()):g}" if isinstance(value, Tensor) else str(getattr(value, "name", value))


def takes_loops(scores: Tensor, on_devices: bool = False) -> bool:
    """Whether compiled loops or, `on_devices`, kernels, which are invisible to torch, can process these scores."""
    return (is_concrete(scores) and dispatch.has_loops(scores.device)) or (on_devices and takes_kernels(scores))


def takes_kernels(scores: Tensor) -> bool:
    """Whether there are kernels for the device of these scores."""
    return is_concrete(scores) and dispatch.kernels_of(scores.device) is not None


def longest_of(scores: Tensor, offsets: Tensor | None) -> int:
    """The length of the longest list, at least 1, or of all of them if the offsets are on a device.

    Raises ValueError if offsets are out of order.
    """
    known = offsets is not None and offsets.device.type == "cpu"
    return max(longest_list(offsets, scores.shape[0]) if known else scores.shape[-1], 1)  # type: ignore[arg-type]


def padded(offsets: Tensor, *flat: Any) -> tuple[Tensor, list[Any]]:
    """The mask `[lists, longest list]` of real documents, and flat tensors, or None, padded to that shape."""
    documents = flat[0].shape[0]
    places = copied_to(flat[0].device, _positions(offsets, documents))
    real, source = places >= 0, places.clamp(min=0)
    return real, [
        None if value is None else value[source] if documents else value.sum().expand(real.shape) for value in flat
    ]


def _wrong(scores: Tensor, labels: Tensor, item_weights: Tensor | None, signed: bool) -> Tensor:
    right = scores.isfinite() & labels.isfinite()
    right = right if signed else right & (labels >= 0)
    return ~(right if item_weights is None else right & ~item_weights.isnan())


def document_values(
    per_list: Callable[..., Tensor], scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
) -> Tensor:
    """Apply a function of padded lists to flat lists on the CPU, in blocks: one value per document, `[documents]`.

    Args:
        per_list: as `RankingLoss.per_list`, but returns `[lists, longest list]`.
        scores, labels, offsets, item_weights: see the list contract.
    """
    values = torch.zeros_like(scores)
    weights = torch.ones_like(scores) if item_weights is None else item_weights.to(scores.dtype)
    columns = torch.stack([scores, labels.to(scores.dtype), weights], -1)
    for bucket in length_buckets(offsets):
        longest = int(offsets.diff()[bucket].max())
        for lists in bucket.split(max(1, _PAIRS // longest**2)) if longest else ():
            places = positions(offsets, lists)
            *here, weight = at_positions(columns, places).unbind(-1)
            real = weight > 0
            here = [torch.where(real, each, 0.0) for each in here]
            found = per_list(*here, real) if item_weights is None else per_list(*here, real, weight)
            values[places[places >= 0]] = torch.where(real, found, 0.0)[places >= 0]
    return values


def is_convex(loss: torch.nn.Module) -> bool:
    """Whether a loss declares that it is a convex function of each list's scores."""
    return bool(getattr(loss, "convex", False))


def takes_groups(loss: torch.nn.Module) -> bool:
    """Whether a loss accepts `diversity_groups=`, one whole number per document."""
    return bool(getattr(loss, "takes_groups", False))


def takes_columns(loss: torch.nn.Module) -> bool:
    """Whether a loss needs `columns=`, the groups of the documents that its rules are about."""
    return bool(getattr(loss, "takes_columns", False))


def rules_of(loss: torch.nn.Module) -> list[Any]:
    """The `PageRules` of a loss, and of those that it consists of.

    >>> import rankstruct as rs
    >>> loss = rs.CombinedLoss([rs.StructuredHingeLoss("DCG@3", constraints="seller <= 1 @ 3"), rs.ListNetLoss()])
    >>> [each.constraints for each in rules_of(loss)]
    [Constraints('seller <= 1 @ 3')]
    """
    found = (getattr(each, "page_rules", None) for each in loss.modules())
    return [each for each in found if each is not None]


def draws(loss: torch.nn.Module) -> bool:
    """Whether a loss, or one that it consists of, declares that it draws random numbers; True if none declares anything.

    >>> import rankstruct as rs
    >>> draws(rs.PLRankLoss()), draws(rs.ListNetLoss()), draws(torch.nn.MSELoss())
    (True, False, True)
    """
    declared = [each.draws for each in loss.modules() if hasattr(each, "draws")]
    return any(declared) or not declared


def takes_reference_scores(loss: torch.nn.Module) -> bool:
    """Whether `reference_scores` can fix the reference of a loss, as for bounds that are not convex."""
    return bool(getattr(loss, "takes_reference_scores", False))


def second_derivatives(
    loss: torch.nn.Module, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
) -> Tensor | None:
    """The second derivatives of a loss for flat lists, `[documents]`; None if it does not define them.

    `item_weights` is passed to the loss only if it is not None.

    >>> import rankstruct as rs
    >>> second_derivatives(rs.ListNetLoss(), torch.zeros(4), torch.tensor([1, 0, 0, 0]), torch.tensor([0, 4]))
    tensor([0.1875, 0.1875, 0.1875, 0.1875])
    """
    given = () if item_weights is None else (item_weights,)
    return getattr(loss, "second_derivatives", lambda *_: None)(scores, labels, offsets, *given)


@torch.library.custom_op("rankstruct::list_positions", mutates_args=())
def _positions(offsets: Tensor, documents: int) -> Tensor:
    """`positions`, with at least one column."""
    places = positions(offsets)
    return (places if places.shape[-1] else torch.full((len(places), 1), -1, device=offsets.device)).long()


@_positions.register_fake
def _(offsets: Tensor, documents: int) -> Tensor:
    longest = torch.library.get_ctx().new_dynamic_size(min=1)
    return offsets.new_empty((offsets.shape[0] - 1, longest), dtype=torch.int64)
