// A stable descending sort of one list's scores, as the order of their positions.
//
// Short lists count how many scores are higher than each: n^2 vectorised comparisons. Medium lists use buckets of equal width
// between the lowest and the highest score; long ones two to four passes of a radix sort over the highest differing bits of the
// keys. Insertion sort corrects the rest; if that takes too many moves (an outlier far from all others), radix passes cover all
// bits. O(n) per pass. Scores are finite.
#pragma once

#include "base.hpp"

namespace rankstruct {

// Scratch for lists of at most `each.count` documents.
template <class T>
struct SortSpace {
    using Bits = std::conditional_t<sizeof(T) == 4, Bits32, Bits64>;
    static constexpr int buckets = 256;

    Room each;
    Span<T> value = each;
    Span<Bits> key = each, spare_key = each;
    Span<int> order = each, spare_order = each, histogram = each(buckets);
};

// Longest list sorted by counting: for 80 floats this takes as long as buckets; doubles switch earlier.
template <class T>
constexpr Index COUNTED_BELOW = sizeof(T) == 4 ? 80 : 32;
constexpr Index TWO_PASSES_BELOW = 512, THREE_PASSES_BELOW = 100'000;  // with enough bits to distinguish most documents
constexpr Index MOST_MOVES = 8;  // insertion moves per document; a pass costs as much as two to four

// Keys ascend as scores descend: the bits of the float, suitably flipped. -0.0 and 0.0 have the same key.
template <class T>
inline auto key_of(T score) {
    using Bits = typename SortSpace<T>::Bits;
    constexpr Bits sign = Bits(1) << (8 * sizeof(Bits) - 1);
    const Bits bits = __builtin_bit_cast(Bits, score + T(0));
    return bits & sign ? bits : bits ^ (sign - 1);
}

// Ranks by counting higher scores; ties, detected by the sum of the ranks, keep their order.
template <class T>
inline void sort_by_counting(Span<const T> value, Span<int> order) {
    const int n = int(value.size);
    const T* its = value.data;
    Index total = 0;
    for (int i = 0; i < n; ++i) {
        const T own = its[i];
        int higher = 0;
        for (int j = 0; j < n; ++j) higher += its[j] > own;
        total += higher;
        order[higher] = i;
    }
    if (2 * total == Index(n) * (n - 1)) return;
    for (int i = 0; i < n; ++i) {
        const T own = its[i];
        int before = 0;
        for (int j = 0; j < n; ++j) before += its[j] > own;
        for (int j = 0; j < i; ++j) before += its[j] == own;
        order[before] = i;
    }
}

// Insertion sort by ascending key; returns false, with a partial result, after too many moves.
template <class Key>
inline bool insert(Span<Key> key, Span<int> order, Index most_moves) {
    for (Index i = 1; i < key.size; ++i) {
        const Key moved = key[i];
        if (key[i - 1] <= moved) continue;
        const int its_order = order[i];
        Index j = i - 1;
        for (; j >= 0 && key[j] > moved; --j) {
            key[j + 1] = key[j];
            order[j + 1] = order[j];
        }
        key[j + 1] = moved;
        order[j + 1] = its_order;
        most_moves -= i - 1 - j;
        if (most_moves < 0) return false;
    }
    return true;
}

// From bucket sizes to bucket starts.
inline void begin_buckets(Span<int> histogram) {
    int total = 0;
    for (int& count : histogram) {
        const int size = count;
        count = total;
        total += size;
    }
}

// Fill spare_key and spare_order by buckets of equal width; returns false if the width is 0.
template <class T>
inline bool sort_by_width(Span<const T> value, SortSpace<T>& space) {
    const Index n = value.size;
    double highest = value[0], lowest = value[0];
    for (Index i = 0; i < n; ++i) {
        highest = most(highest, double(value[i]));
        lowest = least(lowest, double(value[i]));
    }
    const double scale = (SortSpace<T>::buckets - 1) / (highest - lowest);
    if (!(scale > 0.0 && scale < INFINITE)) return false;
    space.histogram.fill(0);
    for (Index i = 0; i < n; ++i) {
        const int bucket = int((highest - value[i]) * scale);
        space.order[i] = bucket;
        ++space.histogram[bucket];
    }
    begin_buckets(space.histogram);
    for (Index i = 0; i < n; ++i) {
        const int to = space.histogram[space.order[i]]++;
        space.spare_key[to] = key_of(value[i]);
        space.spare_order[to] = int(i);
    }
    return true;
}

// Radix passes over the differing bits in [first, last); the result is in key and order.
template <class T>
inline void sort_by_bits(int first, int last, typename SortSpace<T>::Bits differing, Index n, SortSpace<T>& space) {
    constexpr int digit = 8, mask = SortSpace<T>::buckets - 1;
    for (int shift = first; shift < last; shift += digit) {
        if (!((differing >> shift) & mask)) continue;
        space.histogram.fill(0);
        for (Index i = 0; i < n; ++i) ++space.histogram[(space.key[i] >> shift) & mask];
        begin_buckets(space.histogram);
        for (Index i = 0; i < n; ++i) {
            const auto key = space.key[i];
            const int to = space.histogram[(key >> shift) & mask]++;
            space.spare_key[to] = key;
            space.spare_order[to] = space.order[i];
        }
        std::swap(space.key, space.spare_key);
        std::swap(space.order, space.spare_order);
    }
}

// Compute keys and initial positions; returns the bits in which keys differ.
template <class T>
inline auto begin_keys(Span<const T> value, SortSpace<T>& space) {
    using Bits = typename SortSpace<T>::Bits;
    Bits some = 0, every = ~Bits(0);
    for (Index i = 0; i < value.size; ++i) {
        const Bits key = key_of(value[i]);
        space.key[i] = key;
        space.order[i] = int(i);
        some |= key;
        every &= key;
    }
    return some & ~every;
}

// The positions of the values by descending value, stable, in `space.order`.
template <class T>
inline Span<int> sort_descending(Span<const T> value, SortSpace<T>& space) {
    const Index n = value.size;
    if (n < COUNTED_BELOW<T>) {
        sort_by_counting(value, space.order.first(n));
        return space.order.first(n);
    }
    if (n < TWO_PASSES_BELOW && sort_by_width(value, space) &&
        insert(space.spare_key.first(n), space.spare_order.first(n), MOST_MOVES * n)) {
        std::swap(space.order, space.spare_order);
        return space.order.first(n);
    }
    const auto differing = begin_keys(value, space);
    int last = 0;
    while (last < int(8 * sizeof(differing)) && differing >> last) ++last;
    const int passes = n < TWO_PASSES_BELOW ? 2 : n < THREE_PASSES_BELOW ? 3 : 4;
    const int first = most(last - 8 * passes, 0);
    sort_by_bits<T>(first, last, differing, n, space);
    // All passes and the insertion are stable.
    if (first && !insert(space.key.first(n), space.order.first(n), MOST_MOVES * n)) sort_by_bits<T>(0, last, differing, n, space);
    return space.order.first(n);
}

// The places by descending value, stable, in `space.order`.
template <class T>
inline Span<int> sort_places(Span<const int> place, const T* values, SortSpace<T>& space) {
    for (Index i = 0; i < place.size; ++i) space.value[i] = values[place[i]];
    const Span<int> order = sort_descending<T>(space.value.first(place.size), space);
    for (int& at : order) at = place[at];
    return order;
}

}  // namespace rankstruct
