// Most violated rankings under the pairwise feature map.
//
// A ranking is determined by the number of irrelevant documents above each relevant one, which never decreases: a `Placement`
// computes these numbers for a measure, and everything else follows from them.
#pragma once

#include <algorithm>

#include "bands.hpp"
#include "binary.hpp"
#include "sums.hpp"

namespace rankstruct {

// For each element of the first group, count the elements of the second above it, i.e. those with `above(i, j)`. Once false it
// stays false along the second group, and once true it stays true along the first. Calls `found(i, count)`.
template <class Above, class Found>
inline void count_above(Index first, Index second, Above above, Found found) {
    int j = 0;
    for (int i = 0; i < first; ++i) {
        while (j < second && above(i, j)) ++j;
        found(i, j);
    }
}

// Replace each number by the highest one so far.
inline void raise_to_earlier(Span<int> above) {
    for (Index i = 1; i < above.size; ++i) above[i] = most(above[i], above[i - 1]);
}

// The rule of a placement, which has
//
//     bool place(List&, const BinaryList&, Span<int> above, Space&) const
//                 writes the number of irrelevant documents above each relevant one, and the task loss; returns false, with a task
//                 loss of 0, if no ranking can be wrong
//
// Item weights are for AUC, each pair of which is placed by itself: a pair counts as often as the product of its two weights.
template <class Placement>
struct Pairwise : Placement {
    static constexpr bool solves_long = requires { requires Placement::solves_long; };

    Index predicted;  // whether the reference is the ranking by chosen scores, not the ideal one

    struct Space {
        Room each;
        const Pairwise& rule;
        const Batch& batch;
        Span<int> above = each, first_below = each(each.count + 1);  // of the other class, for each document of one
        Span<Index> swapped = each.when(rule.predicted);            // by rank
        Span<double> weights = each(each.count + 1).when(batch.item_weights);  // of the first documents of a class
        Bands bands = Bands::of(batch, each.when(solves_long));
        typename Placement::Space placement{each, rule, batch};
    };

    void solve(List& list, const BinaryList& split, Relevance relevance, ChosenSpace& chosen, Space& space) const {
        if (!split.p() || !split.m()) return;
        const Span<int> above = space.above.first(split.p());
        if (!Placement::place(list, split, above, space.placement)) return;
        if (list.weight.size) return finish_weighted(list, split, relevance, chosen, above, space.weights);
        if (predicted)
            finish_predicted(list, split, chosen.split(list, split, relevance), above, space.swapped);
        else
            finish(list, split, above, space.first_below.first(split.m() + 1));
        list.value = most(list.task_loss + dot(list.coefficient, list.score), 0.0);
        share_among_tied(list, split);
    }

    // O(n) and a sort of few documents, see bands.hpp.
    template <class T>
    bool solve_long(const Batch& batch, Index index, Relevance relevance, List& list, ListSpace<T>& layout,
                    const BinarySpace& binary, Space& space) const {
        const Bands& bands = space.bands;
        BandedList<T> banded;
        if (!bands.divide(batch, index, relevance, LARGEST, layout.sort, banded)) return false;
        const Span<double> relevant_score = gather<double>(banded.relevant, [&](Index at) { return banded.score(at); }, binary.relevant_score);
        const auto decide = Placement::decisions(relevant_score, banded.m(), space.placement);
        decide_bands(bands, banded, decide);
        if (!bands.lay_out(banded, layout, list)) return false;
        const BinaryList split = bands.split(list, binary);
        decide.all(split.m(), [&](Index t) { return bands.number[t - 1]; }, [&](Index t) { return split.irrelevant_score[t - 1]; });
        const Span<int> above = space.above.first(split.p());
        finish_bands(list, split, bands, banded, decide, above);
        list.task_loss = decide.task_loss(above);
        const double rest = bands.write_rest(banded, static_cast<T*>(batch.direction) + batch.begin(index));
        list.value = most(list.task_loss + dot(list.coefficient, list.score) + rest, 0.0);
        share_among_tied(list, split);
        return true;
    }

  private:
    // Coefficients relative to the ideal ranking. Irrelevant j is above all relevant documents except the first ones, those with
    // at most j above them; among those with the same number, the last one writes the result.
    static void finish(List& list, const BinaryList& split, Span<const int> above, Span<int> first_below) {
        const int p = int(split.p());
        const double scale = 2.0 / split.pairs();
        first_below.fill(0);
        for (int i = 0; i < p; ++i) {
            list.coefficient[split.relevant[i]] = 0.0 - scale * double(above[i]);  // not -0.0
            first_below[above[i]] = i + 1;
        }
        int first = 0;
        for (Index j = 0; j < split.m(); ++j) {
            first = most(first, first_below[j]);
            list.coefficient[split.irrelevant[j]] = scale * double(p - first);
        }
    }

    // `finish` relative to the predicted ranking. Swapped pairs are counted as integers, so that pairs swapped in both rankings
    // cancel exactly.
    static void finish_predicted(List& list, const BinaryList& split, const BinaryList& preferred, Span<const int> above,
                                   Span<Index> swapped) {
        const Index p = split.p(), m = split.m();
        count_above(m, p, [&](Index j, Index i) { return above[i] <= j; },
                    [&](Index j, Index i) { swapped[split.irrelevant[j]] = p - i; });
        for (Index i = 0; i < p; ++i) swapped[split.relevant[i]] = above[i];
        // Minus the pairs swapped in the predicted ranking, where relevant documents come first among ties.
        count_above(p, m, [&](Index i, Index j) { return preferred.relevant_score[i] < preferred.irrelevant_score[j]; },
                    [&](Index i, Index j) { swapped[preferred.relevant[i]] -= j; });
        count_above(m, p, [&](Index j, Index i) { return preferred.relevant_score[i] >= preferred.irrelevant_score[j]; },
                    [&](Index j, Index i) { swapped[preferred.irrelevant[j]] -= p - i; });
        const double scale = 2.0 / split.pairs();
        for (const int rank : split.relevant) list.coefficient[rank] = 0.0 - scale * double(swapped[rank]);
        for (const int rank : split.irrelevant) list.coefficient[rank] = scale * double(swapped[rank]);
    }

    // K of each band, and whether its documents are sorted: if its edges differ in K, or if the reference depends on their order.
    template <class T, class Decisions>
    void decide_bands(const Bands& bands, const BandedList<T>& list, const Decisions& decide) const {
        const Span<const int> first_below = decide.first_below();
        const Index p = list.p();
        decide.all(BANDS, [&](Index t) { return most(bands.before[t - 1], 1); },
                   [&](Index t) { return list.edge(double(t - 1) - Bands::slack); });
        for (Index b = 0; b < BANDS; ++b) bands.first[b] = first_below[b + 1];
        decide.all(BANDS, [&](Index t) { return most(bands.before[t], 1); },
                   [&](Index t) { return list.edge(double(t) + Bands::slack); });
        const double scale = 2.0 / (double(p) * double(list.m()));
        Index higher = 0;  // relevant documents in earlier bands
        for (Index b = 0; b < BANDS; ++b) {
            Index own = higher;
            while (own < p && list.band_of(list.relevant[own]) == b) ++own;
            bands.sorted[b] = first_below[b + 1] != bands.first[b] || (predicted && own > higher);
            const Index swapped = p + 1 - bands.first[b] - (predicted ? p - higher : 0);
            bands.coefficient[b] = bands.sorted[b] ? 0.0 : scale * double(swapped);
            higher = own;
        }
        bands.sorted[BANDS] = 1;
        bands.coefficient[BANDS] = 0.0;
    }

    // `finish` and `finish_predicted`, and `above`, for the documents that were sorted.
    template <class T, class Decisions>
    void finish_bands(List& list, const BinaryList& split, const Bands& bands, const BandedList<T>& banded,
                      const Decisions& decide, Span<int> above) const {
        const Span<const int> first_below = decide.first_below();
        const Index p = split.p(), m = split.m();
        const double scale = 2.0 / (double(p) * double(banded.m()));
        // Relevant i is below all irrelevant documents of which K is at most i + 1.
        above.fill(0);
        const auto add = [&](int k, int number) {
            if (k <= p) above[k - 1] = most(above[k - 1], number);
        };
        for (Index b = 0; b < BANDS; ++b)
            if (!bands.sorted[b]) add(bands.first[b], bands.before[b + 1]);
        for (Index t = 0; t < m; ++t) add(first_below[t + 1], bands.number[t]);
        raise_to_earlier(above);
        count_above(m, predicted ? p : 0, [&](Index t, Index i) { return split.relevant_score[i] >= split.irrelevant_score[t]; },
                    [&](Index t, Index i) {
                        const Index swapped = p + 1 - first_below[t + 1] - (predicted ? p - i : 0);
                        list.coefficient[split.irrelevant[t]] = scale * double(swapped);
                    });
        count_above(p, predicted ? m : 0, [&](Index i, Index t) { return split.relevant_score[i] < split.irrelevant_score[t]; },
                    [&](Index i, Index t) {
                        const Index earlier = predicted ? bands.before[banded.band_of(banded.relevant[i])] : 0;
                        const Index swapped = above[i] - most(earlier, t ? Index(bands.number[t - 1]) : 0);
                        list.coefficient[split.relevant[i]] = 0.0 - scale * double(swapped);
                    });
    }

    // `finish` or `finish_predicted`, and the task loss, with item weights. Tied documents are all placed alike.
    void finish_weighted(List& list, const BinaryList& split, Relevance relevance, ChosenSpace& chosen, Span<int> above,
                         Span<double> weights) const {
        const double pairs = sum_weights(list, split.relevant, weights) * sum_weights(list, split.irrelevant, weights);
        const double wrong = add_weighted(list, split, above, 1.0, weights);
        if (predicted) {
            const BinaryList preferred = chosen.split(list, split, relevance);
            count_above(split.p(), split.m(), [&](Index i, Index j) { return preferred.relevant_score[i] < preferred.irrelevant_score[j]; },
                        [&](int i, int j) { above[i] = j; });
            add_weighted(list, preferred, above, -1.0, weights);
        }
        const double scale = pairs == 0.0 ? 0.0 : 2.0 / pairs;  // weights may underflow
        for (double& each : list.coefficient) each *= scale;
        list.task_loss = pairs == 0.0 ? 0.0 : wrong / pairs;
        list.value = most(list.task_loss + dot(list.coefficient, list.score), 0.0);
    }

    // Compute the total weight of the first 0, 1, ... of these documents; returns that of all.
    static double sum_weights(const List& list, Span<const int> ranks, Span<double> sums) {
        sums[0] = 0.0;
        for (Index i = 0; i < ranks.size; ++i) sums[i + 1] = sums[i] + list.weight[ranks[i]];
        return sums[ranks.size];
    }

    // Add the weight of the swapped pairs of each irrelevant document to its coefficient, and subtract that of each relevant one;
    // returns the weight of all.
    static double add_weighted(List& list, const BinaryList& split, Span<const int> above, double sign, Span<double> sums) {
        const Index p = split.p(), m = split.m();
        double wrong = 0.0;
        sum_weights(list, split.irrelevant, sums);
        for (Index i = 0; i < p; ++i) {
            const int rank = split.relevant[i];
            const double its = list.weight[rank] * sums[above[i]];
            list.coefficient[rank] -= sign * its;
            wrong += its;
        }
        sum_weights(list, split.relevant, sums);
        count_above(m, p, [&](Index j, Index i) { return above[i] <= j; },
                    [&](Index j, Index i) {
                        const int rank = split.irrelevant[j];
                        list.coefficient[rank] += sign * (list.weight[rank] * (sums[p] - sums[i]));
                    });
        return wrong;
    }
};

// AUC (SVMauc): each pair separately is swapped if its margin is below 1/2. O(n) after the sort.
struct PlaceAUC {
    static constexpr bool one_gain = false;
    using Space = NoSpace;

    bool place(List& list, const BinaryList& split, Span<int> above, Space&) const {
        double swapped = 0.0;
        count_above(split.p(), split.m(), [&](Index i, Index j) { return split.relevant_score[i] - split.irrelevant_score[j] < 0.5; },
                    [&](int i, int j) {
                        above[i] = j;
                        swapped += double(j);
                    });
        list.task_loss = swapped / split.pairs();
        return true;
    }
};

// The credit of a relevant document at each rank, which for AP is the precision there.
struct Precision {
    static constexpr bool one_gain = false;

    // Of one list; `best` is the value of the best ranking, 0 if all ranks have the same credit, so that no ranking can be wrong.
    struct OfList {
        double gain, best;

        double at(int i, int above) const {  // of relevant document i, from 0, below `above` irrelevant ones
            return gain * double(i + 1) / double(i + 1 + above);
        }
    };

    static OfList of_list(const List&, const BinaryList& split, Index cutoff) {
        return {1.0 / double(split.p()), double(least(split.p(), cutoff)) / double(split.p())};
    }
};

struct PrecisionAtCutoff : Precision {
    Index cutoff;
};

// Discounts, which are 0 after the cut-off; `normalized` divides by the value of the best ranking.
struct Discounts {
    static constexpr bool one_gain = true;

    Span<const double> discounts;
    Index cutoff, normalized;

    struct OfList {
        double gain, best;
        Span<const double> discounts;

        double at(int i, int above) const { return gain * discounts[i + above]; }
    };

    OfList of_list(const List& list, const BinaryList& split, Index) const {
        const Index p = split.p(), n = p + split.m();
        const double gain = list.label[split.relevant[0]];
        double total = 0.0;
        for (Index i = 0; i < p; ++i) total += discounts[i];
        if (discounts[0] == discounts[n - 1] || total <= 0.0) return {0.0, 0.0, discounts};
        return normalized ? OfList{1.0 / total, 1.0, discounts} : OfList{gain, gain * total, discounts};
    }
};

// AP without a cut-off (SVMmap), and discounted gains with a convex discount (SVMndcg-nc): O(m + p log m).
//
// Monotone divide and conquer. `first_below[j]` is the first (1-based) relevant document below irrelevant j, or p + 1. The best
// value for j is independent of the others and does not decrease with j, so the values at distance `stride` bracket those
// between.
//
// With r = k + j - 1, placing irrelevant j above the relevant documents k..p gains, times m p / 2 and up to terms independent of
// k,
//
//     relevant_sum[k-1] - (k-1) s_j - m/2 (H[r] + (j-1)/r)      for AP, by (j-1) H[r-1] - j H[r] = -H[r] - (j-1)/r
//     relevant_sum[k-1] - (k-1) s_j + m/2 p g a[r]              for a discount a and a gain g
template <class Worth>
struct PlaceConvex : Worth {
    static constexpr bool solves_long = !Worth::one_gain;  // for AP, which needs no label

    struct Space {
        Room each;
        Span<int> first_below = each(each.count + 1), open = each;
        Span<double> relevant_sum = each(each.count + 1);                          // [i]: sum of the first i relevant scores
        Span<double> level = each(each.count + 1), slope = each(each.count + 1);  // by r: the terms are level + (j-1) slope

        Space(Room each, const PlaceConvex& placement, const Batch&) : each(each) {
            if (!each.arena.memory) return;
            level[0] = slope[0] = 0.0;
            for (Index r = 1; r <= each.count; ++r) {
                if constexpr (Worth::one_gain) {
                    level[r] = placement.discounts[r - 1];
                    slope[r] = 0.0;
                } else {
                    level[r] = level[r - 1] - 1.0 / double(r);
                    slope[r] = -1.0 / double(r);
                }
            }
        }
    };

    // For the relevant documents of a list, `first_below` of irrelevant ones.
    struct Decisions {
        Index p, m;
        typename Worth::OfList its;
        const Space& space;

        Decisions(Span<const double> relevant_score, Index m, const typename Worth::OfList& its, const Space& space)
            : p(relevant_score.size), m(m), its(its), space(space) {
            sum_up(relevant_score, space.relevant_sum);
        }

        // Compute first_below of `count` irrelevant documents, from 1: the j-th ones, of non-decreasing j, and their scores, which
        // do not increase. If the brackets of one coincide, as they usually do at the lower levels, nothing remains to be decided;
        // the others are listed first, without branches that would be mispredicted.
        template <class Number, class Score>
        void all(Index count, Number j_of, Score score_of) const {
            const double factor = 0.5 * double(m) * double(p) * its.gain;
            const int last = int(count), below_all = int(p) + 1;
            const Span<int> first_below = space.first_below, open = space.open;
            first_below[0] = 1;
            int stride = 1;
            while (stride * 2 <= last) stride *= 2;
            for (; stride >= 1; stride /= 2) {
                int undecided = 0;
                for (int t = stride; t <= last; t += 2 * stride) {
                    const int low = first_below[t - stride], high = t + stride <= last ? first_below[t + stride] : below_all;
                    first_below[t] = low;
                    open[undecided] = t;
                    undecided += low < high;
                }
                for (const int t : open.first(undecided)) {
                    const Index low = first_below[t], high = t + stride <= last ? first_below[t + stride] : below_all;
                    first_below[t] = int(best_between(low, high, j_of(t), score_of(t), factor, space));
                }
            }
        }

        Span<const int> first_below() const { return space.first_below; }
        double task_loss(Span<const int> above) const {
            return its.best - sum_of(p, [&](Index i) { return its.at(int(i), above[i]); });
        }
    };

    bool place(List& list, const BinaryList& split, Span<int> above, Space& space) const {
        const Index p = split.p(), m = split.m();
        const auto its = Worth::of_list(list, split, p + m);
        if (its.best == 0.0) return false;
        const Decisions decide(split.relevant_score, m, its, space);
        decide.all(m, [](Index j) { return j; }, [&](Index j) { return split.irrelevant_score[j - 1]; });
        // Relevant i is below all irrelevant j whose first relevant document below is at most i.
        above.fill(0);
        for (int j = 1; j <= m && space.first_below[j] <= p; ++j) above[space.first_below[j] - 1] = j;
        raise_to_earlier(above);
        list.task_loss = decide.task_loss(above);
        return true;
    }

    // Those of a list of AP.
    static Decisions decisions(Span<const double> relevant_score, Index m, const Space& space) {
        return {relevant_score, m, {1.0 / double(relevant_score.size), 1.0}, space};
    }

  private:
    // The first of the best k in [low, high] for irrelevant j.
    static Index best_between(Index low, Index high, Index j, double score, double factor, const Space& space) {
        const double* sum = &space.relevant_sum[low - 1];
        const double* level = &space.level[low + j - 1];
        const double* slope = &space.slope[low + j - 1];
        const double weight = double(j - 1), begin = double(low - 1);
        double best = -INFINITE;
        Index best_k = 0;
        for (Index k = 0; k <= high - low; ++k) {
            const double value = sum[k] - (begin + double(k)) * score + factor * (level[k] + weight * slope[k]);
            best_k = value > best ? k : best_k;
            best = most(value, best);
        }
        return low + best_k;
    }
};

// The relevant documents considered separately: own_best[i] irrelevant documents score above relevant i, which never decreases
// with i, and own_sum[i] is the total gain of documents i, i + 1, ... with these numbers.
struct OwnOptima {
    Room each;
    Span<double> irrelevant_sum = each(each.count + 1), relevant_sum = each(each.count + 1);  // prefix sums of the scores
    Span<double> own_sum = each(each.count + 1);                                             // suffix sums of the gains
    Span<int> own_best = each;
    double scale = 0.0;

    void find(const BinaryList& split) {
        const Index p = split.p(), m = split.m();
        scale = 2.0 / split.pairs();
        sum_up(split.irrelevant_score, irrelevant_sum);
        sum_up(split.relevant_score, relevant_sum);
        count_above(p, m, [&](Index i, Index j) { return split.irrelevant_score[j] > split.relevant_score[i]; },
                    [&](int i, int j) { own_best[i] = j; });
        own_sum[p] = 0.0;
        for (Index i = p - 1; i >= 0; --i) own_sum[i] = own_sum[i + 1] + gain(i, own_best[i], split.relevant_score[i]);
    }

    // The gain of a relevant document with `b` irrelevant ones above it.
    double gain(Index, Index above, double score) const { return scale * (irrelevant_sum[above] - double(above) * score); }

    // The total gain of the relevant documents [first, p) if each takes its own best number, but at least b.
    double tail(Index first, Index b, Index p) const {
        const Index low = std::lower_bound(own_best.begin() + first, own_best.begin() + p, b) - own_best.begin();
        return scale * (double(low - first) * irrelevant_sum[b] - double(b) * (relevant_sum[low] - relevant_sum[first])) + own_sum[low];
    }
};

// AP@k and discounted gains with any discount, 0 after rank k: a dynamic program over the number of irrelevant documents above
// each relevant one.
//
// O(n + min(k, p) min(k, m)) after the sort. A relevant document after rank k earns nothing, and its best number is its own
// optimum. So only the cells with i + b <= k need the running maximum
//
//     T_i(b) = h_i(b) - credit(i, b) + max_{b' <= b} T_{i-1}(b'),       h_i(b) = 2/(p m) (S(b) - b s_i)
//
// If relevant t is the last one within rank k, each later one takes max(own optimum, k - t).
template <class Worth>
struct PlaceWithCutoff : Worth {
    struct Space : Scratch<PlaceWithCutoff> {
        OwnOptima own{this->each};
        // T_i(b), and its maximum over b' <= b.
        Span<double> table = this->each(least(this->kernel.cutoff, this->each.count) + 1);
        Span<double> running = this->each(table.size);
        Growing<unsigned char> raised{};  // by row and column: whether the running maximum increased there
    };

    bool place(List& list, const BinaryList& split, Span<int> above, Space& space) const {
        const Index p = split.p(), m = split.m(), k = least(this->cutoff, p + m);
        const auto its = Worth::of_list(list, split, k);
        const Index rows = least(p, k), columns = least(m, k) + 1;
        if (its.best == 0.0) return false;
        list.lacks_room = !space.raised.reserve((rows + 1) * columns);
        if (list.lacks_room) return false;
        const Span<unsigned char> raised = space.raised.first((rows + 1) * columns);
        OwnOptima& own = space.own;
        own.find(split);
        space.table.first(columns).fill(0.0);
        double best = k <= m ? own.tail(0, k, p) : -INFINITE;
        Index best_t = 0, best_b = 0;
        for (Index i = 1; i <= rows; ++i) {
            const Index last = least(m, k - i);
            double highest = -INFINITE;
            for (Index b = 0; b <= last; ++b) {
                raised[i * columns + b] = space.table[b] > highest;
                space.running[b] = highest = most(highest, space.table[b]);
            }
            const double score = split.relevant_score[i - 1];
            for (Index b = 0; b <= last; ++b) space.table[b] = space.running[b] + own.gain(i, b, score) - its.at(i - 1, b);
            if (i < p && k - i > m) continue;
            double row_best = -INFINITE;
            Index row_b = 0;
            for (Index b = 0; b <= last; ++b)
                if (space.table[b] > row_best) row_best = space.table[b], row_b = b;
            if (i < p) row_best += own.tail(i, k - i, p);
            if (row_best > best) best = row_best, best_t = i, best_b = row_b;
        }
        for (Index i = best_t, b = best_b; i > 0; --i) {
            above[i - 1] = int(b);
            while (!raised[i * columns + b]) --b;
        }
        for (Index i = best_t; i < p; ++i) above[i] = most(own.own_best[i], int(k - best_t));
        double measure = 0.0;
        for (Index i = 0; i < best_t; ++i) measure += its.at(int(i), above[i]);
        list.task_loss = its.best - measure;
        return true;
    }
};

// Reciprocal rank: only the first relevant document earns credit, and all its ranks are tried; with b irrelevant documents above
// it, each other one takes max(own optimum, b). O(n log n).
struct PlaceFirst {
    static constexpr bool one_gain = false;

    Index cutoff;

    struct Space : Scratch<PlaceFirst> {
        OwnOptima own{each};
    };

    bool place(List& list, const BinaryList& split, Span<int> above, Space& space) const {
        OwnOptima& own = space.own;
        own.find(split);
        double best = -INFINITE;
        Index best_b = 0;
        for (Index b = own.own_best[0]; b <= split.m(); ++b) {
            const double earned = b < cutoff ? 1.0 / double(1 + b) : 0.0;
            const double found = own.tail(0, b, split.p()) - earned;
            if (found > best) best = found, best_b = b, list.task_loss = 1.0 - earned;
        }
        for (Index i = 0; i < split.p(); ++i) above[i] = most(own.own_best[i], int(best_b));
        return true;
    }
};

}  // namespace rankstruct
