"""Checks of the values of arguments: numbers in a range, integers, flags and choices."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral, Real
from operator import ge, gt, le, lt
from typing import Any

import numpy as np

from rankstruct.arrays import LARGEST
from rankstruct.messages import ArgumentError, did_you_mean, shortened

_SIGNS = {">": (gt, "above"), ">=": (ge, "at least"), "<": (lt, "below"), "<=": (le, "at most")}


def check_integers(least: int, most: int | None = None, /, *, optional: Any = False, **values: Any) -> None:
    """Raise ArgumentError if an argument is not an integer of at least `least` and at most `most`; True is none.

    Args:
        least: the lowest that is allowed.
        most: the highest; None for no bound.
        optional: whether None is allowed too.
        **values: the arguments by name.

    >>> check_integers(1, folds=5)
    >>> check_integers(1, optional=True, folds=None)
    >>> check_integers(1, 9, folds=2.0)
    Traceback (most recent call last):
    ...
    rankstruct.messages.ArgumentError: folds must be an integer from 1 to 9, got 2.0
    """
    for name, value in values.items():
        is_integer = isinstance(value, Integral) and not isinstance(value, bool)
        if not (is_integer and least <= value and (most is None or value <= most)) and not (optional and value is None):
            bounds = f"an integer from {least}{'' if most is None else f' to {most}'}{', or None' if optional else ''}"
            raise ArgumentError(f"must be {bounds}, got {shortened(value)}", argument=name, value=value)


def check_numbers(rule: str = "", /, *, optional: Any = False, **values: Any) -> None:
    """Raise ArgumentError if an argument is not a finite number within the bounds of `rule`; True is none.

    Args:
        rule: bounds, such as `"> 0"` or `">= 0 and < 1"`; with `"<= inf"` among them the number may be infinite.
        optional: whether None is allowed too.
        **values: the arguments by name.

    >>> check_numbers("> 0", learning_rate=0.1)
    >>> check_numbers(">= 0 and < 1", dropout=1.0)
    Traceback (most recent call last):
    ...
    rankstruct.messages.ArgumentError: dropout must be a finite number of at least 0 and below 1, got 1.0
    """
    bounds = [part.split() for part in rule.split(" and ")] if rule else []
    finite = ["<=", "inf"] not in bounds
    for name, value in values.items():
        if optional and value is None:
            continue
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if is_number and isinstance(value, Integral) and abs(int(value)) > LARGEST:  # float64 does not represent it
            raise ArgumentError(f"must be at most 2^53 in size, got {shortened(value)}", argument=name, value=value)
        within = is_number and (math.isfinite(value) or (math.isinf(value) and not finite))
        if not (within and all(_SIGNS[sign][0](value, float(end)) for sign, end in bounds)):
            told = " and ".join(f"{_SIGNS[sign][1]} {end}" for sign, end in bounds if end != "inf")
            told = f"{'a finite number' if finite else 'a number'} {'of ' * told.startswith('at')}{told}".rstrip()
            raise ArgumentError(
                f"must be {told}{', or None' * bool(optional)}, got {shortened(value)}", argument=name, value=value
            )


def checked_numbers(rule: str = "", /, **values: Any) -> list[Any]:
    """The numbers of an argument, a sequence or tensor, each within the bounds of `rule` as in `check_numbers`.

    Raises:
        TypeError: a single number, text, a mapping or a set, which have no order, or a tensor that requires a gradient.
        ArgumentError: one of the numbers is wrong.

    >>> checked_numbers(">= 0", weights=[1, 0.5])
    [1, 0.5]
    """
    ((name, given),) = values.items()
    numbers = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(numbers, Iterable) or isinstance(numbers, str | bytes | Mapping | set | frozenset):
        raise TypeError(f"{name} must be a sequence of numbers, such as [1, 2], got {shortened(given)}")
    if getattr(given, "requires_grad", False):
        raise TypeError(f"{name} must be plain numbers, which are not learned; got a tensor that requires a gradient")
    numbers = list(numbers)
    check_numbers(rule, **{f"{name}[{place}]": number for place, number in enumerate(numbers)})
    return numbers


def check_flags(*, optional: Any = False, **values: Any) -> None:
    """Raise ArgumentError if an argument is not True or False, or 1 or 0, or None if that is allowed.

    >>> check_flags(verbose=False)
    """
    for name, value in values.items():
        if not (isinstance(value, Integral | np.bool_) and value in (0, 1)) and not (optional and value is None):
            raise ArgumentError(f"must be True or False, got {shortened(value)}", argument=name, value=value)


def check_choice(name: str, value: Any, known: Collection[Any]) -> None:
    """Raise ArgumentError unless `value` is one of `known`, with the name that may be meant.

    >>> check_choice("mode", "fast", ("full", "fast"))
    >>> check_choice("mode", "fats", ("full", "fast"))
    Traceback (most recent call last):
    ...
    rankstruct.messages.ArgumentError: mode must be one of 'full', 'fast', got 'fats'; did you mean fast?
    """
    if not (value is None or isinstance(value, str | Integral | np.bool_)) or value not in known:
        names = [each for each in known if isinstance(each, str)]
        hint = did_you_mean(value, names) if isinstance(value, str) else ""
        told = f"must be one of {', '.join(map(repr, known))}, got {shortened(value)}{hint}"
        raise ArgumentError(told, argument=name, value=value)
