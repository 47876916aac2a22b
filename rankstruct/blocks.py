"""Features that are read some lists at a time, such as those of shards, and exact statistics of their columns.

The statistics are those of the set of documents: the same in any order and for any division into blocks, files or processes.
Sums are of integers. A float32 number is an integer of 24 bits times a power of two, so the numbers of each power are added as
integers, and only the result is rounded. Order statistics are found by their leading bits: the numbers are counted by their first
16 bits, then those near the wanted ranks by the next 8, and by the last 8, which takes three passes and no sort.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import Self

__all__: list[str] = []

_LOWEST = 149  # the least positive float32 is 2 ** -149
_POWERS = 256  # of the 24-bit integers, from 2 ** -149
_STEPS = (16, 8, 0)  # the bits of a number that are not yet told apart after each pass
_ALL = 1024  # distinct leading bits up to which all numbers of a column are told apart


class Blocks:
    """Features `[documents, d]`, float32, of lists that are read in order, some at a time."""

    dtype = np.dtype(np.float32)
    ndim = 2
    shape: tuple[int, int]
    incomplete: bool | None = None  #: whether some features are missing, if that is known

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The features `[some, d]` of complete lists, and the offsets of these, from 0."""
        raise NotImplementedError

    def changed(self, change: Callable[[np.ndarray, np.ndarray], Any]) -> Self:
        """The same documents with features that are computed from the features and offsets of complete lists, when read."""
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All features, in memory, and no second copy of them."""
        found, at = np.empty(self.shape, dtype or self.dtype), 0
        for block, _ in self.blocks():
            found[at : at + len(block)] = block
            at += len(block)
        return found


class SomeLists(Blocks):
    """The features of some of the lists of others, in their order; `kept` are these lists, `[lists]` booleans.

    Args:
        of: the features of all lists.
        kept: `[lists]` booleans.
        lengths: `[lists]`, the number of documents of each.
    """

    def __init__(self, of: Blocks, kept: np.ndarray, lengths: np.ndarray) -> None:
        self.of, self.kept, self.lengths = of, kept, lengths
        self.shape = (int(lengths[kept].sum()), of.shape[1])

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See `Blocks`."""
        at = 0
        for block, offsets in self.of.blocks():
            own = self.kept[at : at + len(offsets) - 1]
            at, lengths = at + len(own), np.diff(offsets)
            if own.any():
                yield block[np.repeat(own, lengths)], np.append(0, lengths[own].cumsum())

    def changed(self, change: Callable[[np.ndarray, np.ndarray], Any]) -> SomeLists:
        """See `Blocks`."""
        return SomeLists(self.of.changed(change), self.kept, self.lengths)


def let_go(array: np.ndarray) -> None:
    """Let the system take back the memory of the file that holds an array, such as that of used labels; it is read again."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and memoryview(base).readonly and sys.platform == "linux":  # others may have changes
        base.madvise(mmap.MADV_DONTNEED)


Read = Callable[[], Iterator[np.ndarray]]  #: blocks `[some, d]`, from the first on at each call


def ranges(read: Read, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest number of each column, `[d]`; NaN is ignored."""
    low, high = np.full(width, np.inf, np.float32), np.full(width, -np.inf, np.float32)
    for block in read():
        np.fmin(low, np.fmin.reduce(block, 0), out=low)
        np.fmax(high, np.fmax.reduce(block, 0), out=high)
    return low, high


def moments(read: Read, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the standard deviation of each column, `[d]` float64, exact but for one rounding each.

    >>> moments(lambda: iter([np.float32([[1], [3]]), np.float32([[5]])]), 1)
    (array([3.]), array([1.63299316]))
    """
    # By column and power of two: the sums of the integers, and of the upper and lower halves of their squares.
    sums = np.zeros((3, width, _POWERS), np.int64)
    documents = 0
    for block in read():
        documents += len(block)
        fractions, exponents = np.frexp(block)
        numbers, powers = np.ldexp(fractions, 24).astype(np.int64), exponents.astype(np.int64) - 24 + _LOWEST
        numbers >>= np.maximum(-powers, 0)  # subnormal ones, whose last bits are 0
        squares, powers = numbers * numbers, np.maximum(powers, 0)
        for total, part in zip(sums, (numbers, squares >> 24, squares & 0xFFFFFF), strict=True):
            for at in range(width):  # sums of 24-bit integers are exact in float64 for 2 ** 29 documents
                total[at] += np.bincount(powers[:, at], part[:, at], minlength=_POWERS).astype(np.int64)
    means, deviations = np.zeros(width), np.zeros(width)
    for at in range(width):
        first = Fraction(_weighed(sums[0, at], 1), 2**_LOWEST)
        second = Fraction((_weighed(sums[1, at], 2) << 24) + _weighed(sums[2, at], 2), 4**_LOWEST)
        means[at] = float(first / documents)
        variance = (second * documents - first**2) / documents**2
        # With so many bits in front of the point, the root of the integer part is exact to float64.
        shift = max(0, 64 + (variance.denominator.bit_length() - variance.numerator.bit_length()) // 2)
        root = isqrt((variance.numerator << 2 * shift) // variance.denominator)
        deviations[at] = float(Fraction(root, 1 << shift))
    return means, deviations


def _weighed(sums: np.ndarray, times: int) -> int:
    """The sum of integers, each times two to the power of `times` its place."""
    return sum(int(sums[power]) << times * int(power) for power in np.flatnonzero(sums))


class Counts(NamedTuple):
    """Distinct numbers of a column: how many documents have each, and how many have a lower one.

    Attributes:
        values: float32, ascending; all of the column, or those around the ranks that were asked for.
        counts: int64.
        below: int64.
        total: the number of documents that are not missing.
        is_whole: whether these are all.
    """

    values: np.ndarray
    counts: np.ndarray
    below: np.ndarray
    total: int
    is_whole: bool


def counted(read: Read, width: int, shares: np.ndarray) -> list[Counts]:
    """For each column, its distinct numbers at ranks `shares` of its documents, and the next higher ones.

    Columns of few distinct numbers have all of them. Missing numbers are ignored.

    >>> counted(lambda: iter([np.float32([[3], [1]]), np.float32([[3]])]), 1, np.array([0.5]))[0].values
    array([1., 3.], dtype=float32)
    """
    known = [np.zeros(1, np.uint32)] * width  # the leading bits that are told apart further
    before = [np.zeros(1, np.int64)] * width
    whole, totals = [True] * width, [0] * width
    found: list[Counts] = []
    for step, left in enumerate(_STEPS):
        bits = 32 - left if not step else 8
        tables = [np.zeros((len(each), 1 << bits), np.uint32) for each in known]  # half the memory of int64
        for block in read():
            keys = _keys(block)
            for at, (prefixes, table) in enumerate(zip(known, tables, strict=True)):
                own = keys[:, at][~np.isnan(block[:, at])] >> left
                if step:
                    row = np.searchsorted(prefixes, own >> bits)
                    near = prefixes[np.minimum(row, len(prefixes) - 1)] == own >> bits
                    own, row = own[near], row[near]
                    own = (row << bits) + (own & ((1 << bits) - 1))
                table += np.bincount(own, minlength=table.size).reshape(table.shape).astype(np.uint32)
        found = []
        for at, (prefixes, table) in enumerate(zip(known, tables, strict=True)):
            lower = before[at][:, None] + np.cumsum(table, 1, dtype=np.int64) - table
            rows, last = np.nonzero(table)
            keys = (prefixes[rows].astype(np.int64) << bits) + last
            counts, below = table[rows, last].astype(np.int64), lower[rows, last]
            totals[at] = totals[at] if step else int(table.sum())
            if left:
                chosen = np.arange(len(keys))
                if len(keys) > _ALL:
                    whole[at] = False
                    place = np.searchsorted(below + counts, shares * totals[at]).clip(0, len(keys) - 1)
                    chosen = np.unique(np.append(place, np.minimum(place + 1, len(keys) - 1)))
                known[at], before[at] = keys[chosen].astype(np.uint32), below[chosen]
            found.append(Counts(_numbers(keys << left), counts, below, totals[at], whole[at]))
    return found


def _keys(block: np.ndarray) -> np.ndarray:
    """Unsigned integers in the order of the numbers."""
    bits = np.ascontiguousarray(block + np.float32(0)).view(np.uint32)  # -0 is 0
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def _numbers(keys: np.ndarray) -> np.ndarray:
    """The numbers of keys."""
    keys = keys.astype(np.uint32)
    return np.where(keys >> 31, keys & np.uint32(0x7FFFFFFF), ~keys).astype(np.uint32).view(np.float32)
