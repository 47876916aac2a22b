// Sort the scores of one list, descending and stable, as the order of their places.
//
// Short lists count for each score how many are higher, n^2 comparisons that vector instructions take eight at a time. Middling ones
// go to buckets of equal width between the lowest and the highest score; long ones take two to four passes of a radix sort over the
// highest bits in which the keys of the list differ. Insertion puts the few right that are not yet; where that takes too many moves
// (a far outlier, and all others close together), the radix passes go over all bits. O(n) a pass. Scores are finite.
#pragma once

#include "base.hpp"

namespace rankstruct {

template <class T>
struct SortKey;
template <>
struct SortKey<float> {
    using Bits = Bits32;
};
template <>
struct SortKey<double> {
    using Bits = Bits64;
};

// Scratch for lists of at most `longest` documents.
template <class T>
struct SortSpace {
    using Bits = typename SortKey<T>::Bits;
    static constexpr int buckets = 256;

    Span<T> value;
    Span<Bits> key, spare_key;
    Span<int> order, spare_order;
    Span<int> histogram;

    KERNEL SortSpace(Arena& arena, Index longest)
        : value(arena.take<T>(longest)),
          key(arena.take<Bits>(longest)),
          spare_key(arena.take<Bits>(longest)),
          order(arena.take<int>(longest)),
          spare_order(arena.take<int>(longest)),
          histogram(arena.take<int>(buckets)) {}
};

// Documents of a list that is sorted by counting: of 80 scores that takes as long as the buckets, of doubles sooner.
template <class T>
constexpr Index COUNTED_BELOW = sizeof(T) == 4 ? 80 : 32;
constexpr Index TWO_PASSES_BELOW = 512, THREE_PASSES_BELOW = 100'000;  // as many bits as tell most documents apart
constexpr Index MOST_MOVES = 8;  // a document, of the insertion; a pass costs as much as two to four

// The keys ascend as the scores descend: a float's bits, flipped the right way. -0.0 and 0.0 have one key.
template <class T>
KERNEL inline typename SortKey<T>::Bits key_of(T score) {
    using Bits = typename SortKey<T>::Bits;
    constexpr Bits sign = Bits(1) << (8 * sizeof(Bits) - 1);
    const Bits bits = __builtin_bit_cast(Bits, score + T(0));
    return bits & sign ? bits : bits ^ (sign - 1);
}

// Ranks by counting who is higher; ties, seen by the sum of the ranks, keep their order.
template <class T>
KERNEL inline void sort_by_counting(Span<const T> value, Span<int> order) {
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

// Insertion sort by ascending key; returns false, with what is done so far, after so many moves.
template <class Key>
KERNEL inline bool insert(Span<Key> key, Span<int> order, Index most_moves) {
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

// From how many each bucket has to where each begins.
KERNEL inline void begin_buckets(Span<int> histogram) {
    int total = 0;
    for (int& count : histogram) {
        const int size = count;
        count = total;
        total += size;
    }
}

// Fill spare_key and spare_order bucket by bucket, of equal width; returns false where there is no width.
template <class T>
KERNEL inline bool sort_by_width(Span<const T> value, SortSpace<T>& space) {
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

// Radix passes over the bits [first, last) in which keys differ; the result is in key and order.
template <class T>
KERNEL inline void sort_by_bits(int first, int last, typename SortKey<T>::Bits differing, Index n, SortSpace<T>& space) {
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
        exchange(space.key, space.spare_key);
        exchange(space.order, space.spare_order);
    }
}

// Fill the keys and places of the values from the start; returns in which bits keys differ.
template <class T>
KERNEL inline typename SortKey<T>::Bits begin_keys(Span<const T> value, SortSpace<T>& space) {
    using Bits = typename SortKey<T>::Bits;
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

// The places of the values by descending value, those of equal values in their order: in `space.order` from the start.
template <class T>
KERNEL inline Span<int> sort_descending(Span<const T> value, SortSpace<T>& space) {
    const Index n = value.size;
    if (n < COUNTED_BELOW<T>) {
        sort_by_counting(value, space.order.first(n));
        return space.order.first(n);
    }
    if (n < TWO_PASSES_BELOW && sort_by_width(value, space) &&
        insert(space.spare_key.first(n), space.spare_order.first(n), MOST_MOVES * n)) {
        exchange(space.order, space.spare_order);
        return space.order.first(n);
    }
    const auto differing = begin_keys(value, space);
    int last = 0;
    while (last < int(8 * sizeof(differing)) && differing >> last) ++last;
    const int passes = n < TWO_PASSES_BELOW ? 2 : n < THREE_PASSES_BELOW ? 3 : 4;
    const int first = most(last - 8 * passes, 0);
    sort_by_bits<T>(first, last, differing, n, space);
    // All passes are stable, and so is what was inserted.
    if (first && !insert(space.key.first(n), space.order.first(n), MOST_MOVES * n)) sort_by_bits<T>(0, last, differing, n, space);
    return space.order.first(n);
}

}  // namespace rankstruct
