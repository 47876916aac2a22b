"""Conversion of callers' numbers, in any kind of array, to NumPy arrays.

Accepted are arrays of any byte order, strides and width, also of extended precision and of Python numbers (integers of any size,
fractions, decimals), lists, tensors, and columns of pandas, polars and pyarrow. Input is never modified, and copied only if NumPy
cannot compute with it directly.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np

#: float64 and float32 represent every whole number up to these.
LARGEST, LARGEST_SINGLE = 2**53, 2**24


def as_array(name: str, values: Any) -> np.ndarray:
    """Convert anything that holds numbers or names to an array; messages call it `name`.

    Raises:
        ValueError: nested lists of different lengths, or an array with masked entries.
    """
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().cpu()
        try:
            values = values.numpy()
        except TypeError:  # a dtype that NumPy lacks, such as bfloat16
            values = values.float().numpy()
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            raise ValueError(f"{name} must not be missing; {_place(name, np.ma.getmaskarray(values))} is masked")
        values = values.data
    try:
        found = np.asarray(values)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(
            f"{name} must be one array: pass lists of different lengths flat, concatenated, with qid= or group=, or padded, with "
            "where="
        ) from None
    if found.dtype == np.float64 and isinstance(values, list | tuple) and (np.abs(found) >= LARGEST).any():
        objects = np.array(values, object)
        if any(isinstance(each, Integral) for each in objects.flat):  # which NumPy has rounded
            return objects
    return found


def as_numbers(name: str, values: Any, *, exact: bool = True) -> np.ndarray:
    """Convert numbers to booleans, integers or floats of at most 64 bits, in the machine's byte order.

    Wider types become float64, which rounds fractions, as parsing text does. NaN and infinities are preserved.

    Args:
        name: what messages call them.
        values: any shape.
        exact: reject whole numbers above 2^53 in absolute value, which float64 does not represent: two could become equal.

    Raises:
        TypeError: complex numbers, strings, dates or other objects.
        ValueError: a missing entry, or a number that is too large.

    >>> as_numbers("labels", [Fraction(1, 2), 3]), as_numbers("labels", np.array([1, 2], ">i2")[::-1])
    (array([0.5, 3. ]), array([2, 1], dtype=int16))
    """
    found = _real(name, values)
    kind = found.dtype.kind
    if exact and found.size and kind in "iu" and not -LARGEST <= int(found.min()) <= int(found.max()) <= LARGEST:
        _refuse_large(name, found)
    if kind == "O":
        if exact:
            _refuse_large(name, found)
        return _floats(found)
    if kind == "f" and found.itemsize > 8:
        with np.errstate(over="ignore"):  # reported as not finite
            return found.astype(np.float64)
    return found


def as_scores(values: Any, *, name: str = "scores") -> np.ndarray:
    """Convert numbers to floats in the same order: two floats are equal if and only if the numbers are.

    If float64 would merge different numbers, such as integers above 2^53, each is replaced by its rank, with its sign.

    Raises:
        TypeError, ValueError: as `as_numbers`, except for the size.

    >>> as_scores([2**53 + 1, 2**53, -5]), as_scores([7, 5])
    (array([ 2.,  1., -1.]), array([7., 5.]))
    """
    found = _real(name, values)
    kind = found.dtype.kind
    if kind == "f" and found.itemsize <= 8:
        return found
    with np.errstate(over="ignore"):
        floats = _floats(found) if kind == "O" else found.astype(np.float64)
    finite = np.isfinite(floats)
    known = found[finite]
    if kind in "biu" and (not known.size or -LARGEST <= int(known.min()) <= int(known.max()) <= LARGEST):
        return floats
    if kind == "O":
        exact = np.empty(known.shape, object)
        exact[:] = [_fraction(each) for each in known]
        known = exact
    distinct, rank = np.unique(known, return_inverse=True)
    if len(distinct) == len(np.unique(floats[finite])):
        return floats
    below = int((distinct < 0).sum())
    has_zero = bool((distinct == 0).any())
    floats[finite] = rank - below + ((rank >= below) & (not has_zero))
    return floats


def as_single(name: str, values: Any) -> np.ndarray:
    """Convert numbers to float32, in which labels are stored: fractions are rounded, and whole numbers must be exact.

    Raises:
        TypeError, ValueError: as `as_numbers`; a whole number above 2^24 that float32 does not represent.

    >>> as_single("labels", [1, 0.1])
    array([1. , 0.1], dtype=float32)
    """
    found = as_numbers(name, values)
    with np.errstate(over="ignore"):
        single = found.astype(np.float32, copy=False)
    if found.dtype.kind in "iu" and found.itemsize > 2:
        wrong = single.astype(np.float64) != found
        if wrong.any():
            raise ValueError(
                f"{name} are stored as float32, which is exact for whole numbers up to {LARGEST_SINGLE}; {_place(name, wrong)} "
                f"is {found[wrong][0]}: use fewer grades, such as their ranks"
            )
    return single


def is_missing(value: Any) -> bool:
    """Whether a value is missing: None, NaN, NaT, pandas' NA or an infinite number."""
    if value is None:
        return True
    try:
        return not bool(value == value) or (isinstance(value, float | np.floating | Decimal) and math.isinf(value))
    except (TypeError, ArithmeticError):  # pandas' NA is neither equal nor not, and a decimal may signal
        return True


def _real(name: str, values: Any) -> np.ndarray:
    """Booleans, integers and floats in the machine's byte order; other numbers as objects."""
    found = as_array(name, values)
    kind = found.dtype.kind
    if kind == "O":
        return _of_objects(name, found)
    if kind not in "biuf":
        _refuse_kind(name, found.flat[0] if found.size else "", str(found.dtype))
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def _of_objects(name: str, found: np.ndarray) -> np.ndarray:
    flat = [each.item() if isinstance(each, np.generic) else each for each in found.flat]
    for at, value in enumerate(flat):
        if isinstance(value, Real | Decimal):
            continue
        if not isinstance(value, str | bytes | complex) and is_missing(value):
            wrong = np.arange(found.size).reshape(found.shape) == at
            raise ValueError(f"{name} must not be missing; {_place(name, wrong)} is {value!r}")
        _refuse_kind(name, value, type(value).__name__)
    if all(isinstance(value, bool) for value in flat):
        return np.array(flat, bool).reshape(found.shape)
    if all(isinstance(value, Integral) for value in flat) and all(-(2**63) <= int(value) < 2**63 for value in flat):
        return np.array([int(value) for value in flat], np.int64).reshape(found.shape)
    if all(isinstance(value, float) for value in flat):
        return np.array(flat, np.float64).reshape(found.shape)
    kept = np.empty(len(flat), object)
    kept[:] = flat
    return kept.reshape(found.shape)


def _floats(found: np.ndarray) -> np.ndarray:
    """Objects as float64, the nearest to each."""
    return np.array([_float(value) for value in found.flat], np.float64).reshape(found.shape)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # of integers and fractions
        return math.copysign(math.inf, value)
    except ValueError:  # a decimal that signals
        return math.nan


def _fraction(value: Any) -> Fraction:
    return Fraction(*value.as_integer_ratio())


def _refuse_large(name: str, found: np.ndarray) -> None:
    """Raise ValueError for the first whole number above 2^53."""
    wrong = np.array([isinstance(each, Integral) and abs(int(each)) > LARGEST for each in found.flat], bool)
    if wrong.any():
        size = abs(int(found.flat[int(wrong.argmax())]))
        shown = str(size) if size < 10**25 else f"a number of {size.bit_length()} bits"
        raise ValueError(
            f"{name} must be at most 2^53 in size, since float64 does not represent larger whole numbers exactly; "
            f"{_place(name, wrong.reshape(found.shape))} is {shown} in size: divide them, or use their ranks"
        )


def _refuse_kind(name: str, value: Any, kind: str) -> NoReturn:
    if isinstance(value, str | bytes):
        shown = str(value) if len(value) <= 20 else f"{value[:20]}..."  # type: ignore[str-bytes-safe]
        raise TypeError(
            f"{name} must be numbers, got strings such as {shown!r}; convert them, such as with np.asarray({name}, float)"
        )
    raise TypeError(f"{name} must be real numbers, got {kind}")


def _place(name: str, wrong: np.ndarray) -> str:
    """The position of the first wrong entry, such as `labels[1, 2]`."""
    return f"{name}[{', '.join(map(str, np.argwhere(wrong)[0].tolist()))}]"
