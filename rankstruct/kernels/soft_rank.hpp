// SoftRank: the expected discounted gain if each score is the mean of a Gaussian. A document's rank, from 0, is the number of
// documents above it, a sum of independent Bernoulli variables with probabilities pi_i:
//
//     q_0 = 1        q_i = (1 - pi_i + pi_i z) q_(i-1)        mean discount = sum_r a_r [z^r] q_n
//
// Backward in i, e_r is the expected discount given a rank of r so far: e_r <- e_r + pi_i (e_(r+1) - e_r). The derivative in pi_i
// is sum_r [z^r] q_(i-1) (e_(r+1) - e_r). The models are in `losses.soft_rank`.
//
// The variables are processed by descending pi_i. Negligible ranks are left out of q, and so are variables that are almost
// certain: by Hoeffding's inequality O(sqrt n) ranks remain at a time, and a document far below the cut-off is finished after a
// few variables. So a list takes O(n m min(k, sqrt n)) for m documents with a gain, and less if sigma is small.
#pragma once

#include <algorithm>
#include <functional>

#include "lists.hpp"
#include "pair_sums.hpp"
#include "vector_math.hpp"

namespace rankstruct {

struct SoftRanks : Gains {
    static constexpr int lanes = 8;  // documents, adjacent by score, processed together
    static constexpr double unlikely = 1e-20, exponent = 46.0;  // a probability of exp(-46) is neglected
    static constexpr double far = 6.6;                          // erfc(-z) / 2 is 1 from here on
    static constexpr double least_variance = 1e-4;  // of a rank; then its normal distribution is concentrated on an integer
    static constexpr double one_over_root_pi = 0.56418958354775628695;

    Index normalized;
    double sigma;
    Span<const double> nodes, shares;  // offsets of a document's score, in units of sigma, and their weights
    double steepness;                  // probabilities are erfc(steepness x difference) / 2
    Index normal;                      // whether a rank is normal, with the mean and the variance of the sum

    struct Lanes {
        double of[lanes];
    };

    struct Space : Scratch<SoftRanks> {
        GradeSpace grades{each};
        Span<double> gain = each, x = each;                // gains, and scores in units of sigma
        Span<Lanes> up = each, down = each, slope = each;  // of each variable: pi, 1 - pi, and the derivative in the score
        Span<Lanes> chance = each(most_chances(kernel, each.count)), worth = each(kernel.ranks(each.count) + 1);  // all q, and e
        Span<Index> begin = each(each.count + 1);                           // rank 0 of each q in `chance`
        Span<int> low = each(each.count + 1), high = each(each.count + 1);  // the ranks of each q

        // Ranks further than t from the mean have a probability of at most exp(-2 t^2 / n). One zero is kept on either side.
        static Index most_chances(const SoftRanks& kernel, Index n) {
            const Index k = kernel.ranks(n);
            return kernel.normal ? 3 * k : (n + 1) * (least(k, Index(2.0 * sqrt(0.5 * exponent * double(n))) + 3) + 2);
        }
    };

    // A group of documents, each with a node.
    struct Group {
        double centre[lanes], share[lanes];  // score plus node; gain times weight, 0 after the last document
        int rank[lanes];                     // of the document by score
        Index first, last;                   // variables to process; those before `first` are 1
    };

    void solve(List& list, Space& space) const {
        const Span<double> gain = space.gain.first(list.size);
        const double best = read(list, normalized, gain, space.grades);
        if (best <= 0.0) return;
        const double scale = 1.0 / width_of(list, sigma);
        for (Index r = 0; r < list.size; ++r) space.x[r] = scale * list.score[r];
        Group group{};
        int count = 0;
        for (Index r = 0; r < list.size; ++r) {
            if (!(gain[r] > 0.0)) continue;
            for (Index node = 0; node < nodes.size; ++node) {
                group.centre[count] = space.x[r] + nodes[node];
                group.share[count] = gain[r] * shares[node];
                group.rank[count] = int(r);
                if (++count == lanes) solve_group(list, group, space), count = 0;
            }
        }
        for (int l = count; l && l < lanes; ++l) {
            group.centre[l] = group.centre[0];
            group.share[l] = 0.0;
            group.rank[l] = group.rank[0];
        }
        if (count) solve_group(list, group, space);
        list.value = best - list.value;
        for (double& each : list.coefficient) each *= -scale;
    }

  private:
    static constexpr Index NO_RANK = -1, NO_ROOM = -2;

    void solve_group(List& list, Group& group, Space& space) const {
        double highest = group.centre[0], lowest = highest;
        for (const double centre : group.centre) {
            highest = most(highest, centre);
            lowest = least(lowest, centre);
        }
        const Span<const double> x = space.x.first(list.size);
        if (is_far_below(double(count_above(x, highest)), double(kept))) return;
        group.first = count_above(x, highest + far / steepness);
        group.last = count_above(x, lowest - far / steepness);
        if (normal) {
            fill_chances(group, group.first, group.last, space);
            take_normal(list, group, space);
            return;
        }
        const Index coins = throw_coins(group, space);
        if (coins >= 0) take_back(list, group, coins, space);
        for (int l = 0; coins == NO_ROOM && l < lanes; ++l) {
            Group alone{{}, {group.share[l]}, {}, group.first, group.last};
            for (double& centre : alone.centre) centre = group.centre[l];
            for (int& rank : alone.rank) rank = group.rank[l];
            const Index its = throw_coins(alone, space);
            if (its >= 0) take_back(list, alone, its, space);
        }
    }

    // The number of values, in descending order, that are at least a bound.
    static Index count_above(Span<const double> x, double bound) {
        return std::upper_bound(x.begin(), x.end(), bound, std::greater<double>()) - x.begin();
    }

    // Whether a document has a negligible probability of one of the first ranks, by Chernoff's inequality: each document with a
    // higher score, and possibly itself, is above it with probability 1/2 or more.
    static bool is_far_below(double above, double ranks) {
        const double mean = 0.5 * above - 1.0, away = mean - ranks;
        return away > 0.0 && away * away > 2.0 * exponent * mean;
    }

    void fill_chances(const Group& group, Index first, Index last, Space& space) const {
        for (Index i = first; i < last; ++i)
            for (int l = 0; l < lanes; ++l) space.up[i].of[l] = steepness * (space.x[i] - group.centre[l]);
        if (first < last) fill_chances(last - first, &space.up[first], &space.down[first], &space.slope[first]);
        for (int l = 0; l < lanes; ++l) {
            const int own = group.rank[l];
            if (own < first || own >= last) continue;
            space.up[own].of[l] = space.slope[own].of[l] = 0.0;
            space.down[own].of[l] = 1.0;
        }
    }

    // Replace z by the probabilities erfc(-z) / 2 and their complements, and compute the derivatives in z / steepness.
    [[gnu::flatten]] void fill_chances(Index count, Lanes* chances, Lanes* opposites, Lanes* slopes) const {
        const double bell_to_slope = steepness * one_over_root_pi;
        double *__restrict chance = chances->of, *__restrict opposite = opposites->of, *__restrict slope = slopes->of;
        for (Index i = 0; i < count * lanes; ++i) {
            const double z = chance[i];
            const NormalTail tail = normal_tail(fabs(z));
            const double rest = 1.0 - tail.chance;
            chance[i] = z > 0.0 ? rest : tail.chance;
            opposite[i] = z > 0.0 ? tail.chance : rest;
            slope[i] = bell_to_slope * tail.bell;
        }
    }

    // Compute all q; returns the number of variables processed, NO_RANK if no relevant rank remains, or NO_ROOM if the documents
    // of the group are too far apart.
    Index throw_coins(const Group& group, Space& space) const {
        constexpr Index block = 32;
        const int k = int(space.worth.size - 1);
        int low = int(group.first), high = low + 1;
        if (low >= k) return NO_RANK;
        Index begin = 1 - low;
        space.chance[0] = space.chance[2] = {};
        for (double& each : space.chance[1].of) each = 1.0;
        for (Index i = group.first, c = 0; i < group.last; ++i, ++c) {
            if (c % block == 0) fill_chances(group, i, least(i + block, group.last), space);
            space.begin[c] = begin;
            space.low[c] = low;
            space.high[c] = high;
            const Index next = begin + high + 2 - low;
            const int end = least(high + 1, k);
            if (next + end >= space.chance.size) return NO_ROOM;
            throw_coin(space.up[i].of, space.down[i].of, &space.chance[begin + low], &space.chance[next + low], end - low);
            begin = next;
            while (low < end && is_unlikely(space.chance[begin + low])) ++low;
            high = end;
            while (high > low && is_unlikely(space.chance[begin + high - 1])) --high;
            if (low == high) return NO_RANK;
            space.chance[begin + low - 1] = space.chance[begin + high] = {};
        }
        const Index coins = group.last - group.first;
        space.begin[coins] = begin;
        space.low[coins] = low;
        space.high[coins] = high;
        return coins;
    }

    static void throw_coin(const double* up, const double* down, const Lanes* before, Lanes* now, Index ranks) {
        Lanes rise, stay;
        for (int l = 0; l < lanes; ++l) rise.of[l] = up[l], stay.of[l] = down[l];
        for (Index r = 0; r < ranks; ++r) {
            const double *same = before[r].of, *lower = before[r - 1].of;
            double* __restrict to = now[r].of;
            for (int l = 0; l < lanes; ++l) to[l] = stay.of[l] * same[l] + rise.of[l] * lower[l];
        }
    }

    static bool is_unlikely(const Lanes& chance) {
        double highest = chance.of[0];
        for (const double each : chance.of) highest = most(highest, each);
        return highest < unlikely;
    }

    void take_back(List& list, const Group& group, Index coins, Space& space) const {
        for (Index r = 0; r < space.worth.size; ++r)
            for (double& each : space.worth[r].of) each = discount(r, list.size);
        for (int r = space.low[coins]; r < space.high[coins]; ++r) {
            const Lanes& chance = space.chance[space.begin[coins] + r];
            for (int l = 0; l < lanes; ++l) list.value += group.share[l] * space.worth[r].of[l] * chance.of[l];
        }
        Lanes own{};
        for (Index c = coins - 1; c >= 0; --c) {
            const Index i = group.first + c;
            const int low = space.low[c];
            const Lanes* chance = &space.chance[space.begin[c] + low];
            const Lanes gained = take_coin(space.up[i].of, chance, &space.worth[low], space.high[c] - low);
            add_slopes(list, group, i, gained, space, own);
        }
        for (int l = 0; l < lanes; ++l) list.coefficient[group.rank[l]] -= own.of[l];
    }

    // Undo one variable in e, and return the derivative in its probability.
    static Lanes take_coin(const double* up, const Lanes* chance, Lanes* worth, Index ranks) {
        Lanes rise, gained{};
        for (int l = 0; l < lanes; ++l) rise.of[l] = up[l];
        for (Index r = 0; r < ranks; ++r) {
            const double *its = chance[r].of, *higher = worth[r + 1].of;
            double* __restrict mine = worth[r].of;
            for (int l = 0; l < lanes; ++l) {
                const double more = higher[l] - mine[l];
                gained.of[l] += its[l] * more;
                mine[l] += rise.of[l] * more;
            }
        }
        return gained;
    }

    // Add the derivatives of a variable to its document's score, and to those of the group, in `own`.
    static void add_slopes(List& list, const Group& group, Index i, const Lanes& gained, const Space& space, Lanes& own) {
        double total = 0.0;
        for (int l = 0; l < lanes; ++l) {
            const double each = group.share[l] * gained.of[l] * space.slope[i].of[l];
            own.of[l] += each;
            total += each;
        }
        list.coefficient[i] += total;
    }

    double discount(Index rank, Index n) const { return rank < ranks(n) ? discounts[rank] : 0.0; }

    // Normal ranks: a rank above r has probability Phi((mean - r - 1/2) / deviation).
    void take_normal(List& list, const Group& group, Space& space) const {
        Lanes mean{}, variance{}, over{}, value{}, by_mean{}, by_variance{}, own{};
        for (Index i = group.first; i < group.last; ++i) {
            const double *up = space.up[i].of, *down = space.down[i].of;
            for (int l = 0; l < lanes; ++l) {
                mean.of[l] += up[l];
                variance.of[l] += up[l] * down[l];
            }
        }
        for (int l = 0; l < lanes; ++l) {
            mean.of[l] += double(group.first) - 0.5;
            over.of[l] = sqrt(0.5 / most(variance.of[l], least_variance));
            value.of[l] = discounts[0];
        }
        const Index ranks = least(kept, list.size - 1);
        Lanes *behind = space.chance.data, *slope = behind + 2 * ranks;
        for (Index r = 0; r < ranks; ++r)
            for (int l = 0; l < lanes; ++l) behind[r].of[l] = (mean.of[l] - double(r)) * over.of[l];
        fill_chances(ranks, behind, behind + ranks, slope);
        for (Index r = 0; r < ranks; ++r) {
            const double fall = discount(r + 1, list.size) - discounts[r];
            for (int l = 0; l < lanes; ++l) {
                const double by_z = fall / steepness * slope[r].of[l] * over.of[l];
                value.of[l] += fall * behind[r].of[l];
                by_mean.of[l] += by_z;
                by_variance.of[l] -= by_z * (mean.of[l] - double(r)) * over.of[l] * over.of[l];
            }
        }
        for (int l = 0; l < lanes; ++l) {
            list.value += group.share[l] * value.of[l];
            by_variance.of[l] = variance.of[l] > least_variance ? by_variance.of[l] : 0.0;
        }
        for (Index i = group.first; i < group.last; ++i) {
            Lanes gained;
            for (int l = 0; l < lanes; ++l)
                gained.of[l] = by_mean.of[l] + by_variance.of[l] * (space.down[i].of[l] - space.up[i].of[l]);
            add_slopes(list, group, i, gained, space, own);
        }
        for (int l = 0; l < lanes; ++l) list.coefficient[group.rank[l]] -= own.of[l];
    }
};

}  // namespace rankstruct
