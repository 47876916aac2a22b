"""Feature maps: the score of a ranking, F(r) = sum_j psi_j(r) s_j, with one coefficient psi_j(r) per document."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from rankstruct.measures.base import check_cutoff
from rankstruct.messages import did_you_mean

__all__ = [
    "FeatureMap",
    "FirstRelevant",
    "Pairwise",
    "PartialPairwise",
    "Positional",
    "PredictedPositive",
    "parse_feature_map",
    "register_feature_map",
]


@dataclass(frozen=True)
class FeatureMap:
    """Base class of all feature maps, which describe how rankings score; the oracles implement them.

    >>> Pairwise().name, isinstance(Positional("discount"), FeatureMap)
    ('pairwise', True)
    """

    @property
    def name(self) -> str:
        """The name that `parse_feature_map` maps back to an equal object."""
        raise NotImplementedError


@dataclass(frozen=True)
class Pairwise(FeatureMap):
    """Each pair of a relevant and an irrelevant document votes for the one ranked higher.

    With p relevant and m irrelevant documents, a relevant one has the coefficient (irrelevant below it - irrelevant
    above it) / (p m), an irrelevant one (relevant below it - relevant above it) / (p m).

    Source: Yue, Finley, Radlinski, Joachims, "A Support Vector Method for Optimizing Average Precision", SIGIR 2007
    (with the factor 1 / (p m) that its equation 5 lacks); phi_po in Chakrabarti, Khanna, Sawant, Bhattacharyya,
    "Structured Learning for Non-Smooth Ranking Losses", KDD 2008.

    >>> Pairwise().name
    'pairwise'
    """

    @property
    def name(self) -> str:
        """`pairwise`."""
        return "pairwise"


@dataclass(frozen=True)
class PartialPairwise(FeatureMap):
    """Only wrongly ordered pairs that a partial ROC area can count vote: a tighter bound of that area.

    For the area up to the false positive rate `high` and from the true positive rate `min_tpr` on, these are pairs of the
    irrelevant documents at positions up to `high * m` among the m irrelevant ones of the ranking and the relevant ones after
    position `min_tpr * p`; documents at the ends count fractionally. A pair with the irrelevant document higher adds +2 to the
    coefficient of the irrelevant document and -2 to that of the relevant one, divided by the number of pairs that can count;
    so psi(r*) = 0.

    Source: Narasimhan and Agarwal, "SVM_pAUC^tight: A New Support Vector Method for Optimizing Partial AUC Based on a Tight
    Convex Upper Bound", KDD 2013.

    >>> PartialPairwise().name
    'partial-pairwise'
    """

    @property
    def name(self) -> str:
        """`partial-pairwise`."""
        return "partial-pairwise"


@dataclass(frozen=True)
class FirstRelevant(FeatureMap):
    """Documents above the first relevant one have coefficient +1; the first relevant one has minus their number.

    All other coefficients are 0, so a ranking that begins with a relevant document has only zeros.

    Source: phi_mrr in Chakrabarti, Khanna, Sawant, Bhattacharyya, "Structured Learning for Non-Smooth Ranking Losses",
    KDD 2008.

    >>> FirstRelevant().name
    'first-relevant'
    """

    @property
    def name(self) -> str:
        """`first-relevant`."""
        return "first-relevant"


@dataclass(frozen=True)
class PredictedPositive(FeatureMap):
    """Documents labelled positive have coefficient 1, all others 0: the score of a set of documents.

    The set has k documents for measures with a cut-off k, and any number for others; the order within it does not matter.

    Source: Joachims, "A Support Vector Method for Multivariate Performance Measures", ICML 2005, whose coefficients are 1 and -1.

    >>> PredictedPositive().name
    'predicted-positive'
    """

    @property
    def name(self) -> str:
        """`predicted-positive`."""
        return "predicted-positive"


Decay = Callable[[Tensor], Tensor]

_DECAYS: dict[str, Decay] = {
    "1/sqrt(i)": lambda i: i**-0.5,
    "1/log2(i+1)": lambda i: 1 / torch.log2(i + 1),
    "1/log2(log2(i+1)+1)": lambda i: 1 / torch.log2(torch.log2(i + 1) + 1),
}
_POWER = re.compile(r"i\^-(\d+(?:\.\d*)?|\.\d+)(?:/(\d+))?")


@dataclass(frozen=True)
class Positional(FeatureMap):
    """Each document's coefficient is the decay c at its rank: c_1 for the first, c_2 for the second, ...

    Args:
        decay: a name: `"i^-d"` for a number d (or a fraction such as `1/3`), `"1/sqrt(i)"`, `"1/log2(i+1)"`,
            `"1/log2(log2(i+1)+1)"`, `"k+1-i"` (clipped at 0, k is the measure's cut-off) or `"discount"` (that of the measure);
            or a function of 1-based float64 ranks; or the numbers c_1, c_2, ..., followed by zeros. It must not increase or be
            negative.
        cutoff: the decay is 0 after this rank; None for no cut-off.

    Raises:
        ValueError: an unknown name, or a cut-off below 1.

    Source: Le and Smola, "Direct Optimization of Ranking Measures", 2007 (DORM); Le, Smola, Chapelle, Teo, "Optimization of
    Ranking Measures" (ORM), section 4.

    >>> Positional("i^-1/2").weights(3)
    tensor([1.0000, 0.7071, 0.5774], dtype=torch.float64)
    """

    decay: str | Decay | tuple[float, ...] = "i^-0.5"
    cutoff: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.decay, str):
            power = _POWER.fullmatch(self.decay)
            if power and float(power[2] or 1) == 0:
                raise ValueError(
                    f"the decay {self.decay!r} divides by 0; use i^-d, with d a number or a fraction such as 1/3"
                )
            if self.decay not in (*_DECAYS, "k+1-i", "discount") and not power:
                known = ", ".join(map(repr, ["i^-0.5", *_DECAYS, "k+1-i", "discount"]))
                raise ValueError(f"unknown decay {self.decay!r}; use one of {known}, a function or numbers")
        elif not callable(self.decay):
            try:
                numbers = torch.as_tensor(self.decay, dtype=torch.float64).flatten().tolist()
            except (OverflowError, TypeError, ValueError, RuntimeError) as error:
                raise ValueError(f"a decay must be a name, a function or numbers, got {self.decay!r:.60}") from error
            object.__setattr__(self, "decay", tuple(numbers))
        if self.cutoff is not None:
            check_cutoff(self.cutoff, "a decay")

    @property
    def name(self) -> str:
        """`positional(decay)`, with the cut-off if there is one."""
        decay = self.decay if isinstance(self.decay, str) else getattr(self.decay, "__name__", str(self.decay))
        return f"positional({decay})" + (f"@{self.cutoff}" if self.cutoff is not None else "")

    def weights(self, size: int, discounts: Tensor | None = None, k: int | None = None) -> Tensor:
        """The decay at the ranks 1 to `size`, float64 `[size]`.

        Args:
            size: the number of ranks.
            discounts: the measure's own discounts `[size]`, for the decay `"discount"`.
            k: the measure's cut-off, for the decay `"k+1-i"`.

        Raises:
            ValueError: the decay increases, is negative or not finite, or requires `discounts` or `k`.
        """
        weights = self.unchecked_weights(size, discounts, k)
        if not bool(weights.isfinite().all()) or bool((weights.diff() > 0).any()) or bool((weights < 0).any()):
            raise ValueError(
                f"the decay of {self.name} must be finite, >= 0 and never increase; got {weights.tolist()}"
            )
        return weights

    def unchecked_weights(self, size: int, discounts: Tensor | None = None, k: int | None = None) -> Tensor:
        """`weights` without checking the values, so that `torch.compile` can trace it."""
        ranks = torch.arange(1, size + 1, dtype=torch.float64)
        if isinstance(self.decay, tuple):
            numbers = torch.tensor(self.decay[:size], dtype=torch.float64)
            weights = torch.cat([numbers, torch.zeros(size - numbers.shape[0], dtype=torch.float64)])
        elif not isinstance(self.decay, str):
            weights = self.decay(ranks).double()
        elif self.decay == "discount":
            if discounts is None:
                raise ValueError("the decay 'discount' requires a discounted gain, such as nDCG")
            weights = discounts
        elif self.decay == "k+1-i":
            if k is None:
                raise ValueError("the decay 'k+1-i' requires a measure with a cut-off k, such as nDCG@10")
            weights = (k + 1 - ranks).clamp(min=0.0)
        elif self.decay in _DECAYS:
            weights = _DECAYS[self.decay](ranks)
        else:
            match = _POWER.fullmatch(self.decay)
            assert match is not None  # checked at construction
            weights = ranks ** -(float(match[1]) / float(match[2] or 1))
        return weights if self.cutoff is None else torch.where(ranks <= self.cutoff, weights, 0.0)


Kind = TypeVar("Kind", bound=type[FeatureMap])
_REGISTRY: dict[str, type[FeatureMap]] = {}
_SYNTAX = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:\((.*)\))?\s*(?:@\s*(\d+))?\s*", re.DOTALL)


def register_feature_map(kind: Kind) -> Kind:
    """Class decorator that registers a feature map with `parse_feature_map`, and so for losses and configs.

    It is registered under the `name` of the default instance, up to a parenthesis or `@`: `"linear"`, so that
    `"linear(slope=2)@10"` is `Linear(slope=2, cutoff=10)`.

    Raises:
        TypeError: not a subclass of `FeatureMap`.
        ValueError: another class has this name, or the name is invalid.

    >>> @register_feature_map
    ... @dataclass(frozen=True)
    ... class Linear(FeatureMap):
    ...     '''Documents score by their rank from below.'''
    ...     slope: float = 1.0
    ...     @property
    ...     def name(self):
    ...         return f"linear(slope={self.slope:g})"
    >>> parse_feature_map("linear(slope=2)")
    Linear(slope=2)
    """
    if not (isinstance(kind, type) and issubclass(kind, FeatureMap)):
        raise TypeError(f"a feature map must be a subclass of FeatureMap, got {kind!r}")
    match = _SYNTAX.fullmatch(kind().name)
    if match is None:
        raise ValueError(
            f"a feature map's name must be a word such as 'my-map', with options in parentheses, got {kind().name!r}"
        )
    name = match[1].lower()
    known = _REGISTRY.get(name)
    # The same class defined again, as when a notebook cell runs twice, replaces itself.
    if known and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ValueError(f"a feature map named {name!r} is already registered; use another name")
    _REGISTRY[name] = kind
    return kind


for _kind in (Pairwise, PartialPairwise, FirstRelevant, PredictedPositive, Positional):
    register_feature_map(_kind)


def parse_feature_map(feature_map: str | FeatureMap) -> FeatureMap:
    """Parse the name of a feature map; a feature map is returned unchanged.

    Names are case-insensitive, followed by options in parentheses as `option=value`, or just the value of the first one, and a
    cut-off after `@`: `positional`, `positional(i^-1/3)`, `positional(1/log2(i+1))@5`, `positional(decay='k+1-i')`.

    Raises:
        ValueError: an unknown feature map or option.
        TypeError: neither a name nor a feature map.

    >>> parse_feature_map("pairwise")
    Pairwise()
    >>> parse_feature_map("positional(i^-1/3)@10")
    Positional(decay='i^-1/3', cutoff=10)
    """
    if isinstance(feature_map, FeatureMap):
        return feature_map
    if not isinstance(feature_map, str):
        raise TypeError(f"feature_map must be a name or a FeatureMap, got {type(feature_map).__name__}")
    match = _SYNTAX.fullmatch(feature_map)
    kind = None if match is None else _REGISTRY.get(match[1].lower())
    if match is None or kind is None:
        hint = did_you_mean(match[1] if match else feature_map, _REGISTRY)
        raise ValueError(f"unknown feature map {feature_map!r}; available: {', '.join(sorted(_REGISTRY))}{hint}")
    takes = [option.name for option in fields(kind) if option.init]
    options = _read_options(match[2], takes)
    if match[3]:
        options["cutoff"] = int(match[3])
    if unknown := [option for option in options if option not in takes]:
        there_are = f"available: {', '.join(takes)}" if takes else "it has none"
        raise ValueError(f"the feature map {match[1]!r} has no option {unknown[0]!r}; {there_are}")
    return kind(**options)


def _read_options(text: str | None, takes: list[str]) -> dict[str, Any]:
    """Parse `slope=2, decay='i^-1'` to a dictionary, literals only; anything else is the value of the first option."""
    if not text or not text.strip():
        return {}
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.keywords and not call.args and all(each.arg for each in call.keywords):
            return {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        if len(call.args) == 1 and not call.keywords:
            return {takes[0] if takes else text: ast.literal_eval(call.args[0])}
    except (SyntaxError, ValueError):
        pass
    return {takes[0] if takes else text: text.strip()}
