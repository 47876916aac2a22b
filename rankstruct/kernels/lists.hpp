// Lists of documents, and the loop over them that all kernels share.
//
// A kernel sees one list at a time, its real documents by descending score. It reads scores and labels by rank and writes one
// coefficient per rank. This file handles the rest: dtypes, padding, offsets, outputs, and non-finite numbers.
#pragma once

#include "base.hpp"
#include "sort.hpp"
#include "sums.hpp"

namespace rankstruct {

enum Type : int { FLOAT32, FLOAT64, INT64, INT32, UINT8 };

// The arguments from Python, with the fields of `kernels.core.Batch`: flat arrays and output addresses.
struct Batch {
    const void* scores;          // [documents], of score_type
    const void* labels;          // [documents], of label_type
    const unsigned char* where;  // [documents], 1 for a real document; null if all are real
    const Index* offsets;        // [lists + 1]; null if all lists have `size` documents
    const double* chosen;        // [documents], scores that determine the reference; null for `scores`
    const Index* groups;         // [documents], equal for documents of a list in the same group; null if there are no groups
    const double* gains;         // [grades], the gain of each integer label from 0, NaN if unknown; null: labels are the gains
    const double* thresholds;    // [count], ascending; null: relevance is defined by min_relevant
    const double* threshold_weights;  // [count]
    const double* item_weights;  // [documents], the weight of each document; null: 1
    void* task_loss;             // [lists], of score_type
    void* value;                 // [lists], of score_type
    void* direction;             // [documents], of score_type
    Index lists, size, grades, threshold_count;
    double min_relevant;  // documents with at least this label are relevant; NaN: those above 0
    double least_label;   // labels below are refused
    int score_type, label_type;
    // Outputs, over the lists that were solved.
    double sum;       // of the values
    Index real_lists;  // that are not all padding

    Index begin(Index list) const { return offsets ? offsets[list] : list * size; }
};

// One list, its real documents by descending score.
struct List {
    Index size;
    Index places;               // size of the input list with padding
    Index start;                // the position of its first place in the batch
    double highest;             // the highest score
    Span<const double> score;   // relative to the highest: differences are unchanged, and sums stay small
    Span<const double> label;
    Span<const int> place;      // position of each document in the input list, padding included
    Span<const double> chosen;  // empty if the scores determine the reference
    Span<const Index> group;    // empty if there are none
    Span<const double> weight;  // weight of each document; empty: 1
    // Outputs, initially 0.
    Span<double> coefficient;
    double task_loss = 0.0, value = 0.0;
    Index refused = -1;       // the place of a document that the kernel refuses
    bool lacks_room = false;  // set if scratch could not grow

    double weight_of(Index rank) const { return weight.size ? weight[rank] : 1.0; }
};

// What a ranking is compared with: the best one in input order, the best one with the highest score, or the predicted one.
enum Reference : Index { IDEAL, IDEAL_TIED, PREDICTED };

// The options of a kernel of measures and decays by rank: discount times gain, or reciprocal rank.
struct ByRank {
    Span<const double> decay, discounts;  // [longest list]
    Index cutoff;                         // the number of ranks with a discount above 0
    Index least_cutoff;   // 0; or each list's cut-off is the first rank at which the ideal ranking gains less than at rank 1, but
                          // at least this number (mWTA)
    Index normalized;     // whether a list's measure is divided by its best value
    Index reciprocal;     // whether the measure is the discount of the first rank with a gain above 0, not a sum
    Reference reference;
};

// Call `use` with the address of a list's labels.
template <class Use>
inline auto with_labels(const Batch& batch, Index start, Use use) {
    switch (batch.label_type) {
        case FLOAT32: return use(static_cast<const float*>(batch.labels) + start);
        case FLOAT64: return use(static_cast<const double*>(batch.labels) + start);
        case INT64: return use(static_cast<const Index*>(batch.labels) + start);
        case INT32: return use(static_cast<const int*>(batch.labels) + start);
        default: return use(static_cast<const unsigned char*>(batch.labels) + start);
    }
}

// The labels of a list's documents, or their gains if known by grade, in the order of `place`.
inline void read_labels(const Batch& batch, Index start, Span<const int> place, Span<double> label) {
    with_labels(batch, start, [&](const auto* labels) {
        for (Index r = 0; r < place.size; ++r) label[r] = double(labels[place[r]]);
    });
    for (Index r = 0; batch.gains && r < place.size; ++r) {
        const double own = label[r];
        const bool known = own >= 0.0 && own < double(batch.grades) && own == double(Index(own));
        label[r] = known ? batch.gains[Index(own)] : INFINITE - INFINITE;
    }
}

// Scratch for the layout of a list.
template <class T>
struct ListSpace {
    Room each;
    const Batch& batch;
    SortSpace<T> sort{each};
    Span<int> real = each.when(batch.where);
    Span<double> score = each, label = each, coefficient = each;
    Span<double> chosen = each.when(batch.chosen), weight = each.when(batch.item_weights);
    Span<Index> group = each.when(batch.groups);
};

// What a kernel's scratch is made of.
template <class Kernel>
struct Scratch {
    Room each;
    const Kernel& kernel;
    const Batch& batch;
};

// Of a kernel without scratch.
struct NoSpace {
    template <class... Given>
    NoSpace(const Given&...) {}
};

// Whether any number is infinite or NaN.
template <class T>
inline bool any_broken(Span<const T> values) {
    const T* its = values.data;
    return !(sum_of(values.size, [=](Index i) { return double(its[i] - its[i]); }) == 0.0);  // a sum of zeros and NaN
}

// The values of `of`, in the order of `place`.
template <class T, class Of>
inline Span<T> gather(Span<const int> place, Of of, Span<T> into) {
    for (Index r = 0; r < place.size; ++r) into[r] = of(place[r]);
    return into.first(place.size);
}

// The first input position of a value that is infinite, NaN or below `lowest`; -1 if there is none.
inline Index first_below(Span<const double> values, Span<const int> place, double lowest) {
    bool broken = false;
    for (Index r = 0; r < values.size; ++r) broken |= !(is_finite(values[r]) & (values[r] >= lowest));
    if (!broken) return -1;
    int found = -1;
    for (Index r = 0; r < values.size; ++r)
        if (!(is_finite(values[r]) && values[r] >= lowest) && (found < 0 || place[r] < found)) found = place[r];
    return found;
}

// Compute the positions of a list's real documents by descending score; returns -1, or the position of a non-finite score.
template <class T>
inline Index order_scores(const Batch& batch, Index start, const T* scores, ListSpace<T>& space, List& list) {
    Span<const T> value{scores, list.places};
    if (batch.where) {
        Index count = 0;
        for (Index i = 0; i < list.places; ++i) {
            space.sort.value[count] = scores[i];
            space.real[count] = int(i);
            count += batch.where[start + i];
        }
        value = space.sort.value.first(count);
    }
    if (any_broken(value)) {
        Index i = 0;
        while (is_finite(value[i])) ++i;
        return batch.where ? space.real[i] : i;
    }
    const Span<int> order = sort_descending(value, space.sort);
    if (batch.where)
        for (int& at : order) at = space.real[at];
    list.place = order;
    return -1;
}

// Fill `order` with the ranks of a list's documents in input order; returns their part of it.
inline Span<int> in_input_order(const List& list, Span<int> order) {
    order.first(list.places).fill(-1);
    for (Index r = 0; r < list.size; ++r) order[list.place[r]] = int(r);
    Index count = 0;
    for (Index i = 0; i < list.places; ++i) {
        const int rank = order[i];  // or -1 for padding
        order[count] = rank;
        count += rank >= 0;
    }
    return order.first(list.size);
}

// Lay out a list by descending score; returns -1, or the position in the batch of an invalid number.
template <class T>
inline Index lay_out(const Batch& batch, Index index, double widest, ListSpace<T>& space, List& list) {
    const Index start = batch.begin(index);
    const T* scores = static_cast<const T*>(batch.scores) + start;
    list.places = batch.begin(index + 1) - start;
    list.start = start;
    const Index infinite = order_scores(batch, start, scores, space, list);
    if (infinite >= 0) return start + infinite;
    const Span<const int> order = list.place;
    const Index n = list.size = order.size;
    list.highest = n ? double(scores[order[0]]) : 0.0;
    list.score = gather<double>(order, [=, top = list.highest](Index at) { return double(scores[at]) - top; }, space.score);
    if (n && !(list.score[n - 1] >= -widest)) return start + order[n - 1];
    list.label = space.label.first(n);
    read_labels(batch, start, order, space.label);
    if (const Index broken = first_below(list.label, order, batch.least_label); broken >= 0) return start + broken;
    if (batch.chosen) {
        list.chosen = gather<double>(order, [=](Index at) { return batch.chosen[start + at]; }, space.chosen);
        if (const Index broken = first_below(list.chosen, order, -INFINITE); broken >= 0) return start + broken;
    }
    if (batch.groups) list.group = gather<Index>(order, [=](Index at) { return batch.groups[start + at]; }, space.group);
    if (batch.item_weights)
        list.weight = gather<double>(order, [=](Index at) { return batch.item_weights[start + at]; }, space.weight);
    list.coefficient = space.coefficient.first(n);
    list.coefficient.fill(0.0);
    return -1;
}

template <class T>
inline void write_results(const Batch& batch, Index index, const List& list) {
    const Index start = batch.begin(index), stop = batch.begin(index + 1);
    T* direction = static_cast<T*>(batch.direction) + start;
    if (batch.where)
        for (Index i = 0; i < stop - start; ++i) direction[i] = T(0);
    for (Index r = 0; r < list.size; ++r) direction[list.place[r]] = T(list.coefficient[r]);
    static_cast<T*>(batch.task_loss)[index] = T(list.task_loss);
    static_cast<T*>(batch.value)[index] = T(list.value);
}

// A kernel has the options from Python as its fields, each 8 bytes or an array, in the order of `kernels.core`, and
//
//     static constexpr double widest    the largest allowed difference of scores in a list
//     struct Space                      its scratch, made of what is in `Scratch`
//     void solve(List&, Space&) const   writes the results of a non-empty list
//     bool solve_long(const Batch&, Index index, List&, ListSpace<T>&, Space&) const
//                                       optional, for lists of at least LONG_LIST documents: lays out and solves a list without
//                                       sorting all of it, and writes the direction of the others; false if it has to be sorted
//
// Solve the lists [first, last); returns -1, the position in the batch of a refused document, or OUT_OF_MEMORY.
constexpr Index LONG_LIST = 4096, BANDS = 2048, RELEVANT_SHARE = 16, SORTED_SHARE = 2;  // see bands.hpp

template <class T, class Kernel>
inline Index solve_list(Batch& batch, const Kernel& kernel, Index index, ListSpace<T>& layout, typename Kernel::Space& space) {
    List list{};
    bool solved = false;
    if constexpr (requires { kernel.solve_long(batch, index, list, layout, space); })
        if (batch.begin(index + 1) - batch.begin(index) >= LONG_LIST) [[unlikely]] {
            solved = kernel.solve_long(batch, index, list, layout, space);
            if (!solved) list = List{};
        }
    if (!solved) {
        const Index broken = lay_out<T>(batch, index, Kernel::widest, layout, list);
        if (broken >= 0) return broken;
        if (list.size) kernel.solve(list, space);
        if (list.refused >= 0) return batch.begin(index) + list.refused;
        if (list.lacks_room) return OUT_OF_MEMORY;
    }
    if (list.size) {
        batch.real_lists += 1;
        batch.sum += double(T(list.value));
    }
    write_results<T>(batch, index, list);
    return -1;
}

inline Index longest_list(const Batch& batch, Index first, Index last) {
    if (!batch.offsets) return most(batch.size, Index(1));
    Index longest = 1;
    for (Index index = first; index < last; ++index) longest = most(longest, batch.offsets[index + 1] - batch.offsets[index]);
    return longest;
}

template <class T, class Kernel>
struct BatchSpace {
    Room each;
    const Kernel& kernel;
    const Batch& batch;
    ListSpace<T> layout{each, batch};
    typename Kernel::Space space{each, kernel, batch};
};

template <class T, class Kernel>
Index run_lists(Batch& batch, const Kernel& kernel, Index first, Index last) {
    const auto solve_all = [&](BatchSpace<T, Kernel>& space) {
        Index wrong = -1;
        for (Index index = first; index < last && wrong == -1; ++index)
            wrong = solve_list<T>(batch, kernel, index, space.layout, space.space);
        return wrong;
    };
    return with_space<BatchSpace<T, Kernel>>(longest_list(batch, first, last), solve_all, kernel, batch);
}

template <class Kernel>
Index run(Batch& batch, const Kernel& kernel, Index first, Index last) {
    batch.sum = 0.0;
    batch.real_lists = 0;
    return batch.score_type == FLOAT32 ? run_lists<float>(batch, kernel, first, last) : run_lists<double>(batch, kernel, first, last);
}

}  // namespace rankstruct
