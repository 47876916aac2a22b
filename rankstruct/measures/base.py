"""Base class of the measures, and their names.

A measure is an immutable object; two with the same parameters are equal, and its name, in ir-measures' syntax
(`nDCG(gain='linear')@10`), is parsed back to an equal one. A new measure is a dataclass with one method, `compute`, on
lists in rank order; see `DiscountedGain` for a simpler common case.
"""

from __future__ import annotations

import ast
import math
import numbers
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from types import CodeType, FunctionType
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.lists import ListColumns, Lists, as_real, lists_of
from rankstruct.measures.orders import mean_over_orders
from rankstruct.measures.ranked import TIES, Convention, Empty, RankedLists, Ties, rank_lists
from rankstruct.messages import ArgumentError, Way, nearest

__all__ = ["Measure", "parse_measure", "parse_measures", "register_measure"]


@dataclass(frozen=True)
class Measure(ABC):
    """Base class of all measures: the quality of a ranking, one value per list, higher is better.

    Args:
        cutoff: only the first `cutoff` ranks count; None for all. (A measure may not support one, or require one; if its methods
            do not use `cutoff`, it is not supported.)
        min_relevant: the lowest grade that counts as relevant; None for every label above 0.

    Raises:
        ValueError: a cut-off that is not a whole number from 1 on, or a `min_relevant` that is not a finite number.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class First(Measure):  # the grade of the first document, at most 1
    ...     def compute(self, lists):
    ...         return lists.labels[:, 0].clamp(max=1), (lists.labels > 0).any(-1)
    >>> First()(torch.tensor([2.0, 1.0]), torch.tensor([1, 0]))
    tensor(1., dtype=torch.float64)
    """

    cutoff: int | None = None
    min_relevant: float | None = field(default=None, kw_only=True)

    undefined: ClassVar[str] = "nothing in it is relevant"
    """Why a list may have no value, for messages."""
    takes_groups: ClassVar[bool] = False
    """Whether it requires `diversity_groups=`."""
    takes_item_weights: ClassVar[bool] = False
    """Whether `compute` uses `lists.weights`, the `item_weights=` of documents."""
    under_ties: ClassVar[str] = "orders"
    """How the expected value over all orders of tied documents is computed. `"closed form"`: `compute` supports groups of tied
    documents. `"orders"`: it does not, and is averaged over the orders one by one; a list with too many of them raises an error.
    `"worst"`: not the expected value; tied documents are ordered lowest labels first."""

    @property
    def takes_negative_labels(self) -> bool:
        """Whether labels may be negative; if `min_relevant` is 0 or less, they are not other libraries' padding."""
        return self.min_relevant is not None and self.min_relevant <= 0

    _looks_at_cutoff: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "compute" in vars(cls) and "under_ties" not in vars(cls):
            cls.under_ties = "orders"  # the declaration for an inherited compute does not hold for a new one
        if "compute" in vars(cls) and "takes_item_weights" not in vars(cls):
            cls.takes_item_weights = False
        cls._looks_at_cutoff = _looks_at(cls, "cutoff")

    def __post_init__(self) -> None:
        k = self.cutoff
        if k is not None:
            check_cutoff(k, type(self).__name__)
            if not self._looks_at_cutoff:
                raise ValueError(
                    f"{type(self).__name__} does not support a cut-off, since its compute does not use self.cutoff; got {k}"
                )
            object.__setattr__(self, "cutoff", int(k))
        if self.min_relevant is not None:
            self._check_number("min_relevant")

    def _check_number(self, name: str, rule: str = "") -> None:
        """Raise ValueError unless the parameter is a finite number within the bounds of `rule`, such as `"> 0"`."""
        check_numbers(rule, **{f"{name} of {type(self).__name__}": getattr(self, name)})

    @property
    def name(self) -> str:
        """The name that `parse_measure` maps back to an equal measure, unless an option is a function."""
        options = []
        for parameter in fields(self):
            value = getattr(self, parameter.name)
            if parameter.init and parameter.name != "cutoff" and value != parameter.default:
                options.append(f"{parameter.name}={_literal(value)}")
        name = type(self).__name__ + (f"({','.join(options)})" if options else "")
        return name if self.cutoff is None else f"{name}@{self.cutoff}"

    @abstractmethod
    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Compute the measure of lists in rank order: `(values [lists] float64, defined [lists] bool)`.

        `defined` is False for a list whose rankings are all equally good because nothing (or, for AUC, everything) is
        relevant; its value is ignored and may be NaN. A class that declares `under_ties = "closed form"` receives groups of
        tied documents (`lists.first`, `lists.last`) and returns the mean over their orders; others receive none.
        """

    def worth(self, labels: Tensor) -> Tensor:
        """The sort key of the best ranking, from clean float64 labels: the labels themselves unless overridden."""
        return labels

    def judge(self, lists: RankedLists, empty: Empty = 0) -> tuple[Tensor, Tensor]:
        """`compute` with the policies for ties and undefined lists applied; see `evaluate`.

        Raises:
            ValueError: with `empty="error"`, a list that is not all padding has no value; tied documents have too many
                orders, see `under_ties`; or the measure does not support item weights.
        """
        if lists.weights is not None and not self.takes_item_weights:
            able = sorted((kind.__name__ for kind in _REGISTRY.values() if kind.takes_item_weights), key=str.lower)
            raise ValueError(
                f"{self.name} does not support item_weights, since it is not a sum over documents; {', '.join(able)} support them"
            )
        if lists.first is not None and self.under_ties not in ("closed form", "worst"):
            values, defined = mean_over_orders(self._computed, lists, self.name)
        else:
            values, defined = self._computed(lists.lowest_first() if self.under_ties == "worst" else lists)
        if empty == "error":
            missing = ~defined & lists.where.any(-1)
            if bool(missing.any()):
                number = int(lists.index[missing][0])
                told = f"{self.name} of list {number} is undefined: {self.undefined}"
                raise ArgumentError(told, Way("empty", 0, "remove such lists, or pass {}, 1 or 'skip'"))
        fill = math.nan if empty == "skip" else float(empty == 1)
        return torch.where(defined, values, fill), defined

    def _computed(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """`compute`; raises TypeError for another result than two tensors with an entry per list."""
        found, expected = self.compute(lists), [(len(lists.labels),)] * 2
        each = found if isinstance(found, tuple | list) else [found]
        shapes = [tuple(one.shape) if isinstance(one, Tensor) else type(one).__name__ for one in each]
        if shapes != expected:
            raise TypeError(
                f"compute of {type(self).__name__} must return values, float64, and whether they are defined, bool, of shapes "
                f"{expected}; got {shapes}"
            )
        values, defined = each
        return values, defined

    def __call__(  # type: ignore[misc]  # where may be given by position
        self,
        scores: Any,
        labels: Any,
        where: Any = None,
        *,
        ties: Ties = "expected",
        empty: Empty = 0,
        convention: Convention | None = None,
        **columns: Unpack[ListColumns],
    ) -> Tensor:
        """The measure of each list, `[...]` float64; see `evaluate` for the arguments and errors."""
        ties = resolve_policies(ties, empty, convention)
        lists = lists_of(scores, labels, {**columns, "where": where}, by_docid=ties == "docid")
        return measure_lists([self], *lists, ties, empty, letor=convention == "letor")[0]

    @torch.no_grad()
    def best_value(
        self, labels: Any, where: Any = None, *, offsets: Any = None, diversity_groups: Any = None
    ) -> Tensor:
        """The value of the best ranking of each list, `[...]` float64; 0 if nothing is relevant.

        Raises:
            TypeError, ValueError: as `evaluate`, for labels, where and offsets.
        """
        columns: ListColumns = {"where": where, "offsets": offsets, "diversity_groups": diversity_groups}
        clean, lists = lists_of(as_real("labels", labels).double(), labels, columns)
        if lists.where is not None:
            clean = clean.masked_fill(~lists.where, 0)
        # The measure itself rejects infinite gains.
        worth = self.worth(clean).nan_to_num()
        return measure_lists([self], worth, lists._replace(labels=clean), "input")[0]


def check_cutoff(cutoff: Any, whose: str) -> None:
    """Raise ValueError unless a cut-off is a whole number from 1 to the maximum list length."""
    check_integers(1, _GREATEST_CUTOFF, **{f"the cut-off of {whose}": cutoff})


class ByMeasure(dict[str, Tensor]):
    """Values by the names of their measures; aliases of a name work too.

    >>> values = ByMeasure({"AP": torch.tensor(0.5)})
    >>> values, values["MAP"], "MAP" in values
    ({'AP': tensor(0.5000)}, tensor(0.5000), True)
    """

    def _own(self, name: Any) -> Any:
        """The name of the measure that this one is an alias of; `name` itself if it is none."""
        if super().__contains__(name):
            return name
        try:
            return parse_measure(name).name
        except (ValueError, TypeError):
            return name

    def __contains__(self, name: Any) -> bool:
        return super().__contains__(self._own(name))

    def __missing__(self, name: str) -> Tensor:
        own = self._own(name)
        if not super().__contains__(own):
            raise KeyError(name)
        return self[own]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a measure by its name or an alias; `default` if there is none."""
        return super().get(self._own(name), default)


@torch.no_grad()
def measure_lists(
    measures: Sequence[Measure],
    scores: Tensor,
    lists: Lists,
    ties: Ties = "expected",
    empty: Empty = 0,
    *,
    letor: bool = False,
) -> list[Tensor]:
    """The values of several measures, each `[...]` float64, with one sort; see `evaluate` for arguments and errors."""
    signed = all(measure.takes_negative_labels for measure in measures)
    shape = lists.shape()
    results = [torch.zeros(shape.numel(), dtype=torch.float64, device=scores.device) for _ in measures]
    for ranked in rank_lists(scores, lists, ties, letor=letor, signed=signed):
        for result, measure in zip(results, measures, strict=True):
            result[ranked.index] = measure.judge(ranked, empty)[0]
    return [result.reshape(shape) for result in results]


def resolve_policies(ties: Ties, empty: Empty, convention: Convention | None) -> Ties:
    """Check the three; returns the rule for ties, which `letor` sets.

    Raises:
        ValueError: an unknown policy or convention, or one that contradicts the convention.
    """
    check_choice("ties", ties, TIES)
    check_choice("empty", empty, (0, 1, "skip", "error"))
    check_choice("convention", convention, (None, "letor"))
    if convention is None:
        return ties
    if ties not in ("expected", "input") or empty != 0:
        raise ValueError(
            "convention='letor' keeps the input order among ties and counts an empty list as 0; leave ties and empty at "
            f"their defaults (got ties={ties!r}, empty={empty!r}), or set the options individually without convention"
        )
    return "input"


def _looks_at(kind: type[Measure], name: str) -> bool:
    """Whether a method of a measure class, other than those of `Measure` itself, uses an attribute."""

    def named(code: CodeType) -> bool:
        return name in code.co_names or any(named(each) for each in code.co_consts if isinstance(each, CodeType))

    own = (base for base in kind.__mro__ if base not in Measure.__mro__)
    found = (
        each for base in own for at, each in vars(base).items() if not at.startswith("__")
    )  # dataclass makes those
    methods = (each.fget if isinstance(each, property) else each for each in found)
    return any(named(each.__code__) for each in methods if isinstance(each, FunctionType))


_REGISTRY: dict[str, type[Measure]] = {}
_PREFIXES: dict[str, Callable[[Measure], Measure]] = {}
_ALIASES = {  # without underscores and hyphens
    "map": "ap",
    "averageprecision": "ap",
    "mrr": "rr",
    "reciprank": "rr",
    "reciprocalrank": "rr",
    "rocauc": "auc",
    "f1": "f",
    "precision": "p",
    "recall": "r",
    "hit": "success",
    "hitrate": "success",
    "hr": "success",
}
_CUT_OFF = re.compile(r"^\s*(?:(ndcg|map|p|recall|success)(?:_cut)?_|(\w+)_at_)([0-9]+)\s*$", re.IGNORECASE)
_LINEAR = re.compile(r"\s*ndcg_(cut|at)_", re.IGNORECASE)  # of trec_eval and those who call it
_PARAMETER_ALIASES = {"rel": "min_relevant", "p": "patience"}
_SYNTAX = re.compile(r"\s*([A-Za-z_][\w-]*)\s*(?:\((.*)\))?\s*(?:@\s*([0-9]+))?\s*", re.DOTALL)
_LONGEST_NAME = 200
_GREATEST_CUTOFF = 2**31 - 1

Kind = TypeVar("Kind", bound=type[Measure])


def register_measure(kind: Kind) -> Kind:
    """Class decorator that registers a measure with `parse_measure` under its class name.

    Raises:
        TypeError: not a subclass of `Measure`.
        ValueError: another class has this name, up to case.

    >>> from dataclasses import dataclass
    >>> from rankstruct.measures import DiscountedGain
    >>> @register_measure
    ... @dataclass(frozen=True)
    ... class TopHeavy(DiscountedGain):
    ...     '''Half the weight at each next rank.'''
    ...     def discounts(self, ranks):
    ...         return 0.5 ** (ranks - 1)
    ...     def gains(self, labels):
    ...         return labels
    >>> parse_measure("topheavy@2")([3.0, 2.0, 1.0], [0, 2, 1])
    tensor(1., dtype=torch.float64)
    """
    if not (isinstance(kind, type) and issubclass(kind, Measure)):
        raise TypeError(f"a measure must be a subclass of Measure, got {kind!r}")
    name = kind.__name__.lower()
    known = _REGISTRY.get(name)
    # The same class defined again, as when a notebook cell runs twice, replaces itself.
    if _plain(name) in _ALIASES or (
        known and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__)
    ):
        raise ValueError(f"a measure named {kind.__name__!r} is already registered; use another name")
    _REGISTRY[name] = kind
    return kind


def register_prefix(prefix: str, make: Callable[[Measure], Measure]) -> None:
    """Let `parse_measure` read the prefix and a measure's name as `make` of that measure."""
    _PREFIXES[prefix] = make


def parse_measure(measure: str | Measure) -> Measure:
    """Parse the name of a measure; a measure is returned unchanged.

    Names are written as in ir-measures, ignoring case: `AP`, `AP@10`, `nDCG(gain='linear')@10`, `ERU(d=3,half_life=5)`. `MAP`,
    `MRR`, `recip_rank`, `F1`, `Precision`, `Recall`, `Hit`, `hit_rate`, `HR`, `ROC-AUC`, trec_eval's `P_5` and `ndcg_cut_10` and
    MTEB's `ndcg_at_10`, with their linear gain, are accepted too, the parameters `rel` and `p` mean `min_relevant` and
    `patience`, and `cutoff=10` means `@10`. The prefix `diverse_` makes it a measure of diverse rankings: `diverse_RR@10`.

    Raises:
        ValueError: an unknown name, parameter or value; the message lists the valid ones.
        TypeError: neither a name nor a measure.

    >>> parse_measure("ndcg(rel=2)@10")
    nDCG(cutoff=10, min_relevant=2, discount='log2', gain='exponential')
    >>> parse_measure("mrr@10").name
    'RR@10'
    """
    if isinstance(measure, Measure):
        return measure
    if not isinstance(measure, str):
        hint = "; pass a loss as loss=" if hasattr(measure, "reduction") else ""
        if isinstance(measure, Tensor | np.ndarray | np.generic | bool):  # the mask, where other libraries take it
            raise TypeError(
                f"a measure must be a name such as 'AP' or an object such as AP(), got {type(measure).__name__}; pass a mask as "
                "where=, True for a real document and False for padding"
            )
        raise TypeError(f"a measure must be a name such as 'AP' or an object such as AP(), got {measure!r}{hint}")
    if len(measure) > _LONGEST_NAME:  # which also bounds how deep brackets and prefixes nest
        raise ValueError(
            f"a measure's name must have at most {_LONGEST_NAME} characters, got {len(measure)}: {measure[:40]!r}..."
        )
    name, arguments, cutoff = _parts_of(measure)
    kind = _REGISTRY.get(_ALIASES.get(_plain(name), name.lower()))
    if kind is None:
        for prefix, make in _PREFIXES.items():
            if name.lower().startswith(prefix):
                return make(parse_measure(measure.lstrip()[len(prefix) :]))
        names = sorted((known.__name__ for known in _REGISTRY.values()), key=str.lower)
        there_are = ", ".join(names) + "".join(f", and any of them after {prefix}" for prefix in _PREFIXES)
        raise ValueError(f"unknown measure {name!r}{_guess(name, _REGISTRY)}; available: {there_are}")
    options = ({"gain": "linear"} if _LINEAR.match(measure) else {}) | _read_options(measure, arguments or "")
    if cutoff is not None:
        if "cutoff" in options:
            raise ValueError(f"{measure!r} has two cut-offs")
        options["cutoff"] = int(cutoff)
    takes = {parameter.name: parameter for parameter in fields(kind) if parameter.init}
    for option in options:
        if option == "cutoff" and option not in takes:
            raise ValueError(f"{kind.__name__} does not support a cut-off, got {measure!r}")
        if option not in takes:
            raise ValueError(
                f"{kind.__name__} has no parameter {option!r}{_guess(option, takes)}; available: {', '.join(takes)}"
            )
    missing = [key for key, parameter in takes.items() if parameter.default is MISSING and key not in options]
    if missing:
        raise ValueError(
            f"{kind.__name__} needs {', '.join(missing)}; write {kind.__name__}({'=..., '.join(missing)}=...), got {measure!r}"
        )
    return kind(**options)


def _parts_of(measure: str) -> tuple[str, str | None, str | None]:
    """Name, options and cut-off."""
    written = measure if measure.strip().lower() in _REGISTRY else _CUT_OFF.sub(r"\1\2@\3", measure)
    match = _SYNTAX.fullmatch(written)
    if match is None:
        raise ValueError(
            f"cannot read the measure {measure!r}; write a name, options in parentheses and a cut-off, such as "
            "AP, nDCG@10 or nDCG(gain='linear')@10"
        )
    name, arguments, cutoff = match.groups()
    return name, arguments, cutoff


def _plain(name: str) -> str:
    return re.sub("[_-]", "", name.lower())


def parse_measures(measures: str | Measure | Iterable[str | Measure]) -> list[Measure]:
    """Parse one or several measures, names or objects; duplicates are removed, the order is preserved.

    Raises:
        ValueError: as `parse_measure`; or two different measures have the same name.
    """
    if isinstance(measures, str | Measure) or not isinstance(measures, Iterable):  # what is neither is refused below
        measures = [measures]
    found: dict[str, Measure] = {}
    for measure in map(parse_measure, measures):
        if found.setdefault(measure.name, measure) != measure:
            raise ValueError(
                f"two different measures are named {measure.name!r}, because an option is a function; give the "
                "functions different names"
            )
    return list(found.values())


def _read_options(measure: str, arguments: str) -> dict[str, Any]:
    """Parse `d=3, half_life=5` to a dictionary; literals only, nothing is executed."""
    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
            raise SyntaxError
        pairs = [(str(keyword.arg).lower(), ast.literal_eval(keyword.value)) for keyword in call.keywords]
    except (SyntaxError, ValueError):
        raise ValueError(
            f"cannot read the options of {measure!r}; write them as name=value, with numbers or quoted words, such as "
            "nDCG(gain='linear',min_relevant=2)@10"
        ) from None
    options = {_PARAMETER_ALIASES.get(key, key): value for key, value in pairs}
    if len(options) < len(pairs):
        raise ValueError(f"an option occurs twice in {measure!r}")
    return options


def _guess(name: str, known: Iterable[str]) -> str:
    """A suggestion of the closest known name, or nothing."""
    close = nearest(name, known)
    if not close:
        return ""
    return f" (did you mean {_REGISTRY[close[0]].__name__ if close[0] in _REGISTRY else close[0]}?)"


def _literal(value: Any) -> str:
    """A value as shown in a name: 3.0 as 3, a function by its name."""
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, numbers.Real):
        return str(int(float(value))) if float(value).is_integer() else repr(float(value))
    return repr(value)
