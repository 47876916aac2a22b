"""Sort one list by descending score: a radix sort, compiled.

A float's bits, flipped the right way, are an unsigned key whose ascending order is the float's descending order.
Least significant digit first, one pass a digit: O(n) a pass, no comparison. Scores of one list share most of their high
digits in practice, and a digit that all keys share costs no pass.
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel

_DIGIT_BITS = 8
_BUCKETS = 256
_INSERTION_SORT_BELOW = 32  # a shorter list is sorted before the histograms would be cleared


@compile_kernel
def longest_list(offsets, first, last):
    """The size of the longest of the lists `[first, last)`, or 1."""
    size = 1
    for index in range(first, last):
        size = max(size, offsets[index + 1] - offsets[index])
    return size


@compile_kernel
def sort_space(bits, size):
    """Scratch for `sort_descending`, for so many documents."""
    return np.empty((2, size), bits.dtype), np.empty((2, size), np.int64), np.empty(256, np.int64)


@compile_kernel
def sort_descending(bits, where, start, stop, space):
    """Order the real documents in `[start, stop)` by descending score.

    `bits` holds the scores' bits as unsigned integers of the same width; `where` is empty if every document is real; `space`
    is from `sort_space`. Returns the number of real documents and the array (one of the two order arrays) that holds their
    order: positions in the flat arrays, the highest score first. Equal scores keep their input order.
    """
    keys, orders, histogram = space
    key, spare_key, order, spare_order = keys[0], keys[1], orders[0], orders[1]
    width = bits.itemsize * 8
    sign = np.uint64(1) << np.uint64(width - 1)
    rest = sign - np.uint64(1)
    count = 0
    differing = sign ^ sign
    for at in range(start, stop):
        if where.size and not where[at]:
            continue
        value = bits[at]
        key[count] = value if value & sign else value ^ rest
        differing |= key[count] ^ key[0]
        order[count] = at
        count += 1
    if count < _INSERTION_SORT_BELOW:
        for i in range(1, count):
            moved, its_order = key[i], order[i]
            j = i - 1
            while j >= 0 and key[j] > moved:
                key[j + 1], order[j + 1] = key[j], order[j]
                j -= 1
            key[j + 1], order[j + 1] = moved, its_order
        return count, order

    mask = np.uint64(_BUCKETS - 1)
    for digit in range(bits.itemsize):
        shift = np.uint64(digit * _DIGIT_BITS)
        if not (differing >> shift) & mask:
            continue
        for b in range(_BUCKETS):
            histogram[b] = 0
        for i in range(count):
            histogram[np.int64((key[i] >> shift) & mask)] += 1
        total = 0
        for b in range(_BUCKETS):
            size = histogram[b]
            histogram[b] = total
            total += size
        for i in range(count):
            value = key[i]
            bucket = np.int64((value >> shift) & mask)
            to = histogram[bucket]
            histogram[bucket] = to + 1
            spare_key[to] = value
            spare_order[to] = order[i]
        key, spare_key = spare_key, key
        order, spare_order = spare_order, order
    return count, order
