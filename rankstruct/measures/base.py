"""What a measure is, and the names that measures go by.

A measure is an immutable object; two with the same parameters are equal, and its name, in ir-measures' syntax
(`nDCG(gain='linear')@10`), is parsed back to an equal one. A new measure is a dataclass with one method, `compute`, on
lists in rank order; see `DiscountedGain` for the common case that needs less.
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

import torch
from torch import Tensor

from rankstruct.lists import as_offsets, check_lists
from rankstruct.measures.orders import mean_over_orders
from rankstruct.measures.ranked import Convention, Empty, RankedLists, Ties, as_real, as_tensor, rank_lists
from rankstruct.messages import nearest

__all__ = ["Measure", "parse_measure", "parse_measures", "register_measure"]


@dataclass(frozen=True)
class Measure(ABC):
    """Base of all measures: how good a ranking is, one value a list, higher is better.

    Args:
        cutoff: only the first `cutoff` ranks count, what stands below them counts 0; None for all. (A measure may take none,
            or need one; one whose methods do not look at it takes none.)
        min_relevant: the lowest grade that counts as relevant; None for every label above 0.

    Raises:
        ValueError: a cut-off that is not a whole number from 1 on, or a `min_relevant` that is not a finite number.
    """

    cutoff: int | None = None
    min_relevant: float | None = field(default=None, kw_only=True)

    undefined: ClassVar[str] = "nothing in it is relevant"
    """Why a list may have no value, for messages."""
    takes_groups: ClassVar[bool] = False
    """Whether it needs `groups=`."""
    takes_item_weights: ClassVar[bool] = False
    """Whether `compute` looks at `lists.weights`, the `item_weights=` of documents."""
    under_ties: ClassVar[str] = "orders"
    """What stands for the expected value over all orders of tied documents. `"closed form"`: `compute` takes groups of tied
    documents. `"orders"`: `compute` knows none, and is averaged over the orders one by one, a list with too many of them
    being an error. `"worst"`: tied documents stand lowest labels first."""

    @property
    def takes_negative_labels(self) -> bool:
        """Whether labels below 0 mean something to it, and are not other libraries' padding: if relevant is what is 0 or less."""
        return self.min_relevant is not None and self.min_relevant <= 0

    _looks_at_cutoff: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "compute" in vars(cls) and "under_ties" not in vars(cls):
            cls.under_ties = "orders"  # what was said of an inherited compute does not hold for a new one
        if "compute" in vars(cls) and "takes_item_weights" not in vars(cls):
            cls.takes_item_weights = False
        cls._looks_at_cutoff = _looks_at(cls, "cutoff")

    def __post_init__(self) -> None:
        k = self.cutoff
        if k is not None:
            check_cutoff(k, type(self).__name__)
            if not self._looks_at_cutoff:
                raise ValueError(
                    f"{type(self).__name__} takes no cut-off: its compute does not look at self.cutoff, got {k}"
                )
            object.__setattr__(self, "cutoff", int(k))
        if self.min_relevant is not None:
            self._check_number("min_relevant")

    def _check_number(self, name: str, above: float = -math.inf, most: float = math.inf) -> None:
        """Raise ValueError unless the parameter is a finite number above a bound, and at most another."""
        value = getattr(self, name)
        if (
            isinstance(value, numbers.Integral) and abs(int(value)) > 2**53
        ):  # which float64 does not hold, and int64 may not
            raise ValueError(f"{name} of {type(self).__name__} must be at most 2^53 in size, got {_shown(value)}")
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not above < float(value) < math.inf:
            bound = f" above {above:g}" if above > -math.inf else ""
            raise ValueError(f"{name} of {type(self).__name__} must be a finite number{bound}, got {value!r}")
        if float(value) > most:
            raise ValueError(f"{name} of {type(self).__name__} must be at most {most:g}, got {value!r}")

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
        """The measure of lists in rank order: `(values [lists] float64, defined [lists] bool)`.

        `defined` is False where no ranking of the list is better than another because nothing (or, for AUC, everything)
        is relevant; the value there may be anything, even NaN. A class that declares `under_ties = "closed form"` gets
        groups of tied documents (`lists.first`, `lists.last`) and returns the mean over their orders; others get none.
        """

    def worth(self, labels: Tensor) -> Tensor:
        """What the best ranking sorts by, from clean float64 labels: the labels themselves unless overridden."""
        return labels

    def judge(self, lists: RankedLists, empty: Empty = 0) -> tuple[Tensor, Tensor]:
        """`compute` with the policies for ties and undefined lists applied; see `evaluate`.

        Raises:
            ValueError: under `empty="error"`, a list that is not all padding has no value; tied documents have too many
                orders, see `under_ties`; or item weights are given to a measure that takes none.
        """
        if lists.weights is not None and not self.takes_item_weights:
            raise ValueError(
                f"{self.name} takes no item_weights: it does not add up what single documents are worth; nDCG, DCG, P, RBP, ERU, "
                "AP, AUC, OPA and ARP do"
            )
        if lists.first is not None and self.under_ties not in ("closed form", "worst"):
            values, defined = mean_over_orders(self.compute, lists, self.name)
        else:
            values, defined = self.compute(lists.lowest_first() if self.under_ties == "worst" else lists)
        if empty == "error":
            missing = ~defined & lists.where.any(-1)
            if bool(missing.any()):
                number = int(lists.index[missing][0])
                raise ValueError(
                    f"{self.name} of list {number} is undefined: {self.undefined}; drop such lists, or pass empty=0, 1 "
                    "or 'skip'"
                )
        fill = math.nan if empty == "skip" else float(empty == 1)
        return torch.where(defined, values, fill), defined

    def __call__(self, scores: Any, labels: Any, where: Any = None, **options: Any) -> Tensor:
        """The measure of each list, `[...]` float64; see `evaluate` for the options and errors."""
        return measure_lists([self], scores, labels, where, **options)[0]

    @torch.no_grad()
    def best_value(self, labels: Any, where: Any = None, *, offsets: Any = None, groups: Any = None) -> Tensor:
        """The value of the best ranking of each list, `[...]` float64; 0 where nothing is relevant.

        Raises:
            TypeError, ValueError: as `evaluate`, for labels, where and offsets.
        """
        clean = as_real("labels", labels).double()
        where, offsets = None if where is None else as_tensor("where", where), as_offsets(offsets)
        check_lists(clean, clean, where, offsets)
        if where is not None:
            clean = clean.masked_fill(~where, 0)
        # Infinite gains are the measure's own business to refuse.
        worth = self.worth(clean).nan_to_num()
        return measure_lists([self], worth, clean, where, offsets=offsets, ties="input", groups=groups)[0]


def check_cutoff(cutoff: Any, whose: str) -> None:
    """Raise ValueError unless a cut-off is a whole number from 1 to the longest that a list can be."""
    if isinstance(cutoff, bool) or not isinstance(cutoff, numbers.Integral) or int(cutoff) < 1:
        raise ValueError(f"the cut-off of {whose} must be a whole number >= 1, got {_shown(cutoff)}")
    if int(cutoff) > _GREATEST_CUTOFF:
        raise ValueError(f"the cut-off of {whose} must be at most {_GREATEST_CUTOFF}, got {_shown(cutoff)}")


def _shown(value: Any) -> str:
    """A value for a message; of a very large number, which may have more digits than Python prints, the number of bits."""
    return f"one of {value.bit_length()} bits" if isinstance(value, int) and abs(value) >= 2**64 else repr(value)


class ByMeasure(dict[str, Tensor]):
    """Values by the names of their measures, which other names of a measure find too.

    >>> values = ByMeasure({"AP": torch.tensor(0.5)})
    >>> values, values["MAP"]
    ({'AP': tensor(0.5000)}, tensor(0.5000))
    """

    def __missing__(self, name: str) -> Tensor:
        try:
            known = parse_measure(name).name
        except (ValueError, TypeError):
            known = name
        if known not in self:
            raise KeyError(name)
        return self[known]


@torch.no_grad()
def measure_lists(
    measures: Sequence[Measure],
    scores: Any,
    labels: Any,
    where: Any = None,
    *,
    ties: Ties = "expected",
    empty: Empty = 0,
    convention: Convention | None = None,
    **given: Any,
) -> list[Tensor]:
    """The values of several measures, each `[...]` float64, with one sort; see `evaluate` for arguments and errors."""
    ties = resolve_policies(ties, empty, convention)
    signed = all(measure.takes_negative_labels for measure in measures)
    policy: dict[str, Any] = {"ties": ties, "letor": convention == "letor", "signed": signed}
    shape, batches = rank_lists(scores, labels, where, **policy, **given)
    device = scores.device if isinstance(scores, Tensor) else None
    results = [torch.zeros(shape.numel(), dtype=torch.float64, device=device) for _ in measures]
    for lists in batches:
        for result, measure in zip(results, measures, strict=True):
            result[lists.index] = measure.judge(lists, empty)[0]
    return [result.reshape(shape) for result in results]


def resolve_policies(ties: Ties, empty: Empty, convention: Convention | None) -> Ties:
    """Check `empty` and `convention`; returns the rule for ties, which `letor` decides.

    Raises:
        ValueError: an unknown policy or convention, or one that contradicts the convention.
    """
    if empty not in (0, 1, "skip", "error"):
        raise ValueError(f"empty must be one of 0, 1, 'skip', 'error', got {empty!r}")
    if convention not in (None, "letor"):
        raise ValueError(f"convention must be None or 'letor', got {convention!r}")
    if convention is None:
        return ties
    if ties not in ("expected", "input") or empty != 0:
        raise ValueError(
            "convention='letor' keeps the input order among ties and counts an empty list 0; leave ties and empty at "
            f"their defaults (got ties={ties!r}, empty={empty!r}), or set the options one by one without it"
        )
    return "input"


def _looks_at(kind: type[Measure], name: str) -> bool:
    """Whether a method of a class of measures, other than those of `Measure` itself, looks at an attribute."""

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
_PARAMETER_ALIASES = {"rel": "min_relevant", "p": "patience"}
_SYNTAX = re.compile(r"\s*([A-Za-z_][\w-]*)\s*(?:\((.*)\))?\s*(?:@\s*([0-9]+))?\s*", re.DOTALL)
_LONGEST_NAME = 200
_GREATEST_CUTOFF = 2**31 - 1

Kind = TypeVar("Kind", bound=type[Measure])


def register_measure(kind: Kind) -> Kind:
    """Make a measure class known to `parse_measure` under its own name; a class decorator.

    Raises:
        TypeError: not a subclass of `Measure`.
        ValueError: another class has this name, or one that differs in case alone.

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
        raise TypeError(f"a measure is a subclass of Measure, got {kind!r}")
    name = kind.__name__.lower()
    known = _REGISTRY.get(name)
    # The same class defined again, as when a notebook cell runs twice, replaces itself.
    if _plain(name) in _ALIASES or (
        known and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__)
    ):
        raise ValueError(f"there is a measure named {kind.__name__!r} already; choose another name")
    _REGISTRY[name] = kind
    return kind


def register_prefix(prefix: str, make: Callable[[Measure], Measure]) -> None:
    """Let `parse_measure` read the prefix and a measure's name as `make` of that measure."""
    _PREFIXES[prefix] = make


def parse_measure(measure: str | Measure) -> Measure:
    """A measure from its name; a measure is returned as it is.

    Names are written as in ir-measures, in any case: `AP`, `AP@10`, `nDCG(gain='linear')@10`, `ERU(d=3,half_life=5)`.
    `MAP`, `MRR`, `recip_rank`, `F1`, `Precision`, `Recall`, `Hit`, `hit_rate`, `HR`, `ROC-AUC`, trec_eval's `ndcg_cut_10` and
    `P_5` and MTEB's `ndcg_at_10` are known too, the parameters `rel` and `p` as `min_relevant` and `patience`, and `cutoff=10`
    as `@10`. The prefix `diverse_` makes a measure one of diverse rankings: `diverse_RR@10`.

    Raises:
        ValueError: a name, parameter or value that does not exist; the message lists what does.
        TypeError: neither a name nor a measure.

    >>> parse_measure("ndcg(rel=2)@10")
    nDCG(cutoff=10, min_relevant=2, discount='log2', gain='exponential')
    >>> parse_measure("mrr@10").name
    'RR@10'
    """
    if isinstance(measure, Measure):
        return measure
    if not isinstance(measure, str):
        hint = "; a loss is given as loss=" if hasattr(measure, "reduction") else ""
        raise TypeError(f"a measure is a name such as 'AP' or an object such as AP(), got {measure!r}{hint}")
    if len(measure) > _LONGEST_NAME:  # which also bounds how deep brackets and prefixes nest
        raise ValueError(
            f"a measure's name has at most {_LONGEST_NAME} characters, got {len(measure)}, which begin {measure[:40]!r}"
        )
    name, arguments, cutoff = _parts_of(measure)
    kind = _REGISTRY.get(_ALIASES.get(_plain(name), name.lower()))
    if kind is None:
        for prefix, make in _PREFIXES.items():
            if name.lower().startswith(prefix):
                return make(parse_measure(measure.lstrip()[len(prefix) :]))
        names = sorted((known.__name__ for known in _REGISTRY.values()), key=str.lower)
        there_are = ", ".join(names) + "".join(f", and any of them after {prefix}" for prefix in _PREFIXES)
        raise ValueError(f"unknown measure {name!r}{_guess(name, _REGISTRY)}; there are: {there_are}")
    options = _read_options(measure, arguments or "")
    if cutoff is not None:
        if "cutoff" in options:
            raise ValueError(f"{measure!r} gives its cut-off twice")
        options["cutoff"] = int(cutoff)
    takes = {parameter.name: parameter for parameter in fields(kind) if parameter.init}
    for option in options:
        if option == "cutoff" and option not in takes:
            raise ValueError(f"{kind.__name__} takes no cut-off, got {measure!r}")
        if option not in takes:
            raise ValueError(
                f"{kind.__name__} has no parameter {option!r}{_guess(option, takes)}; it takes: {', '.join(takes)}"
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
    """One or several measures by name or object, in order, each once.

    Raises:
        ValueError: as `parse_measure`; or two different measures have the same name.
    """
    if isinstance(measures, str | Measure):
        measures = [measures]
    found: dict[str, Measure] = {}
    for measure in map(parse_measure, measures):
        if found.setdefault(measure.name, measure) != measure:
            raise ValueError(
                f"two different measures are named {measure.name!r}, because an option is a function; give "
                "the functions different names"
            )
    return list(found.values())


def _read_options(measure: str, arguments: str) -> dict[str, Any]:
    """`d=3, half_life=5` as a dictionary; literals only, nothing is executed."""
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
        raise ValueError(f"an option is given twice in {measure!r}")
    return options


def _guess(name: str, known: Iterable[str]) -> str:
    """A hint at the closest known name, or nothing."""
    close = nearest(name, known)
    if not close:
        return ""
    return f" (did you mean {_REGISTRY[close[0]].__name__ if close[0] in _REGISTRY else close[0]}?)"


def _literal(value: Any) -> str:
    """A value as a name shows it: 3.0 as 3, a function by its name."""
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, numbers.Real):
        return str(int(float(value))) if float(value).is_integer() else repr(float(value))
    return repr(value)
