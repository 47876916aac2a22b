"""Sort one list by descending score: a radix sort, compiled.

A float's bits, flipped the right way, are an unsigned key whose ascending order is the float's descending order.
Short lists go to buckets of equal width between the lowest and the highest score. In longer ones, and where that does not
tell enough documents apart, two to four passes, least significant digit first, sort by the highest bits in which the keys of the
list differ: O(n) a pass, no comparison. Insertion puts the few right that are not yet; where that takes too many moves (a far
outlier, and all others close together), the passes go over all bits.
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, compile_part, unsigned

_DIGIT_BITS = 8
_BUCKETS = 256
_TWO_PASSES_BELOW, _THREE_PASSES_BELOW = 512, 100_000  # documents; as many bits as tell most of them apart
_MOST_MOVES = 8  # a document, of the insertion; a pass costs as much as two to four
_INSERTION_SORT_BELOW = 32  # a shorter list is sorted before the histograms would be cleared


COUNTED_CLASSES = 8  # distinct grades that are found by a small table; more are sorted
_NEGATIVE_ZERO = np.int64(-(2**63))
# Three bits of the exponent and three behind: whole grades to 15 have slots of their own.
_SLOTS, _SLOT_BIT = 64, np.uint64(49)


@compile_part
def longest_list(offsets, first, last):
    """The size of the longest of the lists `[first, last)`, or 1."""
    size = 1
    for index in range(first, last):
        size = max(size, offsets[index + 1] - offsets[index])
    return size


@compile_kernel
def sort_space(bits, size):
    """Scratch for `sort_descending`, for so many documents."""
    return np.empty((2, size), bits.dtype), np.empty((2, size), np.int64), np.empty(_BUCKETS, np.uint64)


@compile_part
def _sort_by_bits(first, last, differing, count, key, order, spare_key, spare_order, histogram):
    """Sort by the bits `[first, last)` of the keys; returns the two pairs of arrays, the one with the result first."""
    # Unsigned throughout: numba would look whether a signed index counts from the end.
    mask, one, none = np.uint64(_BUCKETS - 1), np.uint64(1), np.uint64(0)
    for bit in range(first, last, _DIGIT_BITS):
        shift = np.uint64(bit)
        if not (differing >> shift) & mask:
            continue
        for b in range(_BUCKETS):
            histogram[b] = none
        for i in range(count):
            histogram[(key[i] >> shift) & mask] += one
        total = none
        for b in range(_BUCKETS):
            size = histogram[b]
            histogram[b] = total
            total += size
        for i in range(count):
            value = key[i]
            bucket = (value >> shift) & mask
            to = histogram[bucket]
            histogram[bucket] = to + one
            spare_key[to] = value
            spare_order[to] = order[i]
        key, spare_key = spare_key, key
        order, spare_order = spare_order, order
    return key, order, spare_key, spare_order


@compile_part
def _insert(count, key, order, most_moves):
    """Insertion sort; returns False, with what is done so far, after so many moves."""
    for i in range(1, count):
        moved, its_order = key[i], order[i]
        if key[i - 1] <= moved:
            continue
        j = i - 1
        while j >= 0 and key[j] > moved:
            key[j + 1], order[j + 1] = key[j], order[j]
            j -= 1
        key[j + 1], order[j + 1] = moved, its_order
        most_moves -= i - 1 - j
        if most_moves < 0:
            return False
    return True


@compile_part
def _score_of(key, width):
    """The float64 of a key, of as many bits as the scores have."""
    sign = np.uint64(1) << np.uint64(width - 1)
    bits = key if key & sign else key ^ (sign - np.uint64(1))
    return np.float64(np.uint32(bits).view(np.float32)) if width == 32 else np.uint64(bits).view(np.float64)


@compile_part
def _sort_by_width(width, count, key, order, spare_key, spare_order, histogram):
    """Put keys into buckets of equal width, in their order within each; returns False, with nothing done, where none can be."""
    least, most = key[0], key[0]
    for i in range(count):
        least, most = min(least, key[i]), max(most, key[i])
    highest = _score_of(least, width)
    scale = (_BUCKETS - 1) / (highest - _score_of(most, width))
    if not 0.0 < scale < np.inf:  # keys of infinite scores and NaN are the least and the most
        return False
    one, total = np.uint64(1), np.uint64(0)
    for b in range(_BUCKETS):
        histogram[b] = total
    for i in range(count):
        histogram[unsigned(np.int64((highest - _score_of(key[i], width)) * scale))] += one
    for b in range(_BUCKETS):
        size = histogram[b]
        histogram[b] = total
        total += size
    for i in range(count):
        bucket = unsigned(np.int64((highest - _score_of(key[i], width)) * scale))
        to = histogram[bucket]
        histogram[bucket] = to + one
        spare_key[to] = key[i]
        spare_order[to] = order[i]
    return True


@compile_part
def sort_descending(bits, where, start, stop, space):
    """Order the real documents in `[start, stop)` by descending score.

    `bits` holds the scores' bits as unsigned integers of the same width; `where` is empty if every document is real; `space`
    is from `sort_space`. Returns the number of real documents; `space[1][0]` has their order: positions in the flat arrays, the
    highest score first. Equal scores keep their input order.
    """
    keys, orders, histogram = space
    # Most lists move once.
    key, spare_key, order, spare_order = keys[1], keys[0], orders[1], orders[0]
    width = bits.itemsize * 8
    sign = np.uint64(1) << np.uint64(width - 1)
    rest = sign - np.uint64(1)
    count, none = np.int64(0), np.int64(0)  # of a type: numba compiles what it calls once more for a literal 0
    # Bits that any key has, and that all have; not by a look at what was just written, which may hold up all other loads.
    some, every = sign ^ sign, sign | rest
    for at in range(start, stop):
        if where.size and not where[at]:
            continue
        value = bits[at]
        value = value if value & sign else value ^ rest
        key[unsigned(count)], order[unsigned(count)] = value, at
        some |= value
        every &= value
        count += 1
    if count < _INSERTION_SORT_BELOW:
        _insert(count, key, order, count * count)
        copy_into(order[:count], spare_order)
        return count
    if count < _TWO_PASSES_BELOW and _sort_by_width(width, count, key, order, spare_key, spare_order, histogram):
        if _insert(count, spare_key, spare_order, _MOST_MOVES * count):
            return count
        key, spare_key = spare_key, key
        order, spare_order = spare_order, order

    differing, last = some & ~every, none
    while last < width and differing >> np.uint64(last):
        last += 1
    passes = 2 if count < _TWO_PASSES_BELOW else 3 if count < _THREE_PASSES_BELOW else 4
    first = max(last - passes * _DIGIT_BITS, 0)
    key, order, spare_key, spare_order = _sort_by_bits(
        first, last, differing, count, key, order, spare_key, spare_order, histogram
    )
    if first and not _insert(count, key, order, _MOST_MOVES * count):
        _, order, _, _ = _sort_by_bits(none, last, differing, count, key, order, spare_key, spare_order, histogram)
    copy_into(order[:count], orders[0])
    return count


@compile_part
def is_tied(score):
    """Whether two of them, sorted, are equal."""
    tied = False
    for i in range(1, score.shape[0]):
        tied |= score[unsigned(i)] == score[unsigned(i - 1)]
    return tied


@compile_part
def share_among_tied(documents, score, chosen, direction):
    """Give documents of one score, and of one chosen score as far as they are neighbours, the mean of their directions.

    `documents` are of one label, by descending `score`. Which of them stands first is nobody's choice: where a list's order
    decides, a scorer that begins at zero learns that order. O(n).
    """
    begin, n = 0, documents.shape[0]
    while begin < n:
        at = unsigned(documents[begin])
        end, total = begin + 1, np.float64(direction[at])
        while end < n and score[end] == score[begin]:
            its = unsigned(documents[end])
            if chosen.size and chosen[its] != chosen[at]:
                break
            total += direction[its]
            end += 1
        for i in range(begin if end > begin + 1 else end, end):
            direction[unsigned(documents[i])] = total / (end - begin)
        begin = end


@compile_part
def copy_into(source, target):
    """What `target[: len(source)] = source` does, without numba's seconds to compile how shapes are matched."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@compile_part
def number_few(bits, where, number, grade, behind, slots):
    """Number the distinct grades of a list from the highest, 0, 1, ...; returns how many, or -1: more than `COUNTED_CLASSES`.

    `bits` are the grades' as int64, which are in order as they are where none is below 0; `where` is empty if every document is
    real. `number` becomes the grade of each, -1 in the padding, `grade` the bits of each, `behind` how many have that grade or a
    higher one; `slots` [at least 2 x 64] is scratch: a hash table of the grades, and how many documents have each.
    """
    found, count = slots[:_SLOTS], slots[_SLOTS : 2 * _SLOTS]
    for slot in range(_SLOTS):
        count[slot] = 0
    grades = 0
    for i in range(bits.shape[0]):
        if where.size and not where[i]:
            number[i] = -1
            continue
        value = bits[i] if bits[i] != _NEGATIVE_ZERO else 0
        h = (np.uint64(value) >> _SLOT_BIT) & np.uint64(_SLOTS - 1)
        while count[h] and found[h] != value:
            h = (h + np.uint64(1)) & np.uint64(_SLOTS - 1)
        if count[h] == 0:
            if grades == COUNTED_CLASSES:
                return -1
            found[h] = value
            place = grades
            while place > 0 and grade[place - 1] < value:
                grade[place], behind[place] = grade[place - 1], behind[place - 1]
                place -= 1
            grade[place], behind[place] = value, np.int64(h)
            grades += 1
        count[h] += 1
        number[i] = np.int64(h)
    total = np.int64(0)
    for g in range(grades):
        slot = behind[g]
        total += count[unsigned(slot)]
        behind[g], found[unsigned(slot)] = total, g
    for i in range(bits.shape[0]):
        if not where.size or where[i]:
            number[i] = found[unsigned(number[i])]
    return grades
