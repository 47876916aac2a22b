// Losses that sum a cost over the pairs of a list: RankNet, LambdaLoss, and others with their weights. O(n^2) time, O(n k) with a
// cut-off k, and O(n) memory.
//
// Let i rank above j and x = sigma (s_i - s_j) >= 0. The pair costs `right` c(x) if i should be above, and `wrong` c(-x) if j
// should be; with some weights it has both. With both = right + wrong this is
//
//     both c(x) + wrong (c(-x) - c(x))       slope in s_i:  sigma (wrong (-c'(x) - c'(-x)) + both c'(x));  in s_j the negative
//
// For logistic costs, c(x) = log(1 + z) with z = exp(-x) in (0, 1], these are both log(1 + z) + wrong x and wrong - both z / (1 +
// z). One exponential per document suffices, since z is a ratio of two. The loops over a row of pairs read adjacent memory
// without branches, so they are vectorised. For float32 scores they compute in float32, 32 rows at a time: numbers are relative
// to the first row, and sums are in float64.
#pragma once

#include "grades.hpp"
#include "lists.hpp"
#include "sums.hpp"
#include "vector_math.hpp"

namespace rankstruct {

// For a pair with x and z: the cost in the right order, the additional cost in the wrong order; -c'(x), and -c'(x) - c'(-x).
template <class Real>
struct PairCost {
    Real cost, more, pull, pulls;
};

constexpr auto LOGISTIC_COST = []<class Real>(Real x, Real z) -> PairCost<Real> {
    const Real one = 1 + z, two = 2 + z, scaled = z / (one * two);  // one division for both
    return {two_artanh(scaled * one), x, scaled * two, 1};
};

// The second derivative of the logistic cost in place of its slope: the same for both documents of a pair.
constexpr auto LOGISTIC_CURVATURE = []<class Real>(Real, Real z) -> PairCost<Real> {
    const Real share = z / (1 + z);
    return {0, 0, share * (1 - share), 0};
};

// The soft zero-one cost, 1 / (1 + exp(x)).
constexpr auto SIGMOID_COST = []<class Real>(Real, Real z) -> PairCost<Real> {
    const Real share = z / (1 + z), slope = share * (1 - share);
    return {share, 1 - 2 * share, slope, 2 * slope};
};

// Fidelity, 1 - sqrt(P) with P = 1 / (1 + exp(-x)).
constexpr auto FIDELITY_COST = []<class Real>(Real, Real z) -> PairCost<Real> {
    const Real p = 1 / (1 + z), q = z * p, root_p = std::sqrt(p), root_q = std::sqrt(q);
    const Real cost = q / (1 + root_p), pull = Real(0.5) * root_p * q;
    return {cost, 1 - root_q - cost, pull, pull + Real(0.5) * root_q * p};
};

// The hinge, max(0, 1 - x), with slope 0 at the kink.
constexpr auto HINGE_COST = []<class Real>(Real x, Real) -> PairCost<Real> {
    const Real cost = most(1 - x, Real(0)), pull = x < 1 ? Real(1) : Real(0);
    return {cost, 1 + x - cost, pull, pull + 1};
};

// The value of the best ranking of gains, with discounts for the ranks before `kept`; 0 if no ranking can be wrong.
inline double best_value(Index n, const Grades& grades, Span<const double> discounts, Index kept) {
    double best = 0.0;
    for (int g = 0; g < grades.count(); ++g) {
        double discount = 0.0;
        for (Index r = grades.starts[g]; r < grades.starts[g + 1] && r < kept; ++r) discount += discounts[r];
        if (discount > 0.0) best += discount * grades.value[g];
    }
    const double last = n <= kept ? discounts[n - 1] : 0.0;
    return grades.count() > 1 && discounts[0] > last ? best : 0.0;
}

// The weights of pairs; see `LambdaLoss` in losses/pairwise.py. UNIFORM is the mean over pairs of unequal labels.
enum Scheme : Index { UNIFORM, NDCG1, NDCG2, NDCG2_PLUS, LAMBDARANK };

// A row's own document; a pair's weight, and the weight if the document ranked first has the lower gain.
template <class Real>
struct Own {
    Real x, factor, gain, discount, share;
};

template <class Real>
struct Weight {
    Real both, wrong;
};

// A pair's weight, by the difference of gain of the document ranked first, and the change of the measure if the two are swapped.
constexpr auto BY_SHARE = []<class Real>(Real ahead, const Own<Real>& own, Real, Real, Real share) -> Weight<Real> {
    const Real weight = own.share * share;
    return {ahead != 0 ? weight : Real(0), ahead < 0 ? weight : Real(0)};
};
constexpr auto BY_GAIN = []<class Real>(Real, const Own<Real>& own, Real gain, Real, Real) -> Weight<Real> {
    return {own.gain + gain, gain};
};
constexpr auto BY_SWAP = []<class Real>(Real ahead, const Own<Real>&, Real, Real swap, Real) -> Weight<Real> {
    return {std::fabs(ahead) * swap, most(-ahead, Real(0)) * swap};
};

// `Cost` is one of the costs above; if `curvature`, it has second derivatives in place of slopes.
template <class Cost, bool curvature = false>
struct PairLoss {
    static constexpr double widest = INFINITE;
    static constexpr Index rows = 32;          // per block
    static constexpr double nearest = 1e-8;    // the smallest exponential of a row relative to the first of its block
    static constexpr double smallest = 1e-150;  // of the exponential that a block is relative to
    static constexpr double widest_x = 1e300;  // so that 0 x is 0
    static constexpr double widest_single = 1e30;  // x of float32 loops, so that no sum overflows

    Span<const double> discounts;  // by rank; not used by UNIFORM
    Span<const double> steps;      // d(k) - d(k + 1) by distance k, ignoring a cut-off, and 0 for k = 0
    Index kept;                    // ranks with a discount
    Scheme scheme;
    double sigma, mu;
    // For UNIFORM, pairs of named labels have a factor, and all other pairs 0; all factors are 1 if no label is named.
    Span<const double> named;        // labels
    Span<const double> named_pairs;  // [named * named], in either order

    // The inputs of the loops by rank, and the sums of a block's costs and slopes.
    template <class Real>
    struct Loops {
        Room each;
        bool named;
        Span<Real> x = each, exponential = each, inverse = each, discount = each;  // relative to the first row of the block
        Span<Real> gain = each, share = each, steps = each(2 * each.count), of_common = each;
        Span<Real> pair_share = each.when(named), pull = each;  // of one row
        Span<Real> cost = each, slope = each;                   // of the block, by column
    };

    struct Space {
        Room each;
        const PairLoss& kernel;
        const Batch& batch;
        bool is_single = batch.score_type == FLOAT32, named = kernel.named.size > 0;
        GradeSpace grades{each};
        Span<double> x = each, exponential = each, gain = each;
        Span<int> name = each.when(named);
        Loops<float> single{each.when(is_single), named};
        Loops<double> precise{each, named};
    };

    void solve(List& list, Space& space) const {
        if (space.is_single && sigma * list.score[list.size - 1] > -widest_single)
            solve_in(list, space, space.single);
        else
            solve_in(list, space, space.precise);
    }

  private:
    bool uniform() const { return scheme == UNIFORM; }

    template <class Real>
    void solve_in(List& list, Space& space, Loops<Real>& loops) const {
        const Index n = list.size;
        const Span<double> gain = space.gain.first(n);
        for (Index i = 0; i < n; ++i) gain[i] = list.label[i] * (uniform() ? 1.0 : list.weight_of(i));
        const Grades grades = number_grades(gain, space.grades);
        // For UNIFORM the number of pairs of unequal labels, or their weight relative to the largest.
        const auto weight = [&, largest = largest_weight(list)](Index i) { return list.weight_of(i) / largest; };
        const double unit = uniform() ? weight_of_pairs(grades, space.x, weight) : best_value(n, grades, discounts, kept);
        if (unit <= 0.0) return;

        // The documents of the most frequent gain are not used as rows if they are two thirds: every other one meets them on both
        // sides.
        const bool all_pairs = scheme == NDCG1, cut = !uniform() && kept < n;
        int common = -1;
        for (int g = 0; g < grades.count(); ++g)
            if (!all_pairs && !cut && 3 * (grades.starts[g + 1] - grades.starts[g]) > 2 * n) common = g;

        prepare(list, grades, unit, common, space, loops);
        const Index last = uniform() ? n : least(kept, n);
        for (Index begin = 0; begin < last;) {
            if (grades.number[begin] == common) {
                ++begin;
                continue;
            }
            begin = add_block(list, grades, begin, last, common, space, loops);
        }
        const double scale = uniform() ? 1.0 / unit : 1.0;
        const double by_slope = scale * sigma * (curvature ? sigma : 1.0);
        list.value *= scale;
        for (Index i = 0; i < n; ++i) list.coefficient[i] *= by_slope;
    }

    static double largest_weight(const List& list) {
        return list.weight.size ? highest_of(list.size, [its = list.weight.data](Index i) { return its[i]; }) : 1.0;
    }

    // Precompute what is the same for all blocks.
    template <class Real>
    void prepare(const List& list, const Grades& grades, double unit, int common, Space& space, Loops<Real>& loops) const {
        const Index n = list.size;
        const double lowest = scheme == NDCG1 ? 0.0 : grades.value[grades.count() - 1], largest = largest_weight(list);
        for (Index i = 0; i < n; ++i) {
            space.x[i] = most(sigma * list.score[i], -widest_x);
            space.exponential[i] = exp(space.x[i]);
            loops.of_common[i] = grades.number[i] == common ? Real(1) : Real(0);
            loops.cost[i] = loops.slope[i] = 0;
            if (uniform()) {
                loops.gain[i] = Real(-grades.number[i]);
                loops.share[i] = Real(list.weight_of(i) / largest);
            } else if (scheme == NDCG1) {
                loops.gain[i] = Real(space.gain[i] / unit * discounts[i]);
            } else {
                // Divided before multiplying: gains may be as large as their dtype allows. Differences keep their precision.
                loops.gain[i] = Real(space.gain[i] / unit - lowest / unit);
            }
        }
        for (Index i = 0; i < space.name.size && i < n; ++i) {
            space.name[i] = -1;
            for (Index k = 0; k < named.size; ++k)
                if (named[k] == list.label[i]) space.name[i] = int(k);
        }
        const bool stepped = scheme == NDCG2 || scheme == NDCG2_PLUS;
        const double near = scheme == NDCG2_PLUS ? mu : 1.0;
        for (Index k = 0; k < n; ++k) loops.steps[n + k] = loops.steps[n - k] = stepped ? Real(near * steps[k]) : Real(0);
    }

    // The pairs of a block of rows from `begin`; returns the beginning of the next one.
    template <class Real>
    Index add_block(List& list, const Grades& grades, Index begin, Index last, int common, Space& space,
                    Loops<Real>& loops) const {
        const Index n = list.size, left = common < 0 ? begin : 0;
        if (space.exponential[begin] < smallest)
            for (Index j = left; j < n; ++j) space.exponential[j] = exp(space.x[j] - space.x[begin]);
        const double top = space.x[begin], its = space.exponential[begin];
        const bool ranked = scheme == LAMBDARANK || scheme == NDCG2_PLUS;
        for (Index j = left; j < n; ++j) {
            loops.x[j] = Real(space.x[j] - top);
            loops.exponential[j] = Real(space.exponential[j] / its);
            loops.inverse[j] = Real(its / space.exponential[j]);
            loops.discount[j] = ranked ? Real(discounts[j] - discounts[begin]) : Real(0);
        }
        Index end = begin;
        for (Index count = 0; end < last && count < rows && space.exponential[end] >= nearest * its; ++end)
            count += grades.number[end] != common;
        for (Index i = begin; i < end; ++i) {
            if (grades.number[i] == common) continue;
            add_row<false>(list, i, i + 1, n, space, loops);
            if (common >= 0) add_row<true>(list, i, 0, i, space, loops);
        }
        for (Index j = left; j < n; ++j) {
            list.value += double(loops.cost[j]);
            list.coefficient[j] += double(loops.slope[j]);
            loops.cost[j] = loops.slope[j] = 0;
        }
        return end;
    }

    // The pairs of rank i with the lower ranks [first, last); or, if `above`, with the documents of the common gain at higher
    // ranks.
    template <bool above, class Real>
    void add_row(List& list, Index i, Index first, Index last, Space& space, Loops<Real>& loops) const {
        const Real* share = loops.share.data;
        if (space.name.size) {
            share = loops.pair_share.data;
            const int own = space.name[i];
            for (Index j = first; j < last; ++j) {
                const int other = space.name[j];
                const bool known = own >= 0 && other >= 0;
                const double by_label = known ? named_pairs[own * named.size + other] : 0.0;
                loops.pair_share[j] = loops.share[j] * Real(by_label);
            }
        }
        const Real factor = above ? loops.exponential[i] : 1 / loops.exponential[i];
        const Own<Real> own{loops.x[i], factor, loops.gain[i], loops.discount[i], loops.share[i]};
        const Real* ratio = above ? loops.inverse.data : loops.exponential.data;
        const Real* steps = loops.steps.data + (list.size - i);
        const auto add = [&](auto kind) {
            add_pairs<decltype(kind), above>(last - first, own, loops.x.data + first, ratio + first, loops.gain.data + first,
                                             loops.discount.data + first, steps + first, share + first,
                                             loops.of_common.data + first, loops.cost.data + first, loops.slope.data + first,
                                             loops.pull.data);
        };
        if (uniform())
            add(BY_SHARE);
        else
            scheme == NDCG1 ? add(BY_GAIN) : add(BY_SWAP);
        const double pulled = double(sum_of_row(loops.pull.data, last - first));
        list.coefficient[i] += curvature ? pulled : -pulled;
    }

    // Add the costs of a document's pairs and their slopes in the other documents' scores, which also fill `pull`.
    template <class Kind, bool above, class Real>
    static void add_pairs(Index count, const Own<Real> own, const Real* __restrict x, const Real* __restrict ratio,
                          const Real* __restrict gain, const Real* __restrict discount, const Real* __restrict steps,
                          const Real* __restrict share, const Real* __restrict of_common, Real* __restrict cost,
                          Real* __restrict slope, Real* __restrict pull) {
        constexpr Real side = above ? -1 : 1, sign = curvature ? Real(1) : side;
        for (Index j = 0; j < count; ++j) {
            const Real ahead = side * (own.gain - gain[j]);
            Weight<Real> weight = Kind{}(ahead, own, gain[j], side * (own.discount - discount[j]) + steps[j], share[j]);
            if constexpr (above) weight = {weight.both * of_common[j], weight.wrong * of_common[j]};
            const PairCost<Real> pair = Cost{}(side * (own.x - x[j]), ratio[j] * own.factor);
            cost[j] += weight.both * pair.cost + weight.wrong * pair.more;
            const Real moved = sign * (weight.both * pair.pull - weight.wrong * pair.pulls);
            slope[j] += moved;
            pull[j] = moved;
        }
    }
};

using LogisticPairs = PairLoss<decltype(LOGISTIC_COST)>;
using LogisticCurvatures = PairLoss<decltype(LOGISTIC_CURVATURE), true>;
using HingePairs = PairLoss<decltype(HINGE_COST)>;
using ZeroOnePairs = PairLoss<decltype(SIGMOID_COST)>;
using FidelityPairs = PairLoss<decltype(FIDELITY_COST)>;

}  // namespace rankstruct
