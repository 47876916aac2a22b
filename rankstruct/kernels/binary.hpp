// Lists with binary relevance, for feature maps that use nothing else.
//
// Notation: p relevant and m irrelevant documents, each by descending score; relevant i and irrelevant j are the i-th and j-th of
// these.
#pragma once

#include "lists.hpp"

namespace rankstruct {

struct BinaryList {
    Span<int> relevant, irrelevant;  // ranks in the list
    Span<double> relevant_score, irrelevant_score;

    Index p() const { return relevant.size; }
    Index m() const { return irrelevant.size; }
    // The number of pairs as double, which is exact.
    double pairs() const { return double(p()) * double(m()); }
};

// Scratch of one BinaryList.
struct BinarySpace {
    Room each;
    Span<int> relevant = each, irrelevant = each;
    Span<double> relevant_score = each, irrelevant_score = each;

    // Split ranks, in this order, by relevance; score is by rank.
    template <class Relevant, class Rank>
    BinaryList split(Span<const double> score, Relevant is_relevant, Rank rank_of) const {
        Index p = 0, m = 0;
        for (Index i = 0; i < score.size; ++i) {
            const int rank = int(rank_of(i));
            // Branchless, since the branch would be mispredicted for every other document.
            relevant[p] = irrelevant[m] = rank;
            relevant_score[p] = irrelevant_score[m] = score[rank];
            const bool is = is_relevant(rank);
            p += is;
            m += !is;
        }
        return {relevant.first(p), irrelevant.first(m), relevant_score.first(p), irrelevant_score.first(m)};
    }
};

// Which labels are relevant: those above 0, or from a number on. The comparison is in single precision, so that a label 0.7
// reaches a threshold 0.7 whatever their dtypes.
struct Relevance {
    enum { ABOVE_ZERO, FROM_SINGLE, FROM } kind;
    double from;

    static Relevance of(const Batch& batch) {
        const double from = batch.min_relevant;
        return {from == from ? FROM_SINGLE : ABOVE_ZERO, double(float(from))};
    }
    bool operator()(double label) const {
        return kind == ABOVE_ZERO ? label > 0.0 : (kind == FROM ? label : double(float(label))) >= from;
    }
};

// Give documents with the same score, and the same chosen score if adjacent, the mean of their coefficients.
//
// `ranks` have one label, by descending score. The order among them is arbitrary: if it depended on the input, a scorer that
// starts at zero would learn the input order. O(n).
inline void share_among_tied(const List& list, Span<const int> ranks) {
    Index begin = 0;
    while (begin < ranks.size) {
        const int first = ranks[begin];
        Index end = begin + 1;
        double total = list.coefficient[first];
        for (; end < ranks.size && list.score[ranks[end]] == list.score[first]; ++end) {
            if (list.chosen.size && list.chosen[ranks[end]] != list.chosen[first]) break;
            total += list.coefficient[ranks[end]];
        }
        if (end > begin + 1)
            for (Index i = begin; i < end; ++i) list.coefficient[ranks[i]] = total / double(end - begin);
        begin = end;
    }
}

inline bool any_tied(Span<const double> score) {
    bool tied = false;
    for (Index i = 1; i < score.size; ++i) tied |= score[i] == score[i - 1];
    return tied;
}

inline void share_among_tied(const List& list, const BinaryList& split) {
    if (any_tied(split.relevant_score)) share_among_tied(list, split.relevant);
    if (any_tied(split.irrelevant_score)) share_among_tied(list, split.irrelevant);
}

// The list split in the order of the scores that determine the reference, by default those of the list. Ties are in input order.
struct ChosenSpace {
    Room each;
    SortSpace<double> sort{each};
    BinarySpace binary{each};
    Span<int> given = each;

    BinaryList split(const List& list, const BinaryList& own, Relevance relevance) {
        if (!list.chosen.size) return own;
        const Span<int> order = sort_places(in_input_order(list, given), list.chosen.data, sort);
        const Span<const double> label = list.label;
        return binary.split(list.chosen, [&](int r) { return relevance(label[r]); }, [&](Index i) { return order[i]; });
    }
};

// The kernel of a `Rule`: the sum over all thresholds of the labels, weighted, or the single split if there are none.
//
// A rule has the options from Python as its fields, and
//
//     static constexpr bool one_gain   whether all relevant documents must have one label
//     struct Space                     its scratch, made of what is in `Scratch`
//     void solve(List&, const BinaryList&, Relevance, ChosenSpace&, Space&) const
//                                      writes task loss, value and coefficients, which are all 0; p and m may be 0
//     bool solve_long(const Batch&, Index index, Relevance, List&, ListSpace<T>&, const BinarySpace&, Space&) const
//                                      optional, as in a kernel
template <class Rule>
struct Binary : Rule {
    static constexpr double widest = LARGEST;

    struct Space {
        Room each;
        const Binary& kernel;
        const Batch& batch;
        Relevance relevance = Relevance::of(batch);
        Span<const double> thresholds{batch.thresholds, batch.thresholds ? batch.threshold_count : 0};
        Span<const double> weights{batch.threshold_weights, thresholds.size};
        bool graded = batch.thresholds != nullptr;
        BinarySpace binary{each};
        ChosenSpace chosen{each.when(batch.chosen)};
        Span<double> total = each.when(graded);
        typename Rule::Space rule{each, kernel, batch};
    };

    void solve(List& list, Space& space) const {
        if (!space.graded) return solve_one(list, space.relevance, space);
        const Span<const double> thresholds = space.thresholds, weights = space.weights;
        const Span<double> total = space.total.first(list.size);
        total.fill(0.0);
        double task_loss = 0.0, value = 0.0;
        for (Index t = 0; t < thresholds.size; ++t) {
            list.task_loss = list.value = 0.0;
            list.coefficient.fill(0.0);
            solve_one(list, {Relevance::FROM, thresholds[t]}, space);
            task_loss += weights[t] * list.task_loss;
            value += weights[t] * list.value;
            for (Index r = 0; r < list.size; ++r) total[r] += weights[t] * list.coefficient[r];
        }
        list.task_loss = task_loss;
        list.value = value;
        for (Index r = 0; r < list.size; ++r) list.coefficient[r] = total[r];
    }

    template <class T>
        requires(Rule::solves_long)
    bool solve_long(const Batch& batch, Index index, List& list, ListSpace<T>& layout, Space& space) const {
        return Rule::solve_long(batch, index, space.relevance, list, layout, space.binary, space.rule);
    }

  private:
    void solve_one(List& list, Relevance is_relevant, Space& space) const {
        const Span<const double> label = list.label;
        const BinaryList split =
            space.binary.split(list.score, [&](int rank) { return is_relevant(label[rank]); }, [](Index i) { return i; });
        if constexpr (Rule::one_gain)
            for (const int rank : split.relevant)
                if (label[rank] != label[split.relevant[0]]) return void(list.refused = list.place[rank]);
        Rule::solve(list, split, is_relevant, space.chosen, space.rule);
    }
};

}  // namespace rankstruct
