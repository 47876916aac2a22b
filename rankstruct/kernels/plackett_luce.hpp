// Rankings sampled from a Plackett-Luce policy and the gradients estimated from them; the mathematics is in
// `losses.plackett_luce`.
//
// A few ranks are drawn one by one, O(n + k log n) per ranking. For all ranks, exponential noise divided by exp(s) is sorted in
// ascending order, which has the distribution of the policy. Derivatives cost O(n). All use exp of score differences, and refuse
// a list whose scores differ too much.
#pragma once

#include "grades.hpp"
#include "lists.hpp"
#include "sum_tree.hpp"
#include "sums.hpp"
#include "vector_math.hpp"

namespace rankstruct {

// The largest difference of scores: a double must represent exp of it, its inverse, and a little more; and the same for the cube.
constexpr double WIDEST_POLICY = 600.0, WIDEST_CURVED_POLICY = 200.0;

// The policy of one list after another.
struct Policy {
    Room each;
    Index size = 0, real = 0;   // documents
    Span<double> power = each;  // by position, exp(score - highest score); 0 for padding
    SumTree tree{each};
    SortSpace<float> sort{each};
    Span<double> key = each, rest = each;                                     // by position
    Span<double> own = each, reward = each, inverse = each, to_come = each;  // by rank

    // Set up a list; returns false if its scores differ too much or are not finite. `real(d)` says whether d is a document.
    template <class T, class Real>
    [[gnu::flatten]] bool begin(Span<const T> scores, double widest, Real is_real) {
        size = scores.size;
        const T* given = scores.data;
        double *score = key.data, *there = rest.data, *its = power.data;
        for (Index d = 0; d < size; ++d) there[d] = is_real(d) ? 1.0 : 0.0;
        for (Index d = 0; d < size; ++d) score[d] = there[d] > 0.0 ? double(given[d]) : -INFINITE;
        const double top = highest_of(size, [=](Index d) { return score[d]; });
        for (Index d = 0; d < size; ++d) its[d] = there[d] > 0.0 ? low_exp(score[d] - top) : 0.0;
        real = Index(sum(rest.first(size)));
        return sum_of(size, [=](Index d) { return there[d] * double(!(top - score[d] <= widest)); }) == 0.0;
    }

    // Sample all ranks: positions in ranking order, padding last. `noise(d)` is minus the exponential noise of position d.
    template <class Noise>
    Span<int> draw_all(Noise noise) {
        constexpr double last = -1e300;    // below all others, and half of its bits are still a number
        constexpr double small = 0x1p-20;  // keeps most keys below 1, where they share more leading bits
        double *its = key.data, *of_place = power.data;
        for (Index d = 0; d < size; ++d) its[d] = noise(d);
        for (Index d = 0; d < size; ++d) its[d] = of_place[d] > 0.0 ? small * its[d] / of_place[d] : last;
        return sort_keys();
    }

    // Add a ranking's estimate of the gradient, by position; the module explains the three terms. Returns the gain.
    template <class Place>
    double add_gradient(Span<Place> ranking, const double* worth, const double* rewards, double* found) const {
        const double gained = look_ahead(ranking, worth, rewards);
        double of_worth = 0.0, of_rest = 0.0;
        for (Index r = 0; r < ranking.size; ++r) {
            of_worth += worth[r] * inverse[r];
            of_rest += to_come[r] * inverse[r];
            found[ranking[r]] += to_come[r] - worth[r] * reward[r] + own[r] * (reward[r] * of_worth - of_rest);
        }
        for (Index d = 0; ranking.size < real && d < size; ++d) found[d] += rest[d] * (rewards[d] * of_worth - of_rest);
        return gained;
    }

    // The same for second derivatives, of each document in its own score; the module defines A_r, B_r and the terms.
    template <class Place>
    double add_curvature(Span<Place> ranking, const double* worth, const double* rewards, double* found) const {
        const double gained = look_ahead(ranking, worth, rewards);
        double once = 0.0, twice = 0.0;  // A_r and B_r
        double others = 0.0, others_squared = 0.0, of_own = 0.0, of_own_squared = 0.0, of_own_cubed = 0.0;
        const auto estimate = [&](double p, double its) {
            return p * (p * others_squared - others + its * (of_own - 3.0 * p * of_own_squared + p * p * of_own_cubed));
        };
        for (Index r = 0; r < ranking.size; ++r) {
            once += inverse[r];
            twice += inverse[r] * inverse[r];
            const double p = own[r], gain = worth[r] * reward[r], squares = once * once + twice, weight = worth[r] * inverse[r];
            of_own += weight;
            of_own_squared += weight * once;
            of_own_cubed += weight * squares;
            const double if_placed = 1.0 - 3.0 * p * once + p * p * squares;
            found[ranking[r]] += (to_come[r] - gain) * if_placed + estimate(p, reward[r]);
            others += gain * once;
            others_squared += gain * squares;
        }
        for (Index d = 0; ranking.size < real && d < size; ++d) found[d] += estimate(rest[d], rewards[d]);
        return gained;
    }

  private:
    // The stable descending order of the keys, which are at most 0. They are sorted by the first half of their bits, as numbers;
    // the few that remain ambiguous are corrected.
    Span<int> sort_keys() {
        const double* its = key.data;
        float* rough = sort.value.data;
        for (Index d = 0; d < size; ++d) rough[d] = __builtin_bit_cast(float, Bits32(__builtin_bit_cast(Bits64, its[d]) >> 32));
        const Span<int> order = sort_descending<float>(sort.value.first(size), sort);
        for (Index r = 1; r < size; ++r) {
            const int moved = order[r];
            Index to = r;
            for (; to > 0 && its[order[to - 1]] < its[moved]; --to) order[to] = order[to - 1];
            order[to] = moved;
        }
        return order;
    }

    // Precompute for each rank: the power and reward of its document, the inverse of the remaining powers, and the gain from
    // there on; and for each position its power if it is not ranked. Returns the gain.
    template <class Place>
    double look_ahead(Span<Place> ranking, const double* worth, const double* rewards) const {
        double left = 0.0, gained = 0.0;
        if (ranking.size < real) {
            for (Index d = 0; d < size; ++d) rest[d] = power[d];
            for (const Place place : ranking) rest[place] = 0.0;
            left = sum(rest.first(size));
        }
        for (Index r = ranking.size - 1; r >= 0; --r) {
            left += own[r] = power[ranking[r]];
            gained += worth[r] * (reward[r] = rewards[ranking[r]]);
            inverse[r] = 1.0 / left;
            to_come[r] = gained;
        }
        return gained;
    }
};

// Do `solve(index, space)` for the lists [first, last), of at most `longest` documents, until it refuses a list. Returns -1, the
// number of that list, or OUT_OF_MEMORY.
template <class Space, class Solve>
Index each_list(Index longest, Index first, Index last, Solve solve) {
    return with_space<Space>(longest, [&](Space& space) {
        Index index = first;
        while (index < last && solve(index, space)) ++index;
        return index < last ? index : -1;
    });
}

// 1 - the expected discounted gain of sampled rankings relative to the best one, and its gradient: PL-Rank in one call, without a
// tensor of samples. Labels are gains.
struct PolicyLoss {
    Span<const double> uniform;    // in [0, 1): [samples, lists, longest], or [samples, lists, k] if `few`
    Span<const double> discounts;  // [longest list]
    Index samples, k;              // ranks after k are worth nothing
    Index few;                     // whether to draw rank by rank

    template <class T>
    Index run(Batch& batch, Index first, Index last) const {
        batch.sum = 0.0;
        batch.real_lists = 0;
        const auto its = [&](Index index, Space& space) { return solve<T>(batch, index, space); };
        return each_list<Space>(discounts.size, first, last, its);
    }

  private:
    struct Space {
        Room each;
        Policy policy{each};
        GradeSpace grades{each};
        Span<int> place = each;
        Span<double> gain = each, found = each;
    };

    template <class T>
    bool solve(Batch& batch, Index index, Space& space) const {
        const Index start = batch.begin(index), n = batch.begin(index + 1) - start;
        const auto is_real = [where = batch.where, start](Index d) { return !where || where[start + d]; };
        if (!space.policy.begin<T>({static_cast<const T*>(batch.scores) + start, n}, WIDEST_POLICY, is_real)) return false;
        const Span<double> gain = space.gain.first(n), found = space.found.first(n);
        for (Index d = 0; d < n; ++d) space.place[d] = int(d);
        read_labels(batch, start, space.place.first(n), gain);
        for (Index d = 0; d < n; ++d) gain[d] = is_real(d) ? gain[d] : 0.0;
        if (first_below(gain, space.place, 0.0) >= 0) return false;
        found.fill(0.0);
        double value = 0.0, scale = 0.0;
        if (const double best = best_gain(space, gain); best > 0.0) {
            for (Index row = index; row < samples * batch.lists; row += batch.lists)
                value += space.policy.add_gradient(draw(space, row), discounts.data, gain.data, found.data);
            scale = 1.0 / (double(samples) * best);
            value = 1.0 - value * scale;
        }
        for (Index d = 0; d < n; ++d) static_cast<T*>(batch.direction)[start + d] = T(0.0 - scale * found[d]);
        static_cast<T*>(batch.value)[index] = T(value);
        batch.sum += double(T(value));
        batch.real_lists += space.policy.real > 0;
        return true;
    }

    Span<int> draw(Space& space, Index row) const {
        const Span<int> ranking = space.place.first(least(k, space.policy.real));
        const double* its = uniform.data + row * (few ? k : discounts.size);
        if (!few) return space.policy.draw_all([=](Index d) { return near_log(1.0 - its[d]); }).first(ranking.size);
        space.policy.tree.fill(space.policy.power.first(space.policy.size));
        space.policy.tree.draw(its, ranking);
        return ranking;
    }

    // The gain of the best ranking, or 0 if all rankings have that.
    double best_gain(Space& space, Span<const double> gain) const {
        const Index real = space.policy.real;
        if (!real || !(discounts[real - 1] < discounts[0])) return 0.0;
        const Grades grades = number_grades(gain, space.grades);
        const auto rank = [=, this](int g) { return least(k, Index(grades.starts[g])); };
        double best = 0.0;
        for (int g = 0; grades.starts[1] < real && g < grades.count(); ++g)
            best += grades.value[g] * sum(discounts.slice(rank(g), rank(g + 1)));
        return best;
    }
};

// Lists are not sorted.
inline Index run(Batch& batch, const PolicyLoss& loss, Index first, Index last) {
    return batch.score_type == FLOAT32 ? loss.run<float>(batch, first, last) : loss.run<double>(batch, first, last);
}

// Rankings of padded lists, with the fields of `kernels.core.Rankings`. Loops return -1, the number of a list with too large score
// differences, or OUT_OF_MEMORY.
struct Rankings {
    Span<const double> scores;          // [lists, n]
    Span<const unsigned char> where;    // [lists, n]
    Span<const double> random;          // see below
    Span<Index> placed;                 // [samples, lists, k], positions, padding last
    Span<const double> worth, rewards;  // [lists, k] and [lists, n]
    Span<double> found;                 // [lists, n]
    Index lists, n, samples, k;

    // Fill `placed` from numbers in [0, 1), [samples, lists, k].
    Index draw_few(Index first, Index last) const {
        return each_ranking(first, last, WIDEST_POLICY, [&](Index row, Policy& policy) {
            const Span<Index> ranking = Span<Index>{placed.data + row * k, k}.first(least(policy.real, k));
            if (row < lists) policy.tree.fill(policy.power.first(n));
            policy.tree.draw(random.data + row * k, ranking);
            Index* padding = ranking.end();
            for (Index d = 0; padding < placed.data + (row + 1) * k; ++d)
                if (policy.power[d] == 0.0) *padding++ = d;
        });
    }

    // The same from exponential noise, [samples, lists, n].
    Index draw(Index first, Index last) const {
        return each_ranking(first, last, WIDEST_POLICY, [&](Index row, Policy& policy) {
            const Span<int> order = policy.draw_all([its = random.data + row * n](Index d) { return -its[d]; });
            for (Index r = 0; r < k; ++r) placed.data[row * k + r] = order[r];
        });
    }

    // Fill `found` with the mean over sampled rankings of what `add` estimates for each.
    template <class Add>
    Index derive(Add add, double widest, Index first, Index last) const {
        for (Index d = first * n; d < last * n; ++d) found.data[d] = 0.0;
        const Index wrong = each_ranking(first, last, widest, [&](Index row, Policy& policy) {
            const Index list = row % lists;
            (policy.*add)({placed.data + row * k, least(policy.real, k)}, worth.data + list * k, rewards.data + list * n,
                          found.data + list * n);
        });
        for (Index d = first * n; d < last * n; ++d) found.data[d] /= double(samples);
        return wrong;
    }

  private:
    // Call `row(sample * lists + list, policy)` for all samples of each list in [first, last).
    template <class Row>
    Index each_ranking(Index first, Index last, double widest, Row row) const {
        return each_list<Policy>(n, first, last, [&](Index list, Policy& policy) {
            const auto is_real = [its = where.data + list * n](Index d) { return its[d] != 0; };
            if (!policy.begin<double>({scores.data + list * n, n}, widest, is_real)) return false;
            for (Index sample = 0; sample < samples; ++sample) row(sample * lists + list, policy);
            return true;
        });
    }
};

}  // namespace rankstruct
